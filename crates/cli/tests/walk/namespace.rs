//! Networks and mounts of a test's own, which end with its threads. They need root: elsewhere the tests that want
//! them say that they were skipped; with `CI=true` or `SEAWAY_NET_TESTS=required` they fail instead.

use std::{
    io::Write,
    process::Command,
    sync::mpsc,
    thread::{self, JoinHandle},
};

use nix::{
    errno::Errno,
    sched::{CloneFlags, unshare},
};

/// Runs `body` in a thread with a network of its own in which only `lo` is up. Threads and processes that it starts
/// are in there too.
pub(crate) fn in_a_network_of_its_own(body: impl FnOnce() + Send + 'static) {
    apart(CloneFlags::CLONE_NEWNET, "a network namespace", || {
        command("ip", &["link", "set", "lo", "up"]);
        body();
    });
}

/// As above, with mounts that nobody else sees.
pub(crate) fn with_mounts_of_its_own(body: impl FnOnce() + Send + 'static) {
    apart(CloneFlags::CLONE_NEWNS, "a mount namespace", || {
        command("mount", &["--make-rprivate", "/"]);
        body();
    });
}

fn apart(flags: CloneFlags, what: &'static str, body: impl FnOnce() + Send + 'static) {
    let thread = thread::spawn(move || match unshare(flags) {
        Ok(()) => body(),
        Err(Errno::EPERM) => {
            let says = |name: &str, value: &str| std::env::var(name).is_ok_and(|it| it == value);
            let required = says("CI", "true") || says("SEAWAY_NET_TESTS", "required");
            assert!(!required, "{what} needs root");
            // Not by a macro: what those print is not shown of a test that passes.
            let _ = writeln!(std::io::stderr(), "skipped: {what} needs root");
        }
        Err(error) => panic!("no {what}: {error}"),
    });
    if let Err(panic) = thread.join() {
        std::panic::resume_unwind(panic);
    }
}

/// Runs a program to its end, and tells what it printed.
#[track_caller]
pub(crate) fn command(program: &str, arguments: &[&str]) -> String {
    let output = Command::new(program).args(arguments).output();
    let output = output.unwrap_or_else(|error| panic!("{program}: {error}"));
    let told = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{program} {arguments:?}: {told}");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

type Job = Box<dyn FnOnce() + Send>;

/// Another network, one cable away: this one is 10.9.0.1 and fd00:9::1 on `v0`, that one ends in 2 on `v1`, and
/// sends to 192.0.2.0/28 and 2001:db8::/120 through here.
pub(crate) struct Outside {
    jobs: Option<mpsc::Sender<Job>>,
    thread: Option<JoinHandle<()>>,
}

impl Outside {
    pub(crate) fn connect() -> Outside {
        let (jobs, waiting) = mpsc::channel::<Job>();
        let (tell, told) = mpsc::channel();
        let thread = thread::spawn(move || {
            unshare(CloneFlags::CLONE_NEWNET).expect("this is root");
            tell.send(nix::unistd::gettid()).expect("it is waited for");
            for job in waiting {
                job();
            }
        });
        let there = told.recv().expect("it begins").to_string();
        command("ip", &["link", "add", "v0", "type", "veth", "peer", "name", "v1", "netns", &there]);
        let outside = Outside { jobs: Some(jobs), thread: Some(thread) };
        addresses("v0", 1);
        outside.run(|| {
            command("ip", &["link", "set", "lo", "up"]);
            addresses("v1", 2);
            command("ip", &["route", "add", "192.0.2.0/28", "via", "10.9.0.1"]);
            command("ip", &["-6", "route", "add", "2001:db8::/120", "via", "fd00:9::1"]);
        });
        outside
    }

    /// Runs something over there.
    pub(crate) fn run<T: Send + 'static>(&self, job: impl FnOnce() -> T + Send + 'static) -> T {
        let (tell, told) = mpsc::channel();
        let job = Box::new(move || {
            // Nobody listens after a panic on this side.
            let _ = tell.send(job());
        });
        self.jobs.as_ref().expect("it is there until it is dropped").send(job).expect("it works");
        told.recv().expect("it did not panic over there")
    }
}

impl Drop for Outside {
    fn drop(&mut self) {
        self.jobs = None;
        if let Some(thread) = self.thread.take() {
            // A panic over there was a panic here already.
            let _ = thread.join();
        }
    }
}

fn addresses(link: &str, end: u8) {
    command("ip", &["address", "add", &format!("10.9.0.{end}/24"), "dev", link]);
    command("ip", &["address", "add", &format!("fd00:9::{end}/64"), "dev", link, "nodad"]);
    command("ip", &["link", "set", link, "up"]);
}
