//! Several processes with one plan: who leads, and what whoever leads next goes on with.

use std::sync::Arc;

use seaway_model::{
    AddressState, Change, Config, Desired, Fact, Kind, Reason, Time, Unit, WorkItem,
    config::OpenPolicy,
    fact::{FactRef, HostReport, Namespace, Secret, Service, TargetPort},
};
use seaway_plan::{Roles, World};
use seaway_testkit::facts::{ip, owner, pool, put, service, shop, synced};

use super::scene::{PUBLIC, applied, controller, heard, held, written};

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
        dirt.iter().map(WorkItem::unit).filter(|it| matches!(it, Unit::Address(_))).collect();
    assert_eq!(claims, [&Unit::Address(ip("192.0.2.10")), &Unit::Address(ip("192.0.2.18"))]);
    assert!(dirt.contains(&WorkItem::Unit(Unit::Status(owner(&shop())))));
    let Desired::Address(kept) = world.desire(&Unit::Address(ip("192.0.2.17"))) else { panic!("it stays") };
    assert_eq!(kept.owners, [owner(&shop())]);

    // Deposed: what the next leader writes is so.
    assert_eq!(world.apply(Change::Leads(false)), []);
    assert_eq!(world.apply(held("192.0.2.12", &[&other])), []);
    let dirt = world.apply(Change::Leads(true));
    assert!(!dirt.contains(&WorkItem::Unit(Unit::Address(ip("192.0.2.12")))), "{dirt:?}");
    let Desired::Address(taken) = world.desire(&Unit::Address(ip("192.0.2.12"))) else { panic!("it stays") };
    assert_eq!(taken.owners, [owner(&other)]);
}

#[test]
fn an_address_that_somebody_else_rewrote_is_written_again_by_who_leads() {
    let mut world = controller(vec![pool(PUBLIC), put(&shop()), held("192.0.2.17", &[&shop()])]);
    world.apply(Change::Leads(true));
    let dirt = world.apply(held("192.0.2.17", &[]));
    assert!(dirt.contains(&WorkItem::Unit(Unit::Address(ip("192.0.2.17")))), "{dirt:?}");
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

#[test]
fn what_somebody_else_wrote_over_ours_is_looked_at_again_by_who_leads() {
    let mut world = controller(vec![pool(PUBLIC), put(&shop()), held("192.0.2.17", &[&shop()])]);
    let object = owner(&shop()).object();
    assert_eq!(world.apply(Change::Overwritten(object.clone())), []);
    world.apply(Change::Leads(true));
    assert_eq!(world.apply(Change::Overwritten(object)), [WorkItem::Unit(Unit::Status(owner(&shop())))]);
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
        let told = dirt.contains(&WorkItem::Unit(Unit::Status(owner(&shop()))));
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
    assert!(dirt.contains(&WorkItem::Unit(Unit::Status(owner(&shop())))), "{dirt:?}");
    assert_eq!(world.apply(heard(applied("a", 20))), []);
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
    let writes = |at: &str| dirt.contains(&WorkItem::Unit(Unit::Address(ip(at))));
    assert!(writes("192.0.2.11") && writes("192.0.2.12") && writes("192.0.2.13"), "{dirt:?}");
    // And back: what they had is free, once it is nowhere.
    world.apply(Change::Config(Arc::new(Config { classless: false, ..Config::default() })));
    assert_eq!((has(&world, &ours).len(), has(&world, &had).len(), has(&world, &new).len()), (1, 0, 0));
}

#[test]
fn a_namespace_is_known_from_when_it_came_until_it_went() {
    let mut world = World::new(Roles::default(), Vec::new(), Arc::new(Config::default()));
    assert!(!world.knows_namespace("shop"));
    let namespace = Namespace { name: "shop".into(), labels: Default::default() };
    world.apply(Change::Put(Fact::Namespace(Arc::new(namespace))));
    assert!(world.knows_namespace("shop") && !world.knows_namespace("other"));
    world.apply(Change::Gone(FactRef::Object(seaway_model::ObjectRef::new(Kind::Namespace, "", "shop"))));
    assert!(!world.knows_namespace("shop"));
}

#[test]
fn secrets_are_wanted_while_somebody_names_them() {
    let secret = |name: &str| seaway_model::ObjectRef::new(Kind::Secret, "default", name);
    let door = |opens| seaway_model::config::FrontDoor { opens, ..Default::default() };
    let config = |opens| Arc::new(Config { front_door: door(opens), ..Config::default() });
    let mut world = World::new(Roles::default(), Vec::new(), config(OpenPolicy::Never));
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
    // Nobody asks while nobody needs one: whoever names the first is not told that there is none before it was asked for.
    world.apply(Change::Gone(FactRef::Object(secret("shop-tls"))));
    world.apply(Change::NotWatched(Kind::Secret));
    shop.meta.annotations.insert("seaway.dev/tls".into(), "shop-tls".into());
    world.apply(put(&shop));
    assert!(!reasons(&world).contains(&Reason::NoSuchSecret), "{:?}", world.problems());
    // Nor before it was answered whether this one is there: it may be of a kind that no list has, or just written.
    world.apply(Change::Synced(Kind::Secret));
    assert!(!reasons(&world).contains(&Reason::NoSuchSecret), "{:?}", world.problems());
    world.apply(Change::Gone(FactRef::Object(secret("shop-tls"))));
    assert!(reasons(&world).contains(&Reason::NoSuchSecret), "{:?}", world.problems());
    // Whoever names it again asks again.
    shop.meta.annotations.clear();
    world.apply(put(&shop));
    shop.meta.annotations.insert("seaway.dev/tls".into(), "shop-tls".into());
    world.apply(put(&shop));
    assert!(!reasons(&world).contains(&Reason::NoSuchSecret), "{:?}", world.problems());
    world.apply(Change::Gone(FactRef::Object(secret("shop-tls"))));
    assert!(reasons(&world).contains(&Reason::NoSuchSecret), "{:?}", world.problems());
    // A front door that shows all certificates wants them all.
    world.apply(Change::Config(config(OpenPolicy::WhenNeeded)));
    assert_eq!(world.secrets(), None);
}
