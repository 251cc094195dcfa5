//! Health: who may get something new.
//!
//! ```text
//!   pools ──► Prober (one thread): checks, rise and fall ──► Vitals (atomics) ◄── pickers read
//!                 ▲                        └─► one log line, one HealthChange        │
//!                 └──────── suspect: so many failures in a row ◄── data path reports ┘
//! ```
//! Only the prober's thread changes a verdict, so "never all of a pool" needs no lock.

mod changes;
mod check;
mod probe;
mod rounds;
mod vitals;
mod ward;

use std::{
    io,
    sync::{Arc, Mutex, OnceLock, PoisonError},
    thread::{self, JoinHandle},
    time::Instant,
};

use nix::sys::eventfd::{EfdFlags, EventFd};
use seaway_model::{LbKey, Pool, PoolId};

use self::{changes::Subscribers, rounds::Rounds};
pub use self::{
    changes::{HealthChange, HealthChanges},
    vitals::{Health, Patient, Vitals},
    ward::Admission,
};

/// Milliseconds since this process first asked: the clock of everything here.
pub fn millis() -> u64 {
    static START: OnceLock<Instant> = OnceLock::new();
    u64::try_from(START.get_or_init(Instant::now).elapsed().as_millis()).unwrap_or(u64::MAX)
}

/// Checks that are under way at once: enough for 20,000 members on a local network, few enough to leave
/// descriptors to those who pay.
pub const MOST_OPEN: usize = 512;

/// The one thread of a process that looks after members. Dropping it ends the thread.
pub struct Prober {
    desk: Arc<Desk>,
    thread: Option<JoinHandle<()>>,
}

impl Prober {
    pub fn start() -> io::Result<Prober> {
        let bell = EventFd::from_value_and_flags(0, EfdFlags::EFD_NONBLOCK | EfdFlags::EFD_CLOEXEC)?;
        let desk = Arc::new(Desk { bell, requests: Mutex::default(), subscribers: Subscribers::default() });
        let rounds_desk = desk.clone();
        // What the thread works with is not shared, so it is made there; whether that succeeded comes back.
        let (tell, told) = std::sync::mpsc::sync_channel(1);
        let thread = thread::Builder::new().name("prober".into()).spawn(move || {
            match Rounds::new(rounds_desk, MOST_OPEN) {
                Ok(rounds) => {
                    let _ = tell.send(Ok(()));
                    rounds.run();
                }
                Err(error) => {
                    let _ = tell.send(Err(error));
                }
            }
        })?;
        told.recv().unwrap_or_else(|_| Err(io::Error::other("the prober ended before it began")))?;
        Ok(Prober { desk, thread: Some(thread) })
    }

    /// A pool is new or changed; `members` hold the runtime state of each of its members.
    pub fn watch(&self, key: LbKey, pool: Arc<Pool>, members: Vec<Admission>) {
        self.desk.ask(Request::Watch { key, pool, members });
    }

    pub fn forget(&self, key: LbKey, pool: PoolId) {
        self.desk.ask(Request::Forget { key, pool });
    }

    /// To be called when [`Vitals::failed`] says so: the member is ejected, unless nobody else is left.
    pub fn suspect(&self, vitals: &Vitals) {
        self.desk.ask(Request::Suspect(vitals.id()));
    }

    /// What changes from now on.
    pub fn changes(&self) -> HealthChanges {
        self.desk.subscribers.subscribe()
    }
}

impl Drop for Prober {
    fn drop(&mut self) {
        self.desk.ask(Request::Stop);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Where the other threads leave what they want of the prober. A suspicion comes at most once per several
/// failures, the rest from changes of the configuration: the queue stays short.
struct Desk {
    bell: EventFd,
    requests: Mutex<Vec<Request>>,
    subscribers: Subscribers,
}

enum Request {
    Watch { key: LbKey, pool: Arc<Pool>, members: Vec<Admission> },
    Forget { key: LbKey, pool: PoolId },
    Suspect(u64),
    Stop,
}

impl Desk {
    fn ask(&self, request: Request) {
        let mut requests = self.requests.lock().unwrap_or_else(PoisonError::into_inner);
        requests.push(request);
        if requests.len() == 1 {
            // Fails only if it rings already.
            let _ = self.bell.write(1);
        }
    }

    fn take(&self) -> Vec<Request> {
        let _ = self.bell.read();
        std::mem::take(&mut *self.requests.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn publish(&self, changes: Vec<HealthChange>) {
        for change in &changes {
            change.log();
        }
        self.subscribers.publish(changes);
    }
}
