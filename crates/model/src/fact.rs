//! Facts: what sources say, trimmed at the edge to the fields that Seaway reads.
//!
//! A source (`files`, `cluster`) fills in what an API server would: defaults, uid, validation. Two sources that read
//! the same manifest give equal facts but for uid, times and versions. A host may write them down, and serve from them later.

mod announcing;
mod http_route;
mod secret;

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
    sync::Arc,
    time::Duration,
};

use ipnet::IpNet;
use serde::{Deserialize, Serialize};

pub use self::{
    announcing::*,
    http_route::{BackendRef, Gateway, HttpRoute, RouteRule, UnsupportedField},
    secret::{Secret, TLS_SECRET},
};
use crate::{
    Address, AnnounceMode, IpRange,
    acme::{Challenge, ordered_certificate},
    bgp::BgpReport,
    layer2::Layer2State,
    load_balancer::{Family, HostPattern, L4},
    name::{Kind, Name, ObjectRef, Time},
    outcome::ServingSocket,
    reason::Reason,
};

/// One thing that a source says is so.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Fact {
    Service(Arc<Service>),
    Endpoints(Arc<Endpoints>),
    Node(Arc<Node>),
    Namespace(Arc<Namespace>),
    AddressPool(Arc<AddressPool>),
    /// How addresses are announced.
    Announcing(Arc<AnnouncementObject>),
    HttpRoute(Arc<HttpRoute>),
    Secret(Arc<Secret>),
    Address(Arc<Address>),
    /// What a namespace has of the front door's names.
    NameOwner(Arc<NameOwner>),
    /// What a DNS name stands for now.
    Name(Arc<ResolvedName>),
    /// What a certificate authority asks the front door for.
    Challenge(Arc<Challenge>),
    /// What a serving host says of itself.
    Host(Arc<HostReport>),
}

/// What of an object's metadata is used.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Meta {
    pub namespace: Name,
    pub name: Name,
    pub uid: Name,
    /// Absent counts as oldest.
    pub created: Option<Time>,
    pub labels: Labels,
    /// Only of prefixes that somebody here honours; a source drops the rest.
    pub annotations: Labels,
}

pub type Labels = BTreeMap<Name, Name>;

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Service {
    pub meta: Meta,
    pub kind: ServiceKind,
    /// `clusterIP: None`.
    pub headless: bool,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub cluster_ips: Vec<IpAddr>,
    pub selector: Labels,
    pub ports: Vec<ServicePort>,
    pub families: Families,
    /// `sessionAffinity: ClientIP`, with its timeout.
    pub affinity: Option<Duration>,
    /// `externalTrafficPolicy: Local`.
    pub local_only: bool,
    pub health_check_node_port: Option<u16>,
    /// `spec.loadBalancerIP` as it is written.
    pub load_balancer_ip: Option<Name>,
    pub class: Option<Name>,
    pub source_ranges: Vec<IpNet>,
    /// They are not all understood: nobody may connect.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub unclear_sources: bool,
    /// Where something stands that may be a route that protects it, and cannot be used: its name leads nowhere at the front door.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unused_route: Option<Name>,
    pub publish_not_ready: bool,
    /// It is being deleted, and is there until nobody holds it any more.
    #[serde(default)]
    pub leaving: bool,
    /// Who holds it until its load balancer is gone: kept apart, for we write it.
    #[serde(default)]
    pub held: FinalizerOwner,
    /// What its status says already, whoever wrote that: heard when addresses are given out for the first time.
    pub published: Vec<IpAddr>,
    /// Whether Seaway wrote that.
    #[serde(default)]
    pub published_by_us: bool,
    /// At which ports its status says that it has hosts' own addresses, whoever wrote that.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub published_ports: Vec<ServingSocket>,
    /// The last write by another cloud controller manager: kept apart, as `held` is.
    #[serde(default)]
    pub other_write: Option<OtherControllerWrite>,
}

/// A write to a Service by another controller that makes load balancers in a cloud.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OtherControllerWrite {
    /// As the API server calls who wrote: `openstack-cloud-controller-manager`.
    pub by: Name,
    pub at: Time,
}

/// What tells that a cloud controller manager runs its controller of Services, beside its writes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OtherControllerSigns {
    /// Since when the process leads that holds its Lease now.
    pub leads_since: Option<Time>,
    /// The last event about a Service.
    pub event: Option<OtherControllerWrite>,
}

/// By the finalizer `service.kubernetes.io/load-balancer-cleanup`, which others use, too, or by one that is ours alone.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum FinalizerOwner {
    #[default]
    No,
    ByUs,
    ByOthers,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ServiceKind {
    ClusterIp,
    NodePort,
    LoadBalancer,
    ExternalName(Name),
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ServicePort {
    pub name: Name,
    pub protocol: L4,
    pub port: u16,
    pub target: TargetPort,
    pub node_port: Option<u16>,
    pub app_protocol: Option<Name>,
}

impl ServicePort {
    /// `80/TCP http`
    pub fn shown(&self) -> String {
        format!("{}/{} {}", self.port, self.protocol, self.name).trim_end().to_owned()
    }
}

/// Where a Service's port leads: a number, or the name of an endpoint's port.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum TargetPort {
    Number(u16),
    Name(Name),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Families {
    pub policy: FamilyPolicy,
    /// The first family, if the Service names one.
    pub first: Option<Family>,
    /// The second, if it names two.
    pub second: Option<Family>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum FamilyPolicy {
    Single,
    Prefer,
    Require,
}

/// An EndpointSlice, or one subset of the older Endpoints told as one: who stands behind a Service.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Endpoints {
    /// The object it came from; an Endpoints object with several subsets gives `part` 0, 1, …
    pub object: ObjectRef,
    pub part: u16,
    /// The Service's name, from the label `kubernetes.io/service-name`, or the name of Endpoints.
    pub service: Name,
    pub annotations: Labels,
    pub ports: Vec<EndpointPort>,
    pub endpoints: Vec<Endpoint>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct EndpointPort {
    pub name: Name,
    pub protocol: L4,
    /// Absent means every port of the endpoint.
    pub port: Option<u16>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Endpoint {
    /// Usually one; more are the same endpoint and the first is used.
    pub at: EndpointAddress,
    pub ready: bool,
    pub serving: bool,
    pub terminating: bool,
    pub node: Option<Name>,
    /// Topology hints: where clients should be that are sent there; empty means anywhere.
    pub for_zones: Vec<Name>,
    pub for_nodes: Vec<Name>,
    /// Of backends that a Service of a folder names itself.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub backup: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<Name>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum EndpointAddress {
    Ip(IpAddr),
    /// `addressType: FQDN`: outside, resolved here.
    Name(Name),
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Node {
    pub meta: Meta,
    /// Those of type InternalIP first.
    pub addresses: Vec<IpAddr>,
    /// Which of them are of type ExternalIP.
    #[serde(default)]
    pub external: Vec<IpAddr>,
    /// Where its pods have their addresses, unless the CNI goes by something else.
    #[serde(default)]
    pub pod_networks: Vec<IpNet>,
    /// It is being deleted, or the autoscaler is about to.
    #[serde(default)]
    pub leaving: bool,
    /// Its condition NetworkUnavailable is True: its pods have no network.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub without_network: bool,
    pub provider_id: Option<Name>,
    pub ready: bool,
    pub unschedulable: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Namespace {
    pub name: Name,
    pub labels: Labels,
}

/// Where addresses come from: our AddressPool, or MetalLB's IPAddressPool.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AddressPool {
    pub object: ObjectRef,
    pub created: Option<Time>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: Labels,
    pub ranges: Vec<IpRange>,
    /// The serving hosts' own addresses, rather than ranges.
    pub hosts: bool,
    /// In a cluster, those of control planes, too.
    #[serde(default)]
    pub control_planes: bool,
    /// In a cluster, ports of the machines that Services may have at hosts' own addresses all the same.
    #[serde(default)]
    pub reserved_ports: BTreeSet<u16>,
    /// Who announces its addresses, where somebody said so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub announce: Option<AnnounceMode>,
    pub auto_assign: bool,
    pub avoid_buggy: bool,
    /// Lower is asked first; 0 is "no opinion" and comes last, as MetalLB has it.
    pub priority: u32,
    /// Any of these, or of `namespace_selectors`, if either is given.
    pub namespaces: Vec<Name>,
    pub namespace_selectors: Vec<Selector>,
    pub service_selectors: Vec<Selector>,
}

/// A label selector: all of its terms.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Selector(pub Vec<LabelRequirement>);

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum LabelRequirement {
    Is(Name, Name),
    In(Name, Vec<Name>),
    NotIn(Name, Vec<Name>),
    Exists(Name),
    Missing(Name),
}

impl Selector {
    pub fn matches(&self, labels: &Labels) -> bool {
        self.0.iter().all(|term| match term {
            LabelRequirement::Is(key, value) => labels.get(key) == Some(value),
            LabelRequirement::In(key, values) => labels.get(key).is_some_and(|value| values.contains(value)),
            LabelRequirement::NotIn(key, values) => {
                labels.get(key).is_none_or(|value| !values.contains(value))
            }
            LabelRequirement::Exists(key) => labels.contains_key(key),
            LabelRequirement::Missing(key) => !labels.contains_key(key),
        })
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ResolvedName {
    pub name: Name,
    /// Sorted, without doubles.
    pub addresses: Vec<IpAddr>,
}

/// What a serving host says of itself.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct HostReport {
    pub host: Name,
    /// Its own addresses: what pools with `hosts: true` publish.
    pub addresses: Vec<IpAddr>,
    /// Which addresses are its own, if whoever runs the cluster wrote them down (`spec.addresses`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub declared: Option<BTreeSet<IpAddr>>,
    /// Which addresses of our pools are present on it, so that a socket there can be reached.
    pub holds: BTreeSet<IpAddr>,
    /// Of a host in a cluster, the highest version of an Address that it has applied: what `holds` is as of.
    #[serde(default)]
    pub applied: u64,
    /// Of this host alone: the epoch of that version, as this process counts.
    #[serde(skip)]
    pub epoch: u64,
    /// Addresses that it should serve and cannot.
    #[serde(default)]
    pub not_served: BTreeSet<IpAddr>,
    /// Somebody wants nobody new to be sent there.
    #[serde(default)]
    pub drain: bool,
    /// What it says of addresses that it announces by ARP and NDP. Of other hosts, only what is not at rest.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub layer2: BTreeMap<IpAddr, Layer2State>,
    /// The networks of its interfaces; of this host alone.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub networks: Vec<IpNet>,
    /// What it says of its BGP sessions. Of other hosts, nothing is known on a host.
    #[serde(default, skip_serializing_if = "BgpReport::is_empty")]
    pub bgp: BgpReport,
}

impl HostReport {
    /// Of the addresses that it reports, those that others may take for its own.
    pub fn own_addresses(&self) -> Vec<IpAddr> {
        let is_declared = |ip: &IpAddr| self.declared.as_ref().is_none_or(|it| it.contains(ip));
        self.addresses.iter().copied().filter(is_declared).collect()
    }
}

/// What a namespace claimed before others did, as the leader wrote it down: its own until it has claimed it no more for a while.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct NameOwner {
    pub namespace: Name,
    /// Host names of the front door.
    pub hosts: BTreeSet<HostPattern>,
    /// Beginnings of paths, of those without a host name; without a slash at the end.
    pub paths: BTreeSet<Name>,
}

impl NameOwner {
    pub fn object(&self) -> ObjectRef {
        ObjectRef::new(Kind::NameOwner, "", self.namespace.clone())
    }

    pub fn is_empty(&self) -> bool {
        self.hosts.is_empty() && self.paths.is_empty()
    }

    pub fn len(&self) -> usize {
        self.hosts.len() + self.paths.len()
    }
}

/// What this host says of itself to whoever gives addresses out: how far it is, and only exceptions.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HostStatus {
    /// All Addresses up to this version are as they should be here, or told below.
    pub applied: u64,
    /// Its own.
    pub addresses: Vec<IpAddr>,
    /// Of our pools, present though they should be no more.
    pub held: Vec<IpAddr>,
    pub not_served: Vec<UnservedAddress>,
    /// How many more there are of these two, which are not named: `applied` is below the versions of them all, so that
    /// nobody believes anything of them.
    pub unlisted: usize,
    /// Those that it announces by ARP and NDP, or cannot; of many, the first.
    pub layer2: BTreeMap<IpAddr, Layer2State>,
    pub bgp: BgpReport,
}

impl HostStatus {
    /// Of either list, so that the object stays below what etcd takes (1.5 MiB).
    pub const MAX_LISTED: usize = 8_000;
    /// Of addresses that are announced by ARP and NDP.
    pub const MAX_LAYER2: usize = 1_000;
}

/// An address that should be served here and is not.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnservedAddress {
    pub address: IpAddr,
    pub reason: Reason,
    pub message: Name,
}

/// Names a fact without its content: what a source says when it is gone.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum FactRef {
    Object(ObjectRef),
    Endpoints(ObjectRef, u16),
    Address(IpAddr),
    Name(Name),
    Host(Name),
}

impl FactRef {
    /// Of the object that says it; none, where it is no object.
    pub fn kind(&self) -> Option<Kind> {
        match self {
            FactRef::Object(object) | FactRef::Endpoints(object, _) => Some(object.kind),
            FactRef::Address(_) => Some(Kind::Address),
            FactRef::Host(_) => Some(Kind::LoadBalancerHost),
            FactRef::Name(_) => None,
        }
    }
}

impl Fact {
    pub fn reference(&self) -> FactRef {
        match self {
            Fact::Service(it) => FactRef::Object(ObjectRef::new(
                Kind::Service,
                it.meta.namespace.clone(),
                it.meta.name.clone(),
            )),
            Fact::Endpoints(it) => FactRef::Endpoints(it.object.clone(), it.part),
            Fact::Node(it) => FactRef::Object(ObjectRef::new(Kind::Node, "", it.meta.name.clone())),
            Fact::Namespace(it) => FactRef::Object(ObjectRef::new(Kind::Namespace, "", it.name.clone())),
            Fact::AddressPool(it) => FactRef::Object(it.object.clone()),
            Fact::Announcing(it) => FactRef::Object(it.object.clone()),
            Fact::HttpRoute(it) => FactRef::Object(it.object()),
            Fact::Secret(it) => FactRef::Object(it.object.clone()),
            Fact::Address(it) => FactRef::Address(it.ip),
            Fact::NameOwner(it) => FactRef::Object(it.object()),
            Fact::Name(it) => FactRef::Name(it.name.clone()),
            Fact::Challenge(it) => FactRef::Object(ordered_certificate(&it.host)),
            Fact::Host(it) => FactRef::Host(it.host.clone()),
        }
    }
}
