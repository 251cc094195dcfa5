//! Names of Services in DNS: who has each, and with which addresses.

use std::{net::SocketAddr, path::PathBuf, sync::Arc};

use seaway_model::{
    Change, Config, Desired, Kind, Name, ObjectRef, Reason, Time, Unit, WorkItem,
    acme::{DnsKey, DnsKeyAlgorithm},
    config::AddressPoolRules,
    dns::{Dns, DnsName, DnsProvider, DnsZone},
    fact::{FactRef, HostReport, Service},
    outcome::{Outcome, ServingSocket, UnitState},
};
use seaway_plan::{Roles, World};
use seaway_testkit::facts::{HOST, host, ip, owner, pool, put, service, shop, synced};

use super::{
    readiness::of_hosts,
    scene::{OnHost, PUBLIC, heard, node, unit},
};

const DNS_NAMES: &str = "seaway.dev/dns-names";
const THEIRS: &str = "external-dns.alpha.kubernetes.io/hostname";
const WWW: &str = "www.shop.example";

fn config(cluster: bool, zone: &str, namespaces: &[&str]) -> Config {
    let key = DnsKey {
        name: "seaway".into(),
        algorithm: DnsKeyAlgorithm::HmacSha256,
        secret_file: PathBuf::from("key"),
    };
    let server = SocketAddr::from(([192, 0, 2, 53], 53));
    let by = DnsProvider::Updates { server, key };
    let namespaces = namespaces.iter().map(|it| (*it).into()).collect();
    let zone = DnsZone { name: zone.into(), by, ttl: 60, namespaces };
    let mut config =
        Config { dns: Some(Dns { owner: "prod".into(), zones: vec![Arc::new(zone)] }), ..Config::default() };
    if cluster {
        config.pools = AddressPoolRules::CLUSTER;
    }
    config
}

fn named(mut service: Service, annotations: &[(&str, &str)]) -> Service {
    service
        .meta
        .annotations
        .extend(annotations.iter().map(|(key, value)| (Name::from(*key), Name::from(*value))));
    service
}

fn www() -> Service {
    named(shop(), &[(DNS_NAMES, WWW)])
}

fn of(name: &str, at: &str, drain: bool) -> Change {
    heard(HostReport {
        host: name.into(),
        addresses: vec![ip(at)],
        applied: 9,
        drain,
        ..HostReport::default()
    })
}

fn leader(config: Config, changes: Vec<Change>) -> World {
    let mut world = World::new(Roles::default(), Vec::new(), Arc::new(config));
    let nodes = [node("a", "10.0.0.1", &[]), node("b", "10.0.0.2", &[])];
    for change in
        [of_hosts(false)].into_iter().chain(nodes).chain(changes).chain(synced()).chain([Change::Leads(true)])
    {
        world.apply(change);
    }
    world
}

fn wanted(world: &World, name: &str) -> Option<Arc<DnsName>> {
    match world.desire(&Unit::DnsName(name.into())) {
        Desired::DnsName(it) => Some(it),
        _ => None,
    }
}

fn addresses(world: &World, name: &str) -> Vec<String> {
    wanted(world, name).expect("it is published").addresses.iter().map(ToString::to_string).collect()
}

fn kept(world: &World) -> Vec<String> {
    wanted(world, WWW).expect("it is named").keeps.iter().map(ToString::to_string).collect()
}

fn marks(dirt: &[WorkItem]) -> bool {
    dirt.contains(&WorkItem::Unit(Unit::DnsName(WWW.into())))
}

fn told(world: &World, service: &Service) -> Vec<String> {
    let status = world.status(&owner(service)).expect("it is ours");
    let told = status.problems.into_iter().filter(|it| it.reason == Reason::NameNotPublished);
    told.map(|it| it.message).collect()
}

#[test]
fn a_name_has_the_addresses_of_hosts_that_are_there_and_do_not_drain() {
    let mut world = leader(
        config(true, "shop.example", &[]),
        vec![put(&www()), of("a", "10.0.0.1", false), of("b", "10.0.0.2", false)],
    );
    let it = wanted(&world, WWW).expect("it is published");
    assert_eq!(
        (it.host.as_deref(), it.ttl, it.keeps.is_empty(), it.service()),
        (None, 60, true, "default/shop".into())
    );
    assert_eq!(addresses(&world, WWW), ["10.0.0.1", "10.0.0.2"]);
    assert!(marks(&world.apply(of("a", "10.0.0.1", true))));
    assert_eq!(addresses(&world, WWW), ["10.0.0.2"]);
    assert!(!marks(&world.apply(of("a", "10.0.0.1", true))), "nothing changed");
    assert!(marks(&world.apply(of("a", "10.0.0.1", false))));
    // One that is not heard of any more.
    assert!(marks(&world.apply(Change::HostSilent("a".into()))));
    assert_eq!(addresses(&world, WWW), ["10.0.0.2"]);
    // Who leads again looks again: another may have written meanwhile.
    world.apply(Change::Leads(false));
    assert!(!marks(&world.apply(of("b", "10.0.0.2", false))));
    assert!(marks(&world.apply(Change::Leads(true))));
    // A label takes it out of DNS while its sockets are still open.
    world.apply(of("a", "10.0.0.1", false));
    assert!(marks(&world.apply(node(
        "a",
        "10.0.0.1",
        &["node.kubernetes.io/exclude-from-external-load-balancers"]
    ))));
    assert_eq!(addresses(&world, WWW), ["10.0.0.2"]);
    // That none is there is no reason to take the name out of DNS.
    world.apply(of("b", "10.0.0.2", true));
    let none = wanted(&world, WWW).expect("it is published");
    assert!(none.addresses.is_empty() && !none.withdraws);
    assert_eq!(kept(&world), ["10.0.0.1", "10.0.0.2"]);
    // A machine that is gone may have left its address to another.
    world.apply(Change::Gone(FactRef::Host("b".into())));
    world.apply(Change::Gone(FactRef::Object(ObjectRef::new(Kind::Node, "", "b"))));
    assert_eq!(kept(&world), ["10.0.0.1"]);
}

#[test]
fn an_address_that_another_has_by_now_is_not_kept() {
    let mut world = World::new(Roles::default(), Vec::new(), Arc::new(config(true, "shop.example", &[])));
    for change in [pool(PUBLIC), put(&www())].into_iter().chain(synced()).chain([Change::Leads(true)]) {
        world.apply(change);
    }
    assert_eq!(kept(&world), ["192.0.2.10"], "it is about to be served");
    let elsewhere = named(www(), &[("seaway.dev/address", "192.0.2.15")]);
    assert!(marks(&world.apply(put(&elsewhere))));
    assert_eq!(kept(&world), ["192.0.2.15"]);
}

#[test]
fn a_name_goes_with_its_service_or_its_annotation_and_for_no_other_reason() {
    let hosts = || vec![put(&www()), of("a", "10.0.0.1", false)];
    let zone = || config(true, "shop.example", &[]);
    let unit = Unit::DnsName(WWW.into());
    let gone = Change::Gone(FactRef::Object(owner(&www()).object()));
    let leaving = Service { leaving: true, ..www() };
    for change in [gone, put(&shop()), put(&leaving)] {
        let mut world = leader(zone(), hosts());
        assert!(!world.saw_end_of(&unit));
        assert!(marks(&world.apply(change.clone())));
        assert_eq!(world.desire(&unit), Desired::Absent, "{change:?}");
        assert!(world.saw_end_of(&unit), "{change:?}");
    }
    // A list that lacks it is counted by the limit.
    let mut world = leader(zone(), hosts());
    world.apply(Change::Missing(FactRef::Object(owner(&www()).object())));
    assert_eq!((world.desire(&unit), world.saw_end_of(&unit)), (Desired::Absent, false));

    let misspelt = named(shop(), &[(DNS_NAMES, "www..shop.example")]);
    let other_class = Service { class: Some("another".into()), ..www() };
    let other_zone = Change::Config(Arc::new(config(true, "other.example", &[])));
    let no_zone = Change::Config(Arc::new(Config { dns: None, ..zone() }));
    for change in [put(&other_class), other_zone, no_zone, Change::Leads(false)] {
        let mut world = leader(zone(), hosts());
        world.apply(change.clone());
        assert_eq!(world.desire(&unit), Desired::Released, "{change:?}");
    }
    let mut world = leader(zone(), hosts());
    world.apply(put(&misspelt));
    assert_eq!(addresses(&world, WWW), ["10.0.0.1"], "a slip of the pen takes nothing out of DNS");
    let status = world.status(&owner(&misspelt)).expect("it is ours");
    let says = |end: &str| status.problems.iter().any(|it| it.message.ends_with(end));
    assert!(says("stay in DNS as they are, and no others are added"), "{:?}", status.problems);
    // And follows its addresses.
    assert!(marks(&world.apply(of("b", "10.0.0.2", false))));
    assert_eq!(addresses(&world, WWW), ["10.0.0.1", "10.0.0.2"]);
}

#[test]
fn of_two_services_the_older_one_has_the_name_and_the_other_is_told() {
    let mut first = www();
    first.meta.created = Some(Time(1));
    let second = service("blog", &[("", 8080, seaway_model::fact::TargetPort::Number(8080))]);
    let mut second = named(second, &[(THEIRS, "www.shop.example, blog.shop.example.")]);
    second.meta.created = Some(Time(2));
    let mut world = leader(
        config(true, "shop.example", &[]),
        vec![put(&second), put(&first), of("a", "10.0.0.1", false)],
    );
    assert_eq!(wanted(&world, WWW).expect("it is published").service(), "default/shop");
    assert_eq!(wanted(&world, "blog.shop.example").expect("it is published").service(), "default/blog");
    assert_eq!(told(&world, &first), [""; 0]);
    let says = told(&world, &second);
    assert!(
        says.len() == 1 && says[0].contains("Service default/shop also requests this DNS name, and is older"),
        "{says:?}"
    );
    assert!(marks(&world.apply(Change::Gone(FactRef::Object(owner(&first).object())))));
    assert_eq!(wanted(&world, WWW).expect("it is published").service(), "default/blog");
    assert_eq!(told(&world, &second), [""; 0]);
}

/// Two Services with one name, and the older one begins to ask for it later.
fn shop_and_evil() -> (Service, Service) {
    let (mut shop, mut evil) = (www(), named(shop(), &[(DNS_NAMES, WWW)]));
    shop.meta.created = Some(Time(2));
    (evil.meta.created, evil.meta.namespace, evil.meta.uid) = (Some(Time(1)), "evil".into(), "evil".into());
    (shop, evil)
}

#[test]
fn an_older_service_that_begins_to_ask_for_a_name_does_not_get_it() {
    let (shop, evil) = shop_and_evil();
    let first = vec![put(&shop), of("a", "10.0.0.1", false)];
    let mut world = leader(config(true, "shop.example", &[]), first);
    world.apply(put(&evil));
    let it = wanted(&world, WWW).expect("it is published");
    assert_eq!((it.service(), it.rivals.clone()), ("default/shop".into(), ["evil/shop".into()].into()));
    assert_eq!(told(&world, &shop), [""; 0]);
    assert!(
        told(&world, &evil)[0].ends_with("also requests this DNS name, and had the name first"),
        "{:?}",
        told(&world, &evil)
    );
    // After a restart it goes by age, until the marker says whose it is.
    let both = vec![put(&evil), put(&shop), of("a", "10.0.0.1", false)];
    let mut world = leader(config(true, "shop.example", &[]), both);
    assert_eq!(wanted(&world, WWW).expect("it is published").service(), "evil/shop");
    let says = |service: &str| Change::PendingOn(Unit::DnsName(WWW.into()), Some(service.into()));
    assert!(!marks(&world.apply(says("default/other"))));
    assert!(marks(&world.apply(says("default/shop"))));
    assert_eq!(wanted(&world, WWW).expect("it is published").service(), "default/shop");
    assert_eq!(told(&world, &shop), [""; 0]);
    // It is the other's once this one gives it up, and stays so.
    assert!(marks(&world.apply(Change::Gone(FactRef::Object(owner(&shop).object())))));
    world.apply(put(&shop));
    assert_eq!(wanted(&world, WWW).expect("it is published").service(), "evil/shop");
}

#[test]
fn who_may_not_have_a_name_takes_it_from_none_and_keeps_none_in_dns() {
    let (shop, evil) = shop_and_evil();
    let both = vec![put(&evil), put(&shop), of("a", "10.0.0.1", false)];
    let mut world = leader(config(true, "shop.example", &["default"]), both);
    assert_eq!(wanted(&world, WWW).expect("it is published").service(), "default/shop");
    assert_eq!((told(&world, &shop).len(), told(&world, &evil).len()), (0, 1));
    world.apply(Change::Gone(FactRef::Object(owner(&shop).object())));
    let unit = Unit::DnsName(WWW.into());
    assert_eq!((world.desire(&unit), world.saw_end_of(&unit)), (Desired::Absent, true));
    let (shop, evil) = (Arc::new(shop), Arc::new(evil));
    assert!(world.uses().uses(&shop, &unit) && !world.uses().uses(&evil, &unit));
}

#[test]
fn what_one_service_misspelt_keeps_no_name_of_another_in_dns() {
    let unit = Unit::DnsName(WWW.into());
    for (value, keeps) in [("_sip.b.example", false), ("_sip.b.example, WWW.shop.example.", true)] {
        let mut other = named(shop(), &[(THEIRS, value)]);
        (other.meta.namespace, other.meta.uid) = ("b".into(), "b".into());
        let first = vec![put(&other), put(&www()), of("a", "10.0.0.1", false)];
        let mut world = leader(config(true, "shop.example", &[]), first);
        assert!(marks(&world.apply(Change::Gone(FactRef::Object(owner(&www()).object())))));
        assert_eq!(world.desire(&unit) == Desired::Released, keeps, "{value}");
        assert_eq!(world.uses().uses(&Arc::new(other), &unit), keeps, "{value}");
    }
}

#[test]
fn names_are_counted_by_zone_and_state() {
    let first = vec![put(&www()), of("a", "10.0.0.1", false)];
    let mut world = leader(config(true, "shop.example", &[]), first);
    let counts = |world: &World| {
        let all = world.dns_zones();
        assert_eq!(all.len(), 1);
        (all[0].zone.clone(), all[0].published, all[0].failed, all[0].waiting, all[0].failures)
    };
    let zone = || Name::from("shop.example");
    assert_eq!(counts(&world), (zone(), 0, 0, 1, 0));
    let mut concluded = |state, problems: Vec<seaway_model::Problem>| {
        let problems = problems.into_iter().map(|it| (owner(&www()), it)).collect();
        let (unit, facts, serving) = (Unit::DnsName(WWW.into()), Vec::new(), Vec::new());
        world.apply(Change::Outcome(Outcome { unit, state, facts, problems, serving }));
        counts(&world)
    };
    let soon = std::time::Duration::from_secs(60);
    assert_eq!(concluded(UnitState::Pending(soon), Vec::new()), (zone(), 1, 0, 0, 0));
    let problem =
        || vec![seaway_model::Problem::new(owner(&www()).object(), Reason::NameNotPublished, "it is taken")];
    assert_eq!(concluded(UnitState::Pending(soon), problem()), (zone(), 0, 1, 0, 0));
    let failed = UnitState::Failed { why: "no answer".into(), retry: soon };
    assert_eq!(concluded(failed, problem()), (zone(), 0, 1, 0, 1));
    assert_eq!(concluded(UnitState::Done, Vec::new()), (zone(), 1, 0, 0, 1));
    world.apply(Change::Leads(false));
    assert_eq!(world.dns_zones(), [], "who leads says it");
}

#[test]
fn names_that_are_gone_are_forgotten() {
    let mut world = leader(config(true, "shop.example", &[]), vec![put(&www()), of("a", "10.0.0.1", false)]);
    let unit = Unit::DnsName(WWW.into());
    world.apply(put(&shop()));
    assert!(world.saw_end_of(&unit));
    let (facts, problems, serving) = (Vec::new(), Vec::new(), Vec::new());
    let state = UnitState::Absent;
    world.apply(Change::Outcome(Outcome { unit: unit.clone(), state, facts, problems, serving }));
    assert!(!world.saw_end_of(&unit));
    // One that is external-dns's was never ours.
    world.apply(put(&named(shop(), &[(THEIRS, "a.other.example")])));
    world.apply(put(&shop()));
    assert!(!world.saw_end_of(&Unit::DnsName("a.other.example".into())));
}

#[test]
fn names_are_published_in_zones_that_are_named_for_namespaces_that_may() {
    let ours = named(shop(), &[(DNS_NAMES, WWW), ("seaway.dev/dns-ttl", "5m")]);
    let theirs = named(shop(), &[(THEIRS, WWW)]);
    for (config, service, expected) in [
        (config(true, "shop.example", &["default"]), &ours, ""),
        (
            config(true, "shop.example", &["other"]),
            &ours,
            "Services of this namespace may have no names in the zone shop.example",
        ),
        (config(true, "other.example", &[]), &ours, "no zone of dns.zones contains this name"),
        (Config { dns: None, ..config(true, "a.example", &[]) }, &ours, "no zone is configured"),
        // It may be external-dns's to publish them.
        (config(true, "other.example", &[]), &theirs, ""),
        (Config { dns: None, ..config(true, "a.example", &[]) }, &theirs, ""),
    ] {
        let published =
            config.dns.as_ref().is_some_and(|it| &*it.zones[0].name == "shop.example") && expected.is_empty();
        let world = leader(config, vec![put(service), of("a", "10.0.0.1", false)]);
        assert_eq!(wanted(&world, WWW).map(|it| it.ttl), published.then_some(300), "{expected}");
        match (told(&world, service).as_slice(), expected) {
            ([], "") => {}
            ([one], expected) if !expected.is_empty() && one.ends_with(expected) => {}
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn a_host_without_a_cluster_publishes_what_it_serves_and_leaves_dns_before_its_sockets_close() {
    let roles = Roles { allocate: true, host: Some(HOST.into()) };
    let mut world = World::new(roles, vec![Arc::new(OnHost)], Arc::new(config(false, "shop.example", &[])));
    for change in [put(&www()), host(&["10.0.0.5", "127.0.0.1"], &[])].into_iter().chain(synced()) {
        world.apply(change);
    }
    let here = unit(&owner(&www()));
    let listens = |world: &World| match world.desire(&here) {
        Desired::LoadBalancer(it) => !it.listeners.is_empty(),
        other => panic!("{other:?}"),
    };
    let none = wanted(&world, WWW).expect("it is named");
    assert!(none.keeps.contains(&ip("10.0.0.5")) && !none.withdraws, "nothing is open yet");
    let serving = ["10.0.0.5", "127.0.0.1"].map(|at| ServingSocket {
        ip: ip(at),
        protocol: seaway_model::L4::Tcp,
        port: 8080,
    });
    let outcome = |unit: &Unit, state, serving: &[ServingSocket]| {
        let (facts, problems, serving) = (Vec::new(), Vec::new(), serving.to_vec());
        Change::Outcome(Outcome { unit: unit.clone(), state, facts, problems, serving })
    };
    assert!(marks(&world.apply(outcome(&here, UnitState::Done, &serving))));
    assert_eq!(addresses(&world, WWW), ["10.0.0.5"], "loopback is nobody else's");
    assert_eq!(wanted(&world, WWW).expect("it is published").host.as_deref(), Some(HOST));
    let name = Unit::DnsName(WWW.into());
    let pending = UnitState::Pending(std::time::Duration::from_secs(60));
    world.apply(outcome(&name, pending.clone(), &[]));

    assert!(marks(&world.apply(Change::HostDrains(true))));
    let out = wanted(&world, WWW).expect("it is named");
    assert!(out.addresses.is_empty() && out.withdraws && out.keeps.contains(&ip("10.0.0.5")));
    assert!(listens(&world), "clients still come by the record");
    world.apply(outcome(&name, pending, &[]));
    assert!(listens(&world), "resolvers still have it");
    let dirt = world.apply(outcome(&name, UnitState::Done, &[]));
    assert!(dirt.contains(&WorkItem::Unit(here.clone())) && !listens(&world));
    assert!(marks(&world.apply(Change::HostDrains(false))));
    assert!(listens(&world));
}
