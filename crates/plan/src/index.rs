//! The facts, trimmed and joined: who is asked by which key, without scanning.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    sync::Arc,
};

use seaway_model::{
    Config, Fact, MemberWeights, Name,
    config::FrontDoor,
    fact::{Endpoints, FactRef, HostReport, HttpRoute, Labels, Namespace, Node, ResolvedName, Service},
    name::{Kind, ObjectRef},
};

use crate::{
    certificates::Certificates,
    front_door,
    guarded::{self, GuardIndex, HostPlaceIndex, HostPlaces},
    own_listeners::{OwnListeners, PoolOwner},
    tenant_shares::TenantShares,
};

/// A Service's namespace and name.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ServiceKey {
    pub namespace: Name,
    pub name: Name,
}

impl ServiceKey {
    pub fn new(namespace: impl Into<Name>, name: impl Into<Name>) -> ServiceKey {
        ServiceKey { namespace: namespace.into(), name: name.into() }
    }

    /// Kubernetes' own, which leads to its API server.
    pub(crate) fn is_api_server(&self) -> bool {
        (&*self.namespace, &*self.name) == ("default", "kubernetes")
    }

    pub fn object(&self) -> ObjectRef {
        ObjectRef::new(Kind::Service, self.namespace.clone(), self.name.clone())
    }
}

/// Whose input a fact changed.
#[derive(Debug, PartialEq, Eq)]
pub enum ChangeScope {
    Nothing,
    Service(ServiceKey),
    Namespace(Name),
    Name(Name),
    Route(ObjectRef),
    Node(Name),
    /// Of a Node, of which nothing else is another.
    Labels,
    Host,
    /// Whoever has members at addresses that are another's now, or no more.
    Members(BTreeSet<PoolOwner>),
}

/// What planning looks at.
#[derive(Clone, Copy)]
pub(crate) struct PlanContext<'a> {
    pub(crate) index: &'a Index,
    pub(crate) config: &'a Config,
    /// Who serves here.
    pub(crate) host: Option<&'a Name>,
    pub(crate) certificates: &'a Certificates,
}

type EndpointsKey = (ObjectRef, u16);

#[derive(Debug, Default)]
pub struct Index {
    services: HashMap<ServiceKey, Arc<Service>>,
    endpoints: HashMap<ServiceKey, BTreeMap<EndpointsKey, Arc<Endpoints>>>,
    service_of: HashMap<EndpointsKey, ServiceKey>,
    nodes: BTreeMap<Name, Arc<Node>>,
    /// What labels said that Nodes were seen to lose.
    lost_labels: BTreeMap<Name, BTreeMap<Name, Name>>,
    namespaces: HashMap<Name, Arc<Namespace>>,
    answers: HashMap<Name, Arc<ResolvedName>>,
    hosts: BTreeMap<Name, Arc<HostReport>>,
    routes: BTreeMap<ObjectRef, Arc<HttpRoute>>,
    /// By which routes of others are told from the front door's.
    door: FrontDoor,
    /// Routes of others are in neither.
    pub(crate) guards: GuardIndex,
    pub(crate) places: HostPlaceIndex,
    /// Follows from grants, not from facts alone: the World keeps it.
    pub(crate) own: OwnListeners,
    /// So is this.
    pub(crate) shares: TenantShares,
    /// What an operator says of members while this process runs.
    pub(crate) weights: Arc<MemberWeights>,
}

impl Index {
    /// Whoever calls plans everything again.
    pub(crate) fn configure(&mut self, config: &Config) {
        self.own.set_status_page(&config.status_page);
        self.own.set_rules(config.tenants.members, config.tenants.reserved_ports.clone());
        self.shares.set_limits(&config.tenants.limits);
        let limits = &config.tenants.limits;
        if self.door == config.front_door && self.places.has_limits(limits) {
            return;
        }
        self.door = config.front_door.clone();
        self.places = HostPlaceIndex::with_limits(limits);
        let (services, routes) = (self.services.clone(), self.routes.clone());
        services.iter().for_each(|(key, it)| drop(self.place_service(key, it)));
        routes.values().for_each(|it| drop(self.place_route(it)));
    }

    /// Takes a fact in. What is told again unchanged touches nothing. Pools, Secrets and Addresses live elsewhere.
    pub fn put(&mut self, fact: &Fact) -> Vec<ChangeScope> {
        match fact {
            Fact::Service(it) => {
                let key = ServiceKey::new(it.meta.namespace.clone(), it.meta.name.clone());
                let members = self.own.set_service(&key, &it.cluster_ips);
                let mut touched = self.place_service(&key, it);
                touched.extend(changed(
                    self.services.insert(key.clone(), it.clone()),
                    it,
                    ChangeScope::Service(key),
                ));
                touched.extend((!members.is_empty()).then_some(ChangeScope::Members(members)));
                touched
            }
            Fact::Endpoints(it) => self.put_endpoints(it),
            Fact::Node(it) => {
                let before = self.nodes.insert(it.meta.name.clone(), it.clone());
                self.note_lost_labels(before.as_deref(), it);
                match before {
                    Some(before) if used(&before) != used(it) => {
                        vec![ChangeScope::Node(it.meta.name.clone())]
                    }
                    Some(before) if before.meta.labels != it.meta.labels => vec![ChangeScope::Labels],
                    Some(_) => Vec::new(),
                    None => vec![ChangeScope::Node(it.meta.name.clone())],
                }
            }
            Fact::Namespace(it) => changed(
                self.namespaces.insert(it.name.clone(), it.clone()),
                it,
                ChangeScope::Namespace(it.name.clone()),
            ),
            Fact::Name(it) => changed(
                self.answers.insert(it.name.clone(), it.clone()),
                it,
                ChangeScope::Name(it.name.clone()),
            ),
            Fact::Host(it) => changed(self.hosts.insert(it.host.clone(), it.clone()), it, ChangeScope::Host),
            Fact::HttpRoute(it) => {
                let object = it.object();
                let mut touched =
                    changed(self.routes.insert(object.clone(), it.clone()), it, ChangeScope::Route(object));
                touched.extend(self.place_route(it));
                touched
            }
            Fact::AddressPool(_)
            | Fact::Secret(_)
            | Fact::Address(_)
            | Fact::Announcing(_)
            | Fact::NameOwner(_)
            | Fact::Challenge(_) => Vec::new(),
        }
    }

    /// Services that what a Service has at the front door concerns.
    fn place_service(&mut self, key: &ServiceKey, it: &Service) -> Vec<ChangeScope> {
        let now = HostPlaces::of_service(it, &self.door);
        let mut touched = self.guard(key.object(), guarded::by_service(it));
        touched.extend(self.place(&key.object(), now));
        touched
    }

    /// The same of a route. What is another's has nothing there.
    fn place_route(&mut self, it: &HttpRoute) -> Vec<ChangeScope> {
        let (now, guarded) = match front_door::is_here(it, &self.door) {
            true => (HostPlaces::of_route(it, &self.door), guarded::by_route(it)),
            false => (HostPlaces::default(), BTreeSet::new()),
        };
        let mut touched = self.place(&it.object(), now);
        touched.extend(self.guard(it.object(), guarded));
        touched
    }

    /// Services that are guarded now, or no more.
    fn guard(&mut self, by: ObjectRef, all: BTreeSet<ServiceKey>) -> Vec<ChangeScope> {
        self.guards.set(by, all).into_iter().map(ChangeScope::Service).collect()
    }

    /// Services that host names of an object concern, as they are now.
    fn place(&mut self, object: &ObjectRef, now: HostPlaces) -> Vec<ChangeScope> {
        self.places.set(object, now).into_iter().map(ChangeScope::Service).collect()
    }

    /// The last value of each label that it has no more.
    fn note_lost_labels(&mut self, before: Option<&Node>, now: &Node) {
        let Some(before) = before.filter(|it| it.meta.labels != now.meta.labels) else { return };
        let lost = self.lost_labels.entry(now.meta.name.clone()).or_default();
        for (label, value) in
            before.meta.labels.iter().filter(|(label, value)| now.meta.labels.get(*label) != Some(value))
        {
            lost.insert(label.clone(), value.clone());
        }
        lost.retain(|label, value| now.meta.labels.get(label) != Some(value));
    }

    pub(crate) fn lost_labels(&self, node: &str) -> &BTreeMap<Name, Name> {
        static NONE: BTreeMap<Name, Name> = BTreeMap::new();
        self.lost_labels.get(node).unwrap_or(&NONE)
    }

    fn put_endpoints(&mut self, it: &Arc<Endpoints>) -> Vec<ChangeScope> {
        let id = (it.object.clone(), it.part);
        let key = ServiceKey::new(it.object.namespace.clone(), it.service.clone());
        let mut touched = Vec::new();
        match self.service_of.insert(id.clone(), key.clone()) {
            // Its label now names another Service: the old one loses it.
            Some(before) if before != key => {
                self.remove_endpoints(&before, &id);
                touched.push(ChangeScope::Service(before));
            }
            _ => {}
        }
        let before = self.endpoints.entry(key.clone()).or_default().insert(id, it.clone());
        touched.extend(changed(before, it, ChangeScope::Service(key)));
        touched
    }

    pub fn remove(&mut self, gone: &FactRef) -> Vec<ChangeScope> {
        let touched = match gone {
            FactRef::Object(object) => match object.kind {
                Kind::Service => {
                    let key = ServiceKey::new(object.namespace.clone(), object.name.clone());
                    let members = self.own.set_service(&key, &[]);
                    let service = self.services.remove(&key).map(|_| ChangeScope::Service(key));
                    let members = (!members.is_empty()).then_some(ChangeScope::Members(members));
                    let mut guarded = self.guard(object.clone(), BTreeSet::new());
                    guarded.extend(self.place(object, HostPlaces::default()));
                    return service.into_iter().chain(members).chain(guarded).collect();
                }
                Kind::Namespace => {
                    self.namespaces.remove(&object.name).map(|_| ChangeScope::Namespace(object.name.clone()))
                }
                Kind::Node => {
                    self.lost_labels.remove(&object.name);
                    self.nodes.remove(&object.name).map(|_| ChangeScope::Node(object.name.clone()))
                }
                Kind::HTTPRoute => {
                    let route = self.routes.remove(object).map(|_| ChangeScope::Route(object.clone()));
                    let mut guarded = self.guard(object.clone(), BTreeSet::new());
                    guarded.extend(self.place(object, HostPlaces::default()));
                    return route.into_iter().chain(guarded).collect();
                }
                _ => None,
            },
            FactRef::Endpoints(object, part) => {
                let id = (object.clone(), *part);
                self.service_of.remove(&id).map(|key| {
                    self.remove_endpoints(&key, &id);
                    ChangeScope::Service(key)
                })
            }
            FactRef::Name(name) => self.answers.remove(name).map(|_| ChangeScope::Name(name.clone())),
            FactRef::Host(host) => self.hosts.remove(host).map(|_| ChangeScope::Host),
            FactRef::Address(_) => None,
        };
        touched.into_iter().collect()
    }

    fn remove_endpoints(&mut self, key: &ServiceKey, id: &EndpointsKey) {
        if let Some(of_service) = self.endpoints.get_mut(key) {
            of_service.remove(id);
            if of_service.is_empty() {
                self.endpoints.remove(key);
            }
        }
    }

    pub fn service(&self, key: &ServiceKey) -> Option<&Arc<Service>> {
        self.services.get(key)
    }

    pub fn services(&self) -> impl Iterator<Item = (&ServiceKey, &Arc<Service>)> {
        self.services.iter()
    }

    pub(crate) fn route(&self, object: &ObjectRef) -> Option<&Arc<HttpRoute>> {
        self.routes.get(object)
    }

    pub(crate) fn routes(&self) -> impl Iterator<Item = &ObjectRef> {
        self.routes.keys()
    }

    /// In a stable order.
    pub fn endpoints(&self, key: &ServiceKey) -> impl Iterator<Item = &Arc<Endpoints>> {
        self.endpoints.get(key).into_iter().flat_map(BTreeMap::values)
    }

    pub(crate) fn all_endpoints(
        &self,
    ) -> impl Iterator<Item = (&ServiceKey, impl Iterator<Item = &Arc<Endpoints>>)> {
        self.endpoints.iter().map(|(key, of_service)| (key, of_service.values()))
    }

    pub fn answer(&self, name: &str) -> Option<&Arc<ResolvedName>> {
        self.answers.get(name)
    }

    pub(crate) fn has_namespace(&self, name: &str) -> bool {
        self.namespaces.contains_key(name)
    }

    pub fn namespace_labels(&self, name: &str) -> Labels {
        self.namespaces.get(name).map(|it| it.labels.clone()).unwrap_or_default()
    }

    pub fn host(&self, name: &str) -> Option<&Arc<HostReport>> {
        self.hosts.get(name)
    }

    pub(crate) fn node(&self, name: &str) -> Option<&Arc<Node>> {
        self.nodes.get(name)
    }

    pub(crate) fn nodes(&self) -> impl Iterator<Item = &Arc<Node>> {
        self.nodes.values()
    }

    /// A host beside the Nodes: pods are not on its way.
    pub(crate) fn is_outside(&self, host: Option<&Name>) -> bool {
        !self.nodes.is_empty() && host.is_some_and(|host| !self.nodes.contains_key(host))
    }

    pub fn hosts(&self) -> impl Iterator<Item = &Arc<HostReport>> {
        self.hosts.values()
    }
}

/// On a Node that load balancers leave out. Since Kubernetes 1.34 not where it says false.
pub(crate) const EXCLUDED: &str = "node.kubernetes.io/exclude-from-external-load-balancers";
/// As Go reads it.
const FALSE: [&str; 6] = ["false", "False", "FALSE", "f", "F", "0"];
/// The same, of old, whatever the value.
const EXCLUDED_OF_OLD: &str = "alpha.service-controller.kubernetes.io/exclude-balancer";
const CONTROL_PLANE: [&str; 2] = ["node-role.kubernetes.io/control-plane", "node-role.kubernetes.io/master"];
const ZONE: &str = "topology.kubernetes.io/zone";

pub(crate) fn is_excluded(node: &Node) -> bool {
    let labels = &node.meta.labels;
    labels.get(EXCLUDED).is_some_and(|it| !FALSE.contains(&it.as_str()))
        || labels.contains_key(EXCLUDED_OF_OLD)
}

pub(crate) fn is_control_plane(node: &Node) -> bool {
    CONTROL_PLANE.iter().any(|it| node.meta.labels.contains_key(*it))
}

pub(crate) fn zone(node: &Node) -> Option<&Name> {
    node.meta.labels.get(ZONE)
}

/// What of a Node anything is planned from.
fn used(node: &Node) -> impl PartialEq + '_ {
    let addresses = (&node.addresses, &node.external, &node.pod_networks);
    let state = (node.ready, node.unschedulable, node.leaving, is_excluded(node), is_control_plane(node));
    (addresses, state, zone(node), node.provider_id.as_ref())
}

fn changed<T: PartialEq>(before: Option<Arc<T>>, now: &Arc<T>, touched: ChangeScope) -> Vec<ChangeScope> {
    if before.is_some_and(|before| before == *now) { Vec::new() } else { vec![touched] }
}
