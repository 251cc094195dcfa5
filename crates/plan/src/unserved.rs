//! What of a folder is probably not meant: a Service that another controller is to serve, a database at the front door, a
//! listener before it. In a cluster these are usual, so only a check of a folder names them.

use std::net::SocketAddr;

use ipnet::IpNet;
use seaway_model::{L4, ObjectRef, Problem, Reason, fact::Service, load_balancer::Bind};

use crate::{
    annotations::{DENIED, FRONT_DOOR, HOST, PATH, SOURCE_RANGES},
    demand::is_ours,
    index::ServiceKey,
    unlikely_values,
    world::World,
};

/// Ports of protocols that are not HTTP.
const NOT_HTTP: [(u16, &str); 20] = [
    (21, "FTP"),
    (22, "SSH"),
    (25, "SMTP"),
    (53, "DNS"),
    (143, "IMAP"),
    (389, "LDAP"),
    (465, "SMTP"),
    (587, "SMTP"),
    (993, "IMAP"),
    (1433, "SQL Server"),
    (1521, "Oracle"),
    (1883, "MQTT"),
    (3306, "MySQL"),
    (5432, "PostgreSQL"),
    (5672, "AMQP"),
    (6379, "Redis"),
    (9042, "Cassandra"),
    (9092, "Kafka"),
    (11211, "memcached"),
    (27017, "MongoDB"),
];

/// Of all Services of a folder.
pub fn unserved_problems(world: &World) -> Vec<Problem> {
    let mut problems: Vec<Problem> = Vec::new();
    for (key, service) in world.index().services() {
        problems.extend(of_other_class(world, key, service));
        problems.extend(no_http(world, key, service));
        problems.extend(before_the_front_door(world, key, service));
        problems.extend(with_host_bits(key, service));
        problems.extend(unlikely_values::of_service(world, key, service));
    }
    problems.sort();
    problems
}

/// Whether nothing at all would be served.
pub fn serves_nothing(world: &World) -> bool {
    world.overview().is_empty() && world.front_door().is_none_or(|it| it.entrances.is_empty())
}

fn of_other_class(world: &World, key: &ServiceKey, service: &Service) -> Option<Problem> {
    let class = service.class.as_ref().filter(|_| !is_ours(service, world.config()))?;
    let object: ObjectRef = key.object();
    let is_served = world.overview().iter().any(|it| it.status.owner.object() == object)
        || !world.pools_at_door(key).is_empty();
    let classes = &world.config().classes;
    let known: Vec<String> = classes.iter().map(ToString::to_string).collect();
    let message = format!("the Service is not served: its class {class} is not one of Seaway's");
    let problem = Problem::new(object, Reason::Ignored, message).at("spec.loadBalancerClass");
    (!is_served).then(|| {
        problem.fix(format!(
            "Remove loadBalancerClass, or write {}. Other classes are listed in loadBalancerClasses of seaway.yaml.",
            known.join(" or ")
        ))
    })
}

fn no_http(world: &World, key: &ServiceKey, service: &Service) -> Option<Problem> {
    let is_asked_for = [FRONT_DOOR, HOST, PATH].iter().any(|it| service.meta.annotations.contains_key(*it));
    let speaks = |port: u16| NOT_HTTP.iter().find(|(number, _)| *number == port);
    let (index, (port, protocol)) = service.ports.iter().enumerate().find_map(|(index, it)| {
        let is_plain = it.protocol == L4::Tcp && it.app_protocol.is_none();
        Some((index, speaks(it.port).filter(|_| is_plain)?))
    })?;
    let is_there = || !world.pools_at_door(key).is_empty();
    let message = format!(
        "port {port} is usually {protocol}, and this Service is at the front door, which speaks HTTP: it has no type and no appProtocol"
    );
    (!is_asked_for && is_there()).then(|| {
        Problem::new(key.object(), Reason::Ignored, message).at(format!("spec.ports[{index}]")).fix(format!(
            "For {protocol}, write type: LoadBalancer. If it is HTTP, write appProtocol: http at the port. To serve neither, \
             write the annotation {FRONT_DOOR}: \"false\"."
        ))
    })
}

/// `10.0.0.5/8` is 10.0.0.0/8: perhaps that one address was meant. `kubectl` warns of it, too.
fn with_host_bits(key: &ServiceKey, service: &Service) -> Vec<Problem> {
    let problem = |field: String, net: IpNet| {
        let (whole, one) = (net.trunc(), IpNet::from(net.addr()));
        let message =
            format!("{net} has host bits set, so it stands for all of {whole}, not for {} alone", net.addr());
        let problem = Problem::new(key.object(), Reason::Ignored, message).at(field);
        problem.fix(format!("Write {whole} for the whole network, or {one} for the one address."))
    };
    let of_annotation = |name: &'static str| {
        let text = service.meta.annotations.get(name).map(|it| &**it).unwrap_or_default();
        let nets = text.split(',').filter_map(|it| it.trim().parse::<IpNet>().ok());
        nets.map(move |net| (format!("metadata.annotations[{name}]"), net))
    };
    let all = [SOURCE_RANGES, DENIED].into_iter().flat_map(of_annotation);
    all.filter(|(_, net)| net.trunc() != *net).map(|(field, net)| problem(field, net)).collect()
}

/// A Service whose own listener gets what is meant for the front door: at each address of the machine, the one that is bound there
/// comes before the one that is bound at all of them.
fn before_the_front_door(world: &World, key: &ServiceKey, service: &Service) -> Option<Problem> {
    let door = &world.config().front_door;
    let written = &service.meta.annotations;
    let is_asked_for = [HOST, PATH].iter().any(|it| written.contains_key(*it))
        || written.get(FRONT_DOOR).is_some_and(|it| **it == *"true");
    let is_at_all = door.addresses.iter().all(|it| it.is_unspecified());
    if !is_at_all || !is_asked_for || world.pools_at_door(key).is_empty() {
        return None;
    }
    let overview = world.overview();
    let own = overview.iter().find(|it| it.status.owner.object() == key.object())?;
    let balancer = &own.load_balancer;
    let at = balancer.binds.iter().find_map(|it| if let Bind::Host(ip) = it { Some(*ip) } else { None })?;
    let is_taken = |port: u16| {
        port == door.port && balancer.listeners.keys().any(|it| it.l4 == L4::Tcp && it.port == port)
    };
    let (index, port) = service.ports.iter().enumerate().find(|(_, it)| is_taken(it.port))?;
    let at = SocketAddr::new(at, port.port);
    let message = format!(
        "this Service listens at {at} itself, so clients do not reach the front door there: no host name, no redirect to https, \
         no check of an ACME authority, and none of the other Services at the front door"
    );
    Some(Problem::new(key.object(), Reason::PortConflict, message).at(format!("spec.ports[{index}].port")).fix(
        "To have it at the front door alone, remove type: LoadBalancer. To have both, choose another port.",
    ))
}
