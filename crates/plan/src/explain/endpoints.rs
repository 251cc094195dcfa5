//! Which slices and endpoints of a Service are used, and why others are not.

use std::{fmt::Write, net::SocketAddr, sync::Arc};

use seaway_model::{
    Member, Pool,
    fact::{Endpoint, EndpointAddress, Endpoints, Service},
    load_balancer::MemberState,
};

use crate::{
    annotations::BACKENDS,
    index::ServiceKey,
    members::{has_port, port_of},
    slices::{listed, nearly_of, target},
    world::World,
};

pub(super) fn describe(
    text: &mut String,
    world: &World,
    key: &ServiceKey,
    service: &Service,
    pools: &[Arc<Pool>],
) {
    // Those of the annotation name their ports themselves.
    let (named_here, slices): (Vec<_>, Vec<_>) =
        world.index().endpoints(key).partition(|it| it.object == key.object());
    if !named_here.is_empty() {
        let _ = writeln!(
            text,
            "{}: {} backends",
            BACKENDS,
            named_here.iter().map(|it| it.endpoints.len()).sum::<usize>()
        );
    }
    let all: Vec<&Endpoint> = named_here.iter().chain(&slices).flat_map(|it| &it.endpoints).collect();
    let is_one = |member: &Member| all.iter().any(|it| is_at(it, member));
    // Of Services that lead to Nodes, no endpoint is a member.
    let by_nodes = !all.is_empty()
        && pools.iter().flat_map(|it| &it.members).all(|it| it.node.is_some() && !is_one(it))
        && pools.iter().any(|it| !it.members.is_empty());
    let scene = Scene { world, service, pools, by_nodes };
    for slice in &named_here {
        scene.endpoints(text, slice);
    }
    if named_here.is_empty() || !slices.is_empty() {
        for port in &service.ports {
            let name =
                if port.name.is_empty() { String::new() } else { format!(" {:?}", port.name.as_str()) };
            let target = target(&port.target);
            let _ = writeln!(text, "Port {}/{}{name}: targetPort {target}", port.port, port.protocol);
        }
    }
    for slice in slices {
        scene.slice(text, slice);
    }
    let mut lost: Vec<_> = nearly_of(world, key).collect();
    lost.sort_by_key(|it| (&it.object, it.part));
    for slice in lost {
        let _ = writeln!(
            text,
            "{}: not used: its label kubernetes.io/service-name is {:?}, and there is no such Service",
            slice.object,
            slice.service.as_str()
        );
    }
}

/// Whether a member comes from there.
fn is_at(endpoint: &Endpoint, member: &Member) -> bool {
    match &endpoint.at {
        EndpointAddress::Ip(ip) => member.at.ip() == *ip,
        EndpointAddress::Name(name) => member.host_name.as_ref() == Some(name),
    }
}

struct Scene<'s> {
    world: &'s World,
    service: &'s Service,
    pools: &'s [Arc<Pool>],
    by_nodes: bool,
}

impl Scene<'_> {
    fn slice(&self, text: &mut String, slice: &Endpoints) {
        let ports = &self.service.ports;
        let lacking = ports.iter().filter(|port| !has_port(&slice.ports, port));
        let lacking: Vec<String> = lacking.map(|it| format!("{}/{}", it.port, it.protocol)).collect();
        let is_useless = lacking.len() == ports.len();
        let unused = match lacking.len() {
            _ if self.pools.is_empty() => ", not used: the Service is not served".to_owned(),
            0 if self.by_nodes => ", not used themselves: Nodes are the members".to_owned(),
            0 => String::new(),
            _ if is_useless => {
                format!(", not used: the slice lists no port of this Service, only {}", listed(&slice.ports))
            }
            _ => format!(
                ", not used for {}: the slice lists only {}",
                lacking.join(", "),
                listed(&slice.ports)
            ),
        };
        let _ = writeln!(text, "{}: {} endpoints{unused}", slice.object, slice.endpoints.len());
        if !is_useless {
            self.endpoints(text, slice);
        }
    }

    /// Those that are not used as a rule, or not in the usual way.
    fn endpoints(&self, text: &mut String, slice: &Endpoints) {
        for endpoint in &slice.endpoints {
            let Some(why) = self.condition(endpoint).or_else(|| self.left_out(slice, endpoint)) else {
                continue;
            };
            let at = match &endpoint.at {
                EndpointAddress::Ip(ip) => ip.to_string(),
                EndpointAddress::Name(name) => name.to_string(),
            };
            let _ = writeln!(text, "  {at}  {why}");
        }
    }

    /// What the slice says of it.
    fn condition(&self, endpoint: &Endpoint) -> Option<String> {
        if endpoint.ready && !endpoint.terminating {
            return None;
        }
        let why = match (endpoint.terminating, endpoint.serving) {
            (true, true) => "terminating, still serving: it drains",
            (true, false) => "not used: it is terminating",
            (false, _) if self.service.publish_not_ready => {
                "not ready, used because of publishNotReadyAddresses"
            }
            (false, _) => "not used: it is not ready",
        };
        Some(why.to_owned())
    }

    /// Why one that is ready is no member.
    fn left_out(&self, slice: &Endpoints, endpoint: &Endpoint) -> Option<String> {
        if self.by_nodes || self.pools.is_empty() {
            return None;
        }
        let mut members = self.pools.iter().flat_map(|it| &it.members);
        let ip = match &endpoint.at {
            EndpointAddress::Name(_) if members.any(|it| is_at(endpoint, it)) => return None,
            EndpointAddress::Name(_) => {
                return Some("not used yet: the name has no answer; seaway run resolves it".to_owned());
            }
            EndpointAddress::Ip(ip) => *ip,
        };
        let wanted = self
            .service
            .ports
            .iter()
            .filter_map(|port| Some((SocketAddr::new(ip, port_of(&slice.ports, port)?), port.protocol)));
        let wanted: Vec<_> = wanted.collect();
        if members.any(|it| wanted.iter().any(|(at, _)| it.at == *at)) {
            return None;
        }
        let own = &self.world.index().own;
        let bare = |at: SocketAddr| Member {
            at,
            host_name: None,
            node: endpoint.node.clone(),
            weight: 1,
            state: MemberState::Ready,
            backup: false,
            name: None,
        };
        if wanted.iter().any(|(at, l4)| own.whose(*at, *l4).is_some()) {
            return Some("not used: Seaway itself listens there, which would make a loop".to_owned());
        }
        let barred = wanted.iter().find_map(|(at, _)| own.forbidden_reason(&bare(*at)));
        if let Some(why) = barred {
            let reader = ServiceKey::new(self.service.meta.namespace.clone(), self.service.meta.name.clone());
            return Some(format!("not used: it is {}", why.describe_to(&reader.object())));
        }
        if self.service.local_only && endpoint.node.is_some() {
            return Some(
                "not used here: externalTrafficPolicy is Local, and it is on another Node".to_owned(),
            );
        }
        if !endpoint.for_zones.is_empty() || !endpoint.for_nodes.is_empty() {
            return Some("not used here: its topology hints are for other zones or Nodes".to_owned());
        }
        Some("not used: see the problems below".to_owned())
    }
}
