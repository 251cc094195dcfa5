//! Connections to a member that are stuck: their streams go on as long as they may, and no other request goes by them.

use std::{
    cell::RefCell,
    collections::VecDeque,
    rc::{Rc, Weak},
};

use super::{super::h2_connection::H2Connection, handle::H2Handle};

/// The oldest first. Connections that take no more requests for other reasons do not count: their streams may last for
/// hours, and none of them is cut.
#[derive(Default)]
pub(super) struct StalledConnections(RefCell<VecDeque<Weak<H2Connection>>>);

impl StalledConnections {
    pub(super) fn add(&self, connections: &[H2Handle]) {
        self.0.borrow_mut().extend(connections.iter().map(|h2| Rc::downgrade(h2)));
    }

    /// Leaves so many. Those that have been stuck for longest are cut, with all streams on them; one that gets on again
    /// is cut only if all do.
    pub(super) fn cut_oldest(&self, left: usize, now: u64) {
        let mut all = self.0.borrow_mut();
        all.retain(|h2| h2.strong_count() > 0);
        let mut cut = Vec::new();
        while all.len() > left {
            let is_stuck = |h2: &Weak<H2Connection>| h2.upgrade().is_some_and(|it| it.is_stuck(now));
            let oldest = all.iter().position(is_stuck).unwrap_or(0);
            cut.extend(all.remove(oldest).and_then(|h2| h2.upgrade()));
        }
        drop(all);
        cut.into_iter().for_each(|h2| h2.cut());
    }
}
