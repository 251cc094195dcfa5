//! Names of Services in DNS, by dynamic updates (RFC 2136), signed by TSIG.
//!
//! ```text
//!   a.shop.example          A, AAAA   the addresses that answer
//!   _seaway.a.shop.example  TXT       whose they are, and which (marker.rs)
//! ```
//! Both change in one update, which presupposes the markers that were seen: a name without one is never touched, and of two who
//! write at once, one looks again.

mod look;
mod marker;
mod steps;

use std::{
    collections::{BTreeSet, HashMap},
    fmt::Write,
    net::IpAddr,
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

use seaway_acme::dns::{DnsError, DnsServer, Prerequisite, RecordChange, RecordData, RecordType, Updated};
use seaway_engine::{Conclusion, Driver, Failure};
use seaway_model::{
    Desired, Name, Owner, Problem, Reason, Unit,
    dns::{DnsName, DnsProvider, marker_name},
};
use tracing::info;

pub(crate) use self::marker::fuzz;
pub use self::steps::{Presupposed, Step};
use self::{
    look::look,
    steps::{Observed, Obstacle, after, holder, obstacle, steps},
};
use crate::acme::read_mounted_secret;

/// Whether somebody changed it.
const LOOK_AGAIN: Duration = Duration::from_secs(300);
/// What another wrote may be gone by then.
const TRY_AGAIN: Duration = Duration::from_secs(60);
/// A name server that does not answer, or refuses.
const AFTER_ERROR: Duration = Duration::from_secs(15);
/// A drain waits no longer for resolvers to forget, whatever the TTL is.
const LONGEST_WITHDRAWAL: Duration = Duration::from_secs(300);

pub struct DnsNames {
    may_write: Box<dyn Fn() -> bool + Send + Sync>,
    known: Mutex<HashMap<Name, Known>>,
}

/// What this process was told of a name.
struct Known {
    last: Arc<DnsName>,
    /// When this host was taken out of it.
    withdrawn: Option<Instant>,
}

/// What was seen, of a name that this process knows.
#[derive(Debug)]
pub struct Looked {
    it: Arc<DnsName>,
    seen: Observed,
}

impl DnsNames {
    /// `may_write`: whether this process still leads.
    pub fn new(may_write: impl Fn() -> bool + Send + Sync + 'static) -> DnsNames {
        DnsNames { may_write: Box::new(may_write), known: Mutex::default() }
    }

    /// Of one that nobody wants any more, what it was. One that this process has not published is not its to remove.
    fn note(&self, unit: &Unit, desired: &Desired) -> Option<Arc<DnsName>> {
        let Unit::DnsName(name) = unit else { return None };
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        match desired {
            Desired::DnsName(it) => {
                let known =
                    known.entry(name.clone()).or_insert_with(|| Known { last: it.clone(), withdrawn: None });
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
    type Observed = Option<Looked>;
    type Step = Step;

    /// Each request has its own time, and a look at a name that is another's makes a dozen.
    fn patience(&self) -> Duration {
        Duration::from_secs(120)
    }

    fn serves(&self, unit: &Unit) -> bool {
        matches!(unit, Unit::DnsName(_))
    }

    fn steps(&self, desired: &Desired, observed: &Option<Looked>) -> Vec<Step> {
        let Some(looked) = observed else { return Vec::new() };
        match desired {
            Desired::DnsName(it) => steps(it, true, &looked.seen),
            _ if desired.is_absent() => steps(&looked.it, false, &looked.seen),
            _ => Vec::new(),
        }
    }

    async fn observe(&self, unit: &Unit, desired: &Desired) -> Result<Option<Looked>, Failure> {
        let Some(it) = self.note(unit, desired) else { return Ok(None) };
        let seen = async { look(&server(&it)?, &it).await };
        let seen = seen.await.map_err(|error| told(&it, &error))?;
        Ok(Some(Looked { it, seen }))
    }

    async fn apply(&self, unit: &Unit, step: &Step, observed: &mut Option<Looked>) -> Result<(), Failure> {
        let (Some(looked), Unit::DnsName(name)) = (observed, unit) else { return Ok(()) };
        if !(self.may_write)() {
            let why = "this process does not lead any more".to_owned();
            return Err(Failure::Wait { why, after: AFTER_ERROR });
        }
        let it = looked.it.clone();
        let server = server(&it).map_err(|error| told(&it, &error))?;
        let (presupposed, changes) = request(step);
        let done = server.change(&it.zone.name, &it.name, &presupposed, &changes).await;
        match done.map_err(|error| told(&it, &error))? {
            Updated::Done => looked.seen = after(step, &looked.seen),
            Updated::NotAsPresupposed => {
                // It may have been done before: an answer was lost, or a process ended before it came.
                looked.seen = look(&server, &it).await.map_err(|error| told(&it, &error))?;
                if !is_done(step, &looked.seen) {
                    return Err(Failure::Retry(format!("{name} was changed in DNS meanwhile")));
                }
            }
        }
        if step.adds_marker.is_none() && !step.removes_markers.is_empty() {
            self.note_withdrawal(name);
        }
        info!(%name, zone = %it.zone.name, "{step}");
        Ok(())
    }

    /// Planning goes by age until it hears who has it.
    fn stands(&self, _: &Unit, desired: &Desired, observed: &Option<Looked>) -> Option<Name> {
        match (desired, observed) {
            (Desired::DnsName(it), Some(looked)) => holder(it, &looked.seen),
            _ => None,
        }
    }

    fn conclude(&self, unit: &Unit, desired: &Desired, observed: &Option<Looked>) -> Conclusion {
        let (Desired::DnsName(it), Some(looked)) = (desired, observed) else {
            if let Unit::DnsName(name) = unit {
                self.known.lock().unwrap_or_else(PoisonError::into_inner).remove(name);
            }
            return Conclusion::default();
        };
        let problem = obstacle(it, &looked.seen).map(|it_is| problem_of(it, &it_is));
        Conclusion {
            again: match &problem {
                _ if it.withdraws => self.remembered_for(it),
                Some(_) => Some(TRY_AGAIN),
                None => Some(LOOK_AGAIN),
            },
            problems: problem.into_iter().collect(),
            ..Conclusion::default()
        }
    }
}

fn server(it: &DnsName) -> Result<DnsServer, DnsError> {
    let DnsProvider::Updates { server, key } = &it.zone.by;
    let field = format!("dns.zones ({}): key.secretFile", it.zone.name);
    Ok(DnsServer::new(*server, crate::acme::tsig_key(&field, key, read_mounted_secret(&key.secret_file))?))
}

fn request(step: &Step) -> (Vec<Prerequisite>, Vec<RecordChange>) {
    let (name, marker) = (step.name.clone(), marker_name(&step.name));
    let presupposed = match &step.presupposes {
        Presupposed::Unused => vec![
            Prerequisite::NameUnused(name.clone()),
            Prerequisite::NoRecords(marker.clone(), RecordType::Txt),
        ],
        Presupposed::Markers(texts) => {
            let mut all = vec![Prerequisite::Texts(marker.clone(), texts.clone())];
            if !step.adds.is_empty() {
                // The server would drop an address beside an alias in silence (RFC 2136, section 3.4.2.2).
                all.push(Prerequisite::NoRecords(name.clone(), RecordType::Cname));
            }
            all
        }
    };
    let text = |it: &String| RecordData::Text(it.clone());
    let (old, new) = (step.removes_markers.iter().map(text), step.adds_marker.iter().map(text));
    let mut changes: Vec<RecordChange> = Vec::new();
    changes.extend(old.map(|data| RecordChange::Remove { name: marker.clone(), data }));
    changes.extend(new.map(|data| RecordChange::Add { name: marker.clone(), data, ttl: step.ttl }));
    let address = |it: &IpAddr| RecordData::Address(*it);
    changes.extend(
        step.removes.iter().map(address).map(|data| RecordChange::Remove { name: name.clone(), data }),
    );
    let added = step.adds.iter().map(address);
    changes.extend(added.map(|data| RecordChange::Add { name: name.clone(), data, ttl: step.ttl }));
    (presupposed, changes)
}

fn is_done(step: &Step, seen: &Observed) -> bool {
    step.adds_marker.iter().all(|it| seen.texts.contains(it))
        && !step.removes_markers.iter().any(|it| seen.texts.contains(it))
        && step.adds.is_subset(&seen.addresses)
        && step.removes.is_disjoint(&seen.addresses)
}

/// What is there stays.
fn told(it: &DnsName, error: &DnsError) -> Failure {
    let why = format!("{} is not up to date in DNS: {error}", it.name);
    let fix = "Records that Seaway wrote before stay until then. Seaway tries again by itself.";
    let problem = Problem::new(it.owner.object(), Reason::NameNotPublished, why.clone()).fix(fix);
    Failure::Told { why, problems: vec![(it.owner.clone(), problem)], after: AFTER_ERROR }
}

fn problem_of(it: &DnsName, obstacle: &Obstacle) -> (Owner, Problem) {
    let name = &it.name;
    let (message, fix) = match obstacle {
        Obstacle::Others(what) => (
            format!("{name} is in DNS already, and Seaway did not write it: {what}. It is not changed"),
            "Choose another name; or, if nothing needs these records, remove them. Seaway looks again each minute.".to_owned(),
        ),
        Obstacle::Marker(whose) => (
            format!("{name} is published in DNS for another one: {whose}. It is not changed"),
            format!(
                "Choose another name. If that one is gone for good, remove its records and the TXT record {}.",
                marker_name(name)
            ),
        ),
        Obstacle::Beside(addresses) => (
            format!(
                "{} was added to {name} in DNS beside the addresses of Seaway, which adds no address to this name until that is removed",
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
