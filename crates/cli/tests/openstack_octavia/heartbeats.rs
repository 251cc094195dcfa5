//! Whoever leads says so at the port of a load balancer's VIP: a real Neutron keeps these tags, and others' beside them.

use seaway_openstack::{Call, Method, Service};
use serde_json::{Value, json};

use crate::{
    scene::service,
    stage::{AUTH_URL, Stage, until},
};

const OURS: &str = "loadBalancerClass: seaway.dev/octavia, selector: {app: shop}";
const BEAT: &str = "seaway.heartbeat.";
/// Neutron's rules for tags are others than Octavia's.
const OTHERS: [&str; 2] = ["somebody else's", "owner:team-7"];

#[test]
fn a_heartbeat_is_a_tag_at_a_port_that_the_next_one_replaces_beside_tags_of_others() {
    let Some(mut stage) = Stage::set(&["a"]) else { return };
    stage.lead(AUTH_URL);
    stage.scene.cluster.apply(&service("shop", OURS));
    stage.address("shop");
    stage.land.at_rest(|all| !all.is_empty());
    // The first heartbeat was sent when there was nothing yet; who begins to lead sends one at once.
    let first = next(&mut stage, &[]);
    let (port, _) = carrier(&stage).expect("there is a heartbeat");
    let path = format!("/ports/{port}/tags");
    let call = Call::new(Service::Network, Method::POST, "add tags", path).body(json!({ "tags": OTHERS }));
    stage.land.runtime.block_on(stage.land.cloud.call(call)).expect("is tagged");

    let second = next(&mut stage, &first);
    let (at, tags) = carrier(&stage).expect("there is a heartbeat");
    assert_eq!(at, port, "it stays where it is");
    let begun = first[0].strip_prefix(BEAT).expect("a heartbeat").split('.').next().expect("a term");
    assert!(second[0].contains(begun), "{second:?} says from which it began, {first:?}");
    for tag in OTHERS {
        assert!(tags.iter().any(|it| it == tag), "{tag} stays: {tags:?}");
    }
    let uid = stage.scene.field("namespace/kube-system", "{.metadata.uid}");
    let finders: Vec<&String> = tags.iter().filter(|it| it.starts_with("seaway.writer.")).collect();
    assert_eq!(finders, [&format!("seaway.writer.{uid}")]);
    let recorded = stage.scene.field("configmap/seaway-deletions", "{.data.heartbeats}");
    let mark = second[0][BEAT.len()..].split('.').take(2).collect::<Vec<_>>().join(".");
    assert!(recorded.contains(&mark), "{mark} is recorded before it is sent: {recorded}");
}

/// Another controller leads; its heartbeat, when it is the only one and none of these.
fn next(stage: &mut Stage, before: &[String]) -> Vec<String> {
    stage.scene.kill("controller");
    stage.lead_anew();
    let beats = |stage: &Stage| {
        let tags = carrier(stage).map_or(Vec::new(), |(_, tags)| tags);
        tags.into_iter().filter(|it| it.starts_with(BEAT)).collect::<Vec<_>>()
    };
    until("there is one heartbeat, another than before", || {
        let beats = beats(stage);
        beats.len() == 1 && beats != before
    });
    beats(stage)
}

/// The id of the port with a heartbeat, and all of its tags.
fn carrier(stage: &Stage) -> Option<(String, Vec<String>)> {
    let tags = |it: &Value| -> Vec<String> {
        let tags = it["tags"].as_array().into_iter().flatten();
        tags.filter_map(|it| it.as_str().map(str::to_owned)).collect()
    };
    let ports = stage.land.told(&["ports"]).into_values();
    let mut carriers = ports.map(|it| (it["id"].as_str().unwrap_or_default().to_owned(), tags(&it)));
    let carrier = carriers.find(|(_, tags)| tags.iter().any(|it| it.starts_with(BEAT)));
    assert!(carriers.all(|(_, tags)| tags.iter().all(|it| !it.starts_with(BEAT))), "at one port at a time");
    carrier
}
