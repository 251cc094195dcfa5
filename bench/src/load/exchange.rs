//! Requests over connections that are kept: one at a time on each.

use std::collections::VecDeque;
use std::io;
use std::net::SocketAddrV4;
use std::os::fd::OwnedFd;

use anyhow::{Context, Result, ensure};

use super::{Clients, Rig, Tally};
use crate::message::{ANSWER_HEAD, PATTERN, REQUEST_HEAD, Request, http, intact};
use crate::pace::now;
use crate::sys::{self, BROKEN, Epoll, Event, READABLE, WRITABLE};

/// What one exchange looks like.
#[derive(Clone, Copy, Debug)]
pub struct Shape {
    pub request: usize,
    pub answer: usize,
    /// Compare each byte of the answers; otherwise they are counted and dropped inside the kernel.
    pub inspect: bool,
    /// Each connection becomes a WebSocket first. What it carries then is opaque to whoever passes it on.
    pub upgrade: bool,
}

pub struct Exchanges {
    contender: SocketAddrV4,
    shape: Shape,
    connections: Vec<Connection>,
    idle: VecDeque<usize>,
    sequence: u64,
    buffer: Vec<u8>,
}

struct Connection {
    fd: OwnedFd,
    asked: Option<PendingRequest>,
    /// The answer to the wish to become a WebSocket, until it is whole.
    upgrading: Option<Vec<u8>>,
}

#[derive(Clone, Copy)]
struct PendingRequest {
    sequence: u64,
    due: u64,
    head: [u8; ANSWER_HEAD],
    received: usize,
}

impl Exchanges {
    pub fn new(contender: SocketAddrV4, shape: Shape) -> Self {
        let buffer = vec![0; 1 << 16];
        Self { contender, shape, connections: Vec::new(), idle: VecDeque::new(), sequence: 0, buffer }
    }

    /// Opens `count` more connections, waits until they are established, and asks once on each: a contender may give a
    /// connection its buffers only when the first byte moves.
    pub fn open(&mut self, rig: &mut Rig, count: usize) -> Result<()> {
        for index in self.connections.len()..self.connections.len() + count {
            let fd = sys::tcp_connect(self.contender).context("cannot connect to the contender")?;
            rig.epoll.add(&fd, index as u64, WRITABLE)?;
            self.connections.push(Connection { fd, asked: None, upgrading: None });
        }
        let mut tally = Tally::default();
        let patience = now() + 10_000_000_000;
        while self.idle.len() < self.connections.len() {
            rig.turn(self, &mut tally, 1)?;
            ensure!(
                now() < patience,
                "not all connections are established after 10 s: {:?}",
                tally.complaints
            );
        }
        rig.prove(self, count as u64)
    }

    /// The first that may be written: it is connected.
    fn connected(&mut self, index: usize) -> io::Result<()> {
        let connection = &mut self.connections[index];
        if !self.shape.upgrade {
            // In front: those that never carried anything go first.
            self.idle.push_front(index);
            return Ok(());
        }
        connection.upgrading = Some(Vec::new());
        // Far smaller than a socket's buffer.
        sys::send(&connection.fd, http::UPGRADE).map(drop)
    }

    /// Whether the answer is whole, byte by byte: what follows it is none of it.
    fn upgraded(&mut self, index: usize) -> io::Result<bool> {
        let connection = &mut self.connections[index];
        let Some(answer) = &mut connection.upgrading else { return Ok(true) };
        while !answer.ends_with(http::END) {
            match sys::recv(&connection.fd, &mut self.buffer[..1]) {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(_) => answer.push(self.buffer[0]),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(false),
                Err(error) => return Err(error),
            }
        }
        if !answer.starts_with(b"HTTP/1.1 101 ") {
            return Err(io::Error::other(format!("no WebSocket: {}", String::from_utf8_lossy(answer))));
        }
        connection.upgrading = None;
        self.idle.push_front(index);
        Ok(true)
    }

    fn receive(&mut self, index: usize, tally: &mut Tally) -> io::Result<bool> {
        let Shape { answer, inspect, .. } = self.shape;
        let connection = &mut self.connections[index];
        let Some(asked) = &mut connection.asked else {
            // Nothing was asked: what comes now is the end of the connection, or a byte too many.
            return match sys::recv(&connection.fd, &mut self.buffer[..1]) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(false),
                Err(error) => Err(error),
                Ok(len) => Err(io::Error::other(format!("{len} bytes while nothing was asked (0: closed)"))),
            };
        };
        let rest = answer - asked.received;
        let len = if inspect {
            let room = self.buffer.len().min(rest + 1);
            sys::recv(&connection.fd, &mut self.buffer[..room])
        } else if asked.received < ANSWER_HEAD {
            sys::recv(&connection.fd, &mut self.buffer[..ANSWER_HEAD - asked.received])
        } else {
            sys::recv_and_drop(&connection.fd, rest)
        };
        let len = match len {
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(len) => len,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(false),
            Err(error) => return Err(error),
        };
        tally.bytes_in += len as u64;
        let of_head = ANSWER_HEAD.saturating_sub(asked.received).min(len);
        asked.head[asked.received.min(ANSWER_HEAD)..][..of_head].copy_from_slice(&self.buffer[..of_head]);
        if inspect && (len > rest || !intact(&self.buffer[of_head..len], asked.received + of_head)) {
            return Err(io::Error::other("the answer is not what the backend sent"));
        }
        asked.received += len;
        if asked.received < answer {
            return Ok(true);
        }
        let expected = request(self.shape, asked.sequence).answer_head();
        if asked.head != expected {
            return Err(io::Error::other("the answer belongs to another request"));
        }
        tally.answer(asked.due);
        connection.asked = None;
        self.idle.push_back(index);
        Ok(false)
    }
}

fn request(shape: Shape, sequence: u64) -> Request {
    Request { sequence, len: shape.request, answer_len: shape.answer, close: false }
}

impl Clients for Exchanges {
    fn ask(&mut self, _epoll: &Epoll, due: u64, tally: &mut Tally) -> Result<bool> {
        let Some(index) = self.idle.pop_front() else { return Ok(false) };
        self.sequence += 1;
        let request = request(self.shape, self.sequence);
        let buffer = &mut self.buffer[..request.len];
        buffer[..REQUEST_HEAD].copy_from_slice(&request.head());
        buffer[REQUEST_HEAD..].copy_from_slice(&PATTERN[REQUEST_HEAD..request.len]);
        tally.asked += 1;
        let connection = &mut self.connections[index];
        match sys::send(&connection.fd, buffer) {
            Ok(len) => {
                tally.bytes_out += len as u64;
                // One request is far smaller than a socket's buffer, and only one is under way.
                if len < request.len {
                    tally.error(|| format!("only {len} bytes of a request fitted the socket"));
                }
                connection.asked = Some(PendingRequest {
                    sequence: self.sequence,
                    due,
                    head: [0; ANSWER_HEAD],
                    received: 0,
                });
            }
            Err(error) => tally.error(|| format!("cannot send: {error}")),
        }
        Ok(true)
    }

    fn event(&mut self, epoll: &Epoll, event: Event, tally: &mut Tally) -> Result<()> {
        let index = event.token as usize;
        if event.flags & WRITABLE != 0 && event.flags & BROKEN == 0 {
            epoll.change(&self.connections[index].fd, event.token, READABLE)?;
            return Ok(self.connected(index)?);
        }
        let started = now();
        loop {
            let received = match self.upgraded(index) {
                Ok(true) => self.receive(index, tally),
                other => other,
            };
            match received {
                // A long answer may keep coming; the others get their turn after a while.
                Ok(true) if now() - started < 200_000 => {}
                Ok(_) => return Ok(()),
                Err(error) => {
                    tally.error(|| format!("connection {index}: {error}"));
                    // Silence the broken socket: its slot stays, its place among the idle is lost.
                    self.idle.retain(|idle| *idle != index);
                    return Ok(epoll.remove(&self.connections[index].fd)?);
                }
            }
        }
    }
}
