//! The chart makes what the manifests say. `SEAWAY_HELM` names the program that `rig/helm/install` built.

use std::{collections::BTreeMap, fs, process::Command};

use seaway_manifests::tree::{self, Node, Value};
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
    match &node.value {
        Value::Null => Json::Null,
        Value::Bool(it) => json!(it),
        Value::Int(it) => json!(it),
        Value::Float(it) => json!(it),
        Value::Text(it) => json!(it),
        Value::List(items) => items.iter().map(json).collect(),
        Value::Map(entries) => entries.iter().map(|it| (it.key.clone(), json(&it.value))).collect(),
    }
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
                  controller.replicas=3,hosts.nodeSelector.role=edge,policies=true,certificates.enabled=true,\
                  certificates.everywhere=true,metrics=true,networkPolicy=true,gke=true,openshift=true,\
                  configuration.drain=10s";
    let Some(chart) = made(&["--namespace", "lb", "--set", values]) else { return };
    let of = |kind: &str, name: &str| &chart[&[kind.to_owned(), "lb".to_owned(), name.to_owned()]];
    let hosts = &of("DaemonSet", "seaway-node")["spec"]["template"]["spec"];
    let image = hosts["containers"][0]["image"].as_str().unwrap_or_default();
    assert!(image.starts_with("registry.example:5000/seaway@sha256:0123"), "{image}");
    assert_eq!(hosts["initContainers"][0]["image"], image);
    assert_eq!(hosts["nodeSelector"], json!({"role": "edge"}));
    let controller = &of("Deployment", "seaway-controller")["spec"];
    assert_eq!(controller["replicas"], 3);
    assert_eq!(controller["template"]["spec"]["containers"][0]["image"], image);
    assert_eq!(of("ConfigMap", "seaway")["data"]["seaway.yaml"]["drain"], "10s");
    assert_eq!(of("ServiceAccount", "seaway-node")["imagePullSecrets"], json!([{"name": "registry"}]));
    for (kind, name) in [
        ("NetworkPolicy", "seaway-controller"),
        ("ResourceQuota", "seaway-critical-pods"),
        ("Service", "seaway-metrics"),
    ] {
        of(kind, name);
    }
    let names: Vec<&str> = chart.keys().map(|[.., name]| &**name).collect();
    for name in ["seaway-hosts", "seaway-copies", "seaway-controller-certificates", "seaway-reviewer"] {
        assert!(names.contains(&name), "{name}");
    }
    let printed = helm(&[&TEMPLATE[..], &["--namespace", "lb", "--set", values]].concat());
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
    ] {
        let Some(printed) = helm(&[&TEMPLATE[..], &["--set", value]].concat()) else { return };
        let said = printed.expect_err(value);
        assert!(said.contains(place), "{value}: {said}");
    }
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
