//! A cluster with Seaway in it: a controller, and on each node what `seaway node` does.

use std::{
    fs,
    path::PathBuf,
    process::{Child, Command, Stdio},
};

use seaway_testkit::{
    kubernetes::{Cluster, Node, Options},
    topology::{Namespace, until},
};
use tempfile::TempDir;

const SEAWAY: &str = env!("CARGO_BIN_EXE_seaway");

pub(crate) const POOL: &str = "
apiVersion: seaway.dev/v1alpha1
kind: AddressPool
metadata: {name: public}
spec: {addresses: [203.0.113.0/28, 2001:db8:113::/124]}
";

/// Dropping it takes everything down, the processes first.
pub(crate) struct Scene {
    processes: Vec<Process>,
    pub(crate) nodes: Vec<Node>,
    pub(crate) outside: Namespace,
    pub(crate) cluster: Cluster,
    folder: TempDir,
}

/// A process of Seaway's, with its log.
pub(crate) struct Process {
    child: Child,
    log: PathBuf,
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        if std::thread::panicking() {
            eprintln!("--- {}\n{}", self.log.display(), fs::read_to_string(&self.log).unwrap_or_default());
        }
    }
}

impl Scene {
    /// With so many nodes, an outside whose way to the pool leads through the first, and Seaway at work on all.
    pub(crate) fn up(nodes: usize) -> Option<Scene> {
        let cluster = Cluster::up(&Options::default())?;
        let nodes: Vec<Node> =
            ["a", "b", "c"].into_iter().take(nodes).map(|name| cluster.node(name)).collect();
        let outside = cluster.neighbour("outside");
        let folder = tempfile::tempdir().expect("a folder");
        let printed = Command::new(SEAWAY).arg("crds").output().expect("seaway runs");
        cluster.apply(&String::from_utf8(printed.stdout).expect("is text"));
        cluster.apply(POOL);
        let mut scene = Scene { processes: Vec::new(), nodes, outside, cluster, folder };
        scene.lead("controller");
        for at in 0..scene.nodes.len() {
            scene.serve(at);
        }
        for (pool, address) in [("203.0.113.0/28", 0), ("2001:db8:113::/124", 1)] {
            scene.outside.route(pool, &scene.nodes[0].addresses()[address]);
        }
        Some(scene)
    }

    /// Starts a controller.
    pub(crate) fn lead(&mut self, name: &str) {
        let kubeconfig = self.cluster.kubeconfig().to_owned();
        self.start(
            name,
            Command::new(SEAWAY),
            &["controller", "--kubeconfig", &kubeconfig.to_string_lossy()],
        );
    }

    /// Starts the host that this node is.
    pub(crate) fn serve(&mut self, at: usize) {
        let kubeconfig = self.cluster.kubeconfig_inside("seaway-node", &["system:masters"]);
        let name = self.nodes[at].name().to_owned();
        let command = self.nodes[at].namespace().command(SEAWAY);
        let host = ["--host", &name];
        self.start(
            &format!("node-{name}"),
            command,
            &[&["node", "--kubeconfig", &kubeconfig.to_string_lossy()][..], &host].concat(),
        );
    }

    fn start(&mut self, name: &str, mut command: Command, arguments: &[&str]) {
        let log = self.folder.path().join(format!("{name}.log"));
        let config = self.folder.path().join(format!("{name}.yaml"));
        fs::write(&config, "admin: {listen: [\"127.0.0.1:0\"]}\n").expect("is written");
        let file = fs::File::create(&log).expect("a log");
        command.args(arguments).args(["--namespace", "default", "--config", &config.to_string_lossy()]);
        command.stdin(Stdio::null()).stdout(file.try_clone().expect("the same log")).stderr(file);
        self.processes.push(Process { child: command.spawn().expect("seaway runs"), log });
    }

    pub(crate) fn field(&self, object: &str, path: &str) -> String {
        self.cluster.try_kubectl(&["get", object, "-o", &format!("jsonpath={path}")], "").unwrap_or_default()
    }

    /// The address that a Service was given, once it has one.
    pub(crate) fn address(&self, service: &str) -> String {
        let path = "{.status.loadBalancer.ingress[0].ip}";
        until(&format!("{service} has an address"), || {
            !self.field(&format!("service/{service}"), path).is_empty()
        });
        self.field(&format!("service/{service}"), path)
    }
}
