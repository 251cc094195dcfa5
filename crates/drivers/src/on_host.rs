//! Where the load balancers of a host are, whichever data plane serves them there.

use seaway_model::{Name, Owner, Place, Unit, unit::LbKey};
use seaway_plan::{Demand, Placement};

/// Each owner has one load balancer on this host, by the driver of this name.
pub struct HostPlacement {
    host: Name,
    driver: &'static str,
}

impl HostPlacement {
    pub fn new(host: Name, driver: &'static str) -> HostPlacement {
        HostPlacement { host, driver }
    }

    pub fn place(&self) -> Place {
        Place::Host { name: self.host.clone(), driver: self.driver.into() }
    }

    fn units_of(&self, owner: &Owner) -> Vec<Unit> {
        vec![Unit::LoadBalancer(self.place(), LbKey::Of(owner.clone()))]
    }
}

impl Placement for HostPlacement {
    fn units(&self, demand: &Demand) -> Vec<Unit> {
        self.units_of(&demand.owner)
    }

    fn front_door(&self, owner: &Owner) -> Vec<Unit> {
        self.units_of(owner)
    }
}
