//! What must become of the routes of a router and of the allowed address pairs of ports, by what is listed. Pure.
//!
//! First candidates, with what has to be asked right before something is removed; then, by the answers, what is written.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
};

use ipnet::IpNet;
use seaway_cluster::{NodeObject, RecordedPair, RecordedRoute, RouteRecord};
use seaway_model::{Name, Problem, Reason};
use seaway_openstack::neutron::{RoutedPort, Router};

use super::{
    about,
    place::{PodRoute, PodRoutes, covers, destinations, network},
};
use crate::nodes::ProviderMatch;

/// What Neutron allows unless its operator says otherwise (`max_routes`, `max_allowed_address_pair`). It has no API that shows them.
const USUAL_ROUTES: usize = 30;
const USUAL_PAIRS: usize = 10;

/// By what is decided.
#[derive(Clone, Debug, Default)]
pub struct RouteRules {
    pub region: Option<String>,
    /// Pod networks by hand, instead of those that the Node has.
    pub pod_cidrs: BTreeMap<Name, Vec<IpNet>>,
    /// Ports of this Neutron have allowed address pairs.
    pub pairs: bool,
    pub max_routes: Option<usize>,
    pub max_pairs: Option<usize>,
}

/// All that was listed.
#[derive(Clone, Copy, Debug)]
pub struct RouterView<'a> {
    pub router: &'a Router,
    pub ports: &'a [RoutedPort],
    pub nodes: &'a [NodeObject],
    pub record: &'a RouteRecord,
    /// The networks of the subnets that the router is in.
    pub subnets: &'a [IpNet],
}

/// What has to hold right before something is removed.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum RemovalPrecondition {
    /// There is no such Node.
    NoNode(Name),
    /// No port has this address.
    NoPort(IpAddr),
    /// No port has this address, or that of a server that a Node of this cluster is. A copy of the cluster has the same record.
    NotOfOthers(IpAddr),
}

#[derive(Clone, Debug, PartialEq)]
pub struct RouteRemoval {
    pub route: RecordedRoute,
    pub asks: Vec<RemovalPrecondition>,
}

#[derive(Clone, Debug, PartialEq)]
pub struct RouteAddition {
    pub route: RecordedRoute,
    /// Those to the same network, by their position: they have to go, or packets would be spread over both.
    pub instead_of: Vec<usize>,
}

#[derive(Clone, Debug, PartialEq)]
pub struct PairRemoval {
    pub pair: RecordedPair,
    pub at: usize,
    pub asks: Vec<RemovalPrecondition>,
}

/// Candidates.
#[derive(Clone, Debug, Default)]
pub struct RoutePlan {
    pub wanted: Vec<PodRoute>,
    /// Nodes that have pod networks, by position, with these.
    pub networks: BTreeMap<usize, BTreeSet<IpNet>>,
    pub additions: Vec<RouteAddition>,
    pub removals: Vec<RouteRemoval>,
    /// Positions of ports, with what is to be added.
    pub pairs: Vec<(usize, RecordedPair)>,
    pub pair_removals: Vec<PairRemoval>,
    /// What stays recorded, whatever is answered.
    pub kept: RouteRecord,
    pub problems: Vec<Problem>,
}

/// What is written.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RouteWrites {
    /// Before anything else.
    pub record: RouteRecord,
    /// Corrections first.
    pub add: Vec<RecordedRoute>,
    /// So many of `add` replace a route that is removed at the same time.
    pub corrections: usize,
    /// Neutron may refuse those of `add` that replace nothing: they are too many.
    pub is_tight: bool,
    pub remove: Vec<RecordedRoute>,
    /// By the position of the port: what to add, and what to remove.
    pub ports: BTreeMap<usize, (BTreeSet<IpNet>, BTreeSet<IpNet>)>,
    pub problems: Vec<Problem>,
}

pub fn plan(seen: RouterView<'_>, rules: &RouteRules) -> RoutePlan {
    let PodRoutes { wanted, networks, problems } = destinations(seen, rules);
    let mut plan = RoutePlan { wanted, networks, problems, ..RoutePlan::default() };
    routes(&mut plan, seen);
    pairs(&mut plan, seen, rules);
    plan
}

fn routes(plan: &mut RoutePlan, seen: RouterView<'_>) {
    let router = Name::from(seen.router.id.as_str());
    let mut existing: BTreeMap<IpNet, BTreeSet<IpAddr>> = BTreeMap::new();
    for route in &seen.router.routes {
        if let Some(destination) = network(&route.destination) {
            existing.entry(destination).or_default().insert(route.nexthop);
        }
    }
    let none = BTreeSet::new();
    let hops = |to: &IpNet| existing.get(to).unwrap_or(&none);
    let (ours, others): (Vec<_>, Vec<_>) = seen.record.routes.iter().partition(|it| it.router == router);
    plan.kept.routes.extend(others.iter().map(|it| (*it).clone()));
    if let Some(first) = others.first() {
        plan.problems.push(left_behind(&first.router, others.len()));
    }
    let recorded: BTreeMap<(IpNet, IpAddr), &RecordedRoute> =
        ours.iter().map(|it| ((it.destination, it.nexthop), *it)).collect();
    let by_destination: BTreeMap<IpNet, &PodRoute> =
        plan.wanted.iter().map(|it| (it.destination, it)).collect();

    for place in &plan.wanted {
        let Some(node) = seen.nodes.get(place.node) else { continue };
        let route = |nexthop, made| RecordedRoute {
            router: router.clone(),
            destination: place.destination,
            nexthop,
            node: node.name.clone(),
            made,
        };
        let mut instead_of = Vec::new();
        for hop in hops(&place.destination).iter().filter(|it| **it != place.nexthop) {
            let before = recorded.get(&(place.destination, *hop));
            let made = before.is_some_and(|it| it.made);
            plan.kept.routes.extend(before.map(|it| (*it).clone()));
            instead_of.push(plan.removals.len());
            plan.removals.push(RouteRemoval { route: route(*hop, made), asks: vec![of_hop(made, *hop)] });
        }
        match hops(&place.destination).contains(&place.nexthop) {
            true => {
                let made = recorded.get(&(place.destination, place.nexthop)).is_some_and(|it| it.made);
                plan.kept.routes.insert(route(place.nexthop, made));
            }
            false => {
                plan.additions.push(RouteAddition { route: route(place.nexthop, true), instead_of });
            }
        }
    }
    for route in ours {
        // One that is not there any more is forgotten: another one like it would not be ours.
        let is_there = hops(&route.destination).contains(&route.nexthop);
        if !is_there || by_destination.contains_key(&route.destination) {
            continue;
        }
        plan.kept.routes.insert(route.clone());
        match may_go(plan, seen, &route.node, route.destination) {
            Ok(mut asks) => {
                asks.push(of_hop(route.made, route.nexthop));
                plan.removals.push(RouteRemoval { route: route.clone(), asks });
            }
            Err(Some(why)) => plan.problems.push(kept(&router, route, why)),
            Err(None) => {}
        }
    }
}

fn of_hop(made: bool, hop: IpAddr) -> RemovalPrecondition {
    if made { RemovalPrecondition::NotOfOthers(hop) } else { RemovalPrecondition::NoPort(hop) }
}

fn pairs(plan: &mut RoutePlan, seen: RouterView<'_>, rules: &RouteRules) {
    let id = |at: usize| seen.ports.get(at).map(|it| Name::from(it.id.as_str())).unwrap_or_default();
    let recorded = &seen.record.pairs;
    let is_recorded =
        |port: &Name, net: IpNet| recorded.iter().any(|it| it.port == *port && it.address == net);
    for place in &plan.wanted {
        let (Some(node), Some(port)) = (seen.nodes.get(place.node), seen.ports.get(place.port)) else {
            continue;
        };
        if !place.needs_pair(port, rules) {
            continue;
        }
        let pair = RecordedPair { port: id(place.port), address: place.destination, node: node.name.clone() };
        match covers(port, place.destination) {
            false => plan.pairs.push((place.port, pair)),
            true if is_recorded(&pair.port, pair.address) => {
                plan.kept.pairs.insert(pair);
            }
            true => {}
        }
    }
    let ports: BTreeMap<&str, usize> =
        seen.ports.iter().enumerate().map(|(at, it)| (it.id.as_str(), at)).collect();
    let servers = servers(seen, rules);
    for pair in recorded {
        // With a port its pairs went; unless it is only not listed, with the credentials of another project.
        let Some(at) = ports.get(&*pair.port).copied() else {
            plan.kept.pairs.extend(plan.wanted.is_empty().then(|| pair.clone()));
            continue;
        };
        let Some(port) = seen.ports.get(at) else { continue };
        let is_there =
            port.allowed_address_pairs.iter().any(|it| network(&it.ip_address) == Some(pair.address));
        let at_ports: Vec<usize> =
            plan.wanted.iter().filter(|it| it.destination == pair.address).map(|it| it.port).collect();
        if !is_there || at_ports.contains(&at) {
            continue;
        }
        plan.kept.pairs.insert(pair.clone());
        let asks = match at_ports.is_empty() {
            true => may_go(plan, seen, &pair.node, pair.address),
            false => Ok(Vec::new()),
        };
        let Ok(asks) = asks else { continue };
        match servers.contains(&*port.device_id) {
            true => plan.pair_removals.push(PairRemoval { pair: pair.clone(), at, asks }),
            false => plan.problems.push(pair_of_others(pair, port)),
        }
    }
}

/// Those that Nodes of this cluster are.
pub(super) fn servers(seen: RouterView<'_>, rules: &RouteRules) -> BTreeSet<Name> {
    let server = |node| match ProviderMatch::of(node, rules.region.as_deref()) {
        ProviderMatch::Ours(server) => Some(server),
        ProviderMatch::Others | ProviderMatch::Unknown => None,
    };
    seen.nodes.iter().filter_map(server).collect()
}

/// What has to be asked before what this Node had is removed; or why it stays. No reason: it is the Node's, and something else is
/// wrong, which is reported elsewhere.
fn may_go(
    plan: &RoutePlan,
    seen: RouterView<'_>,
    name: &Name,
    destination: IpNet,
) -> Result<Vec<RemovalPrecondition>, Option<&'static str>> {
    if plan.wanted.is_empty() {
        return Err(Some("no other Node of the cluster has a port at the router"));
    }
    let Some(at) = seen.nodes.iter().position(|it| it.name == *name) else {
        return Ok(vec![RemovalPrecondition::NoNode(name.clone())]);
    };
    match plan.networks.get(&at) {
        None => Err(Some("the Node of the route exists, but has no pod network now")),
        Some(networks) if networks.contains(&destination) => Err(None),
        Some(_) => Ok(Vec::new()),
    }
}

impl RoutePlan {
    /// All that has to be asked.
    pub fn asks(&self) -> BTreeSet<RemovalPrecondition> {
        let routes = self.removals.iter().flat_map(|it| &it.asks);
        routes.chain(self.pair_removals.iter().flat_map(|it| &it.asks)).cloned().collect()
    }

    /// So many of them, beginning with those of this removal; and with which to begin the next time.
    pub fn questions(&self, first: usize, most: usize) -> (BTreeSet<RemovalPrecondition>, usize) {
        let routes = self.removals.iter().map(|it| &it.asks);
        let removals: Vec<&Vec<RemovalPrecondition>> =
            routes.chain(self.pair_removals.iter().map(|it| &it.asks)).collect();
        let first = first.checked_rem(removals.len()).unwrap_or_default();
        let mut all = BTreeSet::new();
        for (at, asks) in removals.iter().enumerate().cycle().skip(first).take(removals.len()) {
            let mut with: BTreeSet<RemovalPrecondition> = all.clone();
            with.extend(asks.iter().cloned());
            if with.len() > most {
                return (all, at);
            }
            all = with;
        }
        (all, first)
    }

    /// `answers`: whether it holds. What was not answered does not.
    pub fn decide(
        &self,
        seen: RouterView<'_>,
        rules: &RouteRules,
        answers: &BTreeMap<RemovalPrecondition, bool>,
    ) -> RouteWrites {
        let holds = |asks: &[RemovalPrecondition]| asks.iter().all(|it| answers.get(it) == Some(&true));
        let mut writes = RouteWrites { record: self.kept.clone(), ..RouteWrites::default() };
        writes.problems.clone_from(&self.problems);
        for removal in &self.removals {
            match holds(&removal.asks) {
                true => writes.remove.push(removal.route.clone()),
                false => writes.problems.extend(foreign(removal, answers)),
            }
        }
        let possible = self.additions.iter().filter(|addition| {
            let mut rivals = addition.instead_of.iter().filter_map(|it| self.removals.get(*it));
            rivals.all(|it| holds(&it.asks))
        });
        let (corrections, mut new): (Vec<&RouteAddition>, Vec<_>) =
            possible.partition(|it| !it.instead_of.is_empty());
        writes.corrections = corrections.len();
        let stay =
            seen.router.routes.len().saturating_sub(writes.remove.len()).saturating_add(corrections.len());
        let then = stay.saturating_add(new.len());
        writes.is_tight = !new.is_empty() && then > rules.max_routes.unwrap_or(USUAL_ROUTES);
        if writes.is_tight {
            let room = rules.max_routes.map(|it| it.saturating_sub(stay));
            writes.problems.push(too_many_routes(seen, rules, then, room));
            new.truncate(room.unwrap_or(usize::MAX));
        }
        let add: Vec<&RecordedRoute> = corrections.into_iter().chain(new).map(|it| &it.route).collect();
        writes.record.routes.extend(add.iter().map(|it| (*it).clone()));
        writes.add.extend(add.into_iter().cloned());
        self.decide_pairs(seen, rules, &holds, &mut writes);
        writes
    }

    fn decide_pairs(
        &self,
        seen: RouterView<'_>,
        rules: &RouteRules,
        holds: &dyn Fn(&[RemovalPrecondition]) -> bool,
        writes: &mut RouteWrites,
    ) {
        for removal in self.pair_removals.iter().filter(|it| holds(&it.asks)) {
            writes.ports.entry(removal.at).or_default().1.insert(removal.pair.address);
        }
        for (at, pair) in &self.pairs {
            let Some(port) = seen.ports.get(*at) else { continue };
            let (add, remove) = writes.ports.entry(*at).or_default();
            let stay =
                port.allowed_address_pairs.len().saturating_sub(remove.len()).saturating_add(add.len());
            if stay >= rules.max_pairs.unwrap_or(USUAL_PAIRS) {
                writes.problems.push(too_many_pairs(pair, rules, stay));
                if rules.max_pairs.is_some() {
                    continue;
                }
            }
            add.insert(pair.address);
            writes.record.pairs.insert(pair.clone());
        }
        writes.ports.retain(|_, (add, remove)| !add.is_empty() || !remove.is_empty());
    }
}

fn foreign(removal: &RouteRemoval, answers: &BTreeMap<RemovalPrecondition, bool>) -> Option<Problem> {
    let RecordedRoute { router, destination, nexthop, node, .. } = &removal.route;
    if removal
        .asks
        .iter()
        .any(|it| matches!(it, RemovalPrecondition::NoNode(_)) && answers.get(it) != Some(&true))
    {
        return None;
    }
    let message = match removal.route.made {
        true => format!(
            "the route to {destination} via {nexthop} of router {router} is kept, although Node {node} needs another one or is gone: a \
             server that is not a Node of this cluster may have the address {nexthop}. If this cluster is a copy (a restored backup), the \
             original may use the route"
        ),
        false => format!(
            "router {router} has a route to {destination} via {nexthop}, which Seaway did not make. It is kept, although Node {node} \
             needs another one or is gone: a port may have the address {nexthop}, and another cluster or program may use the route"
        ),
    };
    let fix = format!(
        "If the route is not needed: openstack router remove route {router} --route destination={destination},gateway={nexthop}"
    );
    Some(Problem::new(about(), Reason::RouteForeign, message).fix(&*fix))
}

fn pair_of_others(pair: &RecordedPair, port: &RoutedPort) -> Problem {
    let RecordedPair { port: id, address, node } = pair;
    let message = format!(
        "the allowed address pair {address} of port {id}, for Node {node}, is kept: the port belongs to server {:?}, which is not a Node of this cluster. If this cluster is a copy (a restored backup), the original may use the pair",
        port.device_id
    );
    let fix =
        format!("If it is not needed: openstack port unset {id} --allowed-address ip-address={address}");
    Problem::new(about(), Reason::RouteForeign, message).fix(&*fix)
}

fn kept(router: &Name, route: &RecordedRoute, why: &str) -> Problem {
    let RecordedRoute { destination, nexthop, node, .. } = route;
    let message = format!(
        "the route to {destination} via {nexthop} of router {router}, for Node {node}, is not needed. It is kept: {why}"
    );
    let fix = format!(
        "If no pod uses it: openstack router remove route {router} --route destination={destination},gateway={nexthop}"
    );
    Problem::new(about(), Reason::RouteForeign, message).fix(&*fix)
}

fn left_behind(router: &Name, count: usize) -> Problem {
    let message = format!(
        "{count} routes that Seaway made at another router, {router}, stay there: cloud.conf names a new router"
    );
    let fix = "Remove them (openstack router remove route), then delete their lines from the ConfigMap seaway-routes in Seaway's \
               namespace. Or name the router again.";
    Problem::new(about(), Reason::RouteForeign, message).fix(fix)
}

fn too_many_routes(seen: RouterView<'_>, rules: &RouteRules, then: usize, room: Option<usize>) -> Problem {
    let router = &seen.router.id;
    let message = match (rules.max_routes, room) {
        (Some(limit), Some(room)) => format!(
            "router {router} would have {then} routes, and the limit is {limit} (nodes.maxRoutes). {room} more are written, the others \
             are not"
        ),
        _ => format!(
            "router {router} will have {then} routes. Neutron refuses more than {USUAL_ROUTES}, unless its operator has raised max_routes"
        ),
    };
    let fix = "Have the operator of the cloud raise max_routes of neutron.conf, and set nodes.maxRoutes to the same number.";
    Problem::new(about(), Reason::RouteMissing, message).fix(fix)
}

fn too_many_pairs(pair: &RecordedPair, rules: &RouteRules, stay: usize) -> Problem {
    let RecordedPair { port, address, node } = pair;
    let message = match rules.max_pairs {
        Some(limit) => format!(
            "port {port} of Node {node} has {stay} allowed address pairs, and the limit is {limit} (nodes.maxAddressPairs): {address} is \
             not added"
        ),
        None => format!(
            "port {port} of Node {node} has {stay} allowed address pairs, and gets {address}. Neutron refuses more than {USUAL_PAIRS}, \
             unless its operator has raised max_allowed_address_pair"
        ),
    };
    let fix = "Remove pairs that are not needed. Or have the operator of the cloud raise max_allowed_address_pair of neutron.conf, and \
               set nodes.maxAddressPairs to the same number.";
    Problem::new(about(), Reason::RouteMissing, message).fix(fix)
}
