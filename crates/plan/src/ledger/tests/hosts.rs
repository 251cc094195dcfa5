//! The serving hosts' own addresses.

use super::*;

fn hosts(name: &str) -> AddressPool {
    AddressPool { hosts: true, ..pool(name, &[]) }
}

fn conflicts(ledger: &Ledger, name: &str) -> Vec<String> {
    let (grant, _) = ledger.grant(&owner(name));
    let told = |(ip, port, who): &(IpAddr, ListenerId, Owner)| format!("{port} on {ip}: {who}");
    grant.iter().flat_map(|grant| grant.conflicts.iter().map(told)).collect()
}

#[test]
fn without_any_pool_the_hosts_own_addresses_are_given() {
    let mut ledger = settled(&[]);
    assert_eq!(ledger.ask(claim("a")), "NoPool");
    assert!(ledger.told("a")[0].1.contains("no IPv4 addresses are published by pool hosts"));
    ledger.put_host(&report("two", &["192.0.2.2", "2001:db8::2"]));
    ledger.put_host(&report("one", &["192.0.2.1"]));
    assert_eq!(ledger.has("a"), ["192.0.2.1", "192.0.2.2"]);
    let (grant, _) = ledger.grant(&owner("a"));
    let grant = grant.unwrap();
    assert!(grant.from_hosts && grant.pool.as_str() == "hosts" && grant.ports.len() == 2);
    assert_eq!(ledger.address(ip("192.0.2.1")), None, "they are no Address objects");
    ledger.remove_host("one");
    assert_eq!(ledger.has("a"), ["192.0.2.2"]);
    assert_eq!(ledger.ask(dual("a", FamilyPolicy::Prefer, V6)), "2001:db8::2 192.0.2.2");
}

#[test]
fn the_first_pool_with_addresses_ends_the_default() {
    let mut ledger = settled(&[]);
    ledger.put_host(&report("one", &["192.0.2.1"]));
    assert_eq!(ledger.ask(claim("a")), "192.0.2.1");
    let closed = AddressPool { namespaces: vec!["other".into()], ..pool("p", &["10.0.0.0/24"]) };
    ledger.put_pool(Arc::new(closed.clone()));
    assert_eq!((ledger.has("a").len(), ledger.told("a")[0].0), (0, Reason::NoPool));
    ledger.put_pool(Arc::new(pool("p", &["10.0.0.0/24"])));
    assert_eq!(ledger.has("a"), ["10.0.0.0"]);
    ledger.remove_pool(&closed.object);
    assert_eq!(ledger.has("a"), ["192.0.2.1"]);
}

#[test]
fn a_port_that_another_has_spoils_only_itself() {
    let mut ledger = settled(&[hosts("ours")]);
    ledger.put_host(&report("one", &["192.0.2.1"]));
    ledger.ask(claim("a"));
    let both = Claim { ports: [tcp(80), tcp(443)].into(), ..claim("b") };
    assert_eq!(ledger.ask(both), "192.0.2.1");
    assert_eq!(ledger.grant(&owner("b")).0.unwrap().ports, [(ip("192.0.2.1"), tcp(443))]);
    assert_eq!(conflicts(&ledger, "b"), ["80/TCP on 192.0.2.1: Service default/a"]);
    assert_eq!(ledger.ask(claim("c")), "", "no address where it would serve nothing");
    assert_eq!(conflicts(&ledger, "c"), ["80/TCP on 192.0.2.1: Service default/a"]);
    let udp = ListenerId { l4: L4::Udp, port: 80 };
    assert_eq!(ledger.ask(Claim { ports: [udp].into(), ..claim("d") }), "192.0.2.1");

    let touched = ledger.release(&owner("a"));
    assert!(
        touched.owners.contains(&owner("b")) && touched.owners.contains(&owner("c")),
        "both are told anew"
    );
    assert_eq!(ledger.grant(&owner("b")).0.unwrap().ports.len(), 2, "the next of age and name has it now");
    assert_eq!(conflicts(&ledger, "c"), ["80/TCP on 192.0.2.1: Service default/b"]);
}

#[test]
fn at_start_the_oldest_has_the_port_and_later_whoever_holds_it() {
    let aged = |name: &str, created| Claim { created: Some(Time(created)), ..claim(name) };
    let mut ledger = Ledger::new();
    ledger.put_host(&report("one", &["192.0.2.1"]));
    ledger.claim(aged("a", 9));
    ledger.claim(aged("z", 3));
    ledger.claim(aged("y", 3));
    assert_eq!(ledger.has("y").len(), 0, "nothing is decided before all is known");
    ledger.on_synced();
    assert_eq!((ledger.has("y").len(), ledger.has("z").len(), ledger.has("a").len()), (1, 0, 0));
    ledger.claim(aged("older", 1));
    assert_eq!((ledger.has("y").len(), ledger.has("older").len()), (1, 0));
}

#[test]
fn the_configuration_listens_on_hosts_whatever_pools_there_are() {
    let mut ledger = settled(&[pool("p", &["10.0.0.0/24"])]);
    ledger.put_host(&report("one", &["192.0.2.1", "2001:db8::1"]));
    let families = Families { policy: FamilyPolicy::Prefer, first: None, second: None };
    let entry = |key: &str, address: Option<IpAddr>| Claim {
        hosts_only: true,
        families,
        exactly: address.into_iter().collect(),
        ports: [tcp(5432)].into(),
        ..Claim::new(Owner::Config(key.into()))
    };
    let of = |ledger: &Ledger, key: &str| ledger.grant(&Owner::Config(key.into())).0.unwrap().ports;
    ledger.claim(entry("tcpServices[0]", None));
    assert_eq!(of(&ledger, "tcpServices[0]"), [(ip("192.0.2.1"), tcp(5432)), (ip("2001:db8::1"), tcp(5432))]);
    ledger.claim(entry("tcpServices[1]", Some(ip("127.0.0.1"))));
    assert_eq!(of(&ledger, "tcpServices[1]"), [(ip("127.0.0.1"), tcp(5432))]);
    ledger.claim(entry("tcpServices[2]", Some(ip("192.0.2.1"))));
    assert_eq!(of(&ledger, "tcpServices[2]"), []);
}

#[test]
fn hosts_and_pools_are_asked_in_one_order() {
    let first = AddressPool { priority: 1, ..hosts("first") };
    let mut ledger = settled(&[first, pool("then", &["10.0.0.0/24"])]);
    ledger.put_host(&report("one", &["192.0.2.1"]));
    assert_eq!(ledger.ask(claim("a")), "192.0.2.1");
    assert_eq!(ledger.ask(claim("b")), "10.0.0.0", "rather a whole address than a spoiled port");
    assert_eq!(ledger.ask(Claim { pool: Some("first".into()), ..claim("c") }), "");
    ledger.release(&owner("a"));
    assert_eq!((ledger.has("b"), ledger.has("c")), (vec!["10.0.0.0".into()], vec!["192.0.2.1".into()]));
}

#[test]
fn a_requested_address_of_a_host_is_given_alone() {
    let mut ledger = settled(&[]);
    ledger.put_host(&report("one", &["192.0.2.1", "192.0.2.2"]));
    assert_eq!(ledger.ask(asking("a", &["192.0.2.2"])), "192.0.2.2");
    assert_eq!(ledger.ask(asking("b", &["192.0.2.3"])), "AddressOutsidePools");
    assert_eq!(ledger.ask(claim("c")), "192.0.2.1");
}

#[test]
fn an_address_of_ours_that_is_present_on_a_host_is_not_the_hosts_own() {
    let mut ledger = settled(&[pool("p", &["10.0.0.0/31"]), hosts("ours")]);
    assert_eq!(ledger.ask(claim("a")), "10.0.0.0");
    ledger.put_host(&report("one", &["10.0.0.0", "192.0.2.1"]));
    assert_eq!(ledger.has("a"), ["10.0.0.0"]);
    let others = Claim { pool: Some("ours".into()), ports: [tcp(81)].into(), ..claim("b") };
    assert_eq!(ledger.ask(others), "192.0.2.1");
}

#[test]
fn a_pool_that_is_used_up_says_which_hosts_report_addresses_of_it_as_their_own() {
    let mut ledger = settled(&[pool("p", &["10.0.0.0/30"])]);
    ledger.put_host(&report("a", &["10.0.0.0", "10.0.0.1", "192.0.2.1"]));
    ledger.put_host(&report("b", &["10.0.0.2"]));
    assert_eq!(ledger.ask(claim("one")), "10.0.0.3");
    assert_eq!(ledger.ask(claim("two")), "PoolExhausted");
    let (_, message) = ledger.told("two").remove(0);
    assert!(
        message.ends_with(", less those that are hosts' own (host a reports 2, host b reports 1)"),
        "{message}"
    );
    ledger.remove_host("a");
    assert_eq!(ledger.has("two"), ["10.0.0.0"]);
    assert_eq!(
        (ledger.ask(claim("three")), ledger.ask(claim("four"))),
        ("10.0.0.1".into(), "PoolExhausted".into())
    );
    let (_, message) = ledger.told("four").remove(0);
    assert!(message.ends_with("hosts' own (host b reports 1)"), "{message}");
}

#[test]
fn who_asks_for_either_family_and_gets_only_ipv6_is_told_who_has_its_port() {
    let mut ledger = settled(&[]);
    ledger.put_host(&report("one", &["192.0.2.1", "2001:db8::1"]));
    let either = |name: &str| Claim {
        families: Families { policy: FamilyPolicy::Single, first: None, second: None },
        ..claim(name)
    };
    assert_eq!(ledger.ask(either("a")), "192.0.2.1");
    assert_eq!(ledger.ask(either("b")), "2001:db8::1 PortConflict");
    let told = ledger.told("b");
    assert!(told[0].1.contains("port 80/TCP on 192.0.2.1 is already used by"), "{told:?}");
    // Asked again it is the same; who says that it wants IPv6 is told nothing, and neither is who has another port.
    assert_eq!(ledger.ask(either("b")), "2001:db8::1 PortConflict");
    let six = Families { policy: FamilyPolicy::Single, first: Some(V6), second: None };
    assert_eq!(ledger.ask(Claim { families: six, ..either("b") }), "2001:db8::1");
    assert_eq!(ledger.ask(Claim { ports: [tcp(81)].into(), ..either("c") }), "192.0.2.1");
    // The port becomes free: nothing is wrong any more.
    assert_eq!(ledger.ask(either("b")), "2001:db8::1 PortConflict");
    ledger.release_fully("a");
    assert!(ledger.told("b").is_empty(), "{:?}", ledger.told("b"));
}
