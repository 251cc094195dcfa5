//! From the client to a member: choosing, connecting, and choosing again.

use std::{
    collections::HashMap,
    io,
    os::fd::{AsFd, OwnedFd},
    sync::{Arc, Weak, atomic::Ordering::Relaxed},
};

use seaway_model::load_balancer::ProxyVersion;
use seaway_snapshot::{Cursor, mix};
use seaway_wire::proxy::{self, Forwarded, Origin, Transport, Version};

use super::{
    Tcp,
    connection::{Carried, Connection, Delay, Phase, Side, Socket},
};
use crate::{
    running::{Refusal, RunningMember, RunningPool},
    sys::{self, Event, KernelAddress},
    worker::Turn,
};

/// Other members that are tried after the first.
const RETRIES: usize = 3;

/// This worker's turn in every pool that it has sent somebody to.
pub(super) struct Cursors {
    by_pool: HashMap<usize, (Weak<RunningPool>, Cursor)>,
    seed: u64,
}

impl Cursors {
    pub(super) fn new(worker: usize) -> Cursors {
        Cursors { by_pool: HashMap::new(), seed: mix(worker as u64) }
    }

    fn of(&mut self, pool: &Arc<RunningPool>) -> &mut Cursor {
        let address = Arc::as_ptr(pool) as usize;
        let seed = self.seed ^ address as u64;
        // The weak reference keeps the address from being used again while it is a key.
        let entry = self.by_pool.entry(address).or_insert_with(|| (Arc::downgrade(pool), Cursor::new(seed)));
        &mut entry.1
    }

    fn draw(&mut self) -> u64 {
        self.seed = mix(self.seed);
        self.seed
    }

    pub(super) fn forget_gone(&mut self) {
        self.by_pool.retain(|_, (pool, _)| pool.strong_count() > 0);
    }
}

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
        let cursor = self.cursors.of(&pool);
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
            match connect(&member, || self.doors.give_up_spare()) {
                Ok(fd) => {
                    if let Some(version) = live.compiled.pool().proxy {
                        announce_client(connection, version);
                    }
                    connection.member = Some(Socket::new(fd, Delay::NothingSentYet));
                    connection.phase = Phase::Connecting;
                    connection.active_at = turn.now;
                    member.engage();
                    connection.target = Some(member);
                    break;
                }
                Err(error) if sys::out_of_descriptors(&error) => {
                    turn.shared.out_of_descriptors(&error);
                    return self.refuse(index, Refusal::Resources, turn);
                }
                Err(error) => {
                    note_failure(connection, &pool, &member, &error.to_string(), turn.now);
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
        connection.member = None;
        if let (Some(member), Some(pool)) = (connection.target.take(), connection.pool.clone()) {
            member.disengage();
            note_failure(connection, &pool, &member, reason, turn.now);
            member.retries.fetch_add(1, Relaxed);
            connection.rare().tried.push(member);
        }
        self.onward(index, turn);
    }
}

fn note_failure(connection: &Connection, pool: &RunningPool, member: &RunningMember, reason: &str, now: u64) {
    member.connect_errors.fetch_add(1, Relaxed);
    connection.listener.connect_errors.fetch_add(1, Relaxed);
    pool.failed(member, reason, now);
}

/// `free` gives back a descriptor that was held for this.
fn connect(member: &RunningMember, free: impl FnOnce() -> bool) -> io::Result<OwnedFd> {
    let address: &KernelAddress = &member.address;
    let fd = match sys::stream_socket(address) {
        Err(error) if sys::out_of_descriptors(&error) && free() => sys::stream_socket(address)?,
        other => other?,
    };
    sys::connect(fd.as_fd(), address)?;
    Ok(fd)
}

/// Puts a PROXY header before everything else that goes to the member.
fn announce_client(connection: &mut Connection, version: ProxyVersion) {
    if connection.rare.as_ref().is_some_and(|rare| rare.announced) {
        return;
    }
    let destination = connection.rare.as_ref().and_then(|rare| rare.destination).unwrap_or_else(|| {
        let at = connection.listener.at;
        if at.ip().is_unspecified() {
            sys::local_address(connection.client.fd.as_fd()).unwrap_or(at)
        } else {
            at
        }
    });
    let version = match version {
        ProxyVersion::V1 => Version::V1,
        ProxyVersion::V2 => Version::V2,
    };
    let origin = Origin::Forwarded(Forwarded::new(Transport::Stream, connection.peer, destination));
    let mut bytes = Vec::with_capacity(128);
    proxy::encode(version, &origin, &mut bytes);
    if let Carried::Bytes { bytes: more, from } = &connection.client.carried {
        bytes.extend_from_slice(&more[*from..]);
    }
    connection.client.carried = Carried::Bytes { bytes: bytes.into(), from: 0 };
    connection.rare().announced = true;
}
