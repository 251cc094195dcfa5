//! Series of single Services and of their members. Each kind has a bound; what is beyond is summed as `other`, and who
//! has series keeps them as long as it is there, so that their number never grows past the bound.
//!
//! Counters are summed from the differences between two looks: one that began anew, or whose listener is gone, takes
//! nothing back.

use std::{
    collections::{BTreeMap, HashMap, HashSet},
    fmt,
    hash::{BuildHasher, RandomState},
};

use prometheus_client::{
    collector::Collector,
    encoding::{DescriptorEncoder, EncodeLabelSet, MetricEncoder},
    metrics::MetricType,
    registry::Unit,
};
use seaway_model::{L4, latency::Histogram};

use super::times::encode_times;
use crate::view::{MemberView, PoolView, ServiceView, View};

/// How many objects have series of their own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SeriesLimits {
    /// 0: there are none of Services at all, nor of members.
    pub services: usize,
    /// 0: there are none of members.
    pub members: usize,
}

impl Default for SeriesLimits {
    fn default() -> SeriesLimits {
        SeriesLimits { services: 200, members: 1_000 }
    }
}

/// Namespace, Service and member; of a Service, without a member.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
struct Key {
    namespace: String,
    service: String,
    member: Option<String>,
}

/// A family of counters: its name after `seaway_service_` or `seaway_member_`, its one label, and the values of that.
struct Counters {
    name: &'static str,
    unit: Option<&'static Unit>,
    help: &'static str,
    label: &'static str,
    values: &'static [&'static str],
    /// Where its counts begin.
    from: usize,
    /// Only of what speaks HTTP.
    http: bool,
    members: bool,
}

const COUNTED: usize = 17;
const REQUESTS: usize = 0;
const ANSWERS: usize = 3;
const BYTES: usize = 8;
const ERRORS: usize = 10;
const REFUSED: usize = 14;
const NO_MEMBER: usize = 13;
const MEMBER_ERRORS: usize = 3;

const FAMILIES: [Counters; 5] = [
    Counters {
        name: "requests",
        unit: None,
        help: "HTTP requests, TCP connections and UDP flows given to members, by the protocol of the pool",
        label: "protocol",
        values: &["http", "tcp", "udp"],
        from: REQUESTS,
        http: false,
        members: true,
    },
    Counters {
        name: "answers",
        unit: None,
        help: "HTTP responses of members, by class of their status",
        label: "status",
        values: &["1xx", "2xx", "3xx", "4xx", "5xx"],
        from: ANSWERS,
        http: true,
        members: true,
    },
    Counters {
        name: "traffic",
        unit: Some(&Unit::Bytes),
        help: "Bytes to members (in) and from them (out)",
        label: "direction",
        values: &["in", "out"],
        from: BYTES,
        http: false,
        members: true,
    },
    Counters {
        name: "errors",
        unit: None,
        help: "Failures of members: connections that they did not take, connections that they reset, requests that \
               they did not answer in time; of a Service, also clients that found no usable member",
        label: "class",
        values: &["connect", "reset", "timeout", "no-member"],
        from: ERRORS,
        http: false,
        members: true,
    },
    Counters {
        name: "refused",
        unit: None,
        help: "Connections and requests refused at the Service's own listeners by source range or by limit",
        label: "reason",
        values: &["source", "limit", "client-rate"],
        from: REFUSED,
        http: false,
        members: false,
    },
];

const TIMES: [(&str, &str); 3] = [
    ("connect", "Time until a connection to a member was open"),
    (
        "first_byte",
        "Time until a member answered: from the end of the request headers to the end of the response headers (HTTP), from the \
         client's connection to the first byte (TCP)",
    ),
    ("request", "Time from the end of an HTTP request's head until the whole answer was passed on"),
];

#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Counts([u64; COUNTED]);

#[derive(Clone, Debug, Default)]
struct Series {
    counts: Counts,
    times: [Histogram; 3],
    open: u64,
    /// Which protocols were seen.
    speaks: [bool; 3],
    measured: bool,
}

/// What was counted by one listener, member or pool when it was last seen.
#[derive(Clone, Debug, Default)]
struct LastCounts {
    counts: Counts,
    times: Option<Box<[Histogram; 3]>>,
}

#[derive(Debug, Default)]
pub(super) struct ObjectSeries {
    limits: SeriesLimits,
    hasher: RandomState,
    seen: HashMap<u64, LastCounts>,
    services: BoundedSeries,
    members: BoundedSeries,
}

/// Series of one kind.
#[derive(Debug, Default)]
struct BoundedSeries {
    own: BTreeMap<Key, Series>,
    other: Series,
    /// How many objects are in `other` now.
    beyond: usize,
}

impl ObjectSeries {
    pub(super) fn new(limits: SeriesLimits) -> ObjectSeries {
        ObjectSeries { limits, ..ObjectSeries::default() }
    }

    /// What is to be shown, if anything.
    pub(super) fn update(&mut self, view: &View) -> Option<ExposedSeries> {
        if self.limits.services == 0 {
            return None;
        }
        let mut services = HashSet::new();
        let mut members = HashSet::new();
        for service in &view.services {
            services.insert(Key::of_service(service));
            for pool in &service.pools {
                services.insert(Key::of_pool(pool));
                members.extend(pool.members.iter().map(|it| Key::of_member(pool, it)));
            }
        }
        self.services.admit(services, self.limits.services);
        self.members.admit(members, self.limits.members);
        let mut seen = HashMap::new();
        for service in &view.services {
            let owner = self.hasher.hash_one(&service.owner);
            for listener in &service.listeners {
                let mut counts = Counts::default();
                let refused = listener.refused;
                counts.put(REFUSED, &[refused.by_source, refused.by_limit, refused.by_client_rate]);
                let key = self.hasher.hash_one((owner, listener.address, listener.port, listener.protocol));
                let more = self.differ(&mut seen, key, LastCounts { counts, times: None });
                self.services.of(&Key::of_service(service)).add(&more);
            }
            for pool in &service.pools {
                self.pool(owner, pool, &mut seen);
            }
        }
        self.seen = seen;
        let with_members = self.limits.members > 0;
        Some(ExposedSeries {
            services: self.services.series(),
            members: if with_members { self.members.series() } else { Vec::new() },
            beyond: [("service", self.services.beyond), ("member", self.members.beyond)],
        })
    }

    fn pool(&mut self, owner: u64, pool: &PoolView, seen: &mut HashMap<u64, LastCounts>) {
        let mut counts = Counts::default();
        counts.put(NO_MEMBER, &[pool.no_member]);
        let times = pool.latencies.as_ref().map(|it| Box::new([it.connect, it.first_byte, it.request]));
        let measured = times.is_some();
        let key = self.hasher.hash_one((owner, &pool.id));
        let more = self.differ(seen, key, LastCounts { counts, times });
        let speaks = protocol_of(pool);
        let of_service = Key::of_pool(pool);
        let series = self.services.of(&of_service);
        series.add(&more);
        series.measured |= measured;
        series.note(speaks);
        for member in &pool.members {
            let mut counts = Counts::default();
            counts.put(REQUESTS.saturating_add(speaks), &[member.sessions.total]);
            let answers = member.http.unwrap_or_default().answers.classes().map(|(_, count)| count);
            counts.put(ANSWERS, &answers);
            counts.put(BYTES, &[member.bytes.incoming, member.bytes.outgoing]);
            counts.put(ERRORS, &[member.connect_errors, member.resets, member.timeouts]);
            let key = self.hasher.hash_one((owner, &pool.id, &member.address));
            let more = self.differ(seen, key, LastCounts { counts, times: None });
            let its_own = self.members.of(&Key::of_member(pool, member));
            its_own.note(speaks);
            for series in [its_own, self.services.of(&of_service)] {
                series.add(&more);
                series.open = series.open.saturating_add(member.sessions.current);
            }
        }
    }

    /// What was counted since the last look.
    fn differ(&self, seen: &mut HashMap<u64, LastCounts>, key: u64, now: LastCounts) -> LastCounts {
        let more = match self.seen.get(&key) {
            Some(before) => now.since(before),
            None => now.clone(),
        };
        seen.insert(key, now);
        more
    }
}

impl BoundedSeries {
    fn admit(&mut self, present: HashSet<Key>, most: usize) {
        self.own.retain(|key, _| present.contains(key));
        self.beyond = 0;
        // Sorted, or chance would decide who has series.
        let mut new: Vec<Key> = present.into_iter().filter(|key| !self.own.contains_key(key)).collect();
        new.sort_unstable();
        for key in new {
            match self.own.len() < most {
                true => drop(self.own.insert(key, Series::default())),
                false => self.beyond = self.beyond.saturating_add(1),
            }
        }
        for series in self.own.values_mut().chain([&mut self.other]) {
            series.open = 0;
        }
    }

    fn of(&mut self, key: &Key) -> &mut Series {
        self.own.get_mut(key).unwrap_or(&mut self.other)
    }

    fn series(&self) -> Vec<(Key, Series)> {
        let own = self.own.iter().map(|(key, series)| (key.clone(), series.clone()));
        let has_other = self.beyond > 0 || self.other.speaks.contains(&true);
        let is_member = self.own.keys().next().is_some_and(|it| it.member.is_some());
        let other = Key {
            namespace: String::new(),
            service: "other".to_owned(),
            member: is_member.then(|| "other".to_owned()),
        };
        own.chain(has_other.then(|| (other, self.other.clone()))).collect()
    }
}

impl Key {
    fn of_service(service: &ServiceView) -> Key {
        Key { namespace: service.namespace.clone(), service: service.name.clone(), member: None }
    }

    /// The Service that the pool is of, which may be one behind the front door.
    fn of_pool(pool: &PoolView) -> Key {
        let (namespace, service) = pool.service.split_once('/').unwrap_or(("", &pool.service));
        Key { namespace: namespace.to_owned(), service: service.to_owned(), member: None }
    }

    fn of_member(pool: &PoolView, member: &MemberView) -> Key {
        Key { member: Some(member.address.clone()), ..Key::of_pool(pool) }
    }
}

fn protocol_of(pool: &PoolView) -> usize {
    match pool.protocol {
        _ if pool.members.iter().any(|it| it.http.is_some()) => 0,
        L4::Udp => 2,
        _ => 1,
    }
}

impl Counts {
    fn put(&mut self, from: usize, counts: &[u64]) {
        self.0.iter_mut().skip(from).zip(counts).for_each(|(to, count)| *to = *count);
    }
}

/// Of one that began anew, all that it has counted.
fn since(now: u64, before: u64) -> u64 {
    now.checked_sub(before).unwrap_or(now)
}

impl LastCounts {
    fn since(&self, before: &LastCounts) -> LastCounts {
        let mut more = self.clone();
        more.counts.0.iter_mut().zip(before.counts.0).for_each(|(now, before)| *now = since(*now, before));
        if let (Some(now), Some(before)) = (&mut more.times, &before.times) {
            for (now, before) in now.iter_mut().zip(before.iter()) {
                *now = now.since(before);
            }
        }
        more
    }
}

impl Series {
    fn note(&mut self, speaks: usize) {
        self.speaks.get_mut(speaks).into_iter().for_each(|it| *it = true);
    }

    fn add(&mut self, more: &LastCounts) {
        self.counts.0.iter_mut().zip(more.counts.0).for_each(|(sum, more)| *sum = sum.saturating_add(more));
        for (sum, more) in self.times.iter_mut().zip(more.times.iter().flat_map(|it| it.iter())) {
            sum.add(more);
        }
    }

    /// Whether there is a series for that value of a family's label.
    fn has(&self, family: &Counters, value: usize) -> bool {
        match family.from {
            REQUESTS => self.speaks.get(value).copied().unwrap_or_default(),
            _ => !family.http || self.speaks.first().copied().unwrap_or_default(),
        }
    }
}

/// What one request for metrics is answered with.
#[derive(Debug)]
pub(super) struct ExposedSeries {
    services: Vec<(Key, Series)>,
    members: Vec<(Key, Series)>,
    beyond: [(&'static str, usize); 2],
}

type Labels<'a> = Vec<(&'a str, &'a str)>;

impl Key {
    fn labels<'a>(&'a self, more: Option<(&'a str, &'a str)>) -> Labels<'a> {
        let mut labels = vec![("namespace", self.namespace.as_str()), ("service", self.service.as_str())];
        labels.extend(self.member.iter().map(|it| ("member", it.as_str())));
        labels.extend(more);
        labels
    }
}

impl Collector for ExposedSeries {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        self.counters(&mut encoder, "service", &self.services)?;
        self.times(&mut encoder)?;
        if !self.members.is_empty() {
            self.counters(&mut encoder, "member", &self.members)?;
        }
        let help = "Services and members without series of their own: the series `other` counts them";
        let mut family = encoder.encode_descriptor("seaway_series_other", help, None, MetricType::Gauge)?;
        for (kind, count) in self.beyond {
            at(&mut family, &vec![("kind", kind)], |it| it.encode_gauge(&(count as u64)))?;
        }
        Ok(())
    }
}

impl ExposedSeries {
    fn counters(
        &self,
        encoder: &mut DescriptorEncoder<'_>,
        kind: &str,
        all: &[(Key, Series)],
    ) -> fmt::Result {
        for counters in FAMILIES.iter().filter(|it| it.members || kind == "service") {
            let name = format!("seaway_{kind}_{}", counters.name);
            let mut family =
                encoder.encode_descriptor(&name, counters.help, counters.unit, MetricType::Counter)?;
            let errors_of_member = kind == "member" && counters.from == ERRORS;
            let values = if errors_of_member { MEMBER_ERRORS } else { counters.values.len() };
            for (key, series) in all {
                let counts = series.counts.0.iter().skip(counters.from);
                let values = counters.values.iter().take(values).zip(counts).enumerate();
                for (_, (value, count)) in values.filter(|(index, _)| series.has(counters, *index)) {
                    let labels = key.labels(Some((counters.label, value)));
                    at(&mut family, &labels, |it| it.encode_counter::<Labels<'_>, u64, f64>(count, None))?;
                }
            }
        }
        let help = "HTTP requests, TCP connections and UDP flows in flight to members";
        let name = format!("seaway_{kind}_open");
        let mut family = encoder.encode_descriptor(&name, help, None, MetricType::Gauge)?;
        for (key, series) in all {
            at(&mut family, &key.labels(None), |it| it.encode_gauge(&series.open))?;
        }
        Ok(())
    }

    fn times(&self, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
        for (index, (name, help)) in TIMES.iter().enumerate() {
            let name = format!("seaway_service_{name}");
            let mut family =
                encoder.encode_descriptor(&name, help, Some(&Unit::Seconds), MetricType::Histogram)?;
            for (key, series) in self.services.iter().filter(|(_, series)| series.measured) {
                let Some(times) = series.times.get(index) else { continue };
                encode_times(&mut family, &key.labels(None), times)?;
            }
        }
        Ok(())
    }
}

/// One series of a family.
fn at(
    family: &mut MetricEncoder<'_>,
    labels: &impl EncodeLabelSet,
    put: impl FnOnce(&mut MetricEncoder<'_>) -> fmt::Result,
) -> fmt::Result {
    put(&mut family.encode_family(labels)?)
}

#[cfg(test)]
mod tests;
