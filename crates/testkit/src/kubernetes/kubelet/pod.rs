mod container;
mod report;

use std::{
    cell::{Cell, RefCell},
    rc::Rc,
    sync::Arc,
    time::Duration,
};

use k8s_openapi::api::core::v1::{Container, Pod};
use kube::{
    Api, Client,
    api::{DeleteParams, Patch, PatchParams, Preconditions},
};
use serde_json::{Value, json};
use tokio::{
    sync::{Notify, watch},
    time::sleep,
};

use self::container::{State, supervise};
use super::{
    sandbox::{Addresses, Sandbox},
    volumes,
};
use crate::kubernetes::node::NodeContext;

const AGAIN: Duration = Duration::from_millis(200);

/// What all that belongs to one pod looks at.
struct PodContext {
    place: Arc<NodeContext>,
    /// As it was when it came here; what changes later is told to `live`.
    pod: Pod,
    sandbox: Sandbox,
    /// That there is something to report.
    changed: Notify,
    /// Once it is to end, how long it may take.
    ending: watch::Sender<Option<Duration>>,
    initialized: Cell<bool>,
}

/// A container, and how it does.
struct PodContainer {
    container: Container,
    state: RefCell<State>,
}

/// From when a pod is bound to this node until its object is gone.
pub(super) async fn live(
    place: Arc<NodeContext>,
    client: Client,
    addresses: Rc<Addresses>,
    mut told: watch::Receiver<Pod>,
) {
    let pod = told.borrow().clone();
    let (about, spec) = (&pod.metadata, pod.spec.clone().unwrap_or_default());
    let of = |it: &Option<String>| it.clone().unwrap_or_default();
    let (namespace, name) = (of(&about.namespace), of(&about.name));
    let pods: Api<Pod> = Api::namespaced(client.clone(), &namespace);
    let phase = pod.status.as_ref().and_then(|it| it.phase.clone());
    if matches!(phase.as_deref(), Some("Succeeded" | "Failed")) {
        return;
    }
    let restarts = spec.restart_policy.unwrap_or_else(|| "Always".to_owned());
    let all = |them: Option<Vec<Container>>| -> Rc<[Rc<PodContainer>]> {
        let kept = |container| Rc::new(PodContainer { container, state: RefCell::default() });
        them.into_iter().flatten().map(kept).collect()
    };
    let (first, main) = (all(spec.init_containers), all(Some(spec.containers)));
    // Its account may come later, or never, and so may what else is in its volumes.
    while volumes::prepare(&place, &client, &pod).await.is_err()
        && told.borrow().metadata.deletion_timestamp.is_none()
    {
        sleep(AGAIN).await;
        if told.has_changed().is_err() {
            return;
        }
    }
    let sandbox = Sandbox::make(&place, &addresses, &pod);
    let life = Rc::new(PodContext {
        place,
        sandbox,
        changed: Notify::new(),
        ending: watch::Sender::new(None),
        initialized: Cell::new(first.is_empty()),
        pod,
    });
    let mut running = tokio::task::spawn_local(run(life.clone(), first.clone(), main.clone(), restarts));
    let mut reported = Value::Null;
    let mut ended = false;
    loop {
        let latest = told.borrow().clone();
        if latest.metadata.deletion_timestamp.is_some() && life.ending.borrow().is_none() {
            let grace = latest.metadata.deletion_grace_period_seconds.unwrap_or(30);
            life.ending.send_replace(Some(Duration::from_secs(u64::try_from(grace).unwrap_or(0))));
        }
        let status = report::status(&life, &first, &main, &latest, ended);
        if status != reported && patch(&pods, &name, &latest, &status).await {
            reported = status;
        }
        if ended && life.ending.borrow().is_some() && reported != Value::Null {
            return forget(&pods, &name, &latest).await;
        }
        tokio::select! {
            // Its namespace goes with `life`, and all that runs in it.
            gone = told.changed() => if gone.is_err() {
                running.abort();
                return;
            },
            () = life.changed.notified() => {}
            _ = &mut running, if !ended => ended = true,
            // What was not heard is said again.
            () = sleep(AGAIN), if reported.is_null() => {}
        }
    }
}

/// All containers to their ends: those of `first` one after the other, then the others side by side.
async fn run(
    life: Rc<PodContext>,
    first: Rc<[Rc<PodContainer>]>,
    main: Rc<[Rc<PodContainer>]>,
    restarts: String,
) {
    // An init container that goes on (a sidecar) is one of the others, started before them.
    let goes_on = |it: &PodContainer| it.container.restart_policy.as_deref() == Some("Always");
    let mut beside = Vec::new();
    for kept in first.iter() {
        if goes_on(kept) {
            beside.push(tokio::task::spawn_local(supervise(life.clone(), kept.clone(), "Always".to_owned())));
            continue;
        }
        let again = if restarts == "Never" { "Never" } else { "OnFailure" };
        supervise(life.clone(), kept.clone(), again.to_owned()).await;
        if !kept.state.borrow().succeeded() {
            return;
        }
    }
    life.initialized.set(true);
    life.changed.notify_one();
    for kept in main.iter() {
        beside.push(tokio::task::spawn_local(supervise(life.clone(), kept.clone(), restarts.clone())));
    }
    for one in beside {
        let _ = one.await;
    }
}

/// Tells the API server. Not heard, it is told again with the next change.
async fn patch(pods: &Api<Pod>, name: &str, pod: &Pod, status: &Value) -> bool {
    let patch = Patch::Strategic(json!({"metadata": {"uid": pod.metadata.uid}, "status": status}));
    pods.patch_status(name, &PatchParams::default(), &patch).await.is_ok()
}

/// The last word of a kubelet: nothing runs any more, the object may go.
async fn forget(pods: &Api<Pod>, name: &str, pod: &Pod) {
    let this = Preconditions { uid: pod.metadata.uid.clone(), ..Preconditions::default() };
    let now = DeleteParams { preconditions: Some(this), ..DeleteParams::default().grace_period(0) };
    while let Err(error) = pods.delete(name, &now).await {
        // Gone already, or another one by now.
        if matches!(&error, kube::Error::Api(status) if [404, 409].contains(&status.code)) {
            return;
        }
        sleep(AGAIN).await;
    }
}
