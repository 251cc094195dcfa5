//! Clients that say the same bytes whatever they hear: TCP, HTTP/1.1, and TLS.

use std::io;
use std::net::SocketAddrV4;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustls::ClientConfig;
use rustls::client::ClientConnection;
use rustls::pki_types::ServerName;

use super::Attacker;
use super::line::Line;
use crate::load::wire::{self, Wire};

#[derive(Clone, Debug, Default)]
pub struct Bytes {
    /// Said at once.
    pub opening: Vec<u8>,
    /// Said again and again, so often.
    pub again: Vec<u8>,
    pub every: Duration,
    pub reads: bool,
    /// It goes away after this time and comes again.
    pub stays: Option<Duration>,
    /// It shakes hands first.
    pub tls: bool,
}

impl Bytes {
    pub fn opening(bytes: impl Into<Vec<u8>>) -> Self {
        Self { opening: bytes.into(), ..Self::default() }
    }
}

/// What a client of TLS says first.
pub fn client_hello() -> Vec<u8> {
    let mut hello = Vec::new();
    let name = ServerName::try_from("bench.example").ok();
    let connection = name.and_then(|name| ClientConnection::new(wire::terms(), name).ok());
    // Writing to a Vec cannot fail.
    let _length = connection.and_then(|mut it| it.write_tls(&mut hello).ok());
    hello
}

pub(super) struct Client {
    script: Bytes,
    to: SocketAddrV4,
    line: Line,
    said: Option<Instant>,
    tls: Option<Tls>,
    terms: Arc<ClientConfig>,
}

struct Tls {
    wire: Wire,
    stands: bool,
}

impl Client {
    pub(super) fn new(script: Bytes, to: SocketAddrV4) -> Self {
        Self { line: Line::new(to), to, script, said: None, tls: None, terms: wire::terms() }
    }

    /// Shakes hands, asks, and takes nothing.
    fn turn_of_tls(&mut self) -> io::Result<()> {
        if self.tls.is_none() {
            let wire = Wire::connect(self.to, Some((&self.terms, "bench.example")))?;
            self.tls = Some(Tls { wire, stands: false });
        }
        if let Some(tls) = self.tls.as_mut().filter(|it| !it.stands)
            && tls.wire.shake_hands()?
        {
            tls.stands = true;
            tls.wire.send(&self.script.opening)?;
        }
        Ok(())
    }
}

impl Attacker for Client {
    fn turn(&mut self, now: Instant) {
        if self.script.tls {
            match self.turn_of_tls() {
                Err(error)
                    if !matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::NotConnected) =>
                {
                    self.line.ended += 1;
                    self.tls = None;
                }
                _ => {}
            }
            return;
        }
        if self.script.stays.is_some_and(|it| now >= self.line.since + it) {
            self.line.leave();
        }
        match self.line.stands(now) {
            None => return,
            Some(true) => {
                self.line.out.extend_from_slice(&self.script.opening);
                self.said = Some(now);
            }
            Some(false) => {}
        }
        let is_due = self.said.is_none_or(|said| now >= said + self.script.every);
        if is_due && self.line.is_empty() && !self.script.again.is_empty() {
            self.line.out.extend_from_slice(&self.script.again);
            self.said = Some(now);
        }
        self.line.write(now);
        if self.script.reads {
            let mut buffer = [0; 16 << 10];
            while !self.line.read(&mut buffer, now).is_empty() {}
        }
    }

    fn ended(&self) -> u64 {
        self.line.ended
    }
}
