//! The walk of the guide of 2015 by which it all began, with nothing left to do by hand: `nginxservice`.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};

use crate::{
    foreign::Foreign,
    scene::deployment,
    stage::{AUTH_URL, CloudSetup, Stage, until},
};

const SERVICE: &str = "
apiVersion: v1
kind: Service
metadata:
  name: nginxservice
  labels: {app: nginx}
spec:
  type: LoadBalancer
  loadBalancerClass: seaway.dev/octavia
  ports: [{name: http, port: 80, targetPort: 80, protocol: TCP}]
  selector: {app: nginx}
";

#[test]
fn nginxservice_becomes_a_load_balancer_that_the_outside_reaches_and_leaves_nothing() {
    let Some(mut stage) = Stage::set(&["a", "b"]) else { return };
    let foreign = Foreign::made(&stage.land);
    stage.lead(AUTH_URL);
    let before = stage.land.everything();
    let objects = objects(&stage).expect("all objects of the cluster");

    let cluster = stage.scene.cluster.clone();
    let create = |manifest: &str| {
        cluster.try_kubectl(&["create", "-f", "-"], manifest).unwrap_or_else(|error| panic!("{error}"))
    };
    create(&deployment("nginx", 2).replace("image: web", "image: nginx"));
    create(SERVICE);
    let address = stage.address("nginxservice");
    stage.answers(&format!("http://{address}/"), "nginx");

    // What A(c) lists, by the names of today.
    let name = "kube_service_seven_default_nginxservice";
    let made = new_ones(&stage.land, &before);
    let one = |kind: &str| only(&made, kind);
    let balancer = one("loadbalancers");
    assert_eq!(balancer["name"], name);
    assert_eq!(balancer["provider"], "ovn");
    assert_eq!(
        balancer["description"],
        "Kubernetes external service default/nginxservice from cluster seven"
    );
    assert_eq!(balancer["vip_subnet_id"], stage.land.subnet.as_str());
    let uid = stage.scene.field("namespace/kube-system", "{.metadata.uid}");
    let tags: Vec<&str> =
        balancer["tags"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    assert!(tags.contains(&&*format!("seaway.dev/cluster={uid}")), "{tags:?}");
    let listener = one("listeners");
    assert_eq!(listener["name"], format!("listener_0_{name}"));
    assert_eq!((&listener["protocol"], &listener["protocol_port"]), (&json!("TCP"), &json!(80)));
    let pool = one("pools");
    assert_eq!(pool["name"], format!("pool_0_{name}"));
    assert_eq!((&pool["protocol"], &pool["lb_algorithm"]), (&json!("TCP"), &json!("SOURCE_IP_PORT")));
    let monitor = one("healthmonitors");
    assert_eq!((&monitor["name"], &monitor["type"]), (&json!(format!("monitor_0_{name}")), &json!("TCP")));
    let times = ["delay", "timeout", "max_retries"].map(|it| monitor[it].clone());
    assert_eq!(times, [json!(60), json!(30), json!(3)]);
    assert_eq!(members(&made), at_nodes(&stage, 0), "every Node at its node port, by its address in Neutron");
    let floating = one("floatingips");
    assert_eq!(floating["floating_ip_address"], *address);
    assert_eq!(floating["port_id"], balancer["vip_port_id"]);
    let description = floating["description"].as_str().unwrap_or_default();
    assert!(description.starts_with("Floating IP for Kubernetes external service default/nginxservice from"));

    // OVN loses its members, and has them again after the next audit.
    let id = balancer["id"].as_str().expect("an id");
    stage.land.rig.lose_in_ovn(id);
    let all_are = |status: &str| {
        let mut now = stage.land.told(&["members"]);
        now.retain(|key, _| made.contains_key(key));
        now.values().all(|it| it["operating_status"] == status)
    };
    until("OVN asks nobody", || all_are("OFFLINE"));
    assert!(stage.land.rig.outside().curl(&format!("http://{address}/")).is_err());
    stage.answers(&format!("http://{address}/"), "nginx");
    until("all are asked again", || all_are("ONLINE"));

    // More pods are no news to the cloud.
    cluster.kubectl(&["scale", "deployment/nginx", "--replicas", "4"]);
    cluster.kubectl(&["rollout", "status", "deployment/nginx", "--timeout", "300s"]);
    stage.answers(&format!("http://{address}/"), "nginx");

    // One more port.
    let port = r#"[{"op": "add", "path": "/spec/ports/-", "value": {"name": "more", "port": 8080, "targetPort": 80}}]"#;
    cluster.kubectl(&["patch", "service", "nginxservice", "--type", "json", "-p", port]);
    stage.answers(&format!("http://{address}:8080/"), "nginx");
    stage.answers(&format!("http://{address}/"), "nginx");
    let now = new_ones(&stage.land, &before);
    assert_eq!(only(&now, "loadbalancers")["vip_address"], balancer["vip_address"]);
    assert_eq!(only(&now, "floatingips")["id"], floating["id"]);
    assert!(made.keys().all(|it| now.contains_key(it)), "all that was there is the same: {made:?} {now:?}");
    let both: BTreeSet<String> = at_nodes(&stage, 0).union(&at_nodes(&stage, 1)).cloned().collect();
    assert_eq!(members(&now), both);

    // One more machine, and one less: no pod is on it.
    for machines in [3, 2] {
        match machines {
            3 => stage.join("c"),
            _ => {
                drop(stage.scene.nodes.pop());
                cluster.kubectl(&["delete", "node", "c"]);
            }
        }
        let wanted: BTreeSet<String> = at_nodes(&stage, 0).union(&at_nodes(&stage, 1)).cloned().collect();
        until(&format!("{machines} Nodes are members"), || {
            let mut now = stage.land.told(&["members"]);
            now.retain(|key, _| !before.contains_key(key));
            members(&now) == wanted
        });
        let now = new_ones(&stage.land, &before);
        assert!(made.keys().all(|it| now.contains_key(it)), "nobody was made anew: {made:?} {now:?}");
        stage.answers(&format!("http://{address}/"), "nginx");
    }

    cluster.kubectl(&["delete", "service/nginxservice", "deployment/nginx", "--wait=false"]);
    // The machine that came stays.
    let left = || {
        let mut left = new_ones(&stage.land, &before);
        left.retain(|_, it| it["name"] != "c");
        left
    };
    until("nothing is left in the cloud", || left().is_empty());
    until("nothing is left in the cluster", || {
        let Some(now) = self::objects(&stage) else { return false };
        let left: Vec<&String> = now.difference(&objects).collect();
        if !left.is_empty() {
            eprintln!("still in the cluster: {left:?}");
        }
        left.is_empty()
    });
    assert!(stage.land.rig.outside().curl(&format!("http://{address}/")).is_err());
    foreign.are_as_they_were(&stage.land);
}

fn new_ones(land: &CloudSetup, before: &BTreeMap<String, Value>) -> BTreeMap<String, Value> {
    let mut all = land.everything();
    all.retain(|key, _| !before.contains_key(key));
    all
}

fn of_kind<'a>(all: &'a BTreeMap<String, Value>, kind: &str) -> Vec<&'a Value> {
    all.iter().filter(|(key, _)| key.split('/').next() == Some(kind)).map(|it| it.1).collect()
}

#[track_caller]
fn only<'a>(all: &'a BTreeMap<String, Value>, kind: &str) -> &'a Value {
    let [one] = of_kind(all, kind)[..] else { panic!("not one of {kind}: {all:?}") };
    one
}

fn members(all: &BTreeMap<String, Value>) -> BTreeSet<String> {
    let text =
        |it: &Value| format!("{} {} {}", it["name"], it["address"], it["protocol_port"]).replace('"', "");
    of_kind(all, "members").into_iter().map(text).collect()
}

/// Every Node at the node port of that port of the Service.
fn at_nodes(stage: &Stage, port: usize) -> BTreeSet<String> {
    let port = stage.scene.field("service/nginxservice", &format!("{{.spec.ports[{port}].nodePort}}"));
    let of = |it: &seaway_testkit::kubernetes::Node| format!("{} {} {port}", it.name(), it.addresses()[0]);
    stage.scene.nodes.iter().map(of).collect()
}

/// The names of all that is in the cluster, but for what comes and goes by itself; `None` where they could not be listed.
fn objects(stage: &Stage) -> Option<BTreeSet<String>> {
    let kinds = stage.scene.cluster.kubectl(&["api-resources", "--verbs=list", "-o", "name"]);
    let stays = |it: &&str| !it.starts_with("events") && !it.starts_with("leases");
    let kinds: Vec<&str> = kinds.lines().filter(stays).collect();
    let named = ["get", &kinds.join(","), "-A", "-o", "name"];
    let all = stage.scene.cluster.try_kubectl(&named, "").ok()?;
    Some(all.lines().filter(|it| !is_the_controllers(it)).map(str::to_owned).collect())
}

/// What a controller keeps for as long as it runs, and may write at any time: deletions are remembered for a day, and
/// the addresses of hosts are gathered some seconds after its start.
fn is_the_controllers(name: &str) -> bool {
    name == "configmap/seaway-deletions" || name.starts_with("loadbalancerhostslice.seaway.dev/")
}
