//! What goes wrong: a port that another process takes, a file that cannot be written, an end that does not wait.

use std::{
    io::{Read as _, Write as _},
    net::{Ipv4Addr, TcpListener, TcpStream},
    os::unix::{fs::PermissionsExt as _, net::UnixStream},
    path::Path,
    process::Command,
    sync::Arc,
    time::Duration,
};

use seaway_drivers::haproxy::{HaproxyHost, ServedPart};
use seaway_engine::{Context, Driver as _, Failure};
use seaway_haproxy::{Global, Options, words::Folder};
use seaway_model::{Desired, Owner, load_balancer::Protocol};
use seaway_testkit::{balancing::owner, topology::until};
use tempfile::TempDir;

use crate::{PATIENCE, PORTS, ask, desired, host, ip, load_balancer, member, other, place, settle, unit};

/// The id of HAProxy's process that reads the configuration and starts the others.
fn master(folder: &Path) -> u32 {
    let mut stream = UnixStream::connect(folder.join("files/master.sock")).expect("HAProxy runs");
    stream.write_all(b"show proc;quit\n").expect("asked");
    let mut text = String::new();
    stream.read_to_string(&mut text).expect("answered");
    let line = text.lines().find(|it| it.contains("master")).unwrap_or_else(|| panic!("{text}"));
    line.split_whitespace().next().and_then(|it| it.parse().ok()).unwrap_or_else(|| panic!("{text}"))
}

/// All of it ends.
pub(crate) fn kill_master(folder: &Path) {
    let master = master(folder).to_string();
    assert!(Command::new("kill").args(["-9", &master]).status().expect("started").success());
}

/// HAProxy dies, and before it is there again another process has a port: that one is found, and the others are served.
#[tokio::test(flavor = "multi_thread")]
async fn one_that_keeps_haproxy_from_starting_again_is_found_and_the_others_are_served() {
    let Some(folder) = place() else { return };
    let host = host(folder.path());
    let ip = ip(90);
    let line = member("here\n");
    let owners: Vec<Owner> = (0..4).map(|number| other(&format!("shop-{number}"))).collect();
    let port = |number: usize| 20_210 + number as u16;
    let wanted = |number: usize| desired(load_balancer(&owners[number], ip.into(), &[port(number)], &[line]));
    for (number, owner) in owners.iter().enumerate() {
        settle(&host, owner, &wanted(number)).await.expect("it is served");
    }
    let taken = loop {
        kill_master(folder.path());
        // Until the old worker lets go, and before the next one has it.
        let found = (0..20_000).find_map(|_| TcpListener::bind((ip, port(2))).ok());
        if let Some(found) = found {
            break found;
        }
        until("it was started again", || ask((ip, port(2)).into()).is_some());
    };
    for number in [0, 1, 3] {
        until("the others are served", || ask((ip, port(number)).into()).as_deref() == Some("here"));
    }
    let unit = unit(&owners[2]);
    until("it is known not to be served", || {
        let observed = looked(host.observe(&Context::default(), &unit, &Desired::Absent));
        observed.is_ok_and(|it| it.load_balancer.is_none())
    });
    let observed = host
        .observe(&Context::default(), &crate::unit(&owners[0]), &Desired::Absent)
        .await
        .expect("it is known");
    assert!(observed.load_balancer.is_some());
    assert!(
        host.conclude(&unit, &wanted(2), &ServedPart::default()).again.is_some(),
        "it is looked at again"
    );
    match settle(&host, &owners[2], &wanted(2)).await {
        Err(Failure::Retry { problems, .. }) => {
            let why = problems[0].1.to_string();
            assert!(why.contains("Address already in use"), "{why}");
        }
        other => panic!("the port is another's: {other:?}"),
    }
    drop(taken);
    settle(&host, &owners[2], &wanted(2)).await.expect("now it can have the port");
    assert_eq!(ask((ip, port(2)).into()).as_deref(), Some("here"));
    host.stop(PATIENCE).await;
}

/// Something is in the place of one of its files.
#[tokio::test(flavor = "multi_thread")]
async fn a_part_that_cannot_be_written_keeps_no_other_from_being_written() {
    let Some(folder) = place() else { return };
    let host = Arc::new(host(folder.path()));
    let ip = ip(91);
    let line = member("here\n");
    let owners: Vec<Owner> = (0..4).map(|number| other(&format!("shop-{number}"))).collect();
    let port = |number: usize| 20_220 + number as u16;
    let wanted = |number: usize| {
        let mut wanted = load_balancer(&owners[number], ip.into(), &[port(number)], &[line]);
        if number == 2 {
            for listener in wanted.listeners.values_mut() {
                Arc::make_mut(listener).protocol = Protocol::Http;
            }
        }
        desired(wanted)
    };
    settle(&host, &owners[0], &wanted(0)).await.expect("the first is served");
    for map in ["exact", "prefix", "suffix"] {
        let name = format!("default.shop-2.{}.{map}.map", port(2));
        std::fs::create_dir_all(folder.path().join("files/maps").join(name)).expect("made");
    }
    let mut all = tokio::task::JoinSet::new();
    for (number, owner) in owners.iter().enumerate().skip(1) {
        let (host, owner, wanted) = (host.clone(), owner.clone(), wanted(number));
        all.spawn(async move { (number, settle(&host, &owner, &wanted).await) });
    }
    for (number, done) in all.join_all().await {
        match (number, done) {
            (2, Err(Failure::Retry { why, .. })) => assert!(why.contains("cannot be written"), "{why}"),
            (2, other) => panic!("it cannot be written: {other:?}"),
            (number, done) => done.unwrap_or_else(|error| panic!("{number}: {error}")),
        }
    }
    for number in [0, 1, 3] {
        assert_eq!(ask((ip, port(number)).into()).as_deref(), Some("here"), "{number}");
    }
    host.stop(PATIENCE).await;
}

/// Whatever HAProxy is at.
#[tokio::test(flavor = "multi_thread")]
async fn a_stop_does_not_wait_for_what_is_being_written() {
    let folder = TempDir::new().expect("a folder");
    let (program, begun) = (folder.path().join("program"), folder.path().join("begun"));
    std::fs::write(&program, format!("#!/bin/sh\n: > {}\nexec sleep 60\n", begun.display()))
        .expect("written");
    std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o700)).expect("it can be run");
    let options = Options { program, ..Options::new(folder.path().join("haproxy.cfg")) };
    let files = Folder::new(&folder.path().join("files").display().to_string()).expect("a plain path");
    let host =
        Arc::new(HaproxyHost::new("edge-1".into(), options, Global { folder: files, ..Global::default() }));
    let owner = owner();
    let wanted = desired(load_balancer(&owner, ip(92).into(), &PORTS, &[]));
    let putting = tokio::spawn({
        let host = host.clone();
        async move { settle(&host, &owner, &wanted).await }
    });
    until("it is at it", || begun.exists());
    let stopped = tokio::time::timeout(PATIENCE, host.stop(Duration::from_millis(1))).await;
    stopped.expect("long before the program ends");
    let put = putting.await.expect("no panic").expect_err("it was not written");
    assert!(put.to_string().contains("is being stopped"), "{put}");
}

/// As after a second signal.
#[tokio::test(flavor = "multi_thread")]
async fn a_killed_one_has_ended_though_a_connection_is_open() {
    let Some(folder) = place() else { return };
    let host = Arc::new(host(folder.path()));
    let (ip, [a, ..]) = (ip(93), PORTS);
    let silent = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
    let owner = owner();
    let wanted = load_balancer(&owner, ip.into(), &[a], &[silent.local_addr().expect("bound")]);
    settle(&host, &owner, &desired(wanted)).await.expect("it is served");
    let open = TcpStream::connect((ip, a)).expect("it is served");
    // It would be waited for.
    let stopping = tokio::spawn({
        let host = host.clone();
        async move { host.stop(Duration::from_secs(60)).await }
    });
    until("no connection is taken", || TcpStream::connect((ip, a)).is_err());
    assert!(!stopping.is_finished());
    tokio::time::timeout(PATIENCE, host.kill()).await.expect("at once");
    open.set_read_timeout(Some(PATIENCE)).expect("a limit");
    assert!(matches!((&open).read(&mut [0]), Ok(0) | Err(_)), "the connection has ended");
    assert!(UnixStream::connect(folder.path().join("files/master.sock")).is_err());
}

/// The result of a look that waits for nothing.
fn looked<T>(look: impl Future<Output = T>) -> T {
    tokio::task::block_in_place(|| tokio::runtime::Handle::current().block_on(look))
}
