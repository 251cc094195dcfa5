//! What a driver reported last stays valid while its attempts fail or wait: an error of an API is no outage of a Service.

use std::time::Duration;

use seaway_model::{
    Change, Owner, Problem, Reason, Status,
    outcome::{Outcome, ServingSocket, UnfinishedAttempt, UnitState},
};
use seaway_plan::World;
use seaway_testkit::facts::{ip, owner, put};

use super::clouds::{clouded, unit, usual, world};

const AT: &str = "203.0.113.9";

fn failed() -> UnitState {
    UnitState::Failed { why: "503".into(), retry: Duration::from_secs(1) }
}

fn status(world: &World, owner: &Owner) -> Status {
    world.status(owner).expect("it is ours")
}

#[test]
fn an_attempt_that_fails_or_waits_takes_nothing_back() {
    let shop = clouded(&[]);
    let whose = owner(&shop);
    let unit = unit(&whose);
    let mut world = world(usual(), vec![put(&shop)]);
    let problem = |message| (whose.clone(), Problem::new(whose.object(), Reason::BadAnnotation, message));
    let reported = Outcome {
        unit: unit.clone(),
        state: UnitState::Done,
        facts: Vec::new(),
        problems: vec![problem("as it was")],
        serving: vec![ServingSocket {
            ip: ip(AT),
            protocol: seaway_model::L4::Tcp,
            port: shop.ports[0].port,
        }],
    };
    world.apply(Change::Outcome(reported));
    let before = status(&world, &whose);
    assert!(before.ready && !before.unreported && before.problems.len() == 1, "{before:?}");
    for state in [failed(), UnitState::Pending(Duration::from_secs(1))] {
        world.apply(Change::Unfinished(UnfinishedAttempt { unit: unit.clone(), state, problems: None }));
        assert_eq!(status(&world, &whose), before);
    }
    // What is refused is a wish; what stands goes on serving.
    let problems = Some(vec![problem("refused")]);
    let refused = UnfinishedAttempt { unit: unit.clone(), state: UnitState::UserMustFix, problems };
    world.apply(Change::Unfinished(refused));
    let now = status(&world, &whose);
    assert_eq!((now.ready, &now.serving), (true, &before.serving));
    assert_eq!(now.problems.iter().map(|it| &*it.message).collect::<Vec<_>>(), ["refused"]);

    // A port that nobody reported yet is not served because another was.
    let mut moved = shop.clone();
    moved.ports[0].port = 8443;
    world.apply(put(&moved));
    world.apply(Change::Unfinished(UnfinishedAttempt { unit, state: failed(), problems: None }));
    let now = status(&world, &whose);
    assert_eq!((now.ready, now.serving), (false, Vec::new()));
}

#[test]
fn until_a_driver_has_reported_nobody_knows() {
    let shop = clouded(&[]);
    let whose = owner(&shop);
    let mut world = world(usual(), vec![put(&shop)]);
    world.apply(Change::Unfinished(UnfinishedAttempt {
        unit: unit(&whose),
        state: failed(),
        problems: None,
    }));
    let now = status(&world, &whose);
    assert!(!now.ready && now.unreported, "{now:?}");
    let nobody = Outcome {
        unit: unit(&whose),
        state: UnitState::Done,
        facts: Vec::new(),
        problems: Vec::new(),
        serving: Vec::new(),
    };
    world.apply(Change::Outcome(nobody));
    assert!(!status(&world, &whose).unreported);
}
