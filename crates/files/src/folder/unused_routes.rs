//! Services that a route was to protect which cannot be used: it is broken, of a kind that is not served, or leads to no Service of
//! the name that it says. The front door does not serve such a Service by its own name, where nothing would protect it.

use std::collections::{BTreeMap, BTreeSet};

use seaway_manifests::{decode::nearest, object::UnusedRoute};
use seaway_model::{Fact, Kind, Name, ObjectRef, load_balancer::Action};
use seaway_plan::{ServiceKey, guarded_references};

use super::{File, object_sources::ObjectSources};

#[derive(Default)]
pub(super) struct UnusedRoutes {
    /// Of each file: where they stand, and the names in them.
    by_file: BTreeMap<Name, Vec<(Name, UnusedRoute)>>,
    /// The Services that each route names, of routes that protect.
    guarded: BTreeMap<ObjectRef, BTreeSet<ServiceKey>>,
    is_changed: bool,
}

impl UnusedRoutes {
    /// Takes down those of a file, which is shown to people by another name.
    pub(super) fn set_file(&mut self, name: &Name, shown: &Name, file: Option<&File>) {
        let now: Vec<(Name, UnusedRoute)> = file.map(|file| of_file(shown, file)).unwrap_or_default();
        let before = match now.is_empty() {
            true => self.by_file.remove(name),
            false => self.by_file.insert(name.clone(), now.clone()),
        };
        self.is_changed |= before.unwrap_or_default() != now;
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
        let facts = sources.served(reference).map(|it| it.found.object.facts.as_slice()).unwrap_or_default();
        let named = facts.iter().flat_map(|fact| match fact {
            Fact::HttpRoute(route) => guarded_references(route),
            _ => BTreeSet::new(),
        });
        let named: BTreeSet<ServiceKey> = named.collect();
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
        let is_led_to = |route: &ObjectRef, to: &ServiceKey| {
            // To another namespace, a route does not lead without a grant.
            to.namespace == route.namespace && sources.served(&to.object()).is_some()
        };
        let named = self.guarded.iter().flat_map(|(route, all)| all.iter().map(move |to| (route, to)));
        let unled: Vec<(&ObjectRef, &ServiceKey)> =
            named.filter(|(route, to)| !is_led_to(route, to)).collect();
        if unled.is_empty() && self.by_file.is_empty() {
            return BTreeMap::new();
        }
        let services = Services::of(sources);
        let mut found = BTreeMap::new();
        for (place, route) in self.by_file.values().flatten() {
            let all = route.names.iter().flat_map(|name| services.called(name));
            found.extend(all.map(|service| (service.clone(), place.clone())));
        }
        for (route, to) in unled {
            found.extend(services.meant(route, to).map(|service| (service.clone(), place(route))));
        }
        found
    }
}

/// The Services of a folder, and those among them that routes lead to.
struct Services<'s> {
    by_name: BTreeMap<&'s str, Vec<&'s ObjectRef>>,
    routed: BTreeSet<ObjectRef>,
}

impl<'s> Services<'s> {
    fn of(sources: &'s ObjectSources) -> Services<'s> {
        let mut by_name: BTreeMap<&str, Vec<&ObjectRef>> = BTreeMap::new();
        for service in sources.references(Kind::Service) {
            by_name.entry(&service.name).or_default().push(service);
        }
        let routes = sources.references(Kind::HTTPRoute).filter_map(|it| sources.served(it));
        let facts = routes.flat_map(|it| &it.found.object.facts);
        let rules = facts.flat_map(|fact| match fact {
            Fact::HttpRoute(route) => route.rules.as_slice(),
            _ => &[],
        });
        let routed = rules.flat_map(|rule| match &rule.action {
            Action::Forward(backends) => backends.as_slice(),
            Action::Redirect(_) | Action::Respond { .. } => &[],
        });
        let routed = routed
            .map(|(to, _)| ServiceKey::new(to.namespace.clone(), to.service.clone()).object())
            .collect();
        Services { by_name, routed }
    }

    fn called(&self, name: &str) -> impl Iterator<Item = &'s ObjectRef> {
        self.by_name.get(name).into_iter().flatten().copied()
    }

    /// The Services that a route may have been to lead to, which says that it leads to one to which it does not.
    fn meant(&self, route: &ObjectRef, to: &ServiceKey) -> impl Iterator<Item = &'s ObjectRef> {
        let beside: Vec<&str> = self
            .by_name
            .iter()
            .filter(|(_, all)| all.iter().any(|it| it.namespace == route.namespace))
            .map(|(name, _)| *name)
            .collect();
        // `web-2` is no slip of the pen for `web-1`, nor is what other routes lead to.
        let letters = |it: &str| it.chars().filter(|it| !it.is_ascii_digit()).collect::<String>();
        let slip = nearest(&to.name, &beside).filter(|it| letters(it) != letters(&to.name));
        let slip = slip.into_iter().flat_map(|it| self.called(it));
        let slip = slip.filter(|it| it.namespace == route.namespace && !self.routed.contains(*it));
        // A route that stands in the wrong namespace has no Service beside it.
        let is_misplaced = beside.is_empty();
        let elsewhere = self.called(&to.name).filter(|it| is_misplaced || it.namespace == to.namespace);
        slip.chain(elsewhere).collect::<Vec<_>>().into_iter()
    }
}

/// Those of a file that no last good state stands in for.
fn of_file(shown: &Name, file: &File) -> Vec<(Name, UnusedRoute)> {
    let is_kept = |reference: Option<&ObjectRef>| match reference {
        Some(reference) => file.kept.contains_key(reference),
        None => file.kept.keys().any(|it| it.kind == Kind::HTTPRoute),
    };
    let unused = file.documents.iter().filter_map(|placed| {
        let (document, before) = (&placed.document, placed.line);
        let route = document.unused_route.as_ref()?;
        let stands_in =
            !document.broken.is_empty() && document.broken.iter().all(|it| is_kept(it.reference.as_ref()));
        let first = document.broken.iter().flat_map(|it| &it.errors).map(|it| it.at.line).min();
        let line = before.saturating_add(first.unwrap_or(1));
        (!stands_in).then(|| (format!("{shown}:{line}").into(), route.clone()))
    });
    unused.collect()
}
