//! The last question before anything is removed that the plan does not want any more.
//!
//! The plan is as good as what was told: a watch that is late, a list that came back empty, a setting that went missing.
//! Whoever keeps the owners is asked right before the first step, each time: for the Service whose load balancer it is,
//! and for all Services where it belongs to all of them.
//!
//! What no Service asked to delete is counted, and stops at a limit: a whole load balancer, a group, and what steps delete below
//! a load balancer that is wanted (`Driver::removals`), whose other steps go on. Members and rules of a group are not counted.
//!
//! Whoever does not know whether another controller writes in the name of this cluster (`Driver::doubt`) removes only what a
//! change that this process saw asked for: the rest waits until it is known, or until an operator approves it.

use std::{collections::BTreeSet, future::Future, net::IpAddr, pin::Pin, sync::Arc, time::Duration};

use seaway_model::{
    Desired, L4, ListenerId, Name, ObjectRef, Owner, Problem, Reason, Unit,
    fact::Service,
    unit::{LbKey, Place},
};
use seaway_plan::{AskedFor, Uses};

use crate::driver::{Driver, Failure};

/// After an owner was found alive, or could not be asked for.
pub(crate) const ASK_AGAIN: Duration = Duration::from_secs(30);

/// An answer, or why there is none.
pub type Asked<'a, T> = Pin<Box<dyn Future<Output = Result<T, String>> + Send + 'a>>;

/// Who keeps the owners, and can be asked for them: an API server. What is there and cannot be read is an error, too.
pub trait Owners: Send + Sync + 'static {
    /// The Service that an owner is. `None`: it is not there, or another is there under its name.
    fn service<'a>(&'a self, owner: &'a Owner) -> Asked<'a, Option<Arc<Service>>>;

    /// All Services.
    fn services(&self) -> Asked<'_, Vec<Arc<Service>>>;
}

/// Whether one more deletion that no Service's deletion asked for is within the limit of this hour.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Counted {
    Within,
    Beyond { limit: usize },
}

/// Who counts such deletions, over restarts and leaders. One that goes on is counted once.
pub trait DeletionLimit: Send + Sync + 'static {
    /// `what` goes, of this object; `balancers` are there now.
    fn count<'a>(&'a self, what: &'a str, object: &'a ObjectRef, balancers: usize) -> Asked<'a, Counted>;

    /// Whether an operator approved deletions of this object.
    fn approved<'a>(&'a self, _object: &'a ObjectRef) -> Asked<'a, bool> {
        Box::pin(std::future::ready(Ok(false)))
    }
}

/// Why it is not known whether another controller writes in the name of this cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Doubt {
    /// It will be, soon.
    NotYet(&'static str),
    /// Another would not be noticed.
    Never(&'static str),
}

/// Who keeps which heartbeats this cluster has sent into a cloud: where it is copied, the copy knows those until then.
pub trait HeartbeatRecord: Send + Sync + 'static {
    /// The last ones.
    fn heartbeats(&self) -> Asked<'_, Vec<String>>;

    /// Before the last of them is sent.
    fn record(&self, heartbeats: Vec<String>) -> Asked<'_, ()>;
}

/// Something that served, which steps delete and put nothing in the place of: counted, unless its Service's change asked for it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Removal {
    /// `listener 80/TCP`.
    pub what: Name,
    /// A listener goes with its port.
    pub listener: Option<ListenerId>,
    /// A member, or the security group at a port, goes with its Node, of which these are addresses. It is not counted.
    pub node: Vec<IpAddr>,
    /// A rule of a security group goes with the node port. It is not counted.
    pub node_port: Option<(L4, u16)>,
    /// Which of the steps delete it.
    pub steps: Vec<usize>,
}

/// Three may go in an hour however few there are; else a tenth of what is there, with what went.
pub fn deletion_limit(balancers: usize, went: usize) -> usize {
    3.max((balancers + went) / 10)
}

/// Who is asked before a removal, and by which rules it is judged whether it is used.
pub(crate) struct Gate {
    pub(crate) owners: Arc<dyn Owners>,
    pub(crate) uses: Uses,
    pub(crate) limit: Option<Arc<dyn DeletionLimit>>,
    /// The plan saw the end of its owner.
    pub(crate) seen: bool,
    /// What its Service's changes asked for.
    pub(crate) asked: AskedFor,
    /// How many load balancers clouds have.
    pub(crate) balancers: usize,
}

/// Whether what is at this Unit may be removed.
pub(crate) async fn permit(
    gate: Option<&Gate>,
    unit: &Unit,
    desired: &Desired,
    doubt: Option<Doubt>,
) -> Result<(), Failure> {
    let (Some(gate), true) = (gate, desired.is_absent()) else { return Ok(()) };
    match unit {
        Unit::LoadBalancer(Place::Cloud { .. }, key @ (LbKey::Of(owner) | LbKey::Second(owner, _))) => {
            let what = match key {
                LbKey::Second(..) => "its second load balancer",
                _ => "its load balancer",
            };
            let service = gate.owners.service(owner).await;
            let service =
                service.map_err(|why| unanswered(owner, what, "the Service does not exist", &why))?;
            if service.as_ref().is_some_and(|it| gate.uses.uses(it, unit)) {
                return Err(used(owner.clone(), what, "the Service still uses it"));
            }
            let is_deleted = service.map_or(gate.seen, |it| it.leaving);
            if is_deleted {
                return Ok(());
            }
            if !gate.asked.others() {
                without_doubt(gate, doubt, owner, what).await?;
            }
            within_limit(gate, &unit.to_string(), owner, what).await.map_err(not_now)
        }
        Unit::SecurityGroup { class, .. } => {
            let services = gate.owners.services().await;
            let whole = || Owner::Config(class.clone());
            let services = services
                .map_err(|why| unanswered(&whole(), "its security group", "no Service uses it", &why))?;
            match services.iter().find(|it| gate.uses.uses(it, unit)) {
                Some(service) => {
                    Err(used(owner_of(service), "the security group", "a Service still uses it"))
                }
                None if gate.asked.others() => Ok(()),
                None => {
                    without_doubt(gate, doubt, &whole(), "its security group").await?;
                    let limited = within_limit(gate, &unit.to_string(), &whole(), "its security group").await;
                    limited.map_err(not_now)
                }
            }
        }
        Unit::DnsName(name) => permit_name(gate, unit, name).await,
        _ => Ok(()),
    }
}

/// What a name stands for in DNS goes once no Service asks for the name.
async fn permit_name(gate: &Gate, unit: &Unit, name: &Name) -> Result<(), Failure> {
    let whole = Owner::Config("dns".into());
    let what = format!("the DNS records of {name}");
    let services = gate.owners.services().await;
    let services = services.map_err(|why| unanswered(&whole, &what, "no Service asks for the name", &why))?;
    match services.iter().find(|it| gate.uses.uses(it, unit)) {
        Some(service) => Err(used(owner_of(service), &what, "a Service still asks for the name")),
        None if gate.seen => Ok(()),
        None => within_limit(gate, &unit.to_string(), &whole, &what).await.map_err(not_now),
    }
}

/// What may be done now of what is to be done at a Unit that is wanted.
pub(crate) struct Permitted<S> {
    pub(crate) steps: Vec<S>,
    pub(crate) problems: Vec<(Owner, Problem)>,
    /// Something stays for now.
    pub(crate) waits: bool,
}

/// Without what is beyond the limit, or in doubt, and why.
pub(crate) async fn permitted<D: Driver>(
    driver: &D,
    gate: Option<&Gate>,
    unit: &Unit,
    desired: &Desired,
    observed: &mut D::Observed,
    steps: Vec<D::Step>,
) -> Permitted<D::Step> {
    let (Some(gate), Some(owner)) = (gate.filter(|_| !desired.is_absent()), owner_at(unit)) else {
        return Permitted { steps, problems: Vec::new(), waits: false };
    };
    let (mut may, mut kept, mut problems) = (BTreeSet::new(), Vec::new(), Vec::new());
    let (doubt, mut doubted) = (driver.doubt(), Vec::new());
    for removal in driver.removals(observed, &steps) {
        let is_asked = is_asked_for(&gate.asked, &removal);
        let what = &removal.what;
        if !is_asked && doubt.is_some() {
            doubted.push(removal);
            continue;
        }
        let is_counted = removal.node.is_empty() && removal.node_port.is_none();
        let counted = match is_asked || !is_counted {
            true => Ok(()),
            false => within_limit(gate, &format!("{unit} {what}"), &owner, &format!("its {what}")).await,
        };
        match counted {
            Ok(()) => _ = may.insert(what.clone()),
            Err(problem) => {
                problems.push(problem);
                kept.push(removal);
            }
        }
    }
    if !doubted.is_empty() {
        let whats: Vec<&str> = doubted.iter().map(|it| it.what.as_str()).collect();
        match without_doubt(gate, doubt, &owner, &format!("its {}", first_of(&whats))).await {
            Ok(()) => may.extend(doubted.into_iter().map(|it| it.what)),
            Err(failure) => {
                problems.extend(problems_of(failure));
                kept.extend(doubted);
            }
        }
    }
    if kept.is_empty() {
        return Permitted { steps, problems, waits: false };
    }
    driver.keep(observed, &kept);
    let steps = driver.steps(desired, observed);
    let stays = driver.removals(observed, &steps).into_iter().filter(|it| !may.contains(&it.what));
    let stays: BTreeSet<usize> = stays.flat_map(|it| it.steps).collect();
    let steps = steps.into_iter().enumerate().filter(|(at, _)| !stays.contains(at)).map(|(_, it)| it);
    Permitted { steps: steps.collect(), problems, waits: true }
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
async fn without_doubt(gate: &Gate, doubt: Option<Doubt>, owner: &Owner, what: &str) -> Result<(), Failure> {
    let (object, why) = match doubt {
        None => return Ok(()),
        Some(Doubt::NotYet(why)) => {
            let why = format!("{what} is not deleted yet: {why}");
            return Err(Failure::Wait { why, after: ASK_AGAIN });
        }
        Some(Doubt::Never(why)) => (owner.object(), why),
    };
    let approved = match &gate.limit {
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
        "{what} is not deleted: no change that this process saw asks for the deletion, and \
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
        Failure::Told { problems, .. } => problems,
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

fn owner_at(unit: &Unit) -> Option<Owner> {
    match unit {
        Unit::LoadBalancer(Place::Cloud { .. }, key) => key.owner().cloned(),
        Unit::SecurityGroup { class, .. } => Some(Owner::Config(class.clone())),
        _ => None,
    }
}

/// No Service was deleted for it, nor changed so that it asks for that: or nobody knows what became of the Service.
async fn within_limit(gate: &Gate, counted: &str, owner: &Owner, what: &str) -> Result<(), (Owner, Problem)> {
    let Some(limit) = &gate.limit else { return Ok(()) };
    let object = owner.object();
    let (message, fix) = match limit.count(counted, &object, gate.balancers).await {
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
    Failure::Told { why: problem.message.clone(), problems: vec![(owner, problem)], after: ASK_AGAIN }
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
    let message = format!("{what} is not deleted before the API server says that {says}: {why}");
    let fix = "The controller must be allowed to get and list services: install the roles of this version (seaway crds).";
    refused(owner.clone(), Reason::Unreachable, message, fix)
}

fn refused(owner: Owner, reason: Reason, message: String, fix: &str) -> Failure {
    let problem = Problem::new(owner.object(), reason, message.clone()).fix(fix);
    Failure::Told { why: message, problems: vec![(owner, problem)], after: ASK_AGAIN }
}
