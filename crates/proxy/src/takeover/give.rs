//! The old process's side.

use std::{
    io,
    os::fd::{AsFd, OwnedFd},
    path::Path,
    sync::{Arc, mpsc},
    thread::{self, JoinHandle},
    time::Duration,
};

use super::message::{HandoverSocket, Message, NEWEST, OLDEST, Record, SocketRecord, is_understood};
use crate::{
    shared::Shared,
    sys::{self, Epoll, Events, Waker},
    worker::Command,
};

/// For an answer that needs no work on the other side.
const SHORTLY: Duration = Duration::from_secs(5);
/// For a successor that reads its manifests, plans and opens.
const LONG: Duration = Duration::from_secs(600);

/// How far a hand-over is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Turn {
    /// A successor wants to take over: what only one process may have (locks, ports of pages) is to be let go now.
    Asked,
    /// It left again: this process goes on, and has back what it let go.
    Resumed,
    /// It serves. This process accepts nothing more and has its TCP connections left to drain.
    Over,
}

/// Waits for a successor in a thread of its own. Dropped, it waits no longer; the path stays, as a successor may
/// have put its own there.
pub struct HandOver {
    over: Arc<Waker>,
    thread: Option<JoinHandle<()>>,
}

impl HandOver {
    /// `tell` is called at every turn, and the hand-over waits for it.
    pub(crate) fn begin(
        shared: Arc<Shared>,
        path: &Path,
        mut tell: impl FnMut(Turn) + Send + 'static,
    ) -> io::Result<HandOver> {
        let listener = sys::local_listener(path)?;
        let over = Arc::new(Waker::new()?);
        let epoll = Epoll::new()?;
        epoll.watch_readable(listener.as_fd(), 0)?;
        epoll.watch_readable(over.fd(), 1)?;
        let thread = thread::Builder::new().name("hand-over".into()).spawn(move || {
            let mut events = Events::with_room_for(2);
            loop {
                match epoll.wait(&mut events, None) {
                    Ok(()) => {}
                    Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                    Err(error) => return tracing::error!(%error, "take-over: no successor can connect"),
                }
                if (0..events.len()).any(|index| events.at(index).token == 1) {
                    return;
                }
                let mut asked = false;
                let mut ask = || {
                    asked = true;
                    tell(Turn::Asked);
                };
                let ended =
                    sys::local_accept(listener.as_fd()).and_then(|it| hand_over(&shared, it, &mut ask));
                match ended {
                    Ok(true) => return tell(Turn::Over),
                    Ok(false) => {}
                    Err(error) => {
                        tracing::warn!(%error, "take-over failed; this process continues to serve")
                    }
                }
                if asked {
                    tell(Turn::Resumed);
                }
            }
        })?;
        Ok(HandOver { over, thread: Some(thread) })
    }
}

impl Drop for HandOver {
    fn drop(&mut self) {
        self.over.wake();
        // `tell` may drop this very value, in the thread itself.
        if let Some(thread) = self.thread.take()
            && thread.thread().id() != thread::current().id()
        {
            let _ = thread.join();
        }
    }
}

/// `true`: the successor serves. `false`: whoever came has left again.
fn hand_over(shared: &Shared, socket: OwnedFd, asked: &mut dyn FnMut()) -> io::Result<bool> {
    let (user, process) = sys::peer_of(socket.as_fd())?;
    let mut peer = HandoverSocket::new(socket, SHORTLY)?;
    if user != sys::own_user() {
        peer.send(&Message::Refused { reason: "only the same user may take over".into() }, &[])?;
        tracing::warn!(user, process, "take-over refused: it was asked by another user");
        return Ok(false);
    }
    match peer.receive()? {
        Some((Message::Hello { version, newest }, _)) if is_understood(version, newest) => {}
        Some((Message::Hello { version, newest }, _)) => {
            let newest = newest.unwrap_or(version);
            let reason = format!(
                "the new process speaks versions {version} to {newest} of the hand-over, this one versions {OLDEST} to {NEWEST}"
            );
            tracing::warn!(process, "take-over refused: {reason}");
            peer.send(&Message::Refused { reason }, &[])?;
            return Ok(false);
        }
        Some(_) => return Err(io::ErrorKind::InvalidData.into()),
        None => return Ok(false),
    }
    tracing::info!(process, "take-over: a successor has connected");
    asked();
    peer.send_all(sockets(shared), |sockets, more| Message::Sockets { sockets, more })?;
    peer.set_timeout(LONG)?;
    match peer.receive() {
        Ok(Some((Message::Ready, _))) => {}
        Ok(Some(_)) => return Err(io::ErrorKind::InvalidData.into()),
        Err(error) => {
            // Said, or a successor that is ready after all would take us for dead.
            let _ = peer
                .send(&Message::Refused { reason: "the successor took too long to get ready".into() }, &[]);
            return Err(error);
        }
        Ok(None) => {
            tracing::warn!(
                process,
                "take-over failed: the successor ended before it served; this process continues to serve"
            );
            return Ok(false);
        }
    }
    peer.set_timeout(SHORTLY)?;
    match hand_flows_over(shared, &mut peer) {
        Ok(()) => {}
        Err(error) => {
            shared.tell_all(&Command::Thaw);
            // Said, so that the successor does not take silence for our death.
            let _ = peer.send(&Message::Refused { reason: error.to_string() }, &[]);
            return Err(error);
        }
    }
    // From here on it is the successor's, even if it never hears so: should it be gone, so are its sockets, and ours
    // were not refused to anybody before. It has everything it needs.
    if peer.send(&Message::Yours, &[]).is_err() {
        shared.tell_all(&Command::Thaw);
        tracing::warn!(
            process,
            "take-over failed: the successor died at the last moment; this process continues to serve"
        );
        return Ok(false);
    }
    for listener in shared.registry.listeners() {
        listener.set_sockets(Vec::new());
    }
    shared.tell_all(&Command::Relinquish);
    shared.stop_accepting();
    tracing::info!(process, "take-over: the successor serves; connections here are drained");
    Ok(true)
}

fn sockets(shared: &Shared) -> Vec<(Record<SocketRecord>, Arc<OwnedFd>)> {
    let listeners = shared.registry.listeners();
    let each = listeners.iter().flat_map(|listener| {
        let (at, l4) = (listener.at, listener.id.l4);
        let record = move || Record::Known(SocketRecord { at, l4 });
        listener.sockets().into_iter().map(move |socket| (record(), socket))
    });
    each.collect()
}

/// UDP listening sockets rest from here on; what arrives waits in their sockets.
fn hand_flows_over(shared: &Shared, peer: &mut HandoverSocket) -> io::Result<()> {
    let (export, exported) = mpsc::channel();
    shared.tell_all(&Command::Freeze(export));
    let mut flows = Vec::new();
    for _ in 0..shared.workers.len() {
        let part = exported
            .recv_timeout(SHORTLY)
            .map_err(|_| io::Error::other("a worker did not hand over its UDP flows in time"))?;
        flows.extend(part?.into_iter().map(|(flow, socket)| (Record::Known(flow), socket)));
    }
    peer.send_all(flows, |flows, more| Message::Flows { flows, more })?;
    match peer.receive()? {
        Some((Message::Received, _)) => Ok(()),
        Some(_) => Err(io::ErrorKind::InvalidData.into()),
        None => Err(io::Error::other("the successor ended while it received flows")),
    }
}
