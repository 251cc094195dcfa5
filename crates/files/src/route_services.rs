//! What of the routes of one file outlives a restart beside their texts: the Services that they led to, and those that routes which
//! cannot be used name. Without it, such a Service would be open by its name after a restart, and not before.

use std::collections::{BTreeMap, BTreeSet};

use seaway_model::ObjectRef;
use seaway_plan::ServiceKey;
use serde::{Deserialize, Serialize};

/// Services by the routes that led to them, before those named others.
pub(crate) type LedServices = BTreeMap<ObjectRef, BTreeSet<ServiceKey>>;

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct RouteServices {
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    led: Vec<RouteTargets>,
    /// Of routes that protect and cannot be used.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    unused: Vec<ObjectRef>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct RouteTargets {
    route: ObjectRef,
    services: Vec<ObjectRef>,
}

impl RouteServices {
    pub(crate) fn new(led: &LedServices, unused: BTreeSet<ServiceKey>) -> RouteServices {
        let targets = |(route, services): (&ObjectRef, &BTreeSet<ServiceKey>)| RouteTargets {
            route: route.clone(),
            services: services.iter().map(ServiceKey::object).collect(),
        };
        RouteServices {
            led: led.iter().map(targets).collect(),
            unused: unused.iter().map(ServiceKey::object).collect(),
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        *self == RouteServices::default()
    }

    pub(crate) fn led(&self) -> LedServices {
        self.led.iter().map(|it| (it.route.clone(), keys(&it.services))).collect()
    }

    pub(crate) fn unused(&self) -> BTreeSet<ServiceKey> {
        keys(&self.unused)
    }
}

fn keys(services: &[ObjectRef]) -> BTreeSet<ServiceKey> {
    services.iter().map(|it| ServiceKey::new(it.namespace.clone(), it.name.clone())).collect()
}
