//! An API server that has no time, is ill, or talks nonsense: nothing is lost, and nobody makes it worse.

use std::{
    collections::BTreeSet,
    time::{Duration, Instant},
};

use seaway_testkit::{
    faults::{Fault, RequestMatcher},
    kubernetes::Gate,
    topology::{until, until_within},
};
use serde_json::json;

use crate::scene::{A_TERM, CONTROLLER, NODE, Scene, deployment, service};

/// How long it is looked at.
const A_WHILE: Duration = Duration::from_secs(5);

fn owners(scene: &Scene) -> BTreeSet<String> {
    let told = scene.field("addresses", "{.items[*].spec.owners[*].name}");
    told.split_whitespace().map(str::to_owned).collect()
}

#[test]
fn an_api_server_that_answers_nonsense_is_not_stormed_and_nothing_is_lost_by_it() {
    let Some(mut scene) = Scene::bare() else { return };
    scene.nodes = vec![scene.cluster.node("a")];
    scene.install();
    let ours = Gate::here(&scene.cluster.kubeconfig_of(CONTROLLER, &[]));
    let hosts = Gate::inside(&scene.cluster, &scene.cluster.kubeconfig_of(NODE, &[]));
    scene.lead_as("controller", ours.kubeconfig(), "default");
    scene.serve_by(0, hosts.kubeconfig());
    scene.lead_to(0);
    scene.cluster.apply(&deployment("shop", 1));
    scene.cluster.apply(&service("shop", "selector: {app: shop}"));
    let at = scene.answering("shop");

    let patience = json!({
        "apiVersion": "v1", "kind": "Status", "metadata": {}, "status": "Failure",
        "reason": "TooManyRequests", "message": "slow down", "code": 429,
        "details": { "retryAfterSeconds": 2 },
    });
    type FaultBuilder<'a> = &'a dyn Fn(RequestMatcher) -> Fault;
    let troubles: [(&str, FaultBuilder<'_>, &str); 4] = [
        ("busy", &|on| on.reply(429, patience.clone()).header("retry-after", "2"), "answers 429"),
        ("ill", &|on| on.status(500), "answers 500"),
        ("elsewhere", &|on| on.html(200, "<html>log in</html>"), "not a Kubernetes object"),
        ("garbage", &|on| on.html(502, "<html>bad gateway</html>"), "answers 502"),
    ];
    for (name, trouble, named) in troubles {
        for gate in [&ours, &hosts] {
            gate.fail(trouble(Fault::on("* *").always()));
            gate.forget_requests();
        }
        // One that knows nothing yet has all to ask.
        scene.lead_as(name, ours.kubeconfig(), "default");
        let began = Instant::now();
        let says = |log: &str| log.contains(named) && log.contains("Config kubernetes");
        // A slow machine takes longer to get that far, and may ask more often meanwhile.
        while began.elapsed() < A_WHILE || began.elapsed() < A_TERM && !says(&scene.log(name)) {
            let answer = scene.outside.curl(&format!("http://{}/", at.ip()));
            assert!(answer.is_ok_and(|it| it.starts_with("shop-")), "{name}: it is served all the while");
        }
        let asked = [ours.requests().len(), hosts.requests().len()];
        let whiles = began.elapsed().as_secs_f64() / A_WHILE.as_secs_f64();
        assert!(
            asked.iter().all(|it| (*it as f64) < 150.0 * whiles),
            "{name}: so many requests in {:?}: {asked:?}",
            began.elapsed()
        );
        let log = scene.log(name);
        assert!(log.contains(named), "{name} is named: {log}");
        let told = log.lines().filter(|line| line.contains("Config kubernetes")).count();
        assert!(
            (1..=4).contains(&told) && log.lines().count() < 80,
            "{name}: it is told {told} times: {log}"
        );
        for gate in [&ours, &hosts] {
            gate.heal();
        }
        let new = format!("after-{name}");
        scene.cluster.apply(&service(&new, "selector: {app: shop}"));
        until_within(A_TERM, &format!("{new} has an address"), || owners(&scene).contains(&new));
        let ip = scene.address(&new);
        until("it is served", || scene.outside.curl(&format!("http://{ip}/")).is_ok());
        scene.kill(name);
    }
    let all = ["shop", "after-busy", "after-ill", "after-elsewhere", "after-garbage"].map(str::to_owned);
    assert_eq!(owners(&scene), all.into());
    assert_eq!(scene.answering("shop"), at);
}

#[test]
fn a_definition_that_is_older_is_named_and_two_of_one_name_are_two() {
    let Some(mut scene) = Scene::bare() else { return };
    scene.install();
    // Of a time when nothing was shared.
    let definition = scene.cluster.kubectl(&["get", "crd", "addresses.seaway.dev", "-o", "json"]);
    let mut definition: serde_json::Value = serde_json::from_str(&definition).expect("is JSON");
    let spec = &mut definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"];
    spec["properties"].as_object_mut().expect("has fields").remove("sharing").expect("it is shared");
    scene.cluster.kubectl(&["delete", "crd", "addresses.seaway.dev"]);
    for key in ["resourceVersion", "uid", "creationTimestamp"] {
        definition["metadata"].as_object_mut().expect("has fields").remove(key);
    }
    definition.as_object_mut().expect("has fields").remove("status");
    scene.cluster.define(&definition.to_string());

    scene.lead("twin");
    let shared = |name: &str, port: u16| {
        service(name, "selector: {app: shop}")
            .replace(
                &format!("name: {name}"),
                &format!("name: {name}, annotations: {{seaway.dev/share: web}}"),
            )
            .replace("port: 80", &format!("port: {port}"))
    };
    scene.cluster.apply(&shared("shop", 80));
    let problems = |name: &str| {
        let path = "{.status.conditions[?(@.type==\"seaway.dev/Problems\")].message}";
        scene.field(&format!("service/{name}"), path)
    };
    until("it is named", || {
        let told = problems("shop");
        told.contains("CustomResourceDefinition of Address in this cluster is older")
            && told.contains("seaway crds | kubectl apply -f -")
    });
    scene.install_definitions();
    until_within(A_TERM, "it is mended", || {
        scene.field("address/203-0-113-0", "{.spec.sharing}") == "web" && !problems("shop").contains("older")
    });

    // Two controllers on machines of one name.
    scene.lead("twin#2");
    scene.cluster.apply(&[shared("other", 81), shared("greedy", 80)].join("---"));
    until("they share it, but for the port that is taken", || {
        scene.field("address/203-0-113-0", "{.spec.owners[*].name}") == "other shop"
    });
    let holder = scene.leader();
    scene.kill("twin");
    until_within(A_TERM, "the other leads", || {
        let now = scene.leader();
        now != holder && now.starts_with("twin_")
    });
    scene.cluster.apply(&service("last", "selector: {app: shop}"));
    until_within(A_TERM, "it gives addresses out", || {
        ["greedy", "last"].iter().all(|it| owners(&scene).contains(*it))
    });
    let counted = scene.field("addresses", "{.items[*].metadata.name}").split_whitespace().count();
    assert_eq!(counted, 3, "shop and other, greedy, last: {:?}", owners(&scene));
}
