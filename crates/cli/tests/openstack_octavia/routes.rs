//! Routes to pods, in a router of the real Neutron: what it adds, refuses and counts.

use seaway_openstack::{
    neutron::{AddressPair, NewPort, Port, Route, Router, RouterChange},
    resource::{Id, Query},
};

use crate::{
    scene::CONTROLLER,
    stage::{AUTH_URL, Stage, until},
};

impl Stage {
    fn router(&self) -> Router {
        self.land
            .runtime
            .block_on(self.land.cloud.all::<Router>().list(Query::all()))
            .expect("routers")
            .remove(0)
    }

    fn set_routes(&self, routes: Vec<Route>) {
        let change = RouterChange { routes: routes.into(), ..RouterChange::default() };
        let id = self.router().id;
        self.land.runtime.block_on(self.land.cloud.all::<Router>().change(&id, &change)).expect("it may");
    }

    fn port(&self, id: &Id<Port>) -> Port {
        self.land.runtime.block_on(self.land.cloud.all::<Port>().read(id)).expect("it is there")
    }

    /// A Node that is a port, with a pair of an operator.
    fn node(&self, name: &str, server: &str, network: &str) -> Id<Port> {
        let new = NewPort {
            device_id: server.into(),
            allowed_address_pairs: vec![AddressPair::of("192.0.2.1")].into(),
            ..NewPort::new(self.land.network.clone())
        };
        let port = self.land.runtime.block_on(self.land.cloud.all::<Port>().create(&new)).expect("a port");
        let ip = port.fixed_ips.first().and_then(|it| it.ip_address).expect("it has an address");
        let cluster = &self.scene.cluster;
        cluster.apply(&format!(
            "apiVersion: v1\nkind: Node\nmetadata: {{name: {name}}}\n\
             spec: {{providerID: \"openstack:///{server}\", podCIDR: {network}, podCIDRs: [{network}]}}\n"
        ));
        let status = format!(r#"{{"status":{{"addresses":[{{"type":"InternalIP","address":"{ip}"}}]}}}}"#);
        let patch = ["patch", "node", name, "--subresource=status", "--type=merge", "-p", &status];
        cluster.kubectl_process(&patch, "").expect("it is written");
        port.id
    }

    fn reaches(&self, node: &str) -> bool {
        let path = "{.status.conditions[?(@.type==\"NetworkUnavailable\")].status}";
        self.scene.field(&format!("node/{node}"), path) == "False"
    }
}

#[test]
fn a_router_of_the_real_neutron_leads_to_pods_and_routes_of_others_stay() {
    let Some(mut stage) = Stage::set(&[]) else { return };
    let roles =
        include_str!("../../../../deploy/kubernetes/components/openstack-routes/openstack-routes.yaml");
    let roles = roles.replace(
        "kind: ServiceAccount, name: seaway-controller, namespace: seaway-system",
        "kind: User, name: seaway-controller, apiGroup: rbac.authorization.k8s.io",
    );
    stage.scene.cluster.kubectl(&["create", "namespace", "seaway-system"]);
    stage.scene.cluster.apply(&roles);
    let leader = ["create", "rolebinding", "routes-leader", "--clusterrole=seaway-cloud-routes-leader"];
    stage.scene.cluster.kubectl(&[&leader[..], &[&format!("--user={CONTROLLER}")]].concat());
    let servers = ["7d0c4b13-0000-4000-8000-000000000001", "7d0c4b13-0000-4000-8000-000000000002"];
    let ports =
        [stage.node("web-1", servers[0], "10.244.1.0/24"), stage.node("web-2", servers[1], "10.244.2.0/24")];
    // An operator's, and one that leads nowhere to the pods of a Node.
    let theirs = || Route::to("172.16.0.0/24", "10.0.0.250".parse().expect("an address"));
    stage.set_routes(vec![theirs(), Route::to("10.244.1.0/24", "10.0.0.251".parse().expect("an address"))]);

    let section = format!("[Route]\nrouter-id={}\n", stage.router().id);
    stage.land.options = Box::leak(section.into_boxed_str());
    stage.scene.controllers = "route";
    stage.lead(AUTH_URL);
    until("the Nodes are reachable", || ["web-1", "web-2"].iter().all(|it| stage.reaches(it)));
    let ip =
        |id: &Id<Port>| stage.port(id).fixed_ips.first().and_then(|it| it.ip_address).expect("it has one");
    let routes = |stage: &Stage| {
        let mut all: Vec<String> =
            stage.router().routes.iter().map(|it| format!("{} {}", it.destination, it.nexthop)).collect();
        all.sort();
        all
    };
    let operator = "172.16.0.0/24 10.0.0.250".to_owned();
    let wanted = [
        format!("10.244.1.0/24 {}", ip(&ports[0])),
        format!("10.244.2.0/24 {}", ip(&ports[1])),
        operator.clone(),
    ];
    assert_eq!(routes(&stage), wanted);
    for (port, network) in ports.iter().zip(["10.244.1.0/24", "10.244.2.0/24"]) {
        let mut pairs: Vec<String> =
            stage.port(port).allowed_address_pairs.into_iter().map(|it| it.ip_address).collect();
        pairs.sort();
        assert!(pairs.len() == 2 && pairs.contains(&network.to_owned()), "{pairs:?}");
    }
    // Nothing changed, nothing is written: another pass, of a new leader, leaves the revision as it is.
    let revisions = |stage: &Stage| (stage.router().revision_number, stage.port(&ports[0]).revision_number);
    let before = revisions(&stage);
    stage.scene.cluster.kubectl(&["annotate", "node", "web-1", "seen=1"]);
    stage.scene.cluster.kubectl(&["delete", "node", "web-2"]);
    // While its port is there, another cluster may use the route, as after a restored backup.
    until("the route is kept", || {
        stage.scene.log("controller").contains(&format!("via {} of router", ip(&ports[1])))
    });
    assert_eq!(routes(&stage), wanted);
    stage.land.runtime.block_on(stage.land.cloud.all::<Port>().delete(&ports[1])).expect("it goes");
    // Another Node begins a pass at once.
    let another =
        "apiVersion: v1\nkind: Node\nmetadata: {name: another}\nspec: {providerID: \"aws:///eu/i-1\"}\n";
    stage.scene.cluster.apply(another);
    until("the route of the Node that is gone goes", || {
        routes(&stage) == [wanted[0].clone(), operator.clone()]
    });
    assert_eq!(revisions(&stage).1, before.1);

    // More than the rig's Neutron allows: it says so as the fake does.
    let many =
        (0..101).map(|it| Route::to(format!("172.17.{it}.0/24"), "10.0.0.250".parse().expect("an address")));
    let change = RouterChange { routes: many.collect::<Vec<_>>().into(), ..RouterChange::default() };
    let id = stage.router().id;
    let refused = stage.land.runtime.block_on(stage.land.cloud.all::<Router>().change(&id, &change));
    let refused = refused.expect_err("101 routes").to_string();
    assert!(refused.contains("exceeds the maximum 100"), "{refused}");
    // The next test has the router as it was.
    stage.scene.kill("controller");
    stage.set_routes(Vec::new());
}
