//! LoadBalancerHost objects: what a host says of itself, written by itself, and read back by whoever plans with it.
//!
//! It is written when it changes, once a second at most, and holds exceptions only, so that its size does not grow with
//! the number of Services. `spec` is for people, and no host touches it.

use std::{sync::Arc, time::Duration};

use seaway_manifests::decode::Field;
use seaway_model::{
    Kind,
    address::PLAN_VERSION,
    fact::{HostReport, HostSays},
};
use serde_json::{Value, json};
use tokio::{
    sync::watch,
    task::JoinHandle,
    time::{Instant, sleep, sleep_until},
};
use tracing::warn;

use crate::{
    answer::Answer,
    connect::Cluster,
    kinds::{OUR_VERSION, OURS, Watched},
};

/// A host says no more than this.
const AT_MOST: Duration = Duration::from_secs(1);

/// Writes what a host says, until this is dropped.
pub struct HostReports {
    says: watch::Sender<HostSays>,
    task: JoinHandle<()>,
}

impl HostReports {
    /// `host`: the name of its object, which is made if it is not there. `version`: of the program.
    pub fn start(cluster: &Cluster, host: &str, version: &'static str) -> HostReports {
        let (says, heard) = watch::channel(HostSays::default());
        let task = tokio::spawn(write_on(cluster.clone(), host.to_owned(), version, heard));
        HostReports { says, task }
    }

    /// Whatever was said before and is not written yet is not written any more.
    pub fn say(&self, says: HostSays) {
        self.says.send_if_modified(|before| {
            let changed = *before != says;
            *before = says;
            changed
        });
    }
}

impl Drop for HostReports {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn write_on(
    cluster: Cluster,
    host: String,
    version: &'static str,
    mut heard: watch::Receiver<HostSays>,
) {
    let mut written = None;
    while heard.changed().await.is_ok() {
        let says = heard.borrow_and_update().clone();
        if written.as_ref() == Some(&says) {
            continue;
        }
        let next = Instant::now() + AT_MOST;
        match write(&cluster, &host, status(version, &says)).await {
            Ok(()) => written = Some(says),
            Err(answer) => {
                warn!(host, why = answer.told(), "what this host says of itself cannot be written");
                written = None;
                heard.mark_changed();
                sleep(cluster.pace().longest_retry).await;
            }
        }
        sleep_until(next).await;
    }
}

async fn write(cluster: &Cluster, host: &str, status: Value) -> Result<(), Answer> {
    let hosts = Watched::of(Kind::LoadBalancerHost).expect("hosts are in the table of kinds");
    let named =
        json!({ "apiVersion": api_version(), "kind": "LoadBalancerHost", "metadata": { "name": host } });
    let mut object = named.clone();
    object["status"] = status;
    match cluster.apply_status(hosts, "", host, &object, true).await {
        Err(Answer::NotFound) => {}
        other => return other.map(drop),
    }
    match cluster.create(hosts, "", &named).await {
        Ok(_) | Err(Answer::Conflict(_)) => {}
        Err(answer) => return Err(answer),
    }
    cluster.apply_status(hosts, "", host, &object, true).await.map(drop)
}

fn api_version() -> String {
    format!("{OURS}/{OUR_VERSION}")
}

fn status(version: &str, says: &HostSays) -> Value {
    let not_served: Vec<Value> = (says.not_served.iter())
        .map(|it| json!({ "address": it.address, "reason": it.reason.as_str(), "message": it.message }))
        .collect();
    json!({
        "version": version,
        "planVersion": PLAN_VERSION,
        "applied": says.applied.to_string(),
        "addresses": says.addresses,
        "held": says.held,
        "notServed": not_served,
    })
}

pub(crate) fn read(root: &Field<'_>) -> Option<Arc<HostReport>> {
    let (metadata, status) = (root.child("metadata"), root.child("status"));
    let ips = |key| {
        let list = status.child(key);
        list.items().filter_map(|item| item.ip()).collect::<Vec<_>>()
    };
    let not_served = status.child("notServed");
    Some(Arc::new(HostReport {
        host: metadata.child("name").name()?.into(),
        addresses: ips("addresses"),
        holds: ips("held").into_iter().collect(),
        applied: status.child("applied").name().and_then(|it| it.parse().ok()).unwrap_or_default(),
        not_served: not_served.items().filter_map(|item| item.child("address").ip()).collect(),
        drain: root.child("spec").child("drain").bool().unwrap_or(false),
    }))
}

#[cfg(test)]
pub(crate) mod tests {
    use std::net::IpAddr;

    use seaway_manifests::{decode::Faults, tree::Node};
    use seaway_model::{Reason, fact::NotServed};

    use super::*;

    /// All that a status may have.
    pub(crate) fn full() -> Value {
        status("0.1", &says())
    }

    fn ip(text: &str) -> IpAddr {
        text.parse().expect("an address")
    }

    fn says() -> HostSays {
        HostSays {
            applied: 4711,
            addresses: vec![ip("10.0.0.1"), ip("fd00::1")],
            held: vec![ip("192.0.2.1")],
            not_served: vec![NotServed {
                address: ip("192.0.2.2"),
                reason: Reason::PortInUse,
                message: "x".into(),
            }],
        }
    }

    #[test]
    fn what_a_host_says_reads_back() {
        let says = says();
        let object =
            json!({ "metadata": { "name": "a" }, "spec": { "drain": true }, "status": status("0.1", &says) });
        let node: Node = serde_json::from_value(object).expect("is a tree");
        let faults = Faults::default();
        let report = read(&Field::root(&node, &faults)).expect("is a host");
        assert!(faults.is_empty());
        assert_eq!(
            *report,
            HostReport {
                host: "a".into(),
                addresses: says.addresses,
                holds: says.held.into_iter().collect(),
                applied: 4711,
                not_served: [ip("192.0.2.2")].into(),
                drain: true,
            }
        );
    }
}
