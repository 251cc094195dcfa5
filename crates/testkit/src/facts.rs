//! Facts as sources would tell them, for tests of whatever reads facts.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
    sync::Arc,
};

use seaway_model::{
    Change, Fact, IpRange, Kind, L4, ObjectRef, Owner,
    fact::{
        AddressPool, Endpoint, EndpointAddress, EndpointPort, Endpoints, Families, FamilyPolicy, HostReport,
        Meta, Service, ServiceKind, ServicePort, TargetPort,
    },
};

/// The serving host of these tests.
pub const HOST: &str = "edge-1";

pub fn ip(text: &str) -> IpAddr {
    text.parse().expect("an address")
}

pub fn service(name: &str, ports: &[(&str, u16, TargetPort)]) -> Service {
    Service {
        meta: Meta {
            namespace: "default".into(),
            name: name.into(),
            uid: format!("uid-{name}").into(),
            ..Meta::default()
        },
        kind: ServiceKind::LoadBalancer,
        headless: false,
        cluster_ips: Vec::new(),
        selector: BTreeMap::new(),
        ports: ports
            .iter()
            .map(|(name, port, target)| ServicePort {
                name: (*name).into(),
                protocol: L4::Tcp,
                port: *port,
                target: target.clone(),
                node_port: None,
                app_protocol: None,
            })
            .collect(),
        families: Families { policy: FamilyPolicy::Single, first: None, second: None },
        affinity: None,
        local_only: false,
        health_check_node_port: None,
        load_balancer_ip: None,
        class: None,
        source_ranges: Vec::new(),
        unclear_sources: false,
        unused_route: None,
        leaving: false,
        held: seaway_model::fact::FinalizerOwner::No,
        publish_not_ready: false,
        published: Vec::new(),
        published_by_us: false,
        published_ports: Vec::new(),
        other_write: None,
    }
}

pub fn shop() -> Service {
    service("shop", &[("", 8080, TargetPort::Number(80))])
}

pub fn put(service: &Service) -> Change {
    Change::Put(Fact::Service(Arc::new(service.clone())))
}

pub fn owner(service: &Service) -> Owner {
    Owner::Object {
        object: ObjectRef::new(Kind::Service, service.meta.namespace.clone(), service.meta.name.clone()),
        uid: service.meta.uid.clone(),
    }
}

pub fn endpoint(at: &str) -> Endpoint {
    Endpoint {
        at: EndpointAddress::Ip(ip(at)),
        ready: true,
        serving: true,
        terminating: false,
        node: None,
        for_zones: Vec::new(),
        for_nodes: Vec::new(),
        backup: false,
        name: None,
    }
}

pub fn slice(service: &str, port: (&str, u16), endpoints: Vec<Endpoint>) -> Endpoints {
    Endpoints {
        object: ObjectRef::new(Kind::EndpointSlice, "default", format!("{service}-1")),
        part: 0,
        service: service.into(),
        annotations: BTreeMap::new(),
        ports: vec![EndpointPort { name: port.0.into(), protocol: L4::Tcp, port: Some(port.1) }],
        endpoints,
    }
}

pub fn put_slice(slice: &Endpoints) -> Change {
    Change::Put(Fact::Endpoints(Arc::new(slice.clone())))
}

pub fn pool(range: (&str, &str)) -> Change {
    Change::Put(Fact::AddressPool(Arc::new(AddressPool {
        object: ObjectRef::new(Kind::AddressPool, "", "public"),
        created: None,
        labels: BTreeMap::new(),
        ranges: vec![IpRange::new(ip(range.0), ip(range.1)).expect("a range")],
        hosts: false,
        control_planes: false,
        reserved_ports: BTreeSet::new(),
        announce: None,
        auto_assign: true,
        avoid_buggy: false,
        priority: 0,
        namespaces: Vec::new(),
        namespace_selectors: Vec::new(),
        service_selectors: Vec::new(),
    })))
}

pub fn host(addresses: &[&str], holds: &[&str]) -> Change {
    let report = HostReport {
        host: HOST.into(),
        addresses: addresses.iter().map(|it| ip(it)).collect(),
        holds: holds.iter().map(|it| ip(it)).collect(),
        ..HostReport::default()
    };
    Change::Put(Fact::Host(Arc::new(report)))
}

/// All that a World waits for.
pub fn synced() -> Vec<Change> {
    [
        Kind::Service,
        Kind::EndpointSlice,
        Kind::Node,
        Kind::Namespace,
        Kind::Address,
        Kind::AddressPool,
        Kind::IPAddressPool,
        Kind::LoadBalancerHost,
        Kind::NameOwner,
    ]
    .into_iter()
    .chain(Kind::ANNOUNCING)
    .map(Change::Synced)
    .collect()
}
