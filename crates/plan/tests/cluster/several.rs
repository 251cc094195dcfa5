//! Several processes with one plan: who leads, who follows, and hosts that have what is written.

use std::{sync::Arc, time::Duration};

use seaway_model::{
    Address, AddressState, Change, Config, Desired, Dirt, Fact, Kind, L4, ListenerId, Outcome, Problem,
    Reason, Time, Unit,
    config::Opens,
    fact::{FactRef, HostReport, HostSays, Secret, Service, TargetPort},
    load_balancer::Bind,
    outcome::{Serving, UnitState},
};
use seaway_plan::{Roles, World, dry_run};
use seaway_testkit::facts::{HOST, host, ip, owner, pool, put, service, shop, synced};

use crate::scene::{OnHost, unit};

/// A host that gives nothing out.
pub(crate) fn on_host(changes: Vec<Change>) -> World {
    let roles = Roles { allocate: false, host: Some(HOST.into()) };
    let mut world = World::new(roles, vec![Arc::new(OnHost)], Arc::new(Config::default()));
    dry_run(&mut world, changes.into_iter().chain(synced()));
    world
}

/// A controller, which serves nothing.
pub(crate) fn controller(changes: Vec<Change>) -> World {
    let mut world = World::new(Roles::default(), Vec::new(), Arc::new(Config::default()));
    for change in changes.into_iter().chain(synced()) {
        world.apply(change);
    }
    world
}

pub(crate) fn written(at: &str, owners: &[&Service], state: AddressState, version: u64) -> Change {
    Change::Put(Fact::Address(Arc::new(Address {
        ip: ip(at),
        pool: "public".into(),
        sharing: None,
        owners: owners.iter().map(|it| owner(it)).collect(),
        plan_version: seaway_model::address::PLAN_VERSION,
        state,
        version,
    })))
}

fn held(at: &str, owners: &[&Service]) -> Change {
    written(at, owners, AddressState::Held, 0)
}

fn served(world: &World, service: &Service) -> (Vec<Bind>, Vec<ListenerId>) {
    match world.desire(&unit(&owner(service))) {
        Desired::LoadBalancer(it) => (it.binds.clone(), it.listeners.keys().copied().collect()),
        other => panic!("no load balancer but {other:?}"),
    }
}

pub(crate) fn present(world: &World) -> Vec<String> {
    match world.desire(&Unit::Presence(HOST.into())) {
        Desired::Presence(present) => present.addresses.keys().map(ToString::to_string).collect(),
        other => panic!("not present but {other:?}"),
    }
}

pub(crate) const PUBLIC: (&str, &str) = ("192.0.2.10", "192.0.2.19");

#[test]
fn a_host_has_the_addresses_that_are_written_and_gives_none() {
    let mut world = on_host(vec![pool(PUBLIC), put(&shop()), host(&["10.0.0.5"], &[])]);
    assert_eq!(served(&world, &shop()).0, [], "nothing is written yet");

    let dirt = world.apply(held("192.0.2.17", &[&shop()]));
    assert_eq!(served(&world, &shop()).0, [Bind::Ledger(ip("192.0.2.17"))]);
    assert_eq!(present(&world), ["192.0.2.17"]);
    assert!(dirt.contains(&Dirt::Unit(unit(&owner(&shop())))), "{dirt:?}");
    let writes = |it: &&Dirt| matches!(it.unit(), Unit::Address(_) | Unit::Status(_));
    assert_eq!(dirt.iter().find(writes), None, "another writes");

    world.apply(held("192.0.2.18", &[&shop()]));
    world.apply(Change::Gone(FactRef::Address(ip("192.0.2.17"))));
    assert_eq!(served(&world, &shop()).0, [Bind::Ledger(ip("192.0.2.18"))]);
    world.apply(written("192.0.2.18", &[], AddressState::Releasing, 0));
    assert_eq!((served(&world, &shop()).0, present(&world)), (vec![], vec![]));
}

#[test]
fn a_host_serves_pools_of_hosts_without_anything_written() {
    let world = on_host(vec![put(&shop()), host(&["10.0.0.5"], &[])]);
    assert_eq!(served(&world, &shop()).0, [Bind::Host(ip("10.0.0.5"))]);
}

#[test]
fn services_that_share_an_address_have_their_ports_on_a_host_the_older_first() {
    let mut young =
        service("young", &[("a", 8080, TargetPort::Number(80)), ("b", 8081, TargetPort::Number(80))]);
    young.meta.created = Some(Time(5));
    let told =
        [pool(PUBLIC), held("192.0.2.17", &[&shop(), &young]), put(&shop()), put(&young), host(&[], &[])];
    for turn in 0..told.len() {
        let mut changes = told.to_vec();
        changes.rotate_left(turn);
        let mut world = on_host(changes);
        let ports =
            |world: &World, it: &Service| served(world, it).1.iter().map(|it| it.port).collect::<Vec<_>>();
        assert_eq!((ports(&world, &shop()), ports(&world, &young)), (vec![8080], vec![8081]));

        world.apply(held("192.0.2.17", &[&young]));
        assert_eq!((served(&world, &shop()).0, ports(&world, &young)), (vec![], vec![8080, 8081]));
    }
}

#[test]
fn whoever_begins_to_lead_goes_on_with_what_was_written() {
    let other = service("other", &[("", 80, TargetPort::Number(80))]);
    let mut world = controller(vec![
        pool(PUBLIC),
        put(&shop()),
        put(&other),
        held("192.0.2.17", &[&shop()]),
        held("192.0.2.18", &[&service("gone", &[])]),
    ]);
    assert_eq!(world.desire(&Unit::Address(ip("192.0.2.10"))), Desired::Absent, "only who leads claims");

    let dirt = world.apply(Change::Leads(true));
    let claims: Vec<&Unit> =
        dirt.iter().map(Dirt::unit).filter(|it| matches!(it, Unit::Address(_))).collect();
    assert_eq!(claims, [&Unit::Address(ip("192.0.2.10")), &Unit::Address(ip("192.0.2.18"))]);
    assert!(dirt.contains(&Dirt::Unit(Unit::Status(owner(&shop())))));
    let Desired::Address(kept) = world.desire(&Unit::Address(ip("192.0.2.17"))) else { panic!("it stays") };
    assert_eq!(kept.owners, [owner(&shop())]);

    // Deposed: what the next leader writes is so.
    assert_eq!(world.apply(Change::Leads(false)), []);
    assert_eq!(world.apply(held("192.0.2.12", &[&other])), []);
    let dirt = world.apply(Change::Leads(true));
    assert!(!dirt.contains(&Dirt::Unit(Unit::Address(ip("192.0.2.12")))), "{dirt:?}");
    let Desired::Address(taken) = world.desire(&Unit::Address(ip("192.0.2.12"))) else { panic!("it stays") };
    assert_eq!(taken.owners, [owner(&other)]);
}

#[test]
fn an_address_that_somebody_else_rewrote_is_written_again_by_who_leads() {
    let mut world = controller(vec![pool(PUBLIC), put(&shop()), held("192.0.2.17", &[&shop()])]);
    world.apply(Change::Leads(true));
    let dirt = world.apply(held("192.0.2.17", &[]));
    assert!(dirt.contains(&Dirt::Unit(Unit::Address(ip("192.0.2.17")))), "{dirt:?}");
}

#[test]
fn nothing_is_given_out_before_pools_and_hosts_were_told() {
    for late in [Kind::AddressPool, Kind::IPAddressPool, Kind::LoadBalancerHost] {
        let mut world =
            World::new(Roles { allocate: true, host: None }, Vec::new(), Arc::new(Config::default()));
        for change in synced().into_iter().filter(|it| !matches!(it, Change::Synced(kind) if *kind == late)) {
            world.apply(change);
        }
        assert!(!world.is_settled(), "{late:?}");
        world.apply(Change::Synced(late));
        assert!(world.is_settled(), "{late:?}");
    }
}

/// What another host says.
pub(crate) fn heard(report: HostReport) -> Change {
    Change::Put(Fact::Host(Arc::new(report)))
}

fn applied(name: &str, applied: u64) -> HostReport {
    HostReport { host: name.into(), applied, ..HostReport::default() }
}

#[test]
fn an_address_is_free_when_every_live_host_applied_its_release_and_holds_it_no_more() {
    let at = ip("192.0.2.10");
    let still = |it: HostReport| HostReport { holds: [at].into(), ..it };
    let gone = || Change::Gone(FactRef::Host("b".into()));
    // It is released at version 7.
    let table: [(&str, Vec<Change>, bool); 7] = [
        ("nobody heard of it", vec![heard(applied("a", 6)), heard(applied("b", 6))], false),
        ("one did not", vec![heard(applied("a", 7)), heard(applied("b", 6))], false),
        ("both applied it", vec![heard(applied("a", 7)), heard(applied("b", 8))], true),
        ("one still holds it", vec![heard(applied("a", 7)), heard(still(applied("b", 8)))], false),
        ("the other died", vec![heard(applied("a", 7)), heard(applied("b", 6)), gone()], true),
        (
            "who still holds it died",
            vec![heard(applied("a", 9)), heard(still(applied("b", 9))), gone()],
            true,
        ),
        ("one just came and holds it", vec![heard(applied("a", 7)), heard(still(applied("c", 0)))], false),
    ];
    for (case, reports, free) in table {
        let mut world = controller(vec![pool(("192.0.2.10", "192.0.2.10")), put(&shop())]);
        world.apply(Change::Leads(true));
        world.apply(written("192.0.2.10", &[&shop()], AddressState::Held, 5));
        for name in ["a", "b"] {
            world.apply(heard(applied(name, 5)));
        }
        world.apply(Change::Gone(FactRef::Object(owner(&shop()).object())));
        assert!(matches!(world.desire(&Unit::Address(at)), Desired::Address(_)), "{case}: too early");
        world.apply(written("192.0.2.10", &[], AddressState::Releasing, 7));
        for report in reports {
            world.apply(report);
        }
        assert_eq!(world.desire(&Unit::Address(at)) == Desired::Absent, free, "{case}");
    }
}

#[test]
fn an_address_on_its_way_to_one_is_not_given_to_another_before_it_is_known_what_came_of_it() {
    let at = ip("192.0.2.10");
    let other = service("other", &[("", 80, TargetPort::Number(80))]);
    for failed in [false, true] {
        let mut world = controller(vec![pool(("192.0.2.10", "192.0.2.10")), put(&shop()), put(&other)]);
        world.apply(Change::Leads(true));
        let wanted = |world: &World| match world.desire(&Unit::Address(at)) {
            Desired::Address(it) => it.owners.clone(),
            _ => Vec::new(),
        };
        let first = if wanted(&world) == [owner(&shop())] { shop() } else { other.clone() };
        world.apply(Change::Gone(FactRef::Object(owner(&first).object())));
        assert_eq!(wanted(&world), [], "it may be written as theirs at this moment");
        if failed {
            let state = UnitState::Failed { why: "no answer".into(), retry: Duration::from_secs(1) };
            let unit = Unit::Address(at);
            let outcome =
                Outcome { unit, state, facts: Vec::new(), problems: Vec::new(), serving: Vec::new() };
            world.apply(Change::Outcome(outcome));
            assert_eq!(wanted(&world), [], "it may have been written all the same");
        }
        world.apply(written("192.0.2.10", &[&first], AddressState::Held, 5));
        assert_eq!(wanted(&world), []);
        world.apply(written("192.0.2.10", &[], AddressState::Releasing, 6));
        assert_eq!(wanted(&world).len(), 1, "now the other may have it");
    }
}

#[test]
fn what_somebody_else_wrote_over_ours_is_looked_at_again_by_who_leads() {
    let mut world = controller(vec![pool(PUBLIC), put(&shop()), held("192.0.2.17", &[&shop()])]);
    let object = owner(&shop()).object();
    assert_eq!(world.apply(Change::Overwritten(object.clone())), []);
    world.apply(Change::Leads(true));
    assert_eq!(world.apply(Change::Overwritten(object)), [Dirt::Unit(Unit::Status(owner(&shop())))]);
}

#[test]
fn a_controller_calls_served_what_a_live_host_says_it_serves() {
    let at = ip("192.0.2.10");
    let cannot = |it: HostReport| HostReport { not_served: [at].into(), ..it };
    let drained = |it: HostReport| HostReport { drain: true, ..it };
    let table: [(&str, Vec<HostReport>, bool); 6] = [
        ("no host", vec![], false),
        ("it did not hear of it", vec![applied("a", 4)], false),
        ("it applied it", vec![applied("a", 5)], true),
        ("it cannot serve it", vec![cannot(applied("a", 9))], false),
        ("another can", vec![cannot(applied("a", 9)), applied("b", 5)], true),
        ("it drains", vec![drained(applied("a", 9))], false),
    ];
    for (case, reports, served) in table {
        let mut world = controller(vec![pool(("192.0.2.10", "192.0.2.10")), put(&shop())]);
        world.apply(Change::Leads(true));
        world.apply(written("192.0.2.10", &[&shop()], AddressState::Held, 5));
        world.apply(heard(applied("a", 1)));
        let mut dirt = Vec::new();
        for report in reports {
            dirt.extend(world.apply(heard(report)));
        }
        let status = world.status(&owner(&shop())).expect("it is ours");
        assert_eq!((status.addresses, status.ready), (vec![at], served), "{case}");
        let told = dirt.contains(&Dirt::Unit(Unit::Status(owner(&shop()))));
        assert!(told || !served, "{case}: {dirt:?}");
    }
}

#[test]
fn a_host_that_moves_on_dirties_only_the_statuses_of_what_it_applied() {
    let other = service("other", &[("", 80, TargetPort::Number(80))]);
    let mut world = controller(vec![pool(PUBLIC), put(&shop()), put(&other)]);
    world.apply(Change::Leads(true));
    world.apply(written("192.0.2.10", &[&other], AddressState::Held, 5));
    world.apply(written("192.0.2.11", &[&shop()], AddressState::Held, 6));
    world.apply(heard(applied("a", 5)));
    assert_eq!(world.apply(heard(applied("a", 5))), []);
    let dirt = world.apply(heard(applied("a", 9)));
    assert!(dirt.contains(&Dirt::Unit(Unit::Status(owner(&shop())))), "{dirt:?}");
    assert_eq!(world.apply(heard(applied("a", 20))), []);
}

#[test]
fn a_host_says_how_far_it_is_and_only_exceptions() {
    let mut world = on_host(vec![pool(PUBLIC), put(&shop()), host(&["10.0.0.5"], &[])]);
    world.apply(written("192.0.2.17", &[&shop()], AddressState::Held, 5));
    let here = |holds: &[&str], applied| {
        heard(HostReport {
            host: HOST.into(),
            addresses: vec![ip("10.0.0.5")],
            holds: holds.iter().map(|it| ip(it)).collect(),
            applied,
            ..HostReport::default()
        })
    };
    let told = |world: &World| world.said().expect("a host");
    assert_eq!(told(&world).applied, 0);
    world.apply(here(&["192.0.2.17"], 5));
    assert_eq!(told(&world).applied, 4, "it is present, and nobody answers there yet");

    let concluded = |serving: Vec<Serving>, problems| {
        let unit = unit(&owner(&shop()));
        Change::Outcome(Outcome { unit, state: UnitState::Done, facts: vec![], problems, serving })
    };
    let taken = Problem::new(owner(&shop()).object(), Reason::PortInUse, "nginx listens there");
    world.apply(concluded(vec![], vec![(owner(&shop()), taken)]));
    let said = told(&world);
    assert_eq!((said.applied, said.not_served.len()), (5, 1));
    assert_eq!(
        (said.not_served[0].address, said.not_served[0].reason),
        (ip("192.0.2.17"), Reason::PortInUse)
    );

    world.apply(concluded(vec![Serving { ip: ip("192.0.2.17"), protocol: L4::Tcp, port: 8080 }], vec![]));
    let well = HostSays { applied: 5, addresses: vec![ip("10.0.0.5")], held: vec![], not_served: vec![] };
    assert_eq!(told(&world), well);

    world.apply(written("192.0.2.17", &[], AddressState::Releasing, 7));
    world.apply(here(&["192.0.2.17"], 7));
    assert_eq!((told(&world).applied, told(&world).held), (7, vec![ip("192.0.2.17")]));
    world.apply(here(&[], 7));
    assert_eq!(told(&world), HostSays { applied: 7, ..well });
}

#[test]
fn a_host_goes_on_with_what_an_address_said_before_a_newer_plan() {
    let mut world = on_host(vec![pool(PUBLIC), put(&shop()), host(&[], &[])]);
    world.apply(written("192.0.2.17", &[&shop()], AddressState::Held, 5));
    let newer = |change: Change| match change {
        Change::Put(Fact::Address(it)) => {
            Change::Put(Fact::Address(Arc::new(Address { plan_version: 99, ..Address::clone(&it) })))
        }
        other => other,
    };
    world.apply(newer(written("192.0.2.17", &[], AddressState::Releasing, 7)));
    world.apply(written("192.0.2.18", &[], AddressState::Held, 9));
    assert_eq!(served(&world, &shop()).0, [Bind::Ledger(ip("192.0.2.17"))]);
    let Desired::Presence(present) = world.desire(&Unit::Presence(HOST.into())) else { panic!("present") };
    assert_eq!(present.as_of, 6, "it does not say that it applied what it did not understand");
    let told = world.problems().into_iter().find(|it| it.reason == Reason::NewerPlan).expect("it is told");
    assert_eq!(told.object.name.as_str(), "192.0.2.17");

    world.apply(written("192.0.2.17", &[], AddressState::Releasing, 11));
    assert_eq!(served(&world, &shop()).0, []);
    assert!(world.problems().iter().all(|it| it.reason != Reason::NewerPlan));
}

#[test]
fn what_statuses_say_is_adopted_before_anything_is_given_out() {
    let said = |name: &str, created: u64, at: &[&str]| {
        let mut it = service(name, &[("", 80, TargetPort::Number(80))]);
        it.meta.created = Some(Time(created));
        it.published = at.iter().map(|it| ip(it)).collect();
        it
    };
    // In the order of age; a pool has .10 to .19, and .5 is nobody's any more.
    let new = said("new", 1, &[]);
    let had = said("had", 2, &["192.0.2.10"]);
    let stale = said("stale", 3, &["192.0.2.5"]);
    let late = said("late", 4, &["192.0.2.12"]);
    let stored = said("stored", 5, &["192.0.2.13"]);
    let told = [
        pool(PUBLIC),
        put(&new),
        put(&had),
        put(&stale),
        put(&late),
        put(&stored),
        held("192.0.2.12", &[&stored]),
    ];
    for turn in 0..told.len() {
        let mut changes = told.to_vec();
        changes.rotate_left(turn);
        for leads_late in [true, false] {
            let before = if leads_late { vec![] } else { vec![Change::Leads(true)] };
            let mut world = controller(before.into_iter().chain(changes.clone()).collect());
            world.apply(Change::Leads(true));
            let has = |it: &Service| -> Vec<String> {
                let all = (1..=20u8).map(|last| ip(&format!("192.0.2.{last}")));
                let of = |at: &std::net::IpAddr| match world.desire(&Unit::Address(*at)) {
                    Desired::Address(address) => address.owners.contains(&owner(it)),
                    _ => false,
                };
                all.filter(of).map(|it| it.to_string()).collect()
            };
            assert_eq!(has(&had), ["192.0.2.10"]);
            assert_eq!(has(&stored), ["192.0.2.12"], "what is written counts for more than a status");
            assert_eq!((has(&new), has(&stale)), (vec!["192.0.2.11".into()], vec!["192.0.2.13".into()]));
            assert_eq!(has(&late), ["192.0.2.14"], "its status says what is another's");
        }
    }
}

#[test]
fn services_that_shared_an_address_before_us_go_on_to_share_it() {
    let shared = |name: &str, port: u16, created: u64| {
        let mut it = service(name, &[("", port, TargetPort::Number(80))]);
        it.meta.annotations.insert("metallb.universe.tf/allow-shared-ip".into(), "k".into());
        it.meta.created = Some(Time(created));
        it.published = vec![ip("192.0.2.15")];
        it
    };
    let (a, b) = (shared("a", 80, 2), shared("b", 81, 3));
    let mut world = controller(vec![pool(PUBLIC), put(&b), put(&a), put(&shop())]);
    world.apply(Change::Leads(true));
    let Desired::Address(address) = world.desire(&Unit::Address(ip("192.0.2.15"))) else { panic!("adopted") };
    assert_eq!(address.owners, [owner(&a), owner(&b)]);
}

#[test]
fn a_status_that_comes_back_dirties_nothing() {
    let mut world = controller(vec![pool(PUBLIC), put(&shop())]);
    world.apply(Change::Leads(true));
    let mut published = shop();
    published.published = vec![ip("192.0.2.10")];
    assert_eq!(world.apply(put(&published)), []);
}

#[test]
fn what_was_looked_up_before_the_last_change_is_not_believed_after_it() {
    let mut world = on_host(vec![pool(PUBLIC), put(&shop())]);
    world.apply(written("192.0.2.17", &[], AddressState::Releasing, 9));
    let at = |applied, holds: &[&str]| {
        let holds = holds.iter().map(|it| ip(it)).collect();
        heard(HostReport { host: HOST.into(), applied, holds, ..HostReport::default() })
    };
    world.apply(at(9, &[]));
    world.apply(at(8, &["192.0.2.17"]));
    let said = world.said().expect("a host");
    assert_eq!((said.applied, said.held), (9, vec![]));
}

#[test]
fn who_becomes_ours_by_a_new_configuration_keeps_the_address_of_before() {
    let named = |name: &str, class: Option<&str>, created: u64| {
        let mut it = service(name, &[("", 80, TargetPort::Number(80))]);
        it.class = class.map(Into::into);
        it.meta.created = Some(Time(created));
        it
    };
    let ours = named("ours", Some("seaway.dev/native"), 9);
    // All older: whoever is heard first would be given what is somebody's.
    let new = named("new", None, 1);
    let mut had = named("had", None, 2);
    had.published = vec![ip("192.0.2.11")];
    let mut robbed = named("robbed", None, 3);
    robbed.published = vec![ip("192.0.2.10")];
    let told = vec![pool(PUBLIC), put(&ours), put(&new), put(&had), put(&robbed)];
    let config = Config { classless: false, ..Config::default() };
    let mut world = World::new(Roles::default(), Vec::new(), Arc::new(config));
    for change in told.into_iter().chain(synced()).chain([Change::Leads(true)]) {
        world.apply(change);
    }
    let has = |world: &World, it: &Service| -> Vec<String> {
        let all = (10..=19u8).map(|last| ip(&format!("192.0.2.{last}")));
        let of = |at: &std::net::IpAddr| match world.desire(&Unit::Address(*at)) {
            Desired::Address(address) => address.owners.contains(&owner(it)),
            _ => false,
        };
        all.filter(of).map(|it| it.to_string()).collect()
    };
    assert_eq!(has(&world, &ours), ["192.0.2.10"], "what statuses of others say is not our concern");
    assert!(has(&world, &had).is_empty());
    let dirt = world.apply(Change::Config(Arc::new(Config::default())));
    assert_eq!(has(&world, &had), ["192.0.2.11"]);
    assert_eq!(has(&world, &ours), ["192.0.2.10"], "what is given out is not taken back, written or not");
    assert_eq!(
        (has(&world, &new), has(&world, &robbed)),
        (vec!["192.0.2.12".into()], vec!["192.0.2.13".into()])
    );
    let writes = |at: &str| dirt.contains(&Dirt::Unit(Unit::Address(ip(at))));
    assert!(writes("192.0.2.11") && writes("192.0.2.12") && writes("192.0.2.13"), "{dirt:?}");
    // And back: what they had is free, once it is nowhere.
    world.apply(Change::Config(Arc::new(Config { classless: false, ..Config::default() })));
    assert_eq!((has(&world, &ours).len(), has(&world, &had).len(), has(&world, &new).len()), (1, 0, 0));
}

#[test]
fn secrets_are_wanted_while_somebody_names_them() {
    let secret = |name: &str| seaway_model::ObjectRef::new(Kind::Secret, "default", name);
    let door = |opens| seaway_model::config::FrontDoor { opens, ..Default::default() };
    let config = |opens| Arc::new(Config { front_door: door(opens), ..Config::default() });
    let mut world = World::new(Roles::default(), Vec::new(), config(Opens::Never));
    assert_eq!(world.secrets(), None, "nobody knows yet");
    let mut shop = shop();
    shop.meta.annotations.insert("seaway.dev/tls".into(), "shop-tls".into());
    for change in [put(&shop)].into_iter().chain(synced()) {
        world.apply(change);
    }
    assert_eq!(world.secrets(), Some([secret("shop-tls")].into()));
    // It is there, and on its way: nobody is told that there is none.
    let reasons = |world: &World| -> Vec<Reason> { world.problems().iter().map(|it| it.reason).collect() };
    assert!(reasons(&world).contains(&Reason::NoSuchSecret));
    let withheld = Secret::withheld(secret("shop-tls"));
    world.apply(Change::Put(Fact::Secret(Arc::new(withheld))));
    assert!(!reasons(&world).contains(&Reason::NoSuchSecret), "{:?}", world.problems());
    shop.meta.annotations.clear();
    world.apply(put(&shop));
    assert_eq!(world.secrets(), Some([].into()));
    // A front door that shows all certificates wants them all.
    world.apply(Change::Config(config(Opens::WhenNeeded)));
    assert_eq!(world.secrets(), None);
}
