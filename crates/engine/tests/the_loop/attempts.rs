//! One attempt, as a dry run, a purge or the suite of all drivers makes it.

use std::sync::atomic::AtomicUsize;

use seaway_engine::{Attempt, Gate, dry_run, work_once};

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
    assert_eq!(attempt.conclusion.serving.len(), 1, "it concludes");
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
