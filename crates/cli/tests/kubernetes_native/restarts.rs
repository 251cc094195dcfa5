//! What is killed and started anew, and what goes on meanwhile.

use std::collections::BTreeMap;

use seaway_testkit::topology::{until, until_within};

use crate::{
    load::Load,
    scene::{A_TERM, Scene, deployment, service},
};

/// Of each object its version.
fn versions(scene: &Scene, kind: &str) -> BTreeMap<String, String> {
    let path = "jsonpath={range .items[*]}{.metadata.name} {.metadata.resourceVersion}{\"\\n\"}{end}";
    let listed = scene.cluster.kubectl(&["get", kind, "-o", path]);
    let pairs = listed.lines().filter_map(|line| line.split_once(' '));
    pairs.map(|(name, version)| (name.to_owned(), version.to_owned())).collect()
}

#[test]
fn a_controller_that_starts_anew_writes_nothing_and_nobody_notices_a_dead_api_server() {
    let Some(mut scene) = Scene::up(1) else { return };
    scene.cluster.apply(&deployment("shop", 2));
    for name in ["shop", "second", "third"] {
        scene.cluster.apply(&service(name, "selector: {app: shop}, ipFamilyPolicy: PreferDualStack"));
    }
    let at = scene.answering("shop");
    let told = |name: &str, path: &str| {
        let path = format!("{{.status.{path}}}");
        scene
            .field(&format!("service/{name}"), &path)
            .split_whitespace()
            .map(str::to_owned)
            .collect::<Vec<_>>()
    };
    for name in ["shop", "second", "third"] {
        until("it has both families", || told(name, "loadBalancer.ingress[*].ip").len() == 2);
    }
    let load = Load::start(&scene.outside, at, 50);

    scene.cluster.kill_api();
    load.goes_on("it is served without an API server", 100);
    scene.cluster.start_api();
    scene.cluster.apply(&service("later", "selector: {app: shop}"));
    let later = scene.address("later");
    until("what came later is served", || scene.outside.curl(&format!("http://{later}/")).is_ok());

    // Whoever starts anew does what was left undone.
    for name in ["shop", "second", "third", "later"] {
        until("all is told of it", || told(name, "conditions[*].reason") == ["Served", "NotAnnounced"]);
    }
    scene.kill("controller");
    let before = ["services", "addresses"].map(|kind| versions(&scene, kind));
    assert_eq!(before[1].len(), 7, "{before:?}");
    scene.lead("heir");
    until_within(A_TERM, "the heir leads", || scene.leader().starts_with("heir_"));
    // What it does for others tells that it is through with these.
    scene.cluster.apply(&service("last", "selector: {app: shop}"));
    scene.address("last");
    let after = ["services", "addresses"].map(|kind| versions(&scene, kind));
    for (before, after) in before.iter().zip(&after) {
        let unchanged: BTreeMap<_, _> = after
            .iter()
            .filter(|(name, _)| before.contains_key(*name))
            .map(|(a, b)| (a.clone(), b.clone()))
            .collect();
        assert_eq!(&unchanged, before, "nothing is written anew");
    }
    load.goes_on("it is still served", 20);
    let heard = load.end();
    heard.was_always_answered();
}
