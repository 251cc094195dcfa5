//! What an owner asks for, read from its object once: which ports, with which wishes, from which Service.
//!
//! A Service of type LoadBalancer and an entry of `tcpServices` differ only here; after it both are a Demand.

use std::{collections::BTreeSet, sync::Arc};

use ipnet::IpNet;
use seaway_model::{
    Config, L4, ListenerId, Name, ObjectRef, Owner, Problem, Reason,
    config::{CloudDefaults, ExposedPort, SharedLoadBalancerScope},
    fact::{FinalizerOwner, Service, ServiceKind, ServicePort, TargetPort},
    load_balancer::{Protocol, ProxyVersion},
};

use crate::{
    access_rules::source_ranges,
    annotations::{
        FORWARDED_FOR, FORWARDED_PORT, FORWARDED_PROTO, PROBE_KIND, PROTOCOL, PROXY, PerPort, SOURCE_RANGES,
        ServiceOptions, TLS_CONTAINER, gives_away, nobody,
    },
    http::{self, PortProtocol, protocol_of},
    index::{Index, ServiceKey},
    members::is_served,
    tenant_limits,
};

#[derive(Clone, Debug, PartialEq)]
pub struct Demand {
    pub owner: Owner,
    pub service: Arc<Service>,
    pub ports: Vec<DemandPort>,
    pub wishes: ServiceOptions,
    /// Only on the host's own addresses, whatever pools there are; on this one of them, if given.
    pub hosts_only: bool,
    /// At its own listeners, where its ports do not say otherwise.
    pub speaks_http: bool,
    pub address: Option<std::net::IpAddr>,
    /// A cloud serves it, not our hosts: the class by which it is asked, and what is usual there.
    pub cloud: Option<(Name, Arc<CloudDefaults>)>,
    /// No setting chooses that cloud for it any more, and what the cloud has for it is left as it is.
    pub released: bool,
    /// Which load balancers of a cloud that are not its own it may begin to share.
    pub join: SharedLoadBalancerScope,
    /// Of one of its ports, from each host of ours.
    pub checks_per_second: Option<u32>,
    pub problems: Vec<Problem>,
}

/// One listener to be.
#[derive(Clone, Debug, PartialEq)]
pub struct DemandPort {
    pub listen: u16,
    pub port: ServicePort,
    /// Where it is written: `spec.ports[0]`, `tcpServices[0]`.
    pub field: String,
}

impl DemandPort {
    pub fn id(&self) -> ListenerId {
        ListenerId { l4: self.port.protocol, port: self.listen }
    }

    /// Whether it is called so.
    pub(crate) fn is(&self, named: &TargetPort) -> bool {
        match named {
            TargetPort::Number(number) => *number == self.port.port,
            TargetPort::Name(name) => *name == self.port.name,
        }
    }
}

impl Demand {
    /// What a Service asks of our own data plane or a cloud; nothing, if it is not ours.
    pub fn of_service(service: &Arc<Service>, config: &Config) -> Option<Demand> {
        Demand::of_held(service, FinalizerOwner::No, config)
    }

    /// The same, of a Service that is held by a finalizer: what a cloud has for it stays, whatever settings say.
    pub fn of_held(service: &Arc<Service>, held: FinalizerOwner, config: &Config) -> Option<Demand> {
        if service.kind != ServiceKind::LoadBalancer {
            return None;
        }
        let wanted = cloud_of(service, config);
        let cloud = wanted.or_else(|| released_by(service, held, config));
        if cloud.is_none() && !is_native(service, config) {
            return None;
        }
        // What is there for it goes before it does.
        if cloud.is_some_and(|(_, it)| !it.absent) && service.leaving {
            return None;
        }
        let cloud = cloud.map(|(class, defaults)| (class.clone(), defaults.clone()));
        let released = wanted.is_none() && cloud.is_some();
        let mut demand =
            Demand::of_ports(whose(service), service, own_ports(service).collect(), config, cloud);
        demand.released = released;
        demand.told_of_clouds();
        demand.problems.extend(demand.unknown_ports());
        Some(demand)
    }

    /// What a Service asks of our own data plane, whatever settings say.
    pub(crate) fn of_native(service: &Arc<Service>, config: &Config) -> Demand {
        let mut demand = Demand::new(whose(service), service, own_ports(service).collect(), config);
        demand.problems.extend(demand.unknown_ports());
        demand
    }

    /// What is wanted of those ports of a Service that the front door leads to.
    pub(crate) fn at_front_door(service: &Arc<Service>, wanted: &BTreeSet<u16>, config: &Config) -> Demand {
        let led_to = |it: &DemandPort| it.port.protocol == L4::Tcp && wanted.contains(&it.listen);
        Demand::new(whose(service), service, own_ports(service).filter(led_to).collect(), config)
    }

    /// What an entry of `tcpServices` or `udpServices` asks. Without its Service: a Problem.
    pub fn of_exposed(exposed: &ExposedPort, index: &Index, config: &Config) -> Result<Demand, Problem> {
        let owner = Owner::Config(exposed.key.clone());
        let key = ServiceKey::new(exposed.namespace.clone(), exposed.service.clone());
        let problem = |reason, message| Problem::new(owner.object(), reason, message).at(exposed.key.clone());
        if let Some(ip) = exposed.address.filter(|ip| !config.may_listen(&[*ip])) {
            let only: Vec<String> = config.listen_only.iter().map(ToString::to_string).collect();
            let message = format!(
                "it listens nowhere: its address is {ip}, and --address names {} alone",
                only.join(", ")
            );
            let fix = format!("Add --address {ip}, or correct {}.address.", exposed.key);
            return Err(problem(Reason::AddressMissing, message).fix(fix));
        }
        let service = index.service(&key).ok_or_else(|| {
            problem(Reason::NoSuchService, format!("there is no Service {}/{}", key.namespace, key.name))
                .fix("Write the Service, or remove the entry.")
        })?;
        let port = port_named(service, exposed).ok_or_else(|| {
            let has: Vec<String> = service.ports.iter().map(ServicePort::shown).collect();
            problem(
                Reason::NoSuchPort,
                format!("Service {}/{} has no such {} port", key.namespace, key.name, exposed.l4),
            )
            .fix(format!("The Service has: {}.", has.join(", ")))
        })?;
        let listen = exposed.listen.unwrap_or(port.port);
        let ports = vec![DemandPort { listen, port, field: exposed.key.to_string() }];
        let mut demand = Demand::new(owner, service, ports, config);
        demand.hosts_only = true;
        // tcpServices and udpServices say what it is.
        demand.speaks_http = false;
        demand.wishes.http.spoken_at = PerPort::default();
        demand.address = exposed.address;
        Ok(demand)
    }

    fn new(owner: Owner, service: &Arc<Service>, ports: Vec<DemandPort>, config: &Config) -> Demand {
        Demand::of_ports(owner, service, ports, config, None)
    }

    fn of_ports(
        owner: Owner,
        service: &Arc<Service>,
        ports: Vec<DemandPort>,
        config: &Config,
        cloud: Option<(Name, Arc<CloudDefaults>)>,
    ) -> Demand {
        let object = ServiceKey::new(service.meta.namespace.clone(), service.meta.name.clone()).object();
        let mut wishes = ServiceOptions::of(&config.defaults);
        let mut problems = wishes.read_of(&object, service);
        // Who may connect is not known: nobody at our own listeners, and a cloud's load balancer stays as it is.
        wishes.cloud.unclear |= service.unclear_sources || !unknown_tls_ports(service, &wishes).is_empty();
        // A cloud asks nobody for a password.
        wishes.cloud.unclear |= wishes.http.asks_who_it_is();
        if cloud.is_none() {
            problems.extend(wishes.close_internal(service, config));
            problems.extend(tenant_limits::apply(&object, &mut wishes, &config.tenants.limits));
        }
        if let Some(text) = &service.load_balancer_ip {
            match text.parse() {
                Ok(ip) if wishes.requested.is_empty() => {
                    wishes.requested = vec![ip];
                    wishes.requested_field = "spec.loadBalancerIP".into();
                }
                Ok(ip) if wishes.requested.contains(&ip) => {}
                Ok(_) => problems.push(
                    Problem::new(
                        object.clone(),
                        Reason::BadAnnotation,
                        format!("{} requests another address; this field is ignored", wishes.requested_field),
                    )
                    .at("spec.loadBalancerIP")
                    .fix("Ask for the address in one place only."),
                ),
                Err(_) => problems.push(
                    Problem::new(
                        object.clone(),
                        Reason::Invalid,
                        format!("{text:?} is not an address; it is ignored"),
                    )
                    .at("spec.loadBalancerIP"),
                ),
            }
        }
        let field = &service.source_ranges;
        if !field.is_empty() && !wishes.sources.is_empty() && wishes.sources != *field {
            let message = "spec.loadBalancerSourceRanges says who may connect; this annotation is ignored";
            problems.push(
                Problem::new(object.clone(), Reason::BadAnnotation, message)
                    .at(wishes.field_of(SOURCE_RANGES))
                    .fix("Write all networks into spec.loadBalancerSourceRanges, and remove the annotation."),
            );
        }
        // Who ends TLS means HTTP, unless it says otherwise.
        let speaks_http = wishes.http.spoken.unwrap_or(!wishes.tls.secrets.is_empty());
        let mut served = Vec::new();
        for port in ports {
            if cloud.is_some() || is_served(port.port.protocol) {
                served.push(port);
            } else {
                problems.push(
                    Problem::new(
                        object.clone(),
                        Reason::Unsupported,
                        format!("{} is not served by the native data plane", port.port.protocol),
                    )
                    .at(format!("{}.protocol", port.field)),
                );
            }
        }
        Demand {
            owner,
            service: service.clone(),
            ports: served,
            wishes,
            hosts_only: false,
            speaks_http,
            address: None,
            cloud,
            released: false,
            join: config.tenants.join,
            checks_per_second: config.tenants.limits.checks_per_second,
            problems,
        }
    }

    /// Where its annotations stand.
    pub(crate) fn object(&self) -> ObjectRef {
        match self.hosts_only {
            true => {
                let meta = &self.service.meta;
                ServiceKey::new(meta.namespace.clone(), meta.name.clone()).object()
            }
            false => self.owner.object(),
        }
    }

    /// Who may connect; everybody, where there are none.
    pub(crate) fn sources(&self) -> Vec<IpNet> {
        if self.service.unclear_sources {
            return nobody();
        }
        let mut sources = source_ranges(&self.service, &self.wishes).to_vec();
        sources.sort();
        sources.dedup();
        sources
    }

    /// Who may not, even so.
    pub(crate) fn denied(&self) -> &[IpNet] {
        &self.wishes.denied
    }

    /// What a listener at this port understands: HTTP if the Service says so, unless the port says otherwise.
    pub fn protocol(&self, port: &ServicePort) -> Protocol {
        let speaks_http = self.wishes.http.spoken_at.of(port).unwrap_or(self.speaks_http);
        match (speaks_http, protocol_of(port)) {
            (true, PortProtocol::Http(_) | PortProtocol::Unknown) => Protocol::Http,
            _ => Protocol::Opaque,
        }
    }

    /// What members of a port are told who the client is by.
    pub(crate) fn proxy(&self, port: &ServicePort) -> Option<ProxyVersion> {
        self.wishes.proxy_of.of(port).unwrap_or(self.wishes.proxy)
    }

    /// Ports of which something is said, and that it does not have.
    fn unknown_ports(&self) -> Vec<Problem> {
        let ports = || self.service.ports.iter();
        let (cloud, http) = (&self.wishes.cloud, &self.wishes.http.spoken_at);
        let is_said = |it: &&str| self.wishes.written.contains_key(*it);
        let of_http = [PROTOCOL, FORWARDED_FOR].into_iter().rfind(is_said);
        let named = [
            (FORWARDED_PROTO, cloud.forwarded_proto.unknown(ports())),
            (FORWARDED_PORT, cloud.forwarded_port.unknown(ports())),
            (PROXY, self.wishes.proxy_of.unknown(ports())),
            (TLS_CONTAINER, cloud.tls_container.unknown(ports())),
            (PROBE_KIND, cloud.probe_at.unknown(ports())),
        ];
        let http = of_http.map(|it| (it, http.unknown(ports())));
        let named = http.into_iter().chain(named);
        let named = named.filter(|(_, unknown)| !unknown.is_empty());
        let has: Vec<String> = ports().map(|it| format!("{} {}", it.port, it.name)).collect();
        let problem = |(option, unknown): (&'static str, Vec<String>)| {
            let message = format!(
                "the Service has no port {}: what this annotation says about that port is ignored",
                unknown.join(", ")
            );
            let problem = Problem::new(self.owner.object(), Reason::BadAnnotation, message);
            problem.at(self.wishes.field_of(option)).fix(format!("The Service has: {}.", has.join(", ")))
        };
        named.map(problem).collect()
    }

    /// Of the ports where TLS is to end, those that the Service does not have.
    pub(crate) fn unknown_tls_ports(&self) -> Vec<String> {
        unknown_tls_ports(&self.service, &self.wishes)
    }

    /// Whether TLS ends at this port.
    pub(crate) fn ends_tls(&self, wanted: &DemandPort) -> bool {
        let wishes = &self.wishes.tls;
        if wishes.secrets.is_empty() || self.hosts_only || wanted.port.protocol != L4::Tcp {
            return false;
        }
        let in_the_open = wanted.port.port == 80
            && self.ports.iter().any(|it| it.port.protocol == L4::Tcp && it.port.port != 80);
        if wishes.ports.is_empty() { !in_the_open } else { wishes.ports.iter().any(|it| wanted.is(it)) }
    }

    /// Whether members may be spoken to by TLS: where what comes is merely passed on, whoever sends it does that.
    pub(crate) fn speaks_tls(&self, wanted: &DemandPort) -> bool {
        self.protocol(&wanted.port) == Protocol::Http
            || self.ends_tls_anywhere(wanted)
                && self.wishes.tls.members.spoken.unwrap_or_else(|| self.says_who_members_are())
    }

    /// It says who members have to be, and no port of it speaks TLS to them: never are they spoken to in the open instead.
    fn says_who_members_are(&self) -> bool {
        let members = &self.wishes.tls.members;
        self.cloud.is_none()
            && (members.authorities.is_some() || members.name.is_some())
            && !self.service.ports.iter().any(http::speaks_tls)
    }

    /// Whether members of a port are spoken to by TLS, where they may be. (In a cloud, what a port says of its protocol is not
    /// asked for.)
    pub(crate) fn wants_tls_to_members(&self, port: &ServicePort) -> bool {
        let usual = || self.cloud.is_none() && http::speaks_tls(port) || self.says_who_members_are();
        self.wishes.tls.members.spoken.unwrap_or_else(usual)
    }

    /// Where clients are sent to from the open.
    pub(crate) fn tls_port(&self) -> Option<u16> {
        let mut ports = self.ports.iter().filter(|it| self.ends_tls(it)).map(|it| it.listen);
        let first = ports.next()?;
        Some(if first == 443 { first } else { ports.find(|it| *it == 443).unwrap_or(first) })
    }

    /// Secrets that it names for itself.
    pub(crate) fn secrets(&self) -> Vec<ObjectRef> {
        if self.hosts_only { Vec::new() } else { self.wishes.tls.objects(&self.service.meta.namespace) }
    }

    /// `default/shop:http`, as people call a listener.
    pub fn name(&self, port: &ServicePort) -> Name {
        let meta = &self.service.meta;
        if port.name.is_empty() {
            format!("{}/{}:{}", meta.namespace, meta.name, port.port).into()
        } else {
            format!("{}/{}:{}", meta.namespace, meta.name, port.name).into()
        }
    }
}

pub(crate) fn whose(service: &Service) -> Owner {
    let key = ServiceKey::new(service.meta.namespace.clone(), service.meta.name.clone());
    Owner::Object { object: key.object(), uid: service.meta.uid.clone() }
}

fn own_ports(service: &Service) -> impl Iterator<Item = DemandPort> + '_ {
    service.ports.iter().enumerate().map(|(i, port)| DemandPort {
        listen: port.port,
        port: port.clone(),
        field: format!("spec.ports[{i}]"),
    })
}

/// A Service without a class is anybody's, so ours too if we are told to; one with a class is whose it names.
pub fn is_ours(service: &Service, config: &Config) -> bool {
    cloud_of(service, config).is_some() || is_native(service, config)
}

pub(crate) fn cloud_of<'c>(
    service: &Service,
    config: &'c Config,
) -> Option<(&'c Name, &'c Arc<CloudDefaults>)> {
    match &service.class {
        Some(class) => config.clouds.get_key_value(class).filter(|_| !is_given_away(service)),
        None => config.clouds.iter().find(|(_, it)| it.classless),
    }
}

/// A class cannot be changed: whether an annotation says that no cloud is chosen by it any more.
pub(crate) fn is_given_away(service: &Service) -> bool {
    service.class.is_some() && gives_away(&service.meta.annotations)
}

/// The cloud that may have a load balancer for a Service that nobody serves by today's settings: it was ours, or it would
/// not be held by us. It is neither deleted nor replaced by one elsewhere before somebody says so. What a Service with a class
/// gave away stays so when nobody holds it any more, too.
fn released_by<'c>(
    service: &Service,
    held: FinalizerOwner,
    config: &'c Config,
) -> Option<(&'c Name, &'c Arc<CloudDefaults>)> {
    match &service.class {
        Some(class) => config.clouds.get_key_value(class).filter(|_| is_given_away(service)),
        None => config.clouds.iter().next().filter(|_| held == FinalizerOwner::ByUs),
    }
}

pub(crate) fn is_native(service: &Service, config: &Config) -> bool {
    match &service.class {
        Some(class) => config.classes.contains(class),
        None => config.classless,
    }
}

/// A Service outside (ExternalName) may have no ports at all: then the entry's own number is the port.
fn port_named(service: &Service, exposed: &ExposedPort) -> Option<ServicePort> {
    let found = service.ports.iter().find(|it| {
        it.protocol == exposed.l4
            && match &exposed.port {
                TargetPort::Number(number) => it.port == *number,
                TargetPort::Name(name) => it.name == *name,
            }
    });
    match (found, &exposed.port, &service.kind) {
        (Some(port), _, _) => Some(port.clone()),
        (None, TargetPort::Number(number), ServiceKind::ExternalName(_)) => Some(ServicePort {
            name: Name::default(),
            protocol: exposed.l4,
            port: *number,
            target: TargetPort::Number(*number),
            node_port: None,
            app_protocol: None,
        }),
        _ => None,
    }
}

/// Without a certificate, TLS ends nowhere.
fn unknown_tls_ports(service: &Service, wishes: &ServiceOptions) -> Vec<String> {
    let is = |named: &TargetPort, it: &ServicePort| {
        let is_named = match named {
            TargetPort::Number(number) => *number == it.port,
            TargetPort::Name(name) => *name == it.name,
        };
        is_named && it.protocol == L4::Tcp
    };
    let named = wishes.tls.ports.iter().filter(|_| !wishes.tls.secrets.is_empty());
    let unknown = named.filter(|named| !service.ports.iter().any(|it| is(named, it)));
    let shown = |named: &TargetPort| match named {
        TargetPort::Number(number) => number.to_string(),
        TargetPort::Name(name) => name.to_string(),
    };
    unknown.map(shown).collect()
}
