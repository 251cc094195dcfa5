//! A pool as it runs: its compiled form, swapped in whole, and members that outlive the swaps.

mod limited;

use std::{
    net::IpAddr,
    sync::{
        Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak,
        atomic::{AtomicU32, AtomicU64, Ordering::Relaxed},
    },
};

use arc_swap::{ArcSwap, Guard};
use seaway_model::{
    L4, LbKey, Pool, PoolId,
    load_balancer::{
        Affinity, BackendProtocol, Balance, Limits, MemberLimit, MemberState, PassiveHealthCheck,
        PoolHttpOptions,
    },
    name::Owner,
};
use seaway_snapshot::{CompiledPool, Cursor, MemberAvailability, MemberCookie, MemberStatusSource};

pub(crate) use self::limited::{MemberSelection, QueuedClient};
use super::{
    Health, RefusalReason, RunningMember,
    affinity::AffinityTable,
    last_use::LastUse,
    limits::PoolLoad,
    queue::{ClientQueue, SelectionRequest},
};
use crate::{
    health::RequestQueue,
    latency::{Latencies, LatencyKind, Stopwatch, WorkerNumber},
    tls::UpstreamTls,
};

pub(crate) struct RunningPool {
    me: Weak<RunningPool>,
    pub(crate) key: LbKey,
    pub(crate) id: PoolId,
    live: ArcSwap<PoolGeneration>,
    /// Removed members with connections that go on.
    leaving: Mutex<Vec<Arc<RunningMember>>>,
    /// Until then somebody is, or may be, ejected or warming up.
    uneven_until: AtomicU64,
    last_use: LastUse,
    affinity: OnceLock<AffinityTable>,
    queue: ClientQueue,
    pub(super) load: PoolLoad,
    /// Where ejections are told, and that checks are wanted.
    requests: OnceLock<Arc<RequestQueue>>,
    /// Clients that were turned away because no member is usable, or none could be reached.
    pub(crate) no_member: AtomicU64,
    pub(crate) latencies: Latencies,
}

/// One generation of a pool. `members[i]` belongs to `compiled.members()[i]`.
pub(crate) struct PoolGeneration {
    pub(crate) compiled: CompiledPool,
    pub(crate) members: Box<[Arc<RunningMember>]>,
    /// `false`: nobody has put this pool, or it was removed.
    pub(crate) present: bool,
    /// How TLS is spoken with members, where it is.
    pub(crate) upstream_tls: Option<Arc<UpstreamTls>>,
    /// How many of the members are down by their checks.
    down: AtomicU32,
}

impl RunningPool {
    pub(crate) fn empty(key: LbKey, id: PoolId) -> Arc<RunningPool> {
        let live = PoolGeneration::new(nobody(&id), Box::default(), false);
        Arc::new_cyclic(|me| RunningPool {
            me: me.clone(),
            key,
            id,
            live: ArcSwap::from_pointee(live),
            leaving: Mutex::default(),
            uneven_until: AtomicU64::new(0),
            last_use: LastUse::never(),
            affinity: OnceLock::new(),
            queue: ClientQueue::default(),
            load: PoolLoad::default(),
            requests: OnceLock::new(),
            no_member: AtomicU64::new(0),
            latencies: Latencies::default(),
        })
    }

    pub(crate) fn live(&self) -> Guard<Arc<PoolGeneration>> {
        self.live.load()
    }

    pub(crate) fn leaving(&self) -> MutexGuard<'_, Vec<Arc<RunningMember>>> {
        // The list is whole after every operation on it.
        self.leaving.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Swaps the pool (`None`: removes it). Tells whether a member began to leave.
    pub(crate) fn put(&self, pool: Option<Arc<Pool>>, now: u64) -> bool {
        // Its lock also keeps changes of health and swaps apart, so that `down` is never counted on an old generation.
        let mut leaving = self.leaving();
        let before = self.live.load_full();
        let present = pool.is_some();
        let pool = pool.unwrap_or_else(|| nobody(&self.id));
        let grows = before.members.iter().any(|member| member.draining_since().is_none());

        let compiled = CompiledPool::compile(pool.clone());
        if before.compiled.table_is_built() && compiled.hashes_clients() {
            // Who hashes goes on hashing: the table is built here and not by a worker amid its traffic.
            compiled.table();
        }
        let mut someone_left = false;
        let same_tls = before.compiled.pool().tls == pool.tls;
        let members = compiled.members().iter().map(|member| {
            let known = before
                .compiled
                .position(member.at)
                .and_then(|index| before.members.get(index).cloned())
                // What was agreed on with one that is spoken to otherwise now is not used again.
                .filter(|_| same_tls)
                .or_else(|| leaving.iter().find(|gone| gone.at == member.at && same_tls).cloned());
            let running = known.unwrap_or_else(|| {
                let new = RunningMember::new(member.at);
                if let Some(time) = pool.slow_start.filter(|_| grows) {
                    new.warm_up(now);
                    self.uneven_until.fetch_max(now.saturating_add(time.as_millis() as u64), Relaxed);
                }
                Arc::new(new)
            });
            if pool.member_limit.is_some() {
                running.watch_capacity(&self.me);
            }
            match member.state {
                MemberState::Ready => running.stop_draining(),
                MemberState::Draining => someone_left |= running.start_draining(now),
            }
            running
        });
        let members: Box<[_]> = members.collect();
        leaving.retain(|gone| gone.active() > 0 && compiled.position(gone.at).is_none());
        for member in &before.members {
            if compiled.position(member.at).is_none() || !same_tls {
                member.start_draining(now);
                someone_left = true;
                if member.active() > 0 {
                    leaving.push(member.clone());
                }
            }
        }
        self.live.store(Arc::new(PoolGeneration::new_compiled(compiled, members, present)));
        drop(leaving);
        self.serve_waiting(now);
        someone_left
    }

    pub(crate) fn forget_finished(&self) {
        self.leaving().retain(|gone| gone.active() > 0);
    }

    /// What a check found out. `true` if that is news.
    pub(crate) fn set_health(&self, member: &RunningMember, health: Health, now: u64) -> bool {
        let swaps_wait = self.leaving();
        if member.health() == health {
            return false;
        }
        let live = self.live.load();
        if health == Health::Up {
            let warming = live.compiled.pool().slow_start.unwrap_or_default();
            self.uneven_until.fetch_max(now.saturating_add(warming.as_millis() as u64), Relaxed);
        }
        member.set_health(health, now);
        live.count_down();
        drop(swaps_wait);
        self.serve_waiting(now);
        true
    }

    /// The member did not take a connection, or reset one.
    pub(crate) fn failed(&self, member: &RunningMember, reason: &str, now: u64) {
        let live = self.live.load();
        let Some(passive) = live.compiled.pool().passive else { return };
        if member.failed(passive) {
            let reason = format!("{reason}, {} failures in a row", passive.failures);
            self.eject(&live, passive, member, &reason, now);
        }
    }

    /// What began then has come about now, by that member. Where nothing is measured, this does nothing.
    pub(crate) fn record_latency(
        &self,
        worker: WorkerNumber,
        member: Option<&RunningMember>,
        span: LatencyKind,
        started: Stopwatch,
    ) {
        let Some(micros) = started.took() else { return };
        self.latencies.add(worker, span, micros);
        member.into_iter().for_each(|it| it.took(micros));
    }

    pub(crate) fn count_no_member(&self) {
        self.no_member.fetch_add(1, Relaxed);
    }

    /// A client of it was turned away.
    pub(crate) fn refused(&self, why: RefusalReason) {
        if why == RefusalReason::NoMember {
            self.count_no_member();
        }
    }

    /// The member answered (HTTP): with a 5xx that tells of itself, or well.
    pub(crate) fn answered(&self, member: &RunningMember, status: u16, now: u64) {
        // What it never does, and versions that it does not speak, are the client's fault.
        if status < 500 || matches!(status, 501 | 505) {
            return member.served();
        }
        self.erred(member, now, || format!("answered {status}"));
    }

    /// The member did not answer in time (HTTP): that counts as a 504.
    pub(crate) fn note_response_timeout(&self, member: &RunningMember, now: u64) {
        member.timeouts.fetch_add(1, Relaxed);
        self.erred(member, now, || "gave no answer in time".to_owned());
    }

    fn erred(&self, member: &RunningMember, now: u64, what: impl Fn() -> String) {
        let live = self.live.load();
        let Some(passive) = live.compiled.pool().passive else { return };
        if member.erred(passive) {
            let times = passive.errors.unwrap_or_default();
            self.eject(&live, passive, member, &format!("{}, {times} times in a row", what()), now);
        }
    }

    /// Suspicion leaves enough of the pool to serve: what fails everywhere is not the members' fault.
    fn eject(
        &self,
        live: &PoolGeneration,
        passive: PassiveHealthCheck,
        member: &RunningMember,
        reason: &str,
        now: u64,
    ) {
        // One at a time, or two workers would each eject the last but one.
        let _one_at_a_time = self.leaving();
        if member.standing(now) == MemberAvailability::Ejected {
            return;
        }
        let standings = live.members.iter().map(|it| it.standing(now));
        let (mut out, mut usable) = (0_usize, 0_usize);
        standings.for_each(|it| match it {
            MemberAvailability::Usable => usable = usable.saturating_add(1),
            MemberAvailability::Ejected => out = out.saturating_add(1),
            MemberAvailability::Failed => {}
        });
        let may_be_out = (live.members.len().saturating_mul(passive.share.into()) / 100).max(1);
        let is_last = usable == 1 && member.standing(now) == MemberAvailability::Usable;
        if out >= may_be_out || is_last {
            return;
        }
        let until = member.eject(passive, now);
        let warming = live.compiled.pool().slow_start.unwrap_or_default();
        self.uneven_until.fetch_max(until.saturating_add(warming.as_millis() as u64), Relaxed);
        if let Some(requests) = self.requests.get() {
            let seconds = until.saturating_sub(now) as f64 / 1000.0;
            requests.ejected(self, member.at, until, format!("{reason}, gets no requests for {seconds} s"));
        }
    }

    /// Somebody wants a member of it, who may have to be asked again how it is.
    fn used(&self, now: u64) {
        if self.last_use.is_now(now)
            && let Some(requests) = self.requests.get()
        {
            requests.wanted(self);
        }
    }

    /// Whether its checks are to rest, and then do until it is used: they may, and nobody has used it for a while.
    pub(crate) fn suspend_if_idle(&self, now: u64) -> bool {
        let live = self.live.load();
        live.checks_while_used()
            && self.last_use.suspend_if_idle(now, || live.members.iter().any(|member| member.active() > 0))
    }

    /// Nobody uses it, and its members are not checked until somebody does.
    pub(crate) fn are_checks_suspended(&self) -> bool {
        self.live.load().checks_while_used() && self.last_use.are_checks_suspended()
    }

    /// Has ejections told to the prober, which logs and publishes them.
    pub(crate) fn report_to(&self, requests: impl FnOnce() -> Arc<RequestQueue>) {
        self.requests.get_or_init(requests);
    }

    /// The member that a cookie names, if it may serve: one without weight gets no new clients, and keeps those that it has.
    pub(crate) fn by_cookie(
        &self,
        cookie: MemberCookie,
        tried: &[Arc<RunningMember>],
        now: u64,
    ) -> Option<Arc<RunningMember>> {
        self.used(now);
        let live = self.live.load();
        let index = self.index_by_cookie(&self.scene(&live, tried, now), cookie)?;
        live.members.get(index).cloned()
    }

    fn index_by_cookie(&self, scene: &PickContext<'_>, cookie: MemberCookie) -> Option<usize> {
        let live = scene.live;
        let index = live.compiled.marked(cookie)?;
        let serves = live.compiled.members().get(index)?.state == MemberState::Ready
            && scene.standing(index) == MemberAvailability::Usable
            && !scene.tried(index)
            && live.compiled.may_keep(index, scene);
        serves.then_some(index)
    }

    /// The member for a new client.
    pub(crate) fn choose<'a>(
        &self,
        live: &'a PoolGeneration,
        client: IpAddr,
        cursor: &mut Cursor,
        tried: &[Arc<RunningMember>],
        now: u64,
    ) -> Option<&'a Arc<RunningMember>> {
        if live.compiled.pool().member_limit.is_some() {
            let request = SelectionRequest { client, cookie: None, tried: tried.to_vec() };
            return self.select_only(live, &request, cursor, now).and_then(|index| live.members.get(index));
        }
        self.used(now);
        let scene = self.scene(live, tried, now);
        if let Some(index) = self.kept_by_address(&scene, client) {
            self.keep_by_address(live, client, index, now);
            return live.members.get(index);
        }
        let index = live.compiled.pick(|| client, cursor, &scene)?;
        self.keep_by_address(live, client, index, now);
        live.members.get(index)
    }

    /// The member that this client keeps, where clients keep theirs by their address.
    fn kept_by_address(&self, scene: &PickContext<'_>, client: IpAddr) -> Option<usize> {
        let live = scene.live;
        let Some(Affinity::ClientIp(time)) = live.compiled.pool().affinity else { return None };
        let table = self.affinity.get_or_init(AffinityTable::default);
        let index = live.compiled.position(table.member_of(client, time, scene.now)?)?;
        let member = live.compiled.members().get(index)?;
        let serves = member.state == MemberState::Ready
            && member.weight > 0
            && !scene.tried(index)
            && scene.standing(index) == MemberAvailability::Usable
            && live.compiled.may_keep(index, scene);
        serves.then_some(index)
    }

    fn keep_by_address(&self, live: &PoolGeneration, client: IpAddr, index: usize, now: u64) {
        if let Some(Affinity::ClientIp(time)) = live.compiled.pool().affinity
            && let Some(member) = live.members.get(index)
        {
            self.affinity.get_or_init(AffinityTable::default).remember(client, member.at, time, now);
        }
    }

    fn scene<'a>(
        &self,
        live: &'a PoolGeneration,
        tried: &'a [Arc<RunningMember>],
        now: u64,
    ) -> PickContext<'a> {
        PickContext { live, tried, now, uneven: self.uneven_until.load(Relaxed) > now, skips_full: false }
    }
}

impl PoolGeneration {
    fn new(pool: Arc<Pool>, members: Box<[Arc<RunningMember>]>, present: bool) -> PoolGeneration {
        PoolGeneration::new_compiled(CompiledPool::compile(pool), members, present)
    }

    fn new_compiled(
        compiled: CompiledPool,
        members: Box<[Arc<RunningMember>]>,
        present: bool,
    ) -> PoolGeneration {
        let pool = compiled.pool();
        let upstream_tls = pool.tls.as_ref().map(|tls| UpstreamTls::of(tls, pool.protocol));
        let live = PoolGeneration { compiled, members, present, upstream_tls, down: AtomicU32::new(0) };
        live.count_down();
        live
    }

    fn checks_while_used(&self) -> bool {
        self.compiled.pool().health.as_ref().is_some_and(|it| it.while_used)
    }

    fn count_down(&self) {
        let down = self.members.iter().filter(|member| member.health() == Health::Down).count();
        self.down.store(down as u32, Relaxed);
    }
}

fn nobody(id: &PoolId) -> Arc<Pool> {
    Arc::new(Pool {
        id: id.clone(),
        owner: Owner::Config("none".into()),
        l4: L4::Tcp,
        protocol: BackendProtocol::Opaque,
        tls: None,
        balance: Balance::RoundRobin,
        affinity: None,
        health: None,
        passive: None,
        slow_start: None,
        panic_threshold: 0,
        member_limit: None,
        limits: Limits::default(),
        proxy: None,
        transparent: false,
        http: PoolHttpOptions::default(),
        members: Vec::new(),
    })
}

/// What the picker asks, at one moment.
struct PickContext<'a> {
    live: &'a PoolGeneration,
    tried: &'a [Arc<RunningMember>],
    now: u64,
    uneven: bool,
    /// Those that have as many connections as they may have are none.
    skips_full: bool,
}

impl PickContext<'_> {
    /// How willingly a member is chosen, as `pick` goes; smaller is better.
    fn rank(&self, index: usize) -> (bool, u8, bool) {
        let standing = match self.standing(index) {
            MemberAvailability::Usable => 0,
            MemberAvailability::Ejected => 1,
            MemberAvailability::Failed => 2,
        };
        let planned = self.live.compiled.members().get(index);
        let is = |what: fn(&seaway_model::Member) -> bool| planned.is_some_and(what);
        (is(|it| it.state == MemberState::Draining), standing, is(|it| it.backup))
    }
}

fn is_full(member: &RunningMember, limit: Option<MemberLimit>) -> bool {
    limit.is_some_and(|limit| member.active() >= limit.connections)
}

impl MemberStatusSource for PickContext<'_> {
    fn standing(&self, member: usize) -> MemberAvailability {
        self.live.members.get(member).map_or(MemberAvailability::Failed, |it| it.standing(self.now))
    }

    fn load(&self, member: usize) -> u32 {
        self.live.members.get(member).map_or(u32::MAX, |it| it.active())
    }

    fn warmth(&self, member: usize) -> u32 {
        let slow_start = self.live.compiled.pool().slow_start;
        self.live.members.get(member).map_or(0, |it| it.warmth(slow_start, self.now))
    }

    fn tried(&self, member: usize) -> bool {
        let is_it = |it: &Arc<RunningMember>| self.tried.iter().any(|tried| Arc::ptr_eq(tried, it));
        let limit = self.live.compiled.pool().member_limit.filter(|_| self.skips_full);
        self.live.members.get(member).is_none_or(|it| is_it(it) || is_full(it, limit))
    }

    fn all_well(&self) -> bool {
        !self.uneven && self.live.down.load(Relaxed) == 0
    }
}

#[cfg(test)]
mod tests;
