//! What the process holds for its clients beyond the kernel's buffers, and how much that may be.
//!
//! ```text
//!   one exchange, one inbox ─► Reservation ─► ConnectionMemory ─► WorkerMemory ─► MemoryBudget
//!                                             one client           one thread      the process
//! ```
//!
//! A worker counts exactly and by itself; it tells the process only every [`BATCH`], so that requests share nothing.
//!
//! What the kernel holds for clients is not counted so. Where a control group has a limit, what the group holds is looked
//! at every [`LOOK_EVERY`], and newcomers are refused before the kernel ends the process.

#![cfg_attr(not(test), warn(clippy::indexing_slicing, clippy::arithmetic_side_effects, clippy::expect_used))]

mod available;
mod cgroups;
mod connection;

use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU8, AtomicU64, Ordering::Relaxed};

use cgroups::{Cgroups, MemoryPressure};
pub(crate) use connection::{ConnectionMemory, Reservation, WorkerMemory};

/// How much clients may make this process hold.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MemoryLimits {
    /// Bytes for all clients together. `None`: half of what the machine or the control group has.
    pub total: Option<u64>,
    /// Bytes for one client connection with all its streams. `None`: [`MemoryLimits::PER_CONNECTION`].
    pub per_connection: Option<u64>,
}

impl MemoryLimits {
    pub const PER_CONNECTION: u64 = 1 << 20;
    /// Less would not hold one large head.
    pub const LEAST_PER_CONNECTION: u64 = 256 << 10;
    pub const LEAST_TOTAL: u64 = 16 << 20;
}

pub(crate) struct MemoryBudget {
    held: AtomicI64,
    /// The most since memory was last given back to the kernel.
    peak: AtomicI64,
    limit: AtomicI64,
    per_connection: AtomicU64,
    pub(crate) refused: AtomicU64,
    pub(crate) evicted: AtomicU64,
    /// Since when much is free without a break, in milliseconds; 0: it is not.
    free_since: AtomicU64,
    /// A thread gives memory back.
    is_trimming: AtomicBool,
    groups: Cgroups,
    /// A [`MemoryPressure`], as of the last look at the groups.
    shortage: AtomicU8,
    /// Before that nobody looks at them again, in milliseconds.
    looks_at: AtomicU64,
    /// When the log last said that they are short; 0: never.
    short_at: AtomicU64,
}

/// A look at the control groups is two or three small files.
const LOOK_EVERY: u64 = 100;
/// Milliseconds without a shortage of the groups after which the next one is news.
const EPISODE: u64 = 60_000;
/// A worker tells the process of a change when it is as large as this.
const BATCH: i64 = 64 << 10;
/// Free memory that is worth asking the allocator to give back.
const WORTH_TRIMMING: i64 = 8 << 20;
/// For how long it has to be free, in milliseconds: the allocator is locked for a millisecond for each 10 MiB that it gives
/// back, so that is not done while clients take and leave memory.
const FREE_FOR: u64 = 5_000;

impl MemoryBudget {
    pub(crate) fn new(limits: MemoryLimits) -> MemoryBudget {
        let budget = MemoryBudget {
            held: AtomicI64::new(0),
            peak: AtomicI64::new(0),
            limit: AtomicI64::new(i64::MAX),
            per_connection: AtomicU64::new(MemoryLimits::PER_CONNECTION),
            refused: AtomicU64::new(0),
            evicted: AtomicU64::new(0),
            free_since: AtomicU64::new(0),
            is_trimming: AtomicBool::new(false),
            groups: Cgroups::of_this_process(),
            shortage: AtomicU8::new(MemoryPressure::None as u8),
            looks_at: AtomicU64::new(0),
            short_at: AtomicU64::new(0),
        };
        budget.set(limits);
        budget
    }

    /// Connections that are open keep what they were allowed.
    pub(crate) fn set(&self, limits: MemoryLimits) {
        let total = limits.total.unwrap_or_else(|| available::bytes().map_or(u64::MAX, |it| it / 2));
        self.limit.store(i64::try_from(total).unwrap_or(i64::MAX), Relaxed);
        self.per_connection.store(limits.per_connection.unwrap_or(MemoryLimits::PER_CONNECTION), Relaxed);
    }

    pub(crate) fn used(&self) -> u64 {
        self.held.load(Relaxed).max(0) as u64
    }

    pub(crate) fn limit(&self) -> u64 {
        self.limit.load(Relaxed) as u64
    }

    pub(crate) fn per_connection(&self) -> u64 {
        self.per_connection.load(Relaxed)
    }

    fn add(&self, bytes: i64) {
        let held = self.held.fetch_add(bytes, Relaxed).saturating_add(bytes);
        if held > self.peak.load(Relaxed) {
            self.peak.fetch_max(held, Relaxed);
        }
    }

    /// By how much more is held than may be.
    pub(crate) fn excess(&self) -> u64 {
        self.held.load(Relaxed).saturating_sub(self.limit.load(Relaxed)).max(0) as u64
    }

    /// New requests of new clients are refused.
    pub(crate) fn is_used_up(&self) -> bool {
        self.held.load(Relaxed) >= self.limit.load(Relaxed) || self.is_group_nearly_full()
    }

    /// The kernel holds too much, for whomever: what takes buffers of sockets alone is refused, too.
    pub(crate) fn is_group_nearly_full(&self) -> bool {
        self.shortage.load(Relaxed) >= MemoryPressure::Near as u8
    }

    /// New connections are refused, too: those that are answered with a refusal cost something themselves.
    pub(crate) fn is_far_beyond(&self) -> bool {
        let limit = self.limit.load(Relaxed);
        self.held.load(Relaxed) >= limit.saturating_add(limit / 8)
            || self.shortage.load(Relaxed) >= MemoryPressure::AtHand as u8
    }

    /// Before newcomers are let in: how near the control groups are to their limits, if the last look was long ago.
    pub(crate) fn look_at_groups(&self, now: u64) {
        let at = self.looks_at.load(Relaxed);
        let next = now.saturating_add(LOOK_EVERY);
        // One worker looks for all.
        if now < at || self.looks_at.compare_exchange(at, next, Relaxed, Relaxed).is_err() {
            return;
        }
        let shortage = self.groups.shortage();
        self.shortage.store(shortage as u8, Relaxed);
        if shortage == MemoryPressure::None {
            return;
        }
        let before = self.short_at.swap(now.max(1), Relaxed);
        if before == 0 || now.saturating_sub(before) > EPISODE {
            tracing::error!(
                held = self.used(),
                "the memory of the control group (cgroup) is nearly at its limit: new clients are refused until \
                 usage falls; raise the memory limit of the control group, or run less in it",
            );
        }
    }

    /// When free memory is to be given back to the kernel.
    pub(crate) fn trims_at(&self, now: u64) -> Option<u64> {
        let (held, peak) = (self.held.load(Relaxed), self.peak.load(Relaxed));
        let is_worth_it = peak.saturating_sub(held) >= WORTH_TRIMMING && held < peak / 2;
        if !is_worth_it {
            self.free_since.store(0, Relaxed);
            return None;
        }
        let since = match self.free_since.compare_exchange(0, now.max(1), Relaxed, Relaxed) {
            Ok(_) => now,
            Err(since) => since,
        };
        Some(since.saturating_add(FREE_FOR))
    }

    /// Gives free memory back to the kernel where much was held. A thread of its own does that: the allocator looks at
    /// all that is free, which can take longer than a worker may.
    pub(crate) fn trim(self: &std::sync::Arc<Self>, now: u64) {
        if self.trims_at(now).is_none_or(|at| at > now) || self.is_trimming.swap(true, Relaxed) {
            return;
        }
        self.free_since.store(0, Relaxed);
        self.peak.store(self.held.load(Relaxed), Relaxed);
        let budget = self.clone();
        let trims = std::thread::Builder::new().name("trim".into()).spawn(move || {
            crate::sys::give_memory_back();
            budget.is_trimming.store(false, Relaxed);
        });
        if trims.is_err() {
            self.is_trimming.store(false, Relaxed);
        }
    }
}

#[cfg(test)]
impl MemoryBudget {
    /// Of a process in a group whose files are in that folder.
    pub(crate) fn of_group(folder: &std::path::Path) -> MemoryBudget {
        let groups = Cgroups::of("0::/\n", folder);
        MemoryBudget { groups, ..MemoryBudget::new(MemoryLimits::default()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_group_that_is_nearly_full_is_as_a_budget_that_is_used_up() {
        let folder = tempfile::tempdir().expect("a folder");
        let write = |name: &str, text: &str| std::fs::write(folder.path().join(name), text).expect("a file");
        write("memory.max", "1000");
        write("memory.stat", "inactive_file 0\nactive_file 0\n");
        write("memory.current", "100");
        let budget = MemoryBudget::of_group(folder.path());
        for (now, usage, expected) in [
            (1_000, "100", (false, false)),
            (1_100, "920", (true, false)),
            (1_199, "970", (true, false)),
            (1_200, "970", (true, true)),
            (1_300, "920", (true, false)),
            (1_400, "100", (false, false)),
        ] {
            write("memory.current", usage);
            budget.look_at_groups(now);
            assert_eq!((budget.is_used_up(), budget.is_far_beyond()), expected, "{now}: {usage}");
            assert_eq!(budget.excess(), 0, "nobody is ended for it");
        }
    }

    #[test]
    fn memory_is_given_back_once_it_has_been_free_for_a_while() {
        let budget = MemoryBudget::new(MemoryLimits::default());
        budget.add(50 << 20);
        assert_eq!(budget.trims_at(1_000), None, "it is held");
        budget.add(-(20 << 20));
        assert_eq!(budget.trims_at(2_000), None, "more than half of it is held");
        budget.add(-(20 << 20));
        assert_eq!(budget.trims_at(3_000), Some(8_000));
        assert_eq!(budget.trims_at(4_000), Some(8_000), "it is free since then");
        budget.add(20 << 20);
        assert_eq!(budget.trims_at(5_000), None, "it is taken again");
        budget.add(-(20 << 20));
        assert_eq!(budget.trims_at(6_000), Some(11_000), "and that counts from the beginning");
        budget.add(-(10 << 20));
        assert_eq!(budget.trims_at(u64::MAX), Some(11_000));
    }
}
