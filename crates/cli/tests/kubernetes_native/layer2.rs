//! Addresses in the nodes' own network, which hosts announce by ARP, to a client in that network.

use std::{
    io::ErrorKind,
    net::{SocketAddr, TcpStream},
    thread,
    time::{Duration, Instant},
};

use seaway_testkit::topology::until;

use crate::{draining::ECHO, scene::Scene};

const CONFIGURATION: &str =
    "{defaultDriver: native, admin: {listen: [\"127.0.0.1:0\"]}, layer2: {keyFile: layer2.key}}";
const KEY: &str = "0123456789abcdef0123456789abcdef\n";
const AT: &str = "10.10.200.7:80";

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
spec: {type: LoadBalancer, ports: [{port: 80, targetPort: 7}], selector: {app: echo}}
";

fn asks(scene: &Scene) -> std::io::Result<()> {
    asks_for(scene, Duration::from_millis(100))
}

fn asks_for(scene: &Scene, patience: Duration) -> std::io::Result<()> {
    let at: SocketAddr = AT.parse().expect("an address");
    scene.outside.run(move || TcpStream::connect_timeout(&at, patience).map(drop))
}

/// Two at once: where nobody answers for the address, both are late; a single packet may be lost on a busy machine.
fn both_ask_for(scene: &Scene, patience: Duration) -> std::io::Result<()> {
    let both = thread::scope(|scope| {
        [(); 2]
            .map(|()| scope.spawn(|| asks_for(scene, patience)))
            .map(|it| it.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
    });
    let is_refused =
        |it: &std::io::Result<()>| matches!(it, Err(error) if error.kind() == ErrorKind::ConnectionRefused);
    let answered = both.iter().any(|it| it.is_ok()) && !both.iter().any(is_refused);
    if answered {
        Ok(())
    } else {
        both.into_iter().find(is_refused).unwrap_or(Err(ErrorKind::TimedOut.into()))
    }
}

fn announced(scene: &Scene, path: &str) -> String {
    let path = format!("{{.status.conditions[?(@.type==\"seaway.dev/Announced\")].{path}}}");
    scene.field("service/near", &path)
}

/// The host that the Service names.
fn announcer(scene: &Scene) -> String {
    let mut host = String::new();
    until("the Service says who announces it", || {
        let message = announced(scene, "message");
        let named =
            message.split_once("host ").and_then(|(_, rest)| rest.split_once(" announces it on cluster0"));
        host = named.map(|(name, _)| name.to_owned()).unwrap_or_default();
        !host.is_empty() && announced(scene, "reason") == "Layer2"
    });
    host
}

#[test]
fn an_address_of_the_nodes_network_is_announced_and_fails_over() {
    let Some(mut scene) = Scene::bare() else { return };
    scene.configuration = CONFIGURATION;
    scene.write_private("layer2.key", KEY);
    scene.nodes = ["a", "b"].into_iter().map(|name| scene.cluster.node(name)).collect();
    scene.install();
    scene.cluster.apply(POOL);
    scene.lead("controller");
    (0..2).for_each(|at| scene.serve(at));
    scene.cluster.apply(ECHO);
    // From here on only what Seaway does takes time.
    scene.address("echo");
    until("its pods are ready", || scene.field("deployment/echo", "{.status.readyReplicas}") == "2");
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
    let owner = announcer(&scene);
    eprintln!("the Service says who announces it after {:?}", began.elapsed());
    assert_eq!(announced(&scene, "status"), "True");
    let other = if owner == "a" { "b" } else { "a" };
    let said = |host: &str| scene.field(&format!("lbhost/{host}"), "{.status.layer2[*].state}");
    until("the other stands by", || (said(&owner).as_str(), said(other).as_str()) == ("Announcing", ""));

    // A host that drains withdraws first: no client finds a closed port.
    let patch = |drain| format!("{{\"spec\":{{\"drain\":{drain}}}}}");
    let (mut refused, mut late) = (0, 0);
    thread::scope(|scope| {
        let drains = scope.spawn(|| {
            let name = owner.as_str();
            scene.cluster.kubectl(&[
                "patch",
                "loadbalancerhost",
                name,
                "--type",
                "merge",
                "-p",
                &patch(true),
            ]);
            until("the other one announces it", || announcer(&scene) == *other);
        });
        while !drains.is_finished() {
            // Without a farewell, another host answers later.
            match both_ask_for(&scene, Duration::from_millis(400)) {
                Ok(()) => {}
                Err(error) if error.kind() == ErrorKind::ConnectionRefused => refused += 1,
                Err(_) => late += 1,
            }
        }
    });
    eprintln!("a host drained: {refused} connections were refused, {late} were late");
    for node in &scene.nodes {
        let metrics =
            node.namespace().curl(&format!("{}metrics", scene.page(node.name()))).unwrap_or_default();
        metrics
            .lines()
            .filter(|it| it.starts_with("seaway_layer2"))
            .for_each(|it| eprintln!("{}: {it}", node.name()));
    }
    assert_eq!((refused, late), (0, 0));
    scene.cluster.kubectl(&["patch", "loadbalancerhost", &owner, "--type", "merge", "-p", &patch(false)]);
    until("it has it back", || announcer(&scene) == owner);
    until("a client is served", || asks(&scene).is_ok());

    scene.kill(&owner);
    let began = Instant::now();
    until("another host answers", || asks(&scene).is_ok());
    eprintln!("the owner was killed: another host answers after {:?}", began.elapsed());
    until("the Service names it", || announcer(&scene) == other);
}
