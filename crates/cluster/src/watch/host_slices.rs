//! Other hosts' addresses, as the leader gathers them: in few objects, so that hosts that start together are not each told of
//! each other.
//!
//! ```text
//!     LoadBalancerHosts ─► leader (slice_writer.rs) ─► LoadBalancerHostSlices ─► every host: each host's addresses
//!
//!     no slices: the first is waited for a while (the leader may be about to start), then LoadBalancerHosts themselves
//!     are watched (scope.rs), and slices again as soon as they are there
//! ```
//! The slice [`FIRST`] is written last of all, and names the others: where they are not all there, somebody deleted one, and what
//! it said is not taken for gone.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap, HashSet},
    future::pending,
    hash::{BuildHasher, RandomState},
    net::IpAddr,
    sync::Arc,
};

use kube::api::ListParams;
use seaway_manifests::decode::{Field, ValidationErrors};
use seaway_model::{
    Change, Fact, Kind, Name,
    fact::{FactRef, HostReport},
};
use serde_json::{Value, json};
use tokio::time::{Instant, sleep_until};
use tracing::info;

use super::{
    known_objects::ObjectKey,
    reflector::{ReceiverDropped, Reflector},
    scope::WatchScope,
};
use crate::{
    kinds::{API_GROUP, API_VERSION, WatchedKind},
    moment::later,
    raw_object::RawObject,
};

/// Addresses, by host.
pub(super) type AddressesByHost = BTreeMap<Name, Vec<IpAddr>>;

/// What a slice says.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct HostSlice {
    pub(super) hosts: AddressesByHost,
    /// The other slices. Only of the first.
    pub(super) others: BTreeSet<Name>,
}

/// The slice that is written last.
pub(super) const FIRST: &str = "hosts-0";
/// What of another host is known that told nothing but its addresses: not 0, for it does not tell all that it holds.
const APPLIED: u64 = 1;

/// State of the watch of LoadBalancerHostSlices: the addresses of other hosts.
#[derive(Debug)]
pub(super) struct HostSlices {
    /// They are watched, and not each host's own object.
    used: bool,
    /// None was there: one is waited for until then.
    until: Option<Instant>,
    /// One was deleted.
    lost: bool,
    known: HashMap<Name, AddressesByHost>,
    /// The others, as the first names them.
    others: BTreeSet<Name>,
}

impl Default for HostSlices {
    fn default() -> HostSlices {
        HostSlices { used: true, until: None, lost: false, known: HashMap::new(), others: BTreeSet::new() }
    }
}

impl HostSlices {
    /// Each host's own object is watched.
    pub(super) fn unused() -> HostSlices {
        HostSlices { used: false, ..HostSlices::default() }
    }

    pub(super) fn are_used(&self) -> bool {
        self.used
    }

    /// A list begins.
    pub(super) fn begin(&mut self) {
        self.lost = false;
        self.known.clear();
    }

    fn are_whole(&self) -> bool {
        self.known.contains_key(FIRST) && self.others.iter().all(|it| self.known.contains_key(it))
    }

    /// All is to be listed again.
    pub(super) fn needs_relist(&self) -> bool {
        self.lost || self.until.is_some_and(|until| self.are_whole() || until <= Instant::now())
    }

    /// What of a slice is news: hosts with other addresses, and hosts that no slice has any more.
    fn put(&mut self, slice: &Name, now: HostSlice) -> (AddressesByHost, HashSet<Name>) {
        if **slice == *FIRST {
            self.others = now.others;
        }
        let now = now.hosts;
        let before = self.known.insert(slice.clone(), now.clone()).unwrap_or_default();
        let changed = now.iter().filter(|(host, at)| before.get(*host) != Some(*at));
        let changed = changed.map(|(host, at)| (host.clone(), at.clone())).collect();
        let is_known = |host: &Name| self.known.values().any(|it| it.contains_key(host));
        let gone = before.into_keys().filter(|host| !is_known(host)).collect();
        (changed, gone)
    }
}

impl WatchScope {
    fn slices(&mut self) -> Option<&mut HostSlices> {
        match self {
            WatchScope::Others { slices, .. } => Some(slices),
            WatchScope::All | WatchScope::Own { .. } => None,
        }
    }

    pub(super) fn uses_slices(&self) -> bool {
        matches!(self, WatchScope::Others { slices, .. } if slices.used)
    }

    /// Returns when no slice came in time. Never, where none is waited for.
    pub(super) async fn slices_timeout(&self) {
        match self {
            WatchScope::Others { slices: HostSlices { used: true, until: Some(until), .. }, .. } => {
                sleep_until(*until).await
            }
            _ => pending().await,
        }
    }

    pub(super) fn lose_slice(&mut self) {
        if let Some(slices) = self.slices() {
            slices.lost = true;
        }
    }
}

impl Reflector {
    /// One of the slices, as it is now.
    pub(super) async fn put_slice(&mut self, told: &RawObject) -> Result<(), ReceiverDropped> {
        let Some(slices) = self.scope.slices() else { return Ok(()) };
        let slice = read(told);
        let hosts = slice.hosts.clone();
        let (changed, gone) = slices.put(&told.name().into(), slice);
        self.known.note_version(&super::reflector::key(told), told.version());
        let key = |host: &Name| ObjectKey { namespace: Name::default(), name: host.clone() };
        for host in hosts.keys() {
            self.known.note_listed(key(host));
        }
        for (host, addresses) in changed {
            let key = key(&host);
            if !self.scope.has(&key) {
                continue;
            }
            let forgotten = self.known.put(&key, FactRef::Host(host.clone()));
            self.send_forgotten(forgotten).await?;
            let report = HostReport { host, addresses, applied: APPLIED, ..HostReport::default() };
            let report = Arc::new(report);
            if self.hosts.put_report(report.clone()) {
                self.send(Change::Put(Fact::Host(report))).await?;
            }
        }
        for host in gone {
            self.remove(&key(&host), told.version()).await?;
        }
        Ok(())
    }

    /// All slices are listed, and they are not all there. True: they are waited for. False: no longer.
    pub(super) fn waits_for_slices(&mut self) -> Option<bool> {
        let patience = self.cluster.pace().slices;
        let slices = self.scope.slices().filter(|it| it.used)?;
        if slices.are_whole() {
            slices.until = None;
            return None;
        }
        let until =
            *slices.until.get_or_insert_with(|| {
                // Hosts do not turn to each other all at once.
                let tenths = RandomState::new().hash_one(0) % 10;
                later(patience.saturating_add(
                    patience.saturating_mul(tenths as u32).checked_div(10).unwrap_or_default(),
                ))
            });
        if until > Instant::now() {
            return Some(true);
        }
        self.watch_each_host("no controller writes LoadBalancerHostSlices");
        Some(false)
    }

    /// Slices are not there, or not for us.
    pub(super) fn watch_each_host(&mut self, why: &str) {
        info!(
            why,
            "LoadBalancerHostSlices cannot be used: the LoadBalancerHost of each host is watched instead"
        );
        let Some(slices) = self.scope.slices() else { return };
        *slices = HostSlices::unused();
        self.turn(WatchedKind::known(Kind::LoadBalancerHost));
    }

    /// Where each host's own object is watched: whether slices have come meanwhile, so that all is to be listed by them.
    pub(super) async fn switch_to_slices_if_present(&mut self) -> bool {
        if self.scope.slices().is_none_or(|it| it.used) {
            return false;
        }
        let first = ListParams::default().fields(&format!("metadata.name={FIRST}"));
        let listed = self.cluster.within_deadline(self.cluster.api(&WatchedKind::SLICES).list(&first)).await;
        if listed.is_ok_and(|it| !it.items.is_empty()) {
            self.scope.slices().into_iter().for_each(|it| *it = HostSlices::default());
            self.turn(&WatchedKind::SLICES);
            return true;
        }
        false
    }

    /// To other objects, of which nothing was heard.
    fn turn(&mut self, watched: &'static WatchedKind) {
        self.watched = watched;
        (self.failures, self.missing, self.last_version) = (0, 0, None);
        self.known.forget_versions();
    }
}

pub(super) fn read(told: &RawObject) -> HostSlice {
    let faults = ValidationErrors::default();
    let root = Field::root(&told.tree, &faults);
    let spec = root.child("spec");
    let (hosts, others) = (spec.child("hosts"), spec.child("slices"));
    let one = |it: Field<'_>| {
        let addresses = it.child("addresses");
        Some((it.child("name").name()?.into(), addresses.items().filter_map(|it| it.ip()).collect()))
    };
    HostSlice {
        hosts: hosts.items().filter_map(one).collect(),
        others: others.items().filter_map(|it| Some(it.name()?.into())).collect(),
    }
}

/// `version`: which one it replaces.
pub(super) fn write(name: &str, slice: &HostSlice, version: Option<&str>) -> Value {
    let mut metadata = json!({ "name": name });
    if let (Some(version), Some(metadata)) = (version, metadata.as_object_mut()) {
        metadata.insert("resourceVersion".to_owned(), version.into());
    }
    let one = |(name, addresses): (&Name, &Vec<IpAddr>)| json!({ "name": name, "addresses": addresses });
    let mut spec = json!({ "hosts": slice.hosts.iter().map(one).collect::<Vec<Value>>() });
    if let (false, Some(spec)) = (slice.others.is_empty(), spec.as_object_mut()) {
        spec.insert("slices".to_owned(), json!(slice.others));
    }
    json!({
        "apiVersion": format!("{API_GROUP}/{API_VERSION}"),
        "kind": "LoadBalancerHostSlice",
        "metadata": metadata,
        "spec": spec,
    })
}

#[cfg(test)]
pub(crate) mod tests {
    use std::time::Duration;

    use super::*;

    fn hosts(of: &[(&str, &str)]) -> AddressesByHost {
        of.iter().map(|(host, at)| ((*host).into(), vec![at.parse().expect("an address")])).collect()
    }

    fn slice(hosts: AddressesByHost) -> HostSlice {
        HostSlice { hosts, ..HostSlice::default() }
    }

    fn first(others: &[&str]) -> HostSlice {
        let hosts = hosts(&[("a", "10.0.0.1"), ("b", "fd00::2")]);
        HostSlice { hosts, others: others.iter().map(|it| Name::from(*it)).collect() }
    }

    /// All that an object may have.
    pub(crate) fn full() -> Value {
        write(FIRST, &first(&["hosts-7"]), Some("7"))
    }

    #[test]
    fn a_slice_reads_back_as_it_was_written_and_one_entry_that_cannot_be_read_spoils_no_other() {
        let told = |json: Value| serde_json::from_value::<RawObject>(json).expect("is an object");
        assert_eq!(read(&told(full())), first(&["hosts-7"]));
        let broken = json!({ "metadata": { "name": "x" }, "spec": { "slices": [7], "hosts": [
            { "addresses": ["10.0.0.9"] }, { "name": "b", "addresses": ["x", "10.0.0.2"] }, 7,
        ] } });
        assert_eq!(read(&told(broken)), slice(hosts(&[("b", "10.0.0.2")])));
        assert_eq!(read(&told(json!({ "metadata": { "name": "x" } }))), HostSlice::default());
    }

    #[test]
    fn of_a_slice_what_changed_is_told_and_a_host_that_moved_to_another_slice_is_not_gone() {
        let mut slices = HostSlices::default();
        let (one, two) = (Name::from("hosts-1"), Name::from("hosts-2"));
        let all = hosts(&[("a", "10.0.0.1"), ("b", "10.0.0.2")]);
        assert_eq!(slices.put(&one, slice(all.clone())), (all.clone(), HashSet::new()));
        assert_eq!(
            slices.put(&one, slice(all)),
            (AddressesByHost::new(), HashSet::new()),
            "nothing is told twice"
        );
        let moved = hosts(&[("b", "10.0.0.2")]);
        slices.put(&two, slice(moved));
        let changed = hosts(&[("a", "10.0.0.7")]);
        assert_eq!(slices.put(&one, slice(changed.clone())), (changed, HashSet::new()));
        assert_eq!(
            slices.put(&two, HostSlice::default()),
            (AddressesByHost::new(), [Name::from("b")].into())
        );
    }

    #[tokio::test(start_paused = true)]
    async fn slices_are_listed_again_once_they_are_whole_or_nobody_wrote_them_in_time_or_one_is_lost() {
        let mut slices = HostSlices::default();
        assert!(!slices.needs_relist());
        slices.until = Some(later(Duration::from_secs(20)));
        slices.put(&"hosts-3".into(), HostSlice::default());
        assert!(!slices.needs_relist(), "the leader is about to write the others");
        slices.put(&FIRST.into(), first(&["hosts-3", "hosts-5"]));
        assert!(!slices.needs_relist(), "the first names another");
        slices.put(&"hosts-5".into(), HostSlice::default());
        assert!(slices.needs_relist());
        slices.begin();
        assert!(!slices.needs_relist());
        tokio::time::advance(Duration::from_secs(20)).await;
        assert!(slices.needs_relist());
        slices = HostSlices { lost: true, ..HostSlices::default() };
        assert!(slices.needs_relist());
        slices.begin();
        assert!(!slices.needs_relist());
    }
}
