//! How much of each quota is used. Neutron tells both; Octavia tells limits alone, and what is used has to be counted.

use serde::Serialize;

use super::{FetchResult, Progress};
use crate::{
    Cloud, Error,
    octavia::{HealthMonitor, Listener, LoadBalancer, PoolMembers},
    quota::{Limits, Usage},
    resource::{Collection, IdOnly, Query, Resource, View},
};

#[derive(Debug, Serialize)]
pub struct Quota {
    /// As a human says it: `load balancers`.
    pub what: &'static str,
    /// -1 is none.
    pub limit: FetchResult<i64>,
    pub used: FetchResult<u64>,
}

impl Quota {
    /// How many more there may be, where there is a limit and both are known.
    pub fn remaining(&self) -> Option<u64> {
        let limit = u64::try_from(*self.limit.value()?).ok()?;
        Some(limit.saturating_sub(*self.used.value()?))
    }
}

/// Neutron's words, and a human's.
const NEUTRON: [(&str, &str); 8] = [
    ("floatingip", "floating IPs"),
    ("port", "ports"),
    ("security_group", "security groups"),
    ("security_group_rule", "security group rules"),
    ("network", "networks"),
    ("subnet", "subnets"),
    ("router", "routers"),
    ("rbac_policy", "RBAC policies"),
];

pub(super) async fn quotas(cloud: &Cloud, project: Option<&str>, progress: &Progress) -> Vec<Quota> {
    let Some(project) = project else { return Vec::new() };
    let (mut all, neutron) = tokio::join!(octavia(cloud, project, progress), neutron(cloud, project));
    all.extend(neutron);
    all
}

async fn octavia(cloud: &Cloud, project: &str, progress: &Progress) -> Vec<Quota> {
    // An operator sees everybody's.
    let ours = || Query::all().with("project_id", project);
    let told = cloud.load_balancer_quotas(project);
    let (limits, balancers, listeners, pools, monitors) = tokio::join!(
        told.read(),
        count::<IdOnly<LoadBalancer>>(cloud.all(), ours(), |_| 0, progress),
        count::<IdOnly<Listener>>(cloud.all(), ours(), |_| 0, progress),
        count::<PoolMembers>(cloud.all(), ours(), |it| it.members.len(), progress),
        count::<IdOnly<HealthMonitor>>(cloud.all(), ours(), |_| 0, progress),
    );
    let members = pools.as_ref().map(|(_, members)| *members).map_err(Error::clone);
    let number = |counted: Result<(u64, u64), Error>| counted.map(|(number, _)| number);
    // Each has been written in two ways.
    [
        ("load balancers", ["load_balancer", "loadbalancer"], number(balancers)),
        ("listeners", ["listener", "listener"], number(listeners)),
        ("pools", ["pool", "pool"], number(pools)),
        ("members", ["member", "member"], members),
        ("health monitors", ["health_monitor", "healthmonitor"], number(monitors)),
    ]
    .into_iter()
    .map(|(what, names, used)| Quota { what, limit: limit(&limits, &names).into(), used: used.into() })
    .collect()
}

/// A kind that the quota does not name has none.
fn limit(limits: &Result<Limits, Error>, names: &[&str]) -> Result<i64, Error> {
    let limits = limits.as_ref().map_err(Error::clone)?;
    Ok(names.iter().find_map(|it| limits.get(*it)).copied().unwrap_or(-1))
}

/// Sums over a list that may be long, a page at a time: how many there are, and how much each has.
async fn count<V: View>(
    of: Collection<V::Resource>,
    query: Query,
    each: impl Fn(&V) -> usize,
    progress: &Progress,
) -> Result<(u64, u64), Error> {
    let mut pages = of.pages::<V>(query);
    let (mut number, mut sum) = (0, 0);
    while let Some(page) = pages.next().await? {
        number = page.broken.len().saturating_add(page.items.len()).saturating_add(number);
        sum = page.items.iter().map(&each).fold(sum, usize::saturating_add);
        if number >= 1000 {
            progress(&format!("{}: {number} so far", <V::Resource as Resource>::NAMES.list));
        }
    }
    Ok((number as u64, sum as u64))
}

async fn neutron(cloud: &Cloud, project: &str) -> Vec<Quota> {
    let quotas = cloud.network_quotas(project);
    let details = match quotas.details().await {
        Ok(details) => details,
        Err(error) => return without_details(quotas.read().await, &error),
    };
    NEUTRON
        .iter()
        .filter_map(|(name, what)| {
            let Usage { limit, used, reserved } = *details.get(*name)?;
            Some(Quota {
                what,
                limit: FetchResult::Value(limit),
                used: FetchResult::Value(used.saturating_add(reserved)),
            })
        })
        .collect()
}

/// An old Neutron, or one without the extension, knows limits alone.
fn without_details(limits: Result<Limits, Error>, why: &Error) -> Vec<Quota> {
    let limits = match limits {
        Ok(limits) => limits,
        Err(error) => {
            return vec![Quota {
                what: "networks",
                limit: FetchResult::Failed(error),
                used: FetchResult::Failed(why.clone()),
            }];
        }
    };
    NEUTRON
        .iter()
        .filter_map(|(name, what)| {
            let limit = FetchResult::Value(*limits.get(*name)?);
            Some(Quota { what, limit, used: FetchResult::Failed(why.clone()) })
        })
        .collect()
}
