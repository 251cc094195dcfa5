//! How long OCCM and Seaway take for the same, beside each other on one cluster and one cloud, in turn. It prints a table, and
//! asserts that Seaway takes no longer: the median of the ratios of each is 1 at most.

use std::{
    fmt::Write as _,
    thread,
    time::{Duration, Instant},
};

use seaway_openstack::{Call, Service};
use serde_json::{Value, json};

use crate::{
    occm::Occm,
    report::report,
    stage::{AUTH_URL, PATIENCE, Stage, until},
    witness::{ApiClient, SERVICES},
};

/// OCCM serves Services without a class, Seaway those with its own.
const CONFIGURATION: &str =
    "{adopt: {besideOccm: true}, cloud: {audit: 1m}, admin: {listen: [\"127.0.0.1:0\"]}, lease: 30s}";
const CLASSES: [Option<&str>; 2] = [None, Some("seaway.dev/octavia")];
const ROUNDS: usize = 5;

/// Each look is a request to the cluster or to the cloud, which take it from what is timed.
const LOOK: Duration = Duration::from_millis(100);

/// What is timed, from the write to the API server on.
const WHAT: [&str; 3] = [
    "create: until the Service has an address",
    "append a port: until all of it is ACTIVE",
    "delete: until the Service is gone",
];

#[test]
fn occm_and_seaway_create_append_and_delete_in_turn_with_ovn() {
    compare("ovn", "lb-provider=ovn\nlb-method=SOURCE_IP_PORT\n");
}

fn compare(provider: &str, words: &'static str) {
    let Some(program) = Occm::program() else { return };
    let Some(mut stage) = Stage::set(&["a", "b"]) else { return };
    stage.scene.install();
    stage.scene.configuration = CONFIGURATION;
    stage.scene.cluster_name = "seven";
    stage.land.provider = words;
    stage.land.write_conf(AUTH_URL, &stage.land.project.password());
    stage.scene.cloud = Some(stage.land.conf.path().to_owned());
    let occm = Occm::start(&program, &stage);
    stage.scene.lead("controller");
    let questions = ApiClient::to(stage.scene.cluster.kubeconfig());
    // The first of each is not counted: it signs in, and reads what the cloud can.
    let round = |who: usize| {
        // It deletes what Seaway made, too, when a Service with a class is deleted, and takes the finalizer away.
        if who == 1 {
            occm.pause();
        }
        let took = round(&stage, &questions, CLASSES[who]);
        occm.resume();
        took
    };
    [0, 1].iter().for_each(|who| _ = round(*who));
    let mut all = [[[0.0; ROUNDS]; 3]; 2];
    for at in 0..ROUNDS {
        // Whoever goes first takes turns, too.
        for who in if at % 2 == 0 { [0, 1] } else { [1, 0] } {
            let took = round(who);
            eprintln!("{provider}, round {at}, class {:?}: {took:.1?} s", CLASSES[who]);
            took.iter().zip(&mut all[who]).for_each(|(took, all)| all[at] = *took);
        }
    }
    let mut table = format!(
        "| {provider}: seconds, median of {ROUNDS} rounds | OCCM | Seaway | ratio, median (all) |\n|---|--:|--:|--:|\n"
    );
    let [theirs, ours] = all;
    let mut slow: Vec<&str> = Vec::new();
    for ((what, theirs), ours) in WHAT.iter().zip(theirs).zip(ours) {
        let mut ratios = ours;
        ratios.iter_mut().zip(theirs).for_each(|(ours, theirs)| *ours /= theirs);
        let (low, high) = ratios.iter().fold((f64::MAX, 0.0), |(low, high), it| (it.min(low), it.max(high)));
        let (ratio, theirs, ours) = (median(ratios), median(theirs), median(ours));
        slow.extend((ratio > 1.0).then_some(*what));
        let _ = writeln!(table, "| {what} | {theirs:.1} | {ours:.1} | {ratio:.2} ({low:.2} to {high:.2}) |");
    }
    report("Times: OCCM and Seaway in turn, one Service of one port on two Nodes, with monitors", &table);
    assert!(slow.is_empty(), "Seaway takes longer than OCCM to {slow:?}\n{table}");
}

fn median(mut all: [f64; ROUNDS]) -> f64 {
    all.sort_by(f64::total_cmp);
    all[ROUNDS / 2]
}

/// Seconds for each of these.
fn round(stage: &Stage, questions: &ApiClient, class: Option<&str>) -> [f64; 3] {
    let port =
        |name: &str, port: u16| json!({"name": name, "port": port, "targetPort": 80, "protocol": "TCP"});
    let mut spec = json!({"type": "LoadBalancer", "selector": {"app": "shop"}, "ports": [port("a", 80)]});
    if let Some(class) = class {
        spec["loadBalancerClass"] = class.into();
    }
    let service = json!({
        "apiVersion": "v1", "kind": "Service", "metadata": {"name": "shop", "namespace": "default"}, "spec": spec,
    });
    let path = format!("{SERVICES}/shop");
    let ask = |method: &str, path: &str, body: Option<Value>| {
        questions.ask(method, path, body).unwrap_or_else(|error| panic!("{method} {path}: {error}"))
    };
    let took = |what: &str, begin: &dyn Fn(), is_done: &dyn Fn() -> bool| {
        let began = Instant::now();
        begin();
        while !is_done() {
            assert!(began.elapsed() < PATIENCE, "in vain, class {class:?}: {what}");
            thread::park_timeout(LOOK);
        }
        began.elapsed().as_secs_f64()
    };
    let is_served = || ask("GET", &path, None)["status"]["loadBalancer"]["ingress"].is_array();
    let create = took(WHAT[0], &|| drop(ask("POST", SERVICES, Some(service.clone()))), &is_served);
    // Load balancer, listener, pool and monitor; two members.
    stage.land.at_rest(|all| all.len() == 6);
    let balancers = stage.land.told(&["loadbalancers"]);
    let status = format!("/lbaas/{}/status", balancers.keys().next().expect("there is one"));
    let has_both = || {
        let told = stage.land.cloud.call(Call::get(Service::LoadBalancer, "status", &status));
        let told = stage.land.runtime.block_on(told).expect("the status is told");
        let states = states(&told.body);
        states.len() == 11 && states.iter().all(|it| *it == "ACTIVE")
    };
    let ports = json!({"spec": {"ports": [port("a", 80), port("b", 8080)]}});
    let append = took(WHAT[1], &|| drop(ask("PATCH", &path, Some(ports.clone()))), &has_both);
    stage.land.at_rest(|all| all.len() == 11);
    let is_gone = || matches!(questions.ask("GET", &path, None), Err(kube::Error::Api(it)) if it.code == 404);
    let delete = took(WHAT[2], &|| drop(ask("DELETE", &path, None)), &is_gone);
    // OVN's driver may say once more of one that is gone that it is ACTIVE; an audit finds it.
    until("no load balancer is left, nor came back", || stage.land.told(&["loadbalancers"]).is_empty());
    [create, append, delete]
}

/// How far each object in such a tree is.
fn states(tree: &Value) -> Vec<&str> {
    match tree {
        Value::Array(all) => all.iter().flat_map(states).collect(),
        Value::Object(all) => {
            let own = tree["provisioning_status"].as_str();
            own.into_iter().chain(all.values().flat_map(states)).collect()
        }
        _ => Vec::new(),
    }
}
