//! What a controller does beside planning.

use seaway_cluster::{Cluster, Leadership};
use seaway_engine::{Fence, Handle};
use seaway_model::Change;
use seaway_plan::World;
use tokio::sync::mpsc;

/// Of controllers, the one that leads writes.
pub(super) fn fence(leading: Leadership) -> Fence {
    Fence::new(move || leading.is_held())
}

/// Whoever leads gives addresses out, on what was written by then.
pub(super) async fn lead(mut leading: Leadership, changes: mpsc::Sender<Change>) {
    loop {
        let leads = leading.is_held();
        if changes.send(Change::Leads(leads)).await.is_err() {
            return;
        }
        leading.changed_from(leads).await;
    }
}

/// Nothing is written where no pool asks for it.
pub(super) async fn make_layer2_key(cluster: Cluster, leading: Leadership, handle: Handle) {
    let mut moved = handle.moved();
    loop {
        moved.mark_unchanged();
        match handle.ask(World::has_layer2_pools).await {
            Some(true) => break seaway_cluster::make_layer2_key(cluster, leading).await,
            Some(false) if moved.changed().await.is_ok() => {}
            _ => return,
        }
    }
}
