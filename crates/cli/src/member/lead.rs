//! What a controller does beside planning.

use std::sync::Arc;

use seaway_cluster::Leading;
use seaway_drivers::octavia::Octavia;
use seaway_model::Change;
use tokio::sync::mpsc;

/// Whoever leads gives addresses out, on what was written by then.
pub(super) async fn lead(mut leading: Leading, changes: mpsc::Sender<Change>, octavia: Option<Arc<Octavia>>) {
    loop {
        let leads = leading.is_now();
        // Whoever led meanwhile has changed what is there.
        octavia.iter().for_each(|it| it.forget());
        if changes.send(Change::Leads(leads)).await.is_err() {
            return;
        }
        leading.changed_from(leads).await;
    }
}
