//! In a cluster: whose addresses a pool with `hosts: true` publishes, at which ports, and who keeps them.

use seaway_model::config::AddressPoolRules;

use super::*;
use crate::ledger::HostNode;

pub(super) fn hosts(name: &str) -> AddressPool {
    AddressPool { hosts: true, ..pool(name, &[]) }
}

pub(super) fn node(internal: &[&str], external: &[&str]) -> HostNode {
    let ips = |all: &[&str]| all.iter().map(|text| ip(text)).collect();
    HostNode { internal: ips(internal), external: ips(external), ..HostNode::default() }
}

/// Two workers, and machines with more addresses than the cluster knows.
pub(super) fn cluster(pools: &[AddressPool]) -> Ledger {
    let mut ledger = Ledger::new();
    ledger.set_rules(AddressPoolRules::CLUSTER);
    ledger.set_time(Time(0));
    for pool in pools {
        ledger.put_pool(Arc::new(pool.clone()));
    }
    ledger.put_host(&report("one", &["192.0.2.1", "172.17.0.1", "10.244.0.1"]));
    ledger.put_host(&report("two", &["192.0.2.2", "172.17.0.1"]));
    ledger.put_node(&"one".into(), Some(node(&["192.0.2.1"], &[])));
    ledger.put_node(&"two".into(), Some(node(&["192.0.2.2"], &[])));
    ledger.on_synced();
    ledger
}

fn reasons(ledger: &Ledger, name: &str) -> Vec<Reason> {
    ledger.told(name).into_iter().map(|(reason, _)| reason).collect()
}

fn fix(ledger: &Ledger, name: &str) -> String {
    ledger.grant(&owner(name)).1.iter().map(|it| it.fix.as_str()).collect()
}

#[test]
fn without_a_pool_nothing_is_given_and_the_pool_to_write_is_told() {
    let mut ledger = cluster(&[]);
    assert_eq!(ledger.ask(claim("a")), "NoPool");
    let fix = fix(&ledger, "a");
    for part in ["kind: AddressPool", "spec: {addresses: [192.0.2.0/28]}", "spec: {hosts: true}"] {
        assert!(fix.contains(part), "{part}: {fix}");
    }
    assert_eq!(ledger.ask(Claim { pool: Some("gold".into()), ..claim("b") }), "NoPool");
    assert!(ledger.told("b")[0].1.contains("no AddressPool gold"), "{:?}", ledger.told("b"));
    ledger.put_pool(Arc::new(pool("p", &["10.0.0.0/24"])));
    assert_eq!(ledger.has("a"), ["10.0.0.0"]);
}

#[test]
fn a_pool_of_hosts_publishes_what_the_cluster_knows_of_them_and_nothing_else() {
    let mut ledger = cluster(&[hosts("ours")]);
    assert_eq!(ledger.ask(claim("a")), "192.0.2.1 192.0.2.2", "no bridge, no tunnel");
    assert_eq!(ledger.ask(asking("b", &["172.17.0.1"])), "AddressOutsidePools");
    // An ExternalIP that the host has itself comes before InternalIPs; one that is translated on the way is none of its own.
    ledger.put_host(&report("one", &["192.0.2.1", "198.51.100.1", "172.17.0.1"]));
    ledger.put_node(&"one".into(), Some(node(&["192.0.2.1"], &["198.51.100.1"])));
    ledger.put_node(&"two".into(), Some(node(&["192.0.2.2"], &["198.51.100.2"])));
    let both = ["192.0.2.1", "192.0.2.2", "198.51.100.1"];
    assert_eq!(
        (ledger.has("a").as_slice(), reasons(&ledger, "a")),
        (&both.map(str::to_owned)[..], EXCLUDED.into())
    );
    assert_eq!(
        ledger.ask(beside(claim("b"))),
        "192.0.2.2 198.51.100.1",
        "whoever comes then does not get it"
    );
    ledger.set_time(Time(600_000));
    assert_eq!(
        (ledger.has("a"), ledger.told("a")),
        (vec!["192.0.2.2".into(), "198.51.100.1".into()], vec![])
    );
}

const EXCLUDED: [Reason; 1] = [Reason::AddressExcluded];

/// What Nodes say is written by kubelets and cloud controllers, and none of them means to end a Service's address.
#[test]
fn what_a_service_has_of_a_host_that_its_node_does_not_publish_any_more_stays_for_the_grace_period() {
    let two = |internal: &[&str], external: &[&str]| Some(node(internal, external));
    let told: [(&str, Option<HostNode>); 4] = [
        ("it got an ExternalIP", two(&["192.0.2.2"], &["198.51.100.2"])),
        ("its kubelet reports another address", two(&["192.0.2.9"], &[])),
        ("its kubelet reports none", two(&[], &[])),
        ("it was deleted", None),
    ];
    for (why, now) in told {
        for leads in [true, false] {
            let mut ledger = cluster(&[hosts("ours")]).turned(leads, std::iter::empty());
            ledger.put_host(&report("two", &["192.0.2.2", "198.51.100.2"]));
            ledger.claim(claim("a"));
            ledger.on_synced();
            let has = |ledger: &Ledger| ledger.has("a").contains(&"192.0.2.2".to_owned());
            ledger.put_node(&"two".into(), now.clone());
            assert!(has(&ledger), "{why}");
            let (_, message) = &ledger.told("a")[0];
            let expected = "host two has 192.0.2.2, which its Node does not publish any more";
            assert!(message.contains(expected) && message.contains("at 1970-01-01T00:10:00Z"), "{message}");
            // As it was before, and again: the time begins anew.
            ledger.set_time(Time(500_000));
            ledger.put_node(&"two".into(), two(&["192.0.2.2"], &[]));
            let is_told = |it: &(Reason, String)| it.1.contains("host two has 192.0.2.2");
            assert!(has(&ledger) && !ledger.told("a").iter().any(is_told), "{why}: {:?}", ledger.told("a"));
            ledger.put_node(&"two".into(), now.clone());
            ledger.set_time(Time(1_000_000));
            assert!(has(&ledger), "{why}");
            ledger.set_time(Time(1_100_000));
            assert_eq!((has(&ledger), ledger.told("a")), (false, vec![]), "{why}");
        }
    }
    // The host has it no more; or somebody labelled the Node, or drains the host.
    let ends: [fn(&mut Ledger); 3] = [
        |it| drop(it.put_host(&report("two", &["198.51.100.2"]))),
        |it| drop(it.put_node(&"two".into(), Some(HostNode { excluded: true, ..node(&["192.0.2.9"], &[]) }))),
        |it| drop(it.put_host(&HostReport { drain: true, ..report("two", &["192.0.2.2"]) })),
    ];
    for end in ends {
        let mut ledger = cluster(&[hosts("ours")]);
        ledger.ask(claim("a"));
        ledger.put_node(&"two".into(), two(&["192.0.2.9"], &[]));
        assert_eq!(ledger.has("a"), ["192.0.2.1", "192.0.2.2"]);
        end(&mut ledger);
        assert_eq!(ledger.has("a"), ["192.0.2.1"]);
    }
}

#[test]
fn excluded_nodes_and_control_planes_are_left_out_and_the_latter_may_be_asked_for() {
    let mut ledger = cluster(&[hosts("ours")]);
    ledger.ask(claim("a"));
    let control_plane = |it: HostNode| HostNode { control_plane: true, ..it };
    ledger.put_node(&"one".into(), Some(control_plane(node(&["192.0.2.1"], &[]))));
    assert_eq!(ledger.has("a"), ["192.0.2.2"]);
    ledger.put_pool(Arc::new(AddressPool { control_planes: true, ..hosts("ours") }));
    assert_eq!(ledger.has("a"), ["192.0.2.1", "192.0.2.2"]);
    ledger.put_node(&"one".into(), Some(HostNode { excluded: true, ..node(&["192.0.2.1"], &[]) }));
    assert_eq!(ledger.has("a"), ["192.0.2.2"]);
    // A machine whose Node is gone does not publish its bridges.
    ledger.put_node(&"two".into(), None);
    ledger.put_node(&"one".into(), Some(node(&["192.0.2.1"], &[])));
    assert_eq!(ledger.has("a"), ["192.0.2.1", "192.0.2.2"]);
    assert_eq!(ledger.ask(beside(claim("b"))), "192.0.2.1");
}

/// At another port than others.
fn beside(claim: Claim) -> Claim {
    Claim { ports: [tcp(81)].into(), ..claim }
}

/// With its token anybody may report anything.
#[test]
fn of_a_host_that_is_no_node_only_what_people_wrote_down_is_published() {
    let declared = |addresses: &[&str], own: &[&str]| HostReport {
        declared: Some(own.iter().map(|it| ip(it)).collect()),
        ..report("edge", addresses)
    };
    let mut ledger = cluster(&[hosts("ours")]);
    ledger.put_host(&report("edge", &["192.0.2.7", "192.0.2.1"]));
    assert_eq!(ledger.ask(claim("a")), "192.0.2.1 192.0.2.2", "nor does it take another's");
    assert_eq!(ledger.ask(beside(asking("b", &["192.0.2.7"]))), "AddressOutsidePools");
    let command =
        r#"kubectl patch loadbalancerhost edge --type merge -p '{"spec":{"addresses":["192.0.2.7"]}}'"#;
    assert!(fix(&ledger, "b").contains(command), "{}", fix(&ledger, "b"));

    ledger.put_host(&declared(&["192.0.2.7", "192.0.2.8"], &["192.0.2.7", "192.0.2.9"]));
    assert_eq!(ledger.has("a"), ["192.0.2.1", "192.0.2.2", "192.0.2.7"]);
    assert_eq!(ledger.has("b"), ["192.0.2.7"]);
    ledger.put_host(&declared(&["192.0.2.7"], &[]));
    assert_eq!(ledger.has("a"), ["192.0.2.1", "192.0.2.2"], "it is none of its own");
}

#[test]
fn a_host_that_is_no_node_and_alone_is_told_how_to_be_published() {
    let mut ledger = cluster(&[hosts("ours")]);
    for host in ["one", "two"] {
        ledger.remove_host(host);
    }
    ledger.put_host(&report("edge", &["192.0.2.7", "2001:db8::7"]));
    assert_eq!(ledger.ask(claim("a")), "NoPool");
    assert!(
        ledger.told("a")[0]
            .1
            .contains("host edge is not a Node, and its LoadBalancerHost lists no addresses"),
        "{:?}",
        ledger.told("a")
    );
    assert!(fix(&ledger, "a").contains(r#"["192.0.2.7","2001:db8::7"]"#), "{}", fix(&ledger, "a"));
}

/// Versions before published whatever a host outside reported.
#[test]
fn what_a_service_has_of_a_host_that_is_no_node_stays_and_is_told() {
    let mut ledger = Ledger::new();
    ledger.set_rules(AddressPoolRules::CLUSTER);
    ledger.put_pool(Arc::new(hosts("ours")));
    ledger.put_host(&report("edge", &["192.0.2.7", "172.17.0.1"]));
    ledger.put_host(&report("one", &["192.0.2.1"]));
    ledger.put_node(&"one".into(), Some(node(&["192.0.2.1"], &[])));
    ledger.remember(owner("a"), vec![ip("192.0.2.1"), ip("192.0.2.7")]);
    ledger.claim(claim("a"));
    ledger.claim(beside(claim("b")));
    ledger.on_synced();
    assert_eq!(
        (ledger.has("a"), ledger.has("b")),
        (vec!["192.0.2.1".into(), "192.0.2.7".into()], vec!["192.0.2.1".into()])
    );
    assert!(
        ledger.told("a")[0].1.contains("192.0.2.7 of host edge, which is not a Node"),
        "{:?}",
        ledger.told("a")
    );
    ledger.put_host(&report("edge", &["192.0.2.7", "172.17.0.1", "192.0.2.9"]));
    assert_eq!(ledger.has("a"), ["192.0.2.1", "192.0.2.7"], "nothing new of it");
    let own = Some([ip("192.0.2.7")].into());
    ledger.put_host(&HostReport { declared: own, ..report("edge", &["192.0.2.7", "172.17.0.1"]) });
    assert_eq!((ledger.has("a"), ledger.told("a")), (vec!["192.0.2.1".into(), "192.0.2.7".into()], vec![]));
}

#[test]
fn a_cluster_of_control_planes_alone_is_told_how_to_publish_them() {
    let mut ledger = cluster(&[hosts("ours")]);
    for (name, at) in [("one", "192.0.2.1"), ("two", "192.0.2.2")] {
        ledger.put_node(&name.into(), Some(HostNode { control_plane: true, ..node(&[at], &[]) }));
    }
    assert_eq!(ledger.ask(claim("a")), "NoPool");
    assert!(ledger.told("a")[0].1.contains("leaves out control planes (2)"), "{:?}", ledger.told("a"));
    assert!(fix(&ledger, "a").contains("spec.controlPlanes: true of pool ours"));
}

/// As kubeadm labels the one Node of a new cluster.
#[test]
fn a_cluster_of_one_excluded_control_plane_is_told_both_commands_one_after_the_other() {
    let mut ledger = cluster(&[hosts("ours")]);
    ledger.remove_host("two");
    let one = |control_plane, excluded| HostNode { control_plane, excluded, ..node(&["192.0.2.1"], &[]) };
    ledger.put_node(&"one".into(), Some(one(true, true)));
    assert_eq!(ledger.ask(claim("a")), "NoPool");
    let label = "kubectl label node one node.kubernetes.io/exclude-from-external-load-balancers-";
    for part in ["spec.controlPlanes: true of pool ours", label] {
        assert!(fix(&ledger, "a").contains(part), "{part}: {}", fix(&ledger, "a"));
    }
    ledger.put_pool(Arc::new(AddressPool { control_planes: true, ..hosts("ours") }));
    assert!(fix(&ledger, "a").contains(label) && !fix(&ledger, "a").contains("controlPlanes"));
    ledger.put_node(&"one".into(), Some(one(true, false)));
    assert_eq!((ledger.has("a"), fix(&ledger, "a").as_str()), (vec!["192.0.2.1".into()], ""));
    // A Node that is gone has no label to take away.
    ledger.put_node(&"one".into(), None);
    ledger.claim(claim("b"));
    assert!(!fix(&ledger, "b").contains("label"), "{}", fix(&ledger, "b"));
}

#[test]
fn at_addresses_of_a_pool_udp_ports_of_the_machines_are_refused_unless_the_pool_names_them() {
    let mut ledger = cluster(&[pool("p", &["10.0.0.0/24"])]);
    let of = |id: ListenerId| Claim { ports: [id, tcp(80)].into(), ..claim("a") };
    for (id, refused) in [
        (udp(123), true),
        (udp(4789), true),
        (udp(6081), true),
        (udp(8472), true),
        (udp(51820), true),
        (udp(6443), true),
        (udp(53), false),
        (udp(30053), false),
        (tcp(123), false),
        (tcp(22), false),
    ] {
        assert_eq!(ledger.ask(of(id)), "10.0.0.0", "the address and its other port are served: {id}");
        let grant = ledger.grant(&owner("a")).0.unwrap();
        assert_eq!(grant.refused, if refused { [id].into() } else { BTreeSet::new() }, "{id}");
        assert_eq!(grant.ports.iter().any(|(_, it)| *it == id), !refused, "{id}");
    }
    ledger.ask(of(udp(8472)));
    let named = Arc::new(AddressPool { reserved_ports: [8472].into(), ..pool("p", &["10.0.0.0/24"]) });
    ledger.put_pool(named);
    assert!(ledger.grant(&owner("a")).0.unwrap().refused.is_empty());
    // What may have named it cannot be seen any more.
    ledger.remove_pool(&ObjectRef::new(Kind::AddressPool, "", "p"));
    assert!(ledger.grant(&owner("a")).0.unwrap().refused.is_empty());

    // Hosts' own addresses, and a folder, where nobody shares the machine.
    let mut ledger = cluster(&[hosts("ours")]);
    ledger.ask(of(udp(8472)));
    assert_eq!(ledger.grant(&owner("a")).0.unwrap().refused, [udp(8472)].into());
    let mut folder = settled(&[pool("p", &["10.0.0.0/24"])]);
    folder.ask(of(udp(8472)));
    assert!(folder.grant(&owner("a")).0.unwrap().refused.is_empty());
}

#[test]
fn ports_that_the_machines_need_are_refused_unless_the_pool_names_them() {
    let mut ledger = cluster(&[hosts("ours")]);
    for port in [22, 179, 1936, 7946, 2379, 2380, 6443, 10248, 10250, 10259, 30000, 32767] {
        let ports = [tcp(port), tcp(8000 + port % 100)].into();
        let asked = ledger.ask(Claim { ports, ..claim("a") });
        assert_eq!(asked, "192.0.2.1 192.0.2.2", "the other port is served");
        let (grant, _) = ledger.grant(&owner("a"));
        let grant = grant.unwrap();
        assert_eq!(grant.refused, [tcp(port)].into());
        assert!(grant.ports.iter().all(|(_, id)| *id != tcp(port)), "{port}");
    }
    assert_eq!(
        ledger.ask(Claim { ports: [tcp(6443)].into(), ..claim("b") }),
        "",
        "no address where it serves nothing"
    );
    for port in [80, 443, 10247, 10260, 29999, 32768] {
        ledger.ask(Claim { ports: [tcp(port)].into(), ..claim("c") });
        assert!(ledger.grant(&owner("c")).0.unwrap().refused.is_empty(), "{port}");
    }
    ledger.put_pool(Arc::new(AddressPool { reserved_ports: [6443].into(), ..hosts("ours") }));
    assert_eq!(ledger.grant(&owner("b")).0.unwrap().ports.len(), 2);
    // An address of its own has all ports.
    ledger.put_pool(Arc::new(pool("p", &["10.0.0.0/24"])));
    assert_eq!(ledger.ask(Claim { ports: [tcp(22)].into(), ..claim("d") }), "10.0.0.0");
    // What the configuration listens on is the operator's word.
    let entry = Claim {
        hosts_only: true,
        ports: [tcp(22)].into(),
        ..Claim::new(Owner::Config("tcpServices[0]".into()))
    };
    ledger.claim(entry);
    let ports = ledger.grant(&Owner::Config("tcpServices[0]".into())).0.unwrap().ports;
    assert!(ports.contains(&(ip("172.17.0.1"), tcp(22))) && ports.len() == 4, "on all addresses: {ports:?}");
}

/// As one begins that is newer: Services have what a pool gave that is there no more.
fn upgraded(pools: &[AddressPool], ports: &[u16]) -> Ledger {
    let mut ledger = cluster(pools).turned(true, std::iter::empty());
    ledger.claim(Claim { ports: ports.iter().map(|port| tcp(*port)).collect(), ..claim("a") });
    ledger.claim(Claim { created: Some(Time(1)), ..claim("new") });
    ledger.remember(owner("a"), vec![ip("192.0.2.1"), ip("172.17.0.1")]);
    ledger.on_synced();
    ledger
}

#[test]
fn who_is_on_hosts_addresses_without_a_pool_keeps_them_and_is_told_the_pool() {
    let mut ledger = upgraded(&[], &[80, 6443]);
    assert_eq!(
        (ledger.has("a").join(" ").as_str(), reasons(&ledger, "a")),
        ("192.0.2.1 172.17.0.1", vec![Reason::PoolMissing])
    );
    assert_eq!(ledger.grant(&owner("a")).0.unwrap().ports.len(), 4, "what is served stays served");
    let fix = fix(&ledger, "a");
    assert!(fix.contains("metadata: {name: hosts}, spec: {hosts: true, reservedPorts: [6443]}"), "{fix}");
    assert_eq!(reasons(&ledger, "new"), [Reason::NoPool]);
    // Neither the first pool nor a host that goes moves it.
    ledger.put_pool(Arc::new(pool("p", &["10.0.0.0/24"])));
    ledger.remove_host("one");
    assert_eq!(
        (ledger.has("a").join(" ").as_str(), ledger.has("new").join(" ").as_str()),
        ("192.0.2.1 172.17.0.1", "10.0.0.0")
    );
    // It asks for something else, or goes.
    assert_eq!(ledger.ask(Claim { pool: Some("p".into()), ..claim("a") }), "10.0.0.1");
}

#[test]
fn the_pool_that_is_told_takes_them_over() {
    let mut ledger = upgraded(&[], &[80, 6443]);
    ledger.put_pool(Arc::new(AddressPool { reserved_ports: [6443].into(), ..hosts("hosts") }));
    // A bridge, which is published no more once the grace period is over.
    assert_eq!(ledger.has("a"), ["172.17.0.1", "192.0.2.1", "192.0.2.2"]);
    ledger.set_time(Time(600_000));
    assert_eq!((ledger.has("a").join(" ").as_str(), ledger.told("a").len()), ("192.0.2.1 192.0.2.2", 0));
}

#[test]
fn a_restart_moves_nobody_from_hosts_addresses_to_a_pools() {
    let mut ledger = upgraded(&[pool("first", &["10.0.0.0/24"]), hosts("ours")], &[80]);
    ledger.set_time(Time(600_000));
    assert_eq!((ledger.has("a").join(" ").as_str(), ledger.told("a").len()), ("192.0.2.1 192.0.2.2", 0));
}

#[test]
fn a_pool_of_hosts_that_goes_or_sees_no_host_takes_nothing_away() {
    let mut ledger = cluster(&[hosts("ours")]);
    ledger.ask(claim("a"));
    ledger.remove_host("one");
    assert_eq!(ledger.has("a"), ["192.0.2.2"]);
    ledger.remove_host("two");
    assert_eq!(
        (ledger.has("a"), reasons(&ledger, "a")),
        (vec!["192.0.2.2".into()], vec![Reason::PoolMissing])
    );
    ledger.put_host(&report("two", &["192.0.2.2"]));
    assert_eq!(ledger.told("a"), []);
    ledger.remove_pool(&hosts("ours").object);
    assert_eq!(
        (ledger.has("a"), reasons(&ledger, "a")),
        (vec!["192.0.2.2".into()], vec![Reason::PoolMissing])
    );
    ledger.put_pool(Arc::new(AddressPool { namespaces: vec!["other".into()], ..hosts("ours") }));
    assert_eq!(
        (ledger.has("a"), reasons(&ledger, "a")),
        (vec!["192.0.2.2".into()], vec![Reason::AddressExcluded])
    );
    ledger.set_time(Time(600_000));
    assert_eq!(ledger.has("a").len(), 0);
}

#[test]
fn a_folder_gives_hosts_addresses_without_a_pool_and_all_of_them() {
    let mut ledger = Ledger::new();
    ledger.put_host(&report("one", &["192.0.2.1", "172.17.0.1"]));
    ledger.put_node(&"one".into(), Some(node(&["192.0.2.1"], &[])));
    ledger.on_synced();
    assert_eq!(ledger.ask(Claim { ports: [tcp(22)].into(), ..claim("a") }), "172.17.0.1 192.0.2.1");
}
