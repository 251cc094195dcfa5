//! The new process's side.

use std::{
    collections::HashMap, io, net::SocketAddr, os::fd::OwnedFd, path::Path, sync::PoisonError, time::Duration,
};

use seaway_model::L4;

use super::message::{HandoverSocket, Message, NEWEST, OLDEST, Record};
use crate::{shared::Shared, sys, worker::Command};

/// For every answer of the old process, which interrupts its work for none of them for long.
const PATIENCE: Duration = Duration::from_secs(10);

#[derive(Debug, thiserror::Error)]
pub enum TakeOverError {
    #[error("no running process answers at {path}")]
    NotRunning {
        path: String,
        #[source]
        source: io::Error,
    },
    /// It goes on serving: this process must not.
    #[error("the running process keeps its sockets: {reason}")]
    Refused { reason: String },
    #[error("the take-over broke off; the running process continues to serve")]
    Broken(#[from] io::Error),
}

/// The sockets of a running process, and the line to it. Dropped before [`TakenOver::confirm`], nothing has happened.
pub struct TakenOver {
    peer: HandoverSocket,
    sockets: HashMap<(SocketAddr, L4), Vec<OwnedFd>>,
}

/// Asks the process that hands over at `path` for its sockets.
pub fn take(path: &Path) -> Result<TakenOver, TakeOverError> {
    let socket = sys::local_connect(path)
        .map_err(|source| TakeOverError::NotRunning { path: path.display().to_string(), source })?;
    let mut peer = HandoverSocket::new(socket, PATIENCE)?;
    peer.send(&Message::Hello { version: OLDEST, newest: Some(NEWEST) }, &[])?;
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
                    return Ok(TakenOver { peer, sockets });
                }
            }
            Some((Message::Refused { reason }, _)) => return Err(TakeOverError::Refused { reason }),
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
            "take-over: {what} of the previous process are of a kind that this version does not know; they are not \
             taken over"
        );
    }
}

impl TakenOver {
    /// What listens there, for logs and plans.
    pub fn listening(&self) -> impl Iterator<Item = (SocketAddr, L4)> {
        self.sockets.keys().copied()
    }

    /// Puts the sockets where opening finds them.
    pub(crate) fn adopt(&mut self, shared: &Shared) {
        shared.transferred_state.await_it();
        shared
            .inherited
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .extend(std::mem::take(&mut self.sockets));
    }

    /// Everything is open here: the flows come over, and the old process lets go.
    pub(crate) fn confirm(mut self, shared: &Shared) -> Result<(), TakeOverError> {
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
                Some((Message::Refused { reason }, _)) => return Err(TakeOverError::Refused { reason }),
                Some(_) => return Err(io::Error::from(io::ErrorKind::InvalidData).into()),
                // It died, and with it whatever did not come yet. Somebody has to serve.
                None => break,
            }
        }
        report_unknown("UDP flows", unknown);
        let count = flows.len();
        // If it died meanwhile, the next line tells so as well.
        let _ = self.peer.send(&Message::Received, &[]);
        match self.peer.receive()? {
            Some((Message::Yours, _)) | None => {}
            Some((Message::Refused { reason }, _)) => return Err(TakeOverError::Refused { reason }),
            Some(_) => return Err(io::Error::from(io::ErrorKind::InvalidData).into()),
        }
        shared.transferred_state.arrived(flows);
        shared.tell_all(&Command::Inherit);
        // What is not opened here is not wanted any more.
        let unwanted = std::mem::take(&mut *shared.inherited.lock().unwrap_or_else(PoisonError::into_inner));
        for (at, l4) in unwanted.keys() {
            tracing::info!(%at, %l4, "take-over: a socket of the previous process is closed; no listener uses it");
        }
        tracing::info!(flows = count, "take-over done");
        Ok(())
    }
}
