//! `kubectl seaway`: what people see of a cluster, with no right to write anything.

use std::{
    path::Path,
    process::{Command, Output},
};

use seaway_testkit::topology::until;
use serde_json::Value;
use tempfile::TempDir;

use crate::{
    draining::{ECHO, connect},
    scene::{SEAWAY, Scene},
};

/// `seaway node` as a pod of node `a`.
fn pod(kubeconfig: &Path, config: &Path) -> String {
    let field =
        |name: &str, path: &str| format!("{{name: {name}, valueFrom: {{fieldRef: {{fieldPath: {path}}}}}}}");
    let env = [
        ("NODE_NAME", "spec.nodeName"),
        ("POD_IP", "status.podIP"),
        ("POD_NAME", "metadata.name"),
        ("POD_NAMESPACE", "metadata.namespace"),
    ];
    let env = env.map(|(name, path)| field(name, path)).join(", ");
    format!(
        "
apiVersion: v1
kind: Pod
metadata: {{name: seaway-a}}
spec:
  hostNetwork: true
  nodeName: a
  containers:
  - name: seaway
    image: seaway
    args: [node, --kubeconfig, {}, --config, {}, --namespace, default]
    env: [{env}]
",
        kubeconfig.display(),
        config.display()
    )
}

/// Called as kubectl calls it.
pub(crate) struct Plugin {
    folder: TempDir,
}

impl Plugin {
    pub(crate) fn new() -> Plugin {
        let folder = tempfile::tempdir().expect("a folder");
        std::os::unix::fs::symlink(SEAWAY, folder.path().join("kubectl-seaway")).expect("a link");
        Plugin { folder }
    }

    pub(crate) fn try_run(&self, kubeconfig: &Path, words: &str) -> Output {
        let mut plugin = Command::new(self.folder.path().join("kubectl-seaway"));
        plugin
            .args(words.split(' '))
            .args(["--system-namespace", "default"])
            .arg("--kubeconfig")
            .arg(kubeconfig);
        plugin.output().expect("seaway runs")
    }

    /// What it prints, and what it complains of.
    pub(crate) fn run(&self, kubeconfig: &Path, words: &str) -> (String, String) {
        let output = self.try_run(kubeconfig, words);
        let [told, noted] =
            [&output.stdout, &output.stderr].map(|it| String::from_utf8_lossy(it).into_owned());
        assert!(output.status.success(), "{words}: {told}{noted}");
        (told, noted)
    }

    fn status(&self, kubeconfig: &Path) -> Value {
        serde_json::from_str(&self.run(kubeconfig, "status -o json").0).expect("is JSON")
    }
}

#[test]
fn people_see_services_hosts_and_counters_and_write_nothing() {
    let Some(mut scene) = Scene::bare() else { return };
    scene.nodes = ["a", "b"].map(|name| scene.cluster.node(name)).into();
    scene.install();
    scene.lead("controller");
    let node = scene.cluster.kubeconfig_inside("seaway-node", &[]);
    let plugin = Plugin::new();
    let config = plugin.folder.path().join("seaway.yaml");
    std::fs::write(&config, "defaultDriver: native\n").expect("is written");
    scene.cluster.apply(&pod(&node, &config));
    scene.serve(1);
    scene.lead_to(0);
    scene.cluster.apply(ECHO);
    let ip = scene.address("echo");
    let at = format!("{ip}:80").parse().expect("an address");
    until("it answers", || connect(&scene, at).is_ok());
    let open = connect(&scene, at).expect("it answers still");

    let stranger = scene.cluster.kubeconfig_of("stranger", &[]);
    let refused = plugin.try_run(&stranger, "status");
    let why = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(!refused.status.success() && why.contains("may not list services"), "{why}");
    assert!(why.contains("--clusterrole=seaway-viewer"), "{why}");

    // Of one namespace, who may look at no other sees what is written there, and nothing that only seems missing.
    let bind =
        ["create", "rolebinding", "t", "--clusterrole=seaway-viewer", "--user=tenant", "-n", "default"];
    scene.cluster.kubectl(&bind);
    let tenant = scene.cluster.kubeconfig_of("tenant", &[]);
    until("it is ready, and the tenant sees it", || {
        let seen = plugin.try_run(&tenant, "status -n default");
        seen.status.success() && String::from_utf8_lossy(&seen.stdout).contains("served, not announced")
    });
    let (seen, noted) = plugin.run(&tenant, "status -n default");
    assert!(seen.contains("default/echo") && seen.contains(&ip), "{seen}");
    for missing in ["HOST  ", "POOL", "No controller is the leader:", "No host serves", "Problems"] {
        assert!(!seen.contains(missing), "{missing}: {seen}");
    }
    assert!(noted.contains("the namespace default only") && noted.lines().count() == 1, "{noted}");
    let (why, _) = plugin.run(&tenant, "explain service echo -n default");
    assert!(why.contains(&format!("Published: {ip}")) && !why.contains("No host"), "{why}");
    assert!(!plugin.try_run(&tenant, "status").status.success());
    assert!(!plugin.try_run(&tenant, "status -n kube-system").status.success());

    // A role that has no verb but `list`: whatever is seen was seen without a write.
    scene.cluster.kubectl(&[
        "create",
        "clusterrolebinding",
        "v",
        "--clusterrole=seaway-viewer",
        "--user=viewer",
    ]);
    let viewer = scene.cluster.kubeconfig_of("viewer", &[]);
    until("it may look", || plugin.try_run(&viewer, "status").status.success());
    let (_, noted) = plugin.run(&viewer, "status");
    assert!(noted.contains("--clusterrole=seaway-lease-reader"), "who lives is for others to see: {noted}");
    scene.cluster.kubectl(&[
        "create",
        "rolebinding",
        "l",
        "--clusterrole=seaway-lease-reader",
        "--user=viewer",
    ]);
    until("both serve it", || {
        plugin.status(&viewer)["services"][0]["hosts"] == serde_json::json!(["a", "b"])
    });
    let (_, noted) = plugin.run(&viewer, "status");
    assert!(noted.contains("cannot get resource \"pods/proxy\""), "the missing verb is named: {noted}");
    scene.cluster.kubectl(&["create", "rolebinding", "v", "--clusterrole=seaway-counters", "--user=viewer"]);

    // Rights, counters and what Services and pools are told come in their own time, and those who left are counted out.
    until("all is told", || {
        let seen = plugin.status(&viewer);
        let service = &seen["services"][0];
        let pools = seen["pools"].as_array().cloned().unwrap_or_default();
        service["connections"]["open"] == 1
            && service["ready"] == true
            && service["announced"]["reason"] == "NotAnnounced"
            && service["problems"] == serde_json::json!([])
            && seen["hosts"][0]["alive"] == "yes"
            && pools.iter().any(|it| it["ipv4"]["assigned"] == 1)
    });
    let seen = plugin.status(&viewer);
    let service = &seen["services"][0];
    assert_eq!((&service["name"], &service["addresses"][0]), (&"echo".into(), &ip.as_str().into()), "{seen}");
    assert_eq!(service["connections"]["open"], 1, "{seen}");
    assert_eq!(service["problems"], serde_json::json!([]), "{seen}");
    assert_eq!(seen["hosts"][0]["alive"], "yes", "{seen}");
    assert_eq!((&seen["hosts"][0]["open"], &seen["hosts"][1]["open"]), (&1.into(), &Value::Null), "{seen}");
    assert_eq!(seen["leader"]["name"], "controller", "{seen}");
    let pools = seen["pools"].as_array().expect("a list");
    assert!(pools.iter().any(|it| it["name"] == "public" && it["ipv4"]["assigned"] == 1), "{seen}");
    let (table, noted) = plugin.run(&viewer, "status");
    let not_announced = "announce: l2 in AddressPool public";
    for part in
        ["default/echo", &ip, "a,b", "served, not announced", not_announced, "1 of 16", "Leader: controller"]
    {
        assert!(table.contains(part), "no {part}: {table}");
    }
    assert!(
        noted.contains("the counters of host b cannot be read: the host does not run in a pod"),
        "{noted}"
    );
    assert!(plugin.run(&viewer, "status -n other").0.contains("Seaway serves no Service"));

    let explained = || plugin.run(&viewer, "explain service echo").0;
    until("members were looked at", || explained().contains("  up, "));
    let told = explained();
    for part in [&format!("{ip}  from pool public"), "a  serves it", "1 open", "  up, ", "Status: ready"] {
        assert!(told.contains(part), "no {part}: {told}");
    }
    // The operator has given a router a route.
    let says = r#"{"spec":{"announce":"static"}}"#;
    scene.cluster.kubectl(&["patch", "addresspool", "public", "--type=merge", "-p", says]);
    let announced = || plugin.status(&viewer)["services"][0]["announced"]["reason"].clone();
    until("the Service says that it is announced", || announced() == "StaticRoute");
    let (table, _) = plugin.run(&viewer, "status");
    assert!(table.contains("yes") && !table.contains("not announced"), "{table}");

    let misspelt = plugin.try_run(&viewer, "explain ecko");
    assert!(String::from_utf8_lossy(&misspelt.stderr).contains("did you mean default/echo"), "{misspelt:?}");

    // Through the API server nothing is changed, whoever asks.
    let log = "/api/v1/namespaces/default/pods/seaway-a:1936/proxy/log";
    assert_eq!(scene.cluster.kubectl(&["get", "--raw", log]), "info");
    let refused =
        scene.cluster.try_kubectl(&["replace", "--raw", log, "-f", "-"], "trace").expect_err("is refused");
    assert!(
        refused.contains("At this address the page can only be read") || refused.contains("MethodNotAllowed"),
        "{refused}"
    );
    assert_eq!(scene.cluster.kubectl(&["get", "--raw", log]), "info");

    let refused = plugin.try_run(&viewer, "drain a");
    assert!(String::from_utf8_lossy(&refused.stderr).contains("patch"), "{refused:?}");
    let admin = scene.cluster.kubeconfig().to_owned();
    plugin.run(&admin, "drain a");
    until("it is told", || {
        let seen = plugin.status(&viewer);
        seen["hosts"][0]["drain"] == true && seen["services"][0]["hosts"] == serde_json::json!(["b"])
    });
    until("somebody is there still", || plugin.run(&viewer, "status").0.contains("  draining  "));
    drop(open);
    until("nobody is left", || plugin.run(&viewer, "status").0.contains("  drained  "));
    assert!(plugin.run(&viewer, "explain echo").0.contains("a  is draining"));
    plugin.run(&admin, "undrain a");
    until("it serves again", || {
        plugin.status(&viewer)["services"][0]["hosts"] == serde_json::json!(["a", "b"])
    });
    let unknown = plugin.try_run(&admin, "drain nobody");
    assert!(String::from_utf8_lossy(&unknown.stderr).contains("the object does not exist"), "{unknown:?}");
}
