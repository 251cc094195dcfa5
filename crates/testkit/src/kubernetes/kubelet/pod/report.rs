use std::rc::Rc;

use k8s_openapi::{api::core::v1::Pod, jiff::Timestamp};
use serde_json::{Value, json};

use super::{PodContainer, PodContext, container::State};

/// What a kubelet would say of a pod.
pub(super) fn status(
    life: &PodContext,
    first: &[Rc<PodContainer>],
    main: &[Rc<PodContainer>],
    latest: &Pod,
    ended: bool,
) -> Value {
    let containers_ready = life.initialized.get() && main.iter().all(|it| it.state.borrow().ready);
    let ready = containers_ready && gates_pass(latest);
    let begun = main.iter().any(|it| it.state.borrow().running.is_some() || it.state.borrow().last.is_some());
    let phase = match (ended, begun) {
        (true, _) if main.iter().all(|it| it.state.borrow().succeeded()) => "Succeeded",
        (true, _) => "Failed",
        (false, true) => "Running",
        (false, false) => "Pending",
    };
    let ips = |them: &[String]| them.iter().map(|it| json!({"ip": it})).collect::<Vec<_>>();
    json!({
        "phase": phase,
        "hostIP": life.place.addresses.first(),
        "hostIPs": ips(&life.place.addresses),
        "podIP": life.sandbox.addresses.first(),
        "podIPs": ips(&life.sandbox.addresses),
        "startTime": started(latest),
        "conditions": [
            condition(latest, "PodReadyToStartContainers", true, None),
            condition(latest, "Initialized", life.initialized.get(), Some("ContainersNotInitialized")),
            condition(latest, "ContainersReady", containers_ready, Some("ContainersNotReady")),
            condition(latest, "Ready", ready, Some("ContainersNotReady")),
        ],
        "initContainerStatuses": first.iter().map(|it| container(it)).collect::<Vec<_>>(),
        "containerStatuses": main.iter().map(|it| container(it)).collect::<Vec<_>>(),
    })
}

fn gates_pass(pod: &Pod) -> bool {
    let gates = pod.spec.iter().filter_map(|it| it.readiness_gates.as_ref()).flatten();
    let conditions = || pod.status.iter().filter_map(|it| it.conditions.as_ref()).flatten();
    gates
        .into_iter()
        .all(|gate| conditions().any(|it| it.type_ == gate.condition_type && it.status == "True"))
}

/// The time of a condition is that of its last change.
fn condition(latest: &Pod, kind: &str, met: bool, why_not: Option<&str>) -> Value {
    let status = if met { "True" } else { "False" };
    let conditions = latest.status.iter().filter_map(|it| it.conditions.as_ref()).flatten();
    let before = conditions.into_iter().find(|it| it.type_ == kind && it.status == status);
    let since = before.and_then(|it| it.last_transition_time.as_ref()).map_or_else(Timestamp::now, |it| it.0);
    json!({
        "type": kind, "status": status, "lastTransitionTime": time(since),
        "reason": if met { None } else { why_not },
    })
}

fn started(latest: &Pod) -> String {
    let before = latest.status.as_ref().and_then(|it| it.start_time.as_ref());
    time(before.map_or_else(Timestamp::now, |it| it.0))
}

fn container(kept: &PodContainer) -> Value {
    let (container, state) = (&kept.container, kept.state.borrow());
    let mut told = json!({
        "name": container.name, "image": container.image, "imageID": container.image,
        "ready": state.ready, "started": state.started, "restartCount": state.restarts,
        "state": now(&state),
    });
    if let (Some(_), Some(last)) = (state.running, end_of(&state)) {
        told["lastState"] = last;
    }
    told
}

fn now(state: &State) -> Value {
    match (state.running, &state.waiting) {
        (Some(since), _) => json!({"running": {"startedAt": time(since)}}),
        (None, Some((reason, message))) => json!({"waiting": {"reason": reason, "message": message}}),
        (None, None) => end_of(state).unwrap_or_else(|| json!({"waiting": {"reason": "ContainerCreating"}})),
    }
}

fn end_of(state: &State) -> Option<Value> {
    let end = state.last.as_ref()?;
    let reason = if end.code == 0 { "Completed" } else { "Error" };
    Some(json!({"terminated": {
        "exitCode": end.code, "reason": reason, "startedAt": time(end.started), "finishedAt": time(end.at)
    }}))
}

fn time(at: Timestamp) -> String {
    format!("{at:.0}")
}
