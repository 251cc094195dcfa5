//! Everything changes all the time, and nobody notices.

use std::net::{IpAddr, SocketAddr};

use seaway_testkit::traffic::Clients;

use crate::{
    scene::Scene,
    thousand_changes::{self, Changes, ListenerAddresses, Members, nobody_noticed},
};

const DEFINITIONS: &str = include_str!("../../../cluster/tests/corpus/definitions.yaml");
const CONFIGURATION: &str = "
defaultDriver: native
admin: {listen: [\"127.0.0.1:0\"]}
frontDoor: {enabled: true, port: 8000, tls: {port: 8443}, parentRef: infra/public}
";

#[test]
fn a_thousand_changes_of_a_cluster_are_each_served_and_drop_nothing() {
    let Some(mut scene) = Scene::bare() else { return };
    scene.configuration = CONFIGURATION;
    scene.nodes = vec![scene.cluster.node("a")];
    scene.cluster.define(DEFINITIONS);
    scene.install();
    scene.lead("controller");
    scene.serve(0);
    scene.lead_to(0);
    let apart = scene.cluster.neighbour("members");
    let ips = [1, 2, 3].map(|number| IpAddr::from([10, 10, 254, number]));
    for ip in ips {
        apart.address("eth0", &format!("{ip}/16"));
    }
    let members = apart.run(|| Members::at(ips));
    let apply = |_: &str, text: &str| scene.cluster.apply(text);
    let changes = Changes::new(&members, "{name: public, namespace: infra}", &apply);
    changes.begin();
    let node = scene.nodes[0].addresses()[0].parse().expect("an address");
    let service = |name: &str, port| SocketAddr::new(scene.address(name).parse().expect("an address"), port);
    let doors = ListenerAddresses {
        http: SocketAddr::new(node, 8_000),
        https: SocketAddr::new(node, 8_443),
        echo: service("echo", thousand_changes::STAYS),
        dns: service("dns", thousand_changes::UDP),
    };
    // Beside control planes of other tests, one thread asks no more than that in time; what is late, Seaway may give up.
    nobody_noticed(changes.make(&scene.outside.run(Clients::here), &doors, 3));
}
