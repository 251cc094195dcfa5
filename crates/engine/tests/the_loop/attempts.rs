//! One attempt, as a dry run, a purge or the suite of all drivers makes it; and what one leaves that comes to no end.

use std::sync::atomic::AtomicUsize;

use seaway_engine::{Attempt, Gate, dry_run, work_once};
use seaway_model::fact::TargetPort;

use super::*;

fn unit() -> Unit {
    Unit::LoadBalancer(Place::Host { name: HOST.into(), driver: "native".into() }, LbKey::Of(owner(&shop())))
}

fn played(more: &[&'static str]) -> Played {
    Played(Arc::new(Mutex::new(Script { more: more.to_vec(), ..Script::default() })))
}

fn applied(played: &Played) -> Vec<String> {
    played.with(|it| it.applied.iter().map(|(.., step)| step.clone()).collect())
}

fn printed(attempt: Option<Attempt<Played>>) -> Vec<String> {
    let attempt = attempt.expect("it is not left alone");
    assert_eq!(attempt.report.serving.len(), 1, "it concludes");
    attempt.steps.iter().map(ToString::to_string).collect()
}

#[tokio::test(start_paused = true)]
async fn a_dry_run_tells_the_steps_that_work_takes_and_takes_none() {
    let driver = played(&["tune"]);
    let told = dry_run(&driver, &unit(), &Desired::Absent).await.expect("no failure");
    assert_eq!(printed(told), ["remove", "tune"]);
    assert_eq!(applied(&driver), [""; 0], "nothing is written");
    let done = work_once(&driver, &unit(), &Desired::Absent, &Gate::of_operator()).await.expect("no failure");
    assert_eq!(printed(done), ["remove", "tune"]);
    assert_eq!(applied(&driver), ["remove", "tune"]);
}

#[tokio::test(start_paused = true)]
async fn what_is_released_is_left_alone_by_every_way() {
    let driver = played(&[]);
    assert!(dry_run(&driver, &unit(), &Desired::Released).await.expect("no failure").is_none());
    let done = work_once(&driver, &unit(), &Desired::Released, &Gate::of_operator()).await;
    assert!(done.expect("no failure").is_none());
    assert_eq!(driver.with(|it| it.at_work.len()), 0, "it is not even looked at");
}

#[tokio::test(start_paused = true)]
async fn an_attempt_outside_the_loop_stops_where_its_fence_does() {
    let driver = played(&["tune", "polish"]);
    // Once before all steps, and once before each.
    let asked = AtomicUsize::new(0);
    let fence = Fence::new(move || asked.fetch_add(1, Ordering::Relaxed) < 3);
    let done = work_once(&driver, &unit(), &Desired::Absent, &Gate::fenced(fence)).await;
    assert!(matches!(done, Err(Failure::Wait { .. })), "another leads");
    assert_eq!(applied(&driver), ["remove", "tune"]);
}

#[tokio::test(start_paused = true)]
async fn what_waits_for_a_change_is_looked_at_by_a_change_and_by_no_time_but_the_resync() {
    let running = Running::start(Script { lack: 2, ..Script::default() });
    running.tell(told().into_iter().chain(synced())).await;
    running.until("a first try", |it| it.applied.len() == 1).await;
    running.until_serving().await;
    tokio::time::sleep(Settings::default().resync / 3).await;
    assert_eq!(running.played.with(|it| it.applied.len()), 1, "no time helps");
    let begin = Instant::now();
    let changed = service("shop", &[("", 8_081, TargetPort::Number(80))]);
    running.tell([put(&changed)]).await;
    running.until("a try at once", |it| it.applied.len() == 2).await;
    assert!(begin.elapsed() < Duration::from_secs(1), "{:?}", begin.elapsed());
    running.until("a try by the resync, should the change be missed", |it| it.applied.len() == 3).await;
    assert!(begin.elapsed() <= Settings::default().resync + Duration::from_secs(1));
    running.stop().await;
}

#[tokio::test(start_paused = true)]
async fn an_attempt_that_waits_or_fails_leaves_the_last_report_valid() {
    let running = Running::start(Script::default());
    running.tell(told().into_iter().chain(synced())).await;
    running.until_serving().await;
    let serving =
        async || running.handle.ask(|world| world.status(&owner(&shop())).map(|it| it.serving)).await;
    let before = serving().await.expect("the engine runs").expect("it has a status");
    assert_eq!(before.len(), 1);
    running.played.with(|it| (it.lack, it.fail) = (1, 3));
    let mut target = 80;
    for tries in [2, 3, 4] {
        target += 1;
        let changed = service("shop", &[("", 8_080, TargetPort::Number(target))]);
        running.tell([put(&changed)]).await;
        running.until("another try", |it| it.applied.len() >= tries).await;
        assert_eq!(serving().await, Some(Some(before.clone())));
    }
    running.stop().await;
}
