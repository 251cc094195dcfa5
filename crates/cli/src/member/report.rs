//! What a part of a cluster tells of its World, whenever that may be another.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use seaway_cluster::{
    AddressCounts, HostStatusWriter, PoolStatus, PoolStatusWriter, SecretInterest, WantedSecrets,
};
use seaway_engine::{Handle, Phase};
use seaway_model::fact::HostStatus;
use seaway_plan::World;
use tokio::time::{sleep, timeout};

const SAID_AFTER: Duration = Duration::from_millis(50);
const SAID_AT_LAST: Duration = Duration::from_secs(1);
const SAID_FIRST: Duration = Duration::from_secs(15);
const COUNTED_AFTER: Duration = Duration::from_millis(500);

/// Tells the cluster what this host serves, and what not, whenever that may be another.
pub(super) async fn say(reports: Arc<HostStatusWriter>, handle: Handle) {
    let mut moved = handle.moved();
    let mut phase = handle.phase();
    // Before all is known everything would be an exception.
    if phase.wait_for(|it| *it != Phase::Listening).await.is_err() {
        return;
    }
    // Who starts again soon serves what it served before: what was said then stands until it does.
    if let Ok(Err(_)) = timeout(SAID_FIRST, phase.wait_for(|it| *it == Phase::Serving)).await {
        return;
    }
    let mut last: Option<HostStatus> = None;
    loop {
        moved.mark_unchanged();
        let begin = Instant::now();
        let before = last.clone();
        match handle.ask(move |world| world.said_after(before.as_ref())).await {
            Some(Some(said)) => {
                reports.publish(said.clone());
                last = Some(said);
            }
            Some(None) => {}
            None => return,
        }
        let pause = (begin.elapsed() * 4).clamp(SAID_AFTER, SAID_AT_LAST);
        if moved.changed().await.is_err() {
            return;
        }
        // Much may come at once: it is not looked up after each step, and of thousands less often.
        sleep(pause).await;
    }
}

/// Tells the watch which Secrets somebody names: of all others no key is kept.
pub(super) async fn follow_secret_interest(wishes: SecretInterest, handle: Handle) {
    let mut moved = handle.moved();
    loop {
        moved.mark_unchanged();
        // Before all is told, nobody knows who names which.
        match handle.ask(|world| world.is_settled().then(|| world.secrets())).await {
            Some(Some(Some(named))) => wishes.set_wanted(WantedSecrets::These(named)),
            Some(Some(None)) => wishes.set_wanted(WantedSecrets::Every),
            Some(None) => {}
            None => return,
        }
        if moved.changed().await.is_err() {
            return;
        }
        sleep(SAID_AFTER).await;
    }
}

/// Tells pools how full they are. Many Services may come at once: it is counted after a pause.
pub(super) async fn count(reports: PoolStatusWriter, handle: Handle) {
    let mut moved = handle.moved();
    while moved.changed().await.is_ok() {
        sleep(COUNTED_AFTER).await;
        moved.mark_unchanged();
        let look = |world: &World| {
            let pools = world.pools().into_iter().map(|it| (world.pool_announced(&it.pool), it));
            (pools.collect::<Vec<_>>(), world.problems())
        };
        let Some((pools, problems)) = handle.ask(look).await else { return };
        let says = pools.into_iter().map(|(announced, it)| {
            let problems = problems.iter().filter(|problem| problem.object == it.pool).cloned().collect();
            let [v4, v6] =
                [it.v4, it.v6].map(|it| AddressCounts { assigned: it.assigned, available: it.available });
            (it.pool, PoolStatus { v4, v6, problems, announced })
        });
        reports.publish(says.collect());
    }
}
