//! MetalLB's objects that say how addresses are announced. Seaway reads MetalLB's pools and announces none of their addresses, so each of
//! these objects is a Problem: whoever wrote it would wait for an announcement that does not come.

use seaway_model::{Kind, ObjectRef, Problem, Reason};

pub(crate) fn is_announcement(kind: Kind) -> bool {
    matches!(kind, Kind::MetallbL2Advertisement | Kind::MetallbBGPAdvertisement | Kind::MetallbBGPPeer)
}

pub(crate) fn is_of_metallb(kind: Kind) -> bool {
    kind == Kind::IPAddressPool || is_announcement(kind)
}

/// Of the object itself, so once, however many Services have addresses that it is about.
pub(crate) fn not_acted_on_problem(object: ObjectRef) -> Problem {
    let message = "Seaway does not act on it: of pools of MetalLB, Seaway announces no addresses, neither by ARP or NDP nor by BGP";
    Problem::new(object, Reason::Unsupported, message).fix(
        "Leave MetalLB's speaker running if it announces these addresses; or use an AddressPool with \
         announce: l2, or with announce: static where a router has a route to the hosts. Delete the object when nothing uses it any more.",
    )
}
