//! What Services are told in passing: events, one after the other, so that statuses of thousands go first.

use jiff::Timestamp;
use seaway_model::ObjectRef;
use seaway_watchdog::WatchedPart;
use serde_json::{Value, json};
use tokio::sync::mpsc;
use tracing::warn;

use super::EventText;
use crate::{
    connect::{Cluster, MANAGER},
    kinds::WatchedKind,
    lease::Leadership,
    writer::OwnedTask,
};

/// The longest note of an event.
const LONGEST_NOTE: usize = 1024;
/// So many wait at most. Whoever comes then writes his own, and so waits for it.
const WAITING: usize = 16 << 10;

/// Writes events while it leads, until it is dropped.
pub(super) struct EventWriter {
    recorder: EventSender,
    queue: mpsc::Sender<Event>,
    task: OwnedTask,
}

/// A note to an object, as it was when that was so.
struct Event {
    object: ObjectRef,
    body: Value,
}

impl EventWriter {
    pub(super) fn start(cluster: Cluster, leading: Leadership) -> EventWriter {
        let (queue, waiting) = mpsc::channel(WAITING);
        let recorder = EventSender { cluster, leading };
        let task = OwnedTask::spawn("events", recorder.clone().write_on(waiting));
        EventWriter { recorder, queue, task }
    }

    pub(super) async fn write(&self, object: &ObjectRef, uid: &str, note: &EventText) {
        let event = Event { object: object.clone(), body: body(object, uid, note) };
        if let Err(full) = self.queue.try_send(event) {
            self.recorder.write(full.into_inner()).await;
        }
    }
}

/// Tells what another than the status has to say.
#[derive(Clone)]
pub struct EventRecorder {
    queue: mpsc::Sender<Event>,
}

impl EventRecorder {
    /// An event that is lost is no loss: where too many wait, it is left out.
    pub fn record(&self, object: &ObjectRef, uid: &str, warning: bool, reason: &str, text: String) {
        let note = EventText { warning, reason: reason.into(), text };
        if self.queue.try_send(Event { object: object.clone(), body: body(object, uid, &note) }).is_err() {
            warn!(%object, %note, "event cannot be written");
        }
    }
}

impl EventWriter {
    pub(super) fn part(&self) -> WatchedPart {
        self.task.part()
    }

    #[cfg(test)]
    pub(super) fn task(&self) -> &OwnedTask {
        &self.task
    }

    pub(super) fn event_recorder(&self) -> EventRecorder {
        EventRecorder { queue: self.queue.clone() }
    }
}

#[derive(Clone)]
struct EventSender {
    cluster: Cluster,
    leading: Leadership,
}

impl EventSender {
    async fn write_on(self, mut waiting: mpsc::Receiver<Event>) {
        while let Some(event) = waiting.recv().await {
            self.write(event).await;
        }
    }

    /// An event that is lost is no loss: the condition says the same.
    async fn write(&self, Event { object, body }: Event) {
        if !self.leading.is_held() {
            return;
        }
        if let Err(answer) = self.cluster.create(&WatchedKind::EVENTS, namespace_of(&object), &body).await {
            warn!(%object, why = answer.message_with_fix(), "event cannot be written");
        }
    }
}

/// Events of objects that have no namespace are in `default`.
pub(super) fn namespace_of(object: &ObjectRef) -> &str {
    if object.namespace.is_empty() { "default" } else { &object.namespace }
}

pub(super) fn body(object: &ObjectRef, uid: &str, note: &EventText) -> Value {
    let mut text = note.text.clone();
    if text.len() > LONGEST_NOTE {
        let end = (0..=LONGEST_NOTE - 3).rev().find(|at| text.is_char_boundary(*at)).unwrap_or_default();
        text.truncate(end);
        text.push('…');
    }
    json!({
        "apiVersion": "events.k8s.io/v1",
        "kind": "Event",
        // As all who write events call them.
        "metadata": {
            "name": format!("{}.{:x}", object.name, Timestamp::now().as_nanosecond()),
            "namespace": namespace_of(object),
        },
        "eventTime": Timestamp::now().strftime("%Y-%m-%dT%H:%M:%S%.6fZ").to_string(),
        "reportingController": "seaway.dev/controller",
        "reportingInstance": MANAGER,
        "action": "Balance",
        "type": if note.warning { "Warning" } else { "Normal" },
        "reason": note.reason,
        "note": text,
        "regarding": {
            "apiVersion": "v1",
            "kind": object.kind.as_str(),
            "namespace": object.namespace,
            "name": object.name,
            "uid": uid,
        },
    })
}

#[cfg(test)]
mod tests {
    use std::{net::TcpListener, time::Duration};

    use seaway_model::Kind;
    use tokio::time::timeout;

    use super::*;
    use crate::connect::{ClusterAccess, CredentialSource};

    #[tokio::test]
    async fn nobody_waits_for_events_though_no_api_server_answers() {
        let silent = TcpListener::bind("127.0.0.1:0").expect("a port");
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("kubeconfig");
        let server = format!("http://{}", silent.local_addr().expect("is bound"));
        let kubeconfig = format!(
            "apiVersion: v1\nkind: Config\ncurrent-context: x\ncontexts: [{{name: x, context: {{cluster: x, user: x}}}}]\n\
             clusters: [{{name: x, cluster: {{server: '{server}'}}}}]\nusers: [{{name: x, user: {{token: x}}}}]\n"
        );
        std::fs::write(&path, kubeconfig).expect("is written");
        let credentials = CredentialSource::Kubeconfig { path, context: None };
        let cluster = Cluster::connect(ClusterAccess { credentials, ..ClusterAccess::default() })
            .await
            .expect("a kubeconfig");
        let events = EventWriter::start(cluster, Leadership::always());
        let object = ObjectRef::new(Kind::Service, "default", "shop");
        let note = EventText { warning: false, reason: "AddressPublished".into(), text: "x".repeat(2_000) };
        let told = async {
            for _ in 0..100 {
                events.write(&object, "u", &note).await;
            }
        };
        timeout(Duration::from_secs(5), told).await.expect("at once");
        let text = body(&object, "u", &note);
        assert!(text["note"].as_str().is_some_and(|it| it.len() <= LONGEST_NOTE && it.ends_with('…')));
    }
}
