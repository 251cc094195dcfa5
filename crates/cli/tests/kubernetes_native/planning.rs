//! `seaway plan --cloud` and `kubectl seaway`: what would be done in a cloud, and who serves what there.

use std::{fs, process::Command};

use seaway_testkit::topology::until;
use serde_json::Value;

use crate::{
    looking::Plugin,
    octavia::{Project, in_a_cloud},
    scene::*,
};

/// What is printed, what is complained of, and how it exits.
fn plan(scene: &Scene, project: &Project, more: &[&str]) -> (String, String, i32) {
    let config = tempfile::Builder::new().suffix(".yaml").tempfile().expect("a file");
    fs::write(config.path(), scene.configuration).expect("is written");
    let mut command = Command::new(SEAWAY);
    command.args(["plan", "--cloud", "--cloud-config"]).arg(project.conf.path()).args(more);
    command.arg("--kubeconfig").arg(scene.cluster.kubeconfig()).arg("--config").arg(config.path());
    let done = command.output().expect("it runs");
    let [told, noted] = [&done.stdout, &done.stderr].map(|it| String::from_utf8_lossy(it).into_owned());
    (told, noted, done.status.code().expect("it exits"))
}

fn json(scene: &Scene, project: &Project, more: &[&str]) -> (Value, i32) {
    let (told, noted, code) = plan(scene, project, &[&["-o", "json"], more].concat());
    (serde_json::from_str(&told).unwrap_or_else(|it| panic!("{it}: {told}{noted}")), code)
}

#[test]
fn a_plan_tells_what_would_be_changed_by_which_service_and_what_cannot_be() {
    let Some((mut scene, project)) = in_a_cloud() else { return };
    scene.nodes = vec![scene.cluster.node("a")];
    // The API server's own Service has no Problem.
    let (told, noted, code) = plan(&scene, &project, &[]);
    assert_eq!((told.as_str(), code), ("Nothing would be changed.\n", 0), "{noted}");
    assert!(!noted.contains("default/kubernetes"), "{noted}");

    scene.cluster.apply(&service("shop", "selector: {app: shop}"));
    scene.cluster.apply(&service("mail", "selector: {app: mail}"));
    let (all, code) = json(&scene, &project, &[]);
    assert_eq!((&all["summary"]["problems"], code), (&0.into(), 1), "{all}");
    assert_eq!(all["summary"]["kinds"]["load-balancer"]["create"], 2, "{all}");
    let (one, _) = json(&scene, &project, &["--service", "default/shop"]);
    assert_eq!(
        (&one["summary"]["objects"], &one["objects"][0]["name"]),
        (&1.into(), &"shop".into()),
        "{one}"
    );
    let (_, noted, code) = plan(&scene, &project, &["--service", "shpo"]);
    assert!(code == 2 && noted.contains("Service shpo does not exist"), "{code}: {noted}");
    let (_, code) = json(&scene, &project, &["--action", "delete"]);
    assert_eq!(code, 0);
    assert_eq!(project.fake.count("POST */lbaas/*"), 0);

    scene.lead("controller");
    scene.until_served(&["shop", "mail"]);
    let (told, noted, code) = plan(&scene, &project, &[]);
    assert_eq!((told.as_str(), code), ("Nothing would be changed.\n", 0), "{noted}");
    scene.end("controller");

    // Another limit, and another provider in the file by now, which can do less than the one that serves.
    let annotate = |what: &str| scene.cluster.kubectl(&["annotate", "service", "shop", "--overwrite", what]);
    annotate("seaway.dev/max-connections=100");
    let (told, noted, code) = plan(&scene, &project, &[]);
    assert!(told.contains("connection_limit: -1 → 100"), "{told}{noted}");
    assert_eq!(code, 1, "{noted}");
    project.reword("[LoadBalancer]\n", "[LoadBalancer]\nlb-provider=ovn\n");
    annotate("seaway.dev/balance=least-connections");
    let (told, noted, code) = plan(&scene, &project, &["-n", "default", "--service", "shop"]);
    assert!(told.contains("lb_algorithm: ROUND_ROBIN → LEAST_CONNECTIONS"), "{told}{noted}");
    assert!(
        noted.contains("requested: provider ovn") && !noted.contains("has no load balancing method"),
        "{noted}"
    );
    assert_eq!(code, 2);
    // What is not known is no change.
    project.reword("demopw", "wrong");
    let (told, noted, code) = plan(&scene, &project, &[]);
    assert!(told.is_empty() && code == 2, "{code}: {told}{noted}");
}

#[test]
fn people_are_told_that_a_cloud_serves_a_service_without_a_class() {
    let Some((mut scene, _project)) = in_a_cloud() else { return };
    scene.nodes = vec![scene.cluster.node("a")];
    scene.cluster.apply(&service("shop", "selector: {app: shop}"));
    scene.lead("controller");
    let at = scene.address("shop");
    scene.until_served(&["shop"]);
    let plugin = Plugin::new();
    let admin = scene.cluster.kubeconfig();
    until("it is told", || plugin.run(admin, "status").0.contains("All Services are served by a cloud"));
    let (status, _) = plugin.run(admin, "status");
    assert!(status.contains("default/shop") && status.contains("cloud"), "{status}");
    let told: Value = serde_json::from_str(&plugin.run(admin, "status -o json").0).expect("is JSON");
    assert_eq!(told["services"][0]["cloud"], "seaway.dev/octavia", "{told}");
    let (explained, _) = plugin.run(admin, "explain service shop");
    let given = format!("{at}  given by the cloud");
    for part in [given.as_str(), "served by a load balancer of the cloud (seaway.dev/octavia)"] {
        assert!(explained.contains(part), "no {part}: {explained}");
    }
    for part in ["Hosts:", "not served", "not of type LoadBalancer", "Problems:"] {
        assert!(!explained.contains(part), "{part}: {explained}");
    }
}
