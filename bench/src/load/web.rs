//! Questions by HTTP/1.1: over connections that are kept, or each over a new one, which the contender closes.

use std::borrow::Cow;
use std::collections::VecDeque;
use std::io;
use std::net::SocketAddrV4;
use std::sync::Arc;

use anyhow::{Context, Result, ensure};
use rustls::ClientConfig;

use super::wire::{self, Wire};
use super::{Clients, Rig, Tally};
use crate::contender::seaway::crowded;
use crate::message::http;
use crate::message::{ANSWER_HEAD, REQUEST_HEAD, Request, intact};
use crate::pace::now;
use crate::sys::{Epoll, Event, READABLE, WRITABLE};

/// More than any contender that keeps up ever has under way, and a bound for one that does not.
const UNDER_WAY: usize = 512;

/// What is asked, and how.
#[derive(Clone, Debug)]
pub struct RequestOptions {
    pub to: SocketAddrV4,
    pub answer: usize,
    /// Compare each byte of the bodies; otherwise they are counted and dropped inside the kernel.
    pub inspect: bool,
    /// Each over a connection of its own.
    pub anew: bool,
    /// Through TLS.
    pub secure: bool,
    /// `None`: one host for all.
    pub hosts: Option<Hosts>,
    /// More header fields, each with its end of line.
    pub fields: &'static str,
}

/// Asked for one after the other, far apart.
#[derive(Clone, Copy, Debug)]
pub struct Hosts {
    pub count: usize,
    /// Each has a path of its own, too; else all are answered by one Service.
    pub own_paths: bool,
}

pub struct Web {
    question: RequestOptions,
    terms: Arc<ClientConfig>,
    slots: Vec<Option<Connection>>,
    /// With `anew` those that are free; else those that stand and have nothing to do.
    idle: VecDeque<usize>,
    sequence: u64,
    buffer: Vec<u8>,
    asking: Vec<u8>,
}

struct Connection {
    wire: Wire,
    connected: bool,
    stands: bool,
    asked: Option<PendingRequest>,
}

struct PendingRequest {
    request: Request,
    due: u64,
    /// Of the head, as long as it is not whole; then of the body's own head.
    beginning: Vec<u8>,
    body: Option<usize>,
}

impl Web {
    pub fn new(question: RequestOptions) -> Self {
        let free = if question.anew { UNDER_WAY } else { 0 };
        Self {
            question,
            terms: wire::terms(),
            slots: (0..free).map(|_| None).collect(),
            idle: (0..free).collect(),
            sequence: 0,
            buffer: vec![0; 1 << 16],
            asking: Vec::new(),
        }
    }

    /// Opens `count` more connections that are kept, waits until they stand, and asks once on each.
    pub fn open(&mut self, rig: &mut Rig, count: usize) -> Result<()> {
        for _ in 0..count {
            self.slots.push(None);
            self.connect(&rig.epoll, self.slots.len() - 1)?;
        }
        let mut tally = Tally::default();
        let patience = now() + 10_000_000_000;
        while self.idle.len() < self.slots.len() {
            rig.turn(self, &mut tally, 1)?;
            ensure!(now() < patience, "not all connections stand after 10 s: {:?}", tally.complaints);
        }
        rig.prove(self, count as u64)
    }

    fn connect(&mut self, epoll: &Epoll, slot: usize) -> Result<()> {
        let host = self.place(self.sequence).0;
        let terms = self.question.secure.then_some((&self.terms, &host[..]));
        let wire = Wire::connect(self.question.to, terms).context("cannot connect to the contender")?;
        epoll.add(&wire, slot as u64, WRITABLE)?;
        self.slots[slot] = Some(Connection { wire, connected: false, stands: false, asked: None });
        Ok(())
    }

    /// Host and path of a question.
    fn place(&self, sequence: u64) -> (Cow<'static, str>, Cow<'static, str>) {
        let Some(Hosts { count, own_paths }) = self.question.hosts else {
            return ("bench.example".into(), "/bench".into());
        };
        // A prime, so that all have their turn.
        let index = (sequence as usize).wrapping_mul(7_919) % count;
        let path = if own_paths { crowded::path(index).into() } else { crowded::SERVICE_PATH.into() };
        (crowded::host(index).into(), path)
    }

    fn send(&mut self, slot: usize, tally: &mut Tally) -> io::Result<()> {
        let asked = self.slots.get(slot).and_then(|it| it.as_ref()?.asked.as_ref());
        let Some(sequence) = asked.map(|it| it.request.sequence) else { return Ok(()) };
        let (host, path) = self.place(sequence);
        let Some(Some(connection)) = self.slots.get_mut(slot) else { return Ok(()) };
        let Some(asked) = &connection.asked else { return Ok(()) };
        self.asking.clear();
        http::ask(&mut self.asking, &host, &path, self.question.fields, &asked.request);
        connection.wire.send(&self.asking)?;
        tally.bytes_out += REQUEST_HEAD as u64;
        Ok(())
    }

    /// `Ok(true)`: there may be more.
    fn receive(&mut self, slot: usize, tally: &mut Tally) -> io::Result<bool> {
        let Some(Some(connection)) = self.slots.get_mut(slot) else { return Ok(false) };
        let Some(asked) = &mut connection.asked else {
            // Nothing is awaited but the end of a connection that was asked to close.
            return match connection.wire.recv(&mut self.buffer[..1]) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(false),
                Err(error) => Err(error),
                Ok(len) => Err(io::Error::other(format!("{len} bytes while nothing was asked (0: closed)"))),
            };
        };
        let whole = asked.request.answer_len;
        let len = match asked.body {
            Some(received) if received >= ANSWER_HEAD && received < whole && !self.question.inspect => {
                connection.wire.recv_and_drop(whole - received)
            }
            _ => connection.wire.recv(&mut self.buffer),
        };
        let len = match len {
            Ok(0) if asked.request.close && asked.body == Some(whole) => {
                tally.answer(asked.due);
                self.slots[slot] = None;
                self.idle.push_back(slot);
                return Ok(false);
            }
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(len) => len,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(false),
            Err(error) => return Err(error),
        };
        let inspect = self.question.inspect;
        match asked.body {
            Some(received) if received >= ANSWER_HEAD && !inspect => {
                tally.bytes_in += len as u64;
                asked.body = Some(received + len);
            }
            _ => asked.take(&self.buffer[..len], inspect, tally)?,
        }
        if asked.body == Some(whole) && !asked.request.close {
            tally.answer(asked.due);
            connection.asked = None;
            self.idle.push_back(slot);
            return Ok(false);
        }
        Ok(true)
    }

    /// Silences what is broken: the slot is free if each question has a connection of its own, else it is lost.
    fn give_up(&mut self, slot: usize) {
        self.slots[slot] = None;
        self.idle.retain(|idle| *idle != slot);
        if self.question.anew {
            self.idle.push_back(slot);
        }
    }

    fn proceed(&mut self, epoll: &Epoll, event: Event, slot: usize, tally: &mut Tally) -> io::Result<()> {
        let Some(Some(connection)) = self.slots.get_mut(slot) else { return Ok(()) };
        if !connection.stands {
            if !connection.connected {
                connection.connected = true;
                epoll.change(&connection.wire, event.token, READABLE)?;
            }
            if !connection.wire.shake_hands()? {
                return Ok(());
            }
            connection.stands = true;
            if connection.asked.is_some() {
                return self.send(slot, tally);
            }
            // In front: those that never carried anything go first.
            self.idle.push_front(slot);
            return Ok(());
        }
        let started = now();
        // A long answer may keep coming; the others get their turn after a while.
        while self.receive(slot, tally)? && now() - started < 200_000 {}
        Ok(())
    }
}

impl PendingRequest {
    fn take(&mut self, mut bytes: &[u8], inspect: bool, tally: &mut Tally) -> io::Result<()> {
        let expected = self.request.answer_len;
        if self.body.is_none() {
            let before = self.beginning.len();
            // Nearly always it comes whole.
            if before > 0 {
                self.beginning.extend_from_slice(bytes);
            }
            let seen = if before > 0 { &self.beginning[..] } else { bytes };
            match http::answered(seen, expected) {
                None if before > 0 => return Ok(()),
                None => {
                    self.beginning.extend_from_slice(bytes);
                    return Ok(());
                }
                Some(Err(why)) => return Err(io::Error::other(why)),
                Some(Ok(head)) => {
                    bytes = &bytes[head - before..];
                    self.body = Some(0);
                    self.beginning.clear();
                }
            }
        }
        let received = self.body.unwrap_or_default();
        let of_head = ANSWER_HEAD.saturating_sub(received).min(bytes.len());
        let wrong = || io::Error::other("the answer is not what the backend sent");
        let fits = received + bytes.len() <= expected;
        if !fits || self.request.answer_head()[received.min(ANSWER_HEAD)..][..of_head] != bytes[..of_head] {
            return Err(wrong());
        }
        if inspect && !intact(&bytes[of_head..], received + of_head) {
            return Err(wrong());
        }
        tally.bytes_in += bytes.len() as u64;
        self.body = Some(received + bytes.len());
        Ok(())
    }
}

impl Clients for Web {
    fn ask(&mut self, epoll: &Epoll, due: u64, tally: &mut Tally) -> Result<bool> {
        let Some(slot) = self.idle.pop_front() else { return Ok(false) };
        self.sequence += 1;
        tally.asked += 1;
        let RequestOptions { answer, anew, .. } = self.question;
        if anew {
            self.connect(epoll, slot)?;
        }
        let request = Request { sequence: self.sequence, len: REQUEST_HEAD, answer_len: answer, close: anew };
        if let Some(connection) = &mut self.slots[slot] {
            connection.asked = Some(PendingRequest { request, due, beginning: Vec::new(), body: None });
        }
        if !anew && let Err(error) = self.send(slot, tally) {
            tally.error(|| format!("cannot send: {error}"));
            self.give_up(slot);
        }
        Ok(true)
    }

    fn event(&mut self, epoll: &Epoll, event: Event, tally: &mut Tally) -> Result<()> {
        let slot = event.token as usize;
        if let Err(error) = self.proceed(epoll, event, slot, tally) {
            tally.error(|| format!("connection {slot}: {error}"));
            self.give_up(slot);
        }
        Ok(())
    }
}
