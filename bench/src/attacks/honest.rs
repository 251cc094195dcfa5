//! Honest clients: requests that are due at a fixed rate whatever became of the last ones, and what became of each.

mod datagrams;
mod requests;

use anyhow::Result;

pub use self::datagrams::Datagrams;
pub use self::requests::Requests;
use crate::pace::{Pace, Rate, now};
use crate::statistics::percentile;
use crate::sys::{self, Epoll, Event};

/// An answer later than this is none.
pub const PATIENCE: u64 = 2_000_000_000;
/// Descriptors of each set have numbers of their own.
pub const SET: u64 = 1 << 32;

/// One way of asking.
pub trait HonestClient {
    /// Asks what was due then.
    fn ask(&mut self, epoll: &Epoll, base: u64, due: u64);
    fn event(&mut self, epoll: &Epoll, event: Event);
    /// Gives up what is too late.
    fn expire(&mut self, now: u64);
    fn is_waiting(&self) -> bool;
    fn asked(&mut self) -> &mut Vec<RequestOutcome>;
}

/// What became of a request.
#[derive(Clone, Copy, Debug)]
pub struct RequestOutcome {
    pub due: u64,
    /// `None`: an error, or too late.
    pub answered: Option<u64>,
    pub why: &'static str,
}

pub struct ClientSet {
    pub asks: Box<dyn HonestClient>,
    pace: Pace,
}

impl ClientSet {
    pub fn new(asks: Box<dyn HonestClient>, rate: f64) -> Self {
        Self { asks, pace: Pace::open_loop(Rate::even(rate), now()) }
    }
}

/// Lets the clients of all sets ask until then.
pub fn ask_until(epoll: &Epoll, sets: &mut [ClientSet], end: u64, mut watch: impl FnMut()) -> Result<()> {
    let mut events = Vec::new();
    let mut watched = 0;
    loop {
        anyhow::ensure!(!sys::interrupted(), "interrupted");
        let time = now();
        if time >= end {
            return Ok(());
        }
        for (index, set) in sets.iter_mut().enumerate() {
            while let Some(due) = set.pace.due(time) {
                set.asks.ask(epoll, index as u64 * SET, due);
                set.pace.advance();
            }
        }
        if time > watched + 20_000_000 {
            watched = time;
            watch();
            sets.iter_mut().for_each(|it| it.asks.expire(time));
        }
        turn(epoll, sets, &mut events, 200_000)?;
    }
}

/// Waits for the last answers.
pub fn wait_for_answers(epoll: &Epoll, sets: &mut [ClientSet]) -> Result<()> {
    let end = now() + PATIENCE + 100_000_000;
    let mut events = Vec::new();
    while now() < end && sets.iter().any(|it| it.asks.is_waiting()) {
        turn(epoll, sets, &mut events, 1_000_000)?;
        sets.iter_mut().for_each(|it| it.asks.expire(now()));
    }
    Ok(())
}

fn turn(epoll: &Epoll, sets: &mut [ClientSet], events: &mut Vec<Event>, nanos: u64) -> Result<()> {
    epoll.wait_for(events, std::time::Duration::from_nanos(nanos))?;
    for event in events {
        if let Some(set) = sets.get_mut((event.token / SET) as usize) {
            set.asks.event(epoll, *event);
        }
    }
    Ok(())
}

/// What became of the requests that were due within a time.
#[derive(Clone, Debug, Default, PartialEq, serde::Serialize)]
pub struct RequestStats {
    pub due: u64,
    pub answered: u64,
    /// Without an answer, or with another one.
    pub lost: u64,
    /// For each second: those that were due within the time and answered within it.
    pub rate: f64,
    /// Microseconds.
    pub p99: f64,
    /// The same of each quarter of a second.
    pub quarters: Vec<f64>,
}

const QUARTER: u64 = 250_000_000;

/// Of the phases together.
pub fn served(asked: &[RequestOutcome], phases: &[(u64, u64)]) -> RequestStats {
    let within = |time: u64| phases.iter().any(|(begin, end)| (*begin..*end).contains(&time));
    let due: Vec<&RequestOutcome> = asked.iter().filter(|it| within(it.due)).collect();
    let late = |it: &&RequestOutcome| it.answered.map_or(PATIENCE, |at| at - it.due).min(PATIENCE) / 1_000;
    let p99 = |of: &[&RequestOutcome]| {
        let mut latencies: Vec<u32> = of.iter().map(|it| late(it) as u32).collect();
        percentile(&mut latencies, 0.99).map(f64::from)
    };
    let quarters = phases.iter().flat_map(|(begin, end)| {
        // What is left over at an end belongs to the last one.
        let count = ((end - begin) / QUARTER).max(1);
        (0..count).map(move |at| {
            (begin + at * QUARTER, if at + 1 == count { *end } else { begin + (at + 1) * QUARTER })
        })
    });
    let of_quarter = |(begin, end): (u64, u64)| {
        let its: Vec<&RequestOutcome> =
            due.iter().copied().filter(|it| (begin..end).contains(&it.due)).collect();
        p99(&its)
    };
    let seconds = phases.iter().map(|it| it.1 - it.0).sum::<u64>() as f64 / 1e9;
    let come = due.iter().filter(|it| it.answered.is_some_and(within)).count();
    RequestStats {
        due: due.len() as u64,
        answered: due.iter().filter(|it| it.answered.is_some()).count() as u64,
        lost: due.iter().filter(|it| it.answered.is_none()).count() as u64,
        rate: come as f64 / seconds.max(1e-9),
        p99: p99(&due).unwrap_or_default(),
        quarters: quarters.filter_map(of_quarter).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stall_of_the_machine_is_in_one_quarter_of_a_second() {
        let late = |due: u64| if (300..310).contains(&(due / 1_000_000)) { 9_000_000 } else { 500_000 };
        let all: Vec<RequestOutcome> = (0..1_000)
            .map(|it| it * 1_000_000)
            .map(|due| RequestOutcome { due, answered: Some(due + late(due)), why: "" })
            .collect();
        let of = served(&all, &[(0, 1_000_000_000)]);
        assert_eq!((of.p99, of.quarters), (500.0, vec![500.0, 9_000.0, 500.0, 500.0]));
    }

    #[test]
    fn a_request_without_an_answer_is_an_error_and_the_latest_of_all() {
        let asked = |due, answered| RequestOutcome { due, answered, why: "" };
        let all = [asked(0, Some(5_000)), asked(10, None), asked(2_000_000_000, Some(2_000_001_000))];
        let first = served(&all, &[(0, 1_000_000_000)]);
        assert_eq!((first.due, first.answered, first.lost, first.rate), (2, 1, 1, 1.0));
        assert_eq!((first.p99, first.quarters), (2_000_000.0, vec![2_000_000.0]));
        let last = served(&all, &[(1_000_000_000, 3_000_000_000)]);
        assert_eq!((last.lost, last.rate, last.p99), (0, 0.5, 1.0));
        assert_eq!(last.quarters, [1.0], "quarters in which nothing was due have none");
    }
}
