//! Connections to the API server that lead nowhere, and say nothing of it.

use seaway_testkit::topology::{Namespace, until_within};

use crate::scene::{A_TERM, Scene, deployment, service};

/// Whatever the API server sends to Seaway on connections that are open now is lost: a firewall that forgot them does so, and a
/// machine that took another's place.
fn lose_connections(at: &Namespace) {
    let listed = at.command("ss").args(["-tnpH", "state", "established", "dport", "gt", "1023"]).output();
    let listed = String::from_utf8(listed.expect("ss runs").stdout).expect("is text");
    // Receive queue, send queue, local address, remote address, who has it.
    let ours = listed.lines().filter(|it| it.contains("\"seaway\""));
    let local = ours.filter_map(|it| it.split_whitespace().nth(2)?.rsplit_once(':'));
    let ports: Vec<&str> = local.map(|(_, port)| port).collect();
    assert!(!ports.is_empty(), "the host is connected to the API server: {listed}");
    let ports = ports.join(", ");
    let rules = format!(
        "table inet lost {{ chain in {{ type filter hook input priority 0; tcp dport {{ {ports} }} drop; }}; }}"
    );
    assert!(at.command("nft").arg(&rules).status().expect("nft runs").success(), "{rules}");
}

#[test]
fn a_host_whose_connections_to_the_api_server_lead_nowhere_notices_it_by_keepalives() {
    let Some(scene) = Scene::up(1) else { return };
    scene.cluster.apply(&deployment("shop", 2));
    scene.cluster.apply(&service("shop", "selector: {app: shop}"));
    scene.answering("shop");
    lose_connections(scene.nodes[0].namespace());
    scene.cluster.apply(&service("later", "selector: {app: shop}"));
    let at = scene.address("later");
    until_within(A_TERM, "what came later is served", || {
        scene.outside.curl(&format!("http://{at}/")).is_ok()
    });
    // A request that nobody answers ends as well, but later, and a watch that nobody writes to later still.
    let log = scene.log("a");
    assert!(!log.contains("timed out after"), "{log}");
}
