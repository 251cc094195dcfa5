//! What is done in a pass: questions, the record, ports, the router, conditions of Nodes; in this order.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
};

use ipnet::IpNet;
use seaway_cluster::{NodeObject, ReadRecord, RecordedRoute, RouteRecord};
use seaway_model::{Problem, Reason, Time};
use seaway_openstack::{
    Class, Cloud, Error,
    neutron::{AddressPair, Network, Port, PortChange, Route, RoutedPort, Router, RouterChange},
    resource::Id,
};
use tracing::{debug, info, warn};

use super::{
    PassError, PodRoute, RemovalPrecondition, RouteController, RouteRecordStore, RouteRules, RouteWrites,
    RouterView, about,
    place::{covers, network},
    plan::{RoutePlan, plan, servers},
    read::{self, AttachedSubnet, NetworkPorts, NeutronFeatures},
};
use crate::nodes::{NodeApi, SILENT};

/// What others write at the same time is read again so often.
pub(super) const TRIES: u32 = 3;
/// So many things are asked for in a pass; the others are asked for in the next.
const ASKED: usize = 50;
/// After so many errors in a row that are no refusals, no other port is written in a pass.
const FAILED: u32 = 3;

/// What a pass begins with.
pub(super) struct RouterListing {
    pub(super) nodes: Vec<NodeObject>,
    pub(super) router: Router,
    pub(super) ports: Vec<RoutedPort>,
    pub(super) recorded: ReadRecord,
    /// The subnets that the router is in.
    pub(super) segments: Vec<AttachedSubnet>,
    pub(super) subnets: Vec<IpNet>,
}

impl RouterListing {
    fn view(&self) -> RouterView<'_> {
        let RouterListing { nodes, router, ports, recorded, subnets, .. } = self;
        RouterView { router, ports, nodes, record: &recorded.record, subnets }
    }
}

impl<N: NodeApi, R: RouteRecordStore> RouteController<N, R> {
    pub(super) async fn act(
        &mut self,
        cloud: &Cloud,
        abilities: NeutronFeatures,
        rules: &RouteRules,
        mut listed: RouterListing,
    ) -> Result<Vec<Problem>, PassError> {
        let began = (self.clock)();
        let candidates = plan(listed.view(), rules);
        let answers = self.ask(cloud, &candidates, &listed, rules).await?;
        let writes = candidates.decide(listed.view(), rules, &answers);
        let mut problems = writes.problems.clone();
        let mut version =
            self.record(&listed.recorded.version, &listed.recorded.record, &writes.record).await?;
        // Before the ports: what was asked is not old then, however long a port takes.
        for part in parts(&writes) {
            self.require_lead()?;
            self.require_fresh(began)?;
            match change_routes(cloud, abilities, &listed.router, &part).await {
                Ok(router) => {
                    info!(router = %router.id, added = part.add.len(), removed = part.remove.len(), "routes written");
                    listed.router = router;
                }
                Err(error) if is_refusal(&error) => {
                    problems.push(refused(&format!("router {}", listed.router.id), &error));
                }
                Err(error) => return Err(error.into()),
            }
        }
        problems.extend(self.write_ports(cloud, &writes, &mut listed, began).await?);
        let after = remaining(&writes, listed.view());
        version = self.record(&version, &writes.record, &after).await?;
        debug!(version, "the record names the routes and pairs that the cloud has");
        problems.extend(self.conditions(&candidates, &listed, rules).await?);
        Ok(problems)
    }

    /// An error of one port stops no other port. After some in a row, the others wait for the next pass, which begins with them.
    async fn write_ports(
        &mut self,
        cloud: &Cloud,
        writes: &RouteWrites,
        listed: &mut RouterListing,
        began: Time,
    ) -> Result<Vec<Problem>, PassError> {
        let mut problems = Vec::new();
        let first = self.port_turn;
        let (before, behind): (Vec<_>, Vec<_>) = writes.ports.iter().partition(|(at, _)| **at < first);
        let mut failed = 0_u32;
        for (at, (add, remove)) in behind.into_iter().chain(before) {
            let Some(port) = listed.ports.get_mut(*at) else { continue };
            self.require_lead()?;
            if failed >= FAILED || (!remove.is_empty() && self.require_fresh(began).is_err()) {
                self.port_turn = *at;
                let message = format!(
                    "port {} and the ports after it in the list were not updated in this pass",
                    port.id
                );
                problems.push(
                    Problem::new(about(), Reason::Unreachable, message)
                        .fix("No action needed: the next pass begins with that port."),
                );
                break;
            }
            match change_pairs(cloud, port, add, remove).await {
                Ok(()) => {
                    failed = 0;
                    info!(port = %port.id, ?add, ?remove, "allowed address pairs written");
                }
                Err(error) => {
                    failed = if is_refusal(&error) { 0 } else { failed.saturating_add(1) };
                    problems.push(refused(&format!("port {}", port.id), &error));
                }
            }
        }
        Ok(problems)
    }

    /// What was asked too long ago says nothing of what may be removed.
    fn require_fresh(&self, began: Time) -> Result<(), PassError> {
        let passed = (self.clock)().0.saturating_sub(began.0);
        match u128::from(passed) > SILENT.as_millis() {
            true => Err(PassError::new(
                Reason::Unreachable,
                "the pass took longer than a minute",
                super::UNCHANGED,
            )),
            false => Ok(()),
        }
    }

    pub(super) fn require_lead(&self) -> Result<(), PassError> {
        match self.leads.is_open() {
            true => Ok(()),
            false => {
                Err(PassError::new(Reason::Unreachable, "another process is the leader", super::UNCHANGED))
            }
        }
    }

    /// Before each write of what it says. Nothing, where it says so already.
    async fn record(
        &self,
        version: &str,
        before: &RouteRecord,
        now: &RouteRecord,
    ) -> Result<String, PassError> {
        if before == now {
            return Ok(version.to_owned());
        }
        self.require_lead()?;
        let written = self.records.write(now, version).await;
        written
            .map_err(|error| PassError::unanswered("the ConfigMap seaway-routes cannot be written", &error))
    }

    async fn ask(
        &mut self,
        cloud: &Cloud,
        candidates: &RoutePlan,
        listed: &RouterListing,
        rules: &RouteRules,
    ) -> Result<BTreeMap<RemovalPrecondition, bool>, PassError> {
        let (questions, next) = candidates.questions(self.turn, ASKED);
        self.turn = next;
        let servers = servers(listed.view(), rules);
        let mut neighbors: BTreeMap<Id<Network>, NetworkPorts> = BTreeMap::new();
        let mut answers = BTreeMap::new();
        for ask in questions {
            let holds = match &ask {
                RemovalPrecondition::NoNode(name) => {
                    let read = self.nodes.read(name).await;
                    read.map_err(|error| PassError::unanswered("whether a Node exists is not known", &error))?
                        .is_none()
                }
                RemovalPrecondition::NoPort(ip) | RemovalPrecondition::NotOfOthers(ip) => {
                    // One in the router's external network, or in a network that is not listed, may be a port that is hidden.
                    match listed.segments.iter().find(|it| it.net.contains(ip)).map(|it| &it.network) {
                        None => false,
                        Some(network) => {
                            if !neighbors.contains_key(network) {
                                neighbors.insert(network.clone(), read::neighbors(cloud, network).await?);
                            }
                            neighbors.get(network).is_some_and(|it| match ask {
                                RemovalPrecondition::NoPort(_) => it.has_no_port(*ip),
                                _ => it.has_no_other(*ip, &servers),
                            })
                        }
                    }
                }
            };
            answers.insert(ask, holds);
        }
        Ok(answers)
    }
}

/// Where Neutron may refuse what is too much, what removes and corrects is written by itself before.
pub(super) fn parts(writes: &RouteWrites) -> Vec<RouteWrites> {
    let (corrections, new) = writes.add.split_at(writes.corrections.min(writes.add.len()));
    let part = |add: &[RecordedRoute], remove: &[RecordedRoute]| RouteWrites {
        add: add.to_vec(),
        remove: remove.to_vec(),
        ..RouteWrites::default()
    };
    let parts = match writes.is_tight {
        true => vec![part(corrections, &writes.remove), part(new, &[])],
        false => vec![part(&writes.add, &writes.remove)],
    };
    parts.into_iter().filter(|it| !it.add.is_empty() || !it.remove.is_empty()).collect()
}

/// Whether a Node has all routes and pairs of its networks.
pub(super) fn is_routed(
    plan: &RoutePlan,
    listed: &RouterListing,
    rules: &RouteRules,
    node: usize,
    networks: usize,
) -> bool {
    let places = plan.wanted.iter().filter(|it| it.node == node);
    let is_there = |place: &PodRoute| {
        let port = listed.ports.get(place.port);
        has(&listed.router, place.destination, place.nexthop)
            && port.is_some_and(|it| !place.needs_pair(it, rules) || covers(it, place.destination))
    };
    places.clone().count() == networks && places.clone().all(is_there)
}

fn has(router: &Router, destination: IpNet, nexthop: IpAddr) -> bool {
    router.routes.iter().any(|it| it.nexthop == nexthop && network(&it.destination) == Some(destination))
}

/// What is there after the writes: what was removed is not Seaway's any more.
fn remaining(writes: &RouteWrites, seen: RouterView<'_>) -> RouteRecord {
    let mut record = writes.record.clone();
    let is_gone = |it: &RecordedRoute| !has(seen.router, it.destination, it.nexthop);
    for route in writes.remove.iter().filter(|it| is_gone(it)) {
        record.routes.retain(|it| {
            (&it.router, it.destination, it.nexthop) != (&route.router, route.destination, route.nexthop)
        });
    }
    for (at, (_, remove)) in &writes.ports {
        let Some(port) = seen.ports.get(*at) else { continue };
        let is_there =
            |net: &IpNet| port.allowed_address_pairs.iter().any(|it| network(&it.ip_address) == Some(*net));
        let id = port.id.to_string();
        record.pairs.retain(|it| *it.port != *id || !remove.contains(&it.address) || is_there(&it.address));
    }
    record
}

/// One write; what others wrote into the list meanwhile stays.
async fn change_pairs(
    cloud: &Cloud,
    port: &mut RoutedPort,
    add: &BTreeSet<IpNet>,
    remove: &BTreeSet<IpNet>,
) -> Result<(), Error> {
    let ports = cloud.all::<Port>();
    for attempt in 1..=TRIES {
        let pairs = changed_pairs(port, add, remove);
        if pairs == port.allowed_address_pairs {
            return Ok(());
        }
        let change = PortChange { allowed_address_pairs: pairs.into(), ..PortChange::default() };
        let Some(revision) = port.revision_number else {
            return Err(Error::new(Class::Unsupported, "Neutron shows no revision of the port")
                .with_operation("change port"));
        };
        match ports.change_if(revision, &port.id, &change).await {
            Ok(changed) => {
                port.allowed_address_pairs = changed.allowed_address_pairs;
                return Ok(());
            }
            Err(error) if *error.class() == Class::Stale && attempt < TRIES => {
                let server = port.device_id.clone();
                *port = ports.read::<RoutedPort>(&port.id).await?;
                if port.device_id != server {
                    return Err(error);
                }
            }
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

fn changed_pairs(port: &RoutedPort, add: &BTreeSet<IpNet>, remove: &BTreeSet<IpNet>) -> Vec<AddressPair> {
    let is_removed = |it: &AddressPair| network(&it.ip_address).is_some_and(|it| remove.contains(&it));
    let stay = port.allowed_address_pairs.iter().filter(|it| !is_removed(it)).cloned();
    stay.chain(add.iter().filter(|it| !covers(port, **it)).map(AddressPair::of)).collect()
}

/// One write: what is added and removed at once is one list, by its revision.
async fn change_routes(
    cloud: &Cloud,
    abilities: NeutronFeatures,
    router: &Router,
    writes: &RouteWrites,
) -> Result<Router, Error> {
    let routers = cloud.all::<Router>();
    match (abilities.atomic, writes.add.is_empty(), writes.remove.is_empty()) {
        (true, false, true) => return routers.add_routes(&router.id, &list(&writes.add)).await,
        (true, true, false) => return routers.remove_routes(&router.id, &removed(router, writes)).await,
        _ => {}
    }
    let mut now = router.clone();
    for attempt in 1..=TRIES {
        let routes = changed_routes(&now, writes);
        if routes == now.routes {
            return Ok(now);
        }
        let change = RouterChange { routes: routes.into(), ..RouterChange::default() };
        let Some(revision) = now.revision_number else {
            let error = Error::new(Class::Unsupported, "Neutron shows no revision of the router");
            return Err(error.with_operation("change router"));
        };
        match routers.change_if(revision, &router.id, &change).await {
            Err(error) if *error.class() == Class::Stale && attempt < TRIES => {
                now = routers.read::<Router>(&router.id).await?;
            }
            other => return other,
        }
    }
    Ok(now)
}

fn list(all: &[RecordedRoute]) -> Vec<Route> {
    all.iter().map(|it| Route::to(it.destination, it.nexthop)).collect()
}

/// As they are written in the router, which may have bits behind the prefix.
fn removed(router: &Router, writes: &RouteWrites) -> Vec<Route> {
    let is_removed = |route: &&Route| {
        let to = network(&route.destination);
        writes.remove.iter().any(|it| Some(it.destination) == to && it.nexthop == route.nexthop)
    };
    router.routes.iter().filter(is_removed).cloned().collect()
}

fn changed_routes(router: &Router, writes: &RouteWrites) -> Vec<Route> {
    let gone = removed(router, writes);
    let stay: Vec<Route> = router.routes.iter().filter(|it| !gone.contains(it)).cloned().collect();
    let new: Vec<Route> = list(&writes.add).into_iter().filter(|it| !new_has(&stay, it)).collect();
    [stay, new].concat()
}

fn new_has(routes: &[Route], route: &Route) -> bool {
    let to = network(&route.destination);
    routes.iter().any(|it| it.nexthop == route.nexthop && network(&it.destination) == to)
}

/// Neutron understood it and says no: what else is to be written is written. Anything else ends the pass.
fn is_refusal(error: &Error) -> bool {
    matches!(
        error.class(),
        Class::Invalid
            | Class::Conflict
            | Class::Stale
            | Class::InUse
            | Class::Quota { .. }
            | Class::Forbidden
            | Class::NotFound
            | Class::Unsupported
    )
}

fn refused(what: &str, error: &Error) -> Problem {
    warn!(%error, "{what} is not changed");
    let fix = error
        .fix()
        .map_or_else(|| "Seaway tries again.".to_owned(), |it| format!("{it}. Seaway tries again."));
    let message = format!("{what} is not changed: {}", error.summary());
    Problem::new(about(), Reason::RouteMissing, message).fix(&*fix)
}
