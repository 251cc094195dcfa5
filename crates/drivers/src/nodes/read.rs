//! The servers of a project with their ports: two lists, however many Nodes there are. Names of flavors and of networks of trunks
//! are read once each; one that cannot be read spoils nothing but what needs it.

use std::{
    collections::{BTreeMap, HashMap, HashSet},
    net::IpAddr,
};

use seaway_cluster::NodeObject;
use seaway_model::Name;
use seaway_openstack::{
    Class, Cloud, Error,
    neutron::{AttachedPort, FixedIp, Network, Port, Status},
    nova::{self, Flavor, ServerFlavor},
    resource::{Id, Query},
};

use super::{
    deletion::ServerLookup,
    plan::UNINITIALIZED,
    server::{Server, ServerAddress, ServerPort, is_label},
};

/// What of a cloud does not change.
#[derive(Default)]
pub(super) struct CloudNameCache {
    flavors: HashMap<Id<Flavor>, String>,
    networks: HashMap<Id<Network>, String>,
    /// What was asked for in vain in this pass, and what it is called meanwhile: it is asked for again in the next.
    in_vain: HashMap<String, Option<String>>,
}

/// Names of Nodes that wait to be initialised, and ends of their provider ids: which servers they may be.
pub(super) fn waiting(nodes: &[NodeObject]) -> HashSet<&str> {
    let all = nodes.iter().filter(|it| it.has_taint(UNINITIALIZED));
    all.flat_map(|it| [Some(&*it.name), it.provider_id.as_deref().and_then(|it| it.rsplit('/').next())])
        .flatten()
        .collect()
}

/// `waiting`: of those the flavor is needed. `ports`: with their addresses.
pub(super) async fn servers(
    cloud: &Cloud,
    names: &mut CloudNameCache,
    waiting: &HashSet<&str>,
    ports: bool,
) -> Result<BTreeMap<Name, Server>, Error> {
    names.in_vain.clear();
    let project = cloud.session().project.as_ref().map(|it| it.id.to_string());
    let mut all = BTreeMap::new();
    let mut pages = cloud.all::<nova::Server>().pages::<nova::Server>(Query::all());
    while let Some(page) = pages.next().await? {
        // One that is not understood is as good as one that is not listed: its Node is asked for by id, and stays.
        for told in page.items {
            let id = told.id.to_string();
            let waits = waiting.contains(&*told.name) || waiting.contains(&*id);
            let flavor = match &told.flavor {
                Some(of) if waits => flavor(cloud, names, of).await,
                _ => String::new(),
            };
            all.insert(id.into(), server(told, flavor));
        }
    }
    if ports {
        // An operator sees those of all projects.
        let query = project.iter().fold(Query::all(), |query, it| query.with("project_id", it));
        let mut listed: Vec<AttachedPort> = cloud.all::<Port>().list(query).await?;
        listed.sort_by_cached_key(|it| it.id.to_string());
        plug(cloud, names, &mut all, &listed).await;
    }
    Ok(all)
}

/// Missing is what Nova itself says of the server: a gateway that does not know the way answers 404, too.
pub(super) async fn ask(cloud: &Cloud, server: &str) -> ServerLookup {
    let Ok(id) = server.parse::<Id<nova::Server>>() else { return ServerLookup::Unknown };
    let error = match cloud.all::<nova::Server>().read::<nova::Server>(&id).await {
        Ok(told) => return ServerLookup::Exists(told.status.to_string()),
        Err(error) if error.is_not_found() && error.is_of_service() => return ServerLookup::Missing,
        Err(error) => error,
    };
    tracing::debug!(%error, server, "whether the server exists is not known");
    match error.class() {
        Class::Unreachable | Class::Timeout | Class::Tls | Class::Busy => ServerLookup::Unreachable,
        _ => ServerLookup::Unknown,
    }
}

fn server(told: nova::Server, flavor: String) -> Server {
    let access = [&told.access_ipv4, &told.access_ipv6];
    let address = |it: &nova::Address| ServerAddress { ip: it.addr, is_floating: it.kind == "floating" };
    Server {
        id: told.id.to_string().into(),
        name: told.name.into(),
        status: told.status.to_string(),
        fault: told.fault.map(|it| it.message).unwrap_or_default(),
        zone: told.zone.unwrap_or_default(),
        host_id: told.host_id.unwrap_or_default(),
        flavor,
        access: access.into_iter().filter_map(|it| it.parse().ok()).collect(),
        host_name: told.metadata.get("hostname").cloned().unwrap_or_default(),
        addresses: told
            .addresses
            .iter()
            .map(|(name, all)| (name.clone(), all.iter().map(address).collect()))
            .collect(),
        ports: Vec::new(),
        unread_network: String::new(),
    }
}

/// The name, or the id of one whose name is no label; one that does not exist any more has its id. Nothing: it was not told.
async fn flavor(cloud: &Cloud, names: &mut CloudNameCache, of: &ServerFlavor) -> String {
    if is_label(&of.original_name) {
        return of.original_name.clone();
    }
    let Some(id) = &of.id else { return String::new() };
    if let Some(name) = names.flavors.get(id) {
        return name.clone();
    }
    if names.in_vain.contains_key(id.as_str()) {
        return String::new();
    }
    match cloud.all::<Flavor>().find::<Flavor>(id).await {
        Ok(found) => {
            let name = found.map(|it| it.name).filter(|it| is_label(it)).unwrap_or_else(|| id.to_string());
            names.flavors.insert(id.clone(), name.clone());
            name
        }
        Err(error) => {
            tracing::debug!(%error, flavor = %id, "the name of the flavor is not known");
            names.in_vain.insert(id.to_string(), None);
            String::new()
        }
    }
}

async fn plug(
    cloud: &Cloud,
    names: &mut CloudNameCache,
    servers: &mut BTreeMap<Name, Server>,
    ports: &[AttachedPort],
) {
    let by_id: HashMap<&Id<Port>, &AttachedPort> = ports.iter().map(|it| (&it.id, it)).collect();
    for port in ports {
        let Some(server) = servers.get_mut(port.device_id.as_str()) else { continue };
        let mut trunk = Vec::new();
        for sub in port.trunk_details.iter().flat_map(|it| &it.sub_ports) {
            let Some(sub) = by_id.get(&sub.port_id) else { continue };
            let Some(network) = &sub.network_id else { continue };
            match network_name(cloud, names, network).await {
                Some(name) => trunk.push((name, ips(&sub.fixed_ips))),
                None => server.unread_network = network.to_string(),
            }
        }
        server.ports.push(ServerPort {
            is_active: port.status == Status::Active,
            ips: ips(&port.fixed_ips),
            trunk,
        });
    }
}

/// Nothing: it was not told. A network that may not be seen has no name.
async fn network_name(cloud: &Cloud, names: &mut CloudNameCache, id: &Id<Network>) -> Option<String> {
    if let Some(name) = names.networks.get(id) {
        return Some(name.clone());
    }
    if let Some(name) = names.in_vain.get(id.as_str()) {
        return name.clone();
    }
    match cloud.all::<Network>().find::<Network>(id).await {
        Ok(Some(found)) => {
            names.networks.insert(id.clone(), found.name.clone());
            Some(found.name)
        }
        Ok(None) => {
            names.in_vain.insert(id.to_string(), Some(String::new()));
            Some(String::new())
        }
        Err(error) => {
            tracing::debug!(%error, network = %id, "the name of the network is not known");
            names.in_vain.insert(id.to_string(), None);
            None
        }
    }
}

fn ips(fixed: &[FixedIp]) -> Vec<IpAddr> {
    fixed.iter().filter_map(|it| it.ip_address).collect()
}
