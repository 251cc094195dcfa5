//! Counters through reloads: each worker counts from zero, and a slot counts on when it gets another member.

use std::{collections::BTreeMap, net::SocketAddr};

use seaway_haproxy::runtime::{
    Counters, Statistics,
    statistics::{Health, Server},
};
use seaway_haproxy::words::Label;

/// What was counted since Seaway started HAProxy. What a worker counted between the last look and its end is missing.
#[derive(Debug, Default)]
pub(super) struct AccumulatedCounters {
    worker: Option<u32>,
    /// As this worker told it last.
    last: Statistics,
    /// By their names.
    pub(super) frontends: BTreeMap<String, Counters>,
    /// By backend and address.
    members: BTreeMap<String, BTreeMap<SocketAddr, Server>>,
}

impl AccumulatedCounters {
    pub(super) fn note(&mut self, worker: u32, now: Statistics) {
        if self.worker != Some(worker) {
            self.last = Statistics::default();
        }
        self.frontends.retain(|name, _| now.frontends.contains_key(name));
        for (name, counted) in &now.frontends {
            let before = self.last.frontends.get(name).copied().unwrap_or_default();
            let sum = self.frontends.entry(name.clone()).or_default();
            sum.current = 0;
            sum.add(&counted.since(&before));
        }
        let mut members: BTreeMap<String, BTreeMap<SocketAddr, Server>> = BTreeMap::new();
        for (name, server) in &now.servers {
            let Some(at) = server.at else { continue };
            let before = self.last.servers.get(name).map(|it| it.counters).unwrap_or_default();
            let since = server.counters.since(&before);
            // A slot that is free was of a member that has left.
            let is_free = server.health == Health::Maintenance && since.current == 0;
            let of_backend = members.entry(name.0.clone()).or_default();
            let known = of_backend.contains_key(&at);
            let sum = of_backend.entry(at).or_insert_with(|| {
                let former = self.members.get_mut(&name.0).and_then(|it| it.remove(&at));
                let mut former = former.unwrap_or_default();
                former.counters.current = 0;
                former
            });
            sum.counters.add(&since);
            if !(known && is_free) {
                let counters = sum.counters;
                *sum = Server { counters, ..server.clone() };
            }
        }
        self.members = members;
        (self.worker, self.last) = (Some(worker), now);
    }

    /// Of these backends together; the worst of what their checks found.
    pub(super) fn members(&self, backends: &[Label]) -> BTreeMap<SocketAddr, Server> {
        let mut all: BTreeMap<SocketAddr, Server> = BTreeMap::new();
        for (at, server) in backends.iter().filter_map(|it| self.members.get(it.as_str())).flatten() {
            match all.get_mut(at) {
                None => drop(all.insert(*at, server.clone())),
                Some(sum) => {
                    let mut counters = sum.counters;
                    counters.add(&server.counters);
                    if server.health == Health::Down {
                        *sum = server.clone();
                    }
                    sum.counters = counters;
                }
            }
        }
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shop() -> Vec<Label> {
        vec![Label::new("shop").expect("of the alphabet")]
    }

    fn at(port: u16) -> SocketAddr {
        SocketAddr::from(([10, 0, 0, 1], port))
    }

    fn statistics(total: u64, current: u64, members: &[(&str, u16, u64, Health)]) -> Statistics {
        let counters = Counters { total, current, ..Counters::default() };
        let servers = members.iter().map(|(slot, port, total, health)| {
            let counters = Counters { total: *total, ..Counters::default() };
            let server = Server { counters, at: Some(at(*port)), health: *health, ..Server::default() };
            (("shop".to_owned(), (*slot).to_owned()), server)
        });
        Statistics {
            frontends: [("front".into(), counters)].into(),
            servers: servers.collect(),
            ..Statistics::default()
        }
    }

    #[test]
    fn counters_grow_through_reloads_and_follow_a_member_and_not_its_slot() {
        let mut tally = AccumulatedCounters::default();
        let totals = |tally: &AccumulatedCounters| {
            let members = tally.members(&shop());
            let of = |port| members.get(&at(port)).map(|it| it.counters.total);
            (tally.frontends["front"].total, tally.frontends["front"].current, of(1), of(2))
        };
        tally.note(7, statistics(10, 3, &[("s1", 1, 10, Health::Up)]));
        assert_eq!(totals(&tally), (10, 3, Some(10), None));
        tally.note(7, statistics(14, 1, &[("s1", 1, 14, Health::Up)]));
        assert_eq!(totals(&tally), (14, 1, Some(14), None));
        // The slot's counter goes on, for another member.
        tally.note(7, statistics(20, 0, &[("s1", 2, 20, Health::Up)]));
        assert_eq!(totals(&tally), (20, 0, None, Some(6)));
        // Another worker begins at zero.
        tally.note(8, statistics(5, 2, &[("s1", 2, 5, Health::Down)]));
        assert_eq!(totals(&tally), (25, 2, None, Some(11)));
        assert_eq!(tally.members(&shop())[&at(2)].health, Health::Down);
        // What is gone is forgotten.
        tally.note(8, Statistics::default());
        assert!(tally.frontends.is_empty() && tally.members(&shop()).is_empty());
    }

    #[test]
    fn of_a_member_that_left_and_came_back_the_slot_that_serves_counts() {
        let mut tally = AccumulatedCounters::default();
        tally.note(7, statistics(0, 0, &[("s1", 1, 4, Health::Up), ("s2", 1, 3, Health::Maintenance)]));
        let seen = &tally.members(&shop())[&at(1)];
        assert_eq!((seen.counters.total, seen.health), (7, Health::Up));
    }
}
