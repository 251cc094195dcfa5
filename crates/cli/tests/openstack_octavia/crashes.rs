//! A controller that dies, or never hears an answer, at each request by which it changes the cloud. What Octavia's driver
//! does of it against a cloud that a script breaks is shown elsewhere at every request; here the cloud is a real one, and
//! each kind of object has its turn.

use std::{collections::BTreeMap, time::Instant};

use seaway_testkit::{
    faults::{Fault, RequestHold},
    gate::CloudGate,
    kubernetes::Cluster,
    topology::until_within,
};
use serde_json::Value;

use crate::{
    foreign::Foreign,
    scene::deployment,
    stage::{BALANCERS, PATIENCE, Stage, until},
};

/// Keystone, Octavia and Neutron.
const PORTS: [u16; 3] = [5000, 9876, 9696];

/// On TCP and on UDP.
const SHOP: &str = "
apiVersion: v1
kind: Service
metadata: {name: shop}
spec:
  type: LoadBalancer
  loadBalancerClass: seaway.dev/octavia
  selector: {app: shop}
  ports: [{name: web, port: 80}, {name: echo, port: 7, protocol: UDP}]
";

/// Of each kind of object, what makes it first.
const CREATE: [&str; 5] = [
    "POST */lbaas/loadbalancers",
    "POST */floatingips",
    "POST */security-groups",
    "POST */security-group-rules",
    "PUT */ports/*",
];
const CHANGE: [&str; 6] = [
    "PUT */lbaas/pools/*",
    "PUT */lbaas/healthmonitors/*",
    "POST */lbaas/listeners",
    "POST */lbaas/pools",
    "PUT */lbaas/pools/*/members",
    "POST */lbaas/healthmonitors",
];
const SHRINK: [&str; 3] =
    ["DELETE */lbaas/pools/*", "DELETE */lbaas/listeners/*", "DELETE */security-group-rules/*"];
const DELETE: [&str; 4] = [
    "DELETE */floatingips/*",
    "DELETE */lbaas/loadbalancers/*",
    "PUT */ports/*",
    "DELETE */security-groups/*",
];

#[test]
fn a_death_at_any_request_to_the_cloud_leaves_what_is_wanted_once_and_in_the_end_nothing() {
    walk(dies_at);
}

#[test]
fn a_lost_answer_of_the_cloud_doubles_nothing() {
    walk(|_, gate, requests, begin| loses_the_answers_to(gate, requests, begin));
}

/// Has its way with these requests, to which the last one leads.
type FaultInjection = fn(&mut Stage, &CloudGate, &[&str], &dyn Fn());

/// A Service is created, changed, cut down and deleted; each kind of request to the cloud is struck once.
fn walk(strike: FaultInjection) {
    let Some(mut stage) = Stage::set(&[]) else { return };
    // Its Nodes answer because of what Seaway opens.
    stage.land.closed = true;
    stage.land.options = "manage-security-groups=true\n";
    stage.join("a");
    let foreign = Foreign::made(&stage.land);
    let gate = CloudGate::before(&PORTS);
    stage.lead(&gate.auth_url());
    let before = stage.land.everything();
    let cluster = stage.scene.cluster.clone();
    let both =
        deployment("shop", 1).replace("containers:\n", "containers:\n      - {name: echo, image: udp}\n");
    cluster.apply(&both);

    strike(&mut stage, &gate, &CREATE, &|| cluster.apply(SHOP));
    let address = stage.address("shop");
    stage.answers(&format!("http://{address}/"), "shop");
    stage.echoes(&address, 7, "shop");
    comes_to(&stage, &before, of_ports(2));

    // Whoever comes stays with one pod, who is asked more often, on one more port.
    let change = r#"{"metadata": {"annotations": {"loadbalancer.openstack.org/health-monitor-delay": "61"}},
        "spec": {"sessionAffinity": "ClientIP", "ports": [{"name": "more", "port": 8080, "targetPort": 80}]}}"#;
    strike(&mut stage, &gate, &CHANGE, &|| patch(&cluster, change));
    stage.answers(&format!("http://{address}:8080/"), "shop");
    stage.answers(&format!("http://{address}/"), "shop");
    comes_to(&stage, &before, of_ports(3));

    let shrink = r#"{"spec": {"ports": [{"$patch": "delete", "port": 8080}]}}"#;
    strike(&mut stage, &gate, &SHRINK, &|| patch(&cluster, shrink));
    comes_to(&stage, &before, of_ports(2));
    stage.answers(&format!("http://{address}/"), "shop");

    strike(&mut stage, &gate, &DELETE, &|| {
        cluster.kubectl(&["delete", "service", "shop", "--wait=false"]);
    });
    until("nothing is left", || stage.land.has_only(&before));
    until("the Service is gone", || {
        cluster.kubectl(&["get", "services", "-o", "name"]) == "service/kubernetes"
    });
    foreign.are_as_they_were(&stage.land);
}

/// `begin` leads to each of these requests. The first of a kind never gets there, the second is done: before anybody hears
/// of it the controller is dead, and another one has to take over.
fn dies_at(stage: &mut Stage, gate: &CloudGate, requests: &[&str], begin: &dyn Fn()) {
    let mut deaths: Vec<(String, RequestHold)> = Vec::new();
    for request in requests {
        let (before, after) = (RequestHold::new(), RequestHold::new());
        gate.fail(Fault::on(request).hold(&before));
        gate.fail(Fault::on(request).nth(2).hold_reply(&after));
        deaths.extend([(format!("before {request}"), before), (format!("after {request}"), after)]);
    }
    begin();
    while !deaths.is_empty() {
        let left: Vec<&str> = deaths.iter().map(|(at, _)| at.as_str()).collect();
        until(&format!("it comes to one of {left:?}"), || deaths.iter().any(|(_, it)| it.waiting() > 0));
        stage.scene.kill("controller");
        deaths.retain(|(_, it)| it.waiting() == 0);
        stage.lead_anew();
    }
    gate.heal();
}

/// The first of each is done, and the connection ends before the answer.
fn loses_the_answers_to(gate: &CloudGate, requests: &[&str], begin: &dyn Fn()) {
    gate.take_writes();
    requests.iter().for_each(|it| gate.fail(Fault::on(it).lose_reply()));
    begin();
    for request in requests {
        until(&format!("it comes to {request}"), || gate.count(request) > 0);
    }
}

fn patch(cluster: &Cluster, change: &str) {
    cluster.kubectl(&["patch", "service", "shop", "--patch", change]);
}

/// All that is wanted is there, once, and nothing else.
#[track_caller]
fn comes_to(stage: &Stage, before: &BTreeMap<String, Value>, wanted: BTreeMap<String, usize>) {
    let mut last = BTreeMap::new();
    let end = Instant::now() + PATIENCE;
    // What is there in the end is told in any case.
    until_within(2 * PATIENCE, "it comes to rest", || {
        last = counted(stage, before);
        last == wanted || Instant::now() > end
    });
    assert_eq!(last, wanted);
}

/// How much there is of each kind that Seaway makes; ports are Octavia's own.
fn counted(stage: &Stage, before: &BTreeMap<String, Value>) -> BTreeMap<String, usize> {
    let mut counts = BTreeMap::new();
    let kinds = [&BALANCERS[..], &["floatingips", "security-groups", "security-group-rules"]].concat();
    for key in stage.land.told(&kinds).keys().filter(|it| !before.contains_key(*it)) {
        let kind = key.split('/').next().unwrap_or_default();
        *counts.entry(kind.to_owned()).or_default() += 1;
    }
    counts
}

/// One load balancer for a Service with so many ports, and one Node that is opened for it.
fn of_ports(ports: usize) -> BTreeMap<String, usize> {
    let each = [
        ("loadbalancers", 1),
        ("floatingips", 1),
        ("listeners", ports),
        ("pools", ports),
        ("members", ports),
        ("healthmonitors", ports),
        ("security_groups", 1),
        // Neutron's own two let the Node answer.
        ("security_group_rules", ports + 2),
    ];
    each.into_iter().map(|(kind, count)| (kind.to_owned(), count)).collect()
}
