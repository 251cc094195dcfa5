//! Workers, members and clients of the tests.

use std::{
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket},
    os::fd::{AsFd, OwnedFd},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::SeqCst},
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use seaway_model::{L4, LbKey, Listener, Pool};
use seaway_testkit::balancing;

use crate::{
    proxy_state::ProxyState,
    running::{self, RunningListener},
    sys,
    worker::{Mailbox, Worker, WorkerCommand},
};

pub(super) const FAMILIES: [IpAddr; 2] = [IpAddr::V4(Ipv4Addr::LOCALHOST), IpAddr::V6(Ipv6Addr::LOCALHOST)];

pub(super) struct Rig {
    pub(super) shared: Arc<ProxyState>,
    pub(super) threads: Vec<JoinHandle<()>>,
    pub(super) key: LbKey,
}

impl Rig {
    pub(super) fn new(workers: usize) -> Rig {
        Rig::with(workers, |_| {})
    }

    pub(super) fn with(workers: usize, change: impl FnOnce(&mut ProxyState)) -> Rig {
        let mailboxes: Vec<_> = (0..workers).map(|_| Arc::new(Mailbox::new().unwrap())).collect();
        let mut shared = ProxyState::new(mailboxes.clone());
        change(&mut shared);
        let shared = Arc::new(shared);
        let threads = mailboxes
            .into_iter()
            .enumerate()
            .map(|(index, mailbox)| {
                let shared = shared.clone();
                thread::spawn(move || Worker::new(index, mailbox, shared).unwrap().run().unwrap())
            })
            .collect();
        Rig { shared, threads, key: LbKey::Whole }
    }

    pub(super) fn put(&self, pool: Pool) -> Arc<running::RunningPool> {
        let id = pool.id.clone();
        let now = sys::millis();
        let (running, drains) =
            running::put_pool(&self.shared.registry, &self.key, &id, Some(Arc::new(pool)), now);
        for drain in drains {
            self.shared.send_to_workers(&WorkerCommand::SweepAt(now + drain.as_millis() as u64));
        }
        running
    }

    pub(super) fn open(&self, ip: IpAddr, change: impl FnOnce(&mut Listener)) -> Arc<RunningListener> {
        let sockets: Vec<Arc<OwnedFd>> = bind(ip, self.shared.workers.len());
        let at = sys::local_address(sockets[0].as_fd()).unwrap();
        let mut listener = listener(at.port());
        change(&mut listener);
        let listener = Arc::new(listener);
        let id = listener.id();
        let config = self.shared.registry.lock().entry(self.key.clone()).or_default().listener_config(
            &self.key,
            listener,
            self.shared.tickets.as_ref(),
        );
        let running = Arc::new(RunningListener::new(self.key.clone(), at, id, config));
        let mut registry = self.shared.registry.lock();
        registry.get_mut(&self.key).unwrap().listeners.insert((ip, id), running.clone());
        for (worker, socket) in self.shared.workers.iter().zip(sockets) {
            worker.post([WorkerCommand::Open(running.clone(), socket)]);
        }
        running
    }
}

impl Drop for Rig {
    fn drop(&mut self) {
        self.shared.send_to_workers(&WorkerCommand::Quit);
        for thread in self.threads.drain(..) {
            thread.join().unwrap();
        }
    }
}

pub(super) fn bind(ip: IpAddr, count: usize) -> Vec<Arc<OwnedFd>> {
    let mut at = SocketAddr::new(ip, 0);
    (0..count)
        .map(|_| {
            let address = at.into();
            let socket = sys::datagram_socket(&address).unwrap();
            sys::set_reuse_port(socket.as_fd()).unwrap();
            sys::bind(socket.as_fd(), &address).unwrap();
            at = sys::local_address(socket.as_fd()).unwrap();
            Arc::new(socket)
        })
        .collect()
}

pub(super) fn listener(port: u16) -> Listener {
    Listener { l4: L4::Udp, ..balancing::listener(port) }
}

pub(super) fn pool(members: &[SocketAddr]) -> Pool {
    Pool { l4: L4::Udp, ..balancing::pool(members) }
}

/// Answers every datagram with its own address and what came.
pub(super) struct Backend {
    pub(super) at: SocketAddr,
    over: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Backend {
    pub(super) fn new(ip: IpAddr) -> Backend {
        Backend::over(UdpSocket::bind((ip, 0)).unwrap())
    }

    pub(super) fn over(socket: UdpSocket) -> Backend {
        let at = socket.local_addr().unwrap();
        socket.set_read_timeout(Some(Duration::from_millis(20))).unwrap();
        let over = Arc::new(AtomicBool::new(false));
        let thread = thread::spawn({
            let over = over.clone();
            move || {
                let mut buffer = vec![0; 65536];
                while !over.load(SeqCst) {
                    if let Ok((count, from)) = socket.recv_from(&mut buffer) {
                        if buffer.starts_with(b"garbage") {
                            continue;
                        }
                        let mut answer = format!("{at} ").into_bytes();
                        answer.extend_from_slice(&buffer[..count]);
                        let _ = socket.send_to(&answer, from);
                    }
                }
            }
        });
        Backend { at, over, thread: Some(thread) }
    }
}

impl Drop for Backend {
    fn drop(&mut self) {
        self.over.store(true, SeqCst);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

pub(super) struct Client(pub(super) UdpSocket);

impl Client {
    pub(super) fn of(at: SocketAddr) -> Client {
        let ip = if at.is_ipv4() { FAMILIES[0] } else { FAMILIES[1] };
        let socket = UdpSocket::bind((ip, 0)).unwrap();
        socket.connect(at).unwrap();
        socket.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        Client(socket)
    }

    /// The member that answers, and what it heard.
    pub(super) fn ask(&self, text: &[u8]) -> (SocketAddr, Vec<u8>) {
        self.0.send(text).unwrap();
        self.answer()
    }

    pub(super) fn answer(&self) -> (SocketAddr, Vec<u8>) {
        let mut buffer = vec![0; 65536];
        let count = self.0.recv(&mut buffer).unwrap();
        let space = buffer.iter().position(|byte| *byte == b' ').unwrap();
        let member = std::str::from_utf8(&buffer[..space]).unwrap().parse().unwrap();
        (member, buffer[space + 1..count].to_vec())
    }

    /// Nothing comes back, as far as somebody who was asked later can tell.
    pub(super) fn is_ignored(&self, text: &[u8], witness: &Client) {
        self.0.send(text).unwrap();
        for _ in 0..3 {
            witness.ask(b"witness");
        }
        self.0.set_nonblocking(true).unwrap();
        assert!(self.0.recv(&mut [0; 64]).is_err());
        self.0.set_nonblocking(false).unwrap();
    }
}

pub(super) fn until(what: &str, mut condition: impl FnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(20);
    while !condition() {
        assert!(Instant::now() < deadline, "in vain: {what}");
        thread::yield_now();
    }
}
