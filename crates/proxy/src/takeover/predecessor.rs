//! The old process's side of a handover: it waits for a successor, and passes it sockets and UDP flows.

use std::{
    io,
    os::fd::{AsFd, OwnedFd},
    path::Path,
    sync::{Arc, mpsc},
    thread::{self, JoinHandle},
    time::Duration,
};

use super::message::{
    HandoverSocket, Introduction, Message, NEWEST, OLDEST, Record, SocketRecord, is_understood,
};
use crate::{
    proxy_state::ProxyState,
    sys::{self, Epoll, Events, Waker},
    worker::WorkerCommand,
};

/// For an answer that needs no work on the other side.
const SHORTLY: Duration = Duration::from_secs(5);
/// For a successor that reads its manifests, plans and opens.
const LONG: Duration = Duration::from_secs(600);

/// Whoever was lent what lets it serve works no more within this, once the take-over failed.
pub const STOPS_WITHIN: Duration = Duration::from_secs(10);
/// Until it is believed to have stopped.
const SURELY_STOPPED: Duration = STOPS_WITHIN.saturating_add(Duration::from_secs(2));

/// How far a hand-over is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HandoverPhase {
    /// A successor wants to take over: what only one process may have (locks, ports of pages) is to be let go now.
    Asked,
    /// It left again: this process goes on, and has back what it let go.
    Resumed,
    /// It serves. This process accepts nothing more and has its TCP connections left to drain.
    Over,
}

/// What a process decides and does while it hands over, in the thread that waits for successors. Whoever may be succeeded by
/// any process of its user is just told the turns.
pub trait Predecessor: Send + 'static {
    /// Whether this one may have what is here; asked before anything rests. Else, why not.
    fn admit(&mut self, _who: Option<&Introduction>) -> Result<(), String> {
        Ok(())
    }

    /// After [`HandoverPhase::Asked`]: what lets a process serve, if something does; or why it is kept.
    fn lock_for(&mut self, _who: Option<&Introduction>) -> Result<Option<OwnedFd>, String> {
        Ok(None)
    }

    /// The hand-over waits for it.
    fn tell(&mut self, turn: HandoverPhase);

    /// For a successor that plans and opens.
    fn patience(&self) -> Duration {
        LONG
    }
}

impl<F: FnMut(HandoverPhase) + Send + 'static> Predecessor for F {
    fn tell(&mut self, turn: HandoverPhase) {
        self(turn);
    }
}

/// Waits for a successor in a thread of its own. Dropped, it waits no longer; the path stays, as a successor may
/// have put its own there.
pub struct HandoverListener {
    over: Arc<Waker>,
    thread: Option<JoinHandle<()>>,
}

impl HandoverListener {
    pub(crate) fn begin(
        shared: Arc<ProxyState>,
        path: &Path,
        mut predecessor: impl Predecessor,
    ) -> io::Result<HandoverListener> {
        let listener = sys::local_listener(path)?;
        let over = Arc::new(Waker::new()?);
        let epoll = Epoll::new()?;
        epoll.watch_readable(listener.as_fd(), 0)?;
        epoll.watch_readable(over.fd(), 1)?;
        let thread = thread::Builder::new().name("hand-over".into()).spawn(move || {
            let mut events = Events::with_room_for(2);
            // Who asks again and again is not logged each time.
            let mut refused_last = String::new();
            loop {
                match epoll.wait(&mut events, None) {
                    Ok(()) => {}
                    Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                    Err(error) => return tracing::error!(%error, "handover: no new process can connect"),
                }
                if (0..events.len()).any(|index| events.at(index).token == 1) {
                    return;
                }
                let ended = sys::local_accept(listener.as_fd())
                    .and_then(|it| hand_over(&shared, it, &mut predecessor, &mut refused_last));
                match ended {
                    Ok(true) => return,
                    Ok(false) => {}
                    Err(error) => {
                        tracing::warn!(%error, "handover failed; this process continues to serve")
                    }
                }
            }
        })?;
        Ok(HandoverListener { over, thread: Some(thread) })
    }
}

impl Drop for HandoverListener {
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
fn hand_over(
    shared: &ProxyState,
    socket: OwnedFd,
    predecessor: &mut dyn Predecessor,
    refused_last: &mut String,
) -> io::Result<bool> {
    let (user, process) = sys::peer_of(socket.as_fd())?;
    let mut peer = HandoverSocket::new(socket, SHORTLY)?;
    let mut refuse = |peer: &HandoverSocket, reason: String| {
        if *refused_last != reason {
            tracing::warn!(process, "handover refused: {reason}");
            refused_last.clone_from(&reason);
        }
        peer.send(&Message::Refused { reason }, &[])
    };
    if user != sys::own_user() {
        refuse(&peer, "only the same user may take over".into())?;
        return Ok(false);
    }
    let who = match peer.receive()? {
        Some((Message::Hello { version, newest, introduction }, _)) if is_understood(version, newest) => {
            introduction
        }
        Some((Message::Hello { version, newest, .. }, _)) => {
            let newest = newest.unwrap_or(version);
            let reason = format!(
                "the new process speaks versions {version} to {newest} of the handover, this one versions {OLDEST} to {NEWEST}"
            );
            refuse(&peer, reason)?;
            return Ok(false);
        }
        Some(_) => return Err(io::ErrorKind::InvalidData.into()),
        None => return Ok(false),
    };
    if let Err(reason) = predecessor.admit(who.as_ref()) {
        refuse(&peer, reason)?;
        return Ok(false);
    }
    tracing::info!(process, "handover: a new process has connected");
    predecessor.tell(HandoverPhase::Asked);
    let lock = predecessor.lock_for(who.as_ref());
    let is_lent = matches!(lock, Ok(Some(_)));
    let ended = match lock {
        Ok(lock) => pass_all(shared, &mut peer, lock, predecessor.patience()),
        Err(reason) => refuse(&peer, reason).map(|()| false),
    };
    if let Ok(true) = ended {
        // The successor begins what only one may do once this line is closed.
        predecessor.tell(HandoverPhase::Over);
    } else {
        // Until it is gone, or has had its time, it may still do something here.
        peer.until_gone(if is_lent { SURELY_STOPPED } else { SHORTLY });
        predecessor.tell(HandoverPhase::Resumed);
    }
    ended
}

/// As above.
fn pass_all(
    shared: &ProxyState,
    peer: &mut HandoverSocket,
    lock: Option<OwnedFd>,
    patience: Duration,
) -> io::Result<bool> {
    if let Some(lock) = lock {
        peer.send(&Message::Lock, &[lock.as_fd()])?;
    }
    peer.send_all(sockets(shared), |sockets, more| Message::Sockets { sockets, more })?;
    peer.set_timeout(patience)?;
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
                "handover failed: the new process ended before it served; this process continues to serve"
            );
            return Ok(false);
        }
    }
    peer.set_timeout(SHORTLY)?;
    match hand_flows_over(shared, peer) {
        Ok(()) => {}
        Err(error) => {
            shared.send_to_workers(&WorkerCommand::Thaw);
            // Said, so that the successor does not take silence for our death.
            let _ = peer.send(&Message::Refused { reason: error.to_string() }, &[]);
            return Err(error);
        }
    }
    // From here on it is the successor's, even if it never hears so: should it be gone, so are its sockets, and ours
    // were not refused to anybody before. It has everything it needs.
    if peer.send(&Message::Yours, &[]).is_err() {
        shared.send_to_workers(&WorkerCommand::Thaw);
        tracing::warn!(
            "handover failed: the new process ended at the last moment; this process continues to serve"
        );
        return Ok(false);
    }
    for listener in shared.registry.listeners() {
        listener.set_sockets(Vec::new());
    }
    shared.send_to_workers(&WorkerCommand::Relinquish);
    shared.stop_accepting();
    tracing::info!("handover: the new process serves; connections of this process are drained");
    Ok(true)
}

fn sockets(shared: &ProxyState) -> Vec<(Record<SocketRecord>, Arc<OwnedFd>)> {
    let listeners = shared.registry.listeners();
    let each = listeners.iter().flat_map(|listener| {
        let (at, l4) = (listener.at, listener.id.l4);
        let record = move || Record::Known(SocketRecord { at, l4 });
        listener.sockets().into_iter().map(move |socket| (record(), socket))
    });
    each.collect()
}

/// UDP listening sockets rest from here on; what arrives waits in their sockets.
fn hand_flows_over(shared: &ProxyState, peer: &mut HandoverSocket) -> io::Result<()> {
    let (export, exported) = mpsc::channel();
    shared.send_to_workers(&WorkerCommand::Freeze(export));
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
