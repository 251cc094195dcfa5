//! Routers behind interfaces, found by their router advertisements (RFC 4861): for sessions without addresses ("unnumbered").
//!
//! A router that is configured so waits for an advertisement of ours, too. Ours have a lifetime of 0: no machine takes us for its
//! router.

use std::{
    collections::BTreeMap,
    io::{self, IoSliceMut},
    net::{Ipv6Addr, SocketAddr, SocketAddrV6},
    os::fd::{AsFd, AsRawFd, BorrowedFd},
    time::Duration,
};

use nix::{
    cmsg_space,
    net::if_::if_nametoindex,
    sys::socket::{ControlMessageOwned, MsgFlags, SockaddrStorage, recvmsg, setsockopt, sockopt},
};
use seaway_model::Name;
use socket2::{Domain, Protocol, Socket, Type};

use super::fsm::Now;

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
/// A router that was silent for so long gives way to another one.
const SILENCE: Duration = Duration::from_secs(30);
/// Packets of one interface in a turn.
const PACKETS: usize = 32;

#[derive(Debug, Default)]
pub(super) struct Neighbors(BTreeMap<Name, Link>);

#[derive(Debug)]
struct Link {
    socket: Result<(Socket, u32), String>,
    router: Option<(Ipv6Addr, Now)>,
    next: Now,
}

impl Neighbors {
    /// Those behind these interfaces.
    pub(super) fn want<'a>(&mut self, interfaces: impl Iterator<Item = &'a Name>, now: Now) {
        let wanted: Vec<&Name> = interfaces.collect();
        self.0.retain(|name, _| wanted.contains(&name));
        for name in wanted {
            self.0.entry(name.clone()).or_insert_with(|| Link {
                socket: open(name),
                router: None,
                next: now,
            });
        }
    }

    pub(super) fn sockets(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.0.values().filter_map(|it| Some(it.socket.as_ref().ok()?.0.as_fd()))
    }

    pub(super) fn next(&self) -> Now {
        self.0.values().map(|it| it.next).min().unwrap_or(Now::MAX)
    }

    /// Where to connect, or why that is not known.
    pub(super) fn find(&self, interface: &Name, port: u16) -> Result<SocketAddr, String> {
        let link =
            self.0.get(interface).ok_or_else(|| format!("interface {interface} is not watched yet"))?;
        let (_, index) = link.socket.as_ref().map_err(Clone::clone)?;
        let (router, _) = link.router.ok_or_else(|| {
            format!("no router was heard on interface {interface}: it must send router advertisements")
        })?;
        Ok(SocketAddrV6::new(router, port, 0, *index).into())
    }

    /// Hears and tells; gives interfaces of which a router is known now that was not.
    pub(super) fn turn(&mut self, now: Now) -> Vec<Name> {
        let mut found = Vec::new();
        for (name, link) in &mut self.0 {
            let is_due = link.next <= now;
            if is_due && link.is_stale(name) {
                link.socket = open(name);
                link.router = None;
            }
            let Ok((socket, index)) = &link.socket else {
                if is_due {
                    link.next = now.saturating_add(SOON);
                }
                continue;
            };
            let mut heard = None;
            for _ in 0..PACKETS {
                match hear(socket) {
                    Ok(Some(router)) => heard = Some(router),
                    Ok(None) => {}
                    Err(_) => break,
                }
            }
            if let Some(heard) = heard {
                match &mut link.router {
                    Some((router, at)) if *router == heard => *at = now,
                    Some((_, at)) if now.saturating_sub(*at) < SILENCE => {}
                    other => {
                        *other = Some((heard, now));
                        found.push(name.clone());
                    }
                }
            }
            if is_due {
                let _ = tell(socket, *index, &TELL, ALL_NODES);
                if link.router.is_none() {
                    let _ = tell(socket, *index, &ASK, ALL_ROUTERS);
                }
                link.next = now.saturating_add(if link.router.is_none() { SOON } else { LATER });
            }
        }
        found
    }
}

impl Link {
    /// An interface that went and came again has another number.
    fn is_stale(&self, name: &Name) -> bool {
        match &self.socket {
            Ok((_, index)) => if_nametoindex(&**name).ok() != Some(*index),
            Err(_) => true,
        }
    }
}

fn open(name: &Name) -> Result<(Socket, u32), String> {
    let index = if_nametoindex(&**name).map_err(|_| format!("there is no interface {name}"))?;
    let open = || -> io::Result<Socket> {
        let socket = Socket::new(Domain::IPV6, Type::RAW, Some(Protocol::ICMPV6))?;
        socket.set_nonblocking(true)?;
        socket.bind_device(Some(name.as_bytes()))?;
        socket.set_multicast_hops_v6(HOPS)?;
        socket.set_multicast_loop_v6(false)?;
        socket.set_multicast_if_v6(index)?;
        setsockopt(&socket, sockopt::Ipv6RecvHopLimit, &true)?;
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

fn tell(socket: &Socket, index: u32, packet: &[u8], to: Ipv6Addr) -> io::Result<usize> {
    socket.send_to(packet, &SocketAddrV6::new(to, 0, 0, index).into())
}

/// The router that sent the next packet; none where that is something else. What passed a router has fewer hops left.
fn hear(socket: &Socket) -> io::Result<Option<Ipv6Addr>> {
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
    Ok(from.filter(|from| is_router && from.is_unicast_link_local()))
}
