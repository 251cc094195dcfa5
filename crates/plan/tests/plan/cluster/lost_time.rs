//! What was given after a backup was made, and hosts may serve when the cluster's store is set back to it.

use seaway_model::{
    AddressState, Change, Desired, Outcome, Unit, UnreportedHostState,
    fact::{FactRef, HostReport},
    outcome::UnitState,
};
use seaway_plan::World;
use seaway_testkit::facts::{ip, owner, pool, put, service, shop, synced};

use super::{
    scene::{PUBLIC, applied, controller, heard, written},
    set_back::{after_the_backup, missing, other, owners, tell},
};

const AT: &str = "192.0.2.10";

fn is_free(world: &World) -> bool {
    world.desire(&Unit::Address(ip(AT))).is_absent()
}

fn is_releasing(world: &World) -> bool {
    match world.desire(&Unit::Address(ip(AT))) {
        Desired::Address(it) => it.state == AddressState::Releasing && it.owners.is_empty(),
        _ => false,
    }
}

fn gone() -> Change {
    Change::Missing(FactRef::Address(ip(AT)))
}

fn released(version: u64) -> Change {
    written(AT, &[], AddressState::Releasing, version)
}

/// What happens to `b`, which had applied version 500, and what ends that nobody is given the address.
struct Case {
    before: Vec<Change>,
    /// While all is listed again.
    listed: Vec<Change>,
    after: Vec<Change>,
    end: Vec<Change>,
}

/// The backup is older than the address of the other, which the restored cluster does not know. `version`: of what is written next.
fn cases(version: u64) -> Vec<(&'static str, Case)> {
    let says = |applied_: u64| vec![heard(applied("b", applied_))];
    let silent = || vec![Change::HostSilent("b".into())];
    let gone = || vec![Change::Gone(FactRef::Host("b".into()))];
    let case = |before, listed, after, end| Case { before, listed, after, end };
    let unreported = |life| vec![Change::HostUnreported("b".into(), life)];
    vec![
        ("it is quick", case(vec![], says(70), vec![], says(version))),
        ("it is slow, and writes what it said before", case(vec![], says(70), says(500), says(version))),
        ("it wrote that before all was listed", case(vec![], says(500), vec![], says(version))),
        ("it was silent before", case(silent(), vec![], vec![], gone())),
        ("it was silent before, and comes back", case(silent(), vec![], vec![], says(version))),
        (
            "it was silent before, and writes what it said before",
            case(silent(), vec![], says(500), says(version)),
        ),
        ("it falls silent", case(vec![], says(70), silent(), gone())),
        (
            "it falls silent, with its word of before",
            case(vec![], says(70), [says(500), silent()].concat(), gone()),
        ),
        (
            "it falls silent, and comes back",
            case(vec![], says(70), [silent(), says(70)].concat(), says(version)),
        ),
        (
            "it began after the backup, and is quick",
            case(vec![], vec![Change::Missing(FactRef::Host("b".into()))], vec![], says(version)),
        ),
        (
            "it began after the backup, and is cut off",
            case(vec![], vec![Change::Missing(FactRef::Host("b".into()))], silent(), gone()),
        ),
        (
            "it has not reported yet",
            case(
                [gone(), unreported(UnreportedHostState::Lives)].concat(),
                vec![],
                vec![],
                unreported(UnreportedHostState::Gone),
            ),
        ),
    ]
}

#[test]
fn an_address_of_the_lost_time_is_given_to_nobody_until_each_host_has_heard_or_is_gone() {
    // Versions count from lower; or they were bumped.
    for version in [82, 1_600] {
        for (name, case) in cases(version) {
            for leads_late in [false, true] {
                let name = format!("{name}, {version}, {leads_late}");
                let mut world = after_the_backup();
                tell(&mut world, vec![heard(applied("b", 500))]);
                tell(&mut world, case.before.clone());
                if leads_late {
                    tell(&mut world, vec![Change::Leads(false)]);
                }
                tell(&mut world, vec![Change::SourceRestored, put(&shop()), missing(&other()), gone()]);
                // As the backup has it.
                tell(&mut world, vec![heard(applied("a", 70))]);
                tell(&mut world, case.listed.clone());
                tell(&mut world, synced());
                if leads_late {
                    tell(&mut world, vec![Change::Leads(true)]);
                }
                assert_eq!(owners(&world, "192.0.2.11"), [owner(&shop())], "it has another ({name})");
                assert!(is_releasing(&world), "{name}");
                tell(&mut world, vec![heard(applied("a", 70)), heard(applied("a", 500))]);
                assert!(!is_free(&world), "nobody could hear of it ({name})");
                tell(&mut world, vec![released(version)]);
                assert!(!is_free(&world), "nobody has heard of it ({name})");
                tell(&mut world, case.after.clone());
                tell(&mut world, vec![heard(applied("a", version))]);
                assert!(!is_free(&world), "b may serve there ({name})");
                tell(&mut world, case.end.clone());
                assert!(is_free(&world), "{name}");
            }
        }
    }
}

/// `a` said 500 of the lost time, and is cut off before it says anything else; versions become as high again meanwhile.
#[test]
fn what_a_host_said_before_is_not_believed_when_versions_are_as_high_again() {
    let mut world = after_the_backup();
    tell(&mut world, vec![Change::SourceRestored, put(&shop()), missing(&other()), gone()]);
    tell(&mut world, vec![heard(applied("a", 500))]);
    tell(&mut world, synced());
    tell(&mut world, vec![released(82), written("192.0.2.11", &[&shop()], AddressState::Held, 499)]);
    tell(&mut world, vec![written("192.0.2.11", &[&shop()], AddressState::Held, 600)]);
    assert!(!is_free(&world));
    let mut falls_silent = |end: Change| {
        tell(&mut world, vec![end]);
        is_free(&world)
    };
    assert!(!falls_silent(Change::HostSilent("a".into())));
    assert!(falls_silent(heard(applied("a", 600))));
}

#[test]
fn what_somebody_deletes_that_was_not_free_yet_is_written_again() {
    let mut world = after_the_backup();
    tell(&mut world, vec![Change::SourceRestored, put(&shop()), missing(&other()), gone()]);
    tell(&mut world, vec![heard(applied("a", 70))]);
    tell(&mut world, synced());
    tell(&mut world, vec![released(82), Change::Gone(FactRef::Address(ip(AT)))]);
    assert!(is_releasing(&world));
    tell(&mut world, vec![released(84), heard(applied("a", 84))]);
    assert!(is_free(&world));
}

/// Its Service is in the backup, and its address is not.
#[test]
fn who_had_an_address_and_is_there_still_without_another_has_it_again() {
    let mut world = after_the_backup();
    tell(&mut world, vec![Change::SourceRestored, put(&shop()), put(&other()), gone()]);
    tell(&mut world, vec![heard(applied("a", 70))]);
    tell(&mut world, synced());
    assert_eq!(owners(&world, AT), [owner(&other())]);
    assert_eq!(owners(&world, "192.0.2.11"), [owner(&shop())]);
    // Who was silent before serves it, as before.
    tell(&mut world, vec![written(AT, &[&other()], AddressState::Held, 82)]);
    tell(&mut world, vec![Change::Gone(FactRef::Object(owner(&other()).object())), released(83)]);
    assert!(!is_free(&world));
    tell(&mut world, vec![heard(applied("a", 83))]);
    assert!(is_free(&world));
}

#[test]
fn who_has_another_in_the_backup_has_that_and_nothing_else() {
    let mut world = after_the_backup();
    tell(&mut world, vec![Change::SourceRestored, put(&other()), gone()]);
    tell(&mut world, vec![written("192.0.2.15", &[&other()], AddressState::Held, 60)]);
    tell(&mut world, vec![heard(applied("a", 70))]);
    tell(&mut world, synced());
    assert_eq!(owners(&world, "192.0.2.15"), [owner(&other())]);
    assert!(is_releasing(&world));
}

/// When the backup was made, a host had not let go of it for another; by now hosts may serve it for the other, and the backup says
/// that they have applied its release.
#[test]
fn a_release_that_is_in_the_backup_is_written_again_for_an_address_that_was_given_since() {
    let begin = |leads: bool| {
        let mut world = after_the_backup();
        tell(&mut world, vec![Change::Leads(leads), Change::SourceRestored, put(&shop()), missing(&other())]);
        tell(&mut world, vec![released(60), heard(applied("a", 70))]);
        tell(&mut world, synced());
        world
    };
    let mut world = begin(true);
    assert_eq!(owners(&world, "192.0.2.11"), [owner(&shop())]);
    assert!(is_free(&world), "it is deleted first");
    tell(&mut world, vec![heard(applied("a", 71)), released(60)]);
    let unit = Unit::Address(ip(AT));
    let outcome =
        Outcome { unit, state: UnitState::Absent, facts: vec![], problems: vec![], serving: vec![] };
    world.apply(Change::Outcome(outcome));
    assert!(is_releasing(&world), "and written again");
    tell(&mut world, vec![heard(applied("a", 72)), put(&service("next", &[]))]);
    assert_eq!(owners(&world, "192.0.2.12"), [owner(&service("next", &[]))], "it is nobody's");
    tell(&mut world, vec![released(82)]);
    assert!(!is_free(&world));
    tell(&mut world, vec![heard(applied("a", 82))]);
    assert!(is_free(&world));
    // Another leads, and did it; the host that fell silent before that may hold it.
    let mut world = begin(false);
    tell(
        &mut world,
        vec![heard(applied("b", 70)), Change::HostSilent("b".into()), Change::Gone(FactRef::Address(ip(AT)))],
    );
    tell(&mut world, vec![released(82), Change::Leads(true), heard(applied("a", 82))]);
    assert!(!is_free(&world));
    tell(&mut world, vec![Change::Gone(FactRef::Host("b".into()))]);
    assert!(is_free(&world));
}

#[test]
fn a_release_that_is_as_it_was_when_the_backup_was_made_ends_as_any_other() {
    let of_shop = || written("192.0.2.11", &[&shop()], AddressState::Held, 65);
    let mut world = controller(vec![pool(PUBLIC), put(&shop()), of_shop(), released(60)]);
    let says = |applied_| heard(HostReport { holds: [ip(AT)].into(), ..applied("a", applied_) });
    tell(
        &mut world,
        vec![Change::Leads(true), says(65), Change::SourceRestored, of_shop(), released(60), says(65)],
    );
    tell(&mut world, synced());
    assert!(is_releasing(&world));
    tell(&mut world, vec![heard(applied("a", 65))]);
    assert!(is_free(&world));
}

/// Whoever led let it go in order.
#[test]
fn a_controller_that_leads_later_keeps_nothing_that_another_has_freed() {
    let mut world = after_the_backup();
    tell(
        &mut world,
        vec![Change::Leads(false), Change::SourceRestored, put(&shop()), missing(&other()), gone()],
    );
    tell(&mut world, vec![heard(applied("a", 70))]);
    tell(&mut world, synced());
    tell(&mut world, vec![released(82), heard(applied("a", 82)), Change::Gone(FactRef::Address(ip(AT)))]);
    tell(&mut world, vec![Change::Leads(true)]);
    assert_eq!(owners(&world, AT), [owner(&shop())], "the lowest that is free");
}

/// It was given, and nobody knows whether that was written.
#[test]
fn what_was_under_way_when_the_store_was_set_back_counts_as_given() {
    let mut world = controller(vec![pool(PUBLIC), heard(applied("a", 5)), Change::Leads(true)]);
    world.apply(put(&other()));
    assert_eq!(owners(&world, AT), [owner(&other())]);
    tell(&mut world, vec![Change::SourceRestored, put(&shop()), missing(&other()), heard(applied("a", 5))]);
    tell(&mut world, synced());
    assert!(is_releasing(&world));
    assert_eq!(owners(&world, "192.0.2.11"), [owner(&shop())]);
}

#[test]
fn a_store_that_is_set_back_twice_loses_nothing_of_the_first_time() {
    let mut world = after_the_backup();
    tell(&mut world, vec![Change::SourceRestored, put(&shop()), missing(&other()), gone()]);
    tell(&mut world, vec![Change::SourceRestored, put(&shop()), heard(applied("a", 70))]);
    tell(&mut world, synced());
    assert!(is_releasing(&world));
    tell(
        &mut world,
        vec![released(82), Change::SourceRestored, put(&shop()), gone(), heard(applied("a", 70))],
    );
    tell(&mut world, synced());
    assert!(is_releasing(&world));
    tell(&mut world, vec![released(81), heard(applied("a", 81))]);
    assert!(is_free(&world));
}

#[test]
fn what_a_host_said_that_was_silent_is_not_believed_later() {
    let mut world = after_the_backup();
    tell(&mut world, vec![Change::HostSilent("a".into())]);
    tell(&mut world, vec![Change::SourceRestored, put(&shop()), missing(&other()), gone()]);
    tell(&mut world, synced());
    tell(&mut world, vec![released(82), written("192.0.2.11", &[&shop()], AddressState::Held, 600)]);
    tell(&mut world, vec![heard(applied("a", 500))]);
    assert!(!is_free(&world));
    tell(&mut world, vec![heard(applied("a", 600))]);
    assert!(is_free(&world));
}

/// It was cut off, and what it was about to say is written when it comes back, a moment before it notices.
#[test]
fn what_a_host_said_before_is_not_believed_later_either() {
    let mut world = after_the_backup();
    tell(&mut world, vec![Change::SourceRestored, put(&shop()), missing(&other()), gone()]);
    tell(
        &mut world,
        vec![heard(applied("a", 70)), written("192.0.2.11", &[&shop()], AddressState::Held, 80)],
    );
    tell(&mut world, synced());
    tell(&mut world, vec![released(82), written("192.0.2.11", &[&shop()], AddressState::Held, 600)]);
    tell(&mut world, vec![heard(applied("a", 500))]);
    assert!(!is_free(&world));
    tell(&mut world, vec![heard(applied("a", 600))]);
    assert!(is_free(&world));
}
