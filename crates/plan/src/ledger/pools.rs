//! The pools, in the order in which they are asked.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
    sync::Arc,
};

use seaway_model::{
    IpRange, Kind, ObjectRef, Problem, Reason, config::AddressPoolRules, fact::AddressPool,
    load_balancer::Family,
};

use super::{Ledger, claim::Claim};

/// The pool that is there without being written, in a folder.
pub(super) const HOSTS: &str = "hosts";

#[derive(Debug)]
pub(super) struct Pools {
    by_object: BTreeMap<ObjectRef, Arc<AddressPool>>,
    ordered: Vec<Arc<AddressPool>>,
    problems: Vec<Problem>,
    /// In a folder it serves while there is no other.
    default: AddressPool,
}

impl Default for Pools {
    fn default() -> Pools {
        let default = AddressPool {
            object: ObjectRef::new(Kind::AddressPool, "", HOSTS),
            created: None,
            labels: BTreeMap::new(),
            ranges: Vec::new(),
            hosts: true,
            control_planes: false,
            reserved_ports: BTreeSet::new(),
            announce: None,
            auto_assign: true,
            avoid_buggy: false,
            priority: 0,
            namespaces: Vec::new(),
            namespace_selectors: Vec::new(),
            service_selectors: Vec::new(),
        };
        Pools { by_object: BTreeMap::new(), ordered: Vec::new(), problems: Vec::new(), default }
    }
}

impl Pools {
    /// False if nothing changed by it.
    pub(super) fn put(&mut self, pool: Arc<AddressPool>) -> bool {
        let earlier = self.by_object.insert(pool.object.clone(), pool.clone());
        let changed = earlier.is_none_or(|earlier| earlier != pool);
        if changed {
            self.arrange();
        }
        changed
    }

    pub(super) fn remove(&mut self, object: &ObjectRef) -> bool {
        let changed = self.by_object.remove(object).is_some();
        if changed {
            self.arrange();
        }
        changed
    }

    /// As they are asked: lower priority first and 0 last; of equals those that are meant for somebody, then the
    /// older, as MetalLB has it.
    pub(super) fn ordered(&self) -> impl Iterator<Item = &AddressPool> {
        self.ordered.iter().map(Arc::as_ref)
    }

    /// Those that may serve this claim, as they are asked.
    pub(super) fn candidates(&self, claim: &Claim, rules: AddressPoolRules) -> Vec<&AddressPool> {
        if self.ordered.is_empty() && claim.pool.is_none() && !rules.cluster {
            return vec![&self.default];
        }
        let named = |pool: &&AddressPool| claim.pool.as_ref().is_none_or(|name| *name == pool.object.name);
        self.ordered().filter(named).filter(|pool| allows(pool, claim)).collect()
    }

    pub(super) fn default(&self) -> &AddressPool {
        &self.default
    }

    pub(super) fn problems(&self) -> &[Problem] {
        &self.problems
    }

    fn arrange(&mut self) {
        self.ordered = self.by_object.values().cloned().collect();
        self.ordered.sort_by_cached_key(|pool| {
            let last = pool.priority == 0;
            let for_all = pool.namespaces.is_empty()
                && pool.namespace_selectors.is_empty()
                && pool.service_selectors.is_empty();
            (last, pool.priority, for_all, pool.created, pool.object.name.clone(), pool.object.clone())
        });
        self.problems = overlaps(self.by_object.values());
    }
}

impl Ledger {
    /// Ours and MetalLB's.
    pub fn pools_called<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a AddressPool> {
        self.pools.ordered().filter(move |pool| pool.object.name.as_str() == name)
    }

    pub fn all_pools(&self) -> impl Iterator<Item = &AddressPool> {
        self.pools.ordered()
    }

    /// Whether a pool that is there may give this address.
    pub fn is_in_pool(&self, ip: IpAddr) -> bool {
        self.pools.ordered().any(|pool| gives(pool, ip))
    }
}

/// Namespaces and their selectors: either; Services' selectors: any. What is not given asks for nothing.
pub(super) fn allows(pool: &AddressPool, claim: &Claim) -> bool {
    let namespaces_free = pool.namespaces.is_empty() && pool.namespace_selectors.is_empty();
    let namespace = namespaces_free
        || pool.namespaces.contains(&claim.namespace)
        || pool.namespace_selectors.iter().any(|selector| selector.matches(&claim.namespace_labels));
    let service = pool.service_selectors.is_empty()
        || pool.service_selectors.iter().any(|selector| selector.matches(&claim.labels));
    namespace && service
}

/// Whether the pool may give this address to anybody.
pub(super) fn gives(pool: &AddressPool, ip: IpAddr) -> bool {
    !(pool.avoid_buggy && buggy(ip)) && ranges(pool).any(|range| range.contains(ip))
}

/// A pool of hosts has no ranges, whatever is written there.
pub(super) fn ranges(pool: &AddressPool) -> impl Iterator<Item = IpRange> + '_ {
    pool.ranges.iter().copied().filter(|_| !pool.hosts)
}

/// Old firmware takes the first and last address of each /24 for a network's own.
pub(super) fn buggy(ip: IpAddr) -> bool {
    matches!(ip, IpAddr::V4(ip) if matches!(ip.octets()[3], 0 | 255))
}

/// The pool's ranges of a family, sorted and without doubles.
pub(super) fn merged(pool: &AddressPool, family: Family) -> Vec<IpRange> {
    let mut sorted: Vec<IpRange> = ranges(pool).filter(|range| range.family() == family).collect();
    sorted.sort();
    let mut merged: Vec<IpRange> = Vec::new();
    for range in sorted {
        match merged.last_mut() {
            Some(last) if range.first() <= last.last() => {
                let end = last.last().max(range.last());
                *last = IpRange::new(last.first(), end).unwrap_or(*last);
            }
            _ => merged.push(range),
        }
    }
    merged
}

/// How many addresses the pool could give of a family.
pub(super) fn size(pool: &AddressPool, family: Family) -> u128 {
    merged(pool, family).into_iter().fold(0, |sum, range| {
        let count = match (range.first(), range.last()) {
            (IpAddr::V4(first), IpAddr::V4(last)) => {
                let (first, last) = (u64::from(first.to_bits()), u64::from(last.to_bits()));
                let skipped = if pool.avoid_buggy {
                    // Those ending in 0 and in 255, counted up to the end and less those before the start.
                    let zeros = (last / 256).saturating_add(1).saturating_sub(first.div_ceil(256));
                    let ends = (last.saturating_add(1) / 256).saturating_sub(first / 256);
                    zeros.saturating_add(ends)
                } else {
                    0
                };
                u128::from(last.saturating_sub(first).saturating_add(1).saturating_sub(skipped))
            }
            (IpAddr::V6(first), IpAddr::V6(last)) => {
                last.to_bits().saturating_sub(first.to_bits()).saturating_add(1)
            }
            _ => 0,
        };
        u128::saturating_add(sum, count)
    })
}

/// One Problem for each pair of pools that overlap, on the younger: the older was right when it was made.
fn overlaps<'a>(pools: impl Iterator<Item = &'a Arc<AddressPool>>) -> Vec<Problem> {
    let mut all: Vec<(IpRange, &AddressPool)> =
        pools.flat_map(|pool| ranges(pool).map(move |range| (range, &**pool))).collect();
    all.sort_by_key(|(range, pool)| (*range, &pool.object));
    let mut told = BTreeSet::new();
    let mut problems = Vec::new();
    for (i, (range, pool)) in all.iter().enumerate() {
        let after = all.iter().skip(i.saturating_add(1));
        for (other_range, other) in after.take_while(|(other, _)| other.first() <= range.last()) {
            let age = |pool: &AddressPool| (pool.created, pool.object.clone());
            let (younger, older, shared) =
                if age(pool) > age(other) { (pool, other, range) } else { (other, pool, other_range) };
            if pool.object == other.object || !told.insert((&younger.object, &older.object)) {
                continue;
            }
            let message =
                format!("{shared} overlaps {}; each address is still given only once", older.object);
            problems.push(
                Problem::new(younger.object.clone(), Reason::PoolOverlap, message)
                    .at("spec.addresses")
                    .fix("Take the common addresses out of one of the two pools."),
            );
        }
    }
    problems.sort();
    problems
}
