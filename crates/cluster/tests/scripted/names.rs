//! A leader that is killed while it writes who claimed a name first, and the next one.

use std::{sync::Arc, time::Duration};

use seaway_cluster::{Cluster, FirstClaims, Leadership, NameOwnerTimings, NameOwnerWriter};
use seaway_model::{Change, fact::NameOwner, load_balancer::HostPattern};
use tokio::{sync::mpsc, time::timeout};

use crate::server::{Answer, server, status};

const PACE: NameOwnerTimings =
    NameOwnerTimings { keep: Duration::from_secs(600), pause: Duration::from_millis(20) };

fn owner(namespace: &str, hosts: &[&str]) -> NameOwner {
    let hosts = hosts.iter().map(|it| HostPattern::Exact((*it).into())).collect();
    NameOwner { namespace: namespace.into(), hosts, ..NameOwner::default() }
}

fn says(claimed: &[&NameOwner], recorded: &[&NameOwner]) -> Option<FirstClaims> {
    let named = |it: &&NameOwner| (it.namespace.clone(), (*it).clone());
    let recorded = recorded.iter().map(named).map(|(namespace, it)| (namespace, Arc::new(it)));
    Some(FirstClaims {
        claimed: claimed.iter().map(named).collect(),
        recorded: recorded.collect(),
        complete: true,
    })
}

/// As the API server has it.
fn object(namespace: &str, version: u8, hosts: &str) -> String {
    format!(
        r#"{{"apiVersion":"seaway.dev/v1alpha1","kind":"NameOwner","metadata":{{"name":"{namespace}","resourceVersion":"{version}"}},"spec":{{"hosts":[{hosts}],"paths":[]}}}}"#
    )
}

fn leader(cluster: &Cluster) -> (NameOwnerWriter, mpsc::Receiver<Change>) {
    let (tell, told) = mpsc::channel(64);
    (NameOwnerWriter::start(cluster, Leadership::always(), PACE, tell), told)
}

async fn next(asked: &mut mpsc::UnboundedReceiver<String>) -> String {
    timeout(Duration::from_secs(90), asked.recv()).await.expect("is asked in time").expect("is asked")
}

/// It was created, and whoever did so died before it heard of that.
#[tokio::test]
async fn a_leader_killed_while_it_records_two_namespaces_loses_neither_and_the_next_one_overwrites_nothing() {
    let [cart, shop, zoo] =
        ["cart", "shop", "zoo"].map(|namespace| owner(namespace, &[&format!("{namespace}.example")]));
    let exists = status(409, "AlreadyExists", "it is there");
    let answers = vec![
        Answer::Cut(object("cart", 3, r#""cart.example""#)),
        Answer::Whole(409, exists),
        Answer::Whole(201, object("shop", 4, r#""shop.example""#)),
        Answer::Whole(201, object("zoo", 5, r#""zoo.example""#)),
    ];
    let (cluster, mut asked, _folder) = server(vec![("/nameowners", answers)]).await;
    let (killed, _told) = leader(&cluster);
    killed.set_claims(says(&[&cart, &shop], &[]));
    assert!(next(&mut asked).await.contains(r#""name":"cart""#));
    drop(killed);
    // Its own watch has not told the next one of it: what is there is left as it is.
    let (second, mut told) = leader(&cluster);
    second.set_claims(says(&[&cart, &shop], &[]));
    assert!(next(&mut asked).await.contains(r#""name":"cart""#));
    let recorded = next(&mut asked).await;
    assert!(recorded.contains(r#""name":"shop""#) && recorded.contains("shop.example"), "{recorded}");
    // Told of both, it writes neither again.
    second.set_claims(says(&[&cart, &shop, &zoo], &[&cart, &shop]));
    let recorded = next(&mut asked).await;
    assert!(recorded.contains(r#""name":"zoo""#), "{recorded}");
    assert!(told.try_recv().is_err(), "nothing is wrong");
}

/// It was replaced, and whoever did so died before it heard of that.
#[tokio::test]
async fn a_leader_killed_while_it_adds_a_name_takes_none_and_the_next_one_waits_for_its_watch() {
    let (one, two) = (owner("shop", &["a.example"]), owner("shop", &["a.example", "b.example"]));
    let rival = owner("zoo", &["zoo.example"]);
    let shop = vec![
        Answer::Whole(200, object("shop", 3, r#""a.example""#)),
        Answer::Cut(object("shop", 4, r#""a.example","b.example""#)),
        Answer::Whole(200, object("shop", 4, r#""a.example","b.example""#)),
    ];
    let scripts = vec![
        ("/nameowners/shop", shop),
        ("/nameowners", vec![Answer::Whole(201, object("zoo", 5, r#""zoo.example""#))]),
    ];
    let (cluster, mut asked, _folder) = server(scripts).await;
    let (killed, _told) = leader(&cluster);
    killed.set_claims(says(&[&two], &[&one]));
    next(&mut asked).await;
    let replaced = next(&mut asked).await;
    assert!(replaced.contains(r#""resourceVersion":"3""#) && replaced.contains("b.example"), "{replaced}");
    drop(killed);
    // The next one claims less for shop than is recorded by now, and knows only what was before.
    let (second, mut told) = leader(&cluster);
    second.set_claims(says(&[&owner("shop", &["c.example"]), &rival], &[&one]));
    let looked = next(&mut asked).await;
    assert!(looked.contains("/nameowners/shop") && !looked.contains("spec"), "{looked}");
    let after = next(&mut asked).await;
    assert!(after.contains(r#""name":"zoo""#), "over another version nothing is written: {after}");
    assert!(told.try_recv().is_err(), "nothing is wrong");
}

/// Nobody claims any name of the namespace any more: what is removed is what was looked at, and no later version.
#[tokio::test]
async fn what_a_namespace_no_longer_claims_is_removed_only_as_it_was_looked_at() {
    let one = owner("shop", &["a.example"]);
    let changed = status(409, "Conflict", "it has changed");
    let shop = vec![
        Answer::Whole(200, object("shop", 3, r#""a.example""#)),
        Answer::Whole(409, changed),
        Answer::Whole(200, object("shop", 4, r#""a.example","b.example""#)),
    ];
    let cart = vec![Answer::Whole(201, object("cart", 5, r#""cart.example""#))];
    let (cluster, mut asked, _folder) = server(vec![("/nameowners/shop", shop), ("/nameowners", cart)]).await;
    let pace = NameOwnerTimings { keep: Duration::ZERO, ..PACE };
    let (tell, _told) = mpsc::channel(64);
    let keeper = NameOwnerWriter::start(&cluster, Leadership::always(), pace, tell);
    keeper.set_claims(says(&[], &[&one]));
    next(&mut asked).await;
    let removed = next(&mut asked).await;
    assert!(removed.contains("preconditions") && removed.contains(r#""resourceVersion":"3""#), "{removed}");
    // It is another one by now, of which the watch has told nothing: that is looked at, and left.
    next(&mut asked).await;
    let cart = owner("cart", &["cart.example"]);
    keeper.set_claims(says(&[&cart], &[&one]));
    let mut after = next(&mut asked).await;
    while after.ends_with("/nameowners/shop ") {
        after = next(&mut asked).await;
    }
    assert!(after.contains(r#""name":"cart""#), "nothing but the creation of another is written: {after}");
}
