//! Waiting, by a clock that nobody waits for.

use std::time::Duration;

use seaway_openstack::{
    Class,
    octavia::{LoadBalancer, NewListener, NewLoadBalancer, Protocol},
};
use seaway_testkit::cloud::{ChangeDuration, Fault};
use serde_json::json;

use super::{stage::Stage, walks::PATIENCE};

const MINUTE: Duration = Duration::from_secs(60);

#[tokio::test]
async fn pauses_grow_and_never_exceed_two_seconds() {
    let stage = Stage::set().await;
    let new = stage.new_balancer("web").await;
    stage.fake.pace(ChangeDuration::Looks(8));
    let made = stage.balancers().create(&new).await.expect("made");
    let before = stage.clock.slept().len();
    stage.balancers().until_ready(&made.id, PATIENCE).await.expect("ready");
    let slept: Vec<u128> = stage.clock.slept()[before..].iter().map(Duration::as_millis).collect();
    assert!(slept.len() >= 7, "{slept:?}");
    assert_eq!(slept[..6], [300, 450, 675, 1012, 1518, 2000], "{slept:?}");
    assert!(slept.iter().all(|it| *it <= 2000), "{slept:?}");
}

#[tokio::test]
async fn patience_ends_with_the_last_word_of_what_was_waited_for() {
    let stage = Stage::set().await;
    let new = stage.new_balancer("web").await;
    stage.fake.pace(ChangeDuration::Never);
    let made = stage.balancers().create(&new).await.expect("made");
    let before: Duration = stage.clock.slept().iter().sum();
    let error = stage.balancers().until_ready(&made.id, MINUTE).await.expect_err("it never is");
    assert_eq!(error.class(), &Class::Timeout, "{error}");
    assert!(error.to_string().contains("PENDING_CREATE"), "{error}");
    let waited = stage.clock.slept().iter().sum::<Duration>() - before;
    assert!(waited >= MINUTE && waited <= MINUTE + Duration::from_secs(2), "{waited:?}");
}

#[tokio::test]
async fn a_read_that_fails_for_a_moment_does_not_end_the_waiting() {
    let stage = Stage::set().await;
    let new = stage.new_balancer("web").await;
    let made = stage.balancers().create(&new).await.expect("made");
    stage.fake.fail(Fault::on("GET */lbaas/loadbalancers/*").times(4).status(500));
    stage.balancers().until_ready(&made.id, PATIENCE).await.expect("ready");
}

#[tokio::test]
async fn what_is_not_there_is_not_waited_for() {
    let stage = Stage::set().await;
    let missing = "00000000-0000-4000-8000-000000000000".parse().expect("an id");
    let error = stage.balancers().until_ready(&missing, PATIENCE).await.expect_err("nothing is there");
    assert_eq!(error.class(), &Class::NotFound, "{error}");
    stage.balancers().until_gone(&missing, PATIENCE).await.expect("nothing is there");
}

/// With `ovn`, a load balancer that goes with its children may be ACTIVE in between.
#[tokio::test]
async fn only_what_cannot_be_read_any_more_is_gone() {
    let stage = Stage::set().await;
    let balancers = stage.balancers();
    let listener = NewListener { name: "l".into(), ..NewListener::new(Protocol::Tcp, 80u16) };
    let new = NewLoadBalancer { listeners: vec![listener].into(), ..stage.new_balancer("web").await };
    let made = balancers.create(&new).await.expect("made");
    balancers.until_ready(&made.id, PATIENCE).await.expect("ready");
    stage.fake.pace(ChangeDuration::Looks(3));
    balancers.delete_cascade(&made.id).await.expect("deleted");
    let active = json!({"loadbalancer": {"id": made.id, "provisioning_status": "ACTIVE"}});
    stage.fake.fail(Fault::on("GET */lbaas/loadbalancers/*").nth(2).times(2).reply(200, active));
    balancers.until_gone(&made.id, PATIENCE).await.expect("it goes");
    assert_eq!(balancers.find::<LoadBalancer>(&made.id).await.expect("an answer"), None);
}

#[tokio::test]
async fn what_has_failed_is_told_at_once_in_its_own_words() {
    let stage = Stage::set().await;
    let made = stage.balancers().create(&stage.new_balancer("web").await).await.expect("made");
    stage.fake.set_provisioning_status(made.id.as_str(), "ERROR");
    let before = stage.clock.slept().len();
    let error = stage.balancers().until_ready(&made.id, PATIENCE).await.expect_err("it has failed");
    assert_eq!(error.class(), &Class::Failed, "{error}");
    for part in [made.id.as_str(), "ERROR", "OFFLINE"] {
        assert!(error.to_string().contains(part), "{part}: {error}");
    }
    assert_eq!(stage.clock.slept().len(), before, "waiting mends nothing");
}

/// One in error can be deleted, and says so until that is noticed.
#[tokio::test]
async fn what_was_in_error_before_it_was_deleted_is_waited_for() {
    let stage = Stage::set().await;
    let balancers = stage.balancers();
    let made = balancers.create(&stage.new_balancer("web").await).await.expect("made");
    stage.fake.set_provisioning_status(made.id.as_str(), "ERROR");
    stage.fake.fail(Fault::on("GET */lbaas/loadbalancers/*").times(2).stale());
    balancers.delete_cascade(&made.id).await.expect("deleted");
    balancers.until_gone(&made.id, PATIENCE).await.expect("it goes");
}
