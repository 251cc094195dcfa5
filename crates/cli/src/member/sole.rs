//! That no other controller writes in the cloud in the name of this cluster, as a copy of it would.

use std::sync::Arc;

use seaway_cluster::{Leading, RecordStore};
use seaway_drivers::octavia::{Octavia, sole};
use seaway_model::{Change, Problem};
use tokio::{sync::mpsc, time::sleep};

/// As long as we lead: looks, sends heartbeats, and tells what it found.
pub(super) async fn keep(
    driver: Arc<Octavia>,
    records: RecordStore,
    mut leading: Leading,
    changes: mpsc::Sender<Change>,
) {
    let Some(sole) = driver.sole() else { return std::future::pending().await };
    let mut told = None::<Problem>;
    loop {
        if !leading.is_now() {
            leading.changed_from(false).await;
        }
        sole.begin(&term(), leading.is_handed_over());
        loop {
            let pause = driver.beat(&records).await;
            let problem = sole.problem();
            if problem != told {
                told.clone_from(&problem);
                let change = Change::Reported(sole::about(), problem.into_iter().collect());
                if changes.send(change).await.is_err() {
                    return;
                }
            }
            tokio::select! {
                () = leading.changed_from(true) => break,
                () = sleep(pause) => {}
            }
        }
        sole.end();
    }
}

/// What no other lead has: a tag has room for eight characters.
fn term() -> String {
    let random = std::fs::read_to_string("/proc/sys/kernel/random/uuid").unwrap_or_default();
    match random.get(..8) {
        Some(random) => random.to_owned(),
        None => format!("{:08x}", jiff::Timestamp::now().as_millisecond() & 0xffff_ffff),
    }
}
