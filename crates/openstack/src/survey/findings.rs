//! Findings of the inspection of a project: what is missing for load balancers, and the command that adds it. Pure.

use std::collections::BTreeMap;

use serde::Serialize;

use super::{ExternalNetwork, FetchResult, Quota, ServiceInfo, Survey};
use crate::{Class, Error, Service, quota};

/// Something that is not as it should be.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Finding {
    pub weight: Severity,
    pub what: String,
    pub fix: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum Severity {
    /// Without it there are no load balancers that the outside reaches.
    Missing,
    /// It will be a trouble, or is one for some.
    Warning,
}

/// A tenth of a quota that is left is worth a word.
const NEARLY: u64 = 10;

/// Those of a stock Octavia that may make load balancers; `member` is enough where the operator said so.
const MAKERS: [&str; 6] = [
    "load-balancer_member",
    "load-balancer_admin",
    "load-balancer_global_admin",
    "admin",
    "member",
    "manager",
];

pub fn findings(survey: &Survey) -> Vec<Finding> {
    let mut findings = Vec::new();
    judge_project(survey, &mut findings);
    judge_services(survey, &mut findings);
    let has =
        |service| survey.services.iter().any(|it| it.service == service && it.endpoint.value().is_some());
    if has(Service::LoadBalancer) {
        judge_octavia(survey, &mut findings);
    }
    if has(Service::Network) {
        judge_outside(survey, &mut findings);
    }
    judge_quotas(&survey.quotas, &mut findings);
    findings.sort_by_key(|it| it.weight);
    findings
}

fn judge_project(survey: &Survey, findings: &mut Vec<Finding>) {
    if survey.identity.project.is_none() {
        findings.push(missing(
            "the credentials are for no project".to_owned(),
            "name one: `project_name:` in clouds.yaml, OS_PROJECT_NAME, or tenant-name in cloud.conf"
                .to_owned(),
        ));
    }
}

fn judge_services(survey: &Survey, findings: &mut Vec<Finding>) {
    let failed = |it: &ServiceInfo| it.endpoint.error().or_else(|| it.versions.error()).cloned();
    let mut elsewhere: Option<(Vec<&str>, Severity, String)> = None;
    for (found, error) in survey.services.iter().filter_map(|it| Some((it, failed(it)?))) {
        let (service, weight) = (found.service, weight_of(found.service));
        let name = format!("{} ({service})", service.project());
        let (what, fix) = match error.class() {
            // They have one fix.
            Class::NoRegion => {
                let (names, worst, _) = elsewhere.get_or_insert_with(|| (Vec::new(), weight, fix_of(&error)));
                names.push(service.as_str());
                *worst = weight.min(*worst);
                continue;
            }
            Class::NoService => (format!("{name} is not in the catalog"), absent(service).to_owned()),
            _ => (format!("{name} does not answer: {}", error.message()), fix_of(&error)),
        };
        findings.push(Finding { weight, what, fix });
    }
    if let Some((names, weight, fix)) = elsewhere {
        let region = survey.identity.region.as_deref().unwrap_or("that is asked for");
        findings.push(Finding {
            weight,
            what: format!("the region {region} has no {}", names.join(", ")),
            fix,
        });
    }
}

fn weight_of(service: Service) -> Severity {
    match service {
        Service::Network | Service::LoadBalancer | Service::Identity => Severity::Missing,
        Service::Compute | Service::KeyManager => Severity::Warning,
    }
}

fn absent(service: Service) -> &'static str {
    match service {
        Service::LoadBalancer => {
            "install Octavia (`openstack catalog list` shows what there is), or name its address in \
             `load_balancer_endpoint_override:`"
        }
        Service::Network => "name Neutron's address in `network_endpoint_override:`",
        Service::Identity => "name Keystone's address in `identity_endpoint_override:`",
        Service::Compute => "no action is needed, unless servers are read",
        Service::KeyManager => "no action is needed, unless certificates are kept in the cloud",
    }
}

fn judge_octavia(survey: &Survey, findings: &mut Vec<Finding>) {
    let user = &survey.identity.user;
    let project = survey.identity.project.as_ref().map_or("PROJECT", |it| &it.name);
    let grant = format!(
        "an operator has to run: openstack role add --user {user} --project {project} load-balancer_member"
    );
    match &survey.load_balancers_listed {
        FetchResult::Failed(error) if matches!(error.class(), Class::Forbidden | Class::Unauthorized) => {
            findings.push(missing(
                format!("{user} may not list load balancers (roles: {})", listed(&survey.identity.roles)),
                grant,
            ));
        }
        FetchResult::Failed(error) => {
            findings.push(missing(
                format!("load balancers cannot be listed: {}", error.message()),
                fix_of(error),
            ));
        }
        FetchResult::Value(()) => {
            let roles = &survey.identity.roles;
            if !roles.is_empty() && !roles.iter().any(|it| MAKERS.contains(&it.as_str())) {
                findings.push(missing(
                    format!(
                        "{user} may see load balancers, but has no role to make any (roles: {})",
                        listed(roles)
                    ),
                    grant,
                ));
            }
        }
    }
    match &survey.providers {
        FetchResult::Value(providers) if providers.is_empty() => findings.push(missing(
            "Octavia has no provider".to_owned(),
            "an operator enables one: `enabled_provider_drivers` in octavia.conf".to_owned(),
        )),
        FetchResult::Value(_) => {}
        // Who may not even list is told so above.
        FetchResult::Failed(error) if error.class() == &Class::Forbidden => {}
        FetchResult::Failed(error) => {
            findings.push(warning(format!("providers cannot be listed: {}", error.message()), fix_of(error)));
        }
    }
}

fn judge_outside(survey: &Survey, findings: &mut Vec<Finding>) {
    let networks = match &survey.external_networks {
        FetchResult::Value(networks) => networks,
        FetchResult::Failed(error) => {
            let what = format!("external networks cannot be listed: {}", error.message());
            findings.push(missing(what, fix_of(error)));
            return;
        }
    };
    if networks.is_empty() {
        findings.push(missing(
            "there is no external network, so no floating IPs".to_owned(),
            "an operator has to run: openstack network create --external …; without it, load balancers are internal \
             (`internal-lb=true`)"
                .to_owned(),
        ));
        return;
    }
    let subnets =
        |it: &ExternalNetwork| it.subnets.value().is_some_and(|it| it.iter().any(|it| it.ip_version == 4));
    if networks.iter().any(subnets) {
        return;
    }
    let names: Vec<String> = networks.iter().map(|it| it.name.clone()).collect();
    let (what, fix) = match networks.iter().find_map(|it| it.subnets.error()) {
        Some(error) => (
            format!(
                "the subnets of external networks ({}) cannot be listed: {}",
                listed(&names),
                error.message()
            ),
            fix_of(error),
        ),
        None => (
            format!("no IPv4 subnet of an external network is visible ({})", listed(&names)),
            "an operator has to run: openstack subnet create --network NAME --subnet-range CIDR --no-dhcp …"
                .to_owned(),
        ),
    };
    findings.push(missing(what, fix));
}

fn judge_quotas(quotas: &[Quota], findings: &mut Vec<Finding>) {
    // One service that does not answer is one trouble, however many quotas it has.
    let mut unread: BTreeMap<&str, (Vec<&str>, String)> = BTreeMap::new();
    for quota in quotas {
        if let Some(error) = quota.limit.error().filter(|it| !is_absence(it)) {
            unread.entry(error.message()).or_insert_with(|| (Vec::new(), fix_of(error))).0.push(quota.what);
        }
        if let (Some(left), Some(limit)) = (quota.remaining(), quota.limit.value()) {
            judge_quota(quota.what, limit.unsigned_abs(), left, findings);
        }
    }
    for (why, (what, fix)) in unread {
        findings.push(warning(format!("the quotas of {} cannot be read: {why}", what.join(", ")), fix));
    }
}

/// Those of what is not made for each load balancer may be full.
const OF_THE_SURROUNDINGS: [&str; 4] = ["networks", "subnets", "routers", "RBAC policies"];

fn judge_quota(what: &str, limit: u64, left: u64, findings: &mut Vec<Finding>) {
    if OF_THE_SURROUNDINGS.contains(&what) {
        return;
    }
    let command = quota::command(what);
    let fix = format!("an operator raises it (`{command} --help`), or remove unused {what}");
    if left == 0 {
        findings.push(missing(format!("all {limit} {what} of the quota are used"), fix));
    } else if left.saturating_mul(NEARLY) <= limit {
        findings.push(warning(format!("{} of {limit} {what} are used", limit.saturating_sub(left)), fix));
    }
}

/// What a service that is not there at all cannot tell needs no word of its own.
pub fn is_absence(error: &Error) -> bool {
    matches!(error.class(), Class::NoService | Class::NoRegion)
}

fn fix_of(error: &Error) -> String {
    let fix = error.fix().map(ToOwned::to_owned);
    fix.unwrap_or_else(|| match error.request_id() {
        Some(id) => format!("ask an operator for the log of request {id}"),
        None => "ask an operator".to_owned(),
    })
}

fn listed(names: &[String]) -> String {
    if names.is_empty() { "none".to_owned() } else { names.join(", ") }
}

fn missing(what: String, fix: String) -> Finding {
    Finding { weight: Severity::Missing, what, fix }
}

fn warning(what: String, fix: String) -> Finding {
    Finding { weight: Severity::Warning, what, fix }
}

#[cfg(test)]
mod tests;
