//! One process of a host passes its work on to the next, and one alone does that work.
//!
//! ```text
//!   the folder, for its user alone
//!     lock            who has it (flock) works: its engine changes this machine, and it speaks for the host
//!     handover.sock   of who has the lock: the next one asks there
//!     generations     a line for each pod that ran here: whose line is later is newer
//!
//!   the one before                                    the next
//!     serves                                            reads all that the API server tells; its engine is held
//!     ◄────────────── whose process, how new, what it knows ──────────────┤
//!     its engine and its report rest                    │
//!     ├── the lock, its sockets ───────────────────────►│ its engine works
//!     ├── UDP flows ───────────────────────────────────►│ all is open here
//!     retires: Lease, report, announcements, snapshot   │
//!     ├── closes the line ─────────────────────────────►│ begins these, and is ready
//!     waits for SIGTERM, drains                         ▼
//! ```
//! The lock belongs to the open file, which both have in between; so it is never free, whichever of the two dies. Who finds it free
//! works at once, whatever happened to the one before.

mod folder;
mod predecessor;
mod successor;

pub(super) use self::{
    folder::Folder,
    predecessor::{Retired, Retiring},
    successor::Successor,
};
