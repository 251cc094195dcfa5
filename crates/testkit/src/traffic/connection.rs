//! One connection by which a client asks.

use std::{
    future::poll_fn,
    io,
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
    sync::atomic::{AtomicU16, Ordering},
};

use bytes::{BufMut, Bytes, BytesMut};
use h2::{RecvStream, SendStream, client::SendRequest};
use http::Request;
use tokio::{
    io::{AsyncBufReadExt, AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, BufReader},
    net::{TcpStream, UdpSocket},
    time::timeout,
};

use super::{Kind, Target};

/// What somebody said.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Response {
    /// The name of whoever answered.
    pub from: String,
    /// Of HTTP: the fields of the answer, a line each, with names in lower case.
    pub head: String,
    /// The other side said that this connection ends.
    pub(super) is_last: bool,
}

const WORD: &[u8] = b"a word\n";

pub(super) trait Io: AsyncRead + AsyncWrite + Send + Sync + Unpin {}
impl<T: AsyncRead + AsyncWrite + Send + Sync + Unpin> Io for T {}

pub(super) enum Connection {
    /// Who greeted, or nobody where it was HTTP first.
    Echo(BufReader<Box<dyn Io>>, String),
    Http(BufReader<Box<dyn Io>>),
    Http2(SendRequest<Bytes>),
    Call {
        to: SendStream<Bytes>,
        from: Box<RecvStream>,
        rest: BytesMut,
        name: String,
    },
    Udp(UdpSocket),
}

impl Connection {
    /// Opens one, asks, and sees it end.
    pub(super) async fn ask_once(target: &Target) -> io::Result<Response> {
        within(target, async { Connection::open(target).await?.ask(target).await }).await
    }

    pub(super) async fn open(target: &Target) -> io::Result<Connection> {
        if let Kind::Udp = target.kind {
            let socket = udp_socket(target.at.is_ipv4()).await?;
            socket.connect(target.at).await?;
            return Ok(Connection::Udp(socket));
        }
        let stream = TcpStream::connect(target.at).await?;
        stream.set_nodelay(true)?;
        match &target.kind {
            Kind::Tcp => {
                let mut stream = BufReader::new(Box::new(stream) as Box<dyn Io>);
                let name = line(&mut stream).await?;
                Ok(Connection::Echo(stream, name))
            }
            Kind::Http => Ok(Connection::Http(BufReader::new(Box::new(stream)))),
            Kind::Tls(config) => {
                let name = target.host.clone().try_into().map_err(io::Error::other)?;
                let connector = tokio_rustls::TlsConnector::from(config.clone());
                let stream = connector.connect(name, stream).await?;
                Ok(Connection::Http(BufReader::new(Box::new(stream))))
            }
            Kind::WebSocket => {
                let mut stream = BufReader::new(Box::new(stream) as Box<dyn Io>);
                let asked = "Connection: Upgrade\r\nUpgrade: websocket\r\n";
                let (status, head) = request(&mut stream, target, asked).await?;
                if status != 101 {
                    return Err(io::Error::other(format!("it is not upgraded: {status}\n{head}")));
                }
                Ok(Connection::Echo(stream, String::new()))
            }
            Kind::Http2 | Kind::Grpc => Ok(Connection::Http2(http2(stream).await?)),
            Kind::GrpcStream => {
                let mut requests = http2(stream).await?;
                let (answer, to) = requests.send_request(call(target), false).map_err(io::Error::other)?;
                let mut from = Box::new(answer.await.map_err(io::Error::other)?.into_body());
                let mut rest = BytesMut::new();
                let name = message(&mut from, &mut rest).await?;
                Ok(Connection::Call { to, from, rest, name: text(&name) })
            }
            Kind::Udp => unreachable!("it has no connection"),
        }
    }

    pub(super) async fn ask(&mut self, target: &Target) -> io::Result<Response> {
        match self {
            Connection::Echo(stream, name) => {
                stream.write_all(WORD).await?;
                let mut back = [0; WORD.len()];
                stream.read_exact(&mut back).await?;
                is_the_word(&back)?;
                Ok(Response { from: name.clone(), ..Response::default() })
            }
            Connection::Http(stream) => {
                let more = if target.kept { "" } else { "Connection: close\r\n" };
                let (status, head) = request(stream, target, more).await?;
                let length = field(&head, "content-length").and_then(|it| it.parse().ok()).unwrap_or(0);
                let mut body = vec![0; length];
                stream.read_exact(&mut body).await?;
                if status != 200 {
                    return Err(io::Error::other(format!("status {status}: {}", text(&body))));
                }
                let is_last = field(&head, "connection").is_some_and(|it| it.eq_ignore_ascii_case("close"));
                if !target.kept && stream.read(&mut [0]).await? > 0 {
                    return Err(io::Error::other("more than an answer"));
                }
                // A pod tells who asked, too.
                let from = text(&body).split_whitespace().next().unwrap_or_default().to_owned();
                Ok(Response { from, head, is_last })
            }
            Connection::Http2(requests) => {
                let mut requests = requests.clone().ready().await.map_err(io::Error::other)?;
                if let Kind::Grpc = target.kind {
                    return unary(&mut requests, target).await;
                }
                let asked = Request::get(format!("http://{}/x", target.host)).body(());
                let (answer, _) = requests
                    .send_request(asked.map_err(io::Error::other)?, true)
                    .map_err(io::Error::other)?;
                let (head, mut body) = answer.await.map_err(io::Error::other)?.into_parts();
                let body = all(&mut body).await?;
                if head.status != 200 {
                    return Err(io::Error::other(format!("status {}: {}", head.status, text(&body))));
                }
                Ok(Response { from: text(&body), head: lines(&head.headers), is_last: false })
            }
            Connection::Call { to, from, rest, name } => {
                send(to, frame(WORD), false).await?;
                is_the_word(&message(from, rest).await?)?;
                Ok(Response { from: name.clone(), ..Response::default() })
            }
            Connection::Udp(socket) => {
                socket.send(WORD).await?;
                let mut answer = [0; 256];
                let count = socket.recv(&mut answer).await?;
                let answer = answer.get(..count).unwrap_or_default();
                let from = answer.strip_suffix(WORD).ok_or_else(|| io::Error::other("another datagram"))?;
                Ok(Response { from: text(from), ..Response::default() })
            }
        }
    }

    /// Whether something can be asked, of one on which nothing is under way.
    pub(super) async fn goes_on(&self) -> bool {
        match self {
            Connection::Http2(requests) => requests.clone().ready().await.is_ok(),
            _ => true,
        }
    }
}

/// At a port that was not used for long: whoever uses that of another again goes on with what a load balancer remembers of it.
async fn udp_socket(is_v4: bool) -> io::Result<UdpSocket> {
    static NEXT: AtomicU16 = AtomicU16::new(0);
    let ip = if is_v4 { IpAddr::V4(Ipv4Addr::UNSPECIFIED) } else { IpAddr::V6(Ipv6Addr::UNSPECIFIED) };
    loop {
        // Below those that the kernel gives out.
        let port = 10_000 + NEXT.fetch_add(1, Ordering::Relaxed) % 20_000;
        match UdpSocket::bind((ip, port)).await {
            Err(error) if error.kind() == io::ErrorKind::AddrInUse => {}
            other => return other,
        }
    }
}

pub(super) async fn within<T>(target: &Target, job: impl Future<Output = io::Result<T>>) -> io::Result<T> {
    timeout(target.patience, job).await.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()))
}

fn is_the_word(back: &[u8]) -> io::Result<()> {
    if back == WORD { Ok(()) } else { Err(io::Error::other(format!("{:?} came back", text(back)))) }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).trim().to_owned()
}

async fn line(stream: &mut BufReader<Box<dyn Io>>) -> io::Result<String> {
    let mut line = String::new();
    stream.read_line(&mut line).await?;
    if !line.ends_with('\n') {
        return Err(io::Error::new(io::ErrorKind::UnexpectedEof, format!("it ended after {line:?}")));
    }
    line.truncate(line.trim_end().len());
    Ok(line)
}

/// Status and fields.
async fn request(
    stream: &mut BufReader<Box<dyn Io>>,
    target: &Target,
    more: &str,
) -> io::Result<(u16, String)> {
    let asked = format!("GET /x HTTP/1.1\r\nHost: {}\r\n{more}\r\n", target.host);
    stream.write_all(asked.as_bytes()).await?;
    let first = line(stream).await?;
    let status = first.strip_prefix("HTTP/1.1 ").and_then(|it| it.get(..3)).and_then(|it| it.parse().ok());
    let status = status.ok_or_else(|| io::Error::other(format!("{first:?} is no status")))?;
    let mut head = String::new();
    loop {
        let field = line(stream).await?;
        let Some((name, value)) = field.split_once(':') else { return Ok((status, head)) };
        head.push_str(&format!("{}: {}\n", name.to_ascii_lowercase(), value.trim()));
    }
}

fn field<'a>(head: &'a str, name: &str) -> Option<&'a str> {
    head.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(": "))
}

fn lines(fields: &http::HeaderMap) -> String {
    let line = |(name, value): (&http::HeaderName, &http::HeaderValue)| {
        format!("{name}: {}\n", value.to_str().unwrap_or_default())
    };
    fields.iter().map(line).collect()
}

async fn http2(stream: TcpStream) -> io::Result<SendRequest<Bytes>> {
    let mut builder = h2::client::Builder::new();
    builder.enable_push(false);
    let (requests, connection) = builder.handshake::<_, Bytes>(stream).await.map_err(io::Error::other)?;
    // It ends with the last of those who ask by it.
    tokio::spawn(connection);
    Ok(requests)
}

fn call(target: &Target) -> Request<()> {
    let asked = Request::post(format!("http://{}/shop.Shop/Say", target.host));
    let asked = asked.header("content-type", "application/grpc").header("te", "trailers");
    asked.body(()).expect("host names make requests")
}

async fn unary(requests: &mut SendRequest<Bytes>, target: &Target) -> io::Result<Response> {
    let (answer, mut to) = requests.send_request(call(target), false).map_err(io::Error::other)?;
    send(&mut to, frame(WORD), true).await?;
    let (head, mut from) = answer.await.map_err(io::Error::other)?.into_parts();
    let mut rest = BytesMut::new();
    if head.status != 200 {
        return Err(io::Error::other(format!("status {}", head.status)));
    }
    let name = message(&mut from, &mut rest).await?;
    is_the_word(&message(&mut from, &mut rest).await?)?;
    all(&mut from).await?;
    let trailers = from.trailers().await.map_err(io::Error::other)?.unwrap_or_default();
    if trailers.get("grpc-status").is_none_or(|it| it != "0") {
        return Err(io::Error::other(format!("the call ended with {trailers:?}")));
    }
    Ok(Response { from: text(&name), head: lines(&head.headers), is_last: false })
}

/// A message of gRPC, uncompressed.
pub(super) fn frame(message: &[u8]) -> Bytes {
    let mut frame = BytesMut::with_capacity(message.len() + 5);
    frame.put_u8(0);
    frame.put_u32(message.len() as u32);
    frame.put_slice(message);
    frame.freeze()
}

pub(super) async fn send(to: &mut SendStream<Bytes>, mut bytes: Bytes, ends: bool) -> io::Result<()> {
    while !bytes.is_empty() {
        to.reserve_capacity(bytes.len());
        let room = poll_fn(|cx| to.poll_capacity(cx)).await;
        let room = room.ok_or(io::ErrorKind::BrokenPipe)?.map_err(io::Error::other)?;
        let now = bytes.split_to(room.min(bytes.len()));
        to.send_data(now, ends && bytes.is_empty()).map_err(io::Error::other)?;
    }
    Ok(())
}

/// The next message of gRPC.
async fn message(from: &mut RecvStream, rest: &mut BytesMut) -> io::Result<Bytes> {
    loop {
        if let Some((head, more)) = rest.split_first_chunk::<5>() {
            let length = u32::from_be_bytes([head[1], head[2], head[3], head[4]]) as usize;
            if more.len() >= length {
                return Ok(rest.split_to(5 + length).freeze().slice(5..));
            }
        }
        let bytes = from.data().await.ok_or(io::ErrorKind::UnexpectedEof)?.map_err(io::Error::other)?;
        from.flow_control().release_capacity(bytes.len()).map_err(io::Error::other)?;
        rest.extend_from_slice(&bytes);
    }
}

async fn all(from: &mut RecvStream) -> io::Result<Vec<u8>> {
    let mut all = Vec::new();
    while let Some(bytes) = from.data().await {
        let bytes = bytes.map_err(io::Error::other)?;
        from.flow_control().release_capacity(bytes.len()).map_err(io::Error::other)?;
        all.extend_from_slice(&bytes);
    }
    Ok(all)
}
