//! Where Nodes are plugged into networks: the port of a Node's server that has its address.
//!
//! Names of machines and Nodes are alike by accident only, so nobody looks at them.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
};

use seaway_model::{Name, group::CloudNode};
use seaway_openstack::{
    Cloud, Error,
    neutron::{Network, Port},
    nova::Server,
    resource::{Id, Query},
};

/// Where one Node is plugged in.
#[derive(Clone, Debug, PartialEq)]
pub enum NodeNeutronPort {
    At(Id<Port>),
    /// Neutron filters nothing there.
    Open(Id<Port>),
    /// In this cloud, it seems, and no port has its address.
    Nowhere,
    /// Somebody else's machine, of which this cloud knows nothing.
    Elsewhere,
    /// Several ports have its address, on networks that nobody here knows.
    Several,
}

/// What a Node says of its machine.
#[derive(Debug, PartialEq)]
enum NodeServerRef {
    Server(Id<Server>),
    /// Of another cloud, or of another region.
    Foreign,
    Unsaid,
}

/// What is asked for at once: an address has so many letters, and servers refuse long ones.
const AT_ONCE: usize = 40;

/// Where these are, with all that was read of the ports. `known`: networks that members are on.
pub(in crate::octavia) async fn find_neutron_ports(
    cloud: &Cloud,
    nodes: &[&CloudNode],
    known: &BTreeSet<Id<Network>>,
) -> Result<(BTreeMap<CloudNode, NodeNeutronPort>, Vec<Port>), Error> {
    let session = cloud.session();
    let machines: Vec<NodeServerRef> =
        nodes.iter().map(|it| machine(it.provider_id.as_deref(), session.region())).collect();
    let servers: Vec<&Id<Server>> = (machines.iter())
        .filter_map(|it| match it {
            NodeServerRef::Server(id) => Some(id),
            _ => None,
        })
        .collect();
    let mut ports = Vec::new();
    for some in servers.chunks(AT_ONCE) {
        let query = some.iter().fold(Query::all(), |query, id| query.with("device_id", id));
        ports.extend(cloud.all::<Port>().list::<Port>(query).await?);
    }
    let mut found = BTreeMap::new();
    let mut left = Vec::new();
    for (node, machine) in nodes.iter().zip(&machines) {
        let its = |it: &&Port| {
            matches!(machine, NodeServerRef::Server(id) if it.device_id == id.as_str())
                && has(it, &node.addresses)
        };
        match ports.iter().find(its) {
            Some(port) => {
                found.insert((*node).clone(), plug(port));
            }
            None => left.push((*node, machine)),
        }
    }
    let mut networks = known.clone();
    networks.extend(ports.iter().filter(|it| is_at(&found, it)).map(|it| it.network_id.clone()));
    let addresses: Vec<IpAddr> = left.iter().flat_map(|(node, _)| node.addresses.iter().copied()).collect();
    let mut others: Vec<Port> = Vec::new();
    for some in addresses.chunks(AT_ONCE) {
        let query =
            some.iter().fold(Query::all(), |query, ip| query.with("fixed_ips", format!("ip_address={ip}")));
        others.extend(cloud.all::<Port>().list::<Port>(query).await?);
    }
    others.retain(is_a_machines);
    for (node, machine) in left {
        let mut there: Vec<&Port> = others.iter().filter(|it| has(it, &node.addresses)).collect();
        if !networks.is_empty() {
            there.retain(|it| networks.contains(&it.network_id));
        }
        let is = match (&there[..], machine) {
            ([port], _) => plug(port),
            ([], NodeServerRef::Foreign) => NodeNeutronPort::Elsewhere,
            ([], _) => NodeNeutronPort::Nowhere,
            (_, NodeServerRef::Foreign) => NodeNeutronPort::Elsewhere,
            _ => NodeNeutronPort::Several,
        };
        found.insert(node.clone(), is);
    }
    ports.extend(others);
    Ok((found, ports))
}

fn is_at(found: &BTreeMap<CloudNode, NodeNeutronPort>, port: &Port) -> bool {
    found
        .values()
        .any(|it| matches!(it, NodeNeutronPort::At(id) | NodeNeutronPort::Open(id) if *id == port.id))
}

fn plug(port: &Port) -> NodeNeutronPort {
    match port.port_security_enabled {
        Some(false) => NodeNeutronPort::Open(port.id.clone()),
        _ => NodeNeutronPort::At(port.id.clone()),
    }
}

pub(super) fn has(port: &Port, addresses: &[IpAddr]) -> bool {
    port.fixed_ips.iter().filter_map(|it| it.ip_address).any(|ip| addresses.contains(&ip))
}

/// Not a router's, nor a load balancer's.
fn is_a_machines(port: &Port) -> bool {
    !port.device_owner.starts_with("network:") && !port.device_owner.eq_ignore_ascii_case("octavia")
}

/// `openstack:///ID`, or `openstack://REGION/ID`.
fn machine(provider_id: Option<&str>, region: Option<&str>) -> NodeServerRef {
    let Some(text) = provider_id.filter(|it| !it.is_empty()) else { return NodeServerRef::Unsaid };
    let Some((there, id)) = text.strip_prefix("openstack://").and_then(|it| it.split_once('/')) else {
        return NodeServerRef::Foreign;
    };
    match id.parse() {
        Ok(id) if there.is_empty() || region.is_none_or(|it| it == there) => NodeServerRef::Server(id),
        _ => NodeServerRef::Foreign,
    }
}

/// For Problems: not more names than anybody reads.
pub(in crate::octavia) fn named(nodes: &[&Name]) -> String {
    const MOST: usize = 5;
    let mut text: String = nodes.iter().take(MOST).map(|it| it.as_str()).collect::<Vec<_>>().join(", ");
    if nodes.len() > MOST {
        text.push_str(&format!(" and {} more", nodes.len().saturating_sub(MOST)));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_machine_is_known_by_its_provider_id_in_either_form() {
        let server = |id: &str| NodeServerRef::Server(id.parse().expect("an id"));
        for (text, region, expected) in [
            (Some("openstack:///1a2b"), None, server("1a2b")),
            (Some("openstack:///1a2b"), Some("one"), server("1a2b")),
            (Some("openstack://one/1a2b"), Some("one"), server("1a2b")),
            (Some("openstack://one/1a2b"), None, server("1a2b")),
            (Some("openstack://two/1a2b"), Some("one"), NodeServerRef::Foreign),
            (Some("aws:///eu-1/i-1"), None, NodeServerRef::Foreign),
            (Some("openstack:///"), None, NodeServerRef::Foreign),
            (Some("k3s://one"), None, NodeServerRef::Foreign),
            (Some(""), None, NodeServerRef::Unsaid),
            (None, None, NodeServerRef::Unsaid),
        ] {
            assert_eq!(machine(text, region), expected, "{text:?}");
        }
    }

    #[test]
    fn no_more_nodes_are_named_than_anybody_reads() {
        let names: Vec<Name> = (0..7).map(|it| format!("n{it}").into()).collect();
        let names: Vec<&Name> = names.iter().collect();
        assert_eq!(named(&names[..2]), "n0, n1");
        assert_eq!(named(&names), "n0, n1, n2, n3, n4 and 2 more");
    }
}
