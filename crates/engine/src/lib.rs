//! The loop: Changes in, Units worked on, Outcomes back in as Changes.
//!
//! ```text
//!     sources ─► Change ─► World (one task) ─► Dirt ─► Queue ─► Worker: observe ► steps ► apply
//!                  ▲                                               │
//!                  └────────────────── Outcome ◄───────────────────┘
//! ```
//!
//! Per Unit: never two workers at once, de-duplicated while it waits, retried with backoff and jitter, parked instead
//! of waited for. The crate does no I/O of its own and knows no driver; time comes from tokio, which tests pause.

mod adoption;
mod background;
mod context;
mod counts;
mod driver;
mod effect;
mod execute;
mod gate;
mod handle;
mod problem_log;
mod queue;
mod removal;
mod run;
mod slots;
mod unwritten;
mod wanted;
mod work;

pub use background::{Background, Event};
pub use context::{Context, Patch};
pub use counts::{Counts, DriverCounts};
pub use driver::{Driver, Failure, Refused, Report, Until, chain};
pub use effect::{Effect, Effects};
pub use execute::Drivers;
pub use gate::{Fence, Gate};
pub use handle::{Handle, Phase};
pub use problem_log::ProblemLog;
pub use queue::backoff;
pub use removal::{
    Counted, DeletionLimit, Doubt, HeartbeatRecord, Owners, OwnersFuture, Removal, deletion_limit,
};
pub use run::{Engine, Settings};
pub use unwritten::unwritten;
pub use work::{Attempt, dry_run, work_once};
