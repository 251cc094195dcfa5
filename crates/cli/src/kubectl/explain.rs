//! `kubectl seaway explain`.

use std::{fmt::Write, process::ExitCode};

use anyhow::{Result, bail};
use seaway_admin::{View, view::MemberState};
use seaway_cluster::{HostInspection, HostLiveness};
use seaway_model::{Name, Reason, announced::ConditionStatus};
use seaway_plan::{Overview, ServiceKey, explain::explain_but};

use super::{ClusterView, connect, connections, is_of_cloud};
use crate::{args::kubectl::Explain, output};

pub(super) async fn run(arguments: &Explain) -> Result<ExitCode> {
    let cluster = connect(&arguments.reach).await?;
    let key = key(&arguments.what, arguments.namespace.as_deref(), || cluster.default_namespace())?;
    let glance = ClusterView::at(&arguments.reach, &cluster, Some(&key.namespace), Some(&key.name)).await?;
    let is_told = is_told(&glance, &key);
    // Secrets were not looked at: none of them is missing. And the configuration of a cloud is its controller's to know.
    let unknown = |it: &seaway_model::Problem| it.reason == Reason::NoSuchSecret || is_told;
    match explain_but(&glance.world, &key, unknown) {
        // What follows from what may not be seen is not so.
        Ok(_) if glance.sight.only.is_some() => match said(&glance, &key) {
            text if text.is_empty() => {
                output::line(&format!(
                    "Seaway has written nothing to the status of Service {}/{} yet.",
                    key.namespace, key.name
                ));
            }
            text => output::line(text.trim_end()),
        },
        Ok(text) => output::line(format!("{text}{}{}", said(&glance, &key), hosts(&glance, &key)).trim_end()),
        Err(why) => bail!("{why}"),
    }
    for note in glance.notes() {
        output::error(&format!("note: {note}"));
    }
    Ok(ExitCode::SUCCESS)
}

/// Whether a cloud serves it, and the controller there has said how it is.
fn is_told(glance: &ClusterView, key: &ServiceKey) -> bool {
    let of =
        |it: &&seaway_cluster::ServiceInspection| (&it.namespace, &it.name) == (&key.namespace, &key.name);
    let is_said = glance.sight.services.iter().find(of).is_some_and(|it| it.ready.is_some());
    is_said && planned(glance, key).is_some_and(|it| is_of_cloud(&it))
}

fn planned(glance: &ClusterView, key: &ServiceKey) -> Option<Overview> {
    let of = |it: &Overview| {
        it.demand.as_ref().is_some_and(|it| {
            (&it.service.meta.namespace, &it.service.meta.name) == (&key.namespace, &key.name)
        })
    };
    glance.world.overview().into_iter().find(of)
}

/// `service shop`, `shop`, `service/shop`, `infra/shop`.
pub(super) fn key(
    what: &[String],
    namespace: Option<&str>,
    default: impl Fn() -> Name,
) -> Result<ServiceKey> {
    let is_kind = |it: &str| matches!(it, "service" | "services" | "svc");
    let name = match what {
        [name] => name.as_str(),
        [kind, name] if is_kind(kind) => name.as_str(),
        _ => bail!("only a Service can be named here: service NAME"),
    };
    let (own, name) = match name.split_once('/') {
        Some((kind, name)) if is_kind(kind) => (None, name),
        Some((namespace, name)) => (Some(namespace), name),
        None => (None, name),
    };
    let namespace = own.or(namespace).map_or_else(default, Name::from);
    Ok(ServiceKey::new(namespace, name))
}

/// What the controller has written.
fn said(glance: &ClusterView, key: &ServiceKey) -> String {
    let of =
        |it: &&seaway_cluster::ServiceInspection| (&it.namespace, &it.name) == (&key.namespace, &key.name);
    let Some(said) = glance.sight.services.iter().find(of) else { return String::new() };
    let mut text = String::new();
    let addresses: Vec<&str> = said.ingress.iter().map(Name::as_str).collect();
    if !addresses.is_empty() {
        let _ = writeln!(text, "Published: {}", addresses.join(", "));
    }
    if let Some((ready, reason, message)) = &said.ready {
        let _ = writeln!(text, "Status: {}, {reason}: {message}", if *ready { "ready" } else { "not ready" });
    }
    if let Some((status, reason, message)) = &said.announced {
        let is = match status {
            ConditionStatus::True => "announced",
            ConditionStatus::False => "not announced",
            ConditionStatus::Unknown => "unknown whether the address is announced",
        };
        let _ = writeln!(text, "Announced: {is}, {reason}: {message}");
    }
    for line in &said.problems {
        let _ = writeln!(text, "  {line}");
    }
    text
}

fn hosts(glance: &ClusterView, key: &ServiceKey) -> String {
    // Hosts have nothing to do with what a cloud serves.
    let Some(overview) = planned(glance, key).filter(|it| !is_of_cloud(it)) else { return String::new() };
    let serving = glance.world.who_serves(&overview.status.owner);
    let mut text = "Hosts:\n".to_owned();
    for (host, pulse) in &glance.sight.hosts {
        let name = &host.report.host;
        let _ = writeln!(text, "  {name}  {}", how(host, *pulse, &overview, serving.contains(name)));
        if let Some(Ok(view)) = glance.pages.get(name) {
            counted(&mut text, view, key);
        }
    }
    if glance.sight.hosts.is_empty() {
        text.push_str("  none; run `seaway node` on one\n");
    }
    text
}

fn how(host: &HostInspection, pulse: HostLiveness, overview: &Overview, serves: bool) -> String {
    let cannot = host.not_served.iter().find(|(ip, ..)| overview.status.addresses.contains(ip));
    match pulse {
        HostLiveness::Resigned => return "was stopped".to_owned(),
        HostLiveness::Silent(time) => {
            return format!("is considered dead: its Lease was not renewed for {} s", time.as_secs());
        }
        HostLiveness::Alive | HostLiveness::Unknown => {}
    }
    if host.report.drain {
        return "is draining: it accepts no new connections".to_owned();
    }
    match cannot {
        Some((ip, reason, why)) if why.is_empty() => format!("cannot serve {ip}: {reason}"),
        Some((ip, reason, why)) => format!("cannot serve {ip}: {reason}: {why}"),
        None if serves => "serves it".to_owned(),
        None if host.unlisted > 0 => {
            format!(
                "unknown whether the host serves this: its report leaves out {} of the addresses that it does not serve",
                host.unlisted
            )
        }
        None if overview.demand.as_ref().is_some_and(|it| it.service.local_only) => {
            "does not serve it: the host has no ready pod (externalTrafficPolicy: Local), or has not seen \
             the latest change yet"
                .to_owned()
        }
        None => "does not serve it: the host has not seen the latest change yet, or its Node is excluded \
                 from load balancers"
            .to_owned(),
    }
}

/// Connections, and how its members do as that host sees them.
fn counted(text: &mut String, view: &View, key: &ServiceKey) {
    let sum = connections(view, Some((&key.namespace, &key.name)));
    let _ = writeln!(text, "    {} open, {} since it started", sum.open, sum.total);
    let of =
        |it: &&seaway_admin::view::ServiceView| (&*it.namespace, &*it.name) == (&*key.namespace, &*key.name);
    for member in view.services.iter().filter(of).flat_map(|it| &it.pools).flat_map(|it| &it.members) {
        let why = match member.state {
            MemberState::Down | MemberState::Ejected if !member.last_error.is_empty() => {
                format!(" ({})", member.last_error)
            }
            _ => String::new(),
        };
        let (at, state, open) = (&member.address, member.state.as_str(), member.sessions.current);
        let _ = writeln!(text, "    {at}  {state}{why}, {open} open");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_service_is_named_as_people_name_it() {
        let key = |words: &str, namespace| {
            let words: Vec<String> = words.split(' ').map(str::to_owned).collect();
            key(&words, namespace, || "mine".into()).map(|it| format!("{}/{}", it.namespace, it.name)).ok()
        };
        for (words, namespace, wanted) in [
            ("shop", None, Some("mine/shop")),
            ("service shop", Some("infra"), Some("infra/shop")),
            ("svc/shop", Some("infra"), Some("infra/shop")),
            ("infra/shop", None, Some("infra/shop")),
            ("service infra/shop", Some("other"), Some("infra/shop")),
            ("ingress shop", None, None),
        ] {
            assert_eq!(key(words, namespace).as_deref(), wanted, "{words}");
        }
    }
}
