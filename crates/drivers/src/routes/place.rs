//! Where the pods of each Node are: the address of the Node that a router reaches, and the port that has it. Pure.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    net::IpAddr,
};

use ipnet::IpNet;
use seaway_cluster::NodeObject;
use seaway_model::{Problem, Reason};
use seaway_openstack::{
    neutron::{RoutedPort, Router, Subnet},
    resource::Id,
};

use super::plan::{RouteRules, RouterView};
use crate::nodes::ProviderMatch;

const INTERNAL: &str = "InternalIP";

/// A pod network of a Node, and how it is reached.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PodRoute {
    /// Its position in the list of Nodes.
    pub node: usize,
    pub destination: IpNet,
    pub nexthop: IpAddr,
    /// The position of the port with this address.
    pub port: usize,
}

#[derive(Debug, Default)]
pub(super) struct PodRoutes {
    pub(super) wanted: Vec<PodRoute>,
    pub(super) networks: BTreeMap<usize, BTreeSet<IpNet>>,
    pub(super) problems: Vec<Problem>,
}

impl PodRoute {
    /// Without port security, a port lets everything through.
    pub(super) fn needs_pair(&self, port: &RoutedPort, rules: &RouteRules) -> bool {
        rules.pairs && port.port_security_enabled != Some(false)
    }
}

/// An address is a network of its own. Bits behind the prefix do not count.
pub(super) fn network(text: &str) -> Option<IpNet> {
    let net = text.parse::<IpNet>().ok().or_else(|| text.parse::<IpAddr>().ok().map(IpNet::from))?;
    Some(net.trunc())
}

/// Whether the port lets through what has an address of this network.
pub(super) fn covers(port: &RoutedPort, net: IpNet) -> bool {
    port.allowed_address_pairs.iter().any(|pair| {
        let is_its = pair.mac_address.is_none() || pair.mac_address == port.mac_address;
        is_its && network(&pair.ip_address).is_some_and(|it| it.contains(&net))
    })
}

/// The ports by which a router is in its subnets.
pub(super) fn interfaces<'p>(
    router: &Router,
    ports: &'p [RoutedPort],
) -> impl Iterator<Item = &'p RoutedPort> {
    let id = router.id.to_string();
    ports.iter().filter(move |it| {
        it.device_id == id && it.device_owner.starts_with("network:") && it.device_owner.contains("interface")
    })
}

pub(super) fn destinations(seen: RouterView<'_>, rules: &RouteRules) -> PodRoutes {
    let mut all = PodRoutes::default();
    let subnets: BTreeSet<&Id<Subnet>> = interfaces(seen.router, seen.ports)
        .flat_map(|it| &it.fixed_ips)
        .filter_map(|it| it.subnet_id.as_ref())
        .collect();
    let gateways: BTreeSet<IpAddr> = interfaces(seen.router, seen.ports)
        .flat_map(|it| &it.fixed_ips)
        .filter_map(|it| it.ip_address)
        .collect();
    let taken: BTreeSet<(IpAddr, &str)> = seen
        .ports
        .iter()
        .flat_map(|port| port.fixed_ips.iter().filter_map(|it| Some((it.ip_address?, &*port.device_id))))
        .collect();
    let others = ReservedAddresses { gateways, subnets: seen.subnets, taken };
    let mut by_server: HashMap<&str, Vec<usize>> = HashMap::new();
    for (at, port) in seen.ports.iter().enumerate().filter(|(_, it)| !it.device_id.is_empty()) {
        by_server.entry(&port.device_id).or_default().push(at);
    }
    for (at, node) in seen.nodes.iter().enumerate() {
        let ProviderMatch::Ours(server) = ProviderMatch::of(node, rules.region.as_deref()) else { continue };
        let networks = networks(node, rules, &mut all.problems);
        if networks.is_empty() || node.is_deleting {
            continue;
        }
        let ports = by_server.get(&*server).map(Vec::as_slice).unwrap_or_default();
        for destination in &networks {
            let place = hop(node, *destination, ports, seen.ports, &subnets);
            match place {
                Some((nexthop, port)) => match others.unfit(*destination, nexthop, &server) {
                    None => all.wanted.push(PodRoute { node: at, destination: *destination, nexthop, port }),
                    Some(why) => all.problems.push(missing(node, *destination, &why)),
                },
                None => all.problems.push(nowhere(node, *destination, &server, seen.router)),
            }
        }
        all.networks.insert(at, networks);
    }
    without_overlaps(&mut all, seen.nodes);
    all
}

fn networks(node: &NodeObject, rules: &RouteRules, problems: &mut Vec<Problem>) -> BTreeSet<IpNet> {
    if let Some(by_hand) = rules.pod_cidrs.get(&node.name) {
        return by_hand.iter().map(IpNet::trunc).collect();
    }
    let mut all = BTreeSet::new();
    for text in &node.pod_cidrs {
        match network(text) {
            Some(net) => {
                all.insert(net);
            }
            None => {
                let message =
                    format!("spec.podCIDR {text:?} of the Node is not a network, so the Node gets no route");
                problems.push(Problem::new(node.object(), Reason::RouteMissing, message));
            }
        }
    }
    all
}

/// The first InternalIP of the family that a port of the server has in a subnet of the router.
fn hop(
    node: &NodeObject,
    destination: IpNet,
    ports: &[usize],
    all: &[RoutedPort],
    subnets: &BTreeSet<&Id<Subnet>>,
) -> Option<(IpAddr, usize)> {
    let addresses = node.addresses.iter().filter(|it| it.kind == INTERNAL);
    let mut addresses = addresses.filter_map(|it| it.address.parse::<IpAddr>().ok());
    addresses.find_map(|ip| {
        let is_its = |it: &&usize| {
            let mut fixed = all.get(**it).into_iter().flat_map(|port| &port.fixed_ips);
            fixed.any(|it| {
                it.ip_address == Some(ip) && it.subnet_id.as_ref().is_some_and(|it| subnets.contains(it))
            })
        };
        let is_of_family = ip.is_ipv4() == destination.addr().is_ipv4();
        let port = ports.iter().find(is_its).filter(|_| is_of_family)?;
        Some((ip, *port))
    })
}

/// Addresses that are not for pods.
struct ReservedAddresses<'a> {
    gateways: BTreeSet<IpAddr>,
    subnets: &'a [IpNet],
    /// With the server, or router, that has it.
    taken: BTreeSet<(IpAddr, &'a str)>,
}

impl ReservedAddresses<'_> {
    /// Why a network would take traffic that is not for pods.
    fn unfit(&self, destination: IpNet, nexthop: IpAddr, server: &str) -> Option<String> {
        if destination.prefix_len() == 0 {
            return Some("the network contains all addresses".to_owned());
        }
        if destination.contains(&nexthop) {
            return Some(format!("the address {nexthop} of the Node is in it"));
        }
        if let Some(gateway) = self.gateways.iter().find(|it| destination.contains(*it)) {
            return Some(format!("the address {gateway} of the router is in it"));
        }
        let overlaps = |it: &&IpNet| it.contains(&destination) || destination.contains(*it);
        if let Some(subnet) = self.subnets.iter().find(overlaps) {
            return Some(format!("the network overlaps with the subnet {subnet} of the router"));
        }
        let mut inside = self.taken.range((destination.network(), "")..);
        let (ip, _) = inside
            .by_ref()
            .take_while(|(ip, _)| destination.contains(ip))
            .find(|(_, device)| *device != server)?;
        Some(format!("the address {ip} of another port is in it"))
    }
}

/// Of two Nodes with the same addresses for pods, none gets another route than it has.
fn without_overlaps(all: &mut PodRoutes, nodes: &[NodeObject]) {
    all.wanted.sort_by_key(|it| (it.destination, it.node));
    let mut wrong: BTreeMap<usize, usize> = BTreeMap::new();
    let mut widest: Option<usize> = None;
    for (at, place) in all.wanted.iter().enumerate() {
        match widest.and_then(|it| Some((it, all.wanted.get(it)?))) {
            Some((before, other)) if other.destination.contains(&place.destination) => {
                if other.node != place.node {
                    wrong.insert(at, before);
                    wrong.entry(before).or_insert(at);
                }
            }
            _ => widest = Some(at),
        }
    }
    for (at, with) in &wrong {
        let (Some(place), Some(other)) = (all.wanted.get(*at), all.wanted.get(*with)) else { continue };
        let (Some(node), Some(with)) = (nodes.get(place.node), nodes.get(other.node)) else { continue };
        let why = format!("the pod network overlaps with {} of Node {}", other.destination, with.name);
        all.problems.push(missing(node, place.destination, &why));
    }
    let mut at = 0_usize;
    all.wanted.retain(|_| {
        let keeps = !wrong.contains_key(&at);
        at = at.saturating_add(1);
        keeps
    });
}

fn missing(node: &NodeObject, destination: IpNet, why: &str) -> Problem {
    let message = format!("the pod network {destination} of the Node gets no route: {why}");
    Problem::new(node.object(), Reason::RouteMissing, message)
        .fix("Correct nodes.podCIDRs of Seaway's configuration, or the range from which Nodes get pod networks (--cluster-cidr).")
}

fn nowhere(node: &NodeObject, destination: IpNet, server: &str, router: &Router) -> Problem {
    let family = if destination.addr().is_ipv4() { "IPv4" } else { "IPv6" };
    let message = format!(
        "the pod network {destination} of the Node gets no route: no port of the server {server} has an {INTERNAL} \
             ({family}) of the Node in a subnet \
         of router {}",
        router.id
    );
    Problem::new(node.object(), Reason::RouteMissing, message)
        .fix("Connect the subnet of the Node to the router (openstack router add subnet), or correct router-id of [Route] in cloud.conf.")
}
