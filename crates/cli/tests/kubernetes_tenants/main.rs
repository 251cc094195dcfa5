//! A cluster that two namespaces share. Whoever writes in `evil` has the ClusterRole `edit`, EndpointSlices and HTTPRoutes,
//! and tries to harm the namespace `shop` and the machines, while clients of the shop go on.

// Logs of processes whose test failed.
#![allow(clippy::print_stderr)]

mod addresses;
mod cluster;
mod front_door;
mod listed;
mod machines;
mod members;
mod rights;
#[path = "../kubernetes_native/scene.rs"]
#[allow(dead_code, reason = "what it has for controllers that end is for others")]
mod scene;
mod translated;

use std::{
    io::Write,
    net::{SocketAddr, TcpStream},
    time::Duration,
};

use cluster::Shared;
use seaway_testkit::traffic::{Clients, Kind, Target};

/// Of both ways in together, and directly by the other Node: each on a new connection.
const RATES: [(&str, u32); 2] = [("direct", 350), ("by the front door", 150)];
const BESIDE: (&str, u32) = ("direct, by the other Node", 100);

#[test]
fn a_hostile_namespace_takes_nothing_from_another_or_from_the_machines() {
    let Some(mut shared) = Shared::up() else { return };
    let addresses = shared.published();
    let clients = shared.scene.outside.run(Clients::here);
    let at = [shared.shop, shared.door];
    let targets =
        RATES.iter().zip(at).map(|((name, rate), at)| Target::new(name, Kind::Http, at).times(*rate));
    let load = clients.load(targets.collect());
    let neighbours = shared.beside.run(Clients::here);
    let beside = neighbours.load(vec![Target::new(BESIDE.0, Kind::Http, shared.shop).times(BESIDE.1)]);
    machines::hold(&shared);

    rights::tries(&shared);
    addresses::tries(&shared);
    members::tries(&shared);
    front_door::tries(&shared);
    translated::tries(&shared);
    machines::forges(&shared);
    let crowd = crowd(&shared, 300);
    shared.restart_machine();

    load.goes_on(400);
    beside.goes_on(100);
    addresses::hold(&shared, &addresses);
    members::hold(&shared);
    front_door::hold(&shared);
    translated::hold(&shared);
    machines::hold(&shared);
    drop(crowd);
    for heard in [load.end(), beside.end()] {
        eprintln!("{heard}");
        heard.was_always_answered();
        for (way, tally) in &heard.0 {
            let others: Vec<_> = tally.answers.keys().filter(|pod| !pod.starts_with("shop-")).collect();
            assert!(others.is_empty(), "requests of the shop, {way}, were answered by {others:?}");
        }
    }
}

/// Connections to the hostile namespace's own Service: half of a request on each, and nothing more.
fn crowd(shared: &Shared, connections: usize) -> Vec<TcpStream> {
    let at = SocketAddr::new(shared.scene_address("evil", "evil").parse().expect("an address"), 80);
    shared.scene.outside.run(|| {
        let open = |_| {
            let mut stream = TcpStream::connect_timeout(&at, Duration::from_secs(5)).ok()?;
            stream.write_all(b"GET / HTTP/1.1\r\nHost: evil").ok()?;
            Some(stream)
        };
        (0..connections).filter_map(open).collect()
    })
}
