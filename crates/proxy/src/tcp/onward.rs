//! From the client to a member: choosing, connecting, and choosing again.

use std::{os::fd::AsFd, sync::atomic::Ordering::Relaxed};

use seaway_model::load_balancer::ProxyVersion;

use super::{
    Tcp,
    connection::{Carried, Connection, Delay, Phase, Side, Socket},
};
use crate::{
    reach::{RETRIES, arrived_at, connect, introduction, is_own_want, note_failure},
    running::Refusal,
    sys::{self, Event},
    worker::Turn,
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
                return self.refuse(index, Refusal::NoMember, turn);
            };
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
                    member.engage();
                    connection.target = Some(member);
                    // The only members that are left may be leaving themselves.
                    connection.drained_at().into_iter().for_each(|at| self.sweeps.at(at));
                    break;
                }
                Err(error) if sys::out_of_descriptors(&error) => {
                    turn.shared.out_of_descriptors(&error);
                    return self.refuse(index, Refusal::Resources, turn);
                }
                Err(error) if is_own_want(&error) => connection.rare().tried.push(member),
                Err(error) => {
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
