//! One peer: its session, its socket, and what is said of both.

use std::{
    io,
    net::{IpAddr, Ipv4Addr, SocketAddr},
    os::fd::AsFd,
    sync::Arc,
    time::{Duration, SystemTime},
};

use nix::poll::{PollFd, PollFlags};
use seaway_model::bgp::{PeerAddress, PeerDistance, RemoteAs, Session as Wanted};
use secrecy::ExposeSecret;

use super::{
    fsm::{Config, Moment, State},
    interface_addresses::{InterfaceAddresses, towards},
    message::Notification,
    neighbors::Neighbors,
    session::{Command, LocalAddresses, Session},
    settings::{PeerState, SessionState, Timing},
    sockets::{ConnectOptions, Connection},
};
use crate::{Links, ObservedLinks, Process, SocketDiagnostics, bfd};

/// Of one peer, before others have a turn.
const READS: usize = 4;
/// While the process of before has the session, it is looked for so often, and for so long.
const SUCCESSION: Duration = Duration::from_millis(100);
const PREDECESSOR: Duration = Duration::from_secs(30);
/// BFD begins with a packet a second.
const BFD_PATIENCE: Duration = Duration::from_secs(5);

pub(super) struct PeerLink {
    pub(super) wanted: Wanted,
    session: Session,
    connection: Option<Connection>,
    to: Option<SocketAddr>,
    local: Option<IpAddr>,
    own: InterfaceAddresses,
    /// It does not know where to connect.
    is_waiting: bool,
    told: PeerState,
    /// Of sessions before its configuration changed.
    resets: u64,
    received: u64,
    /// The prefixes that were told are those of this version.
    version: u64,
    bfd: Option<bfd::BfdStatus>,
    was_up: bool,
    is_late: bool,
    /// Another program has a session with the peer.
    is_behind: bool,
    patient_until: Moment,
}

/// What changes end the session; routes, next hops and BFD do not.
fn config(wanted: &Wanted, timing: Timing) -> Config {
    Config {
        local_as: wanted.local_as,
        remote_as: wanted.remote_as,
        hold: wanted.hold,
        keepalive: wanted.keepalive,
        connect_retry: wanted.connect_retry,
        families: wanted.families,
        graceful_restart: wanted.graceful_restart,
        has_password: wanted.password.is_some(),
        timing,
    }
}

/// That there is one, and which, if that is known: not in which object.
fn value(wanted: &Wanted) -> Option<Option<&str>> {
    let password = wanted.password.as_ref();
    password.map(|it| it.value.as_ref().map(ExposeSecret::expose_secret))
}

impl PeerLink {
    pub(super) fn new(
        wanted: Wanted,
        timing: Timing,
        is_restarting: bool,
        seed: u64,
        now: Moment,
    ) -> PeerLink {
        let mut session = Session::new(config(&wanted, timing), is_restarting, seed);
        session.set_desired(&wanted.routes, false);
        let told = PeerState {
            session: SessionState::Connect,
            since: SystemTime::now(),
            sent: 0,
            routes: Arc::default(),
            received: 0,
            last_error: None,
            resets: 0,
            remote_as: None,
            graceful_restart: false,
            bfd: None,
        };
        PeerLink {
            wanted,
            session,
            connection: None,
            to: None,
            local: None,
            own: InterfaceAddresses::default(),
            is_waiting: false,
            told,
            resets: 0,
            received: 0,
            version: 0,
            bfd: None,
            was_up: false,
            is_late: false,
            is_behind: false,
            patient_until: now.saturating_add(PREDECESSOR),
        }
    }

    /// The same peer, with other routes or another configuration: only the latter ends its session.
    pub(super) fn sync(&mut self, wanted: Wanted, timing: Timing, seed: u64, now: Moment, buffer: &mut [u8]) {
        let is_same = config(&wanted, timing) == *self.session.config()
            && wanted.to == self.wanted.to
            && wanted.hops == self.wanted.hops
            && wanted.router_id == self.wanted.router_id
            && value(&wanted) == value(&self.wanted);
        if !is_same {
            self.end(now, Notification::CHANGED, "the configuration of the session changed", buffer);
            self.resets = self.resets.saturating_add(self.session.machine().resets);
            self.received = self.received.saturating_add(self.session.machine().received);
            // A password that comes later does not make it another start.
            let is_restarting = self.session.machine().is_restarting();
            self.session = Session::new(config(&wanted, timing), is_restarting, seed);
        }
        let has_moved = wanted.next_hops != self.wanted.next_hops;
        self.session.set_desired(&wanted.routes, false);
        self.wanted = wanted;
        if has_moved && self.session.machine().is_established() {
            self.session.set_local(self.next_hops());
        }
    }

    /// Asks for other ways to these addresses (RFC 8326), or withdraws them all.
    pub(super) fn leave(&mut self, is_gone: bool) {
        if is_gone {
            self.session.set_desired(&[], false);
        } else {
            self.session.set_desired(&self.wanted.routes, true);
        }
    }

    pub(super) fn is_established(&self) -> bool {
        self.session.machine().is_established()
    }

    /// The peer has all that was wanted.
    pub(super) fn is_settled(&mut self) -> bool {
        !self.is_established() || self.session.output().is_empty()
    }

    pub(super) fn polled(&self) -> Option<PollFd<'_>> {
        let connection = self.connection.as_ref()?;
        let is_waiting = !connection.is_connected || self.session.is_blocked();
        let flags = if is_waiting { PollFlags::POLLIN | PollFlags::POLLOUT } else { PollFlags::POLLIN };
        Some(PollFd::new(connection.as_fd(), flags))
    }

    pub(super) fn next(&self) -> Moment {
        let late = self.late_at().filter(|_| !self.is_late);
        self.session.next().min(late.unwrap_or(Moment::MAX))
    }

    /// When BFD should be up.
    fn late_at(&self) -> Option<Moment> {
        match self.session.machine().state() {
            State::Established { since } => self.wanted.bfd.map(|_| since.saturating_add(BFD_PATIENCE)),
            _ => None,
        }
    }

    /// What BFD says of the peer now; and whether that ends the session: only where it was up in this very session.
    pub(super) fn hear_bfd(&mut self, state: Option<bfd::BfdStatus>) -> bool {
        let is_up = state.as_ref().is_some_and(|it| it.what == bfd::BfdState::Up);
        let is_failed = self.was_up && state.as_ref().is_some_and(bfd::BfdStatus::is_failed);
        let is_over = state.as_ref().is_none_or(|it| it.is_peer_stopped) || is_failed;
        self.was_up = is_up || self.was_up && !is_over;
        self.bfd = state;
        is_failed && self.is_established()
    }

    /// A router was found behind its interface, for which it may wait.
    pub(super) fn retry_now(&mut self, now: Moment) {
        if std::mem::take(&mut self.is_waiting) {
            self.session.retry_now(now);
        }
    }

    /// Looks at its socket.
    pub(super) fn read_socket(&mut self, now: Moment, id: Option<Ipv4Addr>, buffer: &mut [u8]) {
        let (Some(connection), Some(to)) = (&mut self.connection, self.to) else { return };
        if !connection.is_connected {
            match connection.check(to) {
                Ok(false) => return,
                Ok(true) => {
                    connection.is_connected = true;
                    self.local = connection.local();
                    self.own = InterfaceAddresses::default();
                    if let Ok(observed) = Links::open().and_then(|mut it| it.observe()) {
                        self.observe(&observed);
                    }
                    let local = self.next_hops();
                    let id = self.wanted.router_id.or(id).unwrap_or(Ipv4Addr::LOCALHOST);
                    self.session.connected(now, id, local);
                }
                Err(why) => return self.session.lost(now, &why),
            }
        }
        for _ in 0..READS {
            let Some(connection) = &self.connection else { return };
            match connection.receive(buffer) {
                Ok(None) => return,
                Ok(Some(0)) => return self.lose(now, None),
                Ok(Some(length)) => self.session.receive(now, buffer.get(..length).unwrap_or_default()),
                Err(error) => return self.lose(now, Some(error)),
            }
        }
    }

    /// The peer closed it, which is a reset where it had not read all.
    fn lose(&mut self, now: Moment, error: Option<io::Error>) {
        let error = error.filter(|it| it.kind() != io::ErrorKind::ConnectionReset);
        let why = match (error, self.session.machine().state()) {
            (Some(error), _) => &format!("the connection broke: {error}"),
            (None, State::OpenSent) => {
                "the peer closed the connection before it sent a message: the peer may have no neighbor \
                 configured for this host"
            }
            (None, _) => "the peer closed the connection",
        };
        self.session.lost(now, why);
    }

    /// Timers, then what has to be done with the socket, then what is to be written.
    pub(super) fn act(&mut self, now: Moment, neighbors: &mut Neighbors, buffer: &mut [u8]) {
        self.session.tick(now);
        self.is_late = self.late_at().is_some_and(|at| at <= now);
        self.obey(now, neighbors, buffer);
        self.write(now);
        self.obey(now, neighbors, buffer);
    }

    fn obey(&mut self, now: Moment, neighbors: &mut Neighbors, buffer: &mut [u8]) {
        loop {
            let commands = self.session.commands();
            if commands.is_empty() {
                return;
            }
            for command in commands {
                match command {
                    Command::Close => {
                        self.close(buffer);
                        if let (PeerAddress::Interface(name), Some(to)) = (&self.wanted.to, self.to.take()) {
                            neighbors.note_failure(name, to.ip());
                        }
                    }
                    Command::Connect => match self.connect(neighbors) {
                        Ok(connection) => self.connection = Some(connection),
                        Err(why) => {
                            self.session.lost(now, &why);
                            if self.is_behind
                                && self.session.machine().is_restarting()
                                && now < self.patient_until
                            {
                                self.session.retry(now.saturating_add(SUCCESSION));
                            }
                        }
                    },
                }
            }
        }
    }

    fn connect(&mut self, neighbors: &Neighbors) -> Result<Connection, String> {
        let (to, source) = match &self.wanted.to {
            PeerAddress::Ip { address, port, source } => (SocketAddr::new(*address, *port), *source),
            PeerAddress::Interface(name) => {
                let found = neighbors.find(name, super::PORT);
                self.is_waiting = found.is_err();
                (found?, None)
            }
        };
        let password = match &self.wanted.password {
            None => None,
            Some(password) => {
                let known = password.value.as_ref();
                Some(known.ok_or("the password of the session cannot be read, so Seaway starts no session")?)
            }
        };
        let free = refuse_twins(to, source);
        self.is_behind = free.is_err();
        free?;
        self.to = Some(to);
        let is_internal = self.is_internal();
        Connection::begin(&ConnectOptions { to, source, hops: self.wanted.hops, is_internal, password })
    }

    fn close(&mut self, buffer: &mut [u8]) {
        if let Some(connection) = self.connection.take() {
            if connection.is_connected {
                let _ = connection.send(self.session.output());
            }
            connection.close(buffer);
        }
        self.session.clear();
        self.local = None;
    }

    fn write(&mut self, now: Moment) {
        loop {
            let Some(connection) = self.connection.as_ref().filter(|it| it.is_connected) else { return };
            let bytes = self.session.output();
            if bytes.is_empty() {
                return;
            }
            match connection.send(bytes) {
                Ok(Some(length)) => self.session.wrote(now, length),
                Ok(None) => return self.session.wrote(now, 0),
                Err(error) => return self.lose(now, Some(error)),
            }
        }
    }

    /// Ends it at once, and says why.
    pub(super) fn end(&mut self, now: Moment, notification: Notification, why: &str, buffer: &mut [u8]) {
        self.session.reset(now, notification, why);
        let _ = self.session.commands();
        self.close(buffer);
    }

    /// Our addresses may have changed.
    pub(super) fn update_addresses(&mut self, observed: &ObservedLinks) {
        if self.is_established() {
            self.observe(observed);
            self.session.set_local(self.next_hops());
        }
    }

    /// Without an answer of the kernel it stays as it was.
    fn observe(&mut self, observed: &ObservedLinks) {
        if let (Some(local), Some(to)) = (self.local, self.to) {
            self.own = InterfaceAddresses::of(local, to.ip(), observed);
        }
    }

    /// Before there is a connection, for BFD.
    pub(super) fn foresee(&mut self, observed: &ObservedLinks) {
        if let PeerAddress::Ip { address, port, source } = &self.wanted.to
            && let Some(local) = source.or_else(|| towards(*address, *port))
        {
            self.own = InterfaceAddresses::of(local, *address, observed);
        }
    }

    /// Our addresses in the session, or what is configured instead.
    fn next_hops(&self) -> LocalAddresses {
        let configured = self.wanted.next_hops;
        LocalAddresses { v4: configured.v4.or(self.own.v4), v6: configured.v6.or(self.own.v6) }
    }

    /// What BFD is to watch while there is a session, and until there is the first one after a restart: a peer that hears nothing
    /// meanwhile would take it for down.
    pub(super) fn watched(&self) -> Option<(bfd::Key, bfd::Profile)> {
        // Two processes that speak BFD at once would tell the peer that it is down.
        let is_next = self.session.machine().is_restarting() && self.to.is_some() && !self.is_behind;
        let is_wanted = self.is_established() || is_next;
        let profile = self.wanted.bfd.filter(|_| is_wanted)?;
        let (peer, local) = match (self.to, self.local, &self.wanted.to) {
            (Some(to), Some(local), _) => (to.ip(), local),
            (_, _, PeerAddress::Ip { address, port, source }) => {
                (*address, source.or_else(|| towards(*address, *port))?)
            }
            (_, _, PeerAddress::Interface(_)) => return None,
        };
        let interface = match &self.wanted.to {
            PeerAddress::Interface(name) => Some(name.to_string()),
            PeerAddress::Ip { .. } => None,
        };
        // Of one AS, peers may be anywhere; those beside us speak BFD as neighbors do (RFC 5881), as FRR has it.
        let is_internal = self.is_internal();
        let is_multihop = match self.wanted.hops {
            _ if is_internal => !self.own.is_adjacent,
            PeerDistance::Multihop(hops) | PeerDistance::Security(hops) => hops > 1,
            PeerDistance::Direct => false,
        };
        let key = bfd::Key { peer, local: Some(local), interface, is_multihop };
        let profile = bfd::Profile {
            transmit: profile.transmit,
            receive: profile.receive,
            multiplier: profile.multiplier,
            is_passive: profile.passive,
            minimum_ttl: profile.minimum_ttl,
        };
        Some((key, profile))
    }

    fn is_internal(&self) -> bool {
        match self.wanted.remote_as {
            RemoteAs::Internal => true,
            RemoteAs::External => false,
            RemoteAs::Number(number) => number == self.wanted.local_as,
        }
    }

    /// A session without the BFD that it is to have.
    fn lacks_bfd(&self) -> Option<String> {
        let (key, _) = self.watched()?;
        let state = self.bfd.as_ref().filter(|it| it.what != bfd::BfdState::Up && it.downs == 0)?;
        if let Some(trouble) = &state.trouble {
            return Some(format!("BFD is not up: {trouble}"));
        }
        let port = if key.is_multihop { bfd::MULTIHOP_PORT } else { bfd::SINGLE_HOP_PORT };
        let (at, other) = (
            key.local.unwrap_or(key.peer),
            if key.is_multihop { bfd::SINGLE_HOP_PORT } else { bfd::MULTIHOP_PORT },
        );
        self.is_late.then(|| {
            format!(
                "BFD is not up: the peer sends nothing to UDP port {port} of {at}. If the peer is \
                 configured for another number of hops (single-hop or multihop), it sends to UDP port \
                 {other}"
            )
        })
    }

    /// What is said of it if that changed, and whether more changed than a count of what was dropped.
    pub(super) fn changed_state(&mut self) -> Option<(PeerState, bool)> {
        let machine = self.session.machine();
        let complaint = self.session.complaint().or_else(|| self.lacks_bfd());
        let last_error = complaint.or_else(|| machine.last_error.clone());
        let session = match machine.state() {
            State::Idle { .. } => {
                SessionState::Idle { why: machine.last_error.clone().unwrap_or_else(|| "starting".into()) }
            }
            State::Connect { .. } => SessionState::Connect,
            State::OpenSent => SessionState::OpenSent,
            State::OpenConfirm => SessionState::OpenConfirm,
            State::Established { .. } => SessionState::Established,
        };
        let is_same = std::mem::discriminant(&session) == std::mem::discriminant(&self.told.session);
        let version = self.session.rib().version();
        let routes = if version == self.version {
            self.told.routes.clone()
        } else {
            self.session.rib().prefixes().collect()
        };
        let state = PeerState {
            session,
            since: if is_same { self.told.since } else { SystemTime::now() },
            sent: self.session.rib().sent(),
            routes,
            received: self.received.saturating_add(machine.received),
            last_error,
            resets: self.resets.saturating_add(machine.resets),
            remote_as: machine.remote_as(),
            graceful_restart: machine.is_graceful(),
            bfd: self.bfd.clone(),
        };
        self.version = version;
        if state == self.told {
            return None;
        }
        self.told.received = state.received;
        let is_news = state != self.told;
        self.told = state;
        Some((self.told.clone(), is_news))
    }

    pub(super) fn first(&self) -> PeerState {
        self.told.clone()
    }
}

/// A router may take a second connection from one address for a restart, and end the session that another program has.
fn refuse_twins(to: SocketAddr, source: Option<IpAddr>) -> Result<(), String> {
    let mut all =
        SocketDiagnostics::open().and_then(|mut it| it.connections(to.ip(), to.port())).unwrap_or_default();
    if let Some(local) = source.or_else(|| towards(to.ip(), to.port())) {
        all.retain(|it| it.at.ip() == local);
    }
    if all.is_empty() {
        return Ok(());
    }
    let own = Process::own_sockets();
    let Some(other) = all.iter().find(|it| !own.contains(&it.inode)) else { return Ok(()) };
    let who = Process::owner_of(other.inode);
    let who = who.map_or_else(|| "another program".into(), |it| format!("{} (process {})", it.name, it.pid));
    Err(format!("{who} of this host already has a session with {}; Seaway starts no second session", to.ip()))
}
