//! Addresses that hosts announce by BGP to a router (BIRD) in the nodes' network, as BGPPeers and AddressPools say.

use seaway_testkit::topology::{Bird, Namespace, lacks_routers, until};

use crate::{
    draining::ECHO,
    looking::Plugin,
    scene::{Scene, service},
};

const POOL: &str = "
apiVersion: seaway.dev/v1alpha1
kind: AddressPool
metadata: {name: routed}
spec: {addresses: [198.51.100.0/28], announce: bgp, autoAssign: false}
";

fn peer(router: &str) -> String {
    format!(
        "
apiVersion: seaway.dev/v1alpha1
kind: BFDProfile
metadata: {{name: slow}}
spec: {{receiveInterval: 300, transmitInterval: 300, detectMultiplier: 5}}
---
apiVersion: seaway.dev/v1alpha1
kind: BGPPeer
metadata: {{name: router}}
spec: {{myASN: 64512, peerASN: 64513, peerAddress: {router}, connectTime: 1s, bfdProfile: slow, passwordSecret: {{name: router}}}}
"
    )
}

fn secret(password: &str) -> String {
    format!(
        "
apiVersion: v1
kind: Secret
metadata: {{name: router}}
type: kubernetes.io/basic-auth
stringData: {{username: '', password: {password}}}
"
    )
}

/// Its IPv4 address in the nodes' network.
fn address(router: &Namespace) -> String {
    let shown = router.ip(&["-o", "-4", "address", "show", "dev", "eth0"]);
    let address =
        shown.split_whitespace().find_map(|it| it.split_once('/').filter(|(ip, _)| ip.contains('.')));
    address.expect("it has one").0.to_owned()
}

fn announced(scene: &Scene, path: &str) -> String {
    scene
        .field("service/near", &format!("{{.status.conditions[?(@.type==\"seaway.dev/Announced\")].{path}}}"))
}

#[test]
fn a_router_learns_an_address_from_all_hosts_and_forgets_it_with_its_service() {
    if lacks_routers(&[Bird::PROGRAM]) {
        return;
    }
    let Some(mut scene) = Scene::bare() else { return };
    scene.nodes = ["a", "b"].into_iter().map(|name| scene.cluster.node(name)).collect();
    scene.install();
    scene.cluster.apply(POOL);
    scene.lead("controller");
    (0..2).for_each(|at| scene.serve(at));
    let router = address(&scene.outside);
    let bird = Bird::start(
        &scene.outside,
        &format!(
            "router id {router};\nprotocol device {{}}\nprotocol bfd {{ interface \"eth0\" {{ interval 300 ms; multiplier 5; }}; }}\n\
             protocol bgp hosts {{\n  local {router} as 64513;\n  neighbor range 10.10.0.0/16 as 64512;\n  dynamic name \"host\";\n  \
             passive;\n  bfd;\n  password \"right\";\n  ipv4 {{ import all; export none; }};\n}}\n"
        ),
    );
    scene.cluster.apply(ECHO);
    scene.address("echo");
    scene.cluster.apply(&service("near", "selector: {app: echo}").replace(
        "{name: near}",
        "{name: near, annotations: {seaway.dev/address: 198.51.100.7, seaway.dev/address-pool: routed}}",
    ).replace("{port: 80}", "{port: 80, targetPort: 7}"));
    scene.cluster.apply(&secret("wrong"));
    scene.cluster.apply(&peer(&router));
    let detail = |host: &str| scene.field(&format!("lbhost/{host}"), "{.status.bgp.peers[0].detail}");
    for host in ["a", "b"] {
        until("a wrong password is one clear line", || detail(host).to_lowercase().contains("password"));
        assert_eq!(detail(host).lines().count(), 1);
    }
    until("the Service says so", || announced(&scene, "reason") == "BGPFailed");

    scene.cluster.apply(&secret("right"));
    let ways = || {
        let told = bird.says(&["show", "route", "198.51.100.7/32", "all"]);
        told.lines().filter(|it| it.contains("BGP.next_hop")).count()
    };
    until("the router learns it from both hosts", || ways() == 2);
    until("the Service says so", || announced(&scene, "reason") == "BGP");
    assert_eq!(announced(&scene, "status"), "True");
    let state =
        |host: &str, path: &str| scene.field(&format!("lbhost/{host}"), &format!("{{.status.bgp.{path}}}"));
    for host in ["a", "b"] {
        until("its report says so", || state(host, "peers[0].state") == "Established");
        until("BFD is up", || state(host, "peers[0].bfd") == "Up");
        assert_eq!(state(host, "routes[0].prefixes[0]"), "198.51.100.7/32");
    }
    let kubeconfig = scene.cluster.kubeconfig_of("viewer", &[]);
    let bind = |kind: &str, role: &str| {
        let role_of = format!("--clusterrole={role}");
        scene.cluster.kubectl(&["create", kind, &format!("viewer-{role}"), &role_of, "--user=viewer"]);
    };
    bind("clusterrolebinding", "seaway-viewer");
    bind("rolebinding", "seaway-lease-reader");
    let plugin = Plugin::new();
    until("kubectl seaway status shows both sessions", || {
        let shown = plugin.try_run(&kubeconfig, "status");
        let shown = String::from_utf8_lossy(&shown.stdout).into_owned();
        let session = ["router", "1", "Up", "Established"];
        shown.lines().filter(|it| it.split_whitespace().skip(1).eq(session)).count() == 2
    });

    scene.cluster.kubectl(&["delete", "service", "near"]);
    until("the router forgets it", || ways() == 0);
    for host in ["a", "b"] {
        assert_eq!(state(host, "peers[0].state"), "Established", "no session ends with a Service");
        assert_eq!(state(host, "peers[0].resets"), "0");
    }
}
