//! The last question before a step is taken, for every driver and in one place.
//!
//! ```text
//!     each step, each short way            the fence: does this process still lead?
//!     a step that deletes, by where it is  a load balancer in a cloud  its Service, the doubt, the limit
//!                                          a security group            all Services, the doubt, the limit
//!                                          DNS records of a name       all Services, and the limit, once the name is to go
//!                                          anything else               the fence alone (`Guard`)
//!     a step that exposes                  never where nothing is wanted any more
//! ```
//! The plan is as good as what was told: a watch that is late, a list that came back empty, a setting that went missing.
//! The owners are asked for right before the first step, each time: for the Service whose load balancer it is,
//! and for all Services where it belongs to all of them.
//!
//! What no Service asked to delete is counted, and stops at a limit: a whole load balancer, a group, and what steps delete below
//! a load balancer that is wanted (`Driver::removals`), whose other steps go on. Members and rules of a group are not counted. A step
//! that deletes, and of which its driver does not say what, is not taken.
//!
//! A controller that does not know whether another one writes in the name of this cluster (`Driver::doubt`) removes only what a
//! change that this process saw asked for: the rest waits until it is known, or until an operator approves it.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use seaway_model::{
    Desired, Name, ObjectRef, Owner, Problem, Reason, Unit,
    fact::Service,
    unit::{LbKey, Place},
};
use seaway_plan::{AskedFor, UnitRules};
use tracing::error;

use crate::{
    context::Context,
    driver::{Driver, Failure, name},
    effect::Effects,
    removal::{Counted, DeletionLimit, Doubt, Owners, Removal},
    wanted::Wanted,
};

/// After an owner was found alive, or could not be asked for.
pub(crate) const ASK_AGAIN: Duration = Duration::from_secs(30);
/// After another led: a process that leads again marks what it has to look at.
const FENCED: Duration = Duration::from_secs(5);

/// Whether this process may write. Asked right before each step and each short way, of every driver: a process that leads no more
/// writes nothing.
#[derive(Clone, Default)]
pub struct Fence(Option<Arc<dyn Fn() -> bool + Send + Sync>>);

impl Fence {
    /// Writes go while `leads` says so. Without it, always: a host serves, whichever controller leads.
    pub fn new(leads: impl Fn() -> bool + Send + Sync + 'static) -> Fence {
        Fence(Some(Arc::new(leads)))
    }

    /// For those who write beside the engine.
    pub fn is_open(&self) -> bool {
        self.0.as_ref().is_none_or(|leads| leads())
    }

    pub(crate) fn require(&self) -> Result<(), Failure> {
        match self.is_open() {
            true => Ok(()),
            false => Err(Failure::wait("another leads".to_owned(), FENCED)),
        }
    }
}

/// What is asked for one attempt at a Unit.
#[derive(Default)]
pub struct Gate {
    pub(crate) context: Context,
    /// Nothing where nothing is kept of owners, or where none has to be asked.
    pub(crate) deletions: Option<Deletions>,
}

impl Gate {
    /// An operator asked for exactly this: nothing more is asked.
    pub fn of_operator() -> Gate {
        Gate::default()
    }

    /// The fence alone.
    pub fn fenced(fence: Fence) -> Gate {
        Gate { context: Context::fenced(fence), deletions: None }
    }
}

/// Who is asked before something is deleted, and by which rules it is judged whether it is used.
pub(crate) struct Deletions {
    pub(crate) owners: Arc<dyn Owners>,
    pub(crate) uses: UnitRules,
    pub(crate) limit: Option<Arc<dyn DeletionLimit>>,
    /// The plan saw the end of its owner.
    pub(crate) seen: bool,
    /// What its Service's changes asked for.
    pub(crate) asked: AskedFor,
    /// How many load balancers clouds have.
    pub(crate) balancers: usize,
}

/// What is asked beside the fence before something is deleted at a Unit.
pub(crate) enum Guard<'u> {
    /// Nothing more: it is made again from what is known here, or follows from what the leader has written.
    Fence,
    /// One Service.
    Service(&'u LbKey, &'u Owner),
    /// All of them, for any may use it.
    Services { whose: Owner, its: &'static str, the: &'static str },
    /// All of them, once the name is to go.
    Name(&'u Name),
}

impl Guard<'_> {
    /// A new kind of Unit has to be put somewhere: there is no arm for all others.
    pub(crate) fn of(unit: &Unit) -> Guard<'_> {
        match unit {
            Unit::LoadBalancer(Place::Cloud { name, .. }, key) => match key.owner() {
                Some(owner) => Guard::Service(key, owner),
                None => Guard::Services {
                    whose: Owner::Config(name.clone()),
                    its: "the shared load balancer",
                    the: "the shared load balancer",
                },
            },
            Unit::SecurityGroup { class, .. } => Guard::Services {
                whose: Owner::Config(class.clone()),
                its: "the security group of the Nodes",
                the: "the security group",
            },
            Unit::DnsName(name) => Guard::Name(name),
            // A host follows the Addresses that the leader wrote: if each host asked for each Service that goes, one that is cut off
            // would keep an address that another is to have.
            Unit::LoadBalancer(Place::Host { .. }, _) | Unit::HostAddresses(_) => Guard::Fence,
            // The plan lets an address go only with its Service, or with its pool's consent (`plan/src/ledger/keep.rs`).
            Unit::Address(_) => Guard::Fence,
            // What was written for a Service, or is kept of it, and serves no client.
            Unit::Status(_) | Unit::Finalizer(_) | Unit::Name(_) | Unit::CertificateOrder(_) => Guard::Fence,
        }
    }

    /// Whether somebody has to be asked about deletions at a Unit of which this is desired.
    pub(crate) fn asks(&self, desired: &Desired) -> bool {
        match self {
            Guard::Fence => false,
            Guard::Name(_) => desired.is_absent(),
            Guard::Service(..) | Guard::Services { .. } => true,
        }
    }

    /// Who hears of it if something stays below what is wanted; nothing, where each step may be taken.
    fn whose_parts(self) -> Option<Owner> {
        match self {
            Guard::Service(_, owner) => Some(owner.clone()),
            Guard::Services { whose, .. } => Some(whose),
            Guard::Fence | Guard::Name(_) => None,
        }
    }
}

/// Whether what is at this Unit may be removed.
pub(crate) async fn permit(
    gate: &Gate,
    unit: &Unit,
    desired: &Desired,
    doubt: Option<Doubt>,
) -> Result<(), Failure> {
    gate.context.require_lead()?;
    let (Some(asked), true) = (&gate.deletions, desired.is_absent()) else { return Ok(()) };
    match Guard::of(unit) {
        Guard::Service(key, owner) => {
            let what = match key {
                LbKey::Second(..) => "the second load balancer",
                _ => "the load balancer",
            };
            let service = asked.owners.service(owner).await;
            let service =
                service.map_err(|why| unanswered(owner, what, "the Service does not exist", &why))?;
            if service.as_ref().is_some_and(|it| asked.uses.uses(it, unit)) {
                return Err(used(owner.clone(), what, "the Service still uses it"));
            }
            let is_deleted = service.map_or(asked.seen, |it| it.leaving);
            if is_deleted {
                return Ok(());
            }
            if !asked.asked.others() {
                without_doubt(asked, doubt, owner, what).await?;
            }
            within_limit(asked, &unit.to_string(), owner, what).await.map_err(not_now)
        }
        Guard::Services { whose, its, the } => {
            let services = asked.owners.services().await;
            let services = services.map_err(|why| unanswered(&whose, its, "no Service uses it", &why))?;
            match services.iter().find(|it| asked.uses.uses(it, unit)) {
                Some(service) => Err(used(owner_of(service), the, "a Service still uses it")),
                None if asked.asked.others() => Ok(()),
                None => {
                    without_doubt(asked, doubt, &whose, its).await?;
                    within_limit(asked, &unit.to_string(), &whose, its).await.map_err(not_now)
                }
            }
        }
        Guard::Name(name) => permit_name(asked, unit, name).await,
        Guard::Fence => Ok(()),
    }
}

/// What a name stands for in DNS goes once no Service asks for the name.
async fn permit_name(asked: &Deletions, unit: &Unit, name: &Name) -> Result<(), Failure> {
    let whole = Owner::Config("dns".into());
    let what = format!("the DNS records of {name}");
    let services = asked.owners.services().await;
    let services =
        services.map_err(|why| unanswered(&whole, &what, "no Service requests this DNS name", &why))?;
    match services.iter().find(|it| asked.uses.uses(it, unit)) {
        Some(service) => Err(used(owner_of(service), &what, "a Service still requests this DNS name")),
        None if asked.seen => Ok(()),
        None => within_limit(asked, &unit.to_string(), &whole, &what).await.map_err(not_now),
    }
}

/// What may be done now of what is to be done at a Unit.
pub(crate) struct Permitted<S> {
    pub(crate) steps: Vec<S>,
    pub(crate) problems: Vec<(Owner, Problem)>,
    /// Something stays for now.
    pub(crate) waits: bool,
}

/// Without what is beyond the limit, or in doubt, or not explained, and why.
pub(crate) async fn permitted<D: Driver>(
    driver: &D,
    gate: &Gate,
    unit: &Unit,
    (desired, wanted): (&Desired, &Wanted<'_>),
    observed: &mut D::Observed,
    steps: Vec<D::Step>,
) -> Permitted<D::Step> {
    if desired.is_absent() {
        return without_exposing::<D>(unit, steps);
    }
    let (Some(asked), Some(owner)) = (&gate.deletions, Guard::of(unit).whose_parts()) else {
        return Permitted { steps, problems: Vec::new(), waits: false };
    };
    let (mut removals, mut steps) = (driver.removals(observed, &steps), steps);
    let (mut may, mut kept, mut problems) = (BTreeSet::new(), Vec::new(), Vec::new());
    let (doubt, mut doubted) = (driver.doubt(), Vec::new());
    for removal in removals.iter().filter(|it| !it.is_unused) {
        let is_asked = is_asked_for(&asked.asked, removal);
        let what = &removal.what;
        if !is_asked && doubt.is_some() {
            doubted.push(removal.clone());
            continue;
        }
        let is_counted = removal.node.is_empty() && removal.node_port.is_none();
        let counted = match is_asked || !is_counted {
            true => Ok(()),
            false => within_limit(asked, &format!("{unit} {what}"), &owner, &format!("the {what}")).await,
        };
        match counted {
            Ok(()) => _ = may.insert(what.clone()),
            Err(problem) => {
                problems.push(problem);
                kept.push(removal.clone());
            }
        }
    }
    if !doubted.is_empty() {
        let whats: Vec<&str> = doubted.iter().map(|it| it.what.as_str()).collect();
        match without_doubt(asked, doubt, &owner, &format!("the {}", first_of(&whats))).await {
            Ok(()) => may.extend(doubted.into_iter().map(|it| it.what)),
            Err(failure) => {
                problems.extend(problems_of(failure));
                kept.extend(doubted);
            }
        }
    }
    let mut waits = !kept.is_empty();
    if waits {
        driver.keep(observed, &kept);
        steps = wanted.steps(driver, observed);
        removals = driver.removals(observed, &steps);
    }
    let stay = removals.iter().filter(|it| !it.is_unused && !may.contains(&it.what));
    let mut stay: BTreeSet<usize> = stay.flat_map(|it| it.steps.iter().copied()).collect();
    let explained: BTreeSet<usize> = removals.iter().flat_map(|it| it.steps.iter().copied()).collect();
    for (at, step) in steps.iter().enumerate() {
        if step.effect().deletes && !explained.contains(&at) {
            problems.push(unexplained::<D>(&owner, step));
            stay.insert(at);
            waits = true;
        }
    }
    let taken = steps.into_iter().enumerate().filter(|(at, _)| !stay.contains(at)).map(|(_, it)| it);
    Permitted { steps: taken.collect(), problems, waits }
}

/// Where nothing is wanted, no client is to reach anything more than before: a step that would do that is a bug.
fn without_exposing<D: Driver>(unit: &Unit, steps: Vec<D::Step>) -> Permitted<D::Step> {
    let (exposing, steps): (Vec<_>, Vec<_>) = steps.into_iter().partition(|it| it.effect().exposes);
    for step in &exposing {
        let driver = name::<D>();
        error!(%unit, %step, "the driver {driver} would open to clients what is to be deleted: Seaway skips this step; this is a bug in Seaway");
    }
    // It is not gone yet, then.
    Permitted { steps, problems: Vec::new(), waits: !exposing.is_empty() }
}

/// It would go without a question.
fn unexplained<D: Driver>(owner: &Owner, step: &D::Step) -> (Owner, Problem) {
    let driver = name::<D>();
    let message =
        format!("the step \"{step}\" is not taken: the driver {driver} does not say what it deletes");
    let problem = Problem::new(owner.object(), Reason::Failed, message);
    (owner.clone(), problem.fix("This is a bug in Seaway: report it with the log of the controller."))
}

fn is_asked_for(asked: &AskedFor, removal: &Removal) -> bool {
    match (&removal.node[..], removal.listener, removal.node_port) {
        ([], None, None) => asked.others(),
        ([], _, Some((l4, port))) => asked.node_port(l4, port),
        ([], Some(id), None) => asked.listener(id) || asked.others(),
        (node, ..) => node.iter().any(|ip| asked.node(*ip)) || asked.others(),
    }
}

/// No change that was seen here asked for it: another controller of the same cluster may want it, or an operator says that none
/// does.
async fn without_doubt(
    asked: &Deletions,
    doubt: Option<Doubt>,
    owner: &Owner,
    what: &str,
) -> Result<(), Failure> {
    let (object, why) = match doubt {
        None => return Ok(()),
        Some(Doubt::NotYet(why)) => {
            let why = format!("{what} is not deleted yet: {why}");
            return Err(Failure::wait(why, ASK_AGAIN));
        }
        Some(Doubt::Never(why)) => (owner.object(), why),
    };
    let approved = match &asked.limit {
        Some(limit) => limit.approved(&object).await,
        None => Ok(false),
    };
    let (but, fix) = match approved {
        Ok(true) => return Ok(()),
        Ok(false) => (String::new(), format!("If no copy of this cluster runs, approve the deletion: {}", approval(&object))),
        Err(error) => (
            format!(" (whether an operator approved it is not known: {error})"),
            "The controller must be allowed to read the ConfigMap seaway-deletions: install the roles of this version \
             (seaway crds), and bind seaway-records."
                .to_owned(),
        ),
    };
    let message = format!(
        "{what} is not deleted: this process saw no change that requires the deletion, and \
                 {why}{but}"
    );
    Err(refused(owner.clone(), Reason::OtherController, message, &fix))
}

fn approval(object: &ObjectRef) -> String {
    format!(
        "kubectl -n seaway-system annotate --overwrite configmap seaway-deletions \
         'seaway.dev/approved-deletions={}/{} until TIME' (2026-11-22T20:00:00Z, within a day).",
        object.namespace, object.name
    )
}

fn problems_of(failure: Failure) -> Vec<(Owner, Problem)> {
    match failure {
        Failure::Retry { problems, .. } => problems,
        _ => Vec::new(),
    }
}

/// `listener 443/TCP, member 10.0.0.3 of 80/TCP and 12 more`
fn first_of(all: &[&str]) -> String {
    const NAMED: usize = 3;
    let named = all.iter().take(NAMED).copied().collect::<Vec<_>>().join(", ");
    match all.len().checked_sub(NAMED).filter(|it| *it > 0) {
        Some(more) => format!("{named} and {more} more"),
        None => named,
    }
}

/// No Service was deleted for it, nor changed so that it asks for that: or nobody knows what became of the Service.
async fn within_limit(
    asked: &Deletions,
    counted: &str,
    owner: &Owner,
    what: &str,
) -> Result<(), (Owner, Problem)> {
    let Some(limit) = &asked.limit else { return Ok(()) };
    let object = owner.object();
    let (message, fix) = match limit.count(counted, &object, asked.balancers).await {
        Ok(Counted::Within) => return Ok(()),
        Ok(Counted::Beyond { limit }) => (
            format!(
                "{what} is not deleted now: within the last hour, Seaway deleted {limit} objects that no \
                 Service asked to delete, and that is the limit"
            ),
            format!(
                "Find out why so many objects are to be deleted. Seaway continues by itself, one object \
                 each hour. To approve this one at once: {}",
                approval(&object)
            ),
        ),
        Err(why) => (
            format!("{what} is not deleted, because the deletion cannot be counted: {why}"),
            "The controller must be allowed to write the ConfigMap seaway-deletions: install the roles of this version \
             (seaway crds), and bind seaway-records."
                .to_owned(),
        ),
    };
    Err((owner.clone(), Problem::new(object, Reason::DeletionLimit, message).fix(fix)))
}

fn not_now((owner, problem): (Owner, Problem)) -> Failure {
    Failure::Retry { why: problem.message.clone(), problems: vec![(owner, problem)], after: Some(ASK_AGAIN) }
}

fn owner_of(service: &Service) -> Owner {
    let meta = &service.meta;
    let object = ObjectRef::new(seaway_model::Kind::Service, meta.namespace.clone(), meta.name.clone());
    Owner::Object { object, uid: meta.uid.clone() }
}

fn used(owner: Owner, what: &str, says: &str) -> Failure {
    let message =
        format!("{what} would have been deleted, but the API server says that {says}: nothing is deleted");
    let fix = "A watch may be late. If this Problem stays, restart the controller and report a bug.";
    refused(owner, Reason::Released, message, fix)
}

fn unanswered(owner: &Owner, what: &str, says: &str, why: &str) -> Failure {
    let message = format!("{what} is not deleted until the API server confirms that {says}: {why}");
    let fix = "The controller must be allowed to get and list services: install the roles of this version (seaway crds).";
    refused(owner.clone(), Reason::Unreachable, message, fix)
}

fn refused(owner: Owner, reason: Reason, message: String, fix: &str) -> Failure {
    let problem = Problem::new(owner.object(), reason, message.clone()).fix(fix);
    Failure::Retry { why: message, problems: vec![(owner, problem)], after: Some(ASK_AGAIN) }
}
