//! Of controllers: who leads, how full pools are, and how far Services are.

use std::sync::atomic::AtomicU64;

use prometheus_client::{
    metrics::{
        counter::ConstCounter,
        family::Family,
        gauge::{ConstGauge, Gauge},
    },
    registry::{Registry, Unit},
};

use super::expose::gauges;
use crate::view::{AllocationView, PoolUseView, ProcessRole, View};

/// So many pools have series of their own; all others are summed in one.
const POOLS: usize = 100;
/// No object has an underscore in its name.
const OTHERS: &str = "_other";

pub(super) fn expose(registry: &mut Registry, view: &View) {
    if let ProcessRole::Controller { leads, changes } = view.part {
        registry.register(
            "seaway_leader",
            "1 while this controller is the leader, which allocates addresses and writes statuses; otherwise 0",
            ConstGauge::new(u64::from(leads)),
        );
        registry.register(
            "seaway_leader_changes",
            "Times that this controller became the leader, or stopped being the leader",
            ConstCounter::new(changes),
        );
    }
    if let Some(allocation) = view.allocation.as_ref().filter(|_| view.part.allocates()) {
        services(registry, allocation);
        pools(registry, &allocation.pools);
    }
}

fn services(registry: &mut Registry, allocation: &AllocationView) {
    let conditions = allocation
        .conditions
        .iter()
        .map(|it| (vec![("condition", it.condition.clone()), ("status", it.status.clone())], it.services));
    registry.register(
        "seaway_services_conditions",
        "Services by their conditions Ready (all of their listeners are served) and Announced (the network sends packets for their \
         addresses to Seaway), as the leader sees them",
        gauges(conditions.collect()),
    );
    registry.register(
        "seaway_services_without_address",
        "Services that wait for an address, as the leader sees them",
        ConstGauge::new(allocation.waiting),
    );
    if let Some(since) = allocation.waiting_since {
        registry.register_with_unit(
            "seaway_services_without_address_since_timestamp",
            "Time since which the oldest Service without an address waits, as this process saw it, in \
             seconds since 1970; absent while no Service waits",
            Unit::Seconds,
            ConstGauge::new(since.0 as f64 / 1000.0),
        );
    }
}

fn pools(registry: &mut Registry, pools: &[PoolUseView]) {
    let series = Family::<Vec<(&'static str, String)>, Gauge<f64, AtomicU64>>::default();
    for (at, pool) in pools.iter().enumerate() {
        let name = if at < POOLS { pool.pool.as_str() } else { OTHERS };
        for (state, count) in [("used", pool.used), ("free", pool.free)] {
            let labels = [("pool", name), ("family", &pool.family), ("state", state)];
            let labels = labels.map(|(key, value)| (key, value.to_owned()));
            series.get_or_create(&labels.into()).inc_by(count);
        }
    }
    registry.register(
        "seaway_pool_addresses",
        "Addresses of pools by family: used (by Services) or free, as the leader sees them; pools beyond the first 100 are summed \
         as `_other`",
        series,
    );
}

#[cfg(test)]
mod tests {
    use super::*;
    use prometheus_client::encoding::text::encode;

    fn text(part: ProcessRole, pools: usize) -> String {
        let name = |at| if at == 7 { "other".to_owned() } else { format!("pool-{at}") };
        let pools =
            (0..pools).map(|at| PoolUseView { pool: name(at), family: "IPv4".into(), used: 3.0, free: 5.0 });
        let allocation = Some(AllocationView { pools: pools.collect(), ..AllocationView::default() });
        let mut registry = Registry::default();
        expose(&mut registry, &View { part, allocation, ..View::default() });
        let mut text = String::new();
        encode(&mut text, &registry).unwrap();
        text
    }

    #[test]
    fn pools_beyond_the_bound_are_summed() {
        let text = text(ProcessRole::Alone, POOLS + 3);
        let series = |it: &&str| it.starts_with("seaway_pool_addresses{");
        assert_eq!(text.lines().filter(series).count(), 2 * (POOLS + 1), "{text}");
        assert!(text.contains("{pool=\"pool-99\",family=\"IPv4\",state=\"used\"} 3.0\n"), "{text}");
        assert!(text.contains("{pool=\"_other\",family=\"IPv4\",state=\"free\"} 15.0\n"), "{text}");
        assert!(text.contains("{pool=\"other\",family=\"IPv4\",state=\"free\"} 5.0\n"), "{text}");
    }

    #[test]
    fn only_the_leader_counts_what_all_know() {
        let follower = text(ProcessRole::Controller { leads: false, changes: 2 }, 1);
        assert!(
            follower.contains("seaway_leader 0\n") && follower.contains("seaway_leader_changes_total 2\n")
        );
        assert!(!follower.contains("seaway_pool") && !follower.contains("seaway_services"), "{follower}");
        let leader = text(ProcessRole::Controller { leads: true, changes: 1 }, 1);
        assert!(
            leader.contains("seaway_leader 1\n") && leader.contains("seaway_pool_addresses{"),
            "{leader}"
        );
        assert!(
            !text(ProcessRole::Host, 1).contains("seaway_"),
            "a host is never the leader, and does not say so"
        );
    }
}
