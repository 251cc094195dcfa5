//! Whatever happens in whatever order: a World is told changes, and what it wants is judged. It is asked nothing but
//! [`World::apply`] and [`World::desire`], so that its inside may be another.
//!
//! A small cluster is played: objects that change, a leader that gives addresses out, a host that hears of what is written
//! late, drivers that fail, and restarts of each. What another leader wrote, and nobody has heard of yet, is not played.

mod cluster;

use std::collections::BTreeSet;

use proptest::prelude::*;

use seaway_model::Desired;

use self::cluster::{Cluster, Event, Made, any_event};

/// Tells all of them; what must always hold is checked after each.
fn play(events: Vec<Event>) -> Result<Cluster, TestCaseError> {
    let mut cluster = Cluster::new();
    for event in events {
        let told = format!("{event:?}");
        cluster.play(event).map_err(|why| TestCaseError::fail(format!("at {told}: {why}")))?;
    }
    Ok(cluster)
}

/// Statuses say, too, what drivers have reported since a start: that is compared once all have.
fn is_planned_alike(before: &Made, after: &Made, reported: bool) -> Result<(), TestCaseError> {
    let units: BTreeSet<_> = before.keys().chain(after.keys()).collect();
    for unit in units {
        match (before.get(unit), after.get(unit)) {
            (Some(Desired::Status(before)), Some(Desired::Status(after))) if !reported => {
                prop_assert_eq!(&after.addresses, &before.addresses, "{}", unit);
            }
            (before, after) => prop_assert_eq!(after, before, "{}", unit),
        }
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: seaway_testkit::properties::cases(200), max_shrink_iters: 500, ..ProptestConfig::default() })]

    /// What is wanted otherwise is marked, and only that; an address is one owner's, and nobody's while another serves it.
    #[test]
    fn what_is_wanted_otherwise_is_marked_and_an_address_is_one_owners(
        events in prop::collection::vec(any_event(), 0..60),
    ) {
        play(events)?;
    }

    #[test]
    fn once_nothing_fails_all_that_is_wanted_is_there_and_nothing_else(
        events in prop::collection::vec(any_event(), 0..60),
    ) {
        let mut cluster = play(events)?;
        cluster.come_to_rest().map_err(TestCaseError::fail)?;
        prop_assert_eq!(cluster.made(), cluster.wanted());
    }

    #[test]
    fn what_is_planned_after_a_restart_is_what_was_planned_before(
        events in prop::collection::vec(any_event(), 0..60), seed in any::<u64>(),
    ) {
        let mut cluster = play(events)?;
        cluster.come_to_rest().map_err(TestCaseError::fail)?;
        let before = cluster.plans();
        cluster.restart_all(seed);
        is_planned_alike(&before, &cluster.plans(), false)?;
        cluster.come_to_rest().map_err(TestCaseError::fail)?;
        is_planned_alike(&before, &cluster.plans(), true)?;
    }

    /// The order in which sources tell what is so is by chance.
    #[test]
    fn the_order_of_what_is_told_decides_nothing(
        events in prop::collection::vec(any_event(), 0..60), seeds in any::<(u64, u64)>(),
    ) {
        let mut cluster = play(events)?;
        cluster.restart_all(seeds.0);
        let one = cluster.plans();
        let announced = cluster.announced();
        cluster.restart_all(seeds.1);
        prop_assert_eq!(cluster.announced(), announced);
        is_planned_alike(&one, &cluster.plans(), true)?;
    }
}
