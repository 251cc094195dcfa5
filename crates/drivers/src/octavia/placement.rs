//! Which Units a Service has in a cloud. Pure.

use seaway_model::{LbKey, Name, Unit, unit::Place};
use seaway_plan::{Demand, Placement};

use super::OCTAVIA;

/// Gives each Service of one class a load balancer of its own in one cloud.
pub struct InCloud {
    pub cloud: Name,
    pub class: Name,
}

impl Placement for InCloud {
    fn units(&self, demand: &Demand) -> Vec<Unit> {
        let is_ours =
            demand.cloud.as_ref().is_some_and(|(class, usual)| *class == self.class && !usual.absent);
        let place = || Place::Cloud { name: self.cloud.clone(), driver: OCTAVIA.into() };
        let group = || Unit::SecurityGroup { cloud: self.cloud.clone(), class: self.class.clone() };
        let owner = || demand.owner.clone();
        let mut units: Vec<Unit> =
            is_ours.then(|| Unit::LoadBalancer(place(), LbKey::Of(owner()))).into_iter().collect();
        // Whether one load balancer has addresses of both families, the cloud alone knows; the driver asks it.
        let second = demand.second_family().filter(|_| is_ours);
        units.extend(second.map(|it| Unit::LoadBalancer(place(), LbKey::Second(owner(), it))));
        units.extend((is_ours && demand.is_opened()).then(group));
        units
    }
}
