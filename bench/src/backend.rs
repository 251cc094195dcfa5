//! The servers behind every contender: four members that answer requests of TCP, UDP, HTTP and gRPC, on one shared epoll.

mod grpc;
mod places;
mod server;
mod web;

use std::io;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::os::fd::OwnedFd;

use grpc::Grpc;
use places::{Slab, newcomers};
use server::Server;
use web::Web;

use crate::message::{ANSWER_HEAD, PATTERN, REQUEST_HEAD, Request, intact};
use crate::sys::{self, Datagrams, Epoll, Event, READABLE, WRITABLE};

pub const MEMBERS: [Ipv4Addr; 4] = [
    Ipv4Addr::new(127, 0, 0, 2),
    Ipv4Addr::new(127, 0, 0, 3),
    Ipv4Addr::new(127, 0, 0, 4),
    Ipv4Addr::new(127, 0, 0, 5),
];
pub const TCP_PORT: u16 = 9201;
pub const UDP_PORT: u16 = 9203;
pub const WEB_PORT: u16 = 9202;
pub const GRPC_PORT: u16 = 9204;

/// What the backend saw since it began. Whoever compares takes differences.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BackendCounters {
    pub requests: u64,
    pub bytes_in: u64,
    pub bytes_out: u64,
    /// Requests that were not what the generator sends, and connections broken in the middle of one.
    pub errors: u64,
}

/// Owns the tokens from `FIRST_TOKEN` on.
pub struct Backend {
    listeners: Vec<OwnedFd>,
    datagrams: Vec<OwnedFd>,
    connections: Slab<Connection>,
    buffer: Vec<u8>,
    batch: Datagrams,
    web: Server<Web>,
    grpc: Server<Grpc>,
    pub seen: BackendCounters,
}

pub const FIRST_TOKEN: u64 = 1 << 32;
const DATAGRAM_TOKEN: u64 = FIRST_TOKEN + 1_000;
const CONNECTION_TOKEN: u64 = FIRST_TOKEN + 2_000;
const WEB_TOKEN: u64 = 2 << 32;
const GRPC_TOKEN: u64 = 3 << 32;

struct Connection {
    fd: OwnedFd,
    head: [u8; REQUEST_HEAD],
    received: usize,
    answering: Option<(Request, usize)>,
    wants_write: bool,
}

enum AfterRequest {
    Stays,
    Ends,
    Breaks,
}

impl Backend {
    pub fn start(epoll: &Epoll) -> io::Result<Self> {
        let tcp = MEMBERS.map(|ip| sys::tcp_listen(SocketAddrV4::new(ip, TCP_PORT)));
        let udp = MEMBERS.map(|ip| sys::udp_bind(SocketAddrV4::new(ip, UDP_PORT)));
        let backend = Self {
            listeners: tcp.into_iter().collect::<io::Result<_>>()?,
            datagrams: udp.into_iter().collect::<io::Result<_>>()?,
            connections: Slab::new(),
            buffer: vec![0; 1 << 16],
            batch: Datagrams::new(),
            web: Server::start(epoll, WEB_PORT, WEB_TOKEN)?,
            grpc: Server::start(epoll, GRPC_PORT, GRPC_TOKEN)?,
            seen: BackendCounters::default(),
        };
        for (index, fd) in backend.listeners.iter().enumerate() {
            epoll.add(fd, FIRST_TOKEN + index as u64, READABLE)?;
        }
        for (index, fd) in backend.datagrams.iter().enumerate() {
            epoll.add(fd, DATAGRAM_TOKEN + index as u64, READABLE)?;
        }
        Ok(backend)
    }

    /// Drops every connection: the next contender begins with none.
    pub fn forget_connections(&mut self) {
        self.connections.clear();
        self.web.forget_connections();
        self.grpc.forget_connections();
    }

    pub fn event(&mut self, epoll: &Epoll, event: Event) -> io::Result<()> {
        if event.token >= GRPC_TOKEN {
            self.grpc.event(epoll, event, &mut self.buffer, &mut self.seen)
        } else if event.token >= WEB_TOKEN {
            self.web.event(epoll, event, &mut self.buffer, &mut self.seen)
        } else if event.token >= CONNECTION_TOKEN {
            self.serve(epoll, (event.token - CONNECTION_TOKEN) as usize)
        } else if event.token >= DATAGRAM_TOKEN {
            self.echo((event.token - DATAGRAM_TOKEN) as usize)
        } else {
            self.accept(epoll, (event.token - FIRST_TOKEN) as usize)
        }
    }

    fn accept(&mut self, epoll: &Epoll, listener: usize) -> io::Result<()> {
        let come: Vec<OwnedFd> = newcomers(&self.listeners[listener]).collect::<io::Result<_>>()?;
        for fd in come {
            let slot = self.connections.free();
            epoll.add(&fd, CONNECTION_TOKEN + slot as u64, READABLE)?;
            let head = [0; REQUEST_HEAD];
            let connection = Connection { fd, head, received: 0, answering: None, wants_write: false };
            self.connections.put(slot, connection);
            // The request is often there with the connection: asking epoll first would cost a turn.
            self.serve(epoll, slot)?;
        }
        Ok(())
    }

    fn serve(&mut self, epoll: &Epoll, slot: usize) -> io::Result<()> {
        let Some(connection) = self.connections.at(slot) else { return Ok(()) };
        let fate = connection.proceed(&mut self.buffer, &mut self.seen)?;
        let blocked = connection.answering.is_some();
        if matches!(fate, AfterRequest::Stays) {
            if blocked != connection.wants_write {
                connection.wants_write = blocked;
                let flags = if blocked { WRITABLE } else { READABLE };
                epoll.change(&connection.fd, CONNECTION_TOKEN + slot as u64, flags)?;
            }
        } else {
            self.seen.errors += u64::from(matches!(fate, AfterRequest::Breaks));
            self.connections.end(slot);
        }
        Ok(())
    }

    fn echo(&mut self, socket: usize) -> io::Result<()> {
        loop {
            let count = match self.batch.receive(&self.datagrams[socket]) {
                Ok(count) => count,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                // An ICMP error about an earlier answer, whose client or proxy socket is gone.
                Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => continue,
                Err(error) => return Err(error),
            };
            for index in 0..count {
                let payload = self.batch.payload(index);
                // What is none of ours is a health check: echoed, not counted. A request of ours that was damaged so
                // far is missed by its client.
                let Some(request) = Request::parse(payload) else { continue };
                self.seen.requests += 1;
                self.seen.bytes_in += payload.len() as u64;
                if request.len == payload.len() && intact(&payload[REQUEST_HEAD..], REQUEST_HEAD) {
                    payload[..ANSWER_HEAD].copy_from_slice(&request.answer_head());
                    payload[ANSWER_HEAD..].copy_from_slice(&PATTERN[ANSWER_HEAD..request.len]);
                } else {
                    self.seen.errors += 1;
                }
                self.seen.bytes_out += payload.len() as u64;
            }
            let answered = self.batch.answer(&self.datagrams[socket], count)?;
            self.seen.errors += (count - answered) as u64;
            if count < Datagrams::BATCH {
                return Ok(());
            }
        }
    }
}

impl Connection {
    fn proceed(&mut self, buffer: &mut [u8], seen: &mut BackendCounters) -> io::Result<AfterRequest> {
        if self.answering.is_some() {
            return self.answer(seen);
        }
        let len = match sys::recv(&self.fd, buffer) {
            // A health check, or a client that is done.
            Ok(0) => return Ok(if self.received == 0 { AfterRequest::Ends } else { AfterRequest::Breaks }),
            Ok(len) => len,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(AfterRequest::Stays),
            Err(_) => return Ok(if self.received == 0 { AfterRequest::Ends } else { AfterRequest::Breaks }),
        };
        seen.bytes_in += len as u64;
        let chunk = &buffer[..len];
        let missing = REQUEST_HEAD.saturating_sub(self.received).min(len);
        let (head, body) = chunk.split_at(missing);
        self.head[self.received.min(REQUEST_HEAD)..][..missing].copy_from_slice(head);
        let body_at = self.received + missing;
        self.received += len;
        if self.received < REQUEST_HEAD {
            return Ok(AfterRequest::Stays);
        }
        let Some(request) = Request::parse(&self.head) else { return Ok(AfterRequest::Breaks) };
        if self.received > request.len || !intact(body, body_at) {
            return Ok(AfterRequest::Breaks);
        }
        if self.received < request.len {
            return Ok(AfterRequest::Stays);
        }
        seen.requests += 1;
        self.received = 0;
        self.answering = Some((request, 0));
        self.answer(seen)
    }

    fn answer(&mut self, seen: &mut BackendCounters) -> io::Result<AfterRequest> {
        while let Some((request, sent)) = &mut self.answering {
            let rest = if *sent == 0 && request.answer_len <= SMALL {
                let mut whole = [0; SMALL];
                whole[..ANSWER_HEAD].copy_from_slice(&request.answer_head());
                whole[ANSWER_HEAD..request.answer_len]
                    .copy_from_slice(&PATTERN[ANSWER_HEAD..request.answer_len]);
                sys::send(&self.fd, &whole[..request.answer_len])
            } else if *sent < ANSWER_HEAD {
                sys::send(&self.fd, &request.answer_head()[*sent..])
            } else {
                sys::send(&self.fd, &PATTERN[*sent..request.answer_len])
            };
            match rest {
                Ok(len) => {
                    seen.bytes_out += len as u64;
                    *sent += len;
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(AfterRequest::Stays),
                Err(_) => return Ok(AfterRequest::Breaks),
            }
            if *sent == request.answer_len {
                let close = request.close;
                self.answering = None;
                if close {
                    return Ok(AfterRequest::Ends);
                }
            }
        }
        Ok(AfterRequest::Stays)
    }
}

/// Answers up to this size leave in one call, head and body together.
const SMALL: usize = 2048;
