//! Whether a cloud controller manager runs its controller of Services: asked before anything is adopted, and now and then.

use std::time::Duration;

use seaway_cluster::Cluster;
use seaway_model::{Change, OtherControllerSigns};
use seaway_watchdog::WatchedPart;
use tokio::{sync::mpsc, time::sleep};
use tracing::{debug, warn};

use crate::watchdog;

const PERIOD: Duration = Duration::from_secs(30);
/// Events are many: they are asked for each so many times.
const EVENTS: u32 = 10;
const AGAIN: Duration = Duration::from_secs(5);
/// Who gets no answer for so long goes on by what was written alone.
const TRIES: u32 = 6;

/// Before the first Service is told, where a cloud serves: nothing is adopted until it is known whether another runs.
pub(super) async fn start(
    in_cloud: bool,
    cluster: &Cluster,
    changes: &mpsc::Sender<Change>,
    parts: &mut Vec<WatchedPart>,
) {
    if in_cloud && changes.send(Change::OtherSigns(None)).await.is_ok() {
        let watches = watch(cluster.clone(), changes.clone());
        watchdog::spawn("the search for another controller", parts, watches);
    }
}

/// Runs until nobody wants to know any more.
async fn watch(cluster: Cluster, changes: mpsc::Sender<Change>) {
    let (mut failed, mut round, mut said) = (0, 0, None::<OtherControllerSigns>);
    loop {
        let event = said.as_ref().filter(|_| round % EVENTS != 0).map(|it| it.event.clone());
        let signs = match cluster.signs_of_other_controllers(event).await {
            Ok(signs) => {
                failed = 0;
                round += 1;
                Some(signs)
            }
            Err(error) => {
                debug!(%error, "whether another controller serves Services is not known");
                failed += 1;
                if failed == TRIES && said.is_none() {
                    warn!(%error, "cannot find out whether a cloud controller manager runs; Seaway notices only what it \
                         writes");
                }
                // What was known before is not unknown now.
                (failed >= TRIES && said.is_none()).then(OtherControllerSigns::default)
            }
        };
        let pause = if failed == 0 { PERIOD } else { AGAIN };
        if let Some(signs) = signs.filter(|it| said.as_ref() != Some(it)) {
            said = Some(signs.clone());
            if changes.send(Change::OtherSigns(Some(signs))).await.is_err() {
                return;
            }
        }
        tokio::select! {
            () = changes.closed() => return,
            () = sleep(pause) => {}
        }
    }
}
