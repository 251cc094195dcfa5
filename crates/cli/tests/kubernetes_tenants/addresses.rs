//! Addresses of others, and ports of the machines.

use std::{
    io::{Read, Write},
    net::{SocketAddr, TcpStream},
    time::{Duration, Instant},
};

use seaway_testkit::topology::until;

use crate::{
    cluster::{MACHINE, Shared},
    scene::service,
};

pub(crate) fn with(name: &str, annotations: &str, spec: &str) -> String {
    let named = format!("name: {name}");
    service(name, spec).replacen(&named, &format!("{named}, annotations: {{{annotations}}}"), 1)
}

/// Ports that every Node has for itself: sshd, BGP of a CNI, the API server, the kubelet.
const OF_MACHINES: [u16; 4] = [22, 179, 6_443, 10_250];

/// And tunnels of CNIs.
const TUNNEL: u16 = 8_472;

/// What a health check asks for, which a pod logs.
const CHECKED: &str = "seaway.dev/health-check-path: /cannon";
/// The second-shortest interval that a namespace may have, of two Nodes.
const CHECKS_PER_SECOND: f64 = 4.0;

/// A client that says it is this one.
const FORGED: &str = "192.0.2.99";

/// Where the front door is, on all addresses.
const DOOR: u16 = 8_000;

pub(crate) fn tries(shared: &Shared) {
    let shop = shared.shop.ip();
    let pods = "selector: {app: evil}";
    let wants = format!("seaway.dev/address: {shop}");
    let shares = "seaway.dev/share: shop, seaway.dev/share-across-namespaces: \"*\"";
    let other_port = with("shares", &format!("{wants}, {shares}"), pods).replace("port: 80", "port: 81");
    let all = [
        with("takes", &wants, pods),
        other_port,
        service("asks", &format!("loadBalancerIP: {shop}, {pods}")),
        // Of an address of its own, where the machine listens on all addresses.
        service("sshd", pods).replace("port: 80", "port: 22, targetPort: 80"),
        with(
            "forged",
            "seaway.dev/transparent: \"true\", seaway.dev/proxy-protocol-from: 0.0.0.0/0",
            &format!("externalTrafficPolicy: Local, {pods}"),
        ),
        with("typo", "seaway.dev/source-ranges: 10.0.0/8", pods),
        with("authority", "seaway.dev/client-authorities: My_CA", pods),
        with("stolen", "seaway.dev/tls: shop/certificate", pods),
        with("absent", "seaway.dev/tls: certificate", pods),
        // What the spec closes, and an annotation would open.
        with(
            "narrow",
            "seaway.dev/source-ranges: 0.0.0.0/0",
            &format!("loadBalancerSourceRanges: [198.51.100.7/32], {pods}"),
        ),
        with("misspelt", "seaway.dev/source-range: 198.51.100.7/32", pods),
        with("cannon", &format!("seaway.dev/health-check-interval: 1ms, {CHECKED}"), pods),
        service("tunnel", pods).replace("port: 80", &format!("port: {TUNNEL}, protocol: UDP")),
    ];
    shared.applies(&all.join("---"));
    for name in ["takes", "shares", "asks"] {
        shared.is_refused(name, &shop.to_string());
    }
    shared.is_refused("forged", "transparentFrom");
    // The header is understood, and members see a host all the same. (Later, kube-proxy masquerades what goes to this pod.)
    let mut answer = String::new();
    until("a member says who asks it", || {
        answer = asks_forged(shared).unwrap_or_default();
        answer.contains("evil-")
    });
    assert!(!answer.contains(FORGED), "{answer}");
    shared.is_refused("typo", "no client may connect until this is corrected");
    for name in ["authority", "stolen"] {
        shared.is_refused(name, "no listener is opened");
    }
    shared.is_refused("absent", "certificate");
    shared.is_refused("narrow", "this annotation is ignored");
    shared.is_refused("misspelt", "no listener is opened until this is corrected");
    shared.is_refused("cannon", "members are checked every 500ms, not every 1ms");
    shared.is_refused("tunnel", &format!("port {TUNNEL}/UDP is reserved"));
    let of_machines = OF_MACHINES.into_iter().chain([DOOR]).map(|port| {
        let ports = format!("port: {port}, targetPort: 80");
        with(&format!("host-{port}"), "seaway.dev/address-pool: machines", pods).replace("port: 80", &ports)
    });
    let datagrams = with("host-tunnel", "seaway.dev/address-pool: machines", pods)
        .replace("port: 80", &format!("port: {TUNNEL}, protocol: UDP"));
    shared.applies(&of_machines.chain([datagrams]).collect::<Vec<_>>().join("---"));
    shared.is_refused("host-tunnel", &format!("port {TUNNEL}/UDP is reserved on hosts' own"));
    for port in OF_MACHINES {
        shared.is_refused(&format!("host-{port}"), &format!("port {port}/TCP is reserved on hosts' own"));
    }
    shared.is_refused(&format!("host-{DOOR}"), "is already used by configuration frontDoor");
    // The pool has 16, of which the shop has one: three quarters are given to whoever comes first.
    let many: Vec<String> = (0..16).map(|at| service(&format!("many-{at}"), pods)).collect();
    shared.applies(&many.join("---"));
    shared.is_refused("many-15", "namespace evil has 11 of it");
    shared.admin("shop", &service("later", "selector: {app: shop}"));
}

/// Checks of the hostile namespace's members that its pod has logged.
fn checks(shared: &Shared) -> usize {
    let log = shared.scene.cluster.kubectl(&["-n", "evil", "logs", "deployment/evil", "--tail", "-1"]);
    log.lines().filter(|it| it.starts_with("GET /cannon ")).count()
}

/// However often it asks for, members are checked as often as a namespace may.
fn is_checked_slowly(shared: &Shared) {
    let (before, began) = (checks(shared), Instant::now());
    let mut rose = 0;
    until("its members are checked", || {
        rose = checks(shared).saturating_sub(before);
        rose >= 12
    });
    // Each of both Nodes has one under way at either end.
    let most = (began.elapsed().as_secs_f64() * CHECKS_PER_SECOND).ceil() as usize + 4;
    assert!(rose <= most, "{rose} checks in {:?}, {most} at most", began.elapsed());
}

/// What the member of a Service says of who asks it, where a client says that it is another.
fn asks_forged(shared: &Shared) -> std::io::Result<String> {
    let at = SocketAddr::new(shared.scene_address("evil", "forged").parse().expect("an address"), 80);
    // `externalTrafficPolicy: Local`: only the Node of its pod serves it, and the scheduler chooses which that is.
    let node = "jsonpath={.items[0].spec.nodeName}";
    let node = shared.scene.cluster.kubectl(&["-n", "evil", "get", "pods", "-l", "app=evil", "-o", node]);
    let leads_there = if node.trim() == "a" { &shared.scene.outside } else { &shared.beside };
    leads_there.run(|| {
        let mut stream = TcpStream::connect_timeout(&at, Duration::from_secs(5))?;
        stream.set_read_timeout(Some(Duration::from_secs(5)))?;
        let header = format!("PROXY TCP4 {FORGED} {} 4242 80\r\n", at.ip());
        write!(stream, "{header}GET / HTTP/1.1\r\nHost: evil\r\nConnection: close\r\n\r\n")?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer)?;
        Ok(answer)
    })
}

/// Nothing of it moved an address, or opened what is closed.
pub(crate) fn hold(shared: &Shared, before: &str) {
    let now = shared.published();
    assert!(before.split(' ').all(|it| now.contains(it)), "no address of the shop moves: {before}; {now}");
    let shop = shared.shop.ip().to_string();
    let node = shared.door.ip().to_string();
    for port in MACHINE {
        assert_eq!(shared.asks(&node, port).as_deref(), Ok("the machine"), "the machine has its port {port}");
        assert!(shared.asks(&shop, port).is_err(), "nobody answers at port {port} of the shop's address");
    }
    let later = shared.scene_address("shop", "later");
    until("a Service that the shop makes later is served", || {
        shared.asks(&later, 80).is_ok_and(|it| it.starts_with("shop-"))
    });
    assert!(shared.asks(&shop, 81).is_err(), "nobody else is at the shop's address");
    // Who answers at the front door is asked there.
    for port in OF_MACHINES {
        let answer = shared.asks(&node, port);
        let is_evil = answer.as_ref().is_ok_and(|it| it.starts_with("evil-"));
        assert!(!is_evil, "port {port} of the machine: {answer:?}");
    }
    for name in ["typo", "authority", "stolen", "absent", "narrow", "misspelt"] {
        // It may have none, as nobody serves it.
        let at = shared.address_now("evil", name);
        for port in [80, 443].into_iter().filter(|_| !at.is_empty()) {
            assert!(shared.asks(&at, port).is_err(), "{name} is closed");
        }
    }
    is_checked_slowly(shared);
    let sshd = shared.scene_address("evil", "sshd");
    until("a Service has port 22, and sshd of the machine, too", || {
        shared.asks(&sshd, 22).is_ok_and(|it| it.starts_with("evil-"))
    });
    assert_eq!(shared.asks(&node, 22).as_deref(), Ok("the machine"));
}
