//! An Address that another leader wrote, and that this one has not heard of when it writes.

use std::sync::Arc;

use seaway_cluster::AddressDriver;
use seaway_engine::{Context, Driver, Failure};
use seaway_model::{Address, AddressState, Desired, Owner, Unit};

use crate::server::{Answer, server, status};

const AT: &str = "192.0.2.7";

fn there(owner: &str, state: &str, version: u64) -> String {
    let owners = if owner.is_empty() { String::new() } else { format!(r#"{{"config":"{owner}"}}"#) };
    format!(
        r#"{{"apiVersion":"seaway.dev/v1alpha1","kind":"Address","metadata":{{"name":"192-0-2-7","resourceVersion":"{version}"}},
            "spec":{{"address":"{AT}","pool":"public","planVersion":1,"state":"{state}","owners":[{owners}]}}}}"#
    )
}

/// `version`: as of which what is written was known when this was planned.
fn wanted(owner: &str, version: u64) -> Desired {
    Desired::Address(Arc::new(Address {
        ip: AT.parse().expect("an address"),
        pool: "public".into(),
        sharing: None,
        owners: vec![Owner::Config(owner.into())],
        plan_version: 1,
        ends: None,
        conflicts: Vec::new(),
        state: AddressState::Held,
        version,
    }))
}

/// One look, and its one step.
async fn attempt(driver: &AddressDriver, wanted: &Desired) -> Result<(), Failure> {
    let unit = Unit::Address(AT.parse().expect("an address"));
    let mut observed = driver.observe(&Context::default(), &unit, wanted).await.expect("is known");
    let steps = driver.steps(wanted, &observed);
    assert_eq!(steps.len(), 1, "{steps:?}");
    driver.apply(&Context::default(), &unit, &steps[0], &mut observed).await
}

/// A leader that wants it for `a` and finds that another wrote it in this way, and what it asks by the next attempt.
async fn next_attempt(written: String, next: Desired) -> (Result<(), Failure>, Option<String>) {
    let answers = vec![
        Answer::Whole(409, status(409, "AlreadyExists", "it is there")),
        Answer::Whole(200, written),
        Answer::Whole(200, there("a", "Held", 9)),
    ];
    let (cluster, mut asked, _folder) = server(vec![("/addresses", answers)]).await;
    let driver = AddressDriver::new(cluster);
    attempt(&driver, &wanted("a", 0)).await.expect_err("somebody else was first");
    for what in ["what it wants", "what there is"] {
        asked.try_recv().expect(what);
    }
    let done = attempt(&driver, &next).await;
    (done, asked.try_recv().ok())
}

#[tokio::test]
async fn what_the_plan_has_not_heard_of_is_not_overwritten_and_not_deleted() {
    for next in [wanted("a", 0), wanted("a", 6), Desired::Absent] {
        let (done, asked) = next_attempt(there("b", "Held", 7), next.clone()).await;
        assert!(
            matches!(&done, Err(Failure::Retry { why, .. }) if why.contains("another leader")),
            "{next:?}: {done:?}"
        );
        assert_eq!(asked, None, "{next:?}");
    }
}

#[tokio::test]
async fn what_the_plan_has_heard_of_or_nobody_has_is_written() {
    let heard = (there("b", "Held", 7), wanted("a", 7));
    let released = (there("", "Releasing", 7), wanted("a", 0));
    let gone = (there("", "Releasing", 7), Desired::Absent);
    for (written, next) in [heard, released, gone] {
        let (done, asked) = next_attempt(written, next.clone()).await;
        assert!(done.is_ok(), "{next:?}: {done:?}");
        assert!(asked.is_some_and(|it| it.contains(r#""resourceVersion":"7""#)), "{next:?}");
    }
}
