//! Through how many of us something has come, as PROXY headers (version 2) tell it: where each trusts the one before, a
//! loop through other hosts is found by that. Whoever does not know this TLV skips it, as the protocol asks.
//!
//! What comes without a header goes on with one as it always did: only who stands behind another proxy says more.

#![cfg_attr(not(test), warn(clippy::indexing_slicing, clippy::arithmetic_side_effects, clippy::expect_used))]

use seaway_wire::proxy::{Header, Tlvs};

/// Through so many nothing goes that is not a loop.
pub(crate) const MOST_HOPS: u8 = 16;
/// Of those that applications may use as they like.
const KIND: u8 = 0xe5;
const NAME: &[u8] = b"seaway";
const LENGTH: u8 = 7;

/// What a header tells; 0 where it is not one of ours, or of the first of us.
pub(crate) fn received(header: &Header<'_>) -> u8 {
    let ours = header.tlvs.iter().find(|it| it.kind == KIND && it.value.starts_with(NAME));
    ours.and_then(|it| it.value.get(NAME.len()).copied()).unwrap_or(0)
}

/// What the next one is told; nothing, for 0.
pub(crate) fn tlv(hops: u8) -> Vec<u8> {
    match hops {
        0 => Vec::new(),
        hops => [&[KIND, 0, LENGTH], NAME, &[hops]].concat(),
    }
}

pub(crate) fn tlvs(bytes: &[u8]) -> Tlvs<'_> {
    Tlvs::of(bytes).unwrap_or(Tlvs::NONE)
}

#[cfg(test)]
mod tests {
    use seaway_wire::proxy::{self, Forwarded, Origin, Parsed, Transport, Version};

    use super::*;

    #[test]
    fn a_count_survives_the_way() {
        let ends = ["192.0.2.1:1", "192.0.2.2:2"].map(|it| it.parse().unwrap());
        let origin = Origin::Forwarded(Forwarded::new(Transport::Stream, ends[0], ends[1]));
        for hops in [0, 1, MOST_HOPS, u8::MAX] {
            let mut bytes = Vec::new();
            proxy::encode_with(Version::V2, &origin, tlvs(&tlv(hops)), &mut bytes);
            let Parsed::Header(header) = proxy::parse(&bytes) else { panic!("{bytes:?}") };
            assert_eq!((received(&header), header.length), (hops, bytes.len()));
        }
        // Another application's, of the same kind.
        let theirs = Header { version: Version::V2, origin, tlvs: tlvs(b"\xe5\0\x01x"), length: 0 };
        assert_eq!(received(&theirs), 0);
    }
}
