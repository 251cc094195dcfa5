//! The definition of a kind, watched while the kind is absent: so that it is asked for at once when it is defined, and
//! seldom until then.
//!
//! Whoever may not look at definitions goes by the clock alone.

use std::{
    future::pending,
    mem,
    sync::{Mutex, PoisonError},
};

use futures::{StreamExt, stream::BoxStream};
use kube::api::{ListParams, WatchEvent, WatchParams};
use seaway_manifests::tree::{Node, Value};
use tokio::time::timeout;
use tracing::debug;

use crate::{connect::Cluster, kinds::WatchedKind, raw_object::RawObject};

/// Watches the CustomResourceDefinition of a kind.
#[derive(Default)]
pub(super) struct CrdWatch {
    /// Its version when the kind was asked for last; none, if nothing was defined or established.
    version: Option<String>,
    /// Behind a lock that nobody waits for: a stream is not to be looked at from two threads, and who holds it may be.
    events: Option<Mutex<BoxStream<'static, kube::Result<WatchEvent<RawObject>>>>>,
}

impl CrdWatch {
    /// Returns when the kind was defined, or defined otherwise. What was seen before stays seen if this is dropped.
    pub(super) async fn changed(&mut self, cluster: &Cluster, watched: &WatchedKind) {
        // The core of an API server is not defined by objects.
        if !watched.group.contains('.') {
            return pending().await;
        }
        loop {
            let Some(events) = &mut self.events else {
                match self.look(cluster, &watched.qualified()).await {
                    Some(true) => return,
                    Some(false) => continue,
                    None => return pending().await,
                }
            };
            // See `WatchTimings::silence`.
            let events = events.get_mut().unwrap_or_else(PoisonError::into_inner);
            let event = timeout(cluster.pace().silence, events.next()).await;
            match event {
                Ok(Some(Ok(WatchEvent::Added(told) | WatchEvent::Modified(told)))) => {
                    if self.is_news(Some(&told)) {
                        return;
                    }
                }
                Ok(Some(Ok(WatchEvent::Deleted(_)))) => _ = self.is_news(None),
                Ok(Some(Ok(WatchEvent::Bookmark(_)))) => {}
                // The next look, when the kind itself is asked for again, begins another.
                _ => {
                    self.events = None;
                    return pending().await;
                }
            }
        }
    }

    /// Whether it is news already, and a watch from then on; nothing, where we may not look.
    async fn look(&mut self, cluster: &Cluster, name: &str) -> Option<bool> {
        let api = cluster.api(&WatchedKind::DEFINITIONS);
        let field = format!("metadata.name={name}");
        let listed = cluster.within_deadline(api.list(&ListParams::default().fields(&field))).await;
        let listed = listed.inspect_err(|answer| {
            debug!(name, why = answer.why(), "the CustomResourceDefinition cannot be read")
        });
        let listed = listed.ok()?;
        let version = listed.metadata.resource_version.unwrap_or_default();
        let watching =
            cluster.within_deadline(api.watch(&WatchParams::default().fields(&field), &version)).await;
        self.events = Some(Mutex::new(watching.ok()?.boxed()));
        Some(self.is_news(listed.items.first()))
    }

    fn is_news(&mut self, definition: Option<&RawObject>) -> bool {
        let version = definition.filter(|it| is_established(it)).map(|it| it.version().to_owned());
        mem::replace(&mut self.version, version.clone()) != version && version.is_some()
    }
}

/// The API server serves it.
fn is_established(definition: &RawObject) -> bool {
    let conditions = definition.tree.child("status").and_then(|it| it.child("conditions"));
    let Some(Value::List(conditions)) = conditions.map(|it| &it.value) else { return false };
    let says = |it: &Node, key: &str, wanted: &str| {
        it.child(key).is_some_and(|it| it.value == Value::Text(wanted.to_owned()))
    };
    conditions.iter().any(|it| says(it, "type", "Established") && says(it, "status", "True"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn definition(version: &str, established: &str) -> RawObject {
        serde_json::from_str(&format!(
            r#"{{"metadata": {{"name": "x", "resourceVersion": "{version}"}}, "status": {{"conditions": [
                {{"type": "NamesAccepted", "status": "True"}}, {{"type": "Established", "status": "{established}"}}]}}}}"#
        ))
        .expect("is an object")
    }

    #[test]
    fn a_definition_is_news_once_it_is_established_and_when_it_is_another() {
        let mut seen = CrdWatch::default();
        assert!(!seen.is_news(None));
        assert!(!seen.is_news(Some(&definition("1", "False"))), "the API server does not serve it yet");
        assert!(seen.is_news(Some(&definition("2", "True"))));
        assert!(!seen.is_news(Some(&definition("2", "True"))), "it was asked for with this one");
        assert!(seen.is_news(Some(&definition("3", "True"))), "it may serve another version now");
        assert!(!seen.is_news(None));
        assert!(seen.is_news(Some(&definition("3", "True"))), "it was deleted meanwhile");
    }
}
