//! A cluster that two namespaces share. Whoever writes in `evil` has the ClusterRole `edit`, EndpointSlices and HTTPRoutes,
//! and tries to harm the namespace `shop` and the machines, while clients of the shop go on.

// Logs of processes whose test failed.
#![allow(clippy::print_stderr)]

mod addresses;
mod cluster;
mod front_door;
#[path = "../kubernetes_native/load.rs"]
mod load;
mod members;
mod rights;
#[path = "../kubernetes_native/scene.rs"]
#[allow(dead_code, reason = "what it has for controllers that end is for others")]
mod scene;

use std::{
    io::Write,
    net::{SocketAddr, TcpStream},
    time::Duration,
};

use cluster::Shared;
use load::Load;

#[test]
fn a_hostile_namespace_takes_nothing_from_another_or_from_the_machines() {
    let Some(mut shared) = Shared::up() else { return };
    let addresses = shared.published();
    // 200 requests a second, by both ways in.
    let direct = Load::start(&shared.scene.outside, shared.shop, 140);
    let by_door = Load::start(&shared.scene.outside, shared.door, 60);

    rights::tries(&shared);
    addresses::tries(&shared);
    members::tries(&shared);
    front_door::tries(&shared);
    let crowd = crowd(&shared, 300);
    shared.restart_machine();

    for load in [&direct, &by_door] {
        load.goes_on("the shop is served beside all of it", 400);
    }
    addresses::hold(&shared, &addresses);
    members::hold(&shared);
    front_door::hold(&shared);
    drop(crowd);
    for load in [direct, by_door] {
        let heard = load.end();
        heard.was_always_answered();
        let others: Vec<_> = heard.answers.keys().filter(|pod| !pod.starts_with("shop-")).collect();
        assert!(others.is_empty(), "requests of the shop were answered by {others:?}");
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
