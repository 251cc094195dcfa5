//! Host names, paths and certificates at the front door.

use seaway_testkit::topology::until;

use crate::cluster::{Shared, secret};

fn squatter(name: &str, annotations: &str) -> String {
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
    shared.is_refused("squatter", "shop.example belongs to namespace shop");
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
    shared.is_refused("old", "shop.example belongs to namespace shop, which claimed it first");
    shared.scene.cluster.kubectl(&["delete", "nameowner", "shop"]);
    until("it is recorded again", recorded);
    let door = |host: &str, path: &str, more: &[&str]| shared.asks_door(host, path, more);
    let is_evil = |it: &str| it.starts_with("evil-");
    until("its own names are served", || {
        is_evil(&door("path.test", "/login", &[]))
            && is_evil(&door("header.test", "/", &["-H", "X-Any: 1"]))
            && is_evil(&door("method.test", "/", &["-X", "POST"]))
            && is_evil(&door("exact.test", "/", &[]))
            && is_evil(&door("expressions.test", "/login/3", &[]))
            && is_evil(&door("other.example", "/", &[]))
    });
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
    // Who is not at the front door by his own will is not there.
    let answer = shared.asks_door("no.such.name", "/shop/shop", &[]);
    assert!(!answer.starts_with("shop-"), "a Service that did not ask is exposed: {answer}");
}
