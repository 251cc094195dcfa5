//! What a control plane has stored, by the JSON interface of its etcd.

use std::{
    collections::BTreeMap,
    path::PathBuf,
    time::{Duration, Instant},
};

use http_body_util::{BodyExt, Full};
use hyper::{Request, StatusCode, body::Bytes, client::conn::http1, header::HOST};
use hyper_util::rt::TokioIo;
use k8s_openapi::ByteString;
use serde_json::{Value, json};
use tokio::{net::UnixStream, time::sleep};

use crate::topology::PATIENCE;

/// All objects of Kubernetes are between these keys.
const FIRST: &str = "/registry/";
const END: &str = "/registry0";
const BESIDE: &str = "/beside";
/// etcd takes 128 operations at once.
const BATCH: usize = 100;

/// Of each key the revision that wrote it last.
pub(super) type Revisions = BTreeMap<String, String>;

#[derive(Debug)]
pub(super) struct Etcd(PathBuf);

impl Etcd {
    pub(super) fn at(socket: PathBuf) -> Etcd {
        Etcd(socket)
    }

    pub(super) async fn revisions(&self) -> Result<Revisions, String> {
        let pairs = self.range(true).await?;
        Ok(pairs.into_iter().map(|(key, pair)| (key, text(&pair["mod_revision"]))).collect())
    }

    /// All values, in the base64 in which they are written back.
    pub(super) async fn values(&self) -> Result<BTreeMap<String, String>, String> {
        let pairs = self.range(false).await?;
        Ok(pairs.into_iter().map(|(key, pair)| (key, text(&pair["value"]))).collect())
    }

    pub(super) async fn delete(&self, keys: &[&str]) -> Result<(), String> {
        let delete = |key: &&str| json!({"request_delete_range": {"key": encoded(key)}});
        for some in keys.chunks(BATCH) {
            self.write(some.iter().map(delete).collect()).await?;
        }
        Ok(())
    }

    /// The revisions that these keys have by that.
    pub(super) async fn put(&self, pairs: &[(&str, &str)]) -> Result<Revisions, String> {
        let put = |(key, value): &(&str, &str)| json!({"request_put": {"key": encoded(key), "value": value}});
        let mut revisions = Revisions::new();
        for some in pairs.chunks(BATCH) {
            let revision = self.write(some.iter().map(put).collect()).await?;
            revisions.extend(some.iter().map(|(key, _)| ((*key).to_owned(), revision.clone())));
        }
        Ok(revisions)
    }

    pub(super) async fn until_it_answers(&self) -> Result<(), String> {
        let began = Instant::now();
        while let Err(why) = self.revision().await {
            if began.elapsed() > PATIENCE {
                return Err(why);
            }
            sleep(Duration::from_millis(50)).await;
        }
        Ok(())
    }

    /// Of the last write.
    pub(super) async fn revision(&self) -> Result<u64, String> {
        let answer = self.ask("/v3/kv/range", json!({"key": encoded(FIRST), "limit": 1})).await?;
        text(&answer["header"]["revision"]).parse().map_err(|_| format!("no revision: {answer}"))
    }

    /// Forgets what each key was before its last write.
    pub(super) async fn compact(&self) -> Result<(), String> {
        let revision = self.revision().await?.to_string();
        self.ask("/v3/kv/compaction", json!({"revision": revision, "physical": true})).await.map(drop)
    }

    /// Writes beside what Kubernetes has, until revisions are greater than that one.
    pub(super) async fn exceed(&self, revision: u64) -> Result<(), String> {
        while self.revision().await? <= revision {
            self.put(&[(BESIDE, "")]).await?;
        }
        self.delete(&[BESIDE]).await
    }

    async fn write(&self, operations: Vec<Value>) -> Result<String, String> {
        let answer = self.ask("/v3/kv/txn", json!({"success": operations})).await?;
        Ok(text(&answer["header"]["revision"]))
    }

    async fn range(&self, keys_only: bool) -> Result<Vec<(String, Value)>, String> {
        let all = json!({"key": encoded(FIRST), "range_end": encoded(END), "keys_only": keys_only});
        let mut answer = self.ask("/v3/kv/range", all).await?;
        let Value::Array(pairs) = answer["kvs"].take() else { return Err(format!("no keys: {answer}")) };
        pairs.into_iter().map(|pair| Ok((decoded(&pair["key"])?, pair))).collect()
    }

    async fn ask(&self, path: &str, question: Value) -> Result<Value, String> {
        let failed = |error: &dyn std::fmt::Display| format!("etcd, {path}: {error}");
        let stream = UnixStream::connect(&self.0).await.map_err(|it| failed(&it))?;
        let (mut sender, connection) =
            http1::handshake(TokioIo::new(stream)).await.map_err(|it| failed(&it))?;
        let request = Request::post(path).header(HOST, "localhost");
        let request = request.body(Full::new(Bytes::from(question.to_string()))).expect("a request");
        // The connection ends with its sender.
        let (_, answered) = futures::join!(connection, async move {
            let answer = sender.send_request(request).await?;
            let status = answer.status();
            Ok::<_, hyper::Error>((status, answer.into_body().collect().await?.to_bytes()))
        });
        let (status, body) = answered.map_err(|it| failed(&it))?;
        if status != StatusCode::OK {
            return Err(failed(&format!("{status}: {}", String::from_utf8_lossy(&body))));
        }
        serde_json::from_slice(&body).map_err(|it| failed(&it))
    }
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

fn encoded(key: &str) -> Value {
    json!(ByteString(key.as_bytes().to_vec()))
}

fn decoded(key: &Value) -> Result<String, String> {
    let bytes: ByteString = serde_json::from_value(key.clone()).map_err(|it| it.to_string())?;
    String::from_utf8(bytes.0).map_err(|it| it.to_string())
}
