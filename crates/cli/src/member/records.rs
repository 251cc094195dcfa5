//! Keeps deletions that were seen beyond this process, and tells of orphans.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use seaway_cluster::{
    EventRecorder, LeaderRecords, Leadership, MAX_RELEASED, RECORDS, RecordStore, RequestError,
};
use seaway_engine::Handle;
use seaway_model::{Change, Deletion, Kind, LbKey, Name, ObjectRef, Owner, Problem, Reason, Unit};
use tokio::time::sleep;
use tracing::{debug, info, warn};

use super::adoption;

/// Many Services may be deleted at once: that is one write.
const AFTER: Duration = Duration::from_secs(2);
const SOON: Duration = Duration::from_millis(20);
const AGAIN: Duration = Duration::from_secs(10);

/// Reads at the start of each lead, and writes whenever something is new.
pub(super) async fn keep(
    records: RecordStore,
    mut leading: Leadership,
    handle: Handle,
    herald: EventRecorder,
) {
    let changes = handle.changes();
    let (mut troubled, mut recalls) = (false, 0);
    loop {
        if !leading.is_held() {
            leading.changed_from(false).await;
        }
        let ended = match records.read().await {
            Ok(recorded) => {
                if changes.send(Change::Deletions(recorded.deletions.clone())).await.is_err() {
                    return;
                }
                recalls += 1;
                // Else what it does not know yet would be written over.
                while handle.ask(seaway_plan::World::recalls).await.is_some_and(|it| it < recalls) {
                    sleep(SOON).await;
                }
                if std::mem::take(&mut troubled) && changes.send(told(None)).await.is_err() {
                    return;
                }
                follow(&records, recorded, &mut leading, &handle, &herald).await
            }
            Err(error) => Err(error),
        };
        match ended {
            Ok(true) => {}
            Ok(false) => return,
            Err(error) => {
                debug!(%error, "deletions are not recorded");
                troubled = true;
                if changes.send(told(Some(&error))).await.is_err() {
                    return;
                }
                sleep(AGAIN).await;
            }
        }
    }
}

/// Until another leads; `false`: the engine has ended.
async fn follow(
    records: &RecordStore,
    mut written: LeaderRecords,
    leading: &mut Leadership,
    handle: &Handle,
    herald: &EventRecorder,
) -> Result<bool, RequestError> {
    let mut moved = handle.moved();
    let (mut announced, mut waiting) = (BTreeSet::new(), BTreeSet::new());
    let mut adopting = Vec::new();
    loop {
        moved.mark_unchanged();
        let question = |world: &seaway_plan::World| {
            let orphans: BTreeSet<Unit> = world.orphans().cloned().collect();
            let limited: BTreeMap<(Owner, String), bool> = (world.held_by_limit())
                .map(|(owner, problem)| {
                    ((owner.clone(), problem.message.clone()), world.status(owner).is_some())
                })
                .collect();
            (world.deletions(), orphans, limited, world.released(), world.adoption())
        };
        let Some((deletions, orphans, limited, released, adoption)) = handle.ask(question).await else {
            return Ok(false);
        };
        let adoption = adoption.map(|it| adoption::lines(&it)).unwrap_or_default();
        for line in adoption.iter().filter(|it| !adopting.contains(*it)) {
            info!("adoption: {line}");
        }
        adopting.clone_from(&adoption);
        // What has a status has an event with it.
        for ((owner, why), _) in
            limited.iter().filter(|(it, has_status)| !**has_status && !waiting.contains(*it))
        {
            announce_limit(herald, owner, why);
        }
        let limited: BTreeSet<(Owner, String)> = limited.into_keys().collect();
        for unit in orphans.difference(&announced) {
            announce(herald, unit);
        }
        let held = limited.iter().map(|(of, why)| format!("{of}: {why}"));
        let lines = orphans.iter().map(line).chain(held).take(seaway_cluster::MAX_LINES).collect();
        (announced, waiting) = (orphans, limited);
        let released = named(released);
        let now = LeaderRecords { deletions: seconds(deletions), orphans: lines, released, adoption };
        if now != written {
            records.write(&written, &now).await?;
            written = now;
        }
        tokio::select! {
            it = moved.changed() => if it.is_err() { return Ok(false) },
            () = leading.changed_from(true) => return Ok(true),
        }
        sleep(AFTER).await;
    }
}

/// As they are written.
fn seconds(deletions: Vec<Deletion>) -> Vec<Deletion> {
    let whole = |it: Deletion| Deletion { at: seaway_model::Time(it.at.0 / 1_000 * 1_000), ..it };
    deletions.into_iter().map(whole).collect()
}

/// A line each; what is too much for the object is counted.
fn named(released: BTreeMap<Name, Unit>) -> BTreeMap<Name, String> {
    let more = released.len().saturating_sub(MAX_RELEASED);
    let named = released.iter().take(MAX_RELEASED).map(|(uid, unit)| (uid.clone(), line(unit)));
    // Behind every UID.
    let counted = (more > 0).then(|| ("more".into(), format!("and {more} more load balancers")));
    named.chain(counted).collect()
}

fn line(unit: &Unit) -> String {
    match unit {
        Unit::LoadBalancer(_, key @ (LbKey::Of(_) | LbKey::Second(..))) => format!("load balancer of {key}"),
        other => other.to_string(),
    }
}

fn announce(herald: &EventRecorder, unit: &Unit) {
    warn!(%unit, "orphan: its Service does not exist any more, and Seaway did not see the deletion of the \
                  Service; the load balancer is kept");
    if let Unit::LoadBalancer(_, key) = unit
        && let Some(Owner::Object { object, uid }) = key.owner()
    {
        let text = "The cloud has a load balancer of this Service, which does not exist any more, and \
                    Seaway did not see the deletion of the Service: the load balancer is left as it is. \
                    seaway openstack gc lists and deletes it.";
        herald.record(object, uid, true, Reason::Orphan.as_str(), text.to_owned());
    }
}

fn announce_limit(herald: &EventRecorder, owner: &Owner, why: &str) {
    if let Owner::Object { object, uid } = owner {
        let text = format!(
            "The deletion limit stops a deletion in the cloud: {why}. The annotation \
             seaway.dev/approved-deletions at the ConfigMap seaway-deletions approves this deletion."
        );
        herald.record(object, uid, true, Reason::DeletionLimit.as_str(), text);
    }
}

fn told(error: Option<&RequestError>) -> Change {
    let object = ObjectRef::new(Kind::Config, "", RECORDS);
    let problem = |error: &RequestError| {
        let message = format!(
            "deletions that this process saw cannot be recorded, so after a restart an object of a deleted \
             Service in a cloud is only reported, not deleted: {error}"
        );
        Problem::new(object.clone(), Reason::StateUnwritable, message).fix(error.fix())
    };
    Change::Reported(object.clone(), error.map(problem).into_iter().collect())
}
