//! How far pending load balancers are: one list for all of them, whoever asks. One that is slow keeps who asked for it
//! waiting, and nobody else for long.

use std::{
    collections::HashMap,
    time::{Duration, Instant},
};

use seaway_openstack::{
    Cloud, Error,
    octavia::{BalancerStatus, LoadBalancer},
    resource::{Id, Query},
};
use tokio::{
    sync::{Mutex, watch},
    time::timeout,
};

/// A list takes a fraction of this. Who waits for one of another's for longer does something else first.
const PATIENCE: Duration = Duration::from_secs(1);
/// No list is asked for sooner after another.
pub(super) const APART: Duration = Duration::from_secs(2);

pub(super) struct Poll {
    cloud: Cloud,
    tag: String,
    last: Mutex<Option<List>>,
    /// When the next list may be asked for, once there was one.
    next: watch::Sender<Option<Instant>>,
}

struct List {
    /// When it was asked for: it knows nothing of what came later.
    at: Instant,
    all: HashMap<Id<LoadBalancer>, BalancerStatus>,
}

pub(super) enum Found {
    There(BalancerStatus),
    Gone,
    /// There is no list yet that is young enough.
    Unknown,
}

impl Poll {
    pub(super) fn new(cloud: Cloud, tag: String) -> Poll {
        Poll { cloud, tag, last: Mutex::default(), next: watch::Sender::default() }
    }

    /// When to look again: all look at the same list, and none of them at one that is old by then.
    pub(super) fn after(&self) -> Duration {
        let now = self.cloud.clock().now();
        let next = self.next.borrow().map(|it| it.saturating_duration_since(now));
        next.filter(|it| !it.is_zero()).unwrap_or(APART)
    }

    /// Of a load balancer that was changed at `since`.
    pub(super) async fn of(&self, it: &LoadBalancer, since: Instant) -> Result<Found, Error> {
        if !it.tags.contains(&self.tag) {
            // Another made it, and it is not in our list yet.
            let found = self.cloud.all::<LoadBalancer>().find::<BalancerStatus>(&it.id).await?;
            return Ok(found.map_or(Found::Gone, Found::There));
        }
        let Ok(mut last) = timeout(PATIENCE, self.last.lock()).await else { return Ok(Found::Unknown) };
        let now = self.cloud.clock().now();
        if last.as_ref().is_none_or(|it| now.saturating_duration_since(it.at) >= APART) {
            let query = Query::all().tagged([self.tag.as_str()]);
            let list = self.cloud.all::<LoadBalancer>().list::<BalancerStatus>(query).await?;
            let all = list.into_iter().map(|it| (it.id.clone(), it)).collect();
            *last = Some(List { at: now, all });
            self.next.send_replace(Some(now + APART));
        }
        let list = last.as_ref().expect("there is one by now");
        Ok(match list.all.get(&it.id) {
            _ if list.at <= since => Found::Unknown,
            Some(status) => Found::There(status.clone()),
            None => Found::Gone,
        })
    }
}
