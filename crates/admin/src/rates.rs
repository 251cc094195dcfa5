//! Rates from totals. A sample is kept when somebody looks, and the next look is compared with it: a page that
//! asks every second sees the last five seconds, a scraper that asks every 15 seconds sees those, and a process
//! at which nobody looks spends nothing.

use std::{
    collections::{HashMap, VecDeque},
    hash::{BuildHasher, RandomState},
    time::{Duration, Instant},
};

use seaway_model::latency::Histogram;

use crate::view::{ByteCounts, HttpCounts, Latency, LatencySum, MemberView, PoolView, Rate, Sessions, View};

/// How far back a rate looks, if there is a sample that old.
const WINDOW: Duration = Duration::from_secs(5);
/// Samples closer together than this say more about chance than about traffic.
const APART: Duration = Duration::from_millis(500);
/// Older than this, an average would pass for the present.
const STALE: Duration = Duration::from_secs(300);

/// Remembers the totals of past looks.
pub struct Sampler {
    samples: VecDeque<Sample>,
    hasher: RandomState,
}

struct Sample {
    at: Instant,
    /// By a hash of what it is: names would cost more than the numbers, and a collision only blurs one rate.
    totals: HashMap<u64, Totals>,
    /// Of pools, how long their members took.
    times: HashMap<u64, Histogram>,
}

#[derive(Clone, Copy)]
struct Totals {
    connections: u64,
    requests: u64,
    bytes: ByteCounts,
    measured: LatencySum,
}

impl Default for Sampler {
    fn default() -> Sampler {
        Sampler { samples: VecDeque::new(), hasher: RandomState::new() }
    }
}

impl Sampler {
    /// Fills in every rate of the view that can be told yet.
    pub fn observe(&mut self, view: &mut View, now: Instant) {
        self.samples.retain(|sample| now.duration_since(sample.at) < STALE);
        let (mut totals, mut times) = (HashMap::new(), HashMap::new());
        let base = self.base(now);
        for service in &mut view.services {
            let owner = self.hasher.hash_one(&service.owner);
            for listener in &mut service.listeners {
                let key = self.hasher.hash_one((owner, listener.address, listener.port, listener.protocol));
                let current = Totals::of(&listener.sessions, listener.http, &listener.bytes);
                listener.rate = base.and_then(|base| base.rate(key, current, now));
                totals.insert(key, current);
            }
            for pool in &mut service.pools {
                if let Some(histogram) = times_of(pool) {
                    let key = self.hasher.hash_one((owner, &pool.id));
                    pool.latency = base.and_then(|base| latency(&histogram.since(base.times.get(&key)?)));
                    times.insert(key, histogram);
                }
                for member in &mut pool.members {
                    let key = self.hasher.hash_one((owner, &pool.id, &member.address));
                    let current = Totals { measured: member.measured, ..Totals::of_member(member) };
                    member.rate = base.and_then(|base| base.rate(key, current, now));
                    member.latency = base.and_then(|base| base.mean(key, current.measured));
                    totals.insert(key, current);
                }
            }
        }
        self.keep(Sample { at: now, totals, times });
    }

    /// The oldest sample within the window, or else the newest before it.
    fn base(&self, now: Instant) -> Option<&Sample> {
        let age = |sample: &&Sample| now.duration_since(sample.at);
        let apart = |sample: &&Sample| age(sample) >= APART;
        self.samples
            .iter()
            .filter(apart)
            .find(|sample| age(sample) <= WINDOW)
            .or_else(|| self.samples.iter().rev().find(apart))
    }

    fn keep(&mut self, sample: Sample) {
        if self.samples.back().is_some_and(|last| sample.at.duration_since(last.at) < APART) {
            return;
        }
        // One that is older than the window is enough to measure a slow asker by.
        while self.samples.get(1).is_some_and(|second| sample.at.duration_since(second.at) > WINDOW) {
            self.samples.pop_front();
        }
        self.samples.push_back(sample);
    }
}

impl Sample {
    /// In milliseconds; none where nothing was measured since.
    fn mean(&self, key: u64, now: LatencySum) -> Option<f64> {
        let before = self.totals.get(&key)?.measured;
        let count = now.count.checked_sub(before.count).filter(|it| *it > 0)?;
        Some(now.micros.checked_sub(before.micros)? as f64 / count as f64 / 1000.0)
    }

    /// None for what is new, and for what began to count anew.
    fn rate(&self, key: u64, current: Totals, now: Instant) -> Option<Rate> {
        let before = self.totals.get(&key)?;
        let seconds = now.duration_since(self.at).as_secs_f64();
        let per_second = |current: u64, before: u64| Some(current.checked_sub(before)? as f64 / seconds);
        Some(Rate {
            connections: per_second(current.connections, before.connections)?,
            requests: per_second(current.requests, before.requests)?,
            bytes_in: per_second(current.bytes.incoming, before.bytes.incoming)?,
            bytes_out: per_second(current.bytes.outgoing, before.bytes.outgoing)?,
        })
    }
}

/// What tells most of a pool: how long until answers, or, where nobody knows what an answer is, until connections.
fn times_of(pool: &PoolView) -> Option<Histogram> {
    let latencies = pool.latencies.as_ref()?;
    let is_http = pool.members.iter().any(|it| it.http.is_some());
    Some(if is_http { latencies.first_byte } else { latencies.connect })
}

/// In milliseconds.
fn latency(histogram: &Histogram) -> Option<Latency> {
    let of = |percent| histogram.quantile(percent).map(|micros| micros as f64 / 1000.0);
    Some(Latency { p50: of(50)?, p99: of(99)? })
}

impl Totals {
    fn of_member(member: &MemberView) -> Totals {
        Totals::of(&member.sessions, member.http, &member.bytes)
    }

    fn of(sessions: &Sessions, http: Option<HttpCounts>, bytes: &ByteCounts) -> Totals {
        let requests = http.map_or(0, |it| it.requests);
        Totals { connections: sessions.total, requests, bytes: *bytes, measured: LatencySum::default() }
    }
}

#[cfg(test)]
mod tests {
    use seaway_model::L4;

    use super::*;
    use crate::view::{ListenerView, RejectedCounts, ServiceView};

    fn look(total: u64) -> View {
        let listener = ListenerView {
            address: "192.0.2.1".parse().unwrap(),
            port: 80,
            protocol: L4::Tcp,
            name: String::new(),
            serving: true,
            sessions: Sessions { total, ..Sessions::default() },
            bytes: ByteCounts { incoming: total * 10, outgoing: total * 100 },
            refused: RejectedCounts::default(),
            errors: 0,
            http: None,
            rate: None,
        };
        View {
            services: vec![ServiceView { listeners: vec![listener], ..ServiceView::default() }],
            ..View::default()
        }
    }

    /// Looks at these (milliseconds, total); gives the rates of connections.
    fn rates_of(looks: &[(u64, u64)]) -> Vec<Option<f64>> {
        let mut sampler = Sampler::default();
        let start = Instant::now();
        looks
            .iter()
            .map(|&(ms, total)| {
                let mut view = look(total);
                sampler.observe(&mut view, start + Duration::from_millis(ms));
                view.services[0].listeners[0].rate.map(|rate| rate.connections)
            })
            .collect()
    }

    #[test]
    fn the_first_look_knows_no_rate() {
        assert_eq!(rates_of(&[(0, 500)]), [None]);
    }

    #[test]
    fn a_page_that_asks_every_second_sees_the_last_five_seconds() {
        let looks: Vec<(u64, u64)> = (0..20).map(|s| (s * 1000, if s < 10 { 0 } else { s * 100 })).collect();
        let rates = rates_of(&looks);
        assert_eq!(rates[9], Some(0.0));
        assert_eq!(rates[19], Some(100.0));
    }

    #[test]
    fn a_slow_scraper_sees_the_time_since_its_last_look() {
        assert_eq!(rates_of(&[(0, 0), (15_000, 300), (30_000, 300)]), [None, Some(20.0), Some(0.0)]);
    }

    #[test]
    fn two_askers_at_once_do_not_disturb_each_other() {
        assert_eq!(
            rates_of(&[(0, 0), (1000, 100), (1001, 100), (2000, 200), (2001, 200)])[3..],
            [Some(100.0), Some(200.0 / 2.001)]
        );
    }

    #[test]
    fn a_counter_that_began_anew_has_no_rate_rather_than_a_wrong_one() {
        assert_eq!(rates_of(&[(0, 1000), (1000, 5)]), [None, None]);
    }

    #[test]
    fn a_look_after_a_long_time_knows_no_rate() {
        assert_eq!(rates_of(&[(0, 0), (400_000, 1000)]), [None, None]);
    }

    #[test]
    fn few_samples_are_kept() {
        let mut sampler = Sampler::default();
        let start = Instant::now();
        for ms in (0..600_000).step_by(100) {
            sampler.observe(&mut look(ms), start + Duration::from_millis(ms));
        }
        assert!(sampler.samples.len() <= 12, "{}", sampler.samples.len());
    }
}
