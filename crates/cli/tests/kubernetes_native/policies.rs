//! What a Service may ask for beside an address.

use std::collections::BTreeSet;

use seaway_testkit::topology::until;

use crate::scene::{Scene, deployment, service};

#[test]
fn what_a_service_asks_for_beside_an_address_is_honoured() {
    let Some(scene) = Scene::up(2) else { return };
    scene.cluster.apply(&deployment("shop", 4));
    scene.cluster.apply(&service("foreign", "selector: {app: shop}, loadBalancerClass: example.com/other"));
    scene.cluster.apply(&service("both", "selector: {app: shop}, ipFamilyPolicy: PreferDualStack"));
    scene.cluster.apply(&service("local", "selector: {app: shop}, externalTrafficPolicy: Local"));
    scene.cluster.apply(&service("open", "selector: {app: shop}, loadBalancerSourceRanges: [10.10.0.0/16]"));
    scene
        .cluster
        .apply(&service("closed", "selector: {app: shop}, loadBalancerSourceRanges: [192.0.2.0/24]"));
    scene.cluster.kubectl(&["rollout", "status", "deployment/shop", "--timeout", "180s"]);
    let asked = |ip: &str| scene.outside.curl(&format!("http://{ip}/"));
    let answers = |ip: &str| asked(ip).is_ok_and(|it| it.starts_with("shop-"));

    // Both families have an address, and are served.
    let both = || scene.field("service/both", "{.status.loadBalancer.ingress[*].ip}");
    until("both families are told", || both().split_whitespace().count() == 2);
    let both = both();
    let (v4, v6) = both.split_once(' ').expect("two");
    assert!(v4.starts_with("203.0.113.") && v6.starts_with("2001:db8:113::"), "{both}");
    until("both families answer", || answers(v4) && answers(&format!("[{v6}]")));

    // Who may come is answered, who may not is not.
    let open = scene.address("open");
    until("who may come is answered", || answers(&open));
    let closed = scene.address("closed");
    assert!(asked(&closed).is_err(), "who may not come is not answered");

    // `Local`: the host that is asked has only its own pods.
    let local = scene.address("local");
    until("a pod here answers", || answers(&local));
    let node = scene.nodes[0].name();
    let here = ["get", "pods", "-l", "app=shop", "--field-selector", &format!("spec.nodeName={node}")];
    let here = scene.cluster.kubectl(&[&here[..], &["-o", "jsonpath={.items[*].metadata.name}"]].concat());
    let here: BTreeSet<&str> = here.split_whitespace().collect();
    assert!((1..4).contains(&here.len()), "pods are on both nodes: {here:?}");
    for _ in 0..20 {
        let answer = asked(&local).expect("it is answered");
        let pod = answer.split_whitespace().next().unwrap_or_default();
        assert!(here.contains(pod), "{pod} is on another node than {here:?}");
    }

    // All others have what they asked for by now; this one is somebody else's.
    assert_eq!(scene.field("service/foreign", "{.status}"), r#"{"loadBalancer":{}}"#);
    let owners =
        scene.cluster.kubectl(&["get", "addresses", "-o", "jsonpath={.items[*].spec.owners[*].name}"]);
    assert!(!owners.contains("foreign"), "{owners}");
}
