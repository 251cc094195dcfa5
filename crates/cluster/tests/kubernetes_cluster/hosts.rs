//! What hosts say of themselves, and their signs of life.

use std::time::Duration;

use seaway_cluster::{HostStatusWriter, LeaderElection, LeaseTimings, ProgramInfo};
use seaway_model::{
    Fact, Reason,
    fact::{FactRef, HostStatus, UnservedAddress},
};

use tokio::time::{Instant, timeout};

use crate::scene::{Heard, PATIENCE, Scene, eventually};

const TERMS: LeaseTimings = LeaseTimings { term: Duration::from_secs(2), renew: Duration::from_millis(300) };

#[tokio::test]
async fn a_host_is_told_while_it_lives_and_what_it_says_is_written_on_change_only() {
    let Some(scene) = Scene::up("hosts") else { return };
    let name = scene.namespace.clone();
    let cluster = scene.connect().await;
    let mut heard = Heard::of(&cluster);
    heard.until_synced().await;
    let life = LeaderElection::start_host_lease(&cluster, &name, TERMS);
    let reports = HostStatusWriter::start(&cluster, &name, ProgramInfo::default());
    let says = |applied| HostStatus {
        applied,
        addresses: vec!["10.0.0.1".parse().expect("an address")],
        not_served: vec![UnservedAddress {
            address: "192.0.2.31".parse().expect("an address"),
            reason: Reason::PortInUse,
            message: "nginx listens there".into(),
        }],
        ..HostStatus::default()
    };
    reports.publish(says(7));
    let reference = FactRef::Host(name.as_str().into());
    let applied = |it: &Heard| match it.facts.get(&reference) {
        Some(Fact::Host(it)) => Some(it.applied),
        _ => None,
    };
    heard.until("it is told", |it| applied(it) == Some(7)).await;
    let version = || scene.kubectl(&["get", "lbhost", &name, "-o", "jsonpath={.metadata.resourceVersion}"]);
    let before = version();
    reports.publish(says(7));
    reports.publish(says(8));
    heard.until("a change is told", |it| applied(it) == Some(8)).await;
    assert_ne!(version(), before);
    scene.kubectl(&["patch", "lbhost", &name, "--type=merge", "-p", r#"{"spec":{"drain":true}}"#]);
    // Whoever stands still for a term is dead for a moment.
    let drains = |it: &Heard| matches!(it.facts.get(&reference), Some(Fact::Host(it)) if it.drain);
    heard.until("people are heard", drains).await;
    // It dies without a word, goes on saying something nonetheless, and lives again.
    drop(life);
    heard.until("it is dead", |it| applied(it).is_none()).await;
    reports.publish(says(9));
    eventually("it is written", async || {
        let path = "jsonpath={.status.applied}";
        (scene.kubectl(&["get", "lbhost", &name, "-o", path]) == "9").then_some(())
    })
    .await;
    assert_eq!(applied(&heard), None);
    let life = LeaderElection::start_host_lease(&cluster, &name, TERMS);
    heard.until("it lives again", |it| applied(it) == Some(9)).await;
    assert!(drains(&heard), "a host's own writing leaves `spec` alone");
    scene.kubectl(&["delete", "lbhost", &name]);
    heard.until("its object is gone", |it| applied(it).is_none()).await;
    reports.rewrite();
    heard.until("it is there again", |it| applied(it) == Some(9)).await;
    life.resign().await;
    heard.until("an end in order is noticed at once", |it| applied(it).is_none()).await;
    scene.kubectl(&["delete", "lbhost", &name]);
}

#[tokio::test]
async fn a_host_that_says_much_is_written_once_a_second_at_most() {
    let Some(scene) = Scene::up("chatter") else { return };
    let name = scene.namespace.clone();
    let cluster = scene.connect().await;
    let mut heard = Heard::of(&cluster);
    heard.until_synced().await;
    let reference = FactRef::Host(name.as_str().into());
    // It does not seem dead in between: that would count as something new.
    let terms = LeaseTimings { term: Duration::from_secs(600), ..TERMS };
    let life = LeaderElection::start_host_lease(&cluster, &name, terms);
    let reports = HostStatusWriter::start(&cluster, &name, ProgramInfo::default());
    let applied = |it: &Heard| match it.facts.get(&reference) {
        Some(Fact::Host(it)) => it.applied,
        _ => 0,
    };
    let (mut said, mut began) = (0, None);
    // Nobody waits for a time here: a slow machine makes fewer writes of it, never more.
    for _ in 0..4 {
        let before = applied(&heard);
        eventually("something new is written", async || {
            said += 1;
            reports.publish(HostStatus { applied: said, ..HostStatus::default() });
            timeout(Duration::from_millis(10), heard.until("", |it| applied(it) != before)).await.ok()
        })
        .await;
        began.get_or_insert_with(Instant::now);
    }
    let took = began.expect("it began").elapsed();
    assert!(took > Duration::from_millis(2_500), "three writes after the first, {took:?}");
    drop((reports, life));
    scene.kubectl(&["delete", "lbhost", &name]);
}

#[tokio::test]
async fn what_a_host_said_goes_when_its_node_is_deleted() {
    let Some(scene) = Scene::up("gone-node") else { return };
    let name = scene.namespace.clone();
    scene.apply(&format!("{{apiVersion: v1, kind: Node, metadata: {{name: {name}}}}}"));
    let cluster = scene.connect().await;
    let reports = HostStatusWriter::start(&cluster, &name, ProgramInfo::default());
    reports.publish(HostStatus { applied: 1, ..HostStatus::default() });
    let is_there = || scene.try_kubectl(&["get", "lbhost", &name], "").is_ok();
    eventually("it is written", async || is_there().then_some(())).await;
    drop(reports);
    scene.kubectl(&["delete", "node", &name]);
    eventually("it is gone", async || (!is_there()).then_some(())).await;
}

#[tokio::test]
async fn a_host_that_died_and_starts_anew_lives_at_once_and_a_rival_of_its_name_is_told() {
    let Some(scene) = Scene::up("anew") else { return };
    let name = scene.namespace.clone();
    let cluster = scene.connect().await;
    let terms = LeaseTimings { term: Duration::from_secs(600), renew: Duration::from_millis(300) };
    let lives = async |it: &LeaderElection| {
        let mut leading = it.leadership();
        timeout(PATIENCE, leading.changed_from(false)).await.expect("it waits for nobody's term");
    };
    let dead = LeaderElection::start_host_lease(&cluster, &name, terms);
    lives(&dead).await;
    drop(dead);
    let first = LeaderElection::start_host_lease(&cluster, &name, terms);
    lives(&first).await;
    let second = LeaderElection::start_host_lease(&cluster, &name, terms);
    lives(&second).await;
    let mut rival = first.rival();
    let met = timeout(PATIENCE, rival.wait_for(Option::is_some)).await.expect("it is noticed in time");
    assert!(met.expect("it goes on").as_deref().is_some_and(|it| it.starts_with(&name)));
    assert_eq!(*second.rival().borrow(), None, "who came last has it");
    first.resign().await;
    assert!(second.leadership().is_held(), "who goes first takes it from nobody");
    second.resign().await;
    scene.kubectl(&["delete", "lease", &format!("seaway-host-{name}"), "-n", "default"]);
}
