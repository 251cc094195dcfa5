//! UDP: where packets come, and from where each session sends.

use std::{
    io::{self, IoSliceMut},
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV6, UdpSocket},
    os::fd::{AsFd, AsRawFd, BorrowedFd},
};

use aws_lc_rs::rand;
use nix::{
    cmsg_space,
    net::if_::if_nametoindex,
    sys::socket::{ControlMessageOwned, MsgFlags, SockaddrStorage, recvmsg, setsockopt, sockopt},
};
use socket2::{Domain, Protocol, SockFilter, SockRef, Socket, Type};

use super::settings::{Key, MULTIHOP_PORT, SINGLE_HOP_PORT};

/// RFC 5881, 5: who is 255 now passed no router.
pub(super) const MOST_HOPS: u8 = 255;
/// RFC 5881, 4.
const FIRST_PORT: u16 = 49_152;
const PORTS: u16 = u16::MAX - FIRST_PORT;
const TRIES: usize = 64;
/// Class selector 6, as routers mark control packets.
const NETWORK_CONTROL: u32 = 0xc0;

/// Where packets of one kind come.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct SocketKind {
    is_v6: bool,
    pub(super) is_multihop: bool,
}

impl SocketKind {
    pub(super) fn of(key: &Key) -> SocketKind {
        SocketKind { is_v6: key.peer.is_ipv6(), is_multihop: key.is_multihop }
    }

    pub(super) fn port(self) -> u16 {
        if self.is_multihop { MULTIHOP_PORT } else { SINGLE_HOP_PORT }
    }
}

#[derive(Debug)]
pub(super) struct Receiver {
    socket: UdpSocket,
}

/// What came, beside its bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct PacketMetadata {
    pub(super) from: IpAddr,
    pub(super) hops: u8,
    /// By which interface.
    pub(super) interface: u32,
}

impl Receiver {
    /// For packets of these peers alone: others do not fill its queue.
    pub(super) fn open(kind: SocketKind, peers: &[IpAddr]) -> io::Result<Receiver> {
        let socket = socket(kind.is_v6)?;
        socket.attach_filter(&filter(kind, peers))?;
        if kind.is_v6 {
            setsockopt(&socket, sockopt::Ipv6RecvHopLimit, &true)?;
            setsockopt(&socket, sockopt::Ipv6RecvPacketInfo, &true)?;
        } else {
            setsockopt(&socket, sockopt::Ipv4RecvTtl, &true)?;
            setsockopt(&socket, sockopt::Ipv4PacketInfo, &true)?;
        }
        socket.bind(&SocketAddr::new(unspecified(kind.is_v6), kind.port()).into())?;
        Ok(Receiver { socket: socket.into() })
    }

    /// From now on.
    pub(super) fn set_peers(&self, kind: SocketKind, peers: &[IpAddr]) -> io::Result<()> {
        SockRef::from(&self.socket).attach_filter(&filter(kind, peers))
    }

    /// The next packet, as far as it fits; `None` if there is none.
    pub(super) fn receive<'a>(&self, buffer: &'a mut [u8]) -> Option<(&'a [u8], PacketMetadata)> {
        let mut control = cmsg_space!(i32, nix::libc::in6_pktinfo);
        let mut parts = [IoSliceMut::new(buffer)];
        let (length, arrival) = {
            let message = recvmsg::<SockaddrStorage>(
                self.socket.as_raw_fd(),
                &mut parts,
                Some(&mut control),
                MsgFlags::MSG_DONTWAIT,
            )
            .ok()?;
            let address = message.address?;
            let from = match (address.as_sockaddr_in(), address.as_sockaddr_in6()) {
                (Some(from), _) => IpAddr::V4(from.ip()),
                (_, Some(from)) => IpAddr::V6(from.ip()),
                _ => return None,
            };
            let mut arrival = PacketMetadata { from, hops: 0, interface: 0 };
            for told in message.cmsgs().ok()? {
                match told {
                    ControlMessageOwned::Ipv4Ttl(it) | ControlMessageOwned::Ipv6HopLimit(it) => {
                        arrival.hops = u8::try_from(it).unwrap_or(0);
                    }
                    ControlMessageOwned::Ipv4PacketInfo(it) => {
                        arrival.interface = u32::try_from(it.ipi_ifindex).unwrap_or(0);
                    }
                    ControlMessageOwned::Ipv6PacketInfo(it) => arrival.interface = it.ipi6_ifindex,
                    _ => {}
                }
            }
            (message.bytes, arrival)
        };
        Some((buffer.get(..length)?, arrival))
    }
}

impl AsFd for Receiver {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// From where one session sends: a port of its own, always the same.
#[derive(Debug)]
pub(super) struct Sender {
    socket: UdpSocket,
    to: SocketAddr,
}

impl Sender {
    pub(super) fn open(key: &Key) -> io::Result<Sender> {
        let is_v6 = key.peer.is_ipv6();
        let socket = socket(is_v6)?;
        if is_v6 {
            socket.set_unicast_hops_v6(MOST_HOPS.into())?;
            // What is marked goes first where queues are full; it goes without, too.
            let _ = socket.set_tclass_v6(NETWORK_CONTROL);
        } else {
            socket.set_ttl_v4(MOST_HOPS.into())?;
            let _ = socket.set_tos_v4(NETWORK_CONTROL);
        }
        let scope = scope(key)?;
        let local = key.local.unwrap_or(unspecified(is_v6));
        bind_somewhere(&socket, |port| at(local, port, scope))?;
        Ok(Sender { socket: socket.into(), to: at(key.peer, SocketKind::of(key).port(), scope) })
    }

    /// What cannot be sent is lost, as on any network.
    pub(super) fn send(&self, bytes: &[u8]) -> io::Result<()> {
        self.socket.send_to(bytes, self.to).map(drop)
    }
}

/// The index of the interface that is named.
pub(super) fn scope(key: &Key) -> io::Result<u32> {
    key.interface.as_deref().map_or(Ok(0), |name| Ok(if_nametoindex(name)?))
}

fn at(address: IpAddr, port: u16, scope: u32) -> SocketAddr {
    match address {
        IpAddr::V6(it) if it.is_unicast_link_local() => SocketAddrV6::new(it, port, 0, scope).into(),
        other => SocketAddr::new(other, port),
    }
}

fn unspecified(is_v6: bool) -> IpAddr {
    if is_v6 { Ipv6Addr::UNSPECIFIED.into() } else { Ipv4Addr::UNSPECIFIED.into() }
}

fn socket(is_v6: bool) -> io::Result<Socket> {
    let domain = if is_v6 { Domain::IPV6 } else { Domain::IPV4 };
    let socket = Socket::new(domain, Type::DGRAM, Some(Protocol::UDP))?;
    if is_v6 {
        socket.set_only_v6(true)?;
    }
    socket.set_nonblocking(true)?;
    Ok(socket)
}

/// A program of the kernel: what is not of a peer, or passed a router though it may not, is dropped before it is queued. With more
/// peers than a program has room for, all senders are taken, and judged later.
fn filter(kind: SocketKind, peers: &[IpAddr]) -> Vec<SockFilter> {
    const LOAD_BYTE: u16 = 0x30;
    const LOAD_WORD: u16 = 0x20;
    const IS: u16 = 0x15;
    const RETURN: u16 = 0x06;
    /// From where the IP header begins.
    const HEADER: u32 = 0xfff0_0000;
    const MOST_PEERS: usize = 256;
    let load = |size, at: u32| SockFilter::new(size, 0, 0, HEADER.saturating_add(at));
    let is = |value, yes, no| SockFilter::new(IS, yes, no, value);
    let ends = |length| SockFilter::new(RETURN, 0, 0, length);
    let (taken, dropped) = (|| ends(u32::MAX), || ends(0));
    let (hops_at, source_at) = if kind.is_v6 { (7, 8) } else { (8, 12) };
    let mut program = Vec::new();
    if !kind.is_multihop {
        program.extend([load(LOAD_BYTE, hops_at), is(MOST_HOPS.into(), 1, 0), dropped()]);
    }
    if peers.len() > MOST_PEERS {
        program.push(taken());
        return program;
    }
    for peer in peers {
        let words: Vec<u32> = match peer {
            IpAddr::V4(it) => vec![it.to_bits()],
            IpAddr::V6(it) => [96, 64, 32, 0].map(|shift| (it.to_bits() >> shift) as u32).into(),
        };
        let (mut at, mut left) = (source_at, u8::try_from(words.len()).unwrap_or(4));
        for word in words {
            // Behind this comparison: two instructions for each word that is left, and the one that takes the packet.
            left = left.saturating_sub(1);
            program.extend([load(LOAD_WORD, at), is(word, 0, left.saturating_mul(2).saturating_add(1))]);
            at = at.saturating_add(4);
        }
        program.push(taken());
    }
    program.push(dropped());
    program
}

fn bind_somewhere(socket: &Socket, at: impl Fn(u16) -> SocketAddr) -> io::Result<()> {
    let mut tried = 0_usize;
    loop {
        let port = FIRST_PORT.saturating_add(random(u32::from(PORTS)) as u16);
        match socket.bind(&at(port).into()) {
            Err(error) if error.kind() == io::ErrorKind::AddrInUse && tried < TRIES => {
                tried = tried.saturating_add(1);
            }
            other => return other,
        }
    }
}

/// Below `bound`; where there is no randomness at all, 0.
fn random(bound: u32) -> u32 {
    let mut bytes = [0_u8; 4];
    let _ = rand::fill(&mut bytes);
    bytes.iter().fold(0_u32, |all, byte| all << 8 | u32::from(*byte)).checked_rem(bound).unwrap_or(0)
}
