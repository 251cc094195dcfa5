//! What Barbican has, listed once for all who look at the same time.

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

use super::Kept;

/// What Barbican has, listed once for all who look at the same time: a project may have thousands of secrets.
#[derive(Default)]
pub(in crate::octavia) struct Stored {
    last: tokio::sync::Mutex<Option<(Instant, Arc<Lists>)>>,
    /// What there may be for those that go.
    seen: Mutex<Seen>,
}

#[derive(Default)]
struct Seen {
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
    pub(in crate::octavia) async fn forget(&self) {
        *self.last.lock().await = None;
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

    fn seen(&self) -> MutexGuard<'_, Seen> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// All that is kept whose names begin like this.
    pub(in crate::octavia) async fn kept(&self, cloud: &Cloud, begin: &str) -> Result<Kept, Error> {
        let lists = self.lists(cloud).await?;
        let mut kept = Kept::new();
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
        Ok(kept)
    }

    async fn lists(&self, cloud: &Cloud) -> Result<Arc<Lists>, Error> {
        let mut last = self.last.lock().await;
        let now = cloud.clock().now();
        if let Some((at, lists)) = &*last
            && now.saturating_duration_since(*at) < YOUNG
        {
            return Ok(lists.clone());
        }
        let secrets = match cloud.all::<Secret>().list::<Secret>(Query::all()).await {
            // Where there is no Barbican, or none for us, nothing was ever kept.
            Err(error) if matches!(error.class(), Class::NoService | Class::Forbidden) => {
                return Ok(Arc::default());
            }
            secrets => secrets?,
        };
        let containers = cloud.all::<Container>().list::<Container>(Query::all()).await?;
        let lists = Arc::new(Lists { secrets, containers });
        *last = Some((now, lists.clone()));
        self.seen().listed = Some((now, lists.clone()));
        Ok(lists)
    }
}
