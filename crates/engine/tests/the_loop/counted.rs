//! What the loop counts for metrics.

use super::*;
use seaway_engine::DriverCounts;

fn counts(running: &Running) -> DriverCounts {
    let [counts] = running.handle.counts().drivers().try_into().expect("there is one driver");
    counts
}

#[tokio::test(start_paused = true)]
async fn units_that_wait_and_attempts_that_fail_are_counted_by_driver() {
    let running = Running::start(Script { panic: 1, wait: 2, fail: 4, ..Script::default() });
    running.tell(told().into_iter().chain(synced())).await;
    running.until("the last try", |it| it.applied.len() == 5).await;
    running.until("nothing is left to do", |_| counts(&running).working == 0).await;
    let done = counts(&running);
    assert_eq!((done.waiting, done.oldest), (0, None));
    assert_eq!(done.failures, 3, "a panic and two failures: to wait is none");
    assert!(done.times.count() >= 4 && done.times.sum >= 4_000, "each took a millisecond: {done:?}");
    running.stop().await;
}

#[tokio::test(start_paused = true)]
async fn what_waits_for_room_is_counted_with_its_age() {
    let running = Running::start(Script::default());
    let services = (0..60).map(|number| {
        put(&service(
            &format!("s{number}"),
            &[("", 1_000 + number, seaway_model::fact::TargetPort::Number(80))],
        ))
    });
    running.tell(services.chain([host(&["192.0.2.5"], &[])]).chain(synced())).await;
    running.until("some wait", |_| counts(&running).oldest >= Some(Duration::from_millis(1))).await;
    let waiting = counts(&running);
    assert_eq!(waiting.driver, "played");
    assert!(waiting.waiting > 0 && waiting.working > 0 && waiting.waiting < 130, "{waiting:?}");
    running.until_serving().await;
    running.until("nothing is left to do", |_| counts(&running).working == 0).await;
    assert_eq!((counts(&running).oldest, counts(&running).waiting), (None, 0));
    running.stop().await;
}
