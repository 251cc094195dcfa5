//! The cases that only Seaway has: how soon it serves a folder, and what it needs while nothing happens.

use std::io::{self, Read};
use std::net::{Ipv4Addr, SocketAddrV4, TcpStream};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};

use super::{Bench, Metric, Sample};
use crate::contender::seaway::{self, large};
use crate::contender::{Contender, Role, Running};
use crate::cores::{CounterSnapshot, Memory};
use crate::sys::{self, Epoll, READABLE};

const MIB: f64 = (1 << 20) as f64;
/// Where all members of the large folder are answered: on every address of the loopback.
const EVERYWHERE: SocketAddrV4 = SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, seaway::LARGE_MEMBERS_PORT);
/// The endpoint that replaces another; nobody else has it.
const NEWCOMER: Ipv4Addr = Ipv4Addr::new(127, 99, 0, 1);

pub fn large_folder(bench: &mut Bench) -> Result<Sample> {
    ensure!(
        bench.own_network,
        "the folder case listens on every address: it needs a network of its own (root)"
    );
    let members = Members::start()?;
    let folder = tempfile::Builder::new().prefix("seaway-bench-").tempdir()?;
    seaway::write_large_folder(folder.path())?;
    let running = Running::launch(seaway::command(&bench.programs.seaway, folder.path()), Some(folder))?;
    let ready = running.wait_until(Duration::from_secs(60), seaway::is_ready)?;
    // Ready must mean serving: the last Service of all answers.
    members.who_answers(large::SERVICES - 1).context("ready, but the last Service does not serve")?;
    let resident = Memory::of(&running.processes())?.resident as f64 / MIB;

    let folder = running.folder.as_ref().context("the folder lives as long as its Seaway")?;
    seaway::write_changed_service(folder.path(), NEWCOMER)?;
    let changed = Instant::now();
    let mut applied = None;
    while applied.is_none() && changed.elapsed() < Duration::from_secs(10) && !sys::interrupted() {
        let answered = members.who_answers(large::CHANGED)?;
        applied = (answered == NEWCOMER).then(|| changed.elapsed());
    }
    let applied = applied.context("the new endpoint got no connection within 10 s")?;
    let figures = [
        (Metric::UntilReady, ready.as_secs_f64() * 1e3),
        (Metric::UntilChanged, applied.as_secs_f64() * 1e3),
        (Metric::Resident, resident.max(Memory::of(&running.processes())?.resident as f64 / MIB)),
    ];
    Ok(Sample { figures: figures.into(), ..Sample::default() })
}

pub fn at_rest(bench: &mut Bench) -> Result<Sample> {
    let running = Contender::Seaway.start(&bench.programs, Role::Stream)?;
    let ready = running.ready_after.context("Seaway says when it is ready")?;
    // What a start leaves behind (first checks, freed memory) is over after a second.
    let step = Duration::from_millis(100);
    rest(bench, Duration::from_secs(1), step)?;
    let processes = running.processes();
    let begin = CounterSnapshot::take(&processes)?;
    rest(bench, Duration::from_secs_f64(bench.effort.at_rest), step)?;
    let spent = CounterSnapshot::take(&processes)?.since(&begin);
    let figures = [
        (Metric::UntilReady, ready.as_secs_f64() * 1e3),
        (Metric::Resident, Memory::of(&processes)?.resident as f64 / MIB),
        (Metric::CpuAtRest, spent.task / spent.wall * 100.0),
    ];
    Ok(Sample { figures: figures.into(), ..Sample::default() })
}

/// Lets time pass while the backends go on answering health checks.
fn rest(bench: &mut Bench, time: Duration, step: Duration) -> Result<()> {
    let end = Instant::now() + time;
    while Instant::now() < end {
        bench.rig.answer_checks(step.as_millis() as i32)?;
    }
    Ok(())
}

/// The members of the large folder: one listener that tells each client which address answered, in a thread that ends
/// with the case.
pub(super) struct Members {
    ended: Arc<AtomicBool>,
    thread: Option<thread::JoinHandle<io::Result<()>>>,
}

impl Members {
    pub(super) fn start() -> Result<Self> {
        let listener =
            sys::tcp_listen(EVERYWHERE).context("cannot listen for the members of the large folder")?;
        let ended = Arc::new(AtomicBool::new(false));
        let seen = Arc::clone(&ended);
        let thread = thread::spawn(move || tell_who_answers(&listener, &seen));
        Ok(Self { ended, thread: Some(thread) })
    }

    /// Connects to a Service and returns the address of the member that the connection came to.
    fn who_answers(&self, service: usize) -> Result<Ipv4Addr> {
        self.answers_at(SocketAddrV4::new(Ipv4Addr::LOCALHOST, seaway::large_port(service)))
    }

    pub(super) fn answers_at(&self, to: SocketAddrV4) -> Result<Ipv4Addr> {
        let mut client = TcpStream::connect(to).with_context(|| format!("nobody serves {to}"))?;
        client.set_read_timeout(Some(Duration::from_secs(2)))?;
        let mut answer = [0; 4];
        client.read_exact(&mut answer).with_context(|| format!("no answer through {to}"))?;
        Ok(Ipv4Addr::from(answer))
    }
}

fn tell_who_answers(listener: &OwnedFd, ended: &AtomicBool) -> io::Result<()> {
    let epoll = Epoll::new()?;
    epoll.add(listener, 0, READABLE)?;
    let mut events = Vec::new();
    while !ended.load(Ordering::Relaxed) {
        epoll.wait(&mut events, 50)?;
        while let Ok(connection) = sys::accept(listener) {
            // A health check may be gone already; that is its good right.
            let _gone = sys::local_ip(&connection).and_then(|ip| sys::send(&connection, &ip.octets()));
        }
    }
    Ok(())
}

impl Drop for Members {
    fn drop(&mut self) {
        self.ended.store(true, Ordering::Relaxed);
        let _ended = self.thread.take().map(thread::JoinHandle::join);
    }
}
