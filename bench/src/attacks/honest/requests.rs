//! Requests by HTTP/1.1: three of four over connections that are kept, the fourth over a new one.

use std::io;
use std::net::SocketAddrV4;
use std::sync::Arc;

use rustls::ClientConfig;

use super::{HonestClient, PATIENCE, RequestOutcome};
use crate::attacks::member::BODY;
use crate::load::wire::{self, Wire};
use crate::pace::now;
use crate::sys::{Epoll, Event, READABLE, WRITABLE};

/// Beyond this many at a time a request is an error: far more than any contender that keeps up ever has.
const MOST: usize = 1_000;
const NEW: u64 = 4;

pub struct Requests {
    to: SocketAddrV4,
    terms: Option<Arc<ClientConfig>>,
    connections: Vec<Option<Connection>>,
    free: Vec<usize>,
    idle: Vec<usize>,
    asked: Vec<RequestOutcome>,
    waiting: usize,
    number: u64,
}

struct Connection {
    wire: Wire,
    writable: bool,
    stands: bool,
    closes: bool,
    /// The request, and what has come of its answer.
    request: Option<usize>,
    number: u64,
    input: Vec<u8>,
}

impl Requests {
    pub fn new(to: SocketAddrV4, tls: bool) -> Self {
        Self {
            to,
            terms: tls.then(wire::terms),
            connections: Vec::new(),
            free: Vec::new(),
            idle: Vec::new(),
            asked: Vec::new(),
            waiting: 0,
            number: 0,
        }
    }

    fn connect(&mut self, epoll: &Epoll, base: u64) -> io::Result<usize> {
        let terms = self.terms.as_ref().map(|terms| (terms, "bench.example"));
        let wire = Wire::connect(self.to, terms)?;
        let slot = self.free.pop().unwrap_or_else(|| {
            self.connections.push(None);
            self.connections.len() - 1
        });
        epoll.add(&wire, base + slot as u64, WRITABLE)?;
        self.connections[slot] = Some(Connection {
            wire,
            writable: false,
            stands: false,
            closes: false,
            request: None,
            number: 0,
            input: Vec::new(),
        });
        Ok(slot)
    }

    fn give_up(&mut self, slot: usize, why: &'static str) {
        if let Some(connection) = self.connections[slot].take() {
            self.free.push(slot);
            self.idle.retain(|it| *it != slot);
            if let Some(request) = connection.request {
                self.asked[request].why = why;
                self.waiting -= 1;
            }
        }
    }
}

impl Connection {
    fn say(&mut self) -> io::Result<()> {
        let close = if self.closes { "Connection: close\r\n" } else { "" };
        let text = format!("GET /ok/{} HTTP/1.1\r\nHost: bench.example\r\n{close}\r\n", self.number);
        self.wire.send(text.as_bytes())
    }

    /// Whether an answer has come whole.
    fn proceed(&mut self, epoll: &Epoll, token: u64) -> io::Result<bool> {
        if !self.stands {
            if !self.writable {
                self.writable = true;
                epoll.change(&self.wire, token, READABLE)?;
            }
            if !self.wire.shake_hands()? {
                return Ok(false);
            }
            self.stands = true;
            self.say()?;
        }
        let mut buffer = [0; 4 << 10];
        loop {
            match self.wire.recv(&mut buffer) {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(length) => self.input.extend_from_slice(&buffer[..length]),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) => return Err(error),
            }
            if self.is_whole()? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    fn is_whole(&self) -> io::Result<bool> {
        let Some(end) = self.input.windows(4).position(|four| four == b"\r\n\r\n") else { return Ok(false) };
        if !self.input.starts_with(b"HTTP/1.1 200") {
            return Err(io::Error::other("another status"));
        }
        // A member of HTTP/2 gives no length, so the answer may come in chunks.
        let body = &self.input[end + 4..];
        let head = String::from_utf8_lossy(&self.input[..end]).to_ascii_lowercase();
        Ok(if head.contains("transfer-encoding: chunked") {
            body.ends_with(b"0\r\n\r\n")
        } else {
            body.len() >= BODY
        })
    }
}

impl HonestClient for Requests {
    fn ask(&mut self, epoll: &Epoll, base: u64, due: u64) {
        self.number += 1;
        let request = self.asked.len();
        self.asked.push(RequestOutcome { due, answered: None, why: "" });
        if self.waiting >= MOST {
            self.asked[request].why = "too many wait";
            return;
        }
        let closes = self.number.is_multiple_of(NEW);
        let kept = if closes { None } else { self.idle.pop() };
        let slot = match kept.map_or_else(|| self.connect(epoll, base), Ok) {
            Ok(slot) => slot,
            Err(_) => {
                self.asked[request].why = "cannot connect";
                return;
            }
        };
        self.waiting += 1;
        let Some(connection) = &mut self.connections[slot] else { return };
        connection.closes = closes;
        connection.number = self.number;
        connection.request = Some(request);
        if connection.stands && connection.say().is_err() {
            self.give_up(slot, "cannot send");
        }
    }

    fn event(&mut self, epoll: &Epoll, event: Event) {
        // All sets share one epoll, which knows this one's token only as a whole.
        let slot = (event.token & 0xffff_ffff) as usize;
        let Some(Some(connection)) = self.connections.get_mut(slot) else { return };
        match connection.proceed(epoll, event.token) {
            Ok(false) => {}
            Ok(true) => {
                let (request, closes) = (connection.request.take(), connection.closes);
                connection.input.clear();
                if let Some(request) = request {
                    self.asked[request].answered = Some(now());
                    self.waiting -= 1;
                }
                if closes {
                    self.give_up(slot, "");
                } else {
                    self.idle.push(slot);
                }
            }
            Err(error) => {
                let why = match error.kind() {
                    io::ErrorKind::UnexpectedEof => "the connection was ended",
                    io::ErrorKind::ConnectionRefused => "the connection was refused",
                    io::ErrorKind::ConnectionReset | io::ErrorKind::BrokenPipe => "the connection was reset",
                    _ => "another answer than 200",
                };
                self.give_up(slot, why);
            }
        }
    }

    fn expire(&mut self, now: u64) {
        for slot in 0..self.connections.len() {
            let request = self.connections[slot].as_ref().and_then(|it| it.request);
            if request.is_some_and(|it| self.asked[it].due + PATIENCE < now) {
                self.give_up(slot, "no answer in time");
            }
        }
    }

    fn is_waiting(&self) -> bool {
        self.waiting > 0
    }

    fn asked(&mut self) -> &mut Vec<RequestOutcome> {
        &mut self.asked
    }
}
