//! Other projects' daemons in a namespace, with files of their own; they end with the value.

use std::{fs, os::unix::fs::PermissionsExt as _, path::Path, process::Stdio};

use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use seaway_testkit::topology::{Namespace, Running, command, until};
use tempfile::TempDir;

use crate::cable::{OURS, OURS_V6, THEIRS};

const FRR: &str = "/usr/lib/frr";
const BIRD: &str = "/usr/sbin/bird";

/// Whether this test cannot run here; says so.
pub(crate) fn lacks(program: &str) -> bool {
    let why = if !nix::unistd::Uid::effective().is_root() {
        "network namespaces need root".to_owned()
    } else if !Path::new(program).exists() {
        format!("{program} is not installed")
    } else {
        return false;
    };
    seaway_testkit::skip(Some("SEAWAY_NET_TESTS"), &why);
    true
}

pub(crate) trait Peer {
    /// What it says of its sessions, in its own words.
    fn told(&self) -> String;
    fn process(&self) -> u32;

    fn freeze(&self) {
        self.signal(Signal::SIGSTOP);
    }

    fn thaw(&self) {
        self.signal(Signal::SIGCONT);
    }

    fn signal(&self, signal: Signal) {
        let id = i32::try_from(self.process()).expect("process ids are small");
        kill(Pid::from_raw(id), signal).expect("it runs");
    }

    fn until_it_says(&self, what: &str) {
        until(&format!("the peer says {what}: {}", self.told()), || self.told().contains(what));
    }
}

/// zebra, which knows interfaces, and bfdd.
pub(crate) struct Frr {
    folder: TempDir,
    bfdd: Running,
    _zebra: Running,
}

impl Frr {
    pub(crate) fn lacks() -> bool {
        lacks("/usr/lib/frr/bfdd")
    }

    /// With sessions to both of our addresses, 50 ms × 3, and one over routers to the first.
    pub(crate) fn start(on: &Namespace) -> Frr {
        let folder = tempfile::tempdir().expect("a folder");
        // Its daemons run as a user of their own.
        fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o777)).expect("ours");
        let config = format!(
            "bfd\n profile fast\n  detect-multiplier 3\n  receive-interval 50\n  transmit-interval 50\n exit\n \
             peer {OURS} interface eth0\n  profile fast\n exit\n peer {OURS_V6} local-address fd77::1 interface eth0\n  \
             profile fast\n exit\n peer {OURS} multihop local-address {THEIRS}\n  profile fast\n exit\nexit\n"
        );
        fs::write(folder.path().join("bfdd.conf"), config).expect("written");
        let at = |name: &str| folder.path().join(name).to_string_lossy().into_owned();
        let start = |daemon: &str, config: &str, more: &[&str]| {
            let mut command = on.command(&format!("{FRR}/{daemon}"));
            command.args(["-z", &at("zserv.api"), "-i", &at(&format!("{daemon}.pid"))]);
            command.args(["--vty_socket", &at(""), "-P", "0", "-f", config]).args(more);
            Running::start(command.stdout(Stdio::null()).stderr(Stdio::null()))
        };
        let zebra = start("zebra", "/dev/null", &[]);
        until("zebra runs", || folder.path().join("zserv.api").exists());
        let bfdd = start("bfdd", &at("bfdd.conf"), &["--bfdctl", &at("bfdd.sock")]);
        until("bfdd runs", || folder.path().join("bfdd.vty").exists());
        Frr { folder, bfdd, _zebra: zebra }
    }

    pub(crate) fn says(&self, what: &str) -> String {
        let folder = self.folder.path().to_string_lossy();
        command("vtysh", &["--vty_socket", &folder, "-d", "bfdd", "-c", what])
    }

    /// How often sessions went down.
    pub(crate) fn downs(&self) -> String {
        let told = self.says("show bfd peers counters json");
        told.lines().filter(|it| it.contains("session-down")).map(str::trim).collect()
    }
}

impl Peer for Frr {
    fn told(&self) -> String {
        self.says("show bfd peers json")
    }

    fn process(&self) -> u32 {
        self.bfdd.id()
    }
}

pub(crate) struct Bird {
    folder: TempDir,
    process: Running,
}

impl Bird {
    pub(crate) fn lacks() -> bool {
        lacks(BIRD)
    }

    /// With a session to our IPv4 address, 50 ms × 3.
    pub(crate) fn start(on: &Namespace) -> Bird {
        let folder = tempfile::tempdir().expect("a folder");
        let config = format!(
            "router id {THEIRS};\nprotocol device {{}}\nprotocol bfd {{\n  interface \"eth0\" {{ interval 50 ms; multiplier 3; }};\n  \
             neighbor {OURS} dev \"eth0\" local {THEIRS};\n}}\n"
        );
        fs::write(folder.path().join("bird.conf"), config).expect("written");
        let at = |name: &str| folder.path().join(name).to_string_lossy().into_owned();
        let process =
            on.start(BIRD, &["-f", "-c", &at("bird.conf"), "-s", &at("bird.ctl"), "-P", &at("bird.pid")]);
        until("BIRD runs", || folder.path().join("bird.ctl").exists());
        Bird { folder, process }
    }
}

impl Peer for Bird {
    fn told(&self) -> String {
        let socket = self.folder.path().join("bird.ctl");
        command("birdc", &["-s", &socket.to_string_lossy(), "show", "bfd", "sessions"])
    }

    fn process(&self) -> u32 {
        self.process.id()
    }
}
