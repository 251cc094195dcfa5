//! What hosts say of themselves, and their signs of life.

use std::time::Duration;

use seaway_cluster::{Campaign, HostReports, Running, Terms};
use seaway_model::{
    Fact, Reason,
    fact::{FactRef, HostSays, NotServed},
};

use tokio::time::timeout;

use crate::scene::{Heard, PATIENCE, Scene, eventually};

const TERMS: Terms = Terms { term: Duration::from_secs(2), renew: Duration::from_millis(300) };

#[tokio::test]
async fn a_host_is_told_while_it_lives_and_what_it_says_is_written_on_change_only() {
    let Some(scene) = Scene::up("hosts") else { return };
    let name = scene.namespace.clone();
    let cluster = scene.connect().await;
    let mut heard = Heard::of(&cluster);
    heard.until_synced().await;
    let life = Campaign::host(&cluster, &name, TERMS);
    let reports = HostReports::start(&cluster, &name, Running::default());
    let says = |applied| HostSays {
        applied,
        addresses: vec!["10.0.0.1".parse().expect("an address")],
        not_served: vec![NotServed {
            address: "192.0.2.31".parse().expect("an address"),
            reason: Reason::PortInUse,
            message: "nginx listens there".into(),
        }],
        ..HostSays::default()
    };
    reports.say(says(7));
    let reference = FactRef::Host(name.as_str().into());
    let applied = |it: &Heard| match it.facts.get(&reference) {
        Some(Fact::Host(it)) => Some(it.applied),
        _ => None,
    };
    heard.until("it is told", |it| applied(it) == Some(7)).await;
    let version = || scene.kubectl(&["get", "lbhost", &name, "-o", "jsonpath={.metadata.resourceVersion}"]);
    let before = version();
    reports.say(says(7));
    reports.say(says(8));
    heard.until("a change is told", |it| applied(it) == Some(8)).await;
    assert_ne!(version(), before);
    scene.kubectl(&["patch", "lbhost", &name, "--type=merge", "-p", r#"{"spec":{"drain":true}}"#]);
    let drains = |it: &Heard| matches!(&it.facts[&reference], Fact::Host(it) if it.drain);
    heard.until("people are heard", drains).await;
    // It dies without a word, goes on saying something nonetheless, and lives again.
    drop(life);
    heard.until("it is dead", |it| applied(it).is_none()).await;
    reports.say(says(9));
    eventually("it is written", async || {
        let path = "jsonpath={.status.applied}";
        (scene.kubectl(&["get", "lbhost", &name, "-o", path]) == "9").then_some(())
    })
    .await;
    assert_eq!(applied(&heard), None);
    let life = Campaign::host(&cluster, &name, TERMS);
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
async fn a_host_that_died_and_starts_anew_lives_at_once_and_a_rival_of_its_name_is_told() {
    let Some(scene) = Scene::up("anew") else { return };
    let name = scene.namespace.clone();
    let cluster = scene.connect().await;
    let terms = Terms { term: Duration::from_secs(600), renew: Duration::from_millis(300) };
    let lives = async |it: &Campaign| {
        let mut leading = it.leading();
        timeout(PATIENCE, leading.changed_from(false)).await.expect("it waits for nobody's term");
    };
    let dead = Campaign::host(&cluster, &name, terms);
    lives(&dead).await;
    drop(dead);
    let first = Campaign::host(&cluster, &name, terms);
    lives(&first).await;
    let second = Campaign::host(&cluster, &name, terms);
    lives(&second).await;
    let mut rival = first.rival();
    let met = timeout(PATIENCE, rival.wait_for(Option::is_some)).await.expect("it is noticed in time");
    assert!(met.expect("it goes on").as_deref().is_some_and(|it| it.starts_with(&name)));
    assert_eq!(*second.rival().borrow(), None, "who came last has it");
    first.resign().await;
    assert!(second.leading().is_now(), "who goes first takes it from nobody");
    second.resign().await;
    scene.kubectl(&["delete", "lease", &format!("seaway-host-{name}"), "-n", "default"]);
}
