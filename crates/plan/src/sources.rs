//! Whose word it is which address members see of a client.
//!
//! A Service with `transparent` and `proxy-protocol-from` has the host speak to its members from whatever address a header says:
//! whoever writes both could have the machine send from any address there is. So the networks that may say it are the
//! operator's to name.

use ipnet::{IpNet, Ipv6Net};
use seaway_model::{Config, Problem, Reason, load_balancer::ClientKey};

use crate::{
    annotations::{CLIENT_RATE, DENIED, PROXY_FROM, SOURCE_RANGES, nobody},
    demand::Demand,
};

/// All addresses of IPv6 that are given to anybody: as good as every address.
const GLOBAL_UNICAST: Ipv6Net = Ipv6Net::new_assert(std::net::Ipv6Addr::new(0x2000, 0, 0, 0, 0, 0, 0, 0), 3);

/// All whom the Service believes are believed by the operator as well, or nobody but the client itself says who it is.
pub(crate) fn are_trusted(demand: &Demand, config: &Config) -> bool {
    let Some(trusted) = &config.tenants.sources else { return true };
    demand.wishes.proxy_from.iter().all(|net| trusted.iter().any(|it| it.contains(net)))
}

/// What is told where members see the host's address instead.
pub(crate) fn problem(demand: &Demand, config: &Config) -> Option<Problem> {
    if !demand.wishes.transparent || demand.cloud.is_some() || are_trusted(demand, config) {
        return None;
    }
    let message = "members see the host's address: the configuration does not trust the client addresses \
                   that proxies in these networks send";
    let problem = Problem::new(demand.owner.object(), Reason::NotAllowed, message);
    let fix = "Remove seaway.dev/transparent, or have these networks listed in tenants.transparentFrom.";
    Some(problem.at(demand.wishes.field_of(PROXY_FROM)).fix(fix))
}

/// Whether these networks together contain all addresses of IPv4 or of IPv6, so that any client is in one of them.
pub fn contains_every_address(networks: &[IpNet]) -> bool {
    let joined = IpNet::aggregate(&networks.to_vec());
    joined.iter().any(|it| it.prefix_len() == 0 || it.contains(&IpNet::from(GLOBAL_UNICAST)))
}

/// What is told of a Service that lets clients in by their addresses, and lets each say which address it has. It stays open: load
/// balancers of clouds that have no addresses of their own need this, where something else lets only them through.
pub(crate) fn forgeable(demand: &Demand) -> Option<Problem> {
    let wishes = &demand.wishes;
    let sources = demand.sources();
    let rate = wishes.http.rate.as_ref().filter(|it| it.key == ClientKey::Address);
    let ranges = match demand.service.source_ranges.is_empty() {
        true => SOURCE_RANGES,
        false => "spec.loadBalancerSourceRanges",
    };
    let by_address = [
        (ranges, !sources.is_empty() && sources != nobody()),
        (DENIED, !wishes.denied.is_empty()),
        (CLIENT_RATE, rate.is_some()),
    ];
    let by_address: Vec<&str> =
        by_address.iter().filter(|(_, is_set)| *is_set).map(|(name, _)| *name).collect();
    if by_address.is_empty() || demand.cloud.is_some() || !contains_every_address(&wishes.proxy_from) {
        return None;
    }
    let message = format!(
        "this contains every address, so each client chooses its own address with a PROXY protocol header: {} protects nothing",
        by_address.join(", ")
    );
    let problem = Problem::new(demand.owner.object(), Reason::AddressForgeable, message);
    let fix = "Name only the networks of the proxies before Seaway. Where these have no fixed addresses, let a firewall admit only \
               them to this port; the Service stays open.";
    Some(problem.at(wishes.field_of(PROXY_FROM)).fix(fix))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use seaway_model::fact::TargetPort;
    use seaway_testkit::facts;

    use super::*;

    #[test]
    fn who_lets_clients_in_by_addresses_that_they_choose_hears_of_it() {
        let everyone = (PROXY_FROM, "0.0.0.0/0");
        let ranges = (SOURCE_RANGES, "10.0.0.0/8");
        for (say, named) in [
            (&[everyone, ranges][..], Some(SOURCE_RANGES)),
            (&[(PROXY_FROM, "0.0.0.0/1,128.0.0.0/1"), ranges], Some(SOURCE_RANGES)),
            (&[(PROXY_FROM, "::/0"), (DENIED, "192.0.2.7")], Some(DENIED)),
            (&[everyone, (CLIENT_RATE, "10"), ("seaway.dev/protocol", "http")], Some(CLIENT_RATE)),
            (&[everyone, (CLIENT_RATE, "10"), ("seaway.dev/rate-limit-key", "cookie:sid")], None),
            (&[everyone], None),
            (&[(PROXY_FROM, "10.0.0.0/8"), ranges], None),
            (&[ranges], None),
        ] {
            let mut service = facts::service("shop", &[("main", 80, TargetPort::Number(80))]);
            service.meta.annotations =
                say.iter().map(|(name, value)| ((*name).into(), (*value).into())).collect();
            let demand = Demand::of_service(&Arc::new(service), &Config::default()).expect("it is ours");
            assert!(!demand.wishes.closed, "{say:?}");
            let problem = forgeable(&demand);
            let field = format!("metadata.annotations[{PROXY_FROM}]");
            assert_eq!(problem.as_ref().map(|it| it.field.as_str()), named.map(|_| &*field), "{say:?}");
            let names = |it: &str| problem.as_ref().is_some_and(|problem| problem.message.contains(it));
            assert!(named.is_none_or(names), "{say:?}: {problem:?}");
        }
    }
}
