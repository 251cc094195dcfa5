//! What a Service says of single ports: each by itself, in a cloud and elsewhere.

use seaway_model::{
    L4, ListenerId,
    fact::{Service, ServicePort},
    load_balancer::{CloudHeaders, CloudHealthMonitorType, Protocol, ProxyVersion},
};
use seaway_testkit::facts::put;

use super::clouds::{clouded, planned, usual, world};

/// 80 `web`, 443 `tls` and 5432 `db`.
fn three(annotations: &[(&str, &str)]) -> Service {
    let mut service = clouded(annotations);
    let first = service.ports[0].clone();
    let port = |port, name: &str, node_port| ServicePort {
        port,
        name: name.into(),
        node_port: Some(node_port),
        ..first.clone()
    };
    service.ports = vec![port(80, "web", 30_080), port(443, "tls", 30_443), port(5432, "db", 30_432)];
    service
}

fn ports(service: &Service) -> Vec<(u16, Protocol, Option<ProxyVersion>)> {
    let world = world(usual(), vec![put(service)]);
    let it = planned(&world, service);
    let of = |port: u16| {
        let listener = &it.listeners[&ListenerId { l4: L4::Tcp, port }];
        let pool = it.pools.iter().find(|(id, _)| id.0.starts_with(&format!("{port}/"))).expect("a pool").1;
        (port, listener.protocol, pool.proxy)
    };
    [80, 443, 5432].map(of).into()
}

#[test]
fn protocol_and_proxy_protocol_are_said_of_single_ports() {
    let (http, opaque, v2) = (Protocol::Http, Protocol::Opaque, Some(ProxyVersion::V2));
    for (annotations, expected) in [
        (&[][..], [(opaque, None), (opaque, None), (opaque, None)]),
        (&[("seaway.dev/protocol", "web:http")], [(http, None), (opaque, None), (opaque, None)]),
        (
            &[("loadbalancer.openstack.org/x-forwarded-for", "80:true,443:true")],
            [(http, None), (http, None), (opaque, None)],
        ),
        (
            &[
                ("seaway.dev/protocol", "http,5432:tcp"),
                ("loadbalancer.openstack.org/proxy-protocol", "db:v2"),
            ],
            [(http, None), (http, None), (opaque, v2)],
        ),
        // What is said of the protocol counts more than what a header asks for.
        (
            &[("seaway.dev/protocol", "80:tcp"), ("seaway.dev/x-forwarded-for", "true")],
            [(opaque, None), (http, None), (http, None)],
        ),
        (
            &[("seaway.dev/protocol", "http"), ("seaway.dev/x-forwarded-for", "80:false")],
            [(http, None), (http, None), (http, None)],
        ),
        (&[("seaway.dev/proxy-protocol", "v2,80:none")], [(opaque, None), (opaque, v2), (opaque, v2)]),
    ] {
        let found = ports(&three(annotations));
        let found: Vec<_> = found.into_iter().map(|(_, protocol, proxy)| (protocol, proxy)).collect();
        assert_eq!(found, expected, "{annotations:?}");
    }
}

#[test]
fn headers_are_asked_of_the_ports_that_are_named_and_http_is_spoken_there() {
    let service = three(&[
        ("seaway.dev/x-forwarded-proto", "true,db:false"),
        ("seaway.dev/x-forwarded-port", "tls:true"),
        ("seaway.dev/protocol", "web:tcp"),
    ]);
    let found: Vec<_> = ports(&service).into_iter().map(|(port, protocol, _)| (port, protocol)).collect();
    assert_eq!(found, [(80, Protocol::Opaque), (443, Protocol::Http), (5432, Protocol::Opaque)]);
    let world = world(usual(), vec![put(&service)]);
    let outside = planned(&world, &service).options.cloud.clone().expect("a cloud is asked");
    let tls = ListenerId { l4: L4::Tcp, port: 443 };
    assert_eq!(outside.headers, [(tls, CloudHeaders { proto: true, port: true })].into());
}

#[test]
fn a_port_that_a_service_does_not_have_is_told_with_those_that_it_has() {
    let service = three(&[("seaway.dev/protocol", "8080:http,web:http")]);
    let world = world(usual(), vec![put(&service)]);
    let told: Vec<_> = world.problems().into_iter().filter(|it| it.message.contains("no port")).collect();
    assert_eq!(told.len(), 1, "{told:?}");
    assert!(told[0].message.contains("8080") && !told[0].message.contains("web"), "{}", told[0].message);
    assert!(told[0].fix.contains("5432 db"), "{}", told[0].fix);
    assert!(told[0].field.contains("seaway.dev/protocol"), "{}", told[0].field);
}

#[test]
fn probes_and_certificates_are_said_of_single_ports() {
    let at = |port| ListenerId { l4: L4::Tcp, port };
    let asked = |annotations: &[(&str, &str)]| {
        let service = three(annotations);
        let world = world(usual(), vec![put(&service)]);
        planned(&world, &service).options.cloud.clone().expect("a cloud is asked")
    };
    let probe = asked(&[("seaway.dev/cloud-monitor-type", "tls:TLS-HELLO,80:HTTP")]).probe;
    assert_eq!(
        [80, 443, 5432].map(|it| probe.at(at(it))),
        [Some((CloudHealthMonitorType::Http, true)), Some((CloudHealthMonitorType::TlsHello, true)), None]
    );
    let probe = asked(&[("seaway.dev/cloud-monitor-type", "PING,80:HTTP")]).probe;
    assert_eq!(probe.at(at(443)), Some((CloudHealthMonitorType::Ping, true)), "of all others");
    let (one, two) = ("https://kms/v1/containers/1", "https://kms/v1/containers/2");
    let of_ports = format!("443:{one},db:{two}");
    let tls = asked(&[("seaway.dev/tls-container", &of_ports)]).tls.expect("it ends");
    assert_eq!(tls.references, [(at(443), one.into()), (at(5432), two.into())].into());
    // As the cloud controller manager reads it: of all ports.
    let tls = asked(&[("loadbalancer.openstack.org/default-tls-container-ref", one)]).tls.expect("it ends");
    assert_eq!(tls.references.keys().map(|it| it.port).collect::<Vec<_>>(), [80, 443, 5432]);
    let chosen = [("seaway.dev/tls-container", one), ("seaway.dev/tls-ports", "443")];
    assert_eq!(asked(&chosen).tls.expect("it ends").references, [(at(443), one.into())].into());
}
