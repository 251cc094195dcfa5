//! Other protocols in a stream of HTTP/2 to a member: `CONNECT`, and what HTTP/1.1 switches to (RFC 8441).

use aws_lc_rs::digest;
use base64::{Engine, engine::general_purpose::STANDARD};
use seaway_wire::http::{KnownHeader, Method, Request};

use super::h2_stream::fields_of;

/// The protocol that a request means to speak instead of HTTP. `any`: its client speaks HTTP/2, and has asked for nothing
/// else; by HTTP/1.1 an upgrade is an offer, and one that few have heard of needs not be taken (RFC 9110, section 7.8).
pub(super) fn protocol(question: &[u8], request: &Request, any: bool) -> Option<Vec<u8>> {
    if !request.upgrade || request.method != Method::Get {
        return None;
    }
    let name = request.field(KnownHeader::Upgrade)?.of(question);
    match name.eq_ignore_ascii_case(b"websocket") {
        true => Some(b"websocket".to_vec()),
        false => any.then(|| name.to_vec()),
    }
}

/// Fields of a WebSocket's handshake that have no meaning in HTTP/2 (RFC 8441, section 5).
pub(super) fn is_of_handshake(name: &[u8]) -> bool {
    [&b"sec-websocket-key"[..], b"sec-websocket-accept"].iter().any(|it| name.eq_ignore_ascii_case(it))
}

/// How HTTP/1.1 would have agreed to the switch, to what the member said in `lines`: the head without its last line.
pub(super) fn agreement(question: &[u8], protocol: &[u8], lines: &[u8]) -> Vec<u8> {
    let mut head = [b"HTTP/1.1 101 \r\nConnection: upgrade\r\nUpgrade: ", protocol, b"\r\n"].concat();
    let mut put = |parts: &[&[u8]]| parts.iter().for_each(|part| head.extend_from_slice(part));
    if let Some(key) = key_of(question) {
        put(&[b"Sec-WebSocket-Accept: ", &accept(key), b"\r\n"]);
    }
    for (name, value) in fields_of(lines) {
        if !name.eq_ignore_ascii_case(b"content-length") && !is_of_handshake(name) {
            put(&[name, b": ", value, b"\r\n"]);
        }
    }
    head
}

/// What a client of HTTP/1.1 has asked to be proven that it was understood.
fn key_of(question: &[u8]) -> Option<&[u8]> {
    question.split(|byte| *byte == b'\n').take_while(|line| *line != b"\r").find_map(|line| {
        let (name, value) = line.split_at(line.iter().position(|byte| *byte == b':')?);
        let value = value.get(1..)?.trim_ascii();
        name.eq_ignore_ascii_case(b"sec-websocket-key").then_some(value)
    })
}

/// RFC 6455, section 4.2.2.
fn accept(key: &[u8]) -> Vec<u8> {
    let salted = [key, b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"].concat();
    STANDARD.encode(digest::digest(&digest::SHA1_FOR_LEGACY_USE_ONLY, &salted)).into_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_handshake_is_answered_as_rfc_6455_does_it() {
        let question =
            b"GET / HTTP/1.1\r\nHost: a\r\nsec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\nkey: x";
        let lines = b"HTTP/1.1 200 \r\nsec-websocket-accept: wrong\r\ncontent-length: 0\r\n\
            sec-websocket-protocol: chat\r\n";
        let told = agreement(question, b"websocket", lines);
        let expected = "HTTP/1.1 101 \r\nConnection: upgrade\r\nUpgrade: websocket\r\n\
            Sec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\nsec-websocket-protocol: chat\r\n";
        assert_eq!(String::from_utf8(told).unwrap(), expected);
    }
}
