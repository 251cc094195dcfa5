//! Turns, taken one by one: whoever has sent a lot is one among many. What is counted is turns, never time.

use std::{
    io::{Read, Write},
    net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::SeqCst},
        mpsc,
    },
    thread,
    time::{Duration, Instant},
};

use ::aws_lc_rs::aead::{AES_128_GCM, Aad, LessSafeKey, Nonce, UnboundKey};
use rustls::{
    ClientConfig, ClientConnection, ConnectionTrafficSecrets, RootCertStore, crypto::aws_lc_rs,
    pki_types::ServerName,
};
use seaway_model::{
    Kind as ObjectKind, LbKey, Listener, ObjectRef, Owner, Pool,
    load_balancer::{Action, BackendProtocol, Certificate, HostPattern, Protocol, Rule, TlsByName},
};
use seaway_testkit::balancing;

use super::*;
use crate::{
    proxy_state::ProxyState,
    running,
    sys::{self, Epoll, Events},
    tls::LoadedCertificate,
};

mod pieces;

#[path = "../../tests/smuggling/frames.rs"]
#[allow(dead_code)]
mod frames;

use frames::*;

/// A worker without a thread, before whom a listener answers everything by itself.
struct ManualWorker {
    http: Http,
    turn: LoopIteration,
    events: Events,
    at: SocketAddr,
}

const ASKED: &[u8] = b"GET / HTTP/1.1\r\nHost: a\r\n\r\n";
/// More than one turn may take of one client, and little enough for the kernel to hold.
const MUCH: usize = 192 << 10;
const HELD: usize = 1 << 20;

impl ManualWorker {
    fn new(certificate: Option<&Certificate>) -> ManualWorker {
        let answer = Action::Respond { code: 200, body: "hello".into() };
        ManualWorker::with(answer, certificate, Arc::new(ProxyState::new(Vec::new())))
    }

    fn before(member: SocketAddr) -> ManualWorker {
        let shared = Arc::new(ProxyState::new(Vec::new()));
        let pool = balancing::pool(&[member]);
        let id = pool.id.clone();
        running::put_pool(&shared.registry, &LbKey::Whole, &id, Some(Arc::new(pool)), sys::millis());
        let action = balancing::listener(80).rules[0].action.clone();
        ManualWorker::with(action, None, shared)
    }

    /// Before a member of HTTP/2.
    fn before_many(member: SocketAddr) -> ManualWorker {
        let shared = Arc::new(ProxyState::new(Vec::new()));
        let pool = Pool { protocol: BackendProtocol::Http2, ..balancing::pool(&[member]) };
        let id = pool.id.clone();
        running::put_pool(&shared.registry, &LbKey::Whole, &id, Some(Arc::new(pool)), sys::millis());
        ManualWorker::with(balancing::listener(80).rules[0].action.clone(), None, shared)
    }

    fn with(action: Action, certificate: Option<&Certificate>, shared: Arc<ProxyState>) -> ManualWorker {
        let socket = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        socket.set_nonblocking(true).unwrap();
        // Whoever is accepted inherits it.
        socket2::SockRef::from(&socket).set_recv_buffer_size(HELD).unwrap();
        let at = socket.local_addr().unwrap();
        let own = ObjectRef::new(ObjectKind::Secret, "default", "own");
        let mut listener = Listener { protocol: Protocol::Http, ..balancing::listener(at.port()) };
        Arc::make_mut(&mut listener.rules[0]).action = action;
        listener.tls =
            certificate.map(|_| Arc::new(TlsByName { default: vec![own.clone()], ..TlsByName::default() }));
        let config = {
            let mut registry = shared.registry.lock();
            let state = registry.entry(LbKey::Whole).or_default();
            if let Some(certificate) = certificate {
                let keys = LoadedCertificate::read(&Arc::new(certificate.clone())).unwrap();
                state.put_certificate(&own, Some(Arc::new(keys)));
            }
            state.listener_config(&LbKey::Whole, Arc::new(listener.clone()), None)
        };
        let running = Arc::new(RunningListener::new(LbKey::Whole, at, listener.id(), config));
        let epoll = Arc::new(Epoll::new().unwrap());
        let mut turn = LoopIteration::new(0, epoll, Box::default(), shared);
        let mut http = Http::new(&turn);
        http.command(&WorkerCommand::Open(running, Arc::new(socket.into())), &mut turn);
        ManualWorker { http, turn, events: Events::with_room_for(256), at }
    }

    /// Opens another load balancer, which answers everything by itself, too.
    fn open_another(&mut self) -> SocketAddr {
        self.open_with("another", |listener| {
            Arc::make_mut(&mut listener.rules[0]).action =
                Action::Respond { code: 200, body: "another".into() };
        })
    }

    fn open_with(&mut self, name: &str, change: impl FnOnce(&mut Listener)) -> SocketAddr {
        let socket = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        socket.set_nonblocking(true).unwrap();
        let at = socket.local_addr().unwrap();
        let mut listener = Listener { protocol: Protocol::Http, ..balancing::listener(at.port()) };
        change(&mut listener);
        let key = LbKey::Of(Owner::Config(name.into()));
        let config = {
            let mut registry = self.turn.shared.registry.lock();
            registry.entry(key.clone()).or_default().listener_config(&key, Arc::new(listener.clone()), None)
        };
        let running = Arc::new(RunningListener::new(key, at, listener.id(), config));
        self.http.command(&WorkerCommand::Open(running, Arc::new(socket.into())), &mut self.turn);
        at
    }

    /// As the loop of a worker does it, without waiting.
    fn turn(&mut self) {
        self.turn.epoll.wait(&mut self.events, Some(0)).unwrap();
        self.turn.number += 1;
        self.turn.begin(self.events.len(), self.http.is_behind());
        for index in 0..self.events.len() {
            let event = self.events.at(index);
            self.http.event(Token::from(event.token), event, &mut self.turn);
        }
        self.http.tick(&mut self.turn);
    }

    /// Its clock stands still meanwhile.
    fn turn_until(&mut self, count: &AtomicUsize, wanted: usize) {
        let deadline = Instant::now() + Duration::from_secs(30);
        while count.load(SeqCst) < wanted {
            assert!(Instant::now() < deadline, "{count:?} of {wanted}");
            self.turn();
        }
    }

    fn client(&mut self) -> TcpStream {
        let stream = TcpStream::connect(self.at).unwrap();
        self.turn();
        stream.set_nonblocking(true).unwrap();
        stream.set_nodelay(true).unwrap();
        stream
    }

    /// One who has sent `much`, and one who asks for little, are there at once. Gives what each has heard after so many
    /// turns.
    fn compare(mut self, mut greedy: TcpStream, much: &[u8], turns: usize) -> [Vec<u8>; 2] {
        let mut modest = self.client();
        self.turn();
        greedy.write_all(much).expect("the kernel holds it");
        modest.write_all(ASKED).unwrap();
        (0..turns).for_each(|_| self.turn());
        [heard(&mut greedy), heard(&mut modest)]
    }
}

/// What has come.
fn heard(stream: &mut TcpStream) -> Vec<u8> {
    let (mut all, mut piece) = (Vec::new(), [0; 4096]);
    while let Ok(count @ 1..) = stream.read(&mut piece) {
        all.extend_from_slice(&piece[..count]);
    }
    all
}

fn answers(heard: &[u8]) -> usize {
    heard.windows(12).filter(|it| it == b"HTTP/1.1 200").count()
}

/// Frames that need no answer, and at the end a request.
fn frames_without_end() -> Vec<u8> {
    let mut much = hello();
    let nothing = frame(0xbb, 0, 0, &[0; 32]);
    while much.len() < MUCH {
        much.extend_from_slice(&nothing);
    }
    much.extend(request_of_stream(1));
    much
}

fn is_answered(heard: &[u8]) -> bool {
    let mut rest = heard;
    std::iter::from_fn(|| next(&mut rest)).any(|frame| frame.kind == HEADERS)
}

#[test]
fn frames_are_read_as_far_as_is_fair_in_one_turn() {
    for (turns, expected) in [(1, false), (40, true)] {
        let mut worker = ManualWorker::new(None);
        let greedy = worker.client();
        let [greedy, modest] = worker.compare(greedy, &frames_without_end(), turns);
        assert_eq!((is_answered(&greedy), answers(&modest)), (expected, 1), "after {turns} turns");
    }
}

#[test]
fn requests_that_come_all_at_once_are_answered_as_far_as_is_fair_in_one_turn() {
    assert_eq!(answers_in_one_turn(8), 8, "who sends no more than that does not wait");
    // Once for the event, once for having more to do.
    assert_eq!(answers_in_one_turn(100), 16);
}

fn answers_in_one_turn(asked: usize) -> usize {
    let mut worker = ManualWorker::new(None);
    let greedy = worker.client();
    let [greedy, modest] = worker.compare(greedy, &ASKED.repeat(asked), 1);
    assert_eq!(answers(&modest), 1);
    answers(&greedy)
}

#[test]
fn whoever_came_before_the_end_is_answered_though_nobody_has_looked_at_them_yet() {
    let mut worker = ManualWorker::new(None);
    let mut idle = worker.client();
    idle.write_all(ASKED).unwrap();
    worker.turn();
    assert_eq!(answers(&heard(&mut idle)), 1);
    // One is let in and has not asked, one waits at the listening socket, one asks once more.
    let mut silent = worker.client();
    let mut waits = TcpStream::connect(worker.at).unwrap();
    waits.set_nonblocking(true).unwrap();
    waits.write_all(ASKED).unwrap();
    idle.write_all(ASKED).unwrap();
    worker.http.command(&WorkerCommand::StopAccepting(mpsc::channel().0), &mut worker.turn);
    silent.write_all(ASKED).unwrap();
    worker.turn();
    worker.turn();
    for (who, client) in [("idle", &mut idle), ("silent", &mut silent), ("waits", &mut waits)] {
        let heard = heard(client);
        assert_eq!(answers(&heard), 1, "{who}");
        let told = String::from_utf8_lossy(&heard).to_ascii_lowercase();
        assert!(told.contains("connection: close"), "{who}: {told}");
    }
    // Who is silent still is not waited for.
    let mut worker = ManualWorker::new(None);
    let mut silent = worker.client();
    worker.http.command(&WorkerCommand::StopAccepting(mpsc::channel().0), &mut worker.turn);
    worker.turn.now += serve::LINGER + 500;
    worker.turn();
    silent.set_nonblocking(false).unwrap();
    assert_eq!(silent.read(&mut [0; 8]).unwrap(), 0, "closed, without a reset");
}

/// What cannot be asked twice is not asked where the end has come already.
#[test]
fn a_kept_connection_that_ended_in_the_very_turn_is_not_asked_by() {
    let member = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    member.set_nonblocking(true).unwrap();
    let mut worker = ManualWorker::before(member.local_addr().unwrap());
    let mut client = worker.client();
    let answer = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n";
    client.write_all(ASKED).unwrap();
    worker.turn();
    let (mut first, _) = member.accept().unwrap();
    worker.turn();
    assert!(first.read(&mut [0; 512]).unwrap() > 0);
    first.write_all(answer).unwrap();
    worker.turn();
    assert_eq!(answers(&heard(&mut client)), 1);
    // The client's event comes before that of the member's end.
    client.write_all(b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\n\r\nx").unwrap();
    drop(first);
    worker.turn();
    let (mut second, _) = member.accept().expect("it is asked by another connection");
    worker.turn();
    assert!(second.read(&mut [0; 512]).unwrap() > 0);
    second.write_all(answer).unwrap();
    worker.turn();
    assert_eq!(answers(&heard(&mut client)), 1);
}

/// TLS itself gives up who sends those, long before the end of a turn.
#[test]
fn records_without_anything_in_them_end_their_connection() {
    let own = rcgen::generate_simple_self_signed(["a".to_owned()]).unwrap();
    let certificate = Certificate {
        chain: own.cert.pem().into(),
        key: own.signing_key.serialize_pem().into(),
        authorities: "".into(),
        staple: None,
        users: String::new().into(),
    };
    let mut roots = RootCertStore::empty();
    roots.add(own.cert.der().clone()).unwrap();
    let mut worker = ManualWorker::new(Some(&certificate));
    let (mut greedy, mut seal) = worker.secured(roots.clone());
    let mut much = Vec::new();
    while much.len() < MUCH {
        much.extend(seal(b""));
    }
    greedy.write_all(&much).expect("the kernel holds it");
    let (mut modest, mut seal) = worker.secured(roots);
    heard(&mut modest);
    modest.write_all(&seal(ASKED)).unwrap();
    worker.turn();
    assert!(!heard(&mut modest).is_empty(), "it is answered");
    assert_eq!(worker.turn.shared.connections(), 1, "and the other has gone");
}

impl ManualWorker {
    /// A client who has shaken hands, and how it seals records.
    fn secured(&mut self, roots: RootCertStore) -> (TcpStream, impl FnMut(&[u8]) -> Vec<u8> + use<>) {
        let mut provider = aws_lc_rs::default_provider();
        provider.cipher_suites = vec![aws_lc_rs::cipher_suite::TLS13_AES_128_GCM_SHA256];
        let builder = ClientConfig::builder_with_provider(Arc::new(provider));
        let builder = builder.with_protocol_versions(&[&rustls::version::TLS13]).unwrap();
        let mut config = builder.with_root_certificates(roots).with_no_client_auth();
        config.enable_secret_extraction = true;
        let name = ServerName::try_from("a").unwrap();
        let mut connection = ClientConnection::new(Arc::new(config), name).unwrap();
        let mut stream = self.client();
        for _ in 0..20 {
            while connection.wants_write() {
                connection.write_tls(&mut stream).unwrap();
            }
            self.turn();
            while matches!(connection.read_tls(&mut stream), Ok(1..)) {
                connection.process_new_packets().unwrap();
            }
        }
        assert!(!connection.is_handshaking());
        let (mut number, secrets) = connection.dangerous_extract_secrets().unwrap().tx;
        let ConnectionTrafficSecrets::Aes128Gcm { key, iv } = secrets else { panic!("another suite") };
        let key = LessSafeKey::new(UnboundKey::new(&AES_128_GCM, key.as_ref()).unwrap());
        let seal = move |text: &[u8]| {
            // RFC 8446, sections 5.2 and 5.3.
            let mut nonce = <[u8; 12]>::try_from(iv.as_ref()).unwrap();
            nonce[4..].iter_mut().zip(u64::to_be_bytes(number)).for_each(|(byte, by)| *byte ^= by);
            number += 1;
            let mut sealed = [text, &[23]].concat();
            let head = [&[23, 3, 3][..], &((sealed.len() + 16) as u16).to_be_bytes()].concat();
            let nonce = Nonce::assume_unique_for_key(nonce);
            key.seal_in_place_append_tag(nonce, Aad::from(&head), &mut sealed).unwrap();
            [head, sealed].concat()
        };
        (stream, seal)
    }
}

/// A member of HTTP/2 that counts requests, answers none, and leaves its windows shut.
fn counting(requests: Arc<AtomicUsize>) -> SocketAddr {
    counting_ends(requests, Arc::default())
}

/// The same, and it counts the connections that have ended.
fn counting_ends(requests: Arc<AtomicUsize>, ended: Arc<AtomicUsize>) -> SocketAddr {
    let socket = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let at = socket.local_addr().unwrap();
    thread::spawn(move || {
        for stream in socket.incoming() {
            let (requests, ended) = (requests.clone(), ended.clone());
            let mut stream = stream.unwrap();
            thread::spawn(move || {
                stream.read_exact(&mut [0; 24]).unwrap();
                let streams = [0, 3, 0, 0, 3, 0xe8];
                stream.write_all(&frame(SETTINGS, 0, 0, &streams)).unwrap();
                while let Some(frame) = next(&mut stream) {
                    requests.fetch_add(usize::from(frame.kind == HEADERS), SeqCst);
                }
                ended.fetch_add(1, SeqCst);
            });
        }
    });
    at
}

#[test]
fn all_of_a_burst_before_a_member_that_is_new_get_in_although_no_time_passes() {
    let requests = Arc::<AtomicUsize>::default();
    let mut worker = ManualWorker::before_many(counting(requests.clone()));
    let mut clients: Vec<TcpStream> = (0..2).map(|_| worker.client()).collect();
    for client in &mut clients {
        let mut asked = hello();
        for number in 0..120 {
            asked.extend(request_of_stream(2 * number + 1));
        }
        client.write_all(&asked).unwrap();
    }
    // The worker's clock stands still: whoever is woken by nobody waits for ever.
    worker.turn_until(&requests, 240);
}

/// Tasks that may begin or end before events are looked at again.
const FAIR: usize = 64;

/// How many tasks there are after each turn, until none comes or goes any more.
fn tasks_by_turn(worker: &mut ManualWorker) -> Vec<usize> {
    let mut counts = vec![worker.http.tasks.indexes().len()];
    loop {
        worker.turn();
        counts.push(worker.http.tasks.indexes().len());
        if worker.http.next_timeout(worker.turn.now) != Some(0) && counts.iter().rev().take(2).is_sorted() {
            return counts;
        }
    }
}

fn most_changed_in_a_turn(counts: &[usize]) -> usize {
    counts.windows(2).map(|pair| pair[0].abs_diff(pair[1])).max().unwrap_or(0)
}

#[test]
fn streams_that_begin_at_once_leave_room_for_events_between_them() {
    let mut worker = ManualWorker::before_many(counting(Arc::default()));
    let mut client = worker.client();
    let asked: Vec<u8> = (0..120_u32).flat_map(|number| request_of_stream(2 * number + 1)).collect();
    client.write_all(&[hello(), asked].concat()).unwrap();
    let counts = tasks_by_turn(&mut worker);
    assert!(counts.last() >= Some(&120), "all of them have begun: {counts:?}");
    assert!(most_changed_in_a_turn(&counts) <= 2 * FAIR + 1, "{counts:?}");
    // All of them wait for a member. They end with their client, which nobody else has to wait for.
    drop(client);
    let counts = tasks_by_turn(&mut worker);
    assert!(counts.last() <= Some(&1), "only the connection to the member is left: {counts:?}");
    assert!(most_changed_in_a_turn(&counts) <= 2 * FAIR + 1, "{counts:?}");
}

#[test]
fn deadlines_that_pass_at_once_leave_room_for_events_between_them() {
    let mut worker = ManualWorker::new(None);
    let silent: Vec<TcpStream> = (0..150).map(|_| worker.client()).collect();
    tasks_by_turn(&mut worker);
    worker.turn.now += 3_600_000;
    let counts = tasks_by_turn(&mut worker);
    assert_eq!((counts[0], counts.last()), (silent.len(), Some(&0)));
    assert!(most_changed_in_a_turn(&counts) <= FAIR, "{counts:?}");
}

fn request_of_stream(id: u32) -> Vec<u8> {
    let fields: [(&[u8], &[u8]); 4] =
        [(b":method", b"GET"), (b":scheme", b"http"), (b":authority", b"a"), (b":path", b"/")];
    frame(HEADERS, END_HEADERS | END_STREAM, id, &block(&fields))
}

#[test]
fn connections_whose_member_reads_no_more_are_cut_while_others_serve() {
    let (requests, ended) = (Arc::<AtomicUsize>::default(), Arc::<AtomicUsize>::default());
    let mut worker = ManualWorker::before_many(counting_ends(requests.clone(), ended.clone()));
    let upload =
        [&b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 200000\r\n\r\n"[..], &[b'x'; 70_000]].concat();
    let mut clients = Vec::new();
    for count in 1..=30 {
        clients.push(worker.client());
        clients.last_mut().unwrap().write_all(&upload).unwrap();
        worker.turn_until(&requests, count);
    }
    // Another one, which is not stuck when those are.
    worker.turn.now += 900;
    clients.push(worker.client());
    clients.last_mut().unwrap().write_all(&upload).unwrap();
    worker.turn_until(&requests, 31);
    worker.turn.now += 400;
    assert_eq!(ended.load(SeqCst), 0);
    clients.push(worker.client());
    clients.last_mut().unwrap().write_all(ASKED).unwrap();
    worker.turn_until(&requests, 32);
    // Of those that are stuck, 24 stay. Whoever needs a connection later has none to cut first.
    worker.turn_until(&ended, 6);
    tasks_by_turn(&mut worker);
    assert_eq!(ended.load(SeqCst), 6);
}

#[test]
fn a_load_balancer_with_hundreds_of_requests_delays_that_of_another_by_a_few() {
    let mut worker = ManualWorker::new(None);
    let mut greedy: Vec<TcpStream> = (0..200).map(|_| worker.client()).collect();
    worker.at = worker.open_another();
    let mut modest = worker.client();
    greedy.iter_mut().for_each(|it| it.write_all(ASKED).unwrap());
    modest.write_all(ASKED).unwrap();
    // Its event came last, and all of them at once.
    modest_is_answered_early(&mut worker, &mut greedy, &mut modest);
}

fn has_answer(client: &mut TcpStream) -> bool {
    client.read(&mut [0; 512]).is_ok_and(|count| count > 0)
}

/// Turn by turn, until the one has its answer: by then fewer than half of the many have theirs.
fn modest_is_answered_early(worker: &mut ManualWorker, greedy: &mut [TcpStream], modest: &mut TcpStream) {
    let turns = (0..1_000).take_while(|_| {
        worker.turn();
        !has_answer(modest)
    });
    assert!(turns.count() < 1_000, "it is answered");
    let before = greedy.iter_mut().map(has_answer).filter(|it| *it).count();
    assert!(before < 100, "{before} of 200");
}

#[test]
fn a_guest_with_hundreds_of_requests_delays_that_of_another_by_a_few() {
    let mut worker = ManualWorker::new(None);
    worker.at = worker.open_with("front door", |listener| {
        let guest = |namespace: &str| {
            let mut rule = Rule::forward_all(balancing::owner(), balancing::pool_id());
            let object = ObjectRef::new(ObjectKind::Service, namespace, "web");
            rule.owner = Owner::Object { object, uid: "1".into() };
            rule.hosts = vec![HostPattern::Exact(format!("{namespace}.example").into())];
            rule.action = Action::Respond { code: 200, body: namespace.into() };
            Arc::new(rule)
        };
        listener.rules = vec![guest("greedy"), guest("modest")];
    });
    let asked = |guest: &str| format!("GET / HTTP/1.1\r\nHost: {guest}.example\r\n\r\n").into_bytes();
    let mut greedy: Vec<TcpStream> = (0..200).map(|_| worker.client()).collect();
    let mut modest = worker.client();
    // Whose guests they are is known once they have asked.
    for client in &mut greedy {
        client.write_all(&asked("greedy")).unwrap();
    }
    modest.write_all(&asked("modest")).unwrap();
    tasks_by_turn(&mut worker);
    assert!(greedy.iter_mut().chain([&mut modest]).all(has_answer), "all of them are answered");
    for client in &mut greedy {
        client.write_all(&asked("greedy")).unwrap();
    }
    modest.write_all(&asked("modest")).unwrap();
    modest_is_answered_early(&mut worker, &mut greedy, &mut modest);
}
