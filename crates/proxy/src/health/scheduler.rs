//! The prober's thread. It begins checks that are due, reads sockets that are ready, and ends checks that time out.

use std::{
    cmp::Reverse,
    collections::{BinaryHeap, HashMap},
    hash::{BuildHasher, Hasher, RandomState},
    io, mem,
    net::SocketAddr,
    rc::Rc,
    sync::Arc,
};

use seaway_model::{LbKey, Name, PoolId};
use seaway_watchdog::Heartbeat;

use super::{
    ProberRequest, RequestQueue,
    check::{Check, CheckResult},
    fair_queue::FairCheckQueue,
    probe::{Probe, ProbeStart},
    registry::CheckRegistry,
};
use crate::sys::{Epoll, Events, millis};

/// The wake-up's mark among the events of sockets.
const WOKEN: u64 = u64::MAX;

pub(super) struct CheckScheduler {
    requests: Arc<RequestQueue>,
    epoll: Epoll,
    check_registry: CheckRegistry,
    due: BinaryHeap<Reverse<(u64, Due)>>,
    /// Ejected by the data path, which lets them back by itself: only to be told then.
    out: BinaryHeap<Reverse<(u64, LbKey, PoolId, SocketAddr)>>,
    open: HashMap<u64, RunningProbe>,
    /// Due, and not begun yet.
    waiting: FairCheckQueue<TargetId>,
    /// Some of these may begin at once.
    has_more: bool,
    random: Jitter,
    lacking: bool,
    /// When so many are due, those that nobody wants any more are dropped.
    compact_at: usize,
}

const COMPACT_AT: usize = 4_096;
/// More are not begun before events are looked at again: an answer that has come is not to be taken for silence.
const BEGUN_IN_A_TURN: usize = 64;

struct RunningProbe {
    probe: Probe,
    namespace: Name,
    time_up: u64,
    check: Rc<Check>,
}

/// A target, as long as it is the same one.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct TargetId {
    slot: u32,
    generation: u32,
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Due {
    Check(TargetId),
    TimeUp(TargetId),
}

impl TargetId {
    fn mark(self) -> u64 {
        u64::from(self.slot) << 32 | u64::from(self.generation)
    }

    fn of(mark: u64) -> TargetId {
        TargetId { slot: (mark >> 32) as u32, generation: mark as u32 }
    }
}

impl CheckScheduler {
    pub(super) fn new(requests: Arc<RequestQueue>, most_open: usize) -> io::Result<CheckScheduler> {
        let epoll = Epoll::new()?;
        epoll.watch_readable(requests.bell.fd(), WOKEN)?;
        Ok(CheckScheduler {
            requests,
            epoll,
            check_registry: CheckRegistry::default(),
            due: BinaryHeap::new(),
            out: BinaryHeap::new(),
            open: HashMap::new(),
            waiting: FairCheckQueue::new(most_open),
            has_more: false,
            random: Jitter::new(),
            lacking: false,
            compact_at: COMPACT_AT,
        })
    }

    pub(super) fn run(mut self, heartbeat: &Heartbeat) {
        let mut events = Events::with_room_for(256);
        loop {
            match self.epoll.wait(&mut events, self.next_timeout()) {
                Ok(()) => {}
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => {
                    tracing::error!(%error, "health checks stopped: epoll_wait failed");
                    return;
                }
            }
            heartbeat.beat();
            for index in 0..events.len() {
                match events.at(index).token {
                    WOKEN => {
                        if !self.attend() {
                            return;
                        }
                    }
                    mark => self.proceed(TargetId::of(mark)),
                }
            }
            self.keep_time();
            self.publish();
        }
    }

    fn next_timeout(&self) -> Option<u64> {
        if self.has_more {
            return Some(0);
        }
        let due = self.due.peek().map(|Reverse((at, _))| *at);
        let out = self.out.peek().map(|Reverse((at, ..))| *at);
        due.into_iter().chain(out).min().map(|at| at.saturating_sub(millis()))
    }

    /// Does what was asked for meanwhile; false when it is time to go home.
    fn attend(&mut self) -> bool {
        let requests = self.requests.take();
        let now = millis();
        for request in requests {
            match request {
                ProberRequest::Watch(pool) => {
                    let awake = self.check_registry.admit(&pool, now);
                    self.take_up(awake, now);
                }
                ProberRequest::Wanted(key, pool) => {
                    let awake = self.check_registry.wake(&(key, pool));
                    self.take_up(awake, now);
                }
                ProberRequest::Ejected { key, pool, member, until, reason } => {
                    self.check_registry.ejected(key.clone(), pool.clone(), member, reason);
                    self.out.push(Reverse((until, key, pool, member)));
                }
                ProberRequest::Stop => return false,
                #[cfg(test)]
                ProberRequest::Do(it) => it(),
            }
        }
        true
    }

    fn take_up(&mut self, targets: Vec<usize>, now: u64) {
        for slot in targets {
            let Some(visit) = self.visit(slot) else { continue };
            let Some(target) = self.check_registry.target(slot, visit.generation) else { continue };
            // Spread from the start, or all members of a big pool would be checked in one burst for ever.
            let interval = target.check.interval.as_millis() as u64;
            let first = now.saturating_add(self.random.below(interval.max(1)));
            self.due.push(Reverse((first, Due::Check(visit))));
        }
        self.compact();
    }

    /// A pool that changes all the time leaves a check behind with each change, for as long as its interval.
    fn compact(&mut self) {
        if self.due.len() < self.compact_at {
            return;
        }
        let check_registry = &self.check_registry;
        self.due.retain(|Reverse((_, due))| {
            let (Due::Check(visit) | Due::TimeUp(visit)) = due;
            check_registry.target(visit.slot as usize, visit.generation).is_some()
        });
        self.compact_at = COMPACT_AT.max(self.due.len().saturating_mul(2));
    }

    fn visit(&self, slot: usize) -> Option<TargetId> {
        let generation = self.check_registry.generation_of(slot)?;
        Some(TargetId { slot: u32::try_from(slot).ok()?, generation })
    }

    fn keep_time(&mut self) {
        let now = millis();
        while let Some(Reverse((at, due))) = self.due.peek().copied() {
            if at > now {
                break;
            }
            self.due.pop();
            match due {
                Due::Check(visit) => {
                    if let Some(target) = self.check_registry.target(visit.slot as usize, visit.generation) {
                        self.waiting.push(&target.namespace, visit);
                    }
                }
                Due::TimeUp(visit) => {
                    // An entry of an earlier check of the same target may still be on the heap.
                    if let Some(open) = self.open.get(&visit.mark()).filter(|open| open.time_up <= now) {
                        let check_result = open.probe.on_silence(&open.check);
                        self.finish(visit, &check_result);
                    }
                }
            }
        }
        while self.out.peek().is_some_and(|Reverse((until, ..))| *until <= now) {
            let Some(Reverse((_, key, pool, member))) = self.out.pop() else { break };
            self.check_registry.released(key, pool, member, now);
        }
        let several = self.check_registry.has_several_namespaces();
        self.has_more = false;
        for begun in 0..=BEGUN_IN_A_TURN {
            if begun == BEGUN_IN_A_TURN {
                self.has_more = true;
                break;
            }
            let Some((namespace, visit)) = self.waiting.next(several) else { break };
            self.begin(namespace, visit);
        }
    }

    fn begin(&mut self, namespace: Name, visit: TargetId) {
        if let Some(open) = self.opened(namespace.clone(), visit) {
            if let Some(before) = self.open.insert(visit.mark(), open) {
                self.waiting.ended(&before.namespace);
            }
        } else {
            self.waiting.ended(&namespace);
        }
    }

    fn opened(&mut self, namespace: Name, visit: TargetId) -> Option<RunningProbe> {
        if self.check_registry.suspend_if_idle(visit.slot as usize, visit.generation, millis()) {
            return None;
        }
        let check = self.check_registry.target(visit.slot as usize, visit.generation)?.check.clone();
        let probe = match Probe::begin(&check) {
            ProbeStart::Waiting(probe) => probe,
            ProbeStart::Found(check_result) => {
                self.conclude(visit, &check, &check_result);
                return None;
            }
        };
        // Edges: told once of the connection and once of the answer, never to be changed in between.
        if let Err(error) = self.epoll.watch_edges(probe.socket(), visit.mark()) {
            self.conclude(visit, &check, &CheckResult::NotRun(error.to_string()));
            return None;
        }
        let time_up = millis().saturating_add(check.timeout.as_millis() as u64);
        self.due.push(Reverse((time_up, Due::TimeUp(visit))));
        Some(RunningProbe { probe, namespace, time_up, check })
    }

    fn proceed(&mut self, visit: TargetId) {
        let Some(open) = self.open.get_mut(&visit.mark()) else { return };
        if let Some(check_result) = open.probe.proceed(&open.check) {
            self.finish(visit, &check_result);
        }
    }

    fn finish(&mut self, visit: TargetId, check_result: &CheckResult) {
        // Closing the socket takes it out of epoll.
        if let Some(open) = self.open.remove(&visit.mark()) {
            self.waiting.ended(&open.namespace);
            self.conclude(visit, &open.check, check_result);
        }
    }

    fn conclude(&mut self, visit: TargetId, check: &Check, check_result: &CheckResult) {
        match check_result {
            CheckResult::NotRun(lack) if !self.lacking => {
                self.lacking = true;
                tracing::warn!(%lack, member = %check.at, "a health check cannot be made; members keep their state");
            }
            CheckResult::NotRun(_) => {}
            CheckResult::Passed | CheckResult::Failed(_) => self.lacking = false,
        }
        if self.check_registry.target(visit.slot as usize, visit.generation).is_none() {
            return;
        }
        let now = millis();
        self.check_registry.note(visit.slot as usize, check_result, now);
        let interval = check.interval.as_millis() as u64;
        let spread = self.random.below((interval / 10).max(1));
        let next = now.saturating_add(interval).saturating_sub(interval / 20).saturating_add(spread);
        self.due.push(Reverse((next, Due::Check(visit))));
    }

    fn publish(&mut self) {
        if !self.check_registry.changes.is_empty() {
            self.requests.publish(mem::take(&mut self.check_registry.changes));
        }
    }
}

/// Enough randomness to spread checks over time.
struct Jitter(u64);

impl Jitter {
    fn new() -> Jitter {
        Jitter(RandomState::new().build_hasher().finish() | 1)
    }

    fn below(&mut self, limit: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0.checked_rem(limit).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use seaway_model::load_balancer::{CheckKind, HealthCheck};
    use seaway_testkit::balancing;

    use super::*;
    use crate::running::RunningPool;

    #[test]
    fn a_pool_that_changes_all_the_time_leaves_a_bounded_number_of_checks_behind() {
        let requests = Arc::new(RequestQueue::new().unwrap());
        let mut rounds = CheckScheduler::new(requests, 1).unwrap();
        let running = RunningPool::empty(LbKey::Whole, balancing::pool_id());
        for port in 1..20_000 {
            let mut pool = balancing::pool(&[([127, 0, 0, 1], port).into()]);
            pool.health = Some(HealthCheck {
                kind: CheckKind::Tcp,
                port: None,
                interval: Duration::from_secs(86_400),
                timeout: Duration::from_secs(1),
                rise: 1,
                fall: 1,
                while_used: false,
            });
            running.put(Some(Arc::new(pool)), u64::from(port));
            let awake = rounds.check_registry.admit(&running, u64::from(port));
            assert_eq!(awake.len(), 1);
            rounds.take_up(awake, u64::from(port));
            assert!(rounds.due.len() <= COMPACT_AT);
        }
    }
}
