//! Questions by HTTP/2: many at a time over each of a few connections. As plain requests, or as calls of gRPC.

use std::collections::{HashMap, VecDeque};
use std::io;
use std::net::SocketAddrV4;

use anyhow::{Context, Result, ensure};

use super::wire::Wire;
use super::{Clients, Rig, Tally};
use crate::message::frames::{self, Frame};
use crate::message::{ANSWER_HEAD, PATTERN, REQUEST_HEAD, Request, grpc, http, intact};
use crate::pace::now;
use crate::sys::{Epoll, Event, READABLE, WRITABLE};

#[derive(Clone, Copy, Debug)]
pub struct StreamOptions {
    pub to: SocketAddrV4,
    /// At a time, over one connection.
    pub streams: usize,
    pub answer: usize,
    /// A call of gRPC, as long as its answer; else a GET.
    pub calls: bool,
}

pub struct Streams {
    manner: StreamOptions,
    connections: Vec<Connection>,
    /// A connection for each further question that it may carry.
    idle: VecDeque<usize>,
    sequence: u64,
    buffer: Vec<u8>,
}

struct Connection {
    wire: Option<Wire>,
    stands: bool,
    asked: HashMap<u32, PendingRequest>,
    next: u32,
    input: Vec<u8>,
    output: Vec<u8>,
    window: i64,
    taken: u32,
}

struct PendingRequest {
    request: Request,
    due: u64,
    body: Vec<u8>,
    is_ok: bool,
}

impl Streams {
    pub fn new(manner: StreamOptions) -> Self {
        let buffer = vec![0; 1 << 16];
        Self { manner, connections: vec![], idle: VecDeque::new(), sequence: 0, buffer }
    }

    /// Opens `count` more connections, waits until they stand, and asks once on each.
    pub fn open(&mut self, rig: &mut Rig, count: usize) -> Result<()> {
        for index in self.connections.len()..self.connections.len() + count {
            let wire = Wire::connect(self.manner.to, None).context("cannot connect to the contender")?;
            rig.epoll.add(&wire, index as u64, WRITABLE)?;
            self.connections.push(Connection {
                wire: Some(wire),
                stands: false,
                asked: HashMap::new(),
                next: 1,
                input: Vec::new(),
                output: Vec::new(),
                window: frames::FIRST_WINDOW,
                taken: 0,
            });
        }
        let mut tally = Tally::default();
        let patience = now() + 10_000_000_000;
        while self.connections.iter().any(|it| !it.stands) {
            rig.turn(self, &mut tally, 1)?;
            ensure!(now() < patience, "not all connections stand after 10 s: {:?}", tally.complaints);
        }
        rig.prove(self, count as u64)
    }

    fn proceed(&mut self, epoll: &Epoll, event: Event, index: usize, tally: &mut Tally) -> io::Result<()> {
        let streams = self.manner.streams;
        let connection = &mut self.connections[index];
        let Some(wire) = &mut connection.wire else { return Ok(()) };
        if !connection.stands {
            connection.stands = true;
            epoll.change(wire, event.token, READABLE)?;
            connection.output.extend_from_slice(frames::PREFACE);
            frames::begin(&mut connection.output, true);
            // In front: those that never carried anything go first.
            (0..streams).for_each(|turn| match turn {
                0 => self.idle.push_front(index),
                _ => self.idle.push_back(index),
            });
            return connection.flush();
        }
        let len = match wire.recv(&mut self.buffer) {
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(len) => len,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
            Err(error) => return Err(error),
        };
        let mut input = std::mem::take(&mut connection.input);
        input.extend_from_slice(&self.buffer[..len]);
        let mut rest = &input[..];
        while let Some((frame, after)) = Frame::first(rest) {
            if connection.frame(&frame, self.manner.calls, tally)? {
                self.idle.push_back(index);
            }
            rest = after;
        }
        let done = input.len() - rest.len();
        input.drain(..done);
        connection.input = input;
        connection.flush()
    }

    fn give_up(&mut self, index: usize) {
        self.connections[index].wire = None;
        self.idle.retain(|idle| *idle != index);
    }
}

impl Connection {
    fn flush(&mut self) -> io::Result<()> {
        if let (Some(wire), false) = (&mut self.wire, self.output.is_empty()) {
            wire.send(&self.output)?;
            self.output.clear();
        }
        Ok(())
    }

    /// Whether an answer has come to its end.
    fn frame(&mut self, frame: &Frame<'_>, calls: bool, tally: &mut Tally) -> io::Result<bool> {
        let wrong = |what: &str| Err(io::Error::other(what.to_owned()));
        match frame.kind {
            _ if frame.is_strange() => return wrong("a frame that nobody expects"),
            frames::GOAWAY => return wrong("sent away"),
            frames::RST_STREAM => return wrong("a stream was reset"),
            frames::HEADERS => {
                let Some(asked) = self.asked.get_mut(&frame.stream) else { return wrong("nobody asked") };
                if !asked.is_ok && !frames::is_ok(frame.payload) {
                    return wrong("the status is not 200");
                }
                asked.is_ok = true;
            }
            frames::DATA => {
                let Some(asked) = self.asked.get_mut(&frame.stream) else { return wrong("nobody asked") };
                asked.body.extend_from_slice(frame.payload);
                self.taken += frame.payload.len() as u32;
                if self.taken > frames::MOST_TAKEN {
                    frames::widen(&mut self.output, std::mem::take(&mut self.taken));
                }
            }
            frames::SETTINGS if !frame.has(frames::ACK) => {
                frames::put(&mut self.output, frames::SETTINGS, frames::ACK, 0, &[]);
            }
            frames::PING if !frame.has(frames::ACK) => {
                frames::put(&mut self.output, frames::PING, frames::ACK, 0, &[frame.payload]);
            }
            frames::WINDOW_UPDATE if frame.stream == 0 => self.window += frame.increment(),
            _ => {}
        }
        if !frame.ends_stream() {
            return Ok(false);
        }
        let Some(asked) = self.asked.remove(&frame.stream) else { return wrong("nobody asked") };
        let answer = if calls { grpc::message(&asked.body).unwrap_or_default() } else { &asked.body };
        tally.bytes_in += answer.len() as u64;
        let whole = answer.len() == asked.request.answer_len
            && answer.starts_with(&asked.request.answer_head())
            && intact(&answer[ANSWER_HEAD..], ANSWER_HEAD);
        if !whole {
            return wrong("the answer is not what the backend sent");
        }
        tally.answer(asked.due);
        Ok(true)
    }

    fn ask(&mut self, request: Request, calls: bool, due: u64, tally: &mut Tally) -> io::Result<()> {
        let (stream, out) = (self.next, &mut self.output);
        self.next += 2;
        let (mut fields, first) = (Vec::with_capacity(256), stream == 1);
        if calls {
            call(&mut fields, first);
        } else {
            get(&mut fields, first, &request);
        }
        let flags = if calls { 0 } else { frames::END_STREAM };
        frames::put(out, frames::HEADERS, frames::END_HEADERS | flags, stream, &[&fields]);
        tally.bytes_out += request.len as u64;
        if calls {
            let body: [&[u8]; 3] =
                [&grpc::prefix(request.len), &request.head(), &PATTERN[REQUEST_HEAD..request.len]];
            frames::put(out, frames::DATA, frames::END_STREAM, stream, &body);
            self.window -= (grpc::PREFIX + request.len) as i64;
        }
        self.asked.insert(stream, PendingRequest { request, due, body: Vec::new(), is_ok: false });
        self.flush()
    }
}

/// As a program says it that asks the same server again: what was said once is a number afterwards.
fn get(fields: &mut Vec<u8>, first: bool, request: &Request) {
    let mut path = Vec::with_capacity(64);
    http::path(&mut path, "/bench", request);
    // GET and http are in everybody's table.
    fields.extend([0x82, 0x86]);
    frames::say(fields, 4, &path);
    if first {
        frames::remember(fields, 1, b"bench.example");
        frames::remember(fields, 58, b"seaway-bench/1");
        frames::remember(fields, 19, b"*/*");
        frames::remember(fields, 17, b"en");
    } else {
        fields.extend([65, 64, 63, 62].map(|at| 0x80 | at));
    }
    // And so is `accept-encoding: gzip, deflate`.
    fields.push(0x90);
}

fn call(fields: &mut Vec<u8>, first: bool) {
    fields.extend([0x83, 0x86]);
    if first {
        frames::remember(fields, 4, b"/bench.Echo/Ask");
        frames::remember(fields, 1, b"bench.example");
        frames::remember(fields, 31, b"application/grpc");
        frames::remember(fields, 58, b"seaway-bench/1");
        frames::remember_new(fields, b"te", b"trailers");
    } else {
        fields.extend([66, 65, 64, 63, 62].map(|at| 0x80 | at));
    }
}

impl Clients for Streams {
    fn ask(&mut self, _epoll: &Epoll, due: u64, tally: &mut Tally) -> Result<bool> {
        let Some(index) = self.idle.pop_front() else { return Ok(false) };
        let StreamOptions { answer, calls, .. } = self.manner;
        let len = if calls { answer } else { REQUEST_HEAD };
        let connection = &mut self.connections[index];
        if connection.window < (grpc::PREFIX + len) as i64 {
            self.idle.push_back(index);
            return Ok(false);
        }
        self.sequence += 1;
        tally.asked += 1;
        let request = Request { sequence: self.sequence, len, answer_len: answer, close: false };
        if let Err(error) = connection.ask(request, calls, due, tally) {
            tally.error(|| format!("cannot send: {error}"));
            self.give_up(index);
        }
        Ok(true)
    }

    fn event(&mut self, epoll: &Epoll, event: Event, tally: &mut Tally) -> Result<()> {
        let index = event.token as usize;
        if let Err(error) = self.proceed(epoll, event, index, tally) {
            tally.error(|| format!("connection {index}: {error}"));
            self.give_up(index);
        }
        Ok(())
    }
}
