//! Health: who may get something new.
//!
//! ```text
//!   pools ──► Prober (one thread): checks, rise and fall ──► RunningPool::set_health ──► pickers
//!                 ▲                        └─► one log line, one HealthChange
//!                 ├─ ejected: told by the data path, which ejects by itself
//!                 └─ wanted: checks that rest while nobody uses a pool wake with its next client
//! ```

#![cfg_attr(not(test), warn(clippy::indexing_slicing, clippy::arithmetic_side_effects, clippy::expect_used))]

mod call;
mod changes;
mod check;
mod fair_queue;
pub(crate) mod fuzz;
mod probe;
mod registry;
mod request_queue;
mod scheduler;

use std::{
    io,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{Arc, atomic::Ordering::Relaxed},
    thread::{self, JoinHandle},
};

use seaway_watchdog::{Heartbeat, WatchedPart};

use self::changes::HealthChange;
pub(crate) use self::request_queue::RequestQueue;
use self::{request_queue::ProberRequest, scheduler::CheckScheduler};
use crate::{running::RunningPool, sys::millis};

/// Checks that are under way at once: enough for 20,000 members on a local network, few enough to leave
/// descriptors to those who pay.
const MOST_OPEN: usize = 512;

/// The one thread of a process that looks after members. Dropping it ends the thread.
pub(crate) struct Prober {
    requests: Arc<RequestQueue>,
    part: WatchedPart,
    thread: Option<JoinHandle<()>>,
}

/// A prober that dies sooner than this, so many times in a row, is not started again: the process is.
const SHORT_LIFE: u64 = 60_000;
const MOST_SHORT_LIVES: u32 = 5;

impl Prober {
    /// `pools`: all there are, should the prober have to begin again.
    pub(crate) fn start(pools: impl Fn() -> Vec<Arc<RunningPool>> + Send + 'static) -> io::Result<Prober> {
        let requests = Arc::new(RequestQueue::new()?);
        let (rounds_desk, bell) = (requests.clone(), requests.clone());
        let (heartbeat, part) = Heartbeat::new("the prober");
        let part = part.woken_by(move || bell.bell.wake());
        // What the thread works with is not shared, so it is made there; whether that succeeded comes back.
        let (tell, told) = std::sync::mpsc::sync_channel(1);
        let thread = thread::Builder::new().name("prober".into()).spawn(move || {
            heartbeat.enter_thread();
            match CheckScheduler::new(rounds_desk.clone(), MOST_OPEN) {
                Ok(rounds) => {
                    let _ = tell.send(Ok(()));
                    keep_running(rounds, &rounds_desk, &pools, &heartbeat);
                }
                Err(error) => {
                    let _ = tell.send(Err(error));
                }
            }
        })?;
        told.recv().unwrap_or_else(|_| Err(io::Error::other("the health checker did not start")))?;
        Ok(Prober { requests, part, thread: Some(thread) })
    }

    /// For the watchdog.
    pub(crate) fn part(&self) -> WatchedPart {
        self.part.clone()
    }

    /// A pool is new, changed or gone: the prober looks for itself.
    pub(crate) fn watch(&self, pool: &Arc<RunningPool>) {
        pool.report_to(|| self.requests.clone());
        self.requests.ask(ProberRequest::Watch(pool.clone()));
    }

    #[cfg(test)]
    pub(crate) fn make(&self, fail: impl FnOnce() + Send + 'static) {
        self.requests.ask(ProberRequest::Do(Box::new(fail)));
    }
}

/// Runs until it is told to end. After a panic all pools are looked at from the start; members keep their state meanwhile.
fn keep_running(
    mut rounds: CheckScheduler,
    requests: &Arc<RequestQueue>,
    pools: &impl Fn() -> Vec<Arc<RunningPool>>,
    heartbeat: &Heartbeat,
) {
    let mut short_lives = 0_u32;
    loop {
        let began = millis();
        let ended = catch_unwind(AssertUnwindSafe(|| rounds.run(heartbeat))).is_ok();
        // What was asked of it beside what it failed at is lost, and that it shall end may be among that.
        if ended || requests.over.load(Relaxed) {
            return;
        }
        let is_short = millis().saturating_sub(began) < SHORT_LIFE;
        short_lives = if is_short { short_lives.saturating_add(1) } else { 1 };
        if short_lives > MOST_SHORT_LIVES {
            return tracing::error!("health checks: the prober keeps failing");
        }
        tracing::error!("health checks: the prober failed and is restarted");
        rounds = match CheckScheduler::new(requests.clone(), MOST_OPEN) {
            Ok(rounds) => rounds,
            Err(error) => return tracing::error!(%error, "health checks: the prober cannot be restarted"),
        };
        pools().into_iter().for_each(|pool| requests.ask(ProberRequest::Watch(pool)));
        // What was asked of the one before may have rung already.
        requests.bell.wake();
    }
}

impl Drop for Prober {
    fn drop(&mut self) {
        self.requests.over.store(true, Relaxed);
        self.requests.ask(ProberRequest::Stop);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

#[cfg(test)]
mod tests;
