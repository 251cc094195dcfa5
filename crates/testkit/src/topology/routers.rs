//! Routers of other projects (FRR, BIRD, GoBGP) in a namespace, with files of their own. They end with the value.

use std::{
    fs,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    sync::atomic::{AtomicU32, Ordering},
};

use nix::{
    sys::signal::{Signal, kill},
    unistd::{Pid, Uid},
};

use super::{Namespace, Running, command, until};
use crate::skip;

const FRR: &str = "/usr/lib/frr";
const BIRD: &str = "/usr/sbin/bird";
const GOBGP: &str = "/usr/bin/gobgpd";

/// Whether a test cannot run here, and says so: without root, or without these programs.
pub fn lacks_routers(programs: &[&str]) -> bool {
    let missing = programs.iter().find(|it| !Path::new(it).exists());
    let why = match missing {
        _ if !Uid::effective().is_root() => "network namespaces need root".to_owned(),
        Some(program) => format!("{program} is not installed: sudo apt-get install frr bird2 gobgpd"),
        None => return false,
    };
    skip(Some("SEAWAY_NET_TESTS"), &why);
    true
}

/// Removed with what is in it.
#[derive(Debug)]
struct Folder(PathBuf);

impl Folder {
    fn new(role: &str) -> Folder {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let name = format!("{role}-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        let path = std::env::temp_dir().join(name);
        let _ = fs::remove_dir_all(&path);
        fs::create_dir_all(&path).expect("a folder");
        // FRR's daemons run as a user of their own.
        fs::set_permissions(&path, fs::Permissions::from_mode(0o777)).expect("it is ours");
        Folder(path)
    }

    fn at(&self, name: &str) -> String {
        self.0.join(name).to_string_lossy().into_owned()
    }

    fn write(&self, name: &str, text: &str) -> String {
        fs::write(self.0.join(name), text).expect("written");
        self.at(name)
    }

    fn has(&self, name: &str) -> bool {
        self.0.join(name).exists()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn signal(process: &Running, signal: Signal) {
    let id = i32::try_from(process.id()).expect("process ids are small");
    kill(Pid::from_raw(id), signal).expect("it runs");
}

/// zebra, and others of its daemons.
#[derive(Debug)]
pub struct Frr {
    // In the order in which they end.
    daemons: Vec<(String, Running)>,
    folder: Folder,
}

impl Frr {
    pub const PROGRAM: &str = "/usr/lib/frr/bgpd";

    /// Each of these daemons with its configuration.
    pub fn start(on: &Namespace, daemons: &[(&str, &str)]) -> Frr {
        let mut frr = Frr { folder: Folder::new("frr"), daemons: Vec::new() };
        frr.run(on, "zebra", "");
        for (daemon, config) in daemons {
            frr.run(on, daemon, config);
        }
        frr
    }

    fn run(&mut self, on: &Namespace, daemon: &str, config: &str) {
        let folder = &self.folder;
        let config = folder.write(&format!("{daemon}.conf"), config);
        let mut command = on.command(&format!("{FRR}/{daemon}"));
        command.args(["-z", &folder.at("zserv.api"), "-i", &folder.at(&format!("{daemon}.pid"))]);
        command.args(["--vty_socket", &folder.at(""), "-P", "0", "-f", &config]);
        if daemon == "bfdd" {
            command.args(["--bfdctl", &folder.at("bfdd.sock")]);
        }
        let process = Running::start(command.stdout(Stdio::null()).stderr(Stdio::null()));
        until(&format!("{daemon} runs"), || folder.has(&format!("{daemon}.vty")) && folder.has("zserv.api"));
        self.daemons.insert(0, (daemon.to_owned(), process));
    }

    /// What a daemon answers to a command.
    pub fn says(&self, daemon: &str, what: &str) -> String {
        command("vtysh", &["--vty_socket", &self.folder.at(""), "-d", daemon, "-c", what])
    }

    /// Changes the configuration of a daemon.
    pub fn configure(&self, daemon: &str, lines: &[&str]) {
        let mut all = vec!["--vty_socket".to_owned(), self.folder.at(""), "-d".into(), daemon.into()];
        for line in [&["configure terminal"], lines].concat() {
            all.extend(["-c".to_owned(), line.to_owned()]);
        }
        command("vtysh", &all.iter().map(String::as_str).collect::<Vec<_>>());
    }

    /// The resident memory of a daemon, in bytes.
    pub fn resident(&self, daemon: &str) -> u64 {
        let (_, process) = self.daemons.iter().find(|(name, _)| name == daemon).expect("it was started");
        process.resident()
    }

    pub fn freeze(&self) {
        self.daemons.iter().for_each(|(_, it)| signal(it, Signal::SIGSTOP));
    }

    pub fn thaw(&self) {
        self.daemons.iter().for_each(|(_, it)| signal(it, Signal::SIGCONT));
    }
}

#[derive(Debug)]
pub struct Bird {
    process: Running,
    folder: Folder,
}

impl Bird {
    pub const PROGRAM: &str = BIRD;

    pub fn start(on: &Namespace, config: &str) -> Bird {
        let folder = Folder::new("bird");
        let config = folder.write("bird.conf", config);
        let process = on
            .start(BIRD, &["-f", "-c", &config, "-s", &folder.at("bird.ctl"), "-P", &folder.at("bird.pid")]);
        until("BIRD runs", || folder.has("bird.ctl"));
        Bird { process, folder }
    }

    /// What it answers; that there is no such route is an answer, too.
    pub fn says(&self, what: &[&str]) -> String {
        let socket = self.folder.at("bird.ctl");
        let output = Command::new("birdc").args(["-s", &socket]).args(what).stdin(Stdio::null()).output();
        String::from_utf8_lossy(&output.expect("birdc is installed").stdout).into_owned()
    }

    pub fn freeze(&self) {
        signal(&self.process, Signal::SIGSTOP);
    }

    pub fn thaw(&self) {
        signal(&self.process, Signal::SIGCONT);
    }
}

#[derive(Debug)]
pub struct GoBgp {
    on: String,
    process: Running,
    _folder: Folder,
}

impl GoBgp {
    pub const PROGRAM: &str = GOBGP;

    pub fn start(on: &Namespace, config: &str) -> GoBgp {
        let folder = Folder::new("gobgp");
        let config = folder.write("gobgpd.toml", config);
        let mut command = on.command(GOBGP);
        command.args(["-f", &config, "--cpus", "1"]);
        let process = Running::start(command.stdout(Stdio::null()).stderr(Stdio::null()));
        let daemon = GoBgp { on: on.name().to_owned(), process, _folder: folder };
        until("GoBGP runs", || daemon.asks(&["global"]).is_some_and(|it| it.contains("AS:")));
        daemon
    }

    fn asks(&self, what: &[&str]) -> Option<String> {
        let line = [&["netns", "exec", &self.on, "gobgp"], what].concat();
        let output = Command::new("ip").args(line).stdin(Stdio::null()).output().ok()?;
        output.status.success().then(|| String::from_utf8_lossy(&output.stdout).into_owned())
    }

    pub fn says(&self, what: &[&str]) -> String {
        self.asks(what).unwrap_or_default()
    }

    pub fn freeze(&self) {
        signal(&self.process, Signal::SIGSTOP);
    }

    pub fn thaw(&self) {
        signal(&self.process, Signal::SIGCONT);
    }
}
