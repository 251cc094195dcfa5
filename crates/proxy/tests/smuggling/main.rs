//! What could be read in two ways, from clients of every kind to members of every kind: what a strict reader refuses
//! reaches no member, and a member hears exactly one proper request for each that is passed on.
#![allow(clippy::unwrap_used)]
#![expect(clippy::print_stderr, reason = "a test tells how often it has tried, and whether it could")]

mod desync;
mod downgrades;
mod frames;
mod lines;
mod many;
mod one;
mod stock;
mod strict;
mod unsolicited;
mod worst;

#[path = "../tcp/stage.rs"]
mod stage;

use std::{
    io::{self, Read, Write},
    net::{Shutdown, SocketAddr, TcpStream},
    sync::Arc,
};

use rcgen::{CertifiedKey, KeyPair};
use rustls::{
    ClientConfig, ClientConnection, RootCertStore, ServerConfig, StreamOwned, pki_types::ServerName,
};
use seaway_model::{
    Kind, ObjectRef, Pool,
    load_balancer::{BackendProtocol, BackendTls, Certificate, Protocol, TlsByName, Trust},
};

use crate::{stage::*, strict::Log};

/// What becomes of a message.
#[derive(Clone, Copy, Debug)]
enum Verdict {
    /// It is answered with this status, the connection ends, and no member hears a byte of it.
    Refused(u16),
    /// The same of a body: a member may have heard the beginning, and never the end.
    Broken(u16),
    /// It ends too early: nobody hears all of it.
    Cut,
    /// Members hear this and then whatever comes next on the connection.
    Passed(&'static [&'static str]),
    /// Members hear this, and the connection ends.
    Last(&'static [&'static str]),
}

/// One way through: how clients come, and how members are asked.
struct Way {
    stage: Stage,
    at: SocketAddr,
    tls: Option<Arc<ClientConfig>>,
    log: Log,
    /// Where TLS ends before the member, if it has none of its own: byte by byte, whatever is in it.
    before: Option<Stage>,
    name: String,
}

/// All of them.
fn ways(alpn: &[u8]) -> Vec<Way> {
    let mut all = Vec::new();
    for tls in [false, true] {
        for protocol in [BackendProtocol::Http1, BackendProtocol::Http2] {
            for onward_tls in [false, true] {
                all.push(Way::new(tls, protocol, onward_tls, alpn));
            }
        }
    }
    all
}

/// A listener, by TLS if there is a certificate.
fn opened(stage: &Stage, protocol: Protocol, certificate: Option<&Certificate>) -> SocketAddr {
    let object = ObjectRef::new(Kind::Secret, "default", "own");
    let (at, _) = stage.open(HERE, |listener| {
        listener.protocol = protocol;
        let tls = || TlsByName { default: vec![object.clone()], ..TlsByName::default() };
        listener.tls = certificate.map(|_| Arc::new(tls()));
    });
    if let Some(certificate) = certificate {
        stage.proxy.put_certificate(&stage.key, &object, &Arc::new(certificate.clone())).unwrap();
    }
    at
}

/// How a member of HTTP/2 ends TLS by itself.
fn own_terms(own: &CertifiedKey<KeyPair>) -> Arc<ServerConfig> {
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let builder = ServerConfig::builder_with_provider(provider);
    let builder = builder.with_safe_default_protocol_versions().unwrap().with_no_client_auth();
    let key = own.signing_key.serialize_der().try_into().unwrap();
    let mut config = builder.with_single_cert(vec![own.cert.der().clone()], key).unwrap();
    config.alpn_protocols = vec![b"h2".to_vec()];
    Arc::new(config)
}

impl Way {
    fn new(tls: bool, protocol: BackendProtocol, onward_tls: bool, alpn: &[u8]) -> Way {
        let own = rcgen::generate_simple_self_signed(["a".to_owned()]).unwrap();
        let certificate = Certificate {
            chain: own.cert.pem().into(),
            key: own.signing_key.serialize_pem().into(),
            authorities: "".into(),
            staple: None,
            users: String::new().into(),
        };
        let many = protocol == BackendProtocol::Http2;
        let log = match many {
            true => strict::many(onward_tls.then(|| own_terms(&own))),
            false => strict::one(),
        };
        let before = (onward_tls && !many).then(|| {
            let stage = Stage::new();
            stage.put(pool(&[log.at]));
            let at = opened(&stage, Protocol::Opaque, Some(&certificate));
            (stage, at)
        });
        let (before, member) = match before {
            Some((stage, at)) => (Some(stage), at),
            None => (None, log.at),
        };
        let stage = Stage::new();
        let onward = BackendTls { name: None, usual: "a".into(), trust: Trust::InsecureSkipVerify };
        stage.put(Pool { protocol, tls: onward_tls.then(|| Arc::new(onward)), ..pool(&[member]) });
        let at = opened(&stage, Protocol::Http, tls.then_some(&certificate));
        let config = tls.then(|| {
            let mut roots = RootCertStore::empty();
            roots.add(own.cert.der().clone()).unwrap();
            let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
            let builder = ClientConfig::builder_with_provider(provider);
            let builder = builder.with_safe_default_protocol_versions().unwrap();
            let mut config = builder.with_root_certificates(roots).with_no_client_auth();
            config.alpn_protocols = vec![alpn.to_vec()];
            Arc::new(config)
        });
        let [from, to] = [tls, onward_tls].map(|tls| if tls { "TLS" } else { "clear" });
        Way { stage, at, tls: config, log, before, name: format!("{from} to {protocol:?} in the {to}") }
    }

    fn dial(&self) -> Line {
        let stream = connect(self.at);
        stream.set_nodelay(true).unwrap();
        match &self.tls {
            None => Line::Clear(stream),
            Some(config) => {
                let name = ServerName::try_from("a").unwrap();
                let connection = ClientConnection::new(config.clone(), name).unwrap();
                Line::Tls(Box::new(StreamOwned::new(connection, stream)))
            }
        }
    }

    /// What members have heard, once nobody says anything more.
    fn heard(self) -> (Vec<String>, usize) {
        let Way { stage, log, before, .. } = self;
        for stage in [Some(&stage), before.as_ref()].into_iter().flatten() {
            stage.proxy.stop_accepting();
            stage.proxy.drain(std::time::Instant::now());
        }
        log.whole()
    }
}

enum Line {
    Clear(TcpStream),
    Tls(Box<StreamOwned<ClientConnection, TcpStream>>),
}

impl Line {
    /// Whoever has refused may not listen any more.
    fn say(&mut self, bytes: &[u8], at_once: bool) {
        let size = if at_once { bytes.len().max(1) } else { 1 };
        for piece in bytes.chunks(size) {
            let said = match self {
                Line::Clear(stream) => stream.write_all(piece),
                Line::Tls(stream) => stream.write_all(piece).and_then(|()| stream.flush()),
            };
            if said.is_err() {
                return;
            }
        }
    }

    fn finish(&mut self) {
        match self {
            Line::Clear(stream) => drop(stream.shutdown(Shutdown::Write)),
            Line::Tls(stream) => {
                stream.conn.send_close_notify();
                let _ = stream.flush();
                let _ = stream.sock.shutdown(Shutdown::Write);
            }
        }
    }

    /// All that comes, however it ends.
    fn rest(&mut self, of: &str) -> Vec<u8> {
        let mut all = Vec::new();
        let mut piece = [0; 4096];
        loop {
            match self.read(&mut piece) {
                Ok(0) => return all,
                Ok(count) => all.extend_from_slice(&piece[..count]),
                Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut) => {
                    panic!("nobody ends it: {}: {of}", String::from_utf8_lossy(&all))
                }
                Err(_) => return all,
            }
        }
    }
}

impl Read for Line {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        match self {
            Line::Clear(stream) => stream.read(into),
            Line::Tls(stream) => stream.read(into),
        }
    }
}
