//! Pod networks of Nodes of a real API server become routes and address pairs of the fake OpenStack.

use std::net::IpAddr;

use seaway_openstack::{
    neutron::{Port, RoutedPort, Router},
    nova::Server,
    resource::{Id, Query},
};
use seaway_testkit::topology::until_within;

use crate::{
    octavia::{Project, in_a_cloud},
    openstack_nodes::{PATIENCE, boot, node, occm},
    scene::{CONTROLLER, Scene},
};

const ROUTES: &str =
    "{defaultDriver: none, admin: {listen: [\"127.0.0.1:0\"]}, nodes: {podCIDRs: {web-2: [172.20.2.0/24]}}}";

fn router(project: &Project) -> Router {
    project.runtime.block_on(project.cloud.all::<Router>().list(Query::all())).expect("routers").remove(0)
}

fn routes(project: &Project) -> Vec<String> {
    let mut all: Vec<String> =
        router(project).routes.iter().map(|it| format!("{} {}", it.destination, it.nexthop)).collect();
    all.sort();
    all
}

fn port_of(project: &Project, server: &Id<Server>) -> RoutedPort {
    let all: Vec<RoutedPort> =
        project.runtime.block_on(project.cloud.all::<Port>().list(Query::all())).expect("ports");
    all.into_iter().find(|it| it.device_id == server.as_str()).expect("it has a port")
}

/// As cloud-node writes it.
fn address(scene: &Scene, name: &str, ip: IpAddr) {
    let status = format!(r#"{{"status":{{"addresses":[{{"type":"InternalIP","address":"{ip}"}}]}}}}"#);
    let patch = ["patch", "node", name, "--subresource=status", "--type=merge", "-p", &status];
    scene.cluster.kubectl_process(&patch, "").expect("it is written");
}

fn available(scene: &Scene, name: &str) -> String {
    scene.field(&format!("node/{name}"), "{.status.conditions[?(@.type==\"NetworkUnavailable\")].status}")
}

#[test]
fn pods_of_a_real_api_servers_nodes_are_reached_by_the_router_while_the_nodes_are_there() {
    let Some((mut scene, project)) = in_a_cloud() else { return };
    let roles =
        include_str!("../../../../deploy/kubernetes/components/openstack-routes/openstack-routes.yaml");
    let roles = roles.replace(
        "kind: ServiceAccount, name: seaway-controller, namespace: seaway-system",
        "kind: User, name: seaway-controller, apiGroup: rbac.authorization.k8s.io",
    );
    scene.cluster.kubectl(&["create", "namespace", "seaway-system"]);
    scene.cluster.apply(&roles);
    let leader = ["create", "rolebinding", "routes-leader", "--clusterrole=seaway-cloud-routes-leader"];
    scene.cluster.kubectl(&[&leader[..], &[&format!("--user={CONTROLLER}")]].concat());
    project.reword("[BlockStorage]", &format!("[Route]\nrouter-id={}\n[BlockStorage]", router(&project).id));

    let mut wanted = Vec::new();
    let mut ports = Vec::new();
    let mut servers = Vec::new();
    for (at, name) in ["web-1", "web-2"].into_iter().enumerate() {
        let server = boot(&project, name);
        let port = port_of(&project, &server);
        let networks = "podCIDR: 172.20.1.0/24, podCIDRs: [172.20.1.0/24]";
        let spec = format!("providerID: \"openstack:///{server}\", {}", if at == 0 { networks } else { "" });
        scene.cluster.apply(&node(name, spec.trim_end_matches([',', ' '])));
        let ip = port.fixed_ips.first().and_then(|it| it.ip_address).expect("it has an address");
        address(&scene, name, ip);
        wanted.push(format!("{} {ip}", if at == 0 { "172.20.1.0/24" } else { "172.20.2.0/24" }));
        ports.push(port.id);
        servers.push(server);
    }
    scene.cluster.apply(&node(
        "elsewhere",
        "providerID: \"aws:///eu/i-1\", podCIDR: 172.20.3.0/24, podCIDRs: [172.20.3.0/24]",
    ));
    // Nothing renews it here, and it must not end while this machine is slow.
    let ahead = jiff::Timestamp::now() + jiff::SignedDuration::from_hours(1);
    let lease = occm(&ahead.strftime("%Y-%m-%dT%H:%M:%S.000000Z").to_string());
    scene.cluster.apply(&lease.replace("name: cloud-controller-manager", "name: openstack-routes"));
    scene.configuration = ROUTES;
    scene.controllers = "route";
    scene.lead("controller");
    until_within(PATIENCE, "the other controller is named", || {
        scene
            .log("controller")
            .contains("no route is written: OpenStack's cloud controller manager runs (occm-host_1")
    });
    assert_eq!((routes(&project).len(), available(&scene, "web-1").as_str()), (0, ""));
    scene.cluster.kubectl(&["delete", "lease", "openstack-routes", "-n", "kube-system"]);

    until_within(PATIENCE, "the Nodes are reachable", || {
        ["web-1", "web-2"].iter().all(|name| available(&scene, name) == "False")
    });
    assert_eq!(routes(&project), wanted);
    for (id, route) in ports.iter().zip(&wanted) {
        let port: Port = project.runtime.block_on(project.cloud.all::<Port>().read(id)).expect("it is there");
        let pairs: Vec<&str> = port.allowed_address_pairs.iter().map(|it| &*it.ip_address).collect();
        assert_eq!(pairs, [route.split(' ').next().expect("a network")]);
    }
    assert_eq!(available(&scene, "elsewhere"), "");
    let recorded = scene.field("configmap/seaway-routes", "{.data.routes}");
    assert!(recorded.contains("172.20.2.0/24") && recorded.contains("web-2"), "{recorded}");

    // While the server of a deleted Node is there, another cluster may use its route, as after a restored backup.
    scene.cluster.kubectl(&["delete", "node", "web-2"]);
    until_within(PATIENCE, "its route is kept", || {
        scene
            .log("controller")
            .contains(&format!("via {} of router", wanted[1].rsplit(' ').next().expect("a hop")))
    });
    assert_eq!(routes(&project), wanted);
    project.runtime.block_on(project.cloud.all::<Server>().delete(&servers[1])).expect("it goes");
    // The fake deletes it when it was looked at.
    let found = || project.runtime.block_on(project.cloud.all::<Server>().find::<Server>(&servers[1]));
    until_within(PATIENCE, "the server is gone", || found().expect("an answer").is_none());
    // Another Node begins a pass at once.
    scene.cluster.apply(&node("another", "providerID: \"aws:///eu/i-2\""));
    until_within(PATIENCE, "its route goes", || routes(&project) == wanted[..1]);
    let recorded = scene.field("configmap/seaway-routes", "{.data.routes}");
    assert!(!recorded.contains("web-2") && recorded.contains("web-1"), "{recorded}");
    assert_eq!(available(&scene, "web-1"), "False");
}
