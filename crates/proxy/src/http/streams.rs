//! A connection of HTTP/2: one task for its frames, one for each of its streams.

use std::{cell::Cell, future::poll_fn, rc::Rc, sync::atomic::Ordering::Relaxed, task::Poll};

use bytes::Bytes;
use h2::{
    Reason, RecvStream,
    server::{Builder, SendResponse},
};
use http::{Method, Request};
use seaway_wire::http::Reading;

use super::{
    arrival::Who,
    end::End,
    exchange,
    hall::{Hall, Own},
    line::Line,
    multi::Multi,
    scratch::Scratch,
    serve::Client,
    stream::Stream,
};

/// A window for one stream that keeps a fast line over a long way busy, and one for all that is no more than memory
/// should hold for one client.
pub(super) const STREAM_WINDOW: u32 = 1 << 20;
pub(super) const CONNECTION_WINDOW: u32 = 4 << 20;
const MOST_STREAMS: u32 = 256;

pub(super) async fn serve(
    hall: Rc<Hall>,
    own: Rc<Own>,
    who: Rc<Who>,
    stream: Stream,
    begun: Option<Box<Scratch>>,
) {
    let line = Line::new(stream, begun, hall.clone());
    let pulse = line.pulse();
    let handshake = Builder::new()
        .initial_window_size(STREAM_WINDOW)
        .initial_connection_window_size(CONNECTION_WINDOW)
        .max_concurrent_streams(MOST_STREAMS)
        .max_header_list_size(who.limits().head as u32)
        .max_send_buffer_size(256 << 10)
        .enable_connect_protocol()
        .handshake::<_, Bytes>(line);
    let mut handshake = std::pin::pin!(handshake);
    let shaken = poll_fn(|cx| {
        pulse.begin_turn();
        let polled = handshake.as_mut().poll(cx);
        pulse.end_turn();
        match polled {
            Poll::Pending if hall.is_late() => Poll::Ready(None),
            other => other.map(Result::ok),
        }
    });
    let Some(mut connection) = shaken.await else { return };
    let (mut leaving, toll) = (false, Rc::new(Toll::default()));
    let (keep_alive, answer) = (who.timeout(|it| it.keep_alive), who.timeout(|it| it.answer));
    let idle_until = Cell::new(hall.now() + keep_alive);
    loop {
        let next = poll_fn(|cx| {
            pulse.begin_turn();
            let over = hall.is_stopping() || who.listener.closed_at().is_some();
            let late = idle_until.get() <= hall.now();
            if late {
                idle_until.set(hall.now() + keep_alive);
            }
            if pulse.gives_up(answer) <= hall.now() {
                return Poll::Ready(None);
            }
            if toll.is_too_much() {
                connection.abrupt_shutdown(Reason::ENHANCE_YOUR_CALM);
            } else if !leaving && (over || (late && !connection.has_streams())) {
                leaving = true;
                // Whoever opens a stream meanwhile is told that it was not looked at.
                connection.graceful_shutdown();
            } else if late && leaving && !connection.has_streams() {
                // The peer does not close its side.
                return Poll::Ready(None);
            }
            let polled = connection.poll_accept(cx);
            if !matches!(polled, Poll::Ready(Some(Ok(_)))) {
                pulse.end_turn();
            }
            own.set_deadline(idle_until.get().min(pulse.gives_up(answer)));
            polled
        })
        .await;
        let Some(Ok((request, respond))) = next else { return };
        idle_until.set(hall.now() + keep_alive);
        toll.begun.set(toll.begun.get() + 1);
        let stream_own = Rc::new(Own::new(Some(who.listener.clone()), hall.now()));
        let future = one(hall.clone(), stream_own.clone(), who.clone(), request, respond, toll.clone());
        hall.begin(stream_own, future);
    }
}

/// Streams of one connection. Giving one up costs a client nothing, and us a request to a member.
#[derive(Default)]
struct Toll {
    begun: Cell<u64>,
    given_up: Cell<u64>,
}

/// A browser that leaves a page gives up what it has asked for, and not much more.
const MOST_GIVEN_UP: u64 = 2 * MOST_STREAMS as u64;

impl Toll {
    fn is_too_much(&self) -> bool {
        self.given_up.get() > MOST_GIVEN_UP && self.given_up.get() > self.begun.get() / 2
    }
}

/// Answers one stream.
async fn one(
    hall: Rc<Hall>,
    own: Rc<Own>,
    who: Rc<Who>,
    request: Request<RecvStream>,
    mut respond: SendResponse<Bytes>,
    toll: Rc<Toll>,
) {
    let (head, body) = request.into_parts();
    let switches = head.extensions.get::<h2::ext::Protocol>().is_some();
    let mut scratch = hall.scratch();
    let Some(written) = write_head(&head, switches, body.is_end_stream()) else {
        respond.send_reset(Reason::PROTOCOL_ERROR);
        return hall.put_back(scratch);
    };
    scratch.asked.put(&written);
    // A client may have hundreds under way: one copy is enough for each.
    drop((head, written));
    who.listener.requests.fetch_add(1, Relaxed);
    let end = End::Multi(Multi::new(body, respond, switches));
    let client = Client { hall: hall.clone(), own, end, who, limit: Cell::new(u64::MAX) };
    scratch.request.begin();
    // As strictly as what comes by HTTP/1.1: it goes on as that.
    let Scratch { request, asked, .. } = &mut *scratch;
    let read = request.read(asked.filled(), &client.who.limits());
    client.note(&mut scratch, read == Reading::Whole);
    match read {
        Reading::Whole => {
            exchange::exchange(&client, &mut scratch).await;
            if let End::Multi(multi) = &client.end
                && multi.is_unanswered()
            {
                toll.given_up.set(toll.given_up.get() + 1);
            }
        }
        Reading::Refused(refusal) => {
            exchange::refuse(&client, &mut scratch, refusal.status).await;
        }
        Reading::More => {
            exchange::refuse(&client, &mut scratch, 400).await;
        }
    }
    client.tell(&mut scratch);
    hall.put_back(scratch);
}

/// The head as HTTP/1.1 would say it. `None`: it cannot be said.
fn write_head(head: &http::request::Parts, switches: bool, ends: bool) -> Option<Vec<u8>> {
    let mut out = Vec::with_capacity(512);
    let mut put = |parts: &[&[u8]]| parts.iter().for_each(|part| out.extend_from_slice(part));
    let authority = authority(head)?;
    if head.uri.scheme().is_some_and(|it| *it != http::uri::Scheme::HTTP && *it != http::uri::Scheme::HTTPS) {
        return None;
    }
    let path = head.uri.path_and_query().map_or("/", |path| path.as_str());
    let method = if switches { "GET" } else { head.method.as_str() };
    let target = if head.method == Method::CONNECT && !switches { authority } else { path };
    put(&[method.as_bytes(), b" ", target.as_bytes(), b" HTTP/1.1\r\nHost: ", authority.as_bytes(), b"\r\n"]);
    if switches {
        let protocol = head.extensions.get::<h2::ext::Protocol>()?;
        put(&[b"Connection: upgrade\r\nUpgrade: ", protocol.as_str().as_bytes(), b"\r\n"]);
        if protocol.as_str() == "websocket" && !head.headers.contains_key("sec-websocket-key") {
            // In HTTP/2 there is none; what it guards against cannot happen on this way.
            put(&[b"Sec-WebSocket-Key: c2Vhd2F5LXNlYXdheS1zZQ==\r\n"]);
        }
    }
    let mut cookies = Vec::new();
    for (name, value) in &head.headers {
        // Who trims it reads another value (RFC 9113, section 8.2.1).
        if value.as_bytes().trim_ascii().len() != value.len() {
            return None;
        }
        match name.as_str() {
            "host" => {}
            // Split by HTTP/2 for its tables; one field again for everybody else.
            "cookie" => cookies.push(value.as_bytes()),
            _ => put(&[name.as_str().as_bytes(), b": ", value.as_bytes(), b"\r\n"]),
        }
    }
    if !cookies.is_empty() {
        put(&[b"cookie: ", &cookies.join(&b"; "[..]), b"\r\n"]);
    }
    let sized = head.headers.contains_key(http::header::CONTENT_LENGTH);
    if !ends && !sized && !switches && head.method != Method::CONNECT {
        put(&[b"transfer-encoding: chunked\r\n"]);
    }
    put(&[b"\r\n"]);
    Some(out)
}

/// One, however it is told (RFC 9113, section 8.3.1).
fn authority(head: &http::request::Parts) -> Option<&str> {
    let mut hosts = head.headers.get_all(http::header::HOST).iter();
    let host = hosts.next().map(|host| host.to_str().ok());
    if hosts.next().is_some() {
        return None;
    }
    match (head.uri.authority().map(|it| it.as_str()), host) {
        (Some(authority), None) => Some(authority),
        (Some(authority), Some(host)) => host.filter(|host| host.eq_ignore_ascii_case(authority)),
        (None, host) => host.flatten(),
    }
}
