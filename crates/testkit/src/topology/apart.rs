use std::{io::Write, thread};

use nix::{
    errno::Errno,
    sched::{CloneFlags, unshare},
};

use super::command;

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
    let thread = thread::spawn(move || match unshare(flags) {
        Ok(()) => body(),
        Err(Errno::EPERM) => skip(says("SEAWAY_NET_TESTS", "required"), &format!("{what} needs root")),
        Err(error) => panic!("no {what}: {error}"),
    });
    if let Err(panic) = thread.join() {
        std::panic::resume_unwind(panic);
    }
}

/// Says that a test does not run, and fails it where nobody would read that.
#[track_caller]
pub(crate) fn skip(required: bool, why: &str) {
    assert!(!required && !says("CI", "true"), "{why}");
    // Not by a macro: what those print is not shown of a test that passes.
    let _ = writeln!(std::io::stderr(), "skipped: {why}");
}

pub(crate) fn says(name: &str, value: &str) -> bool {
    std::env::var(name).is_ok_and(|it| it == value)
}
