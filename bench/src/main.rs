//! Runs Seaway beside HAProxy and nginx `stream` and says what a request costs each of them.
//!
//! ```text
//!   for each case:  settle the rate ──► rounds × contenders, in turn ──► medians, paired ratios ──► table
//!                                          │
//!                            start ► prove ► load ► look at core 0 ► end
//! ```
//!
//! It knows how the contenders are started and what they are told (`contender`), how to load them (`load`) and what must
//! be reached (`case`). It deliberately knows nothing of how any of them works: Seaway is a program like the others.

mod attacks;
mod backend;
mod case;
mod contender;
mod cores;
mod load;
mod message;
mod metric;
mod octavia;
mod pace;
mod plane;
mod record;
mod report;
mod rounds;
mod statistics;
mod sys;
mod target;
mod tree;
mod verdict;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, Result, bail, ensure};
use clap::{Parser, ValueEnum as _};

use case::{Bench, Case, Effort};
use contender::certificate::Certificate;
use contender::{Contender, POLICIES, PROXIES, Programs};
use load::Rig;

const CONTENDERS: [&str; 5] = ["seaway", "haproxy", "nginx", "haproxy-splice", "seaway-few"];

/// Measures Seaway beside HAProxy and nginx, one worker each on core 0, the load on core 1.
#[derive(Debug, Parser)]
#[command(name = "bench/run")]
struct Arguments {
    /// Cases to run; all of them but `attacks`, `octavia`, `policies` and `proxies` if none is named
    cases: Vec<Case>,
    /// Rounds for each case, five unless said; medians over fewer are not a result
    #[arg(long)]
    rounds: Option<usize>,
    /// One short round at a fraction of the rates: shows that the bench works, not what anything costs
    #[arg(long)]
    quick: bool,
    /// Contenders to run
    #[arg(long, value_delimiter = ',', default_values = CONTENDERS)]
    contenders: Vec<Contender>,
    /// Multiply all fixed rates, for a machine that is much slower or faster
    #[arg(long, default_value_t = 1.0)]
    rate_scale: f64,
    /// Seconds that each contender is measured in each round
    #[arg(long)]
    seconds: Option<f64>,
    /// Seconds to wait for a quiet machine before each measurement
    #[arg(long, default_value_t = 30.0)]
    patience: f64,
    /// Put the tables into this file, between its markers
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
    /// Put everything that was measured into this file
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// The file of all figures: cases that are measured replace their figures there, after each case; the tables are of all
    #[arg(long, value_name = "FILE")]
    record: Option<PathBuf>,
    /// Measure only so many cases, those whose figures in the record are oldest
    #[arg(long, value_name = "COUNT", requires = "record")]
    oldest: Option<usize>,
    /// The Seaway to measure
    #[arg(long, default_value = "target/dist/seaway")]
    seaway: PathBuf,
    /// An earlier Seaway that is measured beside it, as one more contender in the same rounds
    #[arg(long, value_name = "PATH")]
    before: Option<PathBuf>,
    /// Attacks to run, or `loops`, or `desync`; all of them if none is named
    #[arg(long, value_delimiter = ',')]
    attacks: Vec<String>,
    /// Services of the cases `kubernetes` and `octavia`
    #[arg(long)]
    services: Option<usize>,
    /// Keep what the control plane of the case `kubernetes` was filled with in this folder, and begin with it next time
    #[arg(long, value_name = "DIR")]
    keep: Option<PathBuf>,
    /// What starts a control plane of Kubernetes
    #[arg(long, default_value = "rig/kubernetes")]
    rig: PathBuf,
    /// Where haproxy.cfg and nginx.conf are
    #[arg(long, default_value = "bench/peers")]
    peers: PathBuf,
    /// Where the proxies of the case `proxies` are: what rig/peers/install printed last
    #[arg(long, value_name = "DIR")]
    proxies: Option<PathBuf>,
}

fn main() -> ExitCode {
    match run(Arguments::parse()) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::from(2),
        Err(error) => {
            eprintln!("bench: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// Whether every target is met and no round had an error.
fn run(arguments: Arguments) -> Result<bool> {
    sys::catch_interrupts();
    sys::pin_to(cores::GENERATOR).context("two cores are needed: cannot move to core 1")?;
    let open_files = sys::raise_open_files().context("open files")?;
    let own_network = own_network();
    let in_full = !arguments.quick && arguments.seconds.is_none() && arguments.rate_scale == 1.0;
    let takes_part =
        |name: &&str| arguments.contenders.iter().any(|it| Ok(*it) == Contender::from_str(name, false));
    let by_all = CONTENDERS.iter().all(takes_part);
    ensure!(
        arguments.record.is_none()
            || in_full && by_all && arguments.rounds.is_none_or(|it| it >= verdict::ROUNDS),
        "--record keeps what was measured in full: leave out --quick, --seconds, --rate-scale, --contenders and fewer than {} rounds",
        verdict::ROUNDS
    );
    let mut effort = if arguments.quick { Effort::QUICK } else { Effort::FULL };
    effort.rate_scale *= arguments.rate_scale;
    effort.services = arguments.services.unwrap_or(effort.services);
    effort.seconds = arguments.seconds.unwrap_or(effort.seconds);
    let peers = arguments.peers.canonicalize().with_context(|| arguments.peers.display().to_string())?;
    let certificate = Certificate::of("bench.example").context("a certificate for the contenders")?;
    let programs = Programs {
        seaway: arguments.seaway,
        before: arguments.before,
        peers,
        proxies: arguments.proxies,
        certificate,
        rig: arguments.rig,
    };
    let mut contenders = arguments.contenders;
    if programs.before.is_some() {
        contenders.push(Contender::SeawayBefore);
    }
    if arguments.cases.contains(&Case::Proxies) {
        contenders.extend(PROXIES);
    }
    if arguments.cases.contains(&Case::Policies) {
        contenders.extend(POLICIES);
        contenders.sort();
        contenders.dedup();
    }
    let mut versions = vec![];
    for contender in &contenders {
        versions.push((*contender, contender.version(&programs)?));
    }
    if arguments.cases == [Case::Attacks] {
        let plan = attacks::Plan {
            rounds: arguments.rounds,
            contenders: versions,
            is_trial: arguments.quick,
            own_network,
            rate_scale: arguments.rate_scale,
            only: arguments.attacks,
            out: arguments.out,
            json: arguments.json,
        };
        return attacks::run(&programs, &plan);
    }
    if arguments.cases == [Case::Octavia] {
        let version = Contender::Seaway.version(&programs)?;
        let plan = octavia::Plan {
            version,
            services: arguments.services,
            is_trial: arguments.quick,
            own_network,
            out: arguments.out,
            json: arguments.json,
        };
        return octavia::run(&programs, &plan);
    }
    let alone = arguments.cases.iter().find(|it| it.is_by_itself());
    alone.map_or(Ok(()), |it| bail!("`{it}` runs by itself"))?;
    let mut bench = Bench {
        programs,
        effort,
        open_files,
        own_network,
        rig: Rig::new()?,
        crowd: None,
        kept: arguments.keep,
        highest: BTreeMap::new(),
        versions: versions.clone(),
    };
    let plan = rounds::Plan {
        rounds: if arguments.quick { 1 } else { arguments.rounds.unwrap_or(5) },
        contenders,
        patience: if arguments.quick { 0.0 } else { arguments.patience },
    };
    ensure!(plan.rounds > 0, "at least one round is needed");

    let usual = || Case::value_variants().iter().copied().filter(|case| case.is_usual());
    let cases = if arguments.cases.is_empty() { usual().collect() } else { arguments.cases };
    let kept = arguments.record.as_deref().map_or(Ok(vec![]), record::read)?;
    let cases = arguments.oldest.map_or(cases.clone(), |count| record::oldest(&kept, &cases, count));
    let mut measured = kept;
    for case in cases.iter().copied() {
        let new = rounds::measure(&mut bench, case, &plan)?;
        new.into_iter().for_each(|it| record::add(&mut measured, it));
        if let Some(path) = &arguments.record {
            record::write(path, &measured)?;
        }
    }
    let has = |case: &Case| measured.iter().any(|it| it.case == *case);
    let missing = match arguments.record {
        Some(_) => usual().filter(|it| !has(it)).collect(),
        None => vec![],
    };
    let mut report = report::Report::new(&bench, &plan, versions, measured)?;
    report.missing = missing;
    println!("\n{}", report.markdown());
    if let Some(path) = arguments.json {
        std::fs::write(&path, report.json()?).with_context(|| path.display().to_string())?;
    }
    if let Some(path) = arguments.out {
        report.write_into(&path)?;
    }
    ensure!(report.is_sound(&cases), "a round had errors: its case is not measured");
    Ok(report.is_good())
}

/// With a network of our own, no firewall rule, no conntrack and no stranger's socket is part of the figures, and the
/// limits below touch nobody. Without the right to make one, the host's is used and the report says so.
fn own_network() -> bool {
    if let Err(error) = sys::enter_own_network() {
        eprintln!("no network of our own ({error}): the host's is used");
        return false;
    }
    let settings = [
        // A new connection for each request leaves tens of thousands of sockets in TIME_WAIT for a minute. Few are
        // kept, so that every round begins with the same.
        ("tcp_max_tw_buckets", "4096"),
        ("ip_local_port_range", "16384 65535"),
        // The same on every machine: BBR, for one, paces with a timer for each segment. Where nothing is lost, Reno does
        // as Cubic does, and it is the only one that every network of its own may choose.
        ("tcp_congestion_control", "reno"),
    ];
    for (name, value) in settings {
        if let Err(error) = std::fs::write(format!("/proc/sys/net/ipv4/{name}"), value) {
            eprintln!("cannot set net.ipv4.{name} ({error})");
        }
    }
    true
}
