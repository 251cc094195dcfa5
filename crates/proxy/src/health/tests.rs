//! The prober against real sockets, in both families.

mod grpc;
mod resting;

use std::{
    io::{Read, Write},
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, UdpSocket},
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst},
        mpsc,
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use seaway_model::{
    Kind, LbKey, ObjectRef, Owner, Pool, PoolId,
    load_balancer::{CheckKind, HealthCheck, PassiveHealthCheck, ProxyVersion},
};
use seaway_snapshot::MemberAvailability;
use seaway_testkit::balancing::pool;

use super::*;
use crate::{
    running::{Health, RunningMember, RunningPool},
    sys,
};

const FAMILIES: [IpAddr; 2] = [IpAddr::V4(Ipv4Addr::LOCALHOST), IpAddr::V6(Ipv6Addr::LOCALHOST)];

/// A prober with one pool.
struct CheckRegistry {
    prober: Prober,
    pool: Pool,
    running: Arc<RunningPool>,
}

impl CheckRegistry {
    fn new(kind: CheckKind, members: &[SocketAddr], change: impl FnOnce(&mut Pool)) -> CheckRegistry {
        let mut pool = pool(members);
        pool.health = Some(HealthCheck {
            kind,
            port: None,
            interval: Duration::from_millis(20),
            timeout: Duration::from_millis(200),
            rise: 2,
            fall: 2,
            while_used: false,
        });
        change(&mut pool);
        let running = RunningPool::empty(LbKey::Whole, pool.id.clone());
        let check_registry = CheckRegistry { prober: Prober::start(Vec::new).unwrap(), pool, running };
        check_registry.put(check_registry.pool.clone());
        check_registry
    }

    fn put(&self, pool: Pool) {
        self.running.put(Some(Arc::new(pool)), sys::millis());
        self.prober.watch(&self.running);
    }

    fn member(&self, at: SocketAddr) -> Arc<RunningMember> {
        let live = self.running.live();
        live.members[live.compiled.position(at).unwrap()].clone()
    }

    fn health(&self, at: SocketAddr) -> Health {
        self.member(at).health()
    }

    /// What was logged since it was asked for last.
    fn logged(&self) -> Vec<HealthChange> {
        std::mem::take(&mut self.prober.requests.logged.lock().unwrap())
    }

    fn one_logged(&self) -> HealthChange {
        let mut logged = Vec::new();
        until("something is logged", || {
            logged.extend(self.logged());
            !logged.is_empty()
        });
        assert_eq!(logged.len(), 1, "{logged:?}");
        logged.remove(0)
    }

    fn becomes(&self, at: SocketAddr, health: Health) {
        until(&format!("{at} is {health:?}"), || self.health(at) == health);
    }
}

fn until(what: &str, mut condition: impl FnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(20);
    while !condition() {
        assert!(Instant::now() < deadline, "in vain: {what}");
        thread::yield_now();
    }
}

/// Accepts, tells what it read, answers the same to everybody.
struct Backend {
    at: SocketAddr,
    asked: Arc<AtomicUsize>,
    over: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Backend {
    fn tcp(ip: IpAddr, answer: &'static [u8], heard: mpsc::Sender<Vec<u8>>) -> Backend {
        let listener = TcpListener::bind((ip, 0)).unwrap();
        let at = listener.local_addr().unwrap();
        let (asked, over) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicBool::new(false)));
        let thread = thread::spawn({
            let (asked, over) = (asked.clone(), over.clone());
            move || {
                for stream in listener.incoming() {
                    if over.load(SeqCst) {
                        return;
                    }
                    let Ok(mut stream) = stream else { continue };
                    asked.fetch_add(1, SeqCst);
                    stream.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
                    let mut buffer = [0; 1024];
                    if let Ok(count) = stream.read(&mut buffer) {
                        let _ = heard.send(buffer[..count].to_vec());
                    }
                    let _ = stream.write_all(answer);
                }
            }
        });
        Backend { at, asked, over, thread: Some(thread) }
    }
}

impl Drop for Backend {
    fn drop(&mut self) {
        self.over.store(true, SeqCst);
        let _ = std::net::TcpStream::connect(self.at);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// An address where nobody listens: bound, so that no other test gets it, but not listening.
fn dead_tcp(ip: IpAddr) -> (socket2::Socket, SocketAddr) {
    let socket = socket2::Socket::new(
        socket2::Domain::for_address(SocketAddr::new(ip, 0)),
        socket2::Type::STREAM,
        None,
    )
    .unwrap();
    socket.bind(&SocketAddr::new(ip, 0).into()).unwrap();
    let at = socket.local_addr().unwrap().as_socket().unwrap();
    (socket, at)
}

#[test]
fn a_member_that_stops_listening_falls_and_rises_when_it_is_back() {
    for ip in FAMILIES {
        let (socket, at) = dead_tcp(ip);
        let check_registry = CheckRegistry::new(CheckKind::Tcp, &[at], |_| {});
        check_registry.becomes(at, Health::Down);
        let told = check_registry.one_logged();
        assert_eq!((told.member, told.to), (at, MemberAvailability::Failed));
        assert!(told.reason.contains("refused"), "{}", told.reason);
        socket.listen(128).unwrap();
        check_registry.becomes(at, Health::Up);
    }
}

#[test]
fn an_http_status_outside_of_the_range_takes_a_member_down() {
    for ip in FAMILIES {
        let (heard, asked) = mpsc::channel();
        let good = Backend::tcp(ip, b"HTTP/1.1 204 No Content\r\n\r\n", heard.clone());
        let bad = Backend::tcp(ip, b"HTTP/1.1 503 Service Unavailable\r\n\r\n", heard.clone());
        let ugly = Backend::tcp(ip, b"220 smtp.example\r\n", heard);
        let kind = CheckKind::Http {
            path: "/up".into(),
            host: Some("shop.example".into()),
            status: (200, 399),
            expect: None,
        };
        let check_registry = CheckRegistry::new(kind, &[good.at, bad.at, ugly.at], |_| {});
        check_registry.becomes(bad.at, Health::Down);
        check_registry.becomes(ugly.at, Health::Down);
        until("the good one was asked a few times", || good.asked.load(SeqCst) > 5);
        check_registry.becomes(good.at, Health::Up);
        let request = String::from_utf8(asked.recv().unwrap()).unwrap();
        assert!(request.starts_with("GET /up HTTP/1.1\r\nHost: shop.example\r\n"), "{request}");
    }
}

#[test]
fn a_backend_that_accepts_and_never_answers_times_out() {
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let at = silent.local_addr().unwrap();
    let kind = CheckKind::http();
    let check_registry = CheckRegistry::new(kind, &[at], |_| {});
    check_registry.becomes(at, Health::Down);
    assert!(check_registry.one_logged().reason.contains("no answer within"));
}

#[test]
fn a_slow_answer_is_in_time_even_if_checks_are_asked_for_more_often() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let at = listener.local_addr().unwrap();
    let (answer, answered) = mpsc::channel();
    let (over, is_over) = mpsc::channel::<()>();
    let backend = thread::spawn(move || {
        loop {
            let (mut stream, _) = listener.accept().unwrap();
            // Three quarters of the timeout, of which the interval is a small part.
            match is_over.recv_timeout(Duration::from_millis(750)) {
                Err(mpsc::RecvTimeoutError::Timeout) => {}
                _ => return,
            }
            let _ = stream.write_all(b"HTTP/1.1 200 OK\r\n\r\n");
            let _ = answer.send(());
        }
    });
    let kind = CheckKind::http();
    let check_registry = CheckRegistry::new(kind, &[at], |pool| {
        if let Some(health) = &mut pool.health {
            health.fall = 1;
            health.timeout = Duration::from_secs(1);
        }
    });
    for _ in 0..3 {
        answered.recv_timeout(Duration::from_secs(20)).unwrap();
    }
    assert_eq!(check_registry.logged(), []);
    drop(over);
    backend.join().unwrap();
}

#[test]
fn a_udp_port_that_refuses_is_down_and_a_silent_one_is_up() {
    for ip in FAMILIES {
        let silent = UdpSocket::bind((ip, 0)).unwrap();
        let at = silent.local_addr().unwrap();
        let dead = {
            let socket = UdpSocket::bind((ip, 0)).unwrap();
            // Connected elsewhere, it refuses everybody else and nobody can take its port.
            socket.connect((ip, 9)).unwrap();
            socket
        };
        let dead_at = dead.local_addr().unwrap();
        let kind = CheckKind::Udp { send: "ping".into(), expect: None };
        let check_registry = CheckRegistry::new(kind, &[at, dead_at], |_| {});
        check_registry.becomes(dead_at, Health::Down);
        let mut buffer = [0; 16];
        for _ in 0..3 {
            let count = silent.recv(&mut buffer).unwrap();
            assert_eq!(&buffer[..count], b"ping");
        }
        check_registry.becomes(at, Health::Up);
    }
}

#[test]
fn a_udp_member_must_answer_what_is_expected() {
    for ip in FAMILIES {
        let (one, other) = (UdpSocket::bind((ip, 0)).unwrap(), UdpSocket::bind((ip, 0)).unwrap());
        let (one_at, other_at) = (one.local_addr().unwrap(), other.local_addr().unwrap());
        let stop = Arc::new(AtomicBool::new(false));
        let answer = |socket: UdpSocket, text: &'static [u8], answered: Arc<AtomicUsize>| {
            socket.set_read_timeout(Some(Duration::from_millis(20))).unwrap();
            let stop = stop.clone();
            thread::spawn(move || {
                let mut buffer = [0; 64];
                while !stop.load(SeqCst) {
                    if let Ok((_, from)) = socket.recv_from(&mut buffer) {
                        let _ = socket.send_to(text, from);
                        answered.fetch_add(1, SeqCst);
                    }
                }
            })
        };
        let answered = Arc::new(AtomicUsize::new(0));
        let threads = [answer(one, b"pong", answered.clone()), answer(other, b"oops", Arc::default())];
        let kind = CheckKind::Udp { send: "ping".into(), expect: Some("pong".into()) };
        let check_registry = CheckRegistry::new(kind, &[one_at, other_at], |_| {});
        check_registry.becomes(other_at, Health::Down);
        until("a few answers", || answered.load(SeqCst) > 5);
        check_registry.becomes(one_at, Health::Up);
        stop.store(true, SeqCst);
        for thread in threads {
            thread.join().unwrap();
        }
    }
}

#[test]
fn members_that_expect_a_proxy_header_get_a_local_one() {
    let (heard, asked) = mpsc::channel();
    let backend = Backend::tcp(FAMILIES[0], b"", heard);
    let _ward = CheckRegistry::new(CheckKind::Tcp, &[backend.at], |pool| pool.proxy = Some(ProxyVersion::V2));
    let header = asked.recv_timeout(Duration::from_secs(20)).unwrap();
    assert_eq!(&header[..13], b"\r\n\r\n\0\r\nQUIT\n\x20");
}

#[test]
fn an_ejection_and_its_end_are_told() {
    let member = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let other = SocketAddr::new(member.ip(), 1);
    let check_registry = CheckRegistry::new(CheckKind::Tcp, &[member, other], |pool| {
        pool.health = None;
        pool.passive = Some(PassiveHealthCheck {
            failures: 3,
            eject: Duration::from_millis(100),
            ..PassiveHealthCheck::default()
        });
    });
    for _ in 0..3 {
        check_registry.running.failed(&check_registry.member(member), "refused", sys::millis());
    }
    let mut told = Vec::new();
    until("both are told", || {
        told.extend(check_registry.logged().into_iter().map(|change| change.to));
        told.last() == Some(&MemberAvailability::Usable)
    });
    assert_eq!(check_registry.member(member).standing(sys::millis()), MemberAvailability::Usable);
}

#[test]
fn many_more_members_than_open_sockets_are_all_checked() {
    let mut members = Vec::new();
    let mut sockets = Vec::new();
    for _ in 0..200 {
        let (socket, at) = dead_tcp(FAMILIES[0]);
        sockets.push(socket);
        // Loopback is a whole /8: 10 members for each socket would not be bound, hence refuse as well.
        members
            .extend((1..=10).map(|host| SocketAddr::new(Ipv4Addr::new(127, 77, 0, host).into(), at.port())));
    }
    let check_registry = CheckRegistry::new(CheckKind::Tcp, &members, |_| {});
    until("all 2,000 are down", || members.iter().all(|at| check_registry.health(*at) == Health::Down));
}

/// Those of one who has taken all sockets would have been open for a minute, and those of others would have waited for them.
#[test]
fn members_of_one_namespace_that_never_answer_keep_no_check_of_another_waiting() {
    let silent = TcpListener::bind("0.0.0.0:0").unwrap();
    let port = silent.local_addr().unwrap().port();
    let members: Vec<SocketAddr> =
        (0..1_000_u32).map(|it| (Ipv4Addr::from(0x7f4d_0100 + it), port).into()).collect();
    let flood = CheckRegistry::new(CheckKind::http(), &members, |pool| {
        pool.owner = owner_in("flood");
        let health = pool.health.as_mut().unwrap();
        health.timeout = Duration::from_secs(60);
    });
    let (_socket, dead) = dead_tcp(FAMILIES[0]);
    let mut other = Pool { id: PoolId("other".into()), owner: owner_in("shop"), ..pool(&[dead]) };
    other.health = flood.pool.health.clone().map(|it| HealthCheck { kind: CheckKind::Tcp, ..it });
    let running = RunningPool::empty(LbKey::Whole, other.id.clone());
    running.put(Some(Arc::new(other)), sys::millis());
    // As many of the others as there may be are under way before.
    let mut waiting = Vec::new();
    silent.set_nonblocking(true).unwrap();
    until("the flood is there", || {
        waiting.extend(silent.accept());
        waiting.len() >= MOST_OPEN / 2
    });
    flood.prober.watch(&running);
    let health = || running.live().members[0].health();
    until("the other is found to be down", || health() == Health::Down);
}

fn owner_in(namespace: &str) -> Owner {
    Owner::Object { object: ObjectRef::new(Kind::Service, namespace, "web"), uid: "1".into() }
}

#[test]
fn a_forgotten_pool_is_not_asked_any_more() {
    let (heard, _asked) = mpsc::channel();
    let backend = Backend::tcp(FAMILIES[0], b"", heard);
    let check_registry = CheckRegistry::new(CheckKind::Tcp, &[backend.at], |_| {});
    until("it is asked", || backend.asked.load(SeqCst) > 1);
    check_registry.put(Pool { members: Vec::new(), ..check_registry.pool.clone() });
    // The witness is asked only after the removal was heard of, so whatever else comes is one too many.
    let (heard, _later) = mpsc::channel();
    let witness = Backend::tcp(FAMILIES[0], b"", heard);
    check_registry.put(Pool { members: pool(&[witness.at]).members, ..check_registry.pool.clone() });
    until("the witness is asked", || witness.asked.load(SeqCst) > 0);
    let asked = backend.asked.load(SeqCst);
    until("the witness is asked a few times", || witness.asked.load(SeqCst) > 5);
    assert!(backend.asked.load(SeqCst) <= asked + 1);
}
