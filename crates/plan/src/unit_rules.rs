//! Rules by which Services get Units. Right before a Unit is removed, they decide whether a Service still uses it.

use std::sync::Arc;

use seaway_model::{
    Config, Unit,
    fact::{FamilyPolicy, Service, ServiceKind},
    load_balancer::Family,
    unit::{LbKey, Place},
};

use crate::{
    Demand, Placement,
    world::{may_have, names},
};

/// The rules by which Services get Units, of one moment. They hold no Service: those are handed in.
#[derive(Clone)]
pub struct UnitRules {
    pub(crate) config: Arc<Config>,
    pub(crate) placements: Vec<Arc<dyn Placement>>,
}

impl UnitRules {
    /// Whether this Service is a reason to leave this Unit as it is. What is being deleted is none.
    pub fn uses(&self, service: &Arc<Service>, unit: &Unit) -> bool {
        if service.kind != ServiceKind::LoadBalancer || service.leaving {
            return false;
        }
        match unit {
            Unit::LoadBalancer(Place::Cloud { .. }, LbKey::Second(_, family)) => {
                !self.demand(service).is_some_and(|it| it.cloud.is_some() && it.drops_second(*family))
            }
            Unit::LoadBalancer(..) => true,
            Unit::SecurityGroup { .. } => {
                let units = |demand: &Demand| -> Vec<Unit> {
                    self.placements.iter().flat_map(|it| it.units(demand)).collect()
                };
                self.demand(service).is_some_and(|it| units(&it).contains(unit))
            }
            Unit::DnsName(name) => {
                names(service, name) && may_have(&self.config, name, &service.meta.namespace)
            }
            _ => false,
        }
    }

    fn demand(&self, service: &Arc<Service>) -> Option<Demand> {
        Demand::of_held(service, service.held, &self.config)
    }
}

impl Demand {
    /// Whether the Service itself does not want addresses of this second family any more, whatever the configuration says.
    pub(crate) fn drops_second(&self, family: Family) -> bool {
        let families = self.service.families;
        let is_second = families.second == Some(family) && families.policy != FamilyPolicy::Single;
        !is_second
            || self.wishes.cloud.named.is_some()
            || self.wishes.cloud.called.is_some()
            || self.wishes.cloud.group.is_some()
            || self.wishes.cloud.port.is_some()
    }
}
