//! MetalLB's objects that say how addresses are announced. Seaway reads MetalLB's pools and announces none of their addresses, so each of
//! these objects is a Problem: whoever wrote it would wait for an announcement that does not come.

use seaway_model::Kind;

pub(crate) fn is_announcement(kind: Kind) -> bool {
    kind.is_announcing() && kind.is_of_metallb()
}
