//! What an operator changes while it runs: drain, weight, reset, reload; and that nobody else may.

use std::{
    collections::BTreeMap,
    os::unix::fs::{FileTypeExt, PermissionsExt},
    process::Output,
    sync::Arc,
    thread,
};

use nix::sys::signal::Signal;

use crate::{
    backends::{Backend, Talk},
    harness::{Folder, Seaway, Setup, own_address, run, stderr, stdout, until},
};

const PORT: u16 = 8080;

struct Scene {
    alice: Backend,
    bob: Backend,
    seaway: Seaway,
}

fn scene() -> Scene {
    let (alice, bob) = (Backend::start("alice"), Backend::start("bob"));
    let folder = Arc::new(Folder::new());
    folder.write("shop.yaml", &shop(&format!("{} name=alice, {} name=bob", alice.at, bob.at)));
    let seaway = one_worker(folder, own_address()).start();
    Scene { alice, bob, seaway }
}

/// So that clients are spread exactly.
fn one_worker(folder: Arc<Folder>, ip: std::net::Ipv4Addr) -> Setup {
    Setup::again(folder, ip).config("dataPlane: {workers: 1}\n")
}

fn shop(backends: &str) -> String {
    format!(
        "apiVersion: v1\nkind: Service\nmetadata:\n  name: shop\n  annotations: {{seaway.dev/backends: {backends:?}}}\nspec:\n  type: LoadBalancer\n  ports: [{{port: {PORT}}}]\n"
    )
}

/// A command about that process.
fn say(seaway: &Seaway, arguments: &[&str]) -> Output {
    let state = seaway.folder.state();
    let all: Vec<&str> =
        arguments.iter().copied().chain(["--state-dir", state.to_str().expect("a plain name")]).collect();
    run(&all)
}

fn done(seaway: &Seaway, arguments: &[&str]) -> String {
    let output = say(seaway, arguments);
    assert!(output.status.success(), "{arguments:?}: {}", stderr(&output));
    stdout(&output)
}

fn refused(seaway: &Seaway, arguments: &[&str]) -> String {
    let output = say(seaway, arguments);
    assert_eq!(output.status.code(), Some(1), "{arguments:?}: {}", stdout(&output));
    stderr(&output)
}

/// Who answers so many clients, one after the other.
fn answered(seaway: &Seaway, times: usize) -> BTreeMap<String, usize> {
    let mut counts = BTreeMap::new();
    for _ in 0..times {
        let name = Talk::open(seaway.at(PORT)).map_or_else(|_| "nobody".into(), |it| it.with);
        *counts.entry(name).or_default() += 1;
    }
    counts
}

fn only(name: &str, times: usize) -> BTreeMap<String, usize> {
    [(name.to_owned(), times)].into()
}

/// One that this member answers.
fn open_to(seaway: &Seaway, name: &str) -> Talk {
    let mut found = None;
    until("it answers", || {
        found = Talk::open(seaway.at(PORT)).ok().filter(|it| it.with == name);
        found.is_some()
    });
    found.expect("it answered")
}

#[test]
fn a_drained_member_gets_no_new_clients_keeps_those_it_has_and_comes_back_when_it_is_asked_for() {
    let Scene { alice, bob, seaway } = scene();
    let mut talk = open_to(&seaway, "alice");
    let told = done(&seaway, &["drain", "alice"]);
    assert!(told.starts_with(&format!("{}: no new clients", alice.at)), "{told}");
    assert_eq!(answered(&seaway, 4), only("bob", 4), "it is in effect when it is told");
    talk.echo(b"still here").expect("who is connected continues");
    let shown = done(&seaway, &["status"]);
    assert!(shown.contains("default/shop") && shown.contains("1 of 2 usable"), "{shown}");
    assert!(shown.contains(&format!("{}  weight 0: no new clients", alice.at)), "{shown}");
    let manifests = seaway.folder.manifests();
    let explained = done(&seaway, &["explain", "shop", manifests.to_str().expect("a plain name")]);
    let its = format!("  {} (alice)  listed as ready; now ", alice.at);
    let line = explained.lines().find(|it| it.starts_with(&its)).unwrap_or_else(|| panic!("{explained}"));
    assert!(line.ends_with(", with weight 0: it gets no new clients and has 1 connections"), "{line}");

    let why = refused(&seaway, &["drain", "bob"]);
    assert!(why.contains("no other member of default/shop") && why.contains("--force"), "{why}");
    assert_eq!(answered(&seaway, 4), only("bob", 4), "nothing was changed");
    // A change of the folder brings nobody back.
    seaway
        .folder
        .write("shop.yaml", &shop(&format!("{} name=alice, {} name=bob weight=7", alice.at, bob.at)));
    until("the folder is followed", || seaway.member(bob.at)["weight"] == 7);
    assert_eq!(answered(&seaway, 4), only("bob", 4));

    assert!(done(&seaway, &["drain", "bob", "--force"]).contains("new clients are refused now"));
    until("nobody is there", || answered(&seaway, 2) == only("nobody", 2));
    let told = done(&seaway, &["reset"]);
    assert_eq!(told.lines().count(), 2, "{told}");
    until("alice is asked", || answered(&seaway, 16).contains_key("alice"));
    assert!(answered(&seaway, 16)["bob"] > 10, "the folder's weight counts");
    assert!(!done(&seaway, &["status"]).contains("set at run time"));
    assert!(!seaway.folder.state().join("weights.json").exists());
    talk.echo(b"to the end").expect("who is connected continues");
}

#[test]
fn the_status_is_there_for_scripts_and_fails_once_the_process_stops() {
    let Scene { alice, bob: _bob, mut seaway } = scene();
    let talk = open_to(&seaway, "alice");
    done(&seaway, &["weight", "alice", "3"]);
    let status = || {
        let output = say(&seaway, &["status", "-o", "json"]);
        let told = serde_json::from_slice::<serde_json::Value>(&output.stdout);
        (output.status.code(), told.unwrap_or_else(|error| panic!("{error}: {output:?}")))
    };
    let (code, told) = status();
    assert_eq!((code, &told["view"]["readiness"]["state"]), (Some(0), &"ready".into()), "{told}");
    let manifests = told["server"]["manifests"].as_str().expect("a folder");
    assert!(manifests.ends_with("/manifests"), "{manifests}");
    let services = told["view"]["services"].as_array().expect("a list");
    assert!(services.iter().any(|it| it["namespace"] == "default" && it["name"] == "shop"), "{told}");
    assert_eq!(told["weights"][0]["weight"], 3, "{told}");
    assert!(told["weights"].to_string().contains(&alice.at.to_string()), "{told}");

    // It waits for who is connected, and takes no commands.
    seaway.signal(Signal::SIGTERM);
    until("it stops", || seaway.get("/ready").is_ok_and(|(status, _)| status == 503));
    let socket = seaway.folder.state().join("control.sock");
    until("it takes no commands", || std::os::unix::net::UnixStream::connect(&socket).is_err());
    let (code, told) = status();
    assert_eq!((code, &told["view"]["readiness"]["state"]), (Some(1), &"stopping".into()), "{told}");
    let shown = say(&seaway, &["status"]);
    assert!(shown.status.code() == Some(1) && stdout(&shown).contains(", stopping, "), "{shown:?}");
    drop(talk);
    assert!(seaway.wait().success());
    assert_eq!(say(&seaway, &["status"]).status.code(), Some(1));
}

#[test]
fn what_is_set_outlives_a_restart_and_a_death() {
    let Scene { bob, seaway, alice } = scene();
    done(&seaway, &["drain", &alice.at.to_string()]);
    let (folder, ip) = (seaway.folder.clone(), seaway.ip);
    assert!(seaway.stop().success());
    let mut seaway = one_worker(folder.clone(), ip).start();
    assert_eq!(answered(&seaway, 4), only("bob", 4), "from the first connection on");
    seaway.signal(Signal::SIGKILL);
    seaway.wait();
    drop(seaway);
    let seaway = one_worker(folder.clone(), ip).start();
    assert_eq!(answered(&seaway, 4), only("bob", 4));
    // Of a member that is gone.
    done(&seaway, &["weight", &alice.at.to_string(), "3", "--service", "shop"]);
    folder.write("shop.yaml", &shop(&format!("{} name=bob", bob.at)));
    until("it is gone", || seaway.member(alice.at).is_null());
    assert!(done(&seaway, &["reset", &alice.at.to_string()]).contains("the weight of the manifests again"));
    assert!(
        done(&seaway, &["reset", &alice.at.to_string(), "--service", "shop"]).contains("of default/shop")
    );
    assert!(seaway.stop().success());

    // What is broken is told, and the rest goes on.
    std::fs::write(folder.state().join("weights.json"), "[{").expect("written");
    let seaway = one_worker(folder, ip).start();
    assert!(seaway.has_problem("Unreadable"), "{:?}", seaway.problems());
    assert_eq!(answered(&seaway, 2), only("bob", 2));
}

#[test]
fn a_weight_is_set_and_a_service_is_drained_as_a_whole() {
    let Scene { seaway, alice: _alice, bob: _bob } = scene();
    done(&seaway, &["weight", "alice", "3", "--service", "shop"]);
    until("three of four are alice's", || {
        answered(&seaway, 8) == [("alice".to_owned(), 6), ("bob".to_owned(), 2)].into()
    });
    let told = done(&seaway, &["drain", "shop"]);
    assert!(told.contains("all members of default/shop: no new clients"), "{told}");
    until("bob is asked no more", || !answered(&seaway, 8).contains_key("bob"));
    assert!(answered(&seaway, 4).contains_key("alice"), "what was said of alice alone is more precise");
    done(&seaway, &["reset", "alice", "--service", "shop"]);
    until("nobody is there", || answered(&seaway, 2) == only("nobody", 2));
    done(&seaway, &["reset", "shop"]);
    until("both are back", || answered(&seaway, 8).len() == 2);
}

#[test]
fn a_drain_waits_for_the_last_connection_and_no_longer_than_it_is_told() {
    let Scene { seaway, alice, bob: _bob } = scene();
    let talk = open_to(&seaway, "alice");
    let late = say(&seaway, &["drain", "alice", "--wait=300ms"]);
    assert_eq!(late.status.code(), Some(1), "{}", stdout(&late));
    assert!(stderr(&late).contains("1 connections are left"), "{}", stderr(&late));
    let waiting = thread::spawn({
        let state = seaway.folder.state();
        move || run(&["drain", "alice", "--wait", "--state-dir", state.to_str().expect("a plain name")])
    });
    until("it is drained", || seaway.member(alice.at)["weight"] == 0);
    drop(talk);
    let output = waiting.join().expect("it ends");
    assert!(output.status.success() && stdout(&output).ends_with("no connection is left\n"), "{output:?}");
}

#[test]
fn words_that_mean_nothing_change_nothing_and_the_answer_says_what_there_is() {
    let Scene { seaway, alice, bob } = scene();
    let there = format!("{} (alice), {} (bob)", alice.at, bob.at);
    let why = refused(&seaway, &["drain", "carol"]);
    assert!(why.contains("is called carol") && why.contains(&alice.at.to_string()), "{why} {there}");
    let why = refused(&seaway, &["drain", "default/cart"]);
    assert!(why.contains("no Service default/cart is served; there is default/shop"), "{why}");
    let why = refused(&seaway, &["reset", "alice"]);
    assert!(why.contains("no weight or drain is set at run time"), "{why}");
    assert!(done(&seaway, &["reset"]).contains("nothing was set"));
    assert_eq!(say(&seaway, &["weight", "alice", "1000001"]).status.code(), Some(2));
    assert_eq!(answered(&seaway, 8), [("alice".to_owned(), 4), ("bob".to_owned(), 4)].into());
    let elsewhere = tempfile::tempdir().expect("a folder");
    let output = run(&["drain", "alice", "--state-dir", elsewhere.path().to_str().expect("a plain name")]);
    assert!(stderr(&output).contains("no `seaway run` uses the state folder"), "{}", stderr(&output));
}

#[test]
fn a_reload_tells_whether_the_configuration_was_taken() {
    let Scene { seaway, alice: _alice, bob: _bob } = scene();
    let config = seaway.folder.0.path().join("seaway.yaml");
    let before = std::fs::read_to_string(&config).expect("a file");
    std::fs::write(&config, format!("{before}log: {{level: debug}}\n")).expect("written");
    assert!(done(&seaway, &["reload"]).contains("the configuration was read again"));
    until("it is in effect", || seaway.get("/log").is_ok_and(|(_, level)| level.contains("debug")));
    std::fs::write(&config, format!("{before}lgo: {{}}\n")).expect("written");
    let why = refused(&seaway, &["reload"]);
    assert!(why.contains("seaway.yaml:") && why.contains("lgo"), "{why}");
    assert!(answered(&seaway, 2).len() == 2, "and it goes on");
}

#[test]
fn a_reload_that_names_a_certificate_is_never_planned_without_it() {
    let made = rcgen::generate_simple_self_signed(["shop.example".to_owned()]).expect("a certificate");
    let setup = Setup::new();
    let ip = setup.ip;
    let without = format!("frontDoor: {{port: 8080, addresses: [{ip}]}}\n");
    let with = without.replace(
        "]}",
        "], certificates: [{cert: shop.pem, key: shop.key}], tls: {port: 8443, redirect: true}}",
    );
    let web = "apiVersion: v1\nkind: Service\nmetadata:\n  name: web\n  annotations: {seaway.dev/backends: \"127.0.0.1:9\"}\n\
               spec: {ports: [{port: 80}]}\n";
    let seaway = setup.config(&without).write("web.yaml", web).start();
    let folder = seaway.folder.0.path();
    std::fs::write(folder.join("shop.pem"), made.cert.pem()).expect("written");
    std::fs::write(folder.join("shop.key"), made.signing_key.serialize_pem()).expect("written");
    let config = folder.join("seaway.yaml");
    let before = std::fs::read_to_string(&config).expect("a file");
    let listens = || std::net::TcpStream::connect((ip, 8443)).is_ok();
    for _ in 0..10 {
        std::fs::write(&config, before.replace(&without, &with)).expect("written");
        done(&seaway, &["reload"]);
        until("https is served", listens);
        std::fs::write(&config, &before).expect("written");
        done(&seaway, &["reload"]);
        until("https is not served any more", || !listens());
    }
    assert!(!seaway.log().contains("not redirected"), "{}", seaway.log());
}

#[test]
fn the_socket_is_for_its_user_alone_and_gone_at_the_end() {
    let Scene { seaway, alice: _alice, bob: _bob } = scene();
    let path = seaway.folder.state().join("control.sock");
    let it = std::fs::metadata(&path).expect("it is there");
    assert!(it.file_type().is_socket() && it.permissions().mode() & 0o777 == 0o600, "{it:?}");
    // What is no request harms nobody.
    for text in ["", "\n", "{}\n", "[1,2", &"x".repeat(1 << 20)] {
        use std::io::{Read, Write};
        let mut stream = std::os::unix::net::UnixStream::connect(&path).expect("it listens");
        let _ = stream.write_all(text.as_bytes());
        let _ = stream.shutdown(std::net::Shutdown::Write);
        let mut answer = String::new();
        let _ = stream.read_to_string(&mut answer);
        assert!(answer.is_empty() || answer.contains("cannot be read"), "{answer}");
    }
    assert!(done(&seaway, &["status"]).contains(", ready, serves "));
    assert!(seaway.stop().success());
    assert!(!path.exists());
}
