//! The chart makes what the manifests say. `SEAWAY_HELM` names the program that `rig/helm/install` built.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    process::Command,
};

use seaway_manifests::tree::{self, Node};
use seaway_testkit::skip;
use serde_json::{Value as Json, json};

use crate::shared_image::root;

/// What Helm prints, or why it refuses; nothing where there is none.
#[track_caller]
fn helm(arguments: &[&str]) -> Option<Result<String, String>> {
    let Some(program) = std::env::var_os("SEAWAY_HELM") else {
        skip(None, "SEAWAY_HELM names no Helm: ./test walk builds one, or rig/helm/install");
        return None;
    };
    let home = tempfile::tempdir().expect("a folder");
    let mut helm = Command::new(program);
    for folder in ["HELM_CACHE_HOME", "HELM_CONFIG_HOME", "HELM_DATA_HOME"] {
        helm.env(folder, home.path());
    }
    let output = helm.args(arguments).current_dir(root().join("deploy/helm")).output().expect("it starts");
    let text = |it: &[u8]| String::from_utf8_lossy(it).into_owned();
    Some(if output.status.success() { Ok(text(&output.stdout)) } else { Err(text(&output.stderr)) })
}

const TEMPLATE: [&str; 3] = ["template", "seaway", "seaway"];

#[track_caller]
fn made(more: &[&str]) -> Option<Objects> {
    let printed = helm(&[&TEMPLATE[..], more].concat())?;
    Some(objects(&printed.unwrap_or_else(|it| panic!("{more:?}: {it}"))))
}

/// By kind, namespace and name.
type Objects = BTreeMap<[String; 3], Json>;

fn json(node: &Node) -> Json {
    serde_json::to_value(node).expect("is JSON")
}

fn objects(text: &str) -> Objects {
    let mut all = Objects::new();
    let documents = format!("\n{text}");
    for document in
        documents.split("\n---\n").filter(|it| it.contains("\nkind: ") || it.starts_with("kind: "))
    {
        let mut object = json(&tree::parse(document).unwrap_or_else(|it| panic!("{it:?}: {document}"))[0]);
        let of = |it: &Json| it.as_str().unwrap_or_default().to_owned();
        let about = &object["metadata"];
        let key = [of(&object["kind"]), of(&about["namespace"]), of(&about["name"])];
        // As pods read it: comments are not in it.
        if let Some(text) = object.pointer_mut("/data/seaway.yaml") {
            *text = json(&tree::parse(text.as_str().expect("a text")).expect("a configuration")[0]);
        }
        assert!(all.insert(key.clone(), object).is_none(), "{key:?} twice");
    }
    all
}

/// What kubectl sends for one of the ways to install it: the golden file, with definitions and roles.
fn way(name: &str) -> Objects {
    let read = |it: &str| fs::read_to_string(root().join(it)).expect("is there");
    let mut all = objects(&read(&format!("crates/cli/golden/kustomize/{name}.yaml")));
    for base in ["crds", "roles"] {
        all.extend(objects(&read(&format!("deploy/kubernetes/base/{base}.yaml"))));
    }
    // Helm makes it, or has it made.
    all.retain(|[kind, ..], _| kind != "Namespace");
    all
}

#[track_caller]
fn same(chart: Objects, way: &Objects) {
    let mut chart = chart;
    for ([kind, ..], object) in chart.iter_mut().filter(|([kind, ..], _)| kind == "CustomResourceDefinition")
    {
        let notes = object["metadata"].as_object_mut().and_then(|it| it.remove("annotations"));
        assert_eq!(notes, Some(json!({"helm.sh/resource-policy": "keep"})), "{kind}: its objects would go");
    }
    let keys = |it: &Objects| it.keys().cloned().collect::<Vec<_>>();
    assert_eq!(keys(&chart), keys(way));
    for (key, object) in chart {
        assert_eq!(object, way[&key], "{key:?}");
    }
}

const SYSTEM: [&str; 2] = ["--namespace", "seaway-system"];

#[test]
fn the_chart_makes_by_default_what_the_manifests_make() {
    let Some(chart) = made(&SYSTEM) else { return };
    same(chart, &way("bare-metal"));
    let beside = made(&[&SYSTEM[..], &["--set", "configuration.defaultDriver=none"]].concat());
    same(beside.expect("Helm is here"), &way("beside-metallb"));
    let outside = made(&[&SYSTEM[..], &["--set", "hosts.enabled=false"]].concat());
    same(outside.expect("Helm is here"), &way("hosts-outside"));
    let values = "hosts.enabled=false,openstack.enabled=true,configuration.defaultDriver=none,configuration.certificateCopies=null";
    let cloud = made(&[&SYSTEM[..], &["--set", values]].concat());
    same(cloud.expect("Helm is here"), &way("openstack"));
}

#[test]
fn values_change_what_they_say_and_another_namespace_is_everywhere() {
    let values = "image.repository=registry.example:5000/seaway,image.digest=sha256:\
                  0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef,imagePullSecrets[0]=registry,\
                  controller.replicas=3,hosts.nodeSelector.role=edge,hosts.resources.requests.cpu=1,policies=true,\
                  certificates.enabled=true,certificates.everywhere=true,metrics=true,networkPolicy=true,layer2=true,dnsEndpoints=true,gke=true,monitoring.dashboards=true,monitoring.serviceMonitor=true,monitoring.alerts=true,monitoring.labels.release=prometheus,bgp.passwordSecrets[0]=tor-a,\
                  openshift=true,configuration.drain=59s,hosts.terminationGracePeriodSeconds=80,\
                  metricsFrom[0].podSelector.matchLabels.app=prometheus";
    let lists = r#"configuration.admin={"metrics":{}}"#;
    let arguments = ["--namespace", "lb", "--set", values, "--set-json", lists];
    let Some(chart) = made(&arguments) else { return };
    let of = |kind: &str, name: &str| &chart[&[kind.to_owned(), "lb".to_owned(), name.to_owned()]];
    let hosts = &of("DaemonSet", "seaway-node")["spec"]["template"]["spec"];
    let image = hosts["containers"][0]["image"].as_str().unwrap_or_default();
    assert!(image.starts_with("registry.example:5000/seaway@sha256:0123"), "{image}");
    assert_eq!(hosts["initContainers"][0]["image"], image);
    assert_eq!(hosts["nodeSelector"], json!({"kubernetes.io/os": "linux", "role": "edge"}));
    let resources = json!({"requests": {"cpu": 1, "memory": "128Mi"}, "limits": {"memory": "2Gi"}});
    assert_eq!(hosts["containers"][0]["resources"], resources);
    assert_eq!(hosts["terminationGracePeriodSeconds"], 80);
    let rights = &hosts["containers"][0]["securityContext"]["capabilities"]["add"];
    assert_eq!(*rights, json!(["NET_BIND_SERVICE", "NET_ADMIN", "NET_RAW"]));
    for (list, before) in [(&hosts["volumes"], "config"), (&hosts["containers"][0]["volumeMounts"], "config")]
    {
        let names: Vec<&str> =
            list.as_array().into_iter().flatten().filter_map(|it| it["name"].as_str()).collect();
        assert!(names.contains(&"layer2") && names.contains(&before), "{names:?}");
    }
    of("Role", "seaway-layer2-key");
    // Those that are named, by get, and no others.
    let rules =
        json!([{"apiGroups": [""], "resources": ["secrets"], "resourceNames": ["tor-a"], "verbs": ["get"]}]);
    assert_eq!(of("Role", "seaway-bgp-passwords")["rules"], rules);
    let subjects = json!([{"kind": "ServiceAccount", "name": "seaway-node", "namespace": "lb"}]);
    assert_eq!(of("RoleBinding", "seaway-bgp-passwords")["subjects"], subjects);
    let controller = &of("Deployment", "seaway-controller")["spec"];
    assert_eq!(controller["replicas"], 3);
    assert_eq!(controller["template"]["spec"]["containers"][0]["image"], image);
    assert_eq!(of("ConfigMap", "seaway")["data"]["seaway.yaml"]["drain"], "59s");
    assert_eq!(of("ServiceAccount", "seaway-node")["imagePullSecrets"], json!([{"name": "registry"}]));
    let admitted = &of("NetworkPolicy", "seaway-controller")["spec"]["ingress"];
    let from = json!([{"podSelector": {"matchLabels": {"app": "prometheus"}}}]);
    assert_eq!(*admitted, json!([{"from": from, "ports": [{"port": 19362}]}]));
    for (kind, name) in [
        ("RoleBinding", "seaway-controller-nonroot"),
        ("ResourceQuota", "seaway-critical-pods"),
        ("Service", "seaway-metrics"),
    ] {
        of(kind, name);
    }
    for (kind, file) in [("ServiceMonitor", "monitor"), ("PrometheusRule", "alerts")] {
        let path = format!("deploy/kubernetes/components/monitoring/{file}.yaml");
        let text = fs::read_to_string(root().join(path)).expect("is there");
        let mut written = objects(&text).into_values().next().expect("an object");
        written["metadata"]["namespace"] = json!("lb");
        written["metadata"]["labels"]["release"] = json!("prometheus");
        assert_eq!(*of(kind, "seaway"), written, "{file}.yaml");
    }
    for name in ["overview", "service", "controller-and-hosts"] {
        let file = format!("seaway-{name}.json");
        let path = root().join("deploy/kubernetes/components/dashboards").join(&file);
        let dashboard = of("ConfigMap", &format!("seaway-dashboard-{name}"));
        assert_eq!(dashboard["data"][&file], fs::read_to_string(path).expect("is there"), "{name}");
        assert_eq!(dashboard["metadata"]["labels"]["grafana_dashboard"], "1", "{name}");
    }
    let names: Vec<&str> = chart.keys().map(|[.., name]| &**name).collect();
    for name in ["seaway-hosts", "seaway-copies", "seaway-controller-certificates", "seaway-reviewer"] {
        assert!(names.contains(&name), "{name}");
    }
    // The account of hosts may have privileged pods only where there are hosts.
    let privileged = ["SecurityContextConstraints", "", "seaway-node"].map(str::to_owned);
    let users = &chart[&privileged]["users"];
    assert_eq!(*users, json!(["system:serviceaccount:lb:seaway-node"]));
    let alone = made(&["--set", "openshift=true,hosts.enabled=false"]).expect("Helm is here");
    assert!(!alone.contains_key(&privileged));
    let printed = helm(&[&TEMPLATE[..], &arguments].concat());
    let printed = printed.expect("Helm is here").expect("as above");
    assert!(!printed.contains("seaway-system"), "some object is in another namespace");
}

#[test]
fn a_value_that_is_wrong_is_refused_with_its_place() {
    for (value, place) in [
        ("image.tag=a/b", "'/image/tag'"),
        ("image.digest=latest", "'/image/digest'"),
        ("hosts.enabeld=true", "'enabeld' not allowed"),
        ("controller.replicas=zero", "'/controller/replicas'"),
        ("controller.replicas=0", "'/controller/replicas'"),
        ("configuration.defaultDriver=ocatvia", "'/configuration/defaultDriver'"),
        ("policy=true", "'policy' not allowed"),
        ("monitoring.dashboard=true", "'dashboard' not allowed"),
        ("monitoring.serviceMonitor=true", "monitoring.serviceMonitor: there is nothing to scrape"),
        ("monitoring.labels.release=1", "'/monitoring/labels/release'"),
        ("configuration.drian=60s", "'drian' not allowed"),
        ("configuration=null", "'configuration'"),
        ("openstack=null", "'openstack'"),
        ("bgp.passwordSecrets[0]=*", "'/bgp/passwordSecrets/0'"),
        ("bgp.passwords[0]=tor", "'passwords' not allowed"),
        ("image.repository=registry.example/seaway:1", "'/image/repository'"),
        ("hosts.terminationGracePeriodSeconds=0", "'/hosts/terminationGracePeriodSeconds'"),
        // What is right by itself, but not together.
        ("configuration.drain=45s", "configuration.drain: hosts wait 45s"),
        ("configuration.drain=1h30m", "configuration.drain: hosts wait 1h30m"),
        ("configuration.drain=45", "configuration.drain: hosts wait 45"),
        ("hosts.terminationGracePeriodSeconds=50", "configuration.drain: hosts wait 30s"),
        ("hosts.updateStrategy.rollingUpdate.maxUnavailable=3", "hosts.updateStrategy: it replaces"),
        ("hosts.updateStrategy.type=RollingUpdate", "hosts.updateStrategy: it replaces"),
        ("certificates.everywhere=true", "certificates.everywhere"),
        ("certificates.enabled=true,configuration.certificateCopies=other", "certificateCopies is other"),
        ("metrics=true", "configuration.admin.metrics"),
        ("metrics=true,networkPolicy=true,configuration.admin.metrics.clients=any", "metricsFrom"),
    ] {
        let Some(printed) = helm(&[&TEMPLATE[..], &["--set", value]].concat()) else { return };
        let said = printed.expect_err(value);
        assert!(said.contains(place), "{value}: {said}");
    }
}

#[test]
fn a_strategy_that_says_whether_a_second_pod_may_begin_is_accepted() {
    let hosts = "hosts.updateStrategy";
    for value in [".type=OnDelete", ".rollingUpdate.maxSurge=3", ".rollingUpdate.maxSurge=0"] {
        let Some(_) = made(&["--set", &format!("{hosts}{value}")]) else { return };
    }
}

/// With 1.31, tokens of pods name no Node: policies would refuse each host, which then counts as dead.
#[test]
fn policies_are_refused_where_the_cluster_is_too_old_for_them() {
    let policies = |version: &str| {
        let more = ["--set", "policies=true", "--kube-version", version];
        helm(&[&TEMPLATE[..], &more].concat())
    };
    let Some(older) = policies("1.31.9") else { return };
    let said = older.expect_err("1.31");
    assert!(said.contains("policies: they need Kubernetes 1.32"), "{said}");
    for version in ["1.32.0", "1.32.0-gke.1", "1.33.1"] {
        assert!(policies(version).expect("Helm is here").is_ok(), "{version}");
    }
}

/// A new key of seaway.yaml needs a line in the schema of the chart, which refuses what it does not know.
#[test]
fn the_schema_knows_the_keys_of_seaway_yaml() {
    let read = |it: &str| fs::read_to_string(root().join(it)).expect("is there");
    let schema: Json = serde_json::from_str(&read("deploy/helm/seaway/values.schema.json")).expect("JSON");
    let configuration = &schema["properties"]["configuration"];
    assert_eq!(configuration["additionalProperties"], false);
    let keys = |it: &Json| it.as_object().expect("keys").keys().cloned().collect::<BTreeSet<_>>();
    let all = json(&tree::parse(&read("crates/cli/golden/seaway.yaml")).expect("YAML")[0]);
    assert_eq!(keys(&configuration["properties"]), keys(&all));
}

/// Some checkouts and archives have no links: the paths that they lead to are then the text of the files, or the files are not there.
#[test]
fn a_chart_without_its_links_is_refused_instead_of_installed_without_definitions_and_roles() {
    let copy = tempfile::tempdir().expect("a folder");
    let chart = copy.path().join("seaway");
    crate::shared_image::run(
        Command::new("cp").arg("-rL").arg(root().join("deploy/helm/seaway")).arg(&chart),
    );
    let path = chart.to_string_lossy();
    let template = ["template", "seaway", &path];
    let Some(whole) = helm(&template) else { return };
    assert!(whole.is_ok(), "{whole:?}");
    for file in ["crds", "roles", "controller", "hosts"] {
        let file = chart.join(format!("files/{file}.yaml"));
        let text = fs::read(&file).expect("is there");
        for lost in [None, Some("../../../kubernetes/base/crds.yaml")] {
            match lost {
                Some(link) => fs::write(&file, link).expect("is written"),
                None => fs::remove_file(&file).expect("was there"),
            }
            let said = helm(&template).expect("Helm is here").expect_err("without a link");
            assert!(said.contains("is not a manifest"), "{said}");
        }
        fs::write(&file, text).expect("is written");
    }
    let dashboard = chart.join("files/seaway-overview.json");
    fs::write(dashboard, "../../../kubernetes/components/dashboards/seaway-overview.json")
        .expect("is written");
    let said = helm(&[&template[..], &["--set", "monitoring.dashboards=true"]].concat());
    let said = said.expect("Helm is here").expect_err("without a link");
    assert!(said.contains("is not a dashboard"), "{said}");
}

#[test]
fn the_chart_is_packed_with_the_files_that_its_links_lead_to() {
    let folder = tempfile::tempdir().expect("a folder");
    let to = folder.path().to_string_lossy();
    let Some(packed) = helm(&["package", "seaway", "--destination", &to]) else { return };
    packed.expect("it is packed");
    let archive = folder.path().join(format!("seaway-{}.tgz", env!("CARGO_PKG_VERSION")));
    let listed = Command::new("tar").arg("-tvzf").arg(&archive).output().expect("tar");
    let listed = String::from_utf8_lossy(&listed.stdout).into_owned();
    for file in
        ["files/crds.yaml", "files/hosts.yaml", "templates/seaway.yaml", "README.md", "values.schema.json"]
    {
        let line = listed.lines().find(|it| it.ends_with(&format!("seaway/{file}"))).unwrap_or_default();
        assert!(line.starts_with('-') && !line.contains(" 0 "), "{file}: {line}");
    }
    let linted = helm(&["lint", "seaway", "--strict"]).expect("Helm is here");
    assert!(linted.as_ref().is_ok_and(|it| it.contains("0 chart(s) failed")), "{linted:?}");
}
