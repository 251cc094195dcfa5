//! What is done about a part of this process that hangs or has ended: the process ends, and who supervises it starts it again.
//!
//! A thread that hangs cannot be ended alone, and the sockets of a worker would go on taking clients that nobody serves.

use std::{io, process, thread, time::Duration};

use seaway_watchdog::{Heartbeat, PartFailure, Watchdog, WatchdogTimings, WatchedPart};
use tracing::error;

/// What writes the log may be what hangs: then the process ends without a word.
const LAST_WORDS: Duration = Duration::from_secs(2);
/// Twice before each look.
const BEAT: Duration = Duration::from_millis(450);

/// As [`crate::run::runtime`] names its threads.
pub(crate) const CONTROL_THREADS: &str = "control";

pub(crate) fn start() -> io::Result<Watchdog> {
    Watchdog::start(WatchdogTimings::default(), end)
}

fn end(fault: &PartFailure) {
    let said = fault.clone();
    let ending = thread::Builder::new().name("ending".into()).spawn(move || {
        error!("{said}; the process exits so that the supervisor restarts it");
        process::exit(1);
    });
    if ending.is_ok() {
        thread::sleep(LAST_WORDS);
    }
    process::abort();
}

/// The runtime that runs engine, watches and status page: it hangs when none of its threads comes to a task.
pub(crate) fn runtime() -> WatchedPart {
    let (heartbeat, part) = Heartbeat::new("the runtime of the control plane");
    tokio::spawn(async move {
        loop {
            heartbeat.beat();
            tokio::time::sleep(BEAT).await;
        }
    });
    part.of_threads(CONTROL_THREADS)
}

/// Spawns a part that is a task.
pub(crate) fn spawn<T: Send + 'static>(
    name: &'static str,
    parts: &mut Vec<WatchedPart>,
    task: impl Future<Output = T> + Send + 'static,
) -> tokio::task::JoinHandle<T> {
    let (heartbeat, part) = Heartbeat::new(name);
    parts.push(part);
    tokio::spawn(heartbeat.watch(task))
}

/// Spawns the engine, whose turns beat: one poll may have many.
pub(crate) fn spawn_engine(
    parts: &mut Vec<WatchedPart>,
    engine: seaway_engine::Engine,
    stopped: tokio::sync::watch::Receiver<bool>,
) -> tokio::task::JoinHandle<seaway_plan::World> {
    let (heartbeat, part) = Heartbeat::new("the engine");
    parts.push(part);
    parts.extend(engine.parts());
    let engine = engine.beating(heartbeat.pulse());
    tokio::spawn(heartbeat.watch(engine.run(stopped)))
}

#[cfg(test)]
mod tests;
