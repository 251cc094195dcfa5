//! Where the listeners and members of `attacks` are. The peers' configurations in `bench/peers` name the same ports.

use std::net::{Ipv4Addr, SocketAddrV4};

/// HTTP to the shared member of HTTP/1.1, and to that of HTTP/2.
pub const HTTP: u16 = 9501;
pub const TO_H2: u16 = 9511;
/// The same members by HTTP/2, where a listener speaks only one version: nginx without TLS.
pub const HTTP_BY_H2: u16 = 9502;
pub const TO_H2_BY_H2: u16 = 9512;
/// TLS, TCP and UDP to the shared member.
pub const TLS: u16 = 9521;
pub const TCP: u16 = 9531;
pub const UDP: u16 = 9541;
/// HTTP to a member of its own.
pub const OTHER: u16 = 9551;
/// HTTP to the member that answers badly.
pub const FAILING: u16 = 9561;
/// TCP of a Service that has no member: what is asked there costs nobody but the contender.
pub const NO_MEMBER_TCP: u16 = 9592;
/// The front door, with one host name that is redirected, and a route that has all regular expressions that a namespace may have.
pub const EXPRESSIONS: u16 = 9593;
/// Services whose members are checked all the time.
pub const PROBED: u16 = 9621;
const HTTP_LOOPS: u16 = 9571;
const TCP_LOOPS: u16 = 9581;
const DESYNC: u16 = 9601;
pub const DESYNC_CLASSES: u16 = 11;

pub const SHARED_MEMBER: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 2);
pub const OTHER_MEMBER: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 3);
pub const FAILING_MEMBER: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 4);
pub const DESYNC_MEMBER: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 5);
pub const HTTP_MEMBER: u16 = 9401;
pub const H2_MEMBER: u16 = 9402;
pub const UDP_MEMBER: u16 = 9404;

/// The contender's listener at this port.
pub const fn listener(port: u16) -> SocketAddrV4 {
    SocketAddrV4::new(Ipv4Addr::LOCALHOST, port)
}

/// A listener for each class of desynchronisation.
pub fn desync() -> impl Iterator<Item = u16> {
    DESYNC..DESYNC + DESYNC_CLASSES
}

pub fn desync_member(class: usize) -> SocketAddrV4 {
    SocketAddrV4::new(DESYNC_MEMBER, 9420 + class as u16)
}

/// Services whose member is the next one, and that of the last is the first.
#[derive(Clone, Copy, Debug)]
pub struct Loop {
    pub http: bool,
    pub length: u16,
}

impl Loop {
    pub fn all() -> impl Iterator<Item = Self> {
        [true, false].into_iter().flat_map(|http| (1..=3).map(move |length| Self { http, length }))
    }

    /// The port of each with the port that it leads to.
    pub fn listeners(self) -> Vec<(u16, u16)> {
        let base = if self.http { HTTP_LOOPS } else { TCP_LOOPS };
        let first = base + [0, 1, 3][usize::from(self.length - 1)];
        (0..self.length).map(|at| (first + at, first + (at + 1) % self.length)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loops_have_listeners_of_their_own_and_close() {
        let all: Vec<(u16, u16)> = Loop::all().flat_map(Loop::listeners).collect();
        let mut ports: Vec<u16> = all.iter().map(|it| it.0).collect();
        let mut next: Vec<u16> = all.iter().map(|it| it.1).collect();
        next.sort_unstable();
        assert_eq!(ports, next, "each is the next of exactly one");
        ports.dedup();
        assert_eq!(ports.len(), 12);
    }
}
