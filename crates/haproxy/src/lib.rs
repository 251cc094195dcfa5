//! HAProxy as a data plane: load balancers become a [`Document`], which is printed as the files that HAProxy reads.
//!
//! ```text
//!     LoadBalancers ─► document() ─► Document, Problems ─► files() ─► haproxy.cfg, maps, crt-lists, PEM files
//! ```
//! Hosts and paths are in maps, certificates in crt-lists and members in numbered slots, because HAProxy changes
//! these while it runs. All here is pure.

pub mod document;
mod from;
mod print;
pub mod version;
pub mod words;

pub use document::Document;
pub use from::{Wanted, document};
pub use print::{Files, MARK, files, is_ours};
pub use version::Version;
