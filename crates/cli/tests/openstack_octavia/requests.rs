//! Clients outside of the cloud that send requests until they are stopped, and count those that had no answer.

use std::{
    io::{self, Read, Write},
    net::{SocketAddr, TcpStream, UdpSocket},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use seaway_testkit::topology::Namespace;

/// Between two requests of all targets together: 50 a second.
const PAUSE: Duration = Duration::from_millis(20);

/// A SYN that is lost is sent again after 1, 3 and 7 seconds.
const PATIENCE: Duration = Duration::from_secs(15);

#[derive(Clone, Debug)]
pub(crate) enum Target {
    /// A web server that answers with its pod's name.
    Tcp(SocketAddr),
    /// Whoever echoes datagrams.
    Udp(SocketAddr),
}

/// Sends 50 requests a second, spread over all targets. Each TCP request has a connection of its own.
pub(crate) struct Requests {
    ended: Arc<AtomicBool>,
    clients: Vec<JoinHandle<Answers>>,
}

#[derive(Debug, Default)]
pub(crate) struct Answers {
    pub(crate) sent: usize,
    pub(crate) failed: Vec<String>,
}

impl Requests {
    /// `outside`: the name of the namespace that they are sent from.
    pub(crate) fn send(outside: &str, targets: &[Target]) -> Requests {
        let ended = Arc::<AtomicBool>::default();
        let pause = PAUSE * u32::try_from(targets.len()).expect("few targets");
        let clients = targets.iter().cloned().map(|target| {
            let (ended, outside) = (ended.clone(), outside.to_owned());
            thread::spawn(move || Namespace::existing(&outside).run(|| target.ask_until(&ended, pause)))
        });
        Requests { clients: clients.collect(), ended: ended.clone() }
    }

    pub(crate) fn stop(self) -> Answers {
        self.ended.store(true, Ordering::Relaxed);
        let each = self.clients.into_iter().map(|it| it.join().expect("a client does not panic"));
        each.fold(Answers::default(), |all, one| Answers {
            sent: all.sent + one.sent,
            failed: [all.failed, one.failed].concat(),
        })
    }
}

impl Target {
    fn ask_until(&self, ended: &AtomicBool, pause: Duration) -> Answers {
        let mut answers = Answers::default();
        let began = Instant::now();
        while !ended.load(Ordering::Relaxed) {
            let asked = Instant::now();
            if let Err(error) = self.ask() {
                let at = began.elapsed().as_secs_f64();
                answers.failed.push(format!("{self:?} after {at:.1} s: {error}"));
            }
            answers.sent += 1;
            thread::park_timeout(pause.saturating_sub(asked.elapsed()));
        }
        answers
    }

    fn ask(&self) -> io::Result<()> {
        match self {
            Target::Tcp(at) => {
                let mut stream = TcpStream::connect_timeout(at, PATIENCE)?;
                stream.set_read_timeout(Some(PATIENCE))?;
                stream.write_all(b"GET / HTTP/1.1\r\nHost: shop\r\nConnection: close\r\n\r\n")?;
                let mut answer = String::new();
                stream.read_to_string(&mut answer)?;
                let is_good = answer.starts_with("HTTP/1.1 200");
                if is_good { Ok(()) } else { Err(io::Error::other(answer)) }
            }
            Target::Udp(at) => {
                let socket = UdpSocket::bind("0.0.0.0:0")?;
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
