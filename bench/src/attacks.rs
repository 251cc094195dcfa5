//! Hostile clients beside honest ones: what those lose, and what each hostile connection costs.
//!
//! ```text
//!   core 1: honest clients, open loop ──┐
//!           64 hostile connections ─────┤──► core 0: contender ──► core 1: members
//!
//!   quiet ──► attackers come ──► attack ──► attackers leave ──► quiet
//! ```
//!
//! Unlike the other cases the generator sleeps: what counts here are ratios of rates and latencies, not time of core 0.

mod catalogue;
mod desync;
mod honest;
mod hostile;
mod loops;
mod member;
pub mod ports;
mod round;
mod table;

use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};

pub use self::catalogue::REDIRECTED;
use self::catalogue::attacks;
use self::member::Members;
use self::table::Table;
use crate::contender::{Contender, Programs};
use crate::verdict::ROUNDS;
use crate::{sys, tree};

/// At a time.
pub const HOSTILE: usize = 64;
/// In a trial a peer is attacked in one of so many ways.
const TRIAL: usize = 5;
/// A round in which others had the cores is repeated, as long as the whole run has not taken too long.
const ATTEMPTS: usize = 3;
const REPEATS: Duration = Duration::from_secs(600);
/// Of each class of desynchronisation.
const TRIES: usize = 200;

pub struct Plan {
    pub rounds: Option<usize>,
    /// With their versions.
    pub contenders: Vec<(Contender, String)>,
    pub is_trial: bool,
    pub own_network: bool,
    pub rate_scale: f64,
    pub only: Vec<String>,
    pub out: Option<PathBuf>,
    pub json: Option<PathBuf>,
}

/// What waits in the kernel for a client that takes nothing grows to megabytes for each connection, and moving these
/// would be the attack. Nobody else is in our network.
fn limit_buffers() {
    for (name, sizes) in [("tcp_wmem", "4096 16384 262144"), ("tcp_rmem", "4096 65536 262144")] {
        if let Err(error) = std::fs::write(format!("/proc/sys/net/ipv4/{name}"), sizes) {
            eprintln!("cannot set net.ipv4.{name} ({error})");
        }
    }
}

/// What the whole run lacks to be a measurement.
fn lacks(plan: &Plan) -> Vec<String> {
    let mut lacks = vec![];
    if plan.is_trial || (plan.rate_scale - 1.0).abs() > f64::EPSILON {
        lacks.push("not the stated load".to_owned());
    }
    if !plan.own_network {
        lacks.push("in the host's network".to_owned());
    }
    let ours = plan.contenders.iter().find(|(contender, _)| *contender == Contender::Seaway);
    lacks.extend(ours.and_then(|(_, version)| tree::lacks(version)));
    lacks
}

/// Whether Seaway met all targets.
pub fn run(programs: &Programs, plan: &Plan) -> Result<bool> {
    use Contender::{Haproxy, Nginx, Seaway, SeawayBefore};
    sys::wake_up_in_time();
    if plan.own_network {
        limit_buffers();
    }
    let takes_part = |it: &&(Contender, String)| matches!(it.0, Seaway | SeawayBefore | Haproxy | Nginx);
    let (contenders, versions): (Vec<Contender>, Vec<String>) =
        plan.contenders.iter().filter(takes_part).cloned().unzip();
    let rounds = if plan.is_trial { 1 } else { plan.rounds.unwrap_or(ROUNDS) };
    let is_wanted = |name: &str| plan.only.is_empty() || plan.only.iter().any(|it| it == name);
    let began = Instant::now();
    let mut table = Table::new(versions, rounds, lacks(plan));

    for round in 0..rounds {
        for (index, attack) in attacks().iter().enumerate().filter(|(_, it)| is_wanted(it.name)) {
            for at in 0..contenders.len() {
                let contender = contenders[(at + round) % contenders.len()];
                // A trial shows that each attack works at Seaway, and that each peer can be attacked.
                let skips = plan.is_trial && contender != Seaway && index % TRIAL != at;
                if skips || !attack.is_of(contender) {
                    continue;
                }
                let times = round::Times::of(plan.is_trial);
                let rate = 1_000.0 * attack.load() * plan.rate_scale;
                let mut attempts = 1;
                let outcome = loop {
                    let members = Members::start()?;
                    let outcome = round::measure(programs, contender, attack, times, rate);
                    drop(members);
                    let is_disturbed = outcome.as_ref().is_ok_and(round::Outcome::is_disturbed);
                    let may_repeat = !plan.is_trial && attempts < ATTEMPTS && began.elapsed() < REPEATS;
                    if !is_disturbed || !may_repeat {
                        break outcome;
                    }
                    println!("{:<18} {contender}: disturbed, again", attack.name);
                    attempts += 1;
                };
                match outcome {
                    Ok(outcome) => {
                        println!("{}", table::line(attack.name, contender, &outcome));
                        table.attacked(attack, contender, Ok(outcome));
                    }
                    Err(error) if sys::interrupted() => return Err(error),
                    Err(error) => {
                        println!("{:<18} {contender}: {error:#}", attack.name);
                        table.attacked(attack, contender, Err(format!("{error:#}")));
                    }
                }
            }
        }
    }
    if is_wanted("loops") {
        for ring in ports::Loop::all().filter(|it| !plan.is_trial || it.length == 2) {
            for contender in &contenders {
                let _members = Members::start()?;
                let outcome = loops::measure(programs, *contender, ring, plan.is_trial)
                    .with_context(|| format!("{ring:?} of {contender}"))?;
                println!("loop of {} ({}) {contender}: {outcome:?}", ring.length, loops::kind(ring));
                table.looped(ring, *contender, outcome);
            }
        }
    }
    if is_wanted("desync") {
        let tries = if plan.is_trial { 20 } else { TRIES };
        for contender in &contenders {
            for (class, outcome) in desync::measure(programs, *contender, tries)? {
                println!("{class}, {contender}: {outcome}");
                table.desynchronised(class, *contender, outcome);
            }
        }
    }
    println!("\n{}", table.markdown());
    if let Some(path) = &plan.json {
        std::fs::write(path, table.json()?).with_context(|| path.display().to_string())?;
    }
    if let Some(path) = &plan.out {
        crate::report::write_between_markers(path, "Under attack", &table.markdown())?;
    }
    Ok(table.is_good())
}
