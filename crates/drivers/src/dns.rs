//! Names of Services in DNS: by dynamic updates (RFC 2136), signed by TSIG, or by objects that external-dns reads.
//!
//! ```text
//!   a.shop.example          A, AAAA   the addresses that answer
//!   _seaway.a.shop.example  TXT       whose they are, and which (marker.rs)
//! ```
//! Both change in one update, which presupposes the markers that were seen: a name without one is never touched, and of two who
//! write at once, one looks again. A DNSEndpoint says the same of a name as both (endpoints.rs).

mod endpoints;
mod look;
mod marker;
mod steps;
mod updates;

use std::{
    collections::{BTreeSet, HashMap},
    fmt::Write,
    net::IpAddr,
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

use seaway_acme::dns::{DnsError, UpdateOutcome};
use seaway_cluster::DnsEndpoints;
use seaway_engine::{Context, Driver, Failure, Report};
use seaway_model::{
    Desired, Name, Owner, Problem, Reason, Unit,
    dns::{DnsName, DnsProvider, marker_name},
};
use tracing::info;

pub(crate) use self::marker::fuzz;
use self::steps::{NameConflict, Observed, after, holder, obstacle, steps};
pub use self::steps::{Precondition, Step};

/// Whether somebody changed it.
const LOOK_AGAIN: Duration = Duration::from_secs(300);
/// What another wrote may be gone by then.
const TRY_AGAIN: Duration = Duration::from_secs(60);
/// A name server that does not answer, or refuses.
const AFTER_ERROR: Duration = Duration::from_secs(15);
/// A drain waits no longer for resolvers to forget, whatever the TTL is.
const LONGEST_WITHDRAWAL: Duration = Duration::from_secs(300);

/// Writes what names of Services stand for.
#[derive(Default)]
pub struct DnsNames {
    known: Mutex<HashMap<Name, NameState>>,
    /// Of a controller in a cluster.
    endpoints: Option<DnsEndpoints>,
}

/// What this process was told of a name.
struct NameState {
    last: Arc<DnsName>,
    /// When this host was taken out of it.
    withdrawn: Option<Instant>,
}

/// What was seen, of a name that this process knows.
#[derive(Debug)]
pub struct ObservedName {
    it: Arc<DnsName>,
    seen: Observed,
}

impl DnsNames {
    /// In a cluster, by which zones of external-dns can be served.
    #[must_use]
    pub fn with_endpoints(mut self, endpoints: DnsEndpoints) -> DnsNames {
        self.endpoints = Some(endpoints);
        self
    }

    async fn observe_records(&self, it: &DnsName) -> Result<Observed, DnsFailure> {
        match &it.zone.by {
            DnsProvider::Updates { server, key } => {
                Ok(look::observe(&updates::server(it, *server, key)?, it).await?)
            }
            DnsProvider::Endpoints => endpoints::observe(self.endpoints(it)?, it).await,
        }
    }

    async fn change(&self, it: &DnsName, step: &Step) -> Result<UpdateOutcome, DnsFailure> {
        match &it.zone.by {
            DnsProvider::Updates { server, key } => {
                Ok(updates::change(&updates::server(it, *server, key)?, it, step).await?)
            }
            DnsProvider::Endpoints => endpoints::change(self.endpoints(it)?, it, step).await,
        }
    }

    fn endpoints(&self, it: &DnsName) -> Result<&DnsEndpoints, DnsFailure> {
        self.endpoints.as_ref().ok_or_else(|| DnsFailure {
            why: format!("the zone {} has provider: dnsendpoint, which needs a Kubernetes cluster", it.zone.name),
            fix: "Write the server and the key of this zone into dns.zones of seaway.yaml (docs/dns-names.md).",
        })
    }

    /// Of one that nobody wants any more, what it was. One that this process has not published is not its to remove.
    fn note(&self, unit: &Unit, desired: &Desired) -> Option<Arc<DnsName>> {
        let Unit::DnsName(name) = unit else { return None };
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        match desired {
            Desired::DnsName(it) => {
                let known = known
                    .entry(name.clone())
                    .or_insert_with(|| NameState { last: it.clone(), withdrawn: None });
                known.last = it.clone();
                if !it.addresses.is_empty() {
                    known.withdrawn = None;
                }
                Some(it.clone())
            }
            _ => known.get(name).map(|it| it.last.clone()),
        }
    }

    fn note_withdrawal(&self, name: &Name) {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = known.get_mut(name) {
            known.withdrawn = Some(Instant::now());
        }
    }

    /// For how long resolvers may still send clients here.
    fn remembered_for(&self, it: &DnsName) -> Option<Duration> {
        let known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let since = known.get(&it.name)?.withdrawn?;
        let whole = Duration::from_secs(it.ttl.into()).min(LONGEST_WITHDRAWAL);
        whole.checked_sub(since.elapsed()).filter(|it| !it.is_zero())
    }
}

impl Driver for DnsNames {
    type Observed = Option<ObservedName>;
    type Step = Step;

    /// Each request has its own time, and a look at a name that is another's makes a dozen.
    fn attempt_timeout(&self) -> Duration {
        Duration::from_secs(120)
    }

    fn serves(&self, unit: &Unit) -> bool {
        matches!(unit, Unit::DnsName(_))
    }

    fn steps(&self, desired: &Desired, observed: &Option<ObservedName>) -> Vec<Step> {
        let Some(looked) = observed else { return Vec::new() };
        match desired {
            Desired::DnsName(it) => steps(it, true, &looked.seen),
            _ if desired.is_absent() => steps(&looked.it, false, &looked.seen),
            _ => Vec::new(),
        }
    }

    async fn observe(
        &self,
        _: &Context,
        unit: &Unit,
        desired: &Desired,
    ) -> Result<Option<ObservedName>, Failure> {
        let Some(it) = self.note(unit, desired) else { return Ok(None) };
        let seen = self.observe_records(&it).await.map_err(|trouble| failure_of(&it, &trouble))?;
        Ok(Some(ObservedName { it, seen }))
    }

    async fn apply(
        &self,
        context: &Context,
        unit: &Unit,
        step: &Step,
        observed: &mut Option<ObservedName>,
    ) -> Result<(), Failure> {
        let (Some(looked), Unit::DnsName(name)) = (observed, unit) else { return Ok(()) };
        context.require_lead()?;
        let it = looked.it.clone();
        match self.change(&it, step).await.map_err(|trouble| failure_of(&it, &trouble))? {
            UpdateOutcome::Done => looked.seen = after(step, &looked.seen),
            UpdateOutcome::NotAsPresupposed => {
                // It may have been done before: an answer was lost, or a process ended before it came.
                looked.seen = self.observe_records(&it).await.map_err(|trouble| failure_of(&it, &trouble))?;
                if !is_done(step, &looked.seen) {
                    return Err(Failure::retry(format!("{name} was changed in DNS meanwhile")));
                }
            }
        }
        if step.adds_marker.is_none() && !step.removes_markers.is_empty() {
            self.note_withdrawal(name);
        }
        info!(%name, zone = %it.zone.name, "{step}");
        Ok(())
    }

    fn conclude(&self, unit: &Unit, desired: &Desired, observed: &Option<ObservedName>) -> Report {
        let (Desired::DnsName(it), Some(looked)) = (desired, observed) else {
            // What was only looked at, or kept back, is still to go.
            let is_gone = observed.as_ref().is_none_or(|it| steps(&it.it, false, &it.seen).is_empty());
            if let (Unit::DnsName(name), true) = (unit, is_gone) {
                self.known.lock().unwrap_or_else(PoisonError::into_inner).remove(name);
            }
            return Report::default();
        };
        let problem = obstacle(it, &looked.seen).map(|it_is| problem_of(it, &it_is));
        Report {
            again: match &problem {
                _ if it.withdraws => self.remembered_for(it),
                Some(_) => Some(TRY_AGAIN),
                None => Some(LOOK_AGAIN),
            },
            problems: problem.into_iter().collect(),
            // Planning goes by age until it hears who has it.
            pending: holder(it, &looked.seen),
            ..Report::default()
        }
    }
}

fn is_done(step: &Step, seen: &Observed) -> bool {
    step.adds_marker.iter().all(|it| seen.texts.contains(it))
        && !step.removes_markers.iter().any(|it| seen.texts.contains(it))
        && step.adds.is_subset(&seen.addresses)
        && step.removes.is_disjoint(&seen.addresses)
}

/// Why records cannot be looked at, or changed.
struct DnsFailure {
    why: String,
    fix: &'static str,
}

impl DnsFailure {
    /// It may end by itself.
    fn passing(why: String) -> DnsFailure {
        DnsFailure {
            why,
            fix: "Records that Seaway wrote before stay until then. Seaway tries again by itself.",
        }
    }
}

impl From<DnsError> for DnsFailure {
    fn from(error: DnsError) -> DnsFailure {
        DnsFailure::passing(error.to_string())
    }
}

/// What is there stays.
fn failure_of(it: &DnsName, trouble: &DnsFailure) -> Failure {
    let why = format!("{} is not up to date in DNS: {}", it.name, trouble.why);
    let problem = Problem::new(it.owner.object(), Reason::NameNotPublished, why.clone()).fix(trouble.fix);
    Failure::Retry { why, problems: vec![(it.owner.clone(), problem)], after: Some(AFTER_ERROR) }
}

fn problem_of(it: &DnsName, obstacle: &NameConflict) -> (Owner, Problem) {
    let name = &it.name;
    let (message, fix) = match obstacle {
        NameConflict::Others(what) => (
            format!(
                "{name} is already in DNS, and Seaway did not write it: {what}. Seaway does not change it"
            ),
            "Choose another name; or, if nothing needs these records, remove them. Seaway checks again each \
             minute."
                .to_owned(),
        ),
        NameConflict::Marker(whose) => (
            format!("{name} is published in DNS for another owner: {whose}. Seaway does not change it"),
            format!(
                "Choose another name. If that Service is gone for good, remove its records and the TXT \
                 record {}.",
                marker_name(name)
            ),
        ),
        NameConflict::Beside(addresses) => (
            format!(
                "{} was added to {name} in DNS beside the addresses of Seaway. Until that record is \
                 removed, Seaway adds no address to this name",
                listed(addresses)
            ),
            "Remove these records, or remove the annotation from the Service.".to_owned(),
        ),
    };
    (it.owner.clone(), Problem::new(it.owner.object(), Reason::NameNotPublished, message).fix(fix))
}

fn listed(addresses: &BTreeSet<IpAddr>) -> String {
    let mut text = String::new();
    for ip in addresses {
        // A String takes all.
        let _ = write!(text, "{}{ip}", if text.is_empty() { "" } else { ", " });
    }
    text
}

#[cfg(test)]
mod tests {
    use seaway_model::{Kind, ObjectRef, dns::DnsZone};

    use super::*;

    fn named(addresses: &[&str]) -> Desired {
        let zone = DnsZone {
            name: "shop.example".into(),
            by: DnsProvider::Endpoints,
            ttl: 60,
            namespaces: Vec::new(),
        };
        let object = ObjectRef::new(Kind::Service, "default", "shop");
        Desired::DnsName(Arc::new(DnsName {
            name: "www.shop.example".into(),
            zone: Arc::new(zone),
            installation: "prod".into(),
            host: Some("edge-1".into()),
            owner: Owner::Object { object, uid: "u".into() },
            ttl: 60,
            addresses: addresses.iter().map(|it| it.parse().expect("an address")).collect(),
            keeps: BTreeSet::new(),
            withdraws: addresses.is_empty(),
            rivals: BTreeSet::new(),
        }))
    }

    #[test]
    fn a_host_that_left_a_name_waits_for_resolvers_until_it_is_in_it_again() {
        let driver = DnsNames::default();
        let unit = Unit::DnsName("www.shop.example".into());
        let waits = |addresses: &[&str]| {
            let it = driver.note(&unit, &named(addresses)).expect("it is wanted");
            driver.remembered_for(&it).is_some()
        };
        assert!(!waits(&["192.0.2.1"]) && !waits(&[]));
        driver.note_withdrawal(&"www.shop.example".into());
        assert!(waits(&[]) && waits(&[]), "however often it is looked at");
        assert!(!waits(&["192.0.2.1"]));
        assert!(!waits(&[]), "that was another time");
    }
}
