//! What comes before the first request of an accepted connection: PROXY header, TLS handshake, and which HTTP the client speaks.

use std::{
    cell::Cell,
    future::poll_fn,
    io,
    net::SocketAddr,
    rc::Rc,
    sync::{Arc, atomic::Ordering::Relaxed},
    task::{Poll, ready},
    time::Duration,
};

use rustls::{ProtocolVersion, ServerConnection};
use seaway_model::load_balancer::{Protocol, Timeouts};
use seaway_wire::{
    hello::{self, ClientHello, HelloProgress},
    http::Limits,
    proxy::{self, Parsed},
};

use super::{
    heads::ForwardedClient, passthrough, scratch::Scratch, serve::DownstreamClient, session::Session,
    stream::Stream, streams, task_state::TaskState, transport::HttpTransport, worker_context::WorkerContext,
};
use crate::{
    access::RefusedClient,
    hops::{self, MOST_HOPS},
    listening_sockets::AcceptedConnection,
    memory::{ConnectionMemory, Reservation},
    proxy_state::ProxyState,
    reach,
    running::{RefusalReason, RunningListener},
    tls::{ListenerTls, RequestedClientAuth, ServerTlsConfig, TlsAlpnChallenges},
};

/// The connection of a client, the same for all its requests.
pub(super) struct DownstreamConnection {
    pub(super) peer: SocketAddr,
    /// The address that the client connected to.
    pub(super) destination: Option<SocketAddr>,
    /// What members are told of how many of us it came through.
    pub(super) hops: u8,
    pub(super) listener: Arc<RunningListener>,
    pub(super) told: ForwardedClient,
    /// The configuration of TLS, where it ends here.
    pub(super) listener_tls: Option<Arc<ListenerTls>>,
    /// The authorities by which the client was asked for a certificate, and by which its own was verified.
    pub(super) asked_by: Option<RequestedClientAuth>,
    pub(super) is_tls_1_2: bool,
    /// What it holds, with all its streams.
    pub(super) memory: Rc<ConnectionMemory>,
    /// Of that, what the connection itself holds.
    held: Reservation,
    shared: Arc<ProxyState>,
    /// Bodies that are compressed for it.
    pub(super) compressed: Cell<u8>,
    /// When it was accepted.
    pub(super) came: u64,
}

/// What a connection holds before anything has come, and what a session of TLS holds beside it.
const OF_CONNECTION: usize = 4 << 10;
const OF_TLS: usize = 12 << 10;

/// As long as it lives, the listener and the process count it.
impl Drop for DownstreamConnection {
    fn drop(&mut self) {
        self.memory.leave();
        self.listener.leave();
        self.shared.connection_ended();
    }
}

impl DownstreamConnection {
    pub(super) fn timeout(&self, which: impl Fn(&Timeouts) -> Duration) -> u64 {
        which(&self.listener.config().listener.timeouts).as_millis() as u64
    }

    /// As members are told it.
    pub(super) fn certificate(&self, is_verified: bool) -> Option<&[u8]> {
        self.told.certificate.as_deref().filter(|_| is_verified)
    }

    pub(super) fn hold_more(&self, bytes: usize) {
        self.held.add(bytes);
    }

    /// It is turned away: too much is held already.
    pub(super) fn refuse_for_memory(&self) {
        self.listener.refuse(RefusalReason::Resources);
        self.shared.memory.refused.fetch_add(1, Relaxed);
    }

    /// Refuses the client.
    fn turn_away(&self, context: &WorkerContext, why: RefusalReason) {
        self.listener.refuse(why);
        context.turned_away(&RefusedClient { peer: self.peer, listener: self.listener.clone(), why });
    }

    /// Of a request's head.
    pub(super) fn limits(&self) -> Limits {
        let limits = self.listener.config().listener.http.limits;
        Limits {
            head: limits.head as usize,
            target: limits.target as usize,
            fields: usize::from(limits.fields),
        }
    }
}

pub(super) async fn serve_connection(
    context: Rc<WorkerContext>,
    task_state: Rc<TaskState>,
    accepted: AcceptedConnection,
) {
    let AcceptedConnection { fd, peer, listener, trusted, .. } = accepted;
    let told = ForwardedClient::new(peer, listener.at.port(), false);
    let shared = context.shared.clone();
    let memory = context.memory.connection(context.now());
    task_state.hold(memory.clone());
    let held = memory.reserve(OF_CONNECTION);
    let mut downstream = DownstreamConnection {
        peer,
        destination: None,
        hops: 0,
        listener,
        told,
        listener_tls: None,
        asked_by: None,
        is_tls_1_2: false,
        memory,
        held,
        shared,
        compressed: Cell::new(0),
        came: context.now(),
    };
    let mut stream = match context.watch(fd, task_state.index()) {
        Ok(stream) => stream,
        Err(error) => return context.shared.out_of_descriptors(&error),
    };
    task_state.set_deadline(context.now().saturating_add(downstream.timeout(|it| it.header)));
    let (mut begun, mut server_name) = (None, None);
    if trusted {
        let mut scratch = context.scratch();
        if let Err(refusal) = introduced(&mut downstream, &stream, &mut scratch).await {
            downstream.turn_away(&context, refusal);
            return stream.reset();
        }
        begun = (!scratch.asked.is_empty()).then_some(scratch);
    }
    downstream.destination = downstream
        .destination
        .or_else(|| Some(reach::local_destination(stream.fd(), downstream.listener.at)));
    let config = downstream.listener.config_owned();
    if let Some(tls) = &config.listener.tls
        && (config.passthrough.is_some()
            || config.validations.is_some()
            || config.listener_tls.as_ref().is_some_and(|it| it.has_hosts()))
    {
        let mut scratch = begun.take().unwrap_or_else(|| context.scratch());
        let is_lenient = config.passthrough.is_none() && config.validations.is_none();
        let hello = match asked(&stream, &mut scratch).await {
            Ok(hello) => hello,
            // It is spoken with as with those who name no host, if it speaks TLS at all: each request is judged by itself.
            Err(_) if is_lenient => ClientHello::default(),
            Err(why) => {
                tracing::debug!(listener = %downstream.listener.at, peer = %downstream.peer, why, "no TLS");
                return downstream.turn_away(&context, RefusalReason::Tls);
            }
        };
        let name = hello.name.as_deref();
        let validations = config.validations.as_ref().filter(|_| hello.is_validation);
        if let Some(validations) = validations.filter(|it| name.is_some_and(|name| it.is_of(name))) {
            return validated(&downstream, stream, validations, &scratch).await;
        }
        let passthrough = config.passthrough.as_ref();
        if let Some(choice) = name.and_then(|name| passthrough?.choice(name, tls)) {
            let number = context.cursors().draw();
            let pool = choice.pool(|| number).cloned();
            let (end, downstream) = (HttpTransport::Wire(stream), Rc::new(downstream));
            let held = downstream.memory.reserve(0);
            let client =
                DownstreamClient { context, task_state, end, downstream, limit: Cell::new(u64::MAX), held };
            return passthrough::pass_to(&client, pool, Some(scratch)).await;
        }
        (begun, server_name) = (Some(scratch), hello.name);
    }
    let mut h2 = false;
    if config.listener.tls.is_some() {
        // Without it no client is served: what is asked for in TLS is never answered in plaintext.
        let Some(listener_tls) = config.listener_tls.clone() else {
            return downstream.turn_away(&context, RefusalReason::Tls);
        };
        let Some(handshake) = listener_tls.handshake(server_name.as_deref()) else {
            return downstream.turn_away(&context, RefusalReason::Tls);
        };
        let early = begun.take();
        downstream.listener_tls = Some(listener_tls);
        match secured(&mut downstream, &mut stream, &handshake, early.as_deref()).await {
            Ok(is_http_2) => h2 = is_http_2,
            Err(error) => {
                tracing::debug!(listener = %downstream.listener.at, peer = %downstream.peer, %error, "no TLS");
                return downstream.turn_away(&context, RefusalReason::Tls);
            }
        }
        early.into_iter().for_each(|scratch| context.put_back(scratch));
    }
    let mut proxies = config.listener.http.trusted.iter();
    downstream.told.believed = proxies.any(|range| range.contains(&downstream.peer.ip()));
    let protocol = config.listener.protocol;
    drop(config);
    let downstream = Rc::new(downstream);
    if h2 {
        return streams::serve(context, task_state, downstream, stream, None).await;
    }
    let held = downstream.memory.reserve(0);
    let client = DownstreamClient {
        context,
        task_state,
        end: HttpTransport::Wire(stream),
        downstream,
        limit: Cell::new(u64::MAX),
        held,
    };
    if protocol == Protocol::Opaque {
        return passthrough::pass_through(&client).await;
    }
    client.serve(begun).await;
}

/// Reads the PROXY header that trusted peers must send first.
async fn introduced(
    downstream: &mut DownstreamConnection,
    stream: &Stream,
    scratch: &mut Scratch,
) -> Result<(), RefusalReason> {
    let header = poll_fn(|_| {
        loop {
            match proxy::parse(scratch.asked.filled()) {
                Parsed::Header(header) => {
                    let hops = hops::received(&header);
                    return Poll::Ready(Some((header.length, header.source(), header.destination(), hops)));
                }
                Parsed::Need(_) => {}
                Parsed::Invalid(_) => return Poll::Ready(None),
            }
            match ready!(scratch.asked.poll_fill(stream)) {
                Ok(1..) => {}
                _ => return Poll::Ready(None),
            }
        }
    });
    let (length, source, destination, hops) = header.await.ok_or(RefusalReason::Header)?;
    if hops >= MOST_HOPS {
        downstream.shared.report_loop(downstream.listener.at);
        return Err(RefusalReason::Loop);
    }
    downstream.hops = hops.saturating_add(1);
    scratch.asked.consume(length);
    if let Some(source) = source {
        downstream.peer = source;
        downstream.destination = destination;
        downstream.told = ForwardedClient::new(source, downstream.listener.at.port(), false);
    }
    if downstream.listener.config().admits(downstream.peer.ip()) {
        Ok(())
    } else {
        Err(RefusalReason::Source)
    }
}

/// Whom the client wants to speak with by TLS. What it says stays where it is.
async fn asked(stream: &Stream, scratch: &mut Scratch) -> Result<ClientHello, &'static str> {
    poll_fn(|_| {
        loop {
            match hello::read(scratch.asked.filled()) {
                HelloProgress::Is(asked) => return Poll::Ready(Ok(asked)),
                HelloProgress::Refused(why) => return Poll::Ready(Err(why)),
                HelloProgress::More if scratch.asked.is_full() => {
                    return Poll::Ready(Err("the TLS ClientHello is too large"));
                }
                HelloProgress::More => {}
            }
            match ready!(scratch.asked.poll_fill(stream)) {
                Ok(1..) => {}
                Ok(0) => return Poll::Ready(Err("the connection ended before the TLS ClientHello")),
                Err(_) => {
                    return Poll::Ready(Err("no TLS ClientHello came in time, or the connection broke"));
                }
            }
        }
    })
    .await
}

/// A certificate authority sees what it came for, and nothing follows (RFC 8737, section 3).
async fn validated(
    downstream: &DownstreamConnection,
    mut stream: Stream,
    validations: &TlsAlpnChallenges,
    early: &Scratch,
) {
    let shaking = async {
        let connection = ServerConnection::new(validations.config.clone()).map_err(io::Error::other)?;
        let session = Session::new(connection).receive(&stream, early.asked.filled()).await?;
        downstream.hold_more(OF_TLS);
        stream.start_tls(session).await?;
        stream.part();
        io::Result::Ok(())
    };
    if let Err(error) = shaking.await {
        tracing::debug!(listener = %downstream.listener.at, peer = %downstream.peer, %error, "a host name is not checked");
        downstream.listener.refuse(RefusalReason::Tls);
    }
}

/// Tells whether HTTP/2 was agreed on. What came `early` is the beginning of the hello.
async fn secured(
    downstream: &mut DownstreamConnection,
    stream: &mut Stream,
    handshake: &ServerTlsConfig,
    early: Option<&Scratch>,
) -> io::Result<bool> {
    let connection = ServerConnection::new(handshake.config.clone()).map_err(io::Error::other)?;
    let mut session = Session::new(connection);
    if let Some(scratch) = early {
        session = session.receive(stream, scratch.asked.filled()).await?;
    }
    downstream.hold_more(OF_TLS);
    stream.start_tls(session).await?;
    downstream.told = ForwardedClient::new(downstream.peer, downstream.listener.at.port(), true);
    let mut h2 = false;
    if let Some(session) = stream.session() {
        if let Some([certificate, ..]) = session.connection().peer_certificates() {
            downstream.told = ForwardedClient::new(downstream.peer, downstream.listener.at.port(), true)
                .with_certificate(certificate);
        }
        h2 = session.connection().alpn_protocol() == Some(b"h2");
        downstream.is_tls_1_2 = session.connection().protocol_version() == Some(ProtocolVersion::TLSv1_2);
    }
    downstream.asked_by = handshake.asks_by();
    Ok(h2)
}
