//! Clients' addresses, as the kernel writes them and as flows compare them.

use std::{
    mem,
    net::{Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6},
};

use libc::c_int;

/// A client's address in the form that is cheapest to compare; its family is that of the socket it came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Peer {
    pub(crate) ip: u128,
    pub(crate) scope: u32,
    pub(crate) port: u16,
    v6: bool,
}

impl Peer {
    pub(crate) fn socket_addr(self) -> SocketAddr {
        if self.v6 {
            SocketAddrV6::new(Ipv6Addr::from_bits(self.ip), self.port, 0, self.scope).into()
        } else {
            SocketAddrV4::new(Ipv4Addr::from_bits(self.ip as u32), self.port).into()
        }
    }
}

impl From<SocketAddr> for Peer {
    fn from(at: SocketAddr) -> Peer {
        match at {
            SocketAddr::V4(at) => {
                Peer { ip: u128::from(at.ip().to_bits()), scope: 0, port: at.port(), v6: false }
            }
            SocketAddr::V6(at) => {
                Peer { ip: at.ip().to_bits(), scope: at.scope_id(), port: at.port(), v6: true }
            }
        }
    }
}

/// Large enough for both families, aligned for both.
#[derive(Clone, Copy)]
#[repr(C)]
pub(super) union Address {
    family: libc::sa_family_t,
    v4: libc::sockaddr_in,
    v6: libc::sockaddr_in6,
}

impl Address {
    pub(super) const EMPTY: Address = Address {
        v6: libc::sockaddr_in6 {
            sin6_family: 0,
            sin6_port: 0,
            sin6_flowinfo: 0,
            sin6_addr: libc::in6_addr { s6_addr: [0; 16] },
            sin6_scope_id: 0,
        },
    };

    pub(super) fn read(&self) -> Option<Peer> {
        // SAFETY: every field of the union is plain integers, the whole was initialised (`EMPTY` is its largest
        // variant), and the family says which variant the kernel wrote.
        unsafe {
            match c_int::from(self.family) {
                libc::AF_INET => Some(Peer {
                    ip: u128::from(u32::from_be(self.v4.sin_addr.s_addr)),
                    scope: 0,
                    port: u16::from_be(self.v4.sin_port),
                    v6: false,
                }),
                libc::AF_INET6 => Some(Peer {
                    ip: u128::from_be_bytes(self.v6.sin6_addr.s6_addr),
                    scope: self.v6.sin6_scope_id,
                    port: u16::from_be(self.v6.sin6_port),
                    v6: true,
                }),
                _ => None,
            }
        }
    }

    pub(super) fn write(&mut self, peer: Peer) -> libc::socklen_t {
        if peer.v6 {
            self.v6 = libc::sockaddr_in6 {
                sin6_family: libc::AF_INET6 as libc::sa_family_t,
                sin6_port: peer.port.to_be(),
                sin6_flowinfo: 0,
                sin6_addr: libc::in6_addr { s6_addr: peer.ip.to_be_bytes() },
                sin6_scope_id: peer.scope,
            };
            mem::size_of::<libc::sockaddr_in6>() as libc::socklen_t
        } else {
            self.v4 = libc::sockaddr_in {
                sin_family: libc::AF_INET as libc::sa_family_t,
                sin_port: peer.port.to_be(),
                sin_addr: libc::in_addr { s_addr: (peer.ip as u32).to_be() },
                sin_zero: [0; 8],
            };
            mem::size_of::<libc::sockaddr_in>() as libc::socklen_t
        }
    }
}
