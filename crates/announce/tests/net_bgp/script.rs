//! A router that does as it is told, for what real ones do not do.

use std::{
    io::{ErrorKind, Read, Write},
    net::{TcpListener, TcpStream},
    time::{Duration, Instant},
};

use seaway_testkit::topology::{Namespace, until};

const KEEPALIVE: u8 = 4;

pub(crate) fn message(kind: u8, body: &[u8]) -> Vec<u8> {
    let length = u16::try_from(body.len() + 19).expect("short").to_be_bytes();
    [&[0xff; 16][..], &length, &[kind], body].concat()
}

/// With these capabilities, of AS 65001.
pub(crate) fn open(capabilities: &[u8]) -> Vec<u8> {
    let length = u8::try_from(capabilities.len()).expect("short");
    let head = [4, 0xfd, 0xe9, 0, 90, 10, 79, 0, 1, length + 2, 2, length];
    message(1, &[&head, capabilities].concat())
}

/// IPv4, IPv6, four-byte AS.
pub(crate) const USUAL: [u8; 18] = [1, 4, 0, 1, 0, 1, 1, 4, 0, 2, 0, 1, 65, 4, 0, 0, 0xfd, 0xe9];

pub(crate) struct Listener(TcpListener);

impl Listener {
    pub(crate) fn open(on: &Namespace) -> Listener {
        let listener = on.run(|| TcpListener::bind("0.0.0.0:179")).expect("it is free");
        listener.set_nonblocking(true).expect("so");
        Listener(listener)
    }

    pub(crate) fn accept(&self) -> Script {
        let mut accepted = None;
        until("it connects", || {
            accepted = self.0.accept().ok();
            accepted.is_some()
        });
        let (stream, _) = accepted.expect("it was accepted");
        stream.set_nonblocking(false).expect("so");
        stream.set_read_timeout(Some(Duration::from_millis(20))).expect("so");
        stream.set_nodelay(true).expect("so");
        Script { stream, begun: Vec::new() }
    }

    /// Has a session.
    pub(crate) fn establish(&self, capabilities: &[u8]) -> Script {
        let mut script = self.accept();
        script.send(&open(capabilities));
        assert_eq!(script.next().0, 1, "an OPEN");
        script.send(&message(KEEPALIVE, &[]));
        assert_eq!(script.next().0, KEEPALIVE);
        script
    }
}

pub(crate) struct Script {
    stream: TcpStream,
    begun: Vec<u8>,
}

impl Script {
    pub(crate) fn send(&mut self, bytes: &[u8]) {
        self.stream.write_all(bytes).expect("it is connected");
    }

    /// The next one that is not there to keep the session alive.
    pub(crate) fn next_news(&mut self) -> (u8, Vec<u8>) {
        loop {
            let message = self.next();
            if message.0 != KEEPALIVE {
                return message;
            }
        }
    }

    /// The next message: its kind, and what it says.
    pub(crate) fn next(&mut self) -> (u8, Vec<u8>) {
        let began = Instant::now();
        loop {
            if let Some(message) = self.read() {
                return message;
            }
            assert!(began.elapsed() < Duration::from_secs(20), "no message came");
        }
    }

    /// The next one, if it comes soon.
    pub(crate) fn read(&mut self) -> Option<(u8, Vec<u8>)> {
        loop {
            let length = self.begun.get(16..18).map(|it| usize::from(u16::from_be_bytes([it[0], it[1]])));
            if let Some(length) = length.filter(|it| *it <= self.begun.len()) {
                let whole: Vec<u8> = self.begun.drain(..length).collect();
                return Some((whole[18], whole[19..].to_vec()));
            }
            let mut buffer = [0; 8192];
            match self.stream.read(&mut buffer) {
                Ok(0) => return None,
                Ok(length) => self.begun.extend_from_slice(&buffer[..length]),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {
                    return None;
                }
                Err(error) => panic!("{error}"),
            }
        }
    }
}
