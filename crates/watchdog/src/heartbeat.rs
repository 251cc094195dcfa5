//! What a part and the watchdog share.

use std::{
    fmt,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicI32, AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

use nix::unistd::gettid;

use crate::threads::{Sample, sample, sample_named};

/// Held by a part for as long as it lives. Dropping it says that the part has ended.
#[derive(Debug)]
pub struct Heartbeat(HeartbeatHandle);

/// Beats for a part, from deeper within it.
#[derive(Clone, Debug)]
pub struct HeartbeatHandle(Arc<State>);

/// A part as the watchdog sees it.
#[derive(Clone)]
pub struct WatchedPart {
    state: Arc<State>,
    wake: Option<Arc<dyn Fn() + Send + Sync>>,
    /// The names of its threads, of a part that has many.
    threads: Option<&'static str>,
    /// How long it may go without a beat, though it runs on no thread.
    silence: Option<Duration>,
    /// Its end is another part's.
    may_end: bool,
}

#[derive(Debug)]
struct State {
    name: Box<str>,
    beats: AtomicU64,
    /// The thread on which it runs; 0: on none, or it waits for another part.
    thread: AtomicI32,
    ended: AtomicBool,
}

impl Heartbeat {
    pub fn new(name: impl Into<Box<str>>) -> (Heartbeat, WatchedPart) {
        let state = Arc::new(State {
            name: name.into(),
            beats: AtomicU64::new(0),
            thread: AtomicI32::new(0),
            ended: AtomicBool::new(false),
        });
        let part =
            WatchedPart { state: state.clone(), wake: None, threads: None, silence: None, may_end: false };
        (Heartbeat(HeartbeatHandle(state)), part)
    }

    /// From now on the part runs on the calling thread, and beats at least whenever it is woken.
    pub fn enter_thread(&self) {
        self.0.beat();
        self.0.0.thread.store(gettid().as_raw(), Relaxed);
    }

    /// From now on the part runs on no thread.
    pub fn leave_thread(&self) {
        self.0.0.thread.store(0, Relaxed);
        self.0.beat();
    }

    pub fn beat(&self) {
        self.0.beat();
    }

    /// Runs what may wait for another part, which is watched by itself: this part is not missed meanwhile.
    pub fn while_waiting<T>(&self, wait: impl FnOnce() -> T) -> T {
        let thread = self.0.0.thread.swap(0, Relaxed);
        let done = wait();
        self.0.beat();
        self.0.0.thread.store(thread, Relaxed);
        done
    }

    pub fn pulse(&self) -> HeartbeatHandle {
        self.0.clone()
    }
}

impl HeartbeatHandle {
    #[inline]
    pub fn beat(&self) {
        // One thread at a time beats: no read-modify-write is needed.
        let beats = self.0.beats.load(Relaxed);
        self.0.beats.store(beats.wrapping_add(1), Relaxed);
    }
}

impl Drop for Heartbeat {
    fn drop(&mut self) {
        self.0.0.thread.store(0, Relaxed);
        self.0.0.ended.store(true, Relaxed);
    }
}

impl WatchedPart {
    /// Gives an idle part a turn, from the watchdog's thread; must not block.
    #[must_use]
    pub fn woken_by(mut self, wake: impl Fn() + Send + Sync + 'static) -> WatchedPart {
        self.wake = Some(Arc::new(wake));
        self
    }

    /// It runs on all threads of this name, and beats by itself.
    #[must_use]
    pub fn of_threads(mut self, name: &'static str) -> WatchedPart {
        self.threads = Some(name);
        self
    }

    /// It has timers, by which it beats at least this often, whatever it waits for.
    #[must_use]
    pub fn with_allowed_silence(mut self, silence: Duration) -> WatchedPart {
        self.silence = Some(silence);
        self
    }

    /// Its end is no fault: another part works with it, and tells it to end.
    #[must_use]
    pub fn allowed_to_end(mut self) -> WatchedPart {
        self.may_end = true;
        self
    }

    pub fn name(&self) -> &str {
        &self.state.name
    }

    pub(crate) fn wake(&self) {
        if let Some(wake) = &self.wake {
            wake();
        }
    }

    pub(crate) fn beats(&self) -> u64 {
        self.state.beats.load(Relaxed)
    }

    pub(crate) fn allowed_silence(&self) -> Option<Duration> {
        self.silence
    }

    pub(crate) fn has_ended(&self) -> bool {
        !self.may_end && self.state.ended.load(Relaxed)
    }

    /// `None`: it runs on no thread, or the kernel does not tell.
    pub(crate) fn sample(&self) -> Option<Sample> {
        if let Some(name) = self.threads {
            return sample_named(name);
        }
        match self.state.thread.load(Relaxed) {
            0 => None,
            thread => sample(thread),
        }
    }
}

impl fmt::Debug for WatchedPart {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Part").field(&self.state.name).finish()
    }
}
