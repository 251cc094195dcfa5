//! A client outside of the cloud that sends requests at fixed times, whether or not those before were answered, and counts what
//! had no answer.

use std::{
    collections::BTreeMap,
    fmt,
    io::{self, Read, Write},
    net::{SocketAddr, TcpStream, UdpSocket},
    process,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU32, Ordering},
        mpsc,
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use seaway_testkit::topology::Namespace;
use socket2::{Domain, Socket, Type};

/// Between two requests: 50 a second.
const APART: Duration = Duration::from_millis(20);

/// Whoever has no answer by then has none. A SYN that is lost is sent again after 1 and 3 seconds; a datagram is not.
const PATIENCE: Duration = Duration::from_secs(5);

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Target {
    /// A web server that answers with its pod's name.
    Tcp(SocketAddr),
    /// Whoever echoes datagrams.
    Udp(SocketAddr),
}

/// Sends 50 requests a second to these targets in turn, each from a socket of its own.
pub(crate) struct Requests {
    ended: Arc<AtomicBool>,
    client: JoinHandle<Answers>,
}

#[derive(Debug, Default)]
pub(crate) struct Answers {
    pub(crate) sent: u32,
    pub(crate) failed: Vec<Failed>,
    /// The longest that one waited for its answer.
    pub(crate) slowest: Duration,
    /// The longest that one was sent after its time.
    pub(crate) latest: Duration,
}

#[derive(Debug)]
pub(crate) struct Failed {
    target: Target,
    /// When it was to be sent.
    due: Duration,
    error: String,
}

impl Requests {
    /// `outside`: the namespace that they are sent from.
    pub(crate) fn send(outside: &str, targets: &[Target]) -> Requests {
        let ended = Arc::<AtomicBool>::default();
        let (ends, outside, targets) = (ended.clone(), outside.to_owned(), targets.to_vec());
        let client = move || Namespace::existing(&outside).run(|| send_until(&ends, &targets));
        Requests { ended, client: thread::spawn(client) }
    }

    /// Waits for the answers of those that were sent.
    pub(crate) fn stop(self) -> Answers {
        self.ended.store(true, Ordering::Relaxed);
        self.client.join().expect("the client does not panic")
    }
}

impl fmt::Display for Answers {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let milliseconds = |it: Duration| it.as_millis();
        write!(
            out,
            "{} requests at 50/s, {} without an answer within {} s; the slowest took {} ms, the latest was sent {} ms late",
            self.sent,
            self.failed.len(),
            PATIENCE.as_secs(),
            milliseconds(self.slowest),
            milliseconds(self.latest)
        )?;
        let mut by_target: BTreeMap<Target, Vec<&Failed>> = BTreeMap::new();
        for it in &self.failed {
            by_target.entry(it.target).or_default().push(it);
        }
        by_target.iter().try_for_each(|(target, failed)| {
            let (first, last) =
                (failed.iter().min_by_key(|it| it.due), failed.iter().max_by_key(|it| it.due));
            let (Some(first), Some(last)) = (first, last) else { return Ok(()) };
            let (count, from, to) = (failed.len(), first.due, last.due);
            write!(
                out,
                "\n    {target:?}: {count} from {from:.1?} to {to:.1?} after the start, the first: {}",
                first.error
            )
        })
    }
}

fn send_until(ended: &AtomicBool, targets: &[Target]) -> Answers {
    let (tell, told) = mpsc::channel();
    let mut answers = Answers::default();
    let began = Instant::now();
    for target in targets.iter().cycle() {
        let due = APART * answers.sent;
        while let Some(rest) = due.checked_sub(began.elapsed()).filter(|it| !it.is_zero()) {
            thread::park_timeout(rest);
        }
        if ended.load(Ordering::Relaxed) {
            break;
        }
        answers.latest = answers.latest.max(began.elapsed().saturating_sub(due));
        answers.sent += 1;
        let (tell, target) = (tell.clone(), *target);
        // A thread is in the namespace of the one that it was started by.
        thread::spawn(move || {
            let asked = Instant::now();
            let failed = target.ask().err().map(|error| Failed { target, due, error: error.to_string() });
            let _ = tell.send((asked.elapsed(), failed));
        });
    }
    drop(tell);
    for (took, failed) in told {
        answers.slowest = answers.slowest.max(took);
        answers.failed.extend(failed);
    }
    answers
}

impl Target {
    /// Whether one request is answered.
    pub(crate) fn answers(self, outside: &str) -> bool {
        Namespace::existing(outside).run(|| self.ask()).is_ok()
    }

    fn ask(self) -> io::Result<()> {
        match self {
            Target::Tcp(at) => {
                let socket = socket(Type::STREAM)?;
                socket.connect_timeout(&at.into(), PATIENCE)?;
                let mut stream = TcpStream::from(socket);
                stream.set_read_timeout(Some(PATIENCE))?;
                stream.write_all(b"GET / HTTP/1.1\r\nHost: shop\r\nConnection: close\r\n\r\n")?;
                let mut answer = String::new();
                stream.read_to_string(&mut answer)?;
                let is_good = answer.starts_with("HTTP/1.1 200");
                if is_good { Ok(()) } else { Err(io::Error::other(answer)) }
            }
            Target::Udp(at) => {
                let socket = UdpSocket::from(socket(Type::DGRAM)?);
                socket.connect(at)?;
                socket.set_read_timeout(Some(PATIENCE))?;
                socket.send(b"well?")?;
                let mut answer = [0; 128];
                let length = socket.recv(&mut answer)?;
                if length > 0 { Ok(()) } else { Err(io::Error::other("an empty datagram")) }
            }
        }
    }
}

/// At the next port in turn, which is used again after ten minutes. The connection tracking of Open vSwitch 3.1 ends in an
/// assertion, and all of the cloud's packets with it, where a port that it remembers is used again (README of the rig).
fn socket(kind: Type) -> io::Result<Socket> {
    const FIRST: u32 = 1_100;
    const PORTS: u32 = 31_000;
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let socket = Socket::new(Domain::IPV4, kind, None)?;
    socket.set_reuse_address(true)?;
    let first = process::id() % PORTS;
    let port = FIRST + (first + NEXT.fetch_add(1, Ordering::Relaxed) % PORTS) % PORTS;
    let port = u16::try_from(port).expect("ports end below the others' ones");
    socket.bind(&SocketAddr::from(([0, 0, 0, 0], port)).into())?;
    Ok(socket)
}
