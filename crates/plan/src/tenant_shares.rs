//! How many listeners and members the Services of each namespace have together: each listener takes a descriptor for each worker
//! of a host, and each member its memory.
//!
//! ```text
//!     ports × families of addresses ─┐                        ┌─► a Service that does not fit listens nowhere
//!     ports × endpoints ─────────────┴─► oldest Service first ┴─► of members that do not fit, some are left out
//! ```
//! What counts is what objects say, not what one host makes of it: all hosts decide alike, and after a restart as before. Who
//! is older by its creation, then by its name, comes first, so that a Service that is added takes nothing from those that are
//! there.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    sync::Arc,
};

use seaway_model::{
    Member, Name, Owner, Pool, Problem, Reason, Time,
    config::TenantLimits,
    fact::{FamilyPolicy, ServiceKind},
    load_balancer::MemberState,
};

use crate::{demand::Demand, index::Index, members::has_port, own_listeners::PoolOwner};

#[derive(Debug, Default)]
pub(crate) struct TenantShares {
    limits: Limits,
    by_namespace: HashMap<Name, NamespaceShares>,
    places: HashMap<PoolOwner, (Name, Rank)>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Limits {
    listeners: Option<usize>,
    members: Option<usize>,
}

/// The older first.
type Rank = (Option<Time>, Name, PoolOwner);

/// Of one namespace.
#[derive(Debug, Default)]
struct NamespaceShares {
    wanted: BTreeMap<Rank, RequestedShare>,
    all: RequestedShare,
    /// Of those that have less than they want.
    cut: BTreeMap<Rank, GrantedShare>,
}

/// What somebody would have without limits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct RequestedShare {
    listeners: usize,
    members: usize,
}

/// What somebody has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct GrantedShare {
    listens: bool,
    members: usize,
}

impl RequestedShare {
    pub(crate) fn of(demand: &Demand, index: &Index, listens: bool) -> RequestedShare {
        let service = &demand.service;
        let families = if service.families.policy == FamilyPolicy::Single { 1 } else { 2 };
        let key = crate::ServiceKey::new(service.meta.namespace.clone(), service.meta.name.clone());
        let of_port = |port| {
            let slices = index.endpoints(&key).filter(|it| has_port(&it.ports, port));
            slices.map(|it| it.endpoints.len()).sum::<usize>()
        };
        let members = match service.kind {
            ServiceKind::ExternalName(_) => demand.ports.len(),
            _ => demand.ports.iter().map(|it| of_port(&it.port)).sum(),
        };
        let listeners = if listens { demand.ports.len().saturating_mul(families) } else { 0 };
        RequestedShare { listeners, members }
    }

    fn plus(self, other: RequestedShare) -> RequestedShare {
        RequestedShare {
            listeners: self.listeners.saturating_add(other.listeners),
            members: self.members.saturating_add(other.members),
        }
    }

    fn minus(self, other: RequestedShare) -> RequestedShare {
        RequestedShare {
            listeners: self.listeners.saturating_sub(other.listeners),
            members: self.members.saturating_sub(other.members),
        }
    }
}

impl Limits {
    fn allow(self, wanted: RequestedShare) -> bool {
        fits(wanted.listeners, self.listeners) && fits(wanted.members, self.members)
    }
}

fn fits(count: usize, most: Option<usize>) -> bool {
    most.is_none_or(|most| count <= most)
}

impl TenantShares {
    /// Other limits; whoever calls plans everything again.
    pub(crate) fn set_limits(&mut self, limits: &TenantLimits) {
        let number = |most: Option<u32>| most.map(|it| it as usize);
        self.limits = Limits { listeners: number(limits.listeners), members: number(limits.members) };
        self.by_namespace.values_mut().for_each(|shares| shares.cut = shares.cut_by(self.limits));
    }

    /// Somebody comes, changes or goes (`None`). Tells who has another share than before. What the configuration itself serves
    /// is nobody's share.
    pub(crate) fn set(
        &mut self,
        who: &PoolOwner,
        now: Option<(&Demand, RequestedShare)>,
    ) -> BTreeSet<PoolOwner> {
        let now =
            now.filter(|(demand, _)| !matches!(demand.owner, Owner::Config(_)) && demand.cloud.is_none());
        let now = now.map(|(demand, wanted)| {
            let meta = &demand.service.meta;
            ((meta.namespace.clone(), (meta.created, meta.name.clone(), who.clone())), wanted)
        });
        let before = match &now {
            Some((place, _)) => self.places.insert(who.clone(), place.clone()),
            None => self.places.remove(who),
        };
        let mut changed = BTreeSet::new();
        if let Some((namespace, rank)) = before.filter(|it| now.as_ref().is_none_or(|(place, _)| place != it))
        {
            changed.extend(self.put(&namespace, &rank, None));
        }
        if let Some(((namespace, rank), wanted)) = now {
            changed.extend(self.put(&namespace, &rank, Some(wanted)));
        }
        changed
    }

    fn put(&mut self, namespace: &Name, rank: &Rank, wanted: Option<RequestedShare>) -> Vec<PoolOwner> {
        let shares = self.by_namespace.entry(namespace.clone()).or_default();
        let before = match wanted {
            Some(wanted) => shares.wanted.insert(rank.clone(), wanted),
            None => shares.wanted.remove(rank),
        };
        shares.all = shares.all.plus(wanted.unwrap_or_default()).minus(before.unwrap_or_default());
        let cut = shares.cut_by(self.limits);
        let ranks = cut.keys().chain(shares.cut.keys());
        let changed = ranks.filter(|it| cut.get(*it) != shares.cut.get(*it)).map(|(.., who)| who.clone());
        let changed = changed.collect();
        shares.cut = cut;
        if shares.wanted.is_empty() {
            self.by_namespace.remove(namespace);
        }
        changed
    }

    fn share(&self, who: &PoolOwner) -> Option<GrantedShare> {
        let (namespace, rank) = self.places.get(who)?;
        self.by_namespace.get(namespace)?.cut.get(rank).copied()
    }

    /// Whether it listens at its ports.
    pub(crate) fn may_listen(&self, who: &PoolOwner) -> bool {
        self.share(who).is_none_or(|it| it.listens)
    }

    /// Leaves members of a port out until its part of what its Service has is not exceeded, and tells how many. Those that are
    /// ready come first, then those that were there before.
    pub(crate) fn fit(
        &self,
        who: &PoolOwner,
        demand: &Demand,
        list: &mut Vec<Member>,
        before: Option<&Arc<Pool>>,
    ) -> usize {
        // Names have more members than anybody knew when shares were made.
        let all = if self.places.contains_key(who) { self.limits.members } else { None };
        let Some(most) = self.share(who).map(|it| it.members).or(all) else { return 0 };
        let most = most.div_ceil(demand.ports.len().max(1));
        let left_out = list.len().saturating_sub(most);
        if left_out > 0 {
            let known: BTreeSet<_> = before.iter().flat_map(|pool| &pool.members).map(|it| it.at).collect();
            list.sort_by_key(|it| {
                (it.state != MemberState::Ready, it.backup, !known.contains(&it.at), it.at)
            });
            list.truncate(most);
            list.sort_by_key(|it| it.at);
        }
        left_out
    }

    /// What somebody is told who has less than he wants: `left_out` are his members.
    pub(crate) fn problem(&self, who: &PoolOwner, demand: &Demand, left_out: usize) -> Option<Problem> {
        let (namespace, _) = self.places.get(who)?;
        let all = self.by_namespace.get(namespace)?.all;
        let (message, fix) = if !self.may_listen(who) {
            let most = self.limits.listeners.unwrap_or_default();
            let has = all.listeners;
            (
                format!(
                    "namespace {namespace} has {has} listeners (ports, for each family of addresses) and may have {most}: none \
                     is opened for this Service"
                ),
                "Remove ports or Services of this namespace, or have tenants.limits.listeners raised in the configuration. The \
                 oldest Services are served first.",
            )
        } else if left_out > 0 {
            let most = self.limits.members.unwrap_or_default();
            let has = all.members;
            (
                format!(
                    "namespace {namespace} has {has} members (endpoints, for each port) and may have {most}: {left_out} of this \
                     Service are left out"
                ),
                "Remove endpoints, ports or Services of this namespace, or have tenants.limits.members raised in the \
                 configuration. The oldest Services have theirs first.",
            )
        } else {
            return None;
        };
        Some(Problem::new(demand.owner.object(), Reason::LimitReached, message).fix(fix))
    }
}

impl NamespaceShares {
    /// One that is too large does not keep out a smaller one behind it.
    fn cut_by(&self, limits: Limits) -> BTreeMap<Rank, GrantedShare> {
        let mut cut = BTreeMap::new();
        if limits.allow(self.all) {
            return cut;
        }
        let mut all = RequestedShare::default();
        for (rank, wanted) in &self.wanted {
            let with = all.plus(*wanted);
            if !fits(with.listeners, limits.listeners) {
                cut.insert(rank.clone(), GrantedShare { listens: false, members: 0 });
                continue;
            }
            if let Some(most) = limits.members.filter(|most| with.members > *most) {
                let members = most.saturating_sub(all.members);
                cut.insert(rank.clone(), GrantedShare { listens: true, members });
            }
            all = with;
        }
        cut
    }
}
