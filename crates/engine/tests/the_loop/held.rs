//! An engine that waits while another process works in its place.

use seaway_engine::Phase;
use seaway_model::fact::TargetPort;
use seaway_testkit::facts::{put, service, synced};

use super::{Running, Script, told};

#[tokio::test(start_paused = true)]
async fn an_engine_that_is_held_from_the_start_plans_and_changes_nothing_until_it_is_released() {
    let running = Running::start(Script::default());
    running.handle.hold().await;
    running.tell(told().into_iter().chain(synced())).await;
    tokio::time::sleep(std::time::Duration::from_secs(600)).await;
    let settled = running.handle.ask(seaway_plan::World::is_settled).await;
    assert_eq!(settled, Some(true), "it plans");
    assert_eq!(running.played.with(|it| it.at_work.len()), 0, "no driver has even looked");
    assert_eq!(*running.handle.phase().borrow(), Phase::Listening);
    running.handle.release();
    running.until_serving().await;
    assert_eq!(running.played.with(|it| it.applied.len()), 1);
    running.stop().await;
}

#[tokio::test(start_paused = true)]
async fn who_holds_an_engine_waits_for_drivers_at_work_and_all_is_looked_at_once_it_is_released() {
    let running = Running::start(Script::default());
    running.tell(told().into_iter().chain(synced())).await;
    running.until("a driver is at work", |it| it.at_work.values().any(|count| *count > 0)).await;
    running.handle.hold().await;
    assert!(running.played.with(|it| it.at_work.values().all(|count| *count == 0)), "it rests");
    let before = running.played.with(|it| it.applied.len());
    running.tell([put(&service("shop", &[("", 8_080, TargetPort::Number(80))]))]).await;
    tokio::time::sleep(std::time::Duration::from_secs(600)).await;
    assert_eq!(running.played.with(|it| it.applied.len()), before, "nor do audits begin");
    // Each hold is for itself: one that was obeyed before is no answer.
    running.handle.release();
    running.handle.hold().await;
    assert!(running.played.with(|it| it.at_work.values().all(|count| *count == 0)), "it rests again");
    running.handle.release();
    running.until_serving().await;
    running.until("it is made anew", |it| it.applied.len() > before).await;
    // Another process may have changed what did not change here.
    let looked = running.played.with(|it| it.applied.len());
    running.handle.hold().await;
    running.handle.release();
    running.until("it is looked at", |it| it.applied.len() > looked).await;
    running.stop().await;
}
