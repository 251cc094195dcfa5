//! What was good is known after a restart.

use std::{fs, os::unix::fs::PermissionsExt};

use seaway_model::{Fact, Kind, ObjectRef, Reason, fact::FactRef};

use super::scene::{Scene, World, service};

const SECRET: &str = "apiVersion: v1\nkind: Secret\nmetadata: {name: s}\nstringData: {password: hunter2}\n";

#[test]
fn the_last_good_state_outlives_a_restart_while_its_document_is_broken() {
    let scene = Scene::with(&[
        ("s.yaml", &format!("{}---\n{}", service("a", 80), service("b", 80))),
        ("t.yaml", &service("c", 80)),
    ]);
    let mut scene = scene.restart();
    scene.write(
        "s.yaml",
        &format!("{}---\n{}", service("a", 80).replace("spec:", "spec: ["), service("b", 81)),
    );
    scene.remove("t.yaml");
    scene.until("it is told", |world| world.port("b") == Some(81) && world.port("c").is_none());
    for _ in 0..2 {
        // Twice: what is only kept is kept on.
        scene = scene.restart();
        assert_eq!(
            (scene.world.port("a"), scene.world.port("b"), scene.world.port("c")),
            (Some(80), Some(81), None)
        );
        assert_eq!(scene.world.problems.len(), 1);
    }
    scene.write("s.yaml", &service("b", 81));
    scene.until("it is gone", |world| world.port("a").is_none());
    let scene = scene.restart();
    assert_eq!(scene.world.port("a"), None);
}

#[test]
fn a_typo_right_after_the_good_state_was_read_loses_nothing() {
    let mut scene = Scene::with(&[("a.yaml", &service("a", 80))]);
    scene.write("a.yaml", &service("a", 80).replace("spec:", "spec: ["));
    scene.until("it is told", |world| !world.problems.is_empty());
    assert_eq!(scene.restart().world.port("a"), Some(80));
}

#[test]
fn an_unreadable_file_is_known_from_before_the_restart() {
    let scene = Scene::with(&[("a.yaml", &service("a", 80))]);
    let (dir, scene) = (scene.dir.clone(), scene.restart());
    let rubbish = dir.join("a.yaml");
    drop_watch_then(scene, |scene| {
        fs::write(&rubbish, b"\xff").expect("is written");
        assert_eq!(scene.restart().world.port("a"), Some(80));
    });
}

#[test]
fn what_was_kept_of_a_file_that_is_no_more_is_forgotten() {
    let scene = Scene::with(&[("a.yaml", &service("a", 80)), ("b.yaml", &service("b", 80))]);
    let (dir, shelf) = (scene.dir.clone(), scene.state().join("last-good"));
    let scene = scene.restart();
    drop_watch_then(scene, |scene| {
        fs::remove_file(dir.join("b.yaml")).expect("is removed");
        let stray = shelf.join("stray.tmp");
        fs::write(&stray, "half of something").expect("is written");
        // The second restart waits for what the first had still to write.
        let scene = scene.restart().restart();
        assert_eq!(scene.world.port("a"), Some(80));
        assert_eq!(fs::read_dir(&shelf).expect("is read").count(), 1);
        assert!(!stray.exists());
    });
}

#[test]
fn secrets_are_kept_in_memory_only() {
    let scene = Scene::with(&[("a.yaml", &format!("{}---\n{SECRET}", service("a", 80)))]);
    let mut scene = scene.restart();
    scene.write("a.yaml", "x: [\n");
    scene.until("it is told", |world| !world.problems.is_empty());
    let scene = scene.restart();
    let has_secret = |world: &World| {
        let secret = world.facts.get(&FactRef::Object(ObjectRef::new(Kind::Secret, "default", "s")));
        matches!(secret, Some(Fact::Secret(_)))
    };
    assert!(has_secret(&scene.world) && scene.world.port("a") == Some(80));
    let kept = |folder: &str| -> Vec<(String, u32)> {
        let mut found = Vec::new();
        let mut waiting = vec![scene.root.path().join(folder)];
        while let Some(path) = waiting.pop() {
            let mode = fs::metadata(&path).expect("is there").permissions().mode() & 0o777;
            if path.is_dir() {
                waiting.extend(
                    fs::read_dir(&path).expect("is read").filter_map(Result::ok).map(|entry| entry.path()),
                );
            } else {
                found.push((fs::read_to_string(&path).expect("is read"), mode));
            }
        }
        found
    };
    let (plain, secret) = (kept("state"), kept("run"));
    assert!(
        !plain.is_empty() && plain.iter().all(|(text, mode)| !text.contains("hunter2") && *mode == 0o600)
    );
    assert!(secret.iter().any(|(text, mode)| text.contains("hunter2") && *mode == 0o600));
}

#[test]
fn a_state_folder_that_cannot_be_written_is_told_and_all_goes_on() {
    let scene = Scene::with(&[]);
    fs::write(scene.state().join("last-good"), "in the way").expect("is written");
    let mut scene = scene.restart();
    scene.write("a.yaml", &service("a", 80));
    let unwritable =
        |world: &World| world.problems.values().flatten().any(|it| it.reason == Reason::StateUnwritable);
    scene.until("it is told", |world| unwritable(world) && world.port("a") == Some(80));
    fs::remove_file(scene.state().join("last-good")).expect("is removed");
    scene.until("it is mended by itself", |world| !unwritable(world));
    scene.write("a.yaml", "x: [\n");
    assert_eq!(
        scene.restart().world.port("a"),
        Some(80),
        "what could not be written at first was not forgotten"
    );
}

fn drop_watch_then(scene: Scene, then: impl FnOnce(Scene)) {
    then(scene);
}
