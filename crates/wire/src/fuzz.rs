//! What must hold for any bytes whatever: one plain function per parser, which panics when it does
//! not. cargo-fuzz, the seeds test on stable Rust and a curious reader call the same functions.

#![allow(
    clippy::indexing_slicing,
    clippy::arithmetic_side_effects,
    clippy::expect_used,
    reason = "it is to panic"
)]

use crate::{
    hello::{self, HelloProgress},
    http::{
        self, BodyFraming, ChunkPiece, ChunkedDecoder, Field, Limits, Method, ReadProgress, Request,
        Response, StatusLine,
    },
    http2::{Connection, FrameEvent, LocalSettings},
    proxy::{self, Header, Parsed},
};

/// A small limit, so that short inputs reach it too.
const TIGHT: usize = 64;

/// The PROXY parser neither panics nor reads beyond its input, says the same however the input is
/// cut, never asks for more than its limits, and understands what its own encoder writes.
pub fn proxy(bytes: &[u8]) {
    for limit in [TIGHT, proxy::V2_LIMIT, usize::MAX] {
        let whole = proxy::parse_within(bytes, limit);
        for cut in 0..bytes.len().min(512) {
            cut_agrees(cut, &proxy::parse_within(&bytes[..cut], limit), &whole);
        }
        match &whole {
            Parsed::Need(0) => panic!("a verdict that is not there was not asked for"),
            Parsed::Need(more) => assert!(
                bytes.len().saturating_add(*more) <= limit.max(proxy::V1_MAX),
                "asks for {more} bytes more, beyond the limit"
            ),
            Parsed::Header(header) => header_holds(header, bytes, limit),
            Parsed::Invalid(_) => {}
        }
    }
}

/// A hello says the same however it is cut and whatever follows it, and the name in it is one.
pub fn hello(bytes: &[u8]) {
    let whole = hello::read(bytes);
    for cut in (0..bytes.len()).step_by(5) {
        let part = hello::read(&bytes[..cut]);
        assert!(part == HelloProgress::More || part == whole, "with only {cut} bytes the verdict is another");
    }
    match &whole {
        HelloProgress::More => {}
        HelloProgress::Is(asked) => {
            assert_eq!(hello::read(&[bytes, b"more"].concat()), whole);
            let name = asked.name.as_deref().unwrap_or("a");
            assert!(name.split('.').all(|label| !label.is_empty()) && name.len() <= 253);
            assert!(!name.bytes().any(|byte| byte.is_ascii_uppercase() || !byte.is_ascii_graphic()));
        }
        HelloProgress::Refused(_) => assert_eq!(hello::read(&[bytes, b"more"].concat()), whole),
    }
}

/// A status line says the same however it is cut, is decided within its limit, and is a code or nothing.
pub fn status(bytes: &[u8]) {
    let whole = http::status(bytes);
    for cut in 0..bytes.len().min(http::STATUS_LINE_MAX) {
        let part = http::status(&bytes[..cut]);
        assert!(part == StatusLine::Partial || part == whole, "with only {cut} bytes the verdict is another");
    }
    match whole {
        StatusLine::Partial => assert!(bytes.len() < http::STATUS_LINE_MAX),
        StatusLine::Code(code) => assert!((100..1000).contains(&code)),
        StatusLine::Invalid => {}
    }
}

/// Frames never make either side panic or hold more than it allows; cut elsewhere they say the same; and a head that is
/// heard is one head to the strict reader, or none: nothing in a field becomes a line or a request of its own.
pub fn frames(bytes: &[u8]) {
    const SETTINGS: [u8; 9] = [0, 0, 0, 4, 0, 0, 0, 0, 0];
    let ours = LocalSettings {
        head: 1024,
        streams: 4,
        stream_window: 1 << 15,
        connection_window: 1 << 16,
        is_shared: false,
    };
    let bytes = [&SETTINGS[..], bytes].concat();
    let server = || Connection::<usize>::server(ours, true);
    let client = || {
        let mut client = Connection::client(ours);
        client.ask(false, 0, |block| {
            block.method(b"GET");
            block.scheme(false);
            block.path(b"/");
            block.authority(b"a");
        });
        client
    };
    for (mut side, mut again) in [(server(), server()), (client(), client())] {
        let whole = listened(&mut side, &bytes, usize::MAX);
        assert_eq!(listened(&mut again, &bytes, 5), whole, "it comes in pieces");
        assert!(side.out == again.out && side.out.len() <= 64 + 32 * bytes.len());
    }
}

/// What a side hears when so many bytes come at a time.
fn listened(side: &mut Connection<usize>, bytes: &[u8], piece: usize) -> Vec<String> {
    let (mut all, mut start, mut end) = (Vec::new(), 0, 0);
    loop {
        match side.read(&bytes[start..end]) {
            Ok((0, FrameEvent::More)) if end == bytes.len() => return all,
            Ok((0, FrameEvent::More)) => end = bytes.len().min(end.saturating_add(piece)),
            Ok((count, heard)) => {
                start += count;
                all.push(format!("{heard:?}"));
                if let FrameEvent::Request { .. }
                | FrameEvent::Response { .. }
                | FrameEvent::Trailers { .. } = heard
                {
                    is_one_head(&heard, side.lines());
                }
                if let FrameEvent::Data { key, bytes, .. } = heard {
                    let held = side.with_mut(key).map(|held| {
                        *held += bytes.len();
                        *held
                    });
                    assert!(held.is_none_or(|held| held <= 1 << 15), "more than its window");
                }
                if let FrameEvent::Leaves { last } = heard {
                    side.drop_streams_after(last);
                }
                assert!(side.open() <= 4 && side.held_streams() <= bytes.len());
            }
            Err(broken) => {
                all.push(format!("{broken:?}"));
                return all;
            }
        }
    }
}

fn is_one_head(heard: &FrameEvent<'_>, lines: &[u8]) {
    let text = String::from_utf8_lossy(lines);
    let head = [lines, b"\r\n"].concat();
    let is_read = match heard {
        FrameEvent::Request { asked, .. } if asked.is_too_large => return,
        FrameEvent::Request { .. } => {
            let mut request = Request::default();
            let verdict = request.read(&head, &Limits::default());
            assert!(verdict != ReadProgress::More, "{text}");
            verdict != ReadProgress::Whole || request.length == head.len()
        }
        FrameEvent::Response { .. } => {
            let mut response = Response::default();
            let verdict = response.read(&head, Method::Get, &Limits::default());
            assert!(verdict != ReadProgress::More, "{text}");
            verdict != ReadProgress::Whole || response.length == head.len()
        }
        _ => text.split_terminator("\r\n").all(|line| line.contains(": ") && !line.contains(['\r', '\n'])),
    };
    assert!(is_read, "it is more than one: {text}");
}

/// A request says the same however it comes in; its lines end properly; its framing is one thing; what it says of
/// itself, written down plainly, reads back as the same.
pub fn request(bytes: &[u8]) {
    let limits = Limits { head: 1024, target: 256, fields: 16 };
    let mut whole = Request::default();
    let verdict = whole.read(bytes, &limits);
    let mut growing = Request::default();
    for cut in (0..bytes.len().min(limits.head)).step_by(7) {
        match growing.read(&bytes[..cut], &limits) {
            ReadProgress::More => {}
            early => {
                assert_eq!(early, verdict, "with only {cut} bytes the verdict is another");
                break;
            }
        }
    }
    assert_eq!(growing.read(bytes, &limits), verdict);
    if verdict != ReadProgress::Whole {
        return;
    }
    let head = &bytes[..whole.length];
    head_holds(head, &whole.fields, &limits);
    let path = whole.path_and_query().of(head);
    assert!(whole.method == Method::Connect || path.is_empty() || matches!(path[0], b'/' | b'?' | b'*'));
    let mut plain = [whole.method_name.of(head), b" "].concat();
    plain.extend_from_slice(if whole.method == Method::Connect { whole.authority.of(head) } else { path });
    if path.is_empty() && whole.method != Method::Connect {
        plain.push(b'/');
    } else if path.starts_with(b"?") {
        let at = plain.len() - path.len();
        plain.insert(at, b'/');
    }
    plain.extend_from_slice(b" HTTP/1.1\r\nHost: ");
    plain.extend_from_slice(whole.authority.of(head));
    match whole.body {
        BodyFraming::Length(length) => {
            plain.extend_from_slice(format!("\r\nContent-Length: {length}").as_bytes())
        }
        BodyFraming::Chunked => plain.extend_from_slice(b"\r\nTransfer-Encoding: chunked"),
        BodyFraming::None | BodyFraming::Tunnel => {}
        BodyFraming::UntilClose => panic!("a request has no such body"),
    }
    plain.extend_from_slice(b"\r\n\r\n");
    let mut again = Request::default();
    assert_eq!(
        again.read(&plain, &Limits::default()),
        ReadProgress::Whole,
        "{}",
        String::from_utf8_lossy(&plain)
    );
    assert_eq!((again.method, again.body), (whole.method, whole.body));
    assert_eq!(again.authority.of(&plain), whole.authority.of(head));
}

/// As for requests.
pub fn response(bytes: &[u8]) {
    let limits = Limits { head: 1024, target: 256, fields: 16 };
    for method in [Method::Get, Method::Head, Method::Connect] {
        let mut whole = Response::default();
        let verdict = whole.read(bytes, method, &limits);
        let mut growing = Response::default();
        for cut in (0..bytes.len().min(limits.head)).step_by(7) {
            let early = growing.read(&bytes[..cut], method, &limits);
            assert!(
                early == ReadProgress::More || early == verdict,
                "with only {cut} bytes the verdict is another"
            );
            if early != ReadProgress::More {
                break;
            }
        }
        if verdict == ReadProgress::Whole {
            head_holds(&bytes[..whole.length], &whole.fields, &limits);
            assert!((100..1000).contains(&whole.status));
            assert!(!whole.persists || !matches!(whole.body, BodyFraming::UntilClose | BodyFraming::Tunnel));
        }
    }
}

fn head_holds(head: &[u8], fields: &[Field], limits: &Limits) {
    assert!(head.len() <= limits.head && fields.len() <= limits.fields);
    assert!(head.ends_with(b"\r\n\r\n"));
    for (at, _) in head.iter().enumerate().filter(|(_, byte)| **byte == b'\n') {
        assert_eq!(head[at - 1], b'\r', "a line that ends with LF alone");
    }
    for field in fields {
        assert!(!field.name.is_empty() && field.value.end as usize <= head.len());
        assert!(!field.value.of(head).iter().any(|byte| matches!(byte, 0 | b'\r' | b'\n')));
    }
}

/// A chunked body is the same however it comes in, and never more than its bytes.
pub fn chunks(bytes: &[u8]) {
    let whole = unchunked(bytes, bytes.len().max(1));
    for step in [1, 3, 16] {
        assert_eq!(unchunked(bytes, step), whole, "in steps of {step} it is another");
    }
}

/// The body, and how it ended: the bytes that it was, or refused, or not yet.
fn unchunked(bytes: &[u8], step: usize) -> (Vec<u8>, Option<Result<usize, ()>>) {
    let limits = Limits { head: 256, target: 1, fields: 4 };
    let (mut chunks, mut body, mut done, mut end) = (ChunkedDecoder::default(), Vec::new(), 0, 0);
    while end < bytes.len() {
        end = (end + step).min(bytes.len());
        loop {
            let seen = &bytes[done..end];
            match chunks.next(seen, &limits) {
                ChunkPiece::More { skip: 0 } => break,
                ChunkPiece::More { skip } => done += skip,
                ChunkPiece::Data { skip, length } => {
                    assert!(length > 0);
                    body.extend_from_slice(&seen[skip..skip + length]);
                    done += skip + length;
                }
                ChunkPiece::End { length } => return (body, Some(Ok(done + length))),
                ChunkPiece::Refused(_) => return (body, Some(Err(()))),
            }
        }
    }
    (body, None)
}

fn cut_agrees(cut: usize, part: &Parsed<'_>, whole: &Parsed<'_>) {
    match (part, whole) {
        (Parsed::Need(more), Parsed::Header(header)) => assert!(
            cut + more <= header.length,
            "with {cut} bytes it wants {more} more, yet {} were enough",
            header.length
        ),
        (Parsed::Need(_), _) => {}
        _ => assert_eq!(part, whole, "with only {cut} bytes the verdict is another"),
    }
}

fn header_holds(header: &Header<'_>, bytes: &[u8], limit: usize) {
    assert!(header.length <= bytes.len());
    assert!(header.length <= limit.max(proxy::V1_MAX));
    let mut again = Vec::new();
    proxy::encode_with(header.version, &header.origin, header.tlvs, &mut again);
    let length = again.len();
    match proxy::parse_within(&again, usize::MAX) {
        Parsed::Header(back) => assert_eq!(back, Header { length, ..header.clone() }),
        other => panic!("what was encoded parses as {other:?}"),
    }
    // A header is complete in itself: the client's bytes behind it change nothing.
    again.extend_from_slice(b"PROXY \r\n\0");
    let Parsed::Header(followed) = proxy::parse_within(&again, usize::MAX) else {
        panic!("bytes behind a header spoil it");
    };
    assert_eq!(followed.length, length);
}
