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

#[cfg(test)]
mod tests {
    use seaway_proxy::ANSWERS_WITHIN;

    use super::{predecessor, successor};

    #[test]
    fn each_process_waits_longer_than_the_other_one_takes() {
        assert!(predecessor::RESTS < ANSWERS_WITHIN, "it hears why it is refused");
        assert!(
            successor::SERVES + successor::FOLLOWS < predecessor::SERVES,
            "it says itself that it gives up"
        );
        assert!(predecessor::RETIRES < successor::RETIRES);
    }
}
