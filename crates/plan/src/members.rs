//! Who stands behind a port of a Service: slices, subsets, names outside, joined into members.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::{IpAddr, SocketAddr},
};

use ipnet::IpNet;
use seaway_model::{
    Kind, L4, Member, Name,
    config::{MemberSource, ReservedPorts},
    fact::{
        Endpoint, EndpointAddress, EndpointPort, Endpoints, FamilyPolicy, Node, Service, ServiceKind,
        ServicePort, TargetPort,
    },
    load_balancer::{Family, MemberState},
};

use crate::{
    forbidden_members::ForbiddenMember,
    index::{Index, ServiceKey, is_excluded, zone},
    own_listeners::RefusedMember,
};

/// On an EndpointSlice: what each of its endpoints counts for.
pub const WEIGHT: &str = "seaway.dev/weight";

const OURS: &str = "seaway.dev/";

/// As for a weight of the Gateway API.
pub const HEAVIEST: u32 = 1_000_000;

/// The members of a pool, and what was noticed on the way.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Members {
    pub(crate) list: Vec<Member>,
    /// DNS names that have to be resolved for it.
    pub(crate) names: BTreeSet<Name>,
    /// Names without an answer yet.
    pub(crate) unresolved: BTreeSet<Name>,
    pub(crate) slices: usize,
    /// Slices that have no such port, with the ports they do have.
    pub(crate) portless: Vec<(Name, Vec<EndpointPort>)>,
    /// Slices with a weight that is none, and what it says.
    pub(crate) bad_weights: Vec<(Name, Name)>,
    /// Backends of the Service's own annotation that are there twice, of which one counts.
    pub(crate) twice: BTreeSet<SocketAddr>,
    /// Slices with an annotation of ours that none has, and its key.
    pub(crate) unknown_annotations: Vec<(Name, Name)>,
    /// No controller writes slices here.
    pub(crate) by_hand: bool,
    pub(crate) not_ready: usize,
    /// Left out since they are not on this host (`externalTrafficPolicy: Local`).
    pub(crate) elsewhere: usize,
    /// Whoever resolves selectors in a cluster has not written a slice of it yet.
    pub(crate) awaited: bool,
    /// They are Nodes.
    pub(crate) by_nodes: bool,
    /// Those Nodes at other addresses that they have, in a cloud.
    pub(crate) elsewhere_addressed: Vec<Member>,
    /// They are pods, and of each a kubelet says whether it is ready.
    pub(crate) vouched: bool,
    /// Nodes should stand in, and the Service's port has no node port.
    pub(crate) no_node_port: bool,
    /// Left out since they are listeners of our own.
    pub(crate) refused: Vec<RefusedMember>,
    /// Left out since nobody may name them.
    pub(crate) barred: Vec<ForbiddenMember>,
    /// Some have the address of a Node, whose other ports are not to be dialled.
    pub(crate) at_nodes: bool,
    /// Of Nodes.
    pub(crate) reserved: ReservedPorts,
    /// Nobody may name any.
    pub(crate) barred_names: BTreeSet<Name>,
}

impl Members {
    /// Of those that were left out.
    pub(crate) fn left_out(&self) -> impl Iterator<Item = IpAddr> + '_ {
        self.refused.iter().map(|it| it.at.ip()).chain(self.barred.iter().map(|it| it.at.ip()))
    }
}

/// Everybody behind `port` of `service`, as the serving host `host` sees it. `order`: which addresses of a Node come first.
pub(crate) fn members(
    index: &Index,
    service: &Service,
    port: &ServicePort,
    host: Option<&Name>,
    from: MemberSource,
    order: &[IpNet],
) -> Members {
    let mut found = MemberCollector::default();
    found.members.reserved = index.own.reserved().clone();
    if let ServiceKind::ExternalName(name) = &service.kind {
        if let TargetPort::Number(number) = port.target {
            let state = MemberState::Ready;
            found.name(index, name, number, EndpointMembers { weight: 1, state, backup: false, name: None });
        }
        found.leave_out_own(index, service, port);
        return found.finish(index, service);
    }
    let key = ServiceKey::new(service.meta.namespace.clone(), service.meta.name.clone());
    let by_nodes = match from {
        MemberSource::Pods => false,
        MemberSource::Nodes | MemberSource::EveryNode => true,
        MemberSource::Auto => index.is_outside(host),
    };
    let hints =
        host.filter(|_| !by_nodes && !service.local_only).and_then(|it| TopologyHint::of(index, service, it));
    for slice in index.endpoints(&key) {
        found.members.slices = found.members.slices.saturating_add(1);
        let Some(number) = port_of(&slice.ports, port) else {
            found.members.portless.push((slice.object.name.clone(), slice.ports.clone()));
            continue;
        };
        let weight = found.weight_of(slice);
        for endpoint in &slice.endpoints {
            let state =
                match (endpoint.ready || service.publish_not_ready, endpoint.serving && endpoint.terminating)
                {
                    (true, _) if !endpoint.terminating || service.publish_not_ready => MemberState::Ready,
                    (_, true) => MemberState::Draining,
                    _ => {
                        found.members.not_ready = found.members.not_ready.saturating_add(1);
                        continue;
                    }
                };
            if hints.as_ref().is_some_and(|hints| !hints.allow(endpoint)) {
                found.members.elsewhere = found.members.elsewhere.saturating_add(1);
                continue;
            }
            if service.local_only
                && !by_nodes
                && host.is_some()
                && endpoint.node.is_some()
                && endpoint.node.as_ref() != host
            {
                found.members.elsewhere = found.members.elsewhere.saturating_add(1);
                continue;
            }
            let listed =
                EndpointMembers { weight, state, backup: endpoint.backup, name: endpoint.name.clone() };
            match &endpoint.at {
                EndpointAddress::Ip(ip) => {
                    let at = SocketAddr::new(*ip, number);
                    if slice.object.kind == Kind::Service && found.by_address.contains_key(&at) {
                        found.members.twice.insert(at);
                    }
                    found.put(listed.at(at, None, endpoint.node.clone()));
                }
                EndpointAddress::Name(name) => found.name(index, name, number, listed),
            }
        }
    }
    let in_cluster = index.nodes().next().is_some();
    found.members.by_hand = !in_cluster;
    found.members.awaited = found.members.slices == 0 && in_cluster && !service.selector.is_empty();
    let every = from == MemberSource::EveryNode;
    if by_nodes && !every {
        // kube-proxy leads from a node port to all of them: one that may not be a member would be one all the same.
        found.leave_out_own(index, service, port);
        if !found.members.barred.is_empty() {
            found.by_address.clear();
        }
    }
    if by_nodes && (every || !found.by_address.is_empty()) {
        found.stand_in(index, service, port, every, order);
    }
    // A cloud leads to Nodes past our own data plane.
    if !every {
        found.leave_out_own(index, service, port);
    }
    let on_nodes = found.by_address.values().all(|it| it.node.is_some());
    found.members.vouched = in_cluster && !by_nodes && !service.publish_not_ready && on_nodes;
    found.finish(index, service)
}

/// Topology hints that hold here, as kube-proxy reads them: only if everybody who is ready has one, and somebody is meant
/// for us.
enum TopologyHint {
    Node(Name),
    Zone(Name),
}

impl TopologyHint {
    fn of(index: &Index, service: &Service, host: &Name) -> Option<TopologyHint> {
        let node = index.node(host)?;
        let key = ServiceKey::new(service.meta.namespace.clone(), service.meta.name.clone());
        let ready: Vec<&Endpoint> = (index.endpoints(&key).flat_map(|slice| &slice.endpoints))
            .filter(|it| it.ready || service.publish_not_ready)
            .collect();
        let hold = |of: fn(&Endpoint) -> &[Name], here: &Name| {
            ready.iter().all(|it| !of(it).is_empty()) && ready.iter().any(|it| of(it).contains(here))
        };
        if hold(|it| &it.for_nodes, host) {
            return Some(TopologyHint::Node(host.clone()));
        }
        zone(node).filter(|zone| hold(|it| &it.for_zones, zone)).cloned().map(TopologyHint::Zone)
    }

    fn allow(&self, endpoint: &Endpoint) -> bool {
        match self {
            TopologyHint::Node(here) => endpoint.for_nodes.contains(here),
            TopologyHint::Zone(here) => endpoint.for_zones.contains(here),
        }
    }
}

/// The number that a Service's port has in a slice: by the port's name, as controllers write slices; else, for
/// slices that people write, by the name or the number of the target port.
pub(crate) fn port_of(ports: &[EndpointPort], port: &ServicePort) -> Option<u16> {
    let alike = |it: &&EndpointPort| it.protocol == port.protocol;
    let by_name = |name: &Name| ports.iter().filter(alike).find(|it| it.name == *name);
    let number = |it: &EndpointPort| match (it.port, &port.target) {
        (Some(number), _) => Some(number),
        (None, TargetPort::Number(number)) => Some(*number),
        (None, TargetPort::Name(_)) => None,
    };
    if let Some(found) = by_name(&port.name).and_then(number) {
        return Some(found);
    }
    match &port.target {
        TargetPort::Name(name) => by_name(name).and_then(number),
        TargetPort::Number(target) => {
            ports.iter().filter(alike).find(|it| it.port.is_none_or(|it| it == *target)).map(|_| *target)
        }
    }
}

/// Whether endpoints with these ports have that one of a Service.
pub(crate) fn has_port(ports: &[EndpointPort], port: &ServicePort) -> bool {
    port_of(ports, port).is_some()
}

/// A number from 0 to [`HEAVIEST`]; of one above it, that.
fn weight(text: &str) -> Result<u32, u32> {
    match text.parse::<u64>() {
        Ok(number) => u32::try_from(number).ok().filter(|it| *it <= HEAVIEST).ok_or(HEAVIEST),
        Err(_) => Err(1),
    }
}

/// What an endpoint says of the members that it stands for.
#[derive(Clone)]
struct EndpointMembers {
    weight: u32,
    state: MemberState,
    backup: bool,
    name: Option<Name>,
}

impl EndpointMembers {
    fn at(self, at: SocketAddr, host_name: Option<Name>, node: Option<Name>) -> Member {
        let EndpointMembers { weight, state, backup, name } = self;
        Member { at, host_name, node, weight, state, backup, name }
    }
}

#[derive(Default)]
struct MemberCollector {
    by_address: BTreeMap<SocketAddr, Member>,
    members: Members,
}

impl MemberCollector {
    /// What each endpoint of the slice counts for.
    fn weight_of(&mut self, slice: &Endpoints) -> u32 {
        let unknown = slice.annotations.keys().filter(|it| it.starts_with(OURS) && *it.as_str() != *WEIGHT);
        let unknown = unknown.map(|it| (slice.object.name.clone(), it.clone()));
        // What Endpoints have was written for their Service, as old tools do.
        let is_slice = slice.object.kind == Kind::EndpointSlice;
        self.members.unknown_annotations.extend(unknown.filter(|_| is_slice));
        let Some(text) = slice.annotations.get(WEIGHT) else { return 1 };
        weight(text).unwrap_or_else(|instead| {
            self.members.bad_weights.push((slice.object.name.clone(), text.as_str().into()));
            instead
        })
    }

    fn name(&mut self, index: &Index, name: &Name, port: u16, listed: EndpointMembers) {
        if !index.own.rules().names {
            self.members.barred_names.insert(name.clone());
            return;
        }
        self.members.names.insert(name.clone());
        match index.answer(name) {
            Some(answer) if !answer.addresses.is_empty() => {
                for ip in &answer.addresses {
                    self.put(listed.clone().at(SocketAddr::new(*ip, port), Some(name.clone()), None));
                }
            }
            _ => {
                self.members.unresolved.insert(name.clone());
            }
        }
    }

    /// Nodes instead of endpoints, at the node port: with `externalTrafficPolicy: Local` only those that have some, by
    /// how many they have. A Node that is cordoned or not ready gets nothing new while others are there.
    fn stand_in(
        &mut self,
        index: &Index,
        service: &Service,
        port: &ServicePort,
        alike_all: bool,
        order: &[IpNet],
    ) {
        self.members.by_nodes = true;
        let pods = std::mem::take(&mut self.by_address);
        let Some(node_port) = port.node_port else {
            self.members.no_node_port = true;
            return;
        };
        let family = service.families.first.unwrap_or(Family::V4);
        let second = service.families.second.filter(|_| alike_all);
        let second = second.filter(|_| service.families.policy != FamilyPolicy::Single);
        for node in index.nodes().filter(|node| !is_excluded(node)) {
            let of = |family: Family| address(node, family, order);
            // Our own hosts reach whatever there is; a load balancer of a cloud has no way from one family to another.
            let any = node.addresses.first().filter(|_| !alike_all);
            let its: Vec<&IpAddr> = [of(family).or(any), second.and_then(of)].into_iter().flatten().collect();
            let name = &node.meta.name;
            let here = pods.values().filter(|it| it.node.as_ref() == Some(name)).count();
            let weight = match service.local_only {
                // Who asks them all hears of it first; who asks nobody leaves it out.
                true if here == 0 && alike_all => 0,
                true if here == 0 => continue,
                true if !alike_all => u32::try_from(here).unwrap_or(u32::MAX),
                _ => 1,
            };
            let well = !node.leaving && (alike_all || node.ready && !node.unschedulable);
            let state = if well { MemberState::Ready } else { MemberState::Draining };
            let others = node.addresses.iter().filter(|ip| {
                let is_alike = |it: &&IpAddr| {
                    Family::of(**it) == Family::of(**ip)
                        && node.external.contains(it) == node.external.contains(ip)
                };
                alike_all && !its.contains(ip) && its.iter().any(is_alike)
            });
            let other = |ip: &IpAddr| Member {
                at: SocketAddr::new(*ip, node_port),
                host_name: None,
                node: Some(name.clone()),
                weight,
                state,
                backup: false,
                name: None,
            };
            self.members.elsewhere_addressed.extend(others.map(other));
            for ip in its {
                self.put(other(ip));
            }
        }
    }

    /// Listed twice (a slice that is being replaced), an address is ready if either says so, and no backup if either says not.
    fn put(&mut self, member: Member) {
        let kept = self.by_address.entry(member.at).or_insert_with(|| member.clone());
        if (member.state, member.backup) < (kept.state, kept.backup) {
            *kept = member;
        }
    }

    /// A member that is a listener of our own would make a loop, and one that is a machine would open it. Whoever names it,
    /// this is where it ends.
    fn leave_out_own(&mut self, index: &Index, service: &Service, port: &ServicePort) {
        let Members { refused, barred, at_nodes, .. } = &mut self.members;
        self.by_address.retain(|at, member| {
            if let Some(why) = index.own.forbidden_reason(member) {
                barred.push(ForbiddenMember { at: *at, why, named_by: named_by(index, service, member) });
                return false;
            }
            let Some(listening) = index.own.whose(*at, port.protocol) else {
                *at_nodes |= index.own.is_guarded_node(at.ip());
                return true;
            };
            let named_by = named_by(index, service, member);
            refused.push(RefusedMember { at: *at, listening, named_by });
            false
        });
    }

    /// What an operator says of a member while it runs comes last.
    fn finish(mut self, index: &Index, service: &Service) -> Members {
        for member in self.by_address.values_mut() {
            if let Some(weight) = index.weights.of(&service.meta.namespace, &service.meta.name, member.at) {
                member.weight = weight;
            }
        }
        self.members.list = self.by_address.into_values().collect();
        self.members
    }
}

/// An address of its own before one of the outside; among those, as `order` says.
fn address<'n>(node: &'n Node, family: Family, order: &[IpNet]) -> Option<&'n IpAddr> {
    let rank = |ip: &IpAddr| order.iter().position(|net| net.contains(ip)).unwrap_or(order.len());
    let its = node.addresses.iter().filter(|ip| Family::of(**ip) == family);
    its.min_by_key(|ip| (node.external.contains(ip), rank(ip)))
}

/// Where a member comes from, for people.
fn named_by(index: &Index, service: &Service, member: &Member) -> String {
    if let Some(name) = &member.host_name {
        return format!("the name {name}");
    }
    let key = ServiceKey::new(service.meta.namespace.clone(), service.meta.name.clone());
    let lists = |it: &Endpoint| it.at == EndpointAddress::Ip(member.at.ip());
    match index.endpoints(&key).find(|slice| slice.endpoints.iter().any(lists)) {
        Some(slice) => slice.object.to_string(),
        // One that stands in.
        None => format!("Node {}", member.node.as_deref().unwrap_or("?")),
    }
}

/// The protocols that a pool of our own data plane can serve.
pub(crate) fn is_served(l4: L4) -> bool {
    matches!(l4, L4::Tcp | L4::Udp)
}
