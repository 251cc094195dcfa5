//! Frames of ARP and NDP: bytes to meaning and back. Nothing is allocated.

mod arp;
mod ndp;

pub(crate) use arp::{Arp, Operation};
pub(crate) use ndp::{Advertisement, Solicitation, set_checksum, solicited_node};

use super::settings::Mac;

pub(crate) const BROADCAST: Mac = Mac([0xff; 6]);
const NOTHING: Mac = Mac([0; 6]);

impl Mac {
    /// Of one interface, and not of a group.
    pub(crate) fn is_unicast(self) -> bool {
        let Mac([first, ..]) = self;
        first & 1 == 0 && self != NOTHING
    }
}

/// The parts one behind the other; what is longer than `N` is cut, the rest is zero.
fn joined<const N: usize>(parts: &[&[u8]]) -> [u8; N] {
    let mut whole = [0; N];
    let bytes = parts.iter().flat_map(|part| part.iter());
    whole.iter_mut().zip(bytes).for_each(|(to, from)| *to = *from);
    whole
}

/// The first `N` bytes, and the rest.
fn taken<const N: usize>(bytes: &[u8]) -> Option<([u8; N], &[u8])> {
    let (first, rest) = bytes.split_first_chunk::<N>()?;
    Some((*first, rest))
}

/// Destination, source, and what is in a frame of this type.
fn ethernet(frame: &[u8], kind: u16) -> Option<(Mac, Mac, &[u8])> {
    let (destination, rest) = taken::<6>(frame)?;
    let (source, rest) = taken::<6>(rest)?;
    let (found, rest) = taken::<2>(rest)?;
    (found == kind.to_be_bytes()).then_some((Mac(destination), Mac(source), rest))
}
