//! What is wrong is told with its place, and takes nothing from service.

use std::{fs, os::unix::fs::symlink};

use seaway_files::{Folder, FolderError, read_folder};
use seaway_model::Reason;

use super::scene::{Scene, service};

#[test]
fn a_document_that_does_not_parse_keeps_its_last_good_state_and_spoils_no_other() {
    let both = format!("{}---\n{}", service("a", 80), service("b", 80));
    let mut scene = Scene::with(&[("s.yaml", &both)]);
    let broken = format!("{}---\n{}", service("a", 80).replace("spec:", "spec: ["), service("b", 81));
    scene.write("s.yaml", &broken);
    scene.until("the good one changed", |world| world.port("b") == Some(81));
    assert_eq!(scene.world.port("a"), Some(80));
    let told = scene.world.told(&scene.dir);
    assert_eq!(told.len(), 1, "{told:?}");
    assert!(told[0].starts_with("s.yaml:7:3: Manifest s.yaml: "), "{told:?}");
    let fix = &scene.world.problems.values().next().expect("one")[0].fix;
    assert!(fix.contains("Service default/a"), "{fix}");

    scene.write("s.yaml", &format!("{}---\n{}", service("a", 82), service("b", 81)));
    scene.until("it is mended", |world| world.port("a") == Some(82) && world.problems.is_empty());
    assert!(scene.world.gone.is_empty());
}

#[test]
fn what_was_kept_goes_once_the_file_is_whole_without_it() {
    let mut scene = Scene::with(&[("s.yaml", &service("a", 80))]);
    scene.write("s.yaml", "spec: [\n");
    scene.until("it is told", |world| !world.problems.is_empty());
    assert_eq!(scene.world.port("a"), Some(80));
    scene.write("s.yaml", &service("b", 80));
    scene.until("a is gone", |world| world.port("b") == Some(80) && world.port("a").is_none());
    assert!(scene.world.problems.is_empty());
}

#[test]
fn a_setting_that_protects_and_is_misspelt_keeps_what_protected_before_and_closes_what_was_open() {
    let ranges = "  loadBalancerSourceRanges: [10.0.0.0/8]\n";
    let typo = ranges.replace("Ranges", "Range");
    let open = service("a", 80).replace("spec:\n", "spec:\n  type: LoadBalancer\n");
    let with = |field: &str| open.replace("spec:\n", &format!("spec:\n{field}"));
    for (before, again) in [(with(ranges), false), (open.clone(), true)] {
        let mut scene = Scene::with(&[("s.yaml", &before)]);
        for port in [81, 82] {
            scene.write("s.yaml", &with(&typo).replace("port: 80", &format!("port: {port}")));
            let closes = |world: &super::scene::World| world.port("a") == Some(port);
            scene.until("it is told", |world| !world.problems.is_empty() && (!again || closes(world)));
            let it = scene.world.service("a").expect("it is there");
            let expected = if again { (port, true, 0) } else { (80, false, 1) };
            assert_eq!((it.ports[0].port, it.unclear_sources, it.source_ranges.len()), expected, "{before}");
            let problems: Vec<_> = scene.world.problems.values().flatten().collect();
            assert_eq!(problems.len(), 1, "{problems:?}");
            let keeps = problems[0].fix.contains("Its last good state stays in use");
            let is_closed = problems[0].message.contains("nothing of this object is served");
            assert_eq!((keeps, is_closed), (!again, again), "{problems:?}");
        }
        let mut scene = scene.restart();
        let it = scene.world.service("a").expect("it is there");
        assert!(it.unclear_sources || it.source_ranges.len() == 1, "{it:?}");
        scene.write("s.yaml", &with(ranges).replace("port: 80", "port: 83"));
        scene.until("it is mended", |world| world.port("a") == Some(83) && world.problems.is_empty());
        assert!(!scene.world.service("a").expect("it is there").unclear_sources);
    }
}

#[test]
fn a_protected_service_whose_place_is_not_understood_keeps_its_last_good_state() {
    let admin = |annotations: &str, port: u16| {
        let named = format!("  name: admin\n  annotations: {{{annotations}}}\n");
        service("admin", port).replace("  name: admin\n", &named)
    };
    let (host, ranges) = ("seaway.dev/host: shop.example/admin", ", seaway.dev/source-ranges: 10.0.0.0/8");
    let stays = "The last good state of the object stays in use until this is corrected.";
    for typo in [
        "seaway.dev/host: 'http://shop.example/admin'",
        "seaway.dev/host: shop.example /admin",
        "seaway.dev/host: 'shop.example/admin/*'",
        "seaway.dev/hosts: shop.example/admin",
        "seaway.dev/path: admin",
        "seaway.dev/path: shop.example/admin",
        "seaway.dev/host: shop.example/admin, seaway.dev/front-door: maybe",
    ] {
        let mut scene = Scene::with(&[("s.yaml", &admin(&format!("{host}{ranges}"), 80))]);
        let wrong = format!("{typo}{ranges}");
        for port in [81, 82] {
            scene.write("s.yaml", &admin(&wrong, port));
            scene.settle();
            assert_eq!(scene.world.port("admin"), Some(80), "{typo}");
            let problems: Vec<_> = scene.world.problems.values().flatten().collect();
            assert_eq!(problems.len(), 1, "{typo}: {problems:?}");
            assert!(
                problems[0].fix.contains(stays) && problems[0].to_string().contains("s.yaml:5:"),
                "{problems:?}"
            );
        }
        let mut scene = scene.restart();
        assert_eq!((scene.world.port("admin"), scene.world.problems.len()), (Some(80), 1), "{typo}");
        scene.write("s.yaml", &admin(&format!("{host}{ranges}"), 83));
        scene.until("it is mended", |world| world.port("admin") == Some(83) && world.problems.is_empty());
        // Who plans from it as it is written names what is wrong: it has no last good state, or none that protects.
        let first = Scene::with(&[("s.yaml", &admin(&wrong, 81))]);
        assert_eq!((first.world.port("admin"), first.world.problems.len()), (Some(81), 0), "{typo}");
        for (before, now) in [(host.to_owned(), &wrong), (format!("{host}{ranges}"), &typo.to_owned())] {
            let mut scene = Scene::with(&[("s.yaml", &admin(&before, 80))]);
            scene.write("s.yaml", &admin(now, 81));
            scene.until("it is as it is written", |world| world.port("admin") == Some(81));
            assert!(scene.world.problems.is_empty(), "{:?}", scene.world.problems);
        }
    }
}

#[test]
fn an_object_that_is_refused_keeps_its_last_good_state() {
    let mut scene = Scene::with(&[("s.yaml", &service("a", 80))]);
    scene.write("s.yaml", &format!("# moved\n{}", service("a", 80).replace("port: 80", "port: 70000")));
    scene.until("it is told", |world| !world.problems.is_empty());
    assert_eq!(
        scene.world.told(&scene.dir),
        [
            "s.yaml:8:5: Service default/a: spec.ports[0].port: Invalid value: 70000: must be between 1 and 65535, inclusive"
        ]
    );
    assert_eq!(scene.world.port("a"), Some(80));
    // A typo in its name makes it no other object.
    scene.write("s.yaml", &service("a_", 81));
    scene.until("it is told", |world| {
        world.told(&std::path::PathBuf::new()).iter().any(|it| it.contains("metadata.name"))
    });
    assert_eq!(scene.world.port("a"), Some(80));
    scene.remove("s.yaml");
    scene.until("it is gone with its file", |world| world.port("a").is_none() && world.problems.is_empty());
}

#[test]
fn a_file_that_cannot_be_read_keeps_what_it_said() {
    let mut scene = Scene::with(&[("a.yaml", &service("a", 80)), ("b.yaml", &service("b", 80))]);
    fs::write(scene.dir.join("a.yaml"), b"a: 1\nb: \xff\n").expect("is written");
    fs::remove_file(scene.dir.join("b.yaml")).expect("is removed");
    symlink("nowhere", scene.dir.join("b.yaml")).expect("is linked");
    scene.until("both are told", |world| world.problems.len() == 2);
    let told = scene.world.told(&scene.dir);
    assert_eq!(told[0], "a.yaml: Manifest a.yaml: cannot be read: not UTF-8 in line 2");
    assert!(told[1].starts_with("b.yaml: Manifest b.yaml: cannot be read: No such file"), "{told:?}");
    assert_eq!((scene.world.port("a"), scene.world.port("b")), (Some(80), Some(80)));
    scene.write("a.yaml", &service("a", 81));
    scene.until("it is mended", |world| world.port("a") == Some(81) && world.problems.len() == 1);
}

#[test]
fn the_same_object_in_two_files_names_both_and_the_served_one_goes_on() {
    let mut scene = Scene::with(&[("m.yaml", &service("a", 80))]);
    scene.write("b.yaml", &format!("# first by name\n{}", service("a", 81)));
    scene.until("it is told", |world| !world.problems.is_empty());
    assert_eq!(scene.world.port("a"), Some(80), "the one that is served goes on");
    assert_eq!(
        scene.world.told(&scene.dir),
        [
            "b.yaml:2:1: Service default/a: the same object is written twice: m.yaml:1 and b.yaml:2; the one in m.yaml:1 is served"
        ]
    );
    scene.write("b.yaml", &format!("# first by name\n# moved\n{}", service("a", 81)));
    scene.until("its place follows", |world| {
        world.told(&std::path::PathBuf::new())[0].contains("b.yaml:3:1:")
    });
    scene.remove("m.yaml");
    scene.until("the other one takes over", |world| world.port("a") == Some(81) && world.problems.is_empty());
    assert!(scene.world.gone.is_empty());
}

#[test]
fn a_start_without_the_folder_names_it() {
    let root = tempfile::tempdir().expect("a folder");
    let missing = root.path().join("missing");
    let Err(error) = Folder::open(&missing, None) else { panic!("there is no folder") };
    assert!(error.to_string().ends_with("missing"), "{error}");
    assert!(matches!(error, FolderError::Unreadable { .. }));
}

#[test]
fn reading_a_folder_once_tells_all_that_is_wrong_in_the_order_of_files_and_lines() {
    let root = tempfile::tempdir().expect("a folder");
    let bad = service("a", 80).replace("port: 80", "port: 0");
    fs::write(root.path().join("b.yaml"), format!("{bad}---\nx: [\n")).expect("is written");
    fs::write(root.path().join("a.yaml"), bad.replace("name: a", "name: z")).expect("is written");
    let (_, changes, problems) = read_folder(root.path()).expect("is read");
    let places: Vec<_> = problems.iter().map(|it| it.place.as_ref().expect("a place").line).collect();
    assert_eq!(places[..2], [7, 7]);
    assert_eq!(problems.len(), 3);
    assert_eq!(problems[2].reason, Reason::Unreadable);
    assert!(!changes.is_empty());
}

#[test]
fn a_link_back_to_the_top_shows_nothing_twice() {
    let mut scene = Scene::with(&[("a.yaml", &service("a", 80))]);
    symlink(".", scene.dir.join("circle")).expect("a link");
    scene.settle();
    assert!(scene.world.problems.is_empty(), "{:?}", scene.world.problems);
}
