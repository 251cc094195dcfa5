//! Services that are guarded from elsewhere: a route that protects leads to them, they answer for another Service whose requests may
//! pass, or a part of their host names is protected by another object. Such a Service is not served at the front door by its name,
//! where nothing would guard it, unless it asks for that.

mod host_places;

use std::collections::{BTreeMap, BTreeSet, HashMap};

use seaway_model::{
    Kind, ListenerId, ObjectRef, Problem, Reason,
    fact::{HttpRoute, Service},
    load_balancer::Action,
};

use crate::{
    annotations::{FORWARD_AUTH, HOST, PATH, Protection, ServiceOptions, leaves_front_door, may_name_place},
    demand::Demand,
    index::{Index, PlanContext, ServiceKey},
};
pub(crate) use host_places::{HostGuard, HostPlaceIndex, HostPlaces};

/// From where a Service is guarded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum GuardSource {
    ByRoute,
    AsksForOthers,
    /// Another object protects a part of its host names.
    AtItsHost,
}

/// Who guards, and whom.
#[derive(Debug, Default)]
pub(crate) struct GuardIndex {
    of: BTreeMap<ObjectRef, BTreeSet<ServiceKey>>,
    by: HashMap<ServiceKey, BTreeSet<ObjectRef>>,
}

impl GuardIndex {
    /// Takes down whom an object guards now. Says for which Services that is news.
    pub(crate) fn set(&mut self, object: ObjectRef, now: BTreeSet<ServiceKey>) -> Vec<ServiceKey> {
        let before = self.of.remove(&object).unwrap_or_default();
        for key in before.difference(&now) {
            if let Some(by) = self.by.get_mut(key) {
                by.remove(&object);
                if by.is_empty() {
                    self.by.remove(key);
                }
            }
        }
        for key in now.difference(&before) {
            self.by.entry(key.clone()).or_default().insert(object.clone());
        }
        let news = before.symmetric_difference(&now).cloned().collect();
        if !now.is_empty() {
            self.of.insert(object, now);
        }
        news
    }

    fn of(&self, key: &ServiceKey) -> impl Iterator<Item = &ObjectRef> {
        self.by.get(key).into_iter().flatten()
    }
}

/// The Services that a route of the front door leads to and protects. Those of other namespaces it does not lead to.
pub(crate) fn by_route(route: &HttpRoute) -> BTreeSet<ServiceKey> {
    let mut all = guarded_references(route);
    all.retain(|it| it.namespace == route.meta.namespace);
    all
}

/// The Services that a route which protects names, whether it may lead to them or not, and whether they exist or not.
pub fn guarded_references(route: &HttpRoute) -> BTreeSet<ServiceKey> {
    if route.meta.annotations.is_empty() {
        return BTreeSet::new();
    }
    let mut wishes = ServiceOptions::by_default();
    wishes.read_route(route);
    if !wishes.guards() {
        return BTreeSet::new();
    }
    let forwards = route.rules.iter().flat_map(|rule| match &rule.action {
        Action::Forward(backends) => backends.as_slice(),
        Action::Redirect(_) | Action::Respond { .. } => &[],
    });
    forwards.map(|(to, _)| ServiceKey::new(to.namespace.clone(), to.service.clone())).collect()
}

/// The Service that another one asks about its requests.
pub(crate) fn by_service(service: &Service) -> BTreeSet<ServiceKey> {
    if !service.meta.annotations.contains_key(FORWARD_AUTH) {
        return BTreeSet::new();
    }
    let mut wishes = ServiceOptions::by_default();
    let own = ServiceKey::new(service.meta.namespace.clone(), service.meta.name.clone());
    wishes.read(&own.object(), &service.meta.annotations);
    let asked = wishes.http.forward_auth.map(|it| ServiceKey::new(own.namespace.clone(), it.service));
    asked.into_iter().filter(|it| *it != own).collect()
}

/// Whether a Service lets fewer clients in.
pub(crate) fn is_protected(service: &Service, wishes: &ServiceOptions) -> bool {
    service.unclear_sources || !service.source_ranges.is_empty() || wishes.restricts_clients()
}

/// What is wrong with the place at the front door of a Service that protects itself, such as a host name that is none; nothing, if its
/// place is understood, or if nothing protects it.
pub fn misplaced_protection(service: &Service) -> Vec<Problem> {
    if !may_name_place(&service.meta.annotations) {
        return Vec::new();
    }
    let key = ServiceKey::new(service.meta.namespace.clone(), service.meta.name.clone());
    let mut wishes = ServiceOptions::by_default();
    let mut problems = wishes.read(&key.object(), &service.meta.annotations);
    wishes.close_internal_anywhere(service);
    let is_one = wishes.http.place_unclear && is_protected(service, &wishes);
    problems.retain(|it| is_one && leaves_front_door(it));
    problems
}

/// What is said of a Service that is not at the paths of its name, since these would bypass what protects a part of its host names.
pub(crate) fn bypassing(key: &ServiceKey, wishes: &ServiceOptions, guard: &HostGuard) -> Problem {
    let HostGuard { by, at } = guard;
    let message = format!(
        "{by} restricts access to {at}, and the paths of this Service's name would bypass that: the front door does not serve the \
         Service at /{} and /{}/{}",
        key.name, key.namespace, key.name
    );
    let problem = Problem::new(key.object(), Reason::Ignored, message);
    match wishes.http.hosts.first() {
        Some(host) => problem.at(wishes.field_of(HOST)).fix(format!(
            "If clients need such a path, set seaway.dev/path: /{}. Else end the host names with a slash, seaway.dev/host: {host}/, and \
             the Service asks for no path of its name.",
            key.name
        )),
        None => problem.at("metadata.name").fix(
            "If clients need such a path, set seaway.dev/front-door: \"true\"; else set it to \"false\".",
        ),
    }
}

/// What is said of a Service that protects a path of all host names, where another has a host name: that one comes first.
pub(crate) fn taken_by_host(key: &ServiceKey, wishes: &ServiceOptions, open: &HostGuard) -> Problem {
    let HostGuard { by, at } = open;
    let message = format!(
        "a host name comes before a path of all host names: {by} serves {at}, without the protection of this Service"
    );
    let problem = Problem::new(key.object(), Reason::Unsupported, message);
    problem.at(wishes.field_of(PATH)).fix(format!("Set seaway.dev/host: {at}."))
}

/// What is said of a Service that a protected route leads to, whose own listeners clients reach as well. It stays so: that is asked
/// for. Where the Service itself says who may connect, that holds at both.
pub(crate) fn open_beside_route(
    demand: &Demand,
    open: &[ListenerId],
    given: PlanContext<'_>,
) -> Option<Problem> {
    let wishes = &demand.wishes;
    let is_said = !demand.sources().is_empty()
        || wishes.http.asks_who_it_is()
        || matches!(wishes.protection(), Some(Protection::Clients(_)));
    if open.is_empty() || is_said {
        return None;
    }
    let meta = &demand.service.meta;
    let key = ServiceKey::new(meta.namespace.clone(), meta.name.clone());
    let route = given.index.guarding_route(&key)?;
    let ports: Vec<String> = open.iter().map(ToString::to_string).collect();
    let ports = ports.join(", ");
    let (way, field, close) = match demand.ports.first().filter(|_| demand.hosts_only) {
        Some(entry) => {
            let close = format!("remove {} from the configuration", entry.field);
            (format!("port {ports} of this host ({})", entry.field), "metadata.name", close)
        }
        None => {
            let close = "set spec.type: ClusterIP".to_owned();
            (format!("port {ports} of the Service's own address"), "spec.type", close)
        }
    };
    let message = format!(
        "{route} restricts access to this Service, and clients reach the Service without it at {way}"
    );
    let problem = Problem::new(key.object(), Reason::Unsupported, message).at(field);
    Some(problem.fix(format!(
        "Restrict access at the Service itself, such as with seaway.dev/source-ranges, which then holds for the route, too; or {close}."
    )))
}

/// A route that may protect the Service and cannot be used: by its name it would be open.
pub(crate) fn unused_route(service: &Service) -> Option<Problem> {
    let place = service.unused_route.as_ref()?;
    let object = ServiceKey::new(service.meta.namespace.clone(), service.meta.name.clone()).object();
    let message = format!(
        "{place} may be a route that protects this Service, and cannot be used: the front door does not serve the Service \
         by its name until this is corrected"
    );
    let fix = format!(
        "Correct {place}; or, if the Service may be open to all clients, set seaway.dev/front-door: \"true\"."
    );
    Some(Problem::new(object, Reason::Ignored, message).fix(fix))
}

impl Index {
    /// From where a Service is guarded, if it is.
    pub(crate) fn guarded(&self, key: &ServiceKey) -> Option<GuardSource> {
        let source = |object: &ObjectRef| match object.kind {
            Kind::HTTPRoute => GuardSource::ByRoute,
            _ => GuardSource::AsksForOthers,
        };
        self.guards.of(key).next().map(source)
    }

    fn guarding_route(&self, key: &ServiceKey) -> Option<&ObjectRef> {
        self.guards.of(key).find(|it| it.kind == Kind::HTTPRoute)
    }
}
