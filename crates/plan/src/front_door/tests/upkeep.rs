//! What changes is looked at again, and nothing else.

use std::sync::Arc;

use seaway_model::{
    Change, Config, Fact, Outcome, Owner, Reason, Unit, WorkItem,
    config::{FrontDoor, OpenPolicy},
    fact::{ResolvedName, ServiceKind},
    outcome::{ServingSocket, UnitState},
};
use seaway_testkit::facts::{self, ip};

use super::scene::*;
use crate::{dry_run, front_door};

#[test]
fn an_endpoint_that_changes_dirties_its_pool_alone() {
    let (web, cart) = (service("web", &[80]), service("cart", &[80]));
    let mut world = world(Config::default(), [put(&web), put(&cart), backed(&web), backed(&cart)]);
    let mut slice =
        facts::slice("web", ("p80", 80), vec![facts::endpoint("10.0.0.1"), facts::endpoint("10.0.0.2")]);
    slice.object.name = "web-1".into();
    let dirt = world.apply(facts::put_slice(&slice));
    let (pools, others): (Vec<&WorkItem>, Vec<&WorkItem>) =
        dirt.iter().partition(|it| matches!(it, WorkItem::Pool(..)));
    let [WorkItem::Pool(unit, id)] = pools[..] else { panic!("{dirt:?}") };
    assert_eq!((unit, id.to_string()), (&door(), "default/web:80".to_owned()));
    assert_eq!(world.member_pool(unit, id).expect("it is there").members.len(), 2);
    assert!(others.iter().all(|it| matches!(it, WorkItem::Unit(Unit::Status(_)))), "{others:?}");
}

#[test]
fn what_is_told_again_unchanged_dirties_nothing() {
    let web = service("web", &[80]);
    let mut world = world(Config::default(), [put(&web), backed(&web)]);
    assert_eq!(world.apply(put(&web)), []);
    assert_eq!(world.apply(backed(&web)), []);
}

#[test]
fn the_last_to_go_shuts_the_door_and_the_first_to_come_opens_it() {
    let web = service("web", &[80]);
    let mut world = world(Config::default(), [put(&web), backed(&web)]);
    let dirt = world.apply(gone(&web));
    assert!(dirt.contains(&WorkItem::Unit(door())), "{dirt:?}");
    assert!(load_balancer(&world).is_none());
    assert_eq!(world.status(&front_door::owner()), None);
    let dirt = world.apply(put(&web));
    assert!(dirt.contains(&WorkItem::Unit(door())), "{dirt:?}");
    assert_eq!(listener(&world).rules.len(), 1);
}

#[test]
fn a_new_configuration_holds_at_once() {
    let web = service("web", &[80]);
    let mut world = world(Config::default(), [put(&web), backed(&web)]);
    let moved = FrontDoor { port: 8080, addresses: vec![ip("127.0.0.1")], ..FrontDoor::default() };
    let dirt = world.apply(Change::Config(Arc::new(with(moved))));
    assert!(dirt.contains(&WorkItem::Unit(door())), "{dirt:?}");
    assert_eq!(listener(&world).port, 8080);
    assert_eq!(load_balancer(&world).expect("open").binds.len(), 1);
    world.apply(Change::Config(Arc::new(with(FrontDoor {
        opens: OpenPolicy::Never,
        ..FrontDoor::default()
    }))));
    assert!(load_balancer(&world).is_none());
}

#[test]
fn a_name_outside_is_resolved_for_it() {
    let mut outside = service("web", &[80]);
    outside.kind = ServiceKind::ExternalName("web.example".into());
    let mut world = world(Config::default(), [put(&outside)]);
    let asked = Unit::Name("web.example".into());
    assert_eq!(world.desire(&asked), seaway_model::Desired::Name("web.example".into()));
    let answer = ResolvedName { name: "web.example".into(), addresses: vec![ip("198.51.100.1")] };
    let dirt = world.apply(Change::Put(Fact::Name(Arc::new(answer))));
    assert!(dirt.iter().any(|it| matches!(it, WorkItem::Pool(..))), "{dirt:?}");
    assert_eq!(load_balancer(&world).expect("open").pools.values().next().expect("one").members.len(), 1);
    world.apply(gone(&outside));
    assert_eq!(world.desire(&asked), seaway_model::Desired::Absent);
}

#[test]
fn a_port_that_cannot_be_opened_is_told_of_the_door_alone() {
    let web = service("web", &[80]);
    let mut world = world(Config::default(), [put(&web), backed(&web)]);
    let owner = front_door::owner();
    let problem = seaway_model::Problem::new(owner.object(), Reason::NotPermitted, "not for you");
    let outcome = |problems, serving| {
        Change::Outcome(Outcome { unit: door(), state: UnitState::Done, facts: vec![], problems, serving })
    };
    let dirt = world.apply(outcome(vec![(owner.clone(), problem.clone())], vec![]));
    assert!(dirt.contains(&WorkItem::Unit(Unit::Status(owner.clone()))), "{dirt:?}");
    let status = world.status(&owner).expect("it is open");
    assert_eq!((status.ready, status.problems), (false, vec![problem]));
    let of_web: Owner = facts::owner(&web);
    let status = world.status(&of_web).expect("it is there");
    assert_eq!((status.ready, status.problems.len(), status.members), (false, 0, 1));

    let serving = vec![ServingSocket { ip: ip("0.0.0.0"), protocol: seaway_model::L4::Tcp, port: 80 }];
    world.apply(outcome(vec![], serving.clone()));
    assert!(world.status(&owner).expect("open").ready);
    let status = world.status(&of_web).expect("it is there");
    assert_eq!((status.ready, status.serving), (true, serving));
}

#[test]
fn the_order_in_which_things_are_told_makes_no_difference() {
    let hosted = saying(service("b/web", &[80]), &[("seaway.dev/host", "a.example")]);
    let told = [
        put(&service("a/web", &[80, 81])),
        put(&born(hosted.clone(), 3)),
        put(&saying(service("c/cart", &[80]), &[("seaway.dev/path", "/web")])),
        backed(&hosted),
    ];
    let planned = |turn: usize| {
        let mut told = told.to_vec();
        told.rotate_left(turn);
        let world = world(Config::default(), told);
        (listener(&world), problems(&world))
    };
    let expected = planned(0);
    for turn in 1..told.len() {
        assert_eq!(planned(turn), expected);
    }
    // Told one after the other to a World that knows all else already, too.
    let mut late = world(Config::default(), []);
    dry_run(&mut late, told.iter().rev().cloned());
    assert_eq!((listener(&late), problems(&late)), expected);
}
