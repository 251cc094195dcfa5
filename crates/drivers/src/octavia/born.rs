//! What a load balancer gets when it is made and never after: whoever asks for another is told so, and may have it made again
//! where it was. Pure.

use std::net::IpAddr;

use seaway_model::{LoadBalancer as Wish, Owner, Problem, Reason, load_balancer::CloudOptions};
use seaway_openstack::{
    neutron::FloatingIp,
    octavia::{AdditionalVip, LoadBalancer},
    survey::{Abilities, Ability},
};

use super::wanted::requested_vip;

/// Names of one provider.
const ALIASES: [&str; 3] = ["amphora", "amphorav2", "octavia"];

/// What is asked for and cannot come: `flavor a (it has b)`. `provider`: the one of those who name none.
pub(super) fn otherwise(wish: &Wish, it: &LoadBalancer, provider: &str) -> Vec<String> {
    let usual = CloudOptions::default();
    let outside = wish.options.cloud.as_ref().unwrap_or(&usual);
    let asked = outside.provider.as_deref().unwrap_or(provider);
    let alike = |a: &str, b: &str| a == b || ALIASES.contains(&a) && ALIASES.contains(&b);
    let mut found = Vec::new();
    let mut hold = |what: &str, asked: Option<&str>, there: Option<&str>| {
        if let Some(asked) = asked.filter(|it| there != Some(*it)) {
            found.push(format!("{what} {asked} (it has {})", there.unwrap_or("none")));
        }
    };
    let is_alike = it.provider.as_deref().is_none_or(|there| alike(asked, there));
    hold("provider", Some(asked).filter(|_| !is_alike), it.provider.as_deref());
    let can = Abilities::of(it.provider.as_deref().unwrap_or(asked), None);
    let flavor = outside.flavor.as_deref().filter(|_| can.has(Ability::Flavors));
    let zone = outside.zone.as_deref().filter(|_| can.has(Ability::Zones));
    hold("flavor", flavor, it.flavor_id.as_ref().map(|it| it.as_str()));
    hold("availability zone", zone, it.availability_zone.as_deref());
    match (&outside.port, &outside.subnet, &outside.network) {
        (Some(port), _, _) => hold("port", Some(port), it.vip_port_id.as_ref().map(|it| it.as_str())),
        (_, Some(subnet), network) => {
            hold("network", network.as_deref(), it.vip_network_id.as_ref().map(|it| it.as_str()));
            let is_beside =
                |it: &AdditionalVip| it.subnet_id.as_ref().is_some_and(|it| *it.as_str() == **subnet);
            let asked = Some(&**subnet).filter(|_| !it.additional_vips.iter().any(is_beside));
            hold("subnet", asked, it.vip_subnet_id.as_ref().map(|it| it.as_str()));
        }
        (_, _, network) => {
            hold("network", network.as_deref(), it.vip_network_id.as_ref().map(|it| it.as_str()))
        }
    }
    let is_beside = |ip: &IpAddr| it.additional_vips.iter().any(|it| it.ip_address == Some(*ip));
    let asked = requested_vip(outside).filter(|ip| !is_beside(ip));
    let (asked, there) = (asked.map(|it| it.to_string()), it.vip_address.map(|it| it.to_string()));
    hold("address", asked.as_deref(), there.as_deref());
    found
}

pub(super) fn told(
    wish: &Wish,
    it: &LoadBalancer,
    floating: Option<&FloatingIp>,
    provider: &str,
) -> Vec<(Owner, Problem)> {
    let mut otherwise = otherwise(wish, it, provider);
    let outside = wish.options.cloud.as_ref();
    let asked = outside.filter(|it| !it.internal && it.requested.is_none());
    if let (Some(asked), Some(there)) = (asked.and_then(|it| it.floating.network.as_deref()), floating)
        && asked != there.floating_network_id.as_str()
    {
        let has = &there.floating_network_id;
        otherwise.push(format!("network of floating IPs {asked} (it has one of {has})"));
    }
    if otherwise.is_empty() {
        return Vec::new();
    }
    let message = format!(
        "requested: {}; load balancer {} keeps what it was created with: Octavia cannot change that in place",
        otherwise.join(", "),
        it.id
    );
    let owner = wish.listeners.values().map(|it| &it.owner).min();
    let problem = |owner: &Owner| {
        let problem = Problem::new(owner.object(), Reason::Unsupported, message.clone()).fix(
            "To recreate the load balancer (a short outage; its addresses are kept unless others are \
             requested), set seaway.dev/rebuild-on-change: \"true\". Otherwise request what the load \
             balancer has.",
        );
        (owner.clone(), problem)
    };
    owner.into_iter().map(problem).collect()
}
