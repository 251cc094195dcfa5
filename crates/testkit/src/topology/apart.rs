use std::thread;

use nix::{
    errno::Errno,
    sched::{CloneFlags, unshare},
};

use super::command;
use crate::skip;

/// Runs `body` in a thread with a network of its own in which only `lo` is up. Threads and processes that it starts
/// are in there too.
///
/// Without root the test is skipped, and says so; with `CI=true` or `SEAWAY_NET_TESTS=required` it fails instead.
pub fn in_a_network_of_its_own(body: impl FnOnce() + Send + 'static) {
    apart(CloneFlags::CLONE_NEWNET, "a network namespace", || {
        command("ip", &["link", "set", "lo", "up"]);
        body();
    });
}

/// As above, with mounts that nobody else sees.
pub fn with_mounts_of_its_own(body: impl FnOnce() + Send + 'static) {
    apart(CloneFlags::CLONE_NEWNS, "a mount namespace", || {
        command("mount", &["--make-rprivate", "/"]);
        body();
    });
}

fn apart(flags: CloneFlags, what: &'static str, body: impl FnOnce() + Send + 'static) {
    // It is the same test there, if it has to say so.
    let test = thread::current().name().unwrap_or("unknown").to_owned();
    let thread = thread::Builder::new().name(test).spawn(move || match unshare(flags) {
        Ok(()) => body(),
        Err(Errno::EPERM) => skip(Some("SEAWAY_NET_TESTS"), &format!("{what} needs root")),
        Err(error) => panic!("no {what}: {error}"),
    });
    if let Err(panic) = thread.expect("a thread is started").join() {
        std::panic::resume_unwind(panic);
    }
}
