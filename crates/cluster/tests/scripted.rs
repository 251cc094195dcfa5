//! Answers that no real API server gives on demand, given by a scripted one.

use std::{
    collections::VecDeque,
    sync::{Arc, Mutex},
    time::Duration,
};

use seaway_cluster::{Access, Cluster, Credentials, Pace, Pulses};
use seaway_model::{Change, Fact, Kind, fact::FactRef};
use seaway_testkit::facts;
use tokio::{
    io::{AsyncBufReadExt, AsyncWriteExt, BufReader},
    net::{TcpListener, TcpStream},
    sync::mpsc,
    time::timeout,
};

/// What is answered to questions for Services, one after the other; to all others: that there are none.
type Script = Arc<Mutex<VecDeque<Answer>>>;

enum Answer {
    Whole(u16, String),
    /// These events, and then silence.
    Stream(Vec<String>),
    /// These bytes, and the end of the connection.
    Cut(String),
}

struct Heard {
    changes: mpsc::Receiver<Change>,
    asked: mpsc::UnboundedReceiver<String>,
    _watch: seaway_cluster::Watch,
    _folder: tempfile::TempDir,
}

async fn begin(script: Vec<Answer>) -> Heard {
    begin_from(&[], script).await
}

async fn begin_from(known: &[Fact], script: Vec<Answer>) -> Heard {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let at = listener.local_addr().expect("is bound");
    let script: Script = Arc::new(Mutex::new(script.into()));
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
        ..Pace::default()
    };
    let credentials = Credentials::Kubeconfig { path, context: None };
    let access = Access { credentials, namespace: Some("default".into()), pace };
    let cluster = Cluster::connect(access).await.expect("a kubeconfig");
    let (tell, changes) = mpsc::channel(64);
    let watch = cluster.watch_from(known, tell, Pulses::Unheeded);
    Heard { changes, asked, _watch: watch, _folder: folder }
}

async fn serve(mut stream: TcpStream, script: Script, ask: mpsc::UnboundedSender<String>) {
    let (read, mut write) = stream.split();
    let mut lines = BufReader::new(read).lines();
    while let Ok(Some(request)) = lines.next_line().await {
        while lines.next_line().await.is_ok_and(|it| it.is_some_and(|it| !it.is_empty())) {}
        let path = request.split(' ').nth(1).unwrap_or_default().to_owned();
        let scripted = match path.starts_with("/api/v1/services?") {
            true => script.lock().expect("whole").pop_front(),
            false => None,
        };
        let answer = match scripted {
            Some(answer) => {
                // The test may be over.
                let _ = ask.send(path);
                answer
            }
            None if path.contains("watch=true") => Answer::Stream(Vec::new()),
            None => Answer::Whole(200, list("9", &[])),
        };
        let (head, body, stays) = match answer {
            Answer::Whole(code, body) => (format!("{code} X\r\nContent-Length: {}", body.len()), body, true),
            Answer::Stream(events) => {
                let chunk = |it: String| format!("{:x}\r\n{it}\n\r\n", it.len() + 1);
                (
                    "200 OK\r\nTransfer-Encoding: chunked".to_owned(),
                    events.into_iter().map(chunk).collect(),
                    false,
                )
            }
            Answer::Cut(body) => (format!("200 OK\r\nContent-Length: {}", body.len() + 100), body, true),
        };
        let cut = head.contains(&format!("Content-Length: {}", body.len() + 100));
        let answer = format!("HTTP/1.1 {head}\r\nContent-Type: application/json\r\n\r\n{body}");
        if write.write_all(answer.as_bytes()).await.is_err() || cut {
            return;
        }
        if !stays {
            std::future::pending::<()>().await;
        }
    }
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
    /// The next thing that is told of Services.
    async fn next(&mut self) -> String {
        loop {
            let change = timeout(Duration::from_secs(20), self.changes.recv()).await;
            let name = |reference: FactRef| match reference {
                FactRef::Object(object) if object.kind == Kind::Service => Some(object.name),
                _ => None,
            };
            match change.expect("something is told in time").expect("watches go on") {
                Change::Put(fact) => {
                    if let Some(name) = name(fact.reference()) {
                        return format!("put {name}");
                    }
                }
                Change::Gone(reference) => {
                    if let Some(name) = name(reference) {
                        return format!("gone {name}");
                    }
                }
                Change::Synced(Kind::Service) => return "synced".to_owned(),
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
