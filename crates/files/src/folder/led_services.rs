//! The Services that a route which protects led to before it named others. If it leads to none of the name that it says now, one of
//! those may be meant.

use std::{collections::BTreeSet, sync::Arc};

use seaway_manifests::{object::UnusedRoute, tree::Position};
use seaway_model::{Fact, Name, ObjectRef};
use seaway_plan::{ServiceKey, guarded_references};

use super::{File, Folder};
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
        let mut led = match (self.files.get(name), &self.last_good) {
            (Some(before), _) => {
                let mut led = before.led.clone();
                for (route, mut services) in before.protecting_routes() {
                    services.retain(is_there);
                    if !services.is_empty() {
                        led.insert(route, services);
                    }
                }
                led
            }
            // Which of them exist is not known yet.
            (None, Some(last_good)) => {
                let mut led = last_good.load_routes(name).led();
                for (route, services) in named(last_good.load(name).iter()) {
                    led.entry(route).or_default().extend(services);
                }
                led
            }
            (None, None) => LedServices::new(),
        };
        let now = file.protecting_routes();
        led.retain(|route: &ObjectRef, services| {
            let named = now.get(route);
            services.retain(|it| named.is_some_and(|named| !named.contains(it)));
            !services.is_empty()
        });
        led
    }

    /// Routes that could not be used before the restart, of a file that cannot be read after it.
    pub(super) fn recall_unused_route(&self, name: &Name) -> Option<UnusedRoute> {
        let services = self.last_good.as_ref()?.load_routes(name).unused();
        (!services.is_empty()).then_some(UnusedRoute { at: Position { line: 1, column: 1 }, services })
    }
}
