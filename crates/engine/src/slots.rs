//! How much each driver may do at once, and who looks whether that goes on: each place is a part for the watchdog. A poll that
//! does not come back, in a driver that blocks its thread, is found as a part that hangs.

use std::{
    future::{Future, poll_fn},
    pin::Pin,
    sync::Arc,
};

use seaway_watchdog::{Heartbeat, WatchedPart};

use crate::execute::DynDriver;

/// Those that are free, for each driver.
pub(crate) struct Slots {
    free: Vec<Vec<Arc<Heartbeat>>>,
    parts: Vec<WatchedPart>,
}

/// One that is in use.
pub(crate) struct Slot {
    driver: usize,
    heartbeat: Arc<Heartbeat>,
}

/// Beats whenever what is done there is polled.
pub(crate) struct Beats(Arc<Heartbeat>);

impl Slots {
    pub(crate) fn new(drivers: &[Arc<dyn DynDriver>]) -> Slots {
        let mut parts = Vec::new();
        let mut of = |driver: &Arc<dyn DynDriver>| -> Vec<Arc<Heartbeat>> {
            let slots = (0..driver.width()).map(|_| {
                let (heartbeat, part) = Heartbeat::new(format!("the driver {}", driver.name()));
                parts.push(part.allowed_to_end());
                Arc::new(heartbeat)
            });
            slots.collect()
        };
        let free = drivers.iter().map(&mut of).collect();
        Slots { free, parts }
    }

    pub(crate) fn parts(&self) -> Vec<WatchedPart> {
        self.parts.clone()
    }

    pub(crate) fn has_one(&self, driver: usize) -> bool {
        self.free.get(driver).is_some_and(|it| !it.is_empty())
    }

    pub(crate) fn take(&mut self, driver: usize) -> Option<Slot> {
        let heartbeat = self.free.get_mut(driver)?.pop()?;
        Some(Slot { driver, heartbeat })
    }

    /// Whose it was.
    pub(crate) fn give_back(&mut self, slot: Slot) -> usize {
        // A poll that panicked did not leave.
        slot.heartbeat.leave_thread();
        if let Some(free) = self.free.get_mut(slot.driver) {
            free.push(slot.heartbeat);
        }
        slot.driver
    }
}

impl Slot {
    pub(crate) fn beats(&self) -> Beats {
        Beats(self.heartbeat.clone())
    }
}

impl Beats {
    pub(crate) async fn during<T>(self, mut work: Pin<Box<dyn Future<Output = T> + Send + '_>>) -> T {
        poll_fn(|context| {
            self.0.enter_thread();
            let polled = work.as_mut().poll(context);
            self.0.leave_thread();
            polled
        })
        .await
    }
}
