//! Services that are guarded from elsewhere: a route that protects leads to them, or they answer for another Service whose requests
//! may pass. Unless such a Service asks for the front door itself, it is not served there by its name, where nothing would guard it.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use seaway_model::{
    ObjectRef, Problem, Reason,
    config::FrontDoor,
    fact::{HttpRoute, Service},
    load_balancer::Action,
};

use crate::{
    annotations::{FORWARD_AUTH, ServiceOptions},
    front_door,
    index::{Index, ServiceKey},
};

/// From where a Service is guarded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum GuardSource {
    ByRoute,
    AsksForOthers,
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

/// The Services that a route leads to and protects. Those of other namespaces it does not lead to.
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
    wishes.read(&route.object(), &route.meta.annotations);
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
    /// From where a Service is guarded, if it is. Routes that are not the front door's do not count.
    pub(crate) fn guarded(&self, key: &ServiceKey, settings: &FrontDoor) -> Option<GuardSource> {
        let guard = |object: &ObjectRef| match self.route(object) {
            Some(route) => front_door::is_here(route, settings).then_some(GuardSource::ByRoute),
            None => Some(GuardSource::AsksForOthers),
        };
        self.guards.of(key).find_map(guard)
    }
}
