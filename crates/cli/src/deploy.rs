//! The manifests of `deploy/kubernetes`, held against the program: its arguments, its files, the roles that it needs.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::Path,
};

use clap::Parser;
use seaway_manifests::tree::{self, Node};
use serde_json::{Value as Json, json};

use crate::{
    args::{Cli, Command, ProbeKind},
    member::{Part, cloud, in_cluster},
    settings::{self, DefaultDriver},
};

fn json(node: &Node) -> Json {
    serde_json::to_value(node).unwrap()
}

fn manifest(name: &str) -> Vec<Json> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy/kubernetes");
    let text = fs::read_to_string(folder.join(name)).unwrap();
    text.split("\n---\n").map(|it| json(&tree::parse(it).unwrap()[0])).collect()
}

/// All objects of a way to install it, but for definitions and roles: as kustomize makes them, which `kubernetes_native` compares.
fn way(name: &str) -> Vec<Json> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("golden/kustomize");
    let text = fs::read_to_string(folder.join(format!("{name}.yaml"))).unwrap();
    text.split("\n---\n").map(|it| json(&tree::parse(it).unwrap()[0])).collect()
}

fn text(it: &Json) -> &str {
    it.as_str().unwrap_or_else(|| panic!("{it} is not text"))
}

fn items(it: &Json) -> impl Iterator<Item = &Json> {
    it.as_array().into_iter().flatten()
}

/// Specifications of pods.
fn pods(objects: &[Json]) -> Vec<&Json> {
    let is_workload = |it: &&Json| ["Deployment", "DaemonSet"].contains(&text(&it["kind"]));
    objects.iter().filter(is_workload).map(|it| &it["spec"]["template"]["spec"]).collect()
}

fn line(container: &Json) -> Vec<&str> {
    ["seaway"].into_iter().chain(items(&container["args"]).map(text)).collect()
}

/// The keys of a ConfigMap or a Secret.
fn keys<'j>(objects: &'j [Json], kind: &str, name: &Json) -> BTreeSet<&'j str> {
    let of = |it: &&Json| it["kind"] == *kind && it["metadata"]["name"] == *name;
    let object = objects.iter().find(of).unwrap_or_else(|| panic!("there is no {kind} {name}"));
    let data = [&object["data"], &object["stringData"]];
    data.into_iter().filter_map(Json::as_object).flat_map(|it| it.keys().map(String::as_str)).collect()
}

fn openstack() -> Vec<Json> {
    way("openstack").into_iter().chain(manifest("openstack/openstack-secret.yaml")).collect()
}

#[test]
fn every_container_is_called_as_the_program_takes_it() {
    let mut called = 0;
    for objects in [openstack(), way("bare-metal")] {
        for pod in pods(&objects) {
            for container in items(&pod["initContainers"]).chain(items(&pod["containers"])) {
                let line = line(container);
                Cli::try_parse_from(&line).unwrap_or_else(|it| panic!("{line:?}: {it}"));
                called += 1;
            }
        }
    }
    assert_eq!(called, 4);
}

#[test]
fn every_file_that_a_controller_is_told_of_is_mounted_where_it_is_looked_for() {
    for (objects, wanted) in [(openstack(), 2), (way("bare-metal"), 1)] {
        let is_controller = |it: &&Json| it["serviceAccountName"] == "seaway-controller";
        let pod = pods(&objects).into_iter().find(is_controller).unwrap();
        let container = &pod["containers"][0];
        let Command::Controller(it) = Cli::parse_from(line(container)).command else { panic!("{container}") };
        let named: Vec<_> = it.member.config.iter().chain(&it.cloud.cloud_config).cloned().collect();
        assert_eq!(named.len(), wanted, "{named:?}");
        for file in named {
            let folder = file.parent().unwrap().to_str().unwrap();
            let mount = items(&container["volumeMounts"]).find(|it| it["mountPath"] == folder);
            let mount = mount.unwrap_or_else(|| panic!("{folder} is not mounted"));
            assert_eq!(mount["readOnly"], true);
            let volume = items(&pod["volumes"]).find(|it| it["name"] == mount["name"]).unwrap();
            let keys = match volume.get("secret") {
                Some(secret) => keys(&objects, "Secret", &secret["secretName"]),
                None => keys(&objects, "ConfigMap", &volume["configMap"]["name"]),
            };
            assert!(
                keys.contains(file.file_name().unwrap().to_str().unwrap()),
                "{}: {keys:?}",
                file.display()
            );
        }
    }
}

/// Roles by how they are bound to the account of controllers.
fn bound(objects: &[Json]) -> BTreeMap<String, BTreeSet<String>> {
    let mut bound: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for object in objects.iter().filter(|it| text(&it["kind"]).ends_with("Binding")) {
        let is_it = |it: &Json| {
            *it == json!({"kind": "ServiceAccount", "name": "seaway-controller", "namespace": "seaway-system"})
        };
        assert!(items(&object["subjects"]).any(is_it), "{object}");
        assert_eq!(object["roleRef"]["kind"], "ClusterRole");
        let namespace = &object["metadata"]["namespace"];
        assert_eq!(object["kind"] == "RoleBinding", *namespace == "seaway-system", "{object}");
        let role = text(&object["roleRef"]["name"]).to_owned();
        bound.entry(text(&object["kind"]).to_owned()).or_default().insert(role);
    }
    bound
}

#[test]
fn only_controllers_of_a_cloud_may_patch_services_and_all_roles_that_are_bound_exist() {
    let roles = names_of_roles();
    let inside = &["seaway-leader", "seaway-lease-reader", "seaway-records"][..];
    for (file, everywhere) in [
        ("hosts-outside", &["seaway-controller", "seaway-reader"][..]),
        ("openstack", &["seaway-cloud", "seaway-controller", "seaway-reader"]),
    ] {
        let expected: BTreeMap<String, BTreeSet<String>> =
            [("ClusterRoleBinding", everywhere), ("RoleBinding", inside)]
                .map(|(kind, roles)| (kind.to_owned(), roles.iter().map(|it| (*it).to_owned()).collect()))
                .into();
        let bound = bound(&way(file));
        assert_eq!(bound, expected, "{file}");
        assert!(bound.values().flatten().all(|it| roles.contains(it)), "{file}: {roles:?}");
    }
}

/// A namespace lets controllers read its Secrets, or an administrator does so for all of them.
#[test]
fn certificates_yaml_binds_no_role_in_the_whole_cluster() {
    let bound = |file| {
        let objects = manifest(file).into_iter().filter(|it| text(&it["kind"]).ends_with("Binding"));
        let bound = objects.map(|it| format!("{} {}", text(&it["kind"]), text(&it["roleRef"]["name"])));
        bound.collect::<Vec<_>>()
    };
    let copies = ["RoleBinding seaway-copies", "RoleBinding seaway-copies-reader"];
    assert_eq!(bound("components/certificates/certificates.yaml"), copies);
    assert_eq!(
        bound("components/certificates-everywhere/certificates-everywhere.yaml"),
        ["ClusterRoleBinding seaway-certificates"]
    );
}

/// Names of the roles that `seaway crds` prints.
fn names_of_roles() -> BTreeSet<String> {
    let roles = seaway_cluster::crds::roles().split("\n---\n").map(|it| json(&tree::parse(it).unwrap()[0]));
    roles.map(|it| text(&it["metadata"]["name"]).to_owned()).collect()
}

#[test]
fn probes_ask_where_they_are_answered_and_hosts_have_no_host_ports() {
    for (objects, host) in [(way("bare-metal"), true), (openstack(), false)] {
        for pod in pods(&objects) {
            let container = &pod["containers"][0];
            let member = match Cli::parse_from(line(container)).command {
                Command::Controller(it) => it.member,
                Command::Node(it) => it.member,
                other => panic!("{other:?}"),
            };
            if pod["hostNetwork"] == true {
                assert!(host && container.get("ports").is_none(), "{container}");
                // Two pods of a Node share its ports.
                assert_eq!(member.pod.probe_port, None);
                let socket = member.pod.probe_socket.unwrap();
                for (probe, what) in [
                    ("startupProbe", ProbeKind::Live),
                    ("livenessProbe", ProbeKind::Live),
                    ("readinessProbe", ProbeKind::Ready),
                ] {
                    let line: Vec<&str> = items(&container[probe]["exec"]["command"]).map(text).collect();
                    assert_eq!(line[0], "/seaway", "where the image has it");
                    let Command::Probe(it) = Cli::parse_from(line).command else { panic!("{container}") };
                    assert_eq!((it.what, &it.socket), (what, &socket), "{probe}");
                }
                continue;
            }
            let port = u64::from(member.pod.probe_port.unwrap());
            assert!(items(&container["ports"]).all(|it| it["containerPort"] == port), "{container}");
            let named = items(&container["ports"]).find(|it| it["name"] == "probes");
            let has_address = items(&container["env"]).any(|it| it["name"] == "POD_IP");
            for probe in ["livenessProbe", "readinessProbe"] {
                let asked = &container[probe]["httpGet"];
                let asked_at = named.map_or(&asked["port"], |it| &it["containerPort"]);
                assert_eq!(*asked_at, json!(port), "{container}");
                assert_eq!(asked["host"] == "127.0.0.1", !has_address, "{asked}");
            }
        }
    }
    let policy = &manifest("components/network-policy/network-policy.yaml")[0];
    let template = way("bare-metal").into_iter().find(|it| it["kind"] == "Deployment").unwrap();
    assert_eq!(policy["spec"]["podSelector"], template["spec"]["selector"]);
}

#[test]
fn pods_have_no_rights_that_nothing_uses_and_a_limit_of_memory() {
    let objects = way("bare-metal");
    let mut added = BTreeSet::new();
    for pod in pods(&objects) {
        for container in items(&pod["containers"]) {
            assert!(container["resources"]["limits"]["memory"].is_string(), "{container}");
            let capabilities = &container["securityContext"]["capabilities"];
            assert_eq!(capabilities["drop"], json!(["ALL"]), "{container}");
            added.extend(items(&capabilities["add"]).map(|it| text(it).to_owned()));
        }
    }
    assert_eq!(added, ["NET_ADMIN", "NET_BIND_SERVICE"].map(str::to_owned).into());
}

/// The only part that may send ARP and NDP: nobody has it who does not ask for it.
#[test]
fn hosts_that_announce_have_one_more_right_and_the_key_where_they_look_for_it() {
    let patch = &manifest("components/layer2/layer2.yaml")[0];
    let hosts = manifest("components/hosts/node.yaml");
    let hosts = hosts.iter().find(|it| it["kind"] == "DaemonSet").unwrap();
    assert_eq!(
        patch["metadata"],
        json!({ "name": hosts["metadata"]["name"], "namespace": hosts["metadata"]["namespace"] })
    );
    let (pod, before) = (&patch["spec"]["template"]["spec"], &hosts["spec"]["template"]["spec"]);
    let (container, usual) = (&pod["containers"][0], &before["containers"][0]);
    assert_eq!(container["name"], usual["name"]);
    // A patch replaces the list.
    let mut rights: Vec<&Json> = items(&usual["securityContext"]["capabilities"]["add"]).collect();
    let raw = json!("NET_RAW");
    rights.push(&raw);
    let patched: Vec<&Json> = items(&container["securityContext"]["capabilities"]["add"]).collect();
    assert_eq!(patched, rights);
    let (mount, volume) = (&container["volumeMounts"][0], &pod["volumes"][0]);
    assert_eq!(mount["name"], volume["name"]);
    let key = format!("{}/key", text(&mount["mountPath"]));
    assert_eq!(key, settings::layer2::KEY_IN_POD);
    let secret = &volume["secret"];
    assert_eq!((&secret["secretName"], &secret["optional"]), (&json!("seaway-layer2"), &json!(true)));
    assert_eq!(secret["defaultMode"], 0o400, "its owner alone may read it");
    // Who makes the key may do nothing else with Secrets.
    let key = manifest("components/layer2/key.yaml");
    assert_eq!(key[0]["rules"], json!([{"apiGroups": [""], "resources": ["secrets"], "verbs": ["create"]}]));
    assert_eq!((&key[0]["kind"], &key[1]["roleRef"]["kind"]), (&json!("Role"), &json!("Role")));
    assert_eq!(key[1]["subjects"][0]["name"], "seaway-controller");
}

/// One that is killed while it waits for clients leaves its addresses on the machine.
#[test]
fn a_host_is_not_killed_before_it_has_waited_for_its_clients() {
    let drain = settings::load(None).unwrap().drain;
    assert_eq!(drain.as_secs(), 30, "the chart reckons with that, too: _objects.tpl");
    for way in ["bare-metal", "beside-metallb"].map(way) {
        let hosts = way.iter().find(|it| it["kind"] == "DaemonSet").unwrap();
        let grace = hosts["spec"]["template"]["spec"]["terminationGracePeriodSeconds"].as_u64().unwrap();
        // The next pod may take over for 10 s, routers hear of it within 3 s, and the last writes end within 8 s.
        assert!(grace >= drain.as_secs() + 21, "{grace}");
    }
}

/// In a folder of the machine below /run, which is in memory, and in which only root makes links; and the new pod is there before the
/// old one ends.
#[test]
fn a_host_hands_over_to_its_next_pod_in_a_folder_of_the_machine() {
    let way = way("bare-metal");
    let hosts = &way.iter().find(|it| it["kind"] == "DaemonSet").unwrap()["spec"];
    assert_eq!(hosts["updateStrategy"]["rollingUpdate"], json!({"maxSurge": 1, "maxUnavailable": 0}));
    let pod = &hosts["template"]["spec"];
    let container = &pod["containers"][0];
    let seconds = |it: &Json| it.as_u64().unwrap();
    let (observed, ready) = (seconds(&hosts["minReadySeconds"]), &container["readinessProbe"]);
    // With `maxSurge`, Kubernetes 1.36 was seen not to come back to the old pod after that time.
    assert_eq!(observed, 0, "a rollout would stand still");
    // One that is no longer ready is deleted before the next pod is available, and the rollout goes to the next host.
    let shown = (seconds(&ready["failureThreshold"]) - 1) * seconds(&ready["periodSeconds"]);
    assert!(shown >= 60 + seconds(&ready["periodSeconds"]) + 10, "{shown}");
    let Command::Node(it) = Cli::parse_from(line(container)).command else { panic!("{container}") };
    assert_eq!((it.snapshot, it.member.config.is_some()), (None, true), "it is kept in that folder");
    let volume_of = |folder: &Path| {
        let mount =
            items(&container["volumeMounts"]).find(|it| text(&it["mountPath"]) == folder.to_str().unwrap());
        let name = &mount.unwrap_or_else(|| panic!("{} is not mounted", folder.display()))["name"];
        items(&pod["volumes"]).find(|it| it["name"] == *name).unwrap()
    };
    let shared = volume_of(&it.handover.unwrap());
    assert_eq!(shared["hostPath"], json!({"path": "/run/seaway-node", "type": "DirectoryOrCreate"}));
    let own = it.member.pod.probe_socket.unwrap();
    assert_eq!(volume_of(own.parent().unwrap())["emptyDir"]["medium"], "Memory");
    // The pod's name says which of two is newer.
    assert!(items(&container["env"]).any(|it| it["name"] == "POD_NAME"));
    let constraints = &manifest("components/openshift-hosts/constraints.yaml")[0];
    for volume in items(&pod["volumes"]) {
        let kind = volume.as_object().unwrap().keys().find(|it| *it != "name").unwrap();
        assert!(items(&constraints["volumes"]).any(|it| it == kind), "{kind}");
    }
    assert_eq!(constraints["seLinuxContext"]["seLinuxOptions"], pod["securityContext"]["seLinuxOptions"]);
}

#[test]
fn a_controller_of_a_cloud_is_run_as_one_without_but_for_its_secret() {
    let deployment = |name: &str| way(name).into_iter().find(|it| it["kind"] == "Deployment").unwrap();
    let (plain, mut clouded) = (deployment("bare-metal"), deployment("openstack"));
    assert_eq!(clouded["spec"]["replicas"], 2);
    let pod = &mut clouded["spec"]["template"]["spec"];
    assert_eq!(pod["securityContext"].as_object_mut().unwrap().remove("fsGroup"), Some(json!(65_532)));
    let cloud = |it: &Json| it["name"] == "cloud";
    let volumes = pod["volumes"].as_array_mut().unwrap();
    let secret = volumes.remove(volumes.iter().position(cloud).unwrap());
    // Its owner and its group may read it, no other user.
    assert_eq!(secret["secret"]["defaultMode"], 0o440, "{secret}");
    let container = &mut pod["containers"][0];
    container["volumeMounts"].as_array_mut().unwrap().retain(|it| !cloud(it));
    container["args"].as_array_mut().unwrap().truncate(5);
    assert_eq!(clouded, plain);
}

/// With these lines of its own commented out or in force.
fn cloud_conf(in_force: bool) -> String {
    let objects = openstack();
    let secret = objects.iter().find(|it| it["kind"] == "Secret").unwrap();
    let lines = text(&secret["stringData"]["cloud.conf"]).lines();
    let line = |it: &str| match it.strip_prefix('#') {
        Some(key) if in_force && !key.starts_with(' ') => key.to_owned(),
        _ => it.to_owned(),
    };
    lines.map(line).collect::<Vec<_>>().join("\n")
}

#[test]
fn the_files_of_the_manifests_are_understood_with_every_line_in_force() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("cloud.conf");
    for in_force in [false, true] {
        fs::write(&file, cloud_conf(in_force)).unwrap();
        let mut settings = settings::load(None).unwrap();
        in_cluster(&mut settings, Part::Controller, Some(&file));
        assert_eq!(cloud::refused(&settings), None);
        assert_eq!(settings.told, [""; 0]);
    }
    // Who installs Seaway beside what is there gets no Service of others: those without a class are asked for by name.
    for (name, usual) in [
        ("beside-metallb", DefaultDriver::None),
        ("bare-metal", DefaultDriver::Native),
        ("hosts-outside", DefaultDriver::Native),
        ("openstack", DefaultDriver::None),
    ] {
        let objects = way(name);
        let map = objects.iter().find(|it| it["kind"] == "ConfigMap").unwrap();
        let file = folder.path().join("seaway.yaml");
        fs::write(&file, text(&map["data"]["seaway.yaml"])).unwrap();
        let settings = settings::load(Some(&file)).unwrap();
        assert_eq!(settings.by_default, Some(usual), "{name}");
    }
    let objects = openstack();
    let secret = objects.iter().find(|it| it["kind"] == "Secret").unwrap();
    let clouds = json(&tree::parse(text(&secret["stringData"]["clouds.yaml"])).unwrap()[0]);
    assert_eq!(clouds["clouds"]["openstack"]["cacert"], "/etc/seaway-cloud/ca.crt");
}
