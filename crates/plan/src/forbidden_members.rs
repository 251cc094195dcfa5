//! Members that tenants of a shared cluster may not name. The data plane connects from the network of its machine, so a member that
//! is the machine itself would give all clients access to what listens there.
//!
//! ```text
//!     loopback, link-local, metadata of clouds, unspecified, multicast ──► never
//!     our own published addresses, other addresses of hosts ─────────────► never
//!     the first address of a Node's pods, its bridge ──► only of an endpoint that carries a nodeName; at no reserved port
//!     an address of a Node ──► only of an endpoint that carries its nodeName, or at a node port; at no reserved port
//!     the ClusterIP of a Service ──► only by name, where names are allowed; and never the API server's. What its endpoints are,
//!                                    kube-proxy alone decides: by one's own Service a member might be anything of the above
//! ```
//!
//! The same holds for the port at which their health is checked.

use std::{
    collections::BTreeSet,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
};

use ipnet::IpNet;
use seaway_model::{
    Member, Name, ObjectRef, Problem, Reason,
    config::{MemberRules, ReservedPorts},
};

use crate::{
    address_map::AddressMap,
    annotations::CHECK_PORT,
    demand::{Demand, DemandPort},
    index::ServiceKey,
    members::Members,
};

/// What there is of machines.
#[derive(Debug, Default)]
pub(crate) struct ProtectedAddresses {
    rules: MemberRules,
    reserved: ReservedPorts,
    nodes: AddressMap<Name>,
    /// Where bridges of pods are on Nodes: a host that runs there reports them, and not on each Node runs one.
    bridges: AddressMap<Name>,
    /// ClusterIPs.
    services: AddressMap<ServiceKey>,
}

/// What a member may not be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ForbiddenReason {
    Special(&'static str),
    Published,
    OfHost(Name),
    OfNode(Name),
    OfBridge(Name),
    OfService(ServiceKey),
    ReservedPort(Name),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ForbiddenMember {
    pub(crate) at: SocketAddr,
    pub(crate) why: ForbiddenReason,
    /// Who names it: an EndpointSlice, or a DNS name.
    pub(crate) named_by: String,
}

impl ProtectedAddresses {
    pub(crate) fn set_rules(&mut self, rules: MemberRules, reserved: ReservedPorts) {
        (self.rules, self.reserved) = (rules, reserved);
    }

    pub(crate) fn reserved(&self) -> &ReservedPorts {
        &self.reserved
    }

    pub(crate) fn rules(&self) -> MemberRules {
        self.rules
    }

    /// A Node has these addresses from now on, and its pods these networks. Tells which addresses came or went.
    pub(crate) fn set_node(&mut self, node: &Name, now: &[IpAddr], networks: &[IpNet]) -> Vec<IpAddr> {
        let now: Vec<IpAddr> = now.iter().copied().map(plain).collect();
        let mut changed = self.nodes.put(node, now);
        changed.extend(self.bridges.put(node, networks.iter().filter_map(bridge).collect()));
        changed
    }

    /// A Service has these ClusterIPs from now on. Tells which came or went.
    pub(crate) fn set_service(&mut self, service: &ServiceKey, now: &[IpAddr]) -> Vec<IpAddr> {
        self.services.put(service, now.iter().copied().map(plain).collect())
    }

    /// `of_host`, `published`: whose an address is, and whether we publish it.
    pub(crate) fn forbidden_reason(
        &self,
        member: &Member,
        of_host: impl Fn(&IpAddr) -> Option<Name>,
        published: impl Fn(&IpAddr) -> bool,
    ) -> Option<ForbiddenReason> {
        if self.rules.machines {
            return None;
        }
        let ip = plain(member.at.ip());
        if let Some(what) = special(ip) {
            return Some(ForbiddenReason::Special(what));
        }
        if let Some(nodes) = self.nodes.owners(ip) {
            let named = member.node.as_ref().filter(|it| nodes.contains(*it));
            return match named {
                None => nodes.first().cloned().map(ForbiddenReason::OfNode),
                Some(node) => self
                    .reserved
                    .contains(member.at.port())
                    .then(|| ForbiddenReason::ReservedPort(node.clone())),
            };
        }
        if let Some(node) = self.bridges.owners(ip).and_then(|nodes| nodes.first()) {
            // Where a CNI goes by other networks, it is a pod's address, and that pod may be on any Node.
            let is_a_pods = member.node.as_ref().is_some_and(|it| !self.nodes.of(it).is_empty());
            if !is_a_pods {
                return Some(ForbiddenReason::OfBridge(node.clone()));
            }
            if self.reserved.contains(member.at.port()) {
                return Some(ForbiddenReason::ReservedPort(node.clone()));
            }
        }
        // From the network of a Node it answers whoever may not ask there, and the API server as well.
        let is_by_name = self.rules.names && member.host_name.is_some();
        let is_barred = |it: &&ServiceKey| it.is_api_server() || !is_by_name;
        if let Some(service) = self.services.owners(ip).and_then(|all| all.iter().find(is_barred)) {
            return Some(ForbiddenReason::OfService(service.clone()));
        }
        if let Some(host) = of_host(&ip) {
            return Some(ForbiddenReason::OfHost(host));
        }
        published(&ip).then_some(ForbiddenReason::Published)
    }

    /// Whether it is the address of a Node whose own ports nobody may name.
    pub(crate) fn is_guarded_node(&self, ip: IpAddr) -> bool {
        let ip = plain(ip);
        !self.rules.machines && (self.nodes.owners(ip).is_some() || self.bridges.owners(ip).is_some())
    }
}

/// The first address of a Node's pods, which bridges of nearly all CNIs have.
fn bridge(pods: &IpNet) -> Option<IpAddr> {
    let first = match pods.network() {
        IpAddr::V4(ip) => IpAddr::from(Ipv4Addr::from(u32::from(ip).checked_add(1)?)),
        IpAddr::V6(ip) => IpAddr::from(Ipv6Addr::from(u128::from(ip).checked_add(1)?)),
    };
    pods.contains(&first).then_some(first)
}

/// Where a connection ends up: an IPv4 address within an IPv6 one is that address.
fn plain(ip: IpAddr) -> IpAddr {
    let IpAddr::V6(v6) = ip else { return ip };
    let [a, b, c, d, e, f, high, low] = v6.segments();
    let within = Ipv4Addr::from(u32::from(high) << 16 | u32::from(low));
    match [a, b, c, d, e, f] {
        // Mapped, and by way of NAT64 (RFC 6052).
        [0, 0, 0, 0, 0, 0xffff] | [0x64, 0xff9b, 0, 0, 0, 0] => within.into(),
        // Compatible (RFC 4291), but for :: and ::1.
        [0, 0, 0, 0, 0, 0] if high != 0 => within.into(),
        _ => ip,
    }
}

/// Metadata services of clouds that are not link-local: of AWS, GCE and Oracle by IPv6, of Oracle and Azure.
const METADATA: [IpAddr; 5] = [
    IpAddr::V6(Ipv6Addr::new(0xfd00, 0xec2, 0, 0, 0, 0, 0, 0x254)),
    IpAddr::V6(Ipv6Addr::new(0xfd20, 0xce, 0, 0, 0, 0, 0, 0x254)),
    IpAddr::V6(Ipv6Addr::new(0xfd00, 0xc1, 0, 0, 0, 0, 0xa9fe, 0xa9fe)),
    IpAddr::V4(Ipv4Addr::new(192, 0, 0, 192)),
    IpAddr::V4(Ipv4Addr::new(168, 63, 129, 16)),
];

/// What no member can be, whatever there is.
fn special(ip: IpAddr) -> Option<&'static str> {
    if METADATA.contains(&ip) {
        return Some("the address of a cloud's metadata service");
    }
    let (loopback, link_local, nowhere) = match ip {
        // 0.0.0.0/8 is this very machine, too.
        IpAddr::V4(it) => (
            it.is_loopback() || it.octets()[0] == 0,
            it.is_link_local(),
            it.is_multicast() || it.is_broadcast(),
        ),
        IpAddr::V6(it) => {
            (it.is_loopback() || it.is_unspecified(), it.is_unicast_link_local(), it.is_multicast())
        }
    };
    match (loopback, link_local, nowhere) {
        (true, ..) => Some("a loopback address"),
        (_, true, _) => Some("a link-local address, as metadata services of clouds have"),
        (.., true) => Some("not the address of a single machine"),
        _ => None,
    }
}

impl ForbiddenReason {
    /// What the address is, for the users of an object that names it.
    pub(crate) fn describe_to(&self, reader: &ObjectRef) -> String {
        match self {
            ForbiddenReason::Special(what) => (*what).to_owned(),
            ForbiddenReason::Published => "an address that Seaway publishes".to_owned(),
            ForbiddenReason::OfHost(host) => format!("an address that host {host} reports as its own"),
            ForbiddenReason::OfNode(node) => {
                format!("an address of Node {node}, and the endpoint does not have its nodeName")
            }
            ForbiddenReason::OfBridge(node) => format!(
                "the first address of the pod network of Node {node}, which is its bridge, and the endpoint has no nodeName"
            ),
            // In a folder no address is barred for that. The API server's name is no secret.
            ForbiddenReason::OfService(it) => {
                format!("the ClusterIP of {}", it.object().named_for(reader, !it.is_api_server()))
            }
            ForbiddenReason::ReservedPort(node) => {
                format!("a port that is reserved for Node {node} itself")
            }
        }
    }
}

/// As many are named; a slice may have a thousand.
const NAMED: usize = 3;

/// What is told about members that were left out, once for a port.
pub(crate) fn problem(demand: &Demand, wanted: &DemandPort, barred: &[ForbiddenMember]) -> Option<Problem> {
    let first = barred.first()?;
    let own = demand.owner.object();
    let named = barred
        .iter()
        .take(NAMED)
        .map(|it| format!("{} (from {}) is {}", it.at, it.named_by, it.why.describe_to(&own)));
    let more = match barred.len().saturating_sub(NAMED) {
        0 => String::new(),
        more => format!(", and {more} more like it"),
    };
    let message = format!("{}{more}; left out as members", named.collect::<Vec<_>>().join("; "));
    let fix =
        format!("In {}, name pods or servers outside the cluster instead of {}.", first.named_by, first.at);
    let problem = Problem::new(own, Reason::NotAllowed, message);
    Some(problem.at(wanted.field.as_str()).fix(fix))
}

/// The port at which a Service wants its members' health checked, and which is the machines' own.
pub(crate) fn check_port(demand: &Demand, found: &Members) -> Option<u16> {
    let port = demand.health_check().and_then(|it| it.port)?;
    if !found.at_nodes {
        return None;
    }
    let service = &demand.service;
    let is_its_own = service.health_check_node_port == Some(port)
        || service.ports.iter().any(|it| it.node_port == Some(port));
    let is_barred = if found.by_nodes { !is_its_own } else { found.reserved.contains(port) };
    is_barred.then_some(port)
}

/// The Problem of such a port.
pub(crate) fn check_problem(demand: &Demand, wanted: &DemandPort, found: &Members) -> Option<Problem> {
    let port = check_port(demand, found)?;
    let (whose, fix) = match found.by_nodes {
        true => (
            "not a node port of this Service",
            "Remove the annotation, or set it to a nodePort of the Service or to its healthCheckNodePort.",
        ),
        false => ("reserved for the Node", "Remove the annotation, or set it to a port of the pods."),
    };
    let message = format!(
        "members of port {} have addresses of Nodes, where port {port} is {whose}: Seaway checks the health of the \
             member at its own port instead",
        wanted.id()
    );
    let problem = Problem::new(demand.owner.object(), Reason::NotAllowed, message);
    Some(problem.at(demand.wishes.field_of(CHECK_PORT)).fix(fix))
}

/// The Problem of names that are not looked up.
pub(crate) fn names_problem(demand: &Demand, wanted: &DemandPort, names: &BTreeSet<Name>) -> Option<Problem> {
    let first = names.first()?;
    let message = format!(
        "the name {first} is not looked up: the configuration allows no members by name (ExternalName, EndpointSlices of \
         addressType FQDN)"
    );
    let problem = Problem::new(demand.owner.object(), Reason::NotAllowed, message);
    let fix = "Write an EndpointSlice with addresses, or have tenants.membersByName set to true in the configuration.";
    Some(problem.at(wanted.field.as_str()).fix(fix))
}
