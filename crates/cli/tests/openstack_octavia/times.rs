//! How long OCCM and Seaway take for the same, beside each other on one cluster and one cloud. It prints a table, and asserts no
//! time: docs/performance.md has the figures of one machine.

use std::{
    fmt::Write as _,
    thread,
    time::{Duration, Instant},
};

use serde_json::{Value, json};

use crate::{
    occm::Occm,
    stage::{AUTH_URL, BALANCERS, PATIENCE, Stage},
    witness::{Questions, SERVICES},
};

/// OCCM serves Services without a class, Seaway those with its own.
const SEAWAY: &str = "{adopt: {besideOccm: true}, admin: {listen: [\"127.0.0.1:0\"]}, lease: 30s}";
const ROUNDS: usize = 3;
const LOOK: Duration = Duration::from_millis(50);

/// What is timed, from the write to the API server on.
const WHAT: [&str; 3] = [
    "create: until the Service has an address",
    "append a port: until all of it is ACTIVE",
    "delete: until the Service is gone",
];

#[test]
fn occm_and_seaway_create_append_and_delete_beside_each_other() {
    let Some(program) = Occm::program() else { return };
    let Some(mut stage) = Stage::set("times", &["a", "b"]) else { return };
    stage.land.write_conf(AUTH_URL, &stage.land.project.password());
    stage.scene.install();
    stage.scene.configuration = SEAWAY;
    stage.scene.cluster_name = "seven";
    let mut table = String::new();
    for (provider, words) in [
        ("ovn", "lb-provider=ovn\nlb-method=SOURCE_IP_PORT\n"),
        ("amphora", "lb-provider=amphora\nlb-method=ROUND_ROBIN\n"),
    ] {
        stage.land.provider = words;
        stage.land.write_conf(AUTH_URL, &stage.land.project.password());
        stage.scene.cloud = Some(stage.land.conf.path().to_owned());
        let _occm = Occm::start(&program, &stage);
        stage.scene.lead(provider);
        let questions = Questions::to(stage.scene.cluster.kubeconfig());
        // The first of each is not counted: it signs in, and reads what the cloud can.
        let classes = [None, Some("seaway.dev/octavia")];
        for class in classes {
            round(&stage, &questions, class);
        }
        let mut all = classes.map(|_| Vec::new());
        for _ in 0..ROUNDS {
            for (class, times) in classes.iter().zip(&mut all) {
                times.push(round(&stage, &questions, *class));
            }
        }
        for (at, what) in WHAT.iter().enumerate() {
            let [theirs, ours] = all.each_ref().map(|times| median(times, at));
            let ratio = ours / theirs;
            let _ = writeln!(table, "| {provider} | {what} | {theirs:.1} | {ours:.1} | {ratio:.2} |");
        }
        stage.scene.end(provider);
    }
    eprintln!(
        "| provider | seconds, median of {ROUNDS} | OCCM | Seaway | ratio |\n|---|---|--:|--:|--:|\n{table}"
    );
}

fn median(times: &[[f64; 3]], at: usize) -> f64 {
    let mut all: Vec<f64> = times.iter().map(|it| it[at]).collect();
    all.sort_by(f64::total_cmp);
    all[all.len() / 2]
}

/// Seconds for each of these.
fn round(stage: &Stage, questions: &Questions, class: Option<&str>) -> [f64; 3] {
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
    stage.land.at_rest(|all| all.len() == 6);
    let ports = json!({"spec": {"ports": [port("a", 80), port("b", 8080)]}});
    let is_active = |it: &Value| it["provisioning_status"] == "ACTIVE";
    // One load balancer; two listeners, pools and monitors; two members of each pool.
    let has_both = || {
        let all = stage.land.told(&BALANCERS);
        all.len() == 11 && all.values().all(is_active)
    };
    let append = took(WHAT[1], &|| drop(ask("PATCH", &path, Some(ports.clone()))), &has_both);
    stage.land.at_rest(|all| all.len() == 11);
    let is_gone = || matches!(questions.ask("GET", &path, None), Err(kube::Error::Api(it)) if it.code == 404);
    let delete = took(WHAT[2], &|| drop(ask("DELETE", &path, None)), &is_gone);
    assert_eq!(stage.land.told(&["loadbalancers"]).len(), 0, "{class:?}");
    [create, append, delete]
}
