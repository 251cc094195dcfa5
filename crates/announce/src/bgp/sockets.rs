//! A connection to one peer.

use std::{
    io,
    net::{IpAddr, Shutdown, SocketAddr},
    os::fd::{AsFd, BorrowedFd},
    time::Duration,
};

use nix::{
    errno::Errno,
    sys::socket::{MsgFlags, SetSockOpt, sockopt::SetStruct},
};
use seaway_model::bgp::PeerDistance;
use secrecy::{ExposeSecret, SecretString};
use socket2::{Domain, Protocol, Socket, TcpKeepalive, Type};

/// As a network of many routers is.
const FAR: u8 = 64;
const SECURE: u8 = 255;
const KEEPALIVE: Duration = Duration::from_secs(30);
/// `struct tcp_md5sig` of linux/tcp.h: an address, flags, a length, an interface, the key.
const SIGNATURE: usize = 216;
const KEY_LENGTH: usize = 130;
const KEY: usize = 136;

#[derive(Clone, Copy)]
struct Md5Signature;
nix::setsockopt_impl!(
    Md5Signature,
    libc::IPPROTO_TCP,
    libc::TCP_MD5SIG,
    [u8; SIGNATURE],
    SetStruct<'_, [u8; SIGNATURE]>
);

#[derive(Clone, Copy)]
struct LeastTtl;
nix::setsockopt_impl!(LeastTtl, libc::IPPROTO_IP, libc::IP_MINTTL, i32, SetStruct<'_, i32>);

#[derive(Clone, Copy)]
struct LeastHops;
nix::setsockopt_impl!(LeastHops, libc::IPPROTO_IPV6, libc::IPV6_MINHOPCOUNT, i32, SetStruct<'_, i32>);

#[derive(Debug)]
pub(super) struct Connection {
    socket: Socket,
    pub(super) is_connected: bool,
}

/// What a connection is made of.
#[derive(Debug)]
pub(super) struct ConnectOptions<'a> {
    pub(super) to: SocketAddr,
    pub(super) source: Option<IpAddr>,
    pub(super) hops: PeerDistance,
    pub(super) is_internal: bool,
    pub(super) password: Option<&'a SecretString>,
}

impl Connection {
    /// Begins to connect. What protects the session is set before, or there is no connection.
    pub(super) fn begin(route: &ConnectOptions<'_>) -> Result<Connection, String> {
        let failed = |doing: &str, error: io::Error| format!("{doing} failed: {error}");
        let socket = Socket::new(Domain::for_address(route.to), Type::STREAM, Some(Protocol::TCP))
            .and_then(|it| it.set_nonblocking(true).map(|()| it))
            .map_err(|error| failed("making a socket", error))?;
        // A router's messages are small, and each is waited for.
        let _ = socket.set_tcp_nodelay(true);
        // A session without hold time would not notice that its peer is gone.
        let _ = socket.set_tcp_keepalive(&TcpKeepalive::new().with_time(KEEPALIVE).with_interval(KEEPALIVE));
        if let Some(password) = route.password {
            sign(&socket, route.to, password)?;
        }
        limit_hops(&socket, route).map_err(|error| failed("limiting the hops of packets", error))?;
        if let Some(source) = route.source {
            let bound = socket.bind(&SocketAddr::new(source, 0).into());
            bound.map_err(|error| failed(&format!("connecting from {source}"), error))?;
        }
        match socket.connect(&route.to.into()) {
            Ok(()) => {}
            Err(error) if error.raw_os_error() == Some(Errno::EINPROGRESS as i32) => {}
            Err(error) => return Err(refusal(&error, route.to)),
        }
        Ok(Connection { socket, is_connected: false })
    }

    /// Whether it is connected now; or why it never will be.
    pub(super) fn check(&self, to: SocketAddr) -> Result<bool, String> {
        if let Ok(Some(error)) = self.socket.take_error() {
            return Err(refusal(&error, to));
        }
        Ok(self.socket.peer_addr().is_ok())
    }

    pub(super) fn local(&self) -> Option<IpAddr> {
        self.socket.local_addr().ok()?.as_socket().map(|it| it.ip())
    }

    /// `None` if there is nothing at the moment.
    pub(super) fn receive(&self, buffer: &mut [u8]) -> io::Result<Option<usize>> {
        match nix::sys::socket::recv(
            std::os::fd::AsRawFd::as_raw_fd(&self.socket),
            buffer,
            MsgFlags::MSG_DONTWAIT,
        ) {
            Ok(length) => Ok(Some(length)),
            Err(Errno::EAGAIN | Errno::EINTR) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// `None` if the peer has to take something first.
    pub(super) fn send(&self, bytes: &[u8]) -> io::Result<Option<usize>> {
        match self.socket.send_with_flags(bytes, libc::MSG_NOSIGNAL) {
            Ok(length) => Ok(Some(length)),
            Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) => {
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }

    /// What was written goes out: it is not reset for bytes that were not read.
    pub(super) fn close(self, buffer: &mut [u8]) {
        let _ = self.socket.shutdown(Shutdown::Write);
        let mut rest = 64_u8;
        while rest > 0 && matches!(self.receive(buffer), Ok(Some(1..))) {
            rest = rest.saturating_sub(1);
        }
    }
}

impl AsFd for Connection {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

fn limit_hops(socket: &Socket, route: &ConnectOptions<'_>) -> io::Result<()> {
    let (ttl, least) = match route.hops {
        PeerDistance::Direct if route.is_internal => (FAR, None),
        PeerDistance::Direct => (1, None),
        PeerDistance::Multihop(hops) => (hops.max(1), None),
        PeerDistance::Security(hops) => {
            (SECURE, Some(i32::from(SECURE.saturating_sub(hops.max(1).saturating_sub(1)))))
        }
    };
    if route.to.is_ipv4() {
        socket.set_ttl_v4(ttl.into())?;
        least.map_or(Ok(()), |least| Ok(LeastTtl.set(socket, &least)?))
    } else {
        socket.set_unicast_hops_v6(ttl.into())?;
        least.map_or(Ok(()), |least| Ok(LeastHops.set(socket, &least)?))
    }
}

/// RFC 2385.
fn sign(socket: &Socket, to: SocketAddr, password: &SecretString) -> Result<(), String> {
    let key = password.expose_secret().as_bytes();
    let mut signature = [0; SIGNATURE];
    let length = u16::try_from(key.len()).unwrap_or(u16::MAX);
    let mut put = |at: usize, bytes: &[u8]| {
        let room = signature.get_mut(at..at.saturating_add(bytes.len()));
        room.map(|room| room.copy_from_slice(bytes))
    };
    if key.is_empty() || put(KEY, key).is_none() {
        return Err(format!("the password has {} bytes; TCP MD5 takes 1 to 80", key.len()));
    }
    let family = if to.is_ipv4() { libc::AF_INET } else { libc::AF_INET6 };
    let _ = put(0, &u16::try_from(family).unwrap_or(0).to_ne_bytes());
    let _ = match to.ip() {
        IpAddr::V4(it) => put(4, &it.octets()),
        IpAddr::V6(it) => put(8, &it.octets()),
    };
    let _ = put(KEY_LENGTH, &length.to_ne_bytes());
    Md5Signature.set(socket, &signature).map_err(|error| match error {
        Errno::ENOENT | Errno::ENOPROTOOPT => "this kernel has no TCP MD5 (CONFIG_TCP_MD5SIG)".into(),
        other => format!("setting the password of the session failed: {other}"),
    })
}

fn refusal(error: &io::Error, to: SocketAddr) -> String {
    match error.kind() {
        io::ErrorKind::ConnectionRefused => {
            format!("connection refused: nothing listens on TCP port {} of {}", to.port(), to.ip())
        }
        io::ErrorKind::NetworkUnreachable => format!("this machine has no route to {}", to.ip()),
        io::ErrorKind::HostUnreachable => {
            format!(
                "{} is unreachable: nothing answers at that address, or it is more than one hop away",
                to.ip()
            )
        }
        _ => format!("connecting to {to} failed: {error}"),
    }
}
