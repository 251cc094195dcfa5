//! The Lease of a host whose next process has begun.

use std::time::Duration;

use seaway_cluster::{LeaderElection, LeaseTimings};
use tokio::time::timeout;

use crate::server::{Answer, server, status};

fn lease(holder: &str) -> String {
    format!(
        r#"{{"apiVersion":"coordination.k8s.io/v1","kind":"Lease","metadata":{{"name":"seaway-host-a","namespace":"default","resourceVersion":"3"}},"spec":{{"holderIdentity":"{holder}"}}}}"#
    )
}

#[tokio::test]
async fn a_process_that_lets_the_next_one_begin_takes_it_for_no_rival_and_leaves_it_the_lease() {
    // More than it looks in half a term, after which it would take it back.
    const LOOKS: usize = 12;
    let mut answers = vec![
        Answer::Whole(404, status(404, "NotFound", "there is none")),
        Answer::Whole(201, lease("this one")),
        Answer::Whole(409, status(409, "Conflict", "it is another by now")),
    ];
    answers.extend((0..LOOKS).map(|_| Answer::Whole(200, lease("a_next"))));
    let (cluster, mut asked, _folder) = server(vec![("/leases", answers)]).await;
    let terms = LeaseTimings { term: Duration::from_millis(400), renew: Duration::from_secs(1) };
    let lives = LeaderElection::start_host_lease(&cluster, "a", terms);
    let mut next = async || {
        timeout(Duration::from_secs(90), asked.recv()).await.expect("is asked in time").expect("is asked")
    };
    let is_write = |asked: &str| asked.contains("holderIdentity");
    assert!(!is_write(&next().await) && is_write(&next().await), "it is there");
    lives.yield_to_next();
    assert!(is_write(&next().await), "until the next one begins it is renewed");
    for _ in 0..LOOKS {
        let asked = next().await;
        assert!(!is_write(&asked), "{asked}");
    }
    assert_eq!(*lives.rival().borrow(), None);
}
