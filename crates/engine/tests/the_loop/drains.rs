//! A host that leaves.

use std::{
    future::poll_fn,
    sync::{
        Arc, Mutex,
        mpsc::{Receiver, channel},
    },
    task::Poll,
    time::Duration,
};

use seaway_engine::{Drivers, Engine, Settings};
use seaway_model::{Config, Unit};
use seaway_plan::{Demand, Placement, Roles, World};
use seaway_testkit::facts::{HOST, put, shop, synced};
use tokio::sync::watch;

/// Planning that takes until this host has left, or for so long.
struct Slow(Mutex<Receiver<()>>);

impl Placement for Slow {
    fn units(&self, _: &Demand) -> Vec<Unit> {
        let left = self.0.lock().expect("no test panics while it holds this");
        _ = left.recv_timeout(Duration::from_millis(200));
        Vec::new()
    }
}

/// Questions overtake changes, and an end overtakes both.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_leaves_dns_waits_until_the_drain_was_learnt_behind_all_that_was_told_before() {
    let (tell_left, left) = channel();
    let slow: Arc<dyn Placement> = Arc::new(Slow(Mutex::new(left)));
    let roles = Roles { allocate: true, host: Some(HOST.into()) };
    let world = World::new(roles, vec![slow], Arc::new(Config::default()));
    let (engine, handle) = Engine::new(world, Drivers::default(), Settings::default());
    let told = [put(&shop())].into_iter().chain(synced());
    for change in told.chain((0..3_000).map(|_| put(&shop()))) {
        handle.changes().send(change).await.expect("there is room");
    }
    let (stop, stopped) = watch::channel(false);
    let leaver = handle.clone();
    let mut leaving = Box::pin(async move {
        leaver.leave_dns().await;
        _ = stop.send(true);
        _ = tell_left.send(());
    });
    // Its question is there before the engine runs.
    let first = poll_fn(|context| Poll::Ready(leaving.as_mut().poll(context))).await;
    assert!(first.is_pending());
    let leaving = tokio::spawn(leaving);
    let world = engine.run(stopped).await;
    assert!(world.has_left_dns(), "it ended, and had not heard of the drain");
    leaving.await.expect("no panic");
}
