//! Seaway without a cluster: a folder of manifests in, the ledger and statuses out.
//!
//! ```text
//!     *.yaml ─► document ─► manifests ─► Fact ┐
//!                   places │  faults          ├─ Folder ─► Watch ─► Vec<Change> ─► World
//!                          └─────► Problem ───┘     ▲
//!                                     last good ────┘
//!     PEM files of the configuration ─► pem ─► the same
//!     snapshot:      facts of a cluster, kept by one process for the next
//!     state folder:  StateDir ─ lock              Ledger ─ ledger.jsonl    StatusFile ─ status.json
//! ```
//! What an API server does between `kubectl apply` and a watch is done here: one object has one content, a namespace is
//! there with what is in it; defaults and validation are `manifests`'. What stands in the way of a folder being as safe as an API server is dealt with here, too: files
//! half written, typos, a full disk, a folder that is away.
//!
//! The crate does not know what any of it is for: it plans nothing, allocates nothing, serves nothing, and knows no
//! driver. It uses threads, not an executor, so that a busy data plane never delays it.

#![cfg_attr(not(test), warn(clippy::indexing_slicing, clippy::arithmetic_side_effects, clippy::expect_used))]

mod disk;
mod document;
mod drivers;
mod folder;
pub mod fuzz;
mod last_good;
pub mod pem;
mod route_services;
pub mod state;
pub mod state_cache;
mod wakeup;
mod watch;

pub use drivers::{AddressDriver, StatusDriver};
pub use folder::{Folder, FolderError, read_folder};
pub use last_good::runtime_folder;
pub use state::{LedgerError, LedgerFile, ServerInfo, StateDir, StateError, StatusFile};
pub use watch::{Locator, Watch};
