//! Services that a route was to protect which cannot be used: it is broken, of a kind that is not served, or leads to no Service of
//! the name that it says. The front door does not serve such a Service by its own name, where nothing would protect it.
//!
//! What follows from a folder does not depend on what it was before: after a restart it is the same.

use std::collections::{BTreeMap, BTreeSet, HashSet};

use seaway_manifests::object::UnusedRoute;
use seaway_model::{Fact, Kind, Name, ObjectRef, fact::HttpRoute, load_balancer::Action};
use seaway_plan::{ServiceKey, guarded_references, spelling::distance};

use super::{File, object_sources::ObjectSources};
use crate::route_services::LedServices;

#[derive(Default)]
pub(super) struct UnusedRoutes {
    /// Of each file: where they stand, and the Services that they name.
    by_file: BTreeMap<Name, Vec<(Name, BTreeSet<ServiceKey>)>>,
    /// The Services that each route names, of routes that protect.
    guarded: BTreeMap<ObjectRef, BTreeSet<ServiceKey>>,
    /// Of each file: the Services that its routes led to, before they named others.
    led: BTreeMap<Name, LedServices>,
    /// The same of files that went, until those are read that may have their routes now.
    led_of_gone: LedServices,
    is_changed: bool,
}

impl UnusedRoutes {
    /// Takes down those of a file, which is shown to people by another name.
    pub(super) fn set_file(&mut self, name: &Name, shown: &Name, file: Option<&File>) {
        let now = file.map(|file| of_file(shown, file)).unwrap_or_default();
        let before = match now.is_empty() {
            true => self.by_file.remove(name),
            false => self.by_file.insert(name.clone(), now.clone()),
        };
        self.is_changed |= before.unwrap_or_default() != now;
        let led = file.map(|it| it.led.clone()).unwrap_or_default();
        let before = match led.is_empty() {
            true => self.led.remove(name),
            false => self.led.insert(name.clone(), led.clone()),
        };
        let before = before.unwrap_or_default();
        self.is_changed |= before != led;
        if file.is_none() {
            self.remember_led(before);
        }
        // Its routes may stand in other lines.
        let mut objects = file.iter().flat_map(|it| &it.documents).flat_map(|it| &it.document.found);
        self.is_changed |= objects.any(|it| self.guarded.contains_key(it.reference()));
    }

    /// Takes down what routes led to whose file is not there any more.
    pub(super) fn remember_led(&mut self, led: LedServices) {
        for (route, services) in led {
            self.led_of_gone.entry(route).or_default().extend(services);
        }
    }

    /// The Services that a route of any file leads to; where there are none, those that it led to before.
    pub(super) fn led_to(
        &self,
        route: &ObjectRef,
        is_there: impl Fn(&ServiceKey) -> bool,
    ) -> BTreeSet<ServiceKey> {
        let now = self.guarded.get(route).into_iter().flatten().filter(|it| is_there(it));
        let now: BTreeSet<ServiceKey> = now.cloned().collect();
        if !now.is_empty() {
            return now;
        }
        let led = self.led.values().filter_map(|it| it.get(route)).chain(self.led_of_gone.get(route));
        led.flatten().cloned().collect()
    }

    /// The Services that are not to be served by their names, with the place of what was to protect them; nothing, if that is as it
    /// was. `changed`: the objects that may have changed.
    pub(super) fn take_changes(
        &mut self,
        changed: &BTreeSet<ObjectRef>,
        sources: &ObjectSources,
        place: impl Fn(&ObjectRef) -> Name,
    ) -> Option<BTreeMap<ObjectRef, Name>> {
        let mut is_changed = std::mem::take(&mut self.is_changed);
        self.led_of_gone.clear();
        for reference in changed {
            match reference.kind {
                Kind::HTTPRoute => self.set_route(reference, sources),
                Kind::Service => {}
                _ => continue,
            }
            is_changed = true;
        }
        is_changed.then(|| self.services(sources, place))
    }

    fn set_route(&mut self, reference: &ObjectRef, sources: &ObjectSources) {
        let route = sources.served(reference).map(|it| routes(&it.found.object.facts));
        let named: BTreeSet<ServiceKey> = route.into_iter().flatten().flat_map(guarded_references).collect();
        match named.is_empty() {
            true => self.guarded.remove(reference),
            false => self.guarded.insert(reference.clone(), named),
        };
    }

    fn services(
        &self,
        sources: &ObjectSources,
        place: impl Fn(&ObjectRef) -> Name,
    ) -> BTreeMap<ObjectRef, Name> {
        let is_there = |it: &ServiceKey| sources.served(&it.object()).is_some();
        let named = self.by_file.values().flatten();
        let named = named.flat_map(|(place, all)| all.iter().map(move |it| (it, place)));
        let mut found: BTreeMap<ObjectRef, Name> =
            named.filter(|it| is_there(it.0)).map(|(it, place)| (it.object(), place.clone())).collect();
        // To another namespace, a route does not lead without a grant.
        let leads = |route: &ObjectRef, to: &ServiceKey| to.namespace == route.namespace && is_there(to);
        let all = self.guarded.iter().flat_map(|(route, all)| all.iter().map(move |to| (route, to)));
        let mut unled = all.filter(|(route, to)| !leads(route, to)).peekable();
        if unled.peek().is_none() {
            return found;
        }
        let services = Services::of(sources);
        for (route, to) in unled {
            found.extend(services.meant(route, to).map(|service| (service.clone(), place(route))));
            let led = self.led.values().filter_map(|it| it.get(route)).flatten();
            let led = led.filter(|it| it.namespace == route.namespace && is_there(it));
            found.extend(led.map(|it| (it.object(), place(route))));
        }
        found
    }
}

fn routes(facts: &[Fact]) -> impl Iterator<Item = &HttpRoute> {
    facts.iter().filter_map(|fact| match fact {
        Fact::HttpRoute(route) => Some(&**route),
        _ => None,
    })
}

/// The Services of a folder, and those among them that routes lead to.
struct Services<'s> {
    by_namespace: BTreeMap<&'s str, Vec<&'s ObjectRef>>,
    by_name: BTreeMap<&'s str, Vec<&'s ObjectRef>>,
    routed: HashSet<ObjectRef>,
}

impl<'s> Services<'s> {
    fn of(sources: &'s ObjectSources) -> Services<'s> {
        let (mut by_namespace, mut by_name) = (BTreeMap::new(), BTreeMap::new());
        for service in sources.references(Kind::Service) {
            by_namespace.entry(service.namespace.as_str()).or_insert_with(Vec::new).push(service);
            by_name.entry(service.name.as_str()).or_insert_with(Vec::new).push(service);
        }
        let all = sources.references(Kind::HTTPRoute).filter_map(|it| sources.served(it));
        let rules = all.flat_map(|it| routes(&it.found.object.facts)).flat_map(|it| &it.rules);
        let routed = rules.flat_map(|rule| match &rule.action {
            Action::Forward(backends) => backends.as_slice(),
            Action::Redirect(_) | Action::Respond { .. } => &[],
        });
        let object = |to: &Name, service: &Name| ServiceKey::new(to.clone(), service.clone()).object();
        let routed = routed.map(|(to, _)| object(&to.namespace, &to.service)).collect();
        Services { by_namespace, by_name, routed }
    }

    /// The Services that a route may have been to lead to, which says that it leads to one to which it does not. Those that have
    /// routes of their own are not among them, but for the one that it names.
    fn meant(&self, route: &ObjectRef, to: &ServiceKey) -> impl Iterator<Item = &'s ObjectRef> {
        let beside = self.by_namespace.get(route.namespace.as_str()).map_or(&[][..], Vec::as_slice);
        let slips = beside.iter().copied().filter(|it| is_slip(&it.name, &to.name));
        // A route that stands in the wrong namespace has no Service beside it.
        let is_misplaced = beside.is_empty();
        let called = self.by_name.get(to.name.as_str()).map_or(&[][..], Vec::as_slice);
        let elsewhere = called.iter().copied().filter(move |_| is_misplaced);
        let unrouted = slips.chain(elsewhere).filter(|it| !self.routed.contains(*it));
        let named = called.iter().copied().filter(|it| it.namespace == to.namespace);
        unrouted.chain(named).collect::<Vec<_>>().into_iter()
    }
}

/// Whether one letter is wrong, missing, or beside its place: `admn` for `admin`. `web-2` is no slip of the pen for `web-1`.
fn is_slip(name: &str, written: &str) -> bool {
    let letters = |it: &str| it.chars().filter(|it| !it.is_ascii_digit()).collect::<String>();
    name.len().abs_diff(written.len()) <= 1
        && letters(name) != letters(written)
        && distance(name, written) == 1
}

/// Those of a file, without what a last good state in it protects.
fn of_file(shown: &Name, file: &File) -> Vec<(Name, BTreeSet<ServiceKey>)> {
    let of_document = |placed: &super::FileDocument| {
        let of_line = |it: &UnusedRoute| {
            let line = placed.line.saturating_add(it.at.line);
            (Name::from(format!("{shown}:{line}")), it.services.clone())
        };
        placed.document.unused_routes.iter().map(of_line).collect::<Vec<_>>()
    };
    let unread = file.unread_route.iter().map(|it| (shown.clone(), it.services.clone()));
    let mut all: Vec<_> = file.documents.iter().flat_map(of_document).chain(unread).collect();
    if !all.is_empty() {
        let kept = file.kept.values().flat_map(|it| routes(&it.object.facts));
        let guarded: BTreeSet<ServiceKey> = kept.flat_map(guarded_references).collect();
        for (_, services) in &mut all {
            services.retain(|it| !guarded.contains(it));
        }
        all.retain(|(_, services)| !services.is_empty());
    }
    all
}
