//! A data plane without descriptors: in a process of its own, as the limit is a process's.

#![allow(clippy::unwrap_used)]

#[path = "attacks/attacker.rs"]
#[allow(dead_code)]
mod attacker;
#[path = "smuggling/frames.rs"]
#[allow(dead_code)]
mod frames;
#[path = "tcp/stage.rs"]
mod stage;

use std::{
    io::{BufRead, BufReader, Read, Write},
    net::{Shutdown, SocketAddr, TcpStream, UdpSocket},
    process::{Child, ChildStdout, Command, Stdio},
    sync::{
        Arc, OnceLock,
        atomic::{AtomicUsize, Ordering::SeqCst},
    },
    thread,
    time::Duration,
};

use attacker::Attacker;
use seaway_model::{
    Kind, L4, LbKey, ObjectRef, Owner, Pool,
    load_balancer::{BackendProtocol, PassiveHealthCheck, Protocol},
};
use seaway_proxy::{OpenError, Statistics};
use stage::*;

const MEMBER: &str = "SEAWAY_TEST_MEMBER";
/// The member of the other load balancer.
const OTHER: &str = "SEAWAY_TEST_OTHER";
/// What is spoken: `tcp`, `http`, `udp` or `loop`; with all but the first, another load balancer is beside the one that is attacked.
const SPEAKS: &str = "SEAWAY_TEST_SPEAKS";
/// The data plane itself needs about 25 of these; each connection needs two.
const LIMIT: usize = 60;

/// The part of the child: serves the member until its input ends, then tells what happened.
#[test]
#[ignore = "run by another test, with few descriptors"]
fn child() {
    let member = std::env::var(MEMBER).expect("the other test names a member").parse().unwrap();
    let speaks = std::env::var(SPEAKS).expect("the other test says what is spoken");
    let stage = Stage::with_workers(if speaks == "tcp" { 2 } else { 1 });
    let passive = PassiveHealthCheck { failures: 1, ..PassiveHealthCheck::default() };
    let members = match speaks.as_str() {
        "http" => Pool { protocol: BackendProtocol::Http1, passive: Some(passive), ..pool(&[member]) },
        "udp" => Pool { l4: L4::Udp, ..pool(&[member]) },
        _ => pool(&[member]),
    };
    stage.put(members.clone());
    let (at, listener) = stage.open(HERE, |listener| match speaks.as_str() {
        "http" => {
            listener.protocol = Protocol::Http;
            listener.timeouts.answer = 2 * PATIENCE;
        }
        "udp" => listener.l4 = L4::Udp,
        _ => {}
    });
    let mut other = at;
    if speaks != "tcp" {
        let key = LbKey::Of(Owner::Config("another".into()));
        let own = std::env::var(OTHER).expect("the other test names it").parse().unwrap();
        stage.proxy.put_pool(&key, Arc::new(Pool { members: pool(&[own]).members, ..members }));
        let opens = |port: &u16| {
            let another = seaway_model::Listener { port: *port, ..listener.clone() };
            stage.proxy.open(&key, HERE, Arc::new(another)).is_ok()
        };
        other.set_port(std::iter::repeat_with(free_port).take(50).find(opens).expect("a free port"));
    }
    let mut out = std::io::stdout();
    writeln!(out, "\nserving {at} {other}").unwrap();
    let mut lines = std::io::stdin().lines();
    while let Some(Ok(_)) = lines.next() {
        let statistics = stage.proxy.statistics();
        let refused = stage.listener(at).refusals();
        let (blamed, most) = (stage.listener(at).connect_errors, stage.listener(at).traffic.most);
        let Statistics { connections, exhausted, .. } = statistics;
        writeln!(out, "\nstate {connections} {exhausted} {refused} {blamed} {most}").unwrap();
    }
}

/// Processor time of a process in hundredths of a second.
fn spent(process: u32) -> u64 {
    let stat = std::fs::read_to_string(format!("/proc/{process}/stat")).unwrap();
    let fields: Vec<&str> = stat.rsplit(')').next().unwrap().split_whitespace().collect();
    fields[11].parse::<u64>().unwrap() + fields[12].parse::<u64>().unwrap()
}

struct Starving {
    child: Child,
    lines: std::io::Lines<BufReader<ChildStdout>>,
    at: SocketAddr,
    /// The other load balancer, if there is one.
    other: SocketAddr,
}

struct State {
    connections: usize,
    exhausted: usize,
    refused: usize,
    /// Connections that are said to have failed because of a member.
    blamed: usize,
    /// The most connections at a time, of the load balancer that is attacked.
    most: usize,
    spent: u64,
}

impl Starving {
    fn new(member: SocketAddr) -> Starving {
        Starving::within(LIMIT, member)
    }

    fn within(limit: usize, member: SocketAddr) -> Starving {
        Starving::speaking("tcp", limit, member)
    }

    fn speaking(what: &str, limit: usize, member: SocketAddr) -> Starving {
        Starving::beside(what, limit, [member, member])
    }

    /// `other`: of the other load balancer.
    fn beside(what: &str, limit: usize, [member, other]: [SocketAddr; 2]) -> Starving {
        let mut child = Command::new("sh")
            .args([
                "-c",
                &format!(
                    "ulimit -n {limit} && exec \"$0\" --exact child --ignored --nocapture --test-threads 1"
                ),
            ])
            .arg(std::env::current_exe().unwrap())
            .env(MEMBER, member.to_string())
            .env(OTHER, other.to_string())
            .env(SPEAKS, what)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let text = said(&mut lines, "serving ");
        let (at, other) = text.split_once(' ').unwrap();
        Starving { child, lines, at: at.parse().unwrap(), other: other.parse().unwrap() }
    }

    fn descriptors(&self) -> usize {
        std::fs::read_dir(format!("/proc/{}/fd", self.child.id())).unwrap().count()
    }

    fn state(&mut self) -> State {
        writeln!(self.child.stdin.as_mut().unwrap(), "state").unwrap();
        let text = said(&mut self.lines, "state ");
        let numbers: Vec<usize> = text.split(' ').map(|number| number.parse().unwrap()).collect();
        let [connections, exhausted, refused, blamed, most] = numbers[..] else { panic!("{text}") };
        State { connections, exhausted, refused, blamed, most, spent: spent(self.child.id()) }
    }
}

fn said(lines: &mut impl Iterator<Item = std::io::Result<String>>, what: &str) -> String {
    let line = lines.map_while(Result::ok).find_map(|line| line.strip_prefix(what).map(str::to_owned));
    line.expect("the child says it")
}

impl Drop for Starving {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn without_descriptors_what_runs_goes_on_and_newcomers_wait() {
    let backend = Backend::named(b'a');
    let mut proxy = Starving::new(backend.at);
    let clients: Vec<TcpStream> = (0..40).map(|_| connect(proxy.at)).collect();
    eventually("it runs out", || proxy.state().exhausted > 0);

    // Some are served. The others wait: neither served nor turned away.
    let (mut served, mut waiting) = (Vec::new(), clients);
    eventually("whoever has a connection has heard from it", || {
        for mut client in std::mem::take(&mut waiting) {
            client.set_read_timeout(Some(Duration::from_millis(10))).unwrap();
            match client.read(&mut [0]) {
                Ok(1) => served.push(client),
                Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => waiting.push(client),
                other => panic!("{other:?}"),
            }
        }
        proxy.state().connections == served.len()
    });
    for client in served.iter_mut().chain(&mut waiting) {
        client.set_read_timeout(Some(PATIENCE)).unwrap();
    }
    assert!(served.len() >= 8 && waiting.len() >= 8, "{} served, {} wait", served.len(), waiting.len());
    served.iter_mut().for_each(echoes);

    // Waiting for descriptors is no spinning.
    let before = proxy.state();
    let begin = std::time::Instant::now();
    eventually("half a second passes", || begin.elapsed() > Duration::from_millis(500));
    let after = proxy.state();
    assert!(after.spent - before.spent <= 10, "{} ms", 10 * (after.spent - before.spent));
    assert_eq!((after.exhausted, after.refused), (1, 0), "one episode, nobody turned away");
    assert_eq!(after.connections, served.len());

    // Who leaves makes room.
    drop(served);
    let mut rest = waiting.split_off(8);
    for client in &mut waiting {
        assert_eq!(name_of(client), b'a');
        echoes(client);
    }
    drop(waiting);
    for client in &mut rest {
        assert_eq!(name_of(client), b'a');
    }
    assert_eq!(proxy.state().exhausted, 1, "still the same episode");
    drop(rest);
    eventually("all are gone", || proxy.state().connections == 0);
    assert_eq!(greeted(proxy.at).0, b'a');
}

#[test]
fn the_last_ones_are_kept_for_what_runs() {
    let backend = Backend::named(b'a');
    let mut proxy = Starving::within(320, backend.at);
    let clients: Vec<TcpStream> = (0..250).map(|_| connect(proxy.at)).collect();
    eventually("newcomers wait", || proxy.state().exhausted > 0);
    eventually("all who are in have a member", || backend.accepted() == proxy.state().connections);
    // A sixteenth is kept, half of it even from members.
    assert!(proxy.descriptors() <= 320 - 10, "{} of 320", proxy.descriptors());
    assert!(proxy.state().connections >= 100, "{} are served", proxy.state().connections);
    assert_eq!(proxy.state().refused, 0, "the others wait");
    drop(clients);
    eventually("all are gone", || proxy.state().connections == 0);
    assert_eq!(greeted(proxy.at).0, b'a');
}

/// Answers a request for `/`, and holds any other; counts those that it holds.
fn holding(held: Arc<AtomicUsize>) -> Backend {
    Backend::new(HERE, move |mut stream| {
        let mut buffer = [0; 4096];
        while let Ok(count @ 1..) = stream.read(&mut buffer) {
            if buffer[..count].starts_with(b"GET / ") {
                let _ = stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n");
            } else {
                held.fetch_add(1, SeqCst);
            }
        }
    })
}

fn status(at: SocketAddr) -> String {
    let mut stream = connect(at);
    // Who cannot be let in may be reset before he has asked.
    let _ = stream.write_all(b"GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer);
    String::from_utf8_lossy(&answer).chars().skip(9).take(3).collect()
}

/// Opens so many streams on one connection, each of which the member holds.
fn streams(at: SocketAddr, count: u32) -> Attacker {
    let mut attacker = Attacker::new(at, 0);
    for number in 0..count {
        attacker.ask(2 * number + 1, "GET", "/hold", true);
    }
    attacker
}

fn answered(attackers: &[Attacker]) -> usize {
    attackers.iter().map(|it| it.heard.heads.load(SeqCst) + it.heard.resets.load(SeqCst)).sum()
}

#[test]
fn no_member_is_blamed_for_descriptors_that_we_lack() {
    let held = Arc::<AtomicUsize>::default();
    let member = holding(held.clone());
    let mut proxy = Starving::speaking("http", LIMIT, member.at);
    let attackers = [streams(proxy.at, 100)];
    eventually("all are held or refused", || held.load(SeqCst) + answered(&attackers) == 100);
    let state = proxy.state();
    assert!(state.refused > 0, "some have no descriptor");
    assert_eq!(state.blamed, 0, "the member is well");
    drop(attackers);
    eventually("there are descriptors again", || status(proxy.at) == "200");
}

#[test]
fn connections_to_members_for_streams_are_of_the_share_of_their_service() {
    let held = Arc::<AtomicUsize>::default();
    let member = holding(held.clone());
    let mut proxy = Starving::speaking("http", 320, member.at);
    let attackers: Vec<Attacker> = (0..4).map(|_| streams(proxy.at, 100)).collect();
    eventually("all are held or refused", || held.load(SeqCst) + answered(&attackers) == 400);
    assert!(held.load(SeqCst) > 100, "{held:?} have a descriptor");
    for _ in 0..4 {
        assert_eq!(status(proxy.other), "200");
    }
    assert_eq!(proxy.state().blamed, 0);
    drop(attackers);
    eventually("it is served again", || status(proxy.at) == "200");
}

#[test]
fn flows_beyond_the_share_of_a_service_take_the_places_of_its_idle_ones() {
    let member = UdpSocket::bind((HERE, 0)).unwrap();
    let at = member.local_addr().unwrap();
    thread::spawn(move || {
        let mut buffer = [0; 64];
        while let Ok((count, from)) = member.recv_from(&mut buffer) {
            if &buffer[..count] == b"over" {
                return;
            }
            let _ = member.send_to(&buffer[..count], from);
        }
    });
    let mut proxy = Starving::speaking("udp", 320, at);
    let echoed = |at: SocketAddr| {
        let client = UdpSocket::bind((HERE, 0)).unwrap();
        client.set_read_timeout(Some(Duration::from_millis(200))).unwrap();
        eventually("the member answers", || {
            client.send_to(b"ping", at).unwrap();
            client.recv(&mut [0; 64]).is_ok()
        });
        client
    };
    // As many as it may have in a process that has so few, and more; each of a client that is gone.
    for _ in 0..400 {
        echoed(proxy.at);
    }
    echoed(proxy.other);
    // It has its share at four fifths of what is for newcomers, but for a few.
    assert!(proxy.descriptors() <= 260, "{} of 320", proxy.descriptors());
    assert!(proxy.state().refused > 0, "those that had to go are counted");
    let _ = UdpSocket::bind((HERE, 0)).unwrap().send_to(b"over", at);
}

/// A relay that knows nothing of us leads what it gets back to where it came from. Nobody can tell that from clients, so
/// it takes what one Service may have, and no more.
#[test]
fn a_loop_of_tcp_through_somebody_else_takes_the_share_of_its_service() {
    let target = Arc::<OnceLock<SocketAddr>>::default();
    let to = target.clone();
    let relay = Backend::new(HERE, move |mut from| {
        let Ok(mut onward) = TcpStream::connect(to.get().unwrap()) else { return };
        let (mut back, mut answers) = (from.try_clone().unwrap(), onward.try_clone().unwrap());
        let up = thread::spawn(move || {
            let _ = std::io::copy(&mut from, &mut onward);
            let _ = onward.shutdown(Shutdown::Both);
        });
        let _ = std::io::copy(&mut answers, &mut back);
        let _ = back.shutdown(Shutdown::Both);
        let _ = up.join();
    });
    let backend = Backend::named(b'b');
    let mut proxy = Starving::beside("loop", 320, [relay.at, backend.at]);
    target.set(proxy.at).unwrap();
    let mut kept = greeted(proxy.other);
    for round in 1..=3 {
        let looped = connect(proxy.at);
        eventually("it is found to be too much", || proxy.state().refused >= round);
        assert_eq!(greeted(proxy.other).0, b'b', "others are served");
        echoes(&mut kept.1);
        drop(looped);
        eventually("all of it has ended", || proxy.state().connections == 1);
    }
    // Four fifths of what is for newcomers, and a few that were on their way.
    let most = 2 * proxy.state().most;
    assert!(most <= 260, "{most} descriptors");
}

/// The part of the child: one namespace opens ports until it may not, and another is there as well.
#[test]
#[ignore = "run by another test, with few descriptors"]
fn child_with_many_ports() {
    let backend = Backend::named(b'a');
    let stage = Stage::with_workers(1);
    let of = |namespace: &str, name: &str| {
        let object = ObjectRef::new(Kind::Service, namespace, name);
        LbKey::Of(Owner::Object { object, uid: name.into() })
    };
    // Without descriptors, nobody finds out which ports are free.
    let mut ports = free_port()..;
    let mut open = |key: &LbKey| {
        for port in ports.by_ref().take(1000) {
            match stage.proxy.open(key, HERE, Arc::new(listener(port))) {
                Ok(()) => return Some(SocketAddr::new(HERE, port)),
                Err(OpenError::OverShare { .. }) => return None,
                // Somebody else of this machine has it.
                Err(OpenError::Foreign { .. } | OpenError::Io { .. }) => {}
                Err(error) => panic!("{error}"),
            }
        }
        panic!("no free port")
    };
    let (shop, many) = (of("shop", "web"), of("many", "a"));
    stage.proxy.put_pool(&shop, Arc::new(pool(&[backend.at])));
    let at = open(&shop).expect("there are enough");
    let ports: Vec<SocketAddr> =
        std::iter::repeat_with(|| open(&many)).take(400).map_while(|it| it).collect();
    assert!((100..260).contains(&ports.len()), "{} of 320 descriptors", ports.len());
    assert_eq!(open(&of("many", "b")), None, "it is of the same namespace");
    // Others open ports and are served.
    assert!((0..10).all(|_| open(&shop).is_some()));
    assert!(open(&of("late", "web")).is_some());
    let mut kept = greeted(at);
    assert_eq!(kept.0, b'a');
    echoes(&mut kept.1);
    // What it closes, it may open again.
    for at in ports.iter().take(20) {
        stage.proxy.close(&many, HERE, listener(at.port()).id());
    }
    eventually("their descriptors are free", || open(&many).is_some());
}

#[test]
fn a_namespace_opens_no_more_ports_than_its_share_of_descriptors() {
    let run =
        "ulimit -n 320 && exec \"$0\" --exact child_with_many_ports --ignored --nocapture --test-threads 1";
    let child = Command::new("sh").args(["-c", run]).arg(std::env::current_exe().unwrap()).output().unwrap();
    let said = [child.stdout, child.stderr].map(|it| String::from_utf8_lossy(&it).into_owned()).concat();
    assert!(child.status.success() && said.contains("1 passed"), "{said}");
}
