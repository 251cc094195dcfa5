//! What has happened, as plain data for pages and metrics.

#![cfg_attr(not(test), warn(clippy::indexing_slicing, clippy::arithmetic_side_effects, clippy::expect_used))]

use std::{
    net::{IpAddr, SocketAddr},
    sync::{Arc, atomic::Ordering::Relaxed},
};

use seaway_model::{
    LbKey, Listener, ListenerId, Pool, PoolId, latency::Latencies, load_balancer::MemberState,
};
use seaway_snapshot::MemberAvailability;

use crate::{
    proxy_state::ProxyState,
    running::{Health, HealthHistory, RefusalReason, RunningListener, RunningMember, RunningPool},
    sys,
};

#[derive(Clone, Debug, Default)]
pub struct Statistics {
    /// Open TCP connections of the process.
    pub connections: u64,
    /// How often the process ran out of descriptors.
    pub exhausted: u64,
    pub memory: MemoryStatistics,
    pub listeners: Vec<ListenerStatistics>,
    pub pools: Vec<PoolStatistics>,
}

/// What is held for clients beyond the kernel's buffers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MemoryStatistics {
    /// Bytes now. Each worker may hold 64 KiB more or less than it has told.
    pub held: u64,
    pub limit: u64,
    /// Requests and connections that were refused because the limit was reached.
    pub refused: u64,
    /// Connections that were ended because they held most for longest.
    pub evicted: u64,
    /// UDP flows that were ended for others, for want of descriptors.
    pub flows_evicted: u64,
}

impl MemoryStatistics {
    pub(crate) fn of(shared: &ProxyState) -> MemoryStatistics {
        MemoryStatistics {
            held: shared.memory.used(),
            limit: shared.memory.limit(),
            refused: shared.memory.refused.load(Relaxed),
            evicted: shared.memory.evicted.load(Relaxed),
            flows_evicted: shared.flows_evicted.load(Relaxed),
        }
    }
}

#[derive(Clone, Debug)]
pub struct ListenerStatistics {
    pub key: LbKey,
    pub ip: IpAddr,
    pub id: ListenerId,
    pub listener: Arc<Listener>,
    /// It accepts no more; what it had goes on.
    pub closed: bool,
    pub traffic: Traffic,
    pub connect_errors: u64,
    pub retries: u64,
    /// Of HTTP.
    pub requests: u64,
    /// Of HTTP, by hundreds of their status.
    pub answers: [u64; 6],
    refused: [u64; RefusalReason::ALL.len()],
}

/// Connections, or flows of UDP. Bytes in are those from clients; they may lag by a second.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Traffic {
    pub current: u32,
    pub most: u32,
    pub total: u64,
    pub bytes_in: u64,
    pub bytes_out: u64,
}

#[derive(Clone, Debug)]
pub struct PoolStatistics {
    pub key: LbKey,
    pub id: PoolId,
    pub pool: Arc<Pool>,
    /// Its checks rest until it is used.
    pub rests: bool,
    /// Clients in the queue for a member that has room.
    pub waiting: usize,
    /// Clients that were turned away because no member was usable, or none could be reached.
    pub no_member: u64,
    /// `None`: nothing was measured yet.
    pub latency: Option<Box<Latencies>>,
    pub members: Vec<MemberStatistics>,
}

#[derive(Clone, Debug)]
pub struct MemberStatistics {
    pub at: SocketAddr,
    /// `None` for one that was removed and has connections yet.
    pub state: Option<MemberState>,
    pub weight: u32,
    pub health: Health,
    pub standing: MemberAvailability,
    /// Percent of its weight, while it warms up.
    pub warmth: u32,
    pub traffic: Traffic,
    pub connect_errors: u64,
    pub check_failures: u64,
    pub retries: u64,
    pub resets: u64,
    /// Of HTTP: requests that it did not answer in time.
    pub timeouts: u64,
    /// How often was measured how long it takes, and microseconds in all: until it answered, or took a TCP connection.
    pub measured: u64,
    pub took: u64,
    /// Of HTTP, by hundreds of their status.
    pub answers: [u64; 6],
    pub health_history: HealthHistory,
}

impl ListenerStatistics {
    /// Of one that has counted nothing yet.
    pub fn new(key: LbKey, ip: IpAddr, listener: Arc<Listener>) -> ListenerStatistics {
        ListenerStatistics {
            key,
            ip,
            id: listener.id(),
            listener,
            closed: false,
            traffic: Traffic::default(),
            connect_errors: 0,
            retries: 0,
            requests: 0,
            answers: [0; 6],
            refused: [0; RefusalReason::ALL.len()],
        }
    }

    /// So many were refused for that.
    #[must_use]
    pub fn with_refused(mut self, why: RefusalReason, count: u64) -> ListenerStatistics {
        self.refused.get_mut(why as usize).into_iter().for_each(|it| *it = count);
        self
    }

    pub fn refused(&self, why: RefusalReason) -> u64 {
        self.refused.get(why as usize).copied().unwrap_or_default()
    }

    pub fn refusals(&self) -> u64 {
        self.refused.iter().sum()
    }
}

impl Statistics {
    pub(crate) fn of(shared: &ProxyState) -> Statistics {
        let now = sys::millis();
        let mut registry = shared.registry.lock();
        let mut statistics = Statistics {
            connections: shared.connections() as u64,
            exhausted: shared.exhausted.load(Relaxed),
            memory: MemoryStatistics::of(shared),
            ..Statistics::default()
        };
        for state in registry.values_mut() {
            state.forget_finished();
            let listeners = state.listeners.values().chain(&state.closed);
            statistics.listeners.extend(listeners.map(|listener| of_listener(listener)));
            statistics.pools.extend(state.pools.values().filter_map(|pool| of_pool(pool, now)));
        }
        registry.retain(|_, state| !state.is_empty());
        statistics
    }
}

fn of_listener(listener: &RunningListener) -> ListenerStatistics {
    ListenerStatistics {
        key: listener.key.clone(),
        ip: listener.at.ip(),
        id: listener.id,
        listener: listener.config().listener.clone(),
        closed: listener.closed_at().is_some(),
        traffic: Traffic {
            current: listener.active(),
            most: listener.most.load(Relaxed),
            total: listener.total.load(Relaxed),
            bytes_in: listener.bytes_in.load(Relaxed),
            bytes_out: listener.bytes_out.load(Relaxed),
        },
        connect_errors: listener.connect_errors.load(Relaxed),
        retries: listener.retries.load(Relaxed),
        requests: listener.requests.load(Relaxed),
        answers: listener.answers.counts(),
        refused: RefusalReason::ALL.map(|why| listener.refused(why)),
    }
}

fn of_pool(running: &RunningPool, now: u64) -> Option<PoolStatistics> {
    let live = running.live();
    let pool = live.compiled.pool();
    let leaving = running.leaving();
    if !live.present && leaving.is_empty() {
        return None;
    }
    let listed = live.members.iter().zip(live.compiled.members());
    let listed = listed.map(|(member, told)| (member, Some(told.state), told.weight));
    let members = listed.chain(leaving.iter().map(|member| (member, None, 0)));
    let members =
        members.map(|(member, state, weight)| of_member(member, state, weight, pool, now)).collect();
    Some(PoolStatistics {
        key: running.key.clone(),
        id: running.id.clone(),
        pool: pool.clone(),
        rests: running.are_checks_suspended(),
        waiting: running.waiting(),
        no_member: running.no_member.load(Relaxed),
        latency: running.latencies.histograms().map(Box::new),
        members,
    })
}

fn of_member(
    member: &RunningMember,
    state: Option<MemberState>,
    weight: u32,
    pool: &Pool,
    now: u64,
) -> MemberStatistics {
    MemberStatistics {
        at: member.at,
        state,
        weight,
        health: member.health(),
        standing: member.standing(now),
        warmth: member.warmth(pool.slow_start, now),
        traffic: Traffic {
            current: member.active(),
            most: member.most.load(Relaxed),
            total: member.total.load(Relaxed),
            bytes_in: member.bytes_in.load(Relaxed),
            bytes_out: member.bytes_out.load(Relaxed),
        },
        connect_errors: member.connect_errors.load(Relaxed),
        check_failures: member.check_failures.load(Relaxed),
        retries: member.retries.load(Relaxed),
        resets: member.resets.load(Relaxed),
        timeouts: member.timeouts.load(Relaxed),
        measured: member.measured.load(Relaxed),
        took: member.took.load(Relaxed),
        answers: member.answers.counts(),
        health_history: member.health_history(),
    }
}
