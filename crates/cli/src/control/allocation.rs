//! What the process that allocates addresses shows of pools and of Services that are not served yet.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    sync::{Mutex, PoisonError},
};

use seaway_admin::view::{AllocationView, ConditionView, PoolUseView, ProcessRole};
use seaway_model::{Kind, Owner, Status, Time, announced::ConditionStatus};
use seaway_plan::{Overview, World, ledger::PoolUse};

/// Since when each Service without an address was seen so: by who asks, for nothing runs while nobody does.
#[derive(Default)]
pub(super) struct UnallocatedSince(Mutex<HashMap<Owner, Time>>);

impl UnallocatedSince {
    /// Of those that wait now, how many there are, and since when the first of them does.
    fn since(&self, now: Time, waiting: BTreeSet<&Owner>) -> (u64, Option<Time>) {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        known.retain(|owner, _| waiting.contains(owner));
        let since = |owner: &Owner| *known.entry(owner.clone()).or_insert(now);
        let first = waiting.iter().copied().map(since).min();
        (waiting.len() as u64, first)
    }
}

pub(super) fn part(world: &World) -> ProcessRole {
    let (leads, changes) = world.leadership();
    match (world.config().pools.cluster, world.is_host()) {
        (true, true) => ProcessRole::Host,
        (true, false) => ProcessRole::Controller { leads, changes },
        (false, _) => ProcessRole::Alone,
    }
}

pub(super) fn view(
    now: Time,
    waiting: &UnallocatedSince,
    plan: &[Overview],
    pools: &[PoolUse],
) -> AllocationView {
    let services = plan.iter().map(|it| &it.status).filter(|it| is_service(&it.owner) && !it.left);
    let mut conditions: BTreeMap<(&str, ConditionStatus), u64> = BTreeMap::new();
    for status in [ConditionStatus::True, ConditionStatus::False, ConditionStatus::Unknown] {
        conditions.extend([(("Ready", status), 0), (("Announced", status), 0)]);
    }
    let mut without = BTreeSet::new();
    // Another controller is to follow what is left.
    for status in services {
        let announced = status.announced.as_ref().map(|it| ("Announced", it.status));
        for condition in announced.into_iter().chain([("Ready", ready(status))]) {
            let count = conditions.entry(condition).or_default();
            *count = count.saturating_add(1);
        }
        if status.addresses.is_empty() {
            without.insert(&status.owner);
        }
    }
    let (waiting, waiting_since) = waiting.since(now, without);
    let conditions = conditions.into_iter().map(|((condition, status), services)| ConditionView {
        condition: condition.to_owned(),
        status: status.as_str().to_owned(),
        services,
    });
    AllocationView {
        pools: pools.iter().flat_map(pool_views).collect(),
        conditions: conditions.collect(),
        waiting,
        waiting_since,
    }
}

fn is_service(owner: &Owner) -> bool {
    matches!(owner, Owner::Object { object, .. } if object.kind == Kind::Service)
}

fn ready(status: &Status) -> ConditionStatus {
    match status.ready {
        true => ConditionStatus::True,
        false if status.unreported => ConditionStatus::Unknown,
        false => ConditionStatus::False,
    }
}

/// Of families of which it has addresses.
fn pool_views(pool: &PoolUse) -> impl Iterator<Item = PoolUseView> {
    let name = match pool.pool.namespace.as_str() {
        "" => pool.pool.name.to_string(),
        namespace => format!("{namespace}/{}", pool.pool.name),
    };
    let families = [("IPv4", pool.v4), ("IPv6", pool.v6)];
    let some = families.into_iter().filter(|(_, it)| it.assigned > 0 || it.available > 0);
    some.map(move |(family, it)| PoolUseView {
        pool: name.clone(),
        family: family.to_owned(),
        used: it.assigned as f64,
        free: it.available as f64,
    })
}

#[cfg(test)]
mod tests {
    use seaway_model::ObjectRef;

    use super::*;

    fn service(name: &str) -> Owner {
        Owner::Object { object: ObjectRef::new(Kind::Service, "default", name), uid: name.into() }
    }

    #[test]
    fn the_oldest_that_still_waits_is_told_and_one_that_waits_again_begins_anew() {
        let (waiting, [a, b]) = (UnallocatedSince::default(), ["a", "b"].map(service));
        assert_eq!(waiting.since(Time(1), [&a].into()), (1, Some(Time(1))));
        assert_eq!(waiting.since(Time(2), [&a, &b].into()), (2, Some(Time(1))));
        assert_eq!(waiting.since(Time(3), [&b].into()), (1, Some(Time(2))));
        assert_eq!(waiting.since(Time(4), [&a, &b].into()), (2, Some(Time(2))));
        assert_eq!(waiting.since(Time(5), [&a].into()), (1, Some(Time(4))));
        assert_eq!(waiting.since(Time(6), [].into()), (0, None));
    }
}
