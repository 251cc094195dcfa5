//! A running control plane: processes of `rig/kubernetes/up`, in a network of their own. It knows nothing of nodes.

mod etcd;
mod fresh;
mod listing;
mod network;
mod probe;

use std::{
    collections::{BTreeSet, HashMap},
    ffi::OsString,
    net::SocketAddr,
    path::PathBuf,
    process::{Command, Stdio},
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU32, Ordering},
    },
    thread,
};

use kube::Client;
use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};

use self::{etcd::Etcd, fresh::Baseline};
pub(super) use self::{
    listing::{KINDS, array, text},
    network::BRIDGE,
};
use super::access::client;
use crate::topology::{Namespace, Relay, command};

/// The control plane within the cluster's networks.
pub(super) const ADDRESSES: [&str; 2] = [ADDRESS, "fd00:10::1"];
const ADDRESS: &str = "10.10.0.1";
pub(super) const API: &str = "10.10.0.1:6443";
/// By default a bridge has that of one of its ports, which come and go.
const BRIDGE_MAC: &str = "02:10:10:00:00:01";
const PROCESSES: [&str; 4] = ["etcd", "apiserver", "kube-controller-manager", "kube-scheduler"];

/// What it was started with, and keeps.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Settings {
    pub(super) services: String,
    pub(super) node_grace: String,
}

/// Dropping it takes it down; a killed test's goes by itself.
#[derive(Debug)]
pub(super) struct ControlPlane {
    pub(super) settings: Settings,
    pub(super) folder: PathBuf,
    pub(super) programs: PathBuf,
    pub(super) kubeconfig: PathBuf,
    /// By user, groups and server: certificates outlast the objects of a test.
    identities: Mutex<HashMap<String, Vec<u8>>>,
    /// Why it is none that could be used again, if so.
    state: Result<State, String>,
    // In this order: what goes through the namespace ends before it.
    pub(super) relay: Relay,
    pub(super) control: Arc<Namespace>,
}

/// As it was when it had just come up.
#[derive(Debug)]
struct State {
    fresh: Baseline,
    network: String,
    files: BTreeSet<OsString>,
}

impl ControlPlane {
    #[track_caller]
    pub(super) fn start(settings: Settings) -> ControlPlane {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let began = std::time::Instant::now();
        let control = Arc::new(Namespace::create("control"));
        control.ip(&["link", "add", BRIDGE, "address", BRIDGE_MAC, "type", "bridge"]);
        for (address, prefix) in ADDRESSES.into_iter().zip([16, 64]) {
            control.address(BRIDGE, &format!("{address}/{prefix}"));
        }
        let this = std::process::id();
        let name = format!("seaway-kubernetes-{this}-{}", NEXT.fetch_add(1, Ordering::Relaxed));
        let folder = std::env::temp_dir().join(name);
        let api: SocketAddr = API.parse().expect("an address");
        let relay = Relay::into(&control, api);
        let plane = ControlPlane {
            programs: last_line(&command(&path("install"), &[])).into(),
            kubeconfig: folder.join("kubeconfig-here"),
            folder,
            settings,
            identities: Mutex::default(),
            state: Err("nobody looked at it when it was new".to_owned()),
            relay,
            control,
        };
        plane.begin(&["--services", &plane.settings.services, "--node-grace", &plane.settings.node_grace]);
        let here = format!("https://{}", plane.relay.at);
        let admin = std::fs::read_to_string(plane.folder.join("kubeconfig")).expect("`up` writes it");
        let admin = admin.replace("https://127.0.0.1:6443", &here);
        std::fs::write(&plane.kubeconfig, admin).expect("a temporary folder is written to");
        crate::rig("kubernetes", &format!("started in {:.1} s", began.elapsed().as_secs_f64()));
        plane
    }

    /// Starts what has died or was killed, at the same address, with the same data.
    #[track_caller]
    pub(super) fn begin(&self, options: &[&str]) {
        let folder = self.folder.to_string_lossy();
        let this = std::process::id().to_string();
        let mut up = self.control.command(&path("up"));
        up.args(["--dir", &folder, "--address", ADDRESS, "--for", &this, "--network", self.control.name()]);
        let output = up.args(options).stdin(Stdio::null()).output().expect("ip starts");
        let (said, told) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        assert!(output.status.success(), "the control plane did not come up: {said}{told}");
    }

    /// Remembers what it is like now, before anyone has used it.
    pub(super) fn remember(&mut self) {
        let network = network::shown(&self.control);
        let files = self.files();
        let fresh = self.in_runtime(async |etcd, client| Baseline::of(&etcd, &client).await);
        self.state = fresh.map(|fresh| State { fresh, network, files });
    }

    /// Whether it is still as it was then. It says why not.
    pub(super) fn check(&mut self) -> Result<(), String> {
        let mut state = std::mem::replace(&mut self.state, Err("it was not looked at".to_owned()))?;
        let checked = self.in_runtime(async |etcd, _| state.fresh.is_now(&etcd).await);
        self.state = Ok(state);
        checked?;
        self.is_alive()
    }

    /// Makes it as it was then, and looks whether it is. It says why that cannot be.
    pub(super) fn empty(&mut self) -> Result<(), String> {
        let mut state = std::mem::replace(&mut self.state, Err("it was not emptied".to_owned()))?;
        self.is_alive()?;
        // This and the relay use it.
        if Arc::strong_count(&self.control) > 2 {
            return Err("a node outlives its cluster".to_owned());
        }
        network::unplug(&self.control);
        for file in self.files().difference(&state.files) {
            let path = self.folder.join(file);
            let removed =
                if path.is_dir() { std::fs::remove_dir_all(&path) } else { std::fs::remove_file(&path) };
            removed.map_err(|error| format!("{}: {error}", path.display()))?;
        }
        self.in_runtime(async |etcd, client| state.fresh.restore(&etcd, &client).await)?;
        let network = network::shown(&self.control);
        if network != state.network {
            return Err(format!("its network was {:?} and is {network:?}", state.network));
        }
        self.is_alive()?;
        self.state = Ok(state);
        Ok(())
    }

    /// What was written, and has been written over since, is forgotten.
    pub(super) fn compact(&self) -> Result<(), String> {
        self.in_runtime(async |etcd, _| etcd.compact().await)
    }

    /// Of the last write of anybody.
    pub(super) fn revision(&self) -> Result<u64, String> {
        self.in_runtime(async |etcd, _| etcd.revision().await)
    }

    /// While nothing of it runs: what comes next is of greater revisions than that one, and nothing before is known of.
    pub(super) fn bump_revision(&self, beyond: u64) -> Result<(), String> {
        let (run, data) = (self.folder.join("run"), self.folder.join("data/etcd"));
        let socket = |name: &str| format!("unix://{}", run.join(name).display());
        // As `up` has it.
        let mut etcd = Command::new(self.programs.join("etcd"));
        etcd.arg("--data-dir").arg(data).args(["--unsafe-no-fsync", "--log-level", "error", "--name", "rig"]);
        etcd.args(["--listen-client-urls", &socket("etcd.sock"), "--listen-peer-urls", &socket("peer.sock")]);
        etcd.args(["--advertise-client-urls", "http://localhost:2379"]);
        etcd.args(["--initial-advertise-peer-urls", "http://localhost:2380"]);
        etcd.args(["--initial-cluster", "rig=http://localhost:2380"]).stdin(Stdio::null());
        let mut etcd = etcd.spawn().map_err(|it| it.to_string())?;
        let bumped = self.in_runtime(async |etcd, _| {
            etcd.until_it_answers().await?;
            etcd.exceed(beyond).await?;
            etcd.compact().await
        });
        let ended = etcd.kill().and_then(|()| etcd.wait());
        bumped.and(ended.map(drop).map_err(|it| it.to_string()))
    }

    /// A kubeconfig.
    #[track_caller]
    pub(super) fn identity(&self, user: &str, groups: &[&str], server: &str) -> Vec<u8> {
        let key = format!("{server} {user} {groups:?}");
        let known = || self.identities.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(identity) = known().get(&key) {
            return identity.clone();
        }
        // Tokens are asked for at the API server, which is not on the loopback of the caller.
        let mut kubeconfig = self.control.command(&path("kubeconfig"));
        kubeconfig.args(["--dir", &self.folder.to_string_lossy(), "--server", server, user]).args(groups);
        let output = kubeconfig.stdin(Stdio::null()).output().expect("ip starts");
        assert!(output.status.success(), "{user}: {}", String::from_utf8_lossy(&output.stderr));
        // A token is of an account of this test.
        if !user.starts_with("system:serviceaccount:") {
            known().insert(key, output.stdout.clone());
        }
        output.stdout
    }

    #[track_caller]
    pub(super) fn signal(&self, name: &str, signal: Signal) -> Pid {
        let process = self.process(name).expect("it was started");
        kill(process, signal).expect("it runs");
        process
    }

    fn process(&self, name: &str) -> Option<Pid> {
        let line = std::fs::read_to_string(self.folder.join("run").join(format!("{name}.pid"))).ok()?;
        line.split_whitespace().next()?.parse().ok().map(Pid::from_raw)
    }

    fn is_alive(&self) -> Result<(), String> {
        match PROCESSES.iter().find(|it| !self.process(it).is_some_and(is_alive)) {
            Some(dead) => Err(format!("its {dead} has ended")),
            None => Ok(()),
        }
    }

    fn files(&self) -> BTreeSet<OsString> {
        let entries = std::fs::read_dir(&self.folder).into_iter().flatten().flatten();
        entries.map(|it| it.file_name()).collect()
    }

    /// In a thread of its own: who asks may be within a runtime.
    fn in_runtime<T: Send>(
        &self,
        job: impl AsyncFnOnce(Etcd, Client) -> Result<T, String> + Send,
    ) -> Result<T, String> {
        let etcd = Etcd::at(self.folder.join("run/etcd.sock"));
        thread::scope(|scope| {
            let asking = scope.spawn(|| {
                let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
                let runtime = runtime.map_err(|it| it.to_string())?;
                runtime.block_on(async { job(etcd, client(&self.kubeconfig).await).await })
            });
            asking.join().unwrap_or_else(|_| Err("who looks at it panicked".to_owned()))
        })
    }
}

impl Drop for ControlPlane {
    fn drop(&mut self) {
        let folder = self.folder.to_string_lossy();
        let _ = Command::new(path("down")).args(["--dir", &folder]).stdin(Stdio::null()).output();
    }
}

pub(super) fn is_alive(process: Pid) -> bool {
    let state = std::fs::read_to_string(format!("/proc/{process}/stat")).unwrap_or_default();
    state.rsplit_once(") ").is_some_and(|(_, rest)| !rest.starts_with(['Z', 'X']))
}

pub(super) fn last_line(said: &str) -> String {
    said.lines().last().unwrap_or_default().to_owned()
}

pub(super) fn path(name: &str) -> String {
    format!("{}/../../rig/kubernetes/{name}", env!("CARGO_MANIFEST_DIR"))
}
