//! From the client to a member: choosing, connecting, and choosing again.

use std::{os::fd::AsFd, sync::atomic::Ordering::Relaxed};

use seaway_model::load_balancer::ProxyVersion;

use super::{
    Tcp,
    connection::{Carried, Connection, Delay, Phase, Side, Socket},
};
use crate::{
    reach::{RETRIES, arrived_at, connect, introduction, is_own_want, note_failure},
    running::{Place, Refusal},
    sys::{self, Event},
    worker::{Token, Turn},
};

impl Tcp {
    /// Chooses a member and begins to connect, or turns the client away.
    pub(super) fn onward(&mut self, index: u32, turn: &mut Turn) {
        let Some(connection) = self.connections.get_mut(index) else { return };
        if connection.pool.is_none() {
            connection.pool = connection.listener.tuned().pool(|| self.cursors.draw()).cloned();
        }
        let Some(pool) = connection.pool.clone() else {
            return self.refuse(index, Refusal::NoMember, turn);
        };
        if !connection.is_called() && pool.keeps_waiting(turn.now) {
            return self.queue(index, turn);
        }
        let cursor = self.cursors.cursor_for(&pool);
        loop {
            let tried = connection.rare.as_ref().map_or(&[][..], |rare| &rare.tried);
            let live = pool.live();
            let chosen = if tried.len() > RETRIES {
                None
            } else {
                pool.choose(&live, connection.peer.ip(), cursor, tried, turn.now)
            };
            let Some(member) = chosen.cloned() else {
                return match tried.len() <= RETRIES && live.may_wait(tried, turn.now) {
                    true => self.queue(index, turn),
                    false => self.refuse(index, Refusal::NoMember, turn),
                };
            };
            if !member.try_engage(live.compiled.pool().member_limit) {
                return self.queue(index, turn);
            }
            if !tried.is_empty() {
                connection.listener.retries.fetch_add(1, Relaxed);
            }
            let client = live.compiled.pool().transparent.then(|| connection.peer.ip());
            match connect(&turn.shared, &member, client, connection.passes, |it| {
                self.listening.give_up_spare(it)
            }) {
                Ok((fd, own_socket)) => {
                    if let Some(version) = live.compiled.pool().proxy {
                        announce_client(connection, version);
                    }
                    connection.own_socket = own_socket;
                    connection.member = Some(Socket::new(fd, Delay::NothingSentYet));
                    connection.phase = Phase::Connecting;
                    connection.active_at = turn.now;
                    connection.stop_waiting();
                    connection.target = Some(member);
                    // The only members that are left may be leaving themselves.
                    connection.drained_at().into_iter().for_each(|at| self.sweeps.at(at));
                    break;
                }
                Err(error) if sys::out_of_descriptors(&error) => {
                    member.disengage();
                    turn.shared.out_of_descriptors(&error);
                    return self.refuse(index, Refusal::Resources, turn);
                }
                Err(error) if is_own_want(&error) => {
                    member.disengage();
                    connection.rare().tried.push(member);
                }
                Err(error) => {
                    member.disengage();
                    note_failure(&connection.listener, &pool, &member, &error.to_string(), turn.now);
                    connection.rare().tried.push(member);
                }
            }
        }
        let token = self.token_of(index, Side::Member);
        let Some(Connection { member: Some(member), .. }) = self.connections.get_mut(index) else { return };
        if let Err(error) = turn.epoll.watch_edges(member.fd.as_fd(), token.into()) {
            turn.shared.out_of_descriptors(&error);
            return self.refuse(index, Refusal::Resources, turn);
        }
        self.schedule(index);
    }

    /// It waits for a member that has room, first of all if it was called already.
    fn queue(&mut self, index: u32, turn: &mut Turn) {
        let token = self.token_of(index, Side::Client);
        let Some(connection) = self.connections.get_mut(index) else { return };
        let Some(pool) = connection.pool.clone() else { return };
        connection.phase = Phase::Queued;
        connection.active_at = turn.now;
        if let Some((waiting, _)) = connection.rare.as_ref().and_then(|it| it.waiting.as_ref()) {
            waiting.rejoin();
        } else {
            let limit = pool.live().compiled.pool().member_limit;
            let wait = limit.map_or(0, |it| it.wait.as_millis() as u64);
            let worker = turn.shared.workers.get(turn.worker).filter(|_| wait > 0).cloned();
            let waiting = worker.and_then(|it| pool.queue.join(it, Place::Connection(token)));
            let Some(waiting) = waiting else {
                return self.refuse(index, Refusal::Connections, turn);
            };
            connection.rare().waiting = Some((waiting, turn.now.saturating_add(wait)));
        }
        self.schedule(index);
        pool.call_if_there_is_room(turn.now);
    }

    /// A client that waits was called.
    pub(super) fn called(&mut self, token: Token, turn: &mut Turn) {
        let (index, _) = Side::of(token.index());
        let connection = self.connections.of_generation(index, token.generation());
        if connection.is_some_and(|it| it.phase == Phase::Queued && it.is_called()) {
            self.onward(index, turn);
        }
    }

    /// A client has waited for a while without being called.
    pub(super) fn look_again(&mut self, index: u32, turn: &mut Turn) {
        let Some(connection) = self.connections.get_mut(index) else { return };
        let waiting = connection.rare.as_ref().and_then(|it| it.waiting.as_ref());
        let Some((pool, (_, until))) = connection.pool.clone().zip(waiting) else { return };
        if *until <= turn.now {
            return self.refuse(index, Refusal::Connections, turn);
        }
        if !pool.keeps_waiting(turn.now) {
            return self.onward(index, turn);
        }
        connection.active_at = turn.now;
        self.schedule(index);
        pool.call_if_there_is_room(turn.now);
    }

    /// An event of a socket that was connecting.
    pub(super) fn connected(&mut self, index: u32, event: Event, turn: &mut Turn) {
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
        connection.phase = Phase::Open;
        connection.active_at = turn.now;
        self.schedule(index);
        self.relay(index, Side::Client, turn);
    }

    /// The member did not take the connection: nothing was sent to it, so another may.
    pub(super) fn unreachable(&mut self, index: u32, reason: &str, turn: &mut Turn) {
        let Some(connection) = self.connections.get_mut(index) else { return };
        connection.own_socket = None;
        connection.member = None;
        if let (Some(member), Some(pool)) = (connection.target.take(), connection.pool.clone()) {
            member.disengage();
            note_failure(&connection.listener, &pool, &member, reason, turn.now);
            member.retries.fetch_add(1, Relaxed);
            connection.rare().tried.push(member);
        }
        self.onward(index, turn);
    }
}

/// Puts a PROXY header before everything else that goes to the member.
fn announce_client(connection: &mut Connection, version: ProxyVersion) {
    if connection.rare.as_ref().is_some_and(|rare| rare.announced) {
        return;
    }
    let destination = connection.rare.as_ref().and_then(|rare| rare.destination);
    let hops = connection.rare.as_ref().map_or(0, |rare| rare.hops);
    let arrived = arrived_at(connection.client.fd.as_fd(), connection.listener.at);
    let mut bytes = introduction(version, connection.peer, destination, arrived, hops);
    if let Carried::Bytes { bytes: more, from } = &connection.client.carried {
        bytes.extend_from_slice(more.get(*from..).unwrap_or_default());
    }
    connection.client.carried = Carried::Bytes { bytes: bytes.into(), from: 0 };
    connection.rare().announced = true;
}
