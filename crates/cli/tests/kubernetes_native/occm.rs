//! Coming from openstack-cloud-controller-manager, and back: docs/from-occm.md, walked.

#[path = "../../../drivers/tests/octavia/occm.rs"]
#[allow(dead_code)]
mod theirs;

use seaway_openstack::{
    octavia::{Listener, Pool},
    resource::Query,
};
use seaway_testkit::topology::until;

use self::theirs::OccmObjects;
use crate::{
    octavia::{Project, in_a_cloud},
    scene::*,
};

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
    let theirs = OccmObjects::new("shop", &[(80, port(0).parse().expect("a port"))], &[("a", node)]);
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
    // As the real one writes it.
    let status =
        format!(r#"{{"status": {{"loadBalancer": {{"ingress": [{{"ip": "{at}", "ipMode": "VIP"}}]}}}}}}"#);
    patch(&["--subresource=status", "--field-manager=openstack-cloud"], &status);

    project.fake.forget_requests();
    scene.lead("controller");
    until("it is served", || scene.field("service/shop", READY) == "True");
    let problems = "{.status.conditions[?(@.type=='seaway.dev/Problems')].message}";
    assert_eq!(scene.field("service/shop", problems), "", "the other is gone, and no rival");
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

/// A Service of theirs, as that controller leaves it; what is written, and as whom.
fn made_by_them(scene: &Scene, project: &Project, name: &str) -> OccmObjects {
    scene.cluster.apply(&service(name, "selector: {app: shop}"));
    let port = scene.field(&format!("service/{name}"), "{.spec.ports[0].nodePort}");
    let node = scene.field("node/a", "{.status.addresses[0].address}").parse().expect("an address");
    let theirs = OccmObjects::new(name, &[(80, port.parse().expect("a port"))], &[("a", node)]);
    let (balancer, floating) = project.runtime.block_on(theirs.make(&project.cloud, &project.subnet));
    let at = floating.floating_ip_address.expect("it has one");
    let what = format!(
        r#"{{"metadata": {{"finalizers": ["{CLEANUP}"], "annotations": {{
            "loadbalancer.openstack.org/load-balancer-id": "{}",
            "loadbalancer.openstack.org/load-balancer-address": "{at}"}}}}}}"#,
        balancer.id
    );
    scene.cluster.kubectl(&["patch", "service", name, "--type=merge", "-p", &what]);
    let status = format!(r#"{{"status": {{"loadBalancer": {{"ingress": [{{"ip": "{at}"}}]}}}}}}"#);
    let words = ["patch", "service", name, "--type=merge", "--subresource=status", "-p", &status];
    scene.cluster.kubectl(&words);
    theirs
}

const OBSERVING: &str = "{defaultDriver: octavia, admin: {listen: [\"127.0.0.1:0\"]}, lease: 15s, \
                         adopt: {mode: observe}}";

#[test]
fn who_only_observes_writes_nothing_and_reports_what_it_would_do() {
    let Some((mut scene, project)) = in_a_cloud() else { return };
    scene.nodes = vec![scene.cluster.node("a")];
    made_by_them(&scene, &project, "shop");
    scene.cluster.apply(&service("new", "selector: {app: shop}"));
    let versions =
        || ["shop", "new"].map(|it| scene.field(&format!("service/{it}"), "{.metadata.resourceVersion}"));
    let before = versions();
    let writes = || -> Vec<String> {
        let made = project.fake.requests().into_iter().filter(|it| it.method != "GET");
        let others = made.filter(|it| !it.path.contains("/auth/tokens"));
        others.map(|it| format!("{} {}", it.method, it.path)).collect()
    };
    project.fake.forget_requests();
    scene.configuration = OBSERVING;
    scene.lead("controller");
    let told = || scene.field("configmap/seaway-deletions", "{.data.adoption}");
    until("what would be done is told", || told().contains("default/shop: ") && told().contains("would: "));
    until("of both", || told().matches("would: ").count() == 2);
    assert!(told().contains("0 of 2 Services adopted (mode observe)"), "{}", told());
    assert_eq!(writes(), [""; 0]);
    let log = scene.log("controller");
    assert!(
        log.contains("default/shop: not adopted: adopt.mode is observe; would: change the load balancer"),
        "{log}"
    );
    // It is deleted, and the other controller sees to that.
    scene.cluster.kubectl(&["delete", "service", "shop", "--wait=false"]);
    until("it is told no more", || !told().contains("default/shop: "));
    assert_eq!(writes(), [""; 0]);
    assert!(scene.field("service/shop", FINALIZERS).contains(CLEANUP), "it is not ours to let go");
    assert_eq!(
        scene.field("service/new", "{.metadata.resourceVersion}"),
        before[1],
        "nothing is written to it"
    );
    assert!(scene.field("service/new", FINALIZERS).is_empty());
    let events = scene.cluster.kubectl(&[
        "get",
        "events",
        "-o",
        "name",
        "--field-selector=involvedObject.kind=Service",
    ]);
    assert!(events.trim().is_empty(), "{events}");

    // The other controller is gone, and this one adopts: what was deleted meanwhile, too.
    scene.end("controller");
    scene.configuration = crate::octavia::OCTAVIA;
    scene.lead("another");
    until("what was deleted is gone with all that was made for it", || scene.is_gone("service/shop"));
    until("the other is served", || scene.field("service/new", READY) == "True");
    assert_eq!((project.balancers().len(), project.floating().len()), (1, 1));
}

/// The Lease of a process of theirs that leads since an hour, renewed so many seconds ago.
fn hold_their_lease(scene: &Scene, ago: i64) {
    let now = jiff::Timestamp::now().as_second();
    let moment = |ago: i64| {
        let at = jiff::Timestamp::from_second(now - ago).expect("a time");
        at.strftime("%Y-%m-%dT%H:%M:%S.000000Z").to_string()
    };
    scene.cluster.apply(&format!(
        "apiVersion: coordination.k8s.io/v1\nkind: Lease\n\
         metadata: {{name: cloud-controller-manager, namespace: kube-system}}\n\
         spec: {{holderIdentity: theirs_1, leaseDurationSeconds: 15, acquireTime: '{}', renewTime: '{}'}}\n",
        moment(3_600),
        moment(ago),
    ));
}

#[test]
fn their_controller_that_is_quiet_is_noticed_by_its_lease_and_events_until_it_ends() {
    let Some((mut scene, project)) = in_a_cloud() else { return };
    scene.nodes = vec![scene.cluster.node("a")];
    made_by_them(&scene, &project, "shop");
    scene.cluster.apply(&service("new", "selector: {app: shop}"));
    // It reported half an hour ago that all is as it should be, and had nothing to do since.
    let at = jiff::Timestamp::from_second(jiff::Timestamp::now().as_second() - 1_800).expect("a time");
    scene.cluster.apply(&format!(
        "apiVersion: v1\nkind: Event\nmetadata: {{name: shop.1, namespace: default}}\n\
         involvedObject: {{apiVersion: v1, kind: Service, namespace: default, name: shop}}\n\
         source: {{component: service-controller}}\nreportingComponent: service-controller\n\
         reason: EnsuredLoadBalancer\nmessage: Ensured load balancer\ntype: Normal\ncount: 1\n\
         firstTimestamp: '{at}'\nlastTimestamp: '{at}'\n"
    ));
    // Renewed for as long as this takes, by a clock that is ahead.
    hold_their_lease(&scene, -600);
    project.fake.forget_requests();
    scene.lead("controller");
    let told = || scene.field("configmap/seaway-deletions", "{.data.adoption}");
    until("it is noticed", || told().contains("service-controller runs: it reported events of Services"));
    until("what would be done is told", || told().matches("would: ").count() == 2);
    assert_eq!(project.fake.count("PUT */lbaas/*") + project.fake.count("POST */lbaas/*"), 0);
    assert!(scene.field("service/shop", READY).is_empty());
    assert!(scene.field("service/new", FINALIZERS).is_empty());

    // It ends: nobody renews its Lease.
    hold_their_lease(&scene, 600);
    until("it is adopted", || scene.field("service/shop", READY) == "True");
    until("the new one is served", || scene.field("service/new", READY) == "True");
    assert_eq!(project.balancers().len(), 2);
}

#[test]
fn beside_their_running_controller_nothing_is_adopted() {
    let Some((mut scene, project)) = in_a_cloud() else { return };
    scene.nodes = vec![scene.cluster.node("a")];
    made_by_them(&scene, &project, "shop");
    let touch = r#"{"metadata": {"annotations": {"loadbalancer.openstack.org/x": "y"}}}"#;
    let as_whom = "--field-manager=openstack-cloud-controller-manager";
    scene.cluster.kubectl(&["patch", "service", "shop", "--type=merge", as_whom, "-p", touch]);
    project.fake.forget_requests();
    scene.lead("controller");
    let told = || scene.field("configmap/seaway-deletions", "{.data.adoption}");
    until("it is noticed", || told().contains("openstack-cloud-controller-manager wrote Services"));
    until("what would be done is told", || told().contains("would: "));
    assert_eq!(project.fake.count("PUT */lbaas/*") + project.fake.count("POST */lbaas/*"), 0);
    assert!(scene.field("service/shop", READY).is_empty());
    scene.end("controller");
    scene.configuration = "{defaultDriver: octavia, admin: {listen: [\"127.0.0.1:0\"]}, lease: 15s, \
                           adopt: {besideOccm: true}}";
    scene.lead("another");
    until("it is served", || scene.field("service/shop", READY) == "True");
    assert_eq!(project.balancers().len(), 1);
}
