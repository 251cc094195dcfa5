//! What is left behind, and what comes after: keys on the disk, former processes, reloads of which nothing is known.

use std::{
    fs,
    net::TcpListener,
    os::unix::{
        fs::PermissionsExt as _,
        net::{UnixListener, UnixStream},
    },
    path::PathBuf,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use seaway_haproxy::{
    difference::ReloadReason,
    document::{CrtEntry, Map, MapMatch, TlsOptions},
    process::{Haproxy, Options, ProcessError, ended},
};
use seaway_testkit::topology::until;

use crate::{
    changes::is_as_wanted,
    place::{BACKENDS, PROGRAM, Place, certificate, key, label, place},
};

#[test]
fn a_second_one_in_the_same_folder_is_not_started_and_the_first_goes_on() {
    let Some(place) = place() else { return };
    let mut document = place.document();
    let haproxy = place.start(&document);
    let before = haproxy.report().borrow().clone();
    let files = fs::read(place.config()).expect("its file");
    let mut other = document.clone();
    place.add_backend(&mut other, BACKENDS);
    let second = place.runtime.block_on(Haproxy::start(place.options(), Arc::new(other)));
    match second {
        Err(ProcessError::InUse { path }) => assert_eq!(path, place.run()),
        other => panic!("the folder is in use: {other:?}"),
    }
    assert_eq!(fs::read(place.config()).expect("its file"), files);
    assert!(place.run().join("certificates/shop.pem").exists());
    place.add_backend(&mut document, BACKENDS + 1);
    place.serve(&haproxy, &document).expect("served");
    is_as_wanted(&place, &document);
    let after = haproxy.report().borrow().clone();
    assert_eq!((after.master, after.restarts), (before.master, 0));
    place.runtime.block_on(haproxy.stop());
}

#[test]
fn a_former_one_that_does_not_answer_is_not_taken_for_one_that_is_gone() {
    let Some(place) = place() else { return };
    let document = place.document();
    // The folder is ours then.
    place.runtime.block_on(place.start(&document).stop());
    let path = place.run().join("master.sock");
    let _ = fs::remove_file(&path);
    let silent = UnixListener::bind(&path).expect("a socket");
    let options = Options { patience: Duration::from_secs(1), ..place.options() };
    let start = || place.runtime.block_on(Haproxy::start(options.clone(), Arc::new(document.clone())));
    let is_over = Arc::new(AtomicBool::new(false));
    let over = is_over.clone();
    // It closes each connection without a word.
    std::thread::spawn(move || {
        silent.incoming().take_while(|_| !over.load(Ordering::Relaxed)).for_each(drop)
    });
    let started = start();
    assert!(matches!(started, Err(ProcessError::Late(_) | ProcessError::Socket(_))), "{started:?}");
    is_over.store(true, Ordering::Relaxed);
    until("it is gone", || UnixStream::connect(&path).is_err());
    place.runtime.block_on(start().expect("now it starts").stop());
}

#[test]
fn keys_are_on_the_disk_only_while_they_are_used() {
    let Some(place) = place() else { return };
    let mut document = place.document();
    let haproxy = place.start(&document);
    let more = place.run().join("certificates/more.pem");
    document.certificates.insert(label("more.pem"), certificate("more.example"));
    let list = &mut document.crt_lists.get_mut(&label("https.list")).expect("a list").entries;
    let names = vec![key("more.example")];
    list.push(CrtEntry { certificate: label("more.pem"), tls: TlsOptions::default(), names });
    place.add_backend(&mut document, BACKENDS);
    place.serve(&haproxy, &document).expect("served by a reload");
    assert!(more.exists());
    document.certificates.remove(&label("more.pem"));
    document.crt_lists.get_mut(&label("https.list")).expect("a list").entries.pop();
    place.serve(&haproxy, &document).expect("served");
    assert_eq!(haproxy.report().borrow().reloads_done, 1, "a command is enough");
    assert!(!more.exists(), "its Secret is gone");
    // Nor does a reload that fails bring it back.
    let taken = TcpListener::bind((place.http.ip(), 20_299)).expect("a port of its own");
    let refused = refused_port(&place, &haproxy, &document, &taken);
    assert!(refused.contains("could not reload"), "{refused}");
    assert!(!more.exists(), "its Secret is gone");
    let left = |folder: &str| fs::read_dir(place.run().join(folder)).expect("a folder").count();
    assert_eq!(left("certificates"), 1);
    let report = haproxy.report();
    drop(haproxy);
    place.runtime.block_on(ended(report));
    assert_eq!(left("certificates"), 0, "so it is where nobody waits for the end");
}

/// A frontend at a port that another process has.
fn refused_port(
    place: &Place,
    haproxy: &Haproxy,
    document: &seaway_haproxy::Document,
    at: &TcpListener,
) -> String {
    let mut document = document.clone();
    let mut frontend = document.frontends[&label("http")].clone();
    frontend.binds = vec![at.local_addr().expect("bound")];
    document.frontends.insert(label("taken"), frontend);
    place.serve(haproxy, &document).expect_err("the port is another's")
}

#[test]
fn a_port_in_use_is_named_after_a_start_and_after_a_reload() {
    let Some(place) = place() else { return };
    let document = place.document();
    let taken = TcpListener::bind(place.tls).expect("a port of its own");
    let start = place.runtime.block_on(Haproxy::start(place.options(), Arc::new(document.clone())));
    let names = |error: &str, port: u16| {
        assert!(error.contains("Address already in use") && error.contains(&format!(":{port}")), "{error}");
    };
    names(&start.expect_err("the port is another's").to_string(), place.tls.port());
    drop(taken);
    let haproxy = place.start(&document);
    let taken = TcpListener::bind((place.http.ip(), 20_298)).expect("a port of its own");
    names(&refused_port(&place, &haproxy, &document, &taken), 20_298);
    is_as_wanted(&place, &document);
    place.runtime.block_on(haproxy.stop());
}

#[test]
fn files_of_which_some_cannot_be_written_are_put_back() {
    let Some(place) = place() else { return };
    let good = place.document();
    let haproxy = place.start(&good);
    let map = place.run().join("maps/prefix.map");
    let before = fs::read(&map).expect("a map");
    let mut wanted = good.clone();
    wanted.maps.get_mut(&label("prefix.map")).expect("a map").entries.push((key("new.example/"), key("b3")));
    wanted.maps.insert(label("zz.map"), Map { find: MapMatch::Exact, entries: Vec::new() });
    // In the place of the last map.
    fs::create_dir(place.run().join("maps/zz.map")).expect("made");
    let refused = place.serve(&haproxy, &wanted).expect_err("it cannot be written");
    assert!(refused.contains("cannot be written"), "{refused}");
    assert_eq!(fs::read(&map).expect("a map"), before);
    place.serve(&haproxy, &good).expect("served");
    is_as_wanted(&place, &good);
    place.runtime.block_on(haproxy.stop());
}

/// HAProxy that reads its file at once, and is slow then for as long as there is a file `slow`.
fn slow_program(place: &Place) -> (PathBuf, PathBuf) {
    let at = |name: &str| place.folder.path().join(name);
    let (program, slow, config, copy) = (at("slow-haproxy"), at("slow"), place.config(), at("copy.cfg"));
    let text = format!(
        "#!/bin/bash\ncase \"$1\" in -c|-v) exec {PROGRAM} \"$@\";; esac\n\
         config={config} copy={copy}\ncp $config $copy\nwhile [ -e {slow} ]; do sleep 0.02; done\n\
         exec -a \"$0\" {PROGRAM} \"${{@/#$config/$copy}}\"\n",
        config = config.display(),
        copy = copy.display(),
        slow = slow.display(),
    );
    fs::write(&program, text).expect("written");
    fs::set_permissions(&program, fs::Permissions::from_mode(0o700)).expect("it can be run");
    (program, slow)
}

#[test]
fn what_a_reload_brought_that_was_given_up_does_not_stay() {
    let Some(place) = place() else { return };
    let good = place.document();
    let (program, slow) = slow_program(&place);
    let options = Options { program, patience: Duration::from_secs(2), ..place.options() };
    let haproxy = place.runtime.block_on(Haproxy::start(options, Arc::new(good.clone()))).expect("it starts");
    let mut refused = good.clone();
    place.add_backend(&mut refused, BACKENDS);
    fs::write(&slow, "").expect("written");
    let late = place.serve(&haproxy, &refused).expect_err("it takes too long");
    assert!(late.contains("was not ready within 2s"), "{late}");
    fs::remove_file(&slow).expect("removed");
    // As the driver does.
    let _ = place.serve(&haproxy, &good);
    let added = (format!("b{BACKENDS}"), "s1".to_owned());
    until("what was refused is not served", || {
        let servers = place.runtime.block_on(async {
            let path = place.run().join("worker.sock");
            seaway_haproxy::runtime::RuntimeApiConnection::connect(&path).await.ok()?.servers().await.ok()
        });
        let is_settled = haproxy.report().borrow().reloads.contains_key(&ReloadReason::Drift);
        is_settled && servers.is_some_and(|it| !it.contains_key(&added))
    });
    is_as_wanted(&place, &good);
    place.runtime.block_on(haproxy.stop());
}

#[test]
fn ctrl_c_at_a_terminal_does_not_reach_it() {
    let Some(place) = place() else { return };
    let haproxy = place.start(&place.document());
    let report = haproxy.report().borrow().clone();
    let group = |process: u32| {
        let stat = fs::read_to_string(format!("/proc/{process}/stat")).expect("it runs");
        let (_, rest) = stat.rsplit_once(") ").expect("as proc(5) has it");
        rest.split(' ').nth(2).and_then(|it| it.parse::<u32>().ok()).expect("a number")
    };
    let master = report.master.expect("it runs");
    assert_eq!(group(master), master);
    assert_eq!(group(report.worker.expect("it runs")), master);
    place.runtime.block_on(haproxy.stop());
}
