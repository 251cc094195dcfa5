//! In a cluster: who has which port of hosts' own addresses, after a start and as long as a process runs.

use seaway_model::config::AddressPoolRules;

use super::{
    node_addresses::{cluster, hosts, node},
    *,
};

/// A host, or a controller, that is told all and has decided nothing.
fn starting(leads: bool) -> Ledger {
    cluster(&[hosts("ours")]).turned(leads, std::iter::empty())
}

fn at_ports(name: &str, created: u64, ports: &[u16]) -> Claim {
    let ports = ports.iter().map(|port| tcp(*port)).collect();
    Claim { created: Some(Time(created)), ports, ..claim(name) }
}

/// By whom a port is had at the address of each host.
fn who(ledger: &Ledger, port: u16) -> [String; 2] {
    ["192.0.2.1", "192.0.2.2"].map(|at| {
        let has = |owner: &Owner| {
            let grant = ledger.grant(owner).0;
            grant.is_some_and(|it| it.ports.contains(&(ip(at), tcp(port))))
        };
        let all: Vec<String> =
            ledger.owners.keys().filter(|it| has(it)).map(|it| it.object().name.to_string()).collect();
        all.join(" and ")
    })
}

/// Of a Service: at which ports of which hosts its status says that it is.
type Said<'a> = (&'a str, &'a [(&'a str, u16)]);

fn says(ledger: &mut Ledger, said: &[Said<'_>]) {
    let mut ports = Vec::new();
    for (name, at) in said {
        let addresses: BTreeSet<IpAddr> = at.iter().map(|(at, _)| ip(at)).collect();
        ledger.remember(owner(name), addresses.into_iter().collect());
        ports.push((owner(name), at.iter().map(|(at, port)| (ip(at), tcp(*port))).collect()));
    }
    ledger.remember_ports(ports);
}

const ONE: &str = "192.0.2.1";
const TWO: &str = "192.0.2.2";

#[test]
fn at_a_start_a_port_is_whose_status_says_so_however_old_another_is() {
    let shop: Said<'_> = ("shop", &[(ONE, 443), (TWO, 443)]);
    let told: [(&str, &[Said<'_>], [&str; 2]); 7] = [
        ("the older one is not published", &[shop], ["shop", "shop"]),
        ("it is, by another port", &[("old", &[(ONE, 81), (TWO, 81)]), shop], ["shop", "shop"]),
        (
            "each has it at another host",
            &[("old", &[(ONE, 443), (TWO, 81)]), ("shop", &[(TWO, 443)])],
            ["old", "shop"],
        ),
        ("statuses of the version before have no ports", &[("old", &[]), ("shop", &[])], ["old", "old"]),
        (
            "one status was written after the other",
            &[shop, ("old", &[(ONE, 443), (TWO, 443)])],
            ["old", "old"],
        ),
        (
            "who had it asks for it no more",
            &[("else", &[(ONE, 443), (TWO, 443)]), ("old", &[(ONE, 81), (TWO, 81)])],
            ["old", "old"],
        ),
        ("who had it is gone", &[("gone", &[(ONE, 443), (TWO, 443)])], ["old", "old"]),
    ];
    for leads in [true, false] {
        for (why, said, expected) in &told {
            let mut ledger = starting(leads);
            ledger.claim(at_ports("old", 1, &[81, 443]));
            ledger.claim(at_ports("shop", 2, &[443]));
            ledger.claim(at_ports("else", 3, &[8080]));
            says(&mut ledger, said);
            ledger.on_synced();
            assert_eq!(who(&ledger, 443), *expected, "{why}, leads: {leads}");
            assert_eq!(who(&ledger, 81), ["old", "old"], "{why}: its other port is served, leads: {leads}");
            // From then on as always: who waits gets it when it becomes free.
            ledger.release(&owner("old"));
            assert_eq!(who(&ledger, 443), ["shop", "shop"], "{why}, leads: {leads}");
        }
    }
}

/// As a host does that joins: it hears of those first who are published.
#[test]
fn ports_of_a_new_host_are_given_first_to_those_who_have_hosts_addresses() {
    let mut ledger = cluster(&[hosts("ours")]);
    ledger.remove_host("two");
    ledger.ask(at_ports("shop", 2, &[443]));
    ledger.ask(at_ports("old", 1, &[443]));
    ledger.put_host(&report("two", &[TWO]));
    assert_eq!(who(&ledger, 443), ["shop", "shop"]);

    let mut joining = starting(false);
    joining.claim(at_ports("shop", 2, &[443]));
    joining.claim(at_ports("old", 1, &[443]));
    says(&mut joining, &[("shop", &[(ONE, 443)])]);
    joining.on_synced();
    assert_eq!(who(&joining, 443), ["shop", "shop"]);
}

/// An Address says who has which of its ports, and for a host that is so until it is written otherwise.
#[test]
fn what_is_written_of_an_address_of_a_pool_counts_more_than_a_status() {
    let mut ledger = Ledger::following();
    ledger.set_rules(AddressPoolRules::CLUSTER);
    ledger.put_pool(Arc::new(pool("p", &["10.0.0.0/24"])));
    ledger.put_node(&"one".into(), Some(node(&[ONE], &[])));
    let mut leader = settled(&[pool("p", &["10.0.0.0/24"])]);
    for name in ["a", "b"] {
        let sharing = Claim { sharing: Some("key".into()), ..at_ports(name, 1, &[443]) };
        leader.claim(sharing.clone());
        ledger.claim(sharing);
    }
    let shared = leader.address(ip("10.0.0.0")).map(|it| seaway_model::Address {
        owners: vec![owner("a"), owner("b")],
        conflicts: vec![(owner("b"), tcp(443))],
        sharing: Some("key".into()),
        ..it
    });
    ledger.learn(&shared.expect("is given"));
    ledger.remember_ports(vec![(owner("b"), vec![(ip("10.0.0.0"), tcp(443))])]);
    ledger.on_synced();
    let ports = |name: &str| ledger.grant(&owner(name)).0.map_or(0, |it| it.ports.len());
    assert_eq!((ports("a"), ports("b")), (1, 0));
}
