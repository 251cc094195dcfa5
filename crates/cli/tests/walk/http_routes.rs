//! HTTPRoutes of the folder, with real traffic.

use crate::{
    backends::Web,
    front_door::{ask, with_door},
    harness::{Seaway, until},
    manifests::Service,
};

const PORT: u16 = 8080;

/// A route of these rules for `shop.example`.
fn route(name: &str, rules: &str) -> String {
    format!(
        "apiVersion: gateway.networking.k8s.io/v1\nkind: HTTPRoute\nmetadata: {{name: {name}}}\nspec:\n  parentRefs: [{{name: any}}]\n  hostnames: [shop.example]\n  rules:\n{rules}"
    )
}

fn hidden(name: &str, web: &Web) -> String {
    Service::web(name).with("front-door", "false").to(web.at).text()
}

fn get(seaway: &Seaway, url: &str, more: &str) -> (u16, String) {
    let answer = ask(seaway.at(PORT), "GET", url, more);
    (answer.status, answer.body)
}

#[test]
fn rules_choose_by_what_a_request_is_and_weigh_those_behind_them() {
    let (old, new, api) = (Web::start("old"), Web::start("new"), Web::start("api"));
    let rules = "  - matches: [{path: {value: /}}]\n    backendRefs: [{name: old, port: 80, weight: 3}, {name: new, port: 80, weight: 1}]\n  \
                 - matches:\n    - {path: {value: /api}, method: POST}\n    - {headers: [{name: x-api, value: \"yes\"}]}\n    - {queryParams: [{name: v, value: a b}]}\n    \
                 - {path: {type: RegularExpression, value: \"/v[0-9]+/.*\"}}\n    backendRefs: [{name: api, port: 80}]\n";
    let seaway = with_door("")
        .write("old.yaml", &hidden("old", &old))
        .write("new.yaml", &hidden("new", &new))
        .write("api.yaml", &hidden("api", &api))
        .write("route.yaml", &route("shop", rules))
        .start();
    assert!(seaway.problems().is_empty(), "{:?}", seaway.problems());
    let (mut olds, mut news) = (0, 0);
    for _ in 0..200 {
        match get(&seaway, "shop.example/x", "").1.as_str() {
            "old" => olds += 1,
            "new" => news += 1,
            other => panic!("{other}"),
        }
    }
    assert!((20..=80).contains(&news) && olds + news == 200, "a quarter of 200 is {news}");
    assert_eq!(ask(seaway.at(PORT), "POST", "shop.example/api/x", "Content-Length: 0\r\n").body, "api");
    assert_eq!(get(&seaway, "shop.example/x", "X-Api: yes\r\n").1, "api");
    assert_eq!(get(&seaway, "shop.example/x?v=a+b", "").1, "api");
    assert_eq!(get(&seaway, "shop.example/v12/x", "").1, "api");
    assert_ne!(get(&seaway, "shop.example/api/x", "").1, "api");
    assert_eq!(get(&seaway, "other.example/", "").0, 404);
}

#[test]
fn filters_change_requests_and_answers_on_their_way() {
    let web = Web::start("web");
    let rules = "  - matches: [{path: {value: /old}}]\n    filters: [{type: RequestRedirect, requestRedirect: {scheme: https, statusCode: 301, path: {type: ReplacePrefixMatch, replacePrefixMatch: /new}}}]\n  \
                 - matches: [{path: {value: /changed}}]\n    filters:\n    - {type: RequestHeaderModifier, requestHeaderModifier: {set: [{name: X-Set, value: here}], remove: [X-Gone]}}\n    \
                 - {type: ResponseHeaderModifier, responseHeaderModifier: {add: [{name: X-Answer, value: \"42\"}]}}\n    \
                 - {type: URLRewrite, urlRewrite: {hostname: inner.example, path: {type: ReplacePrefixMatch, replacePrefixMatch: /inner}}}\n    backendRefs: [{name: web, port: 80}]\n";
    let seaway = with_door("")
        .write("web.yaml", &hidden("web", &web))
        .write("route.yaml", &route("shop", rules))
        .start();
    let redirected = ask(seaway.at(PORT), "GET", "shop.example/old/x?y", "");
    assert_eq!(redirected.status, 301);
    assert_eq!(redirected.header("location"), Some("https://shop.example/new/x?y"));
    let changed = ask(seaway.at(PORT), "GET", "shop.example/changed/x", "X-Gone: 1\r\n");
    assert_eq!((changed.status, changed.header("x-answer")), (200, Some("42")));
    let asked = web.last_request();
    assert!(asked.starts_with("GET /inner/x HTTP/1.1\r\n"), "{asked}");
    assert!(asked.contains("Host: inner.example\r\n") && asked.contains("X-Set: here\r\n"), "{asked}");
    assert!(!asked.contains("X-Gone"), "{asked}");
}

#[test]
fn what_is_not_supported_spoils_its_rule_alone_and_is_told_with_its_line() {
    let web = Web::start("web");
    let rules = "  - matches: [{path: {value: /strange}}]\n    filters:\n    - type: ExtensionRef\n      extensionRef: {group: a.example, kind: Foo, name: bar}\n    backendRefs: [{name: web, port: 80}]\n  \
                 - matches: [{path: {value: /plain}}]\n    backendRefs: [{name: web, port: 80}]\n";
    let seaway = with_door("")
        .write("web.yaml", &hidden("web", &web))
        .write("route.yaml", &route("shop", rules))
        .start();
    assert_eq!(get(&seaway, "shop.example/strange", "").0, 500);
    assert_eq!(get(&seaway, "shop.example/plain", ""), (200, "web".to_owned()));
    until("it is told", || {
        seaway.problems().iter().any(|(reason, message, place)| {
            reason == "Unsupported" && message.contains("ExtensionRef") && place.contains("route.yaml:10:")
        })
    });
    let mended = rules.replace("/strange", "/fine").replace("ExtensionRef", "RequestHeaderModifier").replace(
        "extensionRef: {group: a.example, kind: Foo, name: bar}",
        "requestHeaderModifier: {remove: [a]}",
    );
    seaway.folder.write("route.yaml", &route("shop", &mended));
    until("it is mended", || get(&seaway, "shop.example/fine", "").0 == 200);
    until("and nothing is wrong", || seaway.problems().is_empty());
}

#[test]
fn a_mistake_in_a_route_keeps_its_last_good_state() {
    let web = Web::start("web");
    let good = route("shop", "  - backendRefs: [{name: web, port: 80}]\n");
    let seaway = with_door("").write("web.yaml", &hidden("web", &web)).write("route.yaml", &good).start();
    seaway.folder.write("route.yaml", &good.replace("port: 80", "port: 80000"));
    until("it is told", || {
        seaway.problems().iter().any(|it| it.0 == "Invalid" && it.1.contains("between 1 and 65535"))
    });
    assert_eq!(get(&seaway, "shop.example/", "").0, 200);
    seaway.folder.remove("route.yaml");
    until("it is gone", || ask(seaway.at(PORT), "GET", "shop.example/", "").status != 200);
}
