//! Names for requests and traces.

// What is read here is somebody else's.
#![cfg_attr(not(test), warn(clippy::indexing_slicing, clippy::arithmetic_side_effects, clippy::expect_used))]

use std::{
    collections::hash_map::RandomState,
    hash::{BuildHasher, Hasher},
    ops::Range,
};

use seaway_snapshot::mix;
use seaway_wire::http::{KnownHeader, Request};

/// Random enough that no two requests anywhere have one name; nobody's secret.
pub(super) struct RequestIds([u64; 2]);

/// Of a trusted proxy: longer ones are no names.
const LONGEST: usize = 128;

/// Where which of the 32 digits stand in a UUID.
const UUID_PARTS: [(Range<usize>, Range<usize>); 5] =
    [(0..8, 0..8), (9..13, 8..12), (14..18, 12..16), (19..23, 16..20), (24..36, 20..32)];

impl RequestIds {
    pub(super) fn new() -> RequestIds {
        // The standard library asks the kernel for the keys of its hash tables: the same randomness without a crate.
        let draw = || RandomState::new().build_hasher().finish();
        RequestIds([draw(), draw()])
    }

    fn draw(&mut self) -> u128 {
        let [high, low] = &mut self.0;
        *high = high.wrapping_add(0x9e37_79b9_7f4a_7c15);
        *low = low.wrapping_add(0xd1b5_4a32_d192_ed03);
        u128::from(mix(*high)) << 64 | u128::from(mix(*low))
    }

    /// Who has a name keeps it, if that comes from somebody who is believed; others get one in the form of a UUID.
    pub(super) fn put_request_id(
        &mut self,
        out: &mut Vec<u8>,
        head: &[u8],
        request: &Request,
        believed: bool,
    ) {
        out.clear();
        let told = request.field(KnownHeader::RequestId).filter(|_| believed).map(|it| it.of(head));
        if let Some(told) = told.filter(|it| (1..=LONGEST).contains(&it.len())) {
            return out.extend_from_slice(told);
        }
        // Version 4 (RFC 9562, section 5.4).
        let bits = self.draw() & !(0xf << 76) & !(0b11 << 62) | (4 << 76) | (0b10 << 62);
        let digits = hex(&bits.to_be_bytes());
        let mut name = [b'-'; 36];
        for (to, from) in UUID_PARTS {
            if let (Some(to), Some(from)) = (name.get_mut(to), digits.as_flattened().get(from)) {
                to.copy_from_slice(from);
            }
        }
        out.extend_from_slice(&name);
    }

    /// The first parent of a new trace.
    pub(super) fn put_trace(&mut self, out: &mut Vec<u8>) {
        // None of the two may be zero.
        let trace = hex(&(self.draw() | 1).to_be_bytes());
        let parent = hex(&(self.draw() as u64 | 1).to_be_bytes());
        for part in [&b"00-"[..], trace.as_flattened(), b"-", parent.as_flattened(), b"-01"] {
            out.extend_from_slice(part);
        }
    }
}

/// Two digits of each byte. Without a table and without a branch: the compiler does many at a time.
fn hex<const N: usize>(bytes: &[u8; N]) -> [[u8; 2]; N] {
    let digit = |it: u8| it.wrapping_add(if it > 9 { b'a' - 10 } else { b'0' });
    bytes.map(|byte| [digit(byte >> 4), digit(byte & 0xf)])
}

/// There is one `traceparent`, and a proper one.
pub(super) fn is_traced(head: &[u8], request: &Request) -> bool {
    let mut fields = request.fields.iter().filter(|field| field.known == KnownHeader::TraceParent);
    let only = fields.next().filter(|_| fields.next().is_none());
    only.is_some_and(|field| is_trace_parent(field.value.of(head)))
}

/// `version-trace-parent-flags` (W3C Trace Context, section 3.2.2).
fn is_trace_parent(value: &[u8]) -> bool {
    let Some((whole, rest)) = value.split_first_chunk::<55>() else { return false };
    let hex = |part: &[u8]| part.iter().all(|it| matches!(it, b'0'..=b'9' | b'a'..=b'f'));
    let zero = |part: &[u8]| part.iter().all(|it| *it == b'0');
    let (version, trace, parent, flags) = (&whole[..2], &whole[3..35], &whole[36..52], &whole[53..]);
    [whole[2], whole[35], whole[52]] == *b"---"
        && [version, trace, parent, flags].iter().all(|part| hex(part))
        && version != b"ff"
        && !zero(trace)
        && !zero(parent)
        // Later versions may say more.
        && (rest.is_empty() || (version != b"00" && rest.first() == Some(&b'-')))
}

/// What belongs to a `traceparent`, and means nothing without it.
pub(super) fn is_trace_state(name: &[u8]) -> bool {
    name.eq_ignore_ascii_case(b"tracestate")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_trace_parent_is_what_the_recommendation_says() {
        for (value, expected) in [
            ("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", true),
            ("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-00", true),
            ("cc-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", true),
            ("cc-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01-what-comes", true),
            ("cc-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01.what", false),
            ("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01-more", false),
            ("ff-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", false),
            ("00-0AF7651916CD43DD8448EB211C80319C-b7ad6b7169203331-01", false),
            ("00-00000000000000000000000000000000-b7ad6b7169203331-01", false),
            ("00-0af7651916cd43dd8448eb211c80319c-0000000000000000-01", false),
            ("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331", false),
            ("00-0af7651916cd43dd8448eb211c80319c_b7ad6b7169203331-01", false),
            ("", false),
        ] {
            assert_eq!(is_trace_parent(value.as_bytes()), expected, "{value}");
        }
    }

    #[test]
    fn bytes_have_two_digits_each() {
        let all: [u8; 256] = std::array::from_fn(|at| at as u8);
        let expected: String = all.iter().map(|it| format!("{it:02x}")).collect();
        assert_eq!(hex(&all).as_flattened(), expected.as_bytes());
    }

    #[test]
    fn names_are_alike_in_form_alone() {
        let (mut one, mut other) = (RequestIds::new(), RequestIds::new());
        let mut traces = Vec::new();
        one.put_trace(&mut traces);
        assert!(is_trace_parent(&traces));
        let mut all = std::collections::HashSet::new();
        for _ in 0..1000 {
            for request_ids in [&mut one, &mut other] {
                let mut name = Vec::new();
                request_ids.put_request_id(&mut name, b"", &Request::default(), true);
                assert_eq!((name.len(), name[14]), (36, b'4'));
                let is_right = |(at, it): (usize, &u8)| match at {
                    8 | 13 | 18 | 23 => *it == b'-',
                    _ => matches!(it, b'0'..=b'9' | b'a'..=b'f'),
                };
                assert!(name.iter().enumerate().all(is_right), "{name:?}");
                assert!(matches!(name[19], b'8' | b'9' | b'a' | b'b'));
                assert!(all.insert(name));
            }
        }
    }
}
