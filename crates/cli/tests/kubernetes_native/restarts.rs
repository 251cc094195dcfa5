//! What is killed and started anew, and what goes on meanwhile.

use std::collections::{BTreeMap, BTreeSet};

use seaway_testkit::{
    kubernetes::Gate,
    topology::{until, until_within},
    traffic::{Clients, Kind, Target},
};

use crate::scene::{A_TERM, CONTROLLER, Scene, deployment, service};

/// Each on a new connection.
const RATE: u32 = 500;
/// Of these a controller that starts writes none that is there.
const KINDS: [&str; 5] = ["services", "addresses", "events", "loadbalancerhostslices", "addresspools"];

/// Of each object its version; of events only ours: Kubernetes' own controllers write some of Services, too.
fn versions(scene: &Scene, kind: &str) -> BTreeMap<String, String> {
    let which = match kind {
        "events" => "?(@.reportingComponent==\"seaway.dev/controller\")",
        _ => "*",
    };
    let path = format!(
        "jsonpath={{range .items[{which}]}}{{.metadata.name}} {{.metadata.resourceVersion}}{{\"\\n\"}}{{end}}"
    );
    let listed = scene.cluster.kubectl(&["get", kind, "-o", &path]);
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
    let clients = scene.outside.run(Clients::here);
    let load = clients.load(vec![Target::new("shop", Kind::Http, at).times(RATE)]);

    scene.cluster.kill_api();
    load.goes_on(2 * RATE as usize);
    scene.cluster.start_api();
    scene.cluster.apply(&service("later", "selector: {app: shop}"));
    let later = scene.address("later");
    until("what came later is served", || scene.outside.curl(&format!("http://{later}/")).is_ok());

    // Whoever starts anew does what was left undone.
    for name in ["shop", "second", "third", "later"] {
        until("all is told of it", || told(name, "conditions[*].reason") == ["Served", "NotAnnounced"]);
    }
    until("the host is in a slice, which the first one lists", || {
        versions(&scene, "loadbalancerhostslices").len() == 2
    });
    // Who is killed before that leaves it to the heir.
    let words = |object: &str, path: &str| {
        let all = scene.field(object, path);
        all.split_whitespace().map(str::to_owned).collect::<BTreeSet<_>>()
    };
    until("the slices have the addresses that the host has", || {
        let its = words("loadbalancerhosts", "{.items[*].status.addresses[*]}");
        !its.is_empty() && its == words("loadbalancerhostslices", "{.items[*].spec.hosts[*].addresses[*]}")
    });
    scene.kill("controller");
    // A write that was on its way when it was killed may still come to the API server.
    let mut before = KINDS.map(|kind| versions(&scene, kind));
    until("nothing is written any more", || {
        let now = KINDS.map(|kind| versions(&scene, kind));
        std::mem::replace(&mut before, now.clone()) == now
    });
    assert_eq!(before[1].len(), 7, "{before:?}");
    assert!(before[2].len() >= 4 && !before[4].is_empty(), "events and pools: {before:?}");
    let gate = Gate::here(&scene.cluster.kubeconfig_of(CONTROLLER, &[]));
    scene.lead_as("heir", gate.kubeconfig(), "default");
    until_within(A_TERM, "the heir leads", || scene.leader().starts_with("heir_"));
    // What it does for others tells that it is through with these.
    scene.cluster.apply(&service("last", "selector: {app: shop}"));
    let last = scene.address("last");
    let after = KINDS.map(|kind| versions(&scene, kind));
    assert_eq!(after[1].len(), 8, "{after:?}");
    // A pool is told once more how many of it are taken; all else is of the last.
    let (after, pools) = (&after[..4], &after[4]);
    assert!(pools.keys().eq(before[4].keys()), "{pools:?}");
    let theirs = |path: &str| {
        let of_last = ["/services/last", &last.replace(['.', ':'], "-")].iter().any(|it| path.contains(it));
        !of_last
            && !["/addresses", "/events", "/addresspools/public/status"].iter().any(|it| path.ends_with(it))
    };
    let writes: Vec<_> = gate.writes().into_iter().filter(|(_, path)| theirs(path)).collect();
    assert!(writes.is_empty(), "it writes for no other: {writes:?}");
    let new = after[2].keys().filter(|name| !before[2].contains_key(*name));
    let of_others: Vec<_> = new.filter(|name| !name.starts_with("last")).collect();
    assert!(of_others.is_empty(), "it tells of others again: {of_others:?}");
    for (before, after) in before.iter().zip(after) {
        let unchanged: BTreeMap<_, _> = after
            .iter()
            .filter(|(name, _)| before.contains_key(*name))
            .map(|(a, b)| (a.clone(), b.clone()))
            .collect();
        assert_eq!(&unchanged, before, "nothing is written anew");
    }
    load.goes_on(2 * RATE as usize);
    let heard = load.end();
    eprintln!("{heard}");
    heard.was_always_answered();
}
