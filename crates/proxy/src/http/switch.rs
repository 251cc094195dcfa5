//! Other protocols in a stream of HTTP/2 to a member: `CONNECT`, and what HTTP/1.1 switches to (RFC 8441).

use std::{
    cell::{Cell, RefCell},
    rc::Rc,
    task::{Context, Poll, Waker},
};

use aws_lc_rs::digest;
use bytes::Bytes;
use h2::{Ping, PingPong, client::Connection, ext::Protocol};
use http::{HeaderMap, header};
use seaway_wire::http::{Known, Method, Request};
use tokio::io::{AsyncRead, AsyncWrite};

use super::{heads::base64, multi::lines_of};

/// What a member has said of itself: whether it takes `CONNECT` with a protocol. Its settings are the first thing that it
/// says, so they are known once it has said anything; it is asked to only when somebody wants to know.
pub(super) struct Settings {
    ping: RefCell<PingPong>,
    said: Cell<Said>,
    waiting: RefCell<Vec<Waker>>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Said {
    Unasked,
    Asked,
    All,
    /// The connection is over.
    Nothing,
}

impl Settings {
    pub(super) fn of<T: AsyncRead + AsyncWrite + Unpin>(
        connection: &mut Connection<T, Bytes>,
    ) -> Option<Rc<Settings>> {
        let ping = RefCell::new(connection.ping_pong()?);
        Some(Rc::new(Settings { ping, said: Cell::new(Said::Unasked), waiting: RefCell::default() }))
    }

    /// For the task of the connection, each time it goes on.
    pub(super) fn listen(&self, cx: &mut Context<'_>) {
        if self.said.get() != Said::Asked {
            return;
        }
        match self.ping.borrow_mut().poll_pong(cx) {
            Poll::Pending => {}
            Poll::Ready(Ok(_)) => self.tell(Said::All),
            Poll::Ready(Err(_)) => self.tell(Said::Nothing),
        }
    }

    pub(super) fn end(&self) {
        self.tell(Said::Nothing);
    }

    fn tell(&self, said: Said) {
        self.said.set(said);
        self.waiting.take().into_iter().for_each(Waker::wake);
    }

    /// Waits until the settings have come. `false`: they never will.
    pub(super) fn poll_come(&self, cx: &mut Context<'_>) -> Poll<bool> {
        match self.said.get() {
            Said::All => return Poll::Ready(true),
            Said::Nothing => return Poll::Ready(false),
            Said::Asked => {}
            Said::Unasked => match self.ping.borrow_mut().send_ping(Ping::opaque()) {
                Ok(()) => self.said.set(Said::Asked),
                Err(_) => return Poll::Ready(false),
            },
        }
        self.waiting.borrow_mut().push(cx.waker().clone());
        Poll::Pending
    }
}

/// The protocol that a request means to speak instead of HTTP. `any`: its client speaks HTTP/2, and has asked for nothing
/// else; by HTTP/1.1 an upgrade is an offer, and one that few have heard of needs not be taken (RFC 9110, section 7.8).
pub(super) fn protocol(question: &[u8], request: &Request, any: bool) -> Option<Protocol> {
    if !request.upgrade || request.method != Method::Get {
        return None;
    }
    let name = std::str::from_utf8(request.field(Known::Upgrade)?.of(question)).ok()?;
    match name.eq_ignore_ascii_case("websocket") {
        true => Some(Protocol::from_static("websocket")),
        false => any.then(|| name.into()),
    }
}

/// Fields of a WebSocket's handshake that have no meaning in HTTP/2 (RFC 8441, section 5).
pub(super) fn is_of_handshake(name: &[u8]) -> bool {
    [&b"sec-websocket-key"[..], b"sec-websocket-accept"].iter().any(|it| name.eq_ignore_ascii_case(it))
}

/// How HTTP/1.1 would have agreed to the switch: the head without its last line.
pub(super) fn agreement(question: &[u8], protocol: &Protocol, fields: &HeaderMap) -> Vec<u8> {
    let mut lines = b"HTTP/1.1 101 \r\nConnection: upgrade\r\nUpgrade: ".to_vec();
    lines.extend_from_slice(protocol.as_ref());
    lines.extend_from_slice(b"\r\n");
    if let Some(key) = key_of(question) {
        for part in [b"Sec-WebSocket-Accept: ", &accept(key)[..], b"\r\n"] {
            lines.extend_from_slice(part);
        }
    }
    let rest = fields
        .iter()
        .filter(|(name, _)| *name != header::CONTENT_LENGTH && !is_of_handshake(name.as_str().as_bytes()));
    lines_of(rest, &mut lines);
    lines
}

/// What a client of HTTP/1.1 has asked to be proven that it was understood.
fn key_of(question: &[u8]) -> Option<&[u8]> {
    question.split(|byte| *byte == b'\n').take_while(|line| *line != b"\r").find_map(|line| {
        let (name, value) = line.split_at(line.iter().position(|byte| *byte == b':')?);
        name.eq_ignore_ascii_case(b"sec-websocket-key").then(|| value[1..].trim_ascii())
    })
}

/// RFC 6455, section 4.2.2.
fn accept(key: &[u8]) -> Vec<u8> {
    let salted = [key, b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"].concat();
    base64(digest::digest(&digest::SHA1_FOR_LEGACY_USE_ONLY, &salted).as_ref())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_handshake_is_answered_as_rfc_6455_does_it() {
        let question =
            b"GET / HTTP/1.1\r\nHost: a\r\nsec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\nkey: x";
        let mut fields = HeaderMap::new();
        fields.insert("sec-websocket-accept", "wrong".parse().unwrap());
        fields.insert("content-length", "0".parse().unwrap());
        fields.insert("sec-websocket-protocol", "chat".parse().unwrap());
        let told = agreement(question, &Protocol::from_static("websocket"), &fields);
        let expected = "HTTP/1.1 101 \r\nConnection: upgrade\r\nUpgrade: websocket\r\n\
            Sec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\nsec-websocket-protocol: chat\r\n";
        assert_eq!(String::from_utf8(told).unwrap(), expected);
    }
}
