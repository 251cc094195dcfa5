//! What happens to this host's addresses behind our back: told as a fact.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use seaway_announce::Watch;
use seaway_drivers::presence::{Presence, rest};
use seaway_model::fact::HostReport;
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
    thread: Option<JoinHandle<()>>,
}

impl AddressWatch {
    /// Calls `tell` with a new report after each change of an address or a link.
    pub fn start(
        presence: Arc<Presence>,
        tell: impl Fn(HostReport) + Send + 'static,
    ) -> std::io::Result<AddressWatch> {
        let ended = Arc::new(AtomicBool::new(false));
        let end = ended.clone();
        let watch = move || {
            while !end.load(Ordering::Relaxed) {
                if let Err(error) = follow(&presence, &tell, &end) {
                    warn!(%error, "changes of addresses cannot be watched; trying again");
                    thread::park_timeout(PAUSE);
                }
            }
        };
        let thread = thread::Builder::new().name("addresses".into()).spawn(watch)?;
        Ok(AddressWatch { ended, thread: Some(thread) })
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
    tell: &impl Fn(HostReport),
    ended: &AtomicBool,
) -> Result<(), seaway_announce::Error> {
    let mut watch = Watch::open()?;
    // Whatever happened while nobody watched.
    tell(presence.report()?);
    let mut pause = Duration::ZERO;
    while !ended.load(Ordering::Relaxed) {
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
