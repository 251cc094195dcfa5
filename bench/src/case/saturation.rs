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

pub struct MaxRate {
    pub rate: f64,
    /// Percent that core 0 was busy with it.
    pub load: f64,
    pub noise: Option<String>,
}

/// What was found of a contender in earlier rounds.
#[derive(Clone, Copy)]
pub struct SearchResult {
    rate: f64,
    searches: u32,
}

impl SearchResult {
    /// Where the next search begins: near, and each time elsewhere between two steps. From the same place, each round would find
    /// the same step, and the interval of all would hide what a step is wide.
    fn next(self) -> f64 {
        // Multiples of the golden ratio are spread evenly.
        let place = (f64::from(self.searches) * 0.618_034).fract() - 0.5;
        self.rate * Search::FINE.powf(place)
    }
}

/// From the rate that the case has anyway.
pub fn highest(
    bench: &mut Bench,
    running: &Running,
    case: Case,
    contender: Contender,
    rate: f64,
) -> Result<MaxRate> {
    let is_a_trial = bench.effort.is_a_trial();
    let times = if is_a_trial { TIMES_OF_A_TRIAL } else { TIMES };
    let before = bench.highest.get(&(case, contender)).copied();
    let mut search = before.map_or_else(|| Search::from(rate), |it| Search::near(it.next()));
    let mut best = MaxRate { rate: 0.0, load: 0.0, noise: None };
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
                best = MaxRate { rate, load, noise: loaded::noise_of(case, &spent, 1.0) };
                break;
            }
        }
        search.saw(rate, holds);
    }
    if best.rate > 0.0 {
        let searches = before.map_or(0, |it| it.searches) + 1;
        bench.highest.insert((case, contender), SearchResult { rate: best.rate, searches });
    }
    Ok(best)
}

/// Upwards until a rate is too high, then between the two, to a twentieth. Each step is longer than the last one.
struct Search {
    first: f64,
    step: f64,
    held: Option<f64>,
    too_high: Option<f64>,
}

impl Search {
    const UP: f64 = 1.4;
    const FINE: f64 = 1.05;
    /// What a product of two numbers may be beside it.
    const ROUNDED: f64 = 1.000_001;
    /// Whoever does not hold this share of the first rate holds nothing.
    const LEAST: f64 = 0.05;

    fn from(first: f64) -> Self {
        Self { first, step: Self::UP, held: None, too_high: None }
    }

    /// What was found in the round before is most of the time not far.
    fn near(before: f64) -> Self {
        Self { step: Self::FINE, ..Self::from(before) }
    }

    fn next(&self) -> Option<f64> {
        match (self.held, self.too_high) {
            (None, None) => Some(self.first),
            (Some(held), None) => Some(held * self.step),
            (Some(held), Some(too_high)) => {
                (too_high / held > Self::FINE * Self::ROUNDED).then(|| (held * too_high).sqrt())
            }
            (None, Some(too_high)) => (too_high > self.first * Self::LEAST).then(|| too_high / self.step),
        }
    }

    fn saw(&mut self, rate: f64, holds: bool) {
        let side = if holds { &mut self.held } else { &mut self.too_high };
        *side = Some(rate);
        if rate != self.first {
            self.step = (self.step * self.step).min(Self::UP);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(mut search: Search, limit: f64) -> (Option<f64>, usize) {
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
            for (search, most) in [(Search::from(first), 13), (Search::near(first), 15)] {
                let (held, tries) = found(search, limit);
                let held = held.expect("there is one");
                assert!(held <= limit && held * Search::FINE * Search::ROUNDED >= limit, "{held} of {limit}");
                assert!(tries <= most, "{tries}");
            }
        }
        assert_eq!(found(Search::from(10_000.0), 3.0).0, None);
    }

    #[test]
    fn each_round_begins_elsewhere_within_one_step() {
        let begins: Vec<f64> =
            (1..=5).map(|searches| SearchResult { rate: 1_000.0, searches }.next()).collect();
        assert!(begins.iter().all(|it| (975.0..1_025.0).contains(it)), "{begins:?}");
        let apart = |a: f64, b: f64| (a - b).abs() > 3.0;
        assert!(
            begins.iter().enumerate().all(|(at, a)| begins[..at].iter().all(|b| apart(*a, *b))),
            "{begins:?}"
        );
    }

    #[test]
    fn what_was_found_in_the_round_before_saves_tries() {
        for (limit, most) in [(10_000.0, 2), (10_300.0, 2), (9_800.0, 2), (11_000.0, 4), (9_000.0, 4)] {
            let (held, tries) = found(Search::near(10_000.0), limit);
            let held = held.expect("there is one");
            assert!(held <= limit && held * Search::FINE * Search::ROUNDED >= limit, "{held} of {limit}");
            assert!(tries <= most, "{limit}: {tries}");
        }
    }
}
