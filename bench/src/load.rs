//! Drives clients against a contender at a fixed rate, with the backend in the same loop.
//!
//! ```text
//!   core 1: one thread, one epoll              core 0
//!   clients ──── requests ────────────────►  contender
//!   backend ◄─────────────────── requests ────┘
//! ```
//!
//! The loop never sleeps while it measures: a generator that sleeps would bill its own wake-ups to the contender's core.

pub mod connect;
pub mod exchange;
pub mod flows;
pub mod streams;
pub mod web;
pub mod wire;

use std::collections::VecDeque;

use anyhow::{Context, Result, bail, ensure};

use crate::backend::{Backend, FIRST_TOKEN};
use crate::pace::{Pace, Rate, now};
use crate::sys::{self, Epoll, Event};

const SECOND: f64 = 1e9;

/// One way of asking: over kept connections, over new ones, over UDP flows. Owns the tokens below `FIRST_TOKEN`.
pub trait Clients {
    /// Sends one request that was due at `due`; `false` if all connections are busy.
    fn ask(&mut self, epoll: &Epoll, due: u64, tally: &mut Tally) -> Result<bool>;
    fn event(&mut self, epoll: &Epoll, event: Event, tally: &mut Tally) -> Result<()>;
}

struct NoClients;

impl Clients for NoClients {
    fn ask(&mut self, _epoll: &Epoll, _due: u64, _tally: &mut Tally) -> Result<bool> {
        Ok(false)
    }

    fn event(&mut self, _epoll: &Epoll, _event: Event, _tally: &mut Tally) -> Result<()> {
        Ok(())
    }
}

/// What the clients counted.
#[derive(Clone, Debug, Default)]
pub struct Tally {
    pub asked: u64,
    pub answered: u64,
    pub errors: u64,
    pub bytes_out: u64,
    pub bytes_in: u64,
    /// Nanoseconds from when a request was due to its last byte; kept only while measuring.
    pub latencies: Vec<u32>,
    pub keeps_latencies: bool,
    /// The first few errors in words.
    pub complaints: VecDeque<String>,
}

impl Tally {
    pub fn answer(&mut self, due: u64) {
        self.answered += 1;
        if self.keeps_latencies {
            self.latencies.push(now().saturating_sub(due).min(u64::from(u32::MAX)) as u32);
        }
    }

    pub fn error(&mut self, what: impl FnOnce() -> String) {
        self.errors += 1;
        if self.complaints.len() < 3 {
            self.complaints.push_back(what());
        }
    }

    fn outstanding(&self) -> u64 {
        self.asked - self.answered.min(self.asked)
    }
}

/// The loop's own state, which outlives contenders.
pub struct Rig {
    pub epoll: Epoll,
    pub backend: Backend,
    events: Vec<Event>,
}

/// The measured part of one run.
#[derive(Clone, Debug)]
pub struct Run {
    pub seconds: f64,
    pub answered: u64,
    pub errors: u64,
    pub complaints: Vec<String>,
    pub latencies: Vec<u32>,
}

impl Rig {
    pub fn new() -> Result<Self> {
        let epoll = Epoll::new().context("epoll")?;
        let backend = Backend::start(&epoll).context("cannot start the backends on 127.0.0.2 to .5")?;
        Ok(Self { epoll, backend, events: Vec::with_capacity(256) })
    }

    /// One turn of the loop.
    pub fn turn(&mut self, clients: &mut dyn Clients, tally: &mut Tally, timeout_ms: i32) -> Result<()> {
        if sys::interrupted() {
            bail!("interrupted");
        }
        self.epoll.wait(&mut self.events, timeout_ms)?;
        for index in 0..self.events.len() {
            let event = self.events[index];
            if event.token >= FIRST_TOKEN {
                self.backend.event(&self.epoll, event)?;
            } else {
                clients.event(&self.epoll, event, tally)?;
            }
        }
        Ok(())
    }

    /// Waits up to `timeout_ms` for something to do, with no clients: health checks come and go.
    pub fn answer_checks(&mut self, timeout_ms: i32) -> Result<()> {
        self.turn(&mut NoClients, &mut Tally::default(), timeout_ms)
    }

    /// Asks `count` questions one after the other and waits for each answer: proof that the path works at all.
    pub fn prove(&mut self, clients: &mut dyn Clients, count: u64) -> Result<()> {
        let mut tally = Tally::default();
        let deadline = now() + 5_000_000_000;
        for asked in 0..count {
            while !clients.ask(&self.epoll, now(), &mut tally)? {
                self.turn(clients, &mut tally, 1)?;
                ensure!(
                    now() < deadline,
                    "no connection through the contender after 5 s: {:?}",
                    tally.complaints
                );
            }
            while tally.answered <= asked {
                self.turn(clients, &mut tally, 1)?;
                ensure!(tally.errors == 0, "first requests failed: {:?}", tally.complaints);
                ensure!(now() < deadline, "no answer through the contender after 5 s");
            }
        }
        Ok(())
    }

    /// Loads the contender, calls `mark` when measuring begins and when it ends, and waits for the last answers.
    pub fn run(
        &mut self,
        clients: &mut dyn Clients,
        rate: Option<Rate>,
        warm_up: f64,
        seconds: f64,
        mut mark: impl FnMut() -> Result<()>,
    ) -> Result<Run> {
        let seen = self.backend.seen;
        let mut tally = Tally::default();
        tally.latencies.reserve((rate.map_or(200_000.0, |it| it.per_second) * seconds * 1.1) as usize);
        let mut pace = rate.map_or_else(Pace::closed_loop, |rate| Pace::open_loop(rate, now()));
        self.load_until(clients, &mut tally, &mut pace, now() + (warm_up * SECOND) as u64)?;

        mark()?;
        let (begin, answered) = (now(), tally.answered);
        tally.keeps_latencies = true;
        self.load_until(clients, &mut tally, &mut pace, begin + (seconds * SECOND) as u64)?;
        let (end, answered) = (now(), tally.answered - answered);
        mark()?;

        tally.keeps_latencies = false;
        let patience = now() + 2_000_000_000;
        while tally.outstanding() > tally.errors && now() < patience {
            self.turn(clients, &mut tally, 1)?;
        }
        let lost = tally.outstanding().saturating_sub(tally.errors);
        if lost > 0 {
            tally.error(|| format!("{lost} requests without an answer"));
            tally.errors += lost - 1;
        }
        let served = self.backend.seen;
        let broken = served.errors - seen.errors;
        if broken > 0 {
            tally.error(|| format!("{broken} requests reached the backend damaged, or not whole"));
            tally.errors += broken - 1;
        }
        // Health checks move no bytes, so the two sides must agree to the byte.
        let (to, from) = (served.bytes_in - seen.bytes_in, served.bytes_out - seen.bytes_out);
        if (to, from) != (tally.bytes_out, tally.bytes_in) {
            let Tally { bytes_out, bytes_in, .. } = tally;
            tally.error(|| {
                format!("{bytes_out} bytes sent but {to} arrived, {from} answered but {bytes_in} came back")
            });
        }
        Ok(Run {
            seconds: (end - begin) as f64 / SECOND,
            answered,
            errors: tally.errors,
            complaints: tally.complaints.into(),
            latencies: tally.latencies,
        })
    }

    fn load_until(
        &mut self,
        clients: &mut dyn Clients,
        tally: &mut Tally,
        pace: &mut Pace,
        end: u64,
    ) -> Result<()> {
        loop {
            let time = now();
            if time >= end {
                return Ok(());
            }
            while let Some(due) = pace.due(time) {
                if !clients.ask(&self.epoll, due, tally)? {
                    break;
                }
                pace.advance();
            }
            self.turn(clients, tally, 0)?;
        }
    }
}
