//! Members that answer by script, and clients that say exactly what they are told to.

use std::{
    io::{BufRead, BufReader, Read, Write},
    net::{SocketAddr, TcpStream},
    sync::{Arc, Mutex},
};

use seaway_model::{
    Listener,
    load_balancer::{Protocol, Rule},
};
use seaway_testkit::balancing;

use crate::stage::*;

/// A stage that speaks HTTP for these members.
pub(crate) fn front(members: &[SocketAddr]) -> (Stage, SocketAddr) {
    front_with(members, |_| {})
}

pub(crate) fn front_with(members: &[SocketAddr], tune: impl Fn(&mut Listener)) -> (Stage, SocketAddr) {
    let stage = Stage::new();
    stage.put(pool(members));
    let (at, _) = stage.open(HERE, |listener| {
        listener.protocol = Protocol::Http;
        tune(listener);
    });
    (stage, at)
}

pub(crate) fn everything() -> Rule {
    Rule::forward_all(balancing::owner(), balancing::pool_id())
}

/// One message as it came: its head with lower-case names, and its body.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Message {
    pub(crate) head: String,
    pub(crate) body: Vec<u8>,
}

impl Message {
    pub(crate) fn first(&self) -> &str {
        self.head.lines().next().unwrap_or_default()
    }

    pub(crate) fn field(&self, name: &str) -> Option<&str> {
        let mut fields = self.head.lines().skip(1).filter_map(|line| line.split_once(": "));
        fields.find(|(it, _)| it.eq_ignore_ascii_case(name)).map(|(_, value)| value)
    }

    pub(crate) fn status(&self) -> u16 {
        self.first().split(' ').nth(1).and_then(|code| code.parse().ok()).unwrap_or(0)
    }
}

/// Reads messages one after another.
pub(crate) struct Reader(BufReader<TcpStream>);

impl Reader {
    pub(crate) fn new(stream: TcpStream) -> Reader {
        Reader(BufReader::new(stream))
    }

    pub(crate) fn head(&mut self) -> Option<String> {
        let mut head = String::new();
        loop {
            let mut line = Vec::new();
            if self.0.read_until(b'\n', &mut line).ok()? == 0 {
                return None;
            }
            if line == b"\r\n" {
                return Some(head);
            }
            head.push_str(String::from_utf8_lossy(&line).trim_end_matches(['\r', '\n']));
            head.push('\n');
        }
    }

    /// A whole message, by its framing; `bodiless` where the request decides.
    pub(crate) fn message(&mut self, bodiless: bool) -> Option<Message> {
        let head = self.head()?;
        let mut message = Message { head, body: Vec::new() };
        let is_answer = message.head.starts_with("HTTP/");
        let never = bodiless || matches!(message.status(), 100..=199 | 204 | 304);
        if is_answer && never {
            return Some(message);
        }
        if message.field("transfer-encoding") == Some("chunked") {
            message.body = self.chunks()?;
        } else if let Some(length) = message.field("content-length") {
            message.body = vec![0; length.parse().ok()?];
            self.0.read_exact(&mut message.body).ok()?;
        } else if is_answer {
            self.0.read_to_end(&mut message.body).ok()?;
        }
        Some(message)
    }

    pub(crate) fn exactly(&mut self, bytes: &mut [u8]) {
        self.0.read_exact(bytes).unwrap();
    }

    /// Joined; trailers follow as text.
    fn chunks(&mut self) -> Option<Vec<u8>> {
        let mut body = Vec::new();
        loop {
            let mut line = String::new();
            self.0.read_line(&mut line).ok()?;
            let size = usize::from_str_radix(line.trim_end(), 16).expect("a plain size");
            let mut chunk = vec![0; size + if size > 0 { 2 } else { 0 }];
            self.0.read_exact(&mut chunk).ok()?;
            body.extend_from_slice(&chunk[..size]);
            if size == 0 {
                body.extend_from_slice(self.head()?.as_bytes());
                return Some(body);
            }
        }
    }

    /// Everything until the end; `None` if that is a reset.
    pub(crate) fn rest(&mut self) -> Option<Vec<u8>> {
        let mut rest = Vec::new();
        self.0.read_to_end(&mut rest).ok().map(|_| rest)
    }
}

pub(crate) struct Client {
    stream: TcpStream,
    reader: Reader,
}

impl Client {
    pub(crate) fn new(at: SocketAddr) -> Client {
        let stream = connect(at);
        Client { reader: Reader::new(stream.try_clone().unwrap()), stream }
    }

    pub(crate) fn send(&mut self, text: impl AsRef<[u8]>) {
        self.stream.write_all(text.as_ref()).unwrap();
    }

    pub(crate) fn answer(&mut self) -> Message {
        self.reader.message(false).expect("an answer")
    }

    pub(crate) fn answer_to_head(&mut self) -> Message {
        self.reader.message(true).expect("an answer")
    }

    /// Asks, and reads the answer.
    pub(crate) fn ask(&mut self, text: impl AsRef<[u8]>) -> Message {
        self.send(text);
        self.answer()
    }

    pub(crate) fn get(&mut self, path: &str) -> Message {
        self.ask(format!("GET {path} HTTP/1.1\r\nHost: a\r\n\r\n"))
    }

    /// Nothing more comes, and the connection ends.
    pub(crate) fn is_over(&mut self) -> bool {
        self.reader.rest().is_none_or(|rest| rest.is_empty())
    }

    pub(crate) fn rest(&mut self) -> Option<Vec<u8>> {
        self.reader.rest()
    }

    pub(crate) fn stream(&self) -> &TcpStream {
        &self.stream
    }
}

/// A member that reads whole requests, keeps them, and answers each as it is told; `None` closes without a word.
pub(crate) struct Member {
    pub(crate) backend: Backend,
    heard: Arc<Mutex<Vec<Message>>>,
}

impl Member {
    pub(crate) fn new(answer: impl Fn(usize, &Message) -> Option<String> + Send + Sync + 'static) -> Member {
        let heard: Arc<Mutex<Vec<Message>>> = Arc::default();
        let kept = heard.clone();
        let backend = Backend::new(HERE, move |mut stream| {
            let mut reader = Reader::new(stream.try_clone().unwrap());
            while let Some(message) = reader.message(false) {
                let number = {
                    let mut heard = kept.lock().unwrap();
                    heard.push(message.clone());
                    heard.len() - 1
                };
                let Some(answer) = answer(number, &message) else { return };
                if stream.write_all(answer.as_bytes()).is_err() {
                    return;
                }
                if answer.contains("Connection: close")
                    || !answer.contains("ontent-") && !answer.contains("chunked")
                {
                    return;
                }
            }
        });
        Member { backend, heard }
    }

    /// Answers everything with 200 and this body.
    pub(crate) fn saying(body: &'static str) -> Member {
        Member::new(move |_, _| Some(ok(body)))
    }

    pub(crate) fn at(&self) -> SocketAddr {
        self.backend.at
    }

    pub(crate) fn heard(&self) -> Vec<Message> {
        self.heard.lock().unwrap().clone()
    }
}

pub(crate) fn ok(body: &str) -> String {
    format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{body}", body.len())
}
