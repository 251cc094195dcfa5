//! Where the other threads leave what they want of the prober.
//!
//! What waits is kept once for each pool and each member: asked for again, it is the same request, or the newer one in its place.

use std::{
    collections::HashMap,
    io,
    net::SocketAddr,
    sync::{Arc, Mutex, PoisonError, atomic::AtomicBool},
};

use seaway_model::{LbKey, PoolId};

use super::changes::HealthChange;
use crate::{running::RunningPool, sys::Waker};

pub(crate) struct RequestQueue {
    pub(super) bell: Waker,
    requests: Mutex<PendingRequests>,
    /// What was logged and no test has looked at.
    #[cfg(test)]
    pub(super) logged: Mutex<Vec<HealthChange>>,
    /// Nobody wants the prober any more.
    pub(super) over: AtomicBool,
}

pub(super) enum ProberRequest {
    Watch(Arc<RunningPool>),
    /// The checks of this pool have rested long enough.
    Wanted(LbKey, PoolId),
    Ejected {
        key: LbKey,
        pool: PoolId,
        member: SocketAddr,
        until: u64,
        reason: String,
    },
    Stop,
    /// Has the prober fail as a test wants it.
    #[cfg(test)]
    Do(Box<dyn FnOnce() + Send>),
}

#[derive(Default)]
struct PendingRequests {
    requests: Vec<ProberRequest>,
    places: HashMap<RequestKey, usize>,
}

/// What a request is about.
#[derive(PartialEq, Eq, Hash)]
enum RequestKey {
    /// The place of a pool that the request keeps alive.
    Pool(usize),
    Rest(LbKey, PoolId),
    Member(LbKey, PoolId, SocketAddr),
}

impl ProberRequest {
    fn about(&self) -> Option<RequestKey> {
        match self {
            ProberRequest::Watch(pool) => Some(RequestKey::Pool(Arc::as_ptr(pool).addr())),
            ProberRequest::Wanted(key, pool) => Some(RequestKey::Rest(key.clone(), pool.clone())),
            ProberRequest::Ejected { key, pool, member, .. } => {
                Some(RequestKey::Member(key.clone(), pool.clone(), *member))
            }
            ProberRequest::Stop => None,
            #[cfg(test)]
            ProberRequest::Do(_) => None,
        }
    }
}

impl PendingRequests {
    fn add(&mut self, request: ProberRequest) {
        let place = self.requests.len();
        let before = match request.about() {
            Some(about) => *self.places.entry(about).or_insert(place),
            None => place,
        };
        match self.requests.get_mut(before) {
            Some(before) => *before = request,
            None => self.requests.push(request),
        }
    }
}

impl RequestQueue {
    pub(super) fn new() -> io::Result<RequestQueue> {
        Ok(RequestQueue {
            bell: Waker::new()?,
            requests: Mutex::default(),
            #[cfg(test)]
            logged: Mutex::default(),
            over: AtomicBool::new(false),
        })
    }

    /// The data path has ejected a member; it is let back at `until`.
    pub(crate) fn ejected(&self, pool: &RunningPool, member: SocketAddr, until: u64, reason: String) {
        let (key, pool) = (pool.key.clone(), pool.id.clone());
        self.ask(ProberRequest::Ejected { key, pool, member, until, reason });
    }

    pub(crate) fn wanted(&self, pool: &RunningPool) {
        self.ask(ProberRequest::Wanted(pool.key.clone(), pool.id.clone()));
    }

    pub(super) fn ask(&self, request: ProberRequest) {
        let mut waiting = self.requests.lock().unwrap_or_else(PoisonError::into_inner);
        let is_first = waiting.requests.is_empty();
        waiting.add(request);
        if is_first {
            self.bell.wake();
        }
    }

    pub(super) fn take(&self) -> Vec<ProberRequest> {
        self.bell.clear();
        std::mem::take(&mut *self.requests.lock().unwrap_or_else(PoisonError::into_inner)).requests
    }

    pub(super) fn publish(&self, changes: Vec<HealthChange>) {
        for change in changes {
            change.log();
            #[cfg(test)]
            self.logged.lock().unwrap_or_else(PoisonError::into_inner).push(change);
        }
    }
}

#[cfg(test)]
mod tests {
    use seaway_model::LbKey;
    use seaway_testkit::balancing;

    use super::*;

    #[test]
    fn what_a_prober_that_hangs_is_asked_again_and_again_waits_once_and_the_latest_counts() {
        let requests = RequestQueue::new().expect("a descriptor");
        let at = SocketAddr::from(([192, 0, 2, 1], 80));
        let other = SocketAddr::from(([192, 0, 2, 2], 80));
        let pools: Vec<_> = (0..2).map(|_| RunningPool::empty(LbKey::Whole, balancing::pool_id())).collect();
        for round in 0..10_000 {
            pools.iter().for_each(|pool| requests.ask(ProberRequest::Watch(pool.clone())));
            requests.wanted(&pools[0]);
            requests.ejected(&pools[0], at, round, round.to_string());
            requests.ejected(&pools[0], other, 7, String::new());
        }
        requests.ask(ProberRequest::Stop);
        let taken = requests.take();
        assert!(
            matches!(
                &taken[..],
                [
                    ProberRequest::Watch(_),
                    ProberRequest::Watch(_),
                    ProberRequest::Wanted(..),
                    ProberRequest::Ejected { until: 9_999, .. },
                    ProberRequest::Ejected { until: 7, .. },
                    ProberRequest::Stop
                ]
            ),
            "{}",
            taken.len()
        );
        assert!(requests.take().is_empty());
        requests.wanted(&pools[0]);
        assert_eq!(requests.take().len(), 1, "what was taken may be asked for again");
    }
}
