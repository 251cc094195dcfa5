//! What happens to this host's addresses behind our back: told as a fact.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use seaway_announce::LinkWatch;
use seaway_drivers::presence::{Presence, rest};
use seaway_model::fact::HostReport;
use seaway_watchdog::{Heartbeat, WatchedPart};
use tracing::warn;

/// How soon the thread notices that it should end.
const PATIENCE: Duration = Duration::from_millis(500);
/// What happens within so long is told as one.
const TOGETHER: Duration = Duration::from_millis(50);
/// A watch that broke is opened again, but not in a spin.
const PAUSE: Duration = Duration::from_secs(1);

/// Watches until it is dropped.
pub struct AddressWatch {
    ended: Arc<AtomicBool>,
    part: WatchedPart,
    thread: Option<JoinHandle<()>>,
}

impl AddressWatch {
    /// Calls `tell` with a new report after each change of an address or a link.
    pub fn start(
        presence: Arc<Presence>,
        mut tell: impl FnMut(HostReport) + Send + 'static,
    ) -> std::io::Result<AddressWatch> {
        let ended = Arc::new(AtomicBool::new(false));
        let end = ended.clone();
        let (heartbeat, part) = Heartbeat::new("the watch of this host's addresses");
        let watch = move || {
            heartbeat.enter_thread();
            while !end.load(Ordering::Relaxed) {
                if let Err(error) = follow(&presence, &mut tell, &end, &heartbeat) {
                    warn!(%error, "changes of this machine's addresses cannot be watched; retrying");
                    thread::park_timeout(PAUSE);
                    heartbeat.beat();
                }
            }
        };
        let thread = thread::Builder::new().name("addresses".into()).spawn(watch)?;
        Ok(AddressWatch { ended, part, thread: Some(thread) })
    }

    /// For the watchdog.
    pub fn part(&self) -> WatchedPart {
        self.part.clone()
    }
}

impl Drop for AddressWatch {
    fn drop(&mut self) {
        self.ended.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            thread.thread().unpark();
            // It ends within its patience; a panic of it was told already.
            let _ = thread.join();
        }
    }
}

fn follow(
    presence: &Presence,
    tell: &mut impl FnMut(HostReport),
    ended: &AtomicBool,
    heartbeat: &Heartbeat,
) -> Result<(), seaway_announce::Error> {
    let mut watch = LinkWatch::open()?;
    // Whoever takes it may be slow.
    let mut tell = |report| heartbeat.while_waiting(|| tell(report));
    // Whatever happened while nobody watched.
    tell(presence.report()?);
    let mut pause = Duration::ZERO;
    while !ended.load(Ordering::Relaxed) {
        heartbeat.beat();
        if !watch.wait(PATIENCE)?.is_empty() {
            // Thousands may come and go at once: they are not all looked at after each.
            thread::park_timeout(TOGETHER.max(pause));
            watch.events()?;
            let begin = Instant::now();
            tell(presence.report()?);
            pause = rest(begin.elapsed());
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;

    use seaway_watchdog::{PartFailure, Watchdog, WatchdogTimings};

    use super::*;

    #[test]
    fn a_watch_of_addresses_that_dies_is_found() {
        let presence = Arc::new(Presence::new("a".into(), Vec::new(), []));
        let watch = AddressWatch::start(presence, |_| panic!("a test has this watch die")).expect("a thread");
        let (tell, told) = channel();
        let pace = WatchdogTimings { look: Duration::from_millis(20), ..WatchdogTimings::default() };
        let watchdog = Watchdog::start(pace, move |fault| drop(tell.send(fault.clone()))).expect("a thread");
        let _watching = watchdog.watch([watch.part()]);
        let found = PartFailure { part: "the watch of this host's addresses".into(), hangs: false };
        assert_eq!(told.recv_timeout(Duration::from_secs(120)), Ok(found));
    }
}
