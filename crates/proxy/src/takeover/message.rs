//! What the two processes say: one JSON value per packet, with descriptors beside it.

use std::{
    io,
    net::SocketAddr,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    time::Duration,
};

use seaway_model::{L4, PoolId};
use serde::{Deserialize, Serialize};

use crate::sys;

/// Raised with every change that an older process would misread.
pub(super) const VERSION: u32 = 1;
/// Room for a packet, and as many records as surely fit into one and into the kernel's smallest buffer.
const PACKET: usize = 128 * 1024;
const RECORDS: usize = 100;

#[derive(Debug, Serialize, Deserialize)]
pub(super) enum Message {
    Hello {
        version: u32,
    },
    /// It will not be, and why.
    Refused {
        reason: String,
    },
    /// One descriptor for each.
    Sockets {
        sockets: Vec<SocketRecord>,
        more: bool,
    },
    Ready,
    /// One descriptor for each: the socket to its member.
    Flows {
        flows: Vec<FlowRecord>,
        more: bool,
    },
    Received,
    Yours,
}

#[derive(Debug, Serialize, Deserialize)]
pub(super) struct SocketRecord {
    pub(super) at: SocketAddr,
    pub(super) l4: L4,
}

/// A UDP flow as another process can go on with it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct FlowRecord {
    /// The cookie of the listening socket.
    #[serde(rename = "door")]
    pub(crate) listening_socket: u64,
    pub(crate) client: SocketAddr,
    pub(crate) pool: PoolId,
    pub(crate) member: SocketAddr,
    /// Milliseconds since its last datagram.
    pub(crate) silent: u64,
    pub(crate) answered: bool,
    pub(crate) trusted: bool,
    /// What another member would be told of the client.
    pub(crate) header: Option<Box<[u8]>>,
}

/// This process's end of the socket between the two processes.
pub(super) struct HandoverSocket {
    socket: OwnedFd,
    room: Vec<u8>,
}

impl HandoverSocket {
    pub(super) fn new(socket: OwnedFd, patience: Duration) -> io::Result<HandoverSocket> {
        sys::limit_waiting(socket.as_fd(), patience)?;
        Ok(HandoverSocket { socket, room: vec![0; PACKET] })
    }

    pub(super) fn set_timeout(&self, patience: Duration) -> io::Result<()> {
        sys::limit_waiting(self.socket.as_fd(), patience)
    }

    pub(super) fn send(&self, message: &Message, fds: &[BorrowedFd<'_>]) -> io::Result<()> {
        sys::pass(self.socket.as_fd(), &serde_json::to_vec(message)?, fds)
    }

    /// `None`: the other side is gone.
    pub(super) fn receive(&mut self) -> io::Result<Option<(Message, Vec<OwnedFd>)>> {
        match sys::take(self.socket.as_fd(), &mut self.room) {
            Ok((0, _)) => Ok(None),
            Ok((count, fds)) => {
                Ok(Some((serde_json::from_slice(self.room.get(..count).unwrap_or_default())?, fds)))
            }
            Err(error) if error.kind() == io::ErrorKind::ConnectionReset => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Sends records with their descriptors in as many packets as they need, at least one.
    pub(super) fn send_all<T>(
        &self,
        records: Vec<(T, impl AsFd)>,
        message: impl Fn(Vec<T>, bool) -> Message,
    ) -> io::Result<()> {
        let mut left = records.len();
        let mut records = records.into_iter();
        loop {
            let (part, fds): (Vec<T>, Vec<_>) = records.by_ref().take(RECORDS).unzip();
            left = left.saturating_sub(part.len());
            let borrowed: Vec<_> = fds.iter().map(AsFd::as_fd).collect();
            self.send(&message(part, left > 0), &borrowed)?;
            if left == 0 {
                return Ok(());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An older process hands its sockets over to a newer one, and a newer one to an older one that is started again.
    #[test]
    fn the_form_of_a_message_is_the_golden_one() {
        const GOLDEN: &str = include_str!("../../golden/takeover.jsonl");
        seaway_testkit::golden::round_trips(GOLDEN, |line| {
            serde_json::from_str::<Message>(line).and_then(|it| serde_json::to_string(&it))
        });
        let number = |message: Message| match message {
            Message::Hello { .. } => 0,
            Message::Refused { .. } => 1,
            Message::Sockets { .. } => 2,
            Message::Ready => 3,
            Message::Flows { .. } => 4,
            Message::Received => 5,
            Message::Yours => 6,
        };
        let all: std::collections::BTreeSet<u32> =
            GOLDEN.lines().map(|line| number(serde_json::from_str(line).expect("is read"))).collect();
        assert_eq!(all, (0..=6).collect(), "every message is in the golden file");
    }
}
