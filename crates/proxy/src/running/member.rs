//! One member of one pool as long as it, or a connection to it, lives. A swap of the pool keeps it.

use std::{
    net::SocketAddr,
    sync::{
        Arc, Mutex, OnceLock, PoisonError, Weak,
        atomic::{AtomicU8, AtomicU32, AtomicU64, Ordering::Relaxed, Ordering::SeqCst},
    },
    time::{Duration, SystemTime},
};

use seaway_model::load_balancer::{MemberLimit, PassiveHealthCheck};
use seaway_snapshot::MemberAvailability;

use super::StatusClassCounters;
use crate::{
    own_sockets::{OwnSockets, RegisteredMember},
    sys::KernelAddress,
};

/// All counters are relaxed: they are read by people and by least-connections, to whom a moment's lag is the same.
pub(crate) struct RunningMember {
    pub(crate) at: SocketAddr,
    pub(crate) address: KernelAddress,
    active: AtomicU32,
    pub(crate) most: AtomicU32,
    pub(crate) total: AtomicU64,
    /// From clients to the member, and back.
    pub(crate) bytes_in: AtomicU64,
    pub(crate) bytes_out: AtomicU64,
    pub(crate) connect_errors: AtomicU64,
    /// Connections that went to another member because this one did not take them.
    pub(crate) retries: AtomicU64,
    /// Resets of the member in the middle of a connection.
    pub(crate) resets: AtomicU64,
    /// Requests that it did not answer in time (HTTP).
    pub(crate) timeouts: AtomicU64,
    /// How often was measured how long it takes, and microseconds in all.
    pub(crate) measured: AtomicU64,
    pub(crate) took: AtomicU64,
    /// Checks that it did not pass.
    pub(crate) check_failures: AtomicU64,
    pub(crate) answers: StatusClassCounters,
    health: AtomicU8,
    failures: AtomicU32,
    /// Answers in a row that said it was at fault.
    errors: AtomicU32,
    ejections: AtomicU32,
    ejected_until: AtomicU64,
    warm_since: AtomicU64,
    draining_since: AtomicU64,
    /// Since it was first connected to.
    target: OnceLock<RegisteredMember>,
    /// Is told that the member has room again, once the pool has a limit.
    capacity_watcher: OnceLock<Weak<dyn CapacityWatcher>>,
    /// Touched by the prober and by pages, never by a worker.
    health_history: Mutex<HealthHistory>,
}

/// Its clients wait for members that have room.
pub(super) trait CapacityWatcher: Send + Sync {
    /// A member may have room.
    fn capacity_freed(&self);
}

/// How it fared: for people.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HealthHistory {
    /// When it was last found to be usable, or no longer to be.
    pub changed: Option<SystemTime>,
    /// Why it was not usable when it last was not.
    pub reason: Box<str>,
    pub times_down: u32,
}

/// What checks say.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Health {
    /// Nobody has asked: serves.
    Unknown,
    Up,
    Down,
}

impl RunningMember {
    pub(crate) fn new(at: SocketAddr) -> RunningMember {
        RunningMember {
            at,
            address: at.into(),
            active: AtomicU32::new(0),
            most: AtomicU32::new(0),
            total: AtomicU64::new(0),
            bytes_in: AtomicU64::new(0),
            bytes_out: AtomicU64::new(0),
            connect_errors: AtomicU64::new(0),
            retries: AtomicU64::new(0),
            resets: AtomicU64::new(0),
            timeouts: AtomicU64::new(0),
            measured: AtomicU64::new(0),
            took: AtomicU64::new(0),
            check_failures: AtomicU64::new(0),
            answers: StatusClassCounters::default(),
            health: AtomicU8::new(0),
            failures: AtomicU32::new(0),
            errors: AtomicU32::new(0),
            ejections: AtomicU32::new(0),
            ejected_until: AtomicU64::new(0),
            warm_since: AtomicU64::new(0),
            draining_since: AtomicU64::new(0),
            target: OnceLock::new(),
            capacity_watcher: OnceLock::new(),
            health_history: Mutex::default(),
        }
    }

    /// We connect to it: what comes to such an address may be from ourselves.
    pub(crate) fn is_target(&self, sockets: &Arc<OwnSockets>) {
        self.target.get_or_init(|| sockets.target(self.at));
    }

    pub(crate) fn remember(&self, standing: MemberAvailability, reason: &str) {
        let mut health_history = self.health_history.lock().unwrap_or_else(PoisonError::into_inner);
        health_history.changed = Some(SystemTime::now());
        if standing != MemberAvailability::Usable {
            health_history.reason = reason.into();
            health_history.times_down = health_history.times_down.saturating_add(1);
        }
    }

    pub(crate) fn health_history(&self) -> HealthHistory {
        self.health_history.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// A connection (or a UDP flow) to this member begins; it ends with [`RunningMember::end_connection`].
    pub(crate) fn begin_connection(&self) {
        let active = self.active.fetch_add(1, Relaxed).saturating_add(1);
        if active > self.most.load(Relaxed) {
            self.most.fetch_max(active, Relaxed);
        }
        self.total.fetch_add(1, Relaxed);
    }

    /// The same, unless it has as many as it may have; `None`: any number.
    pub(crate) fn try_begin_connection(&self, limit: Option<MemberLimit>) -> bool {
        let Some(limit) = limit else {
            self.begin_connection();
            return true;
        };
        let more = |active: u32| (active < limit.connections).then(|| active.saturating_add(1));
        let Ok(before) = self.active.fetch_update(SeqCst, SeqCst, more) else { return false };
        self.most.fetch_max(before.saturating_add(1), Relaxed);
        self.total.fetch_add(1, Relaxed);
        true
    }

    /// So many microseconds until it answered; of TCP, until it took a connection.
    pub(crate) fn took(&self, micros: u64) {
        self.measured.fetch_add(1, Relaxed);
        self.took.fetch_add(micros, Relaxed);
    }

    pub(crate) fn end_connection(&self) {
        self.active.fetch_sub(1, Relaxed);
        if let Some(watcher) = self.capacity_watcher.get().and_then(Weak::upgrade) {
            watcher.capacity_freed();
        }
    }

    /// Tells `watcher` whenever a connection of the member ends.
    pub(super) fn watch_capacity<T: CapacityWatcher + 'static>(&self, watcher: &Weak<T>) {
        self.capacity_watcher.get_or_init(|| watcher.clone());
    }

    pub(crate) fn active(&self) -> u32 {
        self.active.load(Relaxed)
    }

    pub(crate) fn health(&self) -> Health {
        match self.health.load(Relaxed) {
            0 => Health::Unknown,
            1 => Health::Up,
            _ => Health::Down,
        }
    }

    pub(super) fn set_health(&self, health: Health, now: u64) {
        let was = self.health();
        self.health.store(health as u8, Relaxed);
        if was == Health::Down && health == Health::Up {
            // Checks know better than what traffic showed before.
            self.ejected_until.store(0, Relaxed);
            self.ejections.store(0, Relaxed);
            self.failures.store(0, Relaxed);
            self.errors.store(0, Relaxed);
            self.warm_since.store(now, Relaxed);
        }
    }

    pub(crate) fn standing(&self, now: u64) -> MemberAvailability {
        if self.health() == Health::Down {
            MemberAvailability::Failed
        } else if self.ejected_until.load(Relaxed) > now {
            MemberAvailability::Ejected
        } else {
            MemberAvailability::Usable
        }
    }

    /// Percent of its weight that it gets, given the pool's slow start.
    pub(crate) fn warmth(&self, slow_start: Option<Duration>, now: u64) -> u32 {
        let Some(whole) = slow_start.map(|time| time.as_millis() as u64).filter(|time| *time > 0) else {
            return 100;
        };
        match self.warm_since.load(Relaxed) {
            0 => 100,
            since => {
                let percent = now.saturating_sub(since).saturating_mul(100).checked_div(whole);
                percent.unwrap_or(100).clamp(1, 100) as u32
            }
        }
    }

    pub(super) fn warm_up(&self, now: u64) {
        self.warm_since.store(now, Relaxed);
    }

    /// It did not take a connection, or reset one. `true`: so often in a row that it is to be ejected.
    pub(super) fn failed(&self, passive: PassiveHealthCheck) -> bool {
        self.failures.fetch_add(1, Relaxed).saturating_add(1) >= u32::from(passive.failures.max(1))
    }

    /// It answered that it is at fault; the same.
    pub(super) fn erred(&self, passive: PassiveHealthCheck) -> bool {
        let Some(most) = passive.errors else { return false };
        self.errors.fetch_add(1, Relaxed).saturating_add(1) >= u32::from(most.max(1))
    }

    /// Tells until when.
    pub(super) fn eject(&self, passive: PassiveHealthCheck, now: u64) -> u64 {
        self.failures.store(0, Relaxed);
        self.errors.store(0, Relaxed);
        let times = self.ejections.fetch_add(1, Relaxed).saturating_add(1).min(10);
        let out = (passive.eject.as_millis() as u64).saturating_mul(times.into());
        let until = now.saturating_add(out);
        self.ejected_until.store(until, Relaxed);
        self.warm_since.store(until, Relaxed);
        until
    }

    /// It answered somebody, and well.
    pub(crate) fn served(&self) {
        // Mostly nothing has to be written, so the line stays shared between processors.
        for count in [&self.failures, &self.errors, &self.ejections] {
            if count.load(Relaxed) != 0 {
                count.store(0, Relaxed);
            }
        }
    }

    /// When it was removed from its pool, or began to drain.
    pub(crate) fn draining_since(&self) -> Option<u64> {
        Some(self.draining_since.load(Relaxed)).filter(|since| *since != 0)
    }

    pub(super) fn start_draining(&self, now: u64) -> bool {
        self.draining_since.compare_exchange(0, now, Relaxed, Relaxed).is_ok()
    }

    pub(super) fn stop_draining(&self) {
        self.draining_since.store(0, Relaxed);
    }
}
