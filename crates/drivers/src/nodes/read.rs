//! The servers of a project with their ports: two lists, however many Nodes there are. Names of flavors and of networks of trunks
//! are read once each.

use std::{
    collections::{BTreeMap, HashMap},
    net::IpAddr,
};

use seaway_model::Name;
use seaway_openstack::{
    Cloud, Error,
    neutron::{AttachedPort, FixedIp, Network, Port, Status},
    nova::{self, Flavor, ServerFlavor},
    resource::{Id, Query},
};

use super::{
    deletion::Answer,
    server::{Server, ServerAddress, ServerPort, is_label},
};

/// What of a cloud does not change.
#[derive(Default)]
pub(super) struct Names {
    flavors: HashMap<Id<Flavor>, String>,
    networks: HashMap<Id<Network>, String>,
}

/// `ports`: with their addresses.
pub(super) async fn servers(
    cloud: &Cloud,
    names: &mut Names,
    ports: bool,
) -> Result<BTreeMap<Name, Server>, Error> {
    let project = cloud.session().project.as_ref().map(|it| it.id.to_string());
    let mut all = BTreeMap::new();
    let mut pages = cloud.all::<nova::Server>().pages::<nova::Server>(Query::all());
    while let Some(page) = pages.next().await? {
        // One that is not understood is as good as one that is not listed: its Node is asked for by id, and stays.
        for told in page.items {
            let flavor = flavor(cloud, names, told.flavor.as_ref()).await?;
            all.insert(told.id.to_string().into(), server(told, flavor));
        }
    }
    if ports {
        // An operator sees those of all projects.
        let query = project.iter().fold(Query::all(), |query, it| query.with("project_id", it));
        let mut listed: Vec<AttachedPort> = cloud.all::<Port>().list(query).await?;
        listed.sort_by_cached_key(|it| it.id.to_string());
        plug(cloud, names, &mut all, &listed).await?;
    }
    Ok(all)
}

pub(super) async fn ask(cloud: &Cloud, server: &str) -> Answer {
    let Ok(id) = server.parse::<Id<nova::Server>>() else { return Answer::Unknown };
    match cloud.all::<nova::Server>().find::<nova::Server>(&id).await {
        Ok(Some(told)) => Answer::Exists(told.status.to_string()),
        Ok(None) => Answer::Missing,
        Err(error) => {
            tracing::debug!(%error, server, "whether the server exists is not known");
            Answer::Unknown
        }
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
    }
}

/// The name, or the id of one whose name is no label; one that does not exist any more has its id.
async fn flavor(cloud: &Cloud, names: &mut Names, of: Option<&ServerFlavor>) -> Result<String, Error> {
    let Some(of) = of else { return Ok(String::new()) };
    if is_label(&of.original_name) {
        return Ok(of.original_name.clone());
    }
    let Some(id) = &of.id else { return Ok(String::new()) };
    if let Some(name) = names.flavors.get(id) {
        return Ok(name.clone());
    }
    let found = cloud.all::<Flavor>().find::<Flavor>(id).await?;
    let name = found.map(|it| it.name).filter(|it| is_label(it)).unwrap_or_else(|| id.to_string());
    names.flavors.insert(id.clone(), name.clone());
    Ok(name)
}

async fn plug(
    cloud: &Cloud,
    names: &mut Names,
    servers: &mut BTreeMap<Name, Server>,
    ports: &[AttachedPort],
) -> Result<(), Error> {
    let by_id: HashMap<&Id<Port>, &AttachedPort> = ports.iter().map(|it| (&it.id, it)).collect();
    for port in ports {
        let Some(server) = servers.get_mut(port.device_id.as_str()) else { continue };
        let mut trunk = Vec::new();
        for sub in port.trunk_details.iter().flat_map(|it| &it.sub_ports) {
            let Some(sub) = by_id.get(&sub.port_id) else { continue };
            let Some(network) = &sub.network_id else { continue };
            trunk.push((network_name(cloud, names, network).await?, ips(&sub.fixed_ips)));
        }
        server.ports.push(ServerPort {
            is_active: port.status == Status::Active,
            ips: ips(&port.fixed_ips),
            trunk,
        });
    }
    Ok(())
}

async fn network_name(cloud: &Cloud, names: &mut Names, id: &Id<Network>) -> Result<String, Error> {
    if let Some(name) = names.networks.get(id) {
        return Ok(name.clone());
    }
    let found = cloud.all::<Network>().find::<Network>(id).await?;
    let name = found.map(|it| it.name).unwrap_or_default();
    names.networks.insert(id.clone(), name.clone());
    Ok(name)
}

fn ips(fixed: &[FixedIp]) -> Vec<IpAddr> {
    fixed.iter().filter_map(|it| it.ip_address).collect()
}
