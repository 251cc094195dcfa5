//! Two data planes in one process, and clients that must notice nothing.

mod introduced;

use std::{
    collections::BTreeMap,
    io::{Read, Write},
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, TcpStream, UdpSocket},
    os::fd::AsFd,
    path::PathBuf,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst},
        mpsc,
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use seaway_model::{L4, LbKey, Listener, Pool, PoolId, load_balancer::Rule};
use seaway_testkit::balancing;

use super::{
    message::{HandoverSocket, Message, NEWEST, OLDEST},
    *,
};
use crate::{Settings, sys};

const FAMILIES: [IpAddr; 2] = [IpAddr::V4(Ipv4Addr::LOCALHOST), IpAddr::V6(Ipv6Addr::LOCALHOST)];
const KEY: LbKey = LbKey::Whole;

/// Backends of both transports that tell who asks: the address of the flow's or connection's own socket.
struct Backends {
    tcp: SocketAddr,
    udp: SocketAddr,
    over: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

impl Backends {
    fn new(ip: IpAddr) -> Backends {
        let over = Arc::new(AtomicBool::new(false));
        let listener = TcpListener::bind((ip, 0)).unwrap();
        let socket = UdpSocket::bind((ip, 0)).unwrap();
        let (tcp, udp) = (listener.local_addr().unwrap(), socket.local_addr().unwrap());
        socket.set_read_timeout(Some(Duration::from_millis(20))).unwrap();
        let until = over.clone();
        let datagrams = thread::spawn(move || {
            let mut buffer = [0; 2048];
            while !until.load(SeqCst) {
                if let Ok((count, from)) = socket.recv_from(&mut buffer) {
                    let answer = format!("{from} {}", String::from_utf8_lossy(&buffer[..count]));
                    let _ = socket.send_to(answer.as_bytes(), from);
                }
            }
        });
        let until = over.clone();
        let connections = thread::spawn(move || {
            for stream in listener.incoming() {
                if until.load(SeqCst) {
                    return;
                }
                let Ok(mut stream) = stream else { continue };
                thread::spawn(move || {
                    let mut buffer = [0; 64];
                    while let Ok(count @ 1..) = stream.read(&mut buffer) {
                        let _ = stream.write_all(&buffer[..count]);
                    }
                });
            }
        });
        Backends { tcp, udp, over, threads: vec![datagrams, connections] }
    }
}

impl Drop for Backends {
    fn drop(&mut self) {
        self.over.store(true, SeqCst);
        let _ = TcpStream::connect(self.tcp);
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}

fn pool(l4: L4, at: SocketAddr) -> Pool {
    Pool { id: PoolId(l4.as_str().into()), l4, ..balancing::pool(&[at]) }
}

fn listener(l4: L4, port: u16) -> Listener {
    let rules = vec![Rule::forward_all(balancing::owner(), PoolId(l4.as_str().into())).into()];
    Listener { l4, rules, ..balancing::listener(port) }
}

/// What both processes of a take-over have to serve.
struct Plan {
    ip: IpAddr,
    port: u16,
    backends: Backends,
    folder: tempfile::TempDir,
}

impl Plan {
    fn new(ip: IpAddr) -> Plan {
        // One that both transports have free, above those that the kernel gives away, or the backends might be given it.
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        let port = loop {
            let number = std::process::id() as usize * 31 + NEXT.fetch_add(1, SeqCst);
            let port = 61_000 + (number % 4_500) as u16;
            if TcpListener::bind((ip, port)).is_ok() && UdpSocket::bind((ip, port)).is_ok() {
                break port;
            }
        };
        Plan { ip, port, backends: Backends::new(ip), folder: tempfile::tempdir().unwrap() }
    }

    fn at(&self) -> SocketAddr {
        SocketAddr::new(self.ip, self.port)
    }

    fn path(&self) -> PathBuf {
        self.folder.path().join("takeover.sock")
    }

    fn proxy(&self, workers: usize) -> Proxy {
        Proxy::start(Settings { workers, ..Settings::default() }).unwrap()
    }

    fn serve(&self, proxy: &Proxy) {
        proxy.put_pool(&KEY, Arc::new(pool(L4::Tcp, self.backends.tcp)));
        proxy.put_pool(&KEY, Arc::new(pool(L4::Udp, self.backends.udp)));
        for l4 in [L4::Tcp, L4::Udp] {
            proxy.open(&KEY, self.ip, Arc::new(listener(l4, self.port))).unwrap();
        }
    }

    fn old(&self, workers: usize) -> (Proxy, HandoverListener, mpsc::Receiver<()>) {
        let old = self.proxy(workers);
        self.serve(&old);
        let (tell, told) = mpsc::channel();
        let hand_over = old
            .hand_over(&self.path(), move |turn| {
                if turn == HandoverPhase::Over {
                    tell.send(()).unwrap()
                }
            })
            .unwrap();
        (old, hand_over, told)
    }
}

struct Flow(UdpSocket);

impl Flow {
    fn to(at: SocketAddr) -> Flow {
        let socket = UdpSocket::bind((at.ip(), 0)).unwrap();
        socket.connect(at).unwrap();
        socket.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
        Flow(socket)
    }

    /// By which socket the member was asked.
    fn ask(&self, text: &str) -> Result<String, String> {
        self.0.send(text.as_bytes()).map_err(|error| error.to_string())?;
        let mut buffer = [0; 256];
        let count = self.0.recv(&mut buffer).map_err(|error| format!("{text} was lost: {error}"))?;
        let answer = String::from_utf8_lossy(&buffer[..count]).into_owned();
        let (by, echo) = answer.split_once(' ').unwrap();
        if echo == text { Ok(by.into()) } else { Err(format!("{echo} instead of {text}")) }
    }
}

fn short_connection(at: SocketAddr) -> Result<(), String> {
    let mut stream = TcpStream::connect(at).map_err(|error| format!("connecting: {error}"))?;
    echo(&mut stream)
}

fn echo(stream: &mut TcpStream) -> Result<(), String> {
    stream.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    stream.write_all(b"hello").map_err(|error| format!("writing: {error}"))?;
    let mut answer = [0; 5];
    stream.read_exact(&mut answer).map_err(|error| format!("reading: {error}"))
}

/// Clients of both transports, who go on until told to stop.
struct Load {
    over: Arc<AtomicBool>,
    done: Arc<AtomicUsize>,
    threads: Vec<JoinHandle<Result<(), String>>>,
}

impl Load {
    fn on(at: SocketAddr) -> Load {
        let (over, done) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
        let mut threads = Vec::new();
        for _ in 0..3 {
            let (over, done) = (over.clone(), done.clone());
            threads.push(thread::spawn(move || {
                while !over.load(SeqCst) {
                    short_connection(at)?;
                    done.fetch_add(1, SeqCst);
                }
                Ok(())
            }));
        }
        for _ in 0..3 {
            let (over, done) = (over.clone(), done.clone());
            threads.push(thread::spawn(move || {
                let flows: Vec<_> = (0..100).map(|_| Flow::to(at)).collect();
                let mut by = BTreeMap::new();
                for round in 0.. {
                    for (number, flow) in flows.iter().enumerate() {
                        let asked_by = flow.ask(&format!("{number}:{round}"))?;
                        if *by.entry(number).or_insert_with(|| asked_by.clone()) != asked_by {
                            return Err(format!("flow {number} has become another one in round {round}"));
                        }
                        done.fetch_add(1, SeqCst);
                    }
                    if over.load(SeqCst) {
                        break;
                    }
                }
                Ok(())
            }));
        }
        Load { over, done, threads }
    }

    fn goes_on(&self, more: usize) {
        let goal = self.done.load(SeqCst) + more;
        let deadline = Instant::now() + Duration::from_secs(30);
        while self.done.load(SeqCst) < goal {
            assert!(Instant::now() < deadline, "the load has come to a halt");
            if let Some(_over) = self.threads.iter().find(|thread| thread.is_finished()) {
                // The failure itself is told at the end.
                return;
            }
            thread::yield_now();
        }
    }

    fn ends_well(self) {
        self.over.store(true, SeqCst);
        for thread in self.threads {
            thread.join().unwrap().unwrap();
        }
    }
}

#[test]
fn a_successor_takes_everything_over_and_nobody_notices() {
    for (ip, old_workers, new_workers) in [(FAMILIES[0], 2, 2), (FAMILIES[1], 3, 1), (FAMILIES[0], 1, 3)] {
        let plan = Plan::new(ip);
        let (old, hand_over, told) = plan.old(old_workers);
        let mut long = TcpStream::connect(plan.at()).unwrap();
        echo(&mut long).unwrap();
        let load = Load::on(plan.at());
        load.goes_on(1000);

        let new = plan.proxy(new_workers);
        let mut taken = take(&plan.path()).unwrap();
        assert_eq!(taken.listening().count(), 2);
        new.adopt(&mut taken);
        plan.serve(&new);
        load.goes_on(300);
        new.confirm(&mut taken).unwrap();
        told.recv_timeout(Duration::from_secs(10)).unwrap();
        drop(hand_over);
        load.goes_on(300);
        echo(&mut long).unwrap();
        drop(long);
        let drained = old.drain(Instant::now() + Duration::from_secs(20));
        assert_eq!(drained.cut, 0);
        drop(old);
        load.goes_on(1000);
        load.ends_well();
    }
}

#[test]
fn a_successor_that_dies_before_it_serves_leaves_everything_as_it_was() {
    let plan = Plan::new(FAMILIES[0]);
    let (_old, _hand_over, told) = plan.old(2);
    let load = Load::on(plan.at());
    load.goes_on(500);
    {
        let new = plan.proxy(2);
        let mut taken = take(&plan.path()).unwrap();
        new.adopt(&mut taken);
        // It opens nothing: connections that it had accepted would die with it, as they do everywhere.
    }
    load.goes_on(500);
    {
        // One that dies with the flows in its hands.
        let mut peer =
            HandoverSocket::new(sys::local_connect(&plan.path()).unwrap(), Duration::from_secs(10)).unwrap();
        // As processes of before greet.
        peer.send(&Message::Hello { version: 1, newest: None, introduction: None }, &[]).unwrap();
        while !matches!(peer.receive().unwrap(), Some((Message::Sockets { more: false, .. }, _))) {}
        peer.send(&Message::Ready, &[]).unwrap();
        let mut flows = 0;
        loop {
            let Some((Message::Flows { flows: part, more }, _)) = peer.receive().unwrap() else { panic!() };
            flows += part.len();
            if !more {
                break;
            }
        }
        assert_eq!(flows, 300);
    }
    load.goes_on(1000);
    assert!(told.try_recv().is_err());
    let new = plan.proxy(1);
    let mut taken = take(&plan.path()).unwrap();
    new.adopt(&mut taken);
    plan.serve(&new);
    new.confirm(&mut taken).unwrap();
    load.goes_on(500);
    load.ends_well();
}

#[test]
fn what_the_successor_does_not_want_is_closed() {
    let plan = Plan::new(FAMILIES[0]);
    let (old, _hand_over, told) = plan.old(1);
    let new = plan.proxy(1);
    let mut taken = take(&plan.path()).unwrap();
    new.adopt(&mut taken);
    new.confirm(&mut taken).unwrap();
    told.recv_timeout(Duration::from_secs(10)).unwrap();
    drop(old);
    assert!(short_connection(plan.at()).is_err());
    UdpSocket::bind(plan.at()).unwrap();
}

#[test]
fn a_version_without_overlap_is_refused_and_where_nobody_is_that_is_said() {
    let plan = Plan::new(FAMILIES[0]);
    assert!(matches!(take(&plan.path()), Err(TakeoverError::NotRunning { .. })));
    let (_old, _hand_over, _told) = plan.old(1);
    for (version, newest, understood) in
        [(NEWEST + 1, None, false), (NEWEST + 1, Some(NEWEST + 2), false), (OLDEST, Some(NEWEST + 1), true)]
    {
        let socket = sys::local_connect(&plan.path()).unwrap();
        let mut peer = HandoverSocket::new(socket, Duration::from_secs(10)).unwrap();
        peer.send(&Message::Hello { version, newest, introduction: None }, &[]).unwrap();
        match peer.receive().unwrap() {
            Some((Message::Refused { reason }, _)) => {
                assert!(!understood && reason.contains("versions"), "{reason}")
            }
            Some((Message::Sockets { .. }, _)) => assert!(understood, "{version} to {newest:?}"),
            other => panic!("{other:?}"),
        }
    }
    // Whoever speaks nonsense is sent away as well, and the next one is served.
    let peer =
        HandoverSocket::new(sys::local_connect(&plan.path()).unwrap(), Duration::from_secs(10)).unwrap();
    peer.send(&Message::Yours, &[]).unwrap();
    sys::pass(sys::local_connect(&plan.path()).unwrap().as_fd(), b"\0nonsense", &[]).unwrap();
    take(&plan.path()).unwrap();
}

#[test]
fn what_a_newer_process_passes_on_is_taken_as_far_as_it_is_known() {
    let plan = Plan::new(FAMILIES[0]);
    let rendezvous = sys::local_listener(&plan.path()).unwrap();
    let kept = TcpListener::bind((plan.ip, 0)).unwrap();
    let at = kept.local_addr().unwrap();
    // In the words of a version to come: more fields, and kinds that nobody here knows.
    let old = thread::spawn(move || {
        let socket = sys::local_accept(rendezvous.as_fd()).unwrap();
        sys::limit_waiting(socket.as_fd(), Duration::from_secs(10)).unwrap();
        let hear = || {
            let mut room = [0; 1024];
            let (count, _) = sys::take(socket.as_fd(), &mut room).unwrap();
            String::from_utf8_lossy(&room[..count]).into_owned()
        };
        let say = |text: &str, fds: usize| {
            sys::pass(socket.as_fd(), text.as_bytes(), &vec![kept.as_fd(); fds]).unwrap();
        };
        // Processes of before demand 1 there, and pass over the rest.
        assert!(hear().starts_with(r#"{"Hello":{"version":1,"#));
        let known = format!(r#"{{"at":"{at}","l4":"TCP","backlog":9}}"#);
        let unknown = r#"{"driver":"BFD","number":4}"#;
        say(&format!(r#"{{"Sockets":{{"sockets":[{known},{unknown}],"more":false,"epoch":1}}}}"#), 2);
        assert_eq!(hear(), r#""Ready""#);
        say(r#"{"Flows":{"flows":[{"path":"quic"}],"more":false}}"#, 1);
        assert_eq!(hear(), r#""Received""#);
        say(r#""Yours""#, 0);
    });
    let new = plan.proxy(1);
    let mut taken = take(&plan.path()).unwrap();
    assert_eq!(taken.listening().collect::<Vec<_>>(), [(at, L4::Tcp)]);
    new.adopt(&mut taken);
    new.put_pool(&KEY, Arc::new(pool(L4::Tcp, plan.backends.tcp)));
    new.open(&KEY, plan.ip, Arc::new(listener(L4::Tcp, at.port()))).unwrap();
    new.confirm(&mut taken).unwrap();
    old.join().unwrap();
    short_connection(at).unwrap();
}

#[test]
fn only_its_user_may_even_connect() {
    use std::os::unix::fs::PermissionsExt;
    let plan = Plan::new(FAMILIES[0]);
    let (_old, _hand_over, _told) = plan.old(1);
    assert_eq!(std::fs::metadata(plan.path()).unwrap().permissions().mode() & 0o777, 0o600);
}
