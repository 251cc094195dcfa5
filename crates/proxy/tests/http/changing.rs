//! Everything changes all the time, and nobody notices.

use std::{
    io::{Read, Write},
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst},
    },
    thread,
    time::{Duration, Instant},
};

use bytes::Bytes;
use http::{Method, Request};
use seaway_model::{
    Listener, Pool, PoolId,
    load_balancer::{Action, BackendProtocol, HostPattern, Protocol, Rule, TlsByName},
};
use seaway_testkit::balancing;

use crate::{peer::*, scene::*, stage::*, tls::*};

const CHANGES: usize = 1_000;

/// Threads that ask until they are told to end. What fails in one of them fails the test.
#[derive(Default)]
struct Load {
    over: Arc<AtomicBool>,
    asked: Arc<AtomicUsize>,
    threads: Vec<thread::JoinHandle<()>>,
}

impl Load {
    fn run(&mut self, mut one: impl FnMut() + Send + 'static) {
        let (over, asked) = (self.over.clone(), self.asked.clone());
        self.threads.push(thread::spawn(move || {
            while !over.load(SeqCst) {
                one();
                asked.fetch_add(1, SeqCst);
            }
        }));
    }

    /// So many more have been answered, unless somebody was not.
    fn goes_on(&self, by: usize) {
        let before = self.asked.load(SeqCst);
        eventually("the load goes on", || {
            self.threads.iter().any(thread::JoinHandle::is_finished) || self.asked.load(SeqCst) >= before + by
        });
        assert!(!self.threads.iter().any(thread::JoinHandle::is_finished), "somebody was not served");
    }

    fn end(self) {
        self.over.store(true, SeqCst);
        self.threads
            .into_iter()
            .for_each(|thread| thread.join().expect("nothing failed and nothing was dropped"));
    }
}

/// Answers requests, each after as long as its work takes, and echoes where a WebSocket is asked for.
fn member(work: Duration) -> Backend {
    Backend::new(HERE, move |mut stream| {
        let mut reader = Reader::new(stream.try_clone().unwrap());
        while let Some(message) = reader.message(false) {
            if message.field("upgrade").is_none() {
                thread::park_timeout(work);
                if stream.write_all(ok("served").as_bytes()).is_err() {
                    return;
                }
                continue;
            }
            let agreed = "HTTP/1.1 101 Go\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\n";
            stream.write_all(agreed.as_bytes()).unwrap();
            let mut buffer = [0; 64];
            while let Ok(count @ 1..) = stream.read(&mut buffer) {
                stream.write_all(&buffer[..count]).unwrap();
            }
            return;
        }
    })
}

fn web_socket(at: SocketAddr) -> impl FnMut() + Send {
    let mut stream = connect(at);
    stream
        .write_all(b"GET /ws HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n")
        .unwrap();
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        stream.read_exact(&mut byte).unwrap();
        head.push(byte[0]);
    }
    assert!(head.starts_with(b"HTTP/1.1 101"));
    move || echoes(&mut stream)
}

/// One call that lasts, and says a word at a time.
fn long_call(at: SocketAddr) -> impl FnMut() + Send {
    stream_of(Peer::new(at), Request::post("http://a/stream").body(()).unwrap())
}

/// A WebSocket that is a stream of HTTP/2.
fn web_socket_stream(at: SocketAddr) -> impl FnMut() + Send {
    let peer = Peer::new(at);
    eventually("the settings have come", || peer.requests.is_extended_connect_protocol_enabled());
    let mut asked = Request::builder().method(Method::CONNECT).uri("http://a/ws").body(()).unwrap();
    asked.extensions_mut().insert(h2::ext::Protocol::from_static("websocket"));
    stream_of(peer, asked)
}

fn stream_of(mut peer: Peer, asked: Request<()>) -> impl FnMut() + Send {
    let (answer, mut to) = peer.requests.send_request(asked, false).unwrap();
    let mut from = peer.runtime.block_on(answer).unwrap().into_body();
    move || {
        peer.runtime.block_on(async {
            to.send_data(Bytes::from_static(b"word\n"), false).unwrap();
            let mut heard = Vec::new();
            while !heard.ends_with(b"word\n") {
                let bytes = from.data().await.expect("it goes on").unwrap();
                from.flow_control().release_capacity(bytes.len()).unwrap();
                heard.extend_from_slice(&bytes);
            }
        });
    }
}

fn rule(pool: &PoolId) -> Rule {
    Rule::forward_all(balancing::owner(), pool.clone())
}

#[test]
fn a_thousand_changes_of_routes_members_and_certificates_fail_nobody() {
    let authority = Authority::new();
    let certificates = ["a.example", "a.example"].map(|name| authority.certificate(name));
    let members = [(); 3].map(|()| member(Duration::ZERO));
    let webs = members.each_ref().map(|it| it.at);
    let calls = [Echo::new(usize::MAX), Echo::new(usize::MAX)];
    let called: Vec<SocketAddr> = calls.iter().map(|it| it.at).collect();
    let stage = Stage::new();
    let many = PoolId("calls".into());
    let put_webs = |members: &[SocketAddr]| {
        stage.put(Pool { protocol: BackendProtocol::Http1, ..pool(members) });
    };
    let put_calls = |members: &[SocketAddr]| {
        stage.put(Pool { id: many.clone(), protocol: BackendProtocol::Http2, ..pool(members) });
    };
    put_webs(&webs);
    put_calls(&called);
    give(&stage, "a", &certificates[0]);
    let http = |listener: &mut Listener| listener.protocol = Protocol::Http;
    let (at, web) = stage.open(HERE, http);
    let (calls_at, call) = stage.open(HERE, |listener| {
        http(listener);
        listener.rules = vec![rule(&many).into()];
    });
    let tls = TlsByName { default: vec![object("a")], ..TlsByName::default() };
    let (tls_at, secured) = stage.open(HERE, |listener| {
        http(listener);
        listener.tls = Some(Arc::new(tls.clone()));
    });
    let mut load = Load::default();
    for _ in 0..2 {
        let mut kept = Client::new(at);
        load.run(move || assert_eq!(kept.get("/x").status(), 200));
        load.run(web_socket(at));
        load.run(web_socket_stream(at));
        load.run(long_call(calls_at));
    }
    load.run(move || assert_eq!(Client::new(at).get("/x").status(), 200));
    let mut caller = Peer::new(calls_at);
    load.run(move || {
        let (head, _, trailers) =
            caller.ask(Request::post("http://a/x").body(()).unwrap(), Some(b"m")).unwrap();
        assert_eq!((head.status().as_u16(), trailers["grpc-status"].as_bytes()), (200, &b"0"[..]));
    });
    let trusted = config(&authority);
    let mut kept = secure(tls_at, "a.example", trusted.clone()).unwrap();
    load.run(move || assert!(crate::tls::get(&mut kept).unwrap().starts_with("HTTP/1.1 200")));
    load.run(move || {
        let mut new = secure(tls_at, "a.example", trusted.clone()).unwrap();
        assert!(crate::tls::get(&mut new).unwrap().starts_with("HTTP/1.1 200"));
    });
    load.goes_on(20);
    for turn in 0..CHANGES {
        match turn % 8 {
            0 => put_webs(&webs[..2]),
            1 => put_calls(&called[turn % 2..][..1]),
            2 => {
                let mut more = web.clone();
                let hosts = vec![HostPattern::Exact(format!("host-{turn}.example").as_str().into())];
                let action = Action::Respond { code: 204, body: "".into() };
                more.rules.insert(0, Rule { hosts, action, ..rule(&balancing::pool_id()) }.into());
                stage.proxy.retune(&stage.key, HERE, Arc::new(more));
            }
            3 => give(&stage, "a", &certificates[turn / 8 % 2]),
            4 => put_webs(&webs),
            5 => put_calls(&called),
            6 => {
                let mut other = call.clone();
                other.timeouts.answer += Duration::from_secs(turn as u64);
                stage.proxy.retune(&stage.key, HERE, Arc::new(other));
            }
            _ => {
                let mut other = secured.clone();
                other.tls = Some(Arc::new(TlsByName { hsts: Some(turn as u32), ..tls.clone() }));
                stage.proxy.retune(&stage.key, HERE, Arc::new(other));
            }
        }
        if turn % 20 == 0 {
            load.goes_on(10);
        }
    }
    load.goes_on(20);
    load.end();
}

#[test]
fn all_members_are_replaced_one_after_another_under_load_and_no_request_fails() {
    const CLIENTS: u32 = 5;
    const RATE: u32 = 500;
    // Somebody is always under way.
    const WORK: Duration = Duration::from_millis(5);
    let mut members: Vec<Backend> = (0..6).map(|_| member(WORK)).collect();
    let places = |members: &[Backend]| members.iter().map(|it| it.at).collect::<Vec<_>>();
    let (stage, at) = front(&places(&members));
    let mut load = Load::default();
    for client in 0..CLIENTS {
        let mut kept = Client::new(at);
        let pace = Duration::from_secs(1) * CLIENTS / RATE;
        let mut due = Instant::now() + pace * client / CLIENTS;
        load.run(move || {
            // Each as many as its share, however long an answer takes.
            while let Some(early) = due.checked_duration_since(Instant::now()) {
                thread::park_timeout(early);
            }
            due += pace;
            let answer = if client == 0 {
                Client::new(at).ask(POST)
            } else {
                kept.ask(if client == 1 { POST } else { GET })
            };
            assert_eq!((answer.status(), &answer.body[..]), (200, &b"served"[..]));
        });
    }
    for _ in 0..members.len() {
        load.goes_on(100);
        members.push(member(WORK));
        let old = members.remove(0);
        stage.put(pool(&places(&members)));
        // As a pod goes: what it has begun it finishes, then it is gone.
        eventually("nobody is with it any more", || {
            let pools = stage.proxy.statistics().pools;
            pools.iter().flat_map(|pool| &pool.members).all(|it| it.at != old.at || it.traffic.current == 0)
        });
        drop(old);
    }
    load.goes_on(200);
    load.end();
    let counted = stage.listener(at);
    assert_eq!(counted.answers, [0, 0, counted.requests, 0, 0, 0]);
}

const GET: &str = "GET /x HTTP/1.1\r\nHost: a\r\n\r\n";
const POST: &str = "POST /x HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nhello";
