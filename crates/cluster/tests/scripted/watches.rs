//! What watches make of it.

use std::{sync::Arc, time::Duration};

use seaway_cluster::{ExpiredHostPolicy, WantedSecrets, Watch, WatchTimings};
use seaway_model::{
    Change, Fact, Kind, ObjectRef,
    fact::{FactRef, HostReport, Secret, TLS_SECRET},
};
use seaway_testkit::facts;
use tokio::{
    sync::mpsc,
    time::{interval, timeout},
};

use crate::{
    needs::host,
    server::{Answer, event, list, pace, server_at, server_with, status},
};

pub(crate) struct Heard {
    changes: mpsc::Receiver<Change>,
    pub(crate) asked: mpsc::UnboundedReceiver<String>,
    kind: Kind,
    pub(crate) watch: Watch,
    _folder: tempfile::TempDir,
}

async fn begin(script: Vec<Answer>) -> Heard {
    begin_from(&[], script).await
}

async fn begin_from(known: &[Fact], script: Vec<Answer>) -> Heard {
    begin_with(Kind::Service, "/services?", known, script).await
}

async fn begin_with(kind: Kind, of: &'static str, known: &[Fact], script: Vec<Answer>) -> Heard {
    begin_with_all(kind, known, vec![(of, script)]).await
}

async fn begin_with_all(kind: Kind, known: &[Fact], scripts: Vec<(&'static str, Vec<Answer>)>) -> Heard {
    begin_at(pace(), kind, known, scripts).await
}

pub(crate) async fn begin_at(
    pace: WatchTimings,
    kind: Kind,
    known: &[Fact],
    scripts: Vec<(&'static str, Vec<Answer>)>,
) -> Heard {
    begin_as(ExpiredHostPolicy::Ignored, pace, kind, known, scripts).await
}

pub(crate) async fn begin_as(
    pulses: ExpiredHostPolicy,
    pace: WatchTimings,
    kind: Kind,
    known: &[Fact],
    scripts: Vec<(&'static str, Vec<Answer>)>,
) -> Heard {
    let (cluster, asked, folder) = server_at(pace, scripts).await;
    let (tell, changes) = mpsc::channel(64);
    let watch = cluster.watch_from(known.iter(), tell, pulses);
    Heard { changes, asked, kind, watch, _folder: folder }
}

/// As the host `me` does.
pub(crate) async fn begin_as_host(scripts: Vec<(&'static str, Vec<Answer>)>) -> Heard {
    begin_as_patient_host(pace(), scripts).await
}

pub(crate) async fn begin_as_patient_host(
    pace: WatchTimings,
    scripts: Vec<(&'static str, Vec<Answer>)>,
) -> Heard {
    let (cluster, asked, folder) = server_at(pace, scripts).await;
    let (tell, changes) = mpsc::channel(64);
    let watch = cluster.watch_as_host(&"me".into(), std::iter::empty(), tell);
    Heard { changes, asked, kind: Kind::LoadBalancerHost, watch, _folder: folder }
}

/// By a host that reads copies in that namespace.
pub(crate) async fn begin_copied(
    pace: WatchTimings,
    copies: &str,
    scripts: Vec<(&'static str, Vec<Answer>)>,
) -> Heard {
    let (cluster, asked, folder) = server_with(pace, Some(copies), scripts).await;
    let (tell, changes) = mpsc::channel(64);
    let watch = cluster.watch(tell, ExpiredHostPolicy::Ignored);
    Heard { changes, asked, kind: Kind::Secret, watch, _folder: folder }
}

impl Heard {
    /// The next thing that is told of objects of that kind.
    pub(crate) async fn next(&mut self) -> String {
        let kind = self.kind;
        loop {
            let change = timeout(Duration::from_secs(90), self.changes.recv()).await;
            let name = |reference: FactRef| match reference {
                FactRef::Object(object) if object.kind == kind => Some(object.name),
                FactRef::Host(host) if kind == Kind::LoadBalancerHost => Some(host),
                FactRef::Address(ip) if kind == Kind::Address => Some(ip.to_string().into()),
                _ => None,
            };
            match change.expect("something is told in time").expect("watches go on") {
                Change::Put(fact) => {
                    if let Some(name) = name(fact.reference()) {
                        let withheld = matches!(&fact, Fact::Secret(it) if it.withheld);
                        return format!("put {name}{}", if withheld { " without its key" } else { "" });
                    }
                }
                Change::Gone(reference) => {
                    if let Some(name) = name(reference) {
                        return format!("gone {name}");
                    }
                }
                Change::Missing(reference) => {
                    if let Some(name) = name(reference) {
                        return format!("missing {name}");
                    }
                }
                Change::Synced(it) if it == kind => return "synced".to_owned(),
                Change::SourceRestored => return "set back".to_owned(),
                Change::NotWatched(it) if it == kind => return "not asked".to_owned(),
                Change::Reported(_, problems) => {
                    return problems
                        .first()
                        .map_or("well".to_owned(), |it| format!("{}: {}", it.reason, it.message));
                }
                _ => {}
            }
        }
    }

    pub(crate) async fn asked(&mut self) -> String {
        timeout(Duration::from_secs(90), self.asked.recv())
            .await
            .expect("is asked in time")
            .expect("is asked")
    }
}

fn service(name: &str, version: &str) -> String {
    format!(
        r#"{{"apiVersion":"v1","kind":"Service","metadata":{{"name":"{name}","namespace":"default","uid":"u","resourceVersion":"{version}"}},"spec":{{"ports":[{{"port":80}}]}}}}"#
    )
}

#[tokio::test]
async fn what_is_too_old_to_be_followed_is_listed_anew_and_only_then_is_anything_gone() {
    let mut heard = begin(vec![
        Answer::Whole(200, list("5", &[service("a", "3"), service("b", "4")])),
        Answer::Stream(vec![
            event("MODIFIED", &service("a", "6")),
            event("ERROR", &status(410, "Expired", "too old resource version")),
        ]),
        // The list fails half-way: nothing is known of who is not on it.
        Answer::Whole(
            200,
            list("8", &[service("a", "6")])
                .replace("\"resourceVersion\":\"8\"", "\"resourceVersion\":\"8\",\"continue\":\"t\""),
        ),
        Answer::Whole(410, status(410, "Expired", "the continue token is too old")),
        Answer::Whole(200, list("9", &[service("a", "6"), service("c", "9")])),
        Answer::Stream(vec![event("DELETED", &service("c", "10"))]),
    ])
    .await;
    for wanted in ["put a", "put b", "synced", "put a", "put a", "put a", "put c", "missing b", "gone c"] {
        assert_eq!(heard.next().await, wanted);
    }
    let asked = [heard.asked().await, heard.asked().await, heard.asked().await, heard.asked().await];
    assert!(asked[0].contains("limit=500") && !asked[0].contains("watch"), "{}", asked[0]);
    assert!(asked[1].contains("watch=true") && asked[1].contains("resourceVersion=5"), "{}", asked[1]);
    assert!(asked[1].contains("allowWatchBookmarks=true"), "{}", asked[1]);
    assert!(asked[3].contains("continue=t"), "{}", asked[3]);
}

#[tokio::test]
async fn what_was_known_before_is_gone_once_a_whole_list_does_not_have_it_and_not_earlier() {
    let known = ["a", "b"].map(|name| {
        let known = facts::service(name, &[]);
        Fact::Service(Arc::new(known))
    });
    let mut heard = begin_from(
        &known,
        vec![
            Answer::Whole(503, status(503, "ServiceUnavailable", "not yet")),
            Answer::Whole(200, list("9", &[service("a", "6")])),
        ],
    )
    .await;
    let mut told = Vec::new();
    while told.last().is_none_or(|it| it != "synced") {
        told.push(heard.next().await);
    }
    told.retain(|it| !it.contains("ell") && !it.starts_with("Unreachable"));
    assert_eq!(told, ["put a", "missing b", "synced"]);
}

#[tokio::test]
async fn a_watch_that_is_cut_goes_on_where_a_bookmark_left_it() {
    let mut heard = begin(vec![
        Answer::Whole(200, list("5", &[service("a", "3")])),
        Answer::Cut(format!(
            "{}\n{{\"type\":\"ADD",
            event("BOOKMARK", r#"{"kind":"Service","apiVersion":"v1","metadata":{"resourceVersion":"77"}}"#)
        )),
        // Whether the store is as new as it was.
        Answer::Whole(200, list("77", &[service("a", "3")])),
        Answer::Stream(vec![event("ADDED", &service("b", "78"))]),
    ])
    .await;
    for wanted in ["put a", "synced", "put b"] {
        assert_eq!(heard.next().await, wanted);
    }
    for _ in 0..2 {
        heard.asked().await;
    }
    assert!(heard.asked().await.contains("fieldSelector=metadata.name%3Da"));
    assert!(heard.asked().await.contains("resourceVersion=77"));
}

#[tokio::test]
async fn garbage_and_errors_change_nothing_and_are_told_in_words() {
    let mut heard = begin(vec![
        Answer::Whole(500, status(500, "InternalError", "etcdserver: leader changed")),
        Answer::Whole(429, status(429, "TooManyRequests", "slow down")),
        Answer::Whole(200, "<html>a proxy's page</html>".to_owned()),
        Answer::Whole(200, list("5", &[service("a", "3")])),
        Answer::Stream(vec!["<html>".to_owned(), event("ADDED", &service("b", "6"))]),
        Answer::Whole(200, list("5", &[service("a", "3")])),
        Answer::Stream(vec![event("ADDED", &service("b", "6"))]),
    ])
    .await;
    assert_eq!(heard.next().await, "Unreachable: the API server answers 500: etcdserver: leader changed");
    assert_eq!(heard.next().await, "Unreachable: the API server answers 429: slow down");
    let garbage = heard.next().await;
    assert!(garbage.contains("the response of the API server is not a Kubernetes object"), "{garbage}");
    // That it is well again is told by another task.
    let mut told = Vec::new();
    for _ in 0..4 {
        told.push(heard.next().await);
    }
    let well = told.iter().position(|it| it == "well").expect("it is well again");
    told.remove(well);
    assert_eq!(told, ["put a", "synced", "put b"]);
}

#[tokio::test]
async fn a_trouble_is_taken_back_by_the_first_event_of_a_busy_watch() {
    let busy = (6..36).map(|version| event("MODIFIED", &service("a", &version.to_string())));
    let trouble = || Answer::Whole(500, status(500, "InternalError", "etcd"));
    let mut heard = begin(vec![
        Answer::Whole(200, list("5", &[service("a", "3")])),
        trouble(),
        trouble(),
        Answer::Whole(200, list("5", &[service("a", "3")])),
        Answer::Drip(busy.collect()),
    ])
    .await;
    for wanted in ["put a", "synced", "Unreachable: the API server answers 500: etcd"] {
        assert_eq!(heard.next().await, wanted);
    }
    let mut told = Vec::new();
    for _ in 0..4 {
        told.push(heard.next().await);
    }
    assert!(told.contains(&"well".to_owned()), "{told:?}");
}

#[tokio::test]
async fn a_watch_that_is_half_open_is_noticed_however_often_others_are_wanted() {
    let silent = || Answer::Stream(Vec::new());
    let listed = || Answer::Whole(200, list("5", &[certificate("3")]));
    let answers = vec![listed(), silent(), listed(), silent()];
    let mut heard = begin_with(Kind::Secret, "/secrets?", &[], answers).await;
    let wishes = heard.watch.secret_interest();
    let one = ObjectRef::new(Kind::Secret, "default", "c");
    let begun_anew = async {
        let mut often = interval(Duration::from_millis(100));
        let (mut asked, mut every) = (0, false);
        while asked < 4 {
            tokio::select! {
                _ = heard.asked.recv() => asked += 1,
                _ = often.tick() => {
                    every = !every;
                    wishes.set_wanted(if every { WantedSecrets::Every } else { WantedSecrets::These([one.clone()].into()) });
                }
            }
        }
    };
    timeout(Duration::from_secs(90), begun_anew).await.expect("it is begun anew");
}

pub(crate) fn certificate(version: &str) -> String {
    format!(
        r#"{{"apiVersion":"v1","kind":"Secret","metadata":{{"name":"c","namespace":"default","uid":"u","resourceVersion":"{version}"}},"type":"kubernetes.io/tls","data":{{"tls.crt":"YQ==","tls.key":"YQ=="}}}}"#
    )
}

#[tokio::test]
async fn no_key_is_told_before_somebody_names_it_but_those_that_were_known() {
    let object = ObjectRef::new(Kind::Secret, "default", "c");
    let listed = || Answer::Whole(200, list("5", &[certificate("3")]));
    let another = Answer::Whole(404, status(404, "NotFound", "no other"));
    let answers = vec![listed(), Answer::Stream(Vec::new()), another, Answer::Whole(200, certificate("3"))];
    let mut heard = begin_with(Kind::Secret, "/secrets", &[], answers).await;
    assert_eq!(heard.next().await, "not asked");
    heard
        .watch
        .secret_interest()
        .set_wanted(WantedSecrets::These([ObjectRef::new(Kind::Secret, "default", "other")].into()));
    for wanted in ["put c without its key", "synced", "gone other"] {
        assert_eq!(heard.next().await, wanted);
    }
    // All, the watch, and the one that is not there.
    for _ in 0..3 {
        heard.asked().await;
    }
    heard.watch.secret_interest().set_wanted(WantedSecrets::These([object.clone()].into()));
    assert_eq!(heard.next().await, "put c");

    let known = Secret { kind: TLS_SECRET.into(), withheld: false, ..Secret::withheld(object) };
    let known = [Fact::Secret(Arc::new(known))];
    let mut heard = begin_with(Kind::Secret, "/secrets?", &known, vec![listed()]).await;
    assert_eq!(heard.next().await, "not asked");
    assert_eq!(heard.next().await, "put c");
}

/// Whoever names one waits until it is known whether it is there; so a refusal is told as well.
#[tokio::test]
async fn a_secret_that_we_may_not_read_is_told_as_not_there() {
    let refused = || Answer::Whole(403, status(403, "Forbidden", "not for you"));
    let mut heard = begin_with(Kind::Secret, "/secrets", &[], vec![refused(), refused()]).await;
    assert_eq!(heard.next().await, "not asked");
    heard
        .watch
        .secret_interest()
        .set_wanted(WantedSecrets::These([ObjectRef::new(Kind::Secret, "default", "c")].into()));
    assert_eq!(heard.next().await, "gone c");

    let passing = || Answer::Whole(500, status(500, "InternalError", "later"));
    let another = Answer::Whole(404, status(404, "NotFound", "no d"));
    let all = Answer::Whole(200, list("5", &[]));
    let answers = vec![all, Answer::Stream(Vec::new()), passing(), passing(), another];
    let mut heard = begin_with(Kind::Secret, "/secrets", &[], answers).await;
    assert_eq!(heard.next().await, "not asked");
    heard
        .watch
        .secret_interest()
        .set_wanted(WantedSecrets::These([ObjectRef::new(Kind::Secret, "default", "c")].into()));
    assert_eq!(heard.next().await, "synced");
    // The list, the watch, and the one: trouble says nothing of it.
    for _ in 0..3 {
        heard.asked().await;
    }
    let both = ["c", "d"].map(|it| ObjectRef::new(Kind::Secret, "default", it));
    heard.watch.secret_interest().set_wanted(WantedSecrets::These(both.into()));
    assert_eq!(heard.next().await, "gone d");
}

/// A host says up to which version it has applied them: who begins with the newest would be further than it is.
#[tokio::test]
async fn addresses_are_told_in_the_order_in_which_they_were_written() {
    let address = |last: u8, version: u8| {
        format!(
            r#"{{"apiVersion":"seaway.dev/v1alpha1","kind":"Address","metadata":{{"name":"192-0-2-{last}","uid":"u","resourceVersion":"{version}"}},"spec":{{"address":"192.0.2.{last}","pool":"p","planVersion":1,"state":"Held","owners":[]}}}}"#
        )
    };
    let listed = list("20", &[address(1, 10), address(2, 7), address(3, 9)]);
    let mut heard = begin_with(Kind::Address, "/addresses?", &[], vec![Answer::Whole(200, listed)]).await;
    for told in ["put 192.0.2.2", "put 192.0.2.3", "put 192.0.2.1", "synced"] {
        assert_eq!(heard.next().await, told);
    }
}

pub(crate) fn pool(name: &str, version: &str) -> String {
    format!(
        r#"{{"apiVersion":"metallb.io/v1beta1","kind":"IPAddressPool","metadata":{{"name":"{name}","namespace":"default","uid":"u","resourceVersion":"{version}"}},"spec":{{"addresses":["192.0.2.0/28"]}}}}"#
    )
}

async fn told_of_pools(answers: Vec<Answer>, told: &[&str]) {
    // Those of MetalLB's own namespace are asked for, and no others.
    let path = "/namespaces/default/ipaddresspools?";
    let mut heard = begin_with(Kind::IPAddressPool, path, &[], answers).await;
    for wanted in told {
        let next = heard.next().await;
        assert!(next.starts_with(wanted), "{next} where {wanted} was to be told");
    }
}

#[tokio::test]
async fn of_a_kind_that_is_no_more_none_is_left_but_one_answer_is_not_believed() {
    let listed = || Answer::Whole(200, list("5", &[pool("p", "3")]));
    let missing = || Answer::Whole(404, status(404, "NotFound", "page not found"));
    let trouble = || Answer::Whole(500, status(500, "InternalError", "etcd"));
    let gone = vec![listed(), missing(), missing(), missing(), missing(), listed()];
    told_of_pools(gone, &["put p", "synced", "gone p", "put p"]).await;
    let stays = vec![listed(), missing(), missing(), trouble(), missing(), missing(), listed()];
    let mut heard = begin_with(Kind::IPAddressPool, "/ipaddresspools?", &[], stays).await;
    let mut told = Vec::new();
    while told.iter().filter(|it| *it == "put p").count() < 2 {
        told.push(heard.next().await);
    }
    assert!(!told.contains(&"gone p".to_owned()), "{told:?}");
}

#[tokio::test]
async fn what_was_known_of_a_kind_goes_on_when_we_may_not_look_any_more_and_it_is_told() {
    let forbidden = || Answer::Whole(403, status(403, "Forbidden", "cannot watch it"));
    let answers = vec![
        Answer::Whole(200, list("5", &[pool("p", "3")])),
        forbidden(),
        forbidden(),
        forbidden(),
        forbidden(),
        Answer::Whole(200, list("5", &[pool("p", "3")])),
        Answer::Stream(vec![event("ADDED", &pool("q", "7"))]),
    ];
    let refused = "NotPermitted: may not watch ipaddresspools.metallb.io: cannot watch it; the last known state stays in use";
    let mut heard = begin_with(Kind::IPAddressPool, "/ipaddresspools?", &[], answers).await;
    let mut told = Vec::new();
    while told.last().is_none_or(|it| it != "put q") {
        told.push(heard.next().await);
    }
    told.retain(|it| it != "well");
    assert_eq!(told, ["put p", "synced", refused, "put q"]);
}

/// An API server that has just begun refuses what it has not yet read the rights to.
#[tokio::test]
async fn a_host_known_before_is_not_gone_because_we_may_not_look_but_because_a_list_lacks_it() {
    let known = [Fact::Host(Arc::new(HostReport { host: "a".into(), ..HostReport::default() }))];
    let answers = vec![
        Answer::Whole(403, status(403, "Forbidden", "cannot list it")),
        Answer::Whole(403, status(403, "Forbidden", "cannot list it")),
        Answer::Whole(200, list("9", &[])),
    ];
    let mut heard = begin_with(Kind::LoadBalancerHost, "/loadbalancerhosts?", &known, answers).await;
    let mut told = Vec::new();
    while told.last().is_none_or(|it| it != "gone a") {
        told.push(heard.next().await);
    }
    let refused = "NotPermitted: may not list loadbalancerhosts.seaway.dev: cannot list it; the last known state stays in use";
    // What is wrong is told beside what there is, in no order.
    told.retain(|it| it != "well" && it != refused);
    assert_eq!(told, ["synced", "gone a"]);
}

/// Who may hold an address is known by what hosts report: without it, addresses that they serve would be free.
#[tokio::test]
async fn a_controller_that_may_not_list_hosts_waits_and_one_that_may_no_longer_forgets_none() {
    let listed = |version| Answer::Whole(200, list(version, &[host("a", "3", "10.0.0.1")]));
    for (code, reason, told_as) in [
        (403, "Forbidden", "NotPermitted: may not list"),
        (404, "NotFound", "NotInstalled: the cluster does not have"),
    ] {
        let refused = |times: usize| (0..times).map(move |_| Answer::Whole(code, status(code, reason, "no")));
        let mut answers: Vec<Answer> = refused(9).collect();
        answers.push(listed("5"));
        // Then it is watched.
        answers.extend(refused(9));
        answers.extend([listed("9"), Answer::Stream(vec![event("ADDED", &host("b", "12", "10.0.0.2"))])]);
        let scripts = vec![("/loadbalancerhosts?", answers)];
        let mut heard =
            begin_as(ExpiredHostPolicy::Watched, pace(), Kind::LoadBalancerHost, &[], scripts).await;
        let mut told = Vec::new();
        while told.last().is_none_or(|it| it != "put b") {
            told.push(heard.next().await);
        }
        let waits = told.iter().find(|it| it.contains("changes no Service until these objects are listed"));
        assert!(waits.is_some_and(|it| it.starts_with(told_as)), "{told:?}");
        assert!(told.iter().any(|it| it.contains("the last known state stays in use")), "{told:?}");
        let (gone, all): (Vec<String>, Vec<String>) = told
            .into_iter()
            .filter(|it| it.starts_with("put ") || it.starts_with("gone ") || it == "synced")
            .partition(|it| it.starts_with("gone "));
        assert!(gone.is_empty(), "{reason}: {gone:?}");
        assert_eq!(all[..2], ["put a", "synced"], "{reason}: {all:?}");
    }
}

#[tokio::test]
async fn that_there_are_no_pools_is_not_believed_of_an_api_server_that_has_only_begun() {
    for refusal in [(403, "Forbidden"), (404, "NotFound")] {
        let refused = || Answer::Whole(refusal.0, status(refusal.0, refusal.1, "not yet"));
        let scripts = vec![
            ("/addresses?", vec![refused(), refused(), refused()]),
            ("/ipaddresspools?", vec![refused(), Answer::Whole(200, list("5", &[pool("p", "3")]))]),
        ];
        let mut heard = begin_with_all(Kind::IPAddressPool, &[], scripts).await;
        let mut told = Vec::new();
        while told.last().is_none_or(|it| it != "synced") {
            told.push(heard.next().await);
        }
        assert!(told.contains(&"put p".to_owned()), "{told:?}");
    }
}
