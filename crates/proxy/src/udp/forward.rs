//! The way of a datagram from a client to a member: its flow, which is opened, moved or refused here.

use std::{
    io,
    net::{IpAddr, SocketAddr},
    os::fd::{AsFd, OwnedFd},
    sync::{Arc, atomic::Ordering::Relaxed},
};

use seaway_model::{LbKey, load_balancer::ProxyVersion};
use seaway_wire::proxy::{self, Forwarded, Origin, Parsed, Transport, Version};

use super::{
    BUSY, MOST_FLOWS, Udp,
    flows::{FlowId, FlowKey},
    listening_socket,
};
use crate::{
    access::ConnectionEnd,
    hops::{self, MOST_HOPS},
    own_sockets::{MOST_PASSES, OwnSocket},
    reach::bind_as_client,
    running::{Health, ListenerConfig, RefusalReason, RunningListener, RunningMember, RunningPool},
    sys::{self, Peer},
    worker::{Kind, LoopIteration, Token},
};

pub(super) struct Flow {
    /// Its socket as it looks from the member; goes before that does.
    pub(super) own_socket: Option<OwnSocket>,
    /// How often what its client sends has come through here.
    passes: u8,
    pub(super) listener: Arc<RunningListener>,
    pub(super) pool: Arc<RunningPool>,
    pub(super) member: Arc<RunningMember>,
    pub(super) socket: OwnedFd,
    /// What tells a member of the client; put before the first datagram that it gets.
    pub(super) header: Option<Box<[u8]>>,
    header_is_due: bool,
    /// Its client's datagrams may begin with a header.
    pub(super) trusted: bool,
    /// Its member's host refused what it sent, or its drain is over: the next datagram looks for another.
    pub(super) moves: bool,
    /// Its replies are read when it is its turn.
    pub(super) waits: bool,
    coalesces: bool,
    busy: u8,
    last_turn: u64,
    /// When it was led to its member.
    engaged: u64,
    /// When its first datagram came, and bytes of its datagrams both ways.
    pub(super) began: u64,
    pub(super) received: u64,
    pub(super) sent: u64,
}

type ReceivedDatagram<'a> = (Peer, &'a [u8], Option<u16>);

impl Flow {
    /// It counts as one of its member until it [ends](Flow::end); its listener has let it in.
    pub(super) fn new(
        listener: Arc<RunningListener>,
        pool: Arc<RunningPool>,
        member: Arc<RunningMember>,
        socket: OwnedFd,
    ) -> Flow {
        member.begin_connection();
        Flow {
            own_socket: None,
            passes: 0,
            listener,
            pool,
            member,
            socket,
            header: None,
            header_is_due: false,
            trusted: false,
            moves: false,
            waits: false,
            coalesces: false,
            busy: 0,
            last_turn: 0,
            engaged: 0,
            began: 0,
            received: 0,
            sent: 0,
        }
    }

    /// When its time to finish is over, if its member leaves.
    pub(super) fn drained_at(&self) -> Option<u64> {
        let since = self.member.draining_since()?.max(self.engaged);
        let drain = self.listener.config().listener.timeouts.drain.as_millis() as u64;
        Some(since.saturating_add(drain))
    }

    /// Replies come in every turn.
    #[inline]
    pub(super) fn notice(&mut self, turn: u64) -> bool {
        let follows = turn.wrapping_sub(self.last_turn) <= 1;
        self.busy = if follows { self.busy.saturating_add(1) } else { 0 };
        self.last_turn = turn;
        self.busy > BUSY
    }

    pub(super) fn coalesce(&mut self) {
        if !self.coalesces {
            sys::coalesce(self.socket.as_fd(), true);
            self.coalesces = true;
        }
    }

    /// Its socket told of an error, which is mostly an ICMP answer to what was sent before.
    pub(super) fn failed(&mut self, error: &io::Error, now: u64) {
        use io::ErrorKind::{ConnectionRefused, HostUnreachable, NetworkUnreachable};
        if matches!(error.kind(), ConnectionRefused | HostUnreachable | NetworkUnreachable) {
            self.moves = true;
            self.member.connect_errors.fetch_add(1, Relaxed);
            self.listener.connect_errors.fetch_add(1, Relaxed);
            self.pool.failed(&self.member, "refused a datagram", now);
        }
    }

    pub(super) fn end(self) {
        self.member.end_connection();
        self.listener.leave();
    }

    fn send(&mut self, bytes: &[u8], segment: Option<u16>) -> io::Result<()> {
        let header = self.header.as_deref().filter(|_| self.header_is_due).unwrap_or_default();
        sys::send_datagrams(self.socket.as_fd(), header, bytes, segment)?;
        self.header_is_due = false;
        Ok(())
    }
}

impl Udp {
    pub(super) fn forward(
        &mut self,
        listening_socket: u32,
        listener: &Arc<RunningListener>,
        config: &ListenerConfig,
        (peer, bytes, segment): ReceivedDatagram<'_>,
        turn: &mut LoopIteration,
    ) {
        let key = FlowKey { peer, socket: listening_socket };
        let (slot, bytes) = match self.flows.find(&key) {
            Some(slot) => (slot, bytes),
            None => match self.admit(key, listener, config, bytes, turn) {
                Ok((slot, payload)) => (slot, payload),
                Err(why) => return listener.refuse(why),
            },
        };
        let Some(entry) = self.flows.at(slot) else { return };
        entry.last = turn.now;
        let bytes = if entry.flow.trusted { without_header(bytes) } else { bytes };
        if entry.flow.moves || entry.flow.member.health() == Health::Down {
            self.relocate(slot, turn);
        }
        // An error belongs to an earlier datagram and keeps this one from being sent, so it gets a second chance.
        for _ in 0..2 {
            let Some(entry) = self.flows.at(slot) else { return };
            match entry.flow.send(bytes, segment) {
                Ok(()) => {
                    let bytes = bytes.len() as u64;
                    entry.flow.received = entry.flow.received.saturating_add(bytes);
                    return listening_socket::count(&entry.flow.member.bytes_in, bytes);
                }
                Err(error) => {
                    entry.flow.failed(&error, turn.now);
                    if !entry.flow.moves {
                        // Its buffer is full, or the datagram is too long for the way: UDP loses it.
                        return;
                    }
                    self.relocate(slot, turn);
                }
            }
        }
    }

    /// Opens a flow for a client that has none, if it may have one. Its first datagram comes back without header.
    fn admit<'a>(
        &mut self,
        key: FlowKey,
        listener: &Arc<RunningListener>,
        config: &ListenerConfig,
        bytes: &'a [u8],
        turn: &mut LoopIteration,
    ) -> Result<(u32, &'a [u8]), RefusalReason> {
        if !self.accepts {
            return Err(RefusalReason::Resources);
        }
        let peer = key.peer.socket_addr();
        let trusted = config.trusts(peer.ip());
        let (client, destination, hops, bytes) =
            if trusted { origin(peer, listener.at, bytes)? } else { (peer, listener.at, 0, bytes) };
        if !config.admits(client.ip()) {
            return Err(RefusalReason::Source);
        }
        let passes = turn.shared.own_sockets.passes_of_flow(peer);
        if passes >= MOST_PASSES || hops > MOST_HOPS {
            turn.shared.report_loop(listener.at);
            return Err(RefusalReason::Loop);
        }
        let number = self.flows.draw();
        let pool = config.pool(|| number).ok_or(RefusalReason::NoMember)?;
        match listener.enter(config, turn.now) {
            // It has its share: one of its own flows goes, if one can be found.
            Err(RefusalReason::Resources) if self.make_room_at(&listener.key, turn) => {
                listener.enter_instead(config)?
            }
            entered => entered?,
        }
        let opened = self.begin(key, listener, pool, (client, passes), turn).map(|(member, dialled)| {
            let live = pool.live();
            let version = live.compiled.pool().proxy.filter(|version| *version == ProxyVersion::V2);
            let header = version.map(|_| {
                self.header.clear();
                let forwarded = Forwarded::new(Transport::Datagram, client, destination);
                let (origin, tlv) = (Origin::Forwarded(forwarded), hops::tlv(hops));
                proxy::encode_with(Version::V2, &origin, hops::tlvs(&tlv), &mut self.header);
                self.header.as_slice().into()
            });
            let header_is_due = header.is_some();
            Flow {
                own_socket: dialled.own_socket,
                passes,
                header,
                header_is_due,
                trusted,
                engaged: turn.now,
                began: turn.now,
                ..Flow::new(listener.clone(), pool.clone(), member, dialled.socket)
            }
        });
        match opened {
            Ok(flow) => {
                turn.shared.flow_began();
                // The only members that are left may be leaving themselves.
                flow.drained_at().into_iter().for_each(|at| self.sweeps.at(at));
                let idle = config.listener.timeouts.udp_idle.as_millis() as u64;
                Ok((self.flows.insert(key, turn.now, idle.max(1), flow).slot, bytes))
            }
            Err(why) => {
                listener.leave();
                Err(why)
            }
        }
    }

    /// A member and a socket to it.
    fn begin(
        &mut self,
        key: FlowKey,
        listener: &Arc<RunningListener>,
        pool: &Arc<RunningPool>,
        (client, passes): (SocketAddr, u8),
        turn: &mut LoopIteration,
    ) -> Result<(Arc<RunningMember>, MemberSocket), RefusalReason> {
        let scarce = turn.shared.descriptors.are_scarce();
        if scarce {
            turn.shared.report_scarcity();
        }
        if turn.shared.memory.is_group_nearly_full() {
            turn.shared.memory.refused.fetch_add(1, Relaxed);
            return Err(RefusalReason::Resources);
        }
        if (scarce || turn.shared.flows() >= MOST_FLOWS) && !self.make_room(turn) {
            return Err(RefusalReason::Resources);
        }
        let live = pool.live();
        let now = turn.now;
        let member = pool.choose(&live, client.ip(), self.cursor(pool), &[], now).cloned();
        let member = member.ok_or_else(|| match pool.member_limit() {
            Some(_) => RefusalReason::Connections,
            None => {
                pool.count_no_member();
                RefusalReason::NoMember
            }
        })?;
        let seen = live.compiled.pool().transparent.then(|| client.ip());
        let socket = match self.dial(&member, seen, (self.flows.next_id(), passes), turn) {
            Err(error) if is_want(&error) => {
                turn.shared.out_of_descriptors(&error);
                if !self.make_room(turn) {
                    return Err(RefusalReason::Resources);
                }
                // The place that was made is the one that the flow will have.
                self.dial(&member, seen, (self.flows.next_id(), passes), turn)
            }
            other => other,
        };
        socket.map(|socket| (member.clone(), socket)).map_err(|error| {
            if is_want(&error) {
                return RefusalReason::Resources;
            }
            tracing::debug!(listener = %listener.at, member = %member.at, client = %key.peer.socket_addr(), %error,
                "no connection to a member");
            member.connect_errors.fetch_add(1, Relaxed);
            listener.connect_errors.fetch_add(1, Relaxed);
            pool.failed(&member, "could not be reached", now);
            RefusalReason::NoMember
        })
    }

    /// Moves a flow to a member that answers, if there is one.
    fn relocate(&mut self, slot: u32, turn: &mut LoopIteration) {
        let Some(entry) = self.flows.at(slot) else { return };
        // Among those that are all down none is better: only who must leaves.
        let must = std::mem::take(&mut entry.flow.moves);
        let id = FlowId { slot, generation: entry.generation };
        let client = entry.key.peer.socket_addr().ip();
        let (pool, old, passes) = (entry.flow.pool.clone(), entry.flow.member.clone(), entry.flow.passes);
        let live = pool.live();
        let tried = [old];
        let chosen = pool.choose(&live, client, self.cursor(&pool), &tried, turn.now).cloned();
        let better =
            |it: &Arc<RunningMember>| !Arc::ptr_eq(it, &tried[0]) && (must || it.health() != Health::Down);
        let Some(member) = chosen.filter(better) else { return };
        let seen = live.compiled.pool().transparent.then_some(client);
        let Ok(dialled) = self.dial(&member, seen, (id, passes), turn) else { return };
        let Some(entry) = self.flows.at(slot) else { return };
        entry.until = u64::MAX;
        member.begin_connection();
        tried[0].end_connection();
        tried[0].retries.fetch_add(1, Relaxed);
        entry.flow.listener.retries.fetch_add(1, Relaxed);
        entry.flow.member = member;
        entry.flow.own_socket = dialled.own_socket;
        entry.flow.socket = dialled.socket;
        entry.flow.coalesces = false;
        entry.flow.header_is_due = entry.flow.header.is_some();
        entry.flow.engaged = turn.now;
        entry.flow.drained_at().into_iter().for_each(|at| self.sweeps.at(at));
    }

    fn dial(
        &self,
        member: &RunningMember,
        client: Option<IpAddr>,
        (id, passes): (FlowId, u8),
        turn: &LoopIteration,
    ) -> io::Result<MemberSocket> {
        let socket = sys::datagram_socket(&member.address)?;
        if !turn.shared.descriptors.allow(socket.as_fd()) {
            return Err(io::Error::from_raw_os_error(libc::EMFILE));
        }
        bind_as_client(client, socket.as_fd(), &member.address)?;
        sys::connect(socket.as_fd(), &member.address)?;
        let token = Token::new(Kind::Datagrams, id.slot, id.generation);
        turn.epoll.watch_readable(socket.as_fd(), token.into())?;
        if !turn.shared.descriptors.register(socket.as_fd()) {
            turn.shared.report_scarcity();
        }
        // Before anything is sent: whoever gets it finds it written down.
        let own_socket = turn.shared.own_sockets.flow(socket.as_fd(), (passes, client.is_some()));
        Ok(MemberSocket { own_socket, socket })
    }

    /// Ends the flow that is missed least.
    fn make_room(&mut self, turn: &mut LoopIteration) -> bool {
        let Some(slot) = self.flows.dispensable(|_| true) else { return false };
        self.give_up(slot, turn);
        true
    }

    /// The same, of this load balancer alone.
    fn make_room_at(&mut self, key: &LbKey, turn: &mut LoopIteration) -> bool {
        let Some(slot) = self.flows.dispensable(|flow| flow.listener.key == *key) else { return false };
        self.give_up(slot, turn);
        true
    }

    fn give_up(&mut self, slot: u32, turn: &mut LoopIteration) {
        if let Some(entry) = self.flows.at(slot) {
            entry.flow.listener.refuse(RefusalReason::Resources);
            turn.shared.flows_evicted.fetch_add(1, Relaxed);
        }
        self.end(slot, Some(ConnectionEnd::Evicted), turn);
    }
}

/// A socket to a member.
struct MemberSocket {
    own_socket: Option<OwnSocket>,
    socket: OwnedFd,
}

/// Of descriptors, memory, or ports to send from.
fn is_want(error: &io::Error) -> bool {
    sys::out_of_descriptors(error)
        || matches!(error.raw_os_error(), Some(libc::EADDRNOTAVAIL | libc::EADDRINUSE | libc::EAGAIN))
}

/// Who a trusted proxy says that it speaks for, and what is told of how many of us that came through. A datagram cannot come in parts, so "more" is a fault too.
fn origin(
    peer: SocketAddr,
    here: SocketAddr,
    bytes: &[u8],
) -> Result<(SocketAddr, SocketAddr, u8, &[u8]), RefusalReason> {
    match proxy::parse(bytes) {
        Parsed::Header(header) if header.version == Version::V2 => Ok((
            header.source().unwrap_or(peer),
            header.destination().unwrap_or(here),
            hops::received(&header).saturating_add(1),
            bytes.get(header.length..).ok_or(RefusalReason::Header)?,
        )),
        Parsed::Header(_) | Parsed::Need(_) | Parsed::Invalid(_) => Err(RefusalReason::Header),
    }
}

/// A proxy that was started anew prefixes what is an old flow to us. Who it names is not believed a second time.
fn without_header(bytes: &[u8]) -> &[u8] {
    if !bytes.starts_with(b"\r\n\r\n\0\r\nQUIT\n") {
        return bytes;
    }
    match proxy::parse(bytes) {
        Parsed::Header(header) => bytes.get(header.length..).unwrap_or_default(),
        Parsed::Need(_) | Parsed::Invalid(_) => bytes,
    }
}
