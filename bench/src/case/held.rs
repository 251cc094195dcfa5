//! Many connections that do nothing: what each costs in memory of the contender's own.

use anyhow::{Result, ensure};

use super::{Bench, Case, Metric, Sample, web};
use crate::contender::{Contender, Role, SMALL};
use crate::cores::Memory;
use crate::load::exchange::{Exchanges, Shape};
use crate::load::{Clients, Rig, Tally};
use crate::pace::now;

pub const WANTED: u64 = 10_000;
/// Descriptors that a contender and the bench need beside those of the connections.
const SPARE: u64 = 200;

/// As many of the 10,000 as the limit of open files allows: each of TCP takes two descriptors on either side, of HTTP one.
pub fn connections(bench: &Bench, case: Case) -> u64 {
    // In a short round what is not optimised shakes hands, too.
    let (each, short) = if case == Case::IdleConnections { (2, 1_000) } else { (1, 200) };
    let fitting = WANTED.min(bench.open_files.saturating_sub(SPARE) / each);
    if bench.effort.is_a_trial() { fitting.min(short) } else { fitting }
}

pub fn sample(bench: &mut Bench, case: Case, contender: Contender) -> Result<Sample> {
    let count = connections(bench, case);
    let running = contender.start(&bench.programs, case.role())?;
    let before = Memory::of(&running.processes())?;
    let mut clients = match case.role() {
        Role::Web => web::idle(&mut bench.rig, case, count as usize)?,
        Role::Stream | Role::Attacked => opaque(&mut bench.rig, count as usize)?,
    };
    let mut tally = Tally::default();
    let settle = now() + 1_000_000_000;
    while now() < settle {
        bench.rig.turn(&mut *clients, &mut tally, 10)?;
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
        wrong: tally.errors,
        complaints: tally.complaints.into(),
        noise: None,
    })
}

fn opaque(rig: &mut Rig, count: usize) -> Result<Box<dyn Clients>> {
    let mut clients =
        Exchanges::new(SMALL, Shape { request: 1024, answer: 1024, inspect: true, upgrade: false });
    web::steps(count).try_for_each(|step| clients.open(rig, step))?;
    Ok(Box::new(clients))
}
