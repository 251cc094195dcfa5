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
pub(crate) mod message;
mod rib;
mod session;
mod settings;
mod speaker;

pub use settings::{
    Families, Hops, NextHops, Peer, PeerAddress, PeerName, PeerState, RemoteAs, Route, Session, Settings,
    Timing, Wanted,
};
pub use speaker::Speaker;
