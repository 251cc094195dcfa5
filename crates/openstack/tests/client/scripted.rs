//! A server that does what a test says, down to the bytes: one request a connection, in plain or over TLS.

use std::{
    collections::HashMap,
    io::{self, BufRead, BufReader, Read, Write},
    net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream},
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    thread,
};

use rustls::{ServerConfig, ServerConnection, StreamOwned};
use serde_json::Value;

pub(crate) struct ScriptedServer {
    address: SocketAddr,
    tls: bool,
    seen: Arc<Mutex<Vec<Request>>>,
    stop: Arc<AtomicBool>,
}

#[derive(Clone, Debug)]
pub(crate) struct Request {
    pub(crate) method: String,
    /// As it was written, query and all.
    pub(crate) path: String,
    pub(crate) headers: HashMap<String, String>,
    pub(crate) body: Value,
}

pub(crate) enum ScriptedReply {
    Json(u16, Value),
    /// With a header more.
    JsonWith(u16, (&'static str, &'static str), Value),
    Html(u16, &'static str),
    /// These bytes and no more.
    Raw(Vec<u8>),
    /// Not a word, until the client goes away.
    Stall,
    HangUp,
}

impl ScriptedServer {
    pub(crate) fn start(act: impl Fn(&Request) -> ScriptedReply + Send + Sync + 'static) -> ScriptedServer {
        ScriptedServer::serve(None, act)
    }

    pub(crate) fn start_tls(
        config: ServerConfig,
        act: impl Fn(&Request) -> ScriptedReply + Send + Sync + 'static,
    ) -> ScriptedServer {
        ScriptedServer::serve(Some(Arc::new(config)), act)
    }

    fn serve(
        tls: Option<Arc<ServerConfig>>,
        act: impl Fn(&Request) -> ScriptedReply + Send + Sync + 'static,
    ) -> ScriptedServer {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a free port on the loopback");
        let scripted = ScriptedServer {
            address: listener.local_addr().expect("it is bound"),
            tls: tls.is_some(),
            seen: Arc::default(),
            stop: Arc::default(),
        };
        let (seen, stop, act) = (scripted.seen.clone(), scripted.stop.clone(), Arc::new(act));
        thread::spawn(move || {
            while let Ok((stream, _)) = listener.accept() {
                if stop.load(Ordering::SeqCst) {
                    return;
                }
                let (seen, act, tls) = (seen.clone(), act.clone(), tls.clone());
                // What goes wrong here is what a test wanted, or a client that has gone.
                thread::spawn(move || _ = converse(stream, tls, &seen, &*act));
            }
        });
        scripted
    }

    /// `http://127.0.0.1:40123`
    pub(crate) fn url(&self) -> String {
        format!("http{}://{}", if self.tls { "s" } else { "" }, self.address)
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    pub(crate) fn seen(&self) -> Vec<Request> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// How many requests had this method, and this within their path.
    pub(crate) fn count(&self, method: &str, path: &str) -> usize {
        self.seen().iter().filter(|it| it.method == method && it.path.contains(path)).count()
    }
}

impl Drop for ScriptedServer {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::SeqCst);
        // The thread waits for somebody to come.
        _ = TcpStream::connect(self.address);
    }
}

trait Conversation: Read + Write {}
impl<T: Read + Write> Conversation for T {}

fn converse(
    stream: TcpStream,
    tls: Option<Arc<ServerConfig>>,
    seen: &Mutex<Vec<Request>>,
    act: &dyn Fn(&Request) -> ScriptedReply,
) -> io::Result<()> {
    let socket = stream.try_clone()?;
    let mut conversation: Box<dyn Conversation> = match tls {
        None => Box::new(stream),
        Some(config) => {
            let connection = ServerConnection::new(config).map_err(io::Error::other)?;
            Box::new(StreamOwned::new(connection, stream))
        }
    };
    let Ok(request) = read(&mut conversation) else {
        // As any server does that is spoken to in another language.
        conversation.write_all(&reply(400, &["content-type: text/plain".into()], "Bad Request"))?;
        return conversation.flush();
    };
    seen.lock().unwrap_or_else(PoisonError::into_inner).push(request.clone());
    let written = match act(&request) {
        ScriptedReply::Json(status, body) => {
            reply(status, &["content-type: application/json".into()], &body.to_string())
        }
        ScriptedReply::JsonWith(status, (name, value), body) => reply(
            status,
            &["content-type: application/json".into(), format!("{name}: {value}")],
            &body.to_string(),
        ),
        ScriptedReply::Html(status, page) => reply(status, &["content-type: text/html".into()], page),
        ScriptedReply::Raw(bytes) => bytes,
        ScriptedReply::Stall => {
            // Ends when the client has lost its patience.
            _ = conversation.read(&mut [0]);
            return Ok(());
        }
        ScriptedReply::HangUp => Vec::new(),
    };
    conversation.write_all(&written)?;
    conversation.flush()?;
    socket.shutdown(Shutdown::Write)
}

fn read(conversation: &mut dyn Conversation) -> io::Result<Request> {
    let mut reader = BufReader::new(conversation);
    let mut line = String::new();
    reader.read_line(&mut line)?;
    let mut words = line.split_whitespace().map(str::to_owned);
    let (Some(method), Some(path)) = (words.next(), words.next()) else {
        return Err(io::ErrorKind::InvalidData.into());
    };
    let mut headers = HashMap::new();
    loop {
        line.clear();
        reader.read_line(&mut line)?;
        let Some((name, value)) = line.split_once(':') else { break };
        headers.insert(name.to_ascii_lowercase(), value.trim().to_owned());
    }
    let length = headers.get("content-length").and_then(|it: &String| it.parse().ok()).unwrap_or(0);
    let mut body = vec![0; length];
    reader.read_exact(&mut body)?;
    let body = serde_json::from_slice(&body).unwrap_or_default();
    Ok(Request { method, path, headers, body })
}

fn reply(status: u16, headers: &[String], body: &str) -> Vec<u8> {
    let headers: String = headers.iter().map(|header| format!("{header}\r\n")).collect();
    let length = body.len();
    format!(
        "HTTP/1.1 {status} Scripted\r\nconnection: close\r\ncontent-length: {length}\r\n{headers}\r\n{body}"
    )
    .into_bytes()
}
