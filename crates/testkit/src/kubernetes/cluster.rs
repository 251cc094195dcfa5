use std::{
    collections::BTreeMap,
    io::Write,
    net::SocketAddr,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    sync::{
        Arc, Mutex, PoisonError, Weak,
        atomic::{AtomicU16, AtomicU32, Ordering},
    },
};

use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};

use super::{Node, NodeOptions, node::Place};
use crate::{
    skip,
    topology::{Namespace, Relay, command, until},
};

/// The control plane within the cluster's networks.
pub(super) const ADDRESSES: [&str; 2] = [ADDRESS, "fd00:10::1"];
const ADDRESS: &str = "10.10.0.1";
const API: &str = "10.10.0.1:6443";
const BRIDGE: &str = "bridge";
/// As kubectl names one.
const DEFINITION: &str = "customresourcedefinition.apiextensions.k8s.io/";

/// Where networks are reached.
type Ways = Vec<(String, String)>;

/// What a test may choose.
#[derive(Debug, Clone)]
pub struct Options {
    /// Of ClusterIPs.
    pub services: String,
    /// A node that is silent for so long is not Ready.
    pub node_grace: String,
    /// Programs by the name of their image, with first arguments, beside those of `rig/kubernetes/pod`.
    pub images: BTreeMap<String, Vec<String>>,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            services: "10.96.0.0/12,fd00:96::/108".to_owned(),
            node_grace: "10s".to_owned(),
            images: BTreeMap::new(),
        }
    }
}

/// A control plane, with its networks. Dropping it takes it down; a killed test's goes by itself.
#[derive(Debug)]
pub struct Cluster {
    folder: PathBuf,
    programs: PathBuf,
    images: BTreeMap<String, Vec<String>>,
    kubeconfig: PathBuf,
    services: String,
    made: AtomicU16,
    ways: Mutex<Vec<(Weak<Place>, Ways)>>,
    // In this order: what goes through the namespace ends before it.
    relay: Relay,
    pub(super) control: Arc<Namespace>,
}

impl Cluster {
    /// Without root, or where nothing is installed, the test is skipped, and says so; with `CI=true` or
    /// `SEAWAY_KUBERNETES_TESTS=required` it fails instead.
    #[track_caller]
    pub fn up(options: &Options) -> Option<Cluster> {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        if let Some(why) = lacking() {
            skip(Some("SEAWAY_KUBERNETES_TESTS"), why);
            return None;
        }
        let control = Arc::new(Namespace::create("control"));
        control.ip(&["link", "add", BRIDGE, "type", "bridge"]);
        for (address, prefix) in ADDRESSES.into_iter().zip([16, 64]) {
            control.address(BRIDGE, &format!("{address}/{prefix}"));
        }
        let this = std::process::id();
        let name = format!("seaway-kubernetes-{this}-{}", NEXT.fetch_add(1, Ordering::Relaxed));
        let folder = std::env::temp_dir().join(name);
        let api: SocketAddr = API.parse().expect("an address");
        let relay = Relay::into(&control, api);
        let cluster = Cluster {
            programs: last_line(&command(&path("install"), &[])).into(),
            images: images(options),
            kubeconfig: folder.join("kubeconfig-here"),
            folder,
            services: options.services.clone(),
            made: AtomicU16::new(1),
            ways: Mutex::default(),
            relay,
            control,
        };
        cluster.begin(&["--services", &options.services, "--node-grace", &options.node_grace]);
        let here = format!("https://{}", cluster.relay.at);
        let admin = std::fs::read_to_string(cluster.folder.join("kubeconfig")).expect("`up` writes it");
        let admin = admin.replace("https://127.0.0.1:6443", &here);
        std::fs::write(&cluster.kubeconfig, admin).expect("a temporary folder is written to");
        Some(cluster)
    }

    /// Of an administrator, for whoever is in the network in which the cluster was made.
    pub fn kubeconfig(&self) -> &Path {
        &self.kubeconfig
    }

    /// Of anybody, for whoever is there too: `system:serviceaccount:NAMESPACE:NAME`, or a user with groups.
    #[track_caller]
    pub fn kubeconfig_of(&self, user: &str, groups: &[&str]) -> PathBuf {
        self.identify(user, groups, &format!("https://{}", self.relay.at))
    }

    /// Of anybody, for whoever is on a node or in another namespace of this cluster.
    #[track_caller]
    pub fn kubeconfig_inside(&self, user: &str, groups: &[&str]) -> PathBuf {
        self.identify(user, groups, &format!("https://{API}"))
    }

    /// As an administrator; what it printed.
    #[track_caller]
    pub fn kubectl(&self, arguments: &[&str]) -> String {
        self.try_kubectl(arguments, "").unwrap_or_else(|error| panic!("kubectl {arguments:?}: {error}"))
    }

    /// As above, with the complaints of kubectl, which may be what a test wants, and something to read.
    pub fn try_kubectl(&self, arguments: &[&str], input: &str) -> Result<String, String> {
        let mut kubectl = Command::new(self.programs.join("kubectl"));
        // No cache in the home of whoever runs the tests.
        kubectl.args(["--cache-dir", &self.folder.join("kubectl").to_string_lossy()]).args(arguments);
        kubectl.env("KUBECONFIG", &self.kubeconfig).env("HOME", &self.folder);
        kubectl.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = kubectl.spawn().expect("kubectl starts");
        let mut stdin = child.stdin.take().expect("it was asked for");
        // One that ends early does not read it.
        let _ = stdin.write_all(input.as_bytes());
        drop(stdin);
        let output = child.wait_with_output().expect("it is a child");
        let text = |it: &[u8]| String::from_utf8_lossy(it).trim_end().to_owned();
        if output.status.success() { Ok(text(&output.stdout)) } else { Err(text(&output.stderr)) }
    }

    /// Creates or changes what a manifest says.
    #[track_caller]
    pub fn apply(&self, manifest: &str) {
        let applied = self.try_kubectl(&["apply", "-f", "-"], manifest);
        applied.unwrap_or_else(|error| panic!("{error}\n{manifest}"));
    }

    /// Adds the kinds that a manifest defines, and returns once objects of each of them can be made.
    #[track_caller]
    pub fn define(&self, definitions: &str) {
        let applied = self.try_kubectl(&["apply", "-o", "name", "-f", "-"], definitions);
        let applied = applied.unwrap_or_else(|error| panic!("{error}\n{definitions}"));
        for kind in applied.lines().filter_map(|it| it.strip_prefix(DEFINITION)) {
            // One is Established before everybody has heard of it.
            until(&format!("{kind} are known"), || self.try_kubectl(&["get", kind], "").is_ok());
        }
    }

    /// A node of that name, Ready, with a kube-proxy.
    #[track_caller]
    pub fn node(&self, name: &str) -> Node {
        self.node_with(name, NodeOptions::default())
    }

    #[track_caller]
    pub fn node_with(&self, name: &str, options: NodeOptions) -> Node {
        Node::join(self, name, options)
    }

    /// A namespace beside the nodes, with the address 10.10.255.N: who asks from outside, a router, a host that is no
    /// node. It has no way to pods and Services but those that it is given.
    #[track_caller]
    pub fn neighbour(&self, role: &str) -> Namespace {
        let number = self.next();
        let namespace = Namespace::create(role);
        self.cable(&namespace, "eth0", number);
        namespace.address("eth0", &format!("10.10.255.{number}/16"));
        namespace.address("eth0", &format!("fd00:10::ff:{number}/64"));
        namespace
    }

    /// Where the control plane runs.
    pub fn control(&self) -> &Namespace {
        &self.control
    }

    /// Stops the API server where it is: connections stay open, and nothing answers.
    #[track_caller]
    pub fn pause_api(&self) {
        self.signal("apiserver", Signal::SIGSTOP);
    }

    #[track_caller]
    pub fn resume_api(&self) {
        self.signal("apiserver", Signal::SIGCONT);
    }

    /// Ends the API server at once.
    #[track_caller]
    pub fn kill_api(&self) {
        let process = self.signal("apiserver", Signal::SIGKILL);
        until("the API server is gone", || !is_alive(process));
    }

    /// Starts what was killed, at the same address, with the same data.
    #[track_caller]
    pub fn start_api(&self) {
        self.begin(&[]);
    }

    pub(super) fn folder(&self) -> &Path {
        &self.folder
    }

    pub(super) fn programs(&self) -> &Path {
        &self.programs
    }

    /// Networks of ClusterIPs, IPv4 first.
    pub(super) fn services(&self) -> impl Iterator<Item = &str> {
        self.services.split(',')
    }

    pub(super) fn images(&self) -> &BTreeMap<String, Vec<String>> {
        &self.images
    }

    /// A number that nobody else in this cluster has.
    pub(super) fn next(&self) -> u16 {
        self.made.fetch_add(1, Ordering::Relaxed)
    }

    /// Plugs a namespace into the bridge; the name of the port there.
    #[track_caller]
    pub(super) fn cable(&self, namespace: &Namespace, link: &str, number: u16) -> String {
        let port = format!("port{number}");
        self.control.cable(&port, namespace, link);
        self.control.ip(&["link", "set", &port, "master", BRIDGE, "up"]);
        port
    }

    /// Tells everybody in the cluster where the pods of a new node are, and that node where theirs are.
    #[track_caller]
    pub(super) fn join_pods(&self, place: &Arc<Place>, own: &[String]) {
        let mut ways = self.ways.lock().unwrap_or_else(PoisonError::into_inner);
        let new: Vec<(String, String)> = place.networks().into_iter().zip(own.iter().cloned()).collect();
        for (to, via) in &new {
            self.control.route(to, via);
        }
        ways.retain(|(other, _)| other.strong_count() > 0);
        for (other, theirs) in ways.iter() {
            let Some(other) = other.upgrade() else { continue };
            new.iter().for_each(|(to, via)| other.namespace.route(to, via));
            theirs.iter().for_each(|(to, via)| place.namespace.route(to, via));
        }
        ways.push((Arc::downgrade(place), new));
    }

    #[track_caller]
    fn begin(&self, options: &[&str]) {
        let folder = self.folder.to_string_lossy();
        let this = std::process::id().to_string();
        let mut up = self.control.command(&path("up"));
        up.args(["--dir", &folder, "--address", ADDRESS, "--for", &this]).args(options);
        let output = up.stdin(Stdio::null()).output().expect("ip starts");
        let (said, told) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        assert!(output.status.success(), "the control plane did not come up: {said}{told}");
    }

    #[track_caller]
    fn identify(&self, user: &str, groups: &[&str], server: &str) -> PathBuf {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let file = self.folder.join(format!("kubeconfig-{}", NEXT.fetch_add(1, Ordering::Relaxed)));
        // Tokens are asked for at the API server, which is not on the loopback of the caller.
        let mut kubeconfig = self.control.command(&path("kubeconfig"));
        kubeconfig.args(["--dir", &self.folder.to_string_lossy(), "--server", server, user]).args(groups);
        let output = kubeconfig.stdin(Stdio::null()).output().expect("ip starts");
        assert!(output.status.success(), "{user}: {}", String::from_utf8_lossy(&output.stderr));
        std::fs::write(&file, output.stdout).expect("a temporary folder is written to");
        file
    }

    #[track_caller]
    fn signal(&self, name: &str, signal: Signal) -> Pid {
        let file = self.folder.join("run").join(format!("{name}.pid"));
        let line = std::fs::read_to_string(file).expect("it was started");
        let id = line.split_whitespace().next().and_then(|it| it.parse().ok()).expect("`up` wrote an id");
        kill(Pid::from_raw(id), signal).expect("it runs");
        Pid::from_raw(id)
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        let folder = self.folder.to_string_lossy();
        let _ = Command::new(path("down")).args(["--dir", &folder]).stdin(Stdio::null()).output();
    }
}

fn lacking() -> Option<&'static str> {
    if !nix::unistd::geteuid().is_root() {
        return Some("a Kubernetes in network namespaces needs root");
    }
    let installed = Command::new(path("install")).arg("--missing").stdout(Stdio::null()).status();
    let installed = installed.is_ok_and(|it| it.success());
    (!installed)
        .then_some("no Kubernetes is installed: ./test kubernetes installs it, or rig/kubernetes/install")
}

fn images(options: &Options) -> BTreeMap<String, Vec<String>> {
    let pod = last_line(&command(&path("install"), &["--pod"]));
    let ours = [
        ("web", &["web"][..]),
        ("nginx", &["web"]),
        ("tcp", &["tcp", "7"]),
        ("mysql", &["tcp", "3306"]),
        ("udp", &["udp", "7"]),
        ("stubborn", &["stubborn"]),
    ];
    let ours = ours.into_iter().map(|(image, arguments)| {
        let line = std::iter::once(&*pod).chain(arguments.iter().copied());
        (image.to_owned(), line.map(str::to_owned).collect())
    });
    ours.chain(options.images.clone()).collect()
}

fn is_alive(process: Pid) -> bool {
    let state = std::fs::read_to_string(format!("/proc/{process}/stat")).unwrap_or_default();
    state.rsplit_once(") ").is_some_and(|(_, rest)| !rest.starts_with(['Z', 'X']))
}

fn last_line(said: &str) -> String {
    said.lines().last().unwrap_or_default().to_owned()
}

fn path(name: &str) -> String {
    format!("{}/../../rig/kubernetes/{name}", env!("CARGO_MANIFEST_DIR"))
}
