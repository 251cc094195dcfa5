//! Coming from openstack-cloud-controller-manager, and back: docs/from-occm.md, walked.

#[path = "../../../drivers/tests/octavia/occm.rs"]
#[allow(dead_code)]
mod theirs;

use seaway_openstack::{
    octavia::{Listener, Pool},
    resource::Query,
};
use seaway_testkit::topology::until;

use self::theirs::Theirs;
use crate::{octavia::in_a_cloud, scene::*};

const READY: &str = "{.status.conditions[?(@.type=='seaway.dev/Ready')].status}";
const FINALIZERS: &str = "{.metadata.finalizers}";
const CLEANUP: &str = "service.kubernetes.io/load-balancer-cleanup";

#[test]
fn who_comes_from_the_cloud_provider_keeps_its_load_balancers_and_may_go_back() {
    let Some((mut scene, project)) = in_a_cloud() else { return };
    scene.nodes = vec![scene.cluster.node("a")];
    scene.cluster.apply(&service("shop", "selector: {app: shop}"));
    let port = |at: usize| scene.field("service/shop", &format!("{{.spec.ports[{at}].nodePort}}"));
    let node = scene.field("node/a", "{.status.addresses[0].address}").parse().expect("an address");
    let theirs = Theirs::new("shop", &[(80, port(0).parse().expect("a port"))], &[("a", node)]);
    let (balancer, floating) = project.runtime.block_on(theirs.make(&project.cloud, &project.subnet));
    let at = floating.floating_ip_address.expect("it has one").to_string();
    let patch = |part: &[&str], what: &str| {
        let words = [&["patch", "service", "shop", "--type=merge", "-p", what], part].concat();
        scene.cluster.kubectl(&words);
    };
    let id = &balancer.id;
    patch(
        &[],
        &format!(
            r#"{{"metadata": {{"finalizers": ["{CLEANUP}"], "annotations": {{
                "loadbalancer.openstack.org/load-balancer-id": "{id}",
                "loadbalancer.openstack.org/load-balancer-address": "{at}"}}}}}}"#
        ),
    );
    let status = format!(r#"{{"status": {{"loadBalancer": {{"ingress": [{{"ip": "{at}"}}]}}}}}}"#);
    patch(&["--subresource=status"], &status);

    project.fake.forget_requests();
    scene.lead("controller");
    until("it is served", || scene.field("service/shop", READY) == "True");
    let count = |pattern: &str| project.fake.count(pattern);
    assert_eq!((count("PUT */lbaas/*"), count("PUT */floatingips/*")), (1, 1), "tags, and a description");
    assert_eq!(count("POST */lbaas/*") + count("POST */floatingips*") + count("DELETE *"), 0);
    assert_eq!(scene.address("shop"), at);
    let now = project.balancers().remove(0);
    assert_eq!((&now.id, &now.name), (&balancer.id, &balancer.name));
    assert!(now.tags.contains(&theirs.own()), "{:?}", now.tags);

    // What is made from now on is found by those names and tags that the other controller looks for.
    let ports = r#"{"spec": {"ports": [{"name": "a", "port": 80}, {"name": "b", "port": 443}]}}"#;
    scene.cluster.kubectl(&["patch", "service", "shop", "--type=merge", "-p", ports]);
    let listeners = || -> Vec<Listener> {
        let all = project.runtime.block_on(project.cloud.all::<Listener>().list(Query::all()));
        all.expect("are listed")
    };
    until("the second port is served", || listeners().len() == 2 && project.members().len() == 2);
    let added = listeners().into_iter().find(|it| it.protocol_port == 443).expect("it was made");
    assert_eq!(added.name, format!("listener_1_{}", theirs.own()));
    assert!(added.tags.contains(&theirs.own()), "{:?}", added.tags);
    let pools: Vec<Pool> =
        project.runtime.block_on(project.cloud.all().list(Query::all())).expect("are listed");
    assert!(pools.iter().any(|it| it.name == format!("pool_1_{}", theirs.own())), "{pools:?}");
    assert!(project.floating()[0].description.starts_with(&floating.description));
    assert!(scene.field("service/shop", FINALIZERS).contains(CLEANUP), "it holds the Service, too");

    // A Service that is no load balancer any more leaves nothing behind, nor does one that is deleted.
    let plain = r#"{"spec": {"type": "ClusterIP"}}"#;
    scene.cluster.kubectl(&["patch", "service", "shop", "--type=merge", "-p", plain]);
    let gone = || project.balancers().is_empty() && project.floating().is_empty();
    until("nothing is left", || gone() && scene.field("service/shop", FINALIZERS).is_empty());
    scene.cluster.apply(&service("next", "selector: {app: shop}"));
    scene.address("next");
    assert!(scene.field("service/next", FINALIZERS).contains(CLEANUP));
    scene.cluster.kubectl(&["delete", "service", "next"]);
    assert!(gone(), "it was there until then");
}
