//! The Services that a route which protects led to before it named others. If it leads to none of the name that it says now, one of
//! those may be meant. They are known by the route, whatever its file is called, and whether or not it can be read.

use std::{collections::BTreeSet, sync::Arc};

use seaway_manifests::{object::UnusedRoute, tree::Position};
use seaway_model::{Fact, Name, ObjectRef};
use seaway_plan::{ServiceKey, guarded_references};

use super::{File, Folder, listing::Listing};
use crate::{
    document::LocatedObject,
    route_services::{LedServices, RouteServices},
};

impl File {
    /// The routes of the file that protect, with the Services that they name.
    fn protecting_routes(&self) -> LedServices {
        let written = self.documents.iter().flat_map(|it| &it.document.found);
        named(written.chain(self.kept.values()))
    }

    /// What of its routes is kept over restarts.
    pub(super) fn route_services(&self) -> RouteServices {
        let unused = self.documents.iter().flat_map(|it| &it.document.unused_routes);
        RouteServices::new(&self.led, unused.flat_map(|it| it.services.iter().cloned()).collect())
    }
}

fn together(routes: RouteServices, found: &[Arc<LocatedObject>]) -> LedServices {
    let mut led = routes.led();
    for (route, services) in named(found.iter()) {
        led.entry(route).or_default().extend(services);
    }
    led
}

fn named<'d>(objects: impl Iterator<Item = &'d Arc<LocatedObject>>) -> LedServices {
    let of_object = |it: &'d Arc<LocatedObject>| {
        let named = it.object.facts.iter().filter_map(|fact| match fact {
            Fact::HttpRoute(route) => Some(guarded_references(route)),
            _ => None,
        });
        let named: BTreeSet<ServiceKey> = named.flatten().collect();
        (!named.is_empty()).then(|| (it.reference().clone(), named))
    };
    objects.filter_map(of_object).collect()
}

impl Folder {
    /// The Services that the routes of a file led to when they were last seen to lead to one, without those that they name now.
    pub(super) fn led_before(&self, name: &Name, file: &File) -> LedServices {
        let is_there = |it: &ServiceKey| self.claims.served(&it.object()).is_some();
        let mut led = match self.files.get(name) {
            Some(before) => {
                let mut led = before.led.clone();
                for (route, mut services) in before.protecting_routes() {
                    services.retain(is_there);
                    if !services.is_empty() {
                        led.insert(route, services);
                    }
                }
                led
            }
            None => self.recall_led(name),
        };
        let now = file.protecting_routes();
        // The file may have had another name, or the route another file.
        let before = self.files.get(name).map(File::protecting_routes).unwrap_or_default();
        for route in now.keys().filter(|it| !before.contains_key(*it)) {
            let elsewhere = self.unused_routes.led_to(route, is_there);
            if !elsewhere.is_empty() {
                led.entry(route.clone()).or_default().extend(elsewhere);
            }
        }
        led.retain(|route: &ObjectRef, services| {
            let named = now.get(route);
            services.retain(|it| named.is_some_and(|named| !named.contains(it)));
            !services.is_empty()
        });
        led
    }

    /// The Services that the routes of a file led to before the restart. Which of them exist is not known yet.
    pub(super) fn recall_led(&self, name: &Name) -> LedServices {
        let Some(last_good) = &self.last_good else { return LedServices::new() };
        together(last_good.load_routes(name), &last_good.load(name))
    }

    /// The same of files that went while nothing watched them: they may have other names now.
    pub(super) fn recall_led_of_gone(&mut self, listing: &Listing) {
        let gone = self.last_good.as_ref().map(|it| it.load_gone(listing.files.keys()));
        for (routes, found) in gone.into_iter().flatten() {
            self.unused_routes.remember_led(together(routes, &found));
        }
    }

    /// Routes that could not be used before the restart, of a file that cannot be read after it.
    pub(super) fn recall_unused_route(&self, name: &Name) -> Option<UnusedRoute> {
        let services = self.last_good.as_ref()?.load_routes(name).unused();
        (!services.is_empty()).then_some(UnusedRoute { at: Position { line: 1, column: 1 }, services })
    }
}
