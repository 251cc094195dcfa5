//! A host that leaves.

use std::sync::Arc;

use seaway_engine::{Drivers, Engine, Settings};
use seaway_model::Config;
use seaway_plan::{Roles, World};
use seaway_testkit::facts::{HOST, put, shop};
use tokio::{sync::watch, task::yield_now};

/// Questions overtake changes, and an end overtakes both.
#[tokio::test(start_paused = true)]
async fn who_leaves_dns_waits_until_the_drain_was_learnt_behind_all_that_was_told_before() {
    let roles = Roles { allocate: true, host: Some(HOST.into()) };
    let world = World::new(roles, Vec::new(), Arc::new(Config::default()));
    let (engine, handle) = Engine::new(world, Drivers::default(), Settings::default());
    for _ in 0..3_000 {
        handle.changes().send(put(&shop())).await.expect("there is room");
    }
    let (stop, stopped) = watch::channel(false);
    let leaving = tokio::spawn(async move {
        handle.leave_dns().await;
        _ = stop.send(true);
        handle
    });
    // Its first question is there before the engine runs.
    for _ in 0..10 {
        yield_now().await;
    }
    let world = engine.run(stopped).await;
    assert!(world.has_left_dns(), "it ended, and had not heard of the drain");
    leaving.await.expect("no panic");
}
