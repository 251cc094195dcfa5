//! Disks and files that fail: named, and nothing is lost.

use std::{
    fs,
    io::Write,
    net::{Ipv4Addr, SocketAddr},
    os::unix::fs::{PermissionsExt, symlink},
};

use crate::{
    backends::{Backend, Talk},
    harness::{Setup, own_address, own_addresses, until},
    manifests::Service,
    namespace::{command, with_mounts_of_its_own},
};

fn pool(first: Ipv4Addr, last: Ipv4Addr) -> String {
    format!(
        "apiVersion: seaway.dev/v1alpha1\nkind: AddressPool\nmetadata: {{name: local}}\nspec: {{addresses: [{first}-{last}]}}\n"
    )
}

#[test]
fn on_a_full_disk_what_is_served_goes_on_and_what_is_new_waits_for_room() {
    with_mounts_of_its_own(|| {
        let backend = Backend::start("a");
        let only = own_address();
        let service =
            |name: &str, port: u16| Service::tcp(name, port).with("share", "key").to(backend.at).text();
        let setup =
            Setup::new().write("pool.yaml", &pool(only, only)).write("old.yaml", &service("old", 8080));
        // It cannot be removed before the disk in it is gone.
        let folder = setup.folder.clone();
        let state = folder.state();
        fs::create_dir(&state).expect("a folder");
        let shown = crate::harness::path(&state).to_owned();
        command("mount", &["-t", "tmpfs", "-o", "size=256k,mode=700", "tmpfs", &shown]);
        let seaway = setup.start();
        let ballast = state.join("ballast");
        let mut file = fs::File::create(&ballast).expect("there is room yet");
        while file.write(&[0; 512]).is_ok_and(|count| count > 0) {}

        // Each of them makes the ledger longer, until no more of it fits into what the disk had given it before.
        let (mut port, mut unwritten) = (9_000, 0);
        let at = |port: u16| SocketAddr::from((only, port));
        until("a claim that cannot be recorded is named, and not used", || {
            port += 1;
            seaway.folder.write(&format!("new-{port}.yaml"), &service(&format!("new-{port}"), port));
            // What other files give back, the ledger may get.
            while file.write(&[0; 512]).is_ok_and(|count| count > 0) {}
            let told = seaway.problems().into_iter().filter(|it| it.0 == "StateUnwritable");
            let mut named =
                told.filter_map(|it| it.2.split("new-").nth(1)?.split('.').next()?.parse::<u16>().ok());
            unwritten = named.next().unwrap_or(0);
            unwritten > 0 && Talk::open(at(unwritten)).is_err()
        });
        until("it is logged", || seaway.log().contains("cannot be recorded"));
        seaway.folder.write("old.yaml", &service("old", 8082));
        until("changes of what has its address are served", || Talk::open(at(8082)).is_ok());
        drop(file);
        fs::remove_file(&ballast).expect("removed");
        until("what is new is served", || Talk::open(at(unwritten)).is_ok());
        until("nothing is wrong any more", || seaway.problems().is_empty());
        assert!(seaway.stop().success());
        command("umount", &[&shown]);
        drop(folder);
    });
}

#[test]
fn a_state_folder_that_is_deleted_is_named_or_made_anew_and_serving_goes_on() {
    let backend = Backend::start("a");
    let [first, last] = own_addresses();
    let service = |name: &str, port: u16| Service::tcp(name, port).to(backend.at).text();
    let seaway =
        Setup::new().write("pool.yaml", &pool(first, last)).write("a.yaml", &service("a", 8080)).start();
    let state = seaway.folder.state();
    // It may be writing there just now.
    until("it is removed", || fs::remove_dir_all(&state).is_ok() || !state.exists());
    seaway.folder.write("a.yaml", &service("a", 8081));
    until("the change is served", || Talk::open((first, 8081).into()).is_ok());
    until("it is named", || seaway.has_problem("StateUnwritable"));
    fs::create_dir(&state).expect("made anew");
    seaway.folder.write("b.yaml", &service("b", 8080));
    until("a new address is given, too", || Talk::open((last, 8080).into()).is_ok());
    until("status.json is written again", || seaway.status().to_string().contains("default/b"));
    until("nothing is wrong any more", || seaway.problems().is_empty());
    let ledger = fs::read_to_string(state.join("ledger.jsonl")).unwrap_or_default();
    for ip in [first, last] {
        assert!(ledger.contains(&ip.to_string()), "{ip} would be forgotten at the next start: {ledger:?}");
    }
}

#[test]
fn files_that_cannot_be_read_are_named_and_what_they_said_goes_on() {
    let backend = Backend::start("a");
    let service = |port: u16| Service::tcp("shop", port).to(backend.at).text();
    let setup = Setup::new().write("shop.yaml", &service(8080));
    // Who runs the tests as root may read everything; the program is kept from it.
    let setup = match nix::unistd::geteuid().is_root() {
        true => setup.by(&["setpriv", "--bounding-set=-dac_override,-dac_read_search", "--inh-caps=-all"]),
        false => setup,
    };
    let seaway = setup.start();
    let file = seaway.folder.manifests().join("shop.yaml");
    let mode = |mode| fs::set_permissions(&file, fs::Permissions::from_mode(mode)).expect("it is ours");
    mode(0o000);
    until("it is named", || {
        seaway.problems().iter().any(|it| it.0 == "Unreadable" && it.2.contains("shop.yaml"))
    });
    assert!(Talk::open(seaway.at(8080)).is_ok(), "what it said goes on");
    mode(0o644);
    until("nothing is wrong any more", || seaway.problems().is_empty());

    fs::write(&file, b"\xff\xfe").expect("written");
    until("it is named", || seaway.problems().iter().any(|it| it.1.contains("not UTF-8 in line 1")));
    assert!(Talk::open(seaway.at(8080)).is_ok(), "what it said goes on");
    seaway.folder.write("shop.yaml", &service(8081));
    until("it is read again", || Talk::open(seaway.at(8081)).is_ok());
}

#[test]
fn what_is_no_file_is_no_manifest() {
    let backend = Backend::start("a");
    let seaway = Setup::new().write("shop.yaml", &Service::tcp("shop", 8080).to(backend.at).text()).start();
    let manifests = seaway.folder.manifests();
    symlink("nowhere", manifests.join("dangling.yaml")).expect("a link");
    until("a link to nowhere is named", || seaway.problems().iter().any(|it| it.2.contains("dangling.yaml")));
    fs::remove_file(manifests.join("dangling.yaml")).expect("removed");
    fs::create_dir(manifests.join("folder.yaml")).expect("a folder");
    command("mkfifo", &[crate::harness::path(&manifests.join("pipe.yaml"))]);
    symlink(".", manifests.join("circle")).expect("a link");
    let huge = fs::File::create(manifests.join("huge.yaml")).expect("a file");
    huge.set_len(65 << 20).expect("it takes no room");
    drop(huge);
    until("a file too large is named", || seaway.problems().iter().any(|it| it.2.contains("huge.yaml")));
    fs::remove_file(manifests.join("huge.yaml")).expect("removed");
    fs::write(manifests.join("folder.yaml/more.yaml"), Service::tcp("more", 8081).to(backend.at).text())
        .expect("written");
    until("what lies in a folder of that name is read", || Talk::open(seaway.at(8081)).is_ok());
    until("nothing is wrong", || seaway.problems().is_empty());
}
