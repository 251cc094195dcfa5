//! An API server that says what a script has.

use std::{
    collections::VecDeque,
    sync::{Arc, Mutex},
    time::Duration,
};

use seaway_cluster::{Cluster, ClusterAccess, CredentialSource, WatchTimings};
use tokio::{
    io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader},
    net::{TcpListener, TcpStream},
    sync::mpsc,
    time::interval,
};

/// What is answered to questions with these words in their paths, one after the other; to all others: that there are none.
#[derive(Clone)]
struct Script(Arc<Mutex<Vec<Lines>>>);

type Lines = (&'static str, VecDeque<Answer>);

pub(crate) enum Answer {
    Whole(u16, String),
    /// These events, and then silence.
    Stream(Vec<String>),
    /// These events, one each 300 milliseconds.
    Drip(Vec<String>),
    /// These bytes, and the end of the connection.
    Cut(String),
}

/// Questions whose paths have `of` are answered by the script, and told.
pub(crate) async fn server(
    scripts: Vec<(&'static str, Vec<Answer>)>,
) -> (Cluster, mpsc::UnboundedReceiver<String>, tempfile::TempDir) {
    server_at(pace(), scripts).await
}

pub(crate) fn pace() -> WatchTimings {
    WatchTimings {
        first_retry: Duration::from_millis(20),
        longest_retry: Duration::from_millis(60),
        look_for: Duration::from_millis(60),
        silence: Duration::from_secs(4),
        slices: Duration::from_millis(20),
        gather: Duration::from_millis(20),
        ..WatchTimings::default()
    }
}

/// Asked by somebody of this patience.
pub(crate) async fn server_at(
    pace: WatchTimings,
    scripts: Vec<(&'static str, Vec<Answer>)>,
) -> (Cluster, mpsc::UnboundedReceiver<String>, tempfile::TempDir) {
    server_with(pace, None, scripts).await
}

/// Asked by somebody who reads certificates as copies in that namespace.
pub(crate) async fn server_with(
    pace: WatchTimings,
    copies: Option<&str>,
    scripts: Vec<(&'static str, Vec<Answer>)>,
) -> (Cluster, mpsc::UnboundedReceiver<String>, tempfile::TempDir) {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let at = listener.local_addr().expect("is bound");
    let scripts = scripts.into_iter().map(|(of, answers)| (of, answers.into()));
    let script = Script(Arc::new(Mutex::new(scripts.collect())));
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
    let credentials = CredentialSource::Kubeconfig { path, context: None };
    let (namespace, copies) = (Some("default".into()), copies.map(Into::into));
    let access = ClusterAccess { credentials, namespace, metallb: "default".into(), copies, pace };
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
        let scripted = {
            let mut scripts = script.0.lock().expect("whole");
            scripts.iter_mut().find(|(of, _)| path.contains(of)).and_then(|(_, it)| it.pop_front())
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

pub(crate) fn list(version: &str, items: &[String]) -> String {
    format!(
        r#"{{"kind":"ServiceList","apiVersion":"v1","metadata":{{"resourceVersion":"{version}"}},"items":[{}]}}"#,
        items.join(",")
    )
}

pub(crate) fn status(code: u16, reason: &str, message: &str) -> String {
    format!(
        r#"{{"kind":"Status","apiVersion":"v1","metadata":{{}},"status":"Failure","message":"{message}","reason":"{reason}","code":{code}}}"#
    )
}

pub(crate) fn event(kind: &str, object: &str) -> String {
    format!(r#"{{"type":"{kind}","object":{object}}}"#)
}
