//! Members that speak something more than plain messages: their sockets, whatever is said there.

use std::io;
use std::net::SocketAddrV4;
use std::os::fd::OwnedFd;

use super::places::{Slab, newcomers};
use super::{AfterRequest, BackendCounters, MEMBERS};
use crate::message::PATTERN;
use crate::sys::{self, Epoll, Event, READABLE, WRITABLE};

/// One side of a conversation, without its socket.
pub trait ServerProtocol: Default {
    /// What has come. `false`: it is not what was agreed on.
    fn take(&mut self, bytes: &[u8], say: &mut OutputBuffer, seen: &mut BackendCounters) -> bool;
    /// Nobody misses anything if it ends here.
    fn is_between_requests(&self) -> bool;
}

/// What waits to be written: bytes, and then a part of the pattern.
#[derive(Default)]
pub struct OutputBuffer {
    pub bytes: Vec<u8>,
    sent: usize,
    pattern: (usize, usize),
}

/// Owns the tokens from `first` on.
pub struct Server<T> {
    first: u64,
    listeners: Vec<OwnedFd>,
    connections: Slab<Connection<T>>,
}

struct Connection<T> {
    fd: OwnedFd,
    talk: T,
    saying: OutputBuffer,
    wants_write: bool,
}

impl<T: ServerProtocol> Server<T> {
    pub fn start(epoll: &Epoll, port: u16, first: u64) -> io::Result<Self> {
        let listeners = MEMBERS.map(|ip| sys::tcp_listen(SocketAddrV4::new(ip, port)));
        let listeners = listeners.into_iter().collect::<io::Result<Vec<_>>>()?;
        for (index, fd) in listeners.iter().enumerate() {
            epoll.add(fd, first + index as u64, READABLE)?;
        }
        Ok(Self { first, listeners, connections: Slab::new() })
    }

    pub fn forget_connections(&mut self) {
        self.connections.clear();
    }

    pub fn event(
        &mut self,
        epoll: &Epoll,
        event: Event,
        buffer: &mut [u8],
        seen: &mut BackendCounters,
    ) -> io::Result<()> {
        let index = (event.token - self.first) as usize;
        match index.checked_sub(self.listeners.len()) {
            Some(slot) => self.serve(epoll, slot, buffer, seen),
            None => self.accept(epoll, index, buffer, seen),
        }
    }

    fn token(&self, slot: usize) -> u64 {
        self.first + (self.listeners.len() + slot) as u64
    }

    fn accept(
        &mut self,
        epoll: &Epoll,
        listener: usize,
        buffer: &mut [u8],
        seen: &mut BackendCounters,
    ) -> io::Result<()> {
        let come: Vec<OwnedFd> = newcomers(&self.listeners[listener]).collect::<io::Result<_>>()?;
        for fd in come {
            let slot = self.connections.free();
            epoll.add(&fd, self.token(slot), READABLE)?;
            let saying = OutputBuffer::default();
            self.connections.put(slot, Connection { fd, talk: T::default(), saying, wants_write: false });
            self.serve(epoll, slot, buffer, seen)?;
        }
        Ok(())
    }

    fn serve(
        &mut self,
        epoll: &Epoll,
        slot: usize,
        buffer: &mut [u8],
        seen: &mut BackendCounters,
    ) -> io::Result<()> {
        let token = self.token(slot);
        let Some(connection) = self.connections.at(slot) else { return Ok(()) };
        let fate = connection.proceed(buffer, seen);
        if let AfterRequest::Stays = fate {
            let blocked = connection.saying.is_waiting();
            if blocked != connection.wants_write {
                connection.wants_write = blocked;
                epoll.change(&connection.fd, token, if blocked { WRITABLE } else { READABLE })?;
            }
        } else {
            seen.errors += u64::from(matches!(fate, AfterRequest::Breaks));
            self.connections.end(slot);
        }
        Ok(())
    }
}

impl<T: ServerProtocol> Connection<T> {
    fn proceed(&mut self, buffer: &mut [u8], seen: &mut BackendCounters) -> AfterRequest {
        match self.saying.send(&self.fd, seen) {
            Ok(true) => {}
            Ok(false) => return AfterRequest::Stays,
            Err(_) => return AfterRequest::Breaks,
        }
        let len = match sys::recv(&self.fd, buffer) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return AfterRequest::Stays,
            // A health check, or a client that is done.
            Ok(0) | Err(_) if self.talk.is_between_requests() => return AfterRequest::Ends,
            Ok(0) | Err(_) => return AfterRequest::Breaks,
            Ok(len) => len,
        };
        if !self.talk.take(&buffer[..len], &mut self.saying, seen) {
            return AfterRequest::Breaks;
        }
        match self.saying.send(&self.fd, seen) {
            Ok(_) => AfterRequest::Stays,
            Err(_) => AfterRequest::Breaks,
        }
    }
}

impl OutputBuffer {
    /// Said after the bytes.
    pub fn pattern(&mut self, from: usize, to: usize) {
        self.pattern = (from, to);
    }

    fn is_waiting(&self) -> bool {
        self.sent < self.bytes.len() || self.pattern.0 < self.pattern.1
    }

    /// Whether all was said.
    fn send(&mut self, fd: &OwnedFd, seen: &mut BackendCounters) -> io::Result<bool> {
        while self.is_waiting() {
            let in_bytes = self.sent < self.bytes.len();
            let (from, to) = self.pattern;
            let rest = if in_bytes { &self.bytes[self.sent..] } else { &PATTERN[from..to] };
            match sys::send(fd, rest) {
                Ok(len) if in_bytes => self.sent += len,
                Ok(len) => {
                    self.pattern.0 += len;
                    seen.bytes_out += len as u64;
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(false),
                Err(error) => return Err(error),
            }
        }
        self.bytes.clear();
        self.sent = 0;
        Ok(true)
    }
}
