//! Frames to and from one interface, and heartbeats.

use std::{
    collections::BTreeMap,
    io,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket},
    os::fd::{AsFd, AsRawFd, BorrowedFd},
};

use nix::{
    errno::Errno,
    sys::socket::{LinkAddr, MsgFlags, bind, recvfrom, send},
};
use socket2::{Domain, Protocol, SockFilter, Socket, Type};

use super::packet::solicited_node;

/// Longer than any frame that we read.
pub(crate) const BUFFER: usize = 1_600;
/// Of heartbeats that wait while this thread has no processor.
const WAITING: usize = 1 << 20;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Family {
    Arp,
    Ndp,
}

impl Family {
    pub(crate) fn of(address: IpAddr) -> Family {
        if address.is_ipv4() { Family::Arp } else { Family::Ndp }
    }

    fn protocol(self) -> i32 {
        match self {
            Family::Arp => libc::ETH_P_ARP,
            Family::Ndp => libc::ETH_P_IPV6,
        }
    }

    /// The kernel passes on only what is for us or for a group, and of IPv6 only what no router passed on and what is a
    /// solicitation or an advertisement. So other traffic costs a few instructions.
    fn filter(self) -> Vec<SockFilter> {
        const LOAD: u16 = 0x30;
        const IS: u16 = 0x15;
        const RETURN: u16 = 0x06;
        // SKF_AD_OFF + SKF_AD_PKTTYPE; 3 is for another host, 4 was sent here.
        const KIND: u32 = 0xffff_f004;
        let load = |at| SockFilter::new(LOAD, 0, 0, at);
        let is = |value, yes, no| SockFilter::new(IS, yes, no, value);
        let ends = |length| SockFilter::new(RETURN, 0, 0, length);
        match self {
            Family::Arp => vec![load(KIND), is(3, 2, 0), is(4, 1, 0), ends(0xffff), ends(0)],
            Family::Ndp => vec![
                load(KIND),
                is(3, 9, 0),
                is(4, 8, 0),
                load(20),
                is(58, 0, 6),
                load(21),
                is(255, 0, 4),
                load(54),
                is(135, 1, 0),
                is(136, 0, 1),
                ends(0xffff),
                ends(0),
            ],
        }
    }
}

/// All frames of one family on one interface.
#[derive(Debug)]
pub(crate) struct LinkSocket {
    socket: Socket,
    index: usize,
}

impl LinkSocket {
    pub(crate) fn open(link: &LinkAddr, family: Family) -> io::Result<LinkSocket> {
        let protocol = u16::try_from(family.protocol()).unwrap_or(0).to_be();
        let socket = Socket::new(Domain::PACKET, Type::RAW, Some(Protocol::from(i32::from(protocol))))?;
        socket.set_nonblocking(true)?;
        socket.attach_filter(&family.filter())?;
        // An address without a protocol keeps that of the socket.
        bind(socket.as_raw_fd(), link)?;
        Ok(LinkSocket { socket, index: link.ifindex() })
    }

    /// The next frame; `None` if there is none.
    pub(crate) fn receive<'a>(&self, buffer: &'a mut [u8]) -> io::Result<Option<&'a [u8]>> {
        loop {
            let (length, from) = match recvfrom::<LinkAddr>(self.socket.as_raw_fd(), buffer) {
                Err(Errno::EAGAIN) => return Ok(None),
                Err(Errno::EINTR) => continue,
                other => other?,
            };
            // Until it was bound it heard all interfaces.
            if from.is_some_and(|from| from.ifindex() == self.index) {
                return Ok(Some(buffer.get(..length).unwrap_or_default()));
            }
        }
    }

    pub(crate) fn send(&self, frame: &[u8]) -> io::Result<()> {
        send(self.socket.as_raw_fd(), frame, MsgFlags::MSG_DONTWAIT)?;
        Ok(())
    }
}

impl AsFd for LinkSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// By which heartbeats come and go.
#[derive(Debug)]
pub(crate) struct HeartbeatSocket {
    socket: UdpSocket,
    is_v6: bool,
}

impl HeartbeatSocket {
    /// By both families, where the machine has both.
    pub(crate) fn open(port: u16) -> io::Result<HeartbeatSocket> {
        let open = |domain, at: SocketAddr| -> io::Result<UdpSocket> {
            let socket = Socket::new(domain, Type::DGRAM, Some(Protocol::UDP))?;
            if at.is_ipv6() {
                socket.set_only_v6(false)?;
            }
            socket.set_nonblocking(true)?;
            // As much as the kernel allows.
            let _ = socket.set_recv_buffer_size(WAITING);
            socket.bind(&at.into())?;
            Ok(socket.into())
        };
        match open(Domain::IPV6, (Ipv6Addr::UNSPECIFIED, port).into()) {
            Ok(socket) => Ok(HeartbeatSocket { socket, is_v6: true }),
            Err(error) if error.kind() == io::ErrorKind::AddrInUse => Err(error),
            Err(_) => {
                let socket = open(Domain::IPV4, (Ipv4Addr::UNSPECIFIED, port).into())?;
                Ok(HeartbeatSocket { socket, is_v6: false })
            }
        }
    }

    /// The next one, and who sent it; `None` if there is none.
    pub(crate) fn receive<'a>(&self, buffer: &'a mut [u8]) -> Option<(&'a [u8], IpAddr)> {
        let (length, from) = self.socket.recv_from(buffer).ok()?;
        Some((buffer.get(..length)?, from.ip().to_canonical()))
    }

    /// What cannot be sent is lost, as on any network.
    pub(crate) fn send(&self, message: &[u8], to: IpAddr, port: u16) {
        let to = match to {
            IpAddr::V4(it) if self.is_v6 => IpAddr::V6(it.to_ipv6_mapped()),
            other => other,
        };
        let _ = self.socket.send_to(message, (to, port));
    }
}

impl AsFd for HeartbeatSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// Groups in which others ask for our IPv6 addresses: switches pass them on only where somebody listens.
#[derive(Debug, Default)]
pub(crate) struct MulticastGroups {
    joined: BTreeMap<Ipv6Addr, (u32, Ipv6Addr, usize)>,
    /// The kernel bounds how many groups one of them may join.
    sockets: Vec<UdpSocket>,
}

impl MulticastGroups {
    pub(crate) fn join(&mut self, address: Ipv6Addr, link: u32) {
        let group = solicited_node(address);
        if self.joined.get(&address).is_some_and(|(on, ..)| *on == link) {
            return;
        }
        self.leave(address);
        let other = self.joined.values().find(|(on, its, _)| (*on, *its) == (link, group)).map(|it| it.2);
        let at = other.or_else(|| self.join_by_any(group, link));
        if let Some(at) = at {
            self.joined.insert(address, (link, group, at));
        }
    }

    fn join_by_any(&mut self, group: Ipv6Addr, link: u32) -> Option<usize> {
        let joins = |socket: &UdpSocket| socket.join_multicast_v6(&group, link).is_ok();
        // The newest has room, if any has.
        if self.sockets.last().is_some_and(joins) {
            return self.sockets.len().checked_sub(1);
        }
        // Nothing is received by it.
        let socket = UdpSocket::bind((Ipv6Addr::LOCALHOST, 0)).ok()?;
        let is_joined = joins(&socket);
        self.sockets.push(socket);
        if is_joined { self.sockets.len().checked_sub(1) } else { None }
    }

    pub(crate) fn leave(&mut self, address: Ipv6Addr) {
        let Some((link, group, at)) = self.joined.remove(&address) else { return };
        if self.joined.values().any(|(on, its, _)| (*on, *its) == (link, group)) {
            return;
        }
        if let Some(socket) = self.sockets.get(at) {
            // The interface may be gone.
            let _ = socket.leave_multicast_v6(&group, link);
        }
    }
}
