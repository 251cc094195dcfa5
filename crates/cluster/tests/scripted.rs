//! Answers that no real API server gives on demand, given by a scripted one.

use std::{
    collections::{BTreeMap, VecDeque},
    sync::{Arc, Mutex},
    time::Duration,
};

use seaway_cluster::{
    Access, Cluster, Counted, Credentials, Leading, Pace, PoolReports, PoolSays, Pulses, Wanted,
};
use seaway_model::{
    Change, Fact, Kind, ObjectRef, Problem, Reason,
    fact::{FactRef, Secret, TLS_SECRET},
};
use seaway_testkit::facts;
use tokio::{
    io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader},
    net::{TcpListener, TcpStream},
    sync::mpsc,
    time::{Instant, interval, timeout},
};

/// What is answered to questions for one kind, one after the other; to all others: that there are none.
#[derive(Clone)]
struct Script {
    /// In the paths of these questions.
    of: &'static str,
    answers: Arc<Mutex<VecDeque<Answer>>>,
}

enum Answer {
    Whole(u16, String),
    /// These events, and then silence.
    Stream(Vec<String>),
    /// These events, one each 300 milliseconds.
    Drip(Vec<String>),
    /// These bytes, and the end of the connection.
    Cut(String),
}

struct Heard {
    changes: mpsc::Receiver<Change>,
    asked: mpsc::UnboundedReceiver<String>,
    kind: Kind,
    watch: seaway_cluster::Watch,
    _folder: tempfile::TempDir,
}

async fn begin(script: Vec<Answer>) -> Heard {
    begin_from(&[], script).await
}

async fn begin_from(known: &[Fact], script: Vec<Answer>) -> Heard {
    begin_with(Kind::Service, "/services?", known, script).await
}

async fn begin_with(kind: Kind, of: &'static str, known: &[Fact], script: Vec<Answer>) -> Heard {
    let (cluster, asked, folder) = server(of, script).await;
    let (tell, changes) = mpsc::channel(64);
    let watch = cluster.watch_from(known, tell, Pulses::Unheeded);
    Heard { changes, asked, kind, watch, _folder: folder }
}

/// Questions whose paths have `of` are answered by the script, and told.
async fn server(
    of: &'static str,
    script: Vec<Answer>,
) -> (Cluster, mpsc::UnboundedReceiver<String>, tempfile::TempDir) {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let at = listener.local_addr().expect("is bound");
    let script = Script { of, answers: Arc::new(Mutex::new(script.into())) };
    let (ask, asked) = mpsc::unbounded_channel();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            tokio::spawn(serve(stream, script.clone(), ask.clone()));
        }
    });
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("kubeconfig");
    let kubeconfig = format!(
        "apiVersion: v1\nkind: Config\ncurrent-context: x\ncontexts: [{{name: x, context: {{cluster: x, user: x}}}}]\n\
         clusters: [{{name: x, cluster: {{server: 'http://{at}'}}}}]\nusers: [{{name: x, user: {{token: x}}}}]\n"
    );
    std::fs::write(&path, kubeconfig).expect("is written");
    let pace = Pace {
        first_retry: Duration::from_millis(20),
        longest_retry: Duration::from_millis(60),
        silence: Duration::from_secs(2),
        ..Pace::default()
    };
    let credentials = Credentials::Kubeconfig { path, context: None };
    let access = Access { credentials, namespace: Some("default".into()), pace };
    let cluster = Cluster::connect(access).await.expect("a kubeconfig");
    (cluster, asked, folder)
}

async fn serve(mut stream: TcpStream, script: Script, ask: mpsc::UnboundedSender<String>) {
    let (read, mut write) = stream.split();
    let mut lines = BufReader::new(read).lines();
    while let Ok(Some(request)) = lines.next_line().await {
        let mut length = 0;
        while let Some(header) = lines.next_line().await.ok().flatten().filter(|it| !it.is_empty()) {
            if let Some((_, value)) =
                header.split_once(':').filter(|it| it.0.eq_ignore_ascii_case("content-length"))
            {
                length = value.trim().parse().expect("a length");
            }
        }
        let mut sent = vec![0; length];
        if lines.get_mut().read_exact(&mut sent).await.is_err() {
            return;
        }
        let path = request.split(' ').nth(1).unwrap_or_default().to_owned();
        let scripted = match path.contains(script.of) {
            true => script.answers.lock().expect("whole").pop_front(),
            false => None,
        };
        let answer = match scripted {
            Some(answer) => {
                // The test may be over.
                let _ = ask.send(format!("{path} {}", String::from_utf8_lossy(&sent)));
                answer
            }
            None if path.contains("watch=true") => Answer::Stream(Vec::new()),
            None => Answer::Whole(200, list("9", &[])),
        };
        let mut later = Vec::new();
        let (head, body, stays) = match answer {
            Answer::Whole(code, body) => (format!("{code} X\r\nContent-Length: {}", body.len()), body, true),
            Answer::Stream(events) => (CHUNKED.to_owned(), events.into_iter().map(chunk).collect(), false),
            Answer::Drip(events) => {
                later = events;
                (CHUNKED.to_owned(), String::new(), false)
            }
            Answer::Cut(body) => (format!("200 OK\r\nContent-Length: {}", body.len() + 100), body, true),
        };
        let cut = head.contains(&format!("Content-Length: {}", body.len() + 100));
        let answer = format!("HTTP/1.1 {head}\r\nContent-Type: application/json\r\n\r\n{body}");
        if write.write_all(answer.as_bytes()).await.is_err() || cut {
            return;
        }
        let mut slowly = interval(Duration::from_millis(300));
        for event in later {
            slowly.tick().await;
            if write.write_all(chunk(event).as_bytes()).await.is_err() {
                return;
            }
        }
        if !stays {
            std::future::pending::<()>().await;
        }
    }
}

const CHUNKED: &str = "200 OK\r\nTransfer-Encoding: chunked";

fn chunk(event: String) -> String {
    format!("{:x}\r\n{event}\n\r\n", event.len() + 1)
}

fn service(name: &str, version: &str) -> String {
    format!(
        r#"{{"apiVersion":"v1","kind":"Service","metadata":{{"name":"{name}","namespace":"default","uid":"u","resourceVersion":"{version}"}},"spec":{{"ports":[{{"port":80}}]}}}}"#
    )
}

fn list(version: &str, items: &[String]) -> String {
    format!(
        r#"{{"kind":"ServiceList","apiVersion":"v1","metadata":{{"resourceVersion":"{version}"}},"items":[{}]}}"#,
        items.join(",")
    )
}

fn status(code: u16, reason: &str, message: &str) -> String {
    format!(
        r#"{{"kind":"Status","apiVersion":"v1","metadata":{{}},"status":"Failure","message":"{message}","reason":"{reason}","code":{code}}}"#
    )
}

fn event(kind: &str, object: &str) -> String {
    format!(r#"{{"type":"{kind}","object":{object}}}"#)
}

impl Heard {
    /// The next thing that is told of objects of that kind.
    async fn next(&mut self) -> String {
        let kind = self.kind;
        loop {
            let change = timeout(Duration::from_secs(20), self.changes.recv()).await;
            let name = |reference: FactRef| match reference {
                FactRef::Object(object) if object.kind == kind => Some(object.name),
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
                Change::Synced(it) if it == kind => return "synced".to_owned(),
                Change::Reported(_, problems) => {
                    return problems
                        .first()
                        .map_or("well".to_owned(), |it| format!("{}: {}", it.reason, it.message));
                }
                _ => {}
            }
        }
    }

    async fn asked(&mut self) -> String {
        timeout(Duration::from_secs(20), self.asked.recv())
            .await
            .expect("is asked in time")
            .expect("is asked")
    }
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
    for wanted in ["put a", "put b", "synced", "put a", "put a", "put a", "put c", "gone b", "gone c"] {
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
    assert_eq!(told, ["put a", "gone b", "synced"]);
}

#[tokio::test]
async fn a_watch_that_is_cut_goes_on_where_a_bookmark_left_it() {
    let mut heard = begin(vec![
        Answer::Whole(200, list("5", &[service("a", "3")])),
        Answer::Cut(format!(
            "{}\n{{\"type\":\"ADD",
            event("BOOKMARK", r#"{"kind":"Service","apiVersion":"v1","metadata":{"resourceVersion":"77"}}"#)
        )),
        Answer::Stream(vec![event("ADDED", &service("b", "78"))]),
    ])
    .await;
    for wanted in ["put a", "synced", "put b"] {
        assert_eq!(heard.next().await, wanted);
    }
    heard.asked().await;
    heard.asked().await;
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
        Answer::Stream(vec![event("ADDED", &service("b", "6"))]),
    ])
    .await;
    assert_eq!(heard.next().await, "Unreachable: the API server answers 500: etcdserver: leader changed");
    assert_eq!(heard.next().await, "Unreachable: the API server answers 429: slow down");
    let garbage = heard.next().await;
    assert!(garbage.contains("it answers what is no Kubernetes object"), "{garbage}");
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
    let answers = vec![Answer::Whole(200, list("5", &[])), silent(), silent()];
    let mut heard = begin_with(Kind::Secret, "/secrets?", &[], answers).await;
    let wishes = heard.watch.wishes();
    let begun_anew = async {
        let mut often = interval(Duration::from_millis(100));
        let (mut asked, mut every) = (0, false);
        while asked < 3 {
            tokio::select! {
                _ = heard.asked.recv() => asked += 1,
                _ = often.tick() => {
                    every = !every;
                    wishes.secrets(if every { Wanted::Every } else { Wanted::These([].into()) });
                }
            }
        }
    };
    timeout(Duration::from_secs(20), begun_anew).await.expect("it is begun anew");
}

fn certificate(version: &str) -> String {
    format!(
        r#"{{"apiVersion":"v1","kind":"Secret","metadata":{{"name":"c","namespace":"default","uid":"u","resourceVersion":"{version}"}},"type":"kubernetes.io/tls","data":{{"tls.crt":"YQ==","tls.key":"YQ=="}}}}"#
    )
}

#[tokio::test]
async fn no_key_is_told_before_somebody_names_it_but_those_that_were_known() {
    let object = ObjectRef::new(Kind::Secret, "default", "c");
    let listed = || Answer::Whole(200, list("5", &[certificate("3")]));
    let answers = vec![listed(), Answer::Stream(Vec::new()), Answer::Whole(200, certificate("3"))];
    let mut heard = begin_with(Kind::Secret, "/secrets", &[], answers).await;
    for wanted in ["put c without its key", "synced"] {
        assert_eq!(heard.next().await, wanted);
    }
    heard.watch.wishes().secrets(Wanted::These([object.clone()].into()));
    assert_eq!(heard.next().await, "put c");

    let known = Secret { kind: TLS_SECRET.into(), withheld: false, ..Secret::withheld(object) };
    let known = [Fact::Secret(Arc::new(known))];
    let mut heard = begin_with(Kind::Secret, "/secrets?", &known, vec![listed()]).await;
    assert_eq!(heard.next().await, "put c");
}

fn pool(name: &str, version: &str) -> String {
    format!(
        r#"{{"apiVersion":"metallb.io/v1beta1","kind":"IPAddressPool","metadata":{{"name":"{name}","namespace":"default","uid":"u","resourceVersion":"{version}"}},"spec":{{"addresses":["192.0.2.0/28"]}}}}"#
    )
}

async fn told_of_pools(answers: Vec<Answer>, told: &[&str]) {
    let mut heard = begin_with(Kind::IPAddressPool, "/ipaddresspools?", &[], answers).await;
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
        Answer::Stream(vec![event("ADDED", &pool("q", "7"))]),
    ];
    let refused = "NotPermitted: may not watch ipaddresspools.metallb.io: cannot watch it; what was known of them goes on";
    let mut heard = begin_with(Kind::IPAddressPool, "/ipaddresspools?", &[], answers).await;
    let mut told = Vec::new();
    while told.last().is_none_or(|it| it != "put q") {
        told.push(heard.next().await);
    }
    told.retain(|it| it != "well");
    assert_eq!(told, ["put p", "synced", refused, "put q"]);
}

fn own_pool(status: &str) -> String {
    format!(
        r#"{{"apiVersion":"seaway.dev/v1alpha1","kind":"AddressPool","metadata":{{"name":"p","resourceVersion":"3"}},"status":{status}}}"#
    )
}

fn counted(assigned: u128, problems: Vec<Problem>) -> BTreeMap<ObjectRef, PoolSays> {
    let v4 = Counted { assigned, available: 9 };
    let object = ObjectRef::new(Kind::AddressPool, "", "p");
    [(object, PoolSays { v4, problems, ..PoolSays::default() })].into()
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
    let (cluster, mut asked, _folder) = server("/addresspools", answers).await;
    let reports = PoolReports::start(&cluster, Leading::always());
    let mut next = async || {
        timeout(Duration::from_secs(20), asked.recv()).await.expect("is asked in time").expect("is asked")
    };
    reports.say(counted(1, vec![]));
    assert!(next().await.contains("metadata.name%3Dp"), "it is looked what is said");
    let since = r#""lastTransitionTime":"2001-01-01T00:00:00Z""#;
    assert!(next().await.contains(since));
    reports.say(counted(2, vec![]));
    assert!(next().await.contains(since), "it is as ready as before");
    let object = ObjectRef::new(Kind::AddressPool, "", "p");
    reports.say(counted(3, vec![Problem::new(object, Reason::PoolOverlap, "overlaps")]));
    assert!(!next().await.contains(since), "it is not ready any more");
}

#[tokio::test]
async fn a_pool_that_may_not_be_written_is_tried_less_and_less_often() {
    let forbidden = || Answer::Whole(403, status(403, "Forbidden", "cannot patch it"));
    let (cluster, mut asked, _folder) = server("/addresspools", (0..99).map(|_| forbidden()).collect()).await;
    let slow = cluster.clone();
    let reports = PoolReports::start(&slow, Leading::always());
    reports.say(counted(1, vec![]));
    let mut at = Vec::new();
    for _ in 0..4 {
        timeout(Duration::from_secs(20), asked.recv()).await.expect("is asked in time").expect("is asked");
        at.push(Instant::now());
    }
    let apart: Vec<Duration> = at.windows(2).map(|it| it[1] - it[0]).collect();
    assert!(apart[2] > apart[0] * 2, "{apart:?}");
}
