//! A thread that speaks HTTP on a socket until it is dropped, for whoever knows what to answer.

use std::{
    convert::Infallible,
    future::Future,
    io,
    net::{IpAddr, SocketAddr},
    thread::{self, JoinHandle},
};

use http_body_util::BodyExt;
use hyper::{
    Request, Response,
    body::{Body, Bytes, Incoming},
    server::conn::http1,
    service::service_fn,
};
use hyper_util::rt::TokioIo;
use tokio::{
    net::{TcpListener, TcpStream},
    runtime::Builder,
    sync::oneshot,
    task::JoinSet,
};

#[derive(Debug)]
pub(crate) struct Server {
    stop: Option<oneshot::Sender<Infallible>>,
    thread: Option<JoinHandle<()>>,
}

/// A socket that listens, before anybody answers.
pub(crate) fn bind(ip: IpAddr) -> io::Result<(std::net::TcpListener, SocketAddr)> {
    let listener = std::net::TcpListener::bind((ip, 0))?;
    listener.set_nonblocking(true)?;
    let address = listener.local_addr()?;
    Ok((listener, address))
}

impl Server {
    /// `name`: of the thread. `serve` ends with it at the latest, and all tasks that it began.
    pub(crate) fn start<F: Future<Output = ()>>(
        name: &str,
        serve: impl FnOnce() -> F + Send + 'static,
    ) -> io::Result<Server> {
        let (stop, stopped) = oneshot::channel::<Infallible>();
        let runtime = Builder::new_current_thread().enable_all().build()?;
        let thread = thread::Builder::new().name(name.to_owned()).spawn(move || {
            runtime.block_on(async {
                tokio::select! {
                    _ = stopped => {}
                    () = serve() => {}
                }
            });
        })?;
        Ok(Server { stop: Some(stop), thread: Some(thread) })
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            // If it panicked, the test that caused it has heard of it by a lost connection.
            _ = thread.join();
        }
    }
}

/// Has every connection conversed with, each by a task.
pub(crate) async fn accept<F: Future<Output = ()> + Send + 'static>(
    listener: std::net::TcpListener,
    converse: impl Fn(TcpStream) -> F,
) {
    let Ok(listener) = TcpListener::from_std(listener) else { return };
    let mut connections = JoinSet::new();
    loop {
        while connections.try_join_next().is_some() {}
        // Out of descriptors, say: the test has greater trouble than this.
        let Ok((stream, _)) = listener.accept().await else { return };
        _ = stream.set_nodelay(true);
        connections.spawn(converse(stream));
    }
}

/// Answers what comes by one connection; it is lost where there is no answer.
pub(crate) async fn converse<B, F>(stream: TcpStream, answer: impl Fn(Request<Incoming>) -> F)
where
    B: Body<Data = Bytes, Error: Into<Box<dyn std::error::Error + Send + Sync>>> + 'static,
    F: Future<Output = Result<Response<B>, ConnectionLost>>,
{
    // An error here is one that a test scripted, or a client that went away.
    _ = http1::Builder::new().serve_connection(TokioIo::new(stream), service_fn(answer)).await;
}

/// All that was sent with a request.
pub(crate) async fn whole(body: Incoming) -> Result<Bytes, ConnectionLost> {
    Ok(body.collect().await.map_err(|_| ConnectionLost)?.to_bytes())
}

/// The connection ends without another word.
#[derive(Debug)]
pub(crate) struct ConnectionLost;

impl std::fmt::Display for ConnectionLost {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("lost on purpose")
    }
}

impl std::error::Error for ConnectionLost {}
