use std::{
    mem,
    net::{Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6},
};

/// A socket address as the kernel takes and gives it: converted once, used many times.
#[derive(Clone, Copy)]
pub(crate) struct KernelAddress {
    storage: Storage,
    length: libc::socklen_t,
}

#[derive(Clone, Copy)]
#[repr(C)]
union Storage {
    family: libc::sa_family_t,
    v4: libc::sockaddr_in,
    v6: libc::sockaddr_in6,
}

impl KernelAddress {
    /// Room for an answer of the kernel.
    pub(crate) fn empty() -> KernelAddress {
        // SAFETY: sockaddr_in6 is plain numbers; zeros are a valid value.
        let v6: libc::sockaddr_in6 = unsafe { mem::zeroed() };
        KernelAddress { storage: Storage { v6 }, length: mem::size_of::<Storage>() as libc::socklen_t }
    }

    pub(crate) fn as_ptr(&self) -> *const libc::sockaddr {
        (&raw const self.storage).cast()
    }

    pub(crate) fn as_mut_ptr(&mut self) -> *mut libc::sockaddr {
        (&raw mut self.storage).cast()
    }

    pub(crate) fn length(&self) -> libc::socklen_t {
        self.length
    }

    pub(crate) fn length_mut(&mut self) -> &mut libc::socklen_t {
        &mut self.length
    }

    pub(crate) fn family(&self) -> libc::c_int {
        // SAFETY: every variant begins with the family.
        libc::c_int::from(unsafe { self.storage.family })
    }

    pub(crate) fn to_std(self) -> Option<SocketAddr> {
        match self.family() {
            libc::AF_INET => {
                // SAFETY: the family says that the kernel, or `from`, wrote this variant.
                let v4 = unsafe { self.storage.v4 };
                let ip = Ipv4Addr::from_bits(u32::from_be(v4.sin_addr.s_addr));
                Some(SocketAddrV4::new(ip, u16::from_be(v4.sin_port)).into())
            }
            libc::AF_INET6 => {
                // SAFETY: as above.
                let v6 = unsafe { self.storage.v6 };
                let (ip, port) = (Ipv6Addr::from(v6.sin6_addr.s6_addr), u16::from_be(v6.sin6_port));
                Some(SocketAddrV6::new(ip, port, 0, v6.sin6_scope_id).into())
            }
            _ => None,
        }
    }
}

impl From<SocketAddr> for KernelAddress {
    fn from(at: SocketAddr) -> KernelAddress {
        match at {
            SocketAddr::V4(at) => {
                let v4 = libc::sockaddr_in {
                    sin_family: libc::AF_INET as libc::sa_family_t,
                    sin_port: at.port().to_be(),
                    sin_addr: libc::in_addr { s_addr: at.ip().to_bits().to_be() },
                    sin_zero: [0; 8],
                };
                let length = mem::size_of::<libc::sockaddr_in>() as libc::socklen_t;
                let mut address = KernelAddress::empty();
                address.storage.v4 = v4;
                KernelAddress { length, ..address }
            }
            SocketAddr::V6(at) => {
                let v6 = libc::sockaddr_in6 {
                    sin6_family: libc::AF_INET6 as libc::sa_family_t,
                    sin6_port: at.port().to_be(),
                    sin6_flowinfo: at.flowinfo(),
                    sin6_addr: libc::in6_addr { s6_addr: at.ip().octets() },
                    sin6_scope_id: at.scope_id(),
                };
                let length = mem::size_of::<libc::sockaddr_in6>() as libc::socklen_t;
                KernelAddress { storage: Storage { v6 }, length }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_survive_the_way_to_the_kernel_and_back() {
        for text in ["127.0.0.1:80", "255.1.2.3:65535", "[::1]:443", "[fe80::1%7]:1"] {
            let at: SocketAddr = text.parse().unwrap();
            assert_eq!(KernelAddress::from(at).to_std(), Some(at));
        }
        assert_eq!(KernelAddress::empty().to_std(), None);
    }
}
