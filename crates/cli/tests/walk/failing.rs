//! A part of a running process is made to fail.

use std::process::Command;

use nix::sys::signal::Signal;

use crate::harness::{Setup, until};

#[cfg(target_arch = "x86_64")]
mod hanging;

#[test]
fn a_process_with_a_source_that_hangs_ends_and_says_why() {
    let folder = tempfile::tempdir().expect("a folder");
    let [cert, key] = ["cert.pem", "key.pem"].map(|name| folder.path().join(name));
    let made = rcgen::generate_simple_self_signed(vec!["shop.example".to_owned()]).expect("a certificate");
    std::fs::write(&cert, made.cert.pem()).expect("written");
    std::fs::write(&key, made.signing_key.serialize_pem()).expect("written");
    let setup = Setup::new();
    let door = format!(
        "frontDoor:\n  addresses: [\"{}\"]\n  port: 8080\n  tls: {{port: 8443}}\n  certificates:\n  - {{cert: {}, key: {}}}\n",
        setup.ip,
        cert.display(),
        key.display()
    );
    let mut seaway = setup.config(&door).start();
    assert_eq!(seaway.get("/live").expect("answered").0, 200);
    // Whoever reads a pipe that nobody writes to waits for ever.
    let pipe = folder.path().join("pipe");
    assert!(Command::new("mkfifo").arg(&pipe).status().expect("it runs").success());
    std::fs::rename(&pipe, &cert).expect("swapped");
    let ended = seaway.wait();
    assert_eq!(ended.code(), Some(1), "{}", seaway.log());
    until("it has said why", || {
        seaway.log().contains("the watcher of certificate files hangs; the process exits")
    });
}

#[test]
fn a_process_that_was_stopped_lives_on() {
    let seaway = Setup::new().start();
    for _ in 0..5 {
        seaway.signal(Signal::SIGSTOP);
        until("it stands", || {
            let stat = std::fs::read_to_string(format!("/proc/{}/stat", seaway.child.id()));
            stat.expect("it is there").contains(") T ")
        });
        seaway.signal(Signal::SIGCONT);
        until("it answers", || seaway.get("/live").is_ok_and(|(status, _)| status == 200));
    }
}
