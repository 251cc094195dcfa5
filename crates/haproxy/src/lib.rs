//! HAProxy as a data plane: load balancers become a [`Document`], which is printed as the files that HAProxy reads, and
//! compared with what a running HAProxy has.
//!
//! ```text
//!     LoadBalancers ─► document() ─► Document ─► files() ─► haproxy.cfg, maps, crt-lists, PEM files
//!                          │            └─────► Difference ◄─ Running ◄─ runtime: sockets of HAProxy
//!                       Problems                    └─ commands, or a reload ─► process: master, worker
//! ```
//! Hosts and paths are in maps, certificates in crt-lists and members in numbered slots, because HAProxy changes
//! these while it runs. All is pure but [`runtime::socket`] and [`process`]. It knows nothing of Kubernetes, nor of how a
//! load balancer came to be.

pub mod difference;
pub mod document;
mod from;
pub mod fuzz;
mod print;
pub mod process;
pub mod running;
pub mod runtime;
pub mod version;
pub mod words;

pub use document::{Document, Global};
pub use from::{ConfigInput, Exclusions, authorities, changed_members, document, members_in_slots};
pub use print::{MARK, RenderedFiles, files, is_ours};
pub use process::{Haproxy, Options, ProcessError, Report, version};
pub use version::Version;
