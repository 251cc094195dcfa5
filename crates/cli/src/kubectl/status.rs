//! `kubectl seaway status`.

use std::process::ExitCode;

use anyhow::Result;
use seaway_cluster::{HostInspection, HostLiveness, PENDING, ServiceInspection};
use seaway_model::{Name, Owner, Reason, announced::ConditionStatus, bgp::PeerReport, fact::HostReport};
use seaway_plan::Overview;
use serde_json::{Value, json};

use super::{ClusterView, Connections, connect, connections};
use crate::{
    args::{Output, kubectl::Status},
    output,
};

pub(super) async fn run(arguments: &Status) -> Result<ExitCode> {
    let cluster = connect(&arguments.reach).await?;
    let glance = ClusterView::at(&arguments.reach, &cluster, arguments.namespace.as_deref(), None).await?;
    let services = services(&glance, arguments.namespace.as_deref());
    match arguments.output {
        Output::Table => {
            output::line(table(&glance, &services).trim_end());
            for note in glance.notes() {
                output::error(&format!("note: {note}"));
            }
        }
        Output::Json => output::line(&serde_json::to_string_pretty(&as_json(&glance, &services))?),
    }
    Ok(ExitCode::SUCCESS)
}

/// One of ours.
struct Row {
    namespace: Name,
    name: Name,
    class: Option<Name>,
    /// The class by which a cloud is asked; else hosts serve it.
    cloud: Option<Name>,
    /// As published, else as planned.
    addresses: Vec<String>,
    hosts: Vec<Name>,
    ready: Option<(bool, Name, Name)>,
    announced: Option<(ConditionStatus, Name, Name)>,
    /// Of all hosts together that tell.
    connections: Option<Connections>,
    problems: Vec<String>,
}

impl Row {
    /// Hosts serve it, and nothing that is known sends clients there.
    fn is_served_in_vain(&self) -> bool {
        let is_served = self.ready.as_ref().is_some_and(|it| it.0);
        is_served && self.announced.as_ref().is_some_and(|it| it.0 == ConditionStatus::False)
    }
}

fn services(glance: &ClusterView, namespace: Option<&str>) -> Vec<Row> {
    let overview = glance.world.overview();
    let of = |it: &&Overview| {
        let object = it.status.owner.object();
        matches!(it.status.owner, Owner::Object { .. })
            && namespace.is_none_or(|wanted| *object.namespace == *wanted)
    };
    overview.iter().filter(of).map(|it| row(glance, it)).collect()
}

fn row(glance: &ClusterView, overview: &Overview) -> Row {
    let object = overview.status.owner.object();
    let said = |it: &&ServiceInspection| (&it.namespace, &it.name) == (&object.namespace, &object.name);
    let said = glance.sight.services.iter().find(said).cloned().unwrap_or_default();
    let key = (&*object.namespace, &*object.name);
    let told = glance.pages.values().flatten().map(|it| connections(it, Some(key)));
    let sum =
        |a: Connections, b: Connections| Connections { open: a.open + b.open, total: a.total + b.total };
    let published: Vec<String> = said.ingress.iter().map(ToString::to_string).collect();
    let planned = overview.status.addresses.iter().map(|it| format!("({it})"));
    Row {
        class: overview.demand.as_ref().and_then(|it| it.service.class.clone()),
        cloud: cloud_of(overview),
        addresses: if published.is_empty() { planned.collect() } else { published },
        hosts: glance.world.who_serves(&overview.status.owner),
        connections: told.reduce(sum),
        // Whoever leads knows more; nobody may have led yet.
        problems: match &said.ready {
            Some(_) => said.problems,
            // What is missing may only not be seen.
            None if glance.sight.only.is_some() => Vec::new(),
            None => seen(overview),
        },
        ready: said.ready,
        announced: said.announced,
        namespace: object.namespace,
        name: object.name,
    }
}

fn cloud_of(overview: &Overview) -> Option<Name> {
    let (class, _) = overview.demand.as_ref()?.cloud.as_ref()?;
    Some(class.clone())
}

/// Secrets were not looked at: none of them is missing.
fn seen(overview: &Overview) -> Vec<String> {
    let known = overview.status.problems.iter().filter(|it| it.reason != Reason::NoSuchSecret);
    known.map(|it| format!("{}: {}", it.reason, it.message)).collect()
}

fn table(glance: &ClusterView, services: &[Row]) -> String {
    let mut text = String::new();
    if services.is_empty() {
        text.push_str("Seaway serves no Service of type LoadBalancer here.\n");
    } else {
        let header = ["SERVICE", "CLASS", "ADDRESSES", "HOSTS", "READY", "OPEN", "TOTAL", "PROBLEMS"];
        text.push_str(&output::table(&header, &services.iter().map(service_cells).collect::<Vec<_>>()));
    }
    if glance.sight.only.is_none() {
        text.push_str(&surroundings(glance, services));
    }
    text.push_str(&not_announced(services));
    let problems = problems(glance, services);
    if !problems.is_empty() {
        text.push_str("\nProblems:\n");
        problems.iter().for_each(|it| text.push_str(&format!("  {it}\n")));
    }
    text
}

/// Hosts, pools, and who leads.
fn surroundings(glance: &ClusterView, services: &[Row]) -> String {
    let mut text = String::new();
    let hosts: Vec<Vec<String>> =
        glance.sight.hosts.iter().map(|(it, pulse)| host_cells(glance, it, *pulse)).collect();
    text.push('\n');
    let of_hosts = services.iter().filter(|it| it.cloud.is_none()).count();
    if hosts.is_empty() && of_hosts == 0 && !services.is_empty() {
        text.push_str("All Services are served by a cloud, none by hosts.\n");
    } else if hosts.is_empty() {
        text.push_str("No host serves: run `seaway node` on one.\n");
    } else {
        let header = ["HOST", "ALIVE", "VERSION", "APPLIED", "NOT SERVED", "HELD", "DRAIN", "OPEN"];
        text.push_str(&output::table(&header, &hosts));
    }
    let reports: Vec<&HostReport> = glance.sight.hosts.iter().map(|(it, _)| &*it.report).collect();
    text.push_str(&announcers(&reports));
    text.push_str(&sessions(&reports));
    let pools: Vec<Vec<String>> = glance.world.pools().iter().map(pool_cells).collect();
    if !pools.is_empty() {
        text.push('\n');
        text.push_str(&output::table(&["POOL", "IPV4", "IPV6"], &pools));
    }
    text.push('\n');
    text.push_str(&match &glance.sight.leader {
        Some((who, HostLiveness::Alive)) => format!("Leader: {who}\n"),
        Some((who, pulse)) => format!("No leader now; the last was {who}: {}\n", alive(*pulse)),
        None => "No controller is the leader: check that its pods run (`seaway controller`).\n".to_owned(),
    });
    if !glance.sight.orphans.is_empty() {
        text.push_str(
            "\nOrphans in the cloud (to list and delete them: seaway openstack gc), and what is not \
             deleted yet because of the deletion limit:\n",
        );
        glance.sight.orphans.iter().for_each(|it| text.push_str(&format!("  {it}\n")));
    }
    if !glance.sight.released.is_empty() {
        text.push_str(
            "\nReleased in the cloud: no setting chooses the cloud for these, and they are left as they are (seaway openstack gc \
             lists their IDs):\n",
        );
        glance.sight.released.values().for_each(|it| text.push_str(&format!("  {it}\n")));
    }
    if !glance.sight.adoption.is_empty() {
        text.push_str("\nAdoption of load balancers:\n");
        glance.sight.adoption.iter().for_each(|it| text.push_str(&format!("  {it}\n")));
    }
    text
}

/// How many addresses each host announces by ARP and NDP, and cannot.
fn announcers(hosts: &[&HostReport]) -> String {
    let told = |host: &&HostReport| {
        let announces = host.layer2.values().filter(|it| it.what.is_announcing()).count();
        let others = host.layer2.len().saturating_sub(announces);
        let not = if others > 0 { format!(" ({others} more not announced)") } else { String::new() };
        (!host.layer2.is_empty()).then(|| format!("{} {announces}{not}", host.host))
    };
    let told: Vec<String> = hosts.iter().filter_map(told).collect();
    if told.is_empty() {
        return String::new();
    }
    format!(
        "\nAddresses announced by ARP and NDP (kubectl get lbhost NAME -o yaml lists them): {}\n",
        told.join("; ")
    )
}

/// Of hosts with routers, by BGP.
fn sessions(hosts: &[&HostReport]) -> String {
    let cells = |host: &Name, peer: &Name, it: &PeerReport| {
        let bfd = it.bfd_up.map_or("-", |is_up| if is_up { "Up" } else { "Down" });
        let state = if it.detail.is_empty() {
            it.what.as_str().into()
        } else {
            format!("{}: {}", it.what.as_str(), it.detail)
        };
        vec![host.to_string(), peer.to_string(), it.sent.to_string(), bfd.to_owned(), state]
    };
    let of_host = |host: &&HostReport| -> Vec<_> {
        host.bgp.peers.iter().map(|(peer, it)| cells(&host.host, peer, it)).collect()
    };
    let rows: Vec<Vec<String>> = hosts.iter().flat_map(of_host).collect();
    if rows.is_empty() {
        return String::new();
    }
    format!("\n{}", output::table(&["HOST", "BGP PEER", "PREFIXES", "BFD", "SESSION"], &rows))
}

/// The ways to announce them: for a few, as they are the same for all of a pool.
fn not_announced(services: &[Row]) -> String {
    const MOST: usize = 5;
    let lines = services.iter().filter(|row| row.is_served_in_vain()).filter_map(|row| {
        let (_, _, message) = row.announced.as_ref()?;
        Some(format!("  {}/{}: {message}\n", row.namespace, row.name))
    });
    let lines: Vec<String> = lines.collect();
    if lines.is_empty() {
        return String::new();
    }
    let more = match lines.len().saturating_sub(MOST) {
        0 => String::new(),
        more => format!("  and {more} more: kubectl seaway explain service NAME\n"),
    };
    let shown: String = lines.iter().take(MOST).map(String::as_str).collect();
    format!("\nServed, not announced:\n{shown}{more}")
}

fn problems(glance: &ClusterView, services: &[Row]) -> Vec<String> {
    let of_service = |row: &Row| -> Vec<String> {
        row.problems.iter().map(|it| format!("{}/{}: {it}", row.namespace, row.name)).collect()
    };
    let mut all: Vec<String> = services.iter().flat_map(of_service).collect();
    for (host, _) in &glance.sight.hosts {
        let name = &host.report.host;
        all.extend(host.not_served.iter().map(|(ip, reason, why)| match why.is_empty() {
            true => format!("host {name}: {ip}: {reason}"),
            false => format!("host {name}: {ip}: {reason}: {why}"),
        }));
        if host.unlisted > 0 {
            let (count, applied) = (host.unlisted, host.report.applied);
            all.push(format!(
                "host {name}: the report of this host is full and leaves out {count} addresses that the host does not \
                     serve or still holds; Seaway considers these, and every Address newer than \
                 version {applied}, not served by this host"
            ));
        }
    }
    all
}

fn service_cells(row: &Row) -> Vec<String> {
    let ready = match &row.ready {
        Some((true, ..)) if row.is_served_in_vain() => "served, not announced".to_owned(),
        Some((true, ..)) => "yes".to_owned(),
        Some((false, reason, message)) if **reason == *PENDING => message.to_string(),
        Some((false, reason, _)) => reason.to_string(),
        None => "not told".to_owned(),
    };
    let count = |of: fn(Connections) -> u64| row.connections.map_or("-".to_owned(), |it| of(it).to_string());
    vec![
        format!("{}/{}", row.namespace, row.name),
        row.class.as_ref().map_or("-".to_owned(), ToString::to_string),
        listed(row.addresses.iter()),
        if row.cloud.is_some() { "cloud".to_owned() } else { listed(row.hosts.iter()) },
        ready,
        count(|it| it.open),
        count(|it| it.total),
        row.problems.len().to_string(),
    ]
}

fn host_cells(glance: &ClusterView, host: &HostInspection, pulse: HostLiveness) -> Vec<String> {
    let report = &host.report;
    let open = open(glance, host);
    let drain = match (report.drain, open) {
        (false, _) => "no",
        (true, Some(0)) => "drained",
        (true, _) => "draining",
    };
    vec![
        report.host.to_string(),
        alive(pulse),
        host.running.version.to_string(),
        report.applied.to_string(),
        report.not_served.len().to_string(),
        report.holds.len().to_string(),
        drain.to_owned(),
        open.map_or("-".to_owned(), |it| it.to_string()),
    ]
}

/// Connections, where it tells.
fn open(glance: &ClusterView, host: &HostInspection) -> Option<u64> {
    let view = glance.pages.get(&host.report.host)?.as_ref().ok()?;
    Some(connections(view, None).open)
}

fn pool_cells(pool: &seaway_plan::ledger::PoolUse) -> Vec<String> {
    let full = |it: seaway_plan::ledger::FamilyUse| match it.assigned + it.available {
        0 => "-".to_owned(),
        all => format!("{} of {all}", it.assigned),
    };
    let [v4, v6] = match pool.hosts {
        true => ["the hosts' own".to_owned(), "the hosts' own".to_owned()],
        false => [full(pool.v4), full(pool.v6)],
    };
    vec![pool.pool.name.to_string(), v4, v6]
}

fn alive(pulse: HostLiveness) -> String {
    match pulse {
        HostLiveness::Alive => "yes".to_owned(),
        HostLiveness::Unknown => "unknown".to_owned(),
        HostLiveness::Resigned => "stopped".to_owned(),
        HostLiveness::Silent(time) => format!("silent for {} s", time.as_secs()),
    }
}

fn listed(all: impl Iterator<Item = impl ToString>) -> String {
    let all: Vec<String> = all.map(|it| it.to_string()).collect();
    if all.is_empty() { "-".to_owned() } else { all.join(",") }
}

fn as_json(glance: &ClusterView, services: &[Row]) -> Value {
    let counted = |it: Connections| json!({ "open": it.open, "total": it.total });
    let services = services.iter().map(|row| {
        json!({
            "namespace": row.namespace,
            "name": row.name,
            "class": row.class,
            "cloud": row.cloud,
            "addresses": row.addresses,
            "hosts": row.hosts,
            "ready": row.ready.as_ref().map(|it| it.0),
            "reason": row.ready.as_ref().map(|it| &it.1),
            "message": row.ready.as_ref().map(|it| &it.2),
            "announced": row.announced.as_ref().map(|(status, reason, message)| {
                json!({ "status": status.as_str(), "reason": reason, "message": message })
            }),
            "connections": row.connections.map(counted),
            "problems": row.problems,
        })
    });
    let hosts = glance.sight.hosts.iter().map(|(host, pulse)| {
        let not_served = host.not_served.iter();
        json!({
            "name": host.report.host,
            "alive": alive(*pulse),
            "version": host.running.version,
            "planVersion": host.plan_version,
            "applied": host.report.applied,
            "addresses": host.report.addresses,
            "held": host.report.holds,
            "layer2": host.report.layer2.iter().map(|(ip, it)| json!({
                "address": ip, "state": it.what.as_str(), "interface": it.interface, "detail": it.detail,
            })).collect::<Vec<_>>(),
            "bgp": host.report.bgp.peers.iter().map(|(peer, it)| json!({
                "peer": peer, "state": it.what.as_str(), "prefixes": it.sent, "bfdUp": it.bfd_up, "detail": it.detail,
            })).collect::<Vec<_>>(),
            "notServed": not_served
                .map(|(ip, reason, why)| json!({ "address": ip, "reason": reason, "message": why }))
                .collect::<Vec<_>>(),
            "unlisted": host.unlisted,
            "drain": host.report.drain,
            "open": open(glance, host),
        })
    });
    let pools = glance.world.pools().into_iter().map(|it| {
        let full = |it: seaway_plan::ledger::FamilyUse| json!({ "assigned": it.assigned, "available": it.available });
        json!({ "name": it.pool.name, "kind": it.pool.kind, "hosts": it.hosts, "ipv4": full(it.v4), "ipv6": full(it.v6) })
    });
    json!({
        "services": services.collect::<Vec<_>>(),
        "hosts": hosts.collect::<Vec<_>>(),
        "pools": pools.collect::<Vec<_>>(),
        "leader": glance.sight.leader.as_ref().map(|(who, pulse)| json!({ "name": who, "alive": alive(*pulse) })),
        "orphans": glance.sight.orphans,
        "released": glance.sight.released.values().collect::<Vec<_>>(),
        "adoption": glance.sight.adoption,
        "only": glance.sight.only,
        "notes": glance.notes(),
    })
}

#[cfg(test)]
mod tests {
    use seaway_model::{
        Time,
        bgp::BgpSessionState,
        layer2::{Layer2Progress, Layer2State},
    };

    use super::*;

    #[test]
    fn it_is_said_how_many_addresses_each_host_announces() {
        let state = |what| Layer2State { what, interface: "eth0".into(), since: Time(0), detail: "".into() };
        let host = |name: &str, states: &[Layer2Progress]| HostReport {
            host: name.into(),
            layer2: (1..).zip(states).map(|(at, what)| ([192, 0, 2, at].into(), state(*what))).collect(),
            ..HostReport::default()
        };
        let (announcing, conflict) = (Layer2Progress::Announcing, Layer2Progress::Conflict);
        let (a, b, c) =
            (host("a", &[announcing, conflict]), host("b", &[]), host("c", &[announcing, announcing]));
        let text = announcers(&[&a, &b, &c]);
        assert!(text.ends_with(": a 1 (1 more not announced); c 2\n"), "{text}");
        assert_eq!(announcers(&[&b]), "");
    }

    #[test]
    fn each_session_of_each_host_is_a_row_with_what_is_wrong() {
        let peer = |what, bfd_up, detail: &str| PeerReport {
            what,
            since: Time(0),
            sent: 2,
            resets: 0,
            remote_as: None,
            bfd_up,
            detail: detail.into(),
        };
        let mut host = HostReport { host: "a".into(), ..HostReport::default() };
        host.bgp.peers = [
            ("tor-a".into(), peer(BgpSessionState::Established, Some(true), "")),
            ("tor-b".into(), peer(BgpSessionState::Failed, None, "no route to host")),
        ]
        .into();
        let text = sessions(&[&host]);
        assert!(
            text.lines().any(|it| it.split_whitespace().eq(["a", "tor-a", "2", "Up", "Established"])),
            "{text}"
        );
        assert!(text.contains("Failed: no route to host"), "{text}");
        assert_eq!(sessions(&[&HostReport::default()]), "");
    }

    fn row(name: &str, ready: bool, announced: Option<ConditionStatus>) -> Row {
        let told = |message: &str| (Name::from("Reason"), Name::from(message));
        let because = |status, (reason, message)| (status, reason, message);
        Row {
            namespace: "default".into(),
            name: name.into(),
            class: None,
            cloud: None,
            addresses: vec!["192.0.2.1".to_owned()],
            hosts: Vec::new(),
            ready: Some((ready, "Reason".into(), "message".into())),
            announced: announced.map(|status| because(status, told("set announce: static"))),
            connections: None,
            problems: Vec::new(),
        }
    }

    #[test]
    fn what_is_served_and_not_announced_says_so_and_how_to_mend_it() {
        let ready = |row: &Row| service_cells(row)[4].clone();
        for (ready_is, announced, told) in [
            (true, Some(ConditionStatus::False), "served, not announced"),
            (true, Some(ConditionStatus::True), "yes"),
            (true, Some(ConditionStatus::Unknown), "yes"),
            (true, None, "yes"),
            (false, Some(ConditionStatus::False), "Reason"),
        ] {
            assert_eq!(ready(&row("shop", ready_is, announced)), told, "{announced:?}");
        }
        assert_eq!(not_announced(&[row("shop", true, None)]), "");
        let many: Vec<Row> =
            (0..8).map(|it| row(&format!("s{it}"), true, Some(ConditionStatus::False))).collect();
        let text = not_announced(&many);
        assert!(text.starts_with("\nServed, not announced:\n  default/s0: set announce: static\n"), "{text}");
        assert!(text.ends_with("and 3 more: kubectl seaway explain service NAME\n"), "{text}");
    }
}
