//! What the drivers of this process do, for metrics.

use seaway_admin::view::DriverView;
use seaway_engine::{Counts, DriverCounts};

pub(super) fn views(counts: &Counts) -> Vec<DriverView> {
    counts.drivers().into_iter().map(view).collect()
}

fn view(counts: DriverCounts) -> DriverView {
    let DriverCounts { driver, waiting, oldest, working, failures, times } = counts;
    let oldest_seconds = oldest.unwrap_or_default().as_secs();
    DriverView { driver, waiting: waiting as u64, oldest_seconds, working: working as u64, failures, times }
}
