//! What the kernel says of a data plane in a process of its own, whose clients and members are elsewhere: by TLS on
//! both sides, where most of what is held is rustls'.

use std::{
    io::{BufRead, BufReader, Read, Write},
    net::{Shutdown, SocketAddr, TcpStream},
    process::{Child, Command, Stdio},
    sync::{Arc, atomic::Ordering::SeqCst},
    thread,
};

use rustls::{
    ClientConfig, ClientConnection, RootCertStore, StreamOwned,
    pki_types::{CertificateDer, ServerName, pem::PemObject},
};
use seaway_model::{
    Kind, ObjectRef, Pool,
    load_balancer::{BackendProtocol, BackendTls, Certificate, Protocol, TlsByName, Trust},
};
use secrecy::ExposeSecret;

use crate::{
    attacker::{Heard, INITIAL_WINDOW},
    frames::*,
    ground::alone,
    memory::MOST,
    stage::*,
    tunnels::{SWITCH, endless},
};

const MEMBER: &str = "SEAWAY_TEST_MEMBER";
const CHAIN: &str = "SEAWAY_TEST_CHAIN";
const KEY: &str = "SEAWAY_TEST_KEY";
/// For what is not a client's: room for other requests, and what the allocator keeps.
const TOLERATED: usize = 8 << 20;
const CLIENTS: usize = 12;
const STREAMS: u32 = 120;

fn patient(listener: &mut seaway_model::Listener) {
    listener.timeouts.answer = 2 * PATIENCE;
    listener.timeouts.idle = 2 * PATIENCE;
}

fn certificate() -> Certificate {
    let own = rcgen::generate_simple_self_signed(vec!["a.example".to_owned()]).unwrap();
    Certificate {
        chain: own.cert.pem().into(),
        key: own.signing_key.serialize_pem().into(),
        authorities: "".into(),
        staple: None,
        users: String::new().into(),
    }
}

fn anybody() -> Option<Arc<BackendTls>> {
    Some(Arc::new(BackendTls { name: None, usual: "a.example".into(), trust: Trust::InsecureSkipVerify }))
}

/// Ends TLS before this pool.
fn ending_tls(pool: Pool, certificate: Certificate) -> (Stage, SocketAddr) {
    let stage = Stage::with_workers(1);
    stage.put(pool);
    let own = ObjectRef::new(Kind::Secret, "default", "own");
    let (at, _) = stage.open(HERE, |listener| {
        listener.protocol = Protocol::Http;
        listener.tls = Some(Arc::new(TlsByName { default: vec![own.clone()], ..TlsByName::default() }));
        patient(listener);
    });
    stage.proxy.put_certificate(&stage.key, &own, &Arc::new(certificate)).unwrap();
    (stage, at)
}

/// The part of the child: TLS on both sides, until its input ends.
#[test]
#[ignore = "run by another test, in a process of its own"]
fn child() {
    let member = std::env::var(MEMBER).expect("the other test names a member").parse().unwrap();
    let before = Pool { protocol: BackendProtocol::Http1, tls: anybody(), ..pool(&[member]) };
    let [chain, key] = [CHAIN, KEY].map(|name| std::env::var(name).expect("the other test made it"));
    let own = Certificate {
        chain: chain.into(),
        key: key.into(),
        authorities: "".into(),
        staple: None,
        users: String::new().into(),
    };
    let (stage, at) = ending_tls(before, own);
    let mut out = std::io::stdout();
    writeln!(out, "\nserving {at}").unwrap();
    for _ in std::io::stdin().lines().map_while(Result::ok) {
        writeln!(out, "\nheld {}", stage.proxy.statistics().memory.held).unwrap();
    }
}

struct Apart {
    child: Child,
    lines: std::io::Lines<BufReader<std::process::ChildStdout>>,
    at: SocketAddr,
}

impl Apart {
    fn new(member: SocketAddr, own: &Certificate) -> Apart {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "apart::child", "--ignored", "--nocapture", "--test-threads", "1"])
            .env(MEMBER, member.to_string())
            .env(CHAIN, &*own.chain)
            .env(KEY, own.key.expose_secret())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let at = said(&mut lines, "serving ").parse().unwrap();
        Apart { child, lines, at }
    }

    /// Bytes that are resident.
    fn resident(&self) -> usize {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.child.id())).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
        line.trim().strip_suffix(" kB").unwrap().parse::<usize>().unwrap() << 10
    }

    /// Bytes that are accounted for.
    fn held(&mut self) -> usize {
        writeln!(self.child.stdin.as_mut().unwrap(), "held").unwrap();
        said(&mut self.lines, "held ").parse().unwrap()
    }
}

/// A client of HTTP/2 by TLS that takes nothing of what it asks for.
struct Hungry {
    heard: Arc<Heard>,
    stream: TcpStream,
    reader: Option<thread::JoinHandle<()>>,
}

/// Connects by TLS; what is spoken in it is one of these.
fn connect_by_tls(
    at: SocketAddr,
    chain: &str,
    protocols: &[&[u8]],
) -> StreamOwned<ClientConnection, TcpStream> {
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_slice(chain.as_bytes()).unwrap()).unwrap();
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let config = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
    let mut config = config.with_root_certificates(roots).with_no_client_auth();
    config.alpn_protocols = protocols.iter().map(|it| it.to_vec()).collect();
    let name = ServerName::try_from("a.example").unwrap();
    let session = ClientConnection::new(Arc::new(config), name).unwrap();
    StreamOwned::new(session, connect(at))
}

impl Hungry {
    fn new(at: SocketAddr, chain: &str) -> Hungry {
        let mut line = connect_by_tls(at, chain, &[b"h2"]);
        let stream = line.sock.try_clone().unwrap();
        let shut = [&INITIAL_WINDOW.to_be_bytes()[..], &[0; 4]].concat();
        let hello = hello();
        let mut asked = [&hello[..hello.len() - 9], &frame(SETTINGS, 0, 0, &shut)].concat();
        for number in 0..STREAMS {
            let fields: [(&[u8], &[u8]); 4] = [
                (b":method", b"GET"),
                (b":scheme", b"https"),
                (b":authority", b"a.example"),
                (b":path", b"/"),
            ];
            asked.extend(frame(HEADERS, END_HEADERS | END_STREAM, 2 * number + 1, &block(&fields)));
        }
        let heard = Arc::<Heard>::default();
        let told = heard.clone();
        let reader = thread::spawn(move || {
            let _ = line.write_all(&asked);
            while let Some(frame) = next(&mut line) {
                told.heads.fetch_add(usize::from(frame.kind == HEADERS), SeqCst);
                told.good.fetch_add(usize::from(frame.kind == HEADERS && frame.is_ok()), SeqCst);
                told.resets.fetch_add(usize::from(frame.kind == RST_STREAM), SeqCst);
            }
            told.over.store(true, SeqCst);
        });
        Hungry { heard, stream, reader: Some(reader) }
    }
}

impl Drop for Hungry {
    fn drop(&mut self) {
        let _ = self.stream.shutdown(Shutdown::Both);
        if let Some(reader) = self.reader.take() {
            let _ = reader.join();
        }
    }
}

fn said(lines: &mut impl Iterator<Item = std::io::Result<String>>, what: &str) -> String {
    let line = lines.map_while(Result::ok).find_map(|line| line.strip_prefix(what).map(str::to_owned));
    line.expect("the child says it")
}

impl Drop for Apart {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn streams_that_take_nothing_by_tls_are_held_within_the_bound_of_their_connection() {
    let _alone = alone();
    let answers = Backend::new(HERE, |mut stream| {
        let mut buffer = [0; 4096];
        while let Ok(count @ 1..) = stream.read(&mut buffer) {
            if !buffer[..count].ends_with(b"\r\n\r\n") {
                continue;
            }
            let head = b"HTTP/1.1 200 OK\r\nContent-Length: 67108864\r\n\r\n";
            if stream.write_all(&[&head[..], &[b'x'; 64 << 10]].concat()).is_err() {
                return;
            }
            while stream.write_all(&[b'x'; 64 << 10]).is_ok() {}
        }
    });
    let members = Pool { protocol: BackendProtocol::Http1, ..pool(&[answers.at]) };
    let (_members, member) = ending_tls(members, certificate());
    let own = certificate();
    let mut plane = Apart::new(member, &own);
    let before = plane.resident();
    let attackers: Vec<Hungry> = (0..CLIENTS).map(|_| Hungry::new(plane.at, &own.chain)).collect();
    let answered = |it: &Hungry| it.heard.heads.load(SeqCst) + it.heard.resets.load(SeqCst);
    eventually("all are answered or refused", || {
        attackers.iter().all(|it| answered(it) >= STREAMS as usize || it.heard.over.load(SeqCst))
    });
    let good: usize = attackers.iter().map(|it| it.heard.good.load(SeqCst)).sum();
    let heard = |of: fn(&Heard) -> usize| attackers.iter().map(|it| of(&it.heard)).sum::<usize>();
    let (heads, resets) = (heard(|it| it.heads.load(SeqCst)), heard(|it| it.resets.load(SeqCst)));
    assert!(good >= CLIENTS * 10, "{good} of {heads} streams are answered well, {resets} reset");
    let (grown, held) = (plane.resident().saturating_sub(before), plane.held());
    assert!(held < CLIENTS * MOST as usize, "{held} bytes are accounted for");
    assert!(grown < CLIENTS * MOST as usize + TOLERATED, "{grown} bytes are resident");
}

#[test]
fn tunnels_by_tls_of_which_nobody_takes_anything_hold_little() {
    let _alone = alone();
    let own = certificate();
    for asked in [SWITCH, b"CONNECT a:1 HTTP/1.1\r\nHost: a:1\r\n\r\n"] {
        let endless = endless();
        let members = Pool { protocol: BackendProtocol::Http1, ..pool(&[endless.at]) };
        let (_members, member) = ending_tls(members, certificate());
        let mut plane = Apart::new(member, &own);
        let before = plane.resident();
        let clients: Vec<_> = (0..CLIENTS)
            .map(|_| {
                let mut client = connect_by_tls(plane.at, &own.chain, &[b"http/1.1"]);
                client.write_all(asked).unwrap();
                let mut start = [0; 12];
                client.read_exact(&mut start).unwrap();
                assert!(matches!(&start, b"HTTP/1.1 101" | b"HTTP/1.1 200"), "{start:?}");
                client
            })
            .collect();
        let mut last = 0;
        eventually("nothing comes any more", || {
            let held = plane.held();
            held == std::mem::replace(&mut last, held)
        });
        let (grown, held) = (plane.resident().saturating_sub(before), plane.held());
        assert!(held < CLIENTS * MOST as usize, "{held} bytes are accounted for");
        assert!(grown < CLIENTS * MOST as usize + TOLERATED, "{grown} bytes are resident");
        drop(clients);
        eventually("memory is given back", || plane.held() < 1 << 20);
    }
}
