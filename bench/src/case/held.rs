//! Many connections that do nothing: what each costs in memory of the contender's own.

use anyhow::{Result, ensure};

use super::{Bench, Metric, Sample};
use crate::contender::{Contender, Role, SMALL};
use crate::cores::Memory;
use crate::load::Tally;
use crate::load::exchange::{Exchanges, Shape};
use crate::pace::now;

pub const WANTED: u64 = 10_000;
/// Descriptors that a contender and the bench need beside those of the connections.
const SPARE: u64 = 200;

/// As many of the 10,000 as the limit of open files allows: each takes two descriptors on either side.
pub fn connections(bench: &Bench) -> u64 {
    let fitting = WANTED.min(bench.open_files.saturating_sub(SPARE) / 2);
    if bench.effort.seconds < 1.0 { fitting.min(1_000) } else { fitting }
}

pub fn sample(bench: &mut Bench, contender: Contender) -> Result<Sample> {
    let count = connections(bench);
    let running = contender.start(&bench.programs, Role::Stream)?;
    let before = Memory::of(&running.processes())?;
    let mut clients = Exchanges::new(SMALL, Shape { request: 1024, answer: 1024, inspect: true });
    // In steps, so that no queue of new connections overflows.
    let mut opened = 0;
    while opened < count {
        let step = 500.min(count - opened);
        clients.open(&mut bench.rig, step as usize)?;
        opened += step;
    }
    let mut tally = Tally::default();
    let settle = now() + 1_000_000_000;
    while now() < settle {
        bench.rig.turn(&mut clients, &mut tally, 10)?;
    }
    let processes = running.processes();
    ensure!(!processes.is_empty(), "the contender ended:\n{}", running.last_words());
    let after = Memory::of(&processes)?;
    let grown = after.proportional.saturating_sub(before.proportional) as f64;
    drop(clients);
    bench.rig.backend.forget_connections();
    let figures = [
        (Metric::MemoryPerConnection, grown / count as f64 / 1024.0),
        (Metric::Resident, after.resident as f64 / f64::from(1 << 20)),
    ];
    Ok(Sample {
        figures: figures.into(),
        errors: tally.errors,
        complaints: tally.complaints.into(),
        noise: None,
    })
}
