//! Which packets Nodes are to let in. Pure.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
};

use ipnet::IpNet;
use seaway_model::{
    L4, Name, NodeSecurityGroup, Owner,
    group::{NodeAccess, SourceNetwork},
    load_balancer::Family,
};
use seaway_openstack::neutron::{Direction, EtherType, SecurityGroupRule};

/// One port of one transport, and from where.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Rule {
    pub l4: L4,
    pub port: u16,
    pub from: IpNet,
}

/// Networks that load balancers reach members from, or why nobody knows.
pub type Places = BTreeMap<SourceNetwork, Result<Vec<IpNet>, String>>;

/// Providers that leave clients their addresses: a Node sees those, and not the load balancer's.
const TRANSPARENT: [&str; 1] = ["ovn"];

/// Each rule with those who need it.
/// `beside`: from where load balancers that are there reach Nodes, beside from where they would if they were made now.
pub fn rules(
    group: &NodeSecurityGroup,
    places: &Places,
    beside: &BTreeMap<Owner, BTreeSet<SourceNetwork>>,
) -> BTreeMap<Rule, BTreeSet<Owner>> {
    let mut rules: BTreeMap<Rule, BTreeSet<Owner>> = BTreeMap::new();
    for (owner, openings) in group.openings.iter().filter(|(_, it)| !it.frozen) {
        let place = |from: &SourceNetwork| {
            places.get(from).and_then(|it| it.as_ref().ok()).cloned().unwrap_or_default()
        };
        let beside: Vec<IpNet> = beside.get(owner).into_iter().flatten().flat_map(place).collect();
        for rule in of(openings, &place(&openings.from), &beside) {
            rules.entry(rule).or_default().insert(owner.clone());
        }
    }
    rules
}

/// Ports whose rules stay as they are.
pub fn frozen(group: &NodeSecurityGroup) -> BTreeSet<(L4, u16)> {
    group.openings.values().filter(|it| it.frozen).flat_map(|it| node_ports(it)).collect()
}

pub(super) fn node_ports(openings: &NodeAccess) -> impl Iterator<Item = (L4, u16)> + '_ {
    let health = openings.health.map(|port| (L4::Tcp, port));
    openings.ports.iter().copied().chain(health)
}

fn of(openings: &NodeAccess, place: &[IpNet], beside: &[IpNet]) -> Vec<Rule> {
    let transparent = is_transparent(openings.provider.as_ref());
    // Who takes connections itself reaches members by one family.
    let families: Vec<Family> =
        openings.families.iter().copied().take(if transparent { usize::MAX } else { 1 }).collect();
    let of_family = |it: &&IpNet| families.contains(&family(it));
    let balancers: Vec<IpNet> = place.iter().filter(of_family).chain(beside).copied().collect();
    let clients: Vec<IpNet> = match openings.sources.is_empty() {
        true => families.iter().map(|it| everybody(*it)).collect(),
        false => IpNet::aggregate(&openings.sources).iter().filter(of_family).copied().collect(),
    };
    let to = |l4: L4, port: u16, from: &[IpNet]| -> Vec<Rule> {
        from.iter().map(|from| Rule { l4, port, from: *from }).collect()
    };
    let unknown = |it: &&IpNet| !clients.iter().any(|client| client.contains(*it));
    let probes: Vec<IpNet> = balancers.iter().filter(unknown).copied().collect();
    let mut rules = Vec::new();
    for (l4, port) in &openings.ports {
        rules.extend(to(*l4, *port, if transparent { &clients } else { &balancers }));
        if transparent && openings.probed {
            rules.extend(to(*l4, *port, &probes));
        }
    }
    // Who leaves clients their addresses asks nobody by HTTP.
    if let (Some(health), false) = (openings.health, transparent) {
        rules.extend(to(L4::Tcp, health, &balancers));
    }
    rules
}

pub fn is_transparent(provider: Option<&Name>) -> bool {
    provider.is_some_and(|it| TRANSPARENT.contains(&it.as_str()))
}

pub(super) fn family(it: &IpNet) -> Family {
    Family::of(it.addr())
}

fn everybody(family: Family) -> IpNet {
    match family {
        Family::V4 => IpNet::V4(ipnet::Ipv4Net::default()),
        Family::V6 => IpNet::V6(ipnet::Ipv6Net::default()),
    }
}

impl Rule {
    /// What a rule lets in, if it is of this shape, whoever made it.
    pub fn of(it: &SecurityGroupRule) -> Option<Rule> {
        let l4 = match it.protocol.as_deref()? {
            "tcp" | "6" => L4::Tcp,
            "udp" | "17" => L4::Udp,
            "sctp" | "132" => L4::Sctp,
            _ => return None,
        };
        let port = it.port_range_min.filter(|_| it.port_range_min == it.port_range_max)?;
        let from = match (it.remote_ip_prefix.as_deref(), &it.ethertype) {
            (Some(text), _) => text.parse().ok()?,
            (None, EtherType::V4) => everybody(Family::V4),
            (None, EtherType::V6) => everybody(Family::V6),
            _ => return None,
        };
        let is_plain = it.direction == Direction::Ingress && it.remote_group_id.is_none();
        is_plain.then_some(Rule { l4, port, from })
    }

    pub fn protocol(&self) -> &'static str {
        match self.l4 {
            L4::Tcp => "tcp",
            L4::Udp => "udp",
            L4::Sctp => "sctp",
        }
    }

    pub fn ethertype(&self) -> EtherType {
        match family(&self.from) {
            Family::V4 => EtherType::V4,
            Family::V6 => EtherType::V6,
        }
    }

    /// Neutron tells "everybody" in two ways, and takes the two for the same.
    pub fn prefix(&self) -> Option<String> {
        (self.from.prefix_len() > 0).then(|| self.from.to_string())
    }
}

impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{} from {}", self.port, self.l4, self.from)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    fn openings(provider: &str, sources: &[&str]) -> NodeAccess {
        NodeAccess {
            ports: vec![(L4::Tcp, 30_080), (L4::Udp, 30_053)],
            families: vec![Family::V4],
            sources: sources.iter().map(|it| it.parse().expect("a network")).collect(),
            provider: Some(provider.into()),
            from: SourceNetwork::Subnet("members".into()),
            ..NodeAccess::default()
        }
    }

    fn told(openings: NodeAccess) -> Vec<String> {
        let places =
            [(SourceNetwork::Subnet("members".into()), Ok(vec!["10.0.0.0/24".parse().expect("a network")]))]
                .into();
        let group = NodeSecurityGroup {
            openings: [(Owner::Config("it".into()), Arc::new(openings))].into(),
            ..NodeSecurityGroup::default()
        };
        rules(&group, &places, &BTreeMap::new()).into_keys().map(|it| it.to_string()).collect()
    }

    #[test]
    fn nodes_let_in_whom_they_see_and_nobody_else() {
        let local = |provider| NodeAccess { health: Some(31_000), probed: true, ..openings(provider, &[]) };
        assert_eq!(
            told(openings("amphora", &["192.0.2.0/24"])),
            ["30080/TCP from 10.0.0.0/24", "30053/UDP from 10.0.0.0/24"]
        );
        assert_eq!(
            told(local("amphora")),
            ["30080/TCP from 10.0.0.0/24", "31000/TCP from 10.0.0.0/24", "30053/UDP from 10.0.0.0/24"]
        );
        assert_eq!(told(local("ovn")), ["30080/TCP from 0.0.0.0/0", "30053/UDP from 0.0.0.0/0"]);
        assert_eq!(
            told(openings("ovn", &["192.0.2.0/25", "192.0.2.128/25", "fd00::/8"])),
            ["30080/TCP from 192.0.2.0/24", "30053/UDP from 192.0.2.0/24"]
        );
        let probed = NodeAccess { probed: true, ..openings("ovn", &["192.0.2.0/24"]) };
        assert_eq!(told(probed).len(), 4, "who probes comes from beside the members");
    }

    #[test]
    fn who_lets_in_everybody_says_so_as_neutron_does() {
        let rule = Rule { l4: L4::Tcp, port: 1, from: everybody(Family::V6) };
        assert_eq!((rule.prefix(), rule.ethertype()), (None, EtherType::V6));
    }
}
