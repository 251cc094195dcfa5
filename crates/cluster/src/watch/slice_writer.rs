//! The leader gathers the addresses that hosts say they have, for all hosts to hear of (host_slices.rs).
//!
//! Many hosts that start together are written together: at once for the first, then once in [`WatchTimings::gather`] at most. Nothing is
//! written by who does not lead at that moment, nor over another version than the one that was looked at, and nothing before
//! all hosts were listed: a host that is missing in a list that was cut would lose the protection of its addresses.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
    sync::Arc,
    time::Duration,
};

use kube::api::ListParams;
use seaway_engine::backoff;
use seaway_model::{Change, Kind, Name, ObjectRef, Problem, Reason};
use tokio::{
    sync::{mpsc, watch},
    time::sleep_until,
};
use tracing::{info, warn};

use super::host_slices::{self, FIRST, HostSlice};
use crate::{
    api_error::{ApiError, INSTALL},
    connect::Cluster,
    kinds::WatchedKind,
    lease::Leadership,
    moment::later,
};

/// So many slices: a host's other address is told to all with a sixteenth of the hosts, and five thousand hosts have room.
const SLICES: u64 = 16;
/// Somebody may have changed or deleted one: they are looked at again.
const LOOK: Duration = Duration::from_secs(300);
/// What fails is tried again after this at first, and at most.
const RETRY: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(60));

/// The addresses of all hosts that have an object, whether or not they live.
#[derive(Debug, Default)]
pub(super) struct AllHostAddresses(watch::Sender<HostAddressState>);

#[derive(Debug, Default)]
struct HostAddressState {
    /// All were listed.
    whole: bool,
    /// So often, as after a start or of a store that was set back: slices may be others then, too.
    lists: u64,
    of: host_slices::AddressesByHost,
}

impl AllHostAddresses {
    pub(super) fn put(&self, host: &Name, addresses: &[IpAddr]) {
        self.0.send_if_modified(|it| {
            let changed = it.of.get(host).is_none_or(|before| before != addresses);
            if changed {
                it.of.insert(host.clone(), addresses.to_vec());
            }
            changed
        });
    }

    pub(super) fn remove(&self, host: &str) {
        self.0.send_if_modified(|it| it.of.remove(host).is_some());
    }

    pub(super) fn set_complete(&self, whole: bool) {
        self.0.send_if_modified(|it| {
            it.lists = it.lists.wrapping_add(whole.into());
            whole | std::mem::replace(&mut it.whole, whole)
        });
    }
}

/// Each host in the slice of its name, so that others stay as they are when it comes or goes.
fn slices_of(hosts: &host_slices::AddressesByHost) -> BTreeMap<String, host_slices::AddressesByHost> {
    let mut slices: BTreeMap<String, host_slices::AddressesByHost> =
        BTreeMap::from([(FIRST.to_owned(), BTreeMap::new())]);
    for (host, addresses) in hosts {
        // FNV-1a: the same for every version of Seaway.
        let step = |hash: u64, byte: &u8| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
        let hash = host.as_bytes().iter().fold(0xcbf2_9ce4_8422_2325, step);
        let slice = slices.entry(format!("hosts-{}", hash % SLICES)).or_default();
        slice.insert(host.clone(), addresses.clone());
    }
    slices
}

/// Writes slices while it leads.
pub(super) async fn write_slices(
    cluster: Cluster,
    mut leading: Leadership,
    addresses: Arc<super::hosts::Hosts>,
    changes: mpsc::Sender<Change>,
) {
    let mut heard = addresses.addresses.0.subscribe();
    let mut keeping = HostSliceWriter { cluster, leading: leading.clone(), there: None };
    let (mut told, mut failures): (Option<Problem>, u32) = (None, 0);
    let mut lists = 0;
    loop {
        if !leading.is_held() {
            // Who leads meanwhile writes, and says what is wrong.
            (keeping.there, failures) = (None, 0);
            if send_if_changed(&changes, &mut told, None).await.is_err() {
                return;
            }
            leading.changed_from(false).await;
        }
        let wanted = {
            let gathered = heard.borrow_and_update();
            if std::mem::replace(&mut lists, gathered.lists) != gathered.lists {
                keeping.there = None;
            }
            gathered.whole.then(|| slices_of(&gathered.of))
        };
        let next = later(keeping.cluster.pace().gather);
        let kept = match &wanted {
            Some(wanted) => keeping.keep(wanted).await,
            None => Ok(()),
        };
        let again = match &kept {
            Ok(()) => {
                failures = 0;
                later(LOOK)
            }
            Err(answer) => {
                warn!(
                    why = answer.message_with_fix(),
                    "addresses of hosts cannot be written to LoadBalancerHostSlices"
                );
                failures = failures.saturating_add(1);
                later(backoff(failures, RETRY.0, RETRY.1, failures.into()))
            }
        };
        if send_if_changed(&changes, &mut told, kept.err().and_then(|it| problem(&it))).await.is_err() {
            return;
        }
        sleep_until(next).await;
        tokio::select! {
            changed = heard.changed() => if changed.is_err() { return },
            () = leading.changed_from(true) => {}
            () = sleep_until(again) => keeping.there = None,
        }
    }
}

struct HostSliceWriter {
    cluster: Cluster,
    leading: Leadership,
    /// As the API server has them, with their versions.
    there: Option<BTreeMap<String, (String, HostSlice)>>,
}

impl HostSliceWriter {
    async fn keep(
        &mut self,
        wanted: &BTreeMap<String, host_slices::AddressesByHost>,
    ) -> Result<(), ApiError> {
        let mut there = match self.there.take() {
            Some(there) => there,
            None => self.list().await?,
        };
        // Those that no host is in any more are kept empty: a deletion has every host list all of them.
        let names = wanted.keys().chain(there.keys().filter(|it| !wanted.contains_key(*it)));
        let mut names: Vec<String> = names.cloned().collect();
        // Where this one is, all are.
        names.sort_by_key(|it| it == FIRST);
        let others: BTreeSet<Name> =
            names.iter().filter(|it| *it != FIRST).map(|it| it.as_str().into()).collect();
        let mut written = 0_usize;
        for name in names {
            let hosts = wanted.get(&name).cloned().unwrap_or_default();
            let others = if name == FIRST { others.clone() } else { BTreeSet::new() };
            let slice = HostSlice { hosts, others };
            let version = match there.get(&name) {
                Some((_, it)) if *it == slice => continue,
                Some((version, _)) => Some(version.as_str()),
                None => None,
            };
            if !self.leading.is_held() {
                return Ok(());
            }
            let object = host_slices::write(&name, &slice, version);
            let told = match version {
                Some(_) => self.cluster.replace(&WatchedKind::SLICES, "", &name, &object).await?,
                None => self.cluster.create(&WatchedKind::SLICES, "", &object).await?,
            };
            there.insert(name, (told.version().to_owned(), slice));
            written = written.saturating_add(1);
        }
        if written > 0 {
            info!(slices = written, "addresses of hosts written to LoadBalancerHostSlices");
        }
        self.there = Some(there);
        Ok(())
    }

    async fn list(&self) -> Result<BTreeMap<String, (String, HostSlice)>, ApiError> {
        let listed = self
            .cluster
            .within_deadline(self.cluster.api(&WatchedKind::SLICES).list(&ListParams::default()))
            .await?;
        let one = |it: crate::raw_object::RawObject| {
            (it.name().to_owned(), (it.version().to_owned(), host_slices::read(&it)))
        };
        Ok(listed.items.into_iter().map(one).collect())
    }
}

fn problem(answer: &ApiError) -> Option<Problem> {
    let reason = match answer {
        // Another wrote, or nobody can be asked, which is told of all kinds.
        ApiError::Conflict(_) => return None,
        answer if answer.is_transient() => return None,
        ApiError::NotFound => Reason::NotInstalled,
        ApiError::Forbidden(_) | ApiError::Unauthorized(_) => Reason::NotPermitted,
        _ => Reason::StateUnwritable,
    };
    let message = format!(
        "addresses of hosts cannot be written to LoadBalancerHostSlices, so each host watches all others, \
         or uses the addresses that were written last: {}",
        answer.why()
    );
    let fix = format!("As an administrator: {INSTALL}. Seaway tries again.");
    Some(Problem::new(ObjectRef::new(Kind::Config, "", "loadbalancerhostslices"), reason, message).fix(fix))
}

/// Sends the Problem if it differs from the one sent before; an error, if the receiver was dropped.
pub(super) async fn send_if_changed(
    changes: &mpsc::Sender<Change>,
    told: &mut Option<Problem>,
    problem: Option<Problem>,
) -> Result<(), ()> {
    if *told == problem {
        return Ok(());
    }
    let object = told.as_ref().or(problem.as_ref()).map(|it| it.object.clone());
    told.clone_from(&problem);
    let Some(object) = object else { return Ok(()) };
    changes.send(Change::Reported(object, problem.into_iter().collect())).await.map_err(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_that_comes_changes_its_own_slice_alone_and_the_first_is_there_without_any() {
        let mut hosts: host_slices::AddressesByHost = (0..500)
            .map(|it| (Name::from(format!("host-{it}")), vec![IpAddr::from([10, 0, 0, 1])]))
            .collect();
        let before = slices_of(&hosts);
        assert_eq!(before.len() as u64, SLICES);
        assert!(before.values().all(|it| (10..60).contains(&it.len())), "about as many each");
        hosts.insert("new".into(), Vec::new());
        let after = slices_of(&hosts);
        assert_eq!(before.iter().filter(|(name, it)| after.get(*name) != Some(it)).count(), 1);
        assert_eq!(
            slices_of(&host_slices::AddressesByHost::new()),
            BTreeMap::from([(FIRST.to_owned(), BTreeMap::new())])
        );
    }
}
