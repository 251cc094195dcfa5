//! Host names, paths and certificates at the front door.

use seaway_testkit::topology::until;

use crate::cluster::{Shared, secret};

pub(crate) fn squatter(name: &str, annotations: &str) -> String {
    format!(
        "
apiVersion: v1
kind: Service
metadata: {{name: {name}, annotations: {{{annotations}}}}}
spec: {{ports: [{{port: 80}}], selector: {{app: evil}}}}
"
    )
}

/// A route of these host names and of one of its own, by which it is seen to be there.
fn route(name: &str, matches: &str, filters: &str) -> String {
    format!(
        "
apiVersion: gateway.networking.k8s.io/v1
kind: HTTPRoute
metadata: {{name: {name}}}
spec:
  parentRefs: [{{name: public, namespace: infra}}]
  hostnames: [shop.example, \"*.example\", {name}.test]
  rules:
  - matches: [{matches}]
    filters: [{filters}]
    backendRefs: [{{name: evil, port: 80}}]
"
    )
}

/// A route of that host name alone.
pub(crate) fn routed(name: &str, host: &str, matches: &str) -> String {
    let own = format!("hostnames: [{host}]");
    route(name, matches, "").replace(&format!("hostnames: [shop.example, \"*.example\", {name}.test]"), &own)
}

pub(crate) fn is_evil(answer: &str) -> bool {
    answer.starts_with("evil-")
}

/// Leads to what its cluster's DNS would say, and so does a route.
const OUTWARD: &str = "
apiVersion: v1
kind: Service
metadata: {name: outward, annotations: {seaway.dev/host: outward.test}}
spec: {type: ExternalName, externalName: localhost.example, ports: [{port: 9443, appProtocol: http}]}
---
apiVersion: gateway.networking.k8s.io/v1
kind: HTTPRoute
metadata: {name: outward}
spec:
  parentRefs: [{name: public, namespace: infra}]
  hostnames: [outward-by-route.test]
  rules: [{backendRefs: [{name: outward, port: 9443}]}]
";

/// Of a Gateway that is not ours: with what would be a Problem of ours.
const FOREIGN: &str = "
apiVersion: gateway.networking.k8s.io/v1
kind: HTTPRoute
metadata: {name: foreign}
spec:
  parentRefs: [{name: other, namespace: infra}]
  hostnames: [foreign.test]
  rules:
  - filters: [{type: ExtensionRef, extensionRef: {group: example.dev, kind: Filter, name: none}}]
    backendRefs: [{name: evil, port: 80}, {name: absent, port: 80}]
";

/// As many as a route may have, each as large as the API server takes.
fn heavy() -> String {
    let large = |at: usize| {
        let value = format!("/{at}/({}){{1,50}}", "[a-z]*|".repeat(140));
        format!("{{path: {{type: RegularExpression, value: \"{value}\"}}}}")
    };
    let rule = |from: usize| {
        let matches: Vec<String> = (from..from + 64).map(large).collect();
        format!("{{matches: [{}], backendRefs: [{{name: evil, port: 80}}]}}", matches.join(", "))
    };
    format!(
        "
apiVersion: gateway.networking.k8s.io/v1
kind: HTTPRoute
metadata: {{name: heavy}}
spec:
  parentRefs: [{{name: public, namespace: infra}}]
  hostnames: [heavy.test]
  rules: [{}, {}]
",
        rule(0),
        rule(64)
    )
}

/// What its own names lead to is there, and nowhere else.
fn tries_others(shared: &Shared) {
    let clients = "seaway.dev/host: clients.test, seaway.dev/client-authorities: ca";
    let all = [OUTWARD.to_owned(), FOREIGN.to_owned(), heavy(), squatter("clients", clients)];
    shared.applies(&all.join("---"));
    shared.is_refused("outward", "the name localhost.example is not looked up");
    shared.is_refused("clients", "has no ca.crt, so no client certificate can be verified: requests get 503");
    until("a route with too many expressions is left out", || {
        shared.told_of_route("heavy").iter().any(|it| it.contains("regular expressions (the limit is 64)"))
    });
}

pub(crate) fn tries(shared: &Shared) {
    let expressions: Vec<String> = (0..64)
        .map(|at| format!("{{path: {{type: RegularExpression, value: \"/(login|cart){{1,50}}/{at}.*\"}}}}"))
        .collect();
    let all = [
        secret("evil", &shared.certificate("evil")),
        squatter("squatter", "seaway.dev/host: shop.example, seaway.dev/tls: evil"),
        squatter("wildcard", "seaway.dev/host: \"*.example\", seaway.dev/tls: evil"),
        squatter("everything", "seaway.dev/path: /"),
        squatter("aaa", "seaway.dev/front-door: \"true\", seaway.dev/tls: evil"),
        route("path", "{path: {type: PathPrefix, value: /login}}", ""),
        route("header", "{headers: [{name: X-Any, value: \"1\"}]}", ""),
        route("method", "{method: POST}", ""),
        route("exact", "{path: {type: Exact, value: /}}", ""),
        route("expressions", &expressions.join(", "), ""),
    ];
    shared.applies(&all.join("---"));
    shared.is_refused("squatter", "shop.example belongs to another namespace");
    // Its oldest object begins to claim the name, and the record of who has it is lost.
    let path = "jsonpath={.spec.hosts}";
    let recorded = || {
        let asked = ["get", "nameowner", "shop", "-o", path];
        shared.scene.cluster.try_kubectl(&asked, "").is_ok_and(|it| it.contains("shop.example"))
    };
    until("it is recorded whose the name is", recorded);
    let claim =
        ["-n", "evil", "annotate", "service", "old", "seaway.dev/host=shop.example", "seaway.dev/tls=evil"];
    shared.attempt(&claim, "").expect("it is its own");
    shared.is_refused("old", "shop.example belongs to another namespace, which claimed it first");
    shared.scene.cluster.kubectl(&["delete", "nameowner", "shop"]);
    until("it is recorded again", recorded);
    let door = |host: &str, path: &str, more: &[&str]| shared.asks_door(host, path, more);
    until("its own names are served", || {
        is_evil(&door("path.test", "/login", &[]))
            && is_evil(&door("header.test", "/", &["-H", "X-Any: 1"]))
            && is_evil(&door("method.test", "/", &["-X", "POST"]))
            && is_evil(&door("exact.test", "/", &[]))
            && is_evil(&door("expressions.test", "/login/3", &[]))
            && is_evil(&door("other.example", "/", &[]))
    });
    tries_others(shared);
}

/// Whatever is asked of `shop.example`, the shop answers.
pub(crate) fn hold(shared: &Shared) {
    let asked: [(&str, &[&str]); 6] = [
        ("/", &[]),
        ("/login", &[]),
        ("/login/3", &[]),
        ("/cart/1?x=1", &["-H", "X-Any: 1"]),
        ("/", &["-X", "POST"]),
        ("/anything", &["-H", "Accept: text/html"]),
    ];
    for (path, more) in asked {
        let answer = shared.asks_door("shop.example", path, more);
        assert!(answer.starts_with("shop-"), "shop.example{path} {more:?}: {answer}");
    }
    let answer = shared.shows("shop", "shop.example");
    assert!(answer.as_ref().is_ok_and(|it| it.starts_with("shop-")), "the shop's certificate: {answer:?}");
    for name in ["outward.test", "outward-by-route.test", "foreign.test", "heavy.test", "clients.test"] {
        let answer = shared.asks_door(name, "/", &[]);
        // A route of its own without a host name may answer with its own pods.
        let is_led = ["shop-", "the machine"].iter().any(|it| answer.starts_with(it));
        assert!(!is_led, "{name} leads to nothing of others: {answer}");
    }
    // Of another Gateway's route nothing is said: no Problem, no metric that counts it, no line of a log, no status.
    assert_eq!(shared.told_of_route("foreign"), [""; 0]);
    for process in ["controller", "a", "b"] {
        let log = shared.scene.log(process);
        assert!(!log.contains("evil/foreign"), "{process}: {log}");
    }
    let status = ["-n", "evil", "get", "httproute", "foreign", "-o", "jsonpath={.status}"];
    assert_eq!(shared.scene.cluster.kubectl(&status).trim(), "");
    // Who is not at the front door by his own will is not there.
    let answer = shared.asks_door("no.such.name", "/shop/shop", &[]);
    assert!(!answer.starts_with("shop-"), "a Service that did not ask is exposed: {answer}");
}
