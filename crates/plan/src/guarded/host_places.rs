//! Which paths of which host names objects have at the front door, and which of them let fewer clients in. Two ways past such a
//! protection are found by it: the paths of a Service's name, and a host name that comes before a path of all host names.
//!
//! All of it is within one namespace: no tenant changes where the Services of another are served. An object is kept as it is written, hosts
//! and paths apart: it takes no more memory than its text. Where they are put together, [`index`] bounds them.

mod index;
mod key;

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use seaway_model::{
    Name, ObjectRef,
    config::FrontDoor,
    fact::{HttpRoute, RouteRule, Service},
    load_balancer::{Action, Match, PathMatch},
};

use self::key::{ALL_HOSTS, by_labels, covering, slashed};
use super::is_protected;
use crate::{
    annotations::{ENTRANCE, MAIN, ServiceOptions, may_name_place},
    front_door::path_of,
    index::ServiceKey,
};
pub(crate) use index::HostPlaceIndex;

/// What one object has at the front door.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct HostPlaces {
    groups: Vec<PlaceGroup>,
    /// Fewer clients are let in there.
    protects: bool,
    /// It protects paths of all host names, and has no host name.
    protects_paths: bool,
    entrances: EntranceNames,
}

/// At which entrances; nothing, where they are not understood or not there: then it may be each.
type EntranceNames = Option<BTreeSet<Name>>;

/// Each of the paths at each of the hosts.
#[derive(Clone, Debug, PartialEq, Eq)]
struct PlaceGroup {
    /// By [`by_labels`].
    hosts: Arc<BTreeSet<Name>>,
    paths: BTreeSet<PlacePath>,
    /// Whose members answer there; none, where none of the namespace do.
    services: Arc<BTreeSet<Name>>,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct PlacePath {
    /// By [`slashed`]: `/` is the whole host name.
    path: Name,
    /// For all requests below the path.
    is_whole: bool,
    /// The beginning of an expression: what it matches may be below any path that is below this.
    is_expression: bool,
}

/// The object that protects a part of a Service's host names, and where.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct HostGuard {
    pub(crate) by: ObjectRef,
    /// `shop.example/admin`.
    pub(crate) at: String,
}

impl HostPlaces {
    pub(crate) fn of_service(service: &Service, door: &FrontDoor) -> HostPlaces {
        let written = &service.meta.annotations;
        if !may_name_place(written) {
            return HostPlaces::default();
        }
        let key = ServiceKey::new(service.meta.namespace.clone(), service.meta.name.clone());
        let mut wishes = ServiceOptions::by_default();
        wishes.read(&key.object(), written);
        wishes.close_internal_anywhere(service);
        wishes.take_meant_places(service);
        let (http, protects) = (&wishes.http, is_protected(service, &wishes));
        if http.front_door == Some(false) || wishes.tls.through && !protects {
            return HostPlaces::default();
        }
        let mut by_path: BTreeMap<Name, BTreeSet<Name>> = BTreeMap::new();
        let whole = http.hosts.iter().map(|host| (host, "/"));
        let below = http.placed.iter().map(|(host, path)| (host, path.as_str()));
        for (host, path) in whole.chain(below) {
            by_path.entry(slashed(path)).or_default().insert(by_labels(host));
        }
        let services: Arc<BTreeSet<Name>> = Arc::new([key.name.clone()].into());
        let group = |(path, hosts)| PlaceGroup {
            hosts: Arc::new(hosts),
            paths: [PlacePath { path, is_whole: true, is_expression: false }].into(),
            services: services.clone(),
        };
        let groups: Vec<PlaceGroup> = by_path.into_iter().map(group).collect();
        let protects_paths = protects && groups.is_empty() && !http.paths.is_empty();
        let entrances = entrances_of(&wishes, written.contains_key(ENTRANCE), door);
        HostPlaces { groups, protects, protects_paths, entrances }.or_nothing()
    }

    pub(crate) fn of_route(route: &HttpRoute, door: &FrontDoor) -> HostPlaces {
        let (written, mut wishes) = (&route.meta.annotations, ServiceOptions::by_default());
        if !written.is_empty() {
            wishes.read_route(route);
        }
        let mut hosts: BTreeSet<Name> = route.hosts.iter().map(by_labels).collect();
        if hosts.is_empty() {
            hosts.insert(ALL_HOSTS.into());
        }
        let hosts = Arc::new(hosts);
        let path = |asked: &Match| PlacePath {
            path: slashed(path_of(asked)),
            is_whole: is_whole(asked),
            is_expression: matches!(asked.path, Some(PathMatch::Regex(_))),
        };
        let group = |rule: &RouteRule| PlaceGroup {
            hosts: hosts.clone(),
            paths: rule.matches.iter().map(path).collect(),
            services: Arc::new(services_of(rule, &route.meta.namespace)),
        };
        let groups = route.rules.iter().map(group).filter(|it| !it.paths.is_empty()).collect();
        let entrances = entrances_of(&wishes, written.contains_key(ENTRANCE), door);
        let protects = route.guessed || wishes.restricts_clients() || wishes.protection().is_some();
        HostPlaces { groups, protects, protects_paths: false, entrances }.or_nothing()
    }

    fn or_nothing(self) -> HostPlaces {
        if self.groups.is_empty() && !self.protects_paths { HostPlaces::default() } else { self }
    }

    /// Each host and path, once for each group that has it.
    fn at(&self) -> impl Iterator<Item = (&Name, &PlacePath, &PlaceGroup)> {
        self.groups.iter().flat_map(|group| {
            let paths = move |host| group.paths.iter().map(move |path| (host, path, group));
            group.hosts.iter().flat_map(paths)
        })
    }

    fn services(&self) -> BTreeSet<&Name> {
        self.groups.iter().flat_map(|it| &*it.services).collect()
    }

    /// How many entries it takes to put hosts, paths and Services together. What protects stands at each wildcard above it as well.
    fn weight(&self) -> usize {
        let entrances = self.entrances.as_ref().map_or(1, BTreeSet::len);
        let of = |it: &PlaceGroup| {
            let leading = it.hosts.len().saturating_mul(it.services.len().max(1));
            let above = it.hosts.iter().filter(|_| self.protects).map(|host| covering(host).count());
            let guarding = above.fold(0, usize::saturating_add).saturating_mul(entrances);
            it.paths.len().saturating_mul(leading.saturating_add(guarding))
        };
        self.groups.iter().map(of).fold(0, usize::saturating_add)
    }

    fn guards(&self) -> bool {
        self.protects && !self.groups.is_empty()
    }

    /// What it protects.
    fn guarded(&self) -> BTreeSet<(&Name, &Name, bool)> {
        let at = self.at().filter(|_| self.protects);
        at.map(|(host, path, _)| (host, &path.path, path.is_expression)).collect()
    }
}

/// Whether both are at one entrance.
fn meet(one: &EntranceNames, other: &EntranceNames) -> bool {
    match (one, other) {
        (Some(one), Some(other)) => !one.is_disjoint(other),
        _ => true,
    }
}

fn entrances_of(wishes: &ServiceOptions, is_said: bool, door: &FrontDoor) -> EntranceNames {
    let is_unclear = is_said && !wishes.written.contains_key(ENTRANCE);
    if is_unclear { None } else { entrances(&wishes.http.entrances, door) }
}

fn entrances(named: &[Name], door: &FrontDoor) -> EntranceNames {
    if named.is_empty() {
        return Some([Name::from(MAIN)].into());
    }
    let is_there = |it: &Name| **it == *MAIN || door.entrances.contains_key(it);
    named.iter().all(is_there).then(|| named.iter().cloned().collect())
}

/// The Services of its namespace that a rule leads to. Without one, the rule keeps its place, too.
fn services_of(rule: &RouteRule, namespace: &Name) -> BTreeSet<Name> {
    let Action::Forward(backends) = &rule.action else { return BTreeSet::new() };
    let own = backends.iter().filter(|(to, _)| to.namespace == *namespace);
    own.map(|(to, _)| to.service.clone()).collect()
}

fn is_whole(asked: &Match) -> bool {
    matches!(asked.path, None | Some(PathMatch::Prefix(_)))
        && asked.method.is_none()
        && asked.headers.is_empty()
        && asked.query.is_empty()
}
