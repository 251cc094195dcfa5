//! Pods as members: the cloud's router leads to the pods of each Node, and Nodes may send from their addresses.

use std::{collections::BTreeSet, net::IpAddr};

use seaway_openstack::{
    neutron::{AddressPair, Port, PortChange, Route, Router, RouterChange},
    resource::{Query, UnknownFields},
};

use crate::stage::{AUTH_URL, Stage, until};

/// A web server on each Node.
const PODS: &str = "
apiVersion: apps/v1
kind: DaemonSet
metadata: {name: shop}
spec:
  selector: {matchLabels: {app: shop}}
  template:
    metadata: {labels: {app: shop}}
    spec: {containers: [{name: web, image: web}]}
";

const SERVICE: &str = "
apiVersion: v1
kind: Service
metadata: {name: shop, annotations: {seaway.dev/members: pods}}
spec:
  type: LoadBalancer
  loadBalancerClass: seaway.dev/octavia
  allocateLoadBalancerNodePorts: false
  selector: {app: shop}
  ports: [{port: 8080, targetPort: 80}]
";

#[test]
fn pods_are_members_and_answer_clients_outside_by_way_of_the_router_of_the_cloud() {
    let Some(mut stage) = Stage::set(&["a", "b"]) else { return };
    // OVN probes ports of Neutron, and pods have none.
    stage.land.monitors = "";
    lead_to_pods(&stage);
    stage.lead(AUTH_URL);
    let before = stage.land.everything();
    let cluster = stage.scene.cluster.clone();
    cluster.apply(PODS);
    cluster.apply(SERVICE);
    let address = stage.address("shop");
    let url = format!("http://{address}:8080/");

    let pods = |path: &str| -> BTreeSet<String> {
        let told = stage.scene.field("pods", &format!("{{.items[*]{path}}}"));
        told.split_whitespace().map(str::to_owned).collect()
    };
    let members = || -> BTreeSet<String> {
        let all = stage.land.told(&["members"]);
        all.values()
            .map(|it| format!("{}:{}", it["address"].as_str().unwrap_or_default(), it["protocol_port"]))
            .collect()
    };
    let are_members = || {
        let wanted: BTreeSet<String> = pods(".status.podIP").iter().map(|it| format!("{it}:80")).collect();
        wanted.len() == 2 && members() == wanted
    };
    let all_answer = || {
        let names = pods(".metadata.name");
        let mut missing = names.clone();
        until(&format!("each of {names:?} answers at {url}"), || {
            let answer = stage.land.rig.outside().curl(&url).unwrap_or_default();
            missing.retain(|it| !answer.starts_with(it.as_str()));
            missing.is_empty()
        });
    };
    until("both pods are members", are_members);
    all_answer();

    // Another takes the place of one of them, at another address.
    let first = pods(".metadata.name").pop_first().expect("a pod");
    cluster.kubectl(&["delete", "pod", &first]);
    until("the new one is a member instead", || !pods(".metadata.name").contains(&first) && are_members());
    all_answer();

    cluster.kubectl(&["delete", "service", "shop", "--wait=false"]);
    until("nothing is left", || stage.land.has_only(&before));
}

/// What a cloud provider's route controller does for each Node.
fn lead_to_pods(stage: &Stage) {
    let cloud = &stage.land.cloud;
    stage.land.runtime.block_on(async {
        let router = cloud.all::<Router>().list::<Router>(Query::all()).await.expect("a list").remove(0).id;
        let mut routes = Vec::new();
        for node in &stage.scene.nodes {
            let network = stage.scene.field(&format!("node/{}", node.name()), "{.spec.podCIDR}");
            let nexthop: IpAddr = node.addresses()[0].parse().expect("an address");
            let named = Query::all().with("name", node.name());
            let port = cloud.all::<Port>().list::<Port>(named).await.expect("a list").remove(0).id;
            let pairs = vec![AddressPair::of(&network)];
            let change = PortChange { allowed_address_pairs: pairs.into(), ..PortChange::default() };
            cloud.all::<Port>().change(&port, &change).await.expect("the port is changed");
            routes.push(Route { destination: network, nexthop, rest: UnknownFields::new() });
        }
        let change = RouterChange { routes: routes.into(), ..RouterChange::default() };
        cloud.all::<Router>().change(&router, &change).await.expect("routes");
    });
}
