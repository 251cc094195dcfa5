//! Notices parts of this process that hang or have ended, within 10 seconds.
//!
//! ```text
//!   a part: Heartbeat ── beat, each turn ──► Part ◄── read, each second ── Watchdog ──► on_fault, once
//!                     └─ dropped: it ended      └─ wake: an idle part has a turn as well
//! ```
//!
//! A part that does not beat is not judged by the time that passes, but by what its thread did meanwhile:
//!
//! | its thread | counts as lost |
//! |---|---|
//! | ran on a processor | the time for which it ran |
//! | slept, though it was woken | the second |
//! | waited for a processor, or for a disk, or was stopped | nothing |
//!
//! So neither SIGSTOP nor a machine at 100 % CPU is taken for a hang. A suspended machine has no monotonic time, and however late
//! the watchdog comes, one second has passed for it. Where it came late, or a thread of ours waited for a processor most of the
//! time, sleep is not counted. Once [`HANG_LIMIT`] is lost, the part hangs.
//!
//! A task of a runtime has no thread: it is judged while it is being polled, on the thread that polls it. One that waits is well;
//! whatever it waits for has a limit of its own. Where it has timers of its own, [`WatchedPart::with_allowed_silence`] bounds the
//! wait, too. [`WatchedPart::of_threads`] judges a runtime as a whole.
//!
//! The crate does not know what the parts do, nor what is done about one that hangs.

mod hang_detector;
mod heartbeat;
mod task;
mod threads;
mod watch;

pub use hang_detector::HANG_LIMIT;
pub use heartbeat::{Heartbeat, HeartbeatHandle, WatchedPart};
pub use task::WatchedFuture;
pub use watch::{PartFailure, WatchGuard, Watchdog, WatchdogTimings};
