//! Hosts' addresses, gathered by the leader: what hosts hear of them, and what is written.

use std::time::Duration;

use seaway_cluster::{ExpiredHostPolicy, Leadership, WatchTimings};
use seaway_model::{Change, Reason};
use tokio::{sync::mpsc, time::timeout};

use crate::{
    needs::{forbidden, host, of_itself},
    server::{Answer, event, list, pace, server, status},
    watches::{begin_as_host, begin_as_patient_host},
};

fn slice(number: u8, version: u8, hosts: &[(&str, &str)]) -> String {
    let one = |(name, address): &(&str, &str)| format!(r#"{{"name":"{name}","addresses":["{address}"]}}"#);
    let hosts: Vec<String> = hosts.iter().map(one).collect();
    format!(
        r#"{{"apiVersion":"seaway.dev/v1alpha1","kind":"LoadBalancerHostSlice","metadata":{{"name":"hosts-{number}","resourceVersion":"{version}"}},"spec":{{"hosts":[{}]}}}}"#,
        hosts.join(",")
    )
}

/// Of each host: for whoever is not to ask for it.
fn of_each() -> (&'static str, Vec<Answer>) {
    ("/loadbalancerhosts?", vec![Answer::Whole(200, list("9", &[host("x", "9", "10.0.0.8")]))])
}

/// Longer than any test.
fn patient() -> WatchTimings {
    WatchTimings { slices: Duration::from_secs(3_600), ..pace() }
}

#[tokio::test]
async fn a_host_hears_of_others_by_slices_and_asks_for_no_other_hosts_object() {
    let listed = [slice(0, 3, &[("b", "10.0.0.2")]), slice(1, 4, &[("c", "10.0.0.3"), ("me", "10.0.0.9")])];
    let events = vec![
        event("MODIFIED", &slice(1, 6, &[("me", "10.0.0.9")])),
        event("ADDED", &slice(2, 7, &[("d", "10.0.0.4")])),
        event("MODIFIED", &slice(0, 8, &[("b", "10.0.0.2"), ("e", "10.0.0.5")])),
    ];
    let slices = vec![Answer::Whole(200, list("5", &listed)), Answer::Stream(events)];
    let scripts = vec![of_itself(), ("/loadbalancerhostslices?", slices), of_each()];
    let mut heard = begin_as_host(scripts).await;
    for told in ["put b", "put c", "synced", "gone c", "put d", "put e"] {
        assert_eq!(heard.next().await, told);
    }
    let asked: Vec<String> = std::iter::from_fn(|| heard.asked.try_recv().ok()).collect();
    let of_others = |it: &&String| it.contains("/loadbalancerhosts?") && !it.contains("metadata.name%3Dme");
    assert_eq!(asked.iter().find(of_others), None, "{asked:?}");
}

/// The first is written last; a leader may be about to start.
#[tokio::test]
async fn a_host_waits_until_all_slices_are_written() {
    let [b, c] = [slice(1, 6, &[("b", "10.0.0.2")]), slice(0, 7, &[("c", "10.0.0.3")])];
    let slices = vec![
        Answer::Whole(200, list("5", &[])),
        Answer::Stream(vec![event("ADDED", &b), event("ADDED", &c)]),
        Answer::Whole(200, list("7", &[b.clone(), c.clone()])),
        Answer::Stream(Vec::new()),
    ];
    let scripts = vec![of_itself(), ("/loadbalancerhostslices?", slices), of_each()];
    let mut heard = begin_as_patient_host(patient(), scripts).await;
    let mut told = Vec::new();
    while told.last().is_none_or(|it| it != "synced") {
        told.push(heard.next().await);
    }
    told.sort();
    told.dedup();
    assert_eq!(told, ["put b", "put c", "synced"], "and nobody is told as gone");
}

#[tokio::test]
async fn where_nobody_writes_slices_or_they_are_not_for_us_each_host_is_watched_until_they_are_there() {
    let none = || Answer::Whole(200, list("5", &[]));
    let missing = || Answer::Whole(404, status(404, "NotFound", "page not found"));
    // Listed, waited for, listed again.
    let unwritten = vec![none(), Answer::Stream(Vec::new()), none()];
    for (name, mut slices) in
        [("unwritten", unwritten), ("undefined", vec![missing()]), ("forbidden", vec![forbidden()])]
    {
        // The watch of each host ends, as watches do: by then somebody gathers.
        let gathered = [slice(0, 8, &[("c", "10.0.0.3")])];
        slices.extend([
            Answer::Whole(200, list("8", &gathered)),
            Answer::Whole(200, list("8", &gathered)),
            Answer::Stream(Vec::new()),
        ]);
        let each = [host("b", "3", "10.0.0.1"), host("me", "4", "10.0.0.9")];
        let scripts = vec![
            of_itself(),
            ("status.addressesChanged%3Dtrue", vec![Answer::Whole(200, String::new())]),
            ("/loadbalancerhostslices?", slices),
            ("/loadbalancerhosts?", vec![Answer::Whole(200, list("5", &each))]),
        ];
        let mut heard = begin_as_host(scripts).await;
        for told in ["put b", "synced", "put c", "gone b"] {
            assert_eq!(heard.next().await, told, "{name}");
        }
    }
}

#[tokio::test]
async fn a_slice_that_somebody_deletes_is_no_news_of_its_hosts() {
    for deleted in [0, 1] {
        let named = |it: String| it.replace(r#""spec":{"#, r#""spec":{"slices":["hosts-1"],"#);
        let first = |version, hosts| named(slice(0, version, hosts));
        let [b, c] = [first(3, &[("b", "10.0.0.2")]), slice(1, 4, &[("c", "10.0.0.3")])];
        let (lost, left, again) = match deleted {
            0 => (&b, &c, first(7, &[("b", "10.0.0.2")])),
            _ => (&c, &b, slice(1, 7, &[("c", "10.0.0.3")])),
        };
        let slices = vec![
            Answer::Whole(200, list("5", &[b.clone(), c.clone()])),
            Answer::Stream(vec![event("DELETED", lost)]),
            // The leader has not written it again.
            Answer::Whole(200, list("6", std::slice::from_ref(left))),
            Answer::Stream(vec![event("ADDED", &again)]),
            Answer::Whole(200, list("7", &[again, left.clone()])),
            Answer::Stream(vec![event("MODIFIED", &first(8, &[]))]),
        ];
        let scripts = vec![of_itself(), ("/loadbalancerhostslices?", slices), of_each()];
        let mut heard = begin_as_patient_host(patient(), scripts).await;
        let mut told = Vec::new();
        while told.last().is_none_or(|it| it != "gone b") {
            told.push(heard.next().await);
        }
        assert_eq!(told.iter().filter(|it| it.starts_with("gone")).count(), 1, "{deleted}: {told:?}");
    }
}

async fn next(asked: &mut mpsc::UnboundedReceiver<String>) -> String {
    timeout(Duration::from_secs(90), asked.recv()).await.expect("is asked in time").expect("is asked")
}

#[tokio::test]
async fn the_leader_writes_each_host_into_its_slice_and_the_first_slice_last() {
    let hosts = vec![
        Answer::Whole(200, list("5", &[host("a", "3", "10.0.0.1")])),
        Answer::Drip(vec![
            event("ADDED", &host("e", "6", "10.0.0.5")),
            event("DELETED", &host("a", "7", "10.0.0.1")),
        ]),
    ];
    let written = |number, version, hosts: &[(&str, &str)]| Answer::Whole(201, slice(number, version, hosts));
    let slices = vec![
        // What is there of hosts that are no more.
        Answer::Whole(200, list("4", &[slice(7, 2, &[("old", "10.0.0.7")])])),
        written(12, 11, &[("a", "10.0.0.1")]),
        written(7, 12, &[]),
        written(0, 13, &[]),
        written(0, 14, &[("e", "10.0.0.5")]),
        written(12, 15, &[]),
    ];
    let (cluster, mut asked, _folder) =
        server(vec![("/loadbalancerhostslices", slices), ("/loadbalancerhosts?", hosts)]).await;
    let (tell, mut changes) = mpsc::channel(64);
    let mut watch = cluster.watch(tell.clone(), ExpiredHostPolicy::Watched);
    tokio::spawn(async move { while changes.recv().await.is_some() {} });
    watch.gather_addresses(&cluster, Leadership::always(), tell);
    let mut writes = Vec::new();
    while writes.len() < 5 {
        let it = next(&mut asked).await;
        if it.contains("hostslices") && it.contains("spec") {
            let at = |word: &str| it.find(word).map(|at| it[at..].chars().take(40).collect::<String>());
            let name = at("hosts-").expect("a name").split(['"', '?']).next().unwrap_or_default().to_owned();
            writes.push((
                name,
                ["10.0.0.1", "10.0.0.5", "10.0.0.7"].iter().filter(|ip| it.contains(*ip)).count(),
            ));
        }
    }
    let wanted = [("hosts-12", 1), ("hosts-7", 0), ("hosts-0", 0), ("hosts-0", 1), ("hosts-12", 0)];
    assert_eq!(writes, wanted.map(|(name, hosts)| (name.to_owned(), hosts)));
}

#[tokio::test]
async fn that_slices_may_not_be_kept_or_are_not_defined_is_a_problem_until_they_are() {
    for (answer, reason) in [
        (forbidden(), Reason::NotPermitted),
        (Answer::Whole(404, status(404, "NotFound", "page not found")), Reason::NotInstalled),
    ] {
        let hosts = vec![Answer::Whole(200, list("5", &[])), Answer::Stream(Vec::new())];
        let written = Answer::Whole(201, slice(0, 9, &[]));
        let slices = vec![answer, Answer::Whole(200, list("8", &[])), written];
        let (cluster, _asked, _folder) =
            server(vec![("/loadbalancerhostslices", slices), ("/loadbalancerhosts?", hosts)]).await;
        let (tell, mut changes) = mpsc::channel(64);
        let mut watch = cluster.watch(tell.clone(), ExpiredHostPolicy::Watched);
        watch.gather_addresses(&cluster, Leadership::always(), tell);
        let mut reasons = Vec::new();
        while reasons.last().is_none_or(|it: &Option<Reason>| it.is_some()) {
            let change =
                timeout(Duration::from_secs(90), changes.recv()).await.expect("in time").expect("told");
            if let Change::Reported(object, problems) = change
                && *object.name == *"loadbalancerhostslices"
            {
                reasons.push(problems.first().map(|it| it.reason));
            }
        }
        assert_eq!(reasons, [Some(reason), None]);
    }
}
