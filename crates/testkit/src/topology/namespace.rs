use std::{
    fs::File,
    path::{Path, PathBuf},
    process::Command,
    sync::atomic::{AtomicBool, AtomicU32, Ordering},
    thread,
};

use nix::sched::{CloneFlags, setns};

use super::{Running, command, openstack};

const NAMES: &str = "/run/netns";

/// A network, by name: `ip netns exec NAME` leads there while the test runs.
#[derive(Debug)]
pub struct Namespace {
    name: String,
    /// Others may use it, and it outlives this.
    foreign: bool,
    plugged: AtomicBool,
}

impl Namespace {
    /// A new one, with only `lo` up; its name tells process and role.
    pub fn create(role: &str) -> Namespace {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        sweep();
        let name = format!("sw{}-{}-{role}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        command("ip", &["netns", "add", &name]);
        let namespace = Namespace { name, foreign: false, plugged: AtomicBool::new(false) };
        namespace.ip(&["link", "set", "lo", "up"]);
        // Links that come are not silent for two seconds, in fear of duplicates that cannot be.
        namespace.write("ipv6/conf/default/accept_dad", "0");
        namespace
    }

    /// One that somebody else made and will remove, such as a server of Nova.
    pub fn existing(name: &str) -> Namespace {
        assert!(Path::new(NAMES).join(name).exists(), "there is no network namespace {name}");
        Namespace { name: name.to_owned(), foreign: true, plugged: AtomicBool::new(false) }
    }

    pub fn name(&self) -> &str {
        &self.name
    }

    /// Runs something in there. Sockets that it makes stay in there, whoever uses them.
    pub fn run<T: Send>(&self, job: impl FnOnce() -> T + Send) -> T {
        thread::scope(|scope| {
            let inside = scope.spawn(|| {
                let file = File::open(self.file()).expect("the namespace is there until this is dropped");
                setns(file, CloneFlags::CLONE_NEWNET).expect("this is root");
                job()
            });
            inside.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        })
    }

    /// A program to be run in there; it dies with the thread that starts it.
    pub fn command(&self, program: &str) -> Command {
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &self.name, "setpriv", "--pdeathsig", "KILL", "--", program]);
        command
    }

    /// Starts a program in there that runs until it is dropped.
    pub fn start(&self, program: &str, arguments: &[&str]) -> Running {
        let mut command = self.command(program);
        Running::start(command.args(arguments))
    }

    /// What runs in there: ids, with command lines.
    pub fn processes(&self) -> Vec<(u32, String)> {
        let told = command("ip", &["netns", "pids", &self.name]);
        let ids = told.split_whitespace().filter_map(|it| it.parse().ok());
        ids.filter_map(|id: u32| {
            let line = std::fs::read(format!("/proc/{id}/cmdline")).ok()?;
            Some((id, String::from_utf8_lossy(&line).trim_end_matches('\0').replace('\0', " ")))
        })
        .collect()
    }

    /// `ip` for this namespace, to its end.
    #[track_caller]
    pub fn ip(&self, arguments: &[&str]) -> String {
        command("ip", &[&["-n", &self.name], arguments].concat())
    }

    /// Puts a cable between a new interface here and a new one over there; both are down.
    #[track_caller]
    pub fn cable(&self, link: &str, other: &Namespace, its_link: &str) {
        self.ip(&["link", "add", link, "type", "veth", "peer", "name", its_link, "netns", &other.name]);
    }

    /// Removes an interface here, with its cable and the other end; at once, where the end of a namespace takes a while. It may
    /// be gone already.
    pub fn unplug(&self, link: &str) {
        let _ = Command::new("ip").args(["-n", &self.name, "link", "delete", link]).output();
    }

    /// Puts a cable between the network of the calling thread and this one.
    #[track_caller]
    pub fn cable_from_here(&self, here: &str, link: &str) {
        command("ip", &["link", "add", here, "type", "veth", "peer", "name", link, "netns", &self.name]);
    }

    /// Gives an address with its prefix length to an interface, which is up then.
    #[track_caller]
    pub fn address(&self, link: &str, address: &str) {
        // No wait for duplicates that cannot be.
        let nodad = if address.contains(':') { &["nodad"][..] } else { &[] };
        self.ip(&[&["address", "add", address, "dev", link], nodad].concat());
        self.ip(&["link", "set", link, "up"]);
    }

    /// Sends what is for `to` (a prefix, or `default`) to `via`.
    #[track_caller]
    pub fn route(&self, to: &str, via: &str) {
        let family = if via.contains(':') { "-6" } else { "-4" };
        self.ip(&[family, "route", "replace", to, "via", via]);
    }

    /// As routers do: a host that is asked for an address that it does not have any more may name its own gateway, and who
    /// believes that goes there for five minutes. To be said before interfaces come.
    pub fn believe_no_redirects(&self) {
        for of in ["all", "default"] {
            self.write(&format!("ipv4/conf/{of}/accept_redirects"), "0");
            self.write(&format!("ipv6/conf/{of}/accept_redirects"), "0");
        }
    }

    /// Makes this namespace pass on what is not for itself.
    pub fn forward(&self) {
        self.write("ipv4/ip_forward", "1");
        self.write("ipv6/conf/all/forwarding", "1");
    }

    /// What a web server says to `curl` from in there, without its end of line; else what curl says.
    pub fn curl(&self, url: &str) -> Result<String, String> {
        let mut curl = self.command("curl");
        let output = curl.args(["-sSf", "--noproxy", "*", "-m", "5", url]).output().expect("curl starts");
        let text = |it: &[u8]| String::from_utf8_lossy(it).trim_end().to_owned();
        if output.status.success() { Ok(text(&output.stdout)) } else { Err(text(&output.stderr)) }
    }

    /// Makes a port of Neutron an interface in here (`ethN`, with its MAC, MTU, addresses and default route).
    #[track_caller]
    pub fn plug(&self, port: &str) {
        self.plugged.store(true, Ordering::Relaxed);
        openstack::rig("plug", &[&self.name, port]);
    }

    /// A setting below `/proc/sys/net`, which shows the network of whoever opens it.
    fn write(&self, setting: &str, value: &str) {
        self.run(|| std::fs::write(format!("/proc/sys/net/{setting}"), value).expect("this is root"));
    }

    fn file(&self) -> PathBuf {
        Path::new(NAMES).join(&self.name)
    }
}

impl Drop for Namespace {
    fn drop(&mut self) {
        if self.plugged.load(Ordering::Relaxed) {
            openstack::rig_quietly("plug", &["--remove", &self.name]);
        }
        if !self.foreign {
            remove(&self.name);
        }
    }
}

/// Removes what tests left that were killed.
fn sweep() {
    for entry in std::fs::read_dir(NAMES).into_iter().flatten().flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        let owner = name.strip_prefix("sw").and_then(|rest| rest.split_once('-')).map(|(process, _)| process);
        let is_left =
            owner.is_some_and(|it| it.parse::<u32>().is_ok() && !Path::new("/proc").join(it).exists());
        if is_left && !goes_by_itself(&name) {
            openstack::rig_quietly("plug", &["--remove", &name]);
            remove(&name);
        }
    }
}

/// A control plane ends with its program, a moment later, and takes its folder and its namespace along: whoever ended it
/// in the middle of that would leave the folder.
fn goes_by_itself(name: &str) -> bool {
    inside(name).iter().any(|id| {
        let line = std::fs::read(format!("/proc/{id}/cmdline")).unwrap_or_default();
        String::from_utf8_lossy(&line).contains("/rig/kubernetes/down")
    })
}

/// The ids of what runs in there.
fn inside(name: &str) -> Vec<String> {
    let output = Command::new("ip").args(["netns", "pids", name]).output();
    let told = output.map(|it| String::from_utf8_lossy(&it.stdout).into_owned()).unwrap_or_default();
    told.split_whitespace().map(str::to_owned).collect()
}

/// Ends all that runs in there, and the namespace. It may be gone already.
fn remove(name: &str) {
    let quietly = |program: &str, arguments: &[&str]| Command::new(program).args(arguments).output();
    for process in inside(name) {
        let _ = quietly("kill", &["-KILL", &process]);
    }
    let _ = quietly("ip", &["netns", "delete", name]);
}
