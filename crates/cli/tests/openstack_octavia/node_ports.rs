//! A Service whose node port changes: its members are the same Nodes, at another port.

use crate::{
    scene::{deployment, service},
    stage::{AUTH_URL, Stage, until},
};

const OURS: &str = "loadBalancerClass: seaway.dev/octavia, selector: {app: shop}";
const PORT: &str = "{.spec.ports[0].nodePort}";

#[test]
fn members_at_another_node_port_answer_and_are_probed_by_ovn() {
    let Some(mut stage) = Stage::set(&["a", "b"]) else { return };
    stage.lead(AUTH_URL);
    let before = stage.land.everything();
    let cluster = stage.scene.cluster.clone();
    cluster.apply(&deployment("shop", 1));
    cluster.apply(&service("shop", OURS));
    let address = stage.address("shop");
    let url = format!("http://{address}/");
    stage.answers(&url, "shop");
    let balancers = stage.land.told(&["loadbalancers"]);
    let balancer = balancers.values().next().expect("there is one")["id"].as_str().expect("an id").to_owned();
    let probed = || stage.land.rig.in_ovn(&balancer, "ip_port_mappings");
    let are_probed = || {
        let probed = probed();
        stage.scene.nodes.iter().all(|it| probed.contains(&format!("{}=", it.addresses()[0])))
    };
    until("both are probed", are_probed);
    stage.land.at_rest(|all| all.len() == 6);

    let port: u16 = stage.scene.field("service/shop", PORT).parse().expect("a port");
    let other = if port == 30_500 { 30_501 } else { 30_500 };
    let change = format!(r#"{{"spec": {{"ports": [{{"port": 80, "nodePort": {other}}}]}}}}"#);
    cluster.kubectl(&["patch", "service", "shop", "--patch", &change]);
    let are_there = || {
        let members = stage.land.told(&["members"]);
        members.len() == 2 && members.values().all(|it| it["protocol_port"] == other)
    };
    until("members are at the other port", are_there);
    stage.land.at_rest(|all| all.len() == 6);
    stage.answers(&url, "shop");
    until("both are probed again", are_probed);

    cluster.kubectl(&["delete", "service", "shop", "--wait=false"]);
    until("nothing is left", || stage.land.has_only(&before));
}
