//! What the changes of a Service asked to be deleted, of what a cloud has for it. All else that steps delete is counted by the
//! deletion limit.
//!
//! ```text
//!     a port is taken out of a Service     ─► its listener, with the pool: recorded as deletions are (24 hours, in storage too)
//!     a Node goes, or changes              ─► its members: for an hour, in this process
//!     any other change of what it asks for ─► a floating IP, a rebuild: for an hour, in this process
//!     the deletion of a Service            ─► the security group that only it used
//!     that, or any change of a Service     ─► rules of the group for its node ports: for an hour, in this process
//! ```

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    net::IpAddr,
    sync::Arc,
};

use seaway_model::{
    L4, ListenerId, Name, Time, Unit,
    fact::{FinalizerOwner, Meta, Node, Service, ServiceKind},
    unit::Place,
};

use super::{
    World,
    orphans::{identity, uid},
};
use crate::index::ServiceKey;

/// So long after a change of a Service what follows from it may be deleted.
const HOUR: u64 = 3_600 * 1_000;

/// What of a Unit its Service's changes asked to be deleted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AskedFor {
    uid: Name,
    /// As they are recorded.
    listeners: BTreeSet<Name>,
    nodes: Arc<BTreeMap<IpAddr, Time>>,
    node_ports: Arc<NodePorts>,
    others: bool,
}

type NodePorts = BTreeMap<(L4, u16), Time>;

impl AskedFor {
    /// A port that the Service does not have any more.
    pub fn listener(&self, id: ListenerId) -> bool {
        self.listeners.contains(&of_port(&self.uid, id))
    }

    /// What is of a Node that was seen to go, or to change.
    pub fn node(&self, ip: IpAddr) -> bool {
        self.nodes.contains_key(&ip)
    }

    /// What is open for a Service that was seen to go, or to change.
    pub fn node_port(&self, l4: L4, port: u16) -> bool {
        self.node_ports.contains_key(&(l4, port))
    }

    /// Anything else.
    pub fn others(&self) -> bool {
        self.others
    }
}

#[derive(Default)]
pub(super) struct Changes {
    /// When each changed otherwise than in its ports, by its uid.
    changed: HashMap<Name, Time>,
    /// When Nodes of these addresses changed.
    nodes: Arc<BTreeMap<IpAddr, Time>>,
    /// When Services changed, or went, that had these node ports.
    node_ports: Arc<NodePorts>,
    /// Groups that the deletion or the change of a Service left without any.
    groups: BTreeSet<Name>,
}

/// As the deletion of a listener is recorded.
fn of_port(uid: &Name, id: ListenerId) -> Name {
    format!("{uid}/listener/{id}").into()
}

/// As deletions of listeners would be recorded that this Service uses.
pub(super) fn used_ports(service: &Service) -> impl Iterator<Item = Name> + '_ {
    ports(service).into_iter().map(|it| of_port(&service.meta.uid, it))
}

fn ports(service: &Service) -> BTreeSet<ListenerId> {
    service.ports.iter().map(|it| ListenerId { l4: it.protocol, port: it.port }).collect()
}

/// Where Nodes are reached for it.
pub(super) fn node_ports(service: &Service) -> impl Iterator<Item = (L4, u16)> + '_ {
    let ports = service.ports.iter().filter_map(|it| Some((it.protocol, it.node_port?)));
    ports.chain(service.health_check_node_port.map(|it| (L4::Tcp, it)))
}

/// What it asks for beside its ports; not what controllers write.
fn wish(service: &Service) -> Service {
    let annotations = service.meta.annotations.iter().filter(|(key, _)| !is_written_by_us(key));
    let annotations = annotations.map(|(key, value)| (key.clone(), value.clone())).collect();
    Service {
        meta: Meta { annotations, ..service.meta.clone() },
        ports: Vec::new(),
        leaving: false,
        held: FinalizerOwner::No,
        published: Vec::new(),
        published_by_us: false,
        published_ports: Vec::new(),
        other_write: None,
        ..service.clone()
    }
}

fn is_written_by_us(annotation: &str) -> bool {
    matches!(
        annotation,
        "loadbalancer.openstack.org/load-balancer-address" | "loadbalancer.openstack.org/load-balancer-id"
    )
}

impl World {
    /// What of this Unit the changes of its Service asked to be deleted.
    pub fn asked_for(&self, unit: &Unit) -> AskedFor {
        match unit {
            Unit::LoadBalancer(Place::Cloud { .. }, key) => {
                let Some(uid) = key.owner().and_then(uid) else { return AskedFor::default() };
                let all = self.recorded_of(uid);
                let others = self.changes.changed.contains_key(uid);
                let (uid, nodes) = (uid.clone(), self.changes.nodes.clone());
                AskedFor { uid, listeners: all, nodes, others, ..AskedFor::default() }
            }
            Unit::SecurityGroup { .. } => {
                let is_noted = identity(unit).is_some_and(|it| self.changes.groups.contains(&it));
                // Of one that is wanted, another Service's end asks for nothing but what was its own.
                let others = !self.unit_owners.contains_key(unit) && (is_noted || self.holds.awaits(unit));
                let Changes { nodes, node_ports, .. } = &self.changes;
                let (nodes, node_ports) = (nodes.clone(), node_ports.clone());
                AskedFor { nodes, node_ports, others, ..AskedFor::default() }
            }
            _ => AskedFor::default(),
        }
    }

    /// What a Service says, before it is kept.
    pub(super) fn note_change(&mut self, service: &Service) {
        if self.config.clouds.is_empty() {
            return;
        }
        let key = ServiceKey::new(service.meta.namespace.clone(), service.meta.name.clone());
        let now = ports(service);
        let its = &service.meta.uid;
        for id in &now {
            self.forget_deletion(&of_port(its, *id));
        }
        let known = self.index.service(&key).cloned();
        // Its end was seen, by its deletion or by whoever held it for a load balancer.
        let is_over = service.kind != ServiceKind::LoadBalancer && service.held != FinalizerOwner::No;
        if service.leaving || is_over {
            self.note_node_ports(service);
        }
        if let Some(before) = known.as_ref().filter(|it| it.meta.uid != *its) {
            self.note_node_ports(before);
        }
        let Some(before) = known.filter(|it| it.meta.uid == *its) else { return };
        let is_same_wish = wish(&before) == wish(service);
        if !is_same_wish || before.ports != service.ports {
            self.note_node_ports(&before);
        }
        for id in ports(&before).difference(&now) {
            self.see_deletion(of_port(its, *id));
        }
        if !is_same_wish {
            self.changes.changed.insert(its.clone(), self.now());
        }
    }

    /// Those of a Service that goes, or changes.
    pub(super) fn note_node_ports(&mut self, service: &Service) {
        if self.config.clouds.is_empty() {
            return;
        }
        let at = self.now();
        Arc::make_mut(&mut self.changes.node_ports).extend(node_ports(service).map(|it| (it, at)));
    }

    /// What becomes of a Node, before that is kept. `None`: it is gone.
    pub(super) fn note_node(&mut self, name: &str, now: Option<&Node>) {
        let Some(before) = self.index.node(name).filter(|_| !self.config.clouds.is_empty()) else { return };
        let terms = |it: &Node| (it.addresses.clone(), it.meta.labels.clone(), it.leaving);
        if now.is_some_and(|now| terms(now) == terms(before)) {
            return;
        }
        let (its, at) = (before.addresses.clone(), self.now());
        Arc::make_mut(&mut self.changes.nodes).extend(its.into_iter().map(|ip| (ip, at)));
    }

    /// The last Service that used this group gave it up: because it was deleted, or changed.
    pub(super) fn note_group_given_up(&mut self, group: &Unit, by: Option<&Name>) {
        let is_asked = by.is_some_and(|it| self.is_recorded(it) || self.changes.changed.contains_key(it));
        let is_last = !self.unit_owners.contains_key(group);
        if let Some(identity) = identity(group).filter(|_| is_asked && is_last) {
            self.changes.groups.insert(identity);
        }
    }

    pub(super) fn note_group_wanted(&mut self, identity: &Name) {
        self.changes.groups.remove(identity);
    }

    pub(super) fn age_changes(&mut self, now: Time) {
        let is_recent = |at: &Time| at.0.saturating_add(HOUR) > now.0;
        self.changes.changed.retain(|_, at| is_recent(at));
        if !self.changes.nodes.values().all(is_recent) {
            Arc::make_mut(&mut self.changes.nodes).retain(|_, at| is_recent(at));
        }
        if !self.changes.node_ports.values().all(is_recent) {
            Arc::make_mut(&mut self.changes.node_ports).retain(|_, at| is_recent(at));
        }
    }
}
