//! Hosts' own addresses: who has them from a version that needed no pool, and which of the machines' ports Services get.

use seaway_testkit::topology::until;

use crate::scene::{Scene, deployment, service};

/// As versions published hosts' addresses where a cluster had no pool.
const BEFORE: [&str; 6] =
    ["apply", "--server-side", "--subresource=status", "--field-manager=seaway", "-f", "-"];
/// Of sshd, the status page, the API server and the kubelet, and one of the node ports. Nothing listens at them here but the
/// kubelet.
const OF_MACHINES: [u16; 5] = [22, 1_936, 6_443, 10_250, 30_500];

fn at_port(name: &str, port: u16) -> String {
    let spec = "selector: {app: shop}, allocateLoadBalancerNodePorts: false";
    service(name, spec).replace("port: 80", &format!("port: {port}, targetPort: 80"))
}

fn problems(scene: &Scene, service: &str) -> String {
    let path = "{.status.conditions[?(@.type==\"seaway.dev/Problems\")].message}";
    scene.field(&format!("service/{service}"), path)
}

fn published(scene: &Scene, service: &str) -> String {
    scene.field(&format!("service/{service}"), "{.status.loadBalancer.ingress[*].ip}")
}

/// The pool that somebody is told to apply: the last that is printed.
fn printed(told: &str) -> Option<String> {
    let from = told.rfind("{apiVersion: seaway.dev/v1alpha1, kind: AddressPool")?;
    let mut depth = 0;
    let end = told[from..].char_indices().find(|(_, it)| {
        depth += i32::from(*it == '{') - i32::from(*it == '}');
        depth == 0
    })?;
    Some(told[from..=from + end.0].to_owned())
}

#[test]
fn hosts_addresses_from_a_version_without_pools_stay_and_ports_of_the_machines_are_given_by_name_only() {
    let Some(mut scene) = Scene::bare() else { return };
    scene.nodes = vec![scene.cluster.node("a")];
    scene.install();
    scene.cluster.kubectl(&["delete", "addresspool", "public"]);
    let host = scene.nodes[0].addresses()[0].clone();
    let answers = |scene: &Scene, port: u16| {
        scene.outside.curl(&format!("http://{host}:{port}/")).is_ok_and(|it| it.starts_with("shop-"))
    };
    scene.cluster.apply(&deployment("shop", 1));
    let two = "ports: [{name: http, port: 80}, {name: ssh, port: 22, targetPort: 80}]";
    scene.cluster.apply(&at_port("old", 80).replace("ports: [{port: 80, targetPort: 80}]", two));
    let status = format!(
        r#"{{"apiVersion":"v1","kind":"Service","metadata":{{"name":"old"}},
            "status":{{"loadBalancer":{{"ingress":[{{"ip":"{host}","ipMode":"Proxy"}}]}}}}}}"#
    );
    scene.cluster.try_kubectl(&BEFORE, &status).expect("a status is written");

    // The new version starts.
    scene.lead("controller");
    scene.serve(0);
    until("what it has is served", || answers(&scene, 80) && answers(&scene, 22));
    until("it is told of the pool", || problems(&scene, "old").contains("PoolMissing: "));
    let pool = printed(&problems(&scene, "old")).expect("a pool is printed");
    assert!(pool.contains("spec: {hosts: true, reservedPorts: [22]}"), "{pool}");
    scene.cluster.apply(&at_port("new", 81));
    until("a new one waits", || problems(&scene, "new").contains("NoPool: "));
    let told = printed(&problems(&scene, "new")).expect("a pool is printed");
    assert!(told.contains("spec: {hosts: true}"), "{told}");
    let of = "reason=NoPool,regarding.name=new";
    let events = ["get", "events.events.k8s.io", "--field-selector", of, "-o", "jsonpath={.items[*].note}"];
    until("an event prints the pool, too", || scene.cluster.kubectl(&events).contains(&told));
    assert_eq!((published(&scene, "old"), published(&scene, "new")), (host.clone(), String::new()));

    scene.cluster.apply(&pool);
    until("the new one is served", || published(&scene, "new") == host && answers(&scene, 81));
    until("nothing is wrong any more", || problems(&scene, "old").is_empty());
    assert_eq!(published(&scene, "old"), host);
    assert!(answers(&scene, 80) && answers(&scene, 22));

    ports_of_machines(&scene, &answers);
}

/// It was made first, and asks for the port last.
#[test]
fn a_port_of_a_hosts_address_stays_with_its_service_when_host_and_controller_start_again() {
    let Some(mut scene) = Scene::bare() else { return };
    scene.nodes = vec![scene.cluster.node("a")];
    scene.install();
    scene.cluster.kubectl(&["delete", "addresspool", "public"]);
    let pool =
        "{apiVersion: seaway.dev/v1alpha1, kind: AddressPool, metadata: {name: ours}, spec: {hosts: true}}";
    scene.cluster.apply(pool);
    let host = scene.nodes[0].addresses()[0].clone();
    let from = |scene: &Scene, port: u16| {
        let said = scene.outside.curl(&format!("http://{host}:{port}/")).unwrap_or_default();
        said.split('-').next().unwrap_or_default().to_owned()
    };
    scene.cluster.apply(&[deployment("shop", 1), deployment("other", 1)].join("---"));
    let elder = "apiVersion: v1\nkind: Service\nmetadata: {name: elder}\nspec: {selector: {app: other}, ports: [{port: 80}]}\n";
    scene.cluster.apply(elder);
    scene.cluster.apply(&at_port("shop", 80));
    scene.lead("controller");
    scene.serve(0);
    until("the first is served", || published(&scene, "shop") == host && from(&scene, 80) == "shop");

    let both = r#"{"spec":{"type":"LoadBalancer","allocateLoadBalancerNodePorts":false,
        "ports":[{"name":"a","port":80},{"name":"b","port":81,"targetPort":80}]}}"#;
    scene.cluster.kubectl(&["patch", "service", "elder", "--type=merge", "-p", both]);
    let lacks = |scene: &Scene, service: &str| {
        let path = "{.status.loadBalancer.ingress[*].ports[?(@.error==\"seaway.dev/PortConflict\")].port}";
        scene.field(&format!("service/{service}"), path)
    };
    until("the elder has its other port", || lacks(&scene, "elder") == "80" && from(&scene, 81) == "other");
    assert_eq!((from(&scene, 80), lacks(&scene, "shop")), ("shop".into(), String::new()));

    scene.kill("a");
    until("nobody answers", || from(&scene, 81).is_empty());
    scene.serve(0);
    until("the host serves again", || from(&scene, 81) == "other");
    assert_eq!(from(&scene, 80), "shop", "the host was told by statuses whose it is");

    scene.end("controller");
    scene.lead("another");
    scene.cluster.apply(&at_port("late", 82));
    until("another gives addresses out", || published(&scene, "late") == host && from(&scene, 82) == "shop");
    assert_eq!((lacks(&scene, "elder"), lacks(&scene, "shop")), ("80".into(), String::new()));
    assert_eq!((published(&scene, "shop"), from(&scene, 80)), (host.clone(), "shop".into()));
}

fn ports_of_machines(scene: &Scene, answers: &dyn Fn(&Scene, u16) -> bool) {
    let name = |port: u16| if port == 22 { "old".to_owned() } else { format!("at-{port}") };
    let is_refused = |port: u16| {
        let told = problems(scene, &name(port));
        told.contains("PortReserved: ") && told.contains(&format!("port {port}/TCP is reserved"))
    };
    let others = &OF_MACHINES[1..];
    scene.cluster.apply(&others.iter().map(|it| at_port(&name(*it), *it)).collect::<Vec<_>>().join("---"));
    let name_ports = |ports: &[u16]| {
        let spec = format!("{{\"spec\":{{\"reservedPorts\":{ports:?}}}}}");
        scene.cluster.kubectl(&["patch", "addresspool", "hosts", "--type=merge", "-p", &spec]);
    };
    name_ports(&[]);
    for port in OF_MACHINES {
        until(&format!("port {port} is refused"), || is_refused(port));
    }
    for port in others {
        assert_eq!(published(scene, &name(*port)), "", "nothing of it is served");
    }
    until("port 22 is served no more", || !answers(scene, 22));
    assert!(answers(scene, 80), "the other port of that Service is");
    assert!(others.iter().all(|port| !answers(scene, *port)));

    name_ports(&OF_MACHINES);
    for port in OF_MACHINES {
        until(&format!("port {port} is given"), || !is_refused(port));
        // There the kubelet is.
        until(&format!("port {port} is served"), || port == 10_250 || answers(scene, port));
    }
}
