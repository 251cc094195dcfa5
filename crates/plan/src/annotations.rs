//! Every annotation that our own data plane honours, in one table: its names (ours first, then those of the systems
//! we replace) and what it sets.

mod auth;
mod clients;
mod cloud;
mod compression;
mod elsewhere;
mod http;
mod meant;
mod meant_places;
mod names;
mod octavia;
mod other_clouds;
mod other_names;
pub(crate) mod places;
mod ports;
mod protecting;
mod table;
mod tls;

use std::{collections::BTreeMap, net::IpAddr, sync::LazyLock, time::Duration};

use ipnet::IpNet;
use seaway_model::{
    Config, Name, Problem, ProblemDetail, Reason,
    config::{Defaults, MemberSource},
    fact::{Labels, Service},
    load_balancer::{
        Balance, CheckKind, CookieKey, CookieMode, HealthCheck, HostPattern, Limits, MemberLimit,
        PassiveHealthCheck, PoolHttpOptions, ProxyVersion, RateLimit, RequestRate, Timeouts, TlsProfile,
    },
    name::ObjectRef,
};

use crate::{forward_auth::AuthService, spelling::nearest};

pub use crate::members::{HEAVIEST, WEIGHT};
pub use auth::{BASIC_AUTH, FORWARD_AUTH, FORWARD_AUTHORIZATION, FORWARD_HEADERS, REALM};
pub use clients::{BURST, CLIENT_RATE, DENIED, RATE_KEY};
pub(crate) use cloud::{
    ADOPT, FORWARDED_FOR, NAMED, TLS_CONTAINER, asks_for_adoption, gives_away, options as of_clouds,
};
pub use cloud::{CLOUD_CLASS, GIVE_AWAY, HealthCheckOptions, INTERNAL, ProviderOptions};
pub use compression::{COMPRESS, COMPRESS_PRIVATE, COMPRESS_TYPES};
pub use elsewhere::{protection_elsewhere, protection_of_label};
pub use http::{BODY_SIZE, ENTRANCE, FRONT_DOOR, HOST, MAIN, PATH, PROTOCOL};
pub use meant::{AnnotationSuggestion, is_unknown, meant, name_of};
pub use meant_places::option_of as place_option;
pub use names::DNS_NAMES;
use names::OF_EXTERNAL_DNS;
pub(crate) use names::{DNS_TTL, has_hostname, hostnames};
pub(crate) use octavia::{CALLED, CLIENT_AUTHORITY, FORWARDED_PORT, FORWARDED_PROTO, PROBE_KIND, TLS_OTHERS};
pub use other_clouds::is_internal_elsewhere;
pub use other_names::{EquivalentAnnotation, other_name};
pub(crate) use places::asks;
pub use places::{OptionScope, place_names, places};
pub use ports::PerPort;
pub use protecting::{CLIENTS, lets_clients_in, protects};
pub(crate) use protecting::{Protection, leaves_front_door, may_name_place};
pub use table::{
    BACKENDS, BALANCE, CHECK, CHECK_INTERVAL, CHECK_PORT, CONNECTIONS, PROXY, PROXY_FROM, RATE, Row,
    SOURCE_RANGES, TRANSPARENT,
};
pub use tls::{
    AUTHORITIES, BACKEND_AUTHORITIES, HSTS, MemberTls, PASSTHROUGH, REDIRECT, TLS, TLS_PORTS, TLS_PROFILE,
    TlsOptions, hsts,
};

/// All that is honoured, in the order in which it is read.
pub fn rows() -> impl Iterator<Item = &'static Row> {
    table::ROWS
        .iter()
        .chain(clients::ROWS)
        .chain(auth::ROWS)
        .chain(http::ROWS)
        .chain(compression::ROWS)
        .chain(names::ROWS)
        .chain(tls::ROWS)
        .chain(cloud::ROWS)
        .chain(octavia::ROWS)
}

/// What an owner asked for beyond its spec, resolved: defaults filled in.
#[derive(Clone, Debug, PartialEq)]
pub struct ServiceOptions {
    pub members: MemberSource,
    pub balance: Balance,
    pub health: Option<HealthCheck>,
    pub passive: Option<PassiveHealthCheck>,
    pub slow_start: Option<Duration>,
    pub panic_threshold: u8,
    pub member_limit: Option<MemberLimit>,
    pub cookie_key: Option<CookieKey>,
    pub proxy: Option<ProxyVersion>,
    pub proxy_of: PerPort<Option<ProxyVersion>>,
    pub transparent: bool,
    pub proxy_from: Vec<IpNet>,
    pub sources: Vec<IpNet>,
    pub denied: Vec<IpNet>,
    pub limits: Limits,
    pub timeouts: Timeouts,
    pub requested: Vec<IpAddr>,
    /// Where the request stands, for Problems.
    pub requested_field: Name,
    pub pool: Option<Name>,
    pub sharing: Option<Name>,
    pub share_across: Vec<Name>,
    /// In DNS.
    pub hostnames: Vec<Name>,
    /// Seconds.
    pub hostname_ttl: Option<u32>,
    pub http: HttpOptions,
    pub tls: TlsOptions,
    pub cloud: ProviderOptions,
    /// Something that protects is not understood: nothing listens.
    pub closed: bool,
    /// The same of what says which clients are let in: routes that lead here let nobody in, either.
    pub clients_unclear: bool,
    /// By our names: where each thing that was asked for stands.
    pub written: BTreeMap<&'static str, Name>,
}

/// What is asked of HTTP.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct HttpOptions {
    /// The Service's own listeners speak it, or not.
    pub spoken: Option<bool>,
    pub spoken_at: PerPort<bool>,
    /// At the front door, whatever is usual there; or not.
    pub front_door: Option<bool>,
    /// What says where it is to be there is not understood: it is nowhere.
    pub place_unclear: bool,
    pub hosts: Vec<HostPattern>,
    /// Where at the front door, by the names of its entrances; empty: at the main one.
    pub entrances: Vec<Name>,
    /// Below one path of a host only; then the paths of its name are not there.
    pub placed: Vec<(HostPattern, Name)>,
    /// Instead of the paths that its name makes.
    pub paths: Vec<Name>,
    pub strip_prefix: Option<bool>,
    pub cookie: Option<(Name, CookieMode)>,
    pub terms: PoolHttpOptions,
    /// How often each client may ask.
    pub rate: Option<RequestRate>,
    /// The Secret with the users who may.
    pub basic_auth: Option<Name>,
    pub realm: Option<Name>,
    pub forwards_authorization: bool,
    pub forward_auth: Option<AuthService>,
}

impl HttpOptions {
    /// Whether it names where it wants to be at the front door.
    pub(crate) fn names_entrances(&self) -> bool {
        !self.hosts.is_empty() || !self.placed.is_empty() || !self.paths.is_empty()
    }

    /// How often each client may ask for what this object serves.
    pub(crate) fn limits_of(&self, object: &ObjectRef) -> Vec<RateLimit> {
        let limit = |rate: &RequestRate| RateLimit { of: object.clone(), rate: rate.clone() };
        self.rate.iter().map(limit).collect()
    }

    /// With a path and without.
    pub(crate) fn all_hosts(&self) -> Vec<HostPattern> {
        self.hosts.iter().chain(self.placed.iter().map(|(host, _)| host)).cloned().collect()
    }

    /// It is spoken where a header of it is asked for.
    fn ask(&mut self, header: PerPort<bool>) {
        let of_all = header.others().filter(|it| *it);
        self.spoken = of_all.or(self.spoken);
        // Where it is not asked of all, a port without it is as it would be.
        self.spoken_at.extend(if of_all.is_some() { header } else { header.only(true) });
    }

    fn of(defaults: &Defaults) -> HttpOptions {
        HttpOptions {
            terms: PoolHttpOptions { reuse: defaults.reuse, ..PoolHttpOptions::default() },
            ..HttpOptions::default()
        }
    }
}

impl ServiceOptions {
    /// Where the defaults of the configuration do not matter.
    pub fn by_default() -> ServiceOptions {
        static DEFAULTS: LazyLock<Defaults> = LazyLock::new(|| Config::default().defaults);
        ServiceOptions::of(&DEFAULTS)
    }

    pub fn of(defaults: &Defaults) -> ServiceOptions {
        ServiceOptions {
            members: defaults.members,
            balance: defaults.balance,
            health: defaults.health.clone(),
            passive: defaults.passive,
            slow_start: defaults.slow_start,
            panic_threshold: defaults.panic_threshold,
            member_limit: None,
            cookie_key: defaults.cookie_key.clone(),
            proxy: None,
            proxy_of: PerPort::default(),
            transparent: false,
            proxy_from: Vec::new(),
            sources: Vec::new(),
            denied: Vec::new(),
            limits: defaults.limits,
            timeouts: defaults.timeouts,
            requested: Vec::new(),
            requested_field: Name::default(),
            pool: None,
            sharing: None,
            share_across: Vec::new(),
            hostnames: Vec::new(),
            hostname_ttl: None,
            http: HttpOptions::of(defaults),
            tls: TlsOptions::default(),
            cloud: ProviderOptions::default(),
            closed: false,
            clients_unclear: false,
            written: BTreeMap::new(),
        }
    }

    /// Where an option stands that was asked for: `metadata.annotations[…]`.
    pub fn field_of(&self, option: &'static str) -> Name {
        self.written.get(option).cloned().unwrap_or_else(|| "metadata.annotations".into())
    }

    /// Whether an address is requested by our own annotation, and not by `spec.loadBalancerIP` or another system's word.
    pub(crate) fn requests_explicitly(&self) -> bool {
        !self.requested.is_empty()
            && *self.requested_field == *format!("metadata.annotations[{}]", table::ADDRESS)
    }

    /// Reads an object's annotations. One that is not understood is a Problem and leaves its default.
    pub fn read(&mut self, object: &ObjectRef, annotations: &Labels) -> Vec<Problem> {
        let mut problems = Vec::new();
        for row in rows() {
            // To Kubernetes, that of others means everybody where it is blank.
            let says = |name: &str, value: &Name| {
                row.name() != SOURCE_RANGES || name == SOURCE_RANGES || !value.trim().is_empty()
            };
            let written = row.names.iter().filter_map(|name| Some((*name, annotations.get(*name)?)));
            let mut written = written.filter(|(name, value)| says(name, value));
            let Some((name, value)) = written.next() else { continue };
            let field = format!("metadata.annotations[{name}]");
            let is_same_or_anothers = |it: &(&str, &Name)| it.1 == value || it.0.starts_with(OF_EXTERNAL_DNS);
            if let Some((other, _)) = written.find(|it| !is_same_or_anothers(it)) {
                problems.push(
                    Problem::new(
                        object.clone(),
                        Reason::BadAnnotation,
                        format!("{other} and {name} differ; {name} is used"),
                    )
                    .at(format!("metadata.annotations[{other}]"))
                    .fix(format!("Remove {other}.")),
                );
            }
            match (row.set)(self, value.trim()) {
                // It may be external-dns's to do, and to report.
                _ if name.starts_with(OF_EXTERNAL_DNS) => {}
                Ok(()) => {
                    if row.name() == table::ADDRESS {
                        self.requested_field = field.as_str().into();
                    }
                    self.written.insert(row.name(), field.into());
                }
                Err(why) => {
                    let then = self.not_understood(row, &field);
                    let message = format!("{why}; {then}");
                    problems.push(
                        Problem::new(object.clone(), Reason::BadAnnotation, message).at(field).fix(format!(
                            "{}: {}",
                            row.name(),
                            row.help
                        )),
                    );
                }
            }
        }
        for (key, value) in annotations {
            let near = protecting::of_ours(key);
            let meant = near.as_deref().unwrap_or(key);
            let Some(prefix) = PREFIXES.iter().find(|prefix| meant.starts_with(**prefix)) else { continue };
            let is_known = rows().any(|row| row.names.contains(&key.as_str()));
            if !is_known && key.as_str() != PUBLISHED {
                let mut problem = unknown(object, key, meant, prefix);
                if let Some(then) = self.close_for_misspelt(meant, value) {
                    problem.message.extend(["; ", then]);
                }
                problems.push(problem);
            }
        }
        problems
    }

    /// As [`ServiceOptions::read`], of a Service: what its reader has named, and has closed it for, is not named again.
    pub(crate) fn read_of(&mut self, object: &ObjectRef, service: &Service) -> Vec<Problem> {
        let mut problems = self.read(object, &service.meta.annotations);
        let key = |field: &Name| {
            let key = field.strip_prefix("metadata.annotations[")?.strip_suffix(']')?;
            Some(is_unknown(key))
        };
        problems.retain(|it| !(service.unclear_sources && key(&it.field) == Some(true)));
        self.name_meant_places(service, &mut problems);
        problems
    }

    /// What follows from a value that is not understood.
    fn not_understood(&mut self, row: &Row, field: &str) -> &'static str {
        match row.name() {
            // Who may connect is not known: nobody, then, rather than everybody. What a cloud serves already stays.
            SOURCE_RANGES => {
                self.sources = nobody();
                self.written.insert(SOURCE_RANGES, field.into());
                "no client may connect until this is corrected; in a cloud nothing is created or changed"
            }
            // It may be meant for nobody outside: no address is published by guess.
            INTERNAL => {
                self.cloud.unclear = true;
                "in a cloud nothing is created or changed until this is corrected"
            }
            // The stricter of the two: no version is spoken that was to be forbidden.
            TLS_PROFILE => {
                self.tls.profile = Some(TlsProfile::Modern);
                self.cloud.unclear = true;
                "modern is used until this is corrected: TLS 1.3 alone; in a cloud nothing is created or changed"
            }
            // Who says how a password is asked for means to ask.
            REALM | FORWARD_AUTHORIZATION if self.http.basic_auth.is_none() => {
                self.close_for(BASIC_AUTH).unwrap_or("the default is used")
            }
            // Who says what a rate is counted by, or how much may come at once, means to limit it.
            BURST | RATE_KEY if !self.written.contains_key(CLIENT_RATE) => {
                self.close_for(CLIENT_RATE).unwrap_or("the default is used")
            }
            // No limit stands in for one that is not understood.
            http::BODY_SIZE => self.close_for(RATE).unwrap_or("the default is used"),
            // No name is taken out of DNS for a slip of the pen.
            DNS_NAMES => {
                "names of this Service that are published stay in DNS as they are, and no others are added"
            }
            DNS_TTL => "the TTL of the zone is used",
            option if self.leave_front_door_for(option) => protecting::NO_PLACE,
            option => self.close_for(option).unwrap_or("the default is used"),
        }
    }

    fn check(&mut self) -> &mut HealthCheck {
        self.health.get_or_insert_with(HealthCheck::default)
    }

    /// The path, host and statuses of an HTTP check, which setting any of them asks for.
    fn http_check(&mut self) -> (&mut Name, &mut Option<Name>, &mut (u16, u16)) {
        let check = self.check();
        if !matches!(check.kind, CheckKind::Http { .. }) {
            check.kind = CheckKind::http();
        }
        match &mut check.kind {
            CheckKind::Http { path, host, status, .. } => (path, host, status),
            CheckKind::Tcp | CheckKind::Udp { .. } | CheckKind::Grpc { .. } => {
                unreachable!("it was just made an HTTP check")
            }
        }
    }
}

/// No client comes from there.
pub(crate) fn nobody() -> Vec<IpNet> {
    vec![IpNet::from(IpAddr::from([0_u8; 4])), IpNet::from(IpAddr::from([0_u16; 8]))]
}

/// Of annotations below these, all mean something.
const PREFIXES: [&str; 2] = [OURS, "loadbalancer.openstack.org/"];
const OURS: &str = "seaway.dev/";
/// Written for people, and read by nobody.
const PUBLISHED: &str = "loadbalancer.openstack.org/load-balancer-address";

fn unknown(object: &ObjectRef, key: &Name, meant: &str, prefix: &str) -> Problem {
    let problem = Problem::new(
        object.clone(),
        Reason::BadAnnotation,
        format!("{key} is not an annotation that Seaway knows"),
    )
    .at(format!("metadata.annotations[{key}]"));
    let (instead, fix) = meant_instead(meant, prefix);
    let problem = problem.fix(fix);
    match instead {
        Some(name) => problem.about(ProblemDetail::MeantAnnotation(name)),
        None => problem,
    }
}

/// What to write instead of a name that means nothing. Prefixes that all names have make no two of them alike.
fn meant_instead(meant: &str, prefix: &str) -> (Option<Name>, String) {
    let meant = meant.strip_prefix(prefix).unwrap_or(meant);
    if prefix != OURS {
        let names = rows().flat_map(|row| row.names).filter_map(|it| it.strip_prefix(prefix));
        let names: Vec<&str> = names.collect();
        return match nearest(meant, &names) {
            Some(name) => (Some(format!("{prefix}{name}").into()), format!("Did you mean {prefix}{name}?")),
            None => (None, "docs/annotations.md lists them all.".to_owned()),
        };
    }
    let AnnotationSuggestion { ours, fix } = meant::meant(meant);
    match ours.filter(|it| *it != WEIGHT) {
        Some(ours) => (Some(ours.into()), format!("Did you mean {ours}? {fix}").trim_end().to_owned()),
        None if !fix.is_empty() => (None, fix.to_owned()),
        None => (None, "docs/annotations.md lists them all.".to_owned()),
    }
}

#[cfg(test)]
mod tests;
