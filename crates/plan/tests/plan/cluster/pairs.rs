//! Services of two families, where a cloud may have a load balancer for each.

use seaway_model::{
    Change, Desired, Outcome, Owner, Unit, WorkItem,
    fact::{Families, FamilyPolicy, FinalizerOwner, Service},
    load_balancer::Family,
    outcome::{ServingSocket, UnitState},
};
use seaway_plan::World;
use seaway_testkit::facts::{ip, owner, put};

use super::clouds::{clouded, second, unit, usual, world};

fn of_both(policy: FamilyPolicy) -> Service {
    let families = Families { policy, first: Some(Family::V6), second: Some(Family::V4) };
    Service { families, held: FinalizerOwner::ByUs, ..clouded(&[]) }
}

fn units(owner: &Owner) -> [Unit; 2] {
    [unit(owner), second(owner, Family::V4)]
}

fn told(world: &mut World, unit: Unit, state: UnitState, at: &[&str]) -> Vec<WorkItem> {
    let serving =
        at.iter().map(|it| ServingSocket { ip: ip(it), protocol: seaway_model::L4::Tcp, port: 8080 });
    let serving = serving.collect();
    world.apply(Change::Outcome(Outcome { unit, state, facts: vec![], problems: vec![], serving }))
}

#[test]
fn both_are_wanted_and_their_addresses_are_told_the_first_family_first() {
    let shop = of_both(FamilyPolicy::Require);
    let shop_is = owner(&shop);
    let mut world = world(usual(), vec![put(&shop)]);
    for unit in units(&shop_is) {
        assert!(matches!(world.desire(&unit), Desired::LoadBalancer(_)), "{unit}");
    }
    told(&mut world, second(&shop_is, Family::V4), UnitState::Done, &["192.0.2.7"]);
    told(&mut world, unit(&shop_is), UnitState::Done, &["fd00::7"]);
    let Desired::Status(status) = world.desire(&Unit::Status(shop_is)) else { panic!("it has none") };
    assert_eq!(status.addresses, [ip("fd00::7"), ip("192.0.2.7")]);
    assert!(status.ready);
}

#[test]
fn who_asks_for_one_again_keeps_its_first_and_the_second_goes() {
    let shop = of_both(FamilyPolicy::Prefer);
    let shop_is = owner(&shop);
    let mut world = world(usual(), vec![put(&shop)]);
    let single = Families { policy: FamilyPolicy::Single, first: Some(Family::V6), second: None };
    let dirt = world.apply(put(&Service { families: single, ..shop.clone() }));
    let [first, second] = units(&shop_is);
    assert!(dirt.contains(&WorkItem::Unit(second.clone())), "{dirt:?}");
    assert_eq!(world.desire(&second), Desired::Absent);
    assert!(matches!(world.desire(&first), Desired::LoadBalancer(_)));
    // Found in the cloud by one who knows of no second.
    told(&mut world, second.clone(), UnitState::Absent, &[]);
    assert_eq!(world.apply(Change::FoundInCloud(second.clone())), [WorkItem::Unit(second.clone())]);
    world.apply(put(&shop));
    assert_eq!(world.apply(Change::FoundInCloud(second)), [], "it is wanted again");
}

#[test]
fn a_service_that_leaves_is_held_until_both_were_seen_absent_also_one_it_had_before() {
    for families in [
        of_both(FamilyPolicy::Prefer).families,
        Families { second: None, ..of_both(FamilyPolicy::Single).families },
    ] {
        let shop = Service { families, ..of_both(FamilyPolicy::Prefer) };
        let (hold, [first, second]) = (Unit::Finalizer(owner(&shop)), units(&owner(&shop)));
        let mut world = world(usual(), vec![put(&shop)]);
        world.apply(put(&Service { leaving: true, ..shop }));
        told(&mut world, first, UnitState::Absent, &[]);
        assert_eq!(world.desire(&hold), Desired::Finalizer);
        let dirt = told(&mut world, second, UnitState::Absent, &[]);
        assert!(dirt.contains(&WorkItem::Unit(hold.clone())), "{dirt:?}");
        assert_eq!(world.desire(&hold), Desired::Absent);
    }
}
