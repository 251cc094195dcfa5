//! From what is there to what should be there. Pure.
//!
//! A listener is the same as long as its port and transport are; its name and number do not matter, so that nothing is
//! renamed when a port is put before the others, and trees that another controller made stay as they are.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    net::SocketAddr,
};

use seaway_model::{L4, ListenerId, Unit};
use seaway_openstack::{
    neutron::{FloatingIp, FloatingIpChange},
    octavia::{
        HealthMonitor, HealthMonitorChange, Listener, ListenerChange, LoadBalancer, LoadBalancerChange,
        NewHealthMonitor, NewListener, NewLoadBalancer, NewMember, NewPool, Operating, Pool, PoolChange,
        Protocol, Provisioning,
    },
    resource::{Edit, Id},
};

use super::{
    names::{number_in, numbered},
    wanted::{Wanted, WantedFloating, WantedListener, spot},
};

/// What is there of one load balancer.
#[derive(Clone, Debug, Default)]
pub struct Observed {
    /// What it is of; nothing where nobody has looked.
    pub unit: Option<Unit>,
    pub balancer: Option<Balancer>,
    /// What leads to its VIP, whoever made it.
    pub floating: Option<FloatingIp>,
}

#[derive(Clone, Debug)]
pub struct Balancer {
    pub it: LoadBalancer,
    pub branches: BTreeMap<ListenerId, Branch>,
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
    pub members: BTreeMap<SocketAddr, Seat>,
}

/// A member, as far as it is known: a status tree tells where it is and no more.
#[derive(Clone, Debug, PartialEq)]
pub struct Seat {
    pub operating: Operating,
    /// Its weight and the port that is probed, if they are known.
    pub terms: Option<(u16, Option<u16>)>,
}

impl Observed {
    /// Something is under way: it takes no change.
    pub fn is_pending(&self) -> bool {
        let status = self.balancer.as_ref().map(|it| &it.it.provisioning_status);
        matches!(
            status,
            Some(Provisioning::PendingCreate | Provisioning::PendingUpdate | Provisioning::PendingDelete)
        )
    }

    /// As a human reads it.
    pub fn state(&self) -> String {
        match &self.balancer {
            Some(it) => format!("the load balancer is {}", it.it.provisioning_status),
            None => "there is no load balancer".to_owned(),
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
    ChangePool(ListenerId, Box<PoolChange>),
    SetMembers(ListenerId, Vec<NewMember>),
    AddMonitor(ListenerId, Box<NewHealthMonitor>),
    ChangeMonitor(ListenerId, Box<HealthMonitorChange>),
    RemoveMonitor(ListenerId),
    AddFloating(WantedFloating),
    Detach(Id<FloatingIp>),
    RemoveFloating(Id<FloatingIp>),
    Delete(Id<LoadBalancer>),
}

impl Step {
    /// While a load balancer is changed, it takes no second change.
    pub fn locks(&self) -> bool {
        !matches!(self, Step::AddFloating(_) | Step::Detach(_) | Step::RemoveFloating(_))
    }
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Step::Create(new) => write!(f, "create load balancer {}", text(&new.name)),
            Step::Change(_) => f.write_str("change the load balancer"),
            Step::RemoveListener(id) => write!(f, "delete the listener of {id}"),
            Step::RemovePool(id) => write!(f, "delete the pool of {id}"),
            Step::AddListener(id, new) => write!(f, "create listener {} for {id}", text(&new.name)),
            Step::ChangeListener(id, _) => write!(f, "change the listener of {id}"),
            Step::AddPool(id, new) => write!(f, "create pool {} for {id}", text(&new.name)),
            Step::ChangePool(id, _) => write!(f, "change the pool of {id}"),
            Step::SetMembers(id, members) => write!(f, "give the pool of {id} its {} members", members.len()),
            Step::AddMonitor(id, _) => write!(f, "create the health monitor of {id}"),
            Step::ChangeMonitor(id, _) => write!(f, "change the health monitor of {id}"),
            Step::RemoveMonitor(id) => write!(f, "delete the health monitor of {id}"),
            Step::AddFloating(_) => f.write_str("lead a floating IP to the VIP"),
            Step::Detach(id) => write!(f, "detach floating IP {id}"),
            Step::RemoveFloating(id) => write!(f, "delete floating IP {id}"),
            Step::Delete(id) => write!(f, "delete load balancer {id} and all below it"),
        }
    }
}

/// `ours`: whether a floating IP with such a description was made for this load balancer.
pub fn steps(wanted: Option<&Wanted>, observed: &Observed, ours: impl Fn(&str) -> bool) -> Vec<Step> {
    let mut steps = Vec::new();
    let Some(wanted) = wanted else {
        steps.extend(observed.floating.as_ref().map(|it| let_go(it, false, &ours)));
        let going = |it: &&Balancer| it.it.provisioning_status != Provisioning::PendingDelete;
        steps.extend(observed.balancer.as_ref().filter(going).map(|it| Step::Delete(it.it.id.clone())));
        return steps;
    };
    let Some(balancer) = &observed.balancer else {
        steps.push(Step::Create(Box::new(wanted.whole())));
        steps.extend(wanted.floating.clone().map(Step::AddFloating));
        return steps;
    };
    match (&wanted.floating, &observed.floating) {
        (Some(wish), None) => steps.push(Step::AddFloating(wish.clone())),
        (None, Some(there)) => steps.push(let_go(there, false, &ours)),
        (Some(wish), Some(there)) if !suits(wish, there) => {
            steps.push(let_go(there, wish.keep, &ours));
            steps.push(Step::AddFloating(wish.clone()));
        }
        _ => {}
    }
    let mut change = LoadBalancerChange::between(&balancer.it, &wanted.balancer);
    // Names are given once, and what others have marked stays marked.
    (change.name, change.description) = (Edit::Leave, Edit::Leave);
    if let Edit::To(tags) = &wanted.balancer.tags {
        let both: BTreeSet<String> = balancer.it.tags.union(tags).cloned().collect();
        change.tags = Edit::To(both).against(&balancer.it.tags);
    }
    if !change.is_empty() {
        steps.push(Step::Change(Box::new(change)));
    }
    // What goes makes room for what comes: two listeners of one port and transport are refused.
    for (id, branch) in &balancer.branches {
        let stays =
            wanted.listeners.get(id).is_some_and(|it| it.listener.protocol == branch.listener.protocol);
        if !stays {
            steps.extend(branch.pool.is_some().then_some(Step::RemovePool(*id)));
            steps.push(Step::RemoveListener(*id));
        }
    }
    let mut numbers = Numbers::of(balancer);
    for (id, wish) in &wanted.listeners {
        let there = balancer.branches.get(id);
        match there.filter(|it| it.listener.protocol == wish.listener.protocol) {
            Some(branch) => of_branch(*id, wish, branch, &mut steps),
            None => new_branch(*id, wish, numbers.free(wish.number), &mut steps),
        }
    }
    steps
}

fn of_branch(id: ListenerId, wish: &WantedListener, there: &Branch, steps: &mut Vec<Step>) {
    let mut change = ListenerChange::between(&there.listener, &wish.listener);
    change.name = Edit::Leave;
    change.tags = Edit::Leave;
    if there.listener.connection_limit.is_none() && wish.listener.connection_limit == Edit::To(Some(-1)) {
        change.connection_limit = Edit::Leave;
    }
    if let (Edit::To(cidrs), now) = (&wish.listener.allowed_cidrs, &there.listener.allowed_cidrs) {
        let set = |it: &Option<Vec<String>>| it.iter().flatten().cloned().collect::<BTreeSet<_>>();
        if set(cidrs) == set(now) {
            change.allowed_cidrs = Edit::Leave;
        }
    }
    if !change.is_empty() {
        steps.push(Step::ChangeListener(id, Box::new(change)));
    }
    let name = |kind: &str| {
        let number = number_in(&there.listener.name, "listener").unwrap_or(wish.number);
        numbered(kind, number, after_number(&there.listener.name))
    };
    match &there.pool {
        Some(branch) if branch.pool.protocol == wish.pool.protocol => of_pool(id, wish, branch, &name, steps),
        other => {
            steps.extend(other.is_some().then_some(Step::RemovePool(id)));
            new_pool(id, wish, &name, steps);
        }
    }
}

fn of_pool(
    id: ListenerId,
    wish: &WantedListener,
    there: &PoolBranch,
    name: &impl Fn(&str) -> String,
    steps: &mut Vec<Step>,
) {
    let mut change = PoolChange::between(&there.pool, &wish.pool);
    change.name = Edit::Leave;
    if let (Edit::To(Some(wish)), Some(now)) =
        (&wish.pool.session_persistence, &there.pool.session_persistence)
        && wish.kind == now.kind
    {
        change.session_persistence = Edit::Leave;
    }
    if !change.is_empty() {
        steps.push(Step::ChangePool(id, Box::new(change)));
    }
    if !is_seated(&wish.members, &there.members) {
        steps.push(Step::SetMembers(id, wish.members.clone()));
    }
    match (&wish.monitor, &there.monitor) {
        (None, None) => {}
        (None, Some(_)) => steps.push(Step::RemoveMonitor(id)),
        (Some(new), None) => steps.push(Step::AddMonitor(id, Box::new(named(new, name)))),
        (Some(new), Some(now)) if new.r#type != now.r#type => {
            steps.push(Step::RemoveMonitor(id));
            steps.push(Step::AddMonitor(id, Box::new(named(new, name))));
        }
        (Some(new), Some(now)) => {
            let mut change = HealthMonitorChange::between(now, new);
            change.name = Edit::Leave;
            if !change.is_empty() {
                steps.push(Step::ChangeMonitor(id, Box::new(change)));
            }
        }
    }
}

fn new_branch(id: ListenerId, wish: &WantedListener, number: usize, steps: &mut Vec<Step>) {
    let own = text(&wish.listener.name);
    let name = |kind: &str| numbered(kind, number, after_number(own));
    let listener = NewListener { name: name("listener").into(), ..wish.listener.clone() };
    steps.push(Step::AddListener(id, Box::new(listener)));
    new_pool(id, wish, &name, steps);
}

/// Octavia makes children with their parents only while it makes a whole load balancer.
fn new_pool(id: ListenerId, wish: &WantedListener, name: &impl Fn(&str) -> String, steps: &mut Vec<Step>) {
    let pool = NewPool { name: name("pool").into(), ..wish.pool.clone() };
    steps.push(Step::AddPool(id, Box::new(pool)));
    if !wish.members.is_empty() {
        steps.push(Step::SetMembers(id, wish.members.clone()));
    }
    steps.extend(wish.monitor.as_ref().map(|it| Step::AddMonitor(id, Box::new(named(it, name)))));
}

fn named(monitor: &NewHealthMonitor, name: &impl Fn(&str) -> String) -> NewHealthMonitor {
    NewHealthMonitor { name: name("monitor").into(), ..monitor.clone() }
}

/// What is not known of a member counts as right: writing all members again would take each of them out for a moment.
fn is_seated(wish: &[NewMember], there: &BTreeMap<SocketAddr, Seat>) -> bool {
    wish.len() == there.len()
        && wish.iter().all(|it| {
            there.get(&spot(it)).is_some_and(|seat| seat.terms.is_none_or(|terms| terms == terms_of(it)))
        })
}

/// A member's weight, and the port that is probed if that is another.
pub fn terms_of(member: &NewMember) -> (u16, Option<u16>) {
    let weight = match member.weight {
        Edit::To(Some(weight)) => weight,
        _ => 1,
    };
    let port = match member.monitor_port {
        Edit::To(port) => port,
        Edit::Leave => None,
    };
    (weight, port)
}

fn suits(wish: &WantedFloating, there: &FloatingIp) -> bool {
    let address = wish.requested.is_none_or(|it| there.floating_ip_address == Some(it));
    address && wish.network.as_ref().is_none_or(|it| *it == there.floating_network_id)
}

/// What somebody else made, or wants to keep, is there for another use.
fn let_go(there: &FloatingIp, keep: bool, ours: &impl Fn(&str) -> bool) -> Step {
    match !keep && ours(&there.description) {
        true => Step::RemoveFloating(there.id.clone()),
        false => Step::Detach(there.id.clone()),
    }
}

/// A floating IP leads nowhere after this.
pub fn detached() -> FloatingIpChange {
    FloatingIpChange { port_id: Edit::To(None), ..FloatingIpChange::default() }
}

/// Numbers that no listener has.
struct Numbers(BTreeSet<usize>);

impl Numbers {
    fn of(balancer: &Balancer) -> Numbers {
        let numbers = balancer.branches.values().filter_map(|it| number_in(&it.listener.name, "listener"));
        Numbers(numbers.collect())
    }

    fn free(&mut self, wish: usize) -> usize {
        let free =
            if self.0.contains(&wish) { (0..).find(|it| !self.0.contains(it)).unwrap_or(wish) } else { wish };
        self.0.insert(free);
        free
    }
}

/// `kube_service_…` of `listener_0_kube_service_…`.
fn after_number(name: &str) -> &str {
    name.splitn(3, '_').nth(2).unwrap_or(name)
}

fn text(name: &Edit<String>) -> &str {
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
