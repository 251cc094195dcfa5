//! The router and the ports of a project: one request and one list, however many Nodes there are.

use std::net::IpAddr;

use ipnet::IpNet;
use seaway_model::{Name, Reason};
use seaway_openstack::{
    Cloud, Error,
    neutron::{Extension, Network, Port, RoutedPort, Router},
    resource::{Id, Present, Query},
};

use super::{Stop, place};

/// What this Neutron can do.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Abilities {
    pub(super) routes: bool,
    /// Routes are added and removed without the others being sent.
    pub(super) atomic: bool,
    /// A change names the revision that it was computed from.
    pub(super) revisions: bool,
    pub(super) pairs: bool,
}

pub(super) struct Read {
    pub(super) router: Router,
    pub(super) ports: Vec<RoutedPort>,
}

pub(super) async fn abilities(cloud: &Cloud) -> Result<Abilities, Error> {
    let all: Vec<Present<Extension>> = cloud.all::<Extension>().list(Query::all()).await?;
    let has = |alias: &str| all.iter().any(|it| it.0.as_str() == alias);
    Ok(Abilities {
        routes: has("extraroute"),
        atomic: has("extraroute-atomic"),
        revisions: has("revision-if-match"),
        pairs: has("allowed-address-pairs"),
    })
}

pub(super) async fn read(cloud: &Cloud, router: &Name) -> Result<Read, Stop> {
    let fix = "Correct router-id of [Route] in cloud.conf: openstack router list";
    let Ok(id) = router.parse::<Id<Router>>() else {
        return Err(Stop::new(
            Reason::RouteMissing,
            format!("no route is written: router-id {router} is no id"),
            fix,
        ));
    };
    let Some(router) = cloud.all::<Router>().find::<Router>(&id).await? else {
        let message = format!("no route is written: the project has no router {id}, which cloud.conf names");
        return Err(Stop::new(Reason::RouteMissing, message, fix));
    };
    // An operator sees those of all projects.
    let project = cloud.session().project.as_ref().map(|it| it.id.to_string());
    let query = project.iter().fold(Query::all(), |query, it| query.with("project_id", it));
    let mut ports: Vec<RoutedPort> = cloud.all::<Port>().list(query).await?;
    ports.sort_by_cached_key(|it| it.id.to_string());
    Ok(Read { router, ports })
}

/// Whether no port has this address. `false` where ports of others may be hidden: in networks of other projects.
pub(super) async fn is_no_port(
    cloud: &Cloud,
    ip: IpAddr,
    router: &Router,
    ports: &[RoutedPort],
) -> Result<bool, Error> {
    if is_shared(ip, ports) {
        return Ok(false);
    }
    let ours = cloud.session().project.as_ref().map(|it| it.id.to_string());
    let mut networks: Vec<&Id<Network>> =
        place::interfaces(router, ports).filter_map(|it| it.network_id.as_ref()).collect();
    networks.sort_unstable();
    networks.dedup();
    for id in networks {
        let network = cloud.all::<Network>().find::<Network>(id).await?;
        if ours.is_none() || network.is_none_or(|it| it.project_id != ours) {
            return Ok(false);
        }
    }
    let at = Query::all().with("fixed_ips", format!("ip_address={ip}"));
    let found: Vec<Present<Port>> = cloud.all::<Port>().list(at).await?;
    Ok(found.is_empty())
}

/// An address that several hosts may use, as with VRRP.
fn is_shared(ip: IpAddr, ports: &[RoutedPort]) -> bool {
    let mut pairs = ports.iter().flat_map(|it| &it.allowed_address_pairs);
    pairs.any(|it| place::network(&it.ip_address) == Some(IpNet::from(ip)))
}
