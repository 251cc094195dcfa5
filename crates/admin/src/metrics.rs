//! `/metrics`: OpenMetrics text. Labels are a protocol, a state, a reason or a direction, never an object's name; except
//! in the series of single Services and members, of which there are no more than a bound says.
//!
//! Counters never go back, though the listeners they are summed from come and go: what a listener had counted when
//! it was last seen stays in the sum.

mod allocation;
mod api_server;
mod drivers;
mod expose;
mod node_controllers;
mod objects;
mod times;

use std::{
    collections::HashMap,
    hash::{BuildHasher, Hash, RandomState},
    ops::AddAssign,
    time::Instant,
};

use self::objects::ObjectSeries;
pub use self::objects::SeriesLimits;
pub use self::{api_server::api_server_metrics, node_controllers::node_controller_metrics};
use prometheus_client::registry::Registry;
use seaway_model::L4;

use crate::{
    process::Usage,
    view::{HttpCounts, View},
};

/// Metrics of another crate, registered at each request for `/metrics`.
pub type MetricsSource = Box<dyn Fn(&mut Registry) + Send + Sync>;

/// Remembers what has been counted by whatever is gone.
#[derive(Default)]
pub(crate) struct Metrics {
    hasher: RandomState,
    listeners: HashMap<u64, (L4, Counts)>,
    members: HashMap<u64, (L4, Counts)>,
    gone: HashMap<L4, Counts>,
    counted: Vec<MetricsSource>,
    objects: ObjectSeries,
    /// What was told last, and of when that was.
    last: Option<(Instant, String)>,
}

#[derive(Clone, Copy, Default, PartialEq)]
struct Counts {
    connections: u64,
    incoming: u64,
    outgoing: u64,
    by_source: u64,
    by_limit: u64,
    by_client_rate: u64,
    errors: u64,
    connect_errors: u64,
    retries: u64,
    check_failures: u64,
    http: HttpCounts,
}

impl Metrics {
    pub(crate) fn new(counted: Vec<MetricsSource>, limits: SeriesLimits) -> Metrics {
        Metrics { counted, objects: ObjectSeries::new(limits), ..Metrics::default() }
    }

    /// Of a view of that time. One that is older than the last says what was told then: totals that go back would count as ones that
    /// began anew.
    pub(crate) fn render_at(&mut self, at: Instant, view: &View, usage: Usage) -> String {
        if let Some((last, text)) = &self.last
            && at <= *last
        {
            return text.clone();
        }
        let text = self.render(view, usage);
        self.last = Some((at, text.clone()));
        text
    }

    pub(crate) fn render(&mut self, view: &View, usage: Usage) -> String {
        let totals = self.totals(view);
        expose::render(view, &totals, usage, &self.counted, self.objects.update(view))
    }

    fn totals(&mut self, view: &View) -> HashMap<L4, Counts> {
        let mut listeners = HashMap::new();
        let mut members = HashMap::new();
        for service in &view.services {
            let owner = self.hasher.hash_one(&service.owner);
            for l in &service.listeners {
                let counts = Counts {
                    connections: l.sessions.total,
                    incoming: l.bytes.incoming,
                    outgoing: l.bytes.outgoing,
                    by_source: l.refused.by_source,
                    by_limit: l.refused.by_limit,
                    by_client_rate: l.refused.by_client_rate,
                    errors: l.errors,
                    http: l.http.unwrap_or_default(),
                    ..Counts::default()
                };
                let key = self.hasher.hash_one((owner, l.address, l.port, l.protocol));
                listeners.insert(key, (l.protocol, counts));
            }
            for pool in &service.pools {
                for m in &pool.members {
                    let counts = Counts {
                        connect_errors: m.connect_errors,
                        retries: m.retries,
                        check_failures: m.check.failures,
                        ..Counts::default()
                    };
                    let key = self.hasher.hash_one((owner, &pool.id, &m.address));
                    members.insert(key, (pool.protocol, counts));
                }
            }
        }
        retire(&mut self.gone, &self.listeners, &listeners);
        retire(&mut self.gone, &self.members, &members);
        self.listeners = listeners;
        self.members = members;
        let mut totals = self.gone.clone();
        for (protocol, counts) in self.listeners.values().chain(self.members.values()) {
            totals.entry(*protocol).or_default().add_assign(*counts);
        }
        totals
    }
}

/// Adds to `gone` what had been counted by those that are absent now, or that began to count anew.
fn retire<K: Hash + Eq>(
    gone: &mut HashMap<L4, Counts>,
    before: &HashMap<K, (L4, Counts)>,
    now: &HashMap<K, (L4, Counts)>,
) {
    for (key, (protocol, old)) in before {
        let lost = match now.get(key) {
            Some((_, new)) if new.went_on_from(old) => continue,
            _ => *old,
        };
        gone.entry(*protocol).or_default().add_assign(lost);
    }
}

impl Counts {
    fn went_on_from(&self, old: &Counts) -> bool {
        self.connections >= old.connections
            && self.incoming >= old.incoming
            && self.outgoing >= old.outgoing
            && self.errors >= old.errors
            && self.connect_errors >= old.connect_errors
            && self.check_failures >= old.check_failures
            && self.http.requests >= old.http.requests
    }
}

impl AddAssign for Counts {
    fn add_assign(&mut self, other: Counts) {
        self.connections = self.connections.saturating_add(other.connections);
        self.incoming = self.incoming.saturating_add(other.incoming);
        self.outgoing = self.outgoing.saturating_add(other.outgoing);
        self.by_source = self.by_source.saturating_add(other.by_source);
        self.by_limit = self.by_limit.saturating_add(other.by_limit);
        self.by_client_rate = self.by_client_rate.saturating_add(other.by_client_rate);
        self.errors = self.errors.saturating_add(other.errors);
        self.connect_errors = self.connect_errors.saturating_add(other.connect_errors);
        self.retries = self.retries.saturating_add(other.retries);
        self.check_failures = self.check_failures.saturating_add(other.check_failures);
        self.http.add_assign(other.http);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::view::{ByteCounts, ListenerView, RejectedCounts, ServiceView, Sessions};

    fn view(counts: &[(u16, u64)]) -> View {
        let listeners = counts.iter().map(|&(port, total)| ListenerView {
            address: "192.0.2.1".parse().unwrap(),
            port,
            protocol: L4::Tcp,
            name: String::new(),
            serving: true,
            sessions: Sessions { total, ..Sessions::default() },
            bytes: ByteCounts::default(),
            refused: RejectedCounts::default(),
            errors: 0,
            http: None,
            rate: None,
        });
        View {
            services: vec![ServiceView { listeners: listeners.collect(), ..ServiceView::default() }],
            ..View::default()
        }
    }

    /// The sum of TCP connections at each of these looks.
    fn connections(looks: &[&[(u16, u64)]]) -> Vec<u64> {
        let mut metrics = Metrics::default();
        looks.iter().map(|look| metrics.totals(&view(look))[&L4::Tcp].connections).collect()
    }

    #[test]
    fn a_removed_listener_takes_nothing_out_of_the_sum() {
        assert_eq!(connections(&[&[(80, 5), (81, 7)], &[(80, 6)], &[(80, 8)]]), [12, 13, 15]);
    }

    #[test]
    fn a_listener_that_came_back_at_zero_counts_on() {
        assert_eq!(connections(&[&[(80, 5)], &[(80, 2)], &[(80, 3)]]), [5, 7, 8]);
    }
}
