//! In a cluster: what owners keep although no pool gives it any more.

use std::time::Duration;

use seaway_model::{Address, address::PLAN_VERSION, config::AddressPoolRules};

use super::*;

const MINUTE: u64 = 60_000;
/// 2026-11-21T00:00:00Z
const MIDNIGHT: u64 = 1_795_219_200_000;

fn at(minute: u64) -> Time {
    Time(MIDNIGHT + minute * MINUTE)
}

fn cluster(pools: &[AddressPool]) -> Ledger {
    let mut ledger = Ledger::new();
    ledger.set_rules(AddressPoolRules::CLUSTER);
    ledger.set_time(at(0));
    for pool in pools {
        ledger.put_pool(Arc::new(pool.clone()));
    }
    ledger.on_synced();
    ledger
}

fn held(text: &str, owners: &[&str]) -> Address {
    Address {
        ip: ip(text),
        pool: "p".into(),
        sharing: None,
        owners: owners.iter().map(|name| owner(name)).collect(),
        plan_version: PLAN_VERSION,
        ends: None,
        conflicts: Vec::new(),
        state: AddressState::Held,
        version: 0,
    }
}

fn reasons(ledger: &Ledger, name: &str) -> Vec<Reason> {
    ledger.told(name).into_iter().map(|(reason, _)| reason).collect()
}

#[test]
fn the_last_pool_that_goes_moves_nobody_and_is_named() {
    let public = pool("p", &["10.0.0.0/24"]);
    let mut ledger = cluster(std::slice::from_ref(&public));
    ledger.put_host(&report("one", &["192.0.2.1"]));
    assert_eq!(ledger.ask(claim("a")), "10.0.0.0");
    let touched = ledger.remove_pool(&public.object);
    assert_eq!((ledger.has("a").concat().as_str(), touched.withdrawn.len()), ("10.0.0.0", 0));
    assert_eq!(touched.addresses, [].into(), "nothing is written otherwise");
    assert_eq!(reasons(&ledger, "a"), [Reason::PoolMissing]);
    assert!(ledger.told("a")[0].1.contains("pool p cannot be seen"));
    for minute in [11, 100_000] {
        ledger.set_time(at(minute));
        assert_eq!(ledger.has("a"), ["10.0.0.0"]);
    }
    // Another pool, for others, changes nothing; one that has the address mends it.
    ledger.put_pool(Arc::new(pool("other", &["10.9.0.0/24"])));
    assert_eq!(
        (ledger.has("a"), reasons(&ledger, "a")),
        (vec!["10.0.0.0".into()], vec![Reason::PoolMissing])
    );
    ledger.put_pool(Arc::new(public));
    assert_eq!((ledger.has("a"), ledger.told("a").len()), (vec!["10.0.0.0".into()], 0));
}

#[test]
fn who_sees_no_pool_at_the_start_releases_nothing() {
    let mut ledger = Ledger::new();
    ledger.set_rules(AddressPoolRules::CLUSTER);
    for (text, name) in [("10.0.0.4", "a"), ("10.0.0.5", "b")] {
        ledger.learn(&held(text, &[name]));
    }
    ledger.learn(&held("10.0.0.6", &["deleted"]));
    for name in ["a", "b", "new"] {
        ledger.claim(claim(name));
    }
    let touched = ledger.on_synced();
    assert_eq!(["a", "b"].map(|it| ledger.has(it).concat()), ["10.0.0.4", "10.0.0.5"]);
    assert_eq!(touched.addresses, [ip("10.0.0.6")].into(), "that of a Service that is gone, and no other");
    assert!(touched.withdrawn.is_empty());
    assert!(ledger.has("new").is_empty() && !ledger.told("new").is_empty());
    // And nobody else gets them when pools are seen again.
    ledger.put_pool(Arc::new(pool("p", &["10.0.0.4/31"])));
    assert_eq!(["a", "b"].map(|it| ledger.has(it).concat()), ["10.0.0.4", "10.0.0.5"]);
    assert_eq!((ledger.told("a").len(), reasons(&ledger, "new")), (0, vec![Reason::PoolExhausted]));
}

#[test]
fn what_went_from_storage_before_the_start_is_not_given_back() {
    for (goes, expected) in [(false, "10.0.0.4"), (true, "10.0.0.0")] {
        let mut ledger = Ledger::new();
        ledger.set_rules(AddressPoolRules::CLUSTER);
        ledger.put_pool(Arc::new(pool("p", &["10.0.0.0/24"])));
        ledger.learn(&held("10.0.0.4", &["a"]));
        if goes {
            ledger.unlearn(ip("10.0.0.4"));
        }
        ledger.claim(claim("a"));
        ledger.on_synced();
        assert_eq!(ledger.has("a"), [expected]);
        // From then on the ledger knows better.
        ledger.unlearn(ip(expected));
        assert_eq!(ledger.has("a"), [expected]);
    }
}

#[test]
fn an_address_that_its_pool_excludes_ends_when_its_time_has_come_and_not_before() {
    let mut ledger = cluster(&[pool("p", &["10.0.0.0-10.0.0.2"])]);
    for name in ["a", "b"] {
        ledger.ask(claim(name));
    }
    let touched = ledger.put_pool(Arc::new(pool("p", &["10.0.0.1-10.0.0.3"])));
    assert_eq!((ledger.has("a").concat().as_str(), touched.withdrawn.len()), ("10.0.0.0", 0));
    assert_eq!(reasons(&ledger, "a"), [Reason::AddressExcluded]);
    let told = ledger.told("a")[0].1.clone();
    assert!(told.contains("pool p excludes 10.0.0.0") && told.contains("2026-11-21T00:10:00Z"), "{told}");
    // The same is told for as long as it is so, whatever else happens.
    ledger.set_time(at(9));
    ledger.put_host(&report("one", &["192.0.2.1"]));
    assert_eq!((ledger.has("a"), ledger.told("a")[0].1.clone()), (vec!["10.0.0.0".into()], told));
    let touched = ledger.set_time(at(10));
    assert_eq!((ledger.has("a").concat().as_str(), ledger.told("a").len()), ("10.0.0.2", 0));
    assert_eq!(touched.withdrawn, [(owner("a"), ip("10.0.0.0"))]);
    assert_eq!(ledger.has("b"), ["10.0.0.1"]);
    // It does not come back because somebody is heard again, until every host has let it go.
    ledger.put_host(&report("two", &["192.0.2.2"]));
    ledger.set_time(at(11));
    assert_eq!((ledger.has("a"), ledger.releasing()), (vec!["10.0.0.2".into()], vec![ip("10.0.0.0")]));
}

#[test]
fn the_end_is_written_down_and_the_next_leader_goes_on_with_it() {
    let less = pool("p", &["10.0.0.1-10.0.0.3"]);
    let mut ledger = cluster(&[pool("p", &["10.0.0.0-10.0.0.2"])]);
    for name in ["a", "b"] {
        ledger.ask(claim(name));
    }
    let written = |ledger: &Ledger| ledger.address(ip("10.0.0.0")).expect("it is written down");
    assert_eq!(written(&ledger).ends, None);
    let touched = ledger.put_pool(Arc::new(less.clone()));
    assert_eq!(touched.addresses, [ip("10.0.0.0")].into(), "that one, and no other");
    assert_eq!(written(&ledger).ends, Some(at(10)));

    let next = |pool: &AddressPool, now: u64| {
        let mut next = Ledger::new();
        next.set_rules(AddressPoolRules::CLUSTER);
        next.set_time(at(now));
        next.put_pool(Arc::new(pool.clone()));
        next.learn(&written(&ledger));
        next.learn(&held("10.0.0.1", &["b"]));
        for name in ["a", "b"] {
            next.claim(claim(name));
        }
        let touched = next.on_synced();
        (next, touched.addresses)
    };
    let (mut follower, touched) = next(&less, 9);
    assert_eq!((follower.has("a").concat().as_str(), touched), ("10.0.0.0", [].into()), "nothing is new");
    assert_eq!(written(&follower), written(&ledger));
    follower.set_time(at(10));
    assert_eq!(follower.has("a"), ["10.0.0.2"], "when its time has come, and not ten minutes later");
    let (late, _) = next(&less, 30);
    assert_eq!((late.has("a"), late.has("b")), (vec!["10.0.0.2".into()], vec!["10.0.0.1".into()]));
    // The edit was taken back while nobody led.
    let (cancelled, touched) = next(&pool("p", &["10.0.0.0/24"]), 9);
    assert_eq!((cancelled.has("a").concat().as_str(), touched), ("10.0.0.0", [ip("10.0.0.0")].into()));
    assert_eq!(written(&cancelled).ends, None);
}

#[test]
fn an_edit_that_is_taken_back_cancels_the_end_and_the_next_one_begins_a_new_time() {
    let (whole, less) = (pool("p", &["10.0.0.0/30"]), pool("p", &["10.0.0.1/32"]));
    let mut ledger = cluster(std::slice::from_ref(&whole));
    ledger.ask(claim("a"));
    ledger.put_pool(Arc::new(less.clone()));
    ledger.set_time(at(9));
    ledger.put_pool(Arc::new(whole));
    assert_eq!(ledger.told("a"), []);
    ledger.set_time(at(20));
    assert_eq!(ledger.has("a"), ["10.0.0.0"]);
    ledger.put_pool(Arc::new(less));
    ledger.set_time(at(29));
    assert_eq!(ledger.has("a"), ["10.0.0.0"]);
    ledger.set_time(at(30));
    assert_eq!(ledger.has("a"), ["10.0.0.1"]);
}

#[test]
fn a_pool_that_is_closed_to_a_namespace_gives_it_the_same_time() {
    let open = pool("p", &["10.0.0.0/24"]);
    let closed = AddressPool { namespaces: vec!["other".into()], ..open.clone() };
    let mut ledger = cluster(std::slice::from_ref(&open));
    ledger.ask(claim("a"));
    ledger.put_pool(Arc::new(closed));
    assert_eq!(
        (ledger.has("a"), reasons(&ledger, "a")),
        (vec!["10.0.0.0".into()], vec![Reason::AddressExcluded])
    );
    ledger.set_time(at(10));
    assert_eq!((ledger.has("a").len(), reasons(&ledger, "a")), (0, vec![Reason::NoPool]));
}

#[test]
fn a_service_that_asks_for_something_else_gets_it_at_once() {
    let (public, other) = (pool("p", &["10.0.0.0/24"]), pool("that", &["10.1.0.0/24"]));
    let mut ledger = cluster(&[public.clone(), other]);
    assert_eq!(ledger.ask(claim("a")), "10.0.0.0");
    ledger.remove_pool(&public.object);
    // A pool that cannot be seen either takes nothing away.
    assert_eq!(ledger.ask(Claim { pool: Some("unknown".into()), ..claim("a") }), "10.0.0.0 PoolMissing");
    assert_eq!(ledger.ask(Claim { pool: Some("that".into()), ..claim("a") }), "10.1.0.0");
    assert_eq!(ledger.ask(asking("a", &["10.1.0.9"])), "10.1.0.9");
    ledger.release(&owner("a"));
    assert!(ledger.has("a").is_empty(), "a Service that is deleted gives everything back");
}

#[test]
fn who_has_one_family_of_an_unseen_pool_keeps_it_and_gets_the_other() {
    let mut ledger = cluster(&[pool("p", &["10.0.0.0/24"])]);
    assert_eq!(ledger.ask(dual("a", FamilyPolicy::Prefer, V4)), "10.0.0.0");
    ledger.remove_pool(&pool("p", &[]).object);
    ledger.put_pool(Arc::new(pool("six", &["fd00::/64"])));
    assert_eq!(
        (ledger.has("a").join(" ").as_str(), reasons(&ledger, "a")),
        ("10.0.0.0 fd00::", vec![Reason::PoolMissing])
    );
}

#[test]
fn those_who_share_an_unseen_address_all_keep_it() {
    let sharing =
        |name: &str, port| Claim { sharing: Some("k".into()), ports: [tcp(port)].into(), ..claim(name) };
    let mut ledger = cluster(&[pool("p", &["10.0.0.0/32"])]);
    ledger.ask(sharing("a", 80));
    ledger.ask(sharing("b", 81));
    ledger.remove_pool(&pool("p", &[]).object);
    assert_eq!(["a", "b"].map(|it| ledger.has(it).concat()), ["10.0.0.0"; 2]);
    assert_eq!(ledger.ask(sharing("c", 82)), "NoPool", "nothing new is given of what cannot be seen");
}

#[test]
fn who_takes_over_goes_on_with_what_is_kept() {
    let mut ledger = cluster(&[pool("p", &["10.0.0.0/24"])]);
    ledger.ask(claim("a"));
    ledger.remove_pool(&pool("p", &[]).object);
    let written: Vec<Address> = ledger.addresses().filter_map(|it| ledger.address(it)).collect();
    let mut next = ledger.turned(false, written.clone().into_iter()).turned(true, written.into_iter());
    next.on_synced();
    assert_eq!((next.has("a"), reasons(&next, "a")), (vec!["10.0.0.0".into()], vec![Reason::PoolMissing]));
    // A pool excludes it: whoever leads next goes on with the time that is written.
    next.put_pool(Arc::new(pool("p", &["10.0.0.9/32"])));
    next.set_time(at(9));
    let written: Vec<Address> = next.addresses().filter_map(|it| next.address(it)).collect();
    let mut last = next.turned(true, written.into_iter());
    last.on_synced();
    assert_eq!(last.has("a"), ["10.0.0.0"]);
    last.set_time(at(10));
    assert_eq!(last.has("a"), ["10.0.0.9"]);
}

#[test]
fn until_it_is_known_what_time_it_is_nothing_ends() {
    let mut ledger = Ledger::new();
    ledger.set_rules(AddressPoolRules::CLUSTER);
    ledger.put_pool(Arc::new(pool("p", &["10.0.0.0/24"])));
    ledger.on_synced();
    ledger.ask(claim("a"));
    ledger.put_pool(Arc::new(pool("p", &["10.0.0.9/32"])));
    assert!(ledger.told("a")[0].1.contains("after the grace period"));
    ledger.set_time(at(0));
    assert!(ledger.has("a") == ["10.0.0.0"] && ledger.told("a")[0].1.contains("2026-11-21T00:10:00Z"));
    ledger.set_time(at(10));
    assert_eq!(ledger.has("a"), ["10.0.0.9"]);
}

#[test]
fn without_a_grace_period_an_excluded_address_ends_at_once() {
    let mut ledger = cluster(&[pool("p", &["10.0.0.0/24"])]);
    ledger.set_rules(AddressPoolRules { grace: Duration::ZERO, ..AddressPoolRules::CLUSTER });
    ledger.ask(claim("a"));
    ledger.put_pool(Arc::new(pool("p", &["10.0.0.9/32"])));
    assert_eq!(ledger.has("a"), ["10.0.0.9"]);
    ledger.remove_pool(&pool("p", &[]).object);
    assert_eq!(ledger.has("a"), ["10.0.0.9"], "that of a pool that cannot be seen stays all the same");
}
