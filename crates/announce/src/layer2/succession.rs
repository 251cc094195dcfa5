//! From one process to the next on the same machine: what is announced goes on, and peers see one life.
//!
//! The predecessor has the port of heartbeats. Its successor finds it in use, connects to a socket that only this network
//! namespace knows, and waits there. When the predecessor stops, it tells its state instead of withdrawing: messages as peers get
//! them, with the key, to its own name.

use std::{
    fs, io,
    os::{
        fd::{AsFd, BorrowedFd},
        unix::fs::MetadataExt,
    },
    time::Duration,
};

use nix::sys::socket::{getsockopt, sockopt::PeerCredentials};
use socket2::{Domain, SockAddr, Socket, Type};

use super::{
    heartbeat::{HeartbeatStamp, LONGEST, Message},
    settings::{HeartbeatKey, Settings},
};

#[derive(Debug, Default)]
pub(crate) struct HandoverPeers {
    listener: Option<Socket>,
    /// Who connected, and has not said yet who it is.
    guest: Option<Socket>,
    successor: Option<Socket>,
    predecessor: Option<Socket>,
    inherited: Vec<Message>,
}

/// Until a successor says that it has what it was told; then its predecessor withdraws instead.
const PATIENCE: Duration = Duration::from_millis(50);
const TAKEN: &[u8] = b"taken";

impl HandoverPeers {
    /// From now on a successor may come.
    pub(crate) fn listen(&mut self, port: u16) {
        let listen = || -> io::Result<Socket> {
            let socket = open()?;
            socket.bind(&name(port)?)?;
            socket.listen(1)?;
            Ok(socket)
        };
        // Without it, a successor begins as after a crash.
        self.listener = listen().ok();
    }

    /// Waits until the process that has the port stops.
    pub(crate) fn wait_behind(&mut self, port: u16, settings: &Settings) {
        let Some(key) = &settings.key else { return };
        let connect = || -> io::Result<Socket> {
            let socket = open()?;
            socket.connect(&name(port)?)?;
            socket.send(&greeting(settings).write(key))?;
            Ok(socket)
        };
        if self.predecessor.is_none() {
            self.predecessor = connect().ok();
        }
    }

    /// Meanwhile the port is not ours to open.
    pub(crate) fn is_waiting(&self) -> bool {
        self.predecessor.is_some()
    }

    pub(crate) fn accept(&mut self, settings: &Settings) {
        let (Some(listener), Some(key)) = (&self.listener, &settings.key) else { return };
        while let Ok((socket, _)) = listener.accept() {
            // Its name has no permissions.
            if socket.set_nonblocking(true).is_ok() && is_ours(&socket) {
                self.guest = Some(socket);
            }
        }
        let mut buffer = [0; LONGEST];
        if let Some(guest) = &self.guest {
            let Some(heard) = received(guest, &mut buffer) else { return };
            let guest = self.guest.take();
            // Another host of this name has another key, or another name.
            let message = Message::read(key, heard);
            let is_next = message.is_some_and(|it| it.from == settings.host && it.to == settings.host);
            self.successor = guest.filter(|_| is_next).or(self.successor.take());
        }
        // One that gave up says nothing, and closes.
        if self.successor.as_ref().is_some_and(|it| received(it, &mut buffer) == Some(&[])) {
            self.successor = None;
        }
    }

    /// What the predecessor leaves, once it has stopped; nothing, if it says nothing.
    pub(crate) fn inherit(&mut self, key: &HeartbeatKey, buffer: &mut [u8]) -> Option<Vec<Message>> {
        let predecessor = self.predecessor.as_ref()?;
        loop {
            let heard = received(predecessor, buffer)?;
            if heard.is_empty() {
                self.predecessor = None;
                return Some(std::mem::take(&mut self.inherited));
            }
            self.inherited.extend(Message::read(key, heard));
            if self.inherited.last().is_some_and(|it| self.inherited.len() == usize::from(it.parts)) {
                // A predecessor that waits no longer withdraws, and peers know better than this.
                let _ = predecessor.send(TAKEN);
            }
        }
    }

    pub(crate) fn has_successor(&mut self, settings: &Settings) -> bool {
        self.accept(settings);
        self.successor.is_some()
    }

    /// Tells the successor, and whether it heard it. It opens the port once this process has closed everything.
    pub(crate) fn hand_over(&mut self, key: &HeartbeatKey, messages: &[Message]) -> bool {
        // Another one may listen there at once.
        self.listener = None;
        let Some(successor) = self.successor.take() else { return false };
        let told = || -> io::Result<usize> {
            successor.set_nonblocking(false)?;
            successor.set_write_timeout(Some(PATIENCE))?;
            successor.set_read_timeout(Some(PATIENCE))?;
            messages.iter().try_for_each(|it| successor.send(&it.write(key)).map(drop))?;
            io::Read::read(&mut &successor, &mut [0; TAKEN.len()])
        };
        let is_taken = told().is_ok_and(|length| length == TAKEN.len());
        // It closes with this value, behind the port.
        self.successor = Some(successor);
        is_taken
    }

    pub(crate) fn sockets(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        [&self.listener, &self.guest, &self.predecessor].into_iter().flatten().map(AsFd::as_fd)
    }
}

/// What came: nothing, if the other end closed; `None`, if there is nothing yet.
fn received<'a>(socket: &Socket, buffer: &'a mut [u8]) -> Option<&'a [u8]> {
    match io::Read::read(&mut &*socket, buffer) {
        Ok(length) => buffer.get(..length),
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => None,
        Err(_) => Some(&[]),
    }
}

/// By which a successor shows that it is one: it has the name, and the key.
fn greeting(settings: &Settings) -> Message {
    Message {
        from: settings.host.clone(),
        to: settings.host.clone(),
        stamp: HeartbeatStamp { boot: 1, sequence: 0 },
        acknowledged: HeartbeatStamp::default(),
        known: None,
        macs: Vec::new(),
        hears: Vec::new(),
        version: 0,
        part: 0,
        parts: 1,
        claims: Vec::new(),
    }
}

/// Each message is read as a whole.
fn open() -> io::Result<Socket> {
    let socket = Socket::new(Domain::UNIX, Type::SEQPACKET, None)?;
    socket.set_nonblocking(true)?;
    Ok(socket)
}

fn name(port: u16) -> io::Result<SockAddr> {
    SockAddr::unix(format!("\0seaway-layer2-{port}"))
}

/// Of the same user, or of root.
fn is_ours(socket: &Socket) -> bool {
    let own = fs::metadata("/proc/self").map(|it| it.uid()).ok();
    let other = getsockopt(socket, PeerCredentials).map(|it| it.uid()).ok();
    other.is_some() && (other == own || other == Some(0))
}
