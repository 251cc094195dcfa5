//! Members that say what they were asked, our own data plane, and a client.

use std::{
    collections::BTreeMap,
    io::{BufRead, BufReader, Read, Write},
    net::{IpAddr, SocketAddr, TcpListener, TcpStream},
    thread,
    time::Duration,
};

use seaway_model::{LbKey, load_balancer::Bind};
use seaway_proxy::{Proxy, Settings};

use crate::scene::All;

/// Answers each request with its name, the request's line, and those of its fields that matter here. It ends with the test.
pub(crate) fn member(name: &'static str, ip: IpAddr) -> SocketAddr {
    let listener = TcpListener::bind((ip, 0)).expect("a port");
    let at = listener.local_addr().expect("bound");
    thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            thread::spawn(move || drop(answer(name, stream)));
        }
    });
    at
}

fn answer(name: &str, stream: TcpStream) -> std::io::Result<()> {
    let mut stream = BufReader::new(stream);
    loop {
        let (line, fields) = head(&mut stream)?;
        if line.is_empty() {
            return Ok(());
        }
        let matter = |name: &str| {
            ["host", "via", "upgrade", "http2-settings"].contains(&name)
                || name.starts_with("x-") && name != "x-request-id"
        };
        let mut body = format!("{name}\n{line}\n");
        for (name, value) in fields.iter().filter(|(name, _)| matter(name)) {
            body.push_str(&format!("{name}: {value}\n"));
        }
        body.push_str(if fields.contains_key("x-request-id") { "with an id\n" } else { "" });
        let length = body.len();
        let answer =
            format!("HTTP/1.1 200 OK\r\nX-Removed: by the member\r\nContent-Length: {length}\r\n\r\n{body}");
        stream.get_mut().write_all(answer.as_bytes())?;
    }
}

type Fields = BTreeMap<String, String>;

/// The first line, and the fields in lower case.
fn head(stream: &mut impl BufRead) -> std::io::Result<(String, Fields)> {
    let (mut first, mut fields) = (String::new(), Fields::new());
    stream.read_line(&mut first)?;
    loop {
        let mut line = String::new();
        if stream.read_line(&mut line)? <= 2 {
            return Ok((first.trim().to_owned(), fields));
        }
        if let Some((name, value)) = line.split_once(':') {
            let value = value.trim().to_owned();
            let value = match fields.get(&name.to_ascii_lowercase()) {
                Some(before) => format!("{before}, {value}"),
                None => value,
            };
            fields.insert(name.to_ascii_lowercase(), value);
        }
    }
}

/// What came back: the status, fields that matter, the body.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Answer {
    pub(crate) status: String,
    pub(crate) fields: Vec<(String, String)>,
    pub(crate) body: String,
}

impl Answer {
    /// Who answered.
    pub(crate) fn from(&self) -> &str {
        self.body.lines().next().unwrap_or_default()
    }
}

/// On a connection of its own.
pub(crate) fn ask(at: SocketAddr, request: &str) -> Answer {
    let mut stream = TcpStream::connect(at).expect("connected");
    stream.set_read_timeout(Some(Duration::from_secs(20))).expect("a setting");
    stream.write_all(request.as_bytes()).expect("sent");
    let mut stream = BufReader::new(stream);
    let (line, fields) = head(&mut stream).expect("answered");
    let length = fields.get("content-length").and_then(|it| it.parse().ok()).unwrap_or_default();
    let mut body = Vec::new();
    stream.take(length).read_to_end(&mut body).expect("a body");
    let matter = |name: &String| name == "location" || name == "content-type" || name.starts_with("x-");
    Answer {
        status: line.split(' ').nth(1).unwrap_or_default().to_owned(),
        fields: fields.into_iter().filter(|(name, _)| matter(name)).collect(),
        body: String::from_utf8_lossy(&body).trim_end().to_owned(),
    }
}

/// Our own data plane, which serves all of it.
pub(crate) fn native(all: &All) -> Proxy {
    let proxy = Proxy::start(Settings { workers: 1, pin: false }).expect("a data plane");
    for (owner, it) in all {
        let key = LbKey::Of(owner.clone());
        for pool in it.pools.values() {
            proxy.put_pool(&key, pool.clone());
        }
        for (object, certificate) in it.certificates.iter() {
            proxy.put_certificate(&key, object, certificate).expect("it can be used");
        }
        for ip in it.binds.iter().filter_map(Bind::ip) {
            for listener in it.listeners.values() {
                proxy.open(&key, ip, listener.clone()).expect("opened");
            }
        }
    }
    proxy
}
