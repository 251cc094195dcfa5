//! MetalLB's objects that say how addresses are announced. Seaway reads MetalLB's pools and announces nothing, so each of
//! these objects is a Problem: whoever wrote it would wait for an announcement that does not come.

use seaway_model::{Kind, ObjectRef, Problem, Reason};

pub(crate) fn is_announcement(kind: Kind) -> bool {
    matches!(kind, Kind::L2Advertisement | Kind::BGPAdvertisement | Kind::BGPPeer)
}

pub(crate) fn is_of_metallb(kind: Kind) -> bool {
    kind == Kind::IPAddressPool || is_announcement(kind)
}

/// Of the object itself, so once, however many Services have addresses that it is about.
pub(crate) fn not_acted_on_problem(object: ObjectRef) -> Problem {
    let message =
        "Seaway does not act on it: Seaway announces no addresses yet, neither by ARP or NDP nor by BGP";
    Problem::new(object, Reason::Unsupported, message).fix(
        "Leave MetalLB's speaker running if it announces these addresses; or give a router a route to the hosts, and use an \
         AddressPool with announce: static. Delete the object when nothing uses it any more.",
    )
}
