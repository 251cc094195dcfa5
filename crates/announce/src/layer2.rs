//! Addresses made known to their own network, by ARP and NDP, by exactly one of the hosts that serve them.
//!
//! ```text
//!   Announcer (a thread) ── want(Wanted) ─► State machine (pure) ── actions ─► sockets
//!       ▲  heartbeats of peers, ARP and NDP of the network, the clock ─┘
//!       └─ states(): what became of each address
//! ```
//!
//! A host announces an address only while it serves it, and only on an interface whose subnet has it.

mod announcer;
mod clock;
mod election;
pub(crate) mod heartbeat;
mod interfaces;
pub(crate) mod packet;
mod responder;
mod settings;
mod sockets;
mod state;
mod succession;
mod worker;

pub use announcer::Announcer;
pub(crate) use announcer::locked;
pub use settings::{
    AddressState, AddressStatus, Counters, DesiredAnnouncements, HeartbeatKey, Mac, Peer, Settings, Timing,
    WantedAddress,
};
