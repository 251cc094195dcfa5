//! The Service that listeners of an owner ask about requests (`forward_auth`): its members are a pool of theirs.

use std::sync::Arc;

use seaway_model::LoadBalancer;

use crate::{
    demand::Demand, forward_auth::asked_by, front_door::PlannedBackends, index::PlanContext,
    own_listeners::PoolOwner, service::PlannedService,
};

impl PlannedService {
    /// Adds the pool of whom its listeners ask, as it would be at the front door.
    pub(crate) fn with_asked(
        mut self,
        demand: &Demand,
        given: PlanContext<'_>,
        before: &LoadBalancer,
    ) -> PlannedService {
        let Some((key, port)) = asked_by(demand) else { return self };
        let Some(service) = given.index.service(&key) else { return self };
        let who = PoolOwner::Owner(demand.owner.clone());
        let asked = PlannedBackends::asked_by(&who, service, &[port].into(), given, &before.pools);
        Arc::make_mut(&mut self.load_balancer).pools.extend(asked.pools());
        self.names.extend(asked.names);
        self.refused.extend(asked.refused);
        self.problems.extend(asked.problems);
        self
    }
}
