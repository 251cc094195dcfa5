//! Listeners that lead to each other in a ring, beside one that leads to a real member.

use std::{net::SocketAddr, sync::Arc};

use seaway_model::{L4, LbKey, Listener, Pool, name::Owner};
use seaway_proxy::{ListenerStatistics, Proxy, RefusalReason};

use crate::stage::*;

/// What the issue allows for a loop of one, two or three Services.
pub(crate) const MOST_DESCRIPTORS: u64 = 64;

pub(crate) struct Ring {
    pub(crate) stage: Stage,
    pub(crate) keys: Vec<LbKey>,
    pub(crate) at: Vec<SocketAddr>,
}

/// Of a load balancer with that name.
pub(crate) fn key(name: &str) -> LbKey {
    LbKey::Of(Owner::Config(name.into()))
}

pub(crate) fn open(proxy: &Proxy, key: &LbKey, tune: impl Fn(&mut Listener)) -> SocketAddr {
    let stage = Stage { proxy: proxy.clone(), key: key.clone() };
    let (at, _) = stage.open(HERE, |listener| {
        // Where nothing else ends a loop, this keeps the test itself from taking everything.
        listener.limits.connections = Some(100);
        tune(listener);
    });
    at
}

impl Ring {
    /// Each leads to the next, the last to the first.
    pub(crate) fn new(length: usize, listener: impl Fn(&mut Listener), pool: impl Fn(&mut Pool)) -> Ring {
        let stage = Stage::new();
        let keys: Vec<LbKey> = (0..length).map(|it| key(&format!("ring-{it}"))).collect();
        let at: Vec<SocketAddr> = keys.iter().map(|key| open(&stage.proxy, key, &listener)).collect();
        for (index, key) in keys.iter().enumerate() {
            let mut next = seaway_testkit::balancing::pool(&[at[(index + 1) % length]]);
            pool(&mut next);
            stage.proxy.put_pool(key, Arc::new(next));
        }
        Ring { stage, keys, at }
    }

    pub(crate) fn listeners(&self) -> Vec<ListenerStatistics> {
        let mut all = self.stage.proxy.statistics().listeners;
        all.retain(|it| self.keys.contains(&it.key));
        all
    }

    /// Refused since they came round in a loop.
    pub(crate) fn refused(&self) -> u64 {
        self.listeners().iter().map(|it| it.refused(RefusalReason::Loop)).sum()
    }

    /// The most that could have been taken at once: two of each connection, one of each flow.
    pub(crate) fn most_descriptors(&self) -> u64 {
        let of =
            |it: &ListenerStatistics| u64::from(it.traffic.most) * if it.id.l4 == L4::Udp { 1 } else { 2 };
        self.listeners().iter().map(of).sum()
    }

    pub(crate) fn open_now(&self) -> u64 {
        self.listeners().iter().map(|it| u64::from(it.traffic.current)).sum()
    }
}
