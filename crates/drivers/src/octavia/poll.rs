//! How far pending load balancers are: one list for all of them, whoever asks.

use std::{
    collections::HashMap,
    time::{Duration, Instant},
};

use seaway_openstack::{
    Cloud, Error,
    octavia::{BalancerStatus, LoadBalancer},
    resource::{Id, Query},
};
use tokio::sync::Mutex;

/// No list is asked for sooner after another.
const APART: Duration = Duration::from_secs(2);

pub(super) struct Poll {
    cloud: Cloud,
    tag: String,
    last: Mutex<Option<List>>,
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
        Poll { cloud, tag, last: Mutex::default() }
    }

    /// Of a load balancer that was changed at `since`.
    pub(super) async fn of(&self, id: &Id<LoadBalancer>, since: Instant) -> Result<Found, Error> {
        let mut last = self.last.lock().await;
        let now = self.cloud.clock().now();
        if last.as_ref().is_none_or(|it| now.saturating_duration_since(it.at) >= APART) {
            let query = Query::all().tagged([self.tag.as_str()]);
            let list = self.cloud.all::<LoadBalancer>().list::<BalancerStatus>(query).await?;
            let all = list.into_iter().map(|it| (it.id.clone(), it)).collect();
            *last = Some(List { at: now, all });
        }
        let list = last.as_ref().expect("there is one by now");
        Ok(match list.all.get(id) {
            _ if list.at < since => Found::Unknown,
            Some(status) => Found::There(status.clone()),
            None => Found::Gone,
        })
    }
}
