//! Hosts read copies of certificates, and controllers Secrets of the namespaces that let them.

use std::collections::BTreeSet;

use seaway_cluster::WantedSecrets;
use seaway_model::{Kind, ObjectRef};

use crate::{
    server::{Answer, event, list, pace, status},
    watches::{Heard, begin_at, begin_copied, certificate},
};

fn forbidden() -> Answer {
    Answer::Whole(403, status(403, "Forbidden", "cannot list it"))
}

fn missing() -> Answer {
    Answer::Whole(404, status(404, "NotFound", "it is not there"))
}

fn copy(name: &str, version: &str) -> String {
    format!(
        r#"{{"type":"seaway.dev/certificate-copy","metadata":{{"name":"default.{name}","namespace":"copies","uid":"u","resourceVersion":"{version}","annotations":{{"seaway.dev/copy-of":"default/{name}"}}}},"data":{{"tls.crt":"Y2VydA==","tls.key":"a2V5"}}}}"#
    )
}

/// In any namespace.
fn named(secrets: &[(&str, &str)]) -> WantedSecrets {
    let of = |(namespace, name): &(&str, &str)| ObjectRef::new(Kind::Secret, *namespace, *name);
    WantedSecrets::These(secrets.iter().map(of).collect::<BTreeSet<_>>())
}

async fn until(heard: &mut Heard, wanted: &str) -> Vec<String> {
    let mut told = Vec::new();
    while told.last().is_none_or(|it| it != wanted) {
        told.push(heard.next().await);
    }
    told
}

async fn asked_so_far(heard: &mut Heard, of: usize) -> Vec<String> {
    let mut asked = Vec::new();
    for _ in 0..of {
        asked.push(heard.asked().await);
    }
    asked
}

#[tokio::test]
async fn a_host_tells_copies_as_what_they_are_copies_of_and_watches_no_other_secrets() {
    let foreign =
        r#"{"type":"Opaque","metadata":{"name":"default.x","namespace":"copies","resourceVersion":"2"}}"#;
    let scripts = vec![(
        "/secrets",
        vec![
            Answer::Whole(200, list("5", &[copy("a", "3"), foreign.to_owned()])),
            Answer::Stream(vec![event("MODIFIED", &copy("a", "6")), event("DELETED", &copy("a", "7"))]),
        ],
    )];
    let mut heard = begin_copied(pace(), "copies", scripts).await;
    assert_eq!(heard.next().await, "not asked");
    heard.watch.secret_interest().set_wanted(named(&[("default", "a")]));
    let told = until(&mut heard, "gone a").await;
    assert_eq!(told, ["put a", "synced", "put a", "gone a"]);
    for asked in asked_so_far(&mut heard, 2).await {
        assert!(asked.starts_with("/api/v1/namespaces/copies/secrets?"), "{asked}");
        assert!(asked.contains("type%3Dseaway.dev%2Fcertificate-copy"), "{asked}");
    }
}

/// The leader may be quicker than this host's own watch of Services.
#[tokio::test]
async fn a_copy_that_came_before_anything_named_it_is_fetched_once_something_does() {
    let scripts = vec![
        ("/secrets/default.b", vec![Answer::Whole(200, copy("b", "4"))]),
        ("/secrets?", vec![Answer::Whole(200, list("5", &[copy("a", "3"), copy("b", "4")]))]),
    ];
    let mut heard = begin_copied(pace(), "copies", scripts).await;
    assert_eq!(heard.next().await, "not asked");
    heard.watch.secret_interest().set_wanted(named(&[("default", "a")]));
    let told = until(&mut heard, "synced").await;
    assert!(told.contains(&"put b without its key".to_owned()), "{told:?}");
    heard.watch.secret_interest().set_wanted(named(&[("default", "a"), ("default", "b")]));
    until(&mut heard, "put b").await;
    let asked = asked_so_far(&mut heard, 2).await;
    assert!(asked[1].starts_with("/api/v1/namespaces/copies/secrets/default.b"), "{asked:?}");
}

/// While a cluster is being upgraded, no leader may have copied anything yet.
#[tokio::test]
async fn a_host_that_may_read_secrets_serves_from_them_until_copies_come() {
    let scripts = vec![
        ("copies/secrets/default.c", vec![missing()]),
        ("default/secrets/c", vec![Answer::Whole(200, certificate("900"))]),
        (
            "/secrets?",
            vec![
                Answer::Whole(200, list("5", &[])),
                // Its version has nothing to do with that of the Secret.
                Answer::Stream(vec![
                    event("ADDED", &copy("c", "7")),
                    event("ERROR", &status(410, "Expired", "too old resource version")),
                ]),
                Answer::Whole(200, list("8", &[copy("c", "7")])),
                Answer::Stream(vec![event("DELETED", &copy("c", "9"))]),
            ],
        ),
    ];
    let mut heard = begin_copied(pace(), "copies", scripts).await;
    assert_eq!(heard.next().await, "not asked");
    heard.watch.secret_interest().set_wanted(named(&[("default", "c")]));
    let told = until(&mut heard, "gone c").await;
    assert!(!told.contains(&"set back".to_owned()), "{told:?}");
    let puts = told.iter().filter(|it| *it == "put c").count();
    assert!(puts >= 2, "{told:?}");
}

#[tokio::test]
async fn a_host_that_may_not_read_secrets_asks_once_and_waits_for_the_copy_without_a_problem() {
    let scripts = vec![
        ("copies/secrets/default.a", vec![missing(), missing(), missing()]),
        ("default/secrets/a", vec![forbidden()]),
        ("copies/secrets/default.b", vec![missing()]),
        ("/secrets?", vec![Answer::Whole(200, list("5", &[]))]),
    ];
    let mut heard = begin_copied(pace(), "copies", scripts).await;
    assert_eq!(heard.next().await, "not asked");
    let wishes = heard.watch.secret_interest();
    wishes.set_wanted(named(&[("default", "a")]));
    let told = until(&mut heard, "synced").await;
    assert_eq!(told, ["synced"]);
    let asked = asked_so_far(&mut heard, 3).await;
    assert!(asked[2].starts_with("/api/v1/namespaces/default/secrets/a"), "{asked:?}");
    // What is named next is looked for among copies alone.
    wishes.set_wanted(named(&[("default", "a"), ("default", "b")]));
    let asked = asked_so_far(&mut heard, 2).await;
    assert!(asked.iter().all(|it| it.starts_with("/api/v1/namespaces/copies/secrets/default.")), "{asked:?}");
}

#[tokio::test]
async fn secrets_of_namespaces_that_bind_the_role_are_watched_where_the_whole_cluster_refuses() {
    let of = |name: &str, version: &str| certificate(version).replace("\"c\"", &format!("\"{name}\""));
    let scripts = vec![
        ("/api/v1/secrets?", vec![forbidden(), forbidden(), forbidden(), forbidden()]),
        ("/namespaces/closed/secrets", (0..9).map(|_| forbidden()).collect()),
        (
            "/namespaces/default/secrets?",
            vec![
                Answer::Whole(200, list("5", &[of("c", "3")])),
                Answer::Stream(vec![event("MODIFIED", &of("c", "6")), event("ADDED", &of("d", "7"))]),
            ],
        ),
    ];
    let patient = seaway_cluster::WatchTimings { look_for: std::time::Duration::from_secs(3_600), ..pace() };
    let mut heard = begin_at(patient, Kind::Secret, &[], scripts).await;
    assert_eq!(heard.next().await, "not asked");
    heard.watch.secret_interest().set_wanted(named(&[("default", "c"), ("closed", "x")]));
    let mut told = Vec::new();
    let is_refusal = |it: &String| it.starts_with("NotPermitted");
    while !told.contains(&"put d without its key".to_owned()) || !told.iter().any(is_refusal) {
        told.push(heard.next().await);
    }
    let refusals = || told.iter().filter(|it| is_refusal(it));
    assert!(refusals().all(|it| it.contains("in the namespace closed")), "{told:?}");
    assert!(told.contains(&"synced".to_owned()), "{told:?}");
    assert_eq!(told.iter().filter(|it| *it == "put c").count(), 2, "{told:?}");
}
