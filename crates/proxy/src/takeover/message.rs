//! What the two processes say: one JSON value per packet, with descriptors beside it.

use std::{
    io,
    net::SocketAddr,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    time::Duration,
};

use seaway_model::{L4, PoolId};
use serde::{Deserialize, Deserializer, Serialize, de::IgnoredAny};

use crate::sys;

/// What this process speaks: the newest, raised with every change that an older process would misread, and the oldest.
/// What is added to a message is no such change: unknown fields are passed over.
pub(super) const NEWEST: u32 = 1;
pub(super) const OLDEST: u32 = 1;
/// Room for a packet, and as many records as surely fit into one and into the kernel's smallest buffer.
const PACKET: usize = 128 * 1024;
const RECORDS: usize = 100;

#[derive(Debug, Serialize, Deserialize)]
pub(super) enum Message {
    Hello {
        /// The oldest that the successor speaks: processes of before demand their own here.
        version: u32,
        /// The newest. Who does not say it speaks no other than `version`.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        newest: Option<u32>,
        /// Where several may come, and only one that knows enough may have it. Processes of before pass over it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        introduction: Option<Introduction>,
    },
    /// One descriptor: who has it may serve. Only for who introduced itself.
    Lock,
    /// It will not be, and why.
    Refused {
        reason: String,
    },
    /// One descriptor for each.
    Sockets {
        sockets: Vec<Record<SocketRecord>>,
        #[serde(default)]
        more: bool,
    },
    Ready,
    /// One descriptor for each: the socket to its member.
    Flows {
        flows: Vec<Record<FlowRecord>>,
        #[serde(default)]
        more: bool,
    },
    Received,
    Yours,
}

/// Who asks for the sockets of a process.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Introduction {
    /// What both are: the same host of the same cluster.
    pub of: String,
    /// The higher, the later it was started for the first time.
    #[serde(default)]
    pub generation: u64,
    /// Up to which version it knows what it would serve.
    #[serde(default)]
    pub knows: u64,
}

/// Whether some version is spoken by the successor and by this process.
pub(super) fn is_understood(oldest: u32, newest: Option<u32>) -> bool {
    oldest <= NEWEST && newest.unwrap_or(oldest) >= OLDEST
}

/// A record, or what a process of another version says instead.
#[derive(Debug, Serialize, Deserialize)]
#[serde(untagged)]
pub(super) enum Record<T> {
    Known(T),
    Unknown(#[serde(deserialize_with = "pass_over")] ()),
}

fn pass_over<'de, D: Deserializer<'de>>(from: D) -> Result<(), D::Error> {
    IgnoredAny::deserialize(from).map(drop)
}

impl<T> Record<T> {
    pub(super) fn known(self) -> Option<T> {
        match self {
            Record::Known(record) => Some(record),
            Record::Unknown(_) => None,
        }
    }
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
    #[serde(default)]
    pub(crate) silent: u64,
    #[serde(default)]
    pub(crate) answered: bool,
    #[serde(default)]
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

    /// Returns when the other side is gone, or does not go in time.
    pub(super) fn until_gone(&mut self, patience: Duration) {
        let _ = self.set_timeout(patience);
        while let Ok(Some(_)) = self.receive() {}
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
            Message::Lock => 7,
        };
        let all: std::collections::BTreeSet<u32> =
            GOLDEN.lines().map(|line| number(serde_json::from_str(line).expect("is read"))).collect();
        assert_eq!(all, (0..=7).collect(), "every message is in the golden file");
    }

    #[test]
    fn versions_that_overlap_understand_each_other_and_others_do_not() {
        for (oldest, newest, understood) in [
            (NEWEST, None, true),
            (OLDEST, Some(NEWEST + 1), true),
            (NEWEST, Some(NEWEST + 7), true),
            (NEWEST + 1, Some(NEWEST + 2), false),
            (NEWEST + 1, None, false),
            (OLDEST - 1, Some(OLDEST - 1), false),
            (OLDEST - 1, None, false),
        ] {
            assert_eq!(is_understood(oldest, newest), understood, "{oldest} to {newest:?}");
        }
    }

    /// Of two versions beside each other, one may have fields that the other does not. What this one cannot do without is in the
    /// first file; the second is of a version that says more. Each line of theirs is read as the line after it.
    #[test]
    fn messages_of_the_version_before_and_of_the_one_after_are_read() {
        for golden in [
            include_str!("../../golden/takeover_before.jsonl"),
            include_str!("../../golden/takeover_after.jsonl"),
        ] {
            let mut lines = golden.lines();
            let mut count = 0;
            while let (Some(theirs), Some(ours)) = (lines.next(), lines.next()) {
                let message: Message =
                    serde_json::from_str(theirs).unwrap_or_else(|it| panic!("{theirs}: {it}"));
                assert_eq!(serde_json::to_string(&message).expect("is written"), ours, "{theirs}");
                count += 1;
            }
            assert!(count >= 4 && lines.next().is_none(), "pairs of lines: {golden}");
        }
    }

    #[test]
    fn what_another_version_adds_is_passed_over_and_the_rest_is_read() {
        let line = r#"{"Sockets":{"sockets":[{"at":"192.0.2.1:80","l4":"TCP","mark":7},{"at":"192.0.2.1:81","l4":"QUIC"}],"more":false,"all":2}}"#;
        let Ok(Message::Sockets { sockets, more: false }) = serde_json::from_str(line) else {
            panic!("it is read")
        };
        let known: Vec<_> = sockets.into_iter().map(|it| it.known().map(|it| it.at.port())).collect();
        assert_eq!(known, [Some(80), None]);
        let hello = r#"{"Hello":{"version":1,"newest":9,"host":"a"}}"#;
        assert!(matches!(
            serde_json::from_str(hello),
            Ok(Message::Hello { version: 1, newest: Some(9), introduction: None })
        ));
    }
}
