//! Addresses in the nodes' own network, which hosts announce by ARP, to a client in that network.

use std::{
    io::ErrorKind,
    net::{SocketAddr, TcpStream},
    time::{Duration, Instant},
};

use seaway_testkit::{
    topology::until,
    traffic::{Clients, Kind, Target},
};

use crate::scene::{Scene, deployment, service};

const CONFIGURATION: &str =
    "{defaultDriver: native, admin: {listen: [\"127.0.0.1:0\"]}, layer2: {keyFile: layer2.key}}";
const KEY: &str = "0123456789abcdef0123456789abcdef\n";
const AT: &str = "10.10.200.7:80";
/// Each on a new connection.
const RATE: u32 = 500;

/// In the network of nodes and of the outside.
const POOL: &str = "
apiVersion: seaway.dev/v1alpha1
kind: AddressPool
metadata: {name: lan}
spec: {addresses: [10.10.200.0/28], announce: l2, autoAssign: false}
";

const SERVICE: &str = "
apiVersion: v1
kind: Service
metadata: {name: near, annotations: {seaway.dev/address: 10.10.200.7, seaway.dev/address-pool: lan}}
spec: {type: LoadBalancer, ports: [{port: 80}], selector: {app: shop}}
";

pub(crate) fn connect(scene: &Scene) -> std::io::Result<TcpStream> {
    let at: SocketAddr = AT.parse().expect("an address");
    scene.outside.run(move || TcpStream::connect_timeout(&at, Duration::from_millis(100)))
}

fn asks(scene: &Scene) -> std::io::Result<()> {
    connect(scene).map(drop)
}

fn announced(scene: &Scene, path: &str) -> String {
    let path = format!("{{.status.conditions[?(@.type==\"seaway.dev/Announced\")].{path}}}");
    scene.field("service/near", &path)
}

/// The host that the Service names.
pub(crate) fn announcer(scene: &Scene) -> String {
    let mut host = String::new();
    until("the Service says who announces it", || {
        let message = announced(scene, "message");
        let named = message
            .split_once("host ")
            .and_then(|(_, rest)| rest.split_once(" announces this address on cluster0"));
        host = named.map(|(name, _)| name.to_owned()).unwrap_or_default();
        !host.is_empty() && announced(scene, "reason") == "Layer2"
    });
    host
}

/// Two hosts that announce, and `near` applied and served.
pub(crate) fn two_hosts(is_handed_over: bool) -> Option<Scene> {
    let mut scene = Scene::bare()?;
    scene.is_handed_over = is_handed_over;
    scene.configuration = CONFIGURATION;
    scene.write_private("layer2.key", KEY);
    scene.nodes = ["a", "b"].into_iter().map(|name| scene.cluster.node(name)).collect();
    scene.install();
    scene.cluster.apply(POOL);
    scene.lead("controller");
    (0..2).for_each(|at| scene.serve(at));
    scene.cluster.apply(&deployment("shop", 2));
    scene.cluster.apply(&service("shop", "selector: {app: shop}"));
    // From here on only what Seaway does takes time.
    scene.address("shop");
    until("its pods are ready", || scene.field("deployment/shop", "{.status.readyReplicas}") == "2");
    let slices = "{.items[*].spec.hosts[*].name}";
    until("both hosts are known to each other", || {
        let known = scene.field("loadbalancerhostslices", slices);
        ["a", "b"].iter().all(|host| known.split_whitespace().any(|it| it == *host))
    });
    for host in ["a", "b"] {
        until("it may announce", || scene.log(host).contains("announced by ARP and NDP"));
    }

    let began = Instant::now();
    scene.cluster.apply(SERVICE);
    let applied = began.elapsed();
    until("a client in the network is served", || asks(&scene).is_ok());
    eprintln!("from kubectl apply to the first answer: {:?}, of which kubectl {applied:?}", began.elapsed());
    announcer(&scene);
    eprintln!("the Service says who announces it after {:?}", began.elapsed());
    Some(scene)
}

#[test]
fn an_address_of_the_nodes_network_is_announced_and_fails_over() {
    let Some(mut scene) = two_hosts(false) else { return };
    let owner = announcer(&scene);
    assert_eq!(announced(&scene, "status"), "True");
    let other = if owner == "a" { "b" } else { "a" };
    let said = |host: &str| scene.field(&format!("lbhost/{host}"), "{.status.layer2[*].state}");
    until("the other stands by", || (said(&owner).as_str(), said(other).as_str()) == ("Announcing", ""));

    // A host that drains withdraws first: no client finds a closed port, and another host answers at once. A packet may be lost
    // on a busy machine, and is sent again after a second.
    let patch = |drain| format!("{{\"spec\":{{\"drain\":{drain}}}}}");
    let clients = scene.outside.run(Clients::here);
    let load =
        clients.load(vec![Target::new("near", Kind::Http, AT.parse().expect("an address")).times(RATE)]);
    load.goes_on(100);
    scene.cluster.kubectl(&["patch", "loadbalancerhost", &owner, "--type", "merge", "-p", &patch(true)]);
    until("the other one announces it", || announcer(&scene) == *other);
    load.goes_on(100);
    let heard = load.end();
    eprintln!("a host drained:\n{heard}");
    for node in &scene.nodes {
        let metrics =
            node.namespace().curl(&format!("{}metrics", scene.page(node.name()))).unwrap_or_default();
        metrics
            .lines()
            .filter(|it| it.starts_with("seaway_layer2"))
            .for_each(|it| eprintln!("{}: {it}", node.name()));
    }
    // What is under way as the address moves goes on to the other host, which resets it: within a tenth of a second, or for as long as
    // the machine stood still.
    let under_way = 0.1 + heard.latest().as_secs_f64();
    heard.lost_at_most((RATE as f64 * under_way) as usize, "those under way as the address moves");
    for (_, failure) in heard.failures() {
        assert_eq!(failure.kind, ErrorKind::ConnectionReset, "nobody is refused or unanswered:\n{heard}");
    }
    scene.cluster.kubectl(&["patch", "loadbalancerhost", &owner, "--type", "merge", "-p", &patch(false)]);
    until("it has it back", || announcer(&scene) == owner);
    until("a client is served", || asks(&scene).is_ok());

    scene.kill(&owner);
    let began = Instant::now();
    until("another host answers", || asks(&scene).is_ok());
    eprintln!("the owner was killed: another host answers after {:?}", began.elapsed());
    until("the Service names it", || announcer(&scene) == other);
}
