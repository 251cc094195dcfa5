//! Contenders in turn, round by round; what was disturbed is measured again.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Context, Result};

use crate::case::{Bench, Case, ChosenRate, Sample, loaded};
use crate::contender::Contender;
use crate::report;
use crate::sys;
use crate::tree;

#[derive(Clone, Debug)]
pub struct Plan {
    pub rounds: usize,
    pub contenders: Vec<Contender>,
    /// Seconds to wait for quiet before a measurement, and so also whether disturbed ones are repeated.
    pub patience: f64,
}

/// All rounds of one case. `rounds[contender][n]` is what the contender did in round `n`.
#[derive(Clone, Debug, serde::Serialize, serde::Deserialize)]
pub struct Measured {
    pub case: Case,
    pub what: String,
    pub rate: Option<f64>,
    /// Where a rate comes from that was found in this run.
    pub rate_from: Option<String>,
    pub rounds: BTreeMap<Contender, Vec<Sample>>,
    /// What was measured, Seaway with its commit.
    pub versions: Vec<String>,
    /// The commit of what measured it.
    pub bench: String,
    pub machine: Vec<String>,
    /// In UTC, when it was done.
    pub at: String,
    /// Why nothing that was measured shows that a target is met.
    pub lacks: Vec<String>,
    /// The measurement before this one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub before: Option<Box<Self>>,
}

/// Of one measurement.
const ATTEMPTS: usize = 3;

/// How often measurements of a case may still be repeated: a machine that does not come to rest ends it, too.
struct Repeats(usize);

/// `None` if none of the contenders takes part in the case.
pub fn measure(bench: &mut Bench, case: Case, plan: &Plan) -> Result<Option<Measured>> {
    let mut taking_part: Vec<Contender> =
        case.contenders().iter().copied().filter(|contender| plan.contenders.contains(contender)).collect();
    if plan.contenders.contains(&Contender::SeawayBefore) && case.is_of_an_earlier_binary() {
        taking_part.push(Contender::SeawayBefore);
    }
    let otherwise = [Contender::SeawayUnmeasured, Contender::SeawayLogging];
    let otherwise =
        otherwise.into_iter().filter(|it| plan.contenders.contains(it) && !taking_part.contains(it));
    let otherwise: Vec<Contender> = otherwise.filter(|_| case.is_of_an_earlier_binary()).collect();
    taking_part.extend(otherwise);
    if taking_part.is_empty() {
        return Ok(None);
    }
    let what = case.describe(bench);
    println!("{case}: {what}");
    let ChosenRate { rate, how, .. } = settle(bench, case, plan)?;
    if let Some(how) = &how {
        println!("  {how}");
    }
    let mut rounds: BTreeMap<Contender, Vec<Sample>> = BTreeMap::new();
    let wanted = case.rounds(plan.rounds);
    let mut repeats = Repeats(wanted * taking_part.len());
    let (mut round, mut quiet) = (0, 0);
    while quiet < wanted && (round < wanted || repeats.0 > 0) {
        let mut is_quiet = true;
        for contender in order(&taking_part, round) {
            let sample = undisturbed(bench, case, contender, rate, plan, &mut repeats)?;
            println!("  round {} {}", round + 1, line(contender, &sample));
            is_quiet &= sample.noise.is_none() || plan.patience <= 0.0;
            rounds.entry(contender).or_default().push(sample);
        }
        round += 1;
        quiet += usize::from(is_quiet);
        if round >= wanted {
            // A round more is a repetition of all.
            repeats.0 = repeats.0.saturating_sub(taking_part.len());
        }
    }
    let took_part = bench.versions.iter().filter(|it| taking_part.contains(&it.0));
    let mut versions: Vec<String> = took_part.map(|it| it.1.clone()).collect();
    versions.dedup();
    let (machine, at, lacks) = (report::machine()?, report::time()?, report::lacks(bench));
    Ok(Some(Measured {
        case,
        what,
        rate,
        rate_from: how,
        rounds,
        versions,
        bench: tree::commit(),
        machine,
        at,
        lacks,
        before: None,
    }))
}

fn settle(bench: &mut Bench, case: Case, plan: &Plan) -> Result<ChosenRate> {
    let mut best: Option<ChosenRate> = None;
    for _ in 0..ATTEMPTS {
        wait_for_quiet(plan)?;
        let settled = case.settle_rate(bench)?;
        bench.rig.backend.forget_connections();
        if settled.noise.is_none() || plan.patience <= 0.0 {
            return Ok(settled);
        }
        // Noise only ever lowers what was found.
        if best.as_ref().is_none_or(|best| best.rate < settled.rate) {
            best = Some(settled);
        }
    }
    best.context("there is at least one attempt")
}

/// Every contender is first, second and last equally often.
fn order(contenders: &[Contender], round: usize) -> Vec<Contender> {
    let mut order = contenders.to_vec();
    order.rotate_left(round % contenders.len());
    order
}

/// A sample that nothing disturbed or, if the machine does not come to rest, the last one, marked as noisy.
fn undisturbed(
    bench: &mut Bench,
    case: Case,
    contender: Contender,
    rate: Option<f64>,
    plan: &Plan,
    repeats: &mut Repeats,
) -> Result<Sample> {
    let mut attempt = 1;
    loop {
        wait_for_quiet(plan)?;
        let sample = match case.sample(bench, contender, rate) {
            Err(error) if sys::interrupted() => return Err(error),
            // One contender that fails is shown as failed; the others go on.
            Err(error) => Sample { errors: 1, complaints: vec![format!("{error:#}")], ..Sample::default() },
            Ok(sample) => sample,
        };
        bench.rig.backend.forget_connections();
        match &sample.noise {
            Some(noise) if plan.patience > 0.0 && attempt < ATTEMPTS && repeats.0 > 0 => {
                println!("  disturbed, again: {contender}: {noise}");
                attempt += 1;
                repeats.0 -= 1;
            }
            _ => return Ok(sample),
        }
    }
}

fn wait_for_quiet(plan: &Plan) -> Result<()> {
    if plan.patience > 0.0 && !loaded::wait_for_quiet(Duration::from_secs_f64(plan.patience))? {
        println!("  the machine is not quiet after {} s", plan.patience);
    }
    Ok(())
}

fn line(contender: Contender, sample: &Sample) -> String {
    let mut line = format!("{:<8}", contender.to_string());
    for (metric, figure) in &sample.figures {
        let (short, digits) = metric.short();
        line += &format!(" {figure:>9.digits$} {short}");
    }
    if sample.errors > 0 {
        line += &format!("  ERRORS: {} ({})", sample.errors, sample.complaints.join("; "));
    }
    if let Some(noise) = &sample.noise {
        line += &format!("  noisy: {noise}");
    }
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_contender_has_each_place_in_turn() {
        use Contender::{Haproxy, Nginx, Seaway};
        let all = [Seaway, Haproxy, Nginx];
        assert_eq!(order(&all, 0), [Seaway, Haproxy, Nginx]);
        assert_eq!(order(&all, 1), [Haproxy, Nginx, Seaway]);
        assert_eq!(order(&all, 5), [Nginx, Seaway, Haproxy]);
    }
}
