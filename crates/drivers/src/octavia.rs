//! Load balancers of Octavia, with the floating IPs that lead to them.
//!
//! ```text
//!     observe ─► what we made ourselves is known; what is not is read: found by its tag, then its tree
//!                what is pending is asked for by one list for all, every two seconds at most   (poll.rs)
//!     steps   ─► pure (steps.rs), from what should be there (wanted.rs)
//!     apply   ─► one call; a load balancer that is being changed takes no other: the Unit is parked meanwhile
//! ```
//! Octavia tells of an object whose it is by tags alone; names are another controller's too (names.rs). What has not our
//! tag is never touched.

mod admission;
mod adopted;
mod affinity;
mod asked;
mod audit;
mod background;
pub mod belongings;
mod born;
mod busy_load_balancers;
mod by_default;
mod calls;
mod cascade;
mod checks;
mod clients;
pub mod conf;
mod copies;
mod drift;
mod exclusive;
mod find;
mod floating;
mod former;
pub(crate) mod fuzz;
pub mod give_away;
mod gone;
pub mod group_release;
pub mod groups;
mod headers;
mod join;
mod last_observation;
mod list_request_lock;
mod local;
mod look;
mod lost_vip;
mod member_tls;
mod moment;
mod monitors;
mod named;
pub mod names;
mod obstacles;
mod owners;
mod pairs;
mod partial;
mod parts;
mod pending;
mod place;
mod placement;
mod poll;
pub mod pool_replacement;
mod preview;
mod probes;
mod queued;
mod quota;
mod read;
mod refusals;
mod removals;
mod repair;
pub mod retag;
mod seats;
mod service_backoffs;
pub mod shared;
mod shares;
pub mod sole;
pub mod steps;
mod subnet_reachability;
pub mod subnets;
mod survey;
mod tags;
mod timeouts;
mod tls;
mod told;
mod unheeded;
mod vip;
pub mod wanted;
mod words;
mod write;

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError, atomic::AtomicBool},
    time::{Duration, Instant},
};

use seaway_engine::{Background, Context, Doubt, Driver, Failure, Refused, Removal, Report};
use seaway_model::{Desired, LbKey, ListenerId, Name, Unit, outcome::ServingSocket, unit::Place};
use seaway_openstack::{Clock, RealClock, Service, octavia::Provisioning};
use tokio::sync::OnceCell;

pub use self::{
    audit::Audited,
    background::{Audits, Heartbeats},
    join::{Join, Joining},
    names::Cluster,
    placement::InCloud,
    repair::RepairAction,
    seats::terms_of,
    steps::{Observed, Step},
    told::{Note, Tell},
    unheeded::unheeded,
};
use self::{
    busy_load_balancers::BusyLoadBalancers,
    floating::External,
    join::Joined,
    last_observation::LastObservation,
    owners::first_owner,
    pairs::Part,
    partial::with_its_floating,
    poll::SOON,
    preview::is_paused,
    queued::{PendingCalls, Queued},
    quota::Quotas,
    refusals::Refusals,
    repair::LoadBalancerHistory,
    service_backoffs::{Requester, ServiceBackoffs},
    shared::{Closed, marks},
    steps::steps,
    survey::{ObjectCounts, SurveyCache},
};

/// How its places say that they are ours: `Place::Cloud { driver, .. }`.
pub const OCTAVIA: &str = "octavia";
/// What waits for somebody else is looked at this often.
const LOOK: Duration = Duration::from_secs(2);
/// What is done is looked at this often, though nothing changes.
const AUDIT: Duration = Duration::from_secs(300);

/// On so many load balancers it may be changed at once who is on them.
const STRIPES: usize = 16;

pub struct Octavia {
    join: Join,
    joined: OnceCell<Joined>,
    /// Until a cloud is joined, which has its own.
    clock: Arc<dyn Clock>,
    /// Whether this process may change anything: of several, one.
    may: Box<dyn Fn() -> bool + Send + Sync>,
    /// Where copies of the cluster are looked for.
    sole: Option<Arc<sole::SoleWriter>>,
    audits: Option<Audits>,
    heartbeats: Option<Heartbeats>,
    /// Makes load balancers that nobody chose another for.
    provider: Name,
    known: Mutex<HashMap<Unit, LastObservation>>,
    backoffs: ServiceBackoffs,
    refusals: Refusals,
    groups: Mutex<HashMap<Unit, groups::LastGroupObservation>>,
    /// Held while it is changed who is on a load balancer; when a guest came to one of those last.
    sharing: [tokio::sync::Mutex<Option<Instant>>; STRIPES],
    closed: Closed,
    busy_load_balancers: BusyLoadBalancers,
    past: Mutex<HashMap<Unit, LoadBalancerHistory>>,
    queues: PendingCalls,
    surveyed: SurveyCache,
    quotas: Quotas,
    external: External,
    tell: Option<Tell>,
    /// One call deletes a load balancer with all below it.
    cascades: AtomicBool,
}

impl Octavia {
    pub fn new(join: Join, provider: Name, may: impl Fn() -> bool + Send + Sync + 'static) -> Octavia {
        Octavia {
            join,
            joined: OnceCell::new(),
            clock: Arc::new(RealClock),
            may: Box::new(may),
            sole: None,
            audits: None,
            heartbeats: None,
            provider,
            known: Mutex::default(),
            backoffs: ServiceBackoffs::default(),
            refusals: Refusals::default(),
            groups: Mutex::default(),
            sharing: Default::default(),
            closed: Closed::default(),
            busy_load_balancers: BusyLoadBalancers::default(),
            past: Mutex::default(),
            queues: PendingCalls::default(),
            surveyed: SurveyCache::default(),
            quotas: Quotas::default(),
            external: External::default(),
            tell: None,
            cascades: AtomicBool::new(true),
        }
    }

    #[must_use]
    pub fn timed(self, clock: Arc<dyn Clock>) -> Octavia {
        Octavia { clock, ..self }
    }

    fn known(&self) -> MutexGuard<'_, HashMap<Unit, LastObservation>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn groups(&self) -> MutexGuard<'_, HashMap<Unit, groups::LastGroupObservation>> {
        self.groups.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn past<T>(&self, unit: &Unit, act: impl FnOnce(&mut LoadBalancerHistory) -> T) -> T {
        let mut all = self.past.lock().unwrap_or_else(PoisonError::into_inner);
        act(all.entry(unit.clone()).or_default())
    }
}

impl Driver for Octavia {
    type Observed = Observed;
    type Step = Step;

    /// Each call has a limit of its own, and one look may be many calls.
    fn attempt_timeout(&self) -> Duration {
        Duration::from_secs(3600)
    }

    fn serves(&self, unit: &Unit) -> bool {
        matches!(unit, Unit::LoadBalancer(Place::Cloud { driver, .. }, _) if driver.as_str() == OCTAVIA)
    }

    fn steps(&self, desired: &Desired, observed: &Observed) -> Vec<Step> {
        let Some(unit) = &observed.unit else { return Vec::new() };
        let Unit::LoadBalancer(_, key) = unit else { return Vec::new() };
        let Some(joined) = self.joined.get() else { return Vec::new() };
        if observed.shared.left || is_paused(desired) {
            return Vec::new();
        }
        if let Some(id) = &observed.abandon {
            return pending::steps(id, observed);
        }
        let mut wanted = self.wanted(unit, desired, observed).filter(|_| !observed.needless);
        if let Some(wanted) = &mut wanted {
            let taken = &observed.shared.taken;
            wanted.listeners.retain(|id, _| !taken.contains_key(id));
            wanted.metrics.take_if(|(id, _)| taken.contains_key(id));
            place::fill(wanted, &observed.placed);
            tls::leave_lost(wanted, desired, observed);
        }
        let marks = marks(&joined.cluster, key);
        let from = |observed: &Observed| {
            let shared = marks.as_ref().and_then(|marks| {
                let elsewhere = shared::names_another(desired, observed);
                shared::steps(wanted.as_ref(), observed, marks, elsewhere)
            });
            shared.unwrap_or_else(|| {
                steps(wanted.as_ref(), observed, |description| joined.cluster.made(description, key))
            })
        };
        let steps = match (desired, &marks) {
            (Desired::Removed(former), Some(marks)) => {
                former::steps(&joined.cluster, key, former, marks, observed, from)
            }
            _ => from(observed),
        };
        self.one_by_one(self.spared(unit, desired, observed, steps), observed)
    }

    /// What is refused, `steps` leaves out by itself: what is there of it is kept in step with its members (`partial.rs`).
    fn refuse(&self, unit: &Unit, desired: &Desired, observed: &Observed) -> Option<Refused> {
        let refused = (!observed.needless).then(|| self.refused_of(unit, desired, observed).problems)?;
        (!refused.is_empty()).then(|| Refused { rest: desired.clone(), problems: refused })
    }

    fn removals(&self, observed: &Observed, steps: &[Step]) -> Vec<Removal> {
        removals::removals(observed, steps)
    }

    fn doubt(&self) -> Option<Doubt> {
        self.sole.as_ref().and_then(|it| it.doubt())
    }

    fn keep(&self, observed: &mut Observed, removals: &[Removal]) {
        removals::keep(observed, removals);
    }

    async fn observe(&self, context: &Context, unit: &Unit, desired: &Desired) -> Result<Observed, Failure> {
        let Unit::LoadBalancer(_, key) = unit else {
            return Err(Failure::retry(format!("{unit} is not a load balancer")));
        };
        self.held_back(context)?;
        let asker = Requester::of(unit);
        let joined = self.joined(&asker).await?;
        self.begin_preview(unit, desired);
        let observed = Box::pin(self.look(joined, unit, key, desired)).await?;
        let mut observed = self.pass_over(joined, unit, desired, observed)?;
        self.admit(joined, unit, desired, &observed)?;
        self.begin(unit, desired, &observed)?;
        Box::pin(self.find_named(joined, unit, desired, &mut observed)).await?;
        let lost = Box::pin(tls::lost(&joined.cloud, desired, &observed)).await;
        observed.lost = lost.map_err(|error| self.failed(&asker, &error))?;
        if let (None, Some(told)) = (&observed.balancer, &observed.lost) {
            return Err(Failure::User(vec![told.problem.clone()]));
        }
        observed.unit = Some(unit.clone());
        Box::pin(self.locate(joined, unit, desired, &mut observed)).await?;
        place::say(key, desired, &mut observed.placed);
        self.known().entry(unit.clone()).and_modify(|it| it.observed.placed = observed.placed.clone());
        Box::pin(self.weigh(joined, unit, desired, &mut observed)).await?;
        self.judge(joined, unit, desired, &mut observed);
        Box::pin(self.look_for_external_network(joined, unit, desired, &mut observed)).await?;
        Box::pin(self.look_ahead(joined, unit, desired, &mut observed)).await?;
        Box::pin(self.look_for_their_groups(joined, unit, desired, &mut observed)).await?;
        Ok(observed)
    }

    async fn apply(
        &self,
        context: &Context,
        unit: &Unit,
        step: &Step,
        observed: &mut Observed,
    ) -> Result<(), Failure> {
        if step.locks() && observed.is_pending() {
            return Err(observed.waits(step, self.soon(observed)));
        }
        self.held_back(context)?;
        let asker = Requester::of(unit);
        let joined = self.joined(&asker).await?;
        self.ask(&asker)?;
        if step.locks() {
            let queued = self.is_queued(joined, observed).await;
            if let Some(left) = queued.map_err(|error| self.failed(&asker, &error))? {
                let why = format!("{step}: OVN is still applying the previous change");
                return Err(Failure::wait(why, left));
            }
        }
        let since = joined.cloud.clock().now();
        self.before(unit, step, observed, since)?;
        self.known().entry(unit.clone()).and_modify(|it| it.writing = true);
        if let Step::Keep(name, _) = step {
            joined.stored.note(name);
        }
        let at = observed.balancer.as_ref().map(|it| it.it.id.clone());
        let removed = gone::Child::of(step, observed);
        let queued = Queued::by(step, observed);
        let members = observed.members();
        let done = self.write(joined, unit, step, observed).await;
        if let Err(error) = &done {
            Box::pin(self.look_for_vip(joined, unit, (step, observed), error)).await;
        }
        if let (Ok(()), Step::Create(new)) = (&done, step) {
            self.surveyed.made(joined.cloud.clock().now(), ObjectCounts::by(new));
        }
        if step.service() == Service::KeyManager {
            joined.stored.forget();
            self.past(unit, |past| past.has_none_kept = false);
        }
        let until = joined.cloud.clock().now();
        if done.is_ok() {
            if step.locks() {
                joined.poll.wrote();
            }
            self.note_queued(queued, observed, until);
            self.quotas.took(step);
            self.make_room(step, at.as_ref(), unit, until);
        }
        match done {
            // What it has instead is looked for.
            Ok(()) if observed.shared.left => {
                self.known().remove(unit);
                self.past(unit, |past| past.unsure = Some(until));
                Ok(())
            }
            Ok(()) => {
                self.note_leftover(unit, step, None);
                self.note_written(unit, step, removed.as_ref());
                self.note_added(unit, step, observed, &members);
                self.note_removed(unit, removed);
                self.backoffs.is_back(step.service());
                self.refusals.passed(unit);
                let mut known = self.known();
                let read = known.get(unit).map_or(since, |it| it.read);
                let now = LastObservation { observed: observed.clone(), since, until, read, writing: false };
                known.insert(unit.clone(), now);
                drop(known);
                self.tell_groups(unit, step, observed);
                Ok(())
            }
            Err(error) => {
                if self.refused(unit, step, &error) {
                    self.known().entry(unit.clone()).and_modify(|it| it.writing = false);
                    return Err(Failure::wait(error.to_string(), LOOK));
                }
                self.note_leftover(unit, step, observed.floating.as_ref());
                // Nobody knows any more what is there.
                self.known().remove(unit);
                self.past(unit, |past| past.unsure = Some(until));
                Err(self.failed(&asker, &error))
            }
        }
    }

    fn forget(&self) {
        self.forget_all();
    }

    async fn run(self: Arc<Self>, background: Background) {
        self.work_beside(background).await;
    }

    fn conclude(&self, unit: &Unit, desired: &Desired, observed: &Observed) -> Report {
        let mut report = self.report(unit, desired, observed);
        report.pending = self.pending(unit, desired, observed);
        report.replaced = named::replaced(unit, desired, observed);
        report
    }

    fn is_ours(&self, unit: &Unit, observed: &Observed) -> bool {
        self.has_our_marks(unit, observed)
    }

    fn width(&self) -> usize {
        32
    }
}

impl Octavia {
    fn report(&self, unit: &Unit, desired: &Desired, observed: &Observed) -> Report {
        let mut told = Report { problems: pairs::told(unit, desired, observed), ..Report::default() };
        self.backoffs.is_well(&Requester::of(unit));
        let (Unit::LoadBalancer(_, key), Desired::LoadBalancer(wish), false) =
            (unit, desired, observed.needless)
        else {
            let is_looked_for = observed.their_groups.is_some() || !former::awaits_groups(unit, desired);
            let is_gone = observed.balancer.is_none() && observed.is_alone() && is_looked_for;
            told.again = (!is_gone).then(|| self.soon(observed)).or(observed.unrequested.then_some(AUDIT));
            if is_gone && !observed.needless {
                self.refusals.gone(unit);
                self.busy_load_balancers.gone(unit);
                self.known().remove(unit);
                if let Some(joined) = self.joined.get() {
                    self.surveyed.went(unit, joined.cloud.clock().now());
                }
                self.past.lock().unwrap_or_else(PoisonError::into_inner).remove(unit);
            }
            return told;
        };
        self.refusals.passed(unit);
        told.problems = told::problems(wish, observed);
        let Some(balancer) = &observed.balancer else {
            told.again = Some(if is_paused(desired) { AUDIT } else { LOOK });
            return told;
        };
        let part = Part::of(key, wish, observed, &self.abilities(wish, observed.balancer.as_ref()));
        let wish = &with_its_floating(part.cut(key, wish), observed);
        if let LbKey::Of(owner) = key {
            let problems = shared::told(self.joined.get().map(|it| &it.cluster), owner, wish, observed);
            told.problems.extend(problems.into_iter().map(|it| (owner.clone(), it)));
        }
        match &balancer.it.provisioning_status {
            Provisioning::Active => {
                told.again = Some(if self.is_deleting(observed) { SOON } else { AUDIT });
                let mut ips = place::addresses(wish, balancer, observed);
                if ips.is_empty() && observed.shared.guest {
                    // Whether the outside reaches it is for its first to say.
                    ips.extend(balancer.it.vip_address);
                }
                let served = balancer.branches.keys().filter(|it| wish.listeners.contains_key(it));
                let at = |it: &ListenerId, ip| ServingSocket { ip, protocol: it.l4, port: it.port };
                told.serving = served.flat_map(|it| ips.iter().map(move |ip| at(it, *ip))).collect();
                told.problems.extend(place::told(wish, balancer, &observed.placed));
                told.problems.extend(unheeded(wish, &self.abilities(wish, Some(balancer))));
                if !observed.shared.guest {
                    told.problems.extend(born::told(
                        wish,
                        &balancer.it,
                        observed.floating.as_ref(),
                        &self.provider,
                    ));
                }
            }
            Provisioning::Error => {
                told.again = Some(match observed.repair {
                    Some(RepairAction::Later(left)) => left,
                    _ => AUDIT,
                });
            }
            _ => told.again = Some(self.soon(observed)),
        }
        if !observed.doubles.is_empty() {
            told.again = Some(self.soon(observed));
        }
        told
    }
}
