//! Steps as programs read them: on which object, what is done, and which of its fields become what. Pure.

use std::{collections::BTreeSet, fmt::Display};

use seaway_drivers::octavia::{self, groups, steps::PoolBranch, wanted::spot};
use seaway_model::{Desired, ListenerId};
use seaway_openstack::{
    neutron::{Port, SecurityGroup},
    octavia::{NewHealthMonitor, NewListener, NewLoadBalancer, NewPool},
    resource::{Edit, Id},
};
use serde_json::{Value, json};

use super::members;
use crate::args::plan::Action::{self, Associate, Change, Create, Delete, Disassociate, Failover};

/// One step.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Diff {
    /// As the driver itself says it.
    pub(super) text: String,
    pub(super) kind: &'static str,
    pub(super) object: String,
    pub(super) action: Action,
    pub(super) changes: Vec<FieldChange>,
}

/// Null is what is not there.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct FieldChange {
    pub(super) field: String,
    pub(super) from: Value,
    pub(super) to: Value,
}

impl FieldChange {
    pub(super) fn new(field: impl Into<String>, from: Value, to: Value) -> FieldChange {
        FieldChange { field: field.into(), from, to }
    }
}

/// A step that tells what it changes of what was observed.
pub(super) trait Describe<Observed>: Display + Sized {
    /// `before`: the steps that come before it.
    fn describe(&self, there: &Observed, before: &[Self]) -> Diff;

    /// What is deleted after these steps, and after those of others, a line each.
    fn later(_desired: &Desired, _there: &Observed, _now: &[Self]) -> Vec<String> {
        Vec::new()
    }
}

const BALANCER: &str = "load-balancer";
const LISTENER: &str = "listener";
const POOL: &str = "pool";
const MEMBER: &str = "member";
const MONITOR: &str = "health-monitor";
const FLOATING: &str = "floating-ip";
const CERTIFICATE: &str = "certificate";
const GROUP: &str = "security-group";
const RULE: &str = "security-group-rule";
const PORT: &str = "port";

impl Describe<octavia::Observed> for octavia::Step {
    fn describe(&self, there: &octavia::Observed, before: &[Self]) -> Diff {
        use octavia::Step;
        let (kind, object, action) = what(self, there);
        let balancer = there.balancer.as_ref();
        let branch = |id: &ListenerId| balancer?.branches.get(id);
        let pool = |id: &ListenerId| -> Option<&PoolBranch> {
            let is_new = |it: &Step| matches!(it, Step::AddPool(of, _) | Step::AddSpare(of, _) if of == id);
            if before.iter().any(is_new) {
                return None;
            }
            // What is made beside a pool that serves is changed first.
            balancer?.spare.get(id).or_else(|| branch(id)?.pool.as_ref())
        };
        let changes = match self {
            Step::Create(new) => made(json!(new)),
            Step::Change(change) => {
                let before = balancer.map(|it| json!(NewLoadBalancer::like(&it.it)));
                changed(before, json!(change))
            }
            Step::AddListener(_, new) => made(json!(new)),
            Step::ChangeListener(id, change) => {
                changed(branch(id).map(|it| json!(NewListener::like(&it.listener))), json!(change))
            }
            Step::AddPool(_, new) | Step::AddSpare(_, new) => made(json!(new)),
            Step::ChangePool(id, change) => {
                let before = branch(id).and_then(|it| it.pool.as_ref());
                changed(before.map(|it| json!(NewPool::like(&it.pool))), json!(change))
            }
            Step::SwitchListenerPool(id) => {
                let from = branch(id).map(|it| json!(it.listener.default_pool_id)).unwrap_or_default();
                let spare = balancer.and_then(|it| it.spare.get(id));
                let to = spare.map_or(json!("the new pool"), |it| json!(it.pool.id));
                vec![FieldChange::new("default_pool_id", from, to)]
            }
            Step::SetMembers(id, wanted) => members::all(wanted, pool(id).map(|it| &it.members)),
            Step::AddMember(_, new) => made(json!(new)),
            Step::ChangeMember(id, at, change) => {
                let seat = pool(id).and_then(|it| it.members.get(at));
                changed(seat.map(members::terms), json!(change))
            }
            Step::AddMonitor(_, new) => made(json!(new)),
            Step::ChangeMonitor(id, change) => {
                let before = pool(id).and_then(|it| it.monitor.as_ref());
                changed(before.map(|it| json!(NewHealthMonitor::like(it))), json!(change))
            }
            Step::AddFloating(wanted) | Step::Allocate(wanted) => made(json!({
                "floating_network_id": wanted.network,
                "subnet": wanted.subnet.as_ref().map(ToString::to_string),
                "floating_ip_address": wanted.requested,
                "description": wanted.description,
            })),
            Step::Move(..) | Step::AssociateFloating(_) => {
                let to = balancer.map_or(Value::Null, |it| json!(it.it.vip_port_id));
                vec![FieldChange::new("port_id", Value::Null, to)]
            }
            Step::Describe(id, text) => {
                let floating = there.floating.iter().chain(&there.stray).find(|it| it.id == *id);
                let from = floating.map_or(Value::Null, |it| json!(it.description));
                vec![FieldChange::new("description", from, json!(text))]
            }
            Step::TagFloating(wish) => {
                let from = there.floating.as_ref().map(|it| it.tags.clone()).unwrap_or_default();
                vec![FieldChange::new("tags", json!(from), json!(wish.tags))]
            }
            Step::Detach(id) => {
                let floating = there.floating.as_ref().filter(|it| it.id == *id);
                let from = floating.map_or(Value::Null, |it| json!(it.port_id));
                vec![FieldChange::new("port_id", from, Value::Null)]
            }
            Step::Join(tags) => {
                let from = balancer.map(|it| it.it.tags.clone()).unwrap_or_default();
                let to: BTreeSet<_> = from.union(tags).cloned().collect();
                vec![FieldChange::new("tags", json!(from), json!(to))]
            }
            Step::RemoveListener(_)
            | Step::RemovePool(_)
            | Step::RemoveUnusedPool(_)
            | Step::RemoveDuplicateListener(_)
            | Step::RemoveMember(..)
            | Step::RemoveMonitor(_)
            | Step::RemoveFloating(_)
            | Step::RemoveDuplicateLoadBalancer(_)
            | Step::RemoveGroup(_)
            | Step::Leave(..)
            | Step::Delete(_)
            | Step::Keep(..)
            | Step::Forget(_)
            | Step::Abandon(_)
            | Step::Failover(_) => Vec::new(),
        };
        Diff { text: self.to_string(), kind, object, action, changes }
    }
}

fn what(step: &octavia::Step, there: &octavia::Observed) -> (&'static str, String, Action) {
    use octavia::Step;
    let own = || there.balancer.as_ref().map(|it| it.it.id.to_string()).unwrap_or_default();
    match step {
        Step::Create(new) => (BALANCER, name(&new.name), Create),
        Step::Change(_) | Step::Join(_) | Step::Leave(..) => (BALANCER, own(), Change),
        Step::Delete(id) | Step::RemoveDuplicateLoadBalancer(id) => (BALANCER, id.to_string(), Delete),
        Step::Failover(id) => (BALANCER, id.to_string(), Failover),
        Step::Abandon(id) => (BALANCER, id.to_string(), Change),
        Step::AddListener(id, _) => (LISTENER, id.to_string(), Create),
        Step::ChangeListener(id, _) | Step::SwitchListenerPool(id) => (LISTENER, id.to_string(), Change),
        Step::RemoveListener(id) => (LISTENER, id.to_string(), Delete),
        Step::AddPool(id, _) | Step::AddSpare(id, _) => (POOL, id.to_string(), Create),
        Step::ChangePool(id, _) => (POOL, id.to_string(), Change),
        Step::RemovePool(id) => (POOL, id.to_string(), Delete),
        Step::RemoveUnusedPool(id) => (POOL, id.to_string(), Delete),
        Step::RemoveDuplicateListener(id) => (LISTENER, id.to_string(), Delete),
        Step::SetMembers(id, _) => (MEMBER, id.to_string(), Change),
        Step::AddMember(id, new) => (MEMBER, format!("{} of {id}", spot(new)), Create),
        Step::ChangeMember(id, at, _) => (MEMBER, format!("{at} of {id}"), Change),
        Step::RemoveMember(id, at) => (MEMBER, format!("{at} of {id}"), Delete),
        Step::AddMonitor(id, _) => (MONITOR, id.to_string(), Create),
        Step::ChangeMonitor(id, _) => (MONITOR, id.to_string(), Change),
        Step::RemoveMonitor(id) => (MONITOR, id.to_string(), Delete),
        Step::AddFloating(it) => (FLOATING, asked(it.requested), Associate),
        Step::Allocate(it) => (FLOATING, asked(it.requested), Create),
        Step::Move(id, _) => (FLOATING, format!("the new one, instead of {id}"), Associate),
        Step::AssociateFloating(id) => (FLOATING, id.to_string(), Associate),
        Step::Describe(id, _) => (FLOATING, id.to_string(), Change),
        Step::TagFloating(_) => {
            let id = there.floating.as_ref().map(|it| it.id.to_string());
            (FLOATING, id.unwrap_or_default(), Change)
        }
        Step::Detach(id) => (FLOATING, id.to_string(), Disassociate),
        Step::RemoveFloating(id) => (FLOATING, id.to_string(), Delete),
        Step::RemoveGroup(id) => (GROUP, id.to_string(), Delete),
        Step::Keep(name, _) => (CERTIFICATE, name.clone(), Create),
        Step::Forget(name) => (CERTIFICATE, name.clone(), Delete),
    }
}

impl Describe<groups::Observed> for groups::Step {
    fn later(desired: &Desired, there: &groups::Observed, now: &[Self]) -> Vec<String> {
        let line = |(id, owner): (&Id<SecurityGroup>, &seaway_model::Owner)| {
            format!(
                "later: delete security group {id}, which the other controller made for {owner}, once the \
                 load balancer of {owner} is adopted and Seaway's group is at all Nodes"
            )
        };
        groups::later(desired, there, now).into_iter().map(line).collect()
    }

    fn describe(&self, there: &groups::Observed, _: &[Self]) -> Diff {
        use groups::Step;
        let group = there.group.as_ref().map(|it| &it.id);
        let of_port = |port: &Id<Port>, to: &dyn Fn(&[Id<SecurityGroup>]) -> Vec<Value>| {
            let from = there.ports.get(port).map(|it| it.security_groups.clone()).unwrap_or_default();
            vec![FieldChange::new("security_groups", json!(from), Value::from(to(&from)))]
        };
        let without = |gone: &[Id<SecurityGroup>], from: &[Id<SecurityGroup>]| -> Vec<Value> {
            from.iter().filter(|it| !gone.contains(it)).map(|it| json!(it)).collect()
        };
        let (kind, object, action, changes) = match self {
            Step::Create(new) => (GROUP, name(&new.name), Create, made(json!(new))),
            Step::Open(rule, _) => {
                let change = FieldChange::new("rule", Value::Null, json!(rule.to_string()));
                (RULE, rule.to_string(), Create, vec![change])
            }
            Step::Close(id, rule) => {
                let change = FieldChange::new("rule", json!(rule.to_string()), Value::Null);
                (RULE, id.to_string(), Delete, vec![change])
            }
            Step::Attach(port, _) => {
                let new = group.map_or(json!("the new group"), |it| json!(it));
                let with = |from: &[Id<SecurityGroup>]| {
                    from.iter().map(|it| json!(it)).chain([new.clone()]).collect::<Vec<_>>()
                };
                (PORT, port.to_string(), Change, of_port(port, &with))
            }
            Step::Detach(port) => {
                let gone: Vec<_> = group.into_iter().chain(&there.doubles).cloned().collect();
                (PORT, port.to_string(), Change, of_port(port, &|from| without(&gone, from)))
            }
            Step::Release(port, gone) => {
                (PORT, port.to_string(), Change, of_port(port, &|from| without(gone, from)))
            }
            Step::Remove(id) | Step::RemoveTheirs(id) => (GROUP, id.to_string(), Delete, Vec::new()),
        };
        Diff { text: self.to_string(), kind, object, action, changes }
    }
}

fn name(name: &Edit<String>) -> String {
    match name {
        Edit::To(name) => name.clone(),
        Edit::Leave => String::new(),
    }
}

fn asked(requested: Option<std::net::IpAddr>) -> String {
    requested.map_or("any".to_owned(), |it| it.to_string())
}

/// All that is said of something new.
fn made(new: Value) -> Vec<FieldChange> {
    let mut all = Vec::new();
    flatten(String::new(), new, &mut all);
    all
}

/// `listeners[0].default_pool.protocol`
fn flatten(field: String, to: Value, all: &mut Vec<FieldChange>) {
    match to {
        Value::Null => {}
        Value::Object(fields) => {
            for (name, value) in fields {
                let name = if field.is_empty() { name } else { format!("{field}.{name}") };
                flatten(name, value, all);
            }
        }
        Value::Array(items) if items.iter().any(Value::is_object) => {
            for (at, value) in items.into_iter().enumerate() {
                flatten(format!("{field}[{at}]"), value, all);
            }
        }
        to => all.push(FieldChange::new(field, Value::Null, to)),
    }
}

/// The fields that a change says, as they were before it.
fn changed(before: Option<Value>, change: Value) -> Vec<FieldChange> {
    let Value::Object(change) = change else { return Vec::new() };
    let was = |field: &str| before.as_ref().and_then(|it| it.get(field)).cloned().unwrap_or_default();
    change.into_iter().map(|(field, to)| FieldChange::new(field.as_str(), was(&field), to)).collect()
}

#[cfg(test)]
mod tests;
