//! One load balancer for several Services.
//!
//! ```text
//!     the first   tags: seaway.dev/key=UID, its name              it made the load balancer, or took it over
//!     a guest     tags: seaway.dev/guest=CLUSTER/UID/ns/name,     by the annotation `load-balancer-id`; of a foreign one,
//!                       its name, seaway.dev/guests-of=CLUSTER    too: then all else there is somebody else's
//! ```
//! Each Service is worked on by itself and changes its own children alone: those have its key in a tag. The key of the load
//! balancer stays when the first leaves, so that who is left has the same VIP and floating IP; who is the last takes it down.
//! Tags are read again right before they are changed, one at a time: nobody's are lost.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    sync::{Mutex, MutexGuard, PoisonError},
};

use seaway_model::{
    Desired, Kind, LbKey, ListenerId, Name, ObjectRef, Owner, Problem, Unit, load_balancer::NamedLoadBalancer,
};
use seaway_openstack::{
    Class, Cloud, Error,
    octavia::{Listener, ListenerChange, LoadBalancer, LoadBalancerChange, Provisioning},
    resource::{Edit, Id},
};

use super::{
    adopted,
    floating::floating,
    names::{Cluster, KEY, THEIR_NAMES, after_number, end_of_second, key_text},
    pool_replacement, shares,
    steps::{Branch, Observed, ObservedLoadBalancer, Step, of_children},
    tls::keep,
    wanted::Wanted,
};

mod told;

pub(super) use told::{told, unwelcome};

/// The first has left, and its key stays.
const LEFT: &str = "seaway.dev/left";
pub(super) const GUEST: &str = "seaway.dev/guest=";

/// What a load balancer with several Services is to one of them.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Shared {
    /// It is another's: only our own children are touched.
    pub guest: bool,
    /// What others have on it, and whose it is, as this Service's users may read it.
    pub taken: BTreeMap<ListenerId, String>,
    /// We have left; there is nothing more to do here.
    pub left: bool,
    /// Nobody wants it any more.
    pub going: bool,
    /// The one that its Service names and that it is not on, and whether that is there.
    pub named: Option<(Name, bool)>,
    /// Why it stays here rather than go to the one that its Service names.
    pub refused: Option<Problem>,
}

/// Load balancers that are being taken down: the floating IP goes first, and nobody is to come after that.
#[derive(Default)]
pub(super) struct Closed(Mutex<HashMap<Unit, Id<LoadBalancer>>>);

impl Closed {
    pub(super) fn close(&self, unit: &Unit, it: &Id<LoadBalancer>) {
        self.all().insert(unit.clone(), it.clone());
    }

    /// It is wanted again, gone, or left to others.
    pub(super) fn open(&self, unit: &Unit) {
        self.all().remove(unit);
    }

    pub(super) fn forget(&self) {
        self.all().clear();
    }

    pub(super) fn admits(&self, it: &Id<LoadBalancer>) -> Result<(), Error> {
        match self.all().values().any(|id| id == it) {
            true => {
                Err(stale("the load balancer is being deleted")
                    .with_operation("join the shared load balancer"))
            }
            false => Ok(()),
        }
    }

    fn all(&self) -> MutexGuard<'_, HashMap<Unit, Id<LoadBalancer>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// How one Service is known in tags.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Marks {
    of: Cluster,
    owner: Owner,
    cluster: String,
    key: String,
    name: String,
    guest: String,
    guests_of: String,
}

impl Marks {
    pub fn of(cluster: &Cluster, key: &LbKey, owner: &Owner) -> Marks {
        let object = owner.object();
        Marks {
            of: cluster.clone(),
            owner: owner.clone(),
            cluster: cluster.tag(),
            key: cluster.tag_of(key),
            name: cluster.name_of(key, owner),
            guest: format!("{GUEST}{}/{}/{}/{}", cluster.uid, key_text(key), object.namespace, object.name),
            guests_of: guests_of(cluster),
        }
    }

    pub(super) fn key(&self) -> &str {
        &self.key
    }

    pub(super) fn name(&self) -> &str {
        &self.name
    }

    pub(super) fn guest(&self) -> &str {
        &self.guest
    }

    pub(super) fn is_first(&self, tags: &BTreeSet<String>) -> bool {
        tags.contains(&self.cluster) && tags.contains(&self.key) && !tags.contains(LEFT)
    }

    /// As the other controller marks a Service that shares it.
    pub(super) fn is_named(&self, tags: &BTreeSet<String>) -> bool {
        tags.contains(&self.name)
    }

    pub(super) fn is_guest(&self, tags: &BTreeSet<String>) -> bool {
        tags.contains(&self.guest)
    }

    /// Who is on it beside this Service.
    pub(super) fn others<'t>(&'t self, it: &'t LoadBalancer) -> impl Iterator<Item = &'t String> {
        let first = self.is_first(&it.tags);
        it.tags.iter().filter(move |tag| {
            let own = **tag == self.guest || **tag == self.name || first && **tag == it.name;
            !own && (tag.starts_with(GUEST) || tag.starts_with(THEIR_NAMES))
        })
    }

    /// A guest in a load balancer of ours whose first has left is the last.
    fn is_last(&self, it: &LoadBalancer) -> bool {
        let left = it.tags.contains(&self.cluster) && it.tags.contains(LEFT);
        left && self.others(it).next().is_none()
    }

    /// So many have their names on it beside this one.
    pub(super) fn names_of_others(&self, it: &LoadBalancer) -> usize {
        it.tags.iter().filter(|tag| tag.starts_with(THEIR_NAMES) && **tag != self.name).count()
    }

    /// Whose a listener is, for the users of this Service.
    fn told_of(&self, listener: &Listener) -> String {
        let name = listener.tags.iter().find(|tag| tag.starts_with(THEIR_NAMES));
        let name = name.map_or_else(|| after_number(&listener.name), String::as_str);
        if self.of.may_tell(name, &self.owner) {
            return match name.starts_with(THEIR_NAMES) {
                true => name.to_owned(),
                false => format!("listener {}", listener.id),
            };
        }
        match self.of.namespace_in(name) {
            Some(_) => format!("a Service of another namespace (listener {})", listener.id),
            None => format!("listener {}, which does not belong to a Service of this namespace", listener.id),
        }
    }

    fn of_guest(&self, it: &LoadBalancer) -> BTreeSet<String> {
        let foreign = !it.tags.contains(&self.cluster);
        let tags = [&self.name, &self.guest].into_iter().chain(foreign.then_some(&self.guests_of));
        tags.cloned().collect()
    }
}

/// How tags tell whose it is; only Services' own are told so.
pub(super) fn marks(cluster: &Cluster, key: &LbKey) -> Option<Marks> {
    match key {
        LbKey::Of(owner) | LbKey::Second(owner, _) => Some(Marks::of(cluster, key, owner)),
        LbKey::Shared(_) | LbKey::Port(..) | LbKey::Whole => None,
    }
}

/// Its Service does not point at this one, or not any more.
pub(super) fn names_another(desired: &Desired, observed: &Observed) -> bool {
    let (Desired::LoadBalancer(wish), Some(balancer)) = (desired, &observed.balancer) else { return false };
    let named = wish.options.cloud.as_ref().and_then(|it| it.named.as_ref());
    // One that was renamed is still the one that was meant, until another is called so.
    let is_there = |it: &NamedLoadBalancer| {
        observed.shared.named.as_ref().is_some_and(|(id, there)| *id == it.id && *there)
    };
    let is_it = |it: &NamedLoadBalancer| it.is(balancer.it.id.as_str(), &balancer.it.name);
    match named {
        Some(_) if observed.shared.refused.is_some() => false,
        Some(it) => !is_it(it) && (!it.by_name || is_there(it)),
        None => shares::word(wish).is_none(),
    }
}

/// All that guests of this cluster are on has it.
pub(super) fn guests_of(cluster: &Cluster) -> String {
    format!("seaway.dev/guests-of={}", cluster.uid)
}

/// Guests of this cluster that a load balancer has.
pub(super) fn guests(cluster: &Cluster, it: &LoadBalancer) -> Vec<LbKey> {
    let ours = format!("{GUEST}{}/", cluster.uid);
    let guest = |tag: &String| {
        let mut parts = tag.strip_prefix(&ours)?.split('/').map(Name::from);
        let (uid, namespace, name) = (parts.next()?, parts.next()?, parts.next()?);
        Some(LbKey::Of(Owner::Object { object: ObjectRef::new(Kind::Service, namespace, name), uid }))
    };
    it.tags.iter().filter_map(guest).collect()
}

/// Whether somebody is on a load balancer of ours who is no Service of this cluster.
pub(super) fn has_strangers(cluster: &Cluster, it: &LoadBalancer) -> bool {
    let of_ours = guests(cluster, it).into_iter().chain(cluster.key_of(&it.tags, &it.description));
    let ends: Vec<String> = of_ours.filter_map(|key| end_of_name(&key)).collect();
    let ours = format!("{GUEST}{}/", cluster.uid);
    it.tags.iter().any(|tag| {
        let is_named = || *tag == it.name || ends.iter().any(|end| tag.ends_with(end.as_str()));
        tag.starts_with(GUEST) && !tag.starts_with(&ours) || tag.starts_with(THEIR_NAMES) && !is_named()
    })
}

/// What its Service's name ends with among its tags, whatever its cluster is called.
pub(super) fn end_of_name(key: &LbKey) -> Option<String> {
    let object = key.owner()?.object();
    Some(format!("_{}_{}{}", object.namespace, object.name, end_of_second(key)))
}

/// What a cluster is called there: a Service's name tells it, unless two of them end alike.
pub(super) fn called(it: &LoadBalancer, key: &LbKey) -> Name {
    let end = end_of_name(key).unwrap_or_default();
    let between = |tag: &String| Some(tag.strip_prefix(THEIR_NAMES)?.strip_suffix(&end)?.to_owned());
    let mut names = it.tags.iter().filter_map(between);
    match (names.next(), names.next()) {
        (Some(name), None) => name.into(),
        _ => Name::default(),
    }
}

pub(super) fn was_left(it: &LoadBalancer) -> bool {
    it.tags.contains(LEFT)
}

/// Divides what is there into this Service's own and what others have. `had`: a guest's address led here before us.
pub(super) fn divide(
    marks: &Marks,
    it: &LoadBalancer,
    all: BTreeMap<ListenerId, Branch>,
    guest: bool,
    had: bool,
) -> (BTreeMap<ListenerId, Branch>, Shared) {
    let adopts = guest && had && !marks.is_guest(&it.tags) && it.tags.contains(&marks.name);
    let is_own = |listener: &Listener| {
        let tags = &listener.tags;
        match tags.iter().find(|tag| tag.starts_with(KEY)) {
            Some(key) => *key == marks.key,
            None if guest => adopts && tags.contains(&marks.name),
            None => {
                let other =
                    |tag: &&String| tag.starts_with(THEIR_NAMES) && **tag != marks.name && **tag != it.name;
                !tags.iter().any(|tag| other(&tag))
            }
        }
    };
    let (own, others): (BTreeMap<_, _>, BTreeMap<_, _>) =
        all.into_iter().partition(|(_, branch)| is_own(&branch.listener));
    // What is going is free by the time that the load balancer takes the next change.
    let stays = |branch: &Branch| branch.listener.provisioning_status != Provisioning::PendingDelete;
    let taken = others
        .into_iter()
        .filter(|(_, it)| stays(it))
        .map(|(id, it)| (id, marks.told_of(&it.listener)))
        .collect();
    (own, Shared { guest, taken, ..Shared::default() })
}

/// What is to be done where this is not one Service's load balancer alone; nothing, where it is. `elsewhere`: the Service
/// names another by now.
pub(super) fn steps(
    wanted: Option<&Wanted>,
    observed: &Observed,
    marks: &Marks,
    elsewhere: bool,
) -> Option<Vec<Step>> {
    let balancer = observed.balancer.as_ref()?;
    if observed.shared.guest && balancer.it.provisioning_status == Provisioning::PendingDelete {
        // What comes after it is known when it is gone.
        return Some(Vec::new());
    }
    match wanted.filter(|_| !(observed.shared.guest && elsewhere)) {
        Some(_) if !observed.shared.guest => None,
        Some(wanted) => Some(stay(wanted, observed, balancer, marks)),
        None if observed.shared.guest && marks.is_last(&balancer.it) => Some(take_down(observed, balancer)),
        None if observed.shared.guest || marks.others(&balancer.it).next().is_some() => {
            let mut steps = leave(balancer, observed.shared.guest, marks);
            // Who only goes elsewhere shows them there.
            if wanted.is_none() {
                steps.extend(observed.kept.keys().cloned().map(Step::Forget));
            }
            Some(steps)
        }
        None => None,
    }
}

fn stay(wanted: &Wanted, observed: &Observed, balancer: &ObservedLoadBalancer, marks: &Marks) -> Vec<Step> {
    let (mut steps, last) = keep(wanted, observed);
    let wanted = &wanted.addressed(&observed.kept);
    let tags = marks.of_guest(&balancer.it);
    let join = (!tags.is_subset(&balancer.it.tags)).then_some(Step::Join(tags));
    let unmarked = |branch: &&Branch| !branch.listener.tags.contains(&marks.key);
    if balancer.branches.values().any(|branch| unmarked(&branch)) {
        // Whose they are is known while it is not written that we are here; so that comes last.
        for (id, branch) in balancer.branches.iter().filter(|(_, branch)| unmarked(branch)) {
            let mut tags = branch.listener.tags.clone();
            adopted::mark(&mut tags, &BTreeSet::from([marks.key.clone()]), &branch.listener.tags);
            let change = ListenerChange { tags: Edit::To(tags), ..ListenerChange::default() };
            steps.push(Step::ChangeListener(*id, Box::new(change)));
        }
        of_children(wanted, balancer, &mut steps);
        steps.extend(join);
    } else {
        steps.extend(join);
        of_children(wanted, balancer, &mut steps);
    }
    steps.extend(last);
    steps
}

fn leave(balancer: &ObservedLoadBalancer, guest: bool, marks: &Marks) -> Vec<Step> {
    let mut steps = Vec::new();
    for (id, branch) in &balancer.branches {
        steps.extend(branch.pool.is_some().then_some(Step::RemovePool(*id)));
        steps.push(Step::RemoveListener(*id));
    }
    steps.extend(pool_replacement::leave(balancer, &marks.name));
    steps.push(Step::Leave(Box::new(marks.clone()), guest));
    steps
}

fn take_down(observed: &Observed, balancer: &ObservedLoadBalancer) -> Vec<Step> {
    let key = balancer.it.tags.iter().find(|tag| tag.starts_with(KEY));
    let cluster = balancer.it.tags.iter().find(|tag| tag.starts_with("seaway.dev/cluster="));
    let whose = key.zip(cluster).map(|(key, cluster)| format!("[{cluster} {key}]"));
    let ours = |text: &str| whose.as_ref().is_some_and(|whose| text.ends_with(whose.as_str()));
    let mut steps = floating(None, observed, &ours);
    steps.push(Step::Delete(balancer.it.id.clone()));
    steps
}

/// Adds a guest's tags, or takes one's away; by what they are now.
pub(super) async fn write(cloud: &Cloud, step: &Step, it: &LoadBalancer) -> Result<LoadBalancer, Error> {
    let all = cloud.all::<LoadBalancer>();
    let now = all.read::<LoadBalancer>(&it.id).await?;
    let mut tags = now.tags.clone();
    match step {
        Step::Join(new) => tags.extend(new.iter().cloned()),
        Step::Leave(marks, guest) => {
            if marks.is_last(&now) || !guest && marks.others(&now).next().is_none() {
                return Err(stale("the other Services have left the load balancer meanwhile")
                    .with_operation(step.to_string()));
            }
            tags.remove(&marks.guest);
            // The name of the load balancer itself is its first's, whoever that is.
            if !guest || now.name != marks.name {
                tags.remove(&marks.name);
            }
            let ours = format!("{GUEST}{}/", marks.guests_of.rsplit('=').next().unwrap_or_default());
            if !tags.iter().any(|tag| tag.starts_with(&ours)) {
                tags.remove(&marks.guests_of);
            }
            if !guest {
                tags.remove(&now.name);
                tags.insert(LEFT.to_owned());
            }
        }
        _ => {}
    }
    let change =
        LoadBalancerChange { tags: Edit::To(tags).unless_equal(&now.tags), ..LoadBalancerChange::default() };
    if change.is_empty() { Ok(now) } else { all.change(&it.id, &change).await }
}

impl Observed {
    /// After such a step it serves nobody: whoever came meanwhile would lose the address.
    pub(super) fn closes(&self, step: &Step) -> bool {
        let leads = matches!(step, Step::Detach(_) | Step::RemoveFloating(_));
        matches!(step, Step::Delete(_)) || leads && self.shared.going
    }
}

/// Whether it may be deleted: nobody has come meanwhile.
pub(super) async fn is_alone(cloud: &Cloud, it: &LoadBalancer, marks: &Marks) -> Result<(), Error> {
    match cloud.all::<LoadBalancer>().find::<LoadBalancer>(&it.id).await? {
        Some(now) if marks.others(&now).next().is_some() => {
            Err(stale("another Service shares the load balancer by now")
                .with_operation("delete load balancer"))
        }
        _ => Ok(()),
    }
}

fn stale(why: &str) -> Error {
    Error::new(Class::Stale, why)
}
