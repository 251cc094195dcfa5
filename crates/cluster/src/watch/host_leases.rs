//! Which hosts are alive, by their Leases and our own clock.
//!
//! ```text
//!     its Lease changes ─► lives ── a whole term unchanged ─► silent ── quarantine ─► gone
//!                            ▲                                  │
//!                            └────────── changes ───────────────┘     its object is deleted, or it ended in order ─► gone
//! ```
//! A host counts as silent when its Lease did not change for its whole term, as the API server itself says, asked again
//! and again. Time in which it does not answer does not count, for then no host can renew anything. A silent host may have
//! lost its way to the API server alone, and answer clients at its addresses: these are nobody else's until it is gone. A
//! host without a Lease is silent after a term, too, so that a report that nobody renews holds nothing for ever.
//!
//! A Lease that comes, or is renewed, without a report is that of a host that has just begun: it serves before it reports. It
//! is told until it does. (One that was there before we listened, and is not renewed, tells nothing: Leases of
//! hosts that are gone stay.)

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use k8s_openapi::api::coordination::v1::Lease;
use kube::{Api, api::ListParams};
use seaway_model::{Change, Kind, Name, ObjectRef, Problem, Reason};
use tokio::{
    sync::mpsc,
    time::{Instant, sleep},
};
use tracing::{info, warn};

use super::{hosts::Hosts, slice_writer};
use crate::{api_error::ApiError, connect::Cluster, lease::LeaseTimings};

/// What hosts' Leases are called.
pub(crate) const HOST_LEASE_PREFIX: &str = "seaway-host-";

/// What the Lease of a host says of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum HostLeaseState {
    Active,
    /// It may be there.
    Expired,
    Gone,
}

#[derive(Clone, Debug, PartialEq)]
struct LeaseState {
    version: String,
    unchanged: Duration,
    term: Duration,
    /// It ended in order.
    given_back: bool,
}

impl LeaseState {
    fn life(&self, quarantine: Duration) -> HostLeaseState {
        match self.unchanged {
            _ if self.given_back => HostLeaseState::Gone,
            unchanged if unchanged < self.term => HostLeaseState::Active,
            unchanged if unchanged < self.term.saturating_add(quarantine) => HostLeaseState::Expired,
            _ => HostLeaseState::Gone,
        }
    }
}

/// Looks at all Leases of hosts, again and again.
pub(super) async fn watch_host_leases(cluster: Cluster, hosts: Arc<Hosts>, changes: mpsc::Sender<Change>) {
    let mut pulses: BTreeMap<Name, LeaseState> = BTreeMap::new();
    let mut failing = false;
    let mut trouble: Option<Problem> = None;
    let mut answered: Option<Instant> = None;
    let (pulse, quarantine) = (cluster.pace().pulse, cluster.pace().quarantine);
    let mut unreported = UnreportedHosts::default();
    loop {
        match leases(&cluster).await {
            Ok(leases) => {
                failing = false;
                if slice_writer::send_if_changed(&changes, &mut trouble, None).await.is_err() {
                    return;
                }
                // We may have been stopped for a while, and the API server with us.
                let passed = answered.map_or(Duration::ZERO, |it| it.elapsed().min(pulse.saturating_mul(2)));
                answered = Some(Instant::now());
                let reported = hosts.names();
                let lives = judge_host_liveness(&mut pulses, leases, &reported, passed, quarantine);
                for change in unreported.look(&pulses, &reported, (passed, quarantine)) {
                    if changes.send(change).await.is_err() {
                        return;
                    }
                }
                for (host, life) in lives {
                    let Some(change) = hosts.set_lease_state(&host, life) else { continue };
                    match life {
                        HostLeaseState::Active => info!(%host, "host is back: its Lease is renewed"),
                        HostLeaseState::Expired => {
                            warn!(?quarantine, %host, "host is silent: its Lease has expired; its addresses stay reserved during the quarantine");
                        }
                        HostLeaseState::Gone => warn!(%host, "host is dead: its Lease was released"),
                    }
                    if changes.send(change).await.is_err() {
                        return;
                    }
                }
            }
            Err(answer) => {
                answered = None;
                if !std::mem::replace(&mut failing, true) {
                    warn!(
                        why = answer.message_with_fix(),
                        "Leases of hosts cannot be listed: no host is considered dead"
                    );
                }
                // What passes is told of all that is asked of the API server.
                let problem = not_permitted(&answer, cluster.namespace());
                if problem.is_some()
                    && slice_writer::send_if_changed(&changes, &mut trouble, problem).await.is_err()
                {
                    return;
                }
            }
        }
        sleep(pulse).await;
    }
}

/// Hosts that have a Lease and did not say anything yet.
#[derive(Default)]
struct UnreportedHosts {
    /// Versions of the Leases of the last list; nothing, before the first.
    before: Option<BTreeMap<Name, String>>,
    told: BTreeMap<Name, UnreportedHost>,
}

struct UnreportedHost {
    since: Duration,
    /// Its Lease has ended.
    ended: bool,
    /// The quarantine is over: it holds nothing any more.
    over: bool,
}

impl UnreportedHosts {
    /// What is to be told of them, now that the Leases are these.
    fn look(
        &mut self,
        pulses: &BTreeMap<Name, LeaseState>,
        reported: &[Name],
        (passed, quarantine): (Duration, Duration),
    ) -> Vec<Change> {
        let mut changes = Vec::new();
        let listed = || pulses.iter().filter(|(host, _)| !reported.contains(*host));
        let gone = |it: &&Name| pulses.get(*it).is_none_or(|it| it.given_back);
        for host in self.told.keys().filter(gone).cloned().collect::<Vec<_>>() {
            self.told.remove(&host);
            if !reported.contains(&host) {
                changes.push(Change::HostUnreported(host, seaway_model::UnreportedHostState::Gone));
            }
        }
        // Whoever reports is told by that.
        self.told.retain(|host, _| !reported.contains(host));
        for (host, pulse) in listed().filter(|(_, it)| !it.given_back) {
            let known = self.before.as_ref().map(|it| it.get(host));
            let was_renewed = known.is_some_and(|it| it != Some(&pulse.version));
            match self.told.get_mut(host) {
                None if was_renewed => {
                    info!(%host, "host started; it has not reported yet");
                    let told = UnreportedHost { since: Duration::ZERO, ended: false, over: false };
                    self.told.insert(host.clone(), told);
                    changes
                        .push(Change::HostUnreported(host.clone(), seaway_model::UnreportedHostState::Lives));
                }
                None => {}
                Some(told) => {
                    told.since = told.since.saturating_add(passed);
                    if !told.ended && pulse.unchanged >= pulse.term {
                        told.ended = true;
                        changes.push(Change::HostUnreported(
                            host.clone(),
                            seaway_model::UnreportedHostState::Silent,
                        ));
                    }
                    if !told.over && told.since >= pulse.term.saturating_add(quarantine) {
                        told.over = true;
                        changes.push(Change::HostUnreported(
                            host.clone(),
                            seaway_model::UnreportedHostState::Gone,
                        ));
                    }
                }
            }
        }
        self.before = Some(pulses.iter().map(|(host, it)| (host.clone(), it.version.clone())).collect());
        changes
    }
}

/// Addresses of a host that is dead stay its own then, for ever.
fn not_permitted(answer: &ApiError, namespace: &str) -> Option<Problem> {
    if !matches!(answer, ApiError::Forbidden(_) | ApiError::Unauthorized(_)) {
        return None;
    }
    let message = format!(
        "Leases of hosts cannot be listed in namespace {namespace}, so no host is considered dead, and \
         addresses that a dead host held are given to no other Service: {}",
        answer.why()
    );
    let problem = Problem::new(ObjectRef::new(Kind::Config, "", "hostLeases"), Reason::NotPermitted, message);
    Some(problem.fix(
        "As an administrator, bind the ClusterRole seaway-lease-reader to the controllers in that namespace, as \
         deploy/kubernetes/base/controller.yaml does.",
    ))
}

async fn leases(cluster: &Cluster) -> Result<Vec<Lease>, ApiError> {
    let api: Api<Lease> = Api::namespaced(cluster.client(), cluster.namespace());
    Ok(cluster.within_deadline(api.list(&ListParams::default())).await?.items)
}

/// Who lives and who does not; so much time has passed since the list before this one. `hosts`: those that said something.
fn judge_host_liveness(
    pulses: &mut BTreeMap<Name, LeaseState>,
    leases: Vec<Lease>,
    hosts: &[Name],
    passed: Duration,
    quarantine: Duration,
) -> Vec<(Name, HostLeaseState)> {
    let (mut told, mut listed) = (Vec::new(), BTreeSet::new());
    for lease in leases {
        let name = lease.metadata.name.unwrap_or_default();
        let Some(host) = name.strip_prefix(HOST_LEASE_PREFIX).map(Name::from) else { continue };
        let version = lease.metadata.resource_version.unwrap_or_default();
        let spec = lease.spec.unwrap_or_default();
        let term = spec.lease_duration_seconds.and_then(|it| u64::try_from(it).ok());
        let term = term.map_or(LeaseTimings::HOST.term, Duration::from_secs);
        let given_back = spec.holder_identity.is_none_or(|it| it.is_empty());
        let unchanged = match pulses.get(&host) {
            Some(before) if before.version == version => before.unchanged.saturating_add(passed),
            _ => Duration::ZERO,
        };
        let pulse = LeaseState { version, unchanged, term, given_back };
        told.push((host.clone(), pulse.life(quarantine)));
        pulses.insert(host.clone(), pulse);
        listed.insert(host);
    }
    // A Lease that somebody deleted is a silent one: its host may be there and write it again, or never. So is one that
    // never was.
    for host in hosts.iter().filter(|it| !listed.contains(*it)) {
        let never = || LeaseState {
            version: String::new(),
            unchanged: Duration::ZERO,
            term: LeaseTimings::HOST.term,
            given_back: false,
        };
        match pulses.get_mut(host) {
            Some(pulse) => pulse.unchanged = pulse.unchanged.saturating_add(passed),
            None => _ = pulses.insert(host.clone(), never()),
        }
        told.extend(pulses.get(host).map(|it| (host.clone(), it.life(quarantine))));
    }
    pulses.retain(|host, _| listed.contains(host) || hosts.contains(host));
    told
}

/// For the fuzz target: what is told of each host follows from its own Lease, and from how long that was the same.
#[allow(clippy::expect_used, reason = "what is wrong ends the fuzz target")]
pub(crate) fn fuzz_leases(leases: &[Lease]) {
    let of = |lease: &Lease| lease.metadata.name.as_deref()?.strip_prefix(HOST_LEASE_PREFIX).map(Name::from);
    let named: Vec<Name> = leases.iter().filter_map(of).collect();
    let hosts: [Name; 2] = ["a".into(), "has none".into()];
    let listed: BTreeSet<&Name> = named.iter().collect();
    // An API server has one Lease of a name.
    if listed.len() != named.len() {
        return;
    }
    let expected = |lease: &Lease| {
        let spec = lease.spec.clone().unwrap_or_default();
        match (spec.holder_identity.as_deref(), spec.lease_duration_seconds) {
            (None | Some(""), _) => HostLeaseState::Gone,
            (_, Some(0)) => HostLeaseState::Expired,
            _ => HostLeaseState::Active,
        }
    };
    let others = || hosts.iter().filter(|it| !listed.contains(it)).cloned();
    let first: Vec<(Name, HostLeaseState)> = (leases.iter().filter_map(|it| Some((of(it)?, expected(it)))))
        .chain(others().map(|it| (it, HostLeaseState::Active)))
        .collect();
    let mut pulses = BTreeMap::new();
    let mut after = |leases: &[Lease], passed| {
        judge_host_liveness(&mut pulses, leases.to_vec(), &hosts, passed, Duration::from_secs(60))
    };
    assert_eq!(after(leases, Duration::ZERO), first);
    assert_eq!(after(leases, Duration::ZERO), first, "no time has passed");
    assert!(
        after(leases, Duration::MAX).iter().all(|(_, life)| *life == HostLeaseState::Gone),
        "nobody lives for ever"
    );
    let renewed = |lease: &Lease| {
        let mut lease = lease.clone();
        lease.metadata.resource_version.get_or_insert_default().push('x');
        lease
    };
    let renewed: Vec<Lease> = leases.iter().map(renewed).collect();
    let again = after(&renewed, Duration::MAX);
    let (lives, none) = again.split_at(named.len());
    assert_eq!(lives, first.get(..named.len()).expect("as many"), "who renews its Lease is as it was");
    assert!(none.iter().all(|(_, life)| *life == HostLeaseState::Gone));
    let left: Vec<Name> = after(&[], Duration::ZERO).into_iter().map(|(host, _)| host).collect();
    assert_eq!(left, hosts, "whom nobody knows is forgotten");
}

#[cfg(test)]
mod tests {
    use k8s_openapi::{api::coordination::v1::LeaseSpec, apimachinery::pkg::apis::meta::v1::ObjectMeta};

    use super::*;

    fn lease(host: &str, version: &str, holder: Option<&str>) -> Lease {
        Lease {
            metadata: ObjectMeta {
                name: Some(format!("{HOST_LEASE_PREFIX}{host}")),
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

    const QUARANTINE: Duration = Duration::from_secs(3_600);

    fn seconds(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[test]
    fn a_host_is_silent_when_a_list_has_its_lease_unchanged_for_a_term_and_gone_after_the_quarantine() {
        let mut pulses = BTreeMap::new();
        let mut after = |passed, version: &str, holder| {
            let leases = vec![lease("a", version, holder), lease("b", "7", None), Lease::default()];
            let told = judge_host_liveness(
                &mut pulses,
                leases,
                &["a".into(), "b".into()],
                seconds(passed),
                QUARANTINE,
            );
            assert_eq!(told[1], ("b".into(), HostLeaseState::Gone), "who ended in order holds nothing");
            told[0].1
        };
        assert_eq!(after(0, "1", Some("x")), HostLeaseState::Active);
        assert_eq!(after(39, "1", Some("x")), HostLeaseState::Active);
        // Nobody knows how long it was until this list came.
        assert_eq!(after(0, "1", Some("x")), HostLeaseState::Active);
        assert_eq!(after(1, "1", Some("x")), HostLeaseState::Expired);
        assert_eq!(after(5, "2", Some("x")), HostLeaseState::Active, "it answers");
        assert_eq!(after(3_639, "2", Some("x")), HostLeaseState::Expired);
        assert_eq!(after(1, "2", Some("x")), HostLeaseState::Gone, "the quarantine is over");
        assert_eq!(after(1, "2", None), HostLeaseState::Gone);
    }

    #[test]
    fn a_report_without_a_lease_holds_nothing_for_ever() {
        for first in [vec![lease("a", "1", Some("x"))], Vec::new()] {
            let mut pulses = BTreeMap::new();
            let mut after = |passed, leases: Vec<Lease>, hosts: &[Name]| {
                let told = judge_host_liveness(&mut pulses, leases, hosts, seconds(passed), QUARANTINE);
                told.first().map(|it| it.1)
            };
            let known = ["a".into()];
            after(0, first, &known);
            assert_eq!(after(30, Vec::new(), &known), Some(HostLeaseState::Active), "it may be there");
            assert_eq!(after(10, Vec::new(), &known), Some(HostLeaseState::Expired));
            assert_eq!(after(3_600, Vec::new(), &known), Some(HostLeaseState::Gone));
            assert_eq!(after(0, vec![lease("a", "2", Some("x"))], &known), Some(HostLeaseState::Active));
            assert_eq!(after(10, Vec::new(), &[]), None, "its object was deleted: it is forgotten");
        }
    }

    #[test]
    fn a_host_that_began_and_never_reported_is_silent_until_it_reports_or_is_gone() {
        use seaway_model::UnreportedHostState::{Gone, Lives, Silent};
        let lives = |it: Vec<Change>| -> Vec<_> {
            let of_b = |it| match it {
                Change::HostUnreported(host, life) if *host == *"b" => life,
                other => panic!("{other:?}"),
            };
            it.into_iter().map(of_b).collect()
        };
        let begin = || {
            let (mut pulses, mut unreported) = (BTreeMap::new(), UnreportedHosts::default());
            // Of hosts that were there before we listened nothing is known.
            let mut leases = vec![lease("old", "1", Some("x"))];
            let mut after = move |passed, version: Option<(&str, Option<&str>)>, reported: &[Name]| {
                leases.truncate(1);
                leases.extend(version.map(|(version, holder)| lease("b", version, holder)));
                judge_host_liveness(&mut pulses, leases.clone(), reported, seconds(passed), QUARANTINE);
                lives(unreported.look(&pulses, reported, (seconds(passed), QUARANTINE)))
            };
            assert_eq!(after(0, None, &[]), []);
            assert_eq!(after(5, Some(("2", Some("x"))), &[]), [Lives]);
            assert_eq!(after(5, Some(("3", Some("x"))), &[]), [], "it is told once");
            after
        };
        assert_eq!(begin()(5, Some(("3", Some("x"))), &["b".into()]), [], "its report is told by itself");
        // It ended in order, or somebody forgot it.
        for lease in [Some(("4", None)), None] {
            assert_eq!(begin()(5, lease, &[]), [Gone]);
        }
        let mut after = begin();
        assert_eq!(after(40, Some(("3", Some("x"))), &[]), [Silent], "its Lease has ended");
        assert_eq!(after(3_600, Some(("3", Some("x"))), &[]), [Gone], "the quarantine is over");
        assert_eq!(after(5, Some(("3", Some("x"))), &[]), [], "nothing holds an address for ever");
    }
}
