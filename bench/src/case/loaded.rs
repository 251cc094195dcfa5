//! The cases in which requests flow at a fixed rate: what they cost core 0, and how long they take.

use std::thread;
use std::time::Duration;

use anyhow::{Context, Result};

use super::{Bench, Case, Effort, Sample, held, saturation, web};
use crate::contender::{BULK, Contender, DATAGRAMS, Role, Running, SMALL};
use crate::cores::{CounterSnapshot, CpuUsage};
use crate::load::connect::Connects;
use crate::load::exchange::{Exchanges, Shape};
use crate::load::flows::Flows;
use crate::load::{Clients, Run};
use crate::metric::Metric;
use crate::pace::{Rate, now};
use crate::statistics::percentile;
use crate::sys;

const KIB: Shape = Shape { request: 1024, answer: 1024, inspect: true, upgrade: false };
/// Each answer's head is compared, its body counted: copying it out would only slow core 1.
const MIB: Shape = Shape { request: 128, answer: 1 << 20, inspect: false, upgrade: false };
const CONNECTIONS: usize = 64;
const BULK_CONNECTIONS: usize = 16;
const FLOWS: usize = 1_000;
const DATAGRAM: usize = 64;
const LARGE_DATAGRAM: usize = 1_200;
const MANY: usize = 512;

/// Shares of the wall time beyond which a run is repeated.
const QUEUED: f64 = 0.02;
const FOREIGN: f64 = 0.02;
/// Where other tasks cannot be told from interrupts (and there are two or three for each request), this much is both.
const FOREIGN_OR_INTERRUPT: f64 = 0.15;
const STOLEN: f64 = 0.02;

pub fn sample(bench: &mut Bench, case: Case, contender: Contender, rate: f64) -> Result<Sample> {
    let running = contender.start_with(&bench.programs, case.role(), case.workers())?;
    let clients = asking(bench, case, contender)?;
    let (run, spent) = measure(bench, &running, clients, Some(case.spread(rate)))?;
    // One disturbed request in a hundred is all that a p99 shows.
    let strictness = if case == Case::Latency { 5.0 } else { 1.0 };
    let noise = noise_of(case, &spent, strictness);
    let mut sample = judge(run, spent, rate, noise, bench.effort.is_a_trial());
    if case.has_saturation() && sample.errors == 0 {
        let highest = saturation::highest(bench, &running, case, contender, rate)?;
        sample.figures.insert(Metric::HighestRate, highest.rate);
        sample.figures.insert(Metric::HighestLoad, highest.load);
        sample.noise = sample.noise.or(highest.noise);
    }
    Ok(sample)
}

/// Clients of the case, who are connected.
pub fn asking(bench: &mut Bench, case: Case, contender: Contender) -> Result<Box<dyn Clients>> {
    match case.role() {
        Role::Web => web::clients(bench, case, contender),
        Role::Stream | Role::Attacked => clients(bench, case),
    }
}

/// The same for a contender that was started in another way.
pub fn loaded(bench: &mut Bench, running: &Running, clients: Box<dyn Clients>, rate: f64) -> Result<Sample> {
    let (run, spent) = measure(bench, running, clients, Some(Rate::even(rate)))?;
    let noise = noise(&spent, 1.0);
    Ok(judge(run, spent, rate, noise, bench.effort.is_a_trial()))
}

/// What a contender can do at most.
pub struct MaxRate {
    pub rate: f64,
    /// Percent that core 0 was busy with it: much below 100, core 1 was the limit.
    pub load: f64,
    pub noise: Option<String>,
}

/// Requests per second over 64 connections when the next request follows each answer at once.
pub fn highest_rate(bench: &mut Bench, contender: Contender) -> Result<MaxRate> {
    let running = contender.start(&bench.programs, Role::Stream)?;
    let clients = clients(bench, Case::Latency)?;
    let (run, spent) = measure(bench, &running, clients, None)?;
    let load = spent.busy / spent.wall * 100.0;
    Ok(MaxRate { rate: run.answered as f64 / run.seconds, load, noise: noise(&spent, 1.0) })
}

fn clients(bench: &mut Bench, case: Case) -> Result<Box<dyn Clients>> {
    let crowd = held::connections(bench, Case::IdleConnections) as usize;
    let rig = &mut bench.rig;
    Ok(match case {
        Case::TcpConnect => {
            let mut clients = Connects::new(SMALL, KIB.request, KIB.answer);
            rig.prove(&mut clients, 8)?;
            Box::new(clients)
        }
        Case::TcpBulk => {
            // Byte for byte once, before the counting begins.
            Exchanges::new(BULK, Shape { inspect: true, ..MIB }).open(rig, 4)?;
            let mut clients = Exchanges::new(BULK, MIB);
            clients.open(rig, BULK_CONNECTIONS)?;
            Box::new(clients)
        }
        Case::Udp | Case::UdpLarge => {
            let size = if case == Case::Udp { DATAGRAM } else { LARGE_DATAGRAM };
            let mut clients = Flows::open(&rig.epoll, DATAGRAMS, FLOWS, size)?;
            rig.prove(&mut clients, 8)?;
            Box::new(clients)
        }
        _ => {
            let mut clients = Exchanges::new(SMALL, KIB);
            let connections = match case {
                Case::TcpMany => MANY,
                Case::TcpCrowd => crowd,
                _ => CONNECTIONS,
            };
            web::steps(connections).try_for_each(|step| clients.open(rig, step))?;
            Box::new(clients)
        }
    })
}

fn measure(
    bench: &mut Bench,
    running: &Running,
    clients: Box<dyn Clients>,
    rate: Option<Rate>,
) -> Result<(Run, CpuUsage)> {
    let Effort { warm_up, seconds, .. } = bench.effort;
    measure_for(bench, running, clients, rate, [warm_up, seconds])
}

/// Seconds of warming up, and of measuring.
pub fn measure_for(
    bench: &mut Bench,
    running: &Running,
    mut clients: Box<dyn Clients>,
    rate: Option<Rate>,
    [warm_up, seconds]: [f64; 2],
) -> Result<(Run, CpuUsage)> {
    let processes = running.processes();
    let mut looks = Vec::with_capacity(2);
    let run = bench.rig.run(&mut *clients, rate, warm_up, seconds, || {
        looks.push(CounterSnapshot::take(&processes)?);
        Ok(())
    })?;
    drop(clients);
    bench.rig.backend.forget_connections();
    let spent = looks.last().zip(looks.first()).map(|(end, begin)| end.since(begin));
    Ok((run, spent.context("a run marks its begin and its end")?))
}

fn judge(run: Run, spent: CpuUsage, rate: f64, noise: Option<String>, is_a_trial: bool) -> Sample {
    let Run { seconds, answered, mut errors, mut complaints, mut latencies } = run;
    let (count, wrong) = (answered.max(1) as f64, errors);
    let achieved = answered as f64 / seconds;
    if (answered as f64) < due(rate, seconds) {
        // Whoever has no core to run on keeps up with nothing: a trial is not repeated until the machine is quiet.
        errors += u64::from(!is_a_trial || noise.is_none());
        complaints.push(format!("cannot keep up: {achieved:.0} requests/s of {rate:.0}"));
    }
    let half = percentile(&mut latencies, 0.5).unwrap_or_default();
    let tail = percentile(&mut latencies, 0.99).unwrap_or_default();
    let last = percentile(&mut latencies, 0.999).unwrap_or_default();
    let figures = [
        (Metric::BusyPerRequest, spent.busy / count * 1e6),
        (Metric::TaskPerRequest, spent.task / count * 1e6),
        (Metric::Load, spent.busy / spent.wall * 100.0),
        (Metric::RequestsPerSecond, achieved),
        (Metric::LatencyHalf, f64::from(half) / 1e3),
        (Metric::LatencyP99, f64::from(tail) / 1e3),
        (Metric::LatencyP999, f64::from(last) / 1e3),
    ];
    Sample { figures: figures.into(), errors, wrong, complaints, noise }
}

/// How many have to be answered. Short runs are counted in few requests: what is due at their edges is no sign of a
/// contender that falls behind.
pub fn due(rate: f64, seconds: f64) -> f64 {
    0.98 * rate * seconds - rate.sqrt().max(2.0)
}

/// Workers that share a core with the load wait for it, which is what the case measures: only what the hypervisor took
/// is noise then.
pub fn noise_of(case: Case, spent: &CpuUsage, strictness: f64) -> Option<String> {
    let shared = case.workers() > 1;
    let stolen = CpuUsage { others: Some(0.0), queued: 0.0, generator_queued: 0.0, ..*spent };
    noise(if shared { &stolen } else { spent }, strictness)
}

/// Whether something other than the contender and its load used the cores.
pub fn noise(spent: &CpuUsage, strictness: f64) -> Option<String> {
    let shares = [
        match spent.others {
            Some(others) => ("busy with others on core 0", others, FOREIGN),
            None => ("busy with others on core 0", spent.busy - spent.task, FOREIGN_OR_INTERRUPT),
        },
        ("of the contender waiting for core 0", spent.queued, QUEUED),
        ("of the generator waiting for core 1", spent.generator_queued, QUEUED),
        ("stolen by the hypervisor", spent.stolen, STOLEN),
    ];
    let words: Vec<String> = shares
        .iter()
        .filter(|(_, seconds, limit)| seconds / spent.wall > *limit / strictness)
        .map(|(what, seconds, _)| format!("{:.1} % {what}", seconds / spent.wall * 100.0))
        .collect();
    (!words.is_empty()).then(|| words.join(", "))
}

/// Waits until both cores are nearly idle, at most `patience`; says whether they became so.
pub fn wait_for_quiet(patience: Duration) -> Result<bool> {
    let deadline = now() + patience.as_nanos() as u64;
    loop {
        let begin = CounterSnapshot::take(&[])?;
        thread::sleep(Duration::from_millis(250));
        let spent = CounterSnapshot::take(&[])?.since(&begin);
        if spent.both_busy / spent.wall < 0.08 {
            return Ok(true);
        }
        if now() >= deadline || sys::interrupted() {
            return Ok(false);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const QUIET: CpuUsage = CpuUsage {
        wall: 2.0,
        busy: 1.0,
        task: 0.96,
        others: Some(0.01),
        queued: 0.001,
        generator_queued: 0.001,
        stolen: 0.0,
        both_busy: 3.0,
    };

    #[test]
    fn a_quiet_run_is_trusted_and_each_kind_of_noise_is_named() {
        assert_eq!(noise(&QUIET, 1.0), None);
        assert!(noise(&QUIET, 30.0).is_some());
        assert!(
            noise(&CpuUsage { others: Some(0.2), ..QUIET }, 1.0).unwrap().contains("10.0 % busy with others")
        );
        assert!(
            noise(&CpuUsage { others: None, task: 0.6, ..QUIET }, 1.0)
                .unwrap()
                .contains("20.0 % busy with others")
        );
        assert_eq!(noise(&CpuUsage { others: None, task: 0.9, ..QUIET }, 1.0), None);
        assert!(noise(&CpuUsage { queued: 0.1, ..QUIET }, 1.0).unwrap().contains("contender waiting"));
        assert!(
            noise(&CpuUsage { generator_queued: 0.1, ..QUIET }, 1.0).unwrap().contains("generator waiting")
        );
        assert!(noise(&CpuUsage { stolen: 0.1, ..QUIET }, 1.0).unwrap().contains("hypervisor"));
    }

    #[test]
    fn a_contender_that_falls_behind_its_rate_has_an_error() {
        let run = Run {
            seconds: 2.0,
            answered: 1_000,
            errors: 0,
            complaints: vec![],
            latencies: vec![1_000; 1_000],
        };
        assert_eq!(judge(run.clone(), QUIET, 500.0, None, false).errors, 0);
        let noise = || Some("loud".to_owned());
        let slow = judge(run.clone(), QUIET, 600.0, noise(), true);
        assert_eq!((slow.errors, slow.complaints.len()), (0, 1), "a trial on a machine that is not quiet");
        assert_eq!(judge(run.clone(), QUIET, 600.0, noise(), false).errors, 1);
        let slow = judge(run, QUIET, 600.0, None, true);
        assert_eq!(slow.errors, 1);
        assert!(slow.complaints[0].contains("cannot keep up"));
        assert_eq!(slow.figures[&Metric::BusyPerRequest], 1_000.0);
        assert_eq!(slow.figures[&Metric::LatencyP99], 1.0);
    }
}
