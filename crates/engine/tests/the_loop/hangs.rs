//! What a driver does never comes back, or blocks its thread.

use std::sync::mpsc::channel;

use seaway_watchdog::{PartFailure, Watchdog, WatchdogTimings};

use super::*;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum At {
    Look,
    Step,
    Swap,
}

impl Played {
    pub(super) async fn may_be_lost(&self, at: At) {
        if self.with(|it| it.lose.take_if(|lost| *lost == at).is_some()) {
            std::future::pending::<()>().await;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn what_never_comes_back_is_given_up_told_and_tried_again() {
    for at in [At::Look, At::Step, At::Swap] {
        let running = Running::start(Script { lose: Some(at), ..Script::default() });
        let begin = Instant::now();
        running.tell(told().into_iter().chain(synced())).await;
        if at == At::Swap {
            running.until_serving().await;
            let more = vec![endpoint("10.0.0.1"), endpoint("10.0.0.2")];
            running.tell([put_slice(&slice("shop", ("", 80), more))]).await;
        }
        running.until("it is lost", |it| it.lose.is_none()).await;
        let failed = async {
            let said =
                |world: &World| world.overview().into_iter().next().expect("a Service").status.problems;
            loop {
                let problems = running.handle.ask(said).await.expect("the engine runs");
                if let Some(problem) = problems.into_iter().find(|it| it.reason == Reason::Failed) {
                    return problem.message;
                }
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        };
        let why = timeout(Duration::from_secs(60), failed).await.expect("it is told");
        assert!(why.contains("the driver Played did not finish within 10s"), "{at:?}: {why}");
        assert!(begin.elapsed() < Duration::from_secs(11), "{at:?}: {:?}", begin.elapsed());
        let steps = if at == At::Swap { 2 } else { 1 };
        running.until("it is tried again", |it| it.applied.len() >= steps).await;
        running.until_serving().await;
        let said = |world: &World| world.overview().into_iter().next().expect("a Service").status.problems;
        let left = running.handle.ask(said).await.expect("the engine runs");
        assert!(left.iter().all(|it| it.reason != Reason::Failed), "{left:?}");
        running.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_driver_that_blocks_its_thread_is_found_by_the_watchdog() {
    let (release, until) = channel();
    let played = Played(Arc::new(Mutex::new(Script { block: Some(until), ..Script::default() })));
    let roles = Roles { allocate: true, host: Some(HOST.into()) };
    let world = World::new(roles, vec![Arc::new(OnHost)], Arc::new(Config::default()));
    let (engine, handle) = Engine::new(world, Drivers::default().with(played), Settings::default());
    let (tell, found) = channel();
    let pace = WatchdogTimings { look: Duration::from_millis(20), limit: Duration::from_millis(400) };
    let watchdog = Watchdog::start(pace, move |fault| drop(tell.send(fault.clone()))).expect("a thread");
    let _watching = watchdog.watch(engine.parts());
    let (stop, stopped) = watch::channel(false);
    let task = tokio::spawn(engine.run(stopped));
    for change in told().into_iter().chain(synced()) {
        handle.changes().send(change).await.expect("the engine runs");
    }
    let found = tokio::task::spawn_blocking(move || found.recv_timeout(Duration::from_secs(120)));
    let fault = PartFailure { part: "the driver Played".into(), hangs: true };
    assert_eq!(found.await.expect("no panic"), Ok(fault));
    drop(release);
    stop.send(true).expect("the engine runs");
    task.await.expect("no panic");
}
