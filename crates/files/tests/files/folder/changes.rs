//! Changes of every kind, as people and tools make them.

use std::{
    fs::{self, File},
    io::Write,
    os::unix::fs::symlink,
    sync::mpsc,
    time::Duration,
};

use seaway_model::{Fact, Kind, ObjectRef, fact::FactRef};
use seaway_testkit::stopwatch::{Stopwatch, median};

use super::scene::{Scene, service};

#[test]
fn all_there_is_is_told_before_kinds_are_synced() {
    let scene = Scene::with(&[
        ("a.yaml", &service("a", 80)),
        ("b.json", "{\"apiVersion\":\"v1\",\"kind\":\"Deployment\"}"),
    ]);
    assert_eq!(scene.world.port("a"), Some(80));
    assert!(scene.world.synced.contains(&Kind::EndpointSlice));
    assert!(scene.world.problems.is_empty());
}

#[test]
fn a_change_is_told_within_a_tenth_of_a_second_most_times() {
    let mut scene = Scene::with(&[("a.yaml", &service("a", 80))]);
    let took = (81..92).map(|port| {
        let watch = Stopwatch::of(std::process::id());
        scene.write("a.yaml", &service("a", port));
        scene.until("the port changed", |world| world.port("a") == Some(port));
        watch.elapsed()
    });
    let took: Vec<Duration> = took.collect();
    assert!(median(took.clone()) < Duration::from_millis(100), "{took:?}");
}

#[test]
fn objects_and_files_that_are_removed_are_gone() {
    let mut scene = Scene::with(&[
        ("a.yaml", &format!("{}---\n{}", service("a", 80), service("b", 80))),
        ("c.yaml", &service("c", 80)),
    ]);
    scene.write("a.yaml", &service("a", 80));
    scene.until("b is gone", |world| world.port("b").is_none());
    scene.remove("c.yaml");
    scene.until("c is gone", |world| world.port("c").is_none());
    assert_eq!(scene.world.port("a"), Some(80));
    assert_eq!(scene.world.gone.len(), 2);
}

#[test]
fn a_comment_tells_nobody_anything() {
    let mut scene = Scene::with(&[("a.yaml", &service("a", 80))]);
    let before = scene.world.service("a").expect("is there").clone();
    scene.write("a.yaml", &format!("# a comment\n{}", service("a", 80)));
    scene.settle();
    assert_eq!(scene.world.service("a"), Some(&before));
    assert!(scene.world.gone.iter().all(|it| !format!("{it:?}").contains("\"a\"")));
}

#[test]
fn a_file_that_is_being_written_is_not_looked_at() {
    let both = format!("{}---\n{}", service("a", 80), service("b", 80));
    let mut scene = Scene::with(&[("a.yaml", &both)]);
    let mut file = File::create(scene.dir.join("a.yaml")).expect("is opened");
    file.write_all(service("a", 81).as_bytes()).expect("is written");
    file.sync_all().expect("is written");
    scene.settle();
    assert_eq!((scene.world.port("a"), scene.world.port("b")), (Some(80), Some(80)));
    file.write_all(format!("---\n{}", service("b", 81)).as_bytes()).expect("is written");
    drop(file);
    scene.until("both changed", |world| world.port("a") == Some(81) && world.port("b") == Some(81));
    assert!(!scene.world.gone.iter().any(|it| *it == reference("b")), "never for a moment");
}

#[test]
fn an_emptied_file_keeps_its_objects_until_it_is_deleted() {
    let mut scene = Scene::with(&[("a.yaml", &service("a", 80))]);
    scene.write("a.yaml", "");
    scene.write("a.yaml", &service("a", 81));
    scene.until("it is filled again", |world| world.port("a") == Some(81));
    assert!(scene.world.gone.is_empty());
    scene.write("a.yaml", "");
    scene.until("it is said", |world| {
        format!("{:?}", world.problems).contains("is empty; to remove its objects")
    });
    assert_eq!(scene.world.port("a"), Some(81));
    fs::remove_file(scene.dir.join("a.yaml")).expect("is removed");
    scene.until("it is gone", |world| world.port("a").is_none());
}

#[test]
fn editors_that_replace_a_file_never_take_its_objects_away() {
    let mut scene = Scene::with(&[("a.yaml", &service("a", 80))]);
    for port in 81..=90 {
        // As vim does: a backup, a new file, the backup removed, and its probe `4913`.
        fs::write(scene.dir.join("4913"), "").expect("is written");
        fs::remove_file(scene.dir.join("4913")).expect("is removed");
        fs::write(scene.dir.join(".a.yaml.swp"), "b0VIM").expect("is written");
        fs::rename(scene.dir.join("a.yaml"), scene.dir.join("a.yaml~")).expect("is moved");
        scene.write("a.yaml", &service("a", port));
        fs::remove_file(scene.dir.join("a.yaml~")).expect("is removed");
        scene.until("the port changed", |world| world.port("a") == Some(port));
    }
    // As sed and most tools do: a new file, renamed over the old one.
    fs::write(scene.dir.join("sedXYZ"), service("a", 99)).expect("is written");
    fs::rename(scene.dir.join("sedXYZ"), scene.dir.join("a.yaml")).expect("is moved");
    scene.until("the port changed", |world| world.port("a") == Some(99));
    assert!(scene.world.gone.is_empty(), "{:?}", scene.world.gone);
    assert!(scene.world.problems.is_empty());
}

#[test]
fn the_link_swap_of_a_mounted_configmap_is_followed() {
    let root = tempfile::tempdir().expect("a folder");
    let dir = root.path().join("manifests");
    fs::create_dir_all(dir.join("..1")).expect("is made");
    fs::write(dir.join("..1/a.yaml"), service("a", 80)).expect("is written");
    symlink("..1", dir.join("..data")).expect("is linked");
    symlink("..data/a.yaml", dir.join("a.yaml")).expect("is linked");
    let mut scene = Scene::of(root, dir.clone());
    assert_eq!(scene.world.port("a"), Some(80));
    fs::create_dir(dir.join("..2")).expect("is made");
    fs::write(dir.join("..2/a.yaml"), service("a", 81)).expect("is written");
    fs::write(dir.join("..2/b.yaml"), service("b", 80)).expect("is written");
    symlink("..2", dir.join("..data_tmp")).expect("is linked");
    fs::rename(dir.join("..data_tmp"), dir.join("..data")).expect("is swapped");
    symlink("..data/b.yaml", dir.join("b.yaml")).expect("is linked");
    fs::remove_dir_all(dir.join("..1")).expect("is removed");
    scene.until("both are told", |world| world.port("a") == Some(81) && world.port("b") == Some(80));
    assert!(scene.world.gone.is_empty());
}

#[test]
fn what_a_link_leads_to_is_watched_where_it_is() {
    let root = tempfile::tempdir().expect("a folder");
    let (dir, other) = (root.path().join("manifests"), root.path().join("other"));
    fs::create_dir(&dir).expect("is made");
    fs::create_dir(&other).expect("is made");
    fs::write(other.join("x"), service("a", 80)).expect("is written");
    symlink(other.join("x"), dir.join("a.yaml")).expect("is linked");
    let mut scene = Scene::of(root, dir);
    fs::write(other.join("x"), service("a", 81)).expect("is written");
    scene.until("the port changed", |world| world.port("a") == Some(81));
}

#[test]
fn subfolders_are_read_and_watched_as_they_come_and_go() {
    let mut scene = Scene::with(&[]);
    let team = scene.dir.join("team/deep");
    fs::create_dir_all(&team).expect("is made");
    fs::write(team.join("a.yaml"), service("a", 80)).expect("is written");
    scene.until("it is found", |world| world.port("a") == Some(80));
    fs::write(team.join("a.yaml"), service("a", 81)).expect("is written");
    scene.until("it changed", |world| world.port("a") == Some(81));
    fs::create_dir(scene.dir.join(".git")).expect("is made");
    fs::write(scene.dir.join(".git/b.yaml"), service("b", 80)).expect("is written");
    fs::remove_dir_all(scene.dir.join("team")).expect("is removed");
    scene.until("it is gone", |world| world.port("a").is_none());
    scene.settle();
    assert_eq!(scene.world.port("b"), None);
}

#[test]
fn a_folder_that_is_away_goes_on_serving_until_it_is_back() {
    let mut scene = Scene::with(&[("a.yaml", &service("a", 80)), ("b.yaml", &service("b", 80))]);
    fs::remove_dir_all(&scene.dir).expect("is removed");
    let told = format!("{}: Manifest {0}: the folder cannot be read", scene.dir.display());
    let dir = scene.dir.clone();
    scene.until("its absence is told", |world| world.told(&dir).iter().any(|it| it.starts_with(&told)));
    // Removing it took its files first; whatever was seen of that, nothing goes once the folder itself is away.
    let left = [scene.world.port("a").is_some(), scene.world.port("b").is_some()];
    fs::create_dir(&scene.dir).expect("is made");
    scene.until("its return is told", |world| world.problems.is_empty());
    assert_eq!([scene.world.port("a").is_some(), scene.world.port("b").is_some()], left);
    scene.write("a.yaml", &service("a", 81));
    scene.until("it is watched again", |world| world.port("a") == Some(81));
    scene.until("b did not come back with it", |world| world.port("b").is_none());
}

#[test]
fn a_folder_moved_away_and_back_loses_nothing() {
    let mut scene = Scene::with(&[("a.yaml", &service("a", 80))]);
    let aside = scene.root.path().join("aside");
    for round in 0_u16..3 {
        fs::rename(&scene.dir, &aside).expect("is moved");
        scene.until("its absence is told", |world| !world.problems.is_empty());
        fs::rename(&aside, &scene.dir).expect("is moved");
        scene.until("its return is told", |world| world.problems.is_empty());
        scene.write("a.yaml", &service("a", 81 + round));
        scene.until("it is watched again", |world| world.port("a") == Some(81 + round));
    }
    assert!(scene.world.gone.is_empty());
}

#[test]
fn a_folder_that_is_a_link_may_be_swapped() {
    let root = tempfile::tempdir().expect("a folder");
    for (name, port) in [("r1", 80), ("r2", 81)] {
        fs::create_dir(root.path().join(name)).expect("is made");
        fs::write(root.path().join(name).join("a.yaml"), service("a", port)).expect("is written");
    }
    let dir = root.path().join("current");
    symlink("r1", &dir).expect("is linked");
    let mut scene = Scene::of(root, dir.clone());
    symlink("r2", scene.root.path().join("next")).expect("is linked");
    fs::rename(scene.root.path().join("next"), &dir).expect("is swapped");
    scene.until("the port changed", |world| world.port("a") == Some(81));
    fs::write(dir.join("a.yaml"), service("a", 82)).expect("is written");
    scene.until("the new one is watched", |world| world.port("a") == Some(82));
    assert!(scene.world.gone.is_empty());
}

#[test]
fn more_changes_than_the_kernel_remembers_lose_nothing() {
    let root = tempfile::tempdir().expect("a folder");
    let dir = root.path().join("manifests");
    fs::create_dir(&dir).expect("is made");
    let (go, wait) = mpsc::channel::<()>();
    let mut scene = Scene::watched_by(root, dir, move |changes, sender| {
        let _ = sender.send(changes);
        // Until the test lets go; then never again.
        let _ = wait.recv();
    });
    scene.write("a.yaml", &service("a", 80));
    scene.until("it is told, and the watcher is held up", |world| world.port("a") == Some(80));
    let queue = fs::read_to_string("/proc/sys/fs/inotify/max_queued_events").expect("is told");
    let queue: usize = queue.trim().parse().expect("a number");
    for _ in 0..queue / 4 + 10 {
        scene.write("x.yaml", "# x\n");
        scene.write("y.yaml", "# y\n");
    }
    scene.write("a.yaml", &service("a", 81));
    scene.write("b.yaml", &service("b", 80));
    drop(go);
    scene.until("all is told", |world| world.port("a") == Some(81) && world.port("b") == Some(80));
}

#[test]
fn namespaces_exist_as_long_as_something_is_in_them() {
    let mut scene = Scene::with(&[("a.yaml", &service("a\n  namespace: shop", 80))]);
    assert!(scene.world.has_namespace("default") && scene.world.has_namespace("shop"));
    let labelled = "apiVersion: v1\nkind: Namespace\nmetadata: {name: shop, labels: {team: red}}\n";
    scene.write("ns.yaml", labelled);
    let labels = |world: &super::scene::World| match world.facts.get(&FactRef::Object(ObjectRef::new(
        Kind::Namespace,
        "",
        "shop",
    ))) {
        Some(Fact::Namespace(it)) => it.labels.len(),
        _ => 0,
    };
    scene.until("its labels are told", |world| labels(world) == 2);
    scene.remove("ns.yaml");
    scene.until("its labels are gone", |world| labels(world) == 1);
    scene.remove("a.yaml");
    scene.until("it is gone", |world| !world.has_namespace("shop"));
    assert!(scene.world.has_namespace("default"));
}

#[test]
fn endpoints_give_way_to_slices() {
    let endpoints = "apiVersion: v1\nkind: Endpoints\nmetadata: {name: a}\nsubsets: [{addresses: [{ip: 127.0.0.1}], ports: [{port: 80}]}]\n";
    let slice = "apiVersion: discovery.k8s.io/v1\nkind: EndpointSlice\nmetadata: {name: a-1, labels: {kubernetes.io/service-name: a}}\n\
                 addressType: IPv4\nports: [{port: 81}]\nendpoints: [{addresses: [127.0.0.1]}]\n";
    let ports = |world: &super::scene::World| {
        let ports = world.facts.values().filter_map(|fact| match fact {
            Fact::Endpoints(it) => it.ports[0].port,
            _ => None,
        });
        ports.collect::<Vec<_>>()
    };
    let mut scene = Scene::with(&[("e.yaml", endpoints)]);
    assert_eq!(ports(&scene.world), [80]);
    scene.write("s.yaml", slice);
    scene.until("the slice is told alone", |world| ports(world) == [81]);
    scene.remove("s.yaml");
    scene.until("the endpoints are back", |world| ports(world) == [80]);
}

fn reference(name: &str) -> FactRef {
    FactRef::Object(ObjectRef::new(Kind::Service, "default", name))
}
