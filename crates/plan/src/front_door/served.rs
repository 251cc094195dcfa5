//! A Service that the front door leads to: who answers at each of its ports.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
    sync::Arc,
};

use seaway_model::{
    Name, Owner, Pool, PoolId, Problem,
    fact::Service,
    load_balancer::{BackendProtocol, Limits},
};

use super::attached_route::pool_id;
use crate::{
    annotations::{CONNECTIONS, RATE, ServiceOptions},
    demand::Demand,
    http::protocol_of,
    index::{PlanContext, ServiceKey},
    members::members,
    own_listeners::PoolOwner,
    service::{backend_tls, member_problems, missing_authorities, pool, reuse_if_equal},
};

#[derive(Debug, PartialEq)]
pub(crate) struct PlannedBackends {
    pub(super) owner: Owner,
    pools: BTreeMap<PoolId, Arc<Pool>>,
    pub(crate) problems: Vec<Problem>,
    /// DNS names that its members need.
    pub(crate) names: BTreeSet<Name>,
    /// Members that were left out, since we listen there ourselves, or nobody may name them.
    pub(crate) refused: Vec<IpAddr>,
}

impl PlannedBackends {
    /// Pools that come out as they were are the very same `Arc`.
    pub(super) fn new(
        service: &Arc<Service>,
        ports: &BTreeSet<u16>,
        given: PlanContext<'_>,
        before: &BTreeMap<PoolId, Arc<Pool>>,
    ) -> PlannedBackends {
        let key = ServiceKey::new(service.meta.namespace.clone(), service.meta.name.clone());
        PlannedBackends::asked_by(&PoolOwner::AtFrontDoor(key), service, ports, given, before)
    }

    /// The same for another owner, of whose share of members they are.
    pub(crate) fn asked_by(
        who: &PoolOwner,
        service: &Arc<Service>,
        ports: &BTreeSet<u16>,
        given: PlanContext<'_>,
        before: &BTreeMap<PoolId, Arc<Pool>>,
    ) -> PlannedBackends {
        let key = ServiceKey::new(service.meta.namespace.clone(), service.meta.name.clone());
        let demand = Demand::at_front_door(service, ports, given.config);
        let mut served = PlannedBackends {
            owner: demand.owner.clone(),
            pools: BTreeMap::new(),
            problems: demand.problems.clone(),
            names: BTreeSet::new(),
            refused: Vec::new(),
        };
        served.problems.extend(missing_authorities(&demand, given.certificates));
        let mut too_many = 0_usize;
        for wanted in &demand.ports {
            let mut found =
                members(given.index, service, &wanted.port, given.host, demand.wishes.members, &[]);
            served.problems.extend(member_problems(&demand, wanted, &found));
            served.names.extend(found.names.iter().cloned());
            served.refused.extend(found.left_out());
            let id = pool_id(&key, wanted.port.port);
            too_many = too_many.saturating_add(given.index.shares.fit(
                who,
                &demand,
                &mut found.list,
                before.get(&id),
            ));
            let through = demand.wishes.tls.through;
            let tls = backend_tls(&demand, &wanted.port, !through, given.certificates);
            let protocol = match through {
                true => BackendProtocol::Opaque,
                false => protocol_of(&wanted.port).to_members(),
            };
            let limits = limits(&demand.wishes);
            let pool = Pool { tls, limits, ..pool(&demand, &wanted.port, id.clone(), protocol, found) };
            served.pools.insert(id.clone(), reuse_if_equal(before.get(&id), pool));
        }
        served.problems.extend(given.index.shares.problem(who, &demand, too_many));
        served
    }

    pub(crate) fn pools(&self) -> BTreeMap<PoolId, Arc<Pool>> {
        self.pools.clone()
    }

    pub(super) fn member_addresses(&self) -> impl Iterator<Item = IpAddr> + '_ {
        let members = self.pools.values().flat_map(|pool| &pool.members);
        members.map(|it| it.at.ip()).chain(self.refused.iter().copied())
    }

    pub(super) fn members(&self) -> usize {
        self.pools.values().map(|pool| pool.members.len()).sum()
    }
}

/// Those of the Service itself. What the configuration says for each listener holds for the front door's as a whole.
fn limits(wishes: &ServiceOptions) -> Limits {
    let of_its_own = |option: &str, limit: Option<u32>| limit.filter(|_| wishes.written.contains_key(option));
    Limits {
        connections: of_its_own(CONNECTIONS, wishes.limits.connections),
        new_per_second: of_its_own(RATE, wishes.limits.new_per_second),
    }
}
