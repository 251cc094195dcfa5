//! Counts HTTP responses by the class of their status (1xx to 5xx).

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

#[derive(Default)]
pub(crate) struct StatusClassCounters([AtomicU64; 6]);

impl StatusClassCounters {
    /// 1 is 1xx; what is no status counts nowhere.
    pub(crate) fn count(&self, status: u16) {
        if let Some(count) = self.0.get(usize::from(status / 100)) {
            count.fetch_add(1, Relaxed);
        }
    }

    pub(crate) fn counts(&self) -> [u64; 6] {
        std::array::from_fn(|hundred| self.0.get(hundred).map_or(0, |it| it.load(Relaxed)))
    }
}
