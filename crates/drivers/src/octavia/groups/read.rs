//! Reads a group with the ports that have it, and what is needed to know what it should be.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
};

use ipnet::IpNet;
use seaway_model::{
    NodeSecurityGroup, Owner,
    group::{CloudNode, SourceNetwork},
};
use seaway_openstack::{
    Cloud, Error,
    neutron::{Network, Port, SecurityGroup, Subnet},
    resource::{Id, Query},
};

use super::{neutron_ports::find_neutron_ports, steps::Observed, theirs::theirs};
use crate::octavia::Cluster;

pub(super) async fn read(
    cloud: &Cloud,
    cluster: &Cluster,
    class: &str,
    owners: &[Owner],
) -> Result<Observed, Error> {
    let project = cloud.session().project.as_ref().map(|it| it.id.clone());
    let here = project.map_or_else(Query::all, |id| Query::all().with("project_id", id));
    let all = cloud.all::<SecurityGroup>().list::<SecurityGroup>(here).await?;
    let theirs = theirs(cluster, &all, owners.iter());
    let mut found = those_of(all, &cluster.group_description(class));
    if found.is_empty() {
        return Ok(Observed { theirs, ..Observed::default() });
    }
    let group = found.remove(0);
    let query = Query::all().with("security_groups", &group.id);
    let ports = cloud.all::<Port>().list::<Port>(query).await?;
    Ok(Observed {
        ports: ports.into_iter().map(|it| (it.id.clone(), it)).collect(),
        group: Some(group),
        doubles: found.into_iter().map(|it| it.id).collect(),
        theirs,
        ..Observed::default()
    })
}

/// Those that say so, the oldest first.
pub(super) async fn groups(cloud: &Cloud, description: &str) -> Result<Vec<SecurityGroup>, Error> {
    let query = Query::all().with("description", description);
    Ok(those_of(cloud.all::<SecurityGroup>().list::<SecurityGroup>(query).await?, description))
}

fn those_of(mut found: Vec<SecurityGroup>, description: &str) -> Vec<SecurityGroup> {
    found.retain(|it| it.description == description);
    found.sort_by(|a, b| (&a.created_at, &a.id).cmp(&(&b.created_at, &b.id)));
    found
}

/// Looks for what is not known yet: Nodes that are new or another, places that nobody looked at.
pub(super) async fn complete(
    cloud: &Cloud,
    group: &NodeSecurityGroup,
    there: &mut Observed,
) -> Result<(), Error> {
    there.neutron_ports.retain(|node, _| group.nodes.contains(node));
    let new: Vec<&CloudNode> =
        group.nodes.iter().filter(|it| !there.neutron_ports.contains_key(it)).collect();
    if !new.is_empty() {
        let networks: BTreeSet<Id<Network>> = there.holders().map(|it| it.network_id.clone()).collect();
        let (found, ports) = find_neutron_ports(cloud, &new, &networks).await?;
        there.neutron_ports.extend(found);
        there.ports.extend(ports.into_iter().map(|it| (it.id.clone(), it)));
        there.places.remove(&SourceNetwork::Nodes);
    }
    let of_nodes = subnets_of_nodes(group, there);
    there.beside = beside(group, there, &of_nodes);
    let wanted: BTreeSet<SourceNetwork> = (group.openings.values().map(|it| &it.from))
        .chain(there.beside.values().flatten())
        .cloned()
        .collect();
    there.places.retain(|from, it| wanted.contains(from) && it.is_ok());
    for from in &wanted {
        if *from != SourceNetwork::Nodes && !there.places.contains_key(from) {
            let place = place(cloud, from).await?;
            there.places.insert(from.clone(), place);
        }
    }
    if wanted.contains(&SourceNetwork::Nodes) && !there.places.contains_key(&SourceNetwork::Nodes) {
        let place = match of_nodes.is_empty() {
            true => Err("no Node has a Neutron port in this project".to_owned()),
            false => Ok(cidrs(cloud, by_ids(&of_nodes)).await?),
        };
        there.places.insert(SourceNetwork::Nodes, place);
    }
    // What is of nobody who is wanted, and has not the group, is of no interest.
    let of_nodes: BTreeSet<IpAddr> = group.nodes.iter().flat_map(|it| it.addresses.clone()).collect();
    let holders: BTreeSet<Id<Port>> = there.holders().map(|it| it.id.clone()).collect();
    let is_theirs =
        |it: &Port| it.fixed_ips.iter().filter_map(|it| it.ip_address).any(|ip| of_nodes.contains(&ip));
    there.ports.retain(|id, it| holders.contains(id) || is_theirs(it));
    Ok(())
}

fn subnets_of_nodes(group: &NodeSecurityGroup, there: &Observed) -> BTreeSet<Id<Subnet>> {
    let addresses: BTreeSet<IpAddr> = group.nodes.iter().flat_map(|it| it.addresses.clone()).collect();
    let fixed = there.ports.values().flat_map(|it| &it.fixed_ips);
    let fixed = fixed.filter(|it| it.ip_address.is_some_and(|ip| addresses.contains(&ip)));
    fixed.filter_map(|it| it.subnet_id.clone()).collect()
}

/// From where load balancers that are there reach Nodes, beside from where they would if they were made now.
fn beside(
    group: &NodeSecurityGroup,
    there: &Observed,
    of_nodes: &BTreeSet<Id<Subnet>>,
) -> BTreeMap<Owner, BTreeSet<SourceNetwork>> {
    let is_of_nodes =
        |it: &SourceNetwork| of_nodes.iter().any(|id| *it == SourceNetwork::Subnet(id.as_str().into()));
    let mut beside = BTreeMap::new();
    for (owner, openings) in group.openings.iter().filter(|(_, it)| !it.frozen) {
        let is_new = |it: &&SourceNetwork| openings.from != SourceNetwork::Nodes || !is_of_nodes(it);
        let made = there.made.get(owner).into_iter();
        let its: BTreeSet<SourceNetwork> =
            made.flat_map(|it| it.beside(openings)).filter(is_new).cloned().collect();
        if !its.is_empty() {
            beside.insert(owner.clone(), its);
        }
    }
    beside
}

async fn place(cloud: &Cloud, from: &SourceNetwork) -> Result<Result<Vec<IpNet>, String>, Error> {
    let query = match from {
        SourceNetwork::Nodes => Query::all(),
        SourceNetwork::Subnet(id) => Query::all().with("id", id),
        SourceNetwork::Network(id) => Query::all().with("network_id", id),
        SourceNetwork::Port(id) => {
            let Ok(id) = id.parse::<Id<Port>>() else {
                return Ok(Err(format!("{id:?} is not the id of a port")));
            };
            let port = cloud.all::<Port>().find::<Port>(&id).await?;
            let ids: BTreeSet<Id<Subnet>> =
                port.iter().flat_map(|it| &it.fixed_ips).filter_map(|it| it.subnet_id.clone()).collect();
            if ids.is_empty() {
                return Ok(Err(format!("the cloud has no port {id}")));
            }
            by_ids(&ids)
        }
    };
    let found = cidrs(cloud, query).await?;
    Ok(match (found.is_empty(), from) {
        (true, SourceNetwork::Subnet(id)) => Err(format!("the cloud has no subnet {id}")),
        (true, SourceNetwork::Network(id)) => Err(format!("network {id} has no subnet")),
        _ => Ok(found),
    })
}

fn by_ids(ids: &BTreeSet<Id<Subnet>>) -> Query {
    ids.iter().fold(Query::all(), |query, id| query.with("id", id))
}

async fn cidrs(cloud: &Cloud, query: Query) -> Result<Vec<IpNet>, Error> {
    let subnets = cloud.all::<Subnet>().list::<Subnet>(query).await?;
    let mut found: Vec<IpNet> = subnets.iter().filter_map(|it| it.cidr.as_deref()?.parse().ok()).collect();
    found.sort();
    Ok(found)
}
