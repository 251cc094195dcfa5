use std::sync::mpsc::{Receiver, channel};

use seaway_engine::{Drivers, Engine, Handle, Settings};
use seaway_plan::{Roles, World};
use tokio::sync::watch;

use super::*;

const PATIENCE: Duration = Duration::from_secs(120);

/// Looks often; how long anything takes is not asserted.
fn watchdog() -> (Watchdog, Receiver<PartFailure>) {
    watchdog_that_waits(Duration::from_millis(400))
}

/// What a panic prints may take a while.
fn watchdog_that_waits(limit: Duration) -> (Watchdog, Receiver<PartFailure>) {
    let (tell, told) = channel();
    let pace = WatchdogTimings { look: Duration::from_millis(20), limit };
    (Watchdog::start(pace, move |fault| drop(tell.send(fault.clone()))).unwrap(), told)
}

fn engine(parts: &mut Vec<WatchedPart>) -> (Handle, watch::Sender<bool>) {
    let world = World::new(Roles::default(), Vec::new(), std::sync::Arc::default());
    let (engine, handle) = Engine::new(world, Drivers::default(), Settings::default());
    let (stop, stopped) = watch::channel(false);
    spawn_engine(parts, engine, stopped);
    (handle, stop)
}

fn in_a_runtime<T>(test: impl Future<Output = T>) -> T {
    crate::run::runtime().unwrap().block_on(test)
}

#[test]
fn an_engine_that_hangs_is_found() {
    in_a_runtime(async {
        let mut parts = Vec::new();
        let (handle, _stop) = engine(&mut parts);
        let (watchdog, told) = watchdog();
        let _watching = watchdog.watch(parts);
        let (release, wait) = channel::<()>();
        let asked = tokio::spawn(async move { handle.ask(move |_| _ = wait.recv()).await });
        let found = tokio::task::spawn_blocking(move || told.recv_timeout(PATIENCE)).await.unwrap();
        assert_eq!(found, Ok(PartFailure { part: "the engine".into(), hangs: true }));
        drop(release);
        asked.await.unwrap();
    });
}

#[test]
fn an_engine_that_dies_is_found_and_one_that_is_told_to_end_is_not() {
    in_a_runtime(async {
        let mut parts = Vec::new();
        let (_told_to, stop) = engine(&mut parts);
        let (watchdog, told) = watchdog_that_waits(PATIENCE);
        let watching = watchdog.watch(std::mem::take(&mut parts));
        drop(watching);
        stop.send(true).unwrap();
        let (handle, _stop) = engine(&mut parts);
        let _watching = watchdog.watch(parts);
        let asked = handle.ask(|_| panic!("a test has this engine die")).await;
        assert_eq!(asked, None::<()>);
        let found = tokio::task::spawn_blocking(move || told.recv_timeout(PATIENCE)).await.unwrap();
        assert_eq!(found, Ok(PartFailure { part: "the engine".into(), hangs: false }));
    });
}

#[test]
fn a_task_that_ends_is_found_and_so_is_a_runtime_that_comes_to_no_task() {
    in_a_runtime(async {
        let mut parts = Vec::new();
        spawn("the clock", &mut parts, async {});
        let (dog, told) = watchdog();
        let _watching = dog.watch(parts);
        let found = tokio::task::spawn_blocking(move || told.recv_timeout(PATIENCE)).await.unwrap();
        assert_eq!(found, Ok(PartFailure { part: "the clock".into(), hangs: false }));
    });
    let runtime = crate::run::runtime().unwrap();
    let (tell, told) = channel();
    // Slower than its beat; other tests have threads of the same name, which sleep or run as well.
    let pace = WatchdogTimings { look: Duration::from_secs(1), limit: Duration::from_secs(2) };
    let dog = Watchdog::start(pace, move |fault| drop(tell.send(fault.clone()))).unwrap();
    let _watching = dog.watch([runtime.block_on(async { super::runtime() })]);
    let (releases, blocked): (Vec<_>, Vec<_>) = (0..2).map(|_| channel::<()>()).unzip();
    for wait in blocked {
        runtime.spawn(async move { _ = wait.recv() });
    }
    assert_eq!(told.recv_timeout(PATIENCE).map(|it| it.hangs), Ok(true));
    drop(releases);
}
