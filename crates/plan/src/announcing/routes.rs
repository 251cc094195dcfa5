//! Which routes a host announces to which peers.

use std::{
    collections::{BTreeMap, HashMap},
    net::IpAddr,
    sync::Arc,
};

use ipnet::IpNet;
use seaway_model::{
    Name, ObjectRef,
    bgp::{Route, Session},
    fact::{AddressPool, BgpAdvertisement, Labels},
};

use super::{AnnouncingObjects, Communities, Protocol, allows, is_about};

/// What routers take where a route has none.
const LOCAL_PREF: u32 = 100;

/// Of one host, while it is planned.
pub(crate) struct HostRoutes<'a> {
    advertisements: Vec<Advertisement<'a>>,
    labels: &'a Labels,
    /// Which of them are about a pool, by whether the pool asks for BGP by itself.
    about: HashMap<(&'a ObjectRef, bool), Vec<usize>>,
    /// One that cannot be read may be about any pool.
    has_unread: bool,
    routes: Vec<BTreeMap<IpNet, Route>>,
    peers: Vec<Name>,
}

struct Advertisement<'a> {
    says: &'a BgpAdvertisement,
    /// Nothing where one of them is not known: then it announces nothing.
    communities: Option<Communities>,
}

/// An address that this host serves.
pub(crate) struct ServedAddress<'a> {
    pub(crate) ip: IpAddr,
    pub(crate) pool: &'a AddressPool,
    /// Of the Services that have it.
    pub(crate) services: &'a [&'a Labels],
    /// The pool asks for BGP, here, without an advertisement.
    pub(crate) by_itself: bool,
    /// Of some Service, only hosts with ready pods serve it: an aggregate would be for others, too.
    pub(crate) local_only: bool,
}

impl<'a> HostRoutes<'a> {
    pub(crate) fn new(
        objects: &'a AnnouncingObjects,
        labels: &'a Labels,
        sessions: &[Session],
    ) -> HostRoutes<'a> {
        let advertisements = objects.bgp().map(|(_, says)| {
            let communities = objects.communities(&says.communities).ok();
            Advertisement { says, communities }
        });
        HostRoutes {
            advertisements: advertisements.collect(),
            labels,
            about: HashMap::new(),
            has_unread: objects.has_unread(Protocol::Bgp),
            routes: vec![BTreeMap::new(); sessions.len()],
            peers: sessions.iter().map(|it| it.name.clone()).collect(),
        }
    }

    pub(crate) fn add(&mut self, served: &ServedAddress<'a>) {
        let (pool, by_itself) = (served.pool, served.by_itself);
        let advertisements = &self.advertisements;
        let about = self.about.entry((&pool.object, by_itself)).or_insert_with(|| {
            let is_about = |it: &&usize| {
                advertisements.get(**it).is_some_and(|it| is_about(&it.says.scope, pool, by_itself))
            };
            (0..advertisements.len()).collect::<Vec<_>>().iter().filter(is_about).copied().collect()
        });
        if about.is_empty() {
            if by_itself && !self.has_unread {
                let route = plain(IpNet::from(served.ip));
                self.routes.iter_mut().for_each(|it| merge(it, route.clone()));
            }
            return;
        }
        for advertisement in about.iter().filter_map(|it| advertisements.get(*it)) {
            let Some((communities, large)) = &advertisement.communities else { continue };
            let says = advertisement.says;
            if !allows(&says.scope, self.labels, served.services) {
                continue;
            }
            let Some(prefix) = prefix(says, served) else { continue };
            let route = Route {
                prefix,
                local_pref: says.local_pref,
                med: says.med,
                communities: communities.clone(),
                large: large.clone(),
            };
            for (name, routes) in self.peers.iter().zip(&mut self.routes) {
                if says.peers.is_empty() || says.peers.contains(name) {
                    merge(routes, route.clone());
                }
            }
        }
    }

    /// Each session has its own.
    pub(crate) fn give(self, sessions: &mut [Session]) {
        for (session, routes) in sessions.iter_mut().zip(self.routes) {
            let families = session.families;
            let is_of = |it: &Route| if it.prefix.addr().is_ipv4() { families.v4 } else { families.v6 };
            session.routes = routes.into_values().filter(is_of).collect();
        }
    }
}

fn plain(prefix: IpNet) -> Route {
    Route { prefix, local_pref: None, med: None, communities: Arc::default(), large: Arc::default() }
}

/// The network that it is announced as; nothing, if that has addresses that are not of the pool.
fn prefix(says: &BgpAdvertisement, served: &ServedAddress<'_>) -> Option<IpNet> {
    let whole = IpNet::from(served.ip);
    let length = if served.ip.is_ipv4() { says.aggregation_v4 } else { says.aggregation_v6 };
    let Some(length) = length.filter(|it| *it < whole.prefix_len() && !served.local_only) else {
        return Some(whole);
    };
    aggregate(served.ip, length).filter(|it| is_within(it, served.pool))
}

pub(super) fn aggregate(ip: IpAddr, length: u8) -> Option<IpNet> {
    IpNet::new(ip, length).ok().map(|it| it.trunc())
}

pub(super) fn is_within(network: &IpNet, pool: &AddressPool) -> bool {
    pool.ranges.iter().any(|it| it.contains(network.network()) && it.contains(network.broadcast()))
}

/// Of several advertisements a route has the communities of all. Where they differ otherwise, which is a Problem, it has what makes
/// it less attractive.
fn merge(routes: &mut BTreeMap<IpNet, Route>, route: Route) {
    let Some(there) = routes.get_mut(&route.prefix) else {
        routes.insert(route.prefix, route);
        return;
    };
    there.local_pref = match (there.local_pref, route.local_pref) {
        (None, None) => None,
        // Without one, it is what routers take for it.
        (one, other) => Some(one.unwrap_or(LOCAL_PREF).min(other.unwrap_or(LOCAL_PREF))),
    };
    there.med = there.med.into_iter().chain(route.med).max();
    join(&mut there.communities, &route.communities);
    join(&mut there.large, &route.large);
}

fn join<T: Ord + Copy>(there: &mut Arc<[T]>, more: &Arc<[T]>) {
    if more.iter().all(|it| there.contains(it)) {
        return;
    }
    let mut all: Vec<T> = there.iter().chain(more.iter()).copied().collect();
    all.sort();
    all.dedup();
    *there = all.into();
}
