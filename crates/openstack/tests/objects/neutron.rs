use seaway_openstack::{
    Call, Class, Cloud, Service,
    neutron::{
        AddressPair, Direction, EtherType, Extension, FixedIp, FloatingIp, FloatingIpChange, Gateway,
        Network, NetworkChange, NewFloatingIp, NewPort, NewRouter, NewSecurityGroup, NewSecurityGroupRule,
        Port, PortChange, Route, Router, RouterChange, SecurityGroup, SecurityGroupChange, SecurityGroupRule,
        Subnet,
    },
    resource::{Query, To, UnknownFields},
};
use serde_json::json;

use super::{network, outside, plug};

fn route(destination: &str, nexthop: &str) -> Route {
    Route {
        destination: destination.to_owned(),
        nexthop: nexthop.parse().expect("an address"),
        rest: UnknownFields::new(),
    }
}

pub(crate) async fn networks_and_routers(cloud: &Cloud) {
    let extensions = cloud.all::<Extension>().list::<Extension>(Query::all()).await.expect("extensions");
    assert!(extensions.iter().any(|it| it.id.as_str() == "extraroute-atomic"), "{extensions:?}");
    let (network, subnet) = network(cloud, "walk", "10.33.0.0/24").await;

    let networks = cloud.all::<Network>();
    let read = networks.read::<Network>(&network).await.expect("it is there");
    let revision = read.revision_number.expect("Neutron counts");
    let renamed = NetworkChange { description: "walked over".into(), ..Default::default() };
    let changed = networks.change_if(revision, &network, &renamed).await.expect("nobody was faster");
    assert_eq!((changed.name.as_str(), changed.description.as_str()), ("walk", "walked over"));
    let stale = networks.change_if(revision, &network, &renamed).await.expect_err("we were faster ourselves");
    assert_eq!(stale.class(), &Class::Stale, "{stale}");

    let tags = ["b", "c d"].map(str::to_owned).into();
    networks.replace_tags(&network, &tags).await.expect("tagged");
    let tagged = networks.list::<Network>(Query::all().tagged(["b", "c d"])).await.expect("networks");
    assert_eq!(tagged.iter().map(|it| &it.id).collect::<Vec<_>>(), [&network]);

    let routers = cloud.all::<Router>();
    let new = NewRouter {
        name: "walk".into(),
        external_gateway_info: Some(Gateway::of_network(outside(cloud).await)).into(),
        ..NewRouter::new()
    };
    let router = routers.create(&new).await.expect("a router").id;
    plug(cloud, &router, &subnet).await;
    let route = route("10.90.0.0/16", "10.33.0.9");
    for routes in [vec![route], vec![]] {
        let change = RouterChange { routes: routes.clone().into(), ..RouterChange::default() };
        assert_eq!(routers.change(&router, &change).await.expect("changed").routes, routes);
    }
    let taken = cloud.all::<Subnet>().delete(&subnet).await.expect_err("the router is on it");
    assert_eq!(taken.class(), &Class::InUse, "{taken}");
    let path = format!("/routers/{router}/remove_router_interface");
    let call = Call::put(Service::Network, "remove router interface", path, json!({ "subnet_id": subnet }));
    cloud.call(call).await.expect("unplugged");
    routers.delete(&router).await.expect("deleted");
    networks.delete(&network).await.expect("deleted");
    assert_eq!(networks.find::<Network>(&network).await.expect("an answer"), None);
}

pub(crate) async fn addresses_and_groups(cloud: &Cloud) {
    let outside = outside(cloud).await;
    let (network, subnet) = network(cloud, "groups", "10.34.0.0/24").await;
    let groups = cloud.all::<SecurityGroup>();
    let new = NewSecurityGroup { name: "walk".into(), ..NewSecurityGroup::new() };
    let group = groups.create(&new).await.expect("a group").id;
    let rules = cloud.all::<SecurityGroupRule>();
    let new = NewSecurityGroupRule {
        protocol: Some("tcp".to_owned()).into(),
        port_range_min: Some(80).into(),
        port_range_max: Some(90).into(),
        remote_ip_prefix: Some("10.0.0.0/8".to_owned()).into(),
        ..NewSecurityGroupRule::new(group.clone(), Direction::Ingress, EtherType::V4)
    };
    let rule = rules.create(&new).await.expect("a rule");
    let twice = rules.create(&new).await.expect_err("it is there");
    assert_eq!(twice.class(), &Class::Duplicate, "{twice}");
    let read = groups.read::<SecurityGroup>(&group).await.expect("it is there");
    assert!(read.security_group_rules.0.iter().any(|it| it.id == rule.id), "{read:?}");
    let change = SecurityGroupChange { description: "walked over".into(), ..Default::default() };
    groups.change(&group, &change).await.expect("changed");

    let ports = cloud.all::<Port>();
    let new = NewPort {
        name: "walk".into(),
        fixed_ips: vec![FixedIp::on(subnet)].into(),
        security_groups: vec![group.clone()].into(),
        ..NewPort::new(network.clone())
    };
    let port = ports.create(&new).await.expect("a port");
    let change = PortChange {
        allowed_address_pairs: vec![AddressPair::of("10.90.0.0/16")].into(),
        ..Default::default()
    };
    let port = ports.change(&port.id, &change).await.expect("changed");
    assert_eq!((port.allowed_address_pairs.len(), &port.security_groups), (1, &vec![group.clone()]));
    let at = port.fixed_ips[0].ip_address.expect("an address");
    let query = Query::all().with("network_id", &network).with("fixed_ips", format!("ip_address={at}"));
    let found = ports.list::<Port>(query).await.expect("ports");
    assert_eq!(found.iter().map(|it| &it.id).collect::<Vec<_>>(), [&port.id]);
    let taken = groups.delete(&group).await.expect_err("the port has it");
    assert_eq!(taken.class(), &Class::InUse, "{taken}");

    let floating = cloud.all::<FloatingIp>();
    let new = NewFloatingIp { description: "walk".into(), ..NewFloatingIp::new(outside) };
    let address = floating.create(&new).await.expect("a floating IP");
    assert_eq!(address.port_id, None);
    let unreachable = FloatingIpChange { port_id: To(Some(port.id.clone())), ..Default::default() };
    let refused = floating.change(&address.id, &unreachable).await.expect_err("no router is between them");
    assert!(matches!(refused.class(), Class::NotFound | Class::Invalid | Class::Conflict), "{refused:?}");
    floating.delete(&address.id).await.expect("deleted");
    ports.delete(&port.id).await.expect("deleted");
    rules.delete(&rule.id).await.expect("deleted");
    groups.delete(&group).await.expect("deleted");
    cloud.all::<Network>().delete(&network).await.expect("deleted");
}
