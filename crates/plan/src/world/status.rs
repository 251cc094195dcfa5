//! Statuses: what an owner is told, folded from the plan, the ledger and all outcomes.

use std::{
    collections::{BTreeSet, HashMap},
    net::IpAddr,
    sync::Arc,
};

use seaway_model::{
    LoadBalancer, Name, ObjectRef, Owner, Pool, Problem, Status, WorkItem,
    load_balancer::{Bind, Family, ListenerId},
    outcome::{ReplacedLoadBalancer, ServingSocket},
    unit::Unit,
};

use super::World;
use crate::{
    ServiceKey,
    demand::Demand,
    front_door,
    ledger::{Grant, PoolUse},
};

/// One owner, for people: what `seaway plan` prints and the status page shows.
#[derive(Clone, Debug)]
pub struct Overview {
    pub status: Status,
    pub load_balancer: Arc<LoadBalancer>,
    pub demand: Option<Arc<Demand>>,
}

impl World {
    /// What a Unit waits for, or nothing any more.
    pub(super) fn stand(&mut self, unit: Unit, what: Option<Name>) {
        if let Unit::DnsName(name) = &unit {
            return what.into_iter().for_each(|service| self.note_holder(name, &service));
        }
        if note(&mut self.stands, &unit, what) {
            self.mark_statuses(&unit);
        }
    }

    /// What serves it instead of what its owner names, or nothing any more.
    pub(super) fn replace(&mut self, unit: Unit, what: Option<ReplacedLoadBalancer>) {
        if note(&mut self.replaced, &unit, what) {
            self.mark_statuses(&unit);
        }
    }

    pub(super) fn report(&mut self, object: ObjectRef, problems: Vec<Problem>) {
        self.note_faults(&object, !problems.is_empty());
        let before = if problems.is_empty() {
            self.reported.remove(&object)
        } else {
            self.reported.insert(object.clone(), problems)
        };
        if before.as_ref() != self.reported.get(&object) {
            for owner in self.owners_of(&object) {
                self.dirt.insert(WorkItem::Unit(Unit::Status(owner)));
            }
        }
    }

    fn mark_statuses(&mut self, unit: &Unit) {
        let owners = self.unit_owners.get(unit).into_iter().flatten();
        self.dirt.extend(owners.map(|owner| WorkItem::Unit(Unit::Status(owner.clone()))));
    }

    /// What an owner is told now; nothing, if there is no such owner.
    pub fn status(&self, owner: &Owner) -> Option<Status> {
        match front_door::entrance_of(owner) {
            Some(None) => return self.door_status(),
            Some(Some(name)) => return self.entrance_status(&name),
            None => {}
        }
        let status = self.guest_status(owner, self.own_status(owner));
        let status = status.map(|it| self.with_limit(self.with_permission(it)));
        status.or_else(|| self.limited_status(owner)).or_else(|| self.left_status(owner))
    }

    pub(super) fn own_status(&self, owner: &Owner) -> Option<Status> {
        let state = self.owners.get(owner)?;
        let load_balancer = &state.planned.load_balancer;
        let mut serving = Vec::new();
        let mut problems: BTreeSet<Problem> = state.planned.problems.iter().cloned().collect();
        if self.roles.host.is_none() {
            serving.extend(self.served_by_hosts(state));
        }
        for unit in &state.units {
            let Some(outcome) = self.outcomes.get(unit) else { continue };
            // One that failed may still report a port that is wanted no more.
            let is_wanted = |it: &&ServingSocket| {
                let id = ListenerId { l4: it.protocol, port: it.port };
                load_balancer.listeners.contains_key(&id) && self.is_reachable(load_balancer, it)
            };
            serving.extend(outcome.serving.iter().filter(is_wanted).cloned());
        }
        let presence = self.roles.host.iter().map(|host| Unit::HostAddresses(host.clone()));
        let names = state.planned.names.iter().map(|name| Unit::Name(name.clone()));
        // A claim that could not be written down has its outcome before it has an address.
        let claims = state.grant.iter().flat_map(|it| &it.addresses).map(|ip| Unit::Address(*ip));
        let hold = self.is_in_cloud(owner).then(|| Unit::Finalizer(owner.clone()));
        let in_dns = self.units_of_names(owner);
        for unit in
            state.units.iter().cloned().chain(presence).chain(names).chain(claims).chain(hold).chain(in_dns)
        {
            let told = self.outcomes.get(&unit).into_iter().flat_map(|it| &it.problems);
            problems.extend(told.filter(|(whose, _)| whose == owner).map(|(_, problem)| problem.clone()));
        }
        problems.extend(self.told_of_banks(state));
        problems.extend(self.reported.get(&owner.object()).into_iter().flatten().cloned());
        serving.sort();
        serving.dedup();
        let is_in_cloud = state.demand.as_ref().is_some_and(|it| it.cloud.is_some());
        let addresses = match is_in_cloud {
            true => self.cloud_addresses(owner, &serving),
            false => load_balancer.binds.iter().filter_map(Bind::ip).collect(),
        };
        problems.extend(self.told_of_excluded_hosts(state));
        problems.extend(self.layer2_problems(owner, state));
        problems.extend(self.bgp_problems(owner, state));
        problems.extend(self.told_of_copies(owner));
        problems.extend(self.name_problems(owner, state));
        let is_object = matches!(owner, Owner::Object { .. });
        let in_cluster = is_object && self.config.pools.cluster;
        let announced = is_object.then(|| self.announced(state, &addresses, is_in_cloud));
        let wanted = self
            .wanted_binds(state, &serving)
            .saturating_mul(state.demand.as_ref().map_or(0, |it| it.ports.len()));
        Some(Status {
            owner: owner.clone(),
            addresses,
            // A cloud may give more than what is needed.
            ready: wanted > 0 && (serving.len() == wanted || is_in_cloud && serving.len() > wanted),
            serving,
            members: state.planned.members,
            problems: problems.into_iter().collect(),
            pool: state.grant.as_ref().map(|it| it.pool.clone()),
            ports: state.grant.iter().filter(|_| in_cluster).flat_map(Grant::ports_at_hosts).collect(),
            announced,
            shown: state.demand.as_ref().map(|it| it.shown()).unwrap_or_default(),
            waits: match self.awaits_adoption(owner) {
                Some(why) => Some(format!("not adopted: {}", why.why()).into()),
                None => state.units.iter().find_map(|unit| self.stands.get(unit)).cloned(),
            },
            takes_over: true,
            unreported: is_in_cloud && self.is_unreported(&state.units),
            replaced: state.units.iter().find_map(|unit| self.replaced.get(unit)).cloned(),
            left: false,
        })
    }

    /// Those that it answers on; until the cloud was asked, those that were told before.
    fn cloud_addresses(&self, owner: &Owner, serving: &[ServingSocket]) -> Vec<IpAddr> {
        let told: BTreeSet<IpAddr> = serving.iter().map(|it| it.ip).collect();
        let mut told: Vec<IpAddr> = told.into_iter().collect();
        if !told.is_empty() {
            let demand = self.owners.get(owner).and_then(|it| it.demand.as_ref());
            let first = demand.and_then(|it| it.service.families.first);
            told.sort_by_key(|ip| first.is_some_and(|first| Family::of(*ip) != first));
            return told;
        }
        let object = owner.object();
        let key = ServiceKey::new(object.namespace, object.name);
        self.published.get(&key).cloned().unwrap_or_default()
    }

    /// A socket answers only where its address is present.
    fn is_reachable(&self, load_balancer: &LoadBalancer, at: &ServingSocket) -> bool {
        let given = load_balancer.binds.iter().any(|it| matches!(it, Bind::Cloud(_)));
        given || load_balancer.binds.contains(&Bind::Host(at.ip)) || self.is_served(at.ip)
    }

    /// Everything that somebody must know, in a stable order.
    pub fn problems(&self) -> Vec<Problem> {
        let reported = self.reported.iter().filter(|(object, _)| !self.is_foreign_route(object));
        let mut all: BTreeSet<Problem> = reported.flat_map(|(_, told)| told.iter().cloned()).collect();
        all.extend(self.ledger.problems());
        all.extend(self.newer());
        all.extend(self.told_of_silent());
        all.extend(self.released_problems());
        all.extend(self.orphan_problems());
        all.extend(self.adoption_problems());
        all.extend(self.announcing_problems());
        for (owner, state) in &self.owners {
            all.extend(state.planned.problems.iter().cloned());
            all.extend(self.name_problems(owner, state));
        }
        all.extend(self.door_problems());
        all.extend(self.certificates.problems());
        // What would keep a Service from being adopted is no Problem before it is to be.
        let told = self.outcomes.values().filter(|it| !self.is_awaiting_adoption(&it.unit));
        all.extend(told.flat_map(|it| &it.problems).map(|(_, problem)| problem.clone()));
        all.into_iter().collect()
    }

    /// The pools of a Service's own load balancer.
    pub(crate) fn pools_of(&self, owner: &Owner) -> impl Iterator<Item = Arc<Pool>> {
        let state = self.owners.get(owner);
        state.into_iter().flat_map(|it| it.planned.load_balancer.pools.values().cloned())
    }

    /// All owners in the order of their names.
    pub fn overview(&self) -> Vec<Overview> {
        let mut all: Vec<Overview> = (self.owners.iter())
            .filter_map(|(owner, state)| {
                Some(Overview {
                    status: self.status(owner)?,
                    load_balancer: state.planned.load_balancer.clone(),
                    demand: state.demand.clone(),
                })
            })
            .collect();
        all.extend(self.door_status().map(|status| Overview {
            status,
            load_balancer: self.door_load_balancer(),
            demand: None,
        }));
        all.extend(self.door.entrances.keys().filter_map(|name| {
            Some(Overview {
                status: self.entrance_status(name)?,
                load_balancer: self.entrance_load_balancer(name)?,
                demand: None,
            })
        }));
        all.sort_by_key(|it| it.status.owner.object());
        all
    }

    /// Attempts that failed, since the start.
    pub fn failures(&self) -> u64 {
        self.counts.failures
    }

    /// Whether this process serves as a host.
    pub fn is_host(&self) -> bool {
        self.roles.host.is_some()
    }

    /// Whether this process allocates addresses, and how often that changed.
    pub fn leadership(&self) -> (bool, u64) {
        (self.roles.allocate, self.counts.leads)
    }

    /// Whether hosts may have to answer for addresses by ARP and NDP.
    pub fn has_layer2_pools(&self) -> bool {
        self.ledger.has_layer2_pools()
    }

    /// How full each pool is.
    pub fn pools(&self) -> Vec<PoolUse> {
        self.ledger.pools()
    }

    /// Every Service that was told, ours or not.
    pub fn index(&self) -> &crate::index::Index {
        &self.index
    }

    pub fn config(&self) -> &seaway_model::Config {
        &self.config
    }
}

/// Whether that is news.
fn note<T: Clone + PartialEq>(all: &mut HashMap<Unit, T>, unit: &Unit, what: Option<T>) -> bool {
    let before = match &what {
        Some(what) => all.insert(unit.clone(), what.clone()),
        None => all.remove(unit),
    };
    before != what
}
