//! Two controllers, of which one leads, however they are treated.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::atomic::{AtomicBool, Ordering},
    thread,
};

use seaway_testkit::{
    kubernetes::Cluster,
    topology::{until, until_within},
};

use crate::scene::{A_TERM, Scene, service};

/// Whose each address is, as the cluster says it at this moment.
fn owners(cluster: &Cluster) -> BTreeMap<String, Vec<String>> {
    let path = "jsonpath={range .items[*]}{.metadata.name} {.spec.owners[*].name}{\"\\n\"}{end}";
    let listed = cluster.try_kubectl(&["get", "addresses", "-o", path], "").unwrap_or_default();
    let line = |line: &str| {
        let mut words = line.split_whitespace().map(str::to_owned);
        Some((words.next()?, words.collect()))
    };
    listed.lines().filter_map(line).collect()
}

/// Looks again and again, until it is told to end; what was wrong at any moment.
fn watch(cluster: &Cluster, ended: &AtomicBool) -> Vec<String> {
    let (mut wrong, mut known) = (Vec::new(), BTreeMap::new());
    while !ended.load(Ordering::Relaxed) {
        for (address, owners) in owners(cluster) {
            if owners.len() > 1 {
                wrong.push(format!("{address} has several owners: {owners:?}"));
            }
            let before = known.entry(address.clone()).or_insert_with(|| owners.clone());
            if *before != owners {
                wrong.push(format!("{address} was {before:?}'s and is {owners:?}'s"));
            }
        }
    }
    wrong
}

/// Services of these names, all at once.
fn create(scene: &Scene, names: &[&str]) {
    let all: Vec<String> = names.iter().map(|name| service(name, "selector: {app: shop}")).collect();
    scene.cluster.apply(&all.join("---"));
}

fn all_have_one(scene: &Scene, names: &[&str]) -> bool {
    let owners = owners(&scene.cluster);
    let owning: BTreeSet<&str> = owners.values().flatten().map(String::as_str).collect();
    names.iter().all(|name| owning.contains(name))
}

#[test]
fn two_controllers_never_give_one_address_to_two() {
    let Some(mut scene) = Scene::up(1) else { return };
    until("one leads", || scene.leader().starts_with("controller_"));
    scene.lead("second");
    let ended = AtomicBool::new(false);
    let cluster = scene.cluster.clone();
    let wrong = thread::scope(|scope| {
        let watcher = scope.spawn(|| watch(&cluster, &ended));
        // Whatever fails in here, the watcher is told to end.
        let end = End(&ended);
        create(&scene, &["a1", "a2", "a3"]);
        scene.pause("controller");
        create(&scene, &["b1", "b2", "b3"]);
        until_within(A_TERM, "the second leads", || scene.leader().starts_with("second_"));
        until("they have addresses", || all_have_one(&scene, &["a1", "a2", "a3", "b1", "b2", "b3"]));
        // It wakes up in the belief that it leads, with work at hand.
        scene.resume("controller");
        create(&scene, &["c1", "c2", "c3"]);
        until("they have addresses, too", || all_have_one(&scene, &["c1", "c2", "c3"]));
        scene.kill("second");
        create(&scene, &["d1", "d2", "d3"]);
        until_within(A_TERM, "the first leads again", || all_have_one(&scene, &["d1", "d2", "d3"]));
        assert!(scene.leader().starts_with("controller_"));
        drop(end);
        watcher.join().expect("who looks does not panic")
    });
    assert!(wrong.is_empty(), "{wrong:#?}");
    let owners = owners(&scene.cluster);
    assert_eq!(owners.len(), 12, "nobody has two: {owners:?}");
    let told: BTreeSet<String> = owners.values().flatten().map(|name| scene.address(name)).collect();
    assert_eq!(told.len(), 12, "every Service is told its own: {told:?}");
}

struct End<'e>(&'e AtomicBool);

impl Drop for End<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}
