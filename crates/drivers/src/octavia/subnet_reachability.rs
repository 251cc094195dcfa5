//! Whether members can be reached from the subnet of a load balancer: in that subnet, by routes that the subnet tells, in another
//! subnet of its routers, or by routes of those. One list for each kind, for however many load balancers.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
};

use ipnet::IpNet;
use seaway_openstack::{
    Cloud, Error,
    neutron::{Port, Router, Subnet},
    resource::{Id, Query},
};

use super::place::cidr;

/// How routers own the ports that they have in subnets.
const INTERFACES: [&str; 3] = [
    "network:router_interface",
    "network:router_interface_distributed",
    "network:ha_router_replicated_interface",
];

/// From where, and to whom.
pub(super) type Way = (Id<Subnet>, Vec<IpAddr>);

#[derive(Default)]
pub(super) struct SubnetReachability {
    subnets: BTreeMap<Id<Subnet>, Subnet>,
    /// What routers lead to from a subnet that does not lead to all by itself, where that is known.
    reached: BTreeMap<Id<Subnet>, Vec<IpNet>>,
}

impl SubnetReachability {
    pub(super) async fn read(cloud: &Cloud, wanted: &[Way]) -> Result<SubnetReachability, Error> {
        let subnets = subnets(cloud, wanted.iter().map(|it| &it.0)).await?;
        let mut ways = SubnetReachability { subnets, reached: BTreeMap::new() };
        let open = wanted.iter().filter(|way| !ways.strangers(way).is_empty());
        let open: BTreeSet<&Id<Subnet>> = open.map(|it| &it.0).collect();
        let open: Vec<&Subnet> = open.into_iter().filter_map(|it| ways.subnets.get(it)).collect();
        if !open.is_empty() {
            ways.reached = reached(cloud, &open).await?;
        }
        Ok(ways)
    }

    /// Members that nothing leads to, in words. `picked`: nobody named the subnet.
    pub(super) fn lost(&self, way: &Way, picked: bool) -> Option<String> {
        let (from, lost) = (&way.0, self.strangers(way));
        let first = lost.first().filter(|_| self.reached.contains_key(from))?;
        let network = self.subnets.get(from).and_then(cidr).map(|it| it.to_string()).unwrap_or_default();
        let how = if picked { ", which Seaway chose because a Node is in it," } else { "" };
        let more = if lost.len() > 1 {
            format!(" and {} more", lost.len().saturating_sub(1))
        } else {
            String::new()
        };
        Some(format!("there is no route from subnet {from} ({network}){how} to its member {first}{more}"))
    }

    fn strangers(&self, (from, members): &Way) -> Vec<IpAddr> {
        // Of what cannot be read nobody knows where it leads.
        let Some(own) = self.subnets.get(from) else { return Vec::new() };
        let Some(cidr) = cidr(own) else { return Vec::new() };
        let told = own.host_routes.iter().filter_map(|it| it.destination.parse::<IpNet>().ok());
        let mut near: Vec<IpNet> = told.chain([cidr]).collect();
        near.extend(self.reached.get(from).into_iter().flatten());
        members.iter().filter(|ip| !near.iter().any(|it| it.contains(*ip))).copied().collect()
    }
}

/// Nothing of those where nobody here knows it: whose router is another's, or no router of this cloud at all.
async fn reached(cloud: &Cloud, from: &[&Subnet]) -> Result<BTreeMap<Id<Subnet>, Vec<IpNet>>, Error> {
    let networks: BTreeSet<_> = from.iter().map(|it| &it.network_id).collect();
    let here = networks.into_iter().fold(Query::all(), |query, id| query.with("network_id", id));
    let here = INTERFACES.iter().fold(here, |query, it| query.with("device_owner", it));
    let here = cloud.all::<Port>().list::<Port>(here).await?;
    let near: BTreeSet<&str> = here.iter().map(|it| it.device_id.as_str()).collect();
    let (mut ports, mut routers) = (Vec::new(), Vec::new());
    if !near.is_empty() {
        let theirs = near.iter().fold(Query::all(), |query, id| query.with("device_id", id));
        ports = cloud.all::<Port>().list::<Port>(theirs).await?;
        let those = near.iter().fold(Query::all(), |query, id| query.with("id", id));
        routers = cloud.all::<Router>().list::<Router>(those).await?;
    }
    let at: BTreeSet<(&str, &Id<Subnet>)> = (ports.iter())
        .flat_map(|port| port.fixed_ips.iter().map(|it| (port.device_id.as_str(), it.subnet_id.as_ref())))
        .filter_map(|(router, subnet)| Some((router, subnet?)))
        .collect();
    let all = subnets(cloud, at.iter().map(|it| it.1)).await?;
    let project = cloud.session().project.as_ref().map(|it| it.id.clone());
    let mut reached = BTreeMap::new();
    for subnet in from {
        let near: BTreeSet<&str> = at.iter().filter(|it| *it.1 == subnet.id).map(|it| it.0).collect();
        let its: Vec<&Router> = routers.iter().filter(|it| near.contains(it.id.as_str())).collect();
        let is_ours = project.is_some() && subnet.project_id == project;
        if its.len() < near.len() || near.is_empty() && subnet.gateway_ip.is_some() && !is_ours {
            continue;
        }
        let beside = at.iter().filter(|it| near.contains(it.0));
        let mut nets: Vec<IpNet> = beside.filter_map(|it| cidr(all.get(it.1)?)).collect();
        let routes = its.iter().flat_map(|it| &it.routes);
        nets.extend(routes.filter_map(|it| it.destination.parse::<IpNet>().ok()));
        reached.insert(subnet.id.clone(), nets);
    }
    Ok(reached)
}

async fn subnets<'i>(
    cloud: &Cloud,
    ids: impl Iterator<Item = &'i Id<Subnet>>,
) -> Result<BTreeMap<Id<Subnet>, Subnet>, Error> {
    /// Addresses of requests have an end.
    const AT_ONCE: usize = 100;
    let ids: Vec<&Id<Subnet>> = ids.collect::<BTreeSet<_>>().into_iter().collect();
    let mut found = BTreeMap::new();
    for some in ids.chunks(AT_ONCE) {
        let query = some.iter().fold(Query::all(), |query, id| query.with("id", id));
        let subnets = cloud.all::<Subnet>().list::<Subnet>(query).await?;
        found.extend(subnets.into_iter().map(|it| (it.id.clone(), it)));
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use seaway_openstack::resource::{Fields, View};

    use super::*;

    #[test]
    fn members_that_nothing_leads_to_are_told_by_the_first_of_them_and_how_many_more() {
        let object = serde_json::json!({
            "id": "own", "name": "own", "network_id": "net", "ip_version": 4, "cidr": "10.0.0.0/24",
        });
        let own = Subnet::read(Fields::of(object).expect("an object")).expect("a subnet");
        let id = own.id.clone();
        let ip = |text: &str| text.parse::<IpAddr>().expect("an address");
        for (members, picked, expected) in [
            (&["10.0.0.7", "10.1.0.7"][..], false, None),
            (&["10.0.0.7", "10.9.0.7"], false, Some("(10.0.0.0/24) to its member 10.9.0.7")),
            (
                &["10.9.0.7", "10.9.0.8"],
                true,
                Some(
                    "(10.0.0.0/24), which Seaway chose because a Node is in it, to its member 10.9.0.7 and 1 more",
                ),
            ),
        ] {
            let reached = [(id.clone(), vec!["10.1.0.0/24".parse().expect("a network")])].into();
            let ways = SubnetReachability { subnets: [(id.clone(), own.clone())].into(), reached };
            let way = (id.clone(), members.iter().map(|it| ip(it)).collect());
            let expected = expected.map(|it| format!("there is no route from subnet own {it}"));
            assert_eq!(ways.lost(&way, picked), expected);
        }
    }
}
