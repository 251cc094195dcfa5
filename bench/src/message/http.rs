//! The same messages over HTTP: a question's head is written into its path, an answer is its body.

use super::{REQUEST_HEAD, Request};

/// Longer than any head that a contender makes of ours.
pub const LONGEST_HEAD: usize = 8 << 10;
pub const END: &[u8] = b"\r\n\r\n";

/// The wish to become a WebSocket (RFC 6455, 1.2 and 1.3), and the answer of a member that does.
pub const UPGRADE: &[u8] =
    b"GET /chat HTTP/1.1\r\nHost: bench.example\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
    Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n";
pub const UPGRADED: &[u8] =
    b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
    Sec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n\r\n";

/// Whether this is the head, all of it, of a wish to become a WebSocket.
pub fn is_upgrade(bytes: &[u8]) -> bool {
    let wishes = |line: &[u8]| line.trim_ascii().eq_ignore_ascii_case(b"upgrade: websocket");
    bytes.ends_with(END) && bytes.split(|byte| *byte == b'\n').any(wishes)
}

/// Appends a question as a program with a few usual fields asks it.
pub fn ask(out: &mut Vec<u8>, host: &str, before: &str, fields: &str, request: &Request) {
    let close = if request.close { "Connection: close\r\n" } else { "" };
    out.extend_from_slice(b"GET ");
    path(out, before, request);
    for part in [" HTTP/1.1\r\nHost: ", host, FIELDS, fields, close, "\r\n"] {
        out.extend_from_slice(part.as_bytes());
    }
}

/// Appends the path that says this question.
pub fn path(out: &mut Vec<u8>, before: &str, request: &Request) {
    out.extend_from_slice(before.as_bytes());
    out.push(b'/');
    for byte in request.head() {
        out.extend([byte >> 4, byte & 15].map(|digit| DIGITS[usize::from(digit)]));
    }
}

const DIGITS: &[u8; 16] = b"0123456789abcdef";
const FIELDS: &str =
    "\r\nUser-Agent: seaway-bench/1\r\nAccept: */*\r\nAccept-Encoding: gzip, br\r\nAccept-Language: en\r\n";

/// The user `bench` with the password `bench`.
pub const AS_A_USER: &str = "Authorization: Basic YmVuY2g6YmVuY2g=\r\n";

/// The number of a question that a contender asks by itself.
pub const OF_A_CONTENDER: u64 = u64::MAX;

/// Whether this is the head of a question, all of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ParsedRequest {
    More,
    Whole(Request),
    Broken,
}

pub fn asked(bytes: &[u8]) -> ParsedRequest {
    if !bytes.ends_with(END) {
        return if bytes.len() > LONGEST_HEAD { ParsedRequest::Broken } else { ParsedRequest::More };
    }
    let line = bytes.iter().position(|byte| *byte == b'\r').map_or(bytes, |at| &bytes[..at]);
    let target = line.strip_prefix(b"GET ").and_then(|rest| rest.strip_suffix(b" HTTP/1.1"));
    match target.and_then(digits) {
        // Our client asked its contender to close, which is none of ours.
        Some(request) => ParsedRequest::Whole(Request { close: false, ..request }),
        None => ParsedRequest::Broken,
    }
}

/// The request that the last segment of a path says.
fn digits(target: &[u8]) -> Option<Request> {
    let text = target.rsplit(|byte| *byte == b'/').next()?;
    let digit = |byte: u8| (byte as char).to_digit(16);
    if text.len() != 2 * REQUEST_HEAD {
        return None;
    }
    let mut head = [0; REQUEST_HEAD];
    for (byte, two) in head.iter_mut().zip(text.chunks_exact(2)) {
        *byte = (digit(two[0])? << 4 | digit(two[1])?) as u8;
    }
    Request::parse(&head)
}

/// Appends the head of an answer with a body of this length.
pub fn answer(out: &mut Vec<u8>, length: usize) {
    use std::io::Write as _;
    out.extend_from_slice(
        b"HTTP/1.1 200 OK\r\nServer: bench\r\nDate: Thu, 01 Jan 2026 00:00:00 GMT\r\nContent-Type: text/plain\r\n",
    );
    // A Vec takes all that is written to it.
    let _infallible = write!(out, "Content-Length: {length}\r\n\r\n");
}

/// How long the head of an answer is, or what is wrong with it. `None`: it is not whole yet.
pub fn answered(bytes: &[u8], expected: usize) -> Option<Result<usize, String>> {
    let Some(end) = bytes.windows(END.len()).position(|four| four == END) else {
        return (bytes.len() > LONGEST_HEAD).then(|| Err("an endless head".to_owned()));
    };
    let head = &bytes[..end];
    if !head.starts_with(b"HTTP/1.1 200 ") {
        let line = head.split(|byte| *byte == b'\r').next().unwrap_or_default();
        return Some(Err(format!("answered {}", String::from_utf8_lossy(line))));
    }
    let length = head.split(|byte| *byte == b'\n').find_map(|line| {
        let (name, value) = line.split_at_checked(LENGTH.len())?;
        name.eq_ignore_ascii_case(LENGTH).then_some(value)
    });
    let length: Option<usize> =
        length.and_then(|value| std::str::from_utf8(value.trim_ascii()).ok()?.parse().ok());
    Some(match length {
        Some(length) if expected == length => Ok(end + END.len()),
        _ => Err(format!("a body of {length:?} bytes instead of {expected}")),
    })
}

const LENGTH: &[u8] = b"content-length:";

#[cfg(test)]
mod tests {
    use super::*;

    const REQUEST: Request = Request { sequence: 7, len: REQUEST_HEAD, answer_len: 4096, close: false };

    #[test]
    fn a_question_survives_the_wire_and_what_a_contender_puts_before_it() {
        let mut out = Vec::new();
        ask(&mut out, "bench.example", "/some/where", AS_A_USER, &REQUEST);
        assert_eq!(asked(&out), ParsedRequest::Whole(REQUEST));
        assert_eq!(asked(&out[..out.len() - 1]), ParsedRequest::More);
        assert_eq!(asked(b"GET / HTTP/1.1\r\n\r\n"), ParsedRequest::Broken);
    }

    #[test]
    fn a_wish_to_become_a_websocket_is_known_by_its_field() {
        let mut question = Vec::new();
        ask(&mut question, "bench.example", "", "", &REQUEST);
        assert!(is_upgrade(UPGRADE) && !is_upgrade(&UPGRADE[..UPGRADE.len() - 1]) && !is_upgrade(&question));
    }

    #[test]
    fn an_answer_is_known_by_its_status_and_its_length() {
        let mut out = Vec::new();
        answer(&mut out, 1024);
        assert_eq!(answered(&out, 1024), Some(Ok(out.len())));
        assert_eq!(answered(&out[..out.len() - 1], 1024), None);
        assert!(answered(&out, 1025).unwrap().unwrap_err().contains("1024"));
        let refused = b"HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\n\r\n";
        assert!(answered(refused, 1024).unwrap().unwrap_err().contains("503 Service"));
    }
}
