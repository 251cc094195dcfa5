//! From one process to the next on the same machine: what is announced goes on, and peers see one life.
//!
//! The predecessor has the port of heartbeats. Its successor finds it in use, connects to a socket that only this network
//! namespace knows, and waits there. When the predecessor stops, it tells its state instead of withdrawing: messages as peers get
//! them, with the key, to its own name.

use std::{fs, io, os::fd::AsFd, os::fd::BorrowedFd, os::unix::fs::MetadataExt};

use nix::sys::socket::{getsockopt, sockopt::PeerCredentials};
use socket2::{Domain, SockAddr, Socket, Type};

use super::{
    heartbeat::{LONGEST, Message},
    settings::Key,
};

#[derive(Debug, Default)]
pub(crate) struct Succession {
    listener: Option<Socket>,
    successor: Option<Socket>,
    predecessor: Option<Socket>,
    inherited: Vec<Message>,
}

impl Succession {
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
    pub(crate) fn wait_behind(&mut self, port: u16) {
        let connect = || -> io::Result<Socket> {
            let socket = open()?;
            socket.connect(&name(port)?)?;
            Ok(socket)
        };
        if self.predecessor.is_none() {
            self.predecessor = connect().ok();
        }
    }

    pub(crate) fn accept(&mut self) {
        let Some(listener) = &self.listener else { return };
        while let Ok((socket, _)) = listener.accept() {
            // Its name has no permissions.
            if socket.set_nonblocking(true).is_ok() && is_ours(&socket) {
                self.successor = Some(socket);
            }
        }
        // One that gave up says nothing, and closes.
        let mut nothing = [std::mem::MaybeUninit::uninit(); 1];
        if self.successor.as_ref().is_some_and(|it| matches!(it.recv(&mut nothing), Ok(0))) {
            self.successor = None;
        }
    }

    /// What the predecessor leaves, once it has stopped; nothing, if it says nothing.
    pub(crate) fn inherit(&mut self, key: &Key, buffer: &mut [u8]) -> Option<Vec<Message>> {
        let predecessor = self.predecessor.as_ref()?;
        loop {
            match io::Read::read(&mut &*predecessor, buffer.get_mut(..LONGEST)?) {
                Ok(length @ 1..) => {
                    self.inherited.extend(Message::read(key, buffer.get(..length).unwrap_or_default()));
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return None,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Ok(_) | Err(_) => {
                    self.predecessor = None;
                    return Some(std::mem::take(&mut self.inherited));
                }
            }
        }
    }

    pub(crate) fn has_successor(&mut self) -> bool {
        self.accept();
        self.successor.is_some()
    }

    /// Tells the successor, for whom the port is free by now.
    pub(crate) fn bequeath(&mut self, key: &Key, messages: &[Message]) {
        // Another one may listen there at once.
        self.listener = None;
        if let Some(successor) = self.successor.take() {
            // One that is gone inherits nothing.
            let _ = messages.iter().try_for_each(|it| successor.send(&it.write(key)).map(drop));
        }
    }

    pub(crate) fn sockets(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        [&self.listener, &self.predecessor].into_iter().flatten().map(AsFd::as_fd)
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
