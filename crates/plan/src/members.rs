//! Who stands behind a port of a Service: slices, subsets, names outside, joined into members.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::{IpAddr, SocketAddr},
};

use seaway_model::{
    L4, Member, Name,
    fact::{EndpointAddress, EndpointPort, Endpoints, Service, ServiceKind, ServicePort, TargetPort},
    load_balancer::MemberState,
};

use crate::index::{Index, ServiceKey};

/// On an EndpointSlice: what each of its endpoints counts for.
pub(crate) const WEIGHT: &str = "seaway.dev/weight";

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
    pub(crate) not_ready: usize,
    /// Left out since they are not on this host (`externalTrafficPolicy: Local`).
    pub(crate) elsewhere: usize,
}

/// Everybody behind `port` of `service`, as the serving host `host` sees it.
pub(crate) fn members(index: &Index, service: &Service, port: &ServicePort, host: Option<&Name>) -> Members {
    let mut found = Found::default();
    if let ServiceKind::ExternalName(name) = &service.kind {
        if let TargetPort::Number(number) = port.target {
            found.name(index, name, number, 1, MemberState::Ready);
        }
        return found.finish();
    }
    let key = ServiceKey::new(service.meta.namespace.clone(), service.meta.name.clone());
    for slice in index.endpoints(&key) {
        found.members.slices += 1;
        let Some(number) = port_of(slice, port) else {
            found.members.portless.push((slice.object.name.clone(), slice.ports.clone()));
            continue;
        };
        let weight = slice.annotations.get(WEIGHT).and_then(|text| text.parse().ok()).unwrap_or(1);
        for endpoint in &slice.endpoints {
            let state =
                match (endpoint.ready || service.publish_not_ready, endpoint.serving && endpoint.terminating)
                {
                    (true, _) if !endpoint.terminating || service.publish_not_ready => MemberState::Ready,
                    (_, true) => MemberState::Draining,
                    _ => {
                        found.members.not_ready += 1;
                        continue;
                    }
                };
            if service.local_only
                && host.is_some()
                && endpoint.node.is_some()
                && endpoint.node.as_ref() != host
            {
                found.members.elsewhere += 1;
                continue;
            }
            match &endpoint.at {
                EndpointAddress::Ip(ip) => found.put(*ip, number, None, endpoint.node.clone(), weight, state),
                EndpointAddress::Name(name) => found.name(index, name, number, weight, state),
            }
        }
    }
    found.finish()
}

/// The number that a Service's port has in a slice: by the port's name, as controllers write slices; else, for
/// slices that people write, by the name or the number of the target port.
fn port_of(slice: &Endpoints, port: &ServicePort) -> Option<u16> {
    let alike = |it: &&EndpointPort| it.protocol == port.protocol;
    let by_name = |name: &Name| slice.ports.iter().filter(alike).find(|it| it.name == *name);
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
        TargetPort::Number(target) => slice
            .ports
            .iter()
            .filter(alike)
            .find(|it| it.port.is_none_or(|it| it == *target))
            .map(|_| *target),
    }
}

#[derive(Default)]
struct Found {
    by_address: BTreeMap<SocketAddr, Member>,
    members: Members,
}

impl Found {
    fn name(&mut self, index: &Index, name: &Name, port: u16, weight: u32, state: MemberState) {
        self.members.names.insert(name.clone());
        match index.answer(name) {
            Some(answer) if !answer.addresses.is_empty() => {
                for ip in &answer.addresses {
                    self.put(*ip, port, Some(name.clone()), None, weight, state);
                }
            }
            _ => {
                self.members.unresolved.insert(name.clone());
            }
        }
    }

    /// Listed twice (a slice that is being replaced), an address is ready if either says so.
    fn put(
        &mut self,
        ip: IpAddr,
        port: u16,
        host_name: Option<Name>,
        node: Option<Name>,
        weight: u32,
        state: MemberState,
    ) {
        let at = SocketAddr::new(ip, port);
        let member = Member { at, host_name, node, weight, state };
        let kept = self.by_address.entry(at).or_insert_with(|| member.clone());
        if member.state < kept.state {
            *kept = member;
        }
    }

    fn finish(mut self) -> Members {
        self.members.list = self.by_address.into_values().collect();
        self.members
    }
}

/// The protocols that a pool of our own data plane can serve.
pub(crate) fn is_served(l4: L4) -> bool {
    matches!(l4, L4::Tcp | L4::Udp)
}
