//! From the client to a member: choosing, connecting, and choosing again.

use std::{
    os::fd::AsFd,
    sync::{Arc, atomic::Ordering::Relaxed},
};

use seaway_model::load_balancer::ProxyVersion;

use super::{
    Tcp,
    connection::{Connection, NoDelayState, PendingData, Phase, Side, Socket},
};
use crate::{
    latency::LatencyKind,
    reach::{RETRIES, connect, is_local_shortage, local_destination, note_failure, proxy_header},
    running::{MemberSelection, RefusalReason, RunningMember, SelectionRequest, WaiterId},
    sys::{self, Event},
    worker::{LoopIteration, Token},
};

impl Tcp {
    /// Chooses a member and begins to connect, or turns the client away.
    pub(super) fn select_and_connect(&mut self, index: u32, turn: &mut LoopIteration) {
        self.connect_to_member(index, None, turn);
    }

    /// `granted`: a member that counts it already.
    fn connect_to_member(
        &mut self,
        index: u32,
        mut granted: Option<Arc<RunningMember>>,
        turn: &mut LoopIteration,
    ) {
        let Some(connection) = self.connections.get_mut(index) else { return };
        if connection.pool.is_none() {
            connection.pool = connection.listener.config().pool(|| self.cursors.draw()).cloned();
        }
        let Some(pool) = connection.pool.clone() else {
            return self.refuse(index, RefusalReason::NoMember, turn);
        };
        let cursor = self.cursors.cursor_for(&pool);
        loop {
            let tried = connection.extras.as_ref().map_or(&[][..], |extras| &extras.tried);
            let live = pool.live();
            let limit = live.compiled.pool().member_limit;
            let choice = match (granted.take(), limit) {
                (Some(member), _) => MemberSelection::Reserved(member),
                _ if tried.len() > RETRIES => MemberSelection::NoMember,
                // It goes on behind those.
                (None, Some(limit)) if !limit.wait.is_zero() && pool.has_waiting() => MemberSelection::Full,
                (None, Some(_)) => {
                    let request = SelectionRequest {
                        client: connection.peer.ip(),
                        cookie: None,
                        tried: tried.to_vec(),
                    };
                    pool.reserve_member(&request, cursor, turn.now)
                }
                (None, None) => match pool.choose(&live, connection.peer.ip(), cursor, tried, turn.now) {
                    Some(member) => {
                        member.begin_connection();
                        MemberSelection::Reserved(member.clone())
                    }
                    None => MemberSelection::NoMember,
                },
            };
            let member = match choice {
                MemberSelection::Reserved(member) => member,
                MemberSelection::Full => return self.queue(index, turn),
                MemberSelection::NoMember => {
                    pool.count_no_member();
                    return self.refuse(index, RefusalReason::NoMember, turn);
                }
            };
            if !tried.is_empty() {
                connection.listener.retries.fetch_add(1, Relaxed);
            }
            connection.connecting = turn.shared.started();
            let client = live.compiled.pool().transparent.then(|| connection.peer.ip());
            match connect(&turn.shared, &member, client, connection.passes, |it| {
                self.listening.give_up_spare(it)
            }) {
                Ok((fd, own_socket)) => {
                    if let Some(version) = live.compiled.pool().proxy {
                        announce_client(connection, version);
                    }
                    connection.own_socket = own_socket;
                    connection.member = Some(Socket::new(fd, NoDelayState::NothingSentYet));
                    connection.phase = Phase::Connecting;
                    connection.active_at = turn.now;
                    connection.target = Some(member);
                    // The only members that are left may be leaving themselves.
                    connection.drained_at().into_iter().for_each(|at| self.sweeps.at(at));
                    break;
                }
                Err(error) if sys::out_of_descriptors(&error) => {
                    member.end_connection();
                    turn.shared.out_of_descriptors(&error);
                    return self.refuse(index, RefusalReason::Resources, turn);
                }
                Err(error) if is_local_shortage(&error) => {
                    member.end_connection();
                    connection.extras().tried.push(member);
                }
                Err(error) => {
                    member.end_connection();
                    note_failure(&connection.listener, &pool, &member, &error.to_string(), turn.now);
                    connection.extras().tried.push(member);
                }
            }
        }
        let token = self.token_of(index, Side::Member);
        let Some(Connection { member: Some(member), .. }) = self.connections.get_mut(index) else { return };
        if let Err(error) = turn.epoll.watch_edges(member.fd.as_fd(), token.into()) {
            turn.shared.out_of_descriptors(&error);
            return self.refuse(index, RefusalReason::Resources, turn);
        }
        self.schedule(index);
    }

    /// It waits for a member that has room, behind those that wait.
    fn queue(&mut self, index: u32, turn: &mut LoopIteration) {
        let token = self.token_of(index, Side::Client);
        let Some(connection) = self.connections.get_mut(index) else { return };
        let Some(pool) = connection.pool.clone() else { return };
        let client = connection.peer.ip();
        let wait = pool.member_limit().map_or(0, |it| it.wait.as_millis() as u64);
        let extras = connection.extras();
        if extras.waits_until == 0 {
            extras.waits_until = turn.now.saturating_add(wait);
        }
        let request = || SelectionRequest { client, cookie: None, tried: extras.tried.clone() };
        let worker = turn.shared.workers.get(turn.worker).filter(|_| extras.waits_until > turn.now);
        let waiting = worker.and_then(|it| pool.wait(request(), it.clone(), WaiterId::Connection(token)));
        if waiting.is_none() {
            // Those that wait have no use for what room there is: they keep other members.
            return match pool.reserve_member(&request(), self.cursors.cursor_for(&pool), turn.now) {
                MemberSelection::Reserved(member) => self.connect_to_member(index, Some(member), turn),
                MemberSelection::Full => self.refuse(index, RefusalReason::Connections, turn),
                MemberSelection::NoMember => {
                    pool.count_no_member();
                    self.refuse(index, RefusalReason::NoMember, turn);
                }
            };
        }
        extras.waiting = waiting;
        connection.phase = Phase::Queued;
        connection.active_at = turn.now;
        self.schedule(index);
    }

    /// A client that waited has a member, or there is none.
    pub(super) fn on_queue_result(&mut self, token: Token, turn: &mut LoopIteration) {
        let (index, _) = Side::of(token.index());
        let Some(connection) = self.connections.of_generation(index, token.generation()) else { return };
        let Some(outcome) = connection.extras.as_ref().and_then(|it| it.waiting.as_ref()?.outcome()) else {
            return;
        };
        connection.extras().waiting = None;
        match outcome {
            Some(member) => self.connect_to_member(index, Some(member), turn),
            None => {
                connection.pool.iter().for_each(|it| it.count_no_member());
                self.refuse(index, RefusalReason::NoMember, turn);
            }
        }
    }

    /// A client has waited for a while.
    pub(super) fn poll_queue(&mut self, index: u32, turn: &mut LoopIteration) {
        let token = self.token_of(index, Side::Client);
        let Some(Connection { extras: Some(extras), active_at, .. }) = self.connections.get_mut(index) else {
            return;
        };
        let Some(waiting) = &extras.waiting else { return };
        if waiting.is_settled() {
            return self.on_queue_result(token, turn);
        }
        if extras.waits_until <= turn.now {
            return self.refuse(index, RefusalReason::Connections, turn);
        }
        *active_at = turn.now;
        waiting.poll(turn.now);
        self.schedule(index);
    }

    /// An event of a socket that was connecting.
    pub(super) fn connected(&mut self, index: u32, event: Event, turn: &mut LoopIteration) {
        let Some(connection) = self.connections.get_mut(index) else { return };
        let Some(member) = &connection.member else { return };
        if event.failed() || event.hung_up() {
            let error = sys::pending_error(member.fd.as_fd());
            let reason = error.map_or_else(|| "hung up".to_owned(), |error| error.to_string());
            return self.unreachable(index, &reason, turn);
        }
        if !event.writable() {
            return;
        }
        let coarse = turn.now.saturating_sub(connection.active_at);
        let exact = connection.connecting.took().map(|micros| micros / 1000);
        connection.connect = Some(exact.unwrap_or(coarse) as u32);
        if let Some(pool) = &connection.pool {
            pool.record_latency(
                turn.number_of_worker(),
                connection.target.as_deref(),
                LatencyKind::Connect,
                connection.connecting,
            );
        }
        connection.phase = Phase::Open;
        connection.active_at = turn.now;
        self.schedule(index);
        self.relay(index, Side::Client, turn);
    }

    /// The member did not take the connection: nothing was sent to it, so another may.
    pub(super) fn unreachable(&mut self, index: u32, reason: &str, turn: &mut LoopIteration) {
        let Some(connection) = self.connections.get_mut(index) else { return };
        connection.own_socket = None;
        connection.member = None;
        if let (Some(member), Some(pool)) = (connection.target.take(), connection.pool.clone()) {
            member.end_connection();
            note_failure(&connection.listener, &pool, &member, reason, turn.now);
            member.retries.fetch_add(1, Relaxed);
            connection.extras().tried.push(member);
        }
        self.select_and_connect(index, turn);
    }
}

/// Puts a PROXY header before everything else that goes to the member.
fn announce_client(connection: &mut Connection, version: ProxyVersion) {
    if connection.extras.as_ref().is_some_and(|extras| extras.proxy_header_queued) {
        return;
    }
    let destination = connection.extras.as_ref().and_then(|extras| extras.destination);
    let hops = connection.extras.as_ref().map_or(0, |extras| extras.hops);
    let arrived = local_destination(connection.client.fd.as_fd(), connection.listener.at);
    let mut bytes = proxy_header(version, connection.peer, destination, arrived, hops);
    if let PendingData::Bytes { bytes: more, from } = &connection.client.pending {
        bytes.extend_from_slice(more.get(*from..).unwrap_or_default());
    }
    connection.client.pending = PendingData::Bytes { bytes: bytes.into(), from: 0 };
    connection.extras().proxy_header_queued = true;
}
