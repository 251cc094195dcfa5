//! Which addresses of which subnets are taken, and by whom.

use std::{collections::HashMap, net::IpAddr};

use ipnet::IpNet;
use serde_json::{Value, json};

use super::{Neutron, SUBNET, missing};
use crate::cloud::{exchange::Refusal, store::Row};

#[derive(Clone, Debug, Default)]
pub(super) struct Addresses {
    /// Whoever has it: a port, or a floating IP.
    taken: HashMap<(String, IpAddr), String>,
    /// Where to look for a free one next, so that thousands are found quickly.
    next: HashMap<String, u128>,
}

/// An address that was asked for, more or less exactly.
#[derive(Clone, Debug, Default)]
pub(super) struct AddressRequest {
    pub(super) subnet: Option<String>,
    pub(super) address: Option<IpAddr>,
}

impl Neutron {
    /// Chooses addresses for a port of this network: those that were asked for, or one of each family.
    pub(super) fn choose(
        &self,
        network: &str,
        asked: &[AddressRequest],
        owner: &str,
    ) -> Result<Vec<(String, IpAddr)>, Refusal> {
        let subnets: Vec<&Row> = self.subnets.children(network).collect();
        if asked.is_empty() {
            let mut chosen = Vec::new();
            for version in [4, 6] {
                let family: Vec<&&Row> = subnets
                    .iter()
                    .filter(|it| it.fields.get("ip_version") == Some(&json!(version)))
                    .collect();
                let found =
                    family.iter().find_map(|subnet| Some((subnet.id.clone(), self.free(subnet, &chosen)?)));
                if found.is_none() && !family.is_empty() {
                    return Err(none_left(network));
                }
                chosen.extend(found);
            }
            return Ok(chosen);
        }
        let mut chosen = Vec::new();
        for wish in asked {
            let subnet = match (&wish.subnet, wish.address) {
                (Some(id), _) => {
                    let subnet = self.subnets.row(id).ok_or_else(|| missing(&SUBNET, id))?;
                    if subnet.parent.as_deref() != Some(network) {
                        return Err(missing(&SUBNET, id));
                    }
                    subnet
                }
                (None, Some(address)) => {
                    let found = subnets.iter().find(|it| net(it).is_some_and(|net| net.contains(&address)));
                    found.ok_or_else(|| {
                        let message = format!(
                            "IP address {address} is not a valid IP for any of the subnets on the specified network."
                        );
                        Refusal::of(400, "InvalidIpForNetwork", message)
                    })?
                }
                (None, None) => continue,
            };
            let address = match wish.address {
                Some(address) if !net(subnet).is_some_and(|net| net.contains(&address)) => {
                    let message = format!("IP address {address} is not a valid IP for the specified subnet.");
                    return Err(Refusal::of(400, "InvalidIpForSubnet", message));
                }
                Some(address) => {
                    let holder = self.addresses.taken.get(&(subnet.id.clone(), address));
                    if holder.is_some_and(|it| it != owner) {
                        return Err(address_in_use(address, &subnet.id));
                    }
                    address
                }
                None => self.free(subnet, &chosen).ok_or_else(|| none_left(network))?,
            };
            chosen.push((subnet.id.clone(), address));
        }
        Ok(chosen)
    }

    pub(super) fn take(&mut self, subnet: &str, address: IpAddr, owner: &str) {
        self.addresses.taken.insert((subnet.to_owned(), address), owner.to_owned());
        let next = self.addresses.next.entry(subnet.to_owned()).or_default();
        *next = (*next).max(number(address) + 1);
    }

    pub(super) fn free_all_of(&mut self, owner: &str, fixed: &Value) {
        for (subnet, address) in pairs(fixed) {
            let key = (subnet, address);
            if self.addresses.taken.get(&key).is_some_and(|it| it == owner) {
                self.addresses.taken.remove(&key);
                // What is given back is found again, though later than what was never given.
                let next = self.addresses.next.entry(key.0).or_default();
                *next = (*next).min(number(key.1));
            }
        }
    }

    fn free(&self, subnet: &Row, chosen: &[(String, IpAddr)]) -> Option<IpAddr> {
        let is_free = |address: &IpAddr| {
            let key = (subnet.id.clone(), *address);
            !self.addresses.taken.contains_key(&key) && !chosen.contains(&key)
        };
        let next = self.addresses.next.get(&subnet.id).copied().unwrap_or(0);
        let pools = pools(subnet);
        let behind = pools.iter().flat_map(|&(start, end)| start.max(next)..=end);
        let before = pools.iter().flat_map(|&(start, end)| start..=end);
        let is_v4 = net(subnet)?.addr().is_ipv4();
        behind.chain(before).map(|number| address(number, is_v4)).find(is_free)
    }
}

pub(in crate::cloud) fn net(subnet: &Row) -> Option<IpNet> {
    subnet.text("cidr").parse().ok()
}

/// The first address after the network's own.
pub(super) fn gateway(net: IpNet) -> IpAddr {
    match net {
        IpNet::V4(_) => address(number(net.network()) + 1, true),
        // As the rig does it, the anycast address of the subnet.
        IpNet::V6(_) => net.network(),
    }
}

/// All but the ends and the gateway.
pub(super) fn default_pools(net: IpNet, gateway: Option<IpAddr>) -> Value {
    let is_v4 = net.addr().is_ipv4();
    let first = number(net.network()) + 1;
    let last = number(net.broadcast()) - u128::from(is_v4);
    let pool = |start: u128, end: u128| json!({"start": address(start, is_v4), "end": address(end, is_v4)});
    match gateway.map(number) {
        Some(gateway) if gateway == first => json!([pool(first + 1, last)]),
        Some(gateway) if gateway > first && gateway < last => {
            json!([pool(first, gateway - 1), pool(gateway + 1, last)])
        }
        _ => json!([pool(first, last)]),
    }
}

fn pools(subnet: &Row) -> Vec<(u128, u128)> {
    let end = |pool: &Value, name: &str| pool[name].as_str()?.parse().ok().map(number);
    let pools = subnet.fields.get("allocation_pools").and_then(Value::as_array);
    pools.into_iter().flatten().filter_map(|pool| Some((end(pool, "start")?, end(pool, "end")?))).collect()
}

/// Subnets and addresses of `fixed_ips`.
pub(super) fn pairs(fixed: &Value) -> Vec<(String, IpAddr)> {
    let pair =
        |it: &Value| Some((it["subnet_id"].as_str()?.to_owned(), it["ip_address"].as_str()?.parse().ok()?));
    fixed.as_array().into_iter().flatten().filter_map(pair).collect()
}

pub(super) fn address_in_use(address: IpAddr, subnet: &str) -> Refusal {
    let message = format!("IP address {address} already allocated in subnet {subnet}");
    Refusal::of(409, "IpAddressAlreadyAllocated", message)
}

fn none_left(network: &str) -> Refusal {
    let message = format!("No more IP addresses available on network {network}.");
    Refusal::of(409, "IpAddressGenerationFailure", message)
}

pub(super) fn number(address: IpAddr) -> u128 {
    match address {
        IpAddr::V4(it) => u128::from(u32::from(it)),
        IpAddr::V6(it) => u128::from(it),
    }
}

fn address(number: u128, is_v4: bool) -> IpAddr {
    if is_v4 {
        IpAddr::V4(u32::try_from(number).unwrap_or(u32::MAX).into())
    } else {
        IpAddr::V6(number.into())
    }
}
