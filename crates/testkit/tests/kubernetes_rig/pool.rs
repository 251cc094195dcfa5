//! That a control plane which a test gives back is as a new one for the next test, or is not used again.

use std::{
    collections::BTreeSet,
    io::{BufRead, BufReader, Write},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    thread,
};

use seaway_testkit::{
    kubernetes::{Cluster, METALLB, Options},
    topology::{command, until},
};

/// Nobody else's are as these: what is given back is there when it is asked for again.
fn of_its_own(node_grace: &str) -> Options {
    Options { node_grace: node_grace.to_owned(), ..Options::default() }
}

fn folder(cluster: &Cluster) -> PathBuf {
    cluster.kubeconfig().parent().expect("it is in a folder").to_owned()
}

/// What a person would list, but for events, which are written when it suits.
fn everything(cluster: &Cluster) -> BTreeSet<String> {
    let kinds = cluster.kubectl(&["api-resources", "--verbs", "list", "-o", "name"]);
    let volatile = |it: &&str| it.starts_with("events") || *it == "componentstatuses";
    let kinds: Vec<&str> = kinds.lines().filter(|it| !volatile(it)).collect();
    let about = "{.kind} {.metadata.namespace}/{.metadata.name} {.metadata.uid} {.metadata.labels} {.spec}";
    let path = format!("jsonpath={{range .items[*]}}{about}{{\"\\n\"}}{{end}}");
    let listed = cluster.kubectl(&["get", &kinds.join(","), "-A", "-o", &path]);
    // The API server renews its own.
    let lines = listed.lines().filter(|it| !it.starts_with("Lease kube-system/apiserver-"));
    lines.chain(kinds).map(str::to_owned).collect()
}

/// Something of every sort: with owners, with finalizers that nobody removes, cluster-wide, of a kind of its own, a system
/// object that is changed and one that is gone.
const LEFT: &str = "
apiVersion: v1
kind: Namespace
metadata: {name: left}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: held, namespace: left, finalizers: [example.com/never]}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: web}
spec:
  replicas: 2
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec: {containers: [{name: web, image: web, ports: [{containerPort: 80}]}]}
---
apiVersion: apps/v1
kind: DaemonSet
metadata: {name: everywhere}
spec:
  selector: {matchLabels: {app: everywhere}}
  template:
    metadata: {labels: {app: everywhere}}
    spec: {containers: [{name: web, image: web}]}
---
apiVersion: apps/v1
kind: StatefulSet
metadata: {name: ordered}
spec:
  serviceName: web
  selector: {matchLabels: {app: ordered}}
  template:
    metadata: {labels: {app: ordered}}
    spec: {containers: [{name: web, image: web}]}
---
apiVersion: batch/v1
kind: Job
metadata: {name: once}
spec:
  template:
    spec: {restartPolicy: Never, containers: [{name: web, image: web}]}
---
apiVersion: v1
kind: Service
metadata: {name: web, finalizers: [example.com/never]}
spec: {type: LoadBalancer, ipFamilyPolicy: PreferDualStack, selector: {app: web}, ports: [{port: 80, nodePort: 30080}]}
---
apiVersion: v1
kind: PersistentVolume
metadata: {name: left}
spec: {capacity: {storage: 1Gi}, accessModes: [ReadWriteOnce], hostPath: {path: /nowhere}}
---
apiVersion: networking.k8s.io/v1
kind: IngressClass
metadata: {name: left}
spec: {controller: example.com/none}
---
apiVersion: scheduling.k8s.io/v1
kind: PriorityClass
metadata: {name: left}
value: 7
---
apiVersion: coordination.k8s.io/v1
kind: Lease
metadata: {name: left, namespace: kube-system}
spec: {holderIdentity: nobody}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: left, labels: {rbac.authorization.k8s.io/aggregate-to-view: 'true'}}
rules: [{apiGroups: [example.com], resources: ['*'], verbs: [get]}]
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingWebhookConfiguration
metadata: {name: left}
webhooks:
- name: left.example.com
  admissionReviewVersions: [v1]
  sideEffects: None
  failurePolicy: Fail
  clientConfig: {url: 'https://127.0.0.1:1/'}
  rules: [{apiGroups: [''], apiVersions: [v1], resources: [secrets], operations: [CREATE]}]
---
apiVersion: apiregistration.k8s.io/v1
kind: APIService
metadata: {name: v1.left.example.com}
spec:
  group: left.example.com
  version: v1
  groupPriorityMinimum: 100
  versionPriority: 100
  service: {name: web, namespace: default}
---
apiVersion: flowcontrol.apiserver.k8s.io/v1
kind: FlowSchema
metadata: {name: left}
spec: {priorityLevelConfiguration: {name: exempt}}
";

/// As tests do, and worse.
fn use_up(cluster: &Cluster) {
    let _node = cluster.node("a");
    cluster.define(METALLB);
    cluster.apply(LEFT);
    cluster.kubectl(&["label", "namespace", "default", "left=yes"]);
    cluster.kubectl(&["delete", "clusterrole", "view"]);
    cluster.kubectl(&["rollout", "status", "deployment/web", "--timeout", "180s"]);
    cluster.neighbour("outside");
}

fn is_gone(folder: &Path) -> bool {
    let of_it = folder.to_string_lossy().into_owned();
    let all = std::fs::read_dir("/proc").expect("it is Linux").flatten();
    !folder.exists()
        && !all
            .map(|it| std::fs::read(it.path().join("cmdline")).unwrap_or_default())
            .any(|it| String::from_utf8_lossy(&it).contains(&of_it))
}

#[test]
fn an_emptied_control_plane_lists_the_same_as_a_fresh_one() {
    let options = of_its_own("11s");
    let Some(cluster) = Cluster::up(&options) else { return };
    let (fresh, first) = (everything(&cluster), folder(&cluster));
    use_up(&cluster);
    drop(cluster);
    for _ in 0..2 {
        let cluster = Cluster::up(&options).expect("it was there");
        assert_eq!(folder(&cluster), first, "it is the same one");
        assert_eq!(everything(&cluster), fresh);
        use_up(&cluster);
    }
}

#[test]
fn a_control_plane_that_cannot_be_emptied_was_stopped_or_saw_a_failure_is_replaced() {
    let options = of_its_own("12s");
    let Some(cluster) = Cluster::up(&options) else { return };
    let cases: [fn(Cluster); 4] = [has_another_network, has_no_scheduler, has_no_api_server, has_failed];
    let mut cluster = Some(cluster);
    let mut seen = BTreeSet::new();
    for case in cases {
        let cluster = cluster.take().or_else(|| Cluster::up(&options)).expect("it was there");
        let folder = folder(&cluster);
        assert!(seen.insert(folder.clone()), "{} is used again", folder.display());
        case(cluster);
        until("it is gone with its processes", || is_gone(&folder));
    }
}

fn has_another_network(cluster: Cluster) {
    cluster.control().run(|| command("nft", &["add", "table", "inet", "left"]));
}

fn has_no_scheduler(cluster: Cluster) {
    let process = folder(&cluster).join("run/kube-scheduler.pid");
    let process = std::fs::read_to_string(process).expect("it runs");
    command("kill", &["-KILL", process.split_whitespace().next().expect("an id")]);
}

fn has_no_api_server(cluster: Cluster) {
    cluster.kill_api();
}

fn has_failed(cluster: Cluster) {
    let failed = thread::spawn(move || {
        let _cluster = cluster;
        // Without the words of a panic.
        std::panic::resume_unwind(Box::new("it fails"));
    });
    assert!(failed.join().is_err());
}

/// What the program of the next test is to do, and how its line begins.
const CHILD: &str = "SEAWAY_POOL_CHILD";

#[test]
#[ignore = "run by another test, as a program of tests that ends in one way or another"]
fn a_control_plane_is_up() {
    let end = std::env::var(CHILD).expect("its parent says it");
    let cluster = Cluster::up(&Options::default()).expect("its parent has one");
    let line = format!("{CHILD} {} {}\n", folder(&cluster).display(), cluster.control().name());
    // Not by a macro, which would keep it until the end.
    std::io::stdout().write_all(line.as_bytes()).expect("its parent reads");
    match &*end {
        "with one to be used" => drop(cluster),
        "by a panic" => panic!("as it was asked to"),
        // Its parent kills it.
        _ => loop {
            thread::park();
        },
    }
}

#[test]
fn nothing_is_left_of_a_program_however_it_ends() {
    if Cluster::up(&Options::default()).is_none() {
        return;
    }
    for end in ["with one to be used", "by a panic", "killed"] {
        let mut child = program(end);
        let said = BufReader::new(child.stdout.take().expect("it was asked for")).lines();
        let line =
            said.map_while(Result::ok).find_map(|it| Some(it.split_once(&format!("{CHILD} "))?.1.to_owned()));
        let line = line.expect("it says where its control plane is");
        let (folder, network) = line.split_once(' ').expect("two names");
        let (folder, network) = (Path::new(folder), Path::new("/run/netns").join(network));
        if end == "killed" {
            child.kill().expect("it runs");
        }
        child.wait().expect("it is a child");
        until(&format!("nothing is left of a program that ended {end}"), || {
            is_gone(folder) && !network.exists()
        });
    }
}

fn program(end: &str) -> Child {
    let mut program = Command::new(std::env::current_exe().expect("it runs"));
    let test = "pool::a_control_plane_is_up";
    program.args(["--exact", test, "--ignored", "--nocapture"]).env(CHILD, end);
    program.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().expect("it starts")
}
