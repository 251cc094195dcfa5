//! Restarts, releases, pools that change.

use super::*;
use seaway_model::{Address, address::PLAN_VERSION};

fn address(text: &str, owners: &[&str], state: AddressState) -> Address {
    Address {
        ip: ip(text),
        pool: "p".into(),
        sharing: None,
        owners: owners.iter().map(|name| owner(name)).collect(),
        plan_version: PLAN_VERSION,
        ends: None,
        conflicts: Vec::new(),
        state,
        version: 0,
    }
}

#[test]
fn after_a_restart_everybody_has_what_it_had_whoever_comes_first() {
    let orders = [["a", "b", "new"], ["new", "b", "a"], ["b", "new", "a"]];
    for order in orders {
        let mut ledger = Ledger::new();
        ledger.learn(&address("10.0.0.9", &["a"], AddressState::Held));
        ledger.learn(&address("10.0.0.0", &["b"], AddressState::Held));
        ledger.learn(&address("10.0.0.1", &["gone"], AddressState::Held));
        ledger.learn(&address("10.0.0.2", &[], AddressState::Releasing));
        ledger.put_pool(Arc::new(pool("p", &["10.0.0.0/24"])));
        for name in order {
            ledger.claim(claim(name));
        }
        assert_eq!(ledger.address(ip("10.0.0.1")).unwrap().owners, [owner("gone")], "nobody is rash");
        let touched = ledger.on_synced();
        assert_eq!(
            ["a", "b", "new"].map(|name| ledger.has(name).concat()),
            ["10.0.0.9", "10.0.0.0", "10.0.0.3"]
        );
        assert_eq!(ledger.releasing(), [ip("10.0.0.1"), ip("10.0.0.2")]);
        assert_eq!(
            touched.addresses,
            [ip("10.0.0.1"), ip("10.0.0.3")].into(),
            "the rest is as it was written"
        );
        assert!(ledger.on_synced().is_empty());
    }
}

#[test]
fn an_owner_that_comes_late_after_a_restart_still_finds_its_address() {
    let mut ledger = settled(&[]);
    assert!(ledger.releasing().is_empty());
    let mut restarted = Ledger::new();
    restarted.learn(&address("10.0.0.9", &["late"], AddressState::Held));
    restarted.put_pool(Arc::new(pool("p", &["10.0.0.0/24"])));
    restarted.on_synced();
    assert_eq!(restarted.ask(claim("late")), "10.0.0.9");
    ledger = restarted;
    assert_eq!(ledger.address(ip("10.0.0.9")).unwrap().state, AddressState::Held);
    assert!(ledger.released(ip("10.0.0.9")).is_empty(), "a late word that it was let go changes nothing");
}

#[test]
fn what_is_released_is_given_again_only_when_every_host_let_it_go() {
    let mut ledger = settled(&[pool("p", &["10.0.0.0/32"])]);
    ledger.ask(claim("a"));
    assert_eq!(ledger.ask(claim("b")), "PoolExhausted");
    let touched = ledger.release(&owner("a"));
    assert_eq!(touched.addresses, [ip("10.0.0.0")].into());
    let releasing = ledger.address(ip("10.0.0.0")).unwrap();
    assert_eq!((releasing.state, releasing.owners.len()), (AddressState::Releasing, 0));
    assert_eq!(ledger.has("b").len(), 0);
    assert_eq!(ledger.ask(asking("c", &["10.0.0.0"])), "AddressTaken");
    assert!(ledger.told("c")[0].1.contains("being released"));

    let touched = ledger.released(ip("10.0.0.0"));
    assert_eq!(ledger.has("b"), ["10.0.0.0"]);
    assert_eq!(touched.owners, [owner("b"), owner("c")].into());
    assert_eq!(ledger.told("c")[0].1, "10.0.0.0 is held by Service default/b");
}

#[test]
fn the_same_owner_may_come_back_to_what_is_being_released_but_not_its_namesake() {
    let mut ledger = settled(&[pool("p", &["10.0.0.0/24"])]);
    ledger.ask(claim("first"));
    ledger.ask(claim("a"));
    ledger.release(&owner("a"));
    let Owner::Object { object, .. } = owner("a") else { unreachable!() };
    let namesake = Owner::Object { object, uid: "another".into() };
    ledger.claim(Claim { owner: namesake.clone(), ..claim("a") });
    assert_eq!(ledger.grant(&namesake).0.unwrap().addresses, [ip("10.0.0.2")]);
    assert_eq!(ledger.ask(claim("a")), "10.0.0.1");
}

#[test]
fn an_owner_that_asks_for_another_address_lets_its_own_go() {
    let mut ledger = settled(&[pool("p", &["10.0.0.0/24"])]);
    ledger.ask(asking("a", &["10.0.0.1"]));
    ledger.ask(asking("b", &["10.0.0.2"]));
    // A swap: neither may wait for the other for ever.
    assert_eq!(ledger.ask(asking("a", &["10.0.0.2"])), "AddressTaken");
    assert_eq!(ledger.ask(asking("b", &["10.0.0.1"])), "AddressTaken");
    ledger.released(ip("10.0.0.1"));
    ledger.released(ip("10.0.0.2"));
    assert_eq!((ledger.has("a").concat(), ledger.has("b").concat()), ("10.0.0.2".into(), "10.0.0.1".into()));
}

#[test]
fn what_lies_outside_of_a_pool_that_shrank_is_withdrawn_and_replaced() {
    let mut ledger = settled(&[pool("p", &["10.0.0.0-10.0.0.2"])]);
    for name in ["a", "b", "c"] {
        ledger.ask(claim(name));
    }
    let touched = ledger.put_pool(Arc::new(pool("p", &["10.0.0.1-10.0.0.3"])));
    assert_eq!(["a", "b", "c"].map(|name| ledger.has(name).concat()), ["10.0.0.3", "10.0.0.1", "10.0.0.2"]);
    assert_eq!(touched.withdrawn, [(owner("a"), ip("10.0.0.0"))]);
    assert_eq!(touched.owners, [owner("a")].into());
    ledger.put_pool(Arc::new(pool("p", &["10.0.0.2/32"])));
    assert_eq!((ledger.has("a").len(), ledger.told("a")[0].0), (0, Reason::PoolExhausted));
    ledger.put_pool(Arc::new(pool("p", &["10.0.0.0-10.0.0.3"])));
    assert_eq!(ledger.told("a"), [], "a wider pool helps who waits");
}

#[test]
fn a_pool_renamed_with_its_ranges_disturbs_nobody() {
    let mut ledger = settled(&[pool("old", &["10.0.0.0/24"])]);
    ledger.ask(claim("a"));
    ledger.put_pool(Arc::new(pool("new", &["10.0.0.0/24"])));
    let touched = ledger.remove_pool(&pool("old", &[]).object);
    assert_eq!((ledger.has("a").concat().as_str(), touched.withdrawn.len()), ("10.0.0.0", 0));
    assert_eq!(ledger.address(ip("10.0.0.0")).unwrap().pool.as_str(), "new");
}

#[test]
fn a_better_pool_that_comes_later_moves_nobody() {
    let mut ledger = settled(&[pool("p", &["10.0.0.0/24"])]);
    ledger.ask(claim("a"));
    let touched = ledger.put_pool(Arc::new(AddressPool { priority: 1, ..pool("better", &["10.1.0.0/24"]) }));
    assert!(touched.is_empty());
    assert_eq!(ledger.ask(claim("b")), "10.1.0.0");
}

#[test]
fn saying_the_same_again_touches_nothing() {
    let mut ledger = settled(&[pool("p", &["10.0.0.0/24"])]);
    ledger.put_host(&report("one", &["192.0.2.1"]));
    ledger.ask(claim("a"));
    assert!(ledger.claim(claim("a")).is_empty());
    assert!(ledger.put_pool(Arc::new(pool("p", &["10.0.0.0/24"]))).is_empty());
    assert!(ledger.put_host(&report("one", &["192.0.2.1"])).is_empty());
    assert!(ledger.remove_host("unknown").is_empty() && ledger.release(&owner("unknown")).is_empty());
    ledger.release_fully("a");
    assert_eq!(ledger.addresses().count(), 0);
}

#[test]
fn who_may_have_either_family_keeps_the_one_it_got() {
    let mut ledger = settled(&[pool("six", &["fd00::/64"])]);
    let either = Claim { families: Claim::new(owner("a")).families, ..claim("a") };
    assert_eq!(ledger.ask(either), "fd00::");
    ledger.put_pool(Arc::new(pool("four", &["10.0.0.0/24"])));
    assert_eq!(ledger.has("a"), ["fd00::"]);
}

#[test]
fn after_a_restart_old_owners_of_a_shared_address_come_first_and_then_new_ones_may_join() {
    let sharing =
        |name: &str, port| Claim { sharing: Some("k".into()), ports: [tcp(port)].into(), ..claim(name) };
    let mut ledger = Ledger::new();
    ledger.learn(&address("10.0.0.9", &["b", "c", "gone"], AddressState::Held));
    ledger.put_pool(Arc::new(pool("p", &["10.0.0.0/24"])));
    for (name, port) in [("a", 83), ("b", 81), ("c", 82), ("d", 81)] {
        ledger.claim(sharing(name, port));
    }
    ledger.on_synced();
    // By age, a is heard first; what is left of the address is for it all the same.
    assert_eq!(["a", "b", "c"].map(|name| ledger.has(name).concat()), ["10.0.0.9"; 3]);
    assert_eq!(ledger.has("d"), ["10.0.0.0"], "its port is taken there");
}

#[test]
fn a_pool_deleted_and_made_again_gives_nobodys_address_to_another() {
    let two = pool("p", &["10.0.0.0/31"]);
    let other = Arc::new(AddressPool { auto_assign: false, ..pool("other", &["10.9.0.0/24"]) });
    let mut ledger = settled(std::slice::from_ref(&two));
    ledger.put_pool(other);
    ledger.ask(claim("a"));
    ledger.ask(claim("b"));
    ledger.remove_pool(&two.object);
    assert_eq!((ledger.has("a").len(), ledger.told("a")[0].0), (0, Reason::NoPool));
    // An older one comes while hosts still have the addresses of the others.
    ledger.claim(Claim { created: None, ..claim("0") });
    ledger.put_pool(Arc::new(two.clone()));
    assert_eq!(["a", "b"].map(|name| ledger.has(name).concat()), ["10.0.0.0", "10.0.0.1"]);
    assert_eq!(ledger.told("0")[0].0, Reason::PoolExhausted);

    // Once every host let them go, they are anybody's: the oldest first.
    ledger.remove_pool(&two.object);
    ledger.released(ip("10.0.0.0"));
    ledger.released(ip("10.0.0.1"));
    ledger.put_pool(Arc::new(two));
    assert_eq!(["0", "a"].map(|name| ledger.has(name).concat()), ["10.0.0.0", "10.0.0.1"]);
    assert_eq!(ledger.told("b")[0].0, Reason::PoolExhausted);
}

/// What is written of a shared address, then what a ledger that reads it gives, whoever is older.
#[test]
fn a_restart_leaves_each_port_of_a_shared_address_to_who_had_it() {
    let sharing = |name: &str, ports: &[u16]| Claim {
        sharing: Some("k".into()),
        requested: vec![ip("10.0.0.9")],
        ports: ports.iter().map(|port| tcp(*port)).collect(),
        ..claim(name)
    };
    let ports = |ledger: &Ledger, name: &str| -> Vec<u16> {
        let grant = ledger.grant(&owner(name)).0;
        grant.iter().flat_map(|it| &it.ports).map(|(_, listener)| listener.port).collect()
    };
    let conflicts = |ledger: &Ledger, name: &str| -> Vec<String> {
        let grant = ledger.grant(&owner(name)).0;
        let grant = grant.iter().flat_map(|it| &it.conflicts);
        grant.map(|(_, listener, holder)| format!("{listener} {holder}")).collect()
    };
    let mut ledger = settled(&[pool("p", &["10.0.0.0/24"])]);
    // Each wants what the other has; by age, a would be first.
    ledger.claim(sharing("b", &[80]));
    ledger.claim(sharing("a", &[81]));
    let touched = ledger.claim(sharing("b", &[80, 81]));
    assert_eq!(touched.addresses, [ip("10.0.0.9")].into(), "it is to be written");
    ledger.claim(sharing("a", &[80, 81]));
    let written = ledger.address(ip("10.0.0.9")).unwrap();
    assert_eq!(written.conflicts, [(owner("a"), tcp(80)), (owner("b"), tcp(81))]);

    for follows in [false, true] {
        let mut again = if follows { Ledger::following() } else { Ledger::new() };
        again.put_pool(Arc::new(pool("p", &["10.0.0.0/24"])));
        again.learn(&written);
        for name in ["a", "b"] {
            again.claim(sharing(name, &[80, 81]));
        }
        again.on_synced();
        for (name, has, lacks) in
            [("a", 81, "80/TCP Service default/b"), ("b", 80, "81/TCP Service default/a")]
        {
            assert_eq!(ports(&again, name), [has], "follows: {follows}");
            assert_eq!(conflicts(&again, name), [lacks], "follows: {follows}");
        }
        assert_eq!(again.address(ip("10.0.0.9")).as_ref(), Some(&written));
        if !follows {
            again.release(&owner("b"));
            assert_eq!(ports(&again, "a"), [80, 81], "what is given up is the other's");
            assert_eq!(again.address(ip("10.0.0.9")).unwrap().conflicts, []);
        }
    }
    // Who had the port is gone: who waited for it has it before anybody new.
    let mut again = Ledger::new();
    again.put_pool(Arc::new(pool("p", &["10.0.0.0/24"])));
    again.learn(&written);
    again.claim(sharing("0", &[80]));
    again.claim(sharing("a", &[80, 81]));
    again.on_synced();
    assert_eq!(ports(&again, "a"), [80, 81]);
    assert_eq!(again.has("0").len(), 0);
    assert_eq!(again.address(ip("10.0.0.9")).unwrap().conflicts, []);
}

#[test]
fn who_follows_serves_a_port_as_it_is_written_and_not_by_age() {
    let sharing = |name: &str, ports: &[u16]| Claim {
        sharing: Some("k".into()),
        ports: ports.iter().map(|port| tcp(*port)).collect(),
        ..claim(name)
    };
    let written = |conflicts: &[(&str, u16)]| Address {
        sharing: Some("k".into()),
        conflicts: conflicts.iter().map(|(name, port)| (owner(name), tcp(*port))).collect(),
        ..address("10.0.0.9", &["a", "b"], AddressState::Held)
    };
    let mut ledger = Ledger::following();
    ledger.put_pool(Arc::new(pool("p", &["10.0.0.0/24"])));
    ledger.learn(&written(&[]));
    ledger.claim(sharing("a", &[80]));
    ledger.claim(sharing("b", &[80]));
    ledger.on_synced();
    let holder = |ledger: &Ledger| {
        ["a", "b"].map(|name| ledger.grant(&owner(name)).0.map_or(0, |grant| grant.ports.len()))
    };
    for (conflicts, expected) in
        [(&[("a", 80)][..], [0, 1]), (&[("b", 80)], [1, 0]), (&[("a", 80)], [0, 1]), (&[], [0, 1])]
    {
        ledger.follow(ip("10.0.0.9"), Some(&written(conflicts)));
        assert_eq!(holder(&ledger), expected, "{conflicts:?}");
    }
}

#[test]
fn who_is_refused_an_address_is_told_the_same_holder_whoever_joined_it_first() {
    let sharing = |name: &str, port| Claim {
        sharing: Some("k".into()),
        requested: vec![ip("10.0.0.9")],
        ports: [tcp(port)].into(),
        ..claim(name)
    };
    for order in [["b", "x", "a"], ["a", "b", "x"], ["x", "b", "a"], ["b", "a", "x"]] {
        let mut ledger = settled(&[pool("p", &["10.0.0.0/24"])]);
        // Whoever it is that has it at first: what x asks for is not free.
        ledger.claim(sharing("c", 82));
        for (port, name) in (90..).zip(order) {
            let mut claim = sharing(name, port);
            if name == "x" {
                claim.sharing = None;
            }
            ledger.claim(claim);
        }
        assert_eq!(ledger.told("x")[0].1, "10.0.0.9 is held by Service default/a", "{order:?}");
    }
}
