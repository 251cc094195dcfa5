//! From what is there to what should be there. Pure.
//!
//! A listener is the same as long as its port and transport are; its name and number do not matter, so that nothing is
//! renamed when a port is put before the others, and trees that another controller made stay as they are.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::SocketAddr,
    sync::Arc,
};

use seaway_model::{L4, ListenerId, Owner, Problem, Unit, load_balancer::Certificate};
use seaway_openstack::{
    neutron::{FloatingIp, Network, SecurityGroup},
    octavia::{
        HealthMonitor, HealthMonitorChange, Listener, ListenerChange, LoadBalancer, LoadBalancerChange,
        MemberChange, NewHealthMonitor, NewListener, NewLoadBalancer, NewMember, NewPool, Operating, Pool,
        PoolChange, Protocol, Provisioning,
    },
    resource::{Edit, Id},
};

use super::{
    adopted, affinity, by_default, clients,
    floating::floating,
    member_tls,
    monitors::of_monitor,
    names::{ListenerNumbers, after_number, number_in, numbered},
    place::Placed,
    pool_replacement::{self, Branches, DuplicateListeners, UnusedPools},
    removals::DeferredRemovals,
    repair::{Place, RepairAction},
    seats::{lost, probed_seats, seats},
    shared::{Marks, Shared},
    tags, timeouts,
    tls::{MissingCertificates, StoredCertificates, keep, terms},
    vip,
    wanted::{Wanted, WantedFloating, WantedListener},
};

/// What is there of one load balancer.
#[derive(Clone, Debug, Default)]
pub struct Observed {
    /// What it is of; nothing where nobody has looked.
    pub unit: Option<Unit>,
    /// Where it is to be, if it is not there yet.
    pub placed: Placed,
    pub balancer: Option<ObservedLoadBalancer>,
    /// What leads to its VIP, whoever made it.
    pub floating: Option<FloatingIp>,
    /// Made for it, and leads nowhere: its load balancer was taken from behind.
    pub stray: Option<FloatingIp>,
    /// Another leads there by now, and this one was made for it.
    pub leftover: Option<Id<FloatingIp>>,
    /// Where floating IPs come from, if that was looked for; nothing in it: there is no such network.
    pub external: Option<Option<Id<Network>>>,
    /// A certificate that is named and is not there: what listeners show stays as it is.
    pub lost: Option<MissingCertificates>,
    /// It is PENDING for too long.
    pub stuck: Option<(Owner, Problem)>,
    /// So long that another is to be made beside it.
    pub abandon: Option<Id<LoadBalancer>>,
    /// The one that never was ready, and beside which another was made.
    pub given_up: Option<Id<LoadBalancer>>,
    /// Left of a request that was done after nobody waited for it any more.
    pub doubles: Vec<Id<LoadBalancer>>,
    /// Listeners that a copy of this cluster made again: they stay.
    pub copied: BTreeSet<ListenerId>,
    /// What stays until it is known that it may go.
    pub held: DeferredRemovals,
    /// Members are Nodes, whatever pods do.
    pub by_nodes: bool,
    /// Certificates that are kept for it.
    pub kept: StoredCertificates,
    /// What it is, where several Services are on it.
    pub shared: Shared,
    /// Security groups that another controller made for its Service, once those were looked for.
    pub their_groups: Option<Vec<Id<SecurityGroup>>>,
    /// Where one was that is gone.
    pub place: Option<Place>,
    /// Another has its addresses: there is to be none.
    pub needless: bool,
    /// There is none for this alone: another controller made its first, and nobody asks for a second.
    pub unrequested: bool,
    /// What to do about one that is in ERROR.
    pub repair: Option<RepairAction>,
    /// Why it is not made again, though that is wished.
    pub stays: Option<String>,
    /// OVN asks members no more, as an audit saw long after the last change.
    pub unasked: bool,
    /// Members that were added here, and not written once more since then.
    pub added: BTreeSet<SocketAddr>,
}

#[derive(Clone, Debug)]
pub struct ObservedLoadBalancer {
    pub it: LoadBalancer,
    pub branches: BTreeMap<ListenerId, Branch>,
    /// Made to take the place of those that serve.
    pub spare: BTreeMap<ListenerId, PoolBranch>,
    pub unused_pools: UnusedPools,
    pub duplicate_listeners: DuplicateListeners,
    /// Those whose affinity went with another's pool.
    pub forgotten: BTreeSet<ListenerId>,
}

#[derive(Clone, Debug)]
pub struct Branch {
    pub listener: Listener,
    pub pool: Option<PoolBranch>,
}

#[derive(Clone, Debug)]
pub struct PoolBranch {
    pub pool: Pool,
    pub monitor: Option<HealthMonitor>,
    pub members: BTreeMap<SocketAddr, ObservedMember>,
}

/// A member, as far as it is known: a status tree tells where it is and no more.
#[derive(Clone, Debug, PartialEq)]
pub struct ObservedMember {
    pub operating: Operating,
    /// Its weight and the port that is probed, if they are known.
    pub terms: Option<(u16, Option<u16>)>,
}

impl ObservedLoadBalancer {
    pub fn new(
        it: LoadBalancer,
        (branches, duplicate_listeners): (Branches, DuplicateListeners),
        unused_pools: UnusedPools,
    ) -> ObservedLoadBalancer {
        ObservedLoadBalancer {
            it,
            branches,
            spare: BTreeMap::new(),
            unused_pools,
            duplicate_listeners,
            forgotten: BTreeSet::new(),
        }
    }
}

impl Observed {
    /// Something is under way: it takes no change.
    pub fn is_pending(&self) -> bool {
        self.balancer.as_ref().is_some_and(|it| it.it.provisioning_status.is_pending())
    }

    /// Nothing else of ours is there than the load balancer itself.
    pub fn is_alone(&self) -> bool {
        let besides = self.floating.is_some() || self.stray.is_some() || self.leftover.is_some();
        let has_no_group = self.their_groups.iter().all(Vec::is_empty);
        !besides && self.doubles.is_empty() && self.kept.is_empty() && has_no_group
    }

    /// What is left of it once its load balancer is gone: where it was, and what led there.
    #[must_use]
    pub fn gone(self) -> Observed {
        Observed {
            unit: self.unit,
            place: self.balancer.as_ref().map(|it| Place::of(&it.it)).or(self.place),
            stray: self.floating.or(self.stray),
            kept: self.kept,
            ..Observed::default()
        }
    }

    /// As a human reads it.
    pub fn state(&self) -> String {
        match &self.balancer {
            Some(it) => format!("the load balancer is {}", it.it.provisioning_status),
            None => "the load balancer does not exist".to_owned(),
        }
    }
}

/// One call. What is not there yet is named by the listener that it belongs to.
#[derive(Clone, Debug, PartialEq)]
pub enum Step {
    Create(Box<NewLoadBalancer>),
    Change(Box<LoadBalancerChange>),
    RemoveListener(ListenerId),
    RemovePool(ListenerId),
    AddListener(ListenerId, Box<NewListener>),
    ChangeListener(ListenerId, Box<ListenerChange>),
    AddPool(ListenerId, Box<NewPool>),
    /// Beside the one that serves.
    AddSpare(ListenerId, Box<NewPool>),
    /// To the spare pool.
    SwitchListenerPool(ListenerId),
    /// No listener leads to it.
    RemoveUnusedPool(Id<Pool>),
    /// Without a pool, at the port of another.
    RemoveDuplicateListener(Id<Listener>),
    ChangePool(ListenerId, Box<PoolChange>),
    SetMembers(ListenerId, Vec<NewMember>),
    AddMember(ListenerId, Box<NewMember>),
    ChangeMember(ListenerId, SocketAddr, Box<MemberChange>),
    RemoveMember(ListenerId, SocketAddr),
    AddMonitor(ListenerId, Box<NewHealthMonitor>),
    ChangeMonitor(ListenerId, Box<HealthMonitorChange>),
    RemoveMonitor(ListenerId),
    AddFloating(WantedFloating),
    /// One that is to lead there instead of another, and leads nowhere yet.
    Allocate(WantedFloating),
    /// From this one to the one that was allocated; with what is written on it, if it is to be deleted after that.
    Move(Id<FloatingIp>, Option<String>),
    /// One that is there already.
    AssociateFloating(Id<FloatingIp>),
    /// Says anew whose it is, and whether it stays.
    Describe(Id<FloatingIp>, String),
    /// The one that leads there by now, if it was made for this.
    TagFloating(Box<WantedFloating>),
    Detach(Id<FloatingIp>),
    RemoveFloating(Id<FloatingIp>),
    /// By these tags.
    Join(BTreeSet<String>),
    /// As whom, and whether as a guest.
    Leave(Box<Marks>, bool),
    Delete(Id<LoadBalancer>),
    RemoveDuplicateLoadBalancer(Id<LoadBalancer>),
    /// That another controller made for this Service alone.
    RemoveGroup(Id<SecurityGroup>),
    /// A certificate, under its name.
    Keep(String, Arc<Certificate>),
    /// Nobody shows it any more.
    Forget(String),
    /// It never was ready, and another is made beside it.
    Abandon(Id<LoadBalancer>),
    /// New machines below it; all else stays.
    Failover(Id<LoadBalancer>),
}

/// `ours`: whether a floating IP with such a description was made for this load balancer.
pub fn steps(wanted: Option<&Wanted>, observed: &Observed, ours: impl Fn(&str) -> bool) -> Vec<Step> {
    let doubles = observed.doubles.iter().cloned().map(Step::RemoveDuplicateLoadBalancer);
    let Some(wanted) = wanted else {
        let mut steps = floating(None, observed, &ours);
        let going = |it: &&ObservedLoadBalancer| it.it.provisioning_status != Provisioning::PendingDelete;
        steps.extend(observed.balancer.as_ref().filter(going).map(|it| Step::Delete(it.it.id.clone())));
        steps.extend(doubles);
        if observed.balancer.is_none() {
            steps.extend(observed.kept.keys().cloned().map(Step::Forget));
            steps.extend(observed.their_groups.iter().flatten().cloned().map(Step::RemoveGroup));
        }
        return steps;
    };
    let (mut steps, last) = keep(wanted, observed);
    let status = observed.balancer.as_ref().map(|it| &it.it.provisioning_status);
    if status == Some(&Provisioning::PendingDelete) {
        // Another comes after it.
        return Vec::new();
    }
    let wanted = &wanted.addressed(&observed.kept);
    let is_remade =
        status == Some(&Provisioning::Active) && matches!(observed.repair, Some(RepairAction::Remake { .. }));
    let is_lost = status == Some(&Provisioning::Error) || is_remade;
    if let (true, Some(balancer)) = (is_lost, &observed.balancer) {
        // It takes no change, or is not worth one.
        let id = balancer.it.id.clone();
        steps.extend(observed.repair.as_ref().and_then(|it| it.step(id)));
        return steps;
    }
    if observed.balancer.is_none() {
        let mut wanted = wanted.clone();
        observed.place.iter().for_each(|it| it.keep(&mut wanted.balancer));
        create(&wanted, &mut steps);
    }
    if let Some(balancer) = &observed.balancer {
        let before = steps.len();
        of_balancer(wanted, balancer, &mut steps);
        if observed.unasked && steps.len() == before {
            steps.extend(lost(wanted, balancer, &observed.added));
        }
    }
    // Last: whatever is wrong with it, members and ports follow.
    let is_reached_directly = observed.external == Some(None);
    steps.extend(floating(wanted.floating.as_ref().filter(|_| !is_reached_directly), observed, &ours));
    steps.extend(doubles);
    steps.extend(last);
    steps
}

/// In one call, unless the provider takes one object at a time.
fn create(wanted: &Wanted, steps: &mut Vec<Step>) {
    if !wanted.serial {
        steps.push(Step::Create(Box::new(wanted.whole())));
        affinity::say(wanted, steps);
        return;
    }
    steps.push(Step::Create(Box::new(wanted.balancer.clone())));
    steps.extend(wanted.metrics.iter().map(|(id, new)| Step::AddListener(*id, Box::new(new.clone()))));
    for (id, wish) in &wanted.listeners {
        new_branch(*id, wish, wish.number, steps);
    }
}

fn of_balancer(wanted: &Wanted, balancer: &ObservedLoadBalancer, steps: &mut Vec<Step>) {
    let mut change = LoadBalancerChange::between(&balancer.it, &wanted.balancer);
    // Names are given once, and what others have marked stays marked.
    (change.name, change.description) = (Edit::Leave, Edit::Leave);
    if let Edit::To(tags) = &wanted.balancer.tags {
        let mut both: BTreeSet<String> = balancer.it.tags.union(&tags::own(tags)).cloned().collect();
        adopted::mark(&mut both, tags, &balancer.it.tags);
        change.tags = Edit::To(tags::merged(&both, &wanted.balancer.tags)).unless_equal(&balancer.it.tags);
    }
    vip::keep(&mut change, &wanted.balancer, &balancer.it);
    if !change.is_empty() {
        steps.push(Step::Change(Box::new(change)));
    }
    of_children(wanted, balancer, steps);
}

pub(super) fn of_children(wanted: &Wanted, balancer: &ObservedLoadBalancer, steps: &mut Vec<Step>) {
    pool_replacement::clear(wanted, balancer, steps);
    // What goes makes room for what comes: two listeners of one port and transport are refused.
    for (id, branch) in &balancer.branches {
        let is_well = branch.listener.provisioning_status != Provisioning::Error;
        let stays =
            is_well && wanted.find_listener(id).is_some_and(|it| it.protocol == branch.listener.protocol);
        let is_followed = is_well && wanted.listeners.contains_key(id);
        if !stays && !is_followed {
            steps.extend(branch.pool.is_some().then_some(Step::RemovePool(*id)));
            steps.push(Step::RemoveListener(*id));
        }
    }
    let mut numbers = ListenerNumbers::of(balancer.branches.values().map(|it| &it.listener.name));
    if let Some((id, new)) = &wanted.metrics {
        match balancer.branches.get(id).filter(|it| it.listener.protocol == new.protocol) {
            Some(branch) => steps.extend(of_listener(*id, new, &branch.listener)),
            None => steps.push(Step::AddListener(*id, Box::new(new.clone()))),
        }
    }
    for (id, wish) in &wanted.listeners {
        match balancer.branches.get(id) {
            Some(branch) if is_same(wish, branch) => of_branch(*id, wish, balancer, branch, steps),
            there => {
                let now = there.filter(|it| pool_replacement::takes_its_place(wish, it));
                let own = now.and_then(|it| number_in(&it.listener.name, "listener"));
                let number = own.unwrap_or_else(|| numbers.free(wish.number));
                let name = |kind: &str| numbered(kind, number, after_number(text(&wish.listener.name)));
                match there.is_some() && now.is_none() {
                    true => new_branch(*id, wish, number, steps),
                    false => pool_replacement::replace(*id, wish, balancer, &name, steps),
                }
            }
        }
    }
    affinity::remind(wanted, balancer, steps);
}

/// What is in ERROR takes no change, and goes.
fn is_same(wish: &WantedListener, there: &Branch) -> bool {
    wish.listener.protocol == there.listener.protocol
        && there.listener.provisioning_status != Provisioning::Error
}

fn of_branch(
    id: ListenerId,
    wish: &WantedListener,
    balancer: &ObservedLoadBalancer,
    there: &Branch,
    steps: &mut Vec<Step>,
) {
    steps.extend(of_listener(id, &wish.listener, &there.listener));
    let name = |kind: &str| {
        let number = number_in(&there.listener.name, "listener").unwrap_or(wish.number);
        numbered(kind, number, after_number(&there.listener.name))
    };
    match &there.pool {
        Some(old) if pool_replacement::another_pool(wish, there, balancer) => {
            pool_replacement::turn(id, wish, balancer, old, &name, steps)
        }
        Some(branch)
            if branch.pool.protocol == wish.pool.protocol
                && branch.pool.provisioning_status != Provisioning::Error =>
        {
            of_pool(id, wish, branch, affinity::is_of_ovn(balancer), &name, steps);
        }
        other => {
            steps.extend(other.is_some().then_some(Step::RemovePool(id)));
            new_pool(id, wish, &name, steps);
        }
    }
}

fn of_listener(id: ListenerId, wish: &NewListener, there: &Listener) -> Option<Step> {
    let mut change = ListenerChange::between(there, wish);
    change.name = Edit::Leave;
    change.tags = Edit::Leave;
    timeouts::reset(&mut change, wish, there);
    by_default::reset(&mut change, wish, there);
    tags::keep(&mut change.tags, &wish.tags, &there.tags);
    clients::reset(&mut change, wish, there);
    terms::reset(&mut change, wish, there);
    if there.connection_limit.is_none() && wish.connection_limit == Edit::To(Some(-1)) {
        change.connection_limit = Edit::Leave;
    }
    if let Edit::To(cidrs) = &wish.allowed_cidrs
        && admitted(cidrs) == admitted(&there.allowed_cidrs)
    {
        change.allowed_cidrs = Edit::Leave;
    }
    let set = |refs: &[String]| refs.iter().cloned().collect::<BTreeSet<_>>();
    if let Edit::To(refs) = &wish.sni_container_refs
        && set(refs) == set(&there.sni_container_refs)
    {
        change.sni_container_refs = Edit::Leave;
    }
    (!change.is_empty()).then(|| Step::ChangeListener(id, Box::new(change)))
}

/// Who may come; everybody is said in two ways.
fn admitted(cidrs: &Option<Vec<String>>) -> BTreeSet<&str> {
    let all = || cidrs.iter().flatten().map(String::as_str);
    if all().any(|it| it.ends_with("/0")) { BTreeSet::new() } else { all().collect() }
}

fn of_pool(
    id: ListenerId,
    wish: &WantedListener,
    there: &PoolBranch,
    is_of_ovn: bool,
    name: &impl Fn(&str) -> String,
    steps: &mut Vec<Step>,
) {
    let mut change = PoolChange::between(&there.pool, &wish.pool);
    (change.name, change.tags) = (Edit::Leave, Edit::Leave);
    tags::keep(&mut change.tags, &wish.pool.tags, &there.pool.tags);
    member_tls::reset(&mut change, &wish.pool, &there.pool);
    if let (Edit::To(Some(wish)), Some(now)) =
        (&wish.pool.session_persistence, &there.pool.session_persistence)
        && affinity::is_as_wished(wish, now)
    {
        change.session_persistence = Edit::Leave;
    }
    if !change.is_empty() {
        // Not told so, `ovn` trips over a persistence, and its listeners stay PENDING_UPDATE over all else.
        change.admin_state_up = Edit::To(true);
        steps.push(Step::ChangePool(id, Box::new(change)));
    }
    // A monitor asks members where they say. What it says of them while they are changed takes them out: an old one goes
    // before that, a new one comes after it.
    let (old, new) = of_monitor(id, wish, there, name);
    let is_probed = there.monitor.is_some() && old.is_none() && is_of_ovn;
    let seats = if is_probed { probed_seats } else { seats };
    steps.extend(old);
    steps.extend(seats(id, wish, &there.members));
    steps.extend(new);
}

fn new_branch(id: ListenerId, wish: &WantedListener, number: usize, steps: &mut Vec<Step>) {
    let own = text(&wish.listener.name);
    let name = |kind: &str| numbered(kind, number, after_number(own));
    let listener = NewListener { name: name("listener").into(), ..wish.listener.clone() };
    steps.push(Step::AddListener(id, Box::new(listener)));
    new_pool(id, wish, &name, steps);
}

/// Octavia makes children with their parents only while it makes a whole load balancer.
pub(super) fn new_pool(
    id: ListenerId,
    wish: &WantedListener,
    name: &impl Fn(&str) -> String,
    steps: &mut Vec<Step>,
) {
    let pool = NewPool { name: name("pool").into(), ..wish.pool.clone() };
    steps.push(Step::AddPool(id, Box::new(pool)));
    steps.extend(seats(id, wish, &BTreeMap::new()));
    steps.extend(wish.monitor.as_ref().map(|it| Step::AddMonitor(id, Box::new(named(it, name)))));
}

pub(super) fn named(monitor: &NewHealthMonitor, name: &impl Fn(&str) -> String) -> NewHealthMonitor {
    NewHealthMonitor { name: name("monitor").into(), ..monitor.clone() }
}

pub(super) fn text(name: &Edit<String>) -> &str {
    match name {
        Edit::To(name) => name,
        Edit::Leave => "",
    }
}

/// Where a listener of Octavia listens.
pub fn listens(listener: &Listener) -> ListenerId {
    let l4 = match listener.protocol {
        Protocol::Udp => L4::Udp,
        Protocol::Sctp => L4::Sctp,
        _ => L4::Tcp,
    };
    ListenerId { l4, port: listener.protocol_port }
}
