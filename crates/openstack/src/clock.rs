//! The time, as a thing that tests drive.

use std::{
    future::Future,
    pin::Pin,
    time::{Duration, Instant, SystemTime},
};

/// A pause, as an object: a clock is passed around as `dyn`.
pub type Pause<'a> = Pin<Box<dyn Future<Output = ()> + Send + 'a>>;

/// Backoff, limits and the expiry of tokens ask this one. Time-outs on sockets do not: no clock of ours moves bytes.
pub trait Clock: Send + Sync + 'static {
    fn now(&self) -> Instant;

    /// What tokens and `Retry-After` dates are compared with.
    fn wall(&self) -> SystemTime;

    fn sleep(&self, time: Duration) -> Pause<'_>;
}

#[derive(Clone, Copy, Debug, Default)]
pub struct RealClock;

impl Clock for RealClock {
    fn now(&self) -> Instant {
        Instant::now()
    }

    fn wall(&self) -> SystemTime {
        SystemTime::now()
    }

    fn sleep(&self, time: Duration) -> Pause<'_> {
        Box::pin(tokio::time::sleep(time))
    }
}
