//! How Services want to be served: by which members, from which hosts, for whom.

use std::{
    collections::BTreeSet,
    time::{Duration, Instant},
};

use seaway_testkit::{
    kubernetes::Node,
    topology::{Namespace, until, until_within},
};

use crate::scene::{A_TERM, Scene, deployment, service};

/// How long a client stays away before its pod is chosen anew; it must be longer than this machine stands still at times.
const AFFINITY: Duration = Duration::from_secs(10);
const EXCLUDE: &str = "node.kubernetes.io/exclude-from-external-load-balancers";

/// Pods on that node alone.
fn on(node: &str, deployment: &str) -> String {
    let spec =
        format!("    spec:\n      nodeSelector: {{kubernetes.io/hostname: {node}}}\n      termination");
    deployment.replace("    spec:\n      termination", &spec)
}

fn annotated(annotation: &str, service: &str) -> String {
    let name = service.split("name: ").nth(1).and_then(|it| it.split('}').next()).unwrap_or_default();
    service.replacen(&format!("name: {name}"), &format!("name: {name}, annotations: {{{annotation}}}"), 1)
}

/// Who answers there: nothing, if nobody does.
fn asked(scene: &Scene, ip: &str) -> Option<String> {
    let answer = scene.outside.curl(&format!("http://{ip}/")).ok()?;
    answer.split_whitespace().next().map(str::to_owned)
}

/// Who answers, of so many times; with an empty name for nobody.
fn answering(scene: &Scene, ip: &str) -> BTreeSet<String> {
    (0..12).map(|_| asked(scene, ip).unwrap_or_default()).collect()
}

/// Pods of that app, on that node or on any.
fn pods(scene: &Scene, app: &str, node: Option<&Node>) -> BTreeSet<String> {
    let (app, field) = (format!("app={app}"), node.map(|it| format!("spec.nodeName={}", it.name())));
    let mut get = vec!["get", "pods", "-l", &app, "-o", "jsonpath={.items[*].metadata.name}"];
    get.extend(field.iter().flat_map(|it| ["--field-selector", it]));
    scene.cluster.kubectl(&get).split_whitespace().map(str::to_owned).collect()
}

fn condition(scene: &Scene, service: &str, kind: &str, what: &str) -> String {
    let path = format!("{{.status.conditions[?(@.type==\"seaway.dev/{kind}\")].{what}}}");
    scene.field(&format!("service/{service}"), &path)
}

fn is_present(node: &Namespace, ip: &str) -> bool {
    node.ip(&["address", "show", "lo"]).contains(&format!("{ip}/"))
}

#[test]
fn services_are_served_as_they_ask() {
    let Some(mut scene) = Scene::up(2) else { return };
    for (node, zone) in [("a", "x"), ("b", "y")] {
        scene.cluster.kubectl(&["label", "node", node, &format!("topology.kubernetes.io/zone={zone}")]);
    }
    let (shop, moody) = (deployment("shop", 4), deployment("moody", 1));
    let selecting = |app: &str, more: &str| format!("selector: {{app: {app}}}, {more}");
    let affinity = format!(
        "sessionAffinity: ClientIP, sessionAffinityConfig: {{clientIP: {{timeoutSeconds: {}}}}}",
        AFFINITY.as_secs()
    );
    let all = [
        shop,
        moody,
        on("b", &deployment("far", 1)),
        service("sticky", &selecting("shop", &affinity)),
        service("portless", &selecting("shop", "allocateLoadBalancerNodePorts: false")),
        service("near", &selecting("shop", "trafficDistribution: PreferClose")),
        service("whatever", &selecting("moody", "publishNotReadyAddresses: true")),
        service("ready", &selecting("moody", "")),
        service("far", &selecting("far", "externalTrafficPolicy: Local")),
        service("even", &selecting("shop", "externalTrafficPolicy: Local")),
        annotated("seaway.dev/members: nodes", &service("by-nodes", &selecting("shop", ""))),
        annotated(
            "seaway.dev/transparent: 'true'",
            &service("seen", &selecting("shop", "externalTrafficPolicy: Local")),
        ),
        annotated("seaway.dev/members: pods", &service("by-pods", &selecting("shop", ""))),
    ];
    scene.cluster.apply(&all.join("---"));
    for name in ["shop", "moody", "far"] {
        scene.cluster.kubectl(&["rollout", "status", &format!("deployment/{name}"), "--timeout", "180s"]);
    }
    members(&scene);
    affinity_lasts(&scene);
    not_ready(&scene);
    elsewhere(&scene);
    seen(&scene);
    rival(&scene);
    left_out(&scene);
    beside(&mut scene);
    on_hosts(&scene);
}

fn members(scene: &Scene) {
    let portless = scene.address("portless");
    assert_eq!(scene.field("service/portless", "{.spec.ports[*].nodePort}"), "");
    let all = pods(scene, "shop", None);
    until("all pods answer without node ports", || answering(scene, &portless) == all);

    // By the hints that the controller of slices writes: the host that is asked is in one zone.
    let here = pods(scene, "shop", Some(&scene.nodes[0]));
    assert!((1..4).contains(&here.len()), "pods are on both nodes: {here:?}");
    let near = scene.address("near");
    until("pods of the zone answer", || answering(scene, &near) == here);

    let by_nodes = scene.address("by-nodes");
    until("all pods answer by way of node ports", || answering(scene, &by_nodes) == all);
    let port = scene.field("service/by-nodes", "{.spec.ports[0].nodePort}");
    let page = scene.page(scene.nodes[0].name());
    let rows = scene.nodes[0].namespace().curl(&format!("{page};csv")).expect("counters");
    for node in &scene.nodes {
        assert!(rows.contains(&format!("{}:{port}", node.addresses()[0])), "its members are nodes: {rows}");
    }
    assert!(is_ready(scene, "by-pods"));
}

fn is_ready(scene: &Scene, service: &str) -> bool {
    until(&format!("{service} is served"), || condition(scene, service, "Ready", "status") == "True");
    true
}

fn affinity_lasts(scene: &Scene) {
    let sticky = scene.address("sticky");
    until("somebody answers", || asked(scene, &sticky).is_some());
    let who = answering(scene, &sticky);
    assert_eq!(who.len(), 1, "one client, one pod: {who:?}");
    // Its pod fails, and another has the client, when it comes back, too: for as long as the client does not stay away
    // for longer than the timeout.
    let first = who.first().expect("one").as_str();
    say(scene, first, "unready");
    until("another has it", || asked(scene, &sticky).is_some_and(|it| it != first));
    let second = asked(scene, &sticky).expect("it is answered");
    say(scene, first, "ready");
    let portless = scene.address("portless");
    until("it is asked again", || {
        assert_eq!(asked(scene, &sticky).as_ref(), Some(&second));
        asked(scene, &portless).is_some_and(|it| it == first)
    });
    let mut last = Instant::now();
    until("the first has it again after a while", || {
        last.elapsed() > AFFINITY + Duration::from_millis(500) && {
            let is_first = asked(scene, &sticky).is_some_and(|it| it == first);
            last = Instant::now();
            is_first
        }
    });
}

/// Tells a pod whether it is ready.
fn say(scene: &Scene, pod: &str, what: &str) {
    let ip = scene.field(&format!("pod/{pod}"), "{.status.podIP}");
    let mut curl = scene.nodes[0].namespace().command("curl");
    let told = curl.args(["-sSf", "-m", "5", "-X", "POST", &format!("http://{ip}/{what}")]).status();
    assert!(told.is_ok_and(|it| it.success()), "{pod} is told");
}

fn not_ready(scene: &Scene) {
    let [whatever, ready] = ["whatever", "ready"].map(|it| scene.address(it));
    until("both answer", || [&whatever, &ready].iter().all(|it| asked(scene, it).is_some()));
    let pod = pods(scene, "moody", None).pop_first().expect("there is one");
    say(scene, &pod, "unready");
    until("nobody is ready", || asked(scene, &ready).is_none());
    until("it is said why", || {
        condition(scene, "ready", "Problems", "message").contains("none of the 1 endpoints is ready")
    });
    assert!(asked(scene, &whatever).is_some(), "who does not care is answered");
}

fn elsewhere(scene: &Scene) {
    let ip = scene.address("far");
    let [here, there] = [0, 1].map(|at| scene.nodes[at].namespace());
    until("the host with the pod serves", || is_present(there, &ip));
    assert!(!is_present(here, &ip), "the one without any does not");
    assert!(is_ready(scene, "far"), "it is enough that one does");
    assert!(condition(scene, "far", "Problems", "message").contains("members see the address of that host"));
    scene.cluster.kubectl(&["delete", "deployment", "far"]);
    until("no host has a pod", || !is_present(there, &ip));
    until("it is said", || condition(scene, "far", "Ready", "reason") == "NotServed");
    assert_eq!(scene.address("far"), ip, "it is not withdrawn");
    scene.cluster.apply(&on("a", &deployment("far", 1)));
    until("the other host serves", || is_present(here, &ip) && asked(scene, &ip).is_some());
}

/// Pods see the client itself: what they answer comes back through their node.
fn seen(scene: &Scene) {
    let ip = scene.address("seen");
    let shown = scene.outside.ip(&["-4", "-o", "address", "show", "eth0"]);
    let own = shown.split_whitespace().nth(3).and_then(|it| it.split('/').next()).expect("an address");
    let here = pods(scene, "shop", Some(&scene.nodes[0]));
    until("pods see the client", || {
        let answer = scene.outside.curl(&format!("http://{ip}/")).unwrap_or_default();
        answer.split_once(' ').is_some_and(|(pod, client)| here.contains(pod) && client == own)
    });
    until("nothing is wrong with it", || condition(scene, "seen", "Problems", "status") != "True");
    assert_eq!(condition(scene, "seen", "Problems", "message"), "");
    let even = scene.address("even");
    until("who does not ask for it sees the host", || {
        scene.outside.curl(&format!("http://{even}/")).is_ok_and(|it| !it.ends_with(own))
    });
}

/// Another controller writes what we write.
fn rival(scene: &Scene) {
    let ip = scene.address("portless");
    let status = |says: &str| {
        let says = format!(r#"{{"status":{{"loadBalancer":{says}}}}}"#);
        let by = ["--subresource=status", "--type=merge", "--field-manager=rival", "-p", &says];
        scene.cluster.kubectl(&[&["patch", "service", "portless"], &by[..]].concat());
    };
    status(r#"{"ingress":[{"ip":"192.0.2.99"}]}"#);
    let told = || condition(scene, "portless", "Problems", "message");
    until("it is said who it is", || told().contains("rival also writes the status of this Service"));
    let of = "reason=OtherController,regarding.name=portless";
    let events =
        || scene.cluster.kubectl(&["get", "events.events.k8s.io", "--field-selector", of, "-o", "name"]);
    until("it is an event", || events().lines().count() == 1);
    assert_eq!(
        scene.field("service/portless", "{.status.loadBalancer.ingress[*].ip}"),
        "192.0.2.99",
        "nobody fights"
    );
    status("null");
    until("ours is told again", || {
        scene.field("service/portless", "{.status.loadBalancer.ingress[*].ip}") == ip
    });
    until("nobody complains any more", || !told().contains("rival"));
    assert_eq!(events().lines().count(), 1, "it was said once");
}

fn left_out(scene: &Scene) {
    assert!(is_ready(scene, "near"));
    scene.cluster.kubectl(&["label", "nodes", "a", "b", &format!("{EXCLUDE}=")]);
    until("hosts that are left out do not count", || {
        condition(scene, "near", "Ready", "reason") == "NotServed"
    });
    scene.cluster.kubectl(&["label", "nodes", "a", "b", &format!("{EXCLUDE}-")]);
    assert!(is_ready(scene, "near"));
}

/// A bank of hosts that are no Nodes.
fn beside(scene: &mut Scene) {
    let bank = scene.cluster.neighbour("bank");
    let shown = bank.ip(&["-4", "-o", "address", "show", "eth0"]);
    let at =
        shown.split_whitespace().nth(3).and_then(|it| it.split('/').next()).expect("its address").to_owned();
    scene.serve_beside("bank", &bank);
    let even = scene.address("even");
    until("the bank serves", || is_present(&bank, &even));
    let by_bank: Vec<String> = ["even", "near", "portless", "by-pods"].map(|it| scene.address(it)).into();
    for ip in &by_bank {
        scene.outside.route(&format!("{ip}/32"), &at);
    }
    let here = |at: usize| pods(scene, "shop", Some(&scene.nodes[at]));
    let all = pods(scene, "shop", None);
    // It serves by the node ports of Nodes; with Local by those that have pods, and says that it is no Node.
    until("Nodes are members", || answering(scene, &scene.address("near")) == all);
    until("Nodes with pods are members", || answering(scene, &even) == all);
    until("it is told", || {
        condition(scene, "even", "Problems", "message").contains("not Nodes of the cluster: bank")
    });
    let missing = "this port has no nodePort";
    until("it is told, too", || condition(scene, "portless", "Problems", "message").contains(missing));
    assert_eq!(asked(scene, &scene.address("portless")), None);

    // kube-proxy says at healthCheckNodePort who has pods; whoever does not say so is not asked.
    let health = scene.field("service/even", "{.spec.healthCheckNodePort}");
    let nft = |rules: &str| {
        let done = scene.nodes[1].namespace().command("nft").arg(rules).status();
        assert!(done.is_ok_and(|it| it.success()), "{rules}");
    };
    nft("add table inet mute; add chain inet mute in { type filter hook input priority -200; }");
    nft(&format!("add rule inet mute in tcp dport {health} drop"));
    until("who says nothing is not asked", || answering(scene, &even) == here(0));
    nft("delete table inet mute");
    until("who says it again is", || answering(scene, &even) == all);

    // Cordoned, or left out: nobody new is sent there.
    scene.cluster.kubectl(&["cordon", "a"]);
    until("a Node that is cordoned gets nobody new", || answering(scene, &even) == here(1));
    scene.cluster.kubectl(&["uncordon", "a"]);
    until("it is back", || answering(scene, &even) == all);
    scene.cluster.kubectl(&["label", "node", "b", &format!("{EXCLUDE}=")]);
    until("a Node that is left out is no member", || answering(scene, &even) == here(0));
    scene.cluster.kubectl(&["label", "node", "b", &format!("{EXCLUDE}-")]);

    // Pods, where the bank has routes to them.
    let by_pods = scene.address("by-pods");
    assert_eq!(asked(scene, &by_pods), None, "there is no way to them");
    for node in &scene.nodes {
        let pod = scene.cluster.kubectl(&[
            "get",
            "pods",
            "-l",
            "app=shop",
            "-o",
            "jsonpath={.items[0].status.podIP}",
            "--field-selector",
            &format!("spec.nodeName={}", node.name()),
        ]);
        let network = pod.rsplit_once('.').map(|(network, _)| format!("{network}.0/24")).expect("an address");
        bank.route(&network, &node.addresses()[0]);
    }
    until("pods are members", || answering(scene, &by_pods) == all);

    scene.cluster.kubectl(&[
        "drain",
        "a",
        "--ignore-daemonsets",
        "--force",
        "--delete-emptydir-data",
        "--timeout=180s",
    ]);
    until("all moved", || {
        pods(scene, "shop", Some(&scene.nodes[0])).is_empty() && pods(scene, "shop", None).len() == 4
    });
    for ip in [&even, &by_pods] {
        let there = pods(scene, "shop", Some(&scene.nodes[1]));
        until("those of the other Node answer", || answering(scene, ip) == there);
    }
    scene.cluster.kubectl(&["uncordon", "a"]);
    scene.kill("bank");
}

/// Without a pool nothing is given; hosts serve at their own addresses where a pool says so, and keep them when it goes.
fn on_hosts(scene: &Scene) {
    scene.cluster.kubectl(&["delete", "services", "--all"]);
    scene.cluster.kubectl(&["delete", "addresspool", "public"]);
    scene.cluster.apply(&service("homely", "selector: {app: shop}"));
    let own = &scene.nodes[0].addresses()[0];
    let told = || scene.field("service/homely", "{.status.loadBalancer.ingress[*].ip}");
    let problem = |part: &str| condition(scene, "homely", "Problems", "message").contains(part);
    until("the pool to write is told", || problem("kind: AddressPool"));
    assert_eq!(told(), "", "no address is published that nobody asked for");
    scene.cluster.apply(
        "apiVersion: seaway.dev/v1alpha1\nkind: AddressPool\nmetadata: {name: ours}\nspec: {hosts: true}\n",
    );
    // Of the machines' addresses those alone that Nodes say are theirs; of the bank's, until it counts as dead.
    let known: BTreeSet<&str> = scene.nodes.iter().map(|it| &*it.addresses()[0]).collect();
    until_within(A_TERM, "hosts' own addresses are told", || {
        told().split_whitespace().collect::<BTreeSet<_>>() == known
    });
    until("they answer", || asked(scene, own).is_some());
    let owners = || scene.field("addresses", "{.items[*].spec.owners[*].name}");
    until("those who are gone have given theirs back", || {
        owners().split_whitespace().all(|it| it == "homely")
    });
    assert_eq!(owners(), "", "nothing is written for them");
    let before = told();
    scene.cluster.kubectl(&["delete", "addresspool", "ours"]);
    until("it is told", || problem("the Service keeps the addresses"));
    assert_eq!(told(), before);
    assert!(asked(scene, own).is_some());
}
