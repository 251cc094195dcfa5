//! What a cloud has for owners whose end nobody saw is reported; what was seen to be deleted goes, also if it comes back.

use std::sync::Arc;

use seaway_model::{
    Change, Config, Deletion, Desired, Outcome, Owner, Problem, Reason, Time, Unit, WorkItem,
    config::{CloudDefaults, OrphanPolicy},
    fact::{FactRef, Families, FamilyPolicy, FinalizerOwner, Service, ServiceKind},
    load_balancer::Family,
    outcome::UnitState,
};
use seaway_plan::{Roles, World};
use seaway_testkit::facts::{owner, put, synced};

use super::clouds::{InCloud, clouded, group, second, unit};

const CLASS: &str = "seaway.dev/somecloud";
const HOUR: u64 = 3_600_000;

fn config(orphans: OrphanPolicy) -> Arc<Config> {
    let usual = CloudDefaults { classless: true, groups: true, ..CloudDefaults::default() };
    Arc::new(Config { clouds: [(CLASS.into(), Arc::new(usual))].into(), orphans, ..Config::default() })
}

fn shop() -> Service {
    Service { held: FinalizerOwner::ByUs, ..clouded(&[]) }
}

/// A controller that begins at this hour, with what the cluster says then.
fn begins(hour: u64, services: &[Service]) -> World {
    let roles = Roles { allocate: true, host: None };
    let mut world = World::new(roles, vec![Arc::new(InCloud)], config(OrphanPolicy::Report));
    world.apply(Change::Time(Time(hour * HOUR)));
    for change in services.iter().map(put).chain(synced()) {
        world.apply(change);
    }
    world
}

/// All that a cloud has for this Service.
fn found(owner: &Owner) -> [Unit; 3] {
    [unit(owner), second(owner, Family::V6), group()]
}

fn find(world: &mut World, units: &[Unit]) {
    world.apply(Change::CloudInventory(units.to_vec()));
    units.iter().for_each(|it| _ = world.apply(Change::FoundInCloud(it.clone())));
}

fn seen_absent(world: &mut World, unit: &Unit) {
    let unit = unit.clone();
    let state = UnitState::Absent;
    world.apply(Change::Outcome(Outcome { unit, state, facts: vec![], problems: vec![], serving: vec![] }));
}

/// Its deletion waits: the limit is reached.
fn limited(world: &mut World, unit: &Unit, owner: &Owner) -> Vec<WorkItem> {
    let problem = Problem::new(owner.object(), Reason::DeletionLimit, "the load balancer is not deleted now");
    let (state, problems) = (UnitState::UserMustFix, vec![(owner.clone(), problem)]);
    world.apply(Change::Outcome(Outcome {
        unit: unit.clone(),
        state,
        facts: vec![],
        problems,
        serving: vec![],
    }))
}

fn says_limit(world: &World, owner: &Owner) -> bool {
    world.status(owner).is_some_and(|it| it.problems.iter().any(|it| it.reason == Reason::DeletionLimit))
}

#[test]
fn a_service_that_is_no_load_balancer_any_more_says_that_the_limit_keeps_what_it_had() {
    for held in [FinalizerOwner::ByUs, FinalizerOwner::ByOthers] {
        let was = Service { held, ..shop() };
        let (owner, its) = (owner(&was), unit(&owner(&was)));
        let status = WorkItem::Unit(Unit::Status(owner.clone()));
        let plain = Service { kind: ServiceKind::ClusterIp, ..was.clone() };
        // While it runs, and by a restart.
        let mut running = begins(1, &[was]);
        running.apply(put(&plain));
        let mut restarted = begins(1, &[plain]);
        restarted.apply(Change::FoundInCloud(its.clone()));
        for world in [&mut running, &mut restarted] {
            assert!(!says_limit(world, &owner));
            assert!(limited(world, &its, &owner).contains(&status), "{held:?}");
            assert!(says_limit(world, &owner));
            let told = world.status(&owner).expect("it says so");
            assert!(!told.ready && told.addresses.is_empty(), "a Service of this type has no address");
            assert!(world.problems().iter().any(|it| it.reason == Reason::DeletionLimit));
            let outcome = Outcome {
                unit: its.clone(),
                state: UnitState::Absent,
                facts: vec![],
                problems: vec![],
                serving: vec![],
            };
            assert!(world.apply(Change::Outcome(outcome)).contains(&status), "{held:?}");
            assert!(!says_limit(world, &owner), "what was said is taken back");
        }
    }
}

#[test]
fn a_service_that_is_released_is_told_nothing_of_a_limit_for_others_write_its_status() {
    let was = Service { class: None, held: FinalizerOwner::ByOthers, ..shop() };
    let mut world = begins(1, std::slice::from_ref(&was));
    let nobodys = Arc::new(CloudDefaults { groups: true, ..CloudDefaults::default() });
    let clouds = [(CLASS.into(), nobodys)].into();
    world.apply(Change::Config(Arc::new(Config { clouds, classless: false, ..Config::default() })));
    let dirt = limited(&mut world, &unit(&owner(&was)), &owner(&was));
    assert!(!dirt.contains(&WorkItem::Unit(Unit::Status(owner(&was)))), "{dirt:?}");
}

fn orphans(world: &World) -> usize {
    world.problems().iter().filter(|it| it.reason == Reason::Orphan).count()
}

fn reference(service: &Service) -> FactRef {
    FactRef::Object(owner(service).object())
}

#[test]
fn a_cluster_that_was_restored_from_a_backup_deletes_nothing() {
    let single = Families { policy: FamilyPolicy::Single, first: Some(Family::V4), second: None };
    let before = [
        // Made after the backup.
        None,
        // No load balancer yet when the backup was made; and one of one family.
        Some(Service { kind: ServiceKind::ClusterIp, held: FinalizerOwner::No, ..shop() }),
        Some(Service { families: single, ..shop() }),
    ];
    for service in before {
        let mut clone = begins(1, service.as_slice());
        let units = found(&owner(&shop()));
        for _audit in 0..3 {
            find(&mut clone, &units);
            for unit in &units {
                assert!(clone.desire(unit) != Desired::Absent, "{service:?}: {unit}");
            }
        }
        assert!(orphans(&clone) > 0, "{service:?}");
    }
}

#[test]
fn a_store_that_was_set_back_under_a_controller_that_runs_deletes_nothing() {
    let mut world = begins(1, &[shop()]);
    let units = found(&owner(&shop()));
    // Listed again, the Service is not there.
    world.apply(Change::Missing(reference(&shop())));
    for unit in [&units[0], &units[2]] {
        assert_eq!(world.desire(unit), Desired::Released, "{unit}");
    }
    assert_eq!(orphans(&world), 2);
    // It comes back, and all is as it was.
    world.apply(put(&shop()));
    assert!(matches!(world.desire(&units[0]), Desired::LoadBalancer(_)));
    assert!(matches!(world.desire(&units[2]), Desired::SecurityGroup(_)));
    assert_eq!(orphans(&world), 0);
}

#[test]
fn a_deletion_that_was_seen_takes_everything_along_also_after_a_restart() {
    let leaving = Service { leaving: true, ..shop() };
    let otherwise = Service { kind: ServiceKind::ClusterIp, ..shop() };
    for end in [&leaving, &otherwise] {
        let mut running = begins(1, &[shop()]);
        running.apply(put(end));
        for mut world in [running, begins(1, std::slice::from_ref(end))] {
            let units = found(&owner(&shop()));
            find(&mut world, &units);
            for unit in &units {
                assert_eq!(world.desire(unit), Desired::Absent, "{end:?}: {unit}");
            }
            assert_eq!(orphans(&world), 0);
        }
    }
    // One that nobody holds is gone at once.
    let mut world = begins(1, &[Service { held: FinalizerOwner::No, ..shop() }]);
    world.apply(Change::Gone(reference(&shop())));
    assert_eq!(world.desire(&unit(&owner(&shop()))), Desired::Absent);
}

#[test]
fn what_comes_back_within_a_day_goes_again_whoever_leads_then() {
    let mut first = begins(1, &[shop()]);
    first.apply(put(&Service { leaving: true, ..shop() }));
    let units = found(&owner(&shop()));
    units.iter().for_each(|it| seen_absent(&mut first, it));
    first.apply(Change::Gone(reference(&shop())));
    let kept = first.deletions();
    assert!(kept.iter().any(|it| it.of == shop().meta.uid && it.at == Time(HOUR)), "{kept:?}");
    for (hour, wanted) in [(2, Desired::Absent), (24, Desired::Absent), (26, Desired::Released)] {
        let mut next = begins(hour, &[]);
        // An audit may be sooner than the storage.
        find(&mut next, &units[..1]);
        assert_eq!(next.desire(&units[0]), Desired::Released);
        let before = next.recalls();
        let dirt = next.apply(Change::Deletions(kept.clone()));
        assert_eq!(next.recalls(), before + 1);
        assert_eq!(next.desire(&units[0]), wanted, "at {hour}");
        assert_eq!(dirt.contains(&WorkItem::Unit(units[0].clone())), wanted == Desired::Absent, "at {hour}");
        assert_eq!(orphans(&next), usize::from(wanted == Desired::Released), "at {hour}");
    }
    // Nor is a Service that lives again taken for one that was deleted.
    let mut again = begins(2, &[shop()]);
    again.apply(Change::Deletions(kept));
    again.apply(Change::Missing(reference(&shop())));
    assert_eq!(again.desire(&units[0]), Desired::Released);
}

#[test]
fn what_is_remembered_is_bounded_and_forgotten_after_a_day() {
    let mut world = begins(1, &[]);
    let many = (0..6_000).map(|it| Deletion { of: format!("{it}").into(), at: Time(HOUR + it) });
    world.apply(Change::Deletions(many.collect()));
    assert!(world.deletions().len() <= 5_000);
    assert!(world.deletions().iter().any(|it| *it.of == *"5999"), "the oldest go first");
    world.apply(Change::Time(Time(26 * HOUR)));
    assert!(world.deletions().is_empty());
}

#[test]
fn the_group_stays_as_long_as_an_orphan_may_need_it_and_nobody_waits_for_that() {
    let mut other = shop();
    (other.meta.name, other.meta.uid) = ("other".into(), "other".into());
    let mut world = begins(1, std::slice::from_ref(&other));
    let orphan = unit(&owner(&shop()));
    find(&mut world, &[unit(&owner(&other)), orphan.clone(), group()]);
    world.apply(put(&Service { leaving: true, ..other.clone() }));
    assert_eq!(world.desire(&group()), Desired::Released);
    assert_eq!(
        world.desire(&Unit::Finalizer(owner(&other))),
        Desired::Finalizer,
        "its load balancer is there"
    );
    seen_absent(&mut world, &unit(&owner(&other)));
    seen_absent(&mut world, &second(&owner(&other), Family::V6));
    assert_eq!(
        world.desire(&Unit::Finalizer(owner(&other))),
        Desired::Absent,
        "it does not wait for the group"
    );
    // Somebody deletes the orphan.
    let dirt = world.apply(Change::CloudInventory(vec![group()]));
    assert_eq!(orphans(&world), 0);
    assert!(dirt.contains(&WorkItem::Unit(group())), "{dirt:?}");
    assert_eq!(world.desire(&group()), Desired::Absent);
}

#[test]
fn who_wants_orphans_deleted_says_so() {
    let mut world = begins(1, &[]);
    let units = found(&owner(&shop()));
    find(&mut world, &units);
    let dirt = world.apply(Change::Config(config(OrphanPolicy::Delete)));
    for unit in &units {
        assert!(dirt.contains(&WorkItem::Unit(unit.clone())), "{unit}");
        assert_eq!(world.desire(unit), Desired::Absent, "{unit}");
    }
    assert_eq!(orphans(&world), 0);
}
