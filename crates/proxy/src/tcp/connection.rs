//! One connection: two ends and what lies between them.

use std::{
    net::SocketAddr,
    os::fd::OwnedFd,
    sync::{Arc, atomic::Ordering::Relaxed},
};

use crate::{
    latency::Stopwatch,
    own_sockets::OwnSocket,
    running::{QueuedClient, RunningListener, RunningMember, RunningPool},
    sys::{Event, Pipe},
    worker::TimerLink,
};

pub(super) struct Connection {
    /// Its connection to the member as it looks from there; goes before that does.
    pub(super) own_socket: Option<OwnSocket>,
    /// How often what the client sends has come through here.
    pub(super) passes: u8,
    pub(super) client: Socket,
    pub(super) member: Option<Socket>,
    pub(super) phase: Phase,
    /// Waits for its turn in `Tcp::unfinished`.
    pub(super) unfinished: bool,
    /// The member has sent something.
    pub(super) answered: bool,
    pub(super) link: TimerLink,
    /// When the wheel looks at it.
    pub(super) due: u64,
    /// When its present phase began, or bytes last moved.
    pub(super) active_at: u64,
    pub(super) began: u64,
    /// When the client came, and when the connection to the member was begun, where that is measured.
    pub(super) came: Stopwatch,
    pub(super) connecting: Stopwatch,
    /// Bytes since the counters of listener and member were last updated.
    bytes_in: u64,
    bytes_out: u64,
    /// All that the counters have.
    pub(super) reported_in: u64,
    pub(super) reported_out: u64,
    /// Milliseconds until the member had taken it.
    pub(super) connect: Option<u32>,
    reported_at: u64,
    /// Who the client is: the peer, or whom a PROXY header names.
    pub(super) peer: SocketAddr,
    pub(super) listener: Arc<RunningListener>,
    pub(super) pool: Option<Arc<RunningPool>>,
    pub(super) target: Option<Arc<RunningMember>>,
    pub(super) extras: Option<Box<ConnectionExtras>>,
}

/// What only few connections need, so that the others stay small.
#[derive(Default)]
pub(super) struct ConnectionExtras {
    /// Its place in the queue of its pool.
    pub(super) waiting: Option<QueuedClient>,
    /// Until when it waits, in all attempts together; 0: it has not waited yet.
    pub(super) waits_until: u64,
    /// Members that did not take it.
    pub(super) tried: Vec<Arc<RunningMember>>,
    /// The PROXY header for the member is among the bytes that wait for it.
    pub(super) proxy_header_queued: bool,
    /// Where the client wanted to go, as its PROXY header says.
    pub(super) destination: Option<SocketAddr>,
    /// What the member is told of how many of us it came through.
    pub(super) hops: u8,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    /// A PROXY header is awaited.
    Header,
    /// It waits for a member that has room.
    Queued,
    /// A member was chosen and has not answered yet.
    Connecting,
    Open,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Side {
    Client,
    Member,
}

impl Side {
    pub(super) fn of(index: u32) -> (u32, Side) {
        (index >> 1, if index & 1 == 0 { Side::Client } else { Side::Member })
    }

    pub(super) fn with(self, index: u32) -> u32 {
        index << 1 | u32::from(self == Side::Member)
    }
}

/// One end, and the bytes that were read from it and wait to be written to the other.
pub(super) struct Socket {
    pub(super) fd: OwnedFd,
    /// There may be something to read that no new event will tell of.
    pub(super) readable: bool,
    pub(super) writable: bool,
    /// Its peer has finished; what it sent before may still be waiting.
    pub(super) peer_finished: bool,
    /// Out-of-band data has come: a short read does not mean that nothing is left.
    pub(super) urgent: bool,
    /// All that it sent was read, and its end too.
    pub(super) at_end: bool,
    /// The other's end was passed on to it.
    pub(super) fin_sent: bool,
    pub(super) delay: NoDelayState,
    pub(super) flow: TransferMode,
    pub(super) pending: PendingData,
}

/// Whether the kernel may hold back small writes to join them. Accepted sockets inherit that it may not. For the
/// others the call is put off until it matters: nothing is held back while nothing is unacknowledged.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum NoDelayState {
    Never,
    NothingSentYet,
    Possible,
}

/// How much comes from an end at a time.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum TransferMode {
    Small,
    /// It goes through a pipe, until that was not worth its calls so many times in a row.
    Bulk(u8),
}

impl TransferMode {
    /// After a read that was large. Bulk comes in portions: a small one does not mean that it is over.
    pub(super) const LARGE: TransferMode = TransferMode::Bulk(4);

    pub(super) fn after_small(self) -> TransferMode {
        match self {
            TransferMode::Small | TransferMode::Bulk(0..=1) => TransferMode::Small,
            TransferMode::Bulk(patience) => TransferMode::Bulk(patience.saturating_sub(1)),
        }
    }
}

pub(super) enum PendingData {
    Nothing,
    Bytes { bytes: Box<[u8]>, from: usize },
    Pipe(Box<Pipe>),
}

impl Socket {
    pub(super) fn new(fd: OwnedFd, delay: NoDelayState) -> Socket {
        Socket {
            fd,
            readable: false,
            writable: false,
            peer_finished: false,
            urgent: false,
            at_end: false,
            fin_sent: false,
            delay,
            flow: TransferMode::Small,
            pending: PendingData::Nothing,
        }
    }

    pub(super) fn note(&mut self, event: Event) {
        self.readable |= event.readable();
        self.writable |= event.writable();
        self.peer_finished |= event.peer_finished();
        self.urgent |= event.urgent();
    }

    pub(super) fn carries(&self) -> bool {
        match &self.pending {
            PendingData::Nothing => false,
            PendingData::Bytes { .. } => true,
            PendingData::Pipe(pipe) => pipe.buffered() > 0,
        }
    }

    /// Nothing will come from it any more.
    pub(super) fn is_done(&self) -> bool {
        self.at_end && !self.carries()
    }

    pub(super) fn take_pipe_if_empty(&mut self) -> Option<Box<Pipe>> {
        if self.carries() { None } else { self.take_pipe() }
    }

    pub(super) fn take_pipe(&mut self) -> Option<Box<Pipe>> {
        match std::mem::replace(&mut self.pending, PendingData::Nothing) {
            PendingData::Pipe(pipe) => Some(pipe),
            other => {
                self.pending = other;
                None
            }
        }
    }
}

/// How stale counters may become while bytes move.
const TELL_EVERY: u64 = 1000;

impl Connection {
    /// How many members did not take it.
    pub(super) fn tried(&self) -> usize {
        self.extras.as_ref().map_or(0, |extras| extras.tried.len())
    }

    pub(super) fn new(
        fd: OwnedFd,
        (peer, passes): (SocketAddr, u8),
        listener: Arc<RunningListener>,
        now: u64,
    ) -> Connection {
        Connection {
            own_socket: None,
            passes,
            client: Socket::new(fd, NoDelayState::Never),
            member: None,
            phase: Phase::Header,
            unfinished: false,
            answered: false,
            link: TimerLink::default(),
            due: u64::MAX,
            active_at: now,
            began: now,
            came: Stopwatch::NEVER,
            connecting: Stopwatch::NEVER,
            bytes_in: 0,
            bytes_out: 0,
            reported_in: 0,
            reported_out: 0,
            connect: None,
            reported_at: 0,
            peer,
            listener,
            pool: None,
            target: None,
            extras: None,
        }
    }

    pub(super) fn ends(&mut self) -> impl Iterator<Item = &mut Socket> {
        std::iter::once(&mut self.client).chain(&mut self.member)
    }

    pub(super) fn extras(&mut self) -> &mut ConnectionExtras {
        self.extras.get_or_insert_default()
    }

    /// When it will have been too long for what it is doing.
    pub(super) fn deadline(&self) -> u64 {
        if let Phase::Queued = self.phase {
            let until = self.extras.as_ref().map_or(0, |it| it.waits_until);
            return until.min(self.active_at.saturating_add(QueuedClient::poll_interval()));
        }
        let config = self.listener.config();
        let timeouts = &config.listener.timeouts;
        let half_closed = self.client.at_end || self.member.as_ref().is_some_and(|member| member.at_end);
        let time = match self.phase {
            Phase::Header => timeouts.header,
            Phase::Queued | Phase::Connecting => timeouts.connect,
            Phase::Open if half_closed => timeouts.half_closed,
            Phase::Open => timeouts.idle,
        };
        self.active_at.saturating_add(time.as_millis() as u64)
    }

    /// When its time to finish is over, if its listener was closed, or its member leaves.
    pub(super) fn drained_at(&self) -> Option<u64> {
        let member = self.target.as_ref().and_then(|member| member.draining_since());
        let since = [member.map(|since| since.max(self.began)), self.listener.closed_at()];
        let since = since.into_iter().flatten().min()?;
        let drain = self.listener.config().listener.timeouts.drain.as_millis() as u64;
        Some(since.saturating_add(drain))
    }

    pub(super) fn count(&mut self, from: Side, bytes: u64, now: u64) {
        self.active_at = now;
        match from {
            Side::Client => self.bytes_in = self.bytes_in.saturating_add(bytes),
            Side::Member => self.bytes_out = self.bytes_out.saturating_add(bytes),
        }
        if now >= self.reported_at.saturating_add(TELL_EVERY) {
            self.report_bytes(now);
        }
    }

    /// The counters are shared by all workers: they are not touched for every few bytes.
    pub(super) fn report_bytes(&mut self, now: u64) {
        self.reported_at = now;
        let (bytes_in, bytes_out) = (std::mem::take(&mut self.bytes_in), std::mem::take(&mut self.bytes_out));
        self.reported_in = self.reported_in.saturating_add(bytes_in);
        self.reported_out = self.reported_out.saturating_add(bytes_out);
        let member = self.target.as_ref().map(|member| (&member.bytes_in, &member.bytes_out));
        for (ins, outs) in member.into_iter().chain([(&self.listener.bytes_in, &self.listener.bytes_out)]) {
            if bytes_in > 0 {
                ins.fetch_add(bytes_in, Relaxed);
            }
            if bytes_out > 0 {
                outs.fetch_add(bytes_out, Relaxed);
            }
        }
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        // Its room may be another's at once: the member is left before that.
        self.own_socket = None;
        self.member = None;
        if let Some(member) = &self.target {
            member.end_connection();
        }
        self.listener.leave();
    }
}
