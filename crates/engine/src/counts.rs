//! What is counted of the loop for metrics: by driver, never by Unit.

use std::{
    collections::VecDeque,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

use seaway_model::latency::Histogram;
use tokio::time::Instant;

use crate::{
    driver::Failure,
    execute::{DynDriver, Worked},
};

/// Of one driver, since the start or now.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct DriverCounts {
    /// `native`, `octavia`, `status`
    pub driver: String,
    /// Units that are dirty, and wait until the driver has room.
    pub waiting: usize,
    /// For how long the first of them has been waiting.
    pub oldest: Option<Duration>,
    /// Units that it works on.
    pub working: usize,
    /// Attempts that failed.
    pub failures: u64,
    /// How long attempts took.
    pub times: Histogram,
}

/// Written by the engine's task, read by whoever asks for metrics.
#[derive(Default)]
pub struct Counts {
    marked: AtomicU64,
    lanes: Vec<Mutex<QueueCounts>>,
}

#[derive(Default)]
struct QueueCounts {
    /// Without what is measured when it is asked for.
    sums: DriverCounts,
    /// When each that waits began to: in the order of its queue.
    since: VecDeque<Instant>,
}

impl Counts {
    pub(crate) fn of(drivers: &[Arc<dyn DynDriver>]) -> Arc<Counts> {
        let lane = |it: &Arc<dyn DynDriver>| {
            let sums = DriverCounts { driver: label(it.name()), ..DriverCounts::default() };
            Mutex::new(QueueCounts { sums, ..QueueCounts::default() })
        };
        Arc::new(Counts { marked: AtomicU64::new(0), lanes: drivers.iter().map(lane).collect() })
    }

    /// How many Units changes have marked since the start. What changes nothing marks none.
    pub fn marked(&self) -> u64 {
        self.marked.load(Relaxed)
    }

    /// What each driver has to do, and did.
    pub fn drivers(&self) -> Vec<DriverCounts> {
        (0..self.lanes.len()).filter_map(|at| self.lane(at)).map(|it| it.counts()).collect()
    }

    pub(crate) fn mark(&self, count: usize) {
        self.marked.fetch_add(count as u64, Relaxed);
    }

    /// Nothing, of Units that no driver serves.
    fn lane(&self, at: usize) -> Option<MutexGuard<'_, QueueCounts>> {
        Some(self.lanes.get(at)?.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// One more is at the end of that queue.
    pub(crate) fn waits(&self, at: usize) {
        self.lane(at).into_iter().for_each(|mut it| it.since.push_back(Instant::now()));
    }

    /// The first of that queue is being worked on.
    pub(crate) fn begins(&self, at: usize) {
        let Some(mut lane) = self.lane(at) else { return };
        lane.since.pop_front();
        lane.sums.working += 1;
    }

    /// An attempt ended, after that time; or its driver panicked.
    pub(crate) fn ended(&self, at: usize, worked: Option<&Worked>, took: Option<Duration>) {
        let Some(mut lane) = self.lane(at) else { return };
        let sums = &mut lane.sums;
        sums.working = sums.working.saturating_sub(1);
        sums.failures += match worked {
            None => 1,
            Some(Worked::Failed(Failure::Wait { .. })) => 0,
            Some(Worked::Failed(_)) => 1,
            Some(_) => 0,
        };
        if let Some(took) = took {
            sums.times.note(took.as_micros() as u64);
        }
    }
}

impl QueueCounts {
    fn counts(&self) -> DriverCounts {
        DriverCounts {
            waiting: self.since.len(),
            oldest: self.since.front().map(Instant::elapsed),
            ..self.sums.clone()
        }
    }
}

/// `dns-names` of `DnsNames`, `status` of `StatusDriver`.
fn label(name: &str) -> String {
    let mut label = String::new();
    for c in name.strip_suffix("Driver").unwrap_or(name).chars() {
        if c.is_uppercase() && !label.is_empty() {
            label.push('-');
        }
        label.extend(c.to_lowercase());
    }
    label
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_label_has_words_in_small_letters() {
        assert_eq!(["Native", "StatusDriver", "DnsNames"].map(label), ["native", "status", "dns-names"]);
    }
}
