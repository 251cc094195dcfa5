//! How many addresses one namespace may have.

use seaway_model::config::AddressPoolRules;

use super::*;

fn limited(most: u32) -> Ledger {
    let mut ledger = settled(&[pool("p", &["10.0.0.0/28"])]);
    limit(&mut ledger, most);
    ledger
}

fn limit(ledger: &mut Ledger, most: u32) {
    ledger.set_rules(AddressPoolRules { per_namespace: Some(most), ..AddressPoolRules::CLUSTER });
}

fn elsewhere(name: &str) -> Claim {
    Claim { namespace: "other".into(), ..claim(name) }
}

#[test]
fn a_namespace_has_no_more_addresses_than_it_may_and_others_have_theirs() {
    let mut ledger = limited(2);
    assert_eq!((ledger.ask(claim("a")), ledger.ask(claim("b"))), ("10.0.0.0".into(), "10.0.0.1".into()));
    assert_eq!(ledger.ask(claim("c")), "LimitReached");
    assert_eq!(ledger.told("c")[0].1, "namespace default has 2 addresses, and may have 2");
    assert_eq!(ledger.ask(asking("named", &["10.0.0.9"])), "LimitReached");
    assert_eq!(ledger.ask(elsewhere("x")), "10.0.0.2");
    // Who waits has the next one.
    ledger.release_fully("a");
    assert_eq!((ledger.has("c"), ledger.has("named")), (vec!["10.0.0.0".to_owned()], vec![]));
}

#[test]
fn an_address_that_services_of_a_namespace_share_counts_once() {
    let mut ledger = limited(1);
    let sharing =
        |name: &str, port| Claim { sharing: Some("key".into()), ports: [tcp(port)].into(), ..claim(name) };
    assert_eq!(ledger.ask(sharing("a", 80)), "10.0.0.0");
    assert_eq!(ledger.ask(sharing("b", 81)), "10.0.0.0");
    assert_eq!(ledger.ask(sharing("c", 80)), "LimitReached");
    ledger.release_fully("a");
    assert_eq!(ledger.ask(claim("alone")), "LimitReached", "b has it still");
    ledger.release_fully("b");
    assert_eq!(ledger.has("c"), ["10.0.0.0"]);
}

#[test]
fn a_limit_takes_nothing_away() {
    let mut ledger = limited(3);
    for name in ["a", "b", "c"] {
        ledger.ask(claim(name));
    }
    limit(&mut ledger, 1);
    assert_eq!(["a", "b", "c"].map(|name| ledger.has(name).len()), [1, 1, 1]);
    assert_eq!(ledger.ask(claim("b")), "10.0.0.1", "nor does another look at it");
    assert_eq!(ledger.ask(claim("d")), "LimitReached");
    limit(&mut ledger, 4);
    assert_eq!(ledger.has("d"), ["10.0.0.3"]);
}

#[test]
fn what_another_controller_published_is_no_new_address() {
    let mut ledger = limited(1);
    assert_eq!(ledger.ask(claim("a")), "10.0.0.0");
    ledger.reserve(&owner("theirs"), vec![ip("10.0.0.7")]);
    assert_eq!(ledger.ask(claim("theirs")), "10.0.0.7");
}

#[test]
fn a_service_that_wants_two_addresses_needs_room_for_both() {
    let two_families = || {
        let mut ledger = settled(&[pool("p", &["10.0.0.0/28", "fd00::/124"])]);
        limit(&mut ledger, 2);
        assert_eq!(ledger.ask(claim("a")), "10.0.0.0");
        ledger
    };
    let mut ledger = two_families();
    assert_eq!(ledger.ask(dual("both", FamilyPolicy::Require, V4)), "LimitReached");
    let mut ledger = two_families();
    assert_eq!(ledger.ask(dual("either", FamilyPolicy::Prefer, V4)), "10.0.0.1");
    limit(&mut ledger, 3);
    assert_eq!(ledger.has("either"), ["10.0.0.1", "fd00::"]);
}

/// A usual pool is smaller than what one namespace may have at most.
#[test]
fn who_came_first_leaves_others_a_part_of_a_pool() {
    let mut ledger = settled(&[pool("p", &["10.0.0.0/28"])]);
    ledger.set_rules(AddressPoolRules::CLUSTER);
    assert_eq!(ledger.ask(elsewhere("shop")), "10.0.0.0");
    let given = (0..16).filter(|i| ledger.ask(claim(&format!("evil{i:02}"))) != "LimitReached").count();
    assert_eq!(given, 11, "three quarters of the pool are in use then");
    let (reason, message) = ledger.told("evil15").remove(0);
    assert_eq!(reason, Reason::LimitReached);
    assert!(
        message.starts_with("pool p has 4 of 16 addresses left, and namespace default has 11 of it"),
        "{message}"
    );
    assert_eq!(ledger.ask(asking("named", &["10.0.0.14"])), "LimitReached");
    // Others have theirs: shop less than a half, a third namespace less than a third.
    let third = |name: &str| Claim { namespace: "third".into(), ..claim(name) };
    assert_eq!(
        (ledger.ask(elsewhere("shop2")), ledger.ask(third("x"))),
        ("10.0.0.12".into(), "10.0.0.13".into())
    );
    // To share an address takes nothing from the pool.
    let shared = |name: &str, port, namespace: &str| Claim {
        sharing: Some("key".into()),
        across: ["*".into()].into(),
        ports: [tcp(port)].into(),
        namespace: namespace.into(),
        ..claim(name)
    };
    assert_eq!(ledger.ask(shared("one", 80, "other")), "10.0.0.14");
    assert_eq!(ledger.ask(shared("two", 81, "default")), "10.0.0.14");
    ledger.release_fully("two");
    ledger.release_fully("one");
    // What somebody has stays, whatever is looked at again.
    assert_eq!(ledger.ask(claim("evil00")), "10.0.0.1");
    // Who waits is served once there is room.
    for i in 0..9 {
        ledger.release_fully(&format!("evil{i:02}"));
    }
    assert!(
        !ledger.has("evil15").is_empty() || !ledger.has("evil11").is_empty(),
        "{:?}",
        ledger.told("evil15")
    );
}

#[test]
fn a_namespace_that_is_alone_in_a_pool_may_have_all_of_it() {
    let mut ledger = settled(&[pool("p", &["10.0.0.0/28"])]);
    ledger.set_rules(AddressPoolRules::CLUSTER);
    let given = (0..17).filter(|i| ledger.ask(claim(&format!("a{i:02}"))).starts_with("10.")).count();
    assert_eq!((given, ledger.told("a16")[0].0), (16, Reason::PoolExhausted));
    // Without a limit for namespaces nobody asked for shares.
    ledger.set_rules(AddressPoolRules { per_namespace: None, ..AddressPoolRules::CLUSTER });
    assert_eq!(ledger.ask(elsewhere("x")), "PoolExhausted");
}
