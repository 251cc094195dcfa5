//! Members that write down what they hear, and are stricter than anybody needs to be. Nothing here is shared with the
//! reader that is tested.

use std::{
    io::{BufRead, BufReader, Read, Write},
    net::SocketAddr,
    sync::{Arc, Mutex, mpsc},
    time::Instant,
};

use bytes::Bytes;
use h2::RecvStream;
use http::{HeaderMap, Request, Response};
use rustls::ServerConfig;
use tokio::{
    io::{AsyncRead, AsyncWrite},
    runtime::{Builder, Runtime},
    task::JoinHandle,
};

use crate::stage::*;

/// One entry for each request: `POST a/x body`, and ` +name: value` for each trailer.
pub(crate) struct Log {
    pub(crate) at: SocketAddr,
    whole: Arc<Mutex<Vec<String>>>,
    /// Each connection tells how many of its messages were cut short, when it is over.
    ended: mpsc::Receiver<usize>,
    accepted: Box<dyn Fn() -> usize>,
    _keeps: Box<dyn std::any::Any>,
}

impl Log {
    /// When every connection has ended: what was heard whole, and how many messages were cut short.
    pub(crate) fn whole(self) -> (Vec<String>, usize) {
        let deadline = Instant::now() + PATIENCE;
        let (mut over, mut cut) = (0, 0);
        while over < (self.accepted)() {
            let left = deadline.saturating_duration_since(Instant::now());
            cut += self.ended.recv_timeout(left).expect("every connection to a member ends");
            over += 1;
        }
        (std::mem::take(&mut *self.whole.lock().unwrap()), cut)
    }
}

/// Of HTTP/1.1.
pub(crate) fn one() -> Log {
    let whole = Arc::<Mutex<Vec<String>>>::default();
    let (told, ended) = mpsc::channel();
    let kept = whole.clone();
    let backend = Backend::new(HERE, move |mut stream| {
        let mut reader = Strict(BufReader::new(stream.try_clone().unwrap()));
        let cut = loop {
            match reader.request() {
                Ok(request) => {
                    let denied = request.starts_with("CONNECT");
                    kept.lock().unwrap().push(request);
                    let status = if denied { "405 No" } else { "200 OK" };
                    let answer = format!("HTTP/1.1 {status}\r\nContent-Length: 0\r\n\r\n");
                    if stream.write_all(answer.as_bytes()).is_err() {
                        break 0;
                    }
                }
                Err(End::Clean) => break 0,
                Err(End::Cut) => break 1,
                Err(End::Fault(why)) => {
                    kept.lock().unwrap().push(format!("FAULT {why}"));
                    break 0;
                }
            }
        };
        let _ = told.send(cut);
    });
    let accepted = backend.accepted.clone();
    let accepted = Box::new(move || accepted.load(std::sync::atomic::Ordering::SeqCst));
    Log { at: backend.at, whole, ended, accepted, _keeps: Box::new(backend) }
}

enum End {
    Clean,
    Cut,
    Fault(String),
}

fn fault<T>(why: impl Into<String>) -> Result<T, End> {
    Err(End::Fault(why.into()))
}

struct Strict(BufReader<std::net::TcpStream>);

impl Strict {
    fn line(&mut self) -> Result<String, End> {
        let mut line = Vec::new();
        match self.0.read_until(b'\n', &mut line) {
            Ok(0) | Err(_) => return Err(if line.is_empty() { End::Clean } else { End::Cut }),
            Ok(_) => {}
        }
        let Some(text) = line.strip_suffix(b"\r\n") else {
            return if line.ends_with(b"\n") { fault(format!("a bare LF: {line:?}")) } else { Err(End::Cut) };
        };
        if text.iter().any(|byte| (*byte < b' ' && *byte != b'\t') || *byte == 0x7f) {
            return fault(format!("a control byte: {}", String::from_utf8_lossy(text)));
        }
        Ok(String::from_utf8_lossy(text).into_owned())
    }

    /// A line inside of a message.
    fn further(&mut self) -> Result<String, End> {
        self.line().map_err(|end| if matches!(end, End::Clean) { End::Cut } else { end })
    }

    fn fields(&mut self) -> Result<Vec<(String, String)>, End> {
        let mut fields = Vec::new();
        loop {
            let line = self.further()?;
            if line.is_empty() {
                return Ok(fields);
            }
            let Some((name, value)) = line.split_once(": ") else {
                return fault(format!("no field: {line}"));
            };
            let is_token = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte);
            if name.is_empty() || !name.bytes().all(is_token) || value != value.trim() {
                return fault(format!("a strange field: {line}"));
            }
            fields.push((name.to_ascii_lowercase().replace('_', "-"), value.to_owned()));
        }
    }

    fn request(&mut self) -> Result<String, End> {
        let line = self.line()?;
        let words: Vec<&str> = line.split(' ').collect();
        let [method, target, "HTTP/1.1"] = words[..] else {
            return fault(format!("no request line: {line}"));
        };
        let is_connect = method == "CONNECT";
        if !(target.starts_with('/') || (target == "*" && method == "OPTIONS") || is_connect) {
            return fault(format!("no target: {line}"));
        }
        let fields = self.fields()?;
        let all = |wanted: &str| -> Vec<&str> {
            fields.iter().filter(|(name, _)| name == wanted).map(|(_, value)| &**value).collect()
        };
        let hosts = all("host");
        let [host] = hosts[..] else { return fault(format!("hosts: {hosts:?}")) };
        let upgrade = match (&all("connection")[..], &all("upgrade")[..], &all("te")[..]) {
            ([] | ["close"], [], []) | (["te" | "te, close"], [], ["trailers"]) => String::new(),
            (["upgrade"], [upgrade], []) => format!(" ^{upgrade}"),
            other => return fault(format!("for one hop: {other:?}")),
        };
        for hop in ["keep-alive", "proxy-connection", "http2-settings"] {
            if !all(hop).is_empty() {
                return fault(format!("{hop} went on"));
            }
        }
        let (body, trailers) = match (&all("content-length")[..], &all("transfer-encoding")[..]) {
            ([], []) => (String::new(), Vec::new()),
            ([length], []) if length.bytes().all(|it| it.is_ascii_digit()) && !length.is_empty() => {
                (self.exactly(length.parse().unwrap())?, Vec::new())
            }
            ([], ["chunked"]) => self.chunks()?,
            other => return fault(format!("framed by {other:?}")),
        };
        if body.is_empty() && !all("expect").is_empty() {
            return fault("an expectation without a body");
        }
        let target = if is_connect { "" } else { target };
        Ok(told(method, host, target, &body, &trailers) + &upgrade)
    }

    fn chunks(&mut self) -> Result<(String, Vec<(String, String)>), End> {
        let mut body = String::new();
        loop {
            let line = self.further()?;
            if line.is_empty() || !line.bytes().all(|it| it.is_ascii_hexdigit()) {
                return fault(format!("a chunk's size: {line}"));
            }
            let size = usize::from_str_radix(&line, 16).unwrap();
            if size == 0 {
                return Ok((body, self.fields()?));
            }
            body += &self.exactly(size)?;
            if !self.further()?.is_empty() {
                return fault("a chunk longer than its size");
            }
        }
    }

    fn exactly(&mut self, length: usize) -> Result<String, End> {
        let mut body = vec![0; length];
        self.0.read_exact(&mut body).map_err(|_| End::Cut)?;
        Ok(String::from_utf8_lossy(&body).into_owned())
    }
}

fn told(method: &str, host: &str, target: &str, body: &str, trailers: &[(String, String)]) -> String {
    let mut told = format!("{method} {host}{target}");
    if !body.is_empty() {
        told += &format!(" {body}");
    }
    for (name, value) in trailers {
        told += &format!(" +{name}: {value}");
    }
    told
}

/// Of HTTP/2.
pub(crate) fn many(tls: Option<Arc<ServerConfig>>) -> Log {
    let whole = Arc::<Mutex<Vec<String>>>::default();
    let (told, ended) = mpsc::channel();
    let runtime = Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    listener.set_nonblocking(true).unwrap();
    let at = listener.local_addr().unwrap();
    let accepted = Arc::new(std::sync::atomic::AtomicUsize::new(0));
    let (kept, count) = (whole.clone(), accepted.clone());
    runtime.spawn(async move {
        let listener = tokio::net::TcpListener::from_std(listener).unwrap();
        while let Ok((stream, _)) = listener.accept().await {
            count.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
            let (kept, told, tls) = (kept.clone(), told.clone(), tls.clone());
            tokio::spawn(async move {
                let mut requests = Vec::new();
                match tls.map(tokio_rustls::TlsAcceptor::from) {
                    None => listen(stream, &mut requests, kept).await,
                    Some(tls) => {
                        if let Ok(stream) = tls.accept(stream).await {
                            listen(stream, &mut requests, kept).await;
                        }
                    }
                }
                let mut cut = 0;
                for request in requests {
                    cut += usize::from(!request.await.unwrap_or(false));
                }
                let _ = told.send(cut);
            });
        }
    });
    let accepted = Box::new(move || accepted.load(std::sync::atomic::Ordering::SeqCst));
    Log { at, whole, ended, accepted, _keeps: Box::new(runtime) as Box<Runtime> }
}

async fn listen(
    stream: impl AsyncRead + AsyncWrite + Unpin,
    requests: &mut Vec<JoinHandle<bool>>,
    kept: Arc<Mutex<Vec<String>>>,
) {
    let Ok(mut connection) = h2::server::handshake(stream).await else { return };
    while let Some(Ok((request, respond))) = connection.accept().await {
        requests.push(tokio::spawn(answer(request, respond, kept.clone())));
    }
}

/// Tells whether it was whole.
async fn answer(
    request: Request<RecvStream>,
    mut respond: h2::server::SendResponse<Bytes>,
    log: Arc<Mutex<Vec<String>>>,
) -> bool {
    let (head, mut from) = request.into_parts();
    let mut body = Vec::new();
    if head.method == http::Method::CONNECT {
        let host = head.uri.authority().map_or("", |it| it.as_str());
        log.lock().unwrap().push(told("CONNECT", host, "", "", &[]));
        let denied = Response::builder().status(405).body(()).unwrap();
        let _ = respond.send_response(denied, true);
        // There is no tunnel, and nothing may come in it.
        while let Some(Ok(bytes)) = from.data().await {
            if !bytes.is_empty() {
                log.lock().unwrap().push(format!("FAULT {bytes:?} behind CONNECT"));
            }
        }
        return true;
    }
    while let Some(bytes) = from.data().await {
        let Ok(bytes) = bytes else { return false };
        let _ = from.flow_control().release_capacity(bytes.len());
        body.extend_from_slice(&bytes);
    }
    let Ok(trailers) = from.trailers().await else { return false };
    let texts = |fields: &HeaderMap| -> Vec<(String, String)> {
        let text = |value: &http::HeaderValue| String::from_utf8_lossy(value.as_bytes()).into_owned();
        fields.iter().map(|(name, value)| (name.as_str().replace('_', "-"), text(value))).collect()
    };
    let trailers = texts(&trailers.unwrap_or_default());
    let host = head.uri.authority().map_or("", |it| it.as_str());
    let target = head.uri.path_and_query().map_or("", |it| it.as_str());
    let body = String::from_utf8_lossy(&body);
    let entry = told(head.method.as_str(), host, target, &body, &trailers);
    // h2 itself refuses what is for one hop.
    let strange = texts(&head.headers).into_iter().find(|(name, value)| {
        name == "host" || name == "transfer-encoding" || (name == "te" && value != "trailers")
    });
    log.lock().unwrap().push(match strange {
        Some(field) => format!("FAULT {field:?} in {entry}"),
        None => entry,
    });
    let _ = respond.send_response(Response::new(()), true);
    true
}
