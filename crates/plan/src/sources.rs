//! Whose word it is which address members see of a client.
//!
//! A Service with `transparent` and `proxy-protocol-from` has the host speak to its members from whatever address a header says:
//! whoever writes both could have the machine send from any address there is. So the networks that may say it are the
//! operator's to name.

use seaway_model::{Config, Problem, Reason};

use crate::{annotations::PROXY_FROM, demand::Demand};

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
