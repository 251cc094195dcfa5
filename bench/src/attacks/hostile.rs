//! Hostile clients: so many connections that one thread drives, each with a script. One that is ended comes again.

pub mod bytes;
pub mod h2;
mod line;
mod probes;

use std::net::{SocketAddrV4, UdpSocket};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use self::bytes::Bytes;
use self::h2::H2;
use crate::sys;

/// How often each connection gets its turn: floods are so many frames in each.
pub const TURN: Duration = Duration::from_millis(10);
const PARTS: usize = 10;
/// Until all of them have begun; longer where each begins with many requests, or it would be a flood.
const RAMP: Duration = Duration::from_millis(250);
const RAMP_OF_STREAMS: Duration = Duration::from_millis(1_500);

/// What each connection does.
#[derive(Clone, Debug)]
pub enum Script {
    Bytes(Bytes),
    H2(H2),
    /// A datagram from each of so many new ports in each turn.
    Ports(usize),
    /// Asks nothing: Services of its own whose members are checked.
    Probes,
}

pub trait Attacker {
    fn turn(&mut self, now: Instant);
    /// How often it was ended.
    fn ended(&self) -> u64;
}

/// Runs until it is dropped.
pub struct Attackers {
    stop: Arc<AtomicBool>,
    ended: Arc<AtomicU64>,
    thread: Option<JoinHandle<()>>,
}

impl Attackers {
    /// `folder`: what the contender is configured by.
    pub fn launch(
        script: &Script,
        to: SocketAddrV4,
        count: usize,
        ramp: Duration,
        folder: Option<&Path>,
    ) -> Self {
        let folder = folder.map(Path::to_owned);
        let stop = Arc::<AtomicBool>::default();
        let ended = Arc::<AtomicU64>::default();
        let (told, counted, script) = (stop.clone(), ended.clone(), script.clone());
        let thread = thread::spawn(move || {
            sys::yield_to_others();
            sys::wake_up_in_time();
            let mut foes: Vec<Box<dyn Attacker>> =
                (0..count).filter_map(|_| script.foe(to, folder.as_ref())).collect();
            let (began, mut part) = (Instant::now(), 0);
            while !told.load(Relaxed) {
                let now = Instant::now();
                let begun = (now - began).as_secs_f64() / ramp.as_secs_f64() * count as f64;
                // One after the other, so that they do not come in one burst.
                for foe in foes.iter_mut().take(begun as usize + 1).skip(part).step_by(PARTS) {
                    foe.turn(now);
                }
                part = (part + 1) % PARTS;
                counted.store(foes.iter().map(|it| it.ended()).sum(), Relaxed);
                let next = TURN / PARTS as u32;
                thread::sleep(next.saturating_sub(now.elapsed()).max(next / 10));
            }
        });
        Self { stop, ended, thread: Some(thread) }
    }

    pub fn ended(&self) -> u64 {
        self.ended.load(Relaxed)
    }
}

impl Drop for Attackers {
    fn drop(&mut self) {
        self.stop.store(true, Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ended = thread.join();
        }
    }
}

impl Script {
    pub fn ramp(&self, is_trial: bool) -> Duration {
        match self {
            _ if is_trial => TURN * 10,
            Self::H2(script) if script.streams.most > 1 => RAMP_OF_STREAMS,
            _ => RAMP,
        }
    }

    /// `None`: this contender is configured by no folder.
    fn foe(&self, to: SocketAddrV4, folder: Option<&PathBuf>) -> Option<Box<dyn Attacker>> {
        Some(match self {
            Self::Bytes(script) => Box::new(bytes::Client::new(script.clone(), to)),
            Self::H2(script) => Box::new(h2::Client::new(script.clone(), to)),
            Self::Ports(each) => Box::new(Ports { each: *each, to, open: Vec::new() }),
            Self::Probes => Box::new(probes::Probes::of(folder?)),
        })
    }
}

struct Ports {
    each: usize,
    to: SocketAddrV4,
    open: Vec<UdpSocket>,
}

impl Attacker for Ports {
    fn turn(&mut self, _now: Instant) {
        self.open.clear();
        for _ in 0..self.each {
            // Without a port left there is a turn without.
            let Ok(socket) = UdpSocket::bind(("127.0.0.1", 0)) else { return };
            let _sent = socket.send_to(b"one datagram of a new flow", self.to);
            self.open.push(socket);
        }
    }

    fn ended(&self) -> u64 {
        0
    }
}
