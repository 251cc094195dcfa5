//! Hosts that are not heard of any more: they may go on serving, and nobody can tell.

use seaway_model::{AddressState, Change, Kind, ObjectRef, Unit, UnreportedHostState, fact::FactRef};
use seaway_plan::World;
use seaway_testkit::facts::{ip, owner, pool, put, service, shop};

use super::scene::{PUBLIC, applied, controller, heard, written};

const AT: &str = "192.0.2.10";

fn is_free(world: &World) -> bool {
    world.desire(&Unit::Address(ip(AT))).is_absent()
}

/// The shop's address is served by `a` and `b`; `b` falls silent, the shop is deleted, and `a` has let go.
fn released() -> World {
    let mut world =
        controller(vec![pool(PUBLIC), put(&shop()), written(AT, &[&shop()], AddressState::Held, 5)]);
    for change in [
        Change::Leads(true),
        heard(applied("a", 5)),
        heard(applied("b", 5)),
        Change::HostSilent("b".into()),
        Change::Gone(FactRef::Object(owner(&shop()).object())),
        written(AT, &[], AddressState::Releasing, 7),
        heard(applied("a", 7)),
    ] {
        world.apply(change);
    }
    world
}

#[test]
fn what_a_silent_host_may_hold_is_nobody_s_before_it_answers_or_is_gone() {
    let answers = heard(applied("b", 7));
    // Its Node or its object was deleted, somebody said so, or the quarantine is over.
    let gone = Change::Gone(FactRef::Host("b".into()));
    for end in [answers, gone] {
        let mut world = released();
        assert!(!is_free(&world));
        let other = service("other", &[]);
        world.apply(put(&other));
        let owners = |at: &str| match world.desire(&Unit::Address(ip(at))) {
            seaway_model::Desired::Address(it) => it.owners.clone(),
            _ => Vec::new(),
        };
        assert_eq!((owners(AT), owners("192.0.2.11")), (vec![], vec![owner(&other)]), "it gets another");
        let object = ObjectRef::new(Kind::LoadBalancerHost, "", "b");
        let told = world.problems().into_iter().find(|it| it.object == object).expect("it is told");
        assert!(
            told.message.contains("1 released addresses")
                && told.fix.contains("kubectl seaway host forget b"),
            "{told}"
        );
        world.apply(end);
        assert!(is_free(&world));
        assert!(world.problems().iter().all(|it| it.object != object));
    }
}

#[test]
fn a_silent_host_that_answers_and_has_not_let_go_keeps_it_back_as_any_other() {
    let mut world = released();
    world.apply(heard(applied("b", 5)));
    assert!(!is_free(&world), "it has not heard of the release yet");
    world.apply(heard(applied("b", 7)));
    assert!(is_free(&world));
}

#[test]
fn a_silent_host_serves_nobody_as_far_as_is_told() {
    let mut world =
        controller(vec![pool(PUBLIC), put(&shop()), written(AT, &[&shop()], AddressState::Held, 5)]);
    world.apply(Change::Leads(true));
    world.apply(heard(applied("b", 5)));
    assert_eq!(world.who_serves(&owner(&shop())), ["b".into()]);
    world.apply(Change::HostSilent("b".into()));
    assert_eq!(world.who_serves(&owner(&shop())), []);
}

/// It reports once a second at most, and is cut off in between.
#[test]
fn what_was_given_out_before_a_host_fell_silent_it_may_have_heard_of_since_its_last_word() {
    let mut world = controller(vec![pool(PUBLIC)]);
    for change in [
        Change::Leads(true),
        heard(applied("a", 5)),
        heard(applied("b", 5)),
        put(&shop()),
        written(AT, &[&shop()], AddressState::Held, 6),
        heard(applied("a", 6)),
        Change::HostSilent("b".into()),
        Change::Gone(FactRef::Object(owner(&shop()).object())),
        written(AT, &[], AddressState::Releasing, 7),
        heard(applied("a", 7)),
    ] {
        world.apply(change);
    }
    assert!(!is_free(&world), "b may serve it");
    world.apply(heard(applied("b", 7)));
    assert!(is_free(&world));
}

/// Else each address that comes and goes while a host is away would be lost for an hour.
#[test]
fn what_was_given_out_after_a_host_fell_silent_it_never_had() {
    let mut world = controller(vec![pool(PUBLIC)]);
    for change in [
        Change::Leads(true),
        heard(applied("a", 5)),
        heard(applied("b", 5)),
        Change::HostSilent("b".into()),
        put(&shop()),
        written(AT, &[&shop()], AddressState::Held, 6),
        heard(applied("a", 6)),
        Change::Gone(FactRef::Object(owner(&shop()).object())),
        written(AT, &[], AddressState::Releasing, 7),
        heard(applied("a", 7)),
    ] {
        world.apply(change);
    }
    assert!(is_free(&world));
}

fn unreported(life: UnreportedHostState) -> Change {
    Change::HostUnreported("b".into(), life)
}

/// `b` begins and serves the shop's address; it is cut off before its first report.
fn begun(then: Vec<Change>) -> World {
    let mut world =
        controller(vec![pool(PUBLIC), put(&shop()), written(AT, &[&shop()], AddressState::Held, 5)]);
    let before = [Change::Leads(true), heard(applied("a", 5)), unreported(UnreportedHostState::Lives)];
    let after = [
        Change::Gone(FactRef::Object(owner(&shop()).object())),
        written(AT, &[], AddressState::Releasing, 7),
        heard(applied("a", 7)),
    ];
    for change in before.into_iter().chain(then).chain(after) {
        world.apply(change);
    }
    world
}

#[test]
fn a_host_that_never_reported_may_hold_whatever_was_written_while_it_lived() {
    let node = Change::Gone(FactRef::Object(ObjectRef::new(Kind::Node, "", "b")));
    for end in [heard(applied("b", 7)), unreported(UnreportedHostState::Gone), node] {
        let mut world = begun(vec![]);
        assert!(!is_free(&world));
        let told = world.problems();
        let told = told.iter().find(|it| *it.object.name == *"b").expect("it is told");
        assert!(told.message.contains("has not reported yet"), "{told}");
        world.apply(end);
        assert!(is_free(&world));
    }
    // It lives and hears of the shop after it began, and its Lease ends.
    let later = |ends_first: bool| {
        let mut changes = vec![
            unreported(UnreportedHostState::Silent),
            put(&service("late", &[])),
            written("192.0.2.11", &[&service("late", &[])], AddressState::Held, 6),
        ];
        if !ends_first {
            changes.rotate_left(1);
        }
        let mut world = begun(changes);
        for change in [
            Change::Gone(FactRef::Object(owner(&service("late", &[])).object())),
            written("192.0.2.11", &[], AddressState::Releasing, 8),
            heard(applied("a", 8)),
        ] {
            world.apply(change);
        }
        world.desire(&Unit::Address(ip("192.0.2.11"))).is_absent()
    };
    assert!(!later(false), "it was there when this was given out");
    assert!(later(true), "it was not");
}

/// It is told by one who looks at Leases, its report by another.
#[test]
fn a_host_that_has_reported_is_no_host_without_a_report() {
    for life in [UnreportedHostState::Lives, UnreportedHostState::Silent, UnreportedHostState::Gone] {
        let mut world =
            controller(vec![pool(PUBLIC), put(&shop()), written(AT, &[&shop()], AddressState::Held, 5)]);
        for change in [Change::Leads(true), heard(applied("b", 9)), unreported(life)] {
            world.apply(change);
        }
        assert_eq!(world.who_serves(&owner(&shop())), ["b".into()], "{life:?}");
        world.apply(Change::Gone(FactRef::Object(owner(&shop()).object())));
        world.apply(written(AT, &[], AddressState::Releasing, 7));
        assert!(is_free(&world), "it has let go: {life:?}");
    }
}
