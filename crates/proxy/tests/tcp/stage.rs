//! A data plane, members and clients to play with.
#![allow(dead_code)]

use std::{
    collections::HashMap,
    io::{self, Read, Write},
    net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, TcpStream},
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst},
    },
    thread,
    time::{Duration, Instant},
};

use seaway_model::{LbKey, Listener, Pool};
use seaway_proxy::{ListenerStatistics, MemberStatistics, OpenError, Proxy, Settings};
pub(crate) use seaway_testkit::balancing::{listener, owner, pool};
use socket2::{Domain, SockRef, Socket, Type};

pub(crate) const HERE: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

pub(crate) fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !holds() {
        assert!(Instant::now() < deadline, "never came: {what}");
        thread::sleep(Duration::from_millis(1));
    }
}

pub(crate) struct Stage {
    pub(crate) proxy: Proxy,
    pub(crate) key: LbKey,
}

impl Stage {
    pub(crate) fn new() -> Stage {
        Stage::with_workers(2)
    }

    pub(crate) fn with_workers(workers: usize) -> Stage {
        let proxy = Proxy::start(Settings { workers, pin: false }).unwrap();
        Stage { proxy, key: LbKey::Of(owner()) }
    }

    pub(crate) fn put(&self, pool: Pool) {
        self.proxy.put_pool(&self.key, Arc::new(pool));
    }

    /// Listens for the pool of these members; gives where.
    pub(crate) fn serve(&self, members: &[SocketAddr]) -> SocketAddr {
        self.put(pool(members));
        self.open(HERE, |_| {}).0
    }

    /// Opens a listener on a free port.
    pub(crate) fn open(&self, ip: IpAddr, tune: impl Fn(&mut Listener)) -> (SocketAddr, Listener) {
        for _ in 0..50 {
            let port = free_port();
            let mut listener = listener(port);
            tune(&mut listener);
            match self.proxy.open(&self.key, ip, Arc::new(listener.clone())) {
                Ok(()) => return (SocketAddr::new(ip, port), listener),
                // Somebody else of this machine was faster.
                Err(OpenError::Foreign { .. } | OpenError::Io { .. }) => {}
                Err(error) => panic!("{error}"),
            }
        }
        panic!("no free port")
    }

    /// Like `open`, where no port can be tried out before.
    pub(crate) fn open_anywhere(&self, ip: IpAddr) -> (SocketAddr, Listener) {
        let listener = listener(free_port());
        self.proxy.open(&self.key, ip, Arc::new(listener.clone())).unwrap();
        (SocketAddr::new(ip, listener.port), listener)
    }

    pub(crate) fn listener(&self, at: SocketAddr) -> ListenerStatistics {
        let statistics = self.proxy.statistics();
        let found = |listener: &ListenerStatistics| (listener.ip, listener.id.port) == (at.ip(), at.port());
        statistics.listeners.into_iter().find(found).expect("the listener is in the statistics")
    }

    /// Clients that wait for a member.
    pub(crate) fn waiting(&self) -> usize {
        self.proxy.statistics().pools.iter().map(|it| it.waiting).sum()
    }

    pub(crate) fn member(&self, at: SocketAddr) -> MemberStatistics {
        let statistics = self.proxy.statistics();
        let mut members = statistics.pools.into_iter().flat_map(|pool| pool.members);
        members.find(|member| member.at == at).expect("the member is in the statistics")
    }
}

/// A server of its own thread for each connection. Dropped, it goes as a killed process does: with resets.
pub(crate) struct Backend {
    pub(crate) at: SocketAddr,
    pub(crate) accepted: Arc<AtomicUsize>,
    open: Arc<Mutex<HashMap<usize, TcpStream>>>,
    over: Arc<AtomicBool>,
    thread: Option<thread::JoinHandle<()>>,
}

impl Backend {
    pub(crate) fn new(ip: IpAddr, serve: impl Fn(TcpStream) + Send + Sync + 'static) -> Backend {
        // When it is gone, nobody else is given its port.
        let listener =
            std::iter::repeat_with(free_port).find_map(|port| TcpListener::bind((ip, port)).ok()).unwrap();
        let at = listener.local_addr().unwrap();
        let (open, over) =
            (Arc::<Mutex<HashMap<usize, TcpStream>>>::default(), Arc::new(AtomicBool::new(false)));
        let accepted = Arc::new(AtomicUsize::new(0));
        let (streams, ended, count, serve) = (open.clone(), over.clone(), accepted.clone(), Arc::new(serve));
        let thread = thread::spawn(move || {
            for stream in listener.incoming() {
                if ended.load(SeqCst) {
                    return;
                }
                let Ok(stream) = stream else { continue };
                let number = count.fetch_add(1, SeqCst);
                streams.lock().unwrap().insert(number, stream.try_clone().unwrap());
                let (serve, streams) = (serve.clone(), streams.clone());
                thread::spawn(move || {
                    stream.set_read_timeout(Some(PATIENCE)).unwrap();
                    stream.set_write_timeout(Some(PATIENCE)).unwrap();
                    serve(stream);
                    streams.lock().unwrap().remove(&number);
                });
            }
        });
        Backend { at, accepted, open, over, thread: Some(thread) }
    }

    /// Sends everything back, then its end.
    pub(crate) fn echo(ip: IpAddr) -> Backend {
        Backend::new(ip, |mut stream| {
            let mut reader = stream.try_clone().unwrap();
            let _ = io::copy(&mut reader, &mut stream);
            let _ = stream.shutdown(std::net::Shutdown::Write);
        })
    }

    /// Says one byte at once, then echoes.
    pub(crate) fn named(name: u8) -> Backend {
        Backend::new(HERE, move |mut stream| {
            let mut reader = stream.try_clone().unwrap();
            let _ = stream.write_all(&[name]);
            let _ = io::copy(&mut reader, &mut stream);
        })
    }

    pub(crate) fn accepted(&self) -> usize {
        self.accepted.load(SeqCst)
    }
}

impl Drop for Backend {
    fn drop(&mut self) {
        self.over.store(true, SeqCst);
        let _ = TcpStream::connect(self.at);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
        for (_, stream) in self.open.lock().unwrap().drain() {
            let _ = SockRef::from(&stream).set_linger(Some(Duration::ZERO));
            // Wakes the thread that serves it, which has the last descriptor.
            let _ = stream.shutdown(std::net::Shutdown::Read);
        }
    }
}

/// An address at which nobody listens.
pub(crate) fn nobody() -> SocketAddr {
    SocketAddr::new(HERE, free_port())
}

/// Not one that the kernel gives to clients: it would be taken, or a client would connect to itself, sooner or later.
pub(crate) fn free_port() -> u16 {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    let start = std::process::id() as usize * 331;
    loop {
        let port = (10_000 + (start + NEXT.fetch_add(1, SeqCst)) % 20_000) as u16;
        if TcpListener::bind((HERE, port)).is_ok() {
            return port;
        }
    }
}

pub(crate) fn connect(at: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(at).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream.set_write_timeout(Some(PATIENCE)).unwrap();
    stream
}

pub(crate) fn connect_from(from: [u8; 4], at: SocketAddr) -> TcpStream {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
    socket.bind(&SocketAddr::from((from, 0)).into()).unwrap();
    socket.connect(&at.into()).unwrap();
    let stream = TcpStream::from(socket);
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream
}

/// What the member that answers is called; the connection goes on.
pub(crate) fn greeted(at: SocketAddr) -> (u8, TcpStream) {
    let mut stream = connect(at);
    (name_of(&mut stream), stream)
}

pub(crate) fn name_of(stream: &mut TcpStream) -> u8 {
    let mut name = [0];
    stream.read_exact(&mut name).expect("a member says its name");
    name[0]
}

pub(crate) fn echoes(stream: &mut TcpStream) {
    stream.write_all(b"ping").expect("the connection takes bytes");
    let mut answer = [0; 4];
    stream.read_exact(&mut answer).expect("the connection brings an answer");
    assert_eq!(&answer, b"ping");
}

/// How a connection ends that brings nothing any more.
pub(crate) fn ending(stream: &mut TcpStream) -> Ending {
    match stream.read(&mut [0; 64]) {
        Ok(0) => Ending::End,
        Ok(read) => panic!("{read} bytes instead of an ending"),
        Err(error) if error.kind() == io::ErrorKind::ConnectionReset => Ending::Reset,
        Err(error) => panic!("{error}"),
    }
}

/// Like `ending`, for a client that may be turned away before it has done anything.
pub(crate) fn is_refused(at: SocketAddr) -> bool {
    match TcpStream::connect(at) {
        Ok(mut stream) => {
            stream.set_read_timeout(Some(PATIENCE)).unwrap();
            ending(&mut stream) == Ending::Reset
        }
        Err(error) => error.kind() == io::ErrorKind::ConnectionReset,
    }
}

#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Ending {
    End,
    Reset,
}

/// Bytes that look like noise and are the same every time.
pub(crate) fn noise(length: usize, seed: u64) -> Vec<u8> {
    let mut state = seed | 1;
    let mut next = move || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    };
    let mut bytes = Vec::with_capacity(length + 8);
    while bytes.len() < length {
        bytes.extend_from_slice(&next().to_le_bytes());
    }
    bytes.truncate(length);
    bytes
}
