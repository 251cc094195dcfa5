//! Hosts that are not heard of any more, and what was taken away while Services are served.

use std::net::SocketAddr;

use seaway_testkit::{
    topology::{until, until_within},
    traffic::{Clients, Kind, Load, Target},
};

use crate::{
    looking::Plugin,
    scene::{A_TERM, POOL, Scene, deployment, service},
    snapshot,
};

/// Each on a new connection.
const RATE: u32 = 500;

/// Longer than it takes to see that it lasts.
const SHORT_QUARANTINE: &str = "{defaultDriver: native, quarantine: 10s, admin: {listen: [\"127.0.0.1:0\"]}}";

/// Clients of the shop, in the network outside.
fn clients_of(scene: &Scene, at: SocketAddr) -> (Clients, Load) {
    let clients = scene.outside.run(Clients::here);
    let load = clients.load(vec![Target::new("shop", Kind::Http, at).times(RATE)]);
    (clients, load)
}

/// Asks for that address.
pub(crate) fn asking(name: &str, ip: &str) -> String {
    let named = format!("name: {name}");
    let asks = format!("{named}, annotations: {{seaway.dev/address: {ip}}}");
    service(name, "selector: {app: shop}").replacen(&named, &asks, 1)
}

#[test]
fn what_a_silent_host_may_hold_is_given_to_another_once_somebody_says_that_it_is_off() {
    let Some(mut scene) = Scene::up(2) else { return };
    let (plugin, admin) = (Plugin::new(), scene.cluster.kubeconfig().to_owned());
    scene.cluster.apply(&deployment("shop", 1));
    scene.cluster.apply(&service("shop", "selector: {app: shop}"));
    let at = scene.answering("shop").ip().to_string();
    until("both hosts serve it", || scene.nodes.iter().all(|node| scene.state(node).contains(&at)));
    let refused = plugin.try_run(&admin, "host forget b");
    let why = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(!refused.status.success() && why.contains("b is alive"), "{why}");

    scene.kill("b");
    // It was not stopped in order: its Lease stays, and is not renewed.
    until_within(A_TERM, "its silence is noticed", || {
        scene.log("controller").contains("during the quarantine")
    });
    scene.cluster.kubectl(&["delete", "service", "shop"]);
    scene.cluster.apply(&asking("other", &at));
    let said =
        || scene.field("service/other", "{.status.conditions[?(@.type==\"seaway.dev/Problems\")].message}");
    until("it waits", || said().contains("is being released"));
    let let_go = || scene.field("loadbalancerhost/a", "{.status.holds}");
    until("the other host has let go", || !let_go().contains(&at));
    assert_eq!(scene.field("service/other", "{.status.loadBalancer.ingress}"), "");
    assert!(said().contains("is being released"), "{}", said());

    let (told, _) = plugin.run(&admin, "host forget b");
    assert!(told.contains("b is forgotten"), "{told}");
    assert_eq!(scene.address("other"), at);
    let url = format!("http://{at}/");
    let answers = |scene: &Scene| scene.outside.curl(&url).is_ok_and(|it| it.starts_with("shop-"));
    until("it is served", || answers(&scene));

    // The machine was not off: it hears whose the address is now.
    scene.serve(1);
    until("it reports again", || !scene.is_gone("loadbalancerhost/b"));
    until("it serves the other one", || scene.state(&scene.nodes[1]).contains("other"));
    assert_eq!(scene.address("other"), at);
    assert!(answers(&scene));
}

#[test]
fn what_a_silent_host_may_hold_is_given_to_another_once_the_quarantine_is_over() {
    let Some(mut scene) = Scene::with(2, SHORT_QUARANTINE) else { return };
    scene.cluster.apply(&service("shop", "selector: {app: shop}"));
    let at = scene.address("shop");
    until("both hosts serve it", || scene.nodes.iter().all(|node| scene.state(node).contains(&at)));
    // Nobody waits for a host that nobody has heard of.
    let has_said = |host: &str| scene.field(&format!("loadbalancerhost/{host}"), "{.status.applied}");
    until("both hosts have said so", || ["a", "b"].iter().all(|it| !has_said(it).is_empty()));
    scene.kill("b");
    scene.cluster.kubectl(&["delete", "service", "shop"]);
    scene.cluster.apply(&asking("other", &at));
    let told =
        || scene.field("service/other", "{.status.conditions[?(@.type==\"seaway.dev/Problems\")].message}");
    until("it waits", || told().contains("is being released"));
    until("the other host has let go", || {
        !scene.field("loadbalancerhost/a", "{.status.holds}").contains(&at)
    });
    let is_over = || scene.log("controller").contains("host is dead: its Lease was released");
    until_within(A_TERM, "it has the address", || {
        let given = scene.field("service/other", "{.status.loadBalancer.ingress[0].ip}");
        // It is logged before anybody acts on it.
        assert!(given.is_empty() || is_over(), "{given} is given though b may hold it");
        given == at
    });
    let log = scene.log("controller");
    assert!(log.contains("during the quarantine"), "it was silent before it was dead: {log}");
    until("it is served", || scene.state(&scene.nodes[0]).contains("other"));
}

#[test]
fn addresses_and_traffic_stay_when_the_definition_of_pools_and_roles_are_taken_away() {
    let Some(mut scene) = Scene::up(1) else { return };
    scene.cluster.apply(&deployment("shop", 1));
    scene.cluster.apply(&service("shop", "selector: {app: shop}"));
    let at = scene.answering("shop");
    let (_clients, load) = clients_of(&scene, at);
    scene.cluster.kubectl(&["delete", "customresourcedefinition", "addresspools.seaway.dev"]);
    load.goes_on(2 * RATE as usize);
    assert_eq!(scene.address("shop"), at.ip().to_string());
    scene.install_definitions();
    scene.cluster.apply(POOL);
    let is_written = |scene: &Scene| {
        let all = scene.field("addresses", "{.items[*].spec.address}");
        all.split(' ').any(|it| it == at.ip().to_string())
    };
    load.goes_on(2 * RATE as usize);
    let heard = load.end();
    eprintln!("{heard}");
    heard.was_always_answered();

    // Who may see nothing any more changes nothing, and goes on with what is kept.
    until("what is served is kept", || snapshot::is_kept(&scene, "a", &at.ip().to_string()));
    let bindings = ["seaway-controller-seaway-reader", "seaway-node-seaway-reader"];
    for binding in bindings {
        scene.cluster.kubectl(&["delete", "clusterrolebinding", binding]);
    }
    scene.end("controller");
    scene.kill("a");
    scene.lead("next");
    scene.serve(0);
    until("it says which right it lacks", || scene.log("next").contains("may not list"));
    assert_eq!(scene.answering("shop"), at);
    assert!(is_written(&scene));
    for (binding, user) in bindings.into_iter().zip(["seaway-controller", "seaway-node"]) {
        let user = format!("--user={user}");
        scene.cluster.kubectl(&[
            "create",
            "clusterrolebinding",
            binding,
            "--clusterrole=seaway-reader",
            &user,
        ]);
    }
    scene.cluster.apply(&service("second", "selector: {app: shop}"));
    let second = scene.address("second");
    until("what comes then is served", || {
        scene.outside.curl(&format!("http://{second}/")).is_ok_and(|it| it.starts_with("shop-"))
    });
    assert_eq!(scene.answering("shop"), at);
}

/// Controllers have all rights of the reader from now on, but not to that kind of ours.
fn withhold(scene: &Scene, kind: &str) {
    let all = ["addresses", "addresspools", "loadbalancerhosts", "loadbalancerhostslices", "nameowners"];
    let ours = all.iter().filter(|it| **it != kind).map(|it| format!("{it}.seaway.dev"));
    let of_all = ["namespaces", "nodes", "services", "endpointslices.discovery.k8s.io"].map(str::to_owned);
    let resources: Vec<String> = of_all.into_iter().chain(ours).collect();
    let (resources, role) = (format!("--resource={}", resources.join(",")), format!("without-{kind}"));
    let (to, user) = (format!("--clusterrole={role}"), "--user=seaway-controller");
    scene.cluster.kubectl(&["create", "clusterrole", &role, "--verb=list,watch", &resources]);
    scene.cluster.kubectl(&["create", "clusterrolebinding", &role, &to, user]);
    scene.cluster.kubectl(&["delete", "clusterrolebinding", READER]);
}

fn give_back(scene: &Scene) {
    let (to, user) = ("--clusterrole=seaway-reader", "--user=seaway-controller");
    scene.cluster.kubectl(&["create", "clusterrolebinding", READER, to, user]);
}

const READER: &str = "seaway-controller-seaway-reader";

#[test]
fn a_controller_that_may_not_list_hosts_gives_no_address_of_theirs_to_another_service() {
    let Some(mut scene) = Scene::up(1) else { return };
    scene.cluster.apply(&deployment("shop", 1));
    scene.cluster.apply(&service("shop", "selector: {app: shop}"));
    let at = scene.answering("shop").ip().to_string();
    withhold(&scene, "loadbalancerhosts");
    scene.end("controller");
    // It has the address, and does not hear that it should let go.
    scene.pause("a");
    scene.lead("next");
    let lacks = "may not list loadbalancerhosts.seaway.dev";
    until("the next one says what it lacks, and what follows", || {
        let log = scene.log("next");
        log.contains(lacks) && log.contains("Seaway changes no Service until these objects are listed")
    });
    scene.cluster.kubectl(&["delete", "service", "shop"]);
    scene.cluster.apply(&asking("other", &at));
    give_back(&scene);
    let problems = "{.status.conditions[?(@.type==\"seaway.dev/Problems\")].message}";
    until("it waits", || scene.field("service/other", problems).contains("is being released"));
    assert_eq!(scene.field("service/other", "{.status.loadBalancer.ingress}"), "");
    scene.resume("a");
    assert_eq!(scene.address("other"), at, "once the host has let go");
}

#[test]
fn addresses_and_traffic_stay_where_a_controller_that_starts_may_not_list_pools() {
    let Some(mut scene) = Scene::up(1) else { return };
    scene.cluster.apply(&deployment("shop", 1));
    scene.cluster.apply(&service("shop", "selector: {app: shop}"));
    let at = scene.answering("shop");
    let (_clients, load) = clients_of(&scene, at);
    withhold(&scene, "addresspools");
    scene.end("controller");
    scene.lead("next");
    let condition = |of: &str, what: &str| {
        let path = format!("{{.status.conditions[?(@.type==\"seaway.dev/{of}\")].{what}}}");
        scene.field("service/shop", &path)
    };
    until("it says that the pool cannot be seen", || {
        condition("Problems", "message").contains("PoolMissing: ")
            && condition("Announced", "reason") == "PoolMissing"
    });
    // No new one is given out of it.
    scene.cluster.apply(&service("second", "selector: {app: shop}"));
    load.goes_on(2 * RATE as usize);
    assert_eq!(scene.address("shop"), at.ip().to_string());
    assert_eq!(scene.field("service/second", "{.status.loadBalancer.ingress}"), "");
    give_back(&scene);
    until("it can be seen again", || !condition("Problems", "message").contains("PoolMissing: "));
    let second = format!("http://{}/", scene.address("second"));
    until("a pod answers", || scene.outside.curl(&second).is_ok_and(|it| it.starts_with("shop-")));
    load.goes_on(RATE as usize);
    let heard = load.end();
    eprintln!("{heard}");
    heard.was_always_answered();
    assert_eq!(scene.address("shop"), at.ip().to_string());
}

#[test]
fn traffic_stays_when_the_definition_of_addresses_is_deleted_with_all_of_them() {
    let Some(scene) = Scene::up(2) else { return };
    scene.cluster.apply(&deployment("shop", 1));
    scene.cluster.apply(&service("shop", "selector: {app: shop}"));
    let at = scene.answering("shop");
    let ip = at.ip().to_string();
    let serve =
        |scene: &Scene, wanted: bool| scene.nodes.iter().all(|it| scene.state(it).contains(&ip) == wanted);
    until("both hosts serve it", || serve(&scene, true));
    let (_clients, load) = clients_of(&scene, at);
    scene.cluster.kubectl(&["delete", "customresourcedefinition", "addresses.seaway.dev"]);
    load.goes_on(2 * RATE as usize);
    assert_eq!(scene.address("shop"), ip, "it is published as before");

    scene.install_definitions();
    until("its Address is written again", || {
        scene.field("addresses", "{.items[*].spec.address}").split(' ').any(|it| it == ip)
    });
    load.goes_on(2 * RATE as usize);
    let heard = load.end();
    eprintln!("{heard}");
    heard.was_always_answered();
    assert!(serve(&scene, true));

    scene.cluster.kubectl(&["delete", "service", "shop"]);
    until("both hosts let go", || serve(&scene, false));
}

/// As by `kubectl delete -f crds.yaml`, and again `apply`, with a controller that starts before the pools are back.
#[test]
fn traffic_stays_when_addresses_and_pools_are_lost_together_and_a_controller_starts_that_never_saw_them() {
    let Some(mut scene) = Scene::up(1) else { return };
    scene.cluster.apply(&deployment("shop", 1));
    scene.cluster.apply(&service("shop", "selector: {app: shop}"));
    let at = scene.answering("shop");
    let ip = at.ip().to_string();
    let (_clients, load) = clients_of(&scene, at);
    scene.end("controller");
    for kind in ["addresses", "addresspools"] {
        scene.cluster.kubectl(&["delete", "customresourcedefinition", &format!("{kind}.seaway.dev")]);
    }
    scene.install_definitions();
    scene.lead("next");
    let problems = "{.status.conditions[?(@.type==\"seaway.dev/Problems\")].message}";
    let problems = |scene: &Scene| scene.field("service/shop", problems);
    until("it says that no pool has it", || problems(&scene).contains("Seaway sees no pool that has"));
    let of_address =
        |scene: &Scene| scene.field("addresses", "{.items[*].spec.address} {.items[*].spec.pool}");
    until("its Address is written again", || of_address(&scene) == format!("{ip} (unknown)"));
    load.goes_on(2 * RATE as usize);
    assert_eq!(scene.address("shop"), ip, "it is published as before");

    scene.cluster.apply(POOL);
    until("it is of a pool again", || of_address(&scene) == format!("{ip} public"));
    until("nothing is wrong any more", || problems(&scene).is_empty());
    load.goes_on(RATE as usize);
    let heard = load.end();
    eprintln!("{heard}");
    heard.was_always_answered();
    assert_eq!(scene.address("shop"), ip);
}
