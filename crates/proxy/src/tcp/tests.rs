//! Turns, taken one by one: whoever has a lot to do is one among many. What is counted is turns, never time.

use std::{
    io::{Read, Write},
    net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream},
    sync::atomic::Ordering::SeqCst,
    time::{Duration, Instant},
};

use seaway_model::{Kind as ObjectKind, LbKey, ObjectRef, Owner};
use seaway_testkit::balancing;

use super::*;
use crate::{
    memory::MemoryBudget,
    proxy_state::ProxyState,
    running,
    sys::{Epoll, Events},
};

/// A worker without a thread, and the member of all its load balancers.
struct ManualWorker {
    tcp: Tcp,
    turn: LoopIteration,
    events: Events,
    member: TcpListener,
}

/// As many as have something to do at once.
const MANY: usize = 200;
/// As many as the kernel has wait at a listening socket.
const NEWCOMERS: usize = 100;

impl ManualWorker {
    fn new() -> ManualWorker {
        ManualWorker::with(ProxyState::new(Vec::new()))
    }

    fn with(shared: ProxyState) -> ManualWorker {
        let member = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        member.set_nonblocking(true).unwrap();
        // Whoever is accepted inherits it, and takes more than a piece.
        socket2::SockRef::from(&member).set_recv_buffer_size(4 << 20).unwrap();
        let epoll = Arc::new(Epoll::new().unwrap());
        let buffer = vec![0; 64 << 10].into_boxed_slice();
        let turn = LoopIteration::new(0, epoll, buffer, Arc::new(shared));
        ManualWorker { tcp: Tcp::new(0), turn, events: Events::with_room_for(2 * MANY), member }
    }

    /// A load balancer of that namespace.
    fn open(&mut self, namespace: &str) -> SocketAddr {
        let object = ObjectRef::new(ObjectKind::Service, namespace, "web");
        let key = LbKey::Of(Owner::Object { object, uid: "1".into() });
        let pool = balancing::pool(&[self.member.local_addr().unwrap()]);
        let id = pool.id.clone();
        running::put_pool(&self.turn.shared.registry, &key, &id, Some(Arc::new(pool)), self.turn.now);
        let socket = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        socket.set_nonblocking(true).unwrap();
        let at = socket.local_addr().unwrap();
        let listener = Arc::new(balancing::listener(at.port()));
        let config = {
            let mut registry = self.turn.shared.registry.lock();
            registry.entry(key.clone()).or_default().listener_config(&key, listener.clone(), None)
        };
        let running = Arc::new(RunningListener::new(key, at, listener.id(), config));
        self.tcp.command(&WorkerCommand::Open(running, Arc::new(socket.into())), &mut self.turn);
        at
    }

    /// As the loop of a worker does it, without waiting; how many events there were.
    fn turn(&mut self) -> usize {
        self.turn.epoll.wait(&mut self.events, Some(0)).unwrap();
        self.turn.number += 1;
        self.turn.begin(self.events.len(), self.tcp.is_behind());
        for index in 0..self.events.len() {
            let event = self.events.at(index);
            self.tcp.event(Token::from(event.token), event, &mut self.turn);
        }
        self.tcp.tick(&mut self.turn);
        self.events.len()
    }

    fn peers(&mut self) -> Vec<SocketAddr> {
        let all = self.tcp.connections.indexes();
        all.into_iter().filter_map(|index| self.tcp.connections.get_mut(index).map(|it| it.peer)).collect()
    }

    /// A client, and what the member has of it.
    fn connected(&mut self, at: SocketAddr) -> (TcpStream, TcpStream) {
        let client = TcpStream::connect(at).unwrap();
        let accepted = self.until("the member has it", |hand| hand.member.accept().ok()).0;
        accepted.set_nonblocking(true).unwrap();
        (client, accepted)
    }

    /// Turns until that is so, and nothing is left to do.
    fn until<T>(&mut self, what: &str, mut is_so: impl FnMut(&mut ManualWorker) -> Option<T>) -> T {
        let deadline = Instant::now() + Duration::from_secs(30);
        loop {
            let events = self.turn();
            if events == 0
                && !self.tcp.is_behind()
                && let Some(it) = is_so(self)
            {
                return it;
            }
            assert!(Instant::now() < deadline, "{what}");
        }
    }
}

fn has_something(stream: &mut TcpStream) -> bool {
    stream.read(&mut [0; 8]).is_ok_and(|count| count > 0)
}

#[test]
fn a_tenant_with_hundreds_of_busy_connections_delays_that_of_another_by_a_few() {
    let mut hand = ManualWorker::new();
    let (greedy, modest) = (hand.open("greedy"), hand.open("modest"));
    let mut many: Vec<_> = (0..MANY).map(|_| hand.connected(greedy)).collect();
    let mut one = hand.connected(modest);
    many.iter_mut().chain([&mut one]).for_each(|(client, _)| client.write_all(b"x").unwrap());
    // All of them come at once, and that of the modest one last.
    assert_eq!(hand.turn(), MANY + 1);
    let turns = (0..1_000).take_while(|_| {
        let waits = !has_something(&mut one.1);
        if waits {
            hand.turn();
        }
        waits
    });
    assert!(turns.count() < 1_000, "it is passed on");
    let before = many.iter_mut().filter_map(|(_, it)| has_something(it).then_some(())).count();
    assert!(before < MANY / 2, "{before} of {MANY}");
    while hand.tcp.is_behind() {
        hand.turn();
    }
    let after = many.iter_mut().filter_map(|(_, it)| has_something(it).then_some(())).count();
    assert_eq!(before + after, MANY, "nobody is forgotten");
}

#[test]
fn a_tenant_with_hundreds_of_newcomers_delays_that_of_another_by_a_few() {
    let mut hand = ManualWorker::new();
    let (greedy, modest) = (hand.open("greedy"), hand.open("modest"));
    // Both are known to have something to do, which is when it matters who is first.
    let mut busy: Vec<_> = (0..16).map(|_| hand.connected(greedy)).collect();
    busy.push(hand.connected(modest));
    let many: Vec<TcpStream> = (0..NEWCOMERS).map(|_| TcpStream::connect(greedy).unwrap()).collect();
    let one = TcpStream::connect(modest).unwrap();
    busy.iter_mut().for_each(|(client, _)| client.write_all(b"x").unwrap());
    let own = one.local_addr().unwrap();
    let mut peers = Vec::new();
    for _ in 0..1_000 {
        hand.turn();
        peers = hand.peers();
        if peers.contains(&own) {
            break;
        }
    }
    let before = peers.len() - busy.len();
    assert!(before < NEWCOMERS / 2, "{before} of {NEWCOMERS} came in before it, or it never did");
    hand.until("all come in", |hand| (hand.peers().len() == busy.len() + NEWCOMERS + 1).then_some(()));
    drop((many, one));
}

/// What came since the last look.
fn taken(stream: &mut TcpStream) -> usize {
    let mut room = vec![0; 64 << 10];
    std::iter::from_fn(|| stream.read(&mut room).ok().filter(|count| *count > 0)).sum()
}

/// What goes on of much that one sends at once: in the turn in which the first of it does, and in all.
fn moved(busy: usize) -> (usize, usize, usize) {
    let mut hand = ManualWorker::new();
    let (greedy, modest) = (hand.open("greedy"), hand.open("modest"));
    let mut others: Vec<_> = (0..busy).map(|_| hand.connected(modest)).collect();
    let (mut client, mut member) = hand.connected(greedy);
    client.set_nonblocking(true).unwrap();
    let mut sent = 0;
    while let Ok(count) = client.write(&[7; 64 << 10]) {
        sent += count;
    }
    others.iter_mut().for_each(|(client, _)| client.write_all(b"x").unwrap());
    let mut first = 0;
    for _ in 0..1_000 {
        hand.turn();
        first = taken(&mut member);
        if first > 0 {
            break;
        }
    }
    let mut all = first;
    hand.until("all of it goes on", |_| {
        all += taken(&mut member);
        (all >= sent).then_some(())
    });
    (sent, first, all)
}

#[test]
fn beside_others_a_connection_moves_a_little_at_a_time() {
    let (sent, first, all) = moved(0);
    assert!(sent > 512 << 10 && all == sent, "{all} of {sent}");
    assert!(first > 128 << 10, "alone it moves more: {first}");
    let (sent, first, all) = moved(16);
    assert!(sent > 512 << 10 && all == sent, "{all} of {sent}");
    assert!(first <= 128 << 10, "{first} of {sent} at once");
}

#[test]
fn while_the_control_group_is_nearly_full_connections_go_on_and_newcomers_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| std::fs::write(folder.path().join(name), text).unwrap();
    write("memory.max", "1000");
    write("memory.stat", "inactive_file 0\nactive_file 0\n");
    write("memory.current", "920");
    let mut shared = ProxyState::new(Vec::new());
    shared.memory = Arc::new(MemoryBudget::of_group(folder.path()));
    let mut hand = ManualWorker::with(shared);
    let at = hand.open("web");
    let mut before = hand.connected(at);
    hand.turn.shared.memory.look_at_groups(1_000);
    let mut refused = TcpStream::connect(at).unwrap();
    hand.until("it is refused", |hand| (hand.turn.shared.memory.refused.load(SeqCst) == 1).then_some(()));
    assert!(!matches!(refused.read(&mut [0; 8]), Ok(1..)), "it is reset");
    before.0.write_all(b"x").unwrap();
    hand.until("it goes on", |_| has_something(&mut before.1).then_some(()));
    write("memory.current", "100");
    hand.turn.shared.memory.look_at_groups(1_050);
    assert!(hand.turn.shared.memory.is_group_nearly_full(), "the last look was a moment ago");
    hand.turn.shared.memory.look_at_groups(1_100);
    hand.connected(at);
}
