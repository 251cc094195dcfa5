//! What a controller says of pools, to an API server that minds.

use std::{collections::BTreeMap, time::Duration};

use seaway_cluster::{AddressCounts, Leadership, PoolStatus, PoolStatusWriter};
use seaway_model::{Kind, ObjectRef, Problem, Reason};
use tokio::time::{Instant, timeout};

use crate::server::{Answer, list, server, status};

fn own_pool(status: &str) -> String {
    format!(
        r#"{{"apiVersion":"seaway.dev/v1alpha1","kind":"AddressPool","metadata":{{"name":"p","resourceVersion":"3"}},"status":{status}}}"#
    )
}

fn counted(assigned: u128, problems: Vec<Problem>) -> BTreeMap<ObjectRef, PoolStatus> {
    let v4 = AddressCounts { assigned, available: 9 };
    let object = ObjectRef::new(Kind::AddressPool, "", "p");
    [(object, PoolStatus { v4, problems, ..PoolStatus::default() })].into()
}

#[tokio::test]
async fn a_pool_that_counts_on_is_ready_since_it_was_and_one_that_is_not_any_more_since_now() {
    let said =
        r#"{"conditions":[{"type":"Ready","status":"True","lastTransitionTime":"2001-01-01T00:00:00Z"}]}"#;
    let pool = || own_pool("{}");
    let answers = vec![
        Answer::Whole(200, list("5", &[own_pool(said)])),
        Answer::Whole(200, pool()),
        Answer::Whole(200, pool()),
        Answer::Whole(200, pool()),
    ];
    let (cluster, mut asked, _folder) = server(vec![("/addresspools", answers)]).await;
    let reports = PoolStatusWriter::start(&cluster, Leadership::always());
    let mut next = async || {
        timeout(Duration::from_secs(90), asked.recv()).await.expect("is asked in time").expect("is asked")
    };
    reports.publish(counted(1, vec![]));
    assert!(next().await.contains("metadata.name%3Dp"), "it is looked what is said");
    let since = r#""lastTransitionTime":"2001-01-01T00:00:00Z""#;
    assert!(next().await.contains(since));
    reports.publish(counted(2, vec![]));
    assert!(next().await.contains(since), "it is as ready as before");
    let object = ObjectRef::new(Kind::AddressPool, "", "p");
    reports.publish(counted(3, vec![Problem::new(object, Reason::PoolOverlap, "overlaps")]));
    assert!(!next().await.contains(since), "it is not ready any more");
}

#[tokio::test]
async fn a_pool_that_may_not_be_written_is_tried_less_and_less_often() {
    let forbidden = || Answer::Whole(403, status(403, "Forbidden", "cannot patch it"));
    let (cluster, mut asked, _folder) =
        server(vec![("/addresspools", (0..99).map(|_| forbidden()).collect())]).await;
    let slow = cluster.clone();
    let reports = PoolStatusWriter::start(&slow, Leadership::always());
    reports.publish(counted(1, vec![]));
    let mut at = Vec::new();
    for _ in 0..4 {
        timeout(Duration::from_secs(90), asked.recv()).await.expect("is asked in time").expect("is asked");
        at.push(Instant::now());
    }
    let apart: Vec<Duration> = at.windows(2).map(|it| it[1] - it[0]).collect();
    // The first pauses are of about a second, two and four: a slow machine makes them longer, never shorter.
    let least = [600, 1_200, 2_400].map(Duration::from_millis);
    assert!(apart.iter().zip(least).all(|(it, least)| *it >= least), "{apart:?}");
}
