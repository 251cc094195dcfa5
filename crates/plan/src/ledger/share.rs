//! What one namespace may have of a pool that is nearly full, where others share the cluster.
//!
//! A usual pool is smaller than any limit of a namespace that would be right for a large one. So up to three quarters of a pool
//! whoever comes first is served. Beyond that, a namespace gets one more only while it has less than an equal share, which is the pool's size by the
//! number of namespaces that have something there, its own included. A namespace that is alone there may have all of it. What somebody has
//! stays.

use std::collections::BTreeMap;

use seaway_model::{Name, Problem, Reason, fact::AddressPool, load_balancer::Family};

use super::{
    claim::Claim,
    decide::DecisionContext,
    pools::{merged, size},
    refuse::problem,
};

/// What is known of a namespace that has its share.
pub(super) struct UsedShare {
    has: usize,
    free: u128,
    size: u128,
    namespaces: usize,
}

impl DecisionContext<'_> {
    pub(super) fn has_its_share(
        &self,
        claim: &Claim,
        pool: &AddressPool,
        family: Family,
    ) -> Option<UsedShare> {
        if !self.rules.cluster || self.rules.per_namespace.is_none() {
            return None;
        }
        let (size, ranges) = (size(pool, family), merged(pool, family));
        let used = ranges.iter().map(|it| self.holdings.not_free(*it)).fold(0_u128, u128::saturating_add);
        if used.saturating_mul(4) < size.saturating_mul(3) {
            return None;
        }
        let mut counts: BTreeMap<&Name, usize> = BTreeMap::from([(&claim.namespace, 0)]);
        for namespace in ranges.iter().flat_map(|it| self.holdings.namespaces_within(*it)) {
            let count = counts.entry(namespace).or_default();
            *count = count.saturating_add(1);
        }
        let (has, namespaces) = (counts.get(&claim.namespace).copied().unwrap_or_default(), counts.len());
        let share = size.checked_div(namespaces as u128).unwrap_or(size).max(1);
        let is_served = namespaces == 1 || (has as u128) < share;
        (!is_served).then(|| UsedShare { has, free: size.saturating_sub(used), size, namespaces })
    }

    /// Why it gets none, where a pool has some left.
    pub(super) fn told_of_its_share(
        &self,
        claim: &Claim,
        families: impl Iterator<Item = Family> + Clone,
        usable: &[&AddressPool],
    ) -> Option<Problem> {
        let mut places = usable.iter().flat_map(|pool| families.clone().map(move |family| (*pool, family)));
        let (pool, it) = places.find_map(|(pool, family)| {
            let it = self.has_its_share(claim, pool, family)?;
            (it.free > 0).then_some((pool, it))
        })?;
        let message = format!(
            "pool {} has {} of {} addresses left, and namespace {} has {} of it: more than three quarters are in use, and the {} \
             namespaces there have equal shares of the rest",
            pool.object.name, it.free, it.size, claim.namespace, it.has, it.namespaces
        );
        Some(problem(claim, Reason::LimitReached, message).fix(
            "Delete a Service that has one, let Services share one (seaway.dev/share), or have the pool enlarged.",
        ))
    }
}
