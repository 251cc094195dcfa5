//! A new connection for each request; the backend ends it after the answer, and the contender must pass that end on.

use std::io;
use std::net::SocketAddrV4;
use std::os::fd::OwnedFd;

use anyhow::{Context, Result};

use super::{Clients, Tally};
use crate::message::{ANSWER_HEAD, PATTERN, REQUEST_HEAD, Request, intact};
use crate::sys::{self, Epoll, Event, READABLE, WRITABLE};

/// More than any contender that keeps up ever has under way, and a bound for one that does not.
const UNDER_WAY: usize = 512;

pub struct Connects {
    contender: SocketAddrV4,
    request: usize,
    answer: usize,
    slots: Vec<Option<Connection>>,
    free: Vec<usize>,
    sequence: u64,
    buffer: Vec<u8>,
}

struct Connection {
    fd: OwnedFd,
    sequence: u64,
    due: u64,
    sent: bool,
    received: usize,
}

impl Connects {
    pub fn new(contender: SocketAddrV4, request: usize, answer: usize) -> Self {
        Self {
            contender,
            request,
            answer,
            slots: (0..UNDER_WAY).map(|_| None).collect(),
            free: (0..UNDER_WAY).collect(),
            sequence: 0,
            buffer: vec![0; 1 << 16],
        }
    }

    fn request(&self, sequence: u64) -> Request {
        Request { sequence, len: self.request, answer_len: self.answer, close: true }
    }

    /// `Ok(true)` once the connection came to its proper end.
    fn proceed(&mut self, slot: usize, epoll: &Epoll, event: Event, tally: &mut Tally) -> io::Result<bool> {
        let Some(connection) = &self.slots[slot] else { return Ok(false) };
        let (sequence, sent, received) = (connection.sequence, connection.sent, connection.received);
        let request = self.request(sequence);
        let Some(connection) = &mut self.slots[slot] else { return Ok(false) };
        if !sent {
            let buffer = &mut self.buffer[..request.len];
            buffer[..REQUEST_HEAD].copy_from_slice(&request.head());
            buffer[REQUEST_HEAD..].copy_from_slice(&PATTERN[REQUEST_HEAD..request.len]);
            let len = sys::send(&connection.fd, buffer)?;
            tally.bytes_out += len as u64;
            if len < request.len {
                return Err(io::Error::other("the request did not fit the socket"));
            }
            connection.sent = true;
            epoll.change(&connection.fd, event.token, READABLE)?;
            return Ok(false);
        }
        let len = match sys::recv(&connection.fd, &mut self.buffer) {
            Ok(len) => len,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(false),
            Err(error) => return Err(error),
        };
        tally.bytes_in += len as u64;
        if len == 0 {
            let whole = received == request.answer_len;
            return if whole { Ok(true) } else { Err(io::ErrorKind::UnexpectedEof.into()) };
        }
        let chunk = &self.buffer[..len];
        let of_head = ANSWER_HEAD.saturating_sub(received).min(len);
        let head_is_right = request.answer_head()[received.min(ANSWER_HEAD)..][..of_head] == chunk[..of_head];
        if received + len > request.answer_len
            || !head_is_right
            || !intact(&chunk[of_head..], received + of_head)
        {
            return Err(io::Error::other("the answer is not what the backend sent"));
        }
        connection.received += len;
        Ok(false)
    }
}

impl Clients for Connects {
    fn ask(&mut self, epoll: &Epoll, due: u64, tally: &mut Tally) -> Result<bool> {
        let Some(slot) = self.free.pop() else { return Ok(false) };
        self.sequence += 1;
        tally.asked += 1;
        let fd = sys::tcp_connect(self.contender).context("cannot connect to the contender")?;
        epoll.add(&fd, slot as u64, WRITABLE)?;
        self.slots[slot] = Some(Connection { fd, sequence: self.sequence, due, sent: false, received: 0 });
        Ok(true)
    }

    fn event(&mut self, epoll: &Epoll, event: Event, tally: &mut Tally) -> Result<()> {
        let slot = event.token as usize;
        let ended = match self.proceed(slot, epoll, event, tally) {
            Ok(ended) => ended,
            Err(error) => {
                tally.error(|| format!("new connection: {error}"));
                self.slots[slot] = None;
                self.free.push(slot);
                return Ok(());
            }
        };
        if let Some(connection) = self.slots[slot].take_if(|_| ended) {
            tally.answer(connection.due);
            self.free.push(slot);
        }
        Ok(())
    }
}
