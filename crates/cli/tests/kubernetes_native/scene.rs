//! A cluster with Seaway in it: a controller, and on each node what `seaway node` does.

use std::{
    collections::BTreeMap,
    fs,
    net::SocketAddr,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::Arc,
    time::Duration,
};

use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};

use seaway_testkit::{
    kubernetes::{Cluster, Node, Options},
    topology::{Namespace, until},
};
use tempfile::TempDir;

pub(crate) const SEAWAY: &str = env!("CARGO_BIN_EXE_seaway");

pub(crate) const POOL: &str = "
apiVersion: seaway.dev/v1alpha1
kind: AddressPool
metadata: {name: public}
spec: {addresses: [203.0.113.0/28, 2001:db8:113::/124]}
";

/// A pod that is to end serves for three seconds more.
pub(crate) const PRE_STOP: &str = "        lifecycle: {preStop: {sleep: {seconds: 3}}}\n";

/// Of the image `web`; whoever is asked to end serves on until everybody knows.
pub(crate) fn deployment(name: &str, replicas: u16) -> String {
    format!(
        "
apiVersion: apps/v1
kind: Deployment
metadata: {{name: {name}}}
spec:
  replicas: {replicas}
  selector: {{matchLabels: {{app: {name}}}}}
  template:
    metadata: {{labels: {{app: {name}}}}}
    spec:
      terminationGracePeriodSeconds: 20
      containers:
      - name: web
        image: web
        ports: [{{containerPort: 80}}]
        readinessProbe: {{httpGet: {{path: /ready, port: 80}}, periodSeconds: 1}}
{PRE_STOP}"
    )
}

/// On port 80, with what else is to be in its spec.
pub(crate) fn service(name: &str, spec: &str) -> String {
    format!(
        "
apiVersion: v1
kind: Service
metadata: {{name: {name}}}
spec: {{type: LoadBalancer, ports: [{{port: 80}}], {spec}}}
"
    )
}

/// Until the silence of whoever led is noticed, with time for whoever is to notice.
pub(crate) const A_TERM: Duration = Duration::from_secs(150);

/// Who runs Seaway, bound to the roles that it prints.
pub(crate) const CONTROLLER: &str = "seaway-controller";
pub(crate) const NODE: &str = "seaway-node";

/// Dropping it takes everything down, the processes first.
pub(crate) struct Scene {
    processes: BTreeMap<String, Process>,
    pub(crate) nodes: Vec<Node>,
    pub(crate) outside: Namespace,
    pub(crate) cluster: Arc<Cluster>,
    /// Of whoever is started from now on. `$FOLDER` is a folder of the test's, and `$HOST` the name of the host.
    pub(crate) configuration: &'static str,
    /// Of controllers that are started from now on.
    pub(crate) cloud: Option<PathBuf>,
    /// What that cloud calls this cluster.
    pub(crate) cluster_name: &'static str,
    /// Whether the next process of a host takes over from the one that serves.
    pub(crate) is_handed_over: bool,
    /// Which controllers those run, of a cloud.
    pub(crate) controllers: &'static str,
    folder: TempDir,
}

/// A process of Seaway's, with its log.
pub(crate) struct Process {
    child: Child,
    log: PathBuf,
}

impl Process {
    fn log(&self) -> String {
        fs::read_to_string(&self.log).unwrap_or_default()
    }

    fn signal(&self, signal: Signal) {
        let id = i32::try_from(self.child.id()).expect("process ids are small");
        kill(Pid::from_raw(id), signal).expect("it runs");
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        if std::thread::panicking() {
            eprintln!("--- {}\n{}", self.log.display(), self.log());
        }
    }
}

impl Scene {
    /// With so many nodes, an outside whose way to the pool leads through the first, and Seaway at work on all.
    pub(crate) fn up(nodes: usize) -> Option<Scene> {
        Scene::of(Scene::bare()?, nodes)
    }

    /// As above, by another configuration.
    pub(crate) fn with(nodes: usize, configuration: &'static str) -> Option<Scene> {
        Scene::of(Scene { configuration, ..Scene::bare()? }, nodes)
    }

    /// As `up`; processes of hosts take over from each other.
    pub(crate) fn handed_over(nodes: usize) -> Option<Scene> {
        Scene::of(Scene { is_handed_over: true, ..Scene::bare()? }, nodes)
    }

    /// Whose nodes are not Ready when they were silent for ten seconds.
    pub(crate) fn strict(nodes: usize) -> Option<Scene> {
        Scene::of(Scene::with_grace("10s")?, nodes)
    }

    /// With so many nodes, as `up`, in a scene that has none yet.
    pub(crate) fn of(mut scene: Scene, nodes: usize) -> Option<Scene> {
        let names = ["a", "b", "c"].into_iter().take(nodes);
        scene.nodes = names.map(|name| scene.cluster.node(name)).collect();
        scene.install();
        scene.lead("controller");
        for at in 0..scene.nodes.len() {
            scene.serve(at);
        }
        scene.lead_to(0);
        Some(scene)
    }

    /// From now on the way of the outside to the pool is through this node.
    pub(crate) fn lead_to(&self, node: usize) {
        let ways = self.nodes.get(node).map_or(&[][..], Node::addresses);
        for (pool, way) in ["203.0.113.0/28", "2001:db8:113::/124"].into_iter().zip(ways) {
            self.outside.route(pool, way);
        }
    }

    /// A cluster that knows nothing of us.
    pub(crate) fn bare() -> Option<Scene> {
        // An API server that is away takes the kubelets' signs of life with it; on a busy machine it is away for long.
        Scene::with_grace("10m")
    }

    /// As `bare`; pods of Seaway run from an image that is unpacked there.
    pub(crate) fn of_image(root: &Path) -> Option<Scene> {
        let images = [("seaway".to_owned(), vec!["/seaway".to_owned()])].into();
        let roots = [("seaway".to_owned(), root.to_owned())].into();
        Scene::on(Options { images, roots, node_grace: "10m".to_owned(), ..Options::default() })
    }

    fn with_grace(node_grace: &str) -> Option<Scene> {
        let images = [("seaway".to_owned(), vec![SEAWAY.to_owned()])].into();
        Scene::on(Options { images, node_grace: node_grace.to_owned(), ..Options::default() })
    }

    fn on(options: Options) -> Option<Scene> {
        let cluster = Arc::new(Cluster::up(&options)?);
        let outside = cluster.neighbour("outside");
        let folder = tempfile::tempdir().expect("a folder");
        let configuration = "{defaultDriver: native, admin: {listen: [\"127.0.0.1:0\"]}}";
        Some(Scene {
            processes: BTreeMap::new(),
            nodes: Vec::new(),
            outside,
            cluster,
            configuration,
            cloud: None,
            cluster_name: "kubernetes",
            is_handed_over: false,
            controllers: "service",
            folder,
        })
    }

    /// What `seaway crds` prints, roles bound to those who need them, and a pool.
    pub(crate) fn install(&self) {
        self.install_definitions();
        self.cluster.apply(POOL);
        for user in [CONTROLLER, NODE] {
            self.bind(&format!("--user={user}"), user);
        }
    }

    /// Lets somebody be a part of Seaway, by the role of that part and those that all have. Leases are in `default`.
    pub(crate) fn bind(&self, who: &str, role: &str) {
        let (_, name) = who.rsplit_once(['=', ':']).expect("--user=NAME or the like");
        let everywhere = [role, "seaway-reader", "seaway-certificates"].map(|it| ("clusterrolebinding", it));
        let reader = ("rolebinding", "seaway-lease-reader");
        let of_part = match role {
            CONTROLLER => &["seaway-leader", "seaway-records"][..],
            _ => &["seaway-leases"],
        };
        let of_part = of_part.iter().map(|it| ("rolebinding", *it));
        // Some scenes get a cloud later.
        let cloud = Some(("clusterrolebinding", "seaway-cloud")).filter(|_| role == CONTROLLER);
        for (kind, role) in everywhere.into_iter().chain([reader]).chain(of_part).chain(cloud) {
            let (binding, role) = (format!("{name}-{role}"), format!("--clusterrole={role}"));
            self.cluster.kubectl(&["create", kind, &binding, &role, who]);
        }
    }

    pub(crate) fn install_definitions(&self) {
        let printed = Command::new(SEAWAY).arg("crds").output().expect("seaway runs");
        self.cluster.define(&String::from_utf8(printed.stdout).expect("is text"));
    }

    /// Starts a controller. `a#2` is another one on a host called `a`.
    pub(crate) fn lead(&mut self, name: &str) {
        let kubeconfig = self.cluster.kubeconfig_of(CONTROLLER, &[]);
        self.lead_as(name, &kubeconfig, "default");
    }

    /// As above, as anybody, with its Lease in that namespace.
    pub(crate) fn lead_as(&mut self, name: &str, kubeconfig: &Path, namespace: &str) {
        self.start(name, "controller", Command::new(SEAWAY), kubeconfig, namespace);
    }

    /// Starts the host that this node is.
    pub(crate) fn serve(&mut self, at: usize) {
        let kubeconfig = self.cluster.kubeconfig_inside(NODE, &[]);
        self.serve_by(at, &kubeconfig);
    }

    /// As above, as anybody.
    pub(crate) fn serve_by(&mut self, at: usize, kubeconfig: &Path) {
        let name = self.nodes[at].name().to_owned();
        let command = self.nodes[at].namespace().command(SEAWAY);
        self.start(&name, "node", command, kubeconfig, "default");
    }

    /// Starts one more process of this node's host, `a#2` of `a`, as a pod of that name.
    pub(crate) fn serve_too(&mut self, at: usize, name: &str) {
        let kubeconfig = self.cluster.kubeconfig_inside(NODE, &[]);
        let command = self.nodes[at].namespace().command(SEAWAY);
        self.start(name, "node", command, &kubeconfig, "default");
    }

    /// Starts a host that is no node, out there.
    pub(crate) fn serve_beside(&mut self, name: &str, outside: &Namespace) {
        let kubeconfig = self.cluster.kubeconfig_inside(NODE, &[]);
        self.start(name, "node", outside.command(SEAWAY), &kubeconfig, "default");
    }

    fn start(&mut self, name: &str, part: &str, mut command: Command, kubeconfig: &Path, namespace: &str) {
        let log = self.folder.path().join(format!("{name}.log"));
        let config = self.folder.path().join(format!("{name}.yaml"));
        let host = name.split('#').next().unwrap_or(name);
        let folder = self.folder.path().display().to_string();
        let configuration = self.configuration.replace("$FOLDER", &folder).replace("$HOST", host);
        fs::write(&config, configuration).expect("is written");
        let file = fs::File::create(&log).expect("a log");
        command.arg(part).arg("--kubeconfig").arg(kubeconfig).arg("--config").arg(&config);
        command.args(["--namespace", namespace, "--host", host]);
        if part == "node" && self.is_handed_over {
            command.arg("--handover").arg(self.folder.path().join(format!("{host}.handover")));
            command.args(["--pod-name", name]);
        } else if part == "node" {
            command.arg("--snapshot").arg(self.snapshot(name));
        }
        if let Some(file) = self.cloud.as_ref().filter(|_| part == "controller") {
            command.arg("--cloud-config").arg(file).args(["--cluster-name", self.cluster_name]);
            command.args(["--controllers", self.controllers]);
        }
        command.stdin(Stdio::null()).stdout(file.try_clone().expect("the same log")).stderr(file);
        let process = Process { child: command.spawn().expect("seaway runs"), log };
        assert!(self.processes.insert(name.to_owned(), process).is_none(), "{name} runs already");
    }

    /// A file beside configurations, which its owner alone may read.
    pub(crate) fn write_private(&self, name: &str, text: &str) {
        let path = self.folder.path().join(name);
        fs::write(&path, text).expect("is written");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).expect("is ours");
    }

    /// A file or folder beside configurations.
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Where a node keeps what it knows.
    pub(crate) fn snapshot(&self, name: &str) -> PathBuf {
        self.folder.path().join(format!("{name}.snapshot"))
    }

    /// Ends a process at once, without a word.
    pub(crate) fn kill(&mut self, name: &str) {
        drop(self.processes.remove(name).expect("it runs"));
    }

    /// As above, of a controller that leads, as if its term were over, too.
    pub(crate) fn end(&mut self, name: &str) {
        self.kill(name);
        self.cluster.kubectl(&["delete", "lease", "seaway-controller"]);
    }

    /// Asks a process to end.
    pub(crate) fn terminate(&self, name: &str) {
        self.processes[name].signal(Signal::SIGTERM);
    }

    /// Waits for its end; whether all was well, and its log.
    pub(crate) fn ended(&mut self, name: &str) -> (bool, String) {
        let mut status = None;
        until("it ends", || {
            status = self.processes.get_mut(name).expect("it runs").child.try_wait().expect("it is ours");
            status.is_some()
        });
        let log = self.log(name);
        self.processes.remove(name);
        (status.is_some_and(|it| it.success()), log)
    }

    pub(crate) fn pause(&self, name: &str) {
        self.processes[name].signal(Signal::SIGSTOP);
    }

    pub(crate) fn resume(&self, name: &str) {
        self.processes[name].signal(Signal::SIGCONT);
    }

    /// What a process has logged.
    pub(crate) fn log(&self, name: &str) -> String {
        self.processes[name].log()
    }

    /// What a node tells of its state.
    pub(crate) fn state(&self, node: &Node) -> String {
        node.namespace().curl(&format!("{}state", self.page(node.name()))).unwrap_or_default()
    }

    /// Where its status page is.
    pub(crate) fn page(&self, name: &str) -> String {
        let log = self.log(name);
        let page = log.lines().rev().find_map(|line| line.split_once("status page at ")).map(|(_, at)| at);
        page.unwrap_or_default().to_owned()
    }

    /// Who leads: the name of a controller, with something behind it.
    pub(crate) fn leader(&self) -> String {
        self.field("lease/seaway-controller", "{.spec.holderIdentity}")
    }

    pub(crate) fn field(&self, object: &str, path: &str) -> String {
        self.cluster.field(object, path).unwrap_or_default()
    }

    /// Whether the API server says that it is not there.
    pub(crate) fn is_gone(&self, object: &str) -> bool {
        self.cluster.is_gone(object)
    }

    /// The address that a Service was given, once it has one.
    pub(crate) fn address(&self, service: &str) -> String {
        let mut address = String::new();
        until(&format!("{service} has an address"), || {
            address = self.field(&format!("service/{service}"), "{.status.loadBalancer.ingress[0].ip}");
            !address.is_empty()
        });
        address
    }

    /// Where a Service is, once a pod answers there.
    pub(crate) fn answering(&self, service: &str) -> SocketAddr {
        let ip = self.address(service);
        let url = format!("http://{ip}/");
        until("a pod answers", || {
            self.outside.curl(&url).is_ok_and(|it| it.starts_with(&format!("{service}-")))
        });
        SocketAddr::new(ip.parse().expect("an address of IPv4"), 80)
    }
}
