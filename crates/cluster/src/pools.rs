//! What AddressPools are told of themselves: how full they are, and what is wrong with them.

use std::{collections::BTreeMap, time::Duration};

use jiff::Timestamp;
use kube::{
    Api,
    api::{DynamicObject, ListParams},
};
use seaway_engine::backoff;
use seaway_model::{AnnouncedCondition, Kind, ObjectRef, Problem, announced::ConditionStatus};
use seaway_watchdog::WatchedPart;
use serde_json::{Value, json};
use tokio::{
    sync::watch,
    time::{Instant, sleep_until},
};
use tracing::{debug, warn};

use crate::{
    api_error::ApiError,
    connect::Cluster,
    kinds::{API_GROUP, API_VERSION, WatchedKind},
    lease::Leadership,
    moment::later,
    writer::OwnedTask,
};

/// Ten thousand Services come at once: a pool need not be told of each.
const AT_MOST: Duration = Duration::from_secs(1);
/// One that is refused again and again is not tried more often than about this.
const SELDOM: Duration = Duration::from_secs(60);

/// Addresses of one family.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AddressCounts {
    pub assigned: u128,
    pub available: u128,
}

/// What the status of one AddressPool is to say.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PoolStatus {
    pub v4: AddressCounts,
    pub v6: AddressCounts,
    pub problems: Vec<Problem>,
    /// Whether its addresses are announced.
    pub announced: Option<AnnouncedCondition>,
}

type StatusesByPool = BTreeMap<ObjectRef, PoolStatus>;

/// Writes statuses of our AddressPools, while it leads and until it is dropped.
pub struct PoolStatusWriter {
    says: watch::Sender<StatusesByPool>,
    pub(crate) writer: OwnedTask,
}

impl PoolStatusWriter {
    pub fn start(cluster: &Cluster, leading: Leadership) -> PoolStatusWriter {
        let (says, heard) = watch::channel(StatusesByPool::new());
        let writer = OwnedTask::spawn("statuses of pools", write_on(cluster.clone(), leading, heard));
        PoolStatusWriter { says, writer }
    }

    /// For the watchdog.
    pub fn part(&self) -> WatchedPart {
        self.writer.part()
    }

    /// All pools as they are now; those of MetalLB are left to MetalLB.
    pub fn publish(&self, mut pools: StatusesByPool) {
        pools.retain(|object, _| object.kind == Kind::AddressPool);
        self.says.send_if_modified(|before| {
            let changed = *before != pools;
            *before = pools;
            changed
        });
    }
}

/// What a pool's status says, as far as we know.
struct WrittenStatus {
    says: PoolStatus,
    since: TransitionTimes,
}

/// Since when each condition has its status.
type TransitionTimes = BTreeMap<String, (ConditionStatus, String)>;

/// Its status could not be written.
struct FailedWrite {
    times: u32,
    again: Instant,
}

async fn write_on(cluster: Cluster, mut leading: Leadership, mut heard: watch::Receiver<StatusesByPool>) {
    let mut written: BTreeMap<ObjectRef, WrittenStatus> = BTreeMap::new();
    let mut refused: BTreeMap<ObjectRef, FailedWrite> = BTreeMap::new();
    loop {
        if !leading.is_held() {
            // Whoever leads says it, and may have said something else when we do.
            written.clear();
            refused.clear();
            leading.changed_from(false).await;
            heard.mark_changed();
        }
        let again = refused.values().map(|it| it.again).min();
        tokio::select! {
            changed = heard.changed() => if changed.is_err() { return },
            () = leading.changed_from(true) => continue,
            () = sleep_until(again.unwrap_or_else(Instant::now)), if again.is_some() => {}
        }
        let says = heard.borrow_and_update().clone();
        let next = later(AT_MOST);
        written.retain(|object, _| says.contains_key(object));
        refused.retain(|object, _| says.contains_key(object));
        for (object, pool) in &says {
            let waits = refused.get(object).is_some_and(|it| it.again > Instant::now());
            let before = written.remove(object);
            if waits || !leading.is_held() {
                continue;
            }
            match write_status(&cluster, object, pool, before).await {
                Ok(now) => {
                    refused.remove(object);
                    written.insert(object.clone(), now);
                }
                // It may have been written, and only the answer lost.
                Err(answer) => {
                    let times = refused.get(object).map_or(0, |it| it.times).saturating_add(1);
                    let pause = backoff(times, AT_MOST, SELDOM, times.into());
                    refused.insert(object.clone(), FailedWrite { times, again: later(pause) });
                    match times {
                        1 => warn!(%object, why = answer.message_with_fix(), "status cannot be written"),
                        _ => {
                            debug!(%object, why = answer.message_with_fix(), times, "status still cannot be \
                                                                                     written")
                        }
                    }
                }
            }
        }
        sleep_until(next).await;
    }
}

/// Writes what is not said yet.
async fn write_status(
    cluster: &Cluster,
    object: &ObjectRef,
    pool: &PoolStatus,
    before: Option<WrittenStatus>,
) -> Result<WrittenStatus, ApiError> {
    let since = match before {
        Some(before) if before.says == *pool => return Ok(before),
        Some(before) => Some(before.since),
        // Whoever starts again, or led before, may have said it already.
        None => {
            let said = read_status(cluster, object).await?;
            let since = since(&said);
            match since {
                Some(since)
                    if without_moments(said) == without_moments(status(pool, &TransitionTimes::new())) =>
                {
                    return Ok(WrittenStatus { says: pool.clone(), since });
                }
                since => since,
            }
        }
    };
    let since = since_now(pool, &since.unwrap_or_default());
    match write(cluster, object, status(pool, &since)).await {
        Ok(()) | Err(ApiError::NotFound) => Ok(WrittenStatus { says: pool.clone(), since }),
        Err(answer) => Err(answer),
    }
}

/// A condition whose status stays has it since then.
fn since_now(pool: &PoolStatus, before: &TransitionTimes) -> TransitionTimes {
    let now = Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
    let moment = |it: &Condition| match before.get(it.kind) {
        Some((status, moment)) if *status == it.status => moment.clone(),
        _ => now.clone(),
    };
    conditions(pool).iter().map(|it| (it.kind.to_owned(), (it.status, moment(it)))).collect()
}

async fn write(cluster: &Cluster, object: &ObjectRef, status: Value) -> Result<(), ApiError> {
    let pools = WatchedKind::known(Kind::AddressPool);
    let body = json!({
        "apiVersion": format!("{API_GROUP}/{API_VERSION}"),
        "kind": "AddressPool",
        "metadata": { "name": object.name },
        "status": status,
    });
    cluster.apply_status(pools, "", &object.name, &body, true).await.map(drop)
}

/// What its status says; nothing, where there is none.
async fn read_status(cluster: &Cluster, object: &ObjectRef) -> Result<Value, ApiError> {
    let pools = WatchedKind::known(Kind::AddressPool);
    let api: Api<DynamicObject> = Api::all_with(cluster.client(), &pools.resource());
    // To list is what the role allows.
    let one = ListParams::default().fields(&format!("metadata.name={}", object.name));
    let told = cluster.within_deadline(api.list(&one)).await?;
    Ok(told.items.into_iter().next().and_then(|it| it.data.get("status").cloned()).unwrap_or_default())
}

fn since(said: &Value) -> Option<TransitionTimes> {
    let read = |it: &Value| {
        let status = ConditionStatus::of(it["status"].as_str()?);
        Some((it["type"].as_str()?.to_owned(), (status, it["lastTransitionTime"].as_str()?.to_owned())))
    };
    Some(said["conditions"].as_array()?.iter().filter_map(read).collect())
}

fn without_moments(mut status: Value) -> Value {
    let conditions = status.get_mut("conditions").and_then(Value::as_array_mut);
    for condition in conditions.into_iter().flatten().filter_map(Value::as_object_mut) {
        condition.insert("lastTransitionTime".to_owned(), Value::Null);
    }
    status
}

struct Condition {
    kind: &'static str,
    status: ConditionStatus,
    reason: &'static str,
    message: String,
}

fn conditions(pool: &PoolStatus) -> Vec<Condition> {
    let told: Vec<String> = pool.problems.iter().map(ToString::to_string).collect();
    let ready = Condition {
        kind: "Ready",
        status: told.is_empty().into(),
        reason: pool.problems.first().map_or("Used", |it| it.reason.as_str()),
        message: told.join("\n"),
    };
    let announced = pool.announced.as_ref().map(|it| Condition {
        kind: "Announced",
        status: it.status,
        reason: it.reason.as_str(),
        message: it.message.clone(),
    });
    [ready].into_iter().chain(announced).collect()
}

fn status(pool: &PoolStatus, since: &TransitionTimes) -> Value {
    let counted = |it: &AddressCounts| {
        let count = |it: u128| i64::try_from(it).unwrap_or(i64::MAX);
        json!({ "assigned": count(it.assigned), "available": count(it.available) })
    };
    let condition = |it: &Condition| {
        json!({
            "type": it.kind,
            "status": it.status.as_str(),
            "reason": it.reason,
            "message": it.message,
            "lastTransitionTime": since.get(it.kind).map_or("", |(_, moment)| moment),
        })
    };
    json!({
        "ipv4": counted(&pool.v4),
        "ipv6": counted(&pool.v6),
        "conditions": conditions(pool).iter().map(condition).collect::<Vec<_>>(),
    })
}

#[cfg(test)]
pub(crate) mod tests {
    use seaway_model::announced::AnnouncedReason;

    use super::*;

    /// All that a status may have.
    pub(crate) fn full() -> Value {
        let announced = Some(AnnouncedCondition::new(AnnouncedReason::StaticRoute, "by a router"));
        status(&PoolStatus { announced, ..PoolStatus::default() }, &TransitionTimes::new())
    }

    #[test]
    fn more_addresses_than_a_number_of_json_holds_are_as_many_as_it_holds() {
        let v6 = AddressCounts { assigned: 1, available: u128::MAX };
        let told = status(&PoolStatus { v6, ..PoolStatus::default() }, &TransitionTimes::new());
        assert_eq!((&told["ipv6"]["assigned"], &told["ipv6"]["available"]), (&1.into(), &i64::MAX.into()));
    }

    #[test]
    fn each_condition_has_its_status_since_its_own_moment() {
        let says = |reason, problems| PoolStatus {
            announced: Some(AnnouncedCondition::new(reason, "")),
            problems,
            ..PoolStatus::default()
        };
        let before: TransitionTimes = ["Ready", "Announced"]
            .map(|it| (it.to_owned(), (ConditionStatus::False, "then".to_owned())))
            .into();
        let now = since_now(&says(AnnouncedReason::NotAnnounced, Vec::new()), &before);
        assert_eq!(now["Announced"], (ConditionStatus::False, "then".to_owned()), "it is so as before");
        assert!(now["Ready"].0.is_true() && now["Ready"].1 != "then", "{now:?}");
        let written = status(&says(AnnouncedReason::NotAnnounced, Vec::new()), &now);
        assert_eq!(since(&written), Some(now), "whoever starts again reads it");
    }
}
