//! Who listens where, asked of the kernel by NETLINK_SOCK_DIAG (sock_diag(7)).

pub(crate) mod tables;

use std::collections::HashSet;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use nix::errno::Errno;
use nix::sys::socket::SockProtocol;
use seaway_model::L4;

use crate::Error;
use crate::conflict::{Conflict, WantedSocket, find_conflicts};
use crate::netlink::NetlinkSocket;
use crate::netlink::message::{Request, attributes, malformed, u32_at};
use crate::process::Process;
use crate::uapi::*;

/// `struct inet_diag_msg`: four bytes, a socket identity, five numbers.
const FIXED: usize = 72;

/// Asks which sockets hold ports in this network namespace.
pub struct SocketDiagnostics {
    /// None where there is no sock_diag to ask.
    socket: Option<NetlinkSocket>,
}

impl SocketDiagnostics {
    /// Where the kernel has no sock_diag, its tables are read instead.
    pub fn open() -> Result<SocketDiagnostics, Error> {
        match NetlinkSocket::open(SockProtocol::NetlinkSockDiag) {
            Ok(socket) => Ok(SocketDiagnostics { socket: Some(socket) }),
            Err(error) if is_missing(&error) => Ok(SocketDiagnostics::from_proc()),
            Err(error) => Err(Error::failed("opening a sock_diag netlink socket", error)),
        }
    }

    /// Reads `/proc/net`, which is slower, and takes every `[::]` for a holder of IPv4 as well.
    pub fn from_proc() -> SocketDiagnostics {
        SocketDiagnostics { socket: None }
    }

    /// All listening TCP sockets and all bound UDP sockets: one question for any number of
    /// listeners to be.
    pub fn all(&mut self) -> Result<Vec<Listener>, Error> {
        let mut all = self.ask(L4::Tcp, 0)?;
        all.extend(self.ask(L4::Udp, 0)?);
        Ok(all)
    }

    /// Those on one port.
    pub fn listeners(&mut self, port: u16, protocol: L4) -> Result<Vec<Listener>, Error> {
        self.ask(protocol, port)
    }

    /// TCP connections with one machine at that port, there or here.
    pub fn connections(&mut self, peer: IpAddr, port: u16) -> Result<Vec<Listener>, Error> {
        let states = 1 << TCP_ESTABLISHED;
        let mut found = Vec::new();
        if let Some(socket) = &mut self.socket {
            for ports in [(port, 0), (0, port)] {
                match dump(socket, L4::Tcp, libc::IPPROTO_TCP, states, ports) {
                    Err(error) if is_missing(&error) => {}
                    asked => found
                        .extend(asked.map_err(|source| {
                            Error::unanswered("listing connections of the host", source)
                        })?),
                }
            }
        }
        found.retain(|it| it.peer.is_some_and(|it| it.ip() == peer));
        Ok(found)
    }

    /// Whoever, except for the sockets in `ours` (by inode), has what is wanted.
    pub fn conflicts(
        &mut self,
        wanted: &[WantedSocket],
        ours: &HashSet<u64>,
    ) -> Result<Vec<Conflict>, Error> {
        let listeners = match wanted {
            [] => return Ok(Vec::new()),
            [one] => self.listeners(one.at.port(), one.protocol)?,
            _ => self.all()?,
        };
        let mut conflicts = find_conflicts(wanted, &listeners, ours);
        if conflicts.is_empty() {
            return Ok(conflicts);
        }
        let inodes = conflicts.iter().map(|found| found.listener.inode).collect();
        let owners = Process::owners(&inodes);
        for conflict in &mut conflicts {
            conflict.process = owners.get(&conflict.listener.inode).cloned();
        }
        Ok(conflicts)
    }

    /// Port 0 means every port.
    fn ask(&mut self, protocol: L4, port: u16) -> Result<Vec<Listener>, Error> {
        let (number, states) = match protocol {
            L4::Tcp => (libc::IPPROTO_TCP, 1 << TCP_LISTEN),
            L4::Udp => (libc::IPPROTO_UDP, 1 << TCP_CLOSE | 1 << TCP_ESTABLISHED),
            // Nothing of ours listens by SCTP.
            L4::Sctp => return Ok(Vec::new()),
        };
        let asked = match &mut self.socket {
            Some(socket) => dump(socket, protocol, number, states, (port, 0)),
            None => Err(Errno::ENOENT.into()),
        };
        let found = match asked {
            Err(error) if is_missing(&error) => tables::listeners(protocol, states),
            asked => asked,
        };
        let doing = || format!("listing the {} sockets of the host", protocol.as_str());
        let mut found = found.map_err(|source| Error::unanswered(doing(), source))?;
        // Kernels differ in whether they look at the port for every protocol.
        found.retain(|found| found.at.port() != 0 && (port == 0 || found.at.port() == port));
        Ok(found)
    }
}

/// The ports are ours and the peer's; 0 is any.
fn dump(
    socket: &mut NetlinkSocket,
    protocol: L4,
    number: i32,
    states: u32,
    ports: (u16, u16),
) -> io::Result<Vec<Listener>> {
    let mut all = Vec::new();
    for family in [libc::AF_INET, libc::AF_INET6] {
        let request = Request::new(SOCK_DIAG_BY_FAMILY, &question(family, number, states, ports));
        all.extend(socket.dump(&request, |_, payload| {
            Listener::read(protocol, payload).map(Some).ok_or_else(malformed)
        })?);
    }
    Ok(all)
}

/// What a kernel says that was built without it, or whose module for the protocol is absent.
fn is_missing(error: &io::Error) -> bool {
    let missing = [Errno::ENOENT, Errno::EPROTONOSUPPORT, Errno::EAFNOSUPPORT, Errno::EOPNOTSUPP];
    error.raw_os_error().is_some_and(|code| missing.contains(&Errno::from_raw(code)))
}

/// A socket that holds a port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listener {
    pub protocol: L4,
    pub at: SocketAddr,
    /// `[::]` without this holds the port in IPv4 too.
    pub v6_only: bool,
    /// A UDP socket may be bound and yet talk to one peer only.
    pub peer: Option<SocketAddr>,
    /// The interface that it is bound to.
    pub device: Option<u32>,
    pub uid: u32,
    pub inode: u64,
}

impl Listener {
    pub(crate) fn read(protocol: L4, payload: &[u8]) -> Option<Listener> {
        let fixed = payload.first_chunk::<FIXED>()?;
        let port = |at: usize| fixed.get(at..)?.first_chunk().map(|it| u16::from_be_bytes(*it));
        let family = i32::from(*fixed.first()?);
        let at = SocketAddr::new(ip(family, fixed.get(8..24)?)?, port(4)?);
        let peer = SocketAddr::new(ip(family, fixed.get(24..40)?)?, port(6)?);
        let device = u32_at(fixed, 40)?;
        let v6_only = attributes(payload.get(FIXED..)?)
            .find(|(kind, _)| *kind == INET_DIAG_SKV6ONLY)
            .is_some_and(|(_, value)| value.first().is_some_and(|only| *only != 0));
        Some(Listener {
            protocol,
            at,
            v6_only,
            peer: (peer.port() != 0).then_some(peer),
            device: (device != 0).then_some(device),
            uid: u32_at(fixed, 64)?,
            inode: u32_at(fixed, 68)?.into(),
        })
    }
}

/// `struct inet_diag_req_v2`.
fn question(family: i32, protocol: i32, states: u32, ports: (u16, u16)) -> Vec<u8> {
    #[allow(clippy::expect_used, reason = "constants of the kernel's interface")]
    let small = |number| u8::try_from(number).expect("families and protocols are small numbers");
    let mut bytes = vec![small(family), small(protocol), 0, 0];
    bytes.extend_from_slice(&states.to_ne_bytes());
    bytes.extend_from_slice(&ports.0.to_be_bytes());
    bytes.extend_from_slice(&ports.1.to_be_bytes());
    // Both addresses, interface: any. The cookie is all ones for any.
    bytes.extend_from_slice(&[0; 16 + 16 + 4]);
    bytes.extend_from_slice(&[0xff; 8]);
    bytes
}

/// IPv4 addresses that an IPv6 socket holds count as what they are.
fn ip(family: i32, bytes: &[u8]) -> Option<IpAddr> {
    match family {
        libc::AF_INET => Some(Ipv4Addr::from(*bytes.first_chunk::<4>()?).into()),
        libc::AF_INET6 => {
            let ip = Ipv6Addr::from(*bytes.first_chunk::<16>()?);
            Some(IpAddr::V6(ip).to_canonical())
        }
        _ => None,
    }
}
