//! What is asked for, and when: nothing that nobody needs, what is absent seldom, and all again of a store that was set back.

use std::time::Duration;

use seaway_cluster::{Pace, Wanted};
use seaway_model::{Kind, ObjectRef};

use crate::{
    server::{Answer, event, list, pace, status},
    watches::{begin_at, certificate, pool},
};

/// Longer than any test.
const NEVER: Duration = Duration::from_secs(3_600);

fn forbidden() -> Answer {
    Answer::Whole(403, status(403, "Forbidden", "cannot list it"))
}

#[tokio::test]
async fn no_secret_is_asked_for_while_nobody_names_one_and_nothing_is_wrong_then() {
    let listed = Answer::Whole(200, list("5", &[certificate("3")]));
    // In the whole cluster, and in the namespace of the one that is named.
    let scripts = vec![("/secrets?", vec![forbidden(), forbidden(), listed])];
    let mut heard = begin_at(pace(), Kind::Secret, &[], scripts).await;
    assert_eq!(heard.next().await, "not asked");
    let wishes = heard.watch.wishes();
    assert!(heard.asked.try_recv().is_err(), "nobody needs one");

    // Only now that is a fault.
    let named = || Wanted::These([ObjectRef::new(Kind::Secret, "default", "c")].into());
    wishes.secrets(named());
    assert!(heard.asked().await.contains("type%3Dkubernetes.io%2Ftls"));
    let mut told = Vec::new();
    while told.last().is_none_or(|it| it != "put c") {
        told.push(heard.next().await);
    }
    assert!(told.iter().any(|it| it.starts_with("NotPermitted: may not list secrets")), "{told:?}");

    // And when nobody names one any more, nothing is known of any.
    wishes.secrets(Wanted::These([].into()));
    while told.last().is_none_or(|it| it != "gone c") {
        told.push(heard.next().await);
    }
    assert!(told.contains(&"well".to_owned()) && told.contains(&"not asked".to_owned()), "{told:?}");
}

#[tokio::test]
async fn a_refusal_of_secrets_is_no_trouble_any_more_once_nobody_names_one() {
    let patient = Pace { first_retry: NEVER, look_for: NEVER, ..pace() };
    let mut heard = begin_at(patient, Kind::Secret, &[], vec![("/secrets?", vec![forbidden()])]).await;
    assert_eq!(heard.next().await, "not asked");
    let wishes = heard.watch.wishes();
    wishes.secrets(Wanted::Every);
    let mut told = vec![heard.next().await];
    while !told.iter().any(|it| it.starts_with("NotPermitted")) {
        told.push(heard.next().await);
    }
    wishes.secrets(Wanted::These([].into()));
    while told.last().is_none_or(|it| it != "well") {
        told.push(heard.next().await);
    }
}

#[tokio::test]
async fn a_kind_that_is_absent_is_asked_for_as_soon_as_it_is_defined() {
    let definition = |version: &str| {
        r#"{"kind":"CustomResourceDefinition","apiVersion":"apiextensions.k8s.io/v1","metadata":{"name":"ipaddresspools.metallb.io","resourceVersion":"VERSION"},"status":{"conditions":[{"type":"Established","status":"True"}]}}"#.replace("VERSION", version)
    };
    let missing = || Answer::Whole(404, status(404, "NotFound", "page not found"));
    let events = ["12", "13", "14"].map(|it| event("MODIFIED", &definition(it)));
    let scripts = vec![
        // The first answer may come before the API server is believed; then it is asked once more at once.
        (
            "/ipaddresspools?",
            vec![missing(), missing(), missing(), Answer::Whole(200, list("13", &[pool("p", "13")]))],
        ),
        (
            "/customresourcedefinitions?",
            vec![Answer::Whole(200, list("11", &[])), Answer::Stream(events.into())],
        ),
    ];
    let patient = Pace { first_retry: NEVER, look_for: NEVER, ..pace() };
    let mut heard = begin_at(patient, Kind::IPAddressPool, &[], scripts).await;
    let mut told = Vec::new();
    while told.last().is_none_or(|it| it != "put p") {
        told.push(heard.next().await);
    }
    let mut asked = Vec::new();
    for _ in 0..6 {
        asked.push(heard.asked().await);
    }
    let of_definition = asked.iter().filter(|it| it.contains("metadata.name%3Dipaddresspools.metallb.io"));
    assert_eq!(of_definition.count(), 2, "{asked:?}");
}

fn service(name: &str, version: u64) -> String {
    format!(
        r#"{{"apiVersion":"v1","kind":"Service","metadata":{{"name":"{name}","namespace":"default","uid":"u","resourceVersion":"{version}"}},"spec":{{"ports":[{{"port":80}}]}}}}"#
    )
}

/// The API server answers again, from a backup: whoever went on with its watches would hear nothing.
#[tokio::test]
async fn a_store_that_was_set_back_is_noticed_and_all_kinds_are_told_again() {
    let cut = |event: String| Answer::Cut(format!("{event}\n{{"));
    let lower = Answer::Whole(200, list("80", &[service("a", 70)]));
    let older = Answer::Whole(200, list("900", &[service("a", 70)]));
    for (name, small) in [("lower", lower), ("older, and versions were bumped", older)] {
        let scripts = vec![(
            "/services?",
            vec![
                Answer::Whole(200, list("100", &[service("a", 70), service("gone", 90)])),
                cut(event("MODIFIED", &service("a", 500))),
                // It has read no rights yet.
                forbidden(),
                small,
                Answer::Whole(200, list("80", &[service("a", 70), service("b", 60)])),
                Answer::Stream(vec![event("ADDED", &service("c", 81))]),
            ],
        )];
        let mut heard = begin_at(pace(), Kind::Service, &[], scripts).await;
        let mut told = Vec::new();
        while told.last().is_none_or(|it| it != "put c") {
            told.push(heard.next().await);
        }
        let is_trouble = |it: &String| it.starts_with("Unreachable") || it.starts_with("NotPermitted");
        told.retain(|it| it != "well" && !is_trouble(it));
        let wanted = [
            "put a",
            "put gone",
            "synced",
            "put a",
            "set back",
            "put a",
            "put b",
            "missing gone",
            "synced",
            "put c",
        ];
        assert_eq!(told, wanted, "{name}");
    }
}
