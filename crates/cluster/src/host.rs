//! LoadBalancerHost objects: what a host says of itself, written by itself, and read back by whoever plans with it.
//!
//! It is written when it changes, once a second at most, and holds exceptions only, so that its size does not grow with
//! the number of Services. `spec` is for people, and no host touches it.

mod bgp;
mod layer2;
#[cfg(test)]
pub(crate) mod tests;

use std::{
    hash::{DefaultHasher, Hash, Hasher},
    net::IpAddr,
    sync::Arc,
    time::Duration,
};

use kube::api::ListParams;
use seaway_engine::backoff;
use seaway_manifests::{
    decode::{Field, ValidationErrors},
    tree::Node,
};
use seaway_model::{
    Kind, Name,
    address::PLAN_VERSION,
    fact::{HostReport, HostStatus},
};
use seaway_watchdog::WatchedPart;
use serde_json::{Value, json};
use tokio::{
    sync::watch,
    time::{Instant, sleep_until},
};
use tracing::warn;

use crate::{
    api_error::ApiError,
    connect::Cluster,
    kinds::{API_GROUP, API_VERSION, WatchedKind},
    moment::later,
    writer::OwnedTask,
};

/// A host says no more than this.
const AT_MOST: Duration = Duration::from_secs(1);

/// What hosts watch others by.
const CHANGED: &str = "addressesChanged";
/// How many are in neither list.
const UNLISTED: &str = "unlisted";
/// What is announced by ARP and NDP.
const LAYER2: &str = "layer2";
/// What is announced by BGP.
const BGP: &str = "bgp";
/// What definitions of before do not know: it is written without these then.
const ADDED: [&str; 4] = [CHANGED, UNLISTED, LAYER2, BGP];
/// So many addresses that are not served are told with a message, and messages are no longer than this together: thousands
/// of others have their reason.
const MESSAGES: usize = 500;
const MESSAGES_LENGTH: usize = 185_000;

/// Writes what a host says, until this is dropped.
pub struct HostStatusWriter {
    says: watch::Sender<HostUpdate>,
    rests: watch::Receiver<u64>,
    pub(crate) writer: OwnedTask,
}

/// What is to be written, and how often what was written was lost.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct HostUpdate {
    says: Option<HostStatus>,
    lost: u64,
    /// Nothing is written: another process says what is so.
    held: bool,
    /// How often that was so.
    holds: u64,
}

/// The version and the status page of a host's process: they stay the same while it runs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ProgramInfo {
    pub version: Name,
    /// None of a host whose counters nobody can read from afar.
    pub page: Option<StatusPage>,
}

/// The pod whose status page tells a host's counters, by `pods/proxy` of the API server.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StatusPage {
    pub namespace: Name,
    pub pod: Name,
    pub port: u16,
}

impl HostStatusWriter {
    /// `host`: the name of its object, which is made if it is not there.
    pub fn start(cluster: &Cluster, host: &str, running: ProgramInfo) -> HostStatusWriter {
        let (says, heard) = watch::channel(HostUpdate::default());
        let (rest, rests) = watch::channel(0);
        let task = write_on(cluster.clone(), host.to_owned(), running, heard, rest);
        HostStatusWriter { says, rests, writer: OwnedTask::spawn("the report of this host", task) }
    }

    /// Whatever was said before and is not written yet is not written any more.
    pub fn publish(&self, says: HostStatus) {
        self.says.send_if_modified(|before| {
            let says = Some(says);
            let changed = before.says != says;
            before.says = says;
            changed
        });
    }

    /// Writes nothing any more, until [`HostStatusWriter::resume`]; returns once nothing is being written.
    pub async fn pause(&self) {
        let mut number = 0;
        self.says.send_modify(|it| {
            (it.held, it.holds) = (true, it.holds.wrapping_add(1));
            number = it.holds;
        });
        let mut rests = self.rests.clone();
        // One that has ended writes nothing.
        let _ = rests.wait_for(|it| *it == number).await;
    }

    /// What was said last is written, if it is another.
    pub fn resume(&self) {
        self.says.send_modify(|it| it.held = false);
    }

    /// For the watchdog.
    pub fn part(&self) -> WatchedPart {
        self.writer.part()
    }

    /// Somebody deleted the object: what was said last is written again.
    pub fn rewrite(&self) {
        self.says.send_if_modified(|it| {
            it.lost = it.lost.saturating_add(1);
            it.says.is_some()
        });
    }
}

async fn write_on(
    cluster: Cluster,
    host: String,
    running: ProgramInfo,
    mut heard: watch::Receiver<HostUpdate>,
    rests: watch::Sender<u64>,
) {
    let (mut written, mut failures) = (None, 0);
    // What other hosts have heard of: what a process before this one said, too.
    let mut known = None;
    let mut is_first = true;
    while heard.changed().await.is_ok() {
        let said = heard.borrow_and_update().clone();
        if said.held {
            rests.send_replace(said.holds);
            continue;
        }
        let Some(says) = said.says.as_ref().filter(|_| written.as_ref() != Some(&said)) else { continue };
        let next = later(AT_MOST);
        if std::mem::take(&mut is_first) {
            known = said_before(&cluster, &host).await.map(|it| (it, 0));
        }
        let addresses = Some((says.addresses.clone(), said.lost));
        let changed = known != addresses;
        match write_as_defined(&cluster, &host, status(&running, says, changed)).await {
            // They have heard it by then; from now on they need not hear what else is written.
            Ok(()) if changed => {
                (known, failures) = (addresses, 0);
                heard.mark_changed();
            }
            Ok(()) => (written, failures) = (Some(said), 0),
            Err(answer) => {
                warn!(
                    host,
                    why = answer.message_with_fix(),
                    "the status of this host's LoadBalancerHost cannot be written"
                );
                written = None;
                heard.mark_changed();
                failures = u32::saturating_add(failures, 1);
                let pace = cluster.pace();
                // Addresses wait for the word of hosts; so they are no slower to say it than they must be.
                let pause = backoff(failures, pace.first_retry, pace.longest_retry, seed(&host));
                rest_until(later(pause), &mut heard, &rests).await;
            }
        }
        rest_until(next, &mut heard, &rests).await;
    }
}

/// Nothing is written meanwhile, which whoever holds it is told at once.
async fn rest_until(end: Instant, heard: &mut watch::Receiver<HostUpdate>, rests: &watch::Sender<u64>) {
    loop {
        let (held, holds) = {
            let said = heard.borrow_and_update();
            (said.held, said.holds)
        };
        if held {
            rests.send_replace(holds);
        }
        tokio::select! {
            () = sleep_until(end) => break,
            changed = heard.changed() => if changed.is_err() { return },
        }
    }
    heard.mark_changed();
}

/// Hosts do not come back all at once.
fn seed(host: &str) -> u64 {
    let mut hasher = DefaultHasher::new();
    host.hash(&mut hasher);
    hasher.finish()
}

/// Where definitions are older, without what these do not know: other hosts hear of all that is written then, and people do
/// not hear how much is not listed.
async fn write_as_defined(cluster: &Cluster, host: &str, mut status: Value) -> Result<(), ApiError> {
    loop {
        let answer = write(cluster, host, status.clone()).await;
        if !answer.as_ref().is_err_and(|it| remove_unknown(&mut status, &it.why())) {
            return answer;
        }
    }
}

/// False if `why` names nothing that could be removed.
fn remove_unknown(status: &mut Value, why: &str) -> bool {
    let Some(fields) = status.as_object_mut() else { return false };
    let before = fields.len();
    fields.retain(|key, _| !ADDED.contains(&key.as_str()) || !why.contains(key.as_str()));
    fields.len() < before
}

#[allow(clippy::indexing_slicing, reason = "an object that was made here: a key that it lacks is added")]
async fn write(cluster: &Cluster, host: &str, status: Value) -> Result<(), ApiError> {
    let hosts = WatchedKind::known(Kind::LoadBalancerHost);
    let named =
        json!({ "apiVersion": api_version(), "kind": "LoadBalancerHost", "metadata": { "name": host } });
    let mut object = named.clone();
    object["status"] = status;
    match cluster.apply_status(hosts, "", host, &object, true).await {
        Err(ApiError::NotFound) => {}
        other => return other.map(drop),
    }
    let mut new = named;
    new["metadata"]["ownerReferences"] = node_of(cluster, host).await.into_iter().collect();
    match cluster.create(hosts, "", &new).await {
        Ok(_) | Err(ApiError::Conflict(_)) => {}
        Err(answer) => return Err(answer),
    }
    cluster.apply_status(hosts, "", host, &object, true).await.map(drop)
}

/// The addresses that this host said it has, and that all others were told of.
async fn said_before(cluster: &Cluster, host: &str) -> Option<Vec<IpAddr>> {
    let hosts = WatchedKind::of(Kind::LoadBalancerHost)?;
    let named = ListParams::default().fields(&format!("metadata.name={host}"));
    let found = cluster.within_deadline(cluster.api(hosts).list(&named)).await.ok()?.items;
    announced_addresses(&found.first()?.tree)
}

/// The addresses in the status of a LoadBalancerHost; `None` where the list may be incomplete.
pub(crate) fn announced_addresses(object: &Node) -> Option<Vec<IpAddr>> {
    let faults = ValidationErrors::default();
    let root = Field::root(object, &faults);
    let status = root.child("status");
    let is_calm = !status.is_missing() && !status.child(CHANGED).bool().unwrap_or_default();
    let addresses = status.child("addresses").items().map(|it| it.ip()).collect::<Option<Vec<_>>>();
    addresses.filter(|_| is_calm)
}

/// The Node that a host is, if it is one: when that is deleted, what the host said goes with it.
async fn node_of(cluster: &Cluster, host: &str) -> Option<Value> {
    let nodes = WatchedKind::known(Kind::Node);
    let named = ListParams::default().fields(&format!("metadata.name={host}"));
    // A host without a Node is as good; and this one is written in any case.
    let found = cluster.within_deadline(cluster.api(nodes).list(&named)).await.ok()?.items;
    let uid = found.first()?.uid();
    Some(json!({ "apiVersion": "v1", "kind": "Node", "name": host, "uid": uid }))
}

fn api_version() -> String {
    format!("{API_GROUP}/{API_VERSION}")
}

/// `changed`: its addresses are others than before, which other hosts select by (`watch/scope.rs`).
#[allow(clippy::indexing_slicing, reason = "an object that was made here: a key that it lacks is added")]
pub(crate) fn status(running: &ProgramInfo, says: &HostStatus, changed: bool) -> Value {
    let mut length = 0_usize;
    let not_served: Vec<Value> = (says.not_served.iter().enumerate())
        .map(|(at, it)| {
            let mut told = json!({ "address": it.address, "reason": it.reason.as_str() });
            let message = json!(it.message);
            length = length.saturating_add(message.to_string().len());
            if at < MESSAGES && length <= MESSAGES_LENGTH {
                told["message"] = message;
            }
            told
        })
        .collect();
    let mut status = json!({
        "version": running.version,
        "planVersion": PLAN_VERSION,
        "applied": says.applied.to_string(),
        "addresses": says.addresses,
        "held": says.held,
        "notServed": not_served,
    });
    if changed {
        status[CHANGED] = true.into();
    }
    if says.unlisted > 0 {
        status[UNLISTED] = says.unlisted.into();
    }
    if !says.layer2.is_empty() {
        status[LAYER2] = layer2::write(&says.layer2).into();
    }
    if !says.bgp.is_empty() {
        status[BGP] = bgp::write(&says.bgp);
    }
    if let Some(page) = &running.page {
        status["page"] = json!({ "namespace": page.namespace, "pod": page.pod, "port": page.port });
    }
    status
}

/// A host, for people.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HostInspection {
    pub report: Arc<HostReport>,
    pub plan_version: u64,
    pub running: ProgramInfo,
    /// What `report` names without reasons. Of many, only the first have a message.
    pub not_served: Vec<(IpAddr, Name, Name)>,
    /// How many more it does not serve, or still holds, without naming them.
    pub unlisted: u64,
}

pub(crate) fn read_inspection(root: &Field<'_>, report: &Arc<HostReport>) -> Option<HostInspection> {
    let status = root.child("status");
    let (page, not_served) = (status.child("page"), status.child("notServed"));
    let word = |field: &Field<'_>, key: &str| field.child(key).name().unwrap_or_default().into();
    let read = |it: Field<'_>| Some((it.child("address").ip()?, word(&it, "reason"), word(&it, "message")));
    let pod = page.child("pod").name().zip(page.child("port").port());
    let page =
        pod.map(|(pod, port)| StatusPage { namespace: word(&page, "namespace"), pod: pod.into(), port });
    Some(HostInspection {
        report: report.clone(),
        plan_version: status.child("planVersion").integer_within(0, i64::MAX).unwrap_or_default(),
        running: ProgramInfo { version: word(&status, "version"), page },
        not_served: not_served.items().filter_map(read).collect(),
        unlisted: status.child(UNLISTED).integer_within(0, i64::MAX).unwrap_or_default(),
    })
}

pub(crate) fn read(root: &Field<'_>) -> Option<Arc<HostReport>> {
    let (metadata, status) = (root.child("metadata"), root.child("status"));
    let ips = |key| {
        let list = status.child(key);
        list.items().filter_map(|item| item.ip()).collect::<Vec<_>>()
    };
    let not_served = status.child("notServed");
    let spec = root.child("spec");
    let declared = spec.child("addresses");
    let declared = (!declared.is_missing()).then(|| declared.items().filter_map(|it| it.ip()).collect());
    Some(Arc::new(HostReport {
        host: metadata.child("name").name()?.into(),
        addresses: ips("addresses"),
        declared,
        holds: ips("held").into_iter().collect(),
        applied: status.child("applied").name().and_then(|it| it.parse().ok()).unwrap_or_default(),
        not_served: not_served.items().filter_map(|item| item.child("address").ip()).collect(),
        drain: root.child("spec").child("drain").bool().unwrap_or(false),
        epoch: 0,
        layer2: layer2::read(&status.child(LAYER2)),
        networks: Vec::new(),
        bgp: bgp::read(&status.child(BGP)),
    }))
}
