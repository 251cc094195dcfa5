//! One address for several owners.

use seaway_model::config::AddressPoolRules;

use super::*;

fn sharing(name: &str, key: &str, port: u16) -> Claim {
    Claim { sharing: Some(key.into()), ports: [tcp(port)].into(), ..claim(name) }
}

#[test]
fn owners_with_one_key_and_distinct_ports_share_an_address() {
    let mut ledger = settled(&[pool("p", &["10.0.0.0/24"])]);
    ledger.ask(claim("alone"));
    assert_eq!(ledger.ask(sharing("a", "k", 80)), "10.0.0.1");
    assert_eq!(ledger.ask(sharing("b", "k", 81)), "10.0.0.1");
    assert_eq!(ledger.ask(sharing("c", "k", 80)), "10.0.0.2", "its port is taken there");
    assert_eq!(ledger.ask(sharing("d", "other", 82)), "10.0.0.3");
    let udp = ListenerId { l4: L4::Udp, port: 80 };
    assert_eq!(ledger.ask(Claim { ports: [udp].into(), ..sharing("e", "k", 0) }), "10.0.0.1");
    let address = ledger.address(ip("10.0.0.1")).unwrap();
    assert_eq!(address.owners, [owner("a"), owner("b"), owner("e")]);
    assert_eq!((address.sharing.as_deref(), address.pool.as_str()), (Some("k"), "p"));
}

/// MetalLB's table: first has (key, port, local, selector), second asks for the same address.
#[test]
fn a_requested_address_is_shared_or_refused_as_metallb_does() {
    let label = |app: &str| Labels::from([("app".into(), app.into())]);
    let with = |name: &str, key: &str, port, local_only, app: &str| Claim {
        requested: vec![ip("10.0.0.5")],
        local_only,
        selector: if app.is_empty() { Labels::new() } else { label(app) },
        sharing: (!key.is_empty()).then(|| key.into()),
        ..sharing(name, "", port)
    };
    let cases = [
        (("k", 80, false, "x"), ("k", 81, false, "y"), "10.0.0.5"),
        (("k", 80, true, "x"), ("k", 81, true, "x"), "10.0.0.5"),
        (("k", 80, true, "x"), ("k", 81, true, "y"), "AddressTaken"),
        (("k", 80, false, "x"), ("k", 81, true, "y"), "AddressTaken"),
        (("k", 80, true, ""), ("k", 81, true, ""), "AddressTaken"),
        (("k", 80, false, "x"), ("k", 80, false, "x"), "PortConflict"),
        (("k", 80, false, "x"), ("l", 81, false, "x"), "AddressTaken"),
        (("", 80, false, "x"), ("k", 81, false, "x"), "AddressTaken"),
        (("k", 80, false, "x"), ("", 81, false, "x"), "AddressTaken"),
        (("", 80, false, "x"), ("", 81, false, "x"), "AddressTaken"),
    ];
    for (first, second, expected) in cases {
        let mut ledger = settled(&[pool("p", &["10.0.0.0/24"])]);
        let (key, port, local, app) = first;
        ledger.ask(with("a", key, port, local, app));
        let (key, port, local, app) = second;
        assert_eq!(ledger.ask(with("b", key, port, local, app)), expected, "{first:?} {second:?}");
        assert_eq!(ledger.has("a"), ["10.0.0.5"], "who has it keeps it");
        if expected != "10.0.0.5" {
            assert!(ledger.told("b")[0].1.contains("Service default/a"), "{:?}", ledger.told("b"));
        }
    }
}

#[test]
fn a_port_given_up_lets_the_next_one_in() {
    let mut ledger = settled(&[pool("p", &["10.0.0.0/32"])]);
    ledger.ask(sharing("a", "k", 80));
    assert_eq!(ledger.ask(sharing("b", "k", 80)), "PoolExhausted");
    let touched = ledger.claim(sharing("a", "k", 8080));
    assert!(touched.owners.contains(&owner("b")));
    assert_eq!((ledger.has("b"), ledger.told("b")), (vec!["10.0.0.0".into()], vec![]));
}

#[test]
fn a_port_added_that_a_neighbour_has_moves_nobody() {
    let mut ledger = settled(&[pool("p", &["10.0.0.0/24"])]);
    ledger.ask(sharing("a", "k", 80));
    ledger.ask(sharing("b", "k", 81));
    let more = Claim { ports: [tcp(80), tcp(81)].into(), ..sharing("b", "k", 81) };
    assert_eq!(ledger.ask(more), "10.0.0.0");
    let grant = ledger.grant(&owner("b")).0.unwrap();
    assert_eq!(grant.ports, [(ip("10.0.0.0"), tcp(81))]);
    assert_eq!(grant.conflicts, [(ip("10.0.0.0"), tcp(80), owner("a"))]);
    ledger.release(&owner("a"));
    assert_eq!(ledger.grant(&owner("b")).0.unwrap().ports.len(), 2);
}

#[test]
fn who_changes_the_key_of_a_shared_address_moves() {
    let mut ledger = settled(&[pool("p", &["10.0.0.0/24"])]);
    ledger.ask(sharing("a", "k", 80));
    ledger.ask(sharing("b", "k", 81));
    let touched = ledger.claim(sharing("a", "l", 80));
    assert_eq!((ledger.has("a"), ledger.has("b")), (vec!["10.0.0.1".into()], vec!["10.0.0.0".into()]));
    assert_eq!(touched.withdrawn, [(owner("a"), ip("10.0.0.0"))]);
    assert_eq!(ledger.address(ip("10.0.0.0")).unwrap().owners, [owner("b")]);
    assert_eq!(ledger.ask(sharing("b", "m", 81)), "10.0.0.0", "alone, it may");
    assert_eq!(ledger.address(ip("10.0.0.0")).unwrap().sharing.as_deref(), Some("m"));
}

#[test]
fn a_key_is_shared_within_one_namespace_unless_both_say_otherwise() {
    let of = |namespace: &str, name: &str, port: u16, across: &[&str]| {
        let object = ObjectRef::new(Kind::Service, namespace, name);
        Claim {
            owner: Owner::Object { object, uid: name.into() },
            namespace: namespace.into(),
            across: across.iter().map(|it| Name::from(*it)).collect(),
            ..sharing(name, "k", port)
        }
    };
    let table: [(&[&str], &[&str], bool); 6] = [
        (&[], &[], false),
        (&["two"], &[], false),
        (&[], &["*"], false),
        (&["two"], &["one"], true),
        (&["*"], &["one"], true),
        (&["three"], &["one"], false),
    ];
    for (first, second, shared) in table {
        let mut ledger = settled(&[pool("p", &["10.0.0.0/24"])]);
        let (a, b) = (of("one", "a", 80, first), of("two", "b", 81, second));
        let asked = Claim { requested: vec![ip("10.0.0.0")], ..of("two", "c", 82, second) };
        for claim in [&a, &b, &asked] {
            ledger.claim(claim.clone());
        }
        let has = |ledger: &Ledger, it: &Claim| ledger.grant(&it.owner).0.map(|it| it.addresses);
        let expected = if shared { "10.0.0.0" } else { "10.0.0.1" };
        assert_eq!(has(&ledger, &b), Some(vec![ip(expected)]), "{first:?} {second:?}");
        assert_eq!(has(&ledger, &asked).is_some(), shared, "{first:?} {second:?}");
        if !shared {
            let told = ledger.grant(&asked.owner).1.remove(0);
            assert_eq!(told.message, "10.0.0.0 is held by Service one/a, which is of another namespace");
            // Once both agree, who waits gets it.
            ledger.claim(Claim { across: vec!["*".into()], ..asked.clone() });
            ledger.claim(Claim { across: vec!["*".into()], ..a });
            assert_eq!(has(&ledger, &asked), Some(vec![ip("10.0.0.0")]), "{first:?} {second:?}");
        }
    }
}

#[test]
fn in_a_cluster_who_has_an_address_is_named_within_its_namespace_alone() {
    let of = |namespace: &str, name: &str, key: &str, local_only| {
        let object = ObjectRef::new(Kind::Service, namespace, name);
        let owner = Owner::Object { object, uid: name.into() };
        let across = vec!["*".into()];
        Claim { owner, namespace: namespace.into(), across, local_only, ..sharing(name, key, 80) }
    };
    for (key, port, local, across) in
        [("l", 81, false, true), ("k", 81, false, false), ("k", 81, true, true), ("k", 80, false, true)]
    {
        for (cluster, namespace, is_named) in
            [(false, "two", true), (true, "two", false), (true, "one", true)]
        {
            let mut ledger = settled(&[pool("p", &["10.0.0.0/24"])]);
            ledger.set_rules(AddressPoolRules { cluster, ..AddressPoolRules::default() });
            ledger.claim(of("one", "secret", "k", false));
            let mut asks = Claim {
                requested: vec![ip("10.0.0.0")],
                ports: [tcp(port)].into(),
                ..of(namespace, "b", key, local)
            };
            if !across {
                asks.across.clear();
            }
            ledger.claim(asks.clone());
            let (grant, problems) = ledger.grant(&asks.owner);
            let case = format!("{key} {port} {local} {across} {cluster} {namespace}: {problems:?}");
            if namespace == "one" && key == "k" && !across {
                assert!(grant.is_some(), "{case}");
                continue;
            }
            let message = &problems[0].message;
            assert_eq!(message.contains("Service one/secret"), is_named, "{case}");
            assert_eq!(message.contains("a Service of another namespace"), !is_named, "{case}");
            assert!(is_named || !message.contains("one/") && !problems[0].fix.contains("secret"), "{case}");
        }
    }
}

#[test]
fn who_waits_under_a_key_comes_along_when_a_released_address_is_taken_back() {
    let mut ledger = settled(&[pool("one", &["192.0.2.1-192.0.2.1"])]);
    ledger.claim(claim("first"));
    ledger.claim(sharing("waits", "web", 81));
    ledger.release(&owner("first"));
    assert_eq!((ledger.has("first"), ledger.has("waits")), (vec![], vec![]), "hosts have it still");
    ledger.claim(sharing("first", "web", 80));
    assert_eq!([ledger.has("first"), ledger.has("waits")].concat(), ["192.0.2.1", "192.0.2.1"]);
}

#[test]
fn a_shared_address_stays_of_the_pool_that_it_was_given_from() {
    let only = |name: &str, namespace: &str| AddressPool {
        namespaces: vec![namespace.into()],
        ..pool(name, &["192.0.2.1-192.0.2.1"])
    };
    let mut ledger = settled(&[only("a", "shop"), only("b", "default")]);
    let across = |name: &str, namespace: &str, port| Claim {
        sharing: Some("web".into()),
        across: ["shop".into(), "default".into()].into(),
        namespace: namespace.into(),
        ports: [tcp(port)].into(),
        ..claim(name)
    };
    ledger.claim(across("one", "shop", 80));
    ledger.claim(across("two", "default", 81));
    assert_eq!(ledger.has("two"), ["192.0.2.1"]);
    assert_eq!(ledger.address(ip("192.0.2.1")).unwrap().pool.as_str(), "a");
}

/// It was given its second family only when it was heard again, at the next change of any host.
#[test]
fn who_joins_an_address_of_a_pool_that_gives_to_nobody_unasked_has_its_other_family_from_there_at_once() {
    let named =
        AddressPool { auto_assign: false, ..pool("named", &["192.0.2.1-192.0.2.1", "2001:db8::/64"]) };
    let mut ledger = settled(&[pool("any", &["192.0.2.1-192.0.2.1"]), named]);
    let first = Claim { pool: Some("named".into()), ..sharing("first", "web", 80) };
    assert_eq!(ledger.ask(first), "192.0.2.1");
    let second = Claim {
        sharing: Some("web".into()),
        ports: [tcp(81)].into(),
        ..dual("second", FamilyPolicy::Prefer, V4)
    };
    assert_eq!(ledger.ask(second), "192.0.2.1 2001:db8::");
    ledger.put_host(&report("other", &["198.51.100.1"]));
    assert_eq!(ledger.has("second"), ["192.0.2.1", "2001:db8::"]);
}

#[test]
fn local_traffic_beside_several_others_needs_the_pods_of_each_of_them() {
    let with = |name: &str, port, local_only, app: &str| Claim {
        requested: vec![ip("10.0.0.5")],
        local_only,
        selector: Labels::from([("app".into(), app.into())]),
        ..sharing(name, "k", port)
    };
    for (of_second, expected) in [("x", "10.0.0.5"), ("y", "AddressTaken")] {
        let mut ledger = settled(&[pool("p", &["10.0.0.0/24"])]);
        assert_eq!(ledger.ask(with("a", 80, false, "x")), "10.0.0.5");
        assert_eq!(ledger.ask(with("b", 81, false, of_second)), "10.0.0.5");
        assert_eq!(ledger.ask(with("c", 82, true, "x")), expected, "{of_second}");
    }
}

#[test]
fn of_two_requested_addresses_the_one_that_it_does_not_get_is_told() {
    let mut ledger = settled(&[pool("p", &["10.0.0.0/24", "fd00::/120"])]);
    let single = Families { policy: FamilyPolicy::Single, first: Some(V6), second: None };
    ledger.ask(Claim { requested: vec![ip("fd00::5")], families: single, ..claim("other") });
    assert_eq!(ledger.ask(Claim { requested: vec![ip("10.0.0.5")], ..claim("a") }), "10.0.0.5");
    let both = vec![ip("10.0.0.5"), ip("fd00::5")];
    ledger.claim(Claim { requested: both, ..dual("a", FamilyPolicy::Require, V4) });
    assert_eq!(ledger.has("a"), ["10.0.0.5"], "it keeps what it has");
    let told = ledger.told("a");
    assert!(told.len() == 1 && told[0].1.contains("fd00::5"), "{told:?}");
}
