//! Tables of what the ledger gives, keeps and refuses, in sentences.

mod hosts;
mod keep;
mod limits;
mod node_addresses;
mod ports;
mod properties;
mod sharing;
mod stability;
mod taken_ports;

use std::{collections::BTreeSet, net::IpAddr, sync::Arc};

use seaway_model::{
    AddressState, IpRange, Kind, L4, ListenerId, Name, ObjectRef, Owner, Reason, Time,
    fact::{AddressPool, Families, FamilyPolicy, HostReport, LabelRequirement, Labels, Selector},
    load_balancer::Family::{self, V4, V6},
};

use super::{Claim, Ledger, LedgerChange};

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

fn range(text: &str) -> IpRange {
    match text.split_once('-') {
        Some((first, last)) => IpRange::new(ip(first), ip(last)).unwrap(),
        None => text.parse::<ipnet::IpNet>().unwrap().into(),
    }
}

fn pool(name: &str, ranges: &[&str]) -> AddressPool {
    AddressPool {
        object: ObjectRef::new(Kind::AddressPool, "", name),
        created: None,
        labels: Default::default(),
        ranges: ranges.iter().map(|text| range(text)).collect(),
        hosts: false,
        control_planes: false,
        reserved_ports: BTreeSet::new(),
        announce: None,
        auto_assign: true,
        avoid_buggy: false,
        priority: 0,
        namespaces: Vec::new(),
        namespace_selectors: Vec::new(),
        service_selectors: Vec::new(),
    }
}

fn owner(name: &str) -> Owner {
    let object = ObjectRef::new(Kind::Service, "default", name);
    Owner::Object { object, uid: Name::from(format!("uid-{name}")) }
}

fn tcp(port: u16) -> ListenerId {
    ListenerId { l4: L4::Tcp, port }
}

fn udp(port: u16) -> ListenerId {
    ListenerId { l4: L4::Udp, port }
}

/// One port, 80/TCP, and one IPv4 address.
fn claim(name: &str) -> Claim {
    Claim {
        families: Families { policy: FamilyPolicy::Single, first: Some(V4), second: None },
        ports: [tcp(80)].into(),
        requested_field: "spec.loadBalancerIP".into(),
        ..Claim::new(owner(name))
    }
}

fn dual(name: &str, policy: FamilyPolicy, first: Family) -> Claim {
    let families = Families { policy, first: Some(first), second: Some(first.other()) };
    Claim { families, ..claim(name) }
}

fn asking(name: &str, requested: &[&str]) -> Claim {
    Claim { requested: requested.iter().map(|text| ip(text)).collect(), ..claim(name) }
}

fn report(host: &str, addresses: &[&str]) -> HostReport {
    HostReport {
        host: host.into(),
        addresses: addresses.iter().map(|text| ip(text)).collect(),
        ..HostReport::default()
    }
}

fn settled(pools: &[AddressPool]) -> Ledger {
    let mut ledger = Ledger::new();
    for pool in pools {
        ledger.put_pool(Arc::new(pool.clone()));
    }
    ledger.on_synced();
    ledger
}

impl Ledger {
    fn has(&self, name: &str) -> Vec<String> {
        let (grant, _) = self.grant(&owner(name));
        grant.iter().flat_map(|grant| &grant.addresses).map(IpAddr::to_string).collect()
    }

    fn told(&self, name: &str) -> Vec<(Reason, String)> {
        self.grant(&owner(name)).1.into_iter().map(|problem| (problem.reason, problem.message)).collect()
    }

    /// Claims, and tells the addresses or else the reasons why not.
    fn ask(&mut self, claim: Claim) -> String {
        let Owner::Object { object, .. } = claim.owner.clone() else { unreachable!() };
        self.claim(claim);
        let mut words = self.has(&object.name);
        words.extend(self.told(&object.name).iter().map(|(reason, _)| reason.to_string()));
        words.join(" ")
    }

    fn release_fully(&mut self, name: &str) -> LedgerChange {
        let touched = self.release(&owner(name));
        for ip in self.releasing() {
            self.released(ip);
        }
        touched
    }
}

#[test]
fn pools_are_asked_by_priority_with_zero_last_and_then_by_age() {
    let with = |name: &str, range: &str, priority, created| AddressPool {
        priority,
        created: Some(Time(created)),
        ..pool(name, &[range])
    };
    let mut ledger = settled(&[
        with("none", "10.0.0.0/32", 0, 1),
        with("second", "10.0.2.0/32", 20, 1),
        with("younger", "10.0.3.0/32", 10, 9),
        with("first", "10.0.1.0/32", 10, 3),
    ]);
    assert_eq!(ledger.ask(claim("a")), "10.0.1.0");
    assert_eq!(ledger.ask(claim("b")), "10.0.3.0");
    assert_eq!(ledger.ask(claim("c")), "10.0.2.0");
    assert_eq!(ledger.ask(claim("d")), "10.0.0.0");
    assert_eq!(ledger.ask(claim("e")), "PoolExhausted");
    let (_, message) = &ledger.told("e")[0];
    assert!(message.contains("all 1 IPv4 addresses of pool first are allocated"), "{message}");
}

#[test]
fn a_pool_meant_for_somebody_comes_before_one_for_all_of_equal_priority() {
    let mut meant = pool("z", &["10.0.1.0/32"]);
    meant.namespaces = vec!["default".into()];
    let mut ledger = settled(&[pool("a", &["10.0.0.0/32"]), meant]);
    assert_eq!(ledger.ask(claim("a")), "10.0.1.0");
}

#[test]
fn a_pool_is_for_its_namespaces_or_their_labels_and_for_any_of_its_service_selectors() {
    let term = |key: &str, value: &str| Selector(vec![LabelRequirement::Is(key.into(), value.into())]);
    let labels = |key: &str, value: &str| Labels::from([(key.into(), value.into())]);
    let limited = AddressPool {
        namespaces: vec!["shop".into()],
        namespace_selectors: vec![term("tier", "gold")],
        service_selectors: vec![term("app", "web"), term("app", "mail")],
        ..pool("limited", &["10.0.0.0/24"])
    };
    let (gold, web, mail) = (labels("tier", "gold"), labels("app", "web"), labels("app", "mail"));
    let none = Labels::new();
    let cases: [(&str, &Labels, &Labels, bool); 7] = [
        ("shop", &none, &web, true),
        ("shop", &none, &mail, true),
        ("other", &gold, &web, true),
        ("shop", &none, &none, false),
        ("other", &none, &web, false),
        ("other", &gold, &gold, false),
        ("other", &none, &none, false),
    ];
    for (namespace, namespace_labels, labels, allowed) in cases {
        let mut ledger = settled(std::slice::from_ref(&limited));
        let asked = Claim {
            namespace: namespace.into(),
            namespace_labels: namespace_labels.clone(),
            labels: labels.clone(),
            ..claim("a")
        };
        let expected = if allowed { "10.0.0.0" } else { "NoPool" };
        assert_eq!(ledger.ask(asked), expected, "{namespace} {namespace_labels:?} {labels:?}");
    }
}

#[test]
fn a_pool_without_auto_assign_serves_those_who_name_it_or_its_address() {
    let mut ledger = settled(&[AddressPool { auto_assign: false, ..pool("quiet", &["10.0.0.0/24"]) }]);
    assert_eq!(ledger.ask(claim("a")), "NoPool");
    assert!(ledger.told("a")[0].1.contains("on request only"));
    assert_eq!(ledger.ask(Claim { pool: Some("quiet".into()), ..claim("b") }), "10.0.0.0");
    assert_eq!(ledger.ask(asking("c", &["10.0.0.9"])), "10.0.0.9");
    assert_eq!(ledger.ask(Claim { pool: None, ..claim("b") }), "10.0.0.0", "what it has, it keeps");
    assert_eq!(ledger.ask(Claim { pool: Some("loud".into()), ..claim("d") }), "NoPool");
    assert_eq!(ledger.told("d")[0].1, "there is no pool loud; there are quiet");
}

#[test]
fn buggy_addresses_are_skipped_at_every_24_boundary() {
    let mut ledger =
        settled(&[AddressPool { avoid_buggy: true, ..pool("p", &["10.0.0.254-10.0.1.1", "10.0.2.255/32"]) }]);
    assert_eq!(ledger.pools()[0].v4.available, 2);
    assert_eq!(ledger.ask(claim("a")), "10.0.0.254");
    assert_eq!(ledger.ask(claim("b")), "10.0.1.1");
    assert_eq!(ledger.ask(claim("c")), "PoolExhausted");
    assert_eq!(ledger.ask(asking("d", &["10.0.1.0"])), "AddressOutsidePools");
    assert_eq!((ledger.pools()[0].v4.assigned, ledger.pools()[0].v4.available), (2, 0));
}

#[test]
fn a_requested_address_must_lie_in_an_allowed_pool_and_be_free() {
    let closed = AddressPool { namespaces: vec!["kube-system".into()], ..pool("closed", &["10.0.9.0/24"]) };
    let mut ledger = settled(&[pool("open", &["10.0.0.0/24"]), closed]);
    assert_eq!(ledger.ask(asking("a", &["10.0.0.7"])), "10.0.0.7");
    assert_eq!(ledger.ask(asking("b", &["10.0.0.7"])), "AddressTaken");
    assert_eq!(ledger.told("b")[0].1, "10.0.0.7 is held by Service default/a");
    assert_eq!(ledger.grant(&owner("b")).1[0].field.as_str(), "spec.loadBalancerIP");
    assert_eq!(ledger.ask(asking("c", &["10.0.8.1"])), "AddressOutsidePools");
    assert_eq!(ledger.told("c")[0].1, "no pool has 10.0.8.1");
    assert!(ledger.grant(&owner("c")).1[0].fix.contains("pool open (10.0.0.0-10.0.0.255)"));
    assert_eq!(ledger.ask(asking("d", &["10.0.9.1"])), "AddressOutsidePools");
    assert!(ledger.told("d")[0].1.contains("for other namespaces"));
    assert_eq!(ledger.ask(asking("e", &["fd00::1"])), "Invalid", "its family is IPv4");
    assert_eq!(ledger.ask(asking("f", &["10.0.0.8", "10.0.0.9"])), "Invalid", "two of one family");
}

#[test]
fn the_address_of_a_host_itself_is_never_given() {
    let mut ledger = settled(&[pool("p", &["10.0.0.0/30"])]);
    ledger.put_host(&report("one", &["10.0.0.0", "192.0.2.1"]));
    assert_eq!(ledger.pools()[0].v4.available, 3);
    assert_eq!(ledger.ask(claim("a")), "10.0.0.1");
    assert_eq!(ledger.ask(asking("b", &["10.0.0.0"])), "AddressTaken");
    assert_eq!(ledger.told("b")[0].1, "10.0.0.0 is an address of host one itself");
}

#[test]
fn families_are_given_as_the_policy_asks_and_pools_have() {
    use FamilyPolicy::{Prefer, Require};
    let (v4, v6) = (pool("four", &["10.0.0.0/24"]), pool("six", &["fd00::/64"]));
    let both = pool("both", &["10.1.0.0/24", "fd01::/64"]);
    let mut ledger = settled(&[v4.clone(), both]);
    assert_eq!(
        ledger.ask(dual("a", Prefer, V6)),
        "fd01:: 10.1.0.0",
        "one pool that has both, in the order asked"
    );
    assert_eq!(ledger.ask(dual("b", Require, V4)), "10.1.0.1 fd01::1");
    assert_eq!(ledger.ask(claim("c")), "10.1.0.2");

    let mut ledger = settled(&[v4.clone(), v6.clone()]);
    assert_eq!(ledger.ask(dual("a", Require, V4)), "10.0.0.0 fd00::", "or from two pools");

    let mut ledger = settled(std::slice::from_ref(&v4));
    assert_eq!(ledger.ask(dual("a", Prefer, V6)), "10.0.0.0");
    assert_eq!(ledger.ask(dual("b", Require, V4)), "NoPool", "nothing is half granted");
    assert!(ledger.told("b")[0].1.contains("no IPv6 addresses are configured in pool four"));
    assert_eq!(ledger.address(ip("10.0.0.1")), None);

    let mut ledger = settled(&[v6]);
    assert_eq!(ledger.ask(Claim { families: Claim::new(owner("a")).families, ..claim("a") }), "fd00::");
    assert_eq!(ledger.ask(claim("b")), "NoPool");
}

#[test]
fn a_change_of_families_keeps_the_address_that_is_there() {
    use FamilyPolicy::{Prefer, Require};
    let mut ledger = settled(&[pool("p", &["10.0.0.0/24", "fd00::/64"])]);
    ledger.ask(claim("other"));
    assert_eq!(ledger.ask(claim("a")), "10.0.0.1");
    assert_eq!(ledger.ask(dual("a", Prefer, V4)), "10.0.0.1 fd00::");
    assert_eq!(ledger.ask(dual("a", Require, V6)), "fd00:: 10.0.0.1");
    assert_eq!(ledger.ask(claim("a")), "10.0.0.1");
    assert_eq!(ledger.address(ip("fd00::")).unwrap().state, AddressState::Releasing);

    let mut ledger = settled(&[pool("p", &["10.0.0.0/24"])]);
    assert_eq!(ledger.ask(claim("a")), "10.0.0.0");
    assert_eq!(ledger.ask(dual("a", Require, V4)), "10.0.0.0 NoPool", "what serves is not taken away");
    ledger.put_pool(Arc::new(pool("q", &["fd00::/64"])));
    assert_eq!(ledger.has("a"), ["10.0.0.0", "fd00::"]);
    assert_eq!(ledger.told("a"), []);
}

#[test]
fn one_family_may_be_requested_and_the_other_left_open() {
    let mut ledger = settled(&[pool("p", &["10.0.0.0/24", "fd00::/64"])]);
    let asked = Claim { requested: vec![ip("fd00::5")], ..dual("a", FamilyPolicy::Prefer, V4) };
    assert_eq!(ledger.ask(asked), "10.0.0.0 fd00::5");
}

#[test]
fn overlapping_pools_are_told_to_the_younger_and_give_an_address_once() {
    let with =
        |name: &str, created, text: &str| AddressPool { created: Some(Time(created)), ..pool(name, &[text]) };
    let mut ledger = settled(&[with("young", 9, "10.0.0.0/31"), with("old", 2, "10.0.0.1-10.0.0.2")]);
    let problems = ledger.problems();
    assert_eq!(problems.len(), 1);
    assert_eq!((problems[0].object.name.as_str(), problems[0].reason), ("young", Reason::PoolOverlap));
    let given: Vec<String> = ["a", "b", "c", "d"].map(|name| ledger.ask(claim(name))).into();
    assert_eq!(given, ["10.0.0.1", "10.0.0.2", "10.0.0.0", "PoolExhausted"]);
    let touched = ledger.remove_pool(&problems[0].object);
    assert_eq!(touched.pools.iter().map(|it| it.name.as_str()).collect::<Vec<_>>(), ["young"]);
    assert!(ledger.problems().is_empty());
}

#[test]
fn the_use_of_pools_is_counted_even_where_they_are_endless() {
    let mut ledger = settled(&[pool("p", &["10.0.0.0/30", "10.0.0.2-10.0.0.5", "::/0"])]);
    ledger.ask(dual("a", FamilyPolicy::Require, V4));
    ledger.ask(claim("b"));
    ledger.release(&owner("b"));
    let used = ledger.pools();
    assert_eq!(
        (used[0].v4.assigned, used[0].v4.available),
        (1, 4),
        "one assigned, one being released, of six"
    );
    assert_eq!((used[0].v6.assigned, used[0].v6.available), (1, u128::MAX - 1));
}

#[test]
fn five_thousand_claims_are_a_matter_of_moments() {
    let mut ledger = Ledger::new();
    ledger.put_pool(Arc::new(AddressPool { avoid_buggy: true, ..pool("p", &["10.0.0.0/16", "fd00::/64"]) }));
    let name = |i: usize| format!("s{i}");
    for i in 0..5_000 {
        ledger.claim(dual(&name(i), FamilyPolicy::Require, V4));
    }
    let before = seconds_of_this_thread();
    ledger.on_synced();
    for i in 0..5_000 {
        ledger.claim(Claim { local_only: true, ..dual(&name(i), FamilyPolicy::Require, V4) });
    }
    for i in 0..5_000 {
        ledger.claim(claim(&format!("t{i}")));
    }
    let took = seconds_of_this_thread() - before;
    // Fifteen thousand decisions; far above what even an unoptimized build needs.
    assert!(took < 10.0, "{took} s");
    assert_eq!(ledger.pools()[0].v4.assigned, 10_000);
}

/// What this thread has run, whatever else the machine does.
fn seconds_of_this_thread() -> f64 {
    let run = std::fs::read_to_string("/proc/thread-self/schedstat").expect("Linux counts it");
    let nanoseconds: u64 = run.split(' ').next().and_then(|it| it.parse().ok()).expect("its first field");
    nanoseconds as f64 / 1e9
}
