//! Services that lead to themselves: what one client takes of the contender's descriptors, and whether another Service
//! goes on.

use std::fs;
use std::io::Write as _;
use std::net::TcpStream;
use std::time::Duration;

use anyhow::{Context, Result};

use super::honest::{self, ClientSet, RequestStats, Requests, ask_until, served};
use super::ports::{self, Loop};
use crate::contender::{Contender, Programs, Role};
use crate::pace::now;
use crate::sys::Epoll;

#[derive(Clone, Debug, serde::Serialize)]
pub struct Outcome {
    /// More than before, at the peak.
    pub descriptors: u64,
    /// Clients of another Service.
    pub other: RequestStats,
}

pub fn kind(ring: Loop) -> &'static str {
    if ring.http { "HTTP" } else { "TCP" }
}

pub fn measure(programs: &Programs, contender: Contender, ring: Loop, is_trial: bool) -> Result<Outcome> {
    let running = contender.start(programs, Role::Attacked)?;
    let epoll = Epoll::new().context("epoll")?;
    let mut sets = vec![ClientSet::new(Box::new(Requests::new(ports::listener(ports::OTHER), false)), 400.0)];
    ask_until(&epoll, &mut sets, now() + 100_000_000, || {})?;
    // A worker may have come after its listeners.
    let processes = running.processes();
    let before = descriptors(&processes);
    let mut most = before;
    let entrance = ring.listeners()[0].0;
    let mut client = TcpStream::connect(ports::listener(entrance)).context("cannot enter the loop")?;
    client.set_write_timeout(Some(Duration::from_secs(1)))?;
    // It may be ended at once.
    let _sent = client.write_all(b"GET /ok/0 HTTP/1.1\r\nHost: bench.example\r\n\r\n");
    let time = (now(), now() + if is_trial { 200_000_000 } else { 1_500_000_000 });
    ask_until(&epoll, &mut sets, time.1, || most = most.max(descriptors(&processes)))?;
    drop(client);
    honest::wait_for_answers(&epoll, &mut sets)?;
    let other = served(sets[0].asks.asked(), &[time]);
    Ok(Outcome { descriptors: most - before, other })
}

fn descriptors(processes: &[u32]) -> u64 {
    let of = |pid: &u32| fs::read_dir(format!("/proc/{pid}/fd")).map_or(0, |it| it.count() as u64);
    processes.iter().map(of).sum()
}
