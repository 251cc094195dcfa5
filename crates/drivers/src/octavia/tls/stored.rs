//! What Barbican has, listed once for all who look at the same time. A list that is slow delays who asked for it, and nobody else
//! for long.

use std::{
    collections::BTreeSet,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use seaway_openstack::{
    Class, Cloud, Error,
    barbican::{Container, Secret},
    resource::Query,
};

use super::StoredCertificates;
use crate::octavia::list_request_lock::{ListRequestLock, ListRequestTimeout};

/// What Barbican has, listed once for all who look at the same time: a project may have thousands of secrets.
#[derive(Default)]
pub(in crate::octavia) struct Stored {
    reading: ListRequestLock,
    last: Mutex<Last>,
    /// What there may be for those that go.
    seen: Mutex<StoredListCache>,
}

#[derive(Default)]
struct Last {
    /// Counts writes, each of which makes what was asked for before it worthless.
    age: u64,
    lists: Option<(Instant, Arc<Lists>)>,
}

#[derive(Default)]
struct StoredListCache {
    /// Listed last, however old, and whatever was written since.
    listed: Option<(Instant, Arc<Lists>)>,
    /// Names under which this process wrote, or tried to.
    written: BTreeSet<String>,
}

#[derive(Default)]
struct Lists {
    secrets: Vec<Secret>,
    containers: Vec<Container>,
}

/// So long a list is as good as another, as long as this process writes nothing there.
const YOUNG: Duration = Duration::from_secs(30);

/// So long it tells what a process before this one may have left. Who leads is the only one that writes there.
const TELLS: Duration = Duration::from_secs(3600);

impl Stored {
    /// Something was written.
    pub(in crate::octavia) fn forget(&self) {
        let mut last = self.last();
        (last.age, last.lists) = (last.age.wrapping_add(1), None);
    }

    /// Something is about to be written under this name.
    pub(in crate::octavia) fn note(&self, name: &str) {
        self.seen().written.insert(name.to_owned());
    }

    /// Another process may have written since.
    pub(in crate::octavia) fn doubt(&self) {
        self.seen().listed = None;
    }

    /// Whether something may be kept whose name begins like this: it was seen there, was written here, or it is not known.
    pub(in crate::octavia) fn may_have(&self, begin: &str, now: Instant) -> bool {
        let seen = self.seen();
        let Some((at, lists)) = &seen.listed else { return true };
        let names = lists.secrets.iter().map(|it| &it.name).chain(lists.containers.iter().map(|it| &it.name));
        now.saturating_duration_since(*at) >= TELLS
            || names.chain(&seen.written).any(|it| it.starts_with(begin))
    }

    fn seen(&self) -> MutexGuard<'_, StoredListCache> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn last(&self) -> MutexGuard<'_, Last> {
        self.last.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// All that is kept whose names begin like this.
    pub(in crate::octavia) async fn kept(
        &self,
        cloud: &Cloud,
        begin: &str,
    ) -> Result<Result<StoredCertificates, Error>, ListRequestTimeout> {
        let lists = match self.young(cloud) {
            Some(lists) => lists,
            None => {
                let _turn = self.reading.take().await?;
                match self.lists(cloud).await {
                    Ok(lists) => lists,
                    Err(error) => return Ok(Err(error)),
                }
            }
        };
        let mut kept = StoredCertificates::new();
        for it in lists.secrets.iter().filter(|it| it.name.starts_with(begin)) {
            if let Some((name, part)) = it.name.rsplit_once(' ') {
                let part = (part.to_owned(), it.id.clone(), it.secret_ref.clone());
                kept.entry(name.to_owned()).or_default().secrets.push(part);
            }
        }
        for it in lists.containers.iter().filter(|it| it.name.starts_with(begin)) {
            let container = (it.id.clone(), it.container_ref.clone());
            kept.entry(it.name.clone()).or_default().containers.push(container);
        }
        Ok(Ok(kept))
    }

    /// What is known without asking.
    fn young(&self, cloud: &Cloud) -> Option<Arc<Lists>> {
        let now = cloud.clock().now();
        let last = self.last();
        let young = last.lists.as_ref().filter(|(at, _)| now.saturating_duration_since(*at) < YOUNG);
        young.map(|(_, lists)| lists.clone())
    }

    /// Whose turn it is asks, unless another asked before.
    async fn lists(&self, cloud: &Cloud) -> Result<Arc<Lists>, Error> {
        if let Some(lists) = self.young(cloud) {
            return Ok(lists);
        }
        let (now, age) = (cloud.clock().now(), self.last().age);
        let secrets = match cloud.all::<Secret>().list::<Secret>(Query::all()).await {
            // Where there is no Barbican, or none for us, nothing was ever kept.
            Err(error) if matches!(error.class(), Class::NoService | Class::Forbidden) => {
                return Ok(Arc::default());
            }
            secrets => secrets?,
        };
        let containers = cloud.all::<Container>().list::<Container>(Query::all()).await?;
        let lists = Arc::new(Lists { secrets, containers });
        let mut last = self.last();
        if last.age == age {
            last.lists = Some((now, lists.clone()));
        }
        drop(last);
        self.seen().listed = Some((now, lists.clone()));
        Ok(lists)
    }
}
