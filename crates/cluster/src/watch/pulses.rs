//! Which hosts are alive, by their Leases and our own clock.
//!
//! A host is told as gone when its Lease did not change for its whole term, as the API server itself says, asked again
//! and again. Time in which it does not answer does not count, for then no host can renew anything. One whose object was
//! never followed by a Lease is told as it is.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use k8s_openapi::api::coordination::v1::Lease;
use kube::{Api, api::ListParams};
use seaway_model::{Change, Fact, Name, fact::FactRef, fact::HostReport};
use tokio::{
    sync::mpsc,
    time::{Instant, sleep},
};
use tracing::{info, warn};

use crate::{answer::Answer, connect::Cluster, lease::Terms};

/// What hosts' Leases are called.
pub(crate) const PREFIX: &str = "seaway-host-";

/// What hosts said last, whether or not they live.
#[derive(Default)]
pub(super) struct Hosts(Mutex<BTreeMap<Name, Host>>);

struct Host {
    report: Arc<HostReport>,
    told: bool,
}

#[derive(Clone, Debug, PartialEq)]
struct Pulse {
    version: String,
    unchanged: Duration,
    term: Duration,
    /// It ended in order.
    given_back: bool,
}

impl Pulse {
    fn lives(&self) -> bool {
        !self.given_back && self.unchanged < self.term
    }
}

impl Hosts {
    /// A host said something: whether that is to be told.
    pub(super) fn say(&self, report: Arc<HostReport>) -> bool {
        let mut hosts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let told = hosts.get(&report.host).is_none_or(|it| it.told);
        hosts.insert(report.host.clone(), Host { report, told });
        told
    }

    /// Its object is gone: whether that is to be told.
    pub(super) fn remove(&self, host: &str) -> bool {
        let mut hosts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        hosts.remove(host).is_some_and(|it| it.told)
    }

    /// What is to be told, now that it lives or does not.
    fn live(&self, host: &str, lives: bool) -> Option<Change> {
        let mut hosts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let host = hosts.get_mut(host).filter(|it| it.told != lives)?;
        host.told = lives;
        Some(match lives {
            true => Change::Put(Fact::Host(host.report.clone())),
            false => Change::Gone(FactRef::Host(host.report.host.clone())),
        })
    }
}

/// Looks at all Leases of hosts, again and again.
pub(super) async fn listen(cluster: Cluster, hosts: Arc<Hosts>, changes: mpsc::Sender<Change>) {
    let mut pulses: BTreeMap<Name, Pulse> = BTreeMap::new();
    let mut failing = false;
    let mut answered: Option<Instant> = None;
    let pulse = cluster.pace().pulse;
    loop {
        match leases(&cluster).await {
            Ok(leases) => {
                failing = false;
                // We may have been stopped for a while, and the API server with us.
                let passed = answered.map_or(Duration::ZERO, |it| it.elapsed().min(pulse * 2));
                answered = Some(Instant::now());
                for (host, lives) in feel(&mut pulses, leases, passed) {
                    let Some(change) = hosts.live(&host, lives) else { continue };
                    match lives {
                        true => info!(%host, "lives again"),
                        false => warn!(%host, "is dead: its Lease has ended"),
                    }
                    if changes.send(change).await.is_err() {
                        return;
                    }
                }
            }
            Err(answer) if !std::mem::replace(&mut failing, true) => {
                answered = None;
                warn!(why = answer.told(), "Leases of hosts cannot be listed; nobody is taken for dead");
            }
            Err(_) => answered = None,
        }
        sleep(pulse).await;
    }
}

async fn leases(cluster: &Cluster) -> Result<Vec<Lease>, Answer> {
    let api: Api<Lease> = Api::namespaced(cluster.client(), cluster.namespace());
    Ok(cluster.ask(api.list(&ListParams::default())).await?.items)
}

/// Who lives and who does not; so much time has passed since the list before this one.
fn feel(pulses: &mut BTreeMap<Name, Pulse>, leases: Vec<Lease>, passed: Duration) -> Vec<(Name, bool)> {
    let (mut told, mut listed) = (Vec::new(), BTreeSet::new());
    for lease in leases {
        let name = lease.metadata.name.unwrap_or_default();
        let Some(host) = name.strip_prefix(PREFIX).map(Name::from) else { continue };
        let version = lease.metadata.resource_version.unwrap_or_default();
        let spec = lease.spec.unwrap_or_default();
        let term = spec.lease_duration_seconds.and_then(|it| u64::try_from(it).ok());
        let term = term.map_or(Terms::HOST.term, Duration::from_secs);
        let given_back = spec.holder_identity.is_none_or(|it| it.is_empty());
        let unchanged = match pulses.get(&host) {
            Some(before) if before.version == version => before.unchanged + passed,
            _ => Duration::ZERO,
        };
        let pulse = Pulse { version, unchanged, term, given_back };
        told.push((host.clone(), pulse.lives()));
        pulses.insert(host.clone(), pulse);
        listed.insert(host);
    }
    // A Lease that somebody deleted is a silent one: its host may be there and write it again, or never.
    pulses.retain(|host, pulse| {
        if listed.contains(host) {
            return true;
        }
        pulse.unchanged += passed;
        told.push((host.clone(), pulse.lives()));
        pulse.lives()
    });
    told
}

#[cfg(test)]
mod tests {
    use k8s_openapi::{api::coordination::v1::LeaseSpec, apimachinery::pkg::apis::meta::v1::ObjectMeta};

    use super::*;

    fn lease(host: &str, version: &str, holder: Option<&str>) -> Lease {
        Lease {
            metadata: ObjectMeta {
                name: Some(format!("{PREFIX}{host}")),
                resource_version: Some(version.to_owned()),
                ..ObjectMeta::default()
            },
            spec: Some(LeaseSpec {
                holder_identity: holder.map(str::to_owned),
                lease_duration_seconds: Some(40),
                ..LeaseSpec::default()
            }),
        }
    }

    #[test]
    fn a_host_is_dead_when_a_list_has_its_lease_unchanged_for_a_term() {
        let mut pulses = BTreeMap::new();
        let mut after = |seconds, version: &str, holder| {
            let leases = vec![lease("a", version, holder), lease("b", "7", None), Lease::default()];
            feel(&mut pulses, leases, Duration::from_secs(seconds))
        };
        let b = (Name::from("b"), false);
        assert_eq!(after(0, "1", Some("x")), [("a".into(), true), b.clone()], "given back is dead");
        assert_eq!(after(39, "1", Some("x")), [("a".into(), true), b.clone()]);
        // Nobody knows how long it was until this list came.
        assert_eq!(after(0, "1", Some("x")), [("a".into(), true), b.clone()]);
        assert_eq!(after(1, "1", Some("x")), [("a".into(), false), b.clone()]);
        assert_eq!(after(5, "2", Some("x")), [("a".into(), true), b]);
    }

    #[test]
    fn a_host_whose_lease_was_deleted_is_dead_after_its_term() {
        let mut pulses = BTreeMap::new();
        let mut after = |seconds, leases: Vec<Lease>| feel(&mut pulses, leases, Duration::from_secs(seconds));
        after(0, vec![lease("a", "1", Some("x"))]);
        assert_eq!(after(30, Vec::new()), [("a".into(), true)], "it may be there");
        assert_eq!(after(10, Vec::new()), [("a".into(), false)]);
        assert_eq!(after(10, Vec::new()), [], "it is forgotten");
        assert_eq!(after(0, vec![lease("a", "2", Some("x"))]), [("a".into(), true)]);
    }

    #[test]
    fn what_a_dead_host_says_is_told_once_it_lives() {
        let hosts = Hosts::default();
        let report = |applied| Arc::new(HostReport { host: "a".into(), applied, ..HostReport::default() });
        assert!(hosts.say(report(1)));
        assert!(hosts.live("a", true).is_none());
        assert!(matches!(hosts.live("a", false), Some(Change::Gone(FactRef::Host(_)))));
        assert!(!hosts.say(report(2)));
        match hosts.live("a", true) {
            Some(Change::Put(Fact::Host(it))) => assert_eq!(it.applied, 2),
            other => panic!("{other:?}"),
        }
        assert!(hosts.live("a", false).is_some());
        assert!(!hosts.remove("a"), "it was told already");
    }
}
