//! Connections of HTTP/2 to members: requests of all clients of a worker share one per member.

use std::{
    collections::HashMap,
    future::{Future, poll_fn},
    io,
    net::SocketAddr,
    pin::Pin,
    rc::Rc,
    sync::Arc,
    task::Poll,
};

use bytes::Bytes;
use h2::{
    client::{Builder, SendRequest},
    ext::Protocol,
};
use http::{
    HeaderMap, Uri,
    uri::{Authority, PathAndQuery},
};
use seaway_wire::http::{Body, Known, Limits, Method, Reading, Request, Response};

use super::{
    ask::{Unanswered, reached, secured, send_on},
    end::End,
    exchange::Short,
    flow::Flow,
    hall::Own,
    line::Line,
    multi::{Multi, fields_of, lines_of, other, put, put_part},
    relay::put_interim,
    scratch::Scratch,
    serve::Client,
    streams::{CONNECTION_WINDOW, STREAM_WINDOW},
    switch::{self, Settings},
};
use crate::running::{RunningMember, RunningPool};

/// What was let in is a little longer by now.
const OURS: Limits = Limits { head: 128 << 10, target: 128 << 10, fields: 8 << 10 };

#[derive(Default)]
pub(super) struct Trunks {
    /// By the member's own place in memory, which its `Arc` here keeps from being anybody else's.
    by_member: HashMap<usize, Trunk>,
}

struct Trunk {
    member: Arc<RunningMember>,
    requests: Requests,
}

/// By which streams are opened.
#[derive(Clone)]
struct Requests {
    sender: SendRequest<Bytes>,
    settings: Rc<Settings>,
}

fn key(member: &Arc<RunningMember>) -> usize {
    Arc::as_ptr(member) as usize
}

impl Trunks {
    /// A connection ends when nobody asks by it any more.
    pub(super) fn forget_those_that_leave(&mut self) {
        self.by_member.retain(|_, trunk| trunk.member.leaving_since().is_none());
    }

    pub(super) fn clear(&mut self) {
        self.by_member.clear();
    }

    fn forget(&mut self, member: &Arc<RunningMember>) {
        self.by_member.remove(&key(member));
    }
}

/// Sends the request, and reads the head of the answer. Tells whether the connection had been used before.
pub(super) async fn ask(
    client: &Client,
    scratch: &mut Scratch,
    short: Short<'_>,
    pool: &RunningPool,
    member: &Arc<RunningMember>,
    fresh_only: bool,
) -> (Result<End, Unanswered>, bool) {
    if fresh_only {
        client.hall.trunks().forget(member);
    }
    let known = client.hall.trunks().by_member.get(&key(member)).map(|trunk| trunk.requests.clone());
    let reused = known.is_some();
    let requests = match known {
        Some(requests) => requests,
        None => {
            client.allow(short.connect);
            match connect(client, pool, member).await {
                Ok(requests) => requests,
                Err(error) => return (Err(Unanswered::Again(error.to_string())), false),
            }
        }
    };
    let scheme = if pool.live().outward.is_some() { "https" } else { "http" };
    let result = ask_by(requests, client, scratch, short, (scheme, member.at)).await;
    if !matches!(result, Ok(_) | Err(Unanswered::Refused(_))) {
        // It may be the connection's fault; those who are on it go on.
        client.hall.trunks().forget(member);
    }
    (result, reused)
}

async fn connect(client: &Client, pool: &RunningPool, member: &Arc<RunningMember>) -> io::Result<Requests> {
    let hall = &client.hall;
    let mut stream = reached(hall, client.own.index(), member).await?;
    secured(&mut stream, pool, member).await?;
    if stream.session().is_some_and(|it| it.connection().alpn_protocol() != Some(b"h2")) {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "it does not speak HTTP/2"));
    }
    let own = Rc::new(Own::new(None, hall.now()));
    let ready = stream.ready();
    let line = Line::new(stream, None, hall.clone());
    let pulse = line.pulse();
    let handshake = Builder::new()
        .initial_window_size(STREAM_WINDOW)
        .initial_connection_window_size(CONNECTION_WINDOW)
        .enable_push(false)
        .handshake::<_, Bytes>(line);
    // It only writes: what the member says first is read by the connection's own task.
    let (sender, mut connection) = handshake.await.map_err(other)?;
    let settings = Settings::of(&mut connection).ok_or(io::ErrorKind::NotConnected)?;
    let requests = Requests { sender, settings: settings.clone() };
    let (driver, patience) = (own.clone(), client.timeout(|it| it.answer));
    let (at, hall_of_it) = (member.at, hall.clone());
    let driven = async move {
        // Until now the stream was that of the task that connected.
        ready.belong_to(Some(own.index()));
        let mut connection = std::pin::pin!(connection);
        let end = poll_fn(|cx| {
            pulse.begin_turn();
            let polled = connection.as_mut().poll(cx);
            settings.listen(cx);
            pulse.end_turn();
            own.set_deadline(pulse.gives_up(patience));
            // Who takes nothing any more is given up, with all who ask by it.
            if polled.is_pending() && own.deadline() <= hall_of_it.now() {
                return Poll::Ready(Err(io::ErrorKind::TimedOut.into()));
            }
            polled.map_err(other)
        });
        let end = end.await;
        settings.end();
        if let Err(error) = end {
            tracing::debug!(member = %at, %error, "a connection to a member has ended");
        }
    };
    hall.begin(driver, driven);
    hall.trunks().by_member.insert(key(member), Trunk { member: member.clone(), requests: requests.clone() });
    Ok(requests)
}

async fn ask_by(
    Requests { sender, settings }: Requests,
    client: &Client,
    scratch: &mut Scratch,
    short: Short<'_>,
    to: (&str, SocketAddr),
) -> Result<End, Unanswered> {
    let Some((request, joined)) = request(&scratch.question, to, matches!(client.end, End::Multi(_))) else {
        return Err(Unanswered::Refused(400));
    };
    client.allow(short.answer);
    let protocol = request.extensions().get::<Protocol>().cloned();
    let tunnels = *request.method() == http::Method::CONNECT;
    if protocol.is_some() && !takes_protocols(client, &sender, &settings).await? {
        return Err(Unanswered::Refused(501));
    }
    let mut requests = Some(sender);
    let ready = poll_fn(|cx| match requests.as_mut().map(|it| it.poll_ready(cx)) {
        Some(Poll::Pending) if client.hall.is_late() => Poll::Ready(Err(Unanswered::Late)),
        Some(poll) => poll.map_err(|error| Unanswered::Again(error.to_string())),
        None => Poll::Ready(Ok(())),
    });
    ready.await?;
    let Some(mut requests) = requests else { return Err(Unanswered::Late) };
    let body = scratch.question.get(joined..).unwrap_or_default();
    let whole = scratch.upward.is_over();
    let ends = !tunnels && whole && body.is_empty() && scratch.upward.trailers().is_empty();
    let sent = requests.send_request(request, ends);
    let (mut answer, mut to) = sent.map_err(|error| Unanswered::Again(error.to_string()))?;
    if !ends {
        // No more than was joined, which waits in the connection for its window.
        let trailers = fields_of(scratch.upward.trailers());
        let sent = if body.is_empty() {
            Ok(())
        } else {
            to.send_data(Bytes::copy_from_slice(body), whole && trailers.is_empty())
        };
        let sent = sent
            .and_then(|()| if whole && !trailers.is_empty() { to.send_trailers(trailers) } else { Ok(()) });
        sent.map_err(|error| Unanswered::Again(error.to_string()))?;
    }
    let end = End::Multi(Multi::asking(to));
    let hall = &client.hall;
    scratch.downward.clear();
    let answer = poll_fn(|cx| {
        send_on(cx, client, scratch, short, &end)?;
        if client.end.is_gone(cx) {
            return Poll::Ready(Err(Unanswered::Client));
        }
        while let Poll::Ready(Some(Ok(interim))) = answer.poll_informational(cx) {
            inform(client, &mut scratch.downward, short, &interim);
        }
        if scratch.downward.poll_write(cx, &client.end).is_pending() && hall.is_late() {
            return Poll::Ready(Err(Unanswered::Client));
        }
        match Pin::new(&mut answer).poll(cx) {
            Poll::Pending if hall.is_late() => Poll::Ready(Err(Unanswered::Late)),
            Poll::Pending => Poll::Pending,
            Poll::Ready(Ok(answer)) => Poll::Ready(Ok(answer)),
            Poll::Ready(Err(error)) => {
                // Refused streams were not looked at (RFC 9113, section 8.7).
                let untouched = error.reason() == Some(h2::Reason::REFUSED_STREAM);
                let may_repeat = whole && (untouched || short.method.is_idempotent());
                let why = error.to_string();
                Poll::Ready(Err(if may_repeat { Unanswered::Again(why) } else { Unanswered::Lost(why) }))
            }
        }
    })
    .await;
    // What goes before the answer goes whole.
    let informed = poll_fn(|cx| scratch.downward.poll_write(cx, &client.end)).await;
    let answer = answer.and_then(|it| informed.map(|()| it).map_err(|_| Unanswered::Client));
    let (head, from) = match answer {
        Ok(answer) => answer.into_parts(),
        Err(unanswered) => {
            end.reset();
            return Err(unanswered);
        }
    };
    let ended = from.is_end_stream();
    if let End::Multi(multi) = &end {
        multi.answered_by(from);
    }
    let agreed = protocol.filter(|_| head.status.is_success());
    read_head(scratch, short, (head.status.as_u16(), agreed.as_ref()), &head.headers, ended)?;
    if tunnels && scratch.response.body != Body::Tunnel {
        end.finish();
    }
    Ok(end)
}

/// Whether the member takes `CONNECT` with a protocol.
async fn takes_protocols(
    client: &Client,
    sender: &SendRequest<Bytes>,
    settings: &Settings,
) -> Result<bool, Unanswered> {
    let come = poll_fn(|cx| {
        if client.end.is_gone(cx) {
            return Poll::Ready(Err(Unanswered::Client));
        }
        match settings.poll_come(cx) {
            Poll::Pending if client.hall.is_late() => Poll::Ready(Err(Unanswered::Late)),
            come => come.map(Ok),
        }
    });
    match come.await? {
        true => Ok(sender.is_extended_connect_protocol_enabled()),
        false => Err(Unanswered::Again("it has closed the connection".to_owned())),
    }
}

/// Passes an answer before the answer on, as strictly read as any.
fn inform(client: &Client, downward: &mut Flow, short: Short<'_>, interim: &http::Response<()>) {
    let mut lines = format!("HTTP/1.1 {} \r\n", interim.status().as_u16()).into_bytes();
    lines_of(interim.headers(), &mut lines);
    lines.extend_from_slice(b"\r\n");
    let mut response = Response::default();
    if response.read(&lines, short.method, &OURS) == Reading::Whole && response.is_interim() {
        put_interim(client, downward, short, &lines, &response);
    }
}

/// The question as HTTP/2 says it, and where its body begins.
fn request(
    question: &[u8],
    (scheme, at): (&str, SocketAddr),
    any_protocol: bool,
) -> Option<(http::Request<()>, usize)> {
    let mut read = Request::default();
    if read.read(question, &OURS) != Reading::Whole {
        return None;
    }
    let protocol = switch::protocol(question, &read, any_protocol);
    let shared = Bytes::copy_from_slice(&question[..read.length]);
    let authority = match read.authority.of(&shared) {
        // HTTP/1.0 need not name one, HTTP/2 must.
        [] => Authority::try_from(at.to_string()).ok()?,
        host => Authority::from_maybe_shared(shared.slice_ref(host)).ok()?,
    };
    let mut uri = Uri::builder().authority(authority);
    // A tunnel leads to somebody, to nothing of his.
    if read.body != Body::Tunnel {
        let target = shared.slice_ref(read.path_and_query().of(&shared));
        uri = uri.scheme(scheme).path_and_query(PathAndQuery::from_maybe_shared(target).ok()?);
    }
    let mut request = http::Request::new(());
    *request.method_mut() = match protocol {
        Some(_) => http::Method::CONNECT,
        None => http::Method::from_bytes(read.method_name.of(question)).ok()?,
    };
    *request.uri_mut() = uri.build().ok()?;
    let mut fields = HeaderMap::with_capacity(read.fields.len());
    for field in &read.fields {
        match field.known {
            Known::Host => {}
            // The only one that is allowed, and what gRPC asks for.
            Known::Te => put(&mut fields, b"te", b"trailers"),
            _ if field.hop => {}
            _ if protocol.is_some() && switch::is_of_handshake(field.name.of(&shared)) => {}
            _ => put_part(&mut fields, field.name.of(&shared), &shared, field.value.of(&shared)),
        }
    }
    *request.headers_mut() = fields;
    if let Some(protocol) = protocol {
        request.extensions_mut().insert(protocol);
    }
    Some((request, read.length))
}

/// The head as HTTP/1.1 would have said it, read as strictly.
fn read_head(
    scratch: &mut Scratch,
    short: Short<'_>,
    (status, agreed): (u16, Option<&Protocol>),
    fields: &HeaderMap,
    ended: bool,
) -> Result<(), Unanswered> {
    let mut lines = match agreed {
        Some(protocol) => switch::agreement(&scratch.question, protocol, fields),
        None => {
            let mut lines = format!("HTTP/1.1 {status} \r\n").into_bytes();
            lines_of(fields, &mut lines);
            lines
        }
    };
    // Without a body there would be no end of it in HTTP/1.1.
    let bodiless =
        short.method == Method::Head || agreed.is_some() || matches!(status, 100..=199 | 204 | 304);
    if ended && !bodiless && !fields.contains_key(http::header::CONTENT_LENGTH) {
        lines.extend_from_slice(b"content-length: 0\r\n");
    }
    lines.extend_from_slice(b"\r\n");
    scratch.answered.clear();
    scratch.answered.put(&lines);
    scratch.response.begin();
    match scratch.response.read(&lines, short.method, &OURS) {
        Reading::Whole => Ok(()),
        Reading::Refused(refusal) => Err(Unanswered::Wrong(refusal.why)),
        Reading::More => Err(Unanswered::Wrong("no head")),
    }
}
