//! Routers behind interfaces, found by their router advertisements (RFC 4861): for sessions without addresses ("unnumbered").
//!
//! A router that is configured so waits for an advertisement of ours, too. Ours have a lifetime of 0: no machine takes us for its
//! router.

use std::{
    collections::BTreeMap,
    io::{self, IoSliceMut},
    net::{IpAddr, Ipv6Addr, SocketAddr, SocketAddrV6},
    os::fd::{AsFd, AsRawFd, BorrowedFd},
    time::Duration,
};

use nix::{
    cmsg_space,
    net::if_::if_nametoindex,
    sys::socket::{ControlMessageOwned, MsgFlags, SetSockOpt, SockaddrStorage, recvmsg, setsockopt, sockopt},
};
use seaway_model::Name;
use socket2::{Domain, Protocol, Socket, Type};

use super::fsm::Moment;
use crate::{Links, ObservedLinks};

const ADVERTISEMENT: u8 = 134;
/// A router solicitation, and an advertisement of a router with a lifetime of 0. The kernel writes the checksum.
const ASK: [u8; 8] = [133, 0, 0, 0, 0, 0, 0, 0];
const TELL: [u8; 16] = [ADVERTISEMENT, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
const ALL_NODES: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 1);
const ALL_ROUTERS: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 2);
const HOPS: u32 = 255;
/// While nothing is known, and from then on.
const SOON: Duration = Duration::from_secs(1);
const LATER: Duration = Duration::from_secs(10);
/// Routers of one interface that are remembered.
const MOST: usize = 8;
/// Packets of one interface in a turn.
const PACKETS: usize = 32;

/// `struct icmp6_filter`: a bit for each kind that is not passed on.
const ADVERTISEMENTS: [u32; 8] = {
    let mut kinds = [u32::MAX; 8];
    kinds[4] = !(1 << (ADVERTISEMENT - 128));
    kinds
};
/// linux/icmpv6.h
const ICMPV6_FILTER: i32 = 1;

#[derive(Clone, Copy)]
struct PassedKinds;
nix::setsockopt_impl!(
    PassedKinds,
    libc::IPPROTO_ICMPV6,
    ICMPV6_FILTER,
    [u32; 8],
    sockopt::SetStruct<'_, [u32; 8]>
);

#[derive(Debug, Default)]
pub(super) struct Neighbors(BTreeMap<Name, NeighborLink>);

#[derive(Debug)]
struct NeighborLink {
    socket: Result<(Socket, u32), String>,
    routers: Vec<Router>,
    /// Ours there.
    own: Vec<IpAddr>,
    /// Another program of this host advertises it as a router: a lifetime of 0 would take that back.
    is_router: bool,
    next: Moment,
}

#[derive(Debug)]
struct Router {
    address: Ipv6Addr,
    heard: Moment,
    /// Hosts take it for their router; other speakers of BGP say 0, as we do.
    has_lifetime: bool,
    failures: u32,
}

impl Neighbors {
    /// Those behind these interfaces.
    pub(super) fn set_desired<'a>(&mut self, interfaces: impl Iterator<Item = &'a Name>, now: Moment) {
        let wanted: Vec<&Name> = interfaces.collect();
        self.0.retain(|name, _| wanted.contains(&name));
        for name in wanted {
            self.0.entry(name.clone()).or_insert_with(|| NeighborLink::open(name, now));
        }
    }

    pub(super) fn sockets(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.0.values().filter_map(|it| Some(it.socket.as_ref().ok()?.0.as_fd()))
    }

    pub(super) fn next(&self) -> Moment {
        self.0.values().map(|it| it.next).min().unwrap_or(Moment::MAX)
    }

    /// Where to connect, or why that is not known.
    pub(super) fn find(&self, interface: &Name, port: u16) -> Result<SocketAddr, String> {
        let link =
            self.0.get(interface).ok_or_else(|| format!("interface {interface} is not watched yet"))?;
        let (_, index) = link.socket.as_ref().map_err(Clone::clone)?;
        let best = link.routers.iter().min_by_key(|it| (it.failures, !it.has_lifetime));
        let best = best.ok_or_else(|| {
            format!("no router was heard on interface {interface}: it must send router advertisements")
        })?;
        Ok(SocketAddrV6::new(best.address, port, 0, *index).into())
    }

    /// Our addresses may have changed.
    pub(super) fn update_addresses(&mut self, observed: &ObservedLinks) {
        for link in self.0.values_mut() {
            let index = link.socket.as_ref().map_or(0, |it| it.1);
            link.own = observed.addresses.iter().filter(|it| it.link == index).map(|it| it.ip).collect();
        }
    }

    /// A session with this one ended, or did not come to be: next time it is another one's turn, if there is another one.
    pub(super) fn note_failure(&mut self, interface: &Name, address: IpAddr) {
        let routers = self.0.get_mut(interface).map(|it| it.routers.iter_mut()).into_iter().flatten();
        for router in routers.filter(|it| IpAddr::V6(it.address) == address) {
            router.failures = router.failures.saturating_add(1);
        }
    }

    /// Hears and tells; gives interfaces of which a router is known now that was not.
    pub(super) fn turn(&mut self, now: Moment) -> Vec<Name> {
        let mut found = Vec::new();
        for (name, link) in &mut self.0 {
            let is_due = link.next <= now;
            if is_due && link.is_stale(name) {
                *link = NeighborLink::open(name, now);
            }
            let Ok((socket, index)) = &link.socket else {
                if is_due {
                    link.next = now.saturating_add(SOON);
                }
                continue;
            };
            let was_known = !link.routers.is_empty();
            for _ in 0..PACKETS {
                match receive_packet(socket) {
                    Ok(Some((router, has_lifetime))) if link.own.contains(&router.into()) => {
                        link.is_router |= has_lifetime;
                        link.routers.retain(|it| it.address != router);
                    }
                    Ok(Some((router, has_lifetime))) => note(&mut link.routers, router, has_lifetime, now),
                    Ok(None) => {}
                    Err(_) => break,
                }
            }
            let is_known = !link.routers.is_empty();
            if is_known && !was_known {
                found.push(name.clone());
            }
            if is_due {
                if !link.is_router {
                    let _ = send_packet(socket, *index, &TELL, ALL_NODES);
                }
                if !is_known {
                    let _ = send_packet(socket, *index, &ASK, ALL_ROUTERS);
                }
                link.next = now.saturating_add(if is_known { LATER } else { SOON });
            }
        }
        found
    }
}

fn note(routers: &mut Vec<Router>, address: Ipv6Addr, has_lifetime: bool, now: Moment) {
    if let Some(known) = routers.iter_mut().find(|it| it.address == address) {
        (known.heard, known.has_lifetime) = (now, has_lifetime);
        return;
    }
    if routers.len() >= MOST {
        let oldest = routers.iter().enumerate().min_by_key(|(_, it)| it.heard).map(|(at, _)| at);
        oldest.map(|at| routers.swap_remove(at));
    }
    routers.push(Router { address, heard: now, has_lifetime, failures: 0 });
}

impl NeighborLink {
    fn open(name: &Name, now: Moment) -> NeighborLink {
        let socket = open(name);
        let index = socket.as_ref().map_or(0, |it| it.1);
        let all = Links::open().and_then(|mut it| it.addresses()).unwrap_or_default();
        let own = all.into_iter().filter(|it| it.link == index).map(|it| it.ip).collect();
        NeighborLink { socket, routers: Vec::new(), own, is_router: false, next: now }
    }

    /// An interface that went and came again has another number.
    fn is_stale(&self, name: &Name) -> bool {
        match &self.socket {
            Ok((_, index)) => if_nametoindex(&**name).ok() != Some(*index),
            Err(_) => true,
        }
    }
}

fn open(name: &Name) -> Result<(Socket, u32), String> {
    let index = if_nametoindex(&**name).map_err(|_| format!("this machine has no interface {name}"))?;
    let open = || -> io::Result<Socket> {
        let socket = Socket::new(Domain::IPV6, Type::RAW, Some(Protocol::ICMPV6))?;
        socket.set_nonblocking(true)?;
        socket.bind_device(Some(name.as_bytes()))?;
        socket.set_multicast_hops_v6(HOPS)?;
        socket.set_multicast_loop_v6(false)?;
        socket.set_multicast_if_v6(index)?;
        setsockopt(&socket, sockopt::Ipv6RecvHopLimit, &true)?;
        PassedKinds.set(&socket, &ADVERTISEMENTS)?;
        Ok(socket)
    };
    let socket = open().map_err(|error| match error.kind() {
        io::ErrorKind::PermissionDenied => {
            format!("finding the router behind interface {name} needs the Linux capability NET_RAW")
        }
        _ => format!("listening for routers on interface {name} failed: {error}"),
    })?;
    Ok((socket, index))
}

fn send_packet(socket: &Socket, index: u32, packet: &[u8], to: Ipv6Addr) -> io::Result<usize> {
    socket.send_to(packet, &SocketAddrV6::new(to, 0, 0, index).into())
}

/// The router that sent the next packet, and whether it has a lifetime; none where that is something else. What passed a router has fewer hops left.
fn receive_packet(socket: &Socket) -> io::Result<Option<(Ipv6Addr, bool)>> {
    let mut control = cmsg_space!(i32);
    let mut buffer = [0; 16];
    let mut parts = [IoSliceMut::new(&mut buffer)];
    let (from, hops) = {
        let message = recvmsg::<SockaddrStorage>(
            socket.as_raw_fd(),
            &mut parts,
            Some(&mut control),
            MsgFlags::MSG_DONTWAIT,
        )?;
        let from = message.address.and_then(|it| it.as_sockaddr_in6().map(|it| it.ip()));
        let hops = message.cmsgs().ok().and_then(|mut all| {
            all.find_map(|it| match it {
                ControlMessageOwned::Ipv6HopLimit(hops) => u32::try_from(hops).ok(),
                _ => None,
            })
        });
        (from, hops)
    };
    let is_router = buffer.first() == Some(&ADVERTISEMENT) && hops == Some(HOPS);
    let from = from.filter(|from| is_router && from.is_unicast_link_local());
    let has_lifetime = buffer.get(6..8).is_some_and(|it| it != [0, 0]);
    Ok(from.map(|from| (from, has_lifetime)))
}
