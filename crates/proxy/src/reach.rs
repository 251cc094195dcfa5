//! Connects to members, whatever protocol is spoken with them afterwards.

#![cfg_attr(not(test), warn(clippy::indexing_slicing, clippy::arithmetic_side_effects, clippy::expect_used))]

use std::{
    collections::HashMap,
    io,
    net::{IpAddr, SocketAddr},
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    sync::{Arc, Weak, atomic::Ordering::Relaxed},
};

use seaway_model::load_balancer::ProxyVersion;
use seaway_snapshot::{Cursor, mix};
use seaway_wire::proxy::{self, Forwarded, Origin, Transport, Version};

use crate::{
    hops,
    own_sockets::OwnSocket,
    proxy_state::ProxyState,
    running::{RunningListener, RunningMember, RunningPool},
    sys::{self, KernelAddress},
};

/// Other members that are tried after the first.
pub(crate) const RETRIES: usize = 3;

/// This worker's turn in every pool that it has sent somebody to.
pub(crate) struct Cursors {
    by_pool: HashMap<usize, (Weak<RunningPool>, Cursor)>,
    seed: u64,
}

impl Cursors {
    pub(crate) fn new(worker: usize) -> Cursors {
        Cursors { by_pool: HashMap::new(), seed: mix(worker as u64) }
    }

    pub(crate) fn cursor_for(&mut self, pool: &Arc<RunningPool>) -> &mut Cursor {
        let address = Arc::as_ptr(pool) as usize;
        let seed = self.seed ^ address as u64;
        // The weak reference keeps the address from being used again while it is a key.
        let entry = self.by_pool.entry(address).or_insert_with(|| (Arc::downgrade(pool), Cursor::new(seed)));
        &mut entry.1
    }

    pub(crate) fn draw(&mut self) -> u64 {
        self.seed = mix(self.seed);
        self.seed
    }

    pub(crate) fn forget_gone(&mut self) {
        self.by_pool.retain(|_, (pool, _)| pool.strong_count() > 0);
    }
}

/// This host lacks something, not the member: descriptors, memory, or a port to connect from.
pub(crate) fn is_local_shortage(error: &io::Error) -> bool {
    sys::out_of_descriptors(error)
        || error.raw_os_error() == Some(libc::EADDRNOTAVAIL)
        || error.kind() == io::ErrorKind::QuotaExceeded
}

/// It did not take a connection, or ended one before any answer.
pub(crate) fn note_failure(
    listener: &RunningListener,
    pool: &RunningPool,
    member: &RunningMember,
    reason: &str,
    now: u64,
) {
    member.connect_errors.fetch_add(1, Relaxed);
    listener.connect_errors.fetch_add(1, Relaxed);
    pool.failed(member, reason, now);
}

/// The PROXY header that tells a member who the client is, and where it wanted to go.
pub(crate) fn proxy_header(
    version: ProxyVersion,
    peer: SocketAddr,
    destination: Option<SocketAddr>,
    listener: SocketAddr,
    hops: u8,
) -> Vec<u8> {
    let destination = destination.unwrap_or(listener);
    let version = match version {
        ProxyVersion::V1 => Version::V1,
        ProxyVersion::V2 => Version::V2,
    };
    let origin = Origin::Forwarded(Forwarded::new(Transport::Stream, peer, destination));
    let mut bytes = Vec::with_capacity(128);
    proxy::encode_with(version, &origin, hops::tlvs(&hops::tlv(hops)), &mut bytes);
    bytes
}

/// The address that a client connected to: the listener's, or the one of those that it stands for.
pub(crate) fn local_destination(client: BorrowedFd<'_>, listener: SocketAddr) -> SocketAddr {
    if listener.ip().is_unspecified() { sys::local_address(client).unwrap_or(listener) } else { listener }
}

/// `spare` gives a socket that was held for this; `passes` is how often what it is for has come through here.
pub(crate) fn connect(
    shared: &ProxyState,
    member: &RunningMember,
    client: Option<IpAddr>,
    passes: u8,
    spare: impl FnOnce(&KernelAddress) -> Option<OwnedFd>,
) -> io::Result<(OwnedFd, Option<OwnSocket>)> {
    let address: &KernelAddress = &member.address;
    let fd = match sys::stream_socket(address) {
        Err(error) if sys::out_of_descriptors(&error) => spare(address).ok_or(error)?,
        other => other?,
    };
    if !shared.descriptors.allow(fd.as_fd()) {
        return Err(io::Error::from_raw_os_error(libc::EMFILE));
    }
    bind_as_client(client, fd.as_fd(), address)?;
    member.is_target(&shared.own_sockets);
    let own_socket =
        shared.own_sockets.connect(fd.as_fd(), (member.at, address), (passes, client.is_some()))?;
    Ok((fd, own_socket))
}

/// Binds to the client's address, where the member is to see it and has the same family.
pub(crate) fn bind_as_client(
    client: Option<IpAddr>,
    fd: BorrowedFd<'_>,
    member: &KernelAddress,
) -> io::Result<()> {
    let Some(client) = client.map(|it| it.to_canonical()) else { return Ok(()) };
    let client = KernelAddress::from(SocketAddr::new(client, 0));
    if client.family() != member.family() {
        return Ok(());
    }
    sys::set_transparent(fd, &client)?;
    sys::bind(fd, &client)
}
