//! A World with a front door, told Services and routes.

use std::{collections::BTreeMap, sync::Arc};

use seaway_model::{
    Change, Config, Desired, Fact, Listener, LoadBalancer, Name, Owner, Problem, Time, Unit,
    config::FrontDoor,
    fact::{FactRef, HttpRoute, Meta, Secret, Service, ServiceKind, TargetPort},
    load_balancer::{Action, Rule},
    unit::{LbKey, Place},
};
use seaway_testkit::facts::{self, HOST, host, synced};

use crate::{Demand, Placement, Roles, World, dry_run, front_door};

/// Of an authority, in PEM, for a hundred years.
pub(super) const CA: &str = "-----BEGIN CERTIFICATE-----\n\
    MIIBMDCB46ADAgECAhQ2inRLo+0tDIqdONgA4MFiIyqv8jAFBgMrZXAwDTELMAkG\n\
    A1UEAwwCY2EwIBcNMjYxMTI4MjA1MDEzWhgPMjEyNjExMDQyMDUwMTNaMA0xCzAJ\n\
    BgNVBAMMAmNhMCowBQYDK2VwAyEA3XPYMYMar/80QjquCRAidzjTWPzet/wPSC+4\n\
    o9NtBdejUzBRMB0GA1UdDgQWBBTW9VtUMhJUbc6hmeuE48MT4JFgCDAfBgNVHSME\n\
    GDAWgBTW9VtUMhJUbc6hmeuE48MT4JFgCDAPBgNVHRMBAf8EBTADAQH/MAUGAytl\n\
    cANBAHsIqjYrJqvzFcNMfcAWw0/YWErL7+G9t8hZXzadEbS3vWSAd9cJGPkjfHPj\n\
    UQt4/kymr64UHUplPa2rJzvG6Qs=\n\
    -----END CERTIFICATE-----\n";

struct OnHost;

impl Placement for OnHost {
    fn units(&self, demand: &Demand) -> Vec<Unit> {
        vec![unit(&demand.owner)]
    }

    fn front_door(&self, owner: &Owner) -> Vec<Unit> {
        vec![unit(owner)]
    }
}

pub(super) fn unit(owner: &Owner) -> Unit {
    let place = Place::Host { name: HOST.into(), driver: "native".into() };
    Unit::LoadBalancer(place, LbKey::Of(owner.clone()))
}

pub(super) fn door() -> Unit {
    unit(&front_door::owner())
}

/// A World that was told everything.
pub(super) fn world(config: Config, changes: impl IntoIterator<Item = Change>) -> World {
    let roles = Roles { allocate: true, host: Some(HOST.into()) };
    let mut world = World::new(roles, vec![Arc::new(OnHost)], Arc::new(config));
    let first = [host(&["192.0.2.5"], &[])];
    dry_run(&mut world, first.into_iter().chain(changes).chain(synced()));
    world
}

pub(super) fn with(front_door: FrontDoor) -> Config {
    Config { front_door, ..Config::default() }
}

/// `shop/cart`, of type ClusterIP, with these ports.
pub(super) fn service(name: &str, ports: &[u16]) -> Service {
    let (namespace, name) = name.split_once('/').unwrap_or(("default", name));
    let named: Vec<(String, u16)> = ports.iter().map(|port| (format!("p{port}"), *port)).collect();
    let ports: Vec<(&str, u16, TargetPort)> =
        named.iter().map(|(name, port)| (name.as_str(), *port, TargetPort::Number(*port))).collect();
    let mut service = facts::service(name, &ports);
    service.kind = ServiceKind::ClusterIp;
    service.meta.namespace = namespace.into();
    service.meta.uid = format!("uid-{namespace}-{name}").into();
    service
}

pub(super) fn saying(mut service: Service, annotations: &[(&str, &str)]) -> Service {
    let said = annotations.iter().map(|(key, value)| (Name::from(*key), Name::from(*value)));
    service.meta.annotations.extend(said);
    service
}

pub(super) fn born(mut service: Service, at: u64) -> Service {
    service.meta.created = Some(Time(at));
    service
}

pub(super) fn speaking(mut service: Service, port: usize, protocol: &str) -> Service {
    service.ports[port].app_protocol = Some(protocol.into());
    service
}

pub(super) fn put(service: &Service) -> Change {
    facts::put(service)
}

pub(super) fn gone(service: &Service) -> Change {
    Change::Gone(FactRef::Object(facts::owner(service).object()))
}

/// One endpoint behind each port.
pub(super) fn backed(service: &Service) -> Change {
    let mut slice =
        facts::slice(&service.meta.name, ("", service.ports[0].port), vec![facts::endpoint("10.0.0.1")]);
    slice.object.namespace = service.meta.namespace.clone();
    slice.ports = service
        .ports
        .iter()
        .map(|port| seaway_model::fact::EndpointPort {
            name: port.name.clone(),
            protocol: port.protocol,
            port: Some(port.port),
        })
        .collect();
    facts::put_slice(&slice)
}

pub(super) fn route(name: &str, rules: Vec<seaway_model::fact::RouteRule>) -> HttpRoute {
    let (namespace, name) = name.split_once('/').unwrap_or(("default", name));
    let meta = Meta {
        namespace: namespace.into(),
        name: name.into(),
        uid: format!("uid-{namespace}-{name}").into(),
        created: None,
        labels: BTreeMap::new(),
        annotations: BTreeMap::new(),
    };
    HttpRoute { meta, parents: Vec::new(), hosts: Vec::new(), rules, guessed: false }
}

pub(super) fn put_route(route: &HttpRoute) -> Change {
    Change::Put(Fact::HttpRoute(Arc::new(route.clone())))
}

pub(super) fn told(secret: &Secret) -> Change {
    Change::Put(Fact::Secret(Arc::new(secret.clone())))
}

pub(super) fn took(secret: &Secret) -> Change {
    Change::Gone(FactRef::Object(secret.object.clone()))
}

pub(super) fn load_balancer(world: &World) -> Option<Arc<LoadBalancer>> {
    match world.desire(&door()) {
        Desired::LoadBalancer(it) => Some(it),
        _ => None,
    }
}

pub(super) fn listener(world: &World) -> Arc<Listener> {
    load_balancer(world).expect("the front door is open").listeners.values().next().expect("one").clone()
}

/// `"/cart /shop/cart -> shop/cart:80"`, a line for each entrance, what was lost left out.
pub(super) fn entrances(world: &World) -> Vec<String> {
    let view = world.front_door().map(|it| it.entrances).unwrap_or_default();
    view.iter().flat_map(|it| it.leads.iter().map(|lead| format!("{} -> {}", lead.at, lead.to))).collect()
}

/// The same, without places that are closed for the sake of what protects them.
pub(super) fn served(world: &World) -> Vec<String> {
    entrances(world).into_iter().filter(|it| !it.ends_with(" -> answer 503")).collect()
}

/// `"Service default/shop: field: message"`
pub(super) fn problems(world: &World) -> Vec<String> {
    world.problems().iter().map(Problem::to_string).collect()
}

pub(super) fn forwards(rule: &Rule) -> Vec<(String, u32)> {
    match &rule.action {
        Action::Forward(pools) => pools.iter().map(|(id, weight)| (id.to_string(), *weight)).collect(),
        other => panic!("it forwards nothing: {other:?}"),
    }
}
