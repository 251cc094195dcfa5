//! Sockets that listen.
//!
//! SO_REUSEPORT joins a worker's socket with those of the others, and would as silently join it with sockets of
//! another process of the same user. So the first one is bound without it: then the kernel refuses what anybody else
//! holds, at that moment and with no gap. Only after a refusal is it asked who that is.
//!
//! One socket for all addresses and one for a single address of the same port would refuse each other as well. Both
//! being ours, they are joined: the kernel then gives a client to the one that names its address.

#![cfg_attr(not(test), warn(clippy::indexing_slicing, clippy::arithmetic_side_effects, clippy::expect_used))]

use std::{
    collections::HashMap,
    io,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
    os::fd::{AsFd, OwnedFd},
    sync::{Arc, Mutex, PoisonError, Weak},
    thread,
    time::{Duration, Instant},
};

use seaway_announce::{Conflict, Process, SocketDiagnostics, Steering, WantedSocket};
use seaway_model::L4;

use crate::sys::{self, KernelAddress};

/// Newcomers that wait for a worker; the kernel cuts it to `net.core.somaxconn`.
const BACKLOG: i32 = 65_535;

/// Who holds a port that another listener of this process has.
pub const OWN_PROCESS: &str = "Seaway itself";

#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// Whoever it is has to go, or the listener; worth another attempt later.
    #[error("{at} is taken by {holder}")]
    Foreign { at: SocketAddr, holder: String },
    /// The machine needs it, and clients cannot be steered to a socket elsewhere.
    #[error(
        "port {} is reserved for the machine itself, and nftables cannot redirect clients of {at} to another socket",
        at.port()
    )]
    Reserved {
        at: SocketAddr,
        #[source]
        source: SteerError,
    },
    #[error("{at} may not be opened by this user: ports below 1024 need CAP_NET_BIND_SERVICE")]
    Denied { at: SocketAddr },
    #[error("this machine has no addresses of the family of {at}")]
    NoFamily { at: SocketAddr },
    #[error("out of descriptors or memory for {at}")]
    Exhausted { at: SocketAddr },
    #[error(
        "{at} is not opened: few descriptors are left, and its namespace, or its Service within that, has used up its share"
    )]
    OverShare { at: SocketAddr },
    #[error("{at} cannot be opened")]
    Io {
        at: SocketAddr,
        #[source]
        source: io::Error,
    },
}

/// Why clients cannot be steered to a socket elsewhere.
#[derive(Debug, thiserror::Error)]
pub enum SteerError {
    #[error("{0}")]
    Impossible(String),
    #[error(transparent)]
    Rules(#[from] seaway_announce::Error),
    #[error(transparent)]
    Socket(#[from] io::Error),
}

/// Sockets that the previous process has passed on, by address and protocol.
pub(crate) type InheritedSockets = Mutex<HashMap<SocketKey, Vec<OwnedFd>>>;

type SocketKey = (SocketAddr, L4);

/// Sockets that are about to be closed by the workers.
#[derive(Default)]
pub(crate) struct ClosingSockets(Mutex<HashMap<SocketKey, Vec<Weak<OwnedFd>>>>);

/// Our sockets on 0.0.0.0 or [::], for as long as they are open.
#[derive(Default)]
pub(crate) struct WildcardSockets(Mutex<HashMap<SocketKey, Vec<Weak<OwnedFd>>>>);

impl WildcardSockets {
    pub(crate) fn add(&self, at: SocketAddr, l4: L4, sockets: &[Arc<OwnedFd>]) {
        if at.ip().is_unspecified() {
            let mut wildcard = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            wildcard.insert((at, l4), sockets.iter().map(Arc::downgrade).collect());
        }
    }

    /// One of them has this port of all addresses, so that no stranger can have it of one.
    fn covers(&self, at: SocketAddr, l4: L4) -> bool {
        let all = match at.ip() {
            _ if at.ip().is_unspecified() => return false,
            IpAddr::V4(_) => IpAddr::from(Ipv4Addr::UNSPECIFIED),
            IpAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
        };
        let wildcard = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let sockets = wildcard.get(&(SocketAddr::new(all, at.port()), l4));
        sockets.is_some_and(|it| it.iter().any(|socket| socket.strong_count() > 0))
    }
}

/// A worker does what it is told within a turn of its loop.
const TURN: Duration = Duration::from_millis(500);
/// The kernel closes a socket within this, also where its thread waits for a processor.
const CLOSES: Duration = Duration::from_millis(50);

impl ClosingSockets {
    pub(crate) fn add(&self, at: SocketAddr, l4: L4, sockets: &[Arc<OwnedFd>]) {
        let mut closing = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        closing.retain(|_, sockets| sockets.iter().any(|socket| socket.strong_count() > 0));
        closing.entry((at, l4)).or_default().extend(sockets.iter().map(Arc::downgrade));
    }

    /// Who opens again what was closed a moment ago must not find our own old sockets there. Returns until when
    /// a bind may still fail for one of them: the last reference is dropped a moment before the kernel closes the socket.
    pub(crate) fn wait(&self, at: SocketAddr, l4: L4) -> Option<Instant> {
        let sockets = self.0.lock().unwrap_or_else(PoisonError::into_inner).remove(&(at, l4))?;
        let began = Instant::now();
        for socket in sockets {
            while socket.strong_count() > 0 && began.elapsed() < TURN {
                thread::sleep(Duration::from_micros(100));
            }
        }
        Instant::now().checked_add(CLOSES)
    }
}

/// A socket for each worker, or all that a predecessor had if those are more.
pub(crate) fn sockets(
    at: SocketAddr,
    l4: L4,
    workers: usize,
    adopted: Vec<OwnedFd>,
    closing: Option<Instant>,
    wildcard: &WildcardSockets,
) -> Result<Vec<OwnedFd>, OpenError> {
    if l4 == L4::Udp && !adopted.is_empty() {
        // One more would change which socket the kernel gives a client's datagrams to, and so tear flows apart.
        return Ok(adopted);
    }
    let mut sockets = adopted;
    while sockets.len() < workers {
        let joins = !sockets.is_empty() || wildcard.covers(at, l4);
        let in_use = |error: &io::Error| error.kind() == io::ErrorKind::AddrInUse;
        let socket = match bound(at, l4, joins) {
            Err(error) if !joins && in_use(&error) && only_ours(at, l4) => bound(at, l4, true),
            Err(error) if in_use(&error) && closing.is_some_and(|until| Instant::now() < until) => {
                thread::sleep(Duration::from_micros(100));
                continue;
            }
            result => result,
        };
        sockets.push(socket.map_err(|error| refused(error, at, l4))?);
    }
    if l4 == L4::Tcp {
        for socket in &sockets {
            sys::listen(socket.as_fd(), BACKLOG).map_err(|error| refused(error, at, l4))?;
        }
    }
    Ok(sockets)
}

/// A socket for each worker at a place that nobody else has, to which clients of an address of a pool are steered from then on.
pub(crate) fn steered(
    at: SocketAddr,
    workers: usize,
    steering: &Steering,
) -> Result<Vec<OwnedFd>, SteerError> {
    steering.check_possible().map_err(|why| SteerError::Impossible(why.to_owned()))?;
    let mut place = steering.next_socket_address(at.ip());
    let mut sockets: Vec<OwnedFd> = Vec::new();
    while sockets.len() < workers {
        let socket = match bound(place, L4::Tcp, !sockets.is_empty()) {
            // Another one has the port of all those before: from now on it is another port.
            Err(error) if error.kind() == io::ErrorKind::AddrInUse && sockets.is_empty() => {
                bound(SocketAddr::new(place.ip(), 0), L4::Tcp, false)?
            }
            socket => socket?,
        };
        place =
            sys::local_address(socket.as_fd()).ok_or_else(|| io::Error::from(io::ErrorKind::InvalidInput))?;
        // The kernel steers to no others.
        sys::set_transparent(socket.as_fd(), &place.into())?;
        sockets.push(socket);
    }
    for socket in &sockets {
        sys::listen(socket.as_fd(), BACKLOG)?;
    }
    steering.add(at, place)?;
    Ok(sockets)
}

/// What a predecessor passed on and had steered is steered here as well; `false`: it is not.
pub(crate) fn steered_again(at: SocketAddr, adopted: &[OwnedFd], steering: Option<&Steering>) -> bool {
    let Some(place) = place_elsewhere(at, adopted) else { return true };
    steering.is_some_and(|it| it.add(at, place).is_ok())
}

/// Where sockets for this address listen, if not there.
pub(crate) fn place_elsewhere(at: SocketAddr, adopted: &[OwnedFd]) -> Option<SocketAddr> {
    let place = adopted.first().and_then(|it| sys::local_address(it.as_fd()))?;
    ((place.ip(), place.port()) != (at.ip(), at.port())).then_some(place)
}

/// Whoever has it has it for all addresses: clients of a single one can be steered past.
fn only_wide(at: SocketAddr) -> bool {
    let wildcard = |conflict: &Conflict| conflict.listener.at.ip().is_unspecified();
    conflicts(at, L4::Tcp).is_ok_and(|all| !all.is_empty() && all.iter().all(wildcard))
}

/// Nobody has it. Asking keeps nobody from binding it meanwhile who may do so beside connections of before.
fn is_free(at: SocketAddr) -> bool {
    bound(at, L4::Tcp, false).is_ok()
}

/// Sockets at an address of a pool: elsewhere, where clients can be steered there, so that the port stays the machine's.
pub(crate) fn sockets_past_the_machine(
    at: SocketAddr,
    workers: usize,
    steering: &Steering,
    open: impl FnOnce() -> Result<Vec<OwnedFd>, OpenError>,
) -> Result<Vec<OwnedFd>, OpenError> {
    if steering.has(at) {
        return Err(OpenError::Foreign { at, holder: OWN_PROCESS.into() });
    }
    let elsewhere = || steered(at, workers, steering);
    if steering.is_reserved(at.port()) {
        return elsewhere().map_err(|source| OpenError::Reserved { at, source });
    }
    if steering.is_permanent() && is_free(at) {
        match elsewhere() {
            Ok(sockets) => return Ok(sockets),
            Err(why) => {
                tracing::warn!(%at, %why, "nftables cannot direct clients to another socket: Seaway binds the port itself, so no process of this machine can bind it for all addresses")
            }
        }
    }
    match open() {
        Err(OpenError::Foreign { at, holder }) if only_wide(at) => elsewhere().map_err(|why| {
            tracing::debug!(%at, %why, "nftables cannot direct clients to another socket");
            OpenError::Foreign { at, holder }
        }),
        opened => opened,
    }
}

fn bound(at: SocketAddr, l4: L4, joins: bool) -> io::Result<OwnedFd> {
    let address = KernelAddress::from(at);
    let socket = match l4 {
        L4::Tcp => sys::stream_socket(&address)?,
        L4::Udp => sys::datagram_socket(&address)?,
        L4::Sctp => return Err(io::ErrorKind::Unsupported.into()),
    };
    let fd = socket.as_fd();
    sys::set_free_bind(fd, &address)?;
    if l4 == L4::Tcp {
        // Connections of before that linger must not keep us from listening again.
        sys::set_reuse_address(fd)?;
        sys::set_no_delay(fd)?;
        sys::set_keep_alive(fd)?;
    }
    if joins {
        sys::set_reuse_port(fd)?;
    }
    sys::bind(fd, &address)?;
    if !joins {
        sys::set_reuse_port(fd)?;
    }
    Ok(socket)
}

fn refused(error: io::Error, at: SocketAddr, l4: L4) -> OpenError {
    match error.kind() {
        io::ErrorKind::AddrInUse => match holder(at, l4) {
            Some(holder) => OpenError::Foreign { at, holder },
            None => OpenError::Io { at, source: error },
        },
        io::ErrorKind::PermissionDenied => OpenError::Denied { at },
        _ if error.raw_os_error() == Some(libc::EAFNOSUPPORT) => OpenError::NoFamily { at },
        _ if sys::out_of_descriptors(&error) => OpenError::Exhausted { at },
        _ => OpenError::Io { at, source: error },
    }
}

/// All that is in the way of a socket for all addresses are our own for single ones.
fn only_ours(at: SocketAddr, protocol: L4) -> bool {
    let ours = |conflict: &Conflict| {
        let process = conflict.process.as_ref().map(|it| it.pid);
        process == Some(std::process::id()) && conflict.listener.at.ip() != at.ip()
    };
    at.ip().is_unspecified()
        && conflicts(at, protocol).is_ok_and(|all| !all.is_empty() && all.iter().all(ours))
}

fn conflicts(at: SocketAddr, protocol: L4) -> Result<Vec<Conflict>, seaway_announce::Error> {
    SocketDiagnostics::open()?.conflicts(&[WantedSocket { at, protocol }], &Default::default())
}

/// Who has it, as far as the kernel tells.
fn holder(at: SocketAddr, protocol: L4) -> Option<String> {
    match conflicts(at, protocol) {
        Ok(conflicts) => conflicts.first().map(|conflict| match &conflict.process {
            Some(Process { pid, .. }) if *pid == std::process::id() => OWN_PROCESS.into(),
            Some(process) => process.to_string(),
            None => format!("a process of user {}", conflict.listener.uid),
        }),
        Err(error) => {
            tracing::debug!(%at, %error, "the kernel does not say which process listens");
            None
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, TcpStream};

    use seaway_model::config::ReservedPorts;

    use super::*;

    /// An address of this test alone, on which every port is free.
    const OWN: Ipv4Addr = Ipv4Addr::new(127, 19, 83, 1);

    fn opened(at: SocketAddr, wildcard: &WildcardSockets) -> Result<Vec<Arc<OwnedFd>>, OpenError> {
        let opened: Vec<_> =
            sockets(at, L4::Tcp, 2, Vec::new(), None, wildcard)?.into_iter().map(Arc::new).collect();
        wildcard.add(at, L4::Tcp, &opened);
        Ok(opened)
    }

    fn port_of(sockets: &[Arc<OwnedFd>]) -> u16 {
        sys::local_address(sockets[0].as_fd()).expect("it is bound").port()
    }

    #[test]
    fn a_socket_for_all_addresses_and_one_for_a_single_one_stand_beside_each_other() {
        let wildcard = WildcardSockets::default();
        // Below those that the kernel gives away: it stays ours while nobody has it.
        let mut ports = (10_000..30_000).map(|port| (Ipv4Addr::UNSPECIFIED, port).into());
        let all = ports
            .find_map(|at| sockets(at, L4::Tcp, 1, Vec::new(), None, &wildcard).ok())
            .expect("a free port");
        let all: Vec<_> = all.into_iter().map(Arc::new).collect();
        let port = port_of(&all);
        wildcard.add((Ipv4Addr::UNSPECIFIED, port).into(), L4::Tcp, &all);
        let single = opened((OWN, port).into(), &wildcard).expect("beside it");
        drop(all);
        let again = opened((Ipv4Addr::UNSPECIFIED, port).into(), &wildcard).expect("the other way round");
        drop((single, again));
        assert!(!wildcard.covers((OWN, port).into(), L4::Tcp), "it is closed");
    }

    #[test]
    fn without_steering_reserved_ports_are_left_alone_and_others_are_opened_as_ever() {
        let steering = Steering::unavailable(|port| port == 22, "it is a test");
        let past = |port: u16| {
            let at = SocketAddr::from((OWN, port));
            let wildcard = WildcardSockets::default();
            let open = || sockets(at, L4::Tcp, 1, Vec::new(), None, &wildcard);
            sockets_past_the_machine(at, 1, &steering, open).map(|_| ())
        };
        let refused = past(22).expect_err("it is the machine's");
        assert_eq!(
            refused.to_string(),
            "port 22 is reserved for the machine itself, and nftables cannot redirect clients of \
             127.19.83.1:22 to another socket"
        );
        past(0).expect("opened");
        // What the operator names, too.
        past(19_345).expect("nobody has said so");
        steering.reserve(ReservedPorts::with_additional(vec![19_345..=19_345]));
        assert!(matches!(past(19_345), Err(OpenError::Reserved { .. })));
        let taken = TcpListener::bind((Ipv4Addr::UNSPECIFIED, 0)).expect("bound");
        let port = taken.local_addr().expect("bound").port();
        assert!(matches!(past(port), Err(OpenError::Foreign { .. })), "as before");
    }

    #[test]
    fn who_does_not_share_is_not_joined() {
        let stranger = TcpListener::bind((OWN, 0)).expect("bound");
        let port = stranger.local_addr().expect("bound").port();
        for ip in [Ipv4Addr::UNSPECIFIED, OWN] {
            let refused = opened((ip, port).into(), &WildcardSockets::default()).expect_err("it is taken");
            assert!(matches!(refused, OpenError::Foreign { .. }), "{refused:?}");
        }
    }

    #[test]
    fn an_old_socket_of_ours_that_the_kernel_still_closes_is_waited_for() {
        let old = TcpListener::bind((OWN, 0)).expect("bound");
        let at = old.local_addr().expect("bound");
        let open = |closing| sockets(at, L4::Tcp, 1, Vec::new(), closing, &WildcardSockets::default());
        assert!(open(None).is_err(), "it is taken");
        thread::scope(|scope| {
            let opener = scope.spawn(|| open(Instant::now().checked_add(TURN)).map(|_| ()));
            // It has met the old socket by then.
            thread::park_timeout(Duration::from_millis(20));
            drop(old);
            opener.join().expect("no panic").expect("opened");
        });
    }

    #[test]
    fn a_client_that_vanishes_is_found_out_by_the_kernel() {
        let socket = bound((Ipv4Addr::LOCALHOST, 0).into(), L4::Tcp, false).unwrap();
        sys::listen(socket.as_fd(), 1).unwrap();
        let listener = TcpListener::from(socket);
        let _client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (accepted, _) = listener.accept().unwrap();
        let accepted = socket2::SockRef::from(&accepted);
        assert!(accepted.keepalive().unwrap() && accepted.tcp_nodelay().unwrap());
        assert_eq!(accepted.tcp_keepalive_time().unwrap(), Duration::from_secs(60));
    }
}
