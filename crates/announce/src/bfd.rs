//! Bidirectional Forwarding Detection (RFC 5880, 5881, 5883), asynchronous mode: whether a router still hears this host and is heard.
//!
//! ```text
//!   Bfd (a thread) ── want(sessions) ─► Session (pure) ── packets ─► UDP 3784, 4784
//!       ▲  packets of peers, the clock ─┘
//!       └─ states(): what became of each session
//! ```
//!
//! What a session that is Down means is its user's to know: `bgp` ends its session with that peer.
//! There is no echo, no demand mode and no authentication: packets that ask for one are discarded.

mod detector;
pub(crate) mod packet;
mod session;
mod settings;
mod sockets;
mod worker;

pub use detector::Bfd;
pub(crate) use session::hold;
pub use settings::{BfdState, BfdStatus, Diagnostic, Key, MULTIHOP_PORT, Profile, SINGLE_HOP_PORT};
