//! What AddressPools are told of themselves: how full they are, and what is wrong with them.

use std::{collections::BTreeMap, time::Duration};

use jiff::Timestamp;
use kube::{
    Api,
    api::{DynamicObject, ListParams},
};
use seaway_model::{Kind, ObjectRef, Problem};
use serde_json::{Value, json};
use tokio::{
    sync::watch,
    task::JoinHandle,
    time::{Instant, sleep_until},
};
use tracing::warn;

use crate::{
    answer::Answer,
    connect::Cluster,
    kinds::{OUR_VERSION, OURS, Watched},
    lease::Leading,
};

/// Ten thousand Services come at once: a pool need not be told of each.
const AT_MOST: Duration = Duration::from_secs(1);

/// Addresses of one family.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counted {
    pub assigned: u128,
    pub available: u128,
}

#[derive(Clone, Debug, Default, PartialEq)]
pub struct PoolSays {
    pub v4: Counted,
    pub v6: Counted,
    pub problems: Vec<Problem>,
}

type All = BTreeMap<ObjectRef, PoolSays>;

/// Writes statuses of our AddressPools, while it leads and until it is dropped.
pub struct PoolReports {
    says: watch::Sender<All>,
    task: JoinHandle<()>,
}

impl PoolReports {
    pub fn start(cluster: &Cluster, leading: Leading) -> PoolReports {
        let (says, heard) = watch::channel(All::new());
        let task = tokio::spawn(write_on(cluster.clone(), leading, heard));
        PoolReports { says, task }
    }

    /// All pools as they are now; those of MetalLB are left to MetalLB.
    pub fn say(&self, mut pools: All) {
        pools.retain(|object, _| object.kind == Kind::AddressPool);
        self.says.send_if_modified(|before| {
            let changed = *before != pools;
            *before = pools;
            changed
        });
    }
}

impl Drop for PoolReports {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn write_on(cluster: Cluster, mut leading: Leading, mut heard: watch::Receiver<All>) {
    let mut written = All::new();
    loop {
        if !leading.is_now() {
            // Whoever leads says it, and may have said something else when we do.
            written.clear();
            leading.changed_from(false).await;
            heard.mark_changed();
        }
        tokio::select! {
            changed = heard.changed() => if changed.is_err() { return },
            () = leading.changed_from(true) => continue,
        }
        let says = heard.borrow_and_update().clone();
        let next = Instant::now() + AT_MOST;
        written.retain(|object, _| says.contains_key(object));
        for (object, pool) in &says {
            if written.get(object) == Some(pool) || !leading.is_now() {
                continue;
            }
            // Whoever starts again, or led before, may have said it already.
            if !written.contains_key(object) && is_said(&cluster, object, pool).await {
                written.insert(object.clone(), pool.clone());
                continue;
            }
            match write(&cluster, object, pool).await {
                Ok(()) | Err(Answer::NotFound) => {
                    written.insert(object.clone(), pool.clone());
                }
                Err(answer) => {
                    warn!(%object, why = answer.told(), "its status cannot be written");
                    // It may have been written, and only the answer lost.
                    written.remove(object);
                    heard.mark_changed();
                }
            }
        }
        sleep_until(next).await;
    }
}

async fn write(cluster: &Cluster, object: &ObjectRef, pool: &PoolSays) -> Result<(), Answer> {
    let pools = Watched::of(Kind::AddressPool).expect("pools are in the table of kinds");
    let now = Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
    let body = json!({
        "apiVersion": format!("{OURS}/{OUR_VERSION}"),
        "kind": "AddressPool",
        "metadata": { "name": object.name },
        "status": status(pool, &now),
    });
    cluster.apply_status(pools, "", &object.name, &body, true).await.map(drop)
}

/// The moment since when it is so is no news.
async fn is_said(cluster: &Cluster, object: &ObjectRef, pool: &PoolSays) -> bool {
    let pools = Watched::of(Kind::AddressPool).expect("pools are in the table of kinds");
    let api: Api<DynamicObject> = Api::all_with(cluster.client(), &pools.resource());
    // To list is what the role allows.
    let one = ListParams::default().fields(&format!("metadata.name={}", object.name));
    let Ok(told) = cluster.ask(api.list(&one)).await else { return false };
    let wanted = without_moments(status(pool, ""));
    told.items.iter().any(|it| without_moments(it.data["status"].clone()) == wanted)
}

fn without_moments(mut status: Value) -> Value {
    for condition in status["conditions"].as_array_mut().into_iter().flatten() {
        condition["lastTransitionTime"] = Value::Null;
    }
    status
}

fn status(pool: &PoolSays, now: &str) -> Value {
    let counted = |it: &Counted| {
        let count = |it: u128| i64::try_from(it).unwrap_or(i64::MAX);
        json!({ "assigned": count(it.assigned), "available": count(it.available) })
    };
    let told: Vec<String> = pool.problems.iter().map(ToString::to_string).collect();
    json!({
        "ipv4": counted(&pool.v4),
        "ipv6": counted(&pool.v6),
        "conditions": [{
            "type": "Ready",
            "status": if told.is_empty() { "True" } else { "False" },
            "reason": pool.problems.first().map_or("Used", |it| it.reason.as_str()),
            "message": told.join("\n"),
            "lastTransitionTime": now,
        }],
    })
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// All that a status may have.
    pub(crate) fn full() -> Value {
        status(&PoolSays::default(), "2026-01-01T00:00:00Z")
    }

    #[test]
    fn more_addresses_than_a_number_of_json_holds_are_as_many_as_it_holds() {
        let v6 = Counted { assigned: 1, available: u128::MAX };
        let told = status(&PoolSays { v6, ..PoolSays::default() }, "now");
        assert_eq!((&told["ipv6"]["assigned"], &told["ipv6"]["available"]), (&1.into(), &i64::MAX.into()));
    }
}
