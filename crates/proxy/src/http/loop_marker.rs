//! The mark of requests that have come through here: `CDN-Loop` (RFC 8586), which whoever forwards them leaves in
//! place. Ours names this process, so that a loop is told from a chain.

use seaway_wire::http::{KnownHeader, Request};

use crate::own_sockets::MOST_PASSES;

/// Through so many of us nothing goes that is not a loop, whoever they are.
const MOST_OF_ALL: usize = 16;
const NAME: &[u8] = b"cdn-loop";
const OURS: &[u8] = b"seaway;id=";
const DIGITS: usize = 16;

/// `seaway;id=0123456789abcdef`, the same for all workers of a process.
pub(crate) struct LoopMarker([u8; OURS.len() + DIGITS]);

impl LoopMarker {
    #[allow(clippy::indexing_slicing, reason = "it has room for both parts, and a number has sixteen digits")]
    pub(crate) fn new(id: u64) -> LoopMarker {
        let mut mark = [0; OURS.len() + DIGITS];
        mark[..OURS.len()].copy_from_slice(OURS);
        mark[OURS.len()..].copy_from_slice(format!("{id:016x}").as_bytes());
        LoopMarker(mark)
    }

    pub(super) fn bytes(&self) -> &[u8] {
        &self.0
    }

    /// It has come through here too often, or through too many of us.
    pub(super) fn is_looped(&self, head: &[u8], request: &Request) -> bool {
        let (mut own, mut all) = (0_usize, 0_usize);
        for field in request.fields.iter().filter(|it| it.known == KnownHeader::Other) {
            if !is_loop_marker(field.name.of(head)) {
                continue;
            }
            for entry in field.value.of(head).split(|byte| *byte == b',') {
                let entry = entry.trim_ascii();
                all = all.saturating_add(usize::from(entry.starts_with(OURS)));
                own = own.saturating_add(usize::from(entry == self.bytes()));
            }
        }
        own >= usize::from(MOST_PASSES) || all >= MOST_OF_ALL
    }
}

/// No rule takes it away: it would take away what ends a loop.
pub(super) fn is_loop_marker(name: &[u8]) -> bool {
    name.len() == NAME.len() && name.eq_ignore_ascii_case(NAME)
}
