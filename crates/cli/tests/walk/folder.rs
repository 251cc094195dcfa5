//! The folder: mistakes, half-written files, links that are swapped.

use std::os::unix::fs::symlink;

use crate::{
    backends::{Backend, Talk, manifest},
    harness::{Setup, until},
};

#[test]
fn a_typo_is_told_with_its_place_while_the_last_good_state_goes_on_also_after_a_restart() {
    let backend = Backend::start("a");
    let good = manifest("shop", 8080, &[], &[backend.at]);
    let setup = Setup::new().write("shop.yaml", &good);
    let (folder, ip) = (setup.folder.clone(), setup.ip);
    let seaway = setup.start();
    folder.write("shop.yaml", &good.replace("kind: Service", "kind: Service\n  oops: [1"));
    until("the typo is told", || {
        seaway.problems().iter().any(|it| it.0 == "Unreadable" && it.2.contains("shop.yaml:"))
    });
    assert_eq!(Talk::open(seaway.at(8080)).expect("still served").with, "a");
    assert!(seaway.stop().success());

    let again = Setup::again(folder, ip).start();
    assert_eq!(Talk::open(again.at(8080)).expect("served from the last good state").with, "a");
    until("it is told again", || again.problems().iter().any(|it| it.0 == "Unreadable"));
    again.folder.write("shop.yaml", &good);
    until("nothing is wrong", || again.problems().is_empty());
}

#[test]
fn a_value_that_an_api_server_would_refuse_keeps_the_last_good_state() {
    let backend = Backend::start("a");
    let good = manifest("shop", 8080, &[], &[backend.at]);
    let seaway = Setup::new().write("shop.yaml", &good).start();
    seaway.folder.write("shop.yaml", &good.replace("port: 8080", "port: 80800"));
    until("it is told", || {
        seaway
            .problems()
            .iter()
            .any(|it| it.1.contains("must be between 1 and 65535, inclusive") && it.2.contains("shop.yaml:"))
    });
    assert!(Talk::open(seaway.at(8080)).is_ok());
}

#[test]
fn a_problem_of_the_plan_has_file_and_line_too() {
    let seaway = Setup::new()
        .write("shop.yaml", &manifest("shop", 8080, &[("seaway.dev/balance", "fastest")], &[]))
        .start();
    until("it is told", || {
        seaway.problems().iter().any(|it| it.0 == "BadAnnotation" && it.2.contains("shop.yaml:7:"))
    });
}

#[test]
fn the_same_object_in_two_files_names_both_and_serves_the_first() {
    let (one, two) = (Backend::start("one"), Backend::start("two"));
    let seaway = Setup::new().write("a.yaml", &manifest("shop", 8080, &[], &[one.at])).start();
    seaway.folder.write("b.yaml", &manifest("shop", 8080, &[], &[two.at]));
    until("it is told", || {
        let problems = seaway.problems();
        problems.iter().any(|it| it.0 == "Duplicate" && it.1.contains("a.yaml") && it.2.contains("b.yaml"))
    });
    assert_eq!(Talk::open(seaway.at(8080)).expect("served").with, "one");
    seaway.folder.remove("a.yaml");
    until("the other one is served", || Talk::open(seaway.at(8080)).is_ok_and(|it| it.with == "two"));
}

#[test]
fn the_log_says_where_serving_begins_and_ends() {
    let backend = Backend::start("a");
    let seaway = Setup::new().write("shop.yaml", &manifest("shop", 8080, &[], &[backend.at])).start();
    let says = |what: &str, port: u16| {
        let (log, at) = (seaway.log(), format!("at={}", seaway.at(port)));
        log.lines().any(|it| it.contains(&format!(": {what} ")) && it.contains(&at))
    };
    let addresses = format!("this host's addresses: {}, as --address or host.addresses says", seaway.ip);
    assert!(seaway.log().contains(&addresses), "{}", seaway.log());
    until("it begins", || says("listener opened", 8080));
    seaway.folder.write("shop.yaml", &manifest("shop", 8081, &[], &[backend.at]));
    until("one ends and the other begins", || says("listener closed", 8080) && says("listener opened", 8081));
    assert!(!says("listener closed", 8081));
}

#[test]
fn a_mounted_config_map_is_followed_through_its_link_swap() {
    let (old, new) = (Backend::start("old"), Backend::start("new"));
    let setup = Setup::new();
    let manifests = setup.folder.manifests();
    let put = |version: &str, text: &str| {
        std::fs::create_dir(manifests.join(version)).expect("a folder");
        std::fs::write(manifests.join(version).join("shop.yaml"), text).expect("written");
        symlink(version, manifests.join("..data_tmp")).expect("a link");
        std::fs::rename(manifests.join("..data_tmp"), manifests.join("..data")).expect("swapped");
    };
    put("..2026_1", &manifest("shop", 8080, &[], &[old.at]));
    symlink("..data/shop.yaml", manifests.join("shop.yaml")).expect("a link");
    let seaway = setup.start();
    assert_eq!(Talk::open(seaway.at(8080)).expect("served").with, "old");
    put("..2026_2", &manifest("shop", 8080, &[], &[new.at]));
    std::fs::remove_dir_all(manifests.join("..2026_1")).expect("removed");
    until("the new version is served", || Talk::open(seaway.at(8080)).is_ok_and(|it| it.with == "new"));
}

#[test]
fn a_deleted_folder_is_named_and_nothing_is_lost() {
    let backend = Backend::start("a");
    let seaway = Setup::new().write("shop.yaml", &manifest("shop", 8080, &[], &[backend.at])).start();
    let manifests = seaway.folder.manifests();
    let aside = seaway.folder.0.path().join("aside");
    std::fs::rename(&manifests, &aside).expect("moved");
    until("it is told", || seaway.problems().iter().any(|it| it.2.contains("manifests")));
    assert!(Talk::open(seaway.at(8080)).is_ok(), "still served");
    std::fs::rename(&aside, &manifests).expect("moved back");
    until("it is found again", || seaway.problems().is_empty());
    let other = Backend::start("b");
    seaway.folder.write("shop.yaml", &manifest("shop", 8080, &[], &[other.at]));
    until("and watched again", || Talk::open(seaway.at(8080)).is_ok_and(|it| it.with == "b"));
}

#[test]
fn editors_and_half_written_files_do_not_disturb() {
    let backend = Backend::start("a");
    let good = manifest("shop", 8080, &[], &[backend.at]);
    let seaway = Setup::new().write("shop.yaml", &good).start();
    let manifests = seaway.folder.manifests();
    for name in [".shop.yaml.swp", "shop.yaml~", "#shop.yaml#", "4913", ".#shop.yaml"] {
        std::fs::write(manifests.join(name), "not: [yaml").expect("written");
    }
    // Written in place and in two parts, as `cat >` does it.
    use std::io::Write;
    let (head, tail) = good.split_at(good.len() / 2);
    let mut file = std::fs::File::create(manifests.join("shop.yaml")).expect("a file");
    file.write_all(head.as_bytes()).expect("written");
    file.flush().expect("written");
    assert!(Talk::open(seaway.at(8080)).is_ok());
    file.write_all(tail.as_bytes()).expect("written");
    drop(file);
    seaway.folder.write("marker.yaml", &manifest("marker", 8081, &[], &[backend.at]));
    until("the marker is served", || Talk::open(seaway.at(8081)).is_ok());
    until("nothing is wrong", || seaway.problems().is_empty());
    assert!(Talk::open(seaway.at(8080)).is_ok());
}
