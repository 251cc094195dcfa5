//! The router and the ports of a project: one request and one list, however many Nodes there are.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
};

use ipnet::IpNet;
use seaway_model::{Name, Reason};
use seaway_openstack::{
    Cloud, Error,
    neutron::{Extension, Network, Port, RoutedPort, Router, Subnet},
    resource::{Id, IdOnly, Query},
};

use super::{PassError, place};

/// What this Neutron can do.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct NeutronFeatures {
    pub(super) routes: bool,
    /// Routes are added and removed without the others being sent.
    pub(super) atomic: bool,
    /// A change names the revision that it was computed from.
    pub(super) revisions: bool,
    pub(super) pairs: bool,
}

pub(super) struct RouterAndPorts {
    pub(super) router: Router,
    pub(super) ports: Vec<RoutedPort>,
}

pub(super) async fn abilities(cloud: &Cloud) -> Result<NeutronFeatures, Error> {
    let all: Vec<IdOnly<Extension>> = cloud.all::<Extension>().list(Query::all()).await?;
    let has = |alias: &str| all.iter().any(|it| it.0.as_str() == alias);
    Ok(NeutronFeatures {
        routes: has("extraroute"),
        atomic: has("extraroute-atomic"),
        revisions: has("revision-if-match"),
        pairs: has("allowed-address-pairs"),
    })
}

pub(super) async fn read(cloud: &Cloud, router: &Name) -> Result<RouterAndPorts, PassError> {
    let fix = "Correct router-id of [Route] in cloud.conf: openstack router list";
    let Ok(id) = router.parse::<Id<Router>>() else {
        return Err(PassError::new(
            Reason::RouteMissing,
            format!("no route is written: router-id {router} is not a valid id"),
            fix,
        ));
    };
    let Some(router) = cloud.all::<Router>().find::<Router>(&id).await? else {
        let message = format!("no route is written: the project has no router {id}, which cloud.conf names");
        return Err(PassError::new(Reason::RouteMissing, message, fix));
    };
    // An operator sees those of all projects.
    let project = cloud.session().project.as_ref().map(|it| it.id.to_string());
    let query = project.iter().fold(Query::all(), |query, it| query.with("project_id", it));
    let mut ports: Vec<RoutedPort> = cloud.all::<Port>().list(query).await?;
    ports.sort_by_cached_key(|it| it.id.to_string());
    Ok(RouterAndPorts { router, ports })
}

/// The subnets that the router is in. What a subnet is never changes.
pub(super) async fn subnets(
    cloud: &Cloud,
    router: &Router,
    ports: &[RoutedPort],
    known: &mut BTreeMap<Id<Subnet>, AttachedSubnet>,
) -> Result<Vec<AttachedSubnet>, Error> {
    let ids: BTreeSet<&Id<Subnet>> = place::interfaces(router, ports)
        .flat_map(|it| &it.fixed_ips)
        .filter_map(|it| it.subnet_id.as_ref())
        .collect();
    if ids.iter().any(|it| !known.contains_key(*it)) {
        for subnet in cloud.all::<Subnet>().list::<Subnet>(Query::all()).await? {
            let Some(net) = subnet.cidr.as_deref().and_then(place::network) else { continue };
            known.insert(subnet.id, AttachedSubnet { net, network: subnet.network_id });
        }
    }
    Ok(ids.into_iter().filter_map(|it| known.get(it).cloned()).collect())
}

/// Of a subnet.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct AttachedSubnet {
    pub(super) net: IpNet,
    pub(super) network: Id<Network>,
}

/// The ports of a network, listed just now.
#[derive(Debug)]
pub(super) struct NetworkPorts {
    pub(super) ports: Vec<RoutedPort>,
    /// The network is the project's own, so that no port of it is hidden.
    pub(super) is_whole: bool,
}

pub(super) async fn neighbors(cloud: &Cloud, id: &Id<Network>) -> Result<NetworkPorts, Error> {
    let ours = cloud.session().project.as_ref().map(|it| it.id.to_string());
    let network = cloud.all::<Network>().find::<Network>(id).await?;
    let ports = cloud.all::<Port>().list(Query::all().with("network_id", id)).await?;
    Ok(NetworkPorts { ports, is_whole: ours.is_some() && network.is_some_and(|it| it.project_id == ours) })
}

impl NetworkPorts {
    /// Whether no port has this address, not even one that hosts share.
    pub(super) fn has_no_port(&self, ip: IpAddr) -> bool {
        let mut pairs = self.ports.iter().flat_map(|it| &it.allowed_address_pairs);
        let is_shared = pairs.any(|it| place::network(&it.ip_address).is_none_or(|it| it.contains(&ip)));
        self.is_whole && !is_shared && self.holders(ip).next().is_none()
    }

    /// Whether no port has this address, or only those of these servers.
    pub(super) fn has_no_other(&self, ip: IpAddr, servers: &BTreeSet<Name>) -> bool {
        if self.holders(ip).next().is_some() {
            return self.holders(ip).all(|it| servers.contains(&*it.device_id));
        }
        let mut pairs = self.ports.iter().flat_map(|it| &it.allowed_address_pairs);
        self.is_whole && !pairs.any(|it| place::network(&it.ip_address) == Some(IpNet::from(ip)))
    }

    fn holders(&self, ip: IpAddr) -> impl Iterator<Item = &RoutedPort> {
        self.ports.iter().filter(move |it| it.fixed_ips.iter().any(|it| it.ip_address == Some(ip)))
    }
}
