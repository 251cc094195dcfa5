//! The socket of a hostile client: bytes wait until the kernel takes them.

use std::io::{self, Read as _, Write as _};
use std::net::{SocketAddrV4, TcpStream};
use std::time::{Duration, Instant};

use crate::sys;

/// Before it comes again.
const PAUSE: Duration = Duration::from_millis(50);

pub(super) struct Line {
    to: SocketAddrV4,
    stream: Option<TcpStream>,
    pub(super) out: Vec<u8>,
    sent: usize,
    pub(super) since: Instant,
    again: Option<Instant>,
    pub(super) ended: u64,
}

impl Line {
    pub(super) fn new(to: SocketAddrV4) -> Self {
        Self { to, stream: None, out: Vec::new(), sent: 0, since: Instant::now(), again: None, ended: 0 }
    }

    /// Connects if it has to. `Some(true)`: just now.
    pub(super) fn stands(&mut self, now: Instant) -> Option<bool> {
        if self.stream.is_some() {
            return Some(false);
        }
        if self.again.is_some_and(|again| again > now) {
            return None;
        }
        let Ok(fd) = sys::tcp_connect(self.to) else {
            self.again = Some(now + PAUSE);
            return None;
        };
        self.stream = Some(TcpStream::from(fd));
        self.since = now;
        self.out.clear();
        self.sent = 0;
        Some(true)
    }

    /// Goes away and comes again at once.
    pub(super) fn leave(&mut self) {
        self.stream = None;
        self.again = None;
    }

    fn was_ended(&mut self, now: Instant) {
        self.stream = None;
        self.again = Some(now + PAUSE);
        self.ended += 1;
    }

    pub(super) fn is_empty(&self) -> bool {
        self.sent == self.out.len()
    }

    pub(super) fn write(&mut self, now: Instant) {
        let Some(stream) = &mut self.stream else { return };
        while self.sent < self.out.len() {
            match stream.write(&self.out[self.sent..]) {
                Ok(length) => self.sent += length,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                // The handshake of TCP is under way.
                Err(error) if error.kind() == io::ErrorKind::NotConnected => break,
                Err(_) => return self.was_ended(now),
            }
        }
        // Who does not read learns so that it was reset.
        let was_reset = !matches!(stream.take_error(), Ok(None));
        if self.is_empty() {
            self.out.clear();
            self.sent = 0;
        }
        if was_reset {
            self.was_ended(now);
        }
    }

    /// What has come, up to the buffer's size.
    pub(super) fn read<'b>(&mut self, buffer: &'b mut [u8], now: Instant) -> &'b [u8] {
        let Some(stream) = &mut self.stream else { return &[] };
        match stream.read(buffer) {
            Ok(length @ 1..) => &buffer[..length],
            Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::NotConnected) => {
                &[]
            }
            Ok(0) | Err(_) => {
                self.was_ended(now);
                &[]
            }
        }
    }
}
