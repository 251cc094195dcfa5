//! Clients that ask at fixed times, whether or not those before were answered (an open loop), and members that answer with
//! their names.
//!
//! ```text
//!   Clients ── Load: Target, Target, …     each due so often a second, each answer and each failure noted
//!      └────── ask: one question now       what a test waits for
//!   Member     TCP port of HTTP/1.1, WebSocket, HTTP/2 and gRPC
//! ```
//!
//! A closed loop asks less where answers are late, so that few requests meet the trouble that a test is about. Here a request
//! is due at its time; how late it was sent is noted, too. Clients and members are in the network of the thread that makes them:
//!
//! ```no_run
//! use seaway_testkit::{topology::Namespace, traffic::{Clients, Kind, Target}};
//!
//! let outside = Namespace::create("outside");
//! let clients = outside.run(Clients::here);
//! let at = "203.0.113.1:80".parse().unwrap();
//! let load = clients.load(vec![Target::new("short", Kind::Http, at).times(500), Target::new("kept", Kind::Tcp, at).keep_alive()]);
//! load.end().was_always_answered();
//! ```

mod connection;
mod load;
mod member;

use std::{
    io,
    net::SocketAddr,
    sync::{Arc, mpsc},
    thread::JoinHandle,
    time::Duration,
};

use rustls::{ClientConfig, RootCertStore, client::Resumption, pki_types::CertificateDer};
use tokio::{runtime, sync::oneshot};

use self::connection::Connection;
pub use self::{
    connection::Response,
    load::{Failure, Load, LoadResults, TargetResults},
    member::Member,
};

/// Who has no answer by then has none, unless a target is more patient.
pub const NO_ANSWER: Duration = Duration::from_secs(5);

/// How a client asks, and what it takes for an answer.
#[derive(Clone, Debug)]
pub enum Kind {
    /// A name is greeted with, and what was sent comes back.
    Tcp,
    /// `GET` by HTTP/1.1 is answered with 200 and a name.
    Http,
    /// The same by TLS, with whom it trusts.
    Tls(Arc<ClientConfig>),
    /// What was sent comes back through a connection that was upgraded.
    WebSocket,
    /// `GET` by HTTP/2 without TLS.
    Http2,
    /// A call of one message each way, and a status.
    Grpc,
    /// A call that lasts: each message comes back.
    GrpcStream,
    /// A datagram comes back after a name.
    Udp,
}

/// What is asked, how, and how often.
#[derive(Clone, Debug)]
pub struct Target {
    pub name: &'static str,
    kind: Kind,
    at: SocketAddr,
    host: String,
    per_second: u32,
    kept: bool,
    patience: Duration,
}

impl Target {
    pub fn new(name: &'static str, kind: Kind, at: SocketAddr) -> Target {
        let host = "shop.example".to_owned();
        Target { name, kind, at, host, per_second: 20, kept: false, patience: NO_ANSWER }
    }

    /// The host name that is asked for, which is of the certificate, too.
    #[must_use]
    pub fn host(mut self, host: &str) -> Target {
        self.host = host.to_owned();
        self
    }

    /// Due so often in each second.
    #[must_use]
    pub fn times(mut self, per_second: u32) -> Target {
        self.per_second = per_second;
        self
    }

    /// Due so many times more rarely, and once a second at least.
    #[must_use]
    pub fn slower(mut self, times: u32) -> Target {
        self.per_second = self.per_second.checked_div(times).unwrap_or_default().max(1);
        self
    }

    /// Waits this long for an answer: where the machine may be busy for seconds, and only what is lost counts.
    #[must_use]
    pub fn patience(mut self, patience: Duration) -> Target {
        self.patience = patience;
        self
    }

    /// One connection for all. It is opened again where the other side said that it ends, and after a failure.
    #[must_use]
    pub fn keep_alive(mut self) -> Target {
        self.kept = true;
        self
    }
}

/// Who trusts these certificates alone, and sees the whole handshake each time.
pub fn trusting(certificates: &[CertificateDer<'static>]) -> Arc<ClientConfig> {
    let mut roots = RootCertStore::empty();
    for certificate in certificates {
        roots.add(certificate.clone()).expect("it can be trusted");
    }
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let config = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
    let mut config = config.expect("versions").with_root_certificates(roots).with_no_client_auth();
    config.resumption = Resumption::disabled();
    Arc::new(config)
}

/// A thread that asks.
#[derive(Debug)]
pub struct Clients {
    runtime: runtime::Handle,
    end: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Clients {
    /// In the network of the calling thread.
    pub fn here() -> Clients {
        let (runtime, end, thread) = runtime_of_its_own();
        Clients { runtime, end: Some(end), thread: Some(thread) }
    }

    /// Asks once, on a new connection.
    pub fn ask(&self, target: &Target) -> io::Result<Response> {
        let (tell, told) = mpsc::channel();
        let target = Target { kept: false, ..target.clone() };
        self.runtime.spawn(async move {
            let _ = tell.send(Connection::ask_once(&target).await);
        });
        told.recv().expect("its thread goes on while this is there")
    }

    /// Whether this one answers.
    pub fn is_answered_by(&self, target: &Target, name: &str) -> bool {
        self.ask(target).is_ok_and(|it| it.from == name)
    }

    /// Begins to ask.
    pub fn load(&self, targets: Vec<Target>) -> Load {
        Load::start(&self.runtime, targets)
    }
}

impl Drop for Clients {
    fn drop(&mut self) {
        drop(self.end.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// A thread begins in the network of whoever starts it; so do its sockets.
fn runtime_of_its_own() -> (runtime::Handle, oneshot::Sender<()>, JoinHandle<()>) {
    let runtime = runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let handle = runtime.handle().clone();
    let (end, ended) = oneshot::channel::<()>();
    let thread = std::thread::spawn(move || {
        let _ = runtime.block_on(ended);
    });
    (handle, end, thread)
}
