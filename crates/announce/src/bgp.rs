//! Addresses announced to routers by BGP (RFC 4271): a speaker that announces, and learns nothing.
//!
//! ```text
//!   Speaker (a thread) ── want(Wanted) ─► rib: what each peer has, and what it lacks ┐
//!       ▲  bytes of peers, the clock ───► fsm: one session (pure) ── actions ────────┴─► sockets
//!       └─ states(): what became of each session
//! ```
//!
//! It connects and never listens, so it needs no port and can be beside another speaker of this host. What peers announce is
//! counted and dropped.

mod fsm;
mod holds;
mod interface_addresses;
mod link;
pub(crate) mod message;
mod neighbors;
mod rib;
mod session;
mod settings;
mod sockets;
mod speaker;
mod worker;

pub(crate) use holds::hold;
pub use settings::{PeerState, SessionState, Settings, Timing};
pub use speaker::Speaker;

/// Of a peer of which no other is said.
const PORT: u16 = 179;
