//! Where a load balancer is put, as far as nobody said: the subnet that the Nodes are in, and of a second family the one
//! beside it. And whether members are reached from there.

use std::{collections::BTreeSet, net::IpAddr};

use ipnet::IpNet;
use seaway_engine::Failure;
use seaway_model::{
    Desired, LbKey, LoadBalancer as Wish, Owner, Problem, Reason,
    group::CloudNode,
    load_balancer::{CloudOptions, Family},
};
use seaway_openstack::{
    Cloud, Error,
    neutron::{Network, Subnet},
    octavia::NewAdditionalVip,
    resource::{Edit, Id, Query},
};

use super::{
    affinity::OVN,
    groups::neutron_ports::{NodeNeutronPort, find_neutron_ports, named},
    steps::{Observed, ObservedLoadBalancer},
    subnet_reachability::{SubnetReachability, Way},
    wanted::{Wanted, is_inside},
};

/// What was found of a load balancer that is not there yet.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Placed {
    pub first: Option<Id<Subnet>>,
    pub second: Option<Id<Subnet>>,
    /// Members are reached from there, as somebody said.
    pub from: Option<Id<Subnet>>,
    /// Nobody said in which subnet it is.
    pub picked: bool,
    /// Where members are that nothing leads to.
    pub lost: Option<String>,
}

/// Why nobody knows where it may be: the message, and what to do.
pub(super) type Nowhere = (String, &'static str);

/// `of`: whose members are to be reached from there.
pub(super) async fn placed(
    cloud: &Cloud,
    wish: &Wish,
    of: Option<Family>,
) -> Result<Result<Placed, Nowhere>, Error> {
    let usual = CloudOptions::default();
    let outside = wish.options.cloud.as_ref().unwrap_or(&usual);
    let first = outside.families.first().copied().unwrap_or(Family::V4);
    let second = outside.families.get(1).filter(|_| outside.port.is_none());
    let said = outside.subnet.is_some() || outside.port.is_some();
    let mut placed = Placed::default();
    let mut at: Option<Id<Subnet>> = None;
    let subnets = if !said && outside.network.is_none() {
        let picked = match picked(cloud, &outside.beside, first).await? {
            Ok(picked) => picked,
            Err(nowhere) => return Ok(Err(nowhere)),
        };
        placed.first = Some(picked.id.clone());
        let network = picked.network_id.clone();
        at = Some(picked.id);
        if second.is_some() { of_network(cloud, network.as_str()).await? } else { Vec::new() }
    } else if let (Some(network), None) = (&outside.network, &outside.subnet)
        && (second.is_some() || first == Family::V6)
    {
        let all = of_network(cloud, network).await?;
        placed.first = all.iter().find(|it| is_of(it, first)).map(|it| it.id.clone());
        if placed.first.is_none() {
            let message = format!("network {network} has no subnet of {}", first.as_str());
            return Ok(Err((message, "Name another network, or ask for another family.")));
        }
        all
    } else if let (Some(subnet), Some(_)) = (&outside.subnet, second) {
        let found = cloud.all::<Subnet>().list::<Subnet>(Query::all().with("id", subnet)).await?;
        match found.first() {
            Some(it) => of_network(cloud, it.network_id.as_str()).await?,
            None => Vec::new(),
        }
    } else {
        Vec::new()
    };
    if let Some(second) = second {
        let its = subnets.iter().find(|it| is_of(it, *second));
        placed.second = its.map(|it| it.id.clone());
        if of == Some(*second) {
            at = its.map(|it| it.id.clone());
        }
    }
    if placed.second.is_none() && outside.both {
        let family = outside.families.get(1).copied().unwrap_or_else(|| first.other()).as_str();
        let message = format!("the network of the VIP has no subnet of {family}");
        return Ok(Err((message, "Set spec.ipFamilyPolicy: PreferDualStack, or SingleStack.")));
    }
    let of = of.unwrap_or(first);
    placed.say(outside, of);
    if let Some(at) = placed.from.clone().or(at) {
        let way = (at, members(wish, of));
        placed.lost =
            SubnetReachability::read(cloud, std::slice::from_ref(&way)).await?.lost(&way, placed.picked);
    }
    Ok(Ok(placed))
}

/// Where it is, as far as its Service says it by now.
pub(super) fn say(key: &LbKey, desired: &Desired, placed: &mut Placed) {
    let Desired::LoadBalancer(wish) = desired else { return };
    let Some(outside) = &wish.options.cloud else { return };
    let first = outside.families.first().copied().unwrap_or(Family::V4);
    placed.say(outside, key.second_family().unwrap_or(first));
}

impl Placed {
    /// What its Service says of it. What followed from something else is of no worth any more.
    fn say(&mut self, outside: &CloudOptions, family: Family) {
        let is_first = outside.families.first().is_none_or(|it| *it == family);
        let member_subnet = outside.member_subnet.as_ref().filter(|_| is_first);
        let from = member_subnet.and_then(|it| it.parse().ok());
        let picked = outside.subnet.is_none() && outside.network.is_none() && outside.port.is_none();
        if (&self.from, self.picked) != (&from, picked) {
            (self.from, self.picked, self.lost) = (from, picked, None);
        }
    }

    /// From where its members are to be reached, those of each family for themselves.
    pub(super) fn ways(&self, it: &ObservedLoadBalancer) -> Vec<Way> {
        let pools = it.branches.values().filter_map(|it| it.pool.as_ref());
        let members: BTreeSet<IpAddr> = pools.flat_map(|it| it.members.keys()).map(|it| it.ip()).collect();
        let first = it.it.vip_address.map(|ip| (ip, self.from.as_ref().or(it.it.vip_subnet_id.as_ref())));
        let others =
            it.it.additional_vips.iter().filter_map(|it| Some((it.ip_address?, it.subnet_id.as_ref())));
        let ways = first.into_iter().chain(others).filter_map(|(ip, from)| {
            let its = members.iter().filter(|it| Family::of(**it) == Family::of(ip));
            Some((from?.clone(), its.copied().collect()))
        });
        ways.collect()
    }
}

/// A floating IP leads to the port of the VIP, and to an address of IPv4 there. So of two families that is the VIP, whichever
/// the Service names first; what is told keeps the Service's order.
pub(super) fn lead_by_ipv4(wish: &Wish, placed: &mut Placed) {
    let Some(outside) = &wish.options.cloud else { return };
    if outside.internal || outside.families.first() != Some(&Family::V6) {
        return;
    }
    let six = placed.first.clone().or_else(|| outside.subnet.as_ref()?.parse().ok());
    if let (Some(four), Some(six)) = (placed.second.take(), six) {
        (placed.first, placed.second) = (Some(four), Some(six));
    }
}

/// As it is to be made.
pub(super) fn fill(wanted: &mut Wanted, placed: &Placed) {
    if let Some(subnet) = &placed.first {
        wanted.balancer.vip_subnet_id = Edit::To(Some(subnet.clone()));
        wanted.balancer.vip_network_id = Edit::Leave;
    }
    if let Some(subnet) = &placed.second {
        // Of two families that is the one for IPv6, and so is an address that is asked for and is none of a floating IP.
        let ip_address = match (&wanted.floating, &wanted.balancer.vip_address) {
            (Some(_), Edit::To(Some(ip))) if Family::of(*ip) == Family::V6 => Some(*ip),
            _ => None,
        };
        if ip_address.is_some() {
            wanted.balancer.vip_address = Edit::Leave;
        }
        let new = NewAdditionalVip { subnet_id: subnet.clone(), ip_address };
        wanted.balancer.additional_vips = Edit::To(vec![new]);
    }
}

/// OVN looks for members in the subnet of the VIP alone. It refuses a write that has one of the other family and does not name
/// its subnet: that of the second VIP.
pub(super) fn name_subnets(wanted: &mut Wanted, it: &ObservedLoadBalancer) {
    if it.it.provider.as_deref() != Some(OVN) {
        return;
    }
    let first = it.it.vip_address.map(Family::of);
    let second = it.it.additional_vips.iter().find(|it| it.ip_address.map(Family::of) != first);
    let Some(subnet) = second.and_then(|it| it.subnet_id.as_ref()) else { return };
    for member in wanted.listeners.values_mut().flat_map(|it| &mut it.members) {
        if Some(Family::of(member.address)) != first && member.subnet_id == Edit::Leave {
            member.subnet_id = Edit::To(Some(subnet.clone()));
        }
    }
}

/// Its owners are told, who can name a place.
pub(super) fn failed(wish: &Wish, (message, fix): &Nowhere) -> Failure {
    Failure::User(owners(wish).map(|owner| problem_for(owner, message.clone(), fix)).collect())
}

/// Where it is reached: the outside by a floating IP, if there is one for its family.
pub(super) fn addresses(wish: &Wish, it: &ObservedLoadBalancer, observed: &Observed) -> Vec<IpAddr> {
    let usual = CloudOptions::default();
    let outside = wish.options.cloud.as_ref().unwrap_or(&usual);
    let is_v6 = |ip: &IpAddr| Family::of(*ip) == Family::V6;
    let vips = it.it.vip_address.into_iter();
    let vips = vips.chain(it.it.additional_vips.iter().filter_map(|it| it.ip_address));
    // Or by its VIP, in a cloud that has no floating IPs.
    let internal = outside.internal || observed.external == Some(None);
    let mut found: Vec<IpAddr> = vips.filter(|ip| internal || is_v6(ip)).collect();
    if !outside.internal {
        found.extend(observed.floating.as_ref().and_then(|it| it.floating_ip_address));
    }
    found.retain(|ip| outside.families.is_empty() || outside.families.contains(&Family::of(*ip)));
    found
}

/// What is wrong with where it is.
pub(super) fn told(wish: &Wish, it: &ObservedLoadBalancer, placed: &Placed) -> Vec<(Owner, Problem)> {
    let mut told = Vec::new();
    let both = wish.options.cloud.as_ref().is_some_and(|it| it.both);
    for owner in owners(wish) {
        if let Some(lost) = &placed.lost {
            let fix = "Connect the subnets of the VIP and of the members by a router. Or name the subnet of the members: \
                       member-subnet-id in [LoadBalancer], or the annotation seaway.dev/member-subnet of the Service.";
            told.push(problem_for(owner, lost.clone(), fix));
        }
        if wish.options.cloud.as_ref().is_some_and(|it| !is_inside(it)) && !is_led_to(it) {
            let message = format!(
                "load balancer {} was created with an IPv6 VIP, which cannot have a floating IP: the IPv4 \
                 address of the load balancer cannot be reached from outside",
                it.it.id
            );
            let fix = "To recreate it, set seaway.dev/rebuild-on-change: \"true\", with another subnet or with IPv4 first in spec.ipFamilies.";
            told.push(problem_for(owner, message, fix));
        }
        if both && it.it.additional_vips.is_empty() {
            let message =
                "the load balancer of the Service has one address, and can get a second one only when it is \
                 created"
                    .to_owned();
            told.push(problem_for(
                owner,
                message,
                "Delete the Service and create it again, or set spec.ipFamilyPolicy: SingleStack.",
            ));
        }
    }
    told
}

/// A floating IP may lead to it.
pub(super) fn is_led_to(it: &ObservedLoadBalancer) -> bool {
    it.it.vip_address.is_none_or(|ip| Family::of(ip) == Family::V4)
}

fn owners(wish: &Wish) -> impl Iterator<Item = &Owner> {
    wish.listeners.values().map(|it| &it.owner).collect::<BTreeSet<_>>().into_iter()
}

fn problem_for(owner: &Owner, message: String, fix: &str) -> (Owner, Problem) {
    (owner.clone(), Problem::new(owner.object(), Reason::Failed, message).fix(fix))
}

/// The subnet of the first Node's port that has its address.
async fn picked(
    cloud: &Cloud,
    nodes: &[CloudNode],
    family: Family,
) -> Result<Result<Subnet, Nowhere>, Error> {
    let all: Vec<&CloudNode> = nodes.iter().collect();
    let (found, ports) = find_neutron_ports(cloud, &all, &BTreeSet::new()).await?;
    for node in nodes {
        let Some(NodeNeutronPort::At(port) | NodeNeutronPort::Open(port)) = found.get(node) else { continue };
        let fixed = ports.iter().filter(|it| it.id == *port).flat_map(|it| &it.fixed_ips);
        let its = fixed.filter(|it| {
            it.ip_address.is_some_and(|ip| Family::of(ip) == family && node.addresses.contains(&ip))
        });
        if let Some(subnet) = its.filter_map(|it| it.subnet_id.clone()).next() {
            return Ok(Ok(cloud.all::<Subnet>().read(&subnet).await?));
        }
    }
    let names: Vec<_> = nodes.iter().map(|it| &it.name).collect();
    let message = match names.is_empty() {
        true => "no option names the subnet of the VIP, and there is no Node whose subnet could be used"
            .to_owned(),
        false => format!(
            "no option names the subnet of the VIP, and no port of this cloud has an address of {}",
            named(&names)
        ),
    };
    Ok(Err((
        message,
        "Set the subnet of the VIP: subnet-id in [LoadBalancer], or the annotation seaway.dev/subnet of the Service.",
    )))
}

fn members(wish: &Wish, family: Family) -> Vec<IpAddr> {
    let all = wish.pools.values().flat_map(|it| &it.members).map(|it| it.at.ip());
    let unique: BTreeSet<IpAddr> = all.filter(|ip| Family::of(*ip) == family).collect();
    unique.into_iter().collect()
}

async fn of_network(cloud: &Cloud, network: &str) -> Result<Vec<Subnet>, Error> {
    let query = match network.parse::<Id<Network>>() {
        Ok(id) => Query::all().with("network_id", id),
        Err(_) => return Ok(Vec::new()),
    };
    cloud.all::<Subnet>().list::<Subnet>(query).await
}

fn is_of(subnet: &Subnet, family: Family) -> bool {
    subnet.ip_version == if family == Family::V4 { 4 } else { 6 }
}

pub(super) fn cidr(subnet: &Subnet) -> Option<IpNet> {
    subnet.cidr.as_deref()?.parse().ok()
}
