//! Where Services of these tests are served.

use seaway_model::{
    Owner, Unit,
    unit::{LbKey, Place},
};
use seaway_plan::{Demand, Placement};
use seaway_testkit::facts::HOST;

pub(crate) struct OnHost;

impl Placement for OnHost {
    fn units(&self, demand: &Demand) -> Vec<Unit> {
        vec![unit(&demand.owner)]
    }
}

pub(crate) fn unit(owner: &Owner) -> Unit {
    Unit::LoadBalancer(Place::Host { name: HOST.into(), driver: "native".into() }, LbKey::Of(owner.clone()))
}
