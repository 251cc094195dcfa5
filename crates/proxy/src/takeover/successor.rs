//! The new process's side of a handover: it takes the sockets and UDP flows of the process that runs.

use std::{
    collections::{BTreeMap, HashMap},
    io,
    net::SocketAddr,
    os::fd::OwnedFd,
    path::Path,
    sync::PoisonError,
    time::Duration,
};

use seaway_model::L4;

use super::message::{HandoverSocket, Introduction, Message, NEWEST, OLDEST, Record};
use crate::{open, proxy_state::ProxyState, sys, worker::WorkerCommand};

/// Every answer of the old process comes within this: it interrupts its work for none of them for long.
pub const ANSWERS_WITHIN: Duration = Duration::from_secs(10);

#[derive(Debug, thiserror::Error)]
pub enum TakeoverError {
    #[error("no running process answers at {path}")]
    NotRunning {
        path: String,
        #[source]
        source: io::Error,
    },
    /// It goes on serving: this process must not.
    #[error("the running process keeps its sockets: {reason}")]
    Refused { reason: String },
    #[error("the handover broke off; the running process continues to serve")]
    Broken(#[from] io::Error),
}

/// The sockets of a running process, and the line to it. Dropped before [`Takeover::confirm`], nothing has happened.
pub struct Takeover {
    pub(super) peer: HandoverSocket,
    sockets: HashMap<(SocketAddr, L4), Vec<OwnedFd>>,
    lock: Option<OwnedFd>,
}

/// Asks the process that hands over at `path` for its sockets.
pub fn take(path: &Path) -> Result<Takeover, TakeoverError> {
    ask(path, None)
}

/// As above, where the running process judges by whom it is succeeded.
pub fn take_as(path: &Path, who: Introduction) -> Result<Takeover, TakeoverError> {
    ask(path, Some(who))
}

fn ask(path: &Path, introduction: Option<Introduction>) -> Result<Takeover, TakeoverError> {
    let socket = sys::local_connect(path)
        .map_err(|source| TakeoverError::NotRunning { path: path.display().to_string(), source })?;
    let mut peer = HandoverSocket::new(socket, ANSWERS_WITHIN)?;
    peer.send(&Message::Hello { version: OLDEST, newest: Some(NEWEST), introduction }, &[])?;
    let mut lock = None;
    let mut sockets: HashMap<_, Vec<OwnedFd>> = HashMap::new();
    let mut unknown = 0_usize;
    loop {
        match peer.receive()? {
            Some((Message::Sockets { sockets: records, more }, fds)) if records.len() == fds.len() => {
                for (record, fd) in known(records, fds, &mut unknown) {
                    sockets.entry((record.at, record.l4)).or_default().push(fd);
                }
                if !more {
                    report_unknown("listening sockets", unknown);
                    return Ok(Takeover { peer, sockets, lock });
                }
            }
            Some((Message::Lock, fds)) => lock = fds.into_iter().next(),
            Some((Message::Refused { reason }, _)) => return Err(TakeoverError::Refused { reason }),
            Some(_) => return Err(io::Error::from(io::ErrorKind::InvalidData).into()),
            None => return Err(io::Error::from(io::ErrorKind::UnexpectedEof).into()),
        }
    }
}

/// Those that this version knows. What goes with the others is closed here; the previous process has it until it lets go.
fn known<T>(
    records: Vec<Record<T>>,
    fds: Vec<OwnedFd>,
    unknown: &mut usize,
) -> impl Iterator<Item = (T, OwnedFd)> {
    records.into_iter().zip(fds).filter_map(move |(record, fd)| {
        let record = record.known();
        if record.is_none() {
            *unknown = unknown.saturating_add(1);
        }
        record.map(|it| (it, fd))
    })
}

fn report_unknown(what: &str, count: usize) {
    if count > 0 {
        tracing::warn!(
            count,
            "handover: {what} of the previous process are of a kind that this version does not know; they are not \
             taken over"
        );
    }
}

impl Takeover {
    /// What listens there, for logs and plans.
    pub fn listening(&self) -> impl Iterator<Item = (SocketAddr, L4)> {
        self.sockets.keys().copied()
    }

    /// What lets a process serve, where something does. The running process has it as well, until it has let go.
    pub fn lock(&mut self) -> Option<OwnedFd> {
        self.lock.take()
    }

    /// Returns when the predecessor has ended what only one process may do, or does not in time.
    pub fn until_gone(&mut self, patience: Duration) {
        self.peer.until_gone(patience);
    }

    /// Puts the sockets where opening finds them. What is steered to them is so by this process from here on: whoever writes
    /// what is steered next knows all of it.
    pub(crate) fn adopt(&mut self, shared: &ProxyState) {
        shared.transferred_state.await_it();
        if let Some(steering) = shared.steering.get() {
            let tcp = self.sockets.iter().filter(|((_, l4), _)| *l4 == L4::Tcp);
            let elsewhere: BTreeMap<_, _> =
                tcp.filter_map(|((at, _), it)| Some((*at, open::place_elsewhere(*at, it)?))).collect();
            let count = elsewhere.len();
            if let Some(Err(error)) = (count > 0).then(|| steering.adopt(elsewhere)) {
                tracing::warn!(count, %error, "handover: clients cannot be steered to sockets of the previous process");
            }
        }
        shared
            .inherited
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .extend(std::mem::take(&mut self.sockets));
    }

    /// Everything is open here: the flows come over, and the old process lets go.
    pub(crate) fn confirm(&mut self, shared: &ProxyState) -> Result<(), TakeoverError> {
        let (mut flows, mut unknown) = (Vec::new(), 0_usize);
        // If it died before, that is heard next: somebody has to serve.
        let _ = self.peer.send(&Message::Ready, &[]);
        loop {
            match self.peer.receive()? {
                Some((Message::Flows { flows: records, more }, fds)) if records.len() == fds.len() => {
                    flows.extend(known(records, fds, &mut unknown));
                    if !more {
                        break;
                    }
                }
                Some((Message::Refused { reason }, _)) => return Err(TakeoverError::Refused { reason }),
                Some(_) => return Err(io::Error::from(io::ErrorKind::InvalidData).into()),
                // It died, and with it whatever did not come yet. Somebody has to serve.
                None => break,
            }
        }
        report_unknown("UDP flows", unknown);
        let count = flows.len();
        // If it died meanwhile, the next line tells so as well.
        let _ = self.peer.send(&Message::Received, &[]);
        match self.answered()? {
            Some((Message::Yours, _)) | None => {}
            Some((Message::Refused { reason }, _)) => return Err(TakeoverError::Refused { reason }),
            Some(_) => return Err(io::Error::from(io::ErrorKind::InvalidData).into()),
        }
        shared.transferred_state.arrived(flows);
        shared.send_to_workers(&WorkerCommand::Inherit);
        // What is not opened here is not wanted any more.
        let unwanted = std::mem::take(&mut *shared.inherited.lock().unwrap_or_else(PoisonError::into_inner));
        for (at, l4) in unwanted.keys() {
            tracing::info!(%at, %l4, "handover: a socket of the previous process is closed; no listener uses it");
            let steering = shared.steering.get().filter(|_| *l4 == L4::Tcp);
            if let Some(Err(error)) = steering.map(|it| it.remove(*at)) {
                tracing::warn!(%at, %error, "nftables still directs clients to a socket that is closed");
            }
        }
        tracing::info!(flows = count, "handover done");
        Ok(())
    }

    /// To `Received` there is an answer, or the line ends. A process that gave up before that could still be told that all is its own.
    fn answered(&mut self) -> io::Result<Option<(Message, Vec<OwnedFd>)>> {
        let mut is_logged = false;
        loop {
            match self.peer.receive() {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    if !std::mem::replace(&mut is_logged, true) {
                        tracing::warn!(
                            "handover: the running process does not answer; this one waits until it does, or ends"
                        );
                    }
                }
                answer => return answer,
            }
        }
    }
}
