//! The authority's directory, and requests to it: signed, with a nonce, bounded in time and size.

use std::{
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use base64::{Engine, prelude::BASE64_URL_SAFE_NO_PAD};
use reqwest::{Certificate, Client, Response, Url, redirect::Policy};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::{AcmeError, Key};

/// For one request. An authority that takes longer is asked again later.
const PATIENCE: Duration = Duration::from_secs(20);
const CONNECT: Duration = Duration::from_secs(10);
/// A certificate chain has some KiB.
const LARGEST: usize = 1 << 20;
/// A nonce may have been used up by another process, or be too old for the authority.
const NONCES: usize = 8;
const BAD_NONCE: &str = "urn:ietf:params:acme:error:badNonce";

/// An authority that was asked what it offers.
#[derive(Debug)]
pub struct Directory {
    http: Client,
    urls: Urls,
    nonce: Mutex<Option<String>>,
}

#[derive(Debug, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Urls {
    new_nonce: String,
    pub(crate) new_account: String,
    pub(crate) new_order: String,
    /// Where it says when certificates are to be renewed.
    pub(crate) renewal_info: Option<String>,
}

/// Who signs.
#[derive(Clone, Copy)]
pub(crate) enum Signer<'a> {
    /// Not known to the authority yet.
    New(&'a Key),
    Account(&'a Key, &'a str),
}

/// What was answered, if that is no refusal.
pub(crate) struct Reply {
    pub(crate) location: Option<String>,
    pub(crate) retry_after: Option<Duration>,
    pub(crate) body: Vec<u8>,
    /// It was made by this request.
    pub(crate) is_new: bool,
    url: String,
}

impl Reply {
    pub(crate) fn read<T: for<'de> Deserialize<'de>>(&self) -> Result<T, AcmeError> {
        serde_json::from_slice(&self.body).map_err(|error| self.unexpected(clean(&error.to_string())))
    }

    #[cfg(test)]
    pub(crate) fn of(body: String, retry_after: Option<Duration>) -> Reply {
        let url = "https://ca.example/x".to_owned();
        Reply { location: None, retry_after, body: body.into_bytes(), is_new: false, url }
    }

    pub(crate) fn unexpected(&self, why: impl Into<String>) -> AcmeError {
        AcmeError::Unexpected { url: self.url.clone(), why: why.into() }
    }
}

impl Directory {
    /// `authorities`: CA certificates (PEM) that its own certificate is checked with; without them, those of this machine.
    pub async fn open(url: &str, authorities: Option<&Path>) -> Result<Arc<Directory>, AcmeError> {
        let http = client(url, authorities)?;
        let reply = read(http.get(url).send().await, url).await?;
        let urls: Urls = reply.read()?;
        let directory = Directory { http, urls, nonce: Mutex::default() };
        let Urls { new_nonce, new_account, new_order, renewal_info } = &directory.urls;
        for named in [new_nonce, new_account, new_order].into_iter().chain(renewal_info) {
            directory.check(named)?;
        }
        Ok(Arc::new(directory))
    }

    /// Whether it offers the same.
    pub fn is_as(&self, other: &Directory) -> bool {
        self.urls == other.urls
    }

    pub(crate) fn urls(&self) -> &Urls {
        &self.urls
    }

    /// A request that nobody signs.
    pub(crate) async fn look_up(&self, url: &str) -> Result<Reply, AcmeError> {
        self.check(url)?;
        read(self.http.get(url).send().await, url).await
    }

    /// A request that is signed goes by TLS, and nowhere else.
    fn check(&self, url: &str) -> Result<(), AcmeError> {
        match Url::parse(url) {
            Ok(it) if it.scheme() == "https" => Ok(()),
            _ => Err(AcmeError::Unexpected {
                url: clean(url),
                why: "the ACME directory has a URL that does not begin with https://".into(),
            }),
        }
    }

    pub(crate) async fn post(
        &self,
        signer: Signer<'_>,
        url: &str,
        payload: Option<&Value>,
    ) -> Result<Reply, AcmeError> {
        self.check(url)?;
        let mut tried = 0_usize;
        loop {
            let nonce = self.nonce().await?;
            let body = sign(signer, &nonce, url, payload)?;
            let request = self.http.post(url).header("content-type", "application/jose+json");
            let answered = request.body(body.to_string()).send().await;
            if let Ok(response) = &answered {
                self.keep_nonce(response);
            }
            tried = tried.saturating_add(1);
            match read(answered, url).await {
                Err(error) if error.is(BAD_NONCE) && tried < NONCES => {}
                done => return done,
            }
        }
    }

    async fn nonce(&self) -> Result<String, AcmeError> {
        let kept = self.nonce.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(kept) = kept {
            return Ok(kept);
        }
        let url = &self.urls.new_nonce;
        let response = self.http.head(url).send().await.map_err(|error| unreachable_at(url, &error))?;
        self.keep_nonce(&response);
        let made = self.nonce.lock().unwrap_or_else(PoisonError::into_inner).take();
        made.ok_or_else(|| AcmeError::Unexpected {
            url: url.clone(),
            why: "the reply has no Replay-Nonce header".into(),
        })
    }

    fn keep_nonce(&self, response: &Response) {
        if let Some(nonce) = header(response, "replay-nonce") {
            *self.nonce.lock().unwrap_or_else(PoisonError::into_inner) = Some(nonce);
        }
    }
}

fn client(url: &str, authorities: Option<&Path>) -> Result<Client, AcmeError> {
    let unexpected = |why: String| AcmeError::Unexpected { url: url.into(), why };
    let parsed =
        Url::parse(url).map_err(|error| unexpected(format!("a URL in the reply is invalid: {error}")))?;
    if parsed.scheme() != "https" {
        return Err(unexpected("the URL of an ACME directory must begin with https://".into()));
    }
    let mut builder = Client::builder()
        .user_agent(concat!("seaway/", env!("CARGO_PKG_VERSION")))
        .connect_timeout(CONNECT)
        .timeout(PATIENCE)
        .https_only(true)
        .redirect(Policy::none());
    if parsed.host_str().is_some_and(|it| it == "localhost" || it.starts_with("127.") || it == "[::1]") {
        builder = builder.no_proxy();
    }
    if let Some(file) = authorities {
        builder = builder.tls_certs_only(trusted(file).map_err(unexpected)?);
    }
    builder.build().map_err(|error| unexpected(format!("TLS cannot be set up: {}", chain(&error))))
}

fn trusted(file: &Path) -> Result<Vec<Certificate>, String> {
    let shown = PathBuf::from(file).display().to_string();
    let pem = std::fs::read(file).map_err(|error| format!("{shown} cannot be read: {error}"))?;
    let all = Certificate::from_pem_bundle(&pem).ok().filter(|all| !all.is_empty());
    all.ok_or_else(|| format!("{shown} has no CA certificate (PEM)"))
}

/// A JSON Web Signature (RFC 7515) as ACME wants it.
fn sign(signer: Signer<'_>, nonce: &str, url: &str, payload: Option<&Value>) -> Result<Value, AcmeError> {
    let (key, head) = match signer {
        Signer::New(key) => (key, json!({"alg": "ES256", "jwk": key.jwk(), "nonce": nonce, "url": url})),
        Signer::Account(key, kid) => (key, json!({"alg": "ES256", "kid": kid, "nonce": nonce, "url": url})),
    };
    let encode = |text: &str| BASE64_URL_SAFE_NO_PAD.encode(text);
    let head = encode(&head.to_string());
    // Who only asks sends nothing (POST-as-GET).
    let payload = payload.map(|it| encode(&it.to_string())).unwrap_or_default();
    let signature = key.sign_request(format!("{head}.{payload}").as_bytes())?;
    let signature = BASE64_URL_SAFE_NO_PAD.encode(signature);
    Ok(json!({"protected": head, "payload": payload, "signature": signature}))
}

async fn read(answered: reqwest::Result<Response>, url: &str) -> Result<Reply, AcmeError> {
    let mut response = answered.map_err(|error| unreachable_at(url, &error))?;
    let status = response.status();
    let retry_after = header(&response, "retry-after").and_then(|text| text.trim().parse().ok());
    let retry_after = retry_after.map(Duration::from_secs);
    let location = header(&response, "location");
    let mut body = Vec::new();
    while let Some(chunk) = response.chunk().await.map_err(|error| unreachable_at(url, &error))? {
        if body.len().saturating_add(chunk.len()) > LARGEST {
            let why = format!("the answer has more than {LARGEST} bytes");
            return Err(AcmeError::Unexpected { url: url.into(), why });
        }
        body.extend_from_slice(&chunk);
    }
    if status.is_success() {
        let is_new = status.as_u16() == 201;
        return Ok(Reply { location, retry_after, body, is_new, url: url.into() });
    }
    let problem: ProblemDocument = serde_json::from_slice(&body).unwrap_or_default();
    let ProblemDocument { kind, detail } = problem;
    Err(AcmeError::Refused {
        status: status.as_u16(),
        kind: clean(&kind),
        detail: clean(&detail),
        retry_after,
    })
}

/// RFC 7807.
#[derive(Default, Deserialize)]
#[serde(default)]
pub(crate) struct ProblemDocument {
    #[serde(rename = "type")]
    pub(crate) kind: String,
    pub(crate) detail: String,
}

/// It comes from outside, and goes to logs.
pub(crate) fn clean(text: &str) -> String {
    text.chars().map(|it| if it.is_control() { ' ' } else { it }).take(500).collect()
}

fn header(response: &Response, name: &str) -> Option<String> {
    Some(response.headers().get(name)?.to_str().ok()?.to_owned())
}

fn unreachable_at(url: &str, error: &reqwest::Error) -> AcmeError {
    AcmeError::Unreachable { url: url.into(), why: chain(error) }
}

/// The last cause says most: `connection refused`, `certificate has expired`.
fn chain(error: &dyn std::error::Error) -> String {
    let mut last = error;
    while let Some(cause) = last.source() {
        last = cause;
    }
    last.to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_signed_request_names_its_key_its_nonce_and_where_it_goes() {
        let key = Key::generate().expect("a key");
        let decode = |it: &Value| {
            let text = it.as_str().expect("text");
            BASE64_URL_SAFE_NO_PAD.decode(text).expect("base64")
        };
        let signed =
            sign(Signer::Account(&key, "https://ca/1"), "n", "https://ca/order", None).expect("signed");
        let head: Value = serde_json::from_slice(&decode(&signed["protected"])).expect("JSON");
        assert_eq!(
            head,
            json!({"alg": "ES256", "kid": "https://ca/1", "nonce": "n", "url": "https://ca/order"})
        );
        assert_eq!((signed["payload"].as_str(), decode(&signed["signature"]).len()), (Some(""), 64));
        let signed = sign(Signer::New(&key), "n", "https://ca/new", Some(&json!({}))).expect("signed");
        let head: Value = serde_json::from_slice(&decode(&signed["protected"])).expect("JSON");
        assert_eq!((&head["jwk"], decode(&signed["payload"])), (&key.jwk(), b"{}".to_vec()));
    }

    #[tokio::test]
    async fn a_directory_that_is_not_https_is_not_asked() {
        for url in ["http://127.0.0.1:1/dir", "ftp://x", "nonsense"] {
            let error = Directory::open(url, None).await.expect_err(url);
            assert!(matches!(error, AcmeError::Unexpected { .. }), "{error}");
        }
        let missing = Path::new("/nonexistent/ca.pem");
        let error = Directory::open("https://127.0.0.1:1/dir", Some(missing)).await.expect_err("no file");
        assert!(error.to_string().contains("/nonexistent/ca.pem cannot be read"), "{error}");
    }

    #[test]
    fn what_an_authority_says_is_one_line() {
        assert_eq!(clean("a\nb\u{1b}[31m"), "a b [31m");
    }
}
