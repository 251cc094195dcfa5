//! The members of `attacks`: servers of HTTP/1.1 and HTTP/2 whose handlers do what the path says, and an echo of UDP.
//!
//! `/big` is an answer that is larger than any buffer, `/hold` a handler that reads no body and never answers, `/silent`
//! one that never answers, `/trickle` one that says a byte now and then, and `/cut` one that ends within its answer. An
//! upgrade becomes a WebSocket with messages without end. Anything else is answered at once with `BODY` bytes.

mod h1;
mod h2;

use std::io::{self, Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddrV4, TcpStream, UdpSocket};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};

use self::h1::H1;
use self::h2::H2;
use super::ports;
use crate::sys::{self, BROKEN, Epoll, READABLE, WRITABLE};

/// Of the answer to an honest client.
pub const BODY: usize = 1024;
/// Of an answer that no proxy can hold for all.
const BIG: u64 = 1 << 30;
/// Prepared at most, for one connection.
const PIECE: usize = 16 << 10;
/// Of each connection, either way.
const IN_KERNEL: usize = 16 << 10;
const TRICKLE: Duration = Duration::from_millis(100);

/// One side of a connection, without its socket.
enum Protocol {
    H1(H1),
    H2(H2),
}

/// What a connection does next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Next {
    Reads,
    /// Reads no more, so that its window shuts.
    Holds,
    Ends,
}

struct Connection {
    stream: TcpStream,
    protocol: Protocol,
    out: Vec<u8>,
    sent: usize,
    next: Next,
    interest: u32,
}

/// Runs in a thread of its own until it is dropped.
pub struct Members {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Members {
    pub fn start() -> Result<Self> {
        let mut server = Server::new().context("cannot start the members")?;
        let stop = Arc::<AtomicBool>::default();
        let told = stop.clone();
        let thread = std::thread::spawn(move || {
            while !told.load(Relaxed) {
                if let Err(error) = server.turn() {
                    eprintln!("bench: the members: {error}");
                    return;
                }
            }
        });
        Ok(Self { stop, thread: Some(thread) })
    }
}

impl Drop for Members {
    fn drop(&mut self) {
        self.stop.store(true, Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ended = thread.join();
        }
    }
}

const LISTENERS: [(Ipv4Addr, u16); 4] = [
    (ports::SHARED_MEMBER, ports::HTTP_MEMBER),
    (ports::OTHER_MEMBER, ports::HTTP_MEMBER),
    (ports::FAILING_MEMBER, ports::HTTP_MEMBER),
    (ports::SHARED_MEMBER, ports::H2_MEMBER),
];
const UDP: usize = LISTENERS.len();

struct Server {
    epoll: Epoll,
    listeners: Vec<OwnedFd>,
    udp: UdpSocket,
    connections: Vec<Option<Connection>>,
    free: Vec<usize>,
    events: Vec<sys::Event>,
    buffer: Vec<u8>,
    trickled: Instant,
}

impl Server {
    fn new() -> io::Result<Self> {
        let epoll = Epoll::new()?;
        let mut listeners = Vec::new();
        for (index, (ip, port)) in LISTENERS.into_iter().enumerate() {
            let listener = sys::tcp_listen(SocketAddrV4::new(ip, port))?;
            epoll.add(&listener, index as u64, READABLE)?;
            listeners.push(listener);
        }
        let udp = UdpSocket::bind(SocketAddrV4::new(ports::SHARED_MEMBER, ports::UDP_MEMBER))?;
        udp.set_nonblocking(true)?;
        epoll.add(&udp, UDP as u64, READABLE)?;
        Ok(Self {
            epoll,
            listeners,
            udp,
            connections: Vec::new(),
            free: Vec::new(),
            events: Vec::new(),
            buffer: vec![0; 64 << 10],
            trickled: Instant::now(),
        })
    }

    fn turn(&mut self) -> io::Result<()> {
        self.epoll.wait(&mut self.events, 20)?;
        for event in std::mem::take(&mut self.events) {
            match event.token as usize {
                index if index < UDP => self.accept(index)?,
                UDP => self.echo(),
                index => {
                    let slot = index - UDP - 1;
                    if let Some(Some(connection)) = self.connections.get_mut(slot)
                        && event.flags & BROKEN != 0
                        && connection.next != Next::Reads
                    {
                        connection.next = Next::Ends;
                        connection.out.clear();
                        connection.sent = 0;
                    }
                    self.serve(slot)?;
                }
            }
        }
        if self.trickled.elapsed() >= TRICKLE {
            self.trickled = Instant::now();
            for slot in 0..self.connections.len() {
                let Some(Some(connection)) = self.connections.get_mut(slot) else { continue };
                if let Protocol::H1(h1) = &mut connection.protocol
                    && h1.trickle(&mut connection.out)
                {
                    self.serve(slot)?;
                }
            }
        }
        Ok(())
    }

    fn accept(&mut self, index: usize) -> io::Result<()> {
        // Who has gone since, or has no descriptor left, is not accepted.
        while let Ok(fd) = sys::accept(&self.listeners[index]) {
            let protocol = match LISTENERS[index].1 {
                // Few connections for many streams: with small buffers the kernel drops what comes in a burst, and all
                // streams wait for a retransmission.
                ports::H2_MEMBER => Protocol::H2(H2::default()),
                _ => {
                    // What waits in kernels for thousands of connections shall not be the machine's memory.
                    sys::set_buffers(&fd, IN_KERNEL)?;
                    Protocol::H1(H1::default())
                }
            };
            let slot = self.free.pop().unwrap_or_else(|| {
                self.connections.push(None);
                self.connections.len() - 1
            });
            self.epoll.add(&fd, (slot + UDP + 1) as u64, READABLE)?;
            let (out, next) = (Vec::new(), Next::Reads);
            let stream = TcpStream::from(fd);
            // As every server does: small answers shall not wait for acknowledgements of others.
            stream.set_nodelay(true)?;
            self.connections[slot] =
                Some(Connection { stream, protocol, out, sent: 0, next, interest: READABLE });
            self.serve(slot)?;
        }
        Ok(())
    }

    fn echo(&mut self) {
        while let Ok((length, from)) = self.udp.recv_from(&mut self.buffer) {
            // The flow may be over.
            let _sent = self.udp.send_to(&self.buffer[..length], from);
        }
    }

    fn serve(&mut self, slot: usize) -> io::Result<()> {
        let Some(Some(connection)) = self.connections.get_mut(slot) else { return Ok(()) };
        if connection.proceed(&mut self.buffer).is_none() {
            self.connections[slot] = None;
            self.free.push(slot);
            return Ok(());
        }
        let reads = if connection.next == Next::Reads { READABLE } else { 0 };
        let writes = if connection.sent < connection.out.len() { WRITABLE } else { 0 };
        if connection.interest != reads | writes {
            connection.interest = reads | writes;
            self.epoll.change(&connection.stream, (slot + UDP + 1) as u64, connection.interest)?;
        }
        Ok(())
    }
}

impl Connection {
    /// `None`: it is over.
    fn proceed(&mut self, buffer: &mut [u8]) -> Option<()> {
        if self.next == Next::Reads {
            match self.stream.read(buffer) {
                Ok(0) => return None,
                Ok(length) => {
                    self.next = match &mut self.protocol {
                        Protocol::H1(h1) => h1.take(&buffer[..length], &mut self.out),
                        Protocol::H2(h2) => h2.take(&buffer[..length], &mut self.out)?,
                    };
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(_) => return None,
            }
        } else if let Ok(Some(_)) | Err(_) = self.stream.take_error() {
            return None;
        }
        // The others get their turn after some pieces.
        for _ in 0..4 {
            if !self.write()? {
                return Some(());
            }
            match &mut self.protocol {
                Protocol::H1(h1) => h1.more(&mut self.out),
                Protocol::H2(h2) => h2.more(&mut self.out),
            }
            if self.out.is_empty() || self.next == Next::Ends {
                return (self.next != Next::Ends).then_some(());
            }
        }
        Some(())
    }

    /// Whether all is written.
    fn write(&mut self) -> Option<bool> {
        while self.sent < self.out.len() {
            match self.stream.write(&self.out[self.sent..]) {
                Ok(length) => self.sent += length,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Some(false),
                Err(_) => return None,
            }
        }
        self.out.clear();
        self.sent = 0;
        Some(true)
    }
}
