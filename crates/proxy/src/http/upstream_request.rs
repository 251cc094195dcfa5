//! Sends a request to a member: chooses one, connects to it, and waits for the head of its response, or the reason why none comes.

use std::{future::poll_fn, io, net::IpAddr, os::fd::AsFd, rc::Rc, sync::Arc, task::Poll};

use seaway_wire::http::{Limits, ReadProgress};

use super::{
    body_relay::BodyError, downstream::DownstreamConnection, exchange::ExchangeState, reuse::NextUse,
    scratch::Scratch, serve::DownstreamClient, session::Session, stream::Stream, task_state::TaskState,
    transport::HttpTransport, worker_context::WorkerContext,
};
use crate::{
    latency::LatencyKind,
    reach,
    running::{RunningMember, RunningPool},
    sys,
};

/// Why a member did not answer.
pub(super) enum UpstreamError {
    /// The client is gone, or has broken the protocol: there is nobody to answer.
    Client,
    /// What the client sends is not what it said: so many as a status.
    Refused(u16),
    /// Nothing of a request has reached it, or what did may be repeated.
    Again(String),
    /// Nothing of a request has reached it, for want of something that we lack.
    Ours(io::Error),
    /// Nobody knows what it did.
    Lost(String),
    Late,
    /// What it said is no answer.
    Wrong(&'static str),
}

impl UpstreamError {
    /// No connection to it came about.
    pub(super) fn of_connecting(error: io::Error) -> UpstreamError {
        if reach::is_local_shortage(&error) {
            UpstreamError::Ours(error)
        } else {
            UpstreamError::Again(error.to_string())
        }
    }

    /// What the client sends cannot go on.
    pub(super) fn of_client(error: &io::Error) -> UpstreamError {
        match error.kind() {
            io::ErrorKind::InvalidData => UpstreamError::Refused(400),
            io::ErrorKind::TimedOut => UpstreamError::Refused(408),
            io::ErrorKind::FileTooLarge => UpstreamError::Refused(413),
            _ => UpstreamError::Client,
        }
    }
}

/// A member that has begun to answer.
pub(super) struct UpstreamResponse {
    pub(super) end: HttpTransport,
    /// The question was sent as a whole; the rest of it goes before what follows of the body.
    pub(super) is_whole: bool,
    pub(super) next: NextUse,
}

/// On a connection that nobody else uses meanwhile. Tells whether it had been used before.
pub(super) async fn request_on_own_connection(
    client: &DownstreamClient,
    scratch: &mut Scratch,
    state: ExchangeState<'_>,
    pool: &RunningPool,
    member: &Arc<RunningMember>,
    fresh_only: bool,
) -> (Result<UpstreamResponse, UpstreamError>, bool) {
    // A connection of HTTP/1.1 has one session, streams have one each.
    let is_one_of_many = matches!(client.end, HttpTransport::H2Stream(_));
    if is_one_of_many && pool.live().upstream_tls.is_some() && !client.downstream.memory.admits(Session::HELD)
    {
        client.downstream.refuse_for_memory();
        return (Err(UpstreamError::Refused(503)), false);
    }
    let surely = !state.method.is_idempotent();
    let kept = if fresh_only {
        None
    } else {
        client.context.idle_connections().take(member, &client.downstream, surely)
    };
    let reused = kept.is_some();
    let mut next = state.next;
    let end = match kept {
        Some((mut stream, most)) => {
            next = next.min(most);
            stream.charge_memory(&client.downstream.memory);
            stream.resume_for(client.task_state.index());
            HttpTransport::Wire(stream)
        }
        None => {
            client.allow(state.connect_timeout);
            let started = client.context.shared.started();
            // A connection of HTTP/1.1 counts as two; streams each need one beside.
            let connected = connect(
                &client.context,
                &client.task_state,
                &client.downstream,
                pool,
                member,
                is_one_of_many,
            );
            match connected.await {
                Ok(end) => {
                    client.context.record_latency(pool, None, LatencyKind::Connect, started);
                    end
                }
                Err(error) => return (Err(UpstreamError::of_connecting(error)), false),
            }
        }
    };
    let asked = ask(client, scratch, state, &end, reused).await;
    (asked.map(|is_whole| UpstreamResponse { end, is_whole, next }), reused)
}

/// Somebody of the pool who has not been tried in vain.
pub(super) fn choose(
    context: &WorkerContext,
    client: IpAddr,
    pool: &Arc<RunningPool>,
    tried: &[Arc<RunningMember>],
) -> Option<Arc<RunningMember>> {
    let live = pool.live();
    let mut cursors = context.cursors();
    pool.choose(&live, client, cursors.cursor_for(pool), tried, context.now()).cloned()
}

/// The caller has set a deadline for it. `counts`: its descriptor is none of those that clients count for.
pub(super) async fn connect(
    context: &Rc<WorkerContext>,
    task_state: &TaskState,
    downstream: &DownstreamConnection,
    pool: &RunningPool,
    member: &RunningMember,
    counts: bool,
) -> io::Result<HttpTransport> {
    let taken = if counts { Some(downstream.listener.take_descriptor(context.now())?) } else { None };
    let mut stream = reached(context, task_state.index(), member).await?;
    stream.set_descriptor_guard(taken);
    if let Some(version) = pool.live().compiled.pool().proxy {
        let header = reach::proxy_header(
            version,
            downstream.peer,
            downstream.destination,
            downstream.listener.at,
            downstream.hops,
        );
        stream.write_all(&header).await?;
    }
    secured(&mut stream, pool, member).await?;
    stream.charge_memory(&downstream.memory);
    Ok(HttpTransport::Wire(stream))
}

/// A connection to a member, which carries nothing yet.
pub(super) async fn reached(
    context: &Rc<WorkerContext>,
    task: u32,
    member: &RunningMember,
) -> io::Result<Stream> {
    let spare = |at: &_| context.listening().give_up_spare(at);
    let (fd, own_socket) = reach::connect(&context.shared, member, None, context.passes(), spare)?;
    // A body may go in a write of its own, behind a head that the member does not confirm before it has seen both.
    sys::set_no_delay(fd.as_fd())?;
    let mut stream = context.watch(fd, task)?;
    stream.is_from(own_socket);
    stream.connected().await?;
    Ok(stream)
}

/// Shakes hands with a member, where that is asked for.
pub(super) async fn secured(
    stream: &mut Stream,
    pool: &RunningPool,
    member: &RunningMember,
) -> io::Result<()> {
    let begun = {
        let live = pool.live();
        let Some(upstream_tls) = &live.upstream_tls else { return Ok(()) };
        let planned = live.compiled.position(member.at).and_then(|index| live.compiled.members().get(index));
        upstream_tls.begin(planned.and_then(|it| it.host_name.as_ref()))?
    };
    stream.start_tls(Session::new(begun)).await
}

/// Sends on what comes of the body while the answer is waited for.
pub(super) fn send_on(
    client: &DownstreamClient,
    scratch: &mut Scratch,
    state: ExchangeState<'_>,
    to: &HttpTransport,
) -> Result<(), UpstreamError> {
    let Scratch { upward, asked, .. } = scratch;
    if upward.is_through() {
        return Ok(());
    }
    let before = upward.moved;
    // A member that takes no more may have answered already.
    if let Poll::Ready(Err(BodyError::Source(error))) = upward.poll(&client.context, &client.end, asked, to) {
        return Err(UpstreamError::of_client(&error));
    }
    if upward.moved != before {
        client.allow(state.response_timeout);
    }
    Ok(())
}

/// Sends the request, and reads the head of the answer. Also whether the question was sent as a whole.
async fn ask(
    client: &DownstreamClient,
    scratch: &mut Scratch,
    state: ExchangeState<'_>,
    stream: &HttpTransport,
    reused: bool,
) -> Result<bool, UpstreamError> {
    let attempt = state.rule.attempt_timeout.map_or(u64::MAX, |time| time.as_millis() as u64);
    client.allow(state.response_timeout.min(attempt));
    let limits = Limits::default();
    let all_in_question = scratch.upward.is_over();
    scratch.answered.clear();
    scratch.response.begin();
    let mut sent = 0;
    let result = poll_fn(|_| -> Poll<Result<bool, UpstreamError>> {
        loop {
            let mut may_go_on = true;
            while sent < scratch.question.len() {
                match stream.poll_write(scratch.question.get(sent..).unwrap_or_default(), false) {
                    Poll::Ready(Ok(written)) => sent = sent.saturating_add(written),
                    // It may have answered before it closed.
                    Poll::Ready(Err(_)) => {
                        may_go_on = false;
                        break;
                    }
                    Poll::Pending => break,
                }
            }
            // What TLS holds goes as soon as it can; an error shows when the answer is read.
            if may_go_on && sent == scratch.question.len() {
                let _ = stream.poll_flush();
            }
            if may_go_on && sent == scratch.question.len() {
                send_on(client, scratch, state, stream)?;
            }
            if client.is_gone() {
                return Poll::Ready(Err(UpstreamError::Client));
            }
            let untouched = scratch.answered.is_empty();
            let may_repeat = untouched && all_in_question && (sent == 0 || state.method.is_idempotent());
            let gone = |why: String| {
                Poll::Ready(Err(if may_repeat {
                    UpstreamError::Again(why)
                } else {
                    UpstreamError::Lost(why)
                }))
            };
            match stream.poll_fill(&mut scratch.answered) {
                Poll::Pending => return Poll::Pending,
                Poll::Ready(Err(error)) if error.kind() == io::ErrorKind::TimedOut => {
                    return Poll::Ready(Err(UpstreamError::Late));
                }
                Poll::Ready(Err(error)) => return gone(error.to_string()),
                Poll::Ready(Ok(0)) => return gone("closed the connection before it answered".to_owned()),
                Poll::Ready(Ok(_)) => {}
            }
            match scratch.response.read(scratch.answered.filled(), state.method, &limits) {
                ReadProgress::More => {}
                ReadProgress::Whole => return Poll::Ready(Ok(sent == scratch.question.len())),
                ReadProgress::Refused(refusal) => return Poll::Ready(Err(UpstreamError::Wrong(refusal.why))),
            }
        }
    })
    .await;
    if result.is_ok() {
        scratch.upward.put_back(scratch.question.get(sent..).unwrap_or_default());
    }
    // One that stays open after its head was not read whole is no good to anybody.
    if result.is_err() && !reused {
        stream.reset();
    }
    result
}
