//! What the kernel knows about addresses and sockets, and the few things we tell it.
//!
//! ```text
//!   Links ── observe ──► Observed: links, addresses, which are ours      ┐
//!         ◄─ add, remove                                                 │  NETLINK_ROUTE
//!   Watch ── wait ─────► Event: an address or a link came, changed, went ┘
//!   Arp   ── observe, enforce ──► settings that do not hold                 /proc/sys
//!   Guard ── set, add, remove ─► our addresses answer at our ports alone       NETLINK_NETFILTER
//!   Steering ─ add, remove ───► sockets elsewhere serve them, and take no port     NETLINK_NETFILTER
//!   divert ─ replies to clients' addresses come to our sockets                 NETLINK_NETFILTER
//!   Sockets ── all, listeners ──► who listens where ──► conflicts           NETLINK_SOCK_DIAG
//!   Process ── owners ──► which process has a socket                        /proc/*/fd
//!   layer2::Announcer ── want ──► neighbors learn where addresses are       ARP, NDP, heartbeats
//!   bgp::Speaker ── want ──────► routers learn where addresses are          BGP, TCP port 179 of each
//! ```
//!
//! *Presence* is an address being on `lo` of this host, so that sockets may bind it. Only addresses
//! that carry our mark are ever removed. Everything acts on the network namespace of the calling
//! thread; calls block, for as long as the kernel takes to answer one message.
//!
//! What this crate does not know: which addresses should be present or announced (that is planned), and what
//! serves there. No route is ever learnt or installed.

#![cfg_attr(not(test), warn(clippy::indexing_slicing, clippy::arithmetic_side_effects, clippy::expect_used))]

mod arp;
pub mod bfd;
pub mod bgp;
mod conflict;
mod diag;
mod divert;
mod error;
mod firewall;
pub mod fuzz;
pub mod layer2;
mod links;
mod netlink;
mod nft;
mod process;
mod steering;
mod uapi;
mod watch;

pub use arp::{ARP_DEFAULTS, ArpSettings, EnforcedSettings, Setting, UnmetSetting};
pub use conflict::{Conflict, WantedSocket, overlaps};
pub use diag::{Listener, SocketDiagnostics};
pub use divert::{UNDIVERT, divert};
pub use error::Error;
pub use firewall::{FirewallOutcome, FirewallRules};
pub use links::{
    ADDRESS_PROTOCOL, AddOutcome, AssignedAddress, LABEL, Link, Links, ObservedLinks, RemovableAddress,
    RemoveOutcome,
};
pub use process::Process;
pub use steering::Steering;
pub use watch::{Event, LinkWatch};
