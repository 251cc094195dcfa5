//! One peer: its session, its socket, and what is said of both.

use std::{
    io,
    net::{IpAddr, Ipv4Addr, SocketAddr},
    os::fd::AsFd,
    sync::Arc,
    time::SystemTime,
};

use nix::poll::{PollFd, PollFlags};
use seaway_model::bgp::{Hops, PeerAddress, RemoteAs, Session as Wanted};

use super::{
    fsm::{Config, Now, State},
    message::Notification,
    neighbors::Neighbors,
    session::{Command, Local, Session},
    settings::{PeerState, SessionState, Timing},
    sockets::{Connection, Route, beside},
};
use crate::{Links, bfd};

/// Of one peer, before others have a turn.
const READS: usize = 16;

pub(super) struct Link {
    pub(super) wanted: Wanted,
    session: Session,
    connection: Option<Connection>,
    to: Option<SocketAddr>,
    local: Option<IpAddr>,
    told: PeerState,
    /// Of sessions before its configuration changed.
    resets: u64,
    received: u64,
    /// The prefixes that were told are those of this version.
    version: u64,
    pub(super) bfd: Option<bfd::State>,
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

impl Link {
    pub(super) fn new(wanted: Wanted, timing: Timing, is_restarting: bool, seed: u64) -> Link {
        let mut session = Session::new(config(&wanted, timing), is_restarting, seed);
        session.want(&wanted.routes, false);
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
        Link {
            wanted,
            session,
            connection: None,
            to: None,
            local: None,
            told,
            resets: 0,
            received: 0,
            version: 0,
            bfd: None,
        }
    }

    /// The same peer, with other routes or another configuration: only the latter ends its session.
    pub(super) fn want(&mut self, wanted: Wanted, timing: Timing, seed: u64, now: Now, buffer: &mut [u8]) {
        let is_same = config(&wanted, timing) == *self.session.config()
            && wanted.to == self.wanted.to
            && wanted.hops == self.wanted.hops
            && wanted.router_id == self.wanted.router_id
            && wanted.password == self.wanted.password;
        if !is_same {
            self.end(now, Notification::CHANGED, "its configuration changed", buffer);
            self.resets = self.resets.saturating_add(self.session.machine().resets);
            self.received = self.received.saturating_add(self.session.machine().received);
            self.session = Session::new(config(&wanted, timing), false, seed);
        }
        let has_moved = wanted.next_hops != self.wanted.next_hops;
        self.session.want(&wanted.routes, false);
        self.wanted = wanted;
        if has_moved && self.session.machine().is_established() {
            self.session.set_local(self.next_hops());
        }
    }

    /// Asks for other ways to these addresses (RFC 8326), or withdraws them all.
    pub(super) fn leave(&mut self, is_gone: bool) {
        if is_gone {
            self.session.want(&[], false);
        } else {
            self.session.want(&self.wanted.routes, true);
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

    pub(super) fn next(&self) -> Now {
        self.session.next()
    }

    /// A router was found behind its interface.
    pub(super) fn hurry(&mut self, now: Now) {
        self.session.hurry(now);
    }

    /// Looks at its socket.
    pub(super) fn hear(&mut self, now: Now, id: Option<Ipv4Addr>, buffer: &mut [u8]) {
        let (Some(connection), Some(to)) = (&mut self.connection, self.to) else { return };
        if !connection.is_connected {
            match connection.check(to) {
                Ok(false) => return,
                Ok(true) => {
                    connection.is_connected = true;
                    self.local = connection.local();
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
                Ok(Some(length)) => self.session.heard(now, buffer.get(..length).unwrap_or_default()),
                Err(error) => return self.lose(now, Some(error)),
            }
        }
    }

    /// The peer closed it, which is a reset where it had not read all.
    fn lose(&mut self, now: Now, error: Option<io::Error>) {
        let error = error.filter(|it| it.kind() != io::ErrorKind::ConnectionReset);
        let why = match (error, self.session.machine().state()) {
            (Some(error), _) => &format!("the connection broke: {error}"),
            (None, State::OpenSent) => {
                "the peer closed the connection without a word: it may not be configured to expect this host"
            }
            (None, _) => "the peer closed the connection",
        };
        self.session.lost(now, why);
    }

    /// Timers, then what has to be done with the socket, then what is to be written.
    pub(super) fn act(&mut self, now: Now, neighbors: &mut Neighbors, buffer: &mut [u8]) {
        self.session.tick(now);
        self.obey(now, neighbors, buffer);
        self.write(now);
        self.obey(now, neighbors, buffer);
    }

    fn obey(&mut self, now: Now, neighbors: &mut Neighbors, buffer: &mut [u8]) {
        loop {
            let commands = self.session.commands();
            if commands.is_empty() {
                return;
            }
            for command in commands {
                match command {
                    Command::Close => {
                        self.close(buffer);
                        if let PeerAddress::Interface(name) = &self.wanted.to {
                            neighbors.doubt(name, now);
                        }
                    }
                    Command::Connect => match self.connect(neighbors) {
                        Ok(connection) => self.connection = Some(connection),
                        Err(why) => self.session.lost(now, &why),
                    },
                }
            }
        }
    }

    fn connect(&mut self, neighbors: &Neighbors) -> Result<Connection, String> {
        let (to, source) = match &self.wanted.to {
            PeerAddress::Ip { address, port, source } => (SocketAddr::new(*address, *port), *source),
            PeerAddress::Interface(name) => (neighbors.find(name, super::PORT)?, None),
        };
        let password = match &self.wanted.password {
            None => None,
            Some(password) => {
                let known = password.value.as_ref();
                Some(known.ok_or("its password cannot be read, and there is no session without it")?)
            }
        };
        self.to = Some(to);
        let is_internal = match self.wanted.remote_as {
            RemoteAs::Internal => true,
            RemoteAs::External => false,
            RemoteAs::Number(number) => number == self.wanted.local_as,
        };
        Connection::begin(&Route { to, source, hops: self.wanted.hops, is_internal, password })
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

    fn write(&mut self, now: Now) {
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
    pub(super) fn end(&mut self, now: Now, notification: Notification, why: &str, buffer: &mut [u8]) {
        self.session.reset(now, notification, why);
        let _ = self.session.commands();
        self.close(buffer);
    }

    /// Our addresses in the session, or what is configured instead.
    fn next_hops(&self) -> Local {
        let observed = Links::open().and_then(|mut links| links.observe()).unwrap_or_default();
        let loopback: Vec<u32> = observed.links.iter().filter(|it| it.loopback).map(|it| it.index).collect();
        let found = self.local.map(|local| beside(local, &observed.addresses, &loopback));
        let (v4, v6) = found.unwrap_or_default();
        let own = self.wanted.next_hops;
        Local { v4: own.v4.or(v4), v6: own.v6.or(v6) }
    }

    /// What BFD is to watch; only while there is a session.
    pub(super) fn watched(&self) -> Option<(bfd::Key, bfd::Profile)> {
        let profile = self.wanted.bfd.filter(|_| self.is_established())?;
        let (peer, local) = (self.to?.ip(), self.local?);
        let interface = match &self.wanted.to {
            PeerAddress::Interface(name) => Some(name.to_string()),
            PeerAddress::Ip { .. } => None,
        };
        let is_multihop = matches!(self.wanted.hops, Hops::Multihop(2..) | Hops::Security(2..));
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

    /// What is said of it, if that changed.
    pub(super) fn tell(&mut self) -> Option<PeerState> {
        let machine = self.session.machine();
        let complaint = self.session.complaint();
        let last_error = complaint.or_else(|| machine.last_error.clone());
        let session = match machine.state() {
            State::Idle { .. } => {
                SessionState::Idle { why: machine.last_error.clone().unwrap_or_else(|| "it begins".into()) }
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
        self.told = state;
        Some(self.told.clone())
    }

    pub(super) fn first(&self) -> PeerState {
        self.told.clone()
    }
}
