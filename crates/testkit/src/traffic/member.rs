//! Who answers: by HTTP/1.1, HTTP/2 and gRPC at one port, and as a WebSocket.

use std::{
    io,
    net::{SocketAddr, TcpListener, ToSocketAddrs},
    thread::JoinHandle,
};

use bytes::Bytes;
use h2::RecvStream;
use http::{HeaderMap, HeaderValue, Request, Response};
use tokio::{
    io::{AsyncBufReadExt, AsyncWriteExt, BufReader},
    net::TcpStream,
    sync::oneshot,
};

use super::{
    connection::{frame, send},
    runtime_of_its_own,
};

/// Answers each request with its name. Dropping it ends it, with its connections.
#[derive(Debug)]
pub struct Member {
    pub at: SocketAddr,
    end: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Member {
    pub fn start(name: &str) -> Member {
        Member::start_at(name, "127.0.0.1:0")
    }

    /// In the network of the calling thread.
    pub fn start_at(name: &str, at: impl ToSocketAddrs) -> Member {
        let listener = TcpListener::bind(at).expect("a port");
        listener.set_nonblocking(true).expect("a setting");
        let at = listener.local_addr().expect("it is bound");
        let (runtime, end, thread) = runtime_of_its_own();
        let name: Bytes = name.to_owned().into();
        runtime.spawn(async move {
            let listener = tokio::net::TcpListener::from_std(listener).expect("a listener");
            while let Ok((stream, _)) = listener.accept().await {
                // Whoever goes in the middle is not told.
                let name = name.clone();
                tokio::spawn(async move { drop(serve(stream, &name).await) });
            }
        });
        Member { at, end: Some(end), thread: Some(thread) }
    }
}

impl Drop for Member {
    fn drop(&mut self) {
        drop(self.end.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

async fn serve(stream: TcpStream, name: &Bytes) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let mut first = [0; 3];
    while stream.peek(&mut first).await? < first.len() {
        if stream.peek(&mut first).await? == 0 {
            return Ok(());
        }
        tokio::task::yield_now().await;
    }
    if &first == b"PRI" { serve_http2(stream, name).await } else { serve_http(stream, name).await }
}

async fn serve_http(stream: TcpStream, name: &Bytes) -> io::Result<()> {
    let mut stream = BufReader::new(stream);
    loop {
        let mut head = String::new();
        while !head.ends_with("\r\n\r\n") {
            if stream.read_line(&mut head).await? == 0 {
                return Ok(());
            }
        }
        let head = head.to_ascii_lowercase();
        if head.contains("upgrade: websocket") {
            let agreed = b"HTTP/1.1 101 Go\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\n";
            stream.write_all(agreed).await?;
            let (mut from, mut to) = tokio::io::split(stream);
            tokio::io::copy(&mut from, &mut to).await?;
            return Ok(());
        }
        let ends = head.contains("connection: close");
        let close = if ends { "Connection: close\r\n" } else { "" };
        let answer = format!("HTTP/1.1 200 OK\r\n{close}Content-Length: {}\r\n\r\n", name.len());
        stream.write_all(&[answer.as_bytes(), name].concat()).await?;
        if ends {
            return stream.shutdown().await;
        }
    }
}

async fn serve_http2(stream: TcpStream, name: &Bytes) -> io::Result<()> {
    let mut connection = h2::server::handshake(stream).await.map_err(io::Error::other)?;
    while let Some(Ok((request, respond))) = connection.accept().await {
        let name = name.clone();
        tokio::spawn(async move { drop(answer(request, respond, name).await) });
    }
    Ok(())
}

/// Its name, and then what it hears.
async fn answer(
    request: Request<RecvStream>,
    mut respond: h2::server::SendResponse<Bytes>,
    name: Bytes,
) -> io::Result<()> {
    let (head, mut from) = request.into_parts();
    let kind = head.headers.get("content-type").cloned();
    let is_call = kind.as_ref().is_some_and(|it| it == "application/grpc");
    let mut answer = Response::new(());
    answer.headers_mut().extend(kind.map(|it| (http::header::CONTENT_TYPE, it)));
    let mut to = respond.send_response(answer, false).map_err(io::Error::other)?;
    if !is_call {
        return send(&mut to, name, true).await;
    }
    send(&mut to, frame(&name), false).await?;
    while let Some(bytes) = from.data().await {
        let bytes = bytes.map_err(io::Error::other)?;
        from.flow_control().release_capacity(bytes.len()).map_err(io::Error::other)?;
        send(&mut to, bytes, false).await?;
    }
    let status =
        HeaderMap::from_iter([(http::HeaderName::from_static("grpc-status"), HeaderValue::from_static("0"))]);
    to.send_trailers(status).map_err(io::Error::other)
}
