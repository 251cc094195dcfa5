//! A Service at the front door: which of its ports speak HTTP, and which paths and hosts lead there.

use std::{collections::BTreeMap, sync::Arc};

use seaway_model::{
    Config, L4, Name, Owner, Problem, Reason,
    config::{FrontDoorServices, OpenPolicy},
    fact::{Service, ServiceKind, ServicePort, TargetPort},
    load_balancer::{Action, Filter, HostPattern, Match, PathMatch, Rule},
};

use super::{
    attached_route::{AttachedRoute, RoutePrecedence, plain_rule, unavailable},
    attached_status::ignored_redirect_off,
    client_certificates::{self, cannot_ask},
    entrances::settings_of,
    not_attached::NotAttachedReason,
    two_places,
};
use crate::{
    access_rules::{self, AccessRules},
    annotations::{self, OptionScope, Protection, ServiceOptions},
    basic_auth, forward_auth,
    guarded::{self, GuardSource, HostGuard},
    http::{PortProtocol, protocol_of},
    index::{PlanContext, ServiceKey},
    unheeded::idle,
};

/// The field that makes the paths of a Service's name.
pub(super) const NAME: &str = "metadata.name";

/// The Service as a guest, and where it stands; nothing, if it is none.
pub(super) fn seated(
    service: &Arc<Service>,
    given: PlanContext<'_>,
) -> Option<(RoutePrecedence, AttachedRoute)> {
    let guest = guest(service, given)?;
    Some((RoutePrecedence::of_service(service, &guest), guest))
}

/// The Service as a guest; nothing, if it is none.
fn guest(service: &Arc<Service>, given: PlanContext<'_>) -> Option<AttachedRoute> {
    let config = given.config;
    let key = ServiceKey::new(service.meta.namespace.clone(), service.meta.name.clone());
    let mut wishes = ServiceOptions::of(&config.defaults);
    let mut guest = AttachedRoute::new(key.object(), &service.meta.uid);
    guest.problems = wishes.read_served(service, config);
    guest.enter(&wishes, &service.meta.annotations, config);
    // Who did not ask for a door that stays shut has nothing to be told, nor a status to be told it in.
    if config.front_door.opens == OpenPolicy::Never && asks(&wishes) != Some(true) {
        return None;
    }
    guest.problems.extend(two_places::problem(service, &wishes));
    if let Some(guessed) = wishes.guessed_places(service) {
        close(&mut guest, written_places(service, &wishes, config));
        for place in written_places(service, &guessed, config) {
            guest.guess(&rule(&guest.owner, &place, unavailable()));
        }
        wishes.take_meant_places(service);
        guest.problems.extend(taken_by_host(&key, &wishes, given));
        return Some(guest);
    }
    if wishes.tls.through && !matches!(asks(&wishes), Some(false)) {
        return Some(passing(guest, service, &wishes, config));
    }
    let ports = match ports(service, &wishes, given) {
        Ok(ports) => ports,
        Err(why) => {
            guest.problems.extend(refused(&key, service, &wishes, why));
            if why == NotAttachedReason::WithoutHttp && is_protected_place(service, &wishes) {
                close(&mut guest, written_places(service, &wishes, config));
            }
            guest
                .problems
                .extend(guarded::unused_route(service).filter(|_| why == NotAttachedReason::UnusedRoute));
            if why == NotAttachedReason::Guarded(GuardSource::AtItsHost) {
                let guard = host_guard(&key, &wishes, given);
                guest.problems.extend(guard.map(|it| guarded::bypassing(&key, &wishes, &it)));
            }
            // Its place, or its annotations, are not understood: that is reported though it is not here.
            let is_news = match why {
                NotAttachedReason::Protected(_) | NotAttachedReason::UnusedRoute => true,
                NotAttachedReason::Guarded(_) => !guest.problems.is_empty(),
                NotAttachedReason::Unasked if wishes.http.place_unclear => true,
                _ => asks(&wishes) == Some(true),
            };
            return is_news.then_some(guest);
        }
    };
    if let Some(why) = unguarded(service, &wishes, config) {
        guest.problems.extend(refused(&key, service, &wishes, why));
        guest.problems.extend(taken_by_host(&key, &wishes, given));
        close(&mut guest, places(&key, &ports, &wishes, config));
        return Some(guest);
    }
    guest.asks_for_tls(&wishes, &key.namespace, &wishes.http.all_hosts(), given);
    let clients = AccessRules::of(service, &wishes, given);
    let tls = clients.tls.clone().map(Arc::new);
    let is_certified = tls.as_ref().is_some_and(|it| it.clients.is_some());
    guest.clients_field = wishes.field_of(client_certificates::option(&wishes));
    guest.problems.extend(client_certificates::problems(service, &wishes, given.certificates));
    guest.problems.extend(basic_auth::problems(service, &wishes, given.certificates));
    guest.problems.extend(forward_auth::problem(service, &wishes, given));
    guest.asks(&clients.asks);
    if is_certified {
        guest.problems.extend(without_host(&key, &wishes));
    }
    // Who names host names has the paths of its name beside them, but for those that would bypass what protects a part of these.
    let bypassed =
        host_guard(&key, &wishes, given).filter(|_| !wishes.http.hosts.is_empty() && !is_certified);
    let mut places = places(&key, &ports, &wishes, config);
    if bypassed.is_some() && places.iter().any(|it| it.field == NAME.into()) {
        guest.problems.extend(bypassed.map(|it| guarded::bypassing(&key, &wishes, &it)));
        places.retain(|it| it.field != NAME.into());
    }
    guest.problems.extend(taken_by_host(&key, &wishes, given));
    for place in places {
        if is_certified && place.field == NAME.into() {
            continue;
        }
        // A handshake asks for a certificate by the name of a host: at paths of all names it would ask for none.
        let rule = match is_certified && place.hosts.is_empty() {
            true => rule(&guest.owner, &place, unavailable()),
            false => Rule {
                sources: clients.sources.clone(),
                denied: clients.denied.clone(),
                rates: clients.rates.clone(),
                auth: clients.auth.clone(),
                asks: clients.asks.clone(),
                tls: tls.clone(),
                ..rule(
                    &guest.owner.clone(),
                    &place,
                    Action::Forward(vec![(guest.lead_to(&key, place.port), 1)]),
                )
            },
        };
        guest.rule(rule, |_| place.field.clone());
    }
    guest.problems.extend(idle_here(service, &wishes, OptionScope::FrontDoor, config));
    guest.problems.extend(without_name(&key, &wishes));
    let off = ignored_redirect_off(&guest, &settings_of(&wishes, config));
    guest.problems.extend(off);
    Some(guest)
}

fn host_guard(key: &ServiceKey, wishes: &ServiceOptions, given: PlanContext<'_>) -> Option<HostGuard> {
    given.index.places.guard(key, &wishes.http.entrances, &given.config.front_door)
}

/// What is said of a protected path of all host names that another Service serves by its host name.
fn taken_by_host(key: &ServiceKey, wishes: &ServiceOptions, given: PlanContext<'_>) -> Option<Problem> {
    let open = given.index.places.open_place(key, &wishes.http.paths)?;
    Some(guarded::taken_by_host(key, wishes, &open))
}

/// Where a port of a Service is served.
struct PortExposure {
    port: u16,
    hosts: Vec<HostPattern>,
    paths: Vec<Name>,
    strips: bool,
    /// What says so.
    field: Name,
}

/// All places of a Service at the front door.
fn places(
    key: &ServiceKey,
    ports: &[&ServicePort],
    wishes: &ServiceOptions,
    config: &Config,
) -> Vec<PortExposure> {
    let first = ports.iter().find(|it| it.port == 80).or(ports.first()).map_or(0, |it| it.port);
    let http = &wishes.http;
    let strips = http.strip_prefix.unwrap_or(false);
    let mut all = Vec::new();
    if !http.paths.is_empty() {
        let (paths, field) = (http.paths.clone(), wishes.field_of(annotations::PATH));
        all.push(PortExposure { port: first, hosts: Vec::new(), paths, strips, field });
    } else if http.placed.is_empty() {
        let strips = http.strip_prefix.unwrap_or(config.front_door.strip_prefix);
        all.extend(ports.iter().map(|port| {
            let paths = paths(key, port.port, port.port == first);
            PortExposure { port: port.port, hosts: Vec::new(), paths, strips, field: NAME.into() }
        }));
    }
    let by_host = wishes.field_of(annotations::HOST);
    if !http.hosts.is_empty() {
        let (hosts, paths) = (http.hosts.clone(), vec!["/".into()]);
        all.push(PortExposure { port: first, hosts, paths, strips: false, field: by_host.clone() });
    }
    // Host and path as an Ingress has them: who says exactly where it is, is nowhere else.
    let mut by_path: BTreeMap<&Name, Vec<HostPattern>> = BTreeMap::new();
    for (host, path) in &http.placed {
        by_path.entry(path).or_default().push(host.clone());
    }
    all.extend(by_path.into_iter().map(|(path, hosts)| {
        let (paths, field) = (vec![path.clone()], by_host.clone());
        PortExposure { port: first, hosts, paths, strips, field }
    }));
    all
}

/// Those that its annotations name, whatever its ports speak.
fn written_places(service: &Service, wishes: &ServiceOptions, config: &Config) -> Vec<PortExposure> {
    let key = ServiceKey::new(service.meta.namespace.clone(), service.meta.name.clone());
    let ports: Vec<&ServicePort> = service.ports.iter().collect();
    let mut all = places(&key, &ports, wishes, config);
    all.retain(|it| *it.field != *NAME);
    all
}

fn is_protected_place(service: &Service, wishes: &ServiceOptions) -> bool {
    wishes.http.names_entrances() && guarded::is_protected(service, wishes)
}

/// The Service keeps its places, and answers 503 there: without it, a Service at a path above would answer requests that this one
/// is meant to protect.
fn close(guest: &mut AttachedRoute, places: Vec<PortExposure>) {
    guest.is_closed = true;
    for place in places {
        guest.rule(rule(&guest.owner, &place, unavailable()), |_| place.field.clone());
    }
}

/// What is said of the Service, and cannot be had where many Services share listeners. One that has listeners of its own has it
/// there.
fn idle_here(service: &Service, wishes: &ServiceOptions, at: OptionScope, config: &Config) -> Vec<Problem> {
    let is_exposed = config
        .exposed
        .iter()
        .any(|it| it.namespace == service.meta.namespace && it.service == service.meta.name);
    if service.kind == ServiceKind::LoadBalancer || is_exposed {
        return Vec::new();
    }
    let (what, fix) = match at {
        OptionScope::Passthrough => (
            "this annotation has no effect where the front door passes TLS on to members",
            "Remove this annotation; or remove seaway.dev/tls-passthrough, if TLS may end at the front door.",
        ),
        _ => (
            "this annotation has no effect at the front door, whose listeners many Services share",
            "Remove the annotation, or give the Service an address of its own: spec.type: LoadBalancer.",
        ),
    };
    let key = ServiceKey::new(service.meta.namespace.clone(), service.meta.name.clone());
    // A word of another system was written for that.
    let ours = |field: &Name| field.contains("[seaway.dev/");
    let here = [at];
    let idle = idle(wishes, &service.meta.annotations, &here)
        .filter(|(option, field)| *option != annotations::CLIENTS && ours(field));
    idle.map(|(_, field)| Problem::new(key.object(), Reason::Unsupported, what).at(field.clone()).fix(fix))
        .collect()
}

/// One that is there by TLS alone, which does not end here.
fn passing(
    mut guest: AttachedRoute,
    service: &Service,
    wishes: &ServiceOptions,
    config: &Config,
) -> AttachedRoute {
    let key = ServiceKey::new(service.meta.namespace.clone(), service.meta.name.clone());
    if !wishes.http.placed.is_empty() {
        let what =
            "where TLS is passed through, the path of a request is encrypted: hosts with a path are left out";
        let field = wishes.field_of(annotations::HOST);
        let told = Problem::new(key.object(), Reason::Unsupported, what).at(field);
        let fix = "Name hosts alone; or remove seaway.dev/tls-passthrough, if TLS may end at the front door.";
        guest.problems.push(told.fix(fix));
    }
    let mut problem = |reason, what: &str, fix: &str| {
        let field = wishes.field_of(annotations::PASSTHROUGH);
        guest.problems.push(Problem::new(key.object(), reason, what).at(field).fix(fix));
    };
    if let Some(why) = why_not_passed_through(service, wishes) {
        problem(Reason::Unsupported, why.as_str(), REMOVE_IT);
        close(&mut guest, written_places(service, wishes, config));
        return guest;
    }
    if wishes.http.hosts.is_empty() && !wishes.http.placed.is_empty() {
        return guest;
    }
    if wishes.http.hosts.is_empty() {
        let fix = "Name the hosts: seaway.dev/host: shop.example. A LoadBalancer of its own needs no name.";
        problem(
            Reason::BadAnnotation,
            "no host name says which TLS connections are passed through to this Service",
            fix,
        );
        return guest;
    }
    let tcp = || service.ports.iter().filter(|it| it.protocol == L4::Tcp);
    let port = tcp().find(|it| it.port == 443).or_else(|| tcp().find(|it| *it.name == *"https"));
    let Some(port) = port.or_else(|| tcp().next()) else {
        problem(
            Reason::NoSuchPort,
            "the Service has no TCP port",
            "Give the Service a TCP port, such as 443.",
        );
        return guest;
    };
    guest.problems.extend(idle_here(service, wishes, OptionScope::Passthrough, config));
    let to = guest.lead_to(&key, port.port);
    guest.pass(wishes.http.hosts.clone(), to, &wishes.field_of(annotations::HOST));
    guest
}

pub(super) fn why_not(service: &Service, given: PlanContext<'_>) -> Option<NotAttachedReason> {
    let config = given.config;
    let mut wishes = ServiceOptions::of(&config.defaults);
    wishes.read_served(service, config);
    if wishes.tls.through && asks(&wishes) == Some(true) {
        return why_not_passed_through(service, &wishes);
    }
    ports(service, &wishes, given).err().or_else(|| unguarded(service, &wishes, config))
}

/// Its ports that are there: one at least.
fn ports<'s>(
    service: &'s Service,
    wishes: &ServiceOptions,
    given: PlanContext<'_>,
) -> Result<Vec<&'s ServicePort>, NotAttachedReason> {
    let config = given.config;
    let key = ServiceKey::new(service.meta.namespace.clone(), service.meta.name.clone());
    match (asks(wishes), config.front_door.services, &service.kind) {
        (Some(true), ..) => {}
        (Some(false), ..) => return Err(NotAttachedReason::AsItAsks),
        (None, _, ServiceKind::LoadBalancer) => return Err(NotAttachedReason::WithItsOwnAddress),
        (None, FrontDoorServices::Annotated, _) => return Err(NotAttachedReason::Unasked),
        (None, FrontDoorServices::All, _) if service.unused_route.is_some() => {
            return Err(NotAttachedReason::UnusedRoute);
        }
        (None, FrontDoorServices::All, _) => {
            let at_host = || host_guard(&key, wishes, given).map(|_| GuardSource::AtItsHost);
            if let Some(guarded) = given.index.guarded(&key).or_else(at_host) {
                return Err(NotAttachedReason::Guarded(guarded));
            }
        }
    }
    let ports: Vec<&ServicePort> =
        service.ports.iter().filter(|it| speaks_http(service, it, config)).collect();
    match () {
        () if ports.is_empty() => Err(NotAttachedReason::WithoutHttp),
        () if wishes.http.place_unclear => Err(NotAttachedReason::Protected(Protection::Unclear)),
        () => Ok(ports),
    }
}

/// Why what protects it cannot be had here: it answers 503.
fn unguarded(service: &Service, wishes: &ServiceOptions, config: &Config) -> Option<NotAttachedReason> {
    match protection(service, wishes) {
        Some(Protection::Clients(_)) | None => {}
        Some(protection) => return Some(NotAttachedReason::Protected(protection)),
    }
    let has_hosts = !wishes.http.hosts.is_empty() || !wishes.http.placed.is_empty();
    cannot_ask(wishes, has_hosts, &settings_of(wishes, config)).map(NotAttachedReason::Uncertifiable)
}

fn why_not_passed_through(service: &Service, wishes: &ServiceOptions) -> Option<NotAttachedReason> {
    if let Some(protection) = protection(service, wishes) {
        return Some(NotAttachedReason::Protected(protection));
    }
    let is_open = wishes.denied.is_empty() && access_rules::source_ranges(service, wishes).is_empty();
    match (is_open, wishes.http.asks_who_it_is() || wishes.http.rate.is_some()) {
        (false, _) => Some(NotAttachedReason::SourcesWithPassthrough),
        (true, true) => Some(NotAttachedReason::UsersWithPassthrough),
        (true, false) => None,
    }
}

fn protection(service: &Service, wishes: &ServiceOptions) -> Option<Protection> {
    if service.unclear_sources {
        return Some(Protection::Unclear);
    }
    // How many may come at once its pools know.
    wishes.protection().filter(|it| !matches!(it, Protection::Limits(_)))
}

/// What is told of paths at which nobody would be asked for a certificate.
fn without_host(key: &ServiceKey, wishes: &ServiceOptions) -> Option<Problem> {
    let what = "the front door requires client certificates by host name: the Service is not served at paths of all host names";
    let problem =
        Problem::new(key.object(), Reason::Unsupported, what).at(wishes.field_of(annotations::PATH));
    let fix =
        "Write the path behind a host name, seaway.dev/host: shop.example/api; or remove the annotation.";
    (!wishes.http.paths.is_empty()).then(|| problem.fix(fix))
}

/// A handshake goes by the name of a host.
fn without_name(key: &ServiceKey, wishes: &ServiceOptions) -> Option<Problem> {
    wishes.tls.profile.filter(|_| wishes.http.all_hosts().is_empty())?;
    let what = "TLS handshakes go by host name, and this Service has none: they follow the settings of the \
                front door, and with modern, requests over TLS 1.2 get status 421";
    let problem = Problem::new(key.object(), Reason::Unsupported, what);
    Some(
        problem
            .at(wishes.field_of(annotations::TLS_PROFILE))
            .fix("Give the Service a host name, seaway.dev/host; or remove the annotation."),
    )
}

const REMOVE_IT: &str = "Give the Service a LoadBalancer of its own, or remove the annotation.";

/// What somebody is told who asked to be there in vain.
fn refused(
    key: &ServiceKey,
    service: &Service,
    wishes: &ServiceOptions,
    why: NotAttachedReason,
) -> Option<Problem> {
    let mut what = why.as_str().to_owned();
    let (reason, fix) = match why {
        NotAttachedReason::Uncertifiable(cannot) => {
            let problem = Problem::new(key.object(), Reason::Unsupported, why.as_str());
            return Some(problem.at(wishes.field_of(client_certificates::option(wishes))).fix(cannot.fix()));
        }
        NotAttachedReason::Protected(Protection::Clients(option)) => {
            let problem = Problem::new(key.object(), Reason::Unsupported, why.as_str());
            return Some(problem.at(wishes.field_of(option)).fix(REMOVE_IT));
        }
        // Told where it was read.
        NotAttachedReason::Protected(Protection::Unclear | Protection::Users | Protection::Limits(_)) => {
            return None;
        }
        NotAttachedReason::WithoutHttp => {
            if is_protected_place(service, wishes) {
                what.push_str(": the front door answers 503 at its host names and paths");
            }
            (
                Reason::NoSuchPort,
                "Set appProtocol: http at a port that speaks HTTP, or remove the Service from tcpServices.",
            )
        }
        NotAttachedReason::AsItAsks
        | NotAttachedReason::WithItsOwnAddress
        | NotAttachedReason::Unasked
        | NotAttachedReason::Guarded(_)
        | NotAttachedReason::UnusedRoute
        | NotAttachedReason::SourcesWithPassthrough
        | NotAttachedReason::UsersWithPassthrough => {
            return None;
        }
    };
    let field = wishes.field_of(asking_option(wishes));
    Some(Problem::new(key.object(), reason, what).at(field).fix(fix))
}

/// Whether the Service wants to be here; nothing, if it does not care.
fn asks(wishes: &ServiceOptions) -> Option<bool> {
    let http = &wishes.http;
    http.front_door.or(http.names_entrances().then_some(true))
}

fn asking_option(wishes: &ServiceOptions) -> &'static str {
    let asking = [annotations::FRONT_DOOR, annotations::HOST, annotations::PATH];
    asking.into_iter().find(|it| wishes.written.contains_key(it)).unwrap_or(annotations::FRONT_DOOR)
}

/// A port of which nobody says what it speaks is taken for HTTP, unless the configuration serves it as something else.
fn speaks_http(service: &Service, port: &ServicePort, config: &Config) -> bool {
    match protocol_of(port) {
        PortProtocol::Http(_) => true,
        PortProtocol::Else => false,
        PortProtocol::Unknown => !config.exposed.iter().any(|it| {
            it.namespace == service.meta.namespace
                && it.service == service.meta.name
                && match &it.port {
                    TargetPort::Number(number) => *number == port.port,
                    TargetPort::Name(name) => *name == port.name,
                }
        }),
    }
}

/// `/cart` and `/shop/cart`, each with the port too.
fn paths(key: &ServiceKey, port: u16, is_first: bool) -> Vec<Name> {
    let (short, long) = (format!("/{}", key.name), format!("/{}/{}", key.namespace, key.name));
    let with_port = [format!("{short}:{port}"), format!("{long}:{port}")];
    let plain = is_first.then_some([short, long]);
    plain.into_iter().flatten().chain(with_port).map(Name::from).collect()
}

fn rule(owner: &Owner, place: &PortExposure, action: Action) -> Rule {
    let prefix = |path: &Name| Match { path: Some(PathMatch::Prefix(path.clone())), ..Match::default() };
    let matches = place.paths.iter().map(prefix).collect();
    let filters = if place.strips { vec![Filter::RewritePrefix("/".into())] } else { Vec::new() };
    Rule { filters, ..plain_rule(owner, place.hosts.clone(), matches, action) }
}
