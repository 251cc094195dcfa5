//! Threads that watch files are made to fail.

use std::{
    fs,
    sync::mpsc::{Receiver, channel},
    time::Duration,
};

use seaway_files::{
    Folder,
    pem::{PemFiles, PemWatch},
};
use seaway_watchdog::{PartFailure, Watchdog, WatchdogTimings};

const PATIENCE: Duration = Duration::from_secs(120);

/// Looks often; how long anything takes is not asserted.
fn watchdog() -> (Watchdog, Receiver<PartFailure>) {
    let (tell, told) = channel();
    let pace = WatchdogTimings { look: Duration::from_millis(20), limit: Duration::from_millis(400) };
    (Watchdog::start(pace, move |fault| drop(tell.send(fault.clone()))).expect("a thread"), told)
}

#[test]
fn a_watch_of_a_folder_that_dies_is_found() {
    let dir = tempfile::tempdir().expect("a folder");
    let (folder, _) = Folder::open(dir.path(), None).expect("opened");
    let watch = folder.watch(|_| panic!("a test has this watch die")).expect("watched");
    let (watchdog, told) = watchdog();
    let _watching = watchdog.watch([watch.part()]);
    fs::write(dir.path().join("a.yaml"), "kind: Service").expect("written");
    let found = PartFailure { part: "the watch of the folder of manifests".into(), hangs: false };
    assert_eq!(told.recv_timeout(PATIENCE), Ok(found));
}

#[test]
fn a_watch_of_certificates_that_hangs_is_found() {
    let dir = tempfile::tempdir().expect("a folder");
    let cert = dir.path().join("cert.pem");
    fs::write(&cert, "a").expect("written");
    let files = PemFiles { name: "a".into(), parts: vec![("tls.crt", cert.clone())], staple: None };
    let (watch, _) = PemWatch::start(&[files], |_| {}).expect("watched");
    let (watchdog, told) = watchdog();
    let _watching = watchdog.watch([watch.part()]);
    let pipe = dir.path().join("pipe");
    assert!(std::process::Command::new("mkfifo").arg(&pipe).status().expect("it runs").success());
    fs::rename(&pipe, &cert).expect("swapped");
    let found = PartFailure { part: "the watcher of certificate files".into(), hangs: true };
    assert_eq!(told.recv_timeout(PATIENCE), Ok(found));
    // It reads, is through, and goes on.
    drop(fs::OpenOptions::new().write(true).open(&cert).expect("opened"));
    fs::remove_file(&cert).expect("removed");
}
