//! What is done in a pass: questions, the record, ports, the router, conditions of Nodes; in this order.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
};

use ipnet::IpNet;
use seaway_cluster::{
    NodeObject, NodePatch, NodeWrite, ReadRecord, RecordedRoute, RequestError, RouteRecord,
};
use seaway_model::{Problem, Reason};
use seaway_openstack::{
    Class, Cloud, Error,
    neutron::{AddressPair, Port, PortChange, Route, RoutedPort, Router, RouterChange},
};
use tracing::{debug, info, warn};

use super::{
    Ask, Place, RouteController, RouteRecords, RouteRules, RouteWrites, RouterView, Stop, about,
    place::{covers, network},
    plan::{RoutePlan, plan},
    read::{self, Abilities},
};
use crate::nodes::{Nodes, SILENT};

/// What others write at the same time is read again so often.
const TRIES: u32 = 3;
/// So many things are asked for in a pass; the others are asked for in the next.
const ASKED: usize = 50;
/// The condition that keeps pods away from a Node whose pods cannot be reached.
pub(super) const UNAVAILABLE: &str = "NetworkUnavailable";

/// What a pass begins with.
pub(super) struct Listed {
    pub(super) nodes: Vec<NodeObject>,
    pub(super) router: Router,
    pub(super) ports: Vec<RoutedPort>,
    pub(super) recorded: ReadRecord,
}

impl Listed {
    fn view(&self) -> RouterView<'_> {
        let Listed { nodes, router, ports, recorded } = self;
        RouterView { router, ports, nodes, record: &recorded.record }
    }
}

impl<N: Nodes, R: RouteRecords> RouteController<N, R> {
    pub(super) async fn act(
        &self,
        cloud: &Cloud,
        abilities: Abilities,
        rules: &RouteRules,
        mut listed: Listed,
    ) -> Result<Vec<Problem>, Stop> {
        let began = (self.clock)();
        let candidates = plan(listed.view(), rules);
        let answers = self.ask(cloud, &candidates, &listed).await?;
        let writes = candidates.decide(listed.view(), rules, &answers);
        let mut problems = writes.problems.clone();
        let mut version =
            self.record(&listed.recorded.version, &listed.recorded.record, &writes.record).await?;
        for (at, (add, remove)) in &writes.ports {
            let Some(port) = listed.ports.get_mut(*at) else { continue };
            self.require_lead()?;
            match change_pairs(cloud, port, add, remove).await {
                Ok(()) => info!(port = %port.id, ?add, ?remove, "allowed address pairs written"),
                Err(error) if is_refusal(&error) => {
                    problems.push(refused(&format!("port {}", port.id), &error))
                }
                Err(error) => return Err(error.into()),
            }
        }
        if !writes.add.is_empty() || !writes.remove.is_empty() {
            self.require_lead()?;
            let passed = (self.clock)().0.saturating_sub(began.0);
            if u128::from(passed) > SILENT.as_millis() {
                // What was asked is too old to remove something by it.
                return Err(Stop::new(
                    Reason::Unreachable,
                    "the ports took longer than a minute to write",
                    super::UNCHANGED,
                ));
            }
            match change_routes(cloud, abilities, &listed.router, &writes).await {
                Ok(router) => {
                    info!(router = %router.id, added = writes.add.len(), removed = writes.remove.len(), "routes written");
                    listed.router = router;
                }
                Err(error) if is_refusal(&error) => {
                    problems.push(refused(&format!("router {}", listed.router.id), &error));
                }
                Err(error) => return Err(error.into()),
            }
        }
        let after = remaining(&writes, listed.view());
        version = self.record(&version, &writes.record, &after).await?;
        debug!(version, "the record is as what is there");
        problems.extend(self.conditions(&candidates, &listed, rules).await?);
        Ok(problems)
    }

    fn require_lead(&self) -> Result<(), Stop> {
        match self.leads.is_open() {
            true => Ok(()),
            false => Err(Stop::new(Reason::Unreachable, "another process leads", super::UNCHANGED)),
        }
    }

    /// Before each write of what it says. Nothing, where it says so already.
    async fn record(&self, version: &str, before: &RouteRecord, now: &RouteRecord) -> Result<String, Stop> {
        if before == now {
            return Ok(version.to_owned());
        }
        self.require_lead()?;
        let written = self.records.write(now, version).await;
        written.map_err(|error| Stop::unanswered("the ConfigMap seaway-routes cannot be written", &error))
    }

    async fn ask(
        &self,
        cloud: &Cloud,
        candidates: &RoutePlan,
        listed: &Listed,
    ) -> Result<BTreeMap<Ask, bool>, Stop> {
        let mut answers = BTreeMap::new();
        for ask in candidates.asks().into_iter().take(ASKED) {
            let holds = match &ask {
                Ask::NoNode(name) => {
                    let read = self.nodes.read(name).await;
                    read.map_err(|error| Stop::unanswered("whether a Node exists is not known", &error))?
                        .is_none()
                }
                Ask::NoPort(ip) => read::is_no_port(cloud, *ip, &listed.router, &listed.ports).await?,
            };
            answers.insert(ask, holds);
        }
        Ok(answers)
    }

    /// `NetworkUnavailable` is False once everything of a Node is there. It is True only at a Node that has no such condition yet: one
    /// that had its route keeps its pods while a cloud answers wrongly.
    async fn conditions(
        &self,
        plan: &RoutePlan,
        listed: &Listed,
        rules: &RouteRules,
    ) -> Result<Vec<Problem>, Stop> {
        let mut problems = Vec::new();
        for (at, networks) in &plan.networks {
            let Some(node) = listed.nodes.get(*at) else { continue };
            let is_routed = is_routed(plan, listed, rules, *at, networks.len());
            if let Err(error) = self.condition(node, is_routed).await? {
                let message = format!("its condition {UNAVAILABLE} cannot be written: {error}");
                problems.push(
                    Problem::new(node.object(), Reason::Unreachable, message).fix("Seaway tries again."),
                );
            }
        }
        Ok(problems)
    }

    async fn condition(&self, node: &NodeObject, is_routed: bool) -> Result<Result<(), RequestError>, Stop> {
        if !is_due(node, is_routed) {
            return Ok(Ok(()));
        }
        let (reason, message) = match is_routed {
            true => ("RouteCreated", "Seaway created a route to each pod network"),
            false => ("NoRouteCreated", "Seaway has not created a route to each pod network yet"),
        };
        let (kind, message) = (UNAVAILABLE, message.to_owned());
        let patch = NodePatch::Condition { kind, status: !is_routed, reason, message };
        for _ in 0..TRIES {
            let now = match self.nodes.read(&node.name).await {
                Ok(now) => now.filter(|it| it.uid == node.uid && !it.is_deleting && is_due(it, is_routed)),
                Err(error) => return Ok(Err(error)),
            };
            let Some(now) = now else { return Ok(Ok(())) };
            self.require_lead()?;
            match self.nodes.write(&now, &patch).await {
                Ok(NodeWrite::Done | NodeWrite::Gone) => return Ok(Ok(())),
                Ok(NodeWrite::Changed) => debug!(node = %now.name, "the Node was written meanwhile"),
                Err(error) => return Ok(Err(error)),
            }
        }
        Ok(Ok(()))
    }
}

fn is_due(node: &NodeObject, is_routed: bool) -> bool {
    match node.conditions.get(UNAVAILABLE) {
        None => true,
        Some((status, _)) => is_routed && status != "False",
    }
}

/// Whether a Node has all routes and pairs of its networks.
fn is_routed(plan: &RoutePlan, listed: &Listed, rules: &RouteRules, node: usize, networks: usize) -> bool {
    let places = plan.wanted.iter().filter(|it| it.node == node);
    let is_there = |place: &Place| {
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
            return Err(
                Error::new(Class::Unsupported, "Neutron shows no revision of the port").doing("change port")
            );
        };
        match ports.change_if(revision, &port.id, &change).await {
            Ok(changed) => {
                port.allowed_address_pairs = changed.allowed_address_pairs;
                return Ok(());
            }
            Err(error) if *error.class() == Class::Stale && attempt < TRIES => {
                *port = ports.read::<RoutedPort>(&port.id).await?;
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
    abilities: Abilities,
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
            return Err(error.doing("change router"));
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
    let message = format!("{what} is not changed: {}", error.trouble());
    Problem::new(about(), Reason::RouteMissing, message).fix(&*fix)
}
