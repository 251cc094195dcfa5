//! In a cluster: ports at Nodes' own addresses that the configuration has, or that the operator reserves.

use seaway_model::config::ReservedPorts;

use super::{
    node_addresses::{cluster, hosts},
    *,
};

/// The kernel prefers a socket of one address to one of all addresses: a Service at a Node's own address would have the clients
/// of the front door, of all tenants.
#[test]
fn a_service_at_nodes_addresses_takes_no_port_that_the_configuration_has_at_all_addresses() {
    let door = || {
        let every = vec![ip("::"), ip("0.0.0.0")];
        let owner = Owner::Config("frontDoor".into());
        Claim { ports: [tcp(80)].into(), hosts_only: true, exactly: every, ..Claim::new(owner) }
    };
    let of_door =
        |ledger: &Ledger| ledger.grant(&door().owner).1.into_iter().map(|it| it.reason).collect::<Vec<_>>();
    let ports = |ledger: &Ledger, name: &str| {
        let granted = ledger.grant(&owner(name)).0;
        granted
            .map(|it| it.ports.iter().map(|(_, id)| id.port).collect::<BTreeSet<u16>>())
            .unwrap_or_default()
    };
    let evil = |name: &str| Claim { ports: [tcp(80), tcp(81)].into(), ..claim(name) };
    let mut ledger = cluster(&[hosts("ours")]);
    ledger.claim(door());
    assert_eq!(ledger.ask(evil("evil")), "192.0.2.1 192.0.2.2");
    assert_eq!(ports(&ledger, "evil"), [81].into());
    let conflicts = ledger.grant(&owner("evil")).0.unwrap().conflicts;
    assert!(
        conflicts.iter().all(|(_, id, who)| *id == tcp(80) && *who == door().owner) && conflicts.len() == 2
    );
    assert_eq!(ledger.ask(claim("later")), "", "all that it asks for is the front door's");
    assert!(of_door(&ledger).is_empty());
    // The door closes, who waited has the port, and keeps it when the door opens again.
    ledger.release(&door().owner);
    assert_eq!(ports(&ledger, "evil"), [80, 81].into());
    ledger.claim(door());
    ledger.claim(evil("evil"));
    assert_eq!(ports(&ledger, "evil"), [80, 81].into());
    assert_eq!(of_door(&ledger), [Reason::PortConflict, Reason::PortConflict]);
    ledger.release_fully("evil");
    assert!(of_door(&ledger).is_empty(), "{:?}", of_door(&ledger));
    assert_eq!(ledger.ask(claim("later")), "", "it is the front door's by now");
    // Addresses of pools are nobody's machine.
    ledger.put_pool(Arc::new(pool("p", &["10.0.0.0/24"])));
    assert_eq!(ledger.ask(Claim { pool: Some("p".into()), ..claim("of pool") }), "10.0.0.0");
    assert_eq!(ports(&ledger, "of pool"), [80].into());
}

#[test]
fn ports_that_the_operator_reserves_are_refused_like_those_that_are_known() {
    let udp = |port| ListenerId { l4: L4::Udp, port };
    let asking = |id: ListenerId| Claim { ports: [id, tcp(80)].into(), ..claim("a") };
    let refused = |ledger: &Ledger| ledger.grant(&owner("a")).0.unwrap().refused;
    let (at_hosts, at_pool) = (|| cluster(&[hosts("ours")]), || cluster(&[pool("p", &["10.0.0.0/24"])]));
    for (mut ledger, id, expected) in [
        (at_hosts(), tcp(9345), true),
        (at_hosts(), udp(9345), true),
        (at_pool(), tcp(9345), false),
        (at_pool(), udp(9345), true),
        (at_hosts(), tcp(9346), false),
    ] {
        ledger.ask(asking(id));
        assert!(refused(&ledger).is_empty(), "nobody has said so: {id}");
        let touched = ledger.set_machine_ports(&ReservedPorts::with_additional(vec![9345..=9345]));
        assert_eq!(
            (refused(&ledger).contains(&id), touched.owners.is_empty()),
            (expected, !expected),
            "{id}"
        );
    }
}

#[test]
fn at_a_start_the_configuration_comes_first_but_for_who_is_said_to_answer_there() {
    let door = || {
        let owner = Owner::Config("frontDoor".into());
        Claim { ports: [tcp(80)].into(), hosts_only: true, exactly: vec![ip("0.0.0.0")], ..Claim::new(owner) }
    };
    let two = |name: &str| Claim { ports: [tcp(80), tcp(81)].into(), ..claim(name) };
    // Both had an address; one of them answered at 80.
    for (said, follows) in [
        ("old", false),
        ("old", true),
        ("young", false),
        ("", false),
        ("", true),
        ("asks no more", false),
        ("asks no more", true),
    ] {
        let mut ledger = cluster(&[hosts("ours")]).turned(!follows, std::iter::empty());
        for name in ["old", "young"] {
            ledger.claim(two(name));
            ledger.remember(owner(name), vec![ip("192.0.2.1"), ip("192.0.2.2")]);
        }
        ledger.claim(door());
        let is_lost = ["old", "young"].contains(&said);
        if said == "asks no more" {
            // An entry that the configuration had when it was reloaded.
            let entry = Owner::Config("tcpServices[0]".into());
            ledger.answered(entry, ip("0.0.0.0"), tcp(80));
        } else if is_lost {
            let at = |port| [(ip("192.0.2.1"), tcp(port)), (ip("192.0.2.2"), tcp(port))];
            ledger.remember_ports(vec![(owner(said), at(80).to_vec())]);
        }
        ledger.on_synced();
        for name in ["old", "young"] {
            let ports = ledger.grant(&owner(name)).0.map(|it| it.ports).unwrap_or_default();
            assert_eq!(
                ports.iter().any(|(_, id)| *id == tcp(80)),
                name == said,
                "{said} {follows} {name}: {ports:?}"
            );
        }
        let told = ledger.grant(&door().owner).1.len();
        assert_eq!(told, if is_lost { 2 } else { 0 }, "{said} {follows}");
        // It stays so, whoever is looked at again.
        ledger.claim(two("old"));
        ledger.put_host(&report("other", &["192.0.2.9"]));
        let ports = ledger.grant(&owner("old")).0.map(|it| it.ports).unwrap_or_default();
        assert_eq!(ports.iter().any(|(_, id)| *id == tcp(80)), said == "old", "{said} {follows}");
    }
}
