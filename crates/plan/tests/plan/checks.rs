//! How often the members of a tenant are checked.

use std::time::Duration;

use seaway_model::{
    Config, Desired, Reason,
    config::{TenantLimits, Tenants},
};
use seaway_plan::World;
use seaway_testkit::facts::{endpoint, host, owner, put, put_slice, shop, slice};

use crate::cluster::scene::{on_host_of, unit};

const LIMITS: TenantLimits = TenantLimits {
    check_interval: Duration::from_millis(500),
    checks_per_second: Some(10),
    ..TenantLimits::CLUSTER
};

#[test]
fn members_are_checked_no_more_often_than_a_service_may_however_many_there_are() {
    let members = |count: usize| {
        let all = (0..count).map(|at| endpoint(&format!("10.1.{}.{}", at / 250, at % 250 + 1)));
        put_slice(&slice("shop", ("", 80), all.collect()))
    };
    let every = |world: &World| {
        let Desired::LoadBalancer(it) = world.desire(&unit(&owner(&shop()))) else { panic!("it is served") };
        let check = it.pools.values().next().and_then(|it| it.health.clone()).expect("a check");
        let told = world.status(&owner(&shop())).expect("it is ours").problems;
        let told = told.iter().filter(|it| it.reason == Reason::LimitReached).count();
        (check.interval.as_millis(), told)
    };
    let limited = |asked: &str, count: usize| {
        let mut shop = shop();
        shop.meta.annotations.insert("seaway.dev/health-check-interval".into(), asked.into());
        let tenants = Tenants { limits: LIMITS, ..Tenants::default() };
        let all = vec![host(&["192.0.2.5"], &[]), put(&shop), members(count)];
        on_host_of(Config { tenants, ..Config::default() }, all)
    };
    for (asked, count, expected) in [
        ("2s", 3, (2_000, 0)),
        // The shortest that it may ask for.
        ("1ms", 3, (500, 1)),
        // Of so many, ten in a second.
        ("1ms", 400, (40_000, 1)),
        ("2s", 400, (40_000, 0)),
        ("2s", 20, (2_000, 0)),
    ] {
        assert_eq!(every(&limited(asked, count)), expected, "{asked} of {count}");
    }
    let mut world = limited("2s", 3);
    world.apply(members(400));
    assert_eq!(every(&world), (40_000, 0), "when more come, too");
}
