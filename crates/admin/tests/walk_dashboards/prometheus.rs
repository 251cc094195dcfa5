//! A Prometheus of a test's own. It ends with its value.

use std::{
    fs,
    io::{Read, Write},
    net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream},
    process::{Child, Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use serde_json::{Map, Value};
use tempfile::TempDir;

/// One series, or a value without labels.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) labels: Map<String, Value>,
    pub(crate) value: f64,
}

pub(crate) struct Prometheus {
    process: Child,
    at: SocketAddr,
    folder: TempDir,
}

const LIMIT: Duration = Duration::from_secs(60);

impl Prometheus {
    /// It scrapes nothing yet. Nothing, and a skipped test, where it is not installed.
    pub(crate) fn start() -> Option<Prometheus> {
        if Command::new("prometheus").arg("--version").output().is_err() {
            seaway_testkit::skip(None, "prometheus is not installed: sudo apt-get install prometheus");
            return None;
        }
        let folder = tempfile::tempdir().unwrap();
        let (at, path) = (free_address(), folder.path());
        fs::write(path.join("prometheus.yaml"), configuration()).unwrap();
        fs::write(path.join("targets.json"), "[]").unwrap();
        let process = Command::new("prometheus")
            .arg(format!("--config.file={}", path.join("prometheus.yaml").display()))
            .arg(format!("--storage.tsdb.path={}", path.join("data").display()))
            .arg(format!("--web.listen-address={at}"))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(fs::File::create(path.join("log")).unwrap())
            .spawn()
            .unwrap();
        let prometheus = Prometheus { process, at, folder };
        prometheus.until("it is ready", || prometheus.get("/-/ready").is_some_and(|it| it.contains(" 200 ")));
        Some(prometheus)
    }

    /// Until it has three samples of each of these.
    pub(crate) fn scrape(&self, targets: &[SocketAddr]) {
        let targets: Vec<String> = targets.iter().map(ToString::to_string).collect();
        // Labels as the operator gives them to the targets of a ServiceMonitor.
        let labels = serde_json::json!({"job": "seaway-metrics", "namespace": "seaway-system", "service": "seaway-metrics",
            "pod": "seaway-node-x2p4q", "container": "seaway", "endpoint": "metrics"});
        let text = serde_json::json!([{"targets": targets, "labels": labels}]).to_string();
        // In one step, or half a file is read.
        let new = self.folder.path().join("new");
        fs::write(&new, text).unwrap();
        fs::rename(&new, self.folder.path().join("targets.json")).unwrap();
        self.until("all are scraped", || {
            let scraped = self.query("count_over_time(seaway_ready[5m]) >= 3");
            scraped.len() == targets.len()
        });
    }

    pub(crate) fn query(&self, query: &str) -> Vec<Answer> {
        let encoded = utf8_percent_encode(query, NON_ALPHANUMERIC);
        let response = self.get(&format!("/api/v1/query?query={encoded}")).expect("it answers");
        let (_, body) = response.split_once("\r\n\r\n").expect("a head");
        let body: Value = serde_json::from_str(body).unwrap_or_else(|it| panic!("{query}: {it}: {response}"));
        assert_eq!(body["status"], "success", "{query}: {}", body["error"]);
        let data = &body["data"];
        assert_eq!(data["resultType"], "vector", "{query}");
        let answer = |it: &Value| Answer {
            labels: it["metric"].as_object().cloned().unwrap_or_default(),
            value: it["value"][1].as_str().and_then(|it| it.parse().ok()).expect("a number"),
        };
        data["result"].as_array().expect("a list").iter().map(answer).collect()
    }

    /// By HTTP/1.0, so that the body comes in one piece.
    fn get(&self, path: &str) -> Option<String> {
        let mut stream = TcpStream::connect(self.at).ok()?;
        stream.set_read_timeout(Some(LIMIT)).ok()?;
        write!(stream, "GET {path} HTTP/1.0\r\n\r\n").ok()?;
        let mut response = String::new();
        stream.read_to_string(&mut response).ok()?;
        Some(response)
    }

    fn until(&self, what: &str, is: impl Fn() -> bool) {
        let deadline = Instant::now() + LIMIT;
        while !is() {
            let log = || fs::read_to_string(self.folder.path().join("log")).unwrap_or_default();
            assert!(Instant::now() < deadline, "{what}\n{}", log());
            thread::sleep(Duration::from_millis(20));
        }
    }
}

impl Drop for Prometheus {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// As the ServiceMonitor says; targets come from a file that it follows.
fn configuration() -> String {
    let honors = crate::read(crate::MONITOR).contains(crate::HONORS);
    format!(
        "scrape_configs:\n- {{job_name: seaway, honor_labels: {honors}, scrape_interval: 500ms, scrape_timeout: 500ms, \
         file_sd_configs: [{{files: [targets.json], refresh_interval: 1s}}]}}\n"
    )
}

/// Outside of the range in which the kernel chooses ports for others.
fn free_address() -> SocketAddr {
    let first = std::process::id() % 10_000;
    let ports = (first..first + 1_000).map(|it| (20_000 + it) as u16);
    let all = ports.map(|port| SocketAddr::from((Ipv4Addr::LOCALHOST, port)));
    let is_free = |at: &SocketAddr| TcpListener::bind(at).is_ok();
    all.into_iter().find(is_free).expect("a port is free")
}
