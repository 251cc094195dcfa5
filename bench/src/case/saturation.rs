//! The highest rate of requests that a contender holds: all are answered, and 99 of 100 within 10 ms of when they were due.

use anyhow::Result;

use super::{Bench, Case, loaded};
use crate::contender::{Contender, Running};
use crate::statistics::percentile;

/// Nanoseconds.
const P99: u32 = 10_000_000;
/// A virtual machine stalls now and then, which is no limit of the contender: a rate is too high when it failed twice.
const TRIES: usize = 2;
/// Seconds of warming up and of measuring, for each try.
const TIMES: [f64; 2] = [0.2, 0.8];
const TIMES_OF_A_TRIAL: [f64; 2] = [0.05, 0.1];

pub struct Highest {
    pub rate: f64,
    /// Percent that core 0 was busy with it.
    pub load: f64,
    pub noise: Option<String>,
}

/// From the rate that the case has anyway.
pub fn highest(
    bench: &mut Bench,
    running: &Running,
    case: Case,
    contender: Contender,
    rate: f64,
) -> Result<Highest> {
    let is_a_trial = bench.effort.is_a_trial();
    let times = if is_a_trial { TIMES_OF_A_TRIAL } else { TIMES };
    let mut search = Search::from(rate);
    let mut best = Highest { rate: 0.0, load: 0.0, noise: None };
    // That it works shows at the first rate.
    for _ in 0..if is_a_trial { 1 } else { usize::MAX } {
        let Some(rate) = search.next() else { break };
        let mut holds = false;
        for _ in 0..TRIES {
            let clients = loaded::asking(bench, case, contender)?;
            let (mut run, spent) =
                loaded::measure_for(bench, running, clients, Some(case.spread(rate)), times)?;
            let tail = percentile(&mut run.latencies, 0.99).unwrap_or(u32::MAX);
            let answered = run.answered as f64 >= loaded::due(rate, run.seconds);
            holds = run.errors == 0 && answered && tail <= P99;
            if holds {
                let load = spent.busy / spent.wall * 100.0;
                best = Highest { rate, load, noise: loaded::noise_of(case, &spent, 1.0) };
                break;
            }
        }
        search.saw(rate, holds);
    }
    Ok(best)
}

/// Upwards until a rate is too high, then between the two, to a twentieth.
struct Search {
    first: f64,
    held: Option<f64>,
    too_high: Option<f64>,
}

impl Search {
    const UP: f64 = 1.4;
    const FINE: f64 = 1.05;
    /// Whoever does not hold this share of the first rate holds nothing.
    const LEAST: f64 = 0.05;

    fn from(first: f64) -> Self {
        Self { first, held: None, too_high: None }
    }

    fn next(&self) -> Option<f64> {
        match (self.held, self.too_high) {
            (None, None) => Some(self.first),
            (Some(held), None) => Some(held * Self::UP),
            (Some(held), Some(too_high)) => (too_high / held > Self::FINE).then(|| (held * too_high).sqrt()),
            (None, Some(too_high)) => (too_high > self.first * Self::LEAST).then(|| too_high / Self::UP),
        }
    }

    fn saw(&mut self, rate: f64, holds: bool) {
        let side = if holds { &mut self.held } else { &mut self.too_high };
        *side = Some(rate);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(first: f64, limit: f64) -> (Option<f64>, usize) {
        let mut search = Search::from(first);
        let mut tries = 0;
        while let Some(rate) = search.next() {
            search.saw(rate, rate <= limit);
            tries += 1;
            assert!(tries < 30, "it ends");
        }
        (search.held, tries)
    }

    #[test]
    fn the_highest_rate_is_found_to_a_twentieth_from_either_side() {
        for (first, limit) in [(10_000.0, 57_000.0), (10_000.0, 10_000.0), (10_000.0, 1_234.0)] {
            let (held, tries) = found(first, limit);
            let held = held.expect("there is one");
            assert!(held <= limit && held * Search::FINE >= limit, "{held} of {limit}");
            assert!(tries <= 13, "{tries}");
        }
        assert_eq!(found(10_000.0, 3.0).0, None);
    }
}
