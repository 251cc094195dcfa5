//! Who gets which address, as a cluster says it: policies of families, sharing, requests, pools that change.

use std::{collections::BTreeSet, process::Command};

use seaway_testkit::{kubernetes::METALLB, topology::until};
use serde_json::Value;

use crate::scene::{Scene, service};

fn pool(name: &str, spec: &str) -> String {
    format!(
        "\n---\napiVersion: seaway.dev/v1alpha1\nkind: AddressPool\nmetadata: {{name: {name}}}\nspec: {{{spec}}}\n"
    )
}

/// In a namespace, with annotations, from port 80 on.
fn saying(name: &str, namespace: &str, annotations: &str, port: u16) -> String {
    let named = format!("name: {name}, namespace: {namespace}, annotations: {{{annotations}}}");
    let port = format!("port: {port}");
    service(name, "selector: {app: x}").replace(&format!("name: {name}"), &named).replace("port: 80", &port)
}

/// Addresses that are written as a Service's, sorted.
fn given(scene: &Scene, service: &str) -> Vec<String> {
    let path = "jsonpath={range .items[*]}{.spec.address} {.spec.state} {.spec.owners[*].name}{\"\\n\"}{end}";
    let listed = scene.cluster.kubectl(&["get", "addresses", "-o", path]);
    let of = |line: &str| {
        let mut words = line.split_whitespace();
        let (ip, state) = (words.next()?, words.next()?);
        (state == "Held" && words.any(|it| it == service)).then(|| ip.to_owned())
    };
    let mut all: Vec<String> = listed.lines().filter_map(of).collect();
    all.sort();
    all
}

#[track_caller]
fn until_given(scene: &Scene, service: &str, wanted: &[&str]) {
    until(&format!("{service} has {wanted:?}"), || given(scene, service) == wanted);
}

fn problems(scene: &Scene, namespace: &str, service: &str) -> String {
    let path = "jsonpath={.status.conditions[?(@.type==\"seaway.dev/Problems\")].message}";
    scene
        .cluster
        .try_kubectl(&["get", "service", service, "-n", namespace, "-o", path], "")
        .unwrap_or_default()
}

fn patch(scene: &Scene, service: &str, spec: &str) {
    scene.cluster.kubectl(&[
        "patch",
        "service",
        service,
        "--type=merge",
        "-p",
        &format!("{{\"spec\":{{{spec}}}}}"),
    ]);
}

#[test]
fn addresses_are_given_as_services_and_pools_ask_and_say() {
    let Some(mut scene) = Scene::bare() else { return };
    for namespace in ["team", "other"] {
        scene.cluster.kubectl(&["create", "namespace", namespace]);
    }
    // Somebody else was here before us, and gave an address that we would give to the first who comes.
    scene.cluster.apply(&service("newcomer", "selector: {app: x}"));
    scene.cluster.apply(&service("old", "selector: {app: x}"));
    let left = r#"{"status":{"loadBalancer":{"ingress":[{"ip":"203.0.113.1","ipMode":"VIP"}]}}}"#;
    let by = ["--subresource=status", "--type=merge", "--field-manager=metallb", "-p", left];
    scene.cluster.kubectl(&[&["patch", "service", "old"], &by[..]].concat());
    let of_old = |scene: &Scene| scene.field("service/old", "{.metadata.resourceVersion} {.status}");
    let before = of_old(&scene);
    scene.install();
    // By default what is there stays as it is.
    scene.lead("controller");
    until_given(&scene, "newcomer", &["203.0.113.0"]);
    scene.cluster.apply(&service("next", "selector: {app: x}"));
    until_given(&scene, "next", &["203.0.113.2"]);
    assert_eq!((of_old(&scene), given(&scene, "old")), (before, vec![]), "neither written, nor given away");
    scene.cluster.kubectl(&["delete", "service", "next"]);
    until("its address is free", || scene.is_gone("address/203-0-113-2"));
    scene.end("controller");
    scene.configuration = "{defaultDriver: native, pools: {grace: 1s, metallbNamespace: default}, \
                           adopt: {mode: all}, \
                           admin: {listen: [\"127.0.0.1:0\"]}}";
    scene.lead("controller");
    until_given(&scene, "old", &["203.0.113.1"]);
    assert_eq!(given(&scene, "newcomer"), ["203.0.113.0"]);

    families(&scene);
    shared(&scene);
    requested(&scene);
    announced_by_others(&scene);
    changed(&scene);
    pools(&scene);
}

fn families(scene: &Scene) {
    let both = "selector: {app: x}, ipFamilyPolicy:";
    scene.cluster.apply(&service("prefers", &format!("{both} PreferDualStack")));
    scene.cluster.apply(&service("requires", &format!("{both} RequireDualStack, ipFamilies: [IPv6, IPv4]")));
    scene.cluster.apply(&service("six", &format!("{both} SingleStack, ipFamilies: [IPv6]")));
    until("both families are given", || ["prefers", "requires"].iter().all(|it| given(scene, it).len() == 2));
    until("one family is given", || given(scene, "six").len() == 1);
    assert!(given(scene, "six")[0].starts_with("2001:db8:113::"), "{:?}", given(scene, "six"));
    // Up and down again: the first stays what it was.
    scene.cluster.apply(&service("single", "selector: {app: x}"));
    until("one is given", || given(scene, "single").len() == 1);
    let first = given(scene, "single");
    patch(scene, "single", r#""ipFamilyPolicy":"RequireDualStack""#);
    until("the other family is given", || given(scene, "single").len() == 2);
    assert!(given(scene, "single").contains(&first[0]));
    patch(scene, "single", r#""ipFamilyPolicy":"SingleStack","ipFamilies":["IPv4"]"#);
    until("the other family is given back", || given(scene, "single") == first);
    let all = given(scene, "prefers");
    patch(scene, "prefers", r#""ipFamilyPolicy":"SingleStack","ipFamilies":["IPv4"]"#);
    until("one is left", || given(scene, "prefers").len() == 1);
    assert!(all.contains(&given(scene, "prefers")[0]));
    // A pool of one family alone is enough for who prefers both, and not for who requires them.
    scene.cluster.apply(&pool("four", "addresses: [198.51.100.32/28], autoAssign: false"));
    for (name, policy) in [("content", "PreferDualStack"), ("strict", "RequireDualStack")] {
        let named = saying(name, "default", "seaway.dev/address-pool: four", 80);
        scene.cluster.apply(&named.replace("selector:", &format!("ipFamilyPolicy: {policy}, selector:")));
    }
    until("what there is is taken", || given(scene, "content").len() == 1);
    until("it is told", || {
        problems(scene, "default", "strict").contains("no IPv6 addresses are configured in pool four")
    });
    assert!(given(scene, "strict").is_empty());
}

fn shared(scene: &Scene) {
    let key = "metallb.io/allow-shared-ip: key";
    for (name, namespace, annotations, port) in [
        ("web", "default", key, 80),
        ("mail", "default", "metallb.universe.tf/allow-shared-ip: key", 25),
        ("second-web", "default", key, 80),
        ("stranger", "other", key, 81),
    ] {
        scene.cluster.apply(&saying(name, namespace, annotations, port));
        until("it is given one", || given(scene, name).len() == 1);
    }
    let [web, mail, second, stranger] =
        ["web", "mail", "second-web", "stranger"].map(|it| given(scene, it).remove(0));
    assert_eq!(web, mail, "ports are distinct");
    let all: BTreeSet<&String> = [&web, &second, &stranger].into();
    assert_eq!(all.len(), 3, "neither one port twice, nor across namespaces: {all:?}");
    // Unless both say so.
    let across = |other: &str| format!("seaway.dev/share: both, seaway.dev/share-across-namespaces: {other}");
    scene.cluster.apply(&saying("here", "team", &across("other"), 80));
    until("it is given one", || given(scene, "here").len() == 1);
    scene.cluster.apply(&saying("there", "other", &across("team"), 81));
    until("it is shared", || given(scene, "there") == given(scene, "here"));
}

fn requested(scene: &Scene) {
    scene.cluster.apply(&service("by-field", "selector: {app: x}, loadBalancerIP: 203.0.113.13"));
    until_given(scene, "by-field", &["203.0.113.13"]);
    for (name, annotation, ip) in [
        ("newer", "metallb.io/loadBalancerIPs", "203.0.113.14"),
        ("older", "metallb.universe.tf/loadBalancerIPs", "203.0.113.15"),
    ] {
        scene.cluster.apply(&saying(name, "default", &format!("{annotation}: {ip}"), 80));
        until_given(scene, name, &[ip]);
    }
    // Of MetalLB's pools, by MetalLB's annotations.
    scene.cluster.define(METALLB);
    scene.cluster.apply(
        "apiVersion: metallb.io/v1beta1\nkind: IPAddressPool\nmetadata: {name: theirs, namespace: default}\n\
         spec: {addresses: [198.51.100.240/30], autoAssign: false}\n",
    );
    for (name, prefix) in [("pool-newer", "metallb.io"), ("pool-older", "metallb.universe.tf")] {
        scene.cluster.apply(&saying(name, "default", &format!("{prefix}/address-pool: theirs"), 80));
        until("it is of that pool", || {
            given(scene, name).first().is_some_and(|it| it.starts_with("198.51.100.24"))
        });
    }
}

/// What MetalLB's speaker would act on, and Seaway does not, is a Problem of the controller while it is there.
fn announced_by_others(scene: &Scene) {
    let kinds = [("L2Advertisement", "v1beta1"), ("BGPAdvertisement", "v1beta1"), ("BGPPeer", "v1beta2")];
    let definition = |(kind, version): (&str, &str)| {
        let of_pools = METALLB.replace("IPAddressPool", kind).replace("v1beta1", version);
        of_pools.replace("ipaddresspool", &kind.to_lowercase())
    };
    scene.cluster.define(&kinds.map(definition).join("---"));
    let object = |(kind, version): (&str, &str)| {
        format!(
            "apiVersion: metallb.io/{version}\nkind: {kind}\nmetadata: {{name: theirs, namespace: default}}\n"
        )
    };
    scene.cluster.apply(&kinds.map(object).join("---\n"));
    let page = format!("{}state", scene.page("controller"));
    let told = || {
        let state =
            Command::new("curl").args(["-sS", "--noproxy", "*", &page]).output().expect("curl").stdout;
        let state: Value = serde_json::from_slice(&state).unwrap_or_default();
        let all = state["problems"].as_array().cloned().unwrap_or_default();
        let its = all.iter().filter(|it| it["reason"] == "Unsupported" && it["object"]["name"] == "theirs");
        let mut its: Vec<String> =
            its.map(|it| it["object"]["kind"].as_str().unwrap_or_default().to_owned()).collect();
        its.sort();
        its
    };
    until("each of them is told of", || {
        told() == ["metallb.io/BGPAdvertisement", "metallb.io/BGPPeer", "metallb.io/L2Advertisement"]
    });
    scene.cluster.kubectl(&["delete", "l2advertisements.metallb.io/theirs", "bgppeers.metallb.io/theirs"]);
    until("what is gone is not", || told() == ["metallb.io/BGPAdvertisement"]);
}

/// Services that become something else, or go.
fn changed(scene: &Scene) {
    let ip = given(scene, "by-field").remove(0);
    let object = format!("address/{}", ip.replace('.', "-"));
    patch(scene, "by-field", r#""type":"ClusterIP","loadBalancerIP":null"#);
    until("who is not a load balancer gives back", || scene.is_gone(&object));
    until("and says nothing", || scene.field("service/by-field", "{.status}") == r#"{"loadBalancer":{}}"#);
    patch(scene, "by-field", r#""type":"LoadBalancer","loadBalancerIP":"203.0.113.13""#);
    until_given(scene, "by-field", &["203.0.113.13"]);
    patch(scene, "by-field", r#""type":"ClusterIP","loadBalancerIP":null,"externalIPs":["203.0.113.12"]"#);
    until("it gives back again", || given(scene, "by-field").is_empty());
    let foreign = r#""type":"LoadBalancer","loadBalancerClass":"example.com/other""#;
    patch(scene, "by-field", foreign);
    patch(scene, "newer", r#""type":"ClusterIP""#);
    until("the next is heard", || given(scene, "newer").is_empty());
    assert!(given(scene, "by-field").is_empty(), "it is another's");
    let claimed = scene.cluster.kubectl(&["get", "addresses", "-o", "jsonpath={.items[*].spec.address}"]);
    assert!(!claimed.contains("203.0.113.12"), "externalIPs are not ours: {claimed}");
    scene.cluster.kubectl(&["delete", "namespace", "team", "--wait=false"]);
    until("a namespace takes its claims with it", || given(scene, "here").is_empty());
    assert_eq!(given(scene, "there").len(), 1, "who shared it goes on");
}

fn pools(scene: &Scene) {
    let two = pool("two", "addresses: [198.51.100.1-198.51.100.2], autoAssign: false");
    scene.cluster.apply(&two);
    for name in ["one", "other"] {
        scene.cluster.apply(&saying(name, "default", "seaway.dev/address-pool: two", 80));
        until("it is given one", || given(scene, name).len() == 1);
    }
    until_given(scene, "one", &["198.51.100.1"]);
    let status = |path: &str| scene.field("addresspool/two", path);
    let count = "{.status.ipv4.assigned} {.status.ipv4.available}";
    until("it is counted", || status(count) == "2 0");
    assert_eq!(status("{.status.conditions[?(@.type==\"Ready\")].status}"), "True");
    let table = scene.cluster.kubectl(&["get", "addresspools"]);
    let columns: Vec<&str> = table.lines().next().unwrap_or_default().split_whitespace().collect();
    assert_eq!(columns, ["NAME", "ADDRESSES", "USED", "FREE", "READY", "AGE"], "{table}");

    // It shrinks: who lies outside loses it after a while, and who does not keeps his.
    scene.cluster.apply(&two.replace("198.51.100.1-198.51.100.2", "198.51.100.1/32"));
    until("it is withdrawn", || given(scene, "other").is_empty());
    until("it is told", || problems(scene, "default", "other").contains("pool two"));
    assert_eq!(given(scene, "one"), ["198.51.100.1"]);
    // Deleted and made again: everybody keeps his, and nobody steals, whoever waits.
    scene.cluster.apply(&two);
    until("there is room again", || given(scene, "other").len() == 1);
    scene.cluster.kubectl(&["delete", "addresspool", "two"]);
    until("both are told", || {
        ["one", "other"].iter().all(|it| problems(scene, "default", it).contains("pool two cannot be seen"))
    });
    assert!(["one", "other"].iter().all(|it| given(scene, it).len() == 1), "and keep their addresses");
    scene.cluster.apply(&saying("thief", "default", "seaway.dev/address-pool: two", 80));
    until("it is told, too", || !problems(scene, "default", "thief").is_empty());
    scene.cluster.apply(&two);
    until("both have one", || ["one", "other"].iter().all(|it| given(scene, it).len() == 1));
    assert!(given(scene, "thief").is_empty(), "the older come first");

    // Who may: by namespaces, and by their labels.
    scene
        .cluster
        .apply(&pool("theirs-only", "addresses: [198.51.100.8/30], autoAssign: false, namespaces: [other]"));
    let labels = "namespaceSelectors: [{matchLabels: {tier: gold}}]";
    scene
        .cluster
        .apply(&pool("gold", &format!("addresses: [198.51.100.12/30], autoAssign: false, {labels}")));
    for (name, namespace, pool) in
        [("may", "other", "theirs-only"), ("may-not", "default", "theirs-only"), ("plain", "other", "gold")]
    {
        scene.cluster.apply(&saying(name, namespace, &format!("seaway.dev/address-pool: {pool}"), 80));
    }
    until("who may has one", || given(scene, "may").len() == 1);
    for (namespace, name) in [("default", "may-not"), ("other", "plain")] {
        until("who may not is told", || !problems(scene, namespace, name).is_empty());
        assert!(given(scene, name).is_empty());
    }
    scene.cluster.kubectl(&["label", "namespace", "other", "tier=gold"]);
    until("who may now has one", || given(scene, "plain").len() == 1);
}
