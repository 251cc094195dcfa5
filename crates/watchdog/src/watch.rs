//! The thread that looks at all parts.

use std::{
    fmt,
    sync::{Arc, Condvar, Mutex, OnceLock, PoisonError, Weak},
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use crate::{
    hang_detector::{HANG_LIMIT, HangDetector, NOTABLE_DELAY},
    heartbeat::WatchedPart,
};

/// How often is looked, and how much may be lost. Tests look more often.
#[derive(Clone, Copy, Debug)]
pub struct WatchdogTimings {
    pub look: Duration,
    pub limit: Duration,
}

impl Default for WatchdogTimings {
    fn default() -> WatchdogTimings {
        WatchdogTimings { look: Duration::from_secs(1), limit: HANG_LIMIT }
    }
}

/// A part that hangs or has ended, though it is watched.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PartFailure {
    pub part: Box<str>,
    pub hangs: bool,
}

impl fmt::Display for PartFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.part, if self.hangs { "hangs" } else { "has ended" })
    }
}

/// Looks at parts until the last clone is dropped.
#[derive(Clone)]
pub struct Watchdog(Arc<Owner>);

struct Owner {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

struct Shared {
    pace: WatchdogTimings,
    parts: Mutex<Parts>,
    stopped: Condvar,
    fault: OnceLock<PartFailure>,
}

#[derive(Default)]
struct Parts {
    stopping: bool,
    next: u64,
    watched: Vec<(u64, WatchedPart, HangDetector)>,
}

/// Parts that are watched until this is dropped; from then on they may end.
#[must_use]
pub struct WatchGuard {
    shared: Weak<Shared>,
    number: u64,
}

impl Watchdog {
    /// Calls `on_fault` once, with the first fault. It may block, for nothing is looked at afterwards.
    pub fn start(
        pace: WatchdogTimings,
        on_fault: impl FnOnce(&PartFailure) + Send + 'static,
    ) -> std::io::Result<Watchdog> {
        let shared = Arc::new(Shared {
            pace,
            parts: Mutex::default(),
            stopped: Condvar::new(),
            fault: OnceLock::new(),
        });
        let looking = shared.clone();
        let thread = thread::Builder::new().name("watchdog".into()).spawn(move || {
            if let Some(fault) = looking.run() {
                on_fault(looking.fault.get_or_init(|| fault));
            }
        })?;
        Ok(Watchdog(Arc::new(Owner { shared, thread: Some(thread) })))
    }

    pub fn watch(&self, parts: impl IntoIterator<Item = WatchedPart>) -> WatchGuard {
        let shared = &self.0.shared;
        let mut all = shared.lock();
        let number = all.next;
        all.next += 1;
        all.watched.extend(parts.into_iter().map(|part| (number, part, HangDetector::default())));
        WatchGuard { shared: Arc::downgrade(shared), number }
    }

    /// Why this process is not well.
    pub fn failure(&self) -> Option<PartFailure> {
        let ended = || self.0.thread.as_ref().is_none_or(JoinHandle::is_finished);
        let itself = || PartFailure { part: "the watchdog".into(), hangs: false };
        self.0.shared.fault.get().cloned().or_else(|| ended().then(itself))
    }
}

impl Drop for Owner {
    fn drop(&mut self) {
        self.shared.lock().stopping = true;
        self.shared.stopped.notify_all();
        if let Some(thread) = self.thread.take()
            && thread.thread().id() != thread::current().id()
        {
            // One that handles a fault may not come back.
            if self.shared.fault.get().is_none() {
                let _ = thread.join();
            }
        }
    }
}

impl Drop for WatchGuard {
    fn drop(&mut self) {
        if let Some(shared) = self.shared.upgrade() {
            shared.lock().watched.retain(|(number, ..)| *number != self.number);
        }
    }
}

impl Shared {
    fn lock(&self) -> std::sync::MutexGuard<'_, Parts> {
        // Changes are single insertions and removals.
        self.parts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Until there is a fault, or nobody wants to know.
    fn run(&self) -> Option<PartFailure> {
        let look = self.pace.look;
        let mut parts = self.lock();
        loop {
            let slept = Instant::now();
            while slept.elapsed() < look && !parts.stopping {
                let left = look.saturating_sub(slept.elapsed());
                parts = self.stopped.wait_timeout(parts, left).unwrap_or_else(PoisonError::into_inner).0;
            }
            if parts.stopping {
                return None;
            }
            // However much later it is: the process may have been stopped.
            let fair = slept.elapsed() < look + NOTABLE_DELAY;
            if let Some(fault) = parts.look(self.pace, fair) {
                return Some(fault);
            }
        }
    }
}

impl Parts {
    fn look(&mut self, pace: WatchdogTimings, fair: bool) -> Option<PartFailure> {
        let seen: Vec<_> =
            self.watched.iter().map(|(_, part, _)| (part.has_ended(), part.beats(), part.sample())).collect();
        let starved = (self.watched.iter().zip(&seen))
            .any(|((.., judge), (.., sample))| judge.is_starved(*sample, pace.look));
        let fair = fair && !starved;
        for ((_, part, judge), (ended, beats, sample)) in self.watched.iter_mut().zip(seen) {
            let hangs = judge.observe(beats, sample, pace.look, fair) >= pace.limit
                || part.allowed_silence().is_some_and(|silence| judge.silent_for() >= silence);
            if ended || hangs {
                return Some(PartFailure { part: part.name().into(), hangs: !ended });
            }
            part.wake();
        }
        None
    }
}

#[cfg(test)]
mod tests;
