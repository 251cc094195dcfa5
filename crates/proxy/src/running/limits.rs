//! Limits of what comes in a second, and at the same time, of all clients together.

use std::sync::{
    Arc,
    atomic::{AtomicU32, AtomicU64, Ordering::Relaxed},
};

use seaway_model::load_balancer::Limits;

use super::{RefusalReason, RunningPool};

/// What a pool is given at the front door: requests, and connections whose TLS is passed on.
#[derive(Default)]
pub(crate) struct PoolLoad {
    under_way: AtomicU32,
    /// When the next newcomer would be exactly on time at the permitted rate, in microseconds.
    rate_due: AtomicU64,
}

/// Counted as long as it lives.
pub(crate) struct InFlightGuard(Arc<RunningPool>);

impl Drop for InFlightGuard {
    fn drop(&mut self) {
        self.0.load.under_way.fetch_sub(1, Relaxed);
    }
}

impl RunningPool {
    /// One more, if its limits let it in. Without limits nothing is counted.
    pub(crate) fn admit(self: &Arc<Self>, now: u64) -> Result<Option<InFlightGuard>, RefusalReason> {
        let limits = self.live().compiled.pool().limits;
        self.admit_within(limits, now)
    }

    /// The same, of limits that are known already.
    pub(crate) fn admit_within(
        self: &Arc<Self>,
        limits: Limits,
        now: u64,
    ) -> Result<Option<InFlightGuard>, RefusalReason> {
        if let Some(rate) = limits.new_per_second
            && !in_time(&self.load.rate_due, rate, now)
        {
            return Err(RefusalReason::Rate);
        }
        let Some(most) = limits.connections else { return Ok(None) };
        let under_way = self.load.under_way.fetch_add(1, Relaxed);
        let counted = InFlightGuard(self.clone());
        if under_way >= most { Err(RefusalReason::Connections) } else { Ok(Some(counted)) }
    }
}

/// A token bucket of one second's worth, kept as the moment at which it would be full again.
pub(super) fn in_time(rate_due: &AtomicU64, per_second: u32, now: u64) -> bool {
    let Some(interval) = 1_000_000_u64.checked_div(per_second.into()) else { return false };
    let now = now.saturating_mul(1000);
    let result = rate_due.fetch_update(Relaxed, Relaxed, |due| {
        let due = due.max(now).saturating_add(interval);
        (due <= now.saturating_add(1_000_000)).then_some(due)
    });
    result.is_ok()
}
