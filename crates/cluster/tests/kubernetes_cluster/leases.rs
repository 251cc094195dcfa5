//! Who leads.

use std::time::Duration;

use seaway_cluster::{LeaderElection, Leadership, LeaseTimings, WatchTimings};
use seaway_testkit::kubernetes::Gate;
use tokio::time::{Instant, timeout};

use crate::scene::{PACE, PATIENCE, Scene, connect};

/// Far longer than this machine stands still at times.
const TERMS: LeaseTimings = LeaseTimings { term: Duration::from_secs(10), renew: Duration::from_secs(1) };

async fn leads(leading: &mut Leadership, whether: bool) {
    timeout(PATIENCE, leading.changed_from(!whether)).await.expect("leadership changes in time");
}

/// Nothing changes meanwhile.
async fn for_more_than_a_term(holds: impl Fn()) {
    let until = Instant::now() + TERMS.term * 3 / 2;
    while Instant::now() < until {
        holds();
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test]
async fn one_leads_and_the_next_follows_at_once_when_it_resigns_and_after_a_term_when_it_dies() {
    let Some(scene) = Scene::up("leases") else { return };
    let name = scene.namespace.clone();
    let cluster = scene.connect().await;
    let first = LeaderElection::start(&cluster, &name, "first", TERMS);
    leads(&mut first.leadership(), true).await;
    let second = LeaderElection::start(&cluster, &name, "second", TERMS);
    let third = LeaderElection::start(&cluster, &name, "third", TERMS);
    for_more_than_a_term(|| {
        assert!(first.leadership().is_held());
        assert!(!second.leadership().is_held() && !third.leadership().is_held());
    })
    .await;
    let before = first.leadership();
    first.resign().await;
    assert!(!before.is_held());
    let (mut two, mut three) = (second.leadership(), third.leadership());
    timeout(TERMS.term, async {
        tokio::select! { () = two.changed_from(false) => {}, () = three.changed_from(false) => {} }
    })
    .await
    .expect("the next does not wait for a term");
    let (leader, follower) = if second.leadership().is_held() { (second, third) } else { (third, second) };
    // It dies without a word: at no moment do both lead.
    let (dead, mut next) = (leader.leadership(), follower.leadership());
    drop(leader);
    let died = Instant::now();
    while !next.is_held() {
        assert!(died.elapsed() < PATIENCE);
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    assert!(!dead.is_held(), "the one before has stopped when the next begins");
    assert!(died.elapsed() > TERMS.term / 2, "it was heard of a moment ago");
    leads(&mut next, true).await;
    follower.resign().await;
    scene.kubectl(&["delete", "lease", &name, "-n", "default"]);
}

#[tokio::test]
async fn a_leader_who_is_cut_off_stops_before_the_next_begins() {
    let Some(scene) = Scene::up("cut") else { return };
    let name = scene.namespace.clone();
    let gate = Gate::here(&scene.kubeconfig);
    let impatient = WatchTimings { answer: Duration::from_secs(1), ..PACE };
    let lonely = LeaderElection::start(&connect(gate.kubeconfig(), impatient).await, &name, "lonely", TERMS);
    leads(&mut lonely.leadership(), true).await;
    let other = LeaderElection::start(&scene.connect().await, &name, "other", TERMS);
    gate.freeze();
    let (before, next) = (lonely.leadership(), other.leadership());
    let began = Instant::now();
    while !next.is_held() {
        assert!(began.elapsed() < PATIENCE);
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    assert!(!before.is_held(), "it stopped by itself, though nobody could tell it");
    gate.thaw();
    for_more_than_a_term(|| assert!(!lonely.leadership().is_held() && other.leadership().is_held())).await;
    other.resign().await;
    leads(&mut lonely.leadership(), true).await;
    lonely.resign().await;
    scene.kubectl(&["delete", "lease", &name, "-n", "default"]);
}

#[tokio::test]
async fn one_dead_connection_costs_a_leader_nothing() {
    let Some(scene) = Scene::up("dead") else { return };
    let name = scene.namespace.clone();
    let gate = Gate::here(&scene.kubeconfig);
    let terms = LeaseTimings { term: Duration::from_secs(12), renew: Duration::from_secs(2) };
    let leader = LeaderElection::start(&connect(gate.kubeconfig(), PACE).await, &name, "leader", terms);
    let mut leading = leader.leadership();
    leads(&mut leading, true).await;
    // What is connected now is dead from here on; who connects anew after the thaw is heard.
    gate.freeze();
    assert!(timeout(terms.renew * 3 / 2, leading.changed_from(true)).await.is_err(), "it is believed still");
    gate.thaw();
    assert!(timeout(terms.term * 2, leading.changed_from(true)).await.is_err(), "it leads on");
    leader.resign().await;
    scene.kubectl(&["delete", "lease", &name, "-n", "default"]);
}

#[tokio::test]
async fn who_resigns_waits_for_nobody_who_is_silent() {
    let Some(scene) = Scene::up("silent") else { return };
    let name = scene.namespace.clone();
    let gate = Gate::here(&scene.kubeconfig);
    let cluster = connect(gate.kubeconfig(), PACE).await;
    let terms = LeaseTimings { term: Duration::from_secs(60), renew: Duration::from_secs(20) };
    let leader = LeaderElection::start(&cluster, &name, "leader", terms);
    leads(&mut leader.leadership(), true).await;
    let other = LeaderElection::start(&cluster, &name, "other", terms);
    gate.freeze();
    let leading = leader.leadership();
    timeout(terms.term / 2, leader.resign()).await.expect("the Lease ends by itself");
    assert!(!leading.is_held());
    timeout(terms.term / 2, other.resign()).await.expect("it has none to give back");
    scene.kubectl(&["delete", "lease", &name, "-n", "default"]);
}
