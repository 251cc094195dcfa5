//! The listening sockets, and who may hold how much of them.

mod connection_slots;
mod deferred_listener;
mod local;
pub(crate) mod metrics_guard;
mod routes;
mod views;

use std::{
    fmt,
    future::{Future, ready},
    io,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
    path::Path,
    pin::Pin,
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use hyper::{
    rt::{Read, Write},
    server::conn::http1,
    service::service_fn,
};
use hyper_util::rt::{TokioIo, TokioTimer};
use socket2::{Domain, Protocol, Socket, Type};
use thiserror::Error;
use tokio::{
    net::{TcpListener, TcpStream, UnixListener},
    pin,
    sync::watch,
    task::JoinSet,
    time,
};
use tokio_rustls::TlsAcceptor;

pub use self::deferred_listener::ClosedListener;
use self::{
    connection_slots::{ConnectionSlot, ConnectionSlots},
    deferred_listener::DeferredListener,
    metrics_guard::MetricsGuard,
    routes::Routes,
};
use crate::{
    history::MINUTE,
    logging::LogHandle,
    metrics::{Metrics, MetricsSource, SeriesLimits},
    view::View,
};

pub const PORT: u16 = 1936;

/// For a request's head, and between two requests.
const HEADER_TIMEOUT: Duration = Duration::from_secs(5);
const HEADER_BYTES: usize = 16 * 1024;
const HEADERS: usize = 64;
/// A connection is asked to end after this time, so that one that never reads cannot keep its place.
const LIFETIME: Duration = Duration::from_secs(30);
const LAST_ANSWER: Duration = Duration::from_secs(5);
const BACKLOG: i32 = 128;

/// Makes the View that answers one request; it may have to ask other threads first.
pub type ViewSource = Arc<dyn Fn(ViewDetail) -> ViewFuture + Send + Sync>;
pub type ViewFuture = Pin<Box<dyn Future<Output = Arc<View>> + Send>>;

/// How much of a View is wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ViewDetail {
    /// Whether it is ready, and nothing else: asked often, by machines.
    Readiness,
    Whole,
}

/// Why this process is not well, if it is not.
type LivenessCheck = Arc<dyn Fn() -> Option<String> + Send + Sync>;

/// A source that makes its View without waiting for other threads.
pub fn immediate_source(look: impl Fn() -> Arc<View> + Send + Sync + 'static) -> ViewSource {
    Arc::new(move |_| Box::pin(ready(look())))
}

/// Where to listen.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Binding {
    /// Loopback, port 1936, in every family that this machine has.
    #[default]
    Loopback,
    Exactly(Vec<SocketAddr>),
}

#[derive(Debug, Error)]
pub enum BindError {
    /// Somebody has it; perhaps an older Seaway that is still draining.
    #[error(
        "the status page cannot listen on {0}: the address is in use by another process. Stop it, or choose another one: admin: {{listen: [\"127.0.0.1:1937\"]}} in seaway.yaml"
    )]
    InUse(SocketAddr),
    #[error("the status page cannot listen on {address}")]
    Io {
        address: SocketAddr,
        #[source]
        source: io::Error,
    },
}

/// Sockets that listen, before requests are answered.
pub struct BoundSockets {
    listeners: Vec<(TcpListener, SocketAccess)>,
    /// For probes of this process alone.
    local: Option<UnixListener>,
    /// Opened when they can be; none of who does without no socket.
    later: Vec<DeferredListener>,
    is_patient: bool,
    closed: Arc<watch::Sender<Vec<ClosedListener>>>,
    counted: Vec<MetricsSource>,
    series: SeriesLimits,
    minute: Duration,
    fault: LivenessCheck,
    guard: Option<MetricsGuard>,
}

impl fmt::Debug for BoundSockets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Bound").field("listeners", &self.listeners).finish_non_exhaustive()
    }
}

/// What may be asked for at a socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SocketAccess {
    /// What changes something, too, by whoever may.
    All,
    Reading,
    /// Whether it lives and is ready, and nothing else.
    Probes,
    /// `/metrics`, for who may, and nothing else.
    Metrics,
}

impl SocketAccess {
    fn are_of_the_page(self) -> bool {
        matches!(self, SocketAccess::All | SocketAccess::Reading)
    }
}

impl BoundSockets {
    /// Needs a tokio runtime.
    pub fn bind(binding: &Binding) -> Result<BoundSockets, BindError> {
        BoundSockets::nowhere(false).listening(binding)
    }

    /// As above; but what somebody else has is opened when he has gone, and until then told by [`BoundSockets::closed`]: for who
    /// has more to do than to show a page.
    pub fn bind_or_retry(binding: &Binding) -> Result<BoundSockets, BindError> {
        BoundSockets::nowhere(true).listening(binding)
    }

    fn nowhere(is_patient: bool) -> BoundSockets {
        let closed = Arc::new(watch::Sender::new(Vec::new()));
        BoundSockets {
            listeners: Vec::new(),
            local: None,
            later: Vec::new(),
            is_patient,
            closed,
            counted: Vec::new(),
            series: SeriesLimits::default(),
            minute: MINUTE,
            fault: Arc::new(|| None),
            guard: None,
        }
    }

    fn listening(mut self, binding: &Binding) -> Result<BoundSockets, BindError> {
        let grants = SocketAccess::All;
        match binding {
            Binding::Exactly(addresses) => {
                // A socket for [::] takes IPv4 too, unless it is told that somebody else does.
                let is_v4_on = |port| addresses.iter().any(|other| other.is_ipv4() && other.port() == port);
                for &address in addresses {
                    self.open(DeferredListener { address, only_v6: is_v4_on(address.port()), grants })?;
                }
            }
            Binding::Loopback => {
                let address = (Ipv4Addr::LOCALHOST, PORT).into();
                self.open(DeferredListener { address, only_v6: false, grants })?;
                let wanted =
                    DeferredListener { address: (Ipv6Addr::LOCALHOST, PORT).into(), only_v6: true, grants };
                match wanted.open() {
                    Err(BindError::Io { source, .. }) if is_family_absent(&source) => {}
                    opened => self.note(wanted, opened)?,
                }
            }
        }
        Ok(self)
    }

    fn open(&mut self, wanted: DeferredListener) -> Result<(), BindError> {
        let opened = wanted.open();
        self.note(wanted, opened)
    }

    fn note(
        &mut self,
        wanted: DeferredListener,
        opened: Result<TcpListener, BindError>,
    ) -> Result<(), BindError> {
        match opened {
            Ok(listener) => self.listeners.push((listener, wanted.grants)),
            Err(error) if self.is_patient => {
                self.closed.send_modify(|it| it.push(wanted.closed(&error)));
                self.later.push(wanted);
            }
            Err(error) => return Err(error),
        }
        Ok(())
    }

    /// Listens there, too, at the same port, for whoever reads. Where it is listened already, that is enough: nobody
    /// but this machine may change anything.
    pub fn with_read_only_listener(mut self, at: IpAddr) -> Result<BoundSockets, BindError> {
        let addresses = self.wanted_addresses();
        let family = |it: &SocketAddr| it.ip().is_unspecified() && it.is_ipv4() == at.is_ipv4();
        if addresses.iter().any(|it| it.ip() == at || family(it)) {
            return Ok(self);
        }
        let address = (at, addresses.first().map_or(PORT, SocketAddr::port)).into();
        self.open(DeferredListener { address, only_v6: true, grants: SocketAccess::Reading })?;
        Ok(self)
    }

    /// Answers `/live` and `/ready` there, and nothing else: whatever others do with the status page.
    pub fn with_probe_listener(mut self, at: SocketAddr) -> Result<BoundSockets, BindError> {
        self.open(DeferredListener { address: at, only_v6: true, grants: SocketAccess::Probes })?;
        Ok(self)
    }

    /// As above, over a socket at this path, which a process of before may have left there. Only its user may connect.
    pub fn with_probe_socket(mut self, path: &Path) -> io::Result<BoundSockets> {
        self.local = Some(local::listen(path)?);
        Ok(self)
    }

    /// Answers `/metrics` there by TLS, for whoever may read them, and nothing else.
    pub fn with_metrics_listeners(
        mut self,
        at: &[SocketAddr],
        guard: MetricsGuard,
    ) -> Result<BoundSockets, BindError> {
        self.guard = Some(guard);
        for &address in at {
            let only_v6 = at.iter().any(|other| other.is_ipv4() && other.port() == address.port());
            self.open(DeferredListener { address, only_v6, grants: SocketAccess::Metrics })?;
        }
        Ok(self)
    }

    /// The addresses that should be listened at and are not, from now on.
    pub fn closed_listeners(&self) -> watch::Receiver<Vec<ClosedListener>> {
        self.closed.subscribe()
    }

    /// Shows at `/metrics` what somebody else counts, too.
    pub fn with_metrics_source(mut self, counted: MetricsSource) -> BoundSockets {
        self.counted.push(counted);
        self
    }

    /// How many Services and members have series of their own at `/metrics`.
    pub fn with_series_limits(mut self, series: SeriesLimits) -> BoundSockets {
        self.series = series;
        self
    }

    /// How long a bar of the last hour is: for tests, which do not wait for minutes.
    pub fn with_history_interval(mut self, minute: Duration) -> BoundSockets {
        self.minute = minute;
        self
    }

    /// `/live` asks whether a part of this process hangs or has ended.
    pub fn with_liveness_check(
        mut self,
        fault: impl Fn() -> Option<String> + Send + Sync + 'static,
    ) -> BoundSockets {
        self.fault = Arc::new(fault);
        self
    }

    /// The addresses of the status page.
    pub fn addresses(&self) -> Vec<SocketAddr> {
        let pages = self.listeners.iter().filter(|(_, grants)| grants.are_of_the_page());
        pages.filter_map(|(listener, _)| listener.local_addr().ok()).collect()
    }

    /// As above, with those that another process has now, which are opened once it has gone.
    pub fn wanted_addresses(&self) -> Vec<SocketAddr> {
        let later = self.later.iter().filter(|it| it.grants.are_of_the_page()).map(|it| it.address);
        self.addresses().into_iter().chain(later).collect()
    }

    /// The addresses of the probes `/live` and `/ready` alone.
    pub fn probe_addresses(&self) -> Vec<SocketAddr> {
        let probes = self.listeners.iter().filter(|(_, grants)| *grants == SocketAccess::Probes);
        probes.filter_map(|(listener, _)| listener.local_addr().ok()).collect()
    }

    /// The addresses of metrics by TLS.
    pub fn metrics_addresses(&self) -> Vec<SocketAddr> {
        let guarded = self.listeners.iter().filter(|(_, grants)| *grants == SocketAccess::Metrics);
        guarded.filter_map(|(listener, _)| listener.local_addr().ok()).collect()
    }

    /// Answers until the returned value is dropped.
    pub fn serve(self, source: ViewSource, log: LogHandle) -> Admin {
        let addresses = self.addresses();
        let routes = Arc::new(Routes::new(
            source,
            log,
            Metrics::new(self.counted, self.series),
            self.fault,
            self.guard,
        ));
        // Whoever fills the page, or shakes hands without end, does not fill the places of probes.
        let (places, of_probes, of_metrics) =
            (ConnectionSlots::new(), ConnectionSlots::new(), ConnectionSlots::new());
        let places_of = |grants| {
            Arc::clone(match grants {
                SocketAccess::Probes => &of_probes,
                SocketAccess::Metrics => &of_metrics,
                SocketAccess::All | SocketAccess::Reading => &places,
            })
        };
        let mut tasks = JoinSet::new();
        tasks.spawn(turn_minutes(Arc::clone(&routes), self.minute));
        for (listener, grants) in self.listeners {
            tasks.spawn(accept(listener, grants, Arc::clone(&routes), places_of(grants)));
        }
        for wanted in self.later {
            let (routes, places, closed) =
                (Arc::clone(&routes), places_of(wanted.grants), Arc::clone(&self.closed));
            tasks.spawn(async move {
                let listener = wanted.open_later(closed).await;
                accept(listener, wanted.grants, routes, places).await;
            });
        }
        let mut of_process = JoinSet::new();
        if let Some(listener) = self.local {
            of_process.spawn(local::accept(listener, routes));
        }
        Admin { addresses, tasks, of_process }
    }
}

/// The running pages. Dropping it closes sockets and connections.
#[derive(Debug)]
pub struct Admin {
    addresses: Vec<SocketAddr>,
    tasks: JoinSet<()>,
    /// The probes over a socket of its own.
    of_process: JoinSet<()>,
}

impl Admin {
    /// As bound: with the port that the kernel chose where 0 was asked for.
    pub fn addresses(&self) -> &[SocketAddr] {
        &self.addresses
    }

    /// Returns once the sockets are closed, so that a successor may bind them.
    pub async fn stop(mut self) {
        self.close_pages().await;
        self.of_process.shutdown().await;
    }

    /// As above, but [`BoundSockets::with_probe_socket`] is still answered.
    pub async fn close_pages(&mut self) {
        self.tasks.shutdown().await;
    }
}

fn listen(address: SocketAddr, only_v6: bool) -> Result<TcpListener, BindError> {
    let open = || {
        let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
        if address.is_ipv6() {
            socket.set_only_v6(only_v6)?;
        }
        // Or connections of a process that just ended would keep its successor from binding.
        socket.set_reuse_address(true)?;
        socket.set_nonblocking(true)?;
        socket.bind(&address.into())?;
        socket.listen(BACKLOG)?;
        TcpListener::from_std(socket.into())
    };
    open().map_err(|source| match source.kind() {
        io::ErrorKind::AddrInUse => BindError::InUse(address),
        _ => BindError::Io { address, source },
    })
}

/// No IPv6 in this kernel, or no ::1 on this machine.
fn is_family_absent(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::AddrNotAvailable | io::ErrorKind::Unsupported)
        || error.raw_os_error() == Some(nix::errno::Errno::EAFNOSUPPORT as i32)
}

async fn turn_minutes(routes: Arc<Routes>, minute: Duration) {
    loop {
        time::sleep(minute).await;
        routes.end_minute().await;
    }
}

async fn accept(socket: TcpListener, grants: SocketAccess, routes: Arc<Routes>, slots: Arc<ConnectionSlots>) {
    let mut connections = JoinSet::new();
    let mut failing = false;
    loop {
        while connections.try_join_next().is_some() {}
        match socket.accept().await {
            Ok((stream, peer)) => {
                failing = false;
                // Not queued: a queue full of whoever has too many would keep out all others.
                let place = slots.take(peer.ip());
                connections.spawn(converse(stream, peer, grants, Arc::clone(&routes), place));
            }
            Err(error) => {
                if !std::mem::replace(&mut failing, true) {
                    tracing::warn!(%error, "the status page cannot accept connections for now");
                }
                // Out of descriptors: without a pause this would spin.
                time::sleep(Duration::from_millis(100)).await;
            }
        }
    }
}

async fn converse(
    stream: TcpStream,
    peer: SocketAddr,
    grants: SocketAccess,
    routes: Arc<Routes>,
    mut place: ConnectionSlot,
) {
    let tls = if grants == SocketAccess::Metrics { routes.tls() } else { None };
    match tls {
        Some(tls) => {
            let shaken = tokio::select! {
                shaken = time::timeout(HEADER_TIMEOUT, TlsAcceptor::from(tls).accept(stream)) => shaken,
                () = place.until_evicted() => return,
            };
            if let Ok(Ok(stream)) = shaken {
                talk(TokioIo::new(stream), peer, grants, routes, place).await;
            }
        }
        None if grants == SocketAccess::Metrics => {}
        None => talk(TokioIo::new(stream), peer, grants, routes, place).await,
    }
}

async fn talk<S: Read + Write + Unpin>(
    stream: S,
    peer: SocketAddr,
    grants: SocketAccess,
    routes: Arc<Routes>,
    mut place: ConnectionSlot,
) {
    let busy = place.busy_flag();
    let service = service_fn(move |request| {
        let (routes, busy) = (Arc::clone(&routes), Arc::clone(&busy));
        async move {
            busy.store(true, Ordering::Relaxed);
            let answer = routes.answer(peer, grants, request).await;
            busy.store(false, Ordering::Relaxed);
            Ok::<_, std::convert::Infallible>(answer)
        }
    });
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEADER_TIMEOUT)
        .max_buf_size(HEADER_BYTES)
        .max_headers(HEADERS)
        .serve_connection(stream, service);
    pin!(connection);
    let whole = async {
        if time::timeout(LIFETIME, connection.as_mut()).await.is_err() {
            connection.as_mut().graceful_shutdown();
            // Whoever has not read its last answer by now never will.
            _ = time::timeout(LAST_ANSWER, connection).await;
        }
    };
    tokio::select! {
        () = whole => {}
        () = place.until_evicted() => {}
    }
}
