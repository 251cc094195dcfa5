//! Clients and members that speak HTTP/2.

use std::{
    future::poll_fn,
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::SeqCst},
    },
};

use bytes::Bytes;
use h2::{RecvStream, SendStream, client::SendRequest};
use http::{HeaderMap, Request, Response};
use rustls::{ClientConfig, pki_types::ServerName};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::TcpStream,
    runtime::{Builder, Runtime},
    task::JoinHandle,
};
use tokio_rustls::TlsConnector;

/// One connection, driven in the background.
pub(crate) struct Peer {
    pub(crate) runtime: Runtime,
    pub(crate) requests: SendRequest<Bytes>,
    pub(crate) connection: JoinHandle<Result<(), h2::Error>>,
}

impl Peer {
    pub(crate) fn new(at: SocketAddr) -> Peer {
        Peer::over(async move { TcpStream::connect(at).await.unwrap() })
    }

    /// Through TLS, to the host of that name.
    pub(crate) fn secured(at: SocketAddr, name: &'static str, mut config: ClientConfig) -> Peer {
        config.alpn_protocols = vec![b"h2".to_vec()];
        Peer::over(async move {
            let stream = TcpStream::connect(at).await.unwrap();
            let name = ServerName::try_from(name).unwrap();
            TlsConnector::from(Arc::new(config)).connect(name, stream).await.unwrap()
        })
    }

    fn over<S: AsyncRead + AsyncWrite + Send + Unpin + 'static>(stream: impl Future<Output = S>) -> Peer {
        let runtime = Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let (requests, connection) = runtime.block_on(async {
            let stream = stream.await;
            let mut builder = h2::client::Builder::new();
            builder.initial_window_size(1 << 20).initial_connection_window_size(4 << 20).enable_push(false);
            let (requests, connection) = builder.handshake::<_, Bytes>(stream).await.unwrap();
            (requests, tokio::spawn(connection))
        });
        Peer { runtime, requests, connection }
    }

    pub(crate) fn ask(
        &mut self,
        request: Request<()>,
        body: Option<&[u8]>,
    ) -> Result<(Response<()>, Vec<u8>, HeaderMap), h2::Error> {
        let (answer, to) = self.requests.send_request(request, body.is_none()).unwrap();
        let body = body.map(<[u8]>::to_vec);
        self.runtime.block_on(async {
            // Both at once: who only sends may wait for somebody who waits for him to read.
            if let Some(body) = body {
                tokio::spawn(async move { send(to, &body, None).await });
            }
            let (head, mut from) = answer.await?.into_parts();
            let (body, trailers) = receive(&mut from).await?;
            Ok((Response::from_parts(head, ()), body, trailers))
        })
    }

    pub(crate) fn get(&mut self, path: &str) -> (u16, Vec<u8>) {
        let (head, body, _) = self.ask(get(path), None).unwrap();
        (head.status().as_u16(), body)
    }
}

pub(crate) fn get(path: &str) -> Request<()> {
    Request::get(format!("http://a.example{path}")).body(()).unwrap()
}

pub(crate) async fn send(mut to: SendStream<Bytes>, body: &[u8], trailers: Option<HeaderMap>) {
    let mut rest = body;
    while !rest.is_empty() {
        to.reserve_capacity(rest.len());
        // Who answers before it has heard all may stop listening.
        let Some(Ok(room)) = poll_fn(|cx| to.poll_capacity(cx)).await else { return };
        let (now, later) = rest.split_at(room.min(rest.len()));
        to.send_data(Bytes::copy_from_slice(now), false).unwrap();
        rest = later;
    }
    match trailers {
        Some(trailers) => to.send_trailers(trailers).unwrap(),
        None => to.send_data(Bytes::new(), true).unwrap(),
    }
}

pub(crate) async fn receive(from: &mut RecvStream) -> Result<(Vec<u8>, HeaderMap), h2::Error> {
    let mut body = Vec::new();
    while let Some(bytes) = from.data().await {
        let bytes = bytes?;
        from.flow_control().release_capacity(bytes.len())?;
        body.extend_from_slice(&bytes);
    }
    Ok((body, from.trailers().await?.unwrap_or_default()))
}

/// Of a stream, and of a connection.
const WINDOWS: (u32, u32) = (1 << 20, 4 << 20);

/// A member that answers every stream with what it heard: fields of note, then the body; and a trailer.
pub(crate) struct Echo {
    pub(crate) at: SocketAddr,
    pub(crate) connections: Arc<AtomicUsize>,
    pub(crate) streams: Arc<AtomicUsize>,
    /// Streams that are not over.
    pub(crate) open: Arc<AtomicUsize>,
    _runtime: Runtime,
}

impl Echo {
    /// `streams`: so many on each connection, then it says goodbye.
    pub(crate) fn new(streams: usize) -> Echo {
        Echo::with(streams, WINDOWS, false, "0")
    }

    /// With less room for all of its streams than each has for itself.
    pub(crate) fn narrow() -> Echo {
        Echo::with(usize::MAX, (1 << 20, 65_535), false, "0")
    }

    /// It takes `CONNECT` with a protocol, too.
    pub(crate) fn that_switches() -> Echo {
        Echo::with(usize::MAX, WINDOWS, true, "0")
    }

    /// Its calls of gRPC all end so.
    pub(crate) fn that_ends_with(status: &'static str) -> Echo {
        Echo::with(usize::MAX, WINDOWS, false, status)
    }

    fn with(streams: usize, windows: (u32, u32), switches: bool, status: &'static str) -> Echo {
        let runtime = Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        listener.set_nonblocking(true).unwrap();
        let at = listener.local_addr().unwrap();
        let (connections, count) = (Arc::<AtomicUsize>::default(), Arc::<AtomicUsize>::default());
        let open = Arc::<AtomicUsize>::default();
        let (accepted, answered, lasting) = (connections.clone(), count.clone(), open.clone());
        runtime.spawn(async move {
            let listener = tokio::net::TcpListener::from_std(listener).unwrap();
            while let Ok((stream, _)) = listener.accept().await {
                accepted.fetch_add(1, SeqCst);
                let (answered, lasting) = (answered.clone(), lasting.clone());
                tokio::spawn(async move {
                    let mut builder = h2::server::Builder::new();
                    builder.initial_window_size(windows.0).initial_connection_window_size(windows.1);
                    if switches {
                        builder.enable_connect_protocol();
                    }
                    let mut connection = builder.handshake::<_, Bytes>(stream).await.unwrap();
                    let mut left = streams;
                    while let Some(Ok((request, respond))) = connection.accept().await {
                        answered.fetch_add(1, SeqCst);
                        let lasting = lasting.clone();
                        lasting.fetch_add(1, SeqCst);
                        tokio::spawn(async move {
                            echo(request, respond, status).await;
                            lasting.fetch_sub(1, SeqCst);
                        });
                        left -= 1;
                        if left == 0 {
                            connection.graceful_shutdown();
                        }
                    }
                });
            }
        });
        Echo { at, connections, streams: count, open, _runtime: runtime }
    }
}

async fn echo(
    request: Request<RecvStream>,
    mut respond: h2::server::SendResponse<Bytes>,
    status: &'static str,
) {
    let (head, mut from) = request.into_parts();
    if head.uri.path() == "/sink" {
        while let Some(Ok(bytes)) = from.data().await {
            let _ = from.flow_control().release_capacity(bytes.len());
        }
        return drop(respond.send_response(Response::new(()), true));
    }
    if head.uri.path() == "/endless" {
        let mut to = respond.send_response(Response::new(()), false).unwrap();
        loop {
            to.reserve_capacity(64 << 10);
            let Some(Ok(room)) = poll_fn(|cx| to.poll_capacity(cx)).await else { return };
            if to.send_data(Bytes::from(vec![b'x'; room]), false).is_err() {
                return;
            }
        }
    }
    if head.uri.path() == "/bare" {
        let answer = Response::builder().header("grpc-status", "12").body(()).unwrap();
        respond.send_response(answer, true).unwrap();
        return;
    }
    if head.uri.authority().is_some_and(|it| it.as_str().starts_with("shut.")) {
        let answer = Response::builder().status(403).body(()).unwrap();
        respond.send_response(answer, false).unwrap().send_data(Bytes::from_static(b"no"), true).unwrap();
        // Who opened the stream to send more is to end it.
        while from.data().await.is_some() {}
        return;
    }
    let field = |name: &str| head.headers.get(name).map_or("", |it| it.to_str().unwrap_or("")).to_owned();
    let protocol = head.extensions.get::<h2::ext::Protocol>();
    let told = format!(
        "{}{} {} {} te={} xff={}{}\n",
        head.method,
        protocol.map_or_else(String::new, |it| format!(":{}", it.as_str())),
        head.uri.path(),
        head.uri.authority().map_or("", |it| it.as_str()),
        field("te"),
        field("x-forwarded-for"),
        if head.headers.contains_key("sec-websocket-key") { " and a key" } else { "" },
    );
    let answer = Response::builder().header("content-type", "application/grpc").body(()).unwrap();
    let mut to = respond.send_response(answer, false).unwrap();
    to.send_data(Bytes::from(told), false).unwrap();
    // As it comes: both directions are open at once.
    while let Some(bytes) = from.data().await {
        let Ok(bytes) = bytes else { return };
        let _ = from.flow_control().release_capacity(bytes.len());
        let mut rest = bytes;
        while !rest.is_empty() {
            to.reserve_capacity(rest.len());
            let Some(Ok(room)) = poll_fn(|cx| to.poll_capacity(cx)).await else { return };
            to.send_data(rest.split_to(room.min(rest.len())), false).unwrap();
        }
    }
    if head.method == http::Method::CONNECT {
        // Nothing but bytes is in a tunnel.
        return drop(to.send_data(Bytes::new(), true));
    }
    let mut trailers = HeaderMap::new();
    trailers.insert("grpc-status", status.parse().unwrap());
    for (name, value) in from.trailers().await.ok().flatten().iter().flatten() {
        trailers.insert(name, value.clone());
    }
    let _ = to.send_trailers(trailers);
}
