//! Requests to members by HTTP/2. All clients of a worker share a few connections to each member (`h2_upstream/upstream.rs`).

mod handle;
mod stalled;
mod upstream;

use std::{future::poll_fn, io, net::SocketAddr, rc::Rc, sync::Arc, task::Poll};

use seaway_wire::{
    http::{BodyFraming, KnownHeader, Limits, Method, ReadProgress, Request, Response},
    http2::{Connection, ErrorCode, FieldBlock},
};

pub(super) use self::upstream::StreamReservation;
use self::{
    handle::H2Handle,
    upstream::{NextConnection, Upstream},
};
use super::{
    body_relay::BodyRelay,
    exchange::ExchangeState,
    h2_connection::{H2Connection, for_member},
    h2_stream::{H2Stream, fields_of},
    relay::put_interim,
    scratch::Scratch,
    serve::DownstreamClient,
    stream_inbox::{ResponseHead, StreamInbox},
    switch,
    task_state::TaskState,
    transport::HttpTransport,
    upstream_request::{UpstreamError, reached, secured, send_on},
    worker_context::WorkerContext,
};
use crate::{
    by_address::ByAddress,
    latency::LatencyKind,
    running::{RunningMember, RunningPool},
};

/// What was let in is a little longer by now.
const OURS: Limits = Limits { head: 128 << 10, target: 128 << 10, fields: 8 << 10 };

/// In milliseconds: one that has not said what it takes by then is asked all the same.
const SETTINGS: u64 = 1_000;

#[derive(Default)]
pub(super) struct H2UpstreamPool {
    /// By the member's own place in memory, which its `Arc` here keeps from being anybody else's.
    by_member: ByAddress<Rc<Upstream>>,
}

impl H2UpstreamPool {
    /// Connections end when nobody asks by them any more.
    pub(super) fn forget_draining_members(&mut self) {
        self.by_member.retain(|_, upstream| {
            let stays = upstream.member().draining_since().is_none();
            if !stays {
                upstream.close();
            }
            stays
        });
    }

    pub(super) fn clear(&mut self) {
        self.by_member.drain().for_each(|(_, upstream)| upstream.close());
    }

    fn of(&mut self, context: &Rc<WorkerContext>, member: &Arc<RunningMember>) -> Rc<Upstream> {
        let key = Arc::as_ptr(member) as usize;
        if let Some(known) = self.by_member.get(&key) {
            return known.clone();
        }
        let upstream = Upstream::new(context, member);
        if member.draining_since().is_none() {
            self.by_member.insert(key, upstream.clone());
        }
        upstream
    }
}

/// The member takes another request of this client now, without a wait.
pub(super) fn is_free(client: &DownstreamClient, member: &Arc<RunningMember>) -> bool {
    let upstream = client.context.h2_upstreams().of(&client.context, member);
    upstream.is_free(client)
}

/// Sends the request, and reads the head of the answer. Tells whether the connection had been used before.
pub(super) async fn ask(
    client: &DownstreamClient,
    scratch: &mut Scratch,
    state: ExchangeState<'_>,
    pool: &RunningPool,
    member: &Arc<RunningMember>,
    fresh_only: bool,
) -> (Result<HttpTransport, UpstreamError>, bool) {
    let upstream = client.context.h2_upstreams().of(&client.context, member);
    let Some(reservation) = upstream.wait_for_stream(client, state.response_timeout).await else {
        let why = if client.is_gone() { UpstreamError::Client } else { UpstreamError::Refused(503) };
        return (Err(why), false);
    };
    let has_body = scratch.request.body != BodyFraming::None;
    let mut next = match fresh_only {
        true => NextConnection::Open(upstream.opening_guard()),
        false => upstream.next_connection(client, has_body, state.response_timeout).await,
    };
    let (h2, reused) = loop {
        match next {
            NextConnection::Existing(h2) => break (h2, true),
            NextConnection::Open(opening) => {
                client.allow(state.connect_timeout);
                let started = client.context.shared.started();
                let made = connect(client, pool, &upstream, member).await;
                if let Ok(h2) = &made {
                    client.context.record_latency(pool, None, LatencyKind::Connect, started);
                    has_heard(h2, client).await;
                }
                drop(opening);
                match made {
                    // Others were faster: its streams may last for long.
                    Ok(h2) if !fresh_only && h2.has_all_streams() => {
                        next = upstream.next_connection(client, has_body, state.response_timeout).await;
                    }
                    Ok(h2) => break (h2, false),
                    Err(error) => return (Err(UpstreamError::of_connecting(error)), false),
                }
            }
            NextConnection::Unavailable => return (Err(UpstreamError::Refused(503)), false),
            NextConnection::ClientGone => return (Err(UpstreamError::Client), false),
        }
    };
    let is_secure = pool.live().upstream_tls.is_some();
    let result = ask_by(&h2, client, scratch, state, (is_secure, member.at), reservation).await;
    if !matches!(result, Ok(_) | Err(UpstreamError::Refused(_) | UpstreamError::Client)) {
        // It may be the connection's fault; those who are on it go on.
        upstream.forget(&h2);
    }
    (result, reused)
}

async fn connect(
    client: &DownstreamClient,
    pool: &RunningPool,
    upstream: &Rc<Upstream>,
    member: &Arc<RunningMember>,
) -> io::Result<H2Handle> {
    let context = &client.context;
    let taken = client.downstream.listener.take_descriptor(context.now())?;
    let mut stream = reached(context, client.task_state.index(), member).await?;
    stream.set_descriptor_guard(Some(taken));
    secured(&mut stream, pool, member).await?;
    if stream.session().is_some_and(|it| it.connection().alpn_protocol() != Some(b"h2")) {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "does not speak HTTP/2"));
    }
    stream.charge_memory(&context.common);
    let task_state = Rc::new(TaskState::new(None, context.now()));
    let ready = stream.ready();
    let connection = Connection::client(for_member(OURS.head));
    let h2 = H2Connection::new(context.clone(), stream, task_state.clone(), connection, &context.common);
    let (driven, patience, at) = (h2.clone(), client.timeout(|it| it.answer), member.at);
    let (guard, of) = (upstream.connection_guard(), upstream.clone());
    context.begin(task_state.clone(), async move {
        // Until now the stream was that of the task that connected.
        ready.set_task(Some(task_state.index()));
        if let Err(error) = drive(&driven, &of, patience).await {
            tracing::debug!(member = %at, %error, "a connection to a member has ended");
        }
        driven.end();
        of.forget(&driven);
        if driven.poll_flush().is_ready() {
            driven.stream().finish();
        }
        drop(guard);
    });
    let held = H2Handle(h2);
    // Nobody else is to ask by it where all has ended meanwhile: it goes with this one.
    if !context.is_stopping() && member.draining_since().is_none() {
        upstream.add(&held);
    }
    Ok(held)
}

/// Waits for a moment until a member has said how much it takes.
async fn has_heard(h2: &H2Connection, client: &DownstreamClient) {
    client.allow(SETTINGS);
    poll_fn(|_| {
        if h2.state().has_heard() || h2.is_over() || client.context.is_late() || client.is_gone() {
            return Poll::Ready(());
        }
        h2.wait(&client.task_state);
        Poll::Pending
    })
    .await;
}

async fn drive(h2: &Rc<H2Connection>, upstream: &Upstream, patience: u64) -> io::Result<()> {
    let (task_state, mut is_of_use) = (h2.driver(), true);
    poll_fn(|_| {
        // Nobody is asked by it.
        let polled = h2.poll_turn(|_, _, _, _| None, || {});
        task_state.set_deadline(h2.gives_up_at(patience));
        // Who takes nothing any more is given up, with all who ask by it.
        if polled.is_pending() && (h2.is_cut() || task_state.deadline() <= h2.context.now()) {
            return Poll::Ready(Err(io::ErrorKind::TimedOut.into()));
        }
        if is_of_use && h2.state().is_used_up() {
            // A member that has said goodbye may wait for us to go.
            is_of_use = false;
            upstream.forget(h2);
        }
        if polled.is_pending() && Rc::strong_count(h2) == 1 {
            h2.connection().abort(ErrorCode::NONE);
            return Poll::Ready(Ok(()));
        }
        polled
    })
    .await
}

async fn ask_by(
    h2: &Rc<H2Connection>,
    client: &DownstreamClient,
    scratch: &mut Scratch,
    state: ExchangeState<'_>,
    (is_secure, at): (bool, SocketAddr),
    reservation: StreamReservation,
) -> Result<HttpTransport, UpstreamError> {
    let Scratch { question, repeated, upward, .. } = &mut *scratch;
    repeated.begin();
    if repeated.read(question, &OURS) != ReadProgress::Whole {
        return Err(UpstreamError::Refused(400));
    }
    let any_protocol = matches!(client.end, HttpTransport::H2Stream(_));
    let protocol = switch::protocol(question, repeated, any_protocol);
    client.allow(state.response_timeout);
    takes(h2, client, protocol.is_some()).await?;
    let tunnels = protocol.is_some() || repeated.body == BodyFraming::Tunnel;
    let joined = repeated.length;
    let whole = upward.is_over();
    let ends = !tunnels && whole && joined == question.len() && upward.trailers().is_empty();
    let inbox = StreamInbox::to(client.task_state.clone(), client.downstream.memory.reserve(0));
    let asked = h2.connection().ask(ends, inbox, |block| {
        put_question(block, question, repeated, protocol.as_deref(), is_secure, at);
    });
    h2.wake();
    let asked = asked
        .ok_or_else(|| UpstreamError::Again("accepts no more requests on this connection".to_owned()))?;
    let h2_stream = H2Stream::asking(
        h2.clone(),
        asked,
        client.task_state.clone(),
        client.downstream.memory.clone(),
        reservation,
    );
    if whole && joined == question.len() && !upward.trailers().is_empty() {
        h2_stream.close_body(upward.trailers());
    }
    let end = HttpTransport::H2Stream(h2_stream);
    scratch.downward.clear();
    let answer = answered(&end, client, scratch, state, joined).await;
    // What goes before the answer goes whole.
    let informed = poll_fn(|_| scratch.downward.poll_write(&client.end)).await;
    let answer = answer.and_then(|it| informed.map(|()| it).map_err(|_| UpstreamError::Client));
    let head = match answer {
        Ok(head) => head,
        Err(unanswered) => {
            end.reset();
            return Err(unanswered);
        }
    };
    let agreed = protocol.filter(|_| (200..300).contains(&head.status));
    read_head(scratch, state, agreed.as_deref(), head)?;
    if let HttpTransport::H2Stream(h2_stream) = &end {
        h2_stream.open_window(match scratch.response.body {
            BodyFraming::None => Some(0),
            BodyFraming::Length(length) => Some(length),
            _ => None,
        });
    }
    if tunnels && scratch.response.body != BodyFraming::Tunnel {
        end.finish();
    }
    Ok(end)
}

/// Waits until another question may be asked; `protocol`: one that means to speak something else.
async fn takes(h2: &H2Connection, client: &DownstreamClient, protocol: bool) -> Result<(), UpstreamError> {
    poll_fn(|_| {
        let connection = h2.state();
        if client.is_gone() {
            return Poll::Ready(Err(UpstreamError::Client));
        }
        if h2.is_over() || connection.is_used_up() {
            return Poll::Ready(Err(UpstreamError::Again("closed the connection".to_owned())));
        }
        // Its settings are the first thing that it says.
        let knows = !protocol || connection.has_heard();
        if knows && protocol && !connection.takes_protocols() {
            return Poll::Ready(Err(UpstreamError::Refused(501)));
        }
        // A member that takes nothing of what was said is asked nothing more.
        if knows && connection.takes_more() && h2.poll_room(&connection, &client.task_state).is_ready() {
            return Poll::Ready(Ok(()));
        }
        h2.wait(&client.task_state);
        if client.context.is_late() { Poll::Ready(Err(UpstreamError::Late)) } else { Poll::Pending }
    })
    .await
}

/// Sends what is left of the question, and waits for the head of the answer. Those before it go to the client at once.
async fn answered(
    end: &HttpTransport,
    client: &DownstreamClient,
    scratch: &mut Scratch,
    state: ExchangeState<'_>,
    joined: usize,
) -> Result<ResponseHead, UpstreamError> {
    let HttpTransport::H2Stream(h2_stream) = end else { return Err(UpstreamError::Client) };
    let whole = scratch.upward.is_over();
    let mut sent = joined;
    let head = poll_fn(|_| {
        while sent < scratch.question.len() {
            let trailers = scratch.upward.trailers();
            match end
                .poll_write(scratch.question.get(sent..).unwrap_or_default(), whole && trailers.is_empty())
            {
                Poll::Ready(Ok(count)) => sent = sent.saturating_add(count),
                // The answer tells why.
                Poll::Ready(Err(_)) | Poll::Pending => break,
            }
            if sent == scratch.question.len() && whole && !trailers.is_empty() {
                end.close_body(trailers);
            }
        }
        if h2_stream.is_reclaimed() {
            return Poll::Ready(Err(UpstreamError::Refused(503)));
        }
        let before = (sent, scratch.upward.moved);
        if sent == scratch.question.len() {
            send_on(client, scratch, state, end)?;
        }
        let waits = sent < scratch.question.len() || scratch.upward.is_stuck(&scratch.asked);
        h2_stream.note(waits, before != (sent, scratch.upward.moved));
        if client.is_gone() {
            return Poll::Ready(Err(UpstreamError::Client));
        }
        let is_late = client.context.is_late();
        let head = loop {
            // Who takes nothing of those before is told no more.
            if scratch.downward.poll_write(&client.end).is_pending() {
                return if is_late { Poll::Ready(Err(UpstreamError::Client)) } else { Poll::Pending };
            }
            match h2_stream.poll_head() {
                Poll::Ready(Ok(head)) if head.status < 200 => {
                    inform(client, &mut scratch.downward, state, &head);
                }
                other => break other,
            }
        };
        match head {
            Poll::Pending if is_late => Poll::Ready(Err(UpstreamError::Late)),
            Poll::Pending => Poll::Pending,
            Poll::Ready(Ok(head)) => Poll::Ready(Ok(head)),
            Poll::Ready(Err(reason)) => {
                // Refused streams were not looked at (RFC 9113, section 8.7).
                let may_repeat = whole && (reason == ErrorCode::REFUSED || state.method.is_idempotent());
                let why = format!("ended the HTTP/2 stream: {}", reason.0);
                Poll::Ready(Err(if may_repeat {
                    UpstreamError::Again(why)
                } else {
                    UpstreamError::Lost(why)
                }))
            }
        }
    })
    .await?;
    scratch.upward.put_back(scratch.question.get(sent..).unwrap_or_default());
    Ok(head)
}

/// Passes an answer before the answer on, as strictly read as any.
fn inform(
    client: &DownstreamClient,
    downward: &mut BodyRelay,
    state: ExchangeState<'_>,
    head: &ResponseHead,
) {
    let lines = [&head.lines[..], b"\r\n"].concat();
    let mut response = Response::default();
    if response.read(&lines, state.method, &OURS) == ReadProgress::Whole && response.is_interim() {
        put_interim(client, downward, state, &lines, &response);
    }
}

/// The question as HTTP/2 says it.
fn put_question(
    block: &mut FieldBlock<'_>,
    question: &[u8],
    read: &Request,
    protocol: Option<&[u8]>,
    is_secure: bool,
    at: SocketAddr,
) {
    block.method(if protocol.is_some() { b"CONNECT" } else { read.method_name.of(question) });
    // A tunnel leads to somebody, to nothing of his.
    if read.body != BodyFraming::Tunnel {
        block.scheme(is_secure);
        block.path(read.path_and_query().of(question));
    }
    match read.authority.of(question) {
        // HTTP/1.0 need not name one, HTTP/2 must.
        [] => block.authority(at.to_string().as_bytes()),
        host => block.authority(host),
    }
    protocol.into_iter().for_each(|name| block.protocol(name));
    for field in &read.fields {
        let name = field.name.of(question);
        match field.known {
            KnownHeader::Host => {}
            // The only one that is allowed, and what gRPC asks for.
            KnownHeader::Te => block.field(b"te", b"trailers"),
            _ if field.hop => {}
            _ if protocol.is_some() && switch::is_of_handshake(name) => {}
            _ => block.field(name, field.value.of(question)),
        }
    }
}

/// The head as HTTP/1.1 would have said it, read as strictly.
fn read_head(
    scratch: &mut Scratch,
    state: ExchangeState<'_>,
    agreed: Option<&[u8]>,
    head: ResponseHead,
) -> Result<(), UpstreamError> {
    let ResponseHead { status, lines, ends } = head;
    let has_length = |lines| fields_of(lines).any(|(name, _)| name == b"content-length");
    // Without a body there would be no end of it in HTTP/1.1.
    let bodiless =
        state.method == Method::Head || agreed.is_some() || matches!(status, 100..=199 | 204 | 304);
    let length: &[u8] = if ends && !bodiless && !has_length(&lines) { b"content-length: 0\r\n" } else { b"" };
    let lines = match agreed {
        Some(protocol) => switch::agreement(&scratch.question, protocol, &lines),
        None => lines,
    };
    scratch.answered.clear();
    [&lines[..], length, b"\r\n"].into_iter().for_each(|part| scratch.answered.put(part));
    scratch.response.begin();
    match scratch.response.read(scratch.answered.filled(), state.method, &OURS) {
        ReadProgress::Whole => Ok(()),
        ReadProgress::Refused(refusal) => Err(UpstreamError::Wrong(refusal.why)),
        ReadProgress::More => Err(UpstreamError::Wrong("no head")),
    }
}
