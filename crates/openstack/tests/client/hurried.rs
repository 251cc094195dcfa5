//! A clock that does not wait: whoever sleeps moves it.

use std::{
    sync::{Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant, SystemTime},
};

use seaway_openstack::{Clock, clock::Pause};

pub(crate) struct FastClock {
    start: (Instant, SystemTime),
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    passed: Duration,
    slept: Vec<Duration>,
}

impl FastClock {
    pub(crate) fn new() -> FastClock {
        FastClock { start: (Instant::now(), SystemTime::now()), state: Mutex::default() }
    }

    pub(crate) fn advance(&self, time: Duration) {
        self.lock().passed += time;
    }

    /// How long each pause was meant to be.
    pub(crate) fn slept(&self) -> Vec<Duration> {
        self.lock().slept.clone()
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Clock for FastClock {
    fn now(&self) -> Instant {
        self.start.0 + self.lock().passed
    }

    fn wall(&self) -> SystemTime {
        self.start.1 + self.lock().passed
    }

    fn sleep(&self, time: Duration) -> Pause<'_> {
        let mut state = self.lock();
        state.passed += time;
        state.slept.push(time);
        Box::pin(tokio::task::yield_now())
    }
}
