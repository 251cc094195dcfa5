//! What must hold for any bytes whatever: one plain function per parser, which panics when it does
//! not. cargo-fuzz, the seeds test on stable Rust and a curious reader call the same functions.

use crate::{
    http::{self, Status},
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

/// A status line says the same however it is cut, is decided within its limit, and is a code or nothing.
pub fn status(bytes: &[u8]) {
    let whole = http::status(bytes);
    for cut in 0..bytes.len().min(http::STATUS_LINE_MAX) {
        let part = http::status(&bytes[..cut]);
        assert!(part == Status::Partial || part == whole, "with only {cut} bytes the verdict is another");
    }
    match whole {
        Status::Partial => assert!(bytes.len() < http::STATUS_LINE_MAX),
        Status::Code(code) => assert!((100..1000).contains(&code)),
        Status::Invalid => {}
    }
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
