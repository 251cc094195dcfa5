//! One attempt: a request out, its reply in, bounded in time and size.

use std::{fs, io, time::Duration};

use reqwest::{Certificate, Client, Identity, Method, Response, Url, header::HeaderValue, redirect::Policy};
use secrecy::{ExposeSecret, SecretString};
use serde_json::Value;

use super::{
    attempt_error::{AttemptError, RequestDescription},
    retry_after,
};
use crate::{
    call::Accept,
    clock::Clock,
    credentials::{Credentials, Located, Tls},
    error::{Class, Error, is_of_a_service},
};

/// 10,000 members are 7 MiB; nothing that we ask for comes near this.
const LARGEST: usize = 64 << 20;

/// Shorter than the keep-alive of any web server in front of OpenStack (Apache: 5 s), so that no request is sent into
/// a connection that is being closed.
const IDLE: Duration = Duration::from_secs(4);

/// Connections with one way of trusting; made anew when the credentials change.
#[derive(Clone, Debug)]
pub(crate) struct Transport {
    client: Client,
    connect: Duration,
}

/// What is sent. It has no debug text: there is a token in it, and maybe a password.
pub(crate) struct HttpRequest<'a> {
    pub(crate) method: Method,
    pub(crate) url: &'a str,
    pub(crate) query: &'a [(String, String)],
    pub(crate) headers: Vec<(&'static str, String)>,
    pub(crate) token: Option<&'a SecretString>,
    pub(crate) body: Option<&'a Value>,
    pub(crate) accept: Accept,
    /// Where the address is from, for whoever has to mend it.
    pub(crate) address_from: &'a str,
}

/// A complete HTTP reply, whatever its status.
#[derive(Debug)]
pub(crate) struct HttpReply {
    pub(crate) status: u16,
    pub(crate) body: Body,
    pub(crate) request_id: Option<String>,
    pub(crate) retry_after: Option<Duration>,
    /// Keystone's `X-Subject-Token`.
    pub(crate) token: Option<SecretString>,
    pub(crate) location: Option<String>,
    /// Whom a service that wants a token names: `WWW-Authenticate: Keystone uri="…"`.
    pub(crate) keystone: Option<String>,
}

pub(crate) enum Body {
    Nothing,
    Json(Value),
    Text(String),
    /// A web page, by its title.
    Page(String),
}

impl HttpReply {
    /// A 503 that no service wrote: what stands in between may have passed the request on before.
    pub(crate) fn is_from_gateway(&self) -> bool {
        self.status == 503 && !is_of_a_service(self.body.json())
    }
}

impl Transport {
    pub(crate) fn new(credentials: &Credentials, connect: Duration) -> Result<Transport, Error> {
        let builder = || trusting(builder(connect, &credentials.auth_url.value), &credentials.tls);
        let client = match (builder()?.build(), &credentials.tls.ca) {
            (Ok(client), _) => client,
            // A container without the system's authorities is no reason not to speak HTTP. All else stays as it is
            // wished: if that is what is wrong, this fails as well.
            (Err(source), None) => {
                let client = builder()?.tls_certs_only([]).build().map_err(no_tls)?;
                let error = no_tls(source);
                tracing::warn!(%error, "no certificate authorities found on this system: HTTPS needs a CA file");
                client
            }
            (Err(source), Some(_)) => return Err(no_tls(source)),
        };
        Ok(Transport { client, connect })
    }

    pub(crate) async fn attempt(
        &self,
        ask: &HttpRequest<'_>,
        within: Duration,
        clock: &dyn Clock,
    ) -> Result<HttpReply, AttemptError> {
        let mut url = Url::parse(ask.url).map_err(|source| AttemptError::no_url(ask, source))?;
        if !ask.query.is_empty() {
            url.query_pairs_mut().extend_pairs(ask.query);
        }
        let subject =
            RequestDescription { url: &url, connect: self.connect, within, address_from: ask.address_from };
        let mut request = self.client.request(ask.method.clone(), url.clone()).timeout(within).header(
            "accept",
            match ask.accept {
                Accept::Json => "application/json",
                Accept::Text => "text/plain",
            },
        );
        for (name, value) in &ask.headers {
            request = request.header(*name, value);
        }
        if let Some(token) = ask.token {
            let mut value = HeaderValue::from_str(token.expose_secret()).map_err(|_| {
                AttemptError::unsent(Error::new(
                    Class::Credentials,
                    "the token has characters that a token cannot have",
                ))
            })?;
            value.set_sensitive(true);
            request = request.header("x-auth-token", value);
        }
        if let Some(body) = ask.body {
            request = request.json(body);
        }
        let mut response = request.send().await.map_err(|error| subject.no_reply(error))?;
        let mut answer = head(&response, clock);
        tracing::debug!(method = %ask.method, %url, status = answer.status, id = answer.request_id, "answered");
        let (bytes, kind) = (whole(&mut response, &subject).await?, kind(&response));
        answer.body = Body::read(bytes, &kind, ask.accept, answer.status, &subject)?;
        Ok(answer)
    }
}

fn no_tls(source: reqwest::Error) -> Error {
    Error::new(Class::Tls, "TLS could not be set up")
        .with_fix("look at CA file, client certificate and key: key and certificate have to belong together")
        .with_source(source.without_url())
}

/// A proxy of the environment (`https_proxy`, `no_proxy`) is used as by OpenStack's own client, but for the loopback,
/// which no proxy reaches. Redirects are not followed: they would take a token to wherever somebody points.
fn builder(connect: Duration, auth_url: &str) -> reqwest::ClientBuilder {
    let builder = Client::builder()
        .user_agent(concat!("seaway/", env!("CARGO_PKG_VERSION")))
        .connect_timeout(connect)
        .pool_idle_timeout(IDLE)
        .redirect(Policy::none());
    let host = Url::parse(auth_url).ok().and_then(|url| url.host_str().map(str::to_owned));
    let loopback = host.is_some_and(|host| {
        host == "localhost"
            || host.trim_matches(['[', ']']).parse().is_ok_and(|ip: std::net::IpAddr| ip.is_loopback())
    });
    if loopback { builder.no_proxy() } else { builder }
}

fn trusting(mut builder: reqwest::ClientBuilder, tls: &Tls) -> Result<reqwest::ClientBuilder, Error> {
    if let Some(file) = &tls.ca {
        let pem = read(file, "CA file")?;
        let certificates = Certificate::from_pem_bundle(&pem).ok().filter(|all| !all.is_empty());
        let certificates = certificates.ok_or_else(|| no_pem(file, "CA file", "no certificate"))?;
        builder = builder.tls_certs_only(certificates);
    }
    if let Some((certificate, key)) = &tls.client {
        let mut pem = read(certificate, "client certificate")?;
        if key.value != certificate.value {
            pem.push(b'\n');
            pem.extend(read(key, "key of the client certificate")?);
        }
        let identity = Identity::from_pem(&pem)
            .map_err(|_| no_pem(certificate, "client certificate", "no certificate with its key"))?;
        builder = builder.identity(identity);
    }
    if tls.insecure.is_some() {
        builder = builder.tls_danger_accept_invalid_certs(true);
    }
    Ok(builder)
}

fn read(file: &Located<std::path::PathBuf>, what: &str) -> Result<Vec<u8>, Error> {
    fs::read(&file.value).map_err(|source: io::Error| {
        let path = file.value.display();
        Error::new(Class::Credentials, format!("the {what} {path} cannot be read"))
            .with_fix(format!("the path comes from {}", file.place))
            .with_source(source)
    })
}

fn no_pem(file: &Located<std::path::PathBuf>, what: &str, lacks: &str) -> Error {
    let path = file.value.display();
    Error::new(Class::Credentials, format!("the {what} {path} has {lacks}"))
        .with_fix(format!("the file has to be PEM; the path comes from {}", file.place))
}

fn head(response: &Response, clock: &dyn Clock) -> HttpReply {
    let header = |name: &str| response.headers().get(name).and_then(|value| value.to_str().ok());
    let own = |name: &str| header(name).map(str::to_owned);
    HttpReply {
        status: response.status().as_u16(),
        body: Body::Nothing,
        request_id: own("x-openstack-request-id").or_else(|| own("x-compute-request-id")),
        retry_after: header("retry-after").and_then(|text| retry_after::read(text, clock.wall())),
        token: header("x-subject-token").map(Into::into),
        location: own("location"),
        keystone: header("www-authenticate")
            .and_then(|text| text.split_once("uri=\"")?.1.split_once('"'))
            .map(|(uri, _)| uri.to_owned()),
    }
}

fn kind(response: &Response) -> String {
    let kind = response.headers().get("content-type").and_then(|value| value.to_str().ok());
    kind.unwrap_or_default().to_ascii_lowercase()
}

async fn whole(response: &mut Response, subject: &RequestDescription<'_>) -> Result<Vec<u8>, AttemptError> {
    let mut bytes = Vec::new();
    while let Some(chunk) = response.chunk().await.map_err(|error| subject.cut(error, bytes.len()))? {
        if bytes.len().saturating_add(chunk.len()) > LARGEST {
            return Err(subject.too_large(LARGEST));
        }
        bytes.extend_from_slice(&chunk);
    }
    Ok(bytes)
}

impl Body {
    fn read(
        bytes: Vec<u8>,
        kind: &str,
        accept: Accept,
        status: u16,
        subject: &RequestDescription<'_>,
    ) -> Result<Body, AttemptError> {
        if bytes.iter().all(u8::is_ascii_whitespace) {
            return Ok(Body::Nothing);
        }
        if accept == Accept::Text && status < 300 {
            return Ok(Body::Text(String::from_utf8_lossy(&bytes).into_owned()));
        }
        let fault = match serde_json::from_slice(&bytes) {
            Ok(value) => return Ok(Body::Json(value)),
            Err(fault) => fault,
        };
        let text = String::from_utf8_lossy(&bytes);
        if kind.contains("html") || text.trim_start().starts_with('<') {
            return Ok(Body::Page(title(&text)));
        }
        // Without a length, only what is missing tells that something is.
        if kind.contains("json") && fault.is_eof() {
            return Err(subject.ends_early(bytes.len()));
        }
        Ok(Body::Text(text.into_owned()))
    }

    /// The title of a web page.
    pub(crate) fn page(&self) -> Option<&str> {
        match self {
            Body::Page(title) => Some(title),
            _ => None,
        }
    }

    /// The JSON, or `Null`.
    pub(crate) fn json(&self) -> &Value {
        match self {
            Body::Json(value) => value,
            _ => &Value::Null,
        }
    }
}

/// Bodies have tokens, passwords of others, payloads of secrets: no log shows one.
impl std::fmt::Debug for Body {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Body::Nothing => "Nothing",
            Body::Json(_) => "Json",
            Body::Text(_) => "Text",
            Body::Page(_) => "Page",
        })
    }
}

fn title(page: &str) -> String {
    let lower = page.to_ascii_lowercase();
    let inner = lower.find("<title").and_then(|at| {
        let (_, inner) = page.get(at..)?.split_once('>')?;
        let end = inner.to_ascii_lowercase().find("</title")?;
        inner.get(..end)
    });
    let words: Vec<&str> = inner.unwrap_or_default().split_whitespace().collect();
    words.join(" ").chars().take(80).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_is_called_by_its_title() {
        for (page, name) in [
            ("<html><TITLE lang=en>\n Log  in\n</TITLE>", "Log in"),
            ("<html><title>no end", ""),
            ("<html><body>", ""),
            ("<title></title>", ""),
        ] {
            assert_eq!(title(page), name, "{page}");
        }
    }

    #[test]
    fn bodies_are_not_shown() {
        let body = Body::Json(serde_json::json!({"token": "gAAAA"}));
        assert_eq!(format!("{body:?}"), "Json");
    }
}
