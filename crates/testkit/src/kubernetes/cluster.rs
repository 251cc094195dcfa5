use std::{
    collections::BTreeMap,
    io::Write,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    sync::{
        Arc, Mutex, OnceLock, PoisonError, Weak,
        atomic::{AtomicBool, AtomicU16, AtomicU32, Ordering},
    },
};

use nix::{sys::signal::Signal, unistd::Pid};

use super::{
    Node, NodeOptions,
    api::Api,
    kubectl,
    node::NodeContext,
    plane::{API, BRIDGE, ControlPlane, Settings, is_alive, last_line, path},
    pool,
};
use crate::{
    skip,
    topology::{Namespace, command, until},
};

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
    /// Where an image of `images` is unpacked: its containers see these files alone. Others see those of the machine.
    pub roots: BTreeMap<String, PathBuf>,
}

impl Options {
    fn settings(&self) -> Settings {
        Settings { services: self.services.clone(), node_grace: self.node_grace.clone() }
    }
}

impl Default for Options {
    fn default() -> Options {
        Options {
            services: "10.96.0.0/12,fd00:96::/108".to_owned(),
            node_grace: "10s".to_owned(),
            images: BTreeMap::new(),
            roots: BTreeMap::new(),
        }
    }
}

/// A control plane with nothing in it, and its networks. Dropping it gives it back to be emptied, and used by the next test;
/// after a panic, and where a test did what is no work of objects, it is taken down. A killed test's goes by itself.
#[derive(Debug)]
pub struct Cluster {
    images: BTreeMap<String, Vec<String>>,
    roots: BTreeMap<String, PathBuf>,
    made: AtomicU16,
    ways: Mutex<Vec<(Weak<NodeContext>, Ways)>>,
    /// No other test gets it.
    spoilt: AtomicBool,
    api: OnceLock<Api>,
    /// Taken by the drop alone.
    plane: Option<ControlPlane>,
}

impl Cluster {
    /// Without root, or where nothing is installed, the test is skipped, and says so; with `CI=true` or
    /// `SEAWAY_KUBERNETES_TESTS=required` it fails instead.
    #[track_caller]
    pub fn up(options: &Options) -> Option<Cluster> {
        is_possible().then(|| Cluster::on(pool::take(options.settings()), options))
    }

    /// As above, one that no other test has had or will have.
    #[track_caller]
    pub fn alone(options: &Options) -> Option<Cluster> {
        let cluster = is_possible().then(|| Cluster::on(ControlPlane::start(options.settings()), options))?;
        cluster.spoil();
        Some(cluster)
    }

    fn on(plane: ControlPlane, options: &Options) -> Cluster {
        Cluster {
            images: images(options),
            roots: options.roots.clone(),
            made: AtomicU16::new(1),
            ways: Mutex::default(),
            spoilt: AtomicBool::default(),
            api: OnceLock::new(),
            plane: Some(plane),
        }
    }

    /// No other test gets its control plane.
    pub fn spoil(&self) {
        self.spoilt.store(true, Ordering::Relaxed);
    }

    fn api(&self) -> &Api {
        self.api.get_or_init(|| Api::start(self.kubeconfig().to_owned()))
    }

    pub(super) fn plane(&self) -> &ControlPlane {
        self.plane.as_ref().expect("it is taken by the drop alone")
    }

    /// Of an administrator, for whoever is in the network in which the cluster was made.
    pub fn kubeconfig(&self) -> &Path {
        &self.plane().kubeconfig
    }

    /// Of anybody, for whoever is there too: `system:serviceaccount:NAMESPACE:NAME`, or a user with groups.
    #[track_caller]
    pub fn kubeconfig_of(&self, user: &str, groups: &[&str]) -> PathBuf {
        self.identify(user, groups, &format!("https://{}", self.plane().relay.at))
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

    /// As above, with the complaints of kubectl, which may be what a test wants, and something to read. What is simple is
    /// done by HTTP: a tenth of what a process costs. Objects are applied by the server then.
    pub fn try_kubectl(&self, arguments: &[&str], input: &str) -> Result<String, String> {
        match kubectl::carry_out(self.api(), arguments, input) {
            Some(done) => done.map(|it| it.trim_end().to_owned()),
            None => self.kubectl_process(arguments, input),
        }
    }

    /// As above, always by the program that people use.
    pub fn kubectl_process(&self, arguments: &[&str], input: &str) -> Result<String, String> {
        let mut kubectl = Command::new(self.plane().programs.join("kubectl"));
        // No cache in the home of whoever runs the tests.
        kubectl.args(["--cache-dir", &self.folder().join("kubectl").to_string_lossy()]).args(arguments);
        kubectl.env("KUBECONFIG", self.kubeconfig()).env("HOME", self.folder());
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

    /// What `kubectl get OBJECT -o jsonpath=PATH` prints, for a twentieth of what that costs: to be looked at again and again.
    pub fn field(&self, object: &str, path: &str) -> Result<String, String> {
        match self.api().field(object, path) {
            Some(field) => field,
            None => self.try_kubectl(&["get", object, "-o", &format!("jsonpath={path}")], ""),
        }
    }

    /// Whether the API server says that `KIND/NAME` is not there.
    pub fn is_gone(&self, object: &str) -> bool {
        self.api().object(object).is_ok_and(|it| it.is_none())
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
        let applied = self.try_kubectl(&["apply", "-f", "-"], definitions);
        let applied = applied.unwrap_or_else(|error| panic!("{error}\n{definitions}"));
        for line in applied.lines().filter_map(|it| it.strip_prefix(DEFINITION)) {
            let kind = line.split(' ').next().unwrap_or_default();
            // One is Established before everybody has heard of it.
            until(&format!("{kind} are known"), || self.api().object(kind).is_ok());
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
        namespace.believe_no_redirects();
        self.cable(&namespace, "eth0", number);
        namespace.address("eth0", &format!("10.10.255.{number}/16"));
        namespace.address("eth0", &format!("fd00:10::ff:{number}/64"));
        namespace
    }

    /// Where the control plane runs.
    pub fn control(&self) -> &Namespace {
        &self.plane().control
    }

    /// Stops the API server where it is: connections stay open, and nothing answers.
    #[track_caller]
    pub fn pause_api(&self) {
        self.spoil();
        self.plane().signal("apiserver", Signal::SIGSTOP);
    }

    #[track_caller]
    pub fn resume_api(&self) {
        self.plane().signal("apiserver", Signal::SIGCONT);
    }

    /// Ends the API server at once.
    #[track_caller]
    pub fn kill_api(&self) {
        self.spoil();
        let process = self.plane().signal("apiserver", Signal::SIGKILL);
        until("the API server is gone", || !is_alive(process));
    }

    /// Starts what was killed, at the same address, with the same data.
    #[track_caller]
    pub fn start_api(&self) {
        self.plane().begin(&[]);
    }

    /// As after a compaction that an API server's own memory does not bridge: whoever goes on where it was hears 410 Gone.
    #[track_caller]
    pub fn forget_the_past(&self) {
        self.kill_api();
        self.plane().compact().expect("etcd forgets what was");
        self.start_api();
    }

    #[track_caller]
    pub(super) fn signal(&self, process: &str, signal: Signal) -> Pid {
        self.plane().signal(process, signal)
    }

    pub(super) fn network(&self) -> &Arc<Namespace> {
        &self.plane().control
    }

    pub(super) fn folder(&self) -> &Path {
        &self.plane().folder
    }

    pub(super) fn programs(&self) -> &Path {
        &self.plane().programs
    }

    /// Networks of ClusterIPs, IPv4 first.
    pub(super) fn services(&self) -> impl Iterator<Item = &str> {
        self.plane().settings.services.split(',')
    }

    pub(super) fn images(&self) -> &BTreeMap<String, Vec<String>> {
        &self.images
    }

    pub(super) fn roots(&self) -> &BTreeMap<String, PathBuf> {
        &self.roots
    }

    /// A number that nobody else in this cluster has.
    pub(super) fn next(&self) -> u16 {
        self.made.fetch_add(1, Ordering::Relaxed)
    }

    /// Plugs a namespace into the bridge; the name of the port there.
    #[track_caller]
    pub(super) fn cable(&self, namespace: &Namespace, link: &str, number: u16) -> String {
        let port = format!("port{number}");
        self.control().cable(&port, namespace, link);
        self.control().ip(&["link", "set", &port, "master", BRIDGE, "up"]);
        port
    }

    /// Tells everybody in the cluster where the pods of a new node are, and that node where theirs are.
    #[track_caller]
    pub(super) fn join_pods(&self, place: &Arc<NodeContext>, own: &[String]) {
        let mut ways = self.ways.lock().unwrap_or_else(PoisonError::into_inner);
        let new: Vec<(String, String)> = place.networks().into_iter().zip(own.iter().cloned()).collect();
        for (to, via) in &new {
            self.control().route(to, via);
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
    fn identify(&self, user: &str, groups: &[&str], server: &str) -> PathBuf {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let file = self.folder().join(format!("kubeconfig-{}", NEXT.fetch_add(1, Ordering::Relaxed)));
        std::fs::write(&file, self.plane().identity(user, groups, server))
            .expect("a temporary folder is written to");
        file
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        let Some(plane) = self.plane.take() else { return };
        drop(self.api.take());
        match self.spoilt.load(Ordering::Relaxed) {
            _ if std::thread::panicking() => pool::discard(plane, "its test failed"),
            true => drop(plane),
            false => pool::give_back(plane),
        }
    }
}

/// What kubectl prints without any cluster, or what it complains of. Nothing, and the test is skipped, where none is installed.
#[track_caller]
pub fn kubectl_alone(arguments: &[&str]) -> Option<Result<String, String>> {
    if !is_possible() {
        return None;
    }
    let programs = PathBuf::from(last_line(&command(&path("install"), &[])));
    let output = Command::new(programs.join("kubectl")).args(arguments).stdin(Stdio::null()).output();
    let output = output.expect("kubectl starts");
    let text = |it: &[u8]| String::from_utf8_lossy(it).into_owned();
    Some(if output.status.success() { Ok(text(&output.stdout)) } else { Err(text(&output.stderr)) })
}

#[track_caller]
fn is_possible() -> bool {
    let why = lacking();
    if let Some(why) = why {
        skip(Some("SEAWAY_KUBERNETES_TESTS"), why);
    }
    why.is_none()
}

fn lacking() -> Option<&'static str> {
    static INSTALLED: OnceLock<bool> = OnceLock::new();
    if !nix::unistd::geteuid().is_root() {
        return Some("a Kubernetes in network namespaces needs root");
    }
    let is_installed = || {
        let missing = Command::new(path("install")).arg("--missing").stdout(Stdio::null()).status();
        missing.is_ok_and(|it| it.success())
    };
    (!INSTALLED.get_or_init(is_installed))
        .then_some("no Kubernetes is installed: ./test kubernetes installs it, or rig/kubernetes/install")
}

fn images(options: &Options) -> BTreeMap<String, Vec<String>> {
    static POD: OnceLock<String> = OnceLock::new();
    let pod = POD.get_or_init(|| last_line(&command(&path("install"), &["--pod"])));
    let ours = [
        ("web", &["web"][..]),
        ("nginx", &["web"]),
        ("tcp", &["tcp", "7"]),
        ("mysql", &["tcp", "3306"]),
        ("udp", &["udp", "7"]),
        ("stubborn", &["stubborn"]),
    ];
    let ours = ours.into_iter().map(|(image, arguments)| {
        let line = std::iter::once(pod.as_str()).chain(arguments.iter().copied());
        (image.to_owned(), line.map(str::to_owned).collect())
    });
    ours.chain(options.images.clone()).collect()
}
