//! What a control plane is before a test has used it, and how it gets there again.
//!
//! Objects are deleted in etcd itself: nothing holds them then, neither a finalizer nor a grace, and to all who watch it is as
//! if they had ended in order. Owners go first; once the controllers have heard of that, what they made of them goes too.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::{Duration, Instant},
};

use kube::Client;
use tokio::time::{sleep, timeout_at};

use super::{
    etcd::{Etcd, Revisions},
    listing::listing,
    probe,
};

/// The API server renews these as long as it runs.
const RENEWED: [&str; 3] =
    ["/registry/masterleases/", "/registry/peerserverleases/", "/registry/leases/kube-system/apiserver-"];
const EVENTS: &str = "/registry/events/";
/// What controllers make of other objects, and would make again as long as they know those. It goes in this order, after
/// all else.
const MADE: [&[&str]; 2] = [
    &["/registry/replicasets/", "/registry/apiregistration.k8s.io/apiservices/"],
    &[
        "/registry/configmaps/",
        "/registry/controllerrevisions/",
        "/registry/endpointslices/",
        "/registry/ipaddresses/",
        "/registry/pods/",
        "/registry/serviceaccounts/",
        "/registry/services/endpoints/",
    ],
];
/// Until all is as it was; a control plane that takes longer is not worth it.
const PATIENCE: Duration = Duration::from_secs(30);
/// A new control plane that writes nothing for so long has made all that it begins with.
const QUIET: Duration = Duration::from_millis(400);
const PAUSE: Duration = Duration::from_millis(20);

#[derive(Debug)]
pub(super) struct Baseline {
    values: BTreeMap<String, String>,
    revisions: Revisions,
    listed: BTreeSet<String>,
}

/// How what is there differs.
#[derive(Debug, Default)]
struct Difference {
    added: Vec<String>,
    changed: Vec<String>,
}

impl Baseline {
    /// Of a control plane that has just come up, once its controllers have made what each cluster has.
    pub(super) async fn of(etcd: &Etcd, client: &Client) -> Result<Baseline, String> {
        let deadline = Instant::now() + PATIENCE;
        let (mut revisions, mut since) = (stable(etcd).await?, Instant::now());
        while Instant::now() < deadline {
            let now = stable(etcd).await?;
            if now != revisions {
                (revisions, since) = (now, Instant::now());
            }
            if !is_whole(&revisions) || since.elapsed() < QUIET {
                sleep(PAUSE).await;
                continue;
            }
            let listed = listing(client).await.map_err(|it| it.to_string())?;
            let mut values = etcd.values().await?;
            values.retain(|key, _| is_stable(key));
            let mut fresh = Baseline { values, revisions: revisions.clone(), listed };
            if fresh.is_now(etcd).await.is_ok() {
                return Ok(fresh);
            }
        }
        Err("its controllers do not come to rest".to_owned())
    }

    /// Whether all that is stored is as it was. The error says what is not.
    pub(super) async fn is_now(&mut self, etcd: &Etcd) -> Result<(), String> {
        let difference = self.difference(etcd).await?;
        difference.map_or(Ok(()), |it| Err(format!("in etcd there differs {it:?}")))
    }

    async fn difference(&mut self, etcd: &Etcd) -> Result<Option<Difference>, String> {
        let now = stable(etcd).await?;
        let Some(mut difference) = self.compare(&now) else { return Ok(None) };
        if !difference.changed.is_empty() {
            // The API server writes some again as they were, such as which node ports are taken.
            let values = etcd.values().await?;
            let (same, changed) =
                difference.changed.into_iter().partition(|key| values.get(key) == self.values.get(key));
            difference.changed = changed;
            let same: Vec<String> = same;
            self.revisions
                .extend(same.into_iter().filter_map(|key| Some((key.clone(), now.get(&key)?.clone()))));
        }
        Ok((!difference.is_empty()).then_some(difference))
    }

    /// Makes it so again. The error says what stays different.
    pub(super) async fn restore(&mut self, etcd: &Etcd, client: &Client) -> Result<(), String> {
        let deadline = Instant::now() + PATIENCE;
        self.remove(etcd, 0).await?;
        timeout_at(deadline.into(), probe::answered(client))
            .await
            .map_err(|_| "its controllers do nothing".to_owned())?
            .map_err(|it| it.to_string())?;
        let (mut left, mut listed) = (String::new(), String::new());
        while Instant::now() < deadline {
            for turn in 0..=MADE.len() {
                if let Some(difference) = self.remove(etcd, turn).await? {
                    left = format!("{difference:?}");
                    sleep(PAUSE).await;
                }
            }
            // A kind may go between the question for all kinds and that for its objects.
            match listing(client).await {
                Ok(now) if now == self.listed && self.is_now(etcd).await.is_ok() => return Ok(()),
                Ok(now) => {
                    let difference = now.symmetric_difference(&self.listed);
                    listed = difference.take(5).cloned().collect::<Vec<_>>().join(", ");
                }
                Err(error) => listed = error.to_string(),
            }
            sleep(PAUSE).await;
        }
        Err(format!("after {} s there differs in etcd: {left}; in listings: {listed}", PATIENCE.as_secs()))
    }

    /// Deletes what is new and has its turn by now, and writes back what was there and has changed.
    async fn remove(&mut self, etcd: &Etcd, turn: usize) -> Result<Option<Difference>, String> {
        let now = etcd.revisions().await?;
        let events: Vec<&str> = now.keys().map(String::as_str).filter(|it| it.starts_with(EVENTS)).collect();
        etcd.delete(&events).await?;
        let Some(mut difference) = self.difference(etcd).await? else { return Ok(None) };
        difference.added.retain(|key| turn_of(key) <= turn);
        let added: Vec<&str> = difference.added.iter().map(String::as_str).collect();
        etcd.delete(&added).await?;
        let value = |key: &String| self.values.get(key).map(String::as_str).unwrap_or_default();
        let changed: Vec<_> = difference.changed.iter().map(|key| (key.as_str(), value(key))).collect();
        let written = etcd.put(&changed).await?;
        self.revisions.extend(written);
        Ok((!difference.is_empty()).then_some(difference))
    }

    fn compare(&self, now: &Revisions) -> Option<Difference> {
        let added = now.keys().filter(|key| !self.revisions.contains_key(*key));
        let changed = self.revisions.iter().filter(|(key, revision)| now.get(*key) != Some(revision));
        let difference = Difference {
            added: added.cloned().collect(),
            changed: changed.map(|(key, _)| key.clone()).collect(),
        };
        (!difference.is_empty()).then_some(difference)
    }
}

impl Difference {
    fn is_empty(&self) -> bool {
        self.added.is_empty() && self.changed.is_empty()
    }
}

async fn stable(etcd: &Etcd) -> Result<Revisions, String> {
    let mut revisions = etcd.revisions().await?;
    revisions.retain(|key, _| is_stable(key));
    Ok(revisions)
}

fn is_stable(key: &str) -> bool {
    !key.starts_with(EVENTS) && !RENEWED.iter().any(|it| key.starts_with(it))
}

fn turn_of(key: &str) -> usize {
    let is_made = |kinds: &&[&str]| kinds.iter().any(|it| key.starts_with(it));
    MADE.iter().position(is_made).map_or(0, |at| at + 1)
}

/// Each namespace has its account and the certificate of the authority, and the API server is an endpoint.
fn is_whole(revisions: &Revisions) -> bool {
    let mut namespaces =
        revisions.keys().filter_map(|it| it.strip_prefix("/registry/namespaces/")).peekable();
    namespaces.peek().is_some()
        && namespaces.all(|it| {
            revisions.contains_key(&format!("/registry/serviceaccounts/{it}/default"))
                && revisions.contains_key(&format!("/registry/configmaps/{it}/kube-root-ca.crt"))
        })
        && revisions.contains_key("/registry/endpointslices/default/kubernetes")
}
