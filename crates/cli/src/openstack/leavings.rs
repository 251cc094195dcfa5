//! `seaway openstack gc` and `purge`: what a cluster has in a cloud, and its removal.

use std::{
    collections::{BTreeMap, BTreeSet},
    process::ExitCode,
};

use anyhow::{Result, anyhow, bail};
use seaway_cluster::{Cluster, ClusterAccess, HostLiveness};
use seaway_drivers::octavia::{
    belongings::{Belonging, CloudObject, RemovalOptions, belongings, divided, orphans, released, remove_by},
    group_release::NodePort,
    retag::Present,
};
use seaway_model::{
    Change, Fact, L4, Name, Problem,
    fact::{Service, ServiceKind},
};
use seaway_openstack::{Cloud, Error};

use super::{cascades, connect, progress_printer};
use crate::{
    args::{ClusterSelector, OpenStackGc, OpenStackPurge},
    kubectl::credentials,
    output,
};

const HEADER: [&str; 5] = ["WHAT", "ID", "NAME", "OF SERVICE", ""];

/// What is known of the cluster whose things in the cloud are meant.
pub(super) struct ClusterFacts {
    pub(super) uid: String,
    /// UID, namespace and name of each Service; nothing, where there was no API server to ask.
    services: Option<Vec<(String, String, String)>>,
    /// Those of them that want a load balancer.
    pub(super) balanced: Vec<Present>,
    /// What its leader said that it leaves as it is, by the UID of the Service.
    released: BTreeMap<Name, String>,
    /// Ports of Nodes that Services of type LoadBalancer use; nothing, where there was no API server to ask.
    pub(super) used: Option<BTreeSet<NodePort>>,
    /// Who leads, and so would make anew what is removed.
    pub(super) leader: Option<String>,
    /// Why that is not known.
    pub(super) unsure: Option<String>,
}

pub(super) async fn gc(arguments: &OpenStackGc) -> Result<ExitCode> {
    let asked = ask_cluster(&arguments.of).await.map_err(perhaps_gone)?;
    let Some(services) = &asked.services else {
        bail!(
            "only the cluster itself can list its Services: omit --cluster-uid, and name its kubeconfig.\n\
             If the cluster does not exist any more: seaway openstack purge --cluster-uid {}",
            asked.uid
        );
    };
    let cloud = connect(&arguments.which).await?;
    let all = belongings(&cloud, &asked.uid, &*progress_printer()).await?;
    let there = all.len();
    let stays = released(&all, &uids(&asked.released), services);
    let left = orphans(all, services);
    output::error(&format!(
        "cluster {}: {there} objects in the cloud, {} of them of Services that do not exist any more",
        asked.uid,
        left.len()
    ));
    tell_released(&stays);
    let how = RemovalOptions { uid: &asked.uid, cascades: cascades(&arguments.which)? };
    finish(&cloud, how, &left, arguments.delete, "--delete").await
}

pub(super) async fn purge(arguments: &OpenStackPurge) -> Result<ExitCode> {
    let asked = ask_cluster(&arguments.of).await.map_err(perhaps_gone)?;
    let cloud = connect(&arguments.which).await?;
    let all = belongings(&cloud, &asked.uid, &*progress_printer()).await?;
    let all = all.into_iter().map(|it| Belonging { kept: it.kept && !arguments.kept, ..it }).collect();
    let (goes, stays) = divided(all);
    output::error(&format!("cluster {}: {} objects in the cloud", asked.uid, goes.len() + stays.len()));
    for it in &stays {
        let why = match it.kept {
            true => "the annotation of its Service keeps it (with --kept it is removed, too)",
            false => "other Services use the load balancer of this address",
        };
        output::error(&format!("stays: {} {}: {why}", it.thing, it.name));
    }
    refuse_while_led(&asked, arguments.yes && !goes.is_empty(), "create the removed objects again")?;
    let how = RemovalOptions { uid: &asked.uid, cascades: cascades(&arguments.which)? };
    finish(&cloud, how, &goes, arguments.yes, "--yes").await
}

/// Nothing is removed beside a controller that leads, and that would do this.
pub(super) fn refuse_while_led(asked: &ClusterFacts, really: bool, would: &str) -> Result<()> {
    if let Some(why) = asked.unsure.as_ref().filter(|_| really) {
        bail!("cannot find out whether a controller is running that would {would}: {why}");
    }
    if let Some(leader) = asked.leader.as_ref().filter(|_| really) {
        bail!(
            "{leader} is the leader in this cluster, and would {would}: stop seaway controller first \
             (kubectl -n seaway-system scale deployment seaway-controller --replicas=0)"
        );
    }
    Ok(())
}

fn uids(released: &BTreeMap<Name, String>) -> BTreeSet<String> {
    // That of a second family has it behind a slash.
    released.keys().filter_map(|it| it.split('/').next()).map(str::to_owned).collect()
}

fn node_ports(service: &Service) -> Vec<NodePort> {
    let ports = service.ports.iter().filter_map(|it| Some((it.protocol, it.node_port?)));
    ports.chain(service.health_check_node_port.map(|it| (L4::Tcp, it))).collect()
}

/// They are in use, and no word of ours removes them.
fn tell_released(stays: &[Belonging]) {
    if stays.is_empty() {
        return;
    }
    let rows: Vec<Vec<String>> = stays.iter().map(|it| row(it, "released")).collect();
    output::line(output::table(&HEADER, &rows).trim_end());
    output::error(&format!(
        "{} objects are released: their Services exist, but no setting chooses the cloud for them. Seaway \
         leaves these objects as they are, and gc removes none of them. To have them served \
         again, set defaultDriver: octavia; to give them to another controller: kubectl seaway release",
        stays.len()
    ));
}

async fn finish(
    cloud: &Cloud,
    how: RemovalOptions<'_>,
    goes: &[Belonging],
    really: bool,
    flag: &str,
) -> Result<ExitCode> {
    if goes.is_empty() {
        output::error("there is nothing to remove");
        return Ok(ExitCode::SUCCESS);
    }
    let is_used = |it: &Belonging| if it.used { "" } else { "unused" };
    let rows: Vec<Vec<String>> = goes.iter().map(|it| row(it, is_used(it))).collect();
    output::line(output::table(&HEADER, &rows).trim_end());
    if !really {
        output::error(&format!("nothing was removed: add {flag} to remove these"));
        return Ok(ExitCode::SUCCESS);
    }
    let failed: Vec<(Belonging, Error)> = remove_by(cloud, how, goes, &*progress_printer()).await;
    for (it, error) in &failed {
        output::error(&format!("not removed: {}: {error}", it.thing));
    }
    output::error(&format!("{} of {} removed", goes.len() - failed.len(), goes.len()));
    Ok(if failed.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn row(it: &Belonging, note: &str) -> Vec<String> {
    let (what, id) = match &it.thing {
        CloudObject::LoadBalancer(id) => ("load balancer", id.to_string()),
        CloudObject::Part(id, _) => ("part of shared load balancer", id.to_string()),
        CloudObject::FloatingIp(id) => ("floating IP", id.to_string()),
        CloudObject::SecurityGroup(id) => ("security group", id.to_string()),
        CloudObject::Container(id) => ("container", id.to_string()),
        CloudObject::Secret(id) => ("secret", id.to_string()),
    };
    let service = it.service.clone().unwrap_or_else(|| "-".to_owned());
    vec![what.to_owned(), id, it.name.clone(), service, note.to_owned()]
}

pub(super) fn parse_uid(uid: &str) -> Result<String> {
    if uid.is_empty() || !uid.chars().all(|it| it.is_ascii_alphanumeric() || it == '-') {
        bail!(
            "{uid:?} is not a UID: kubectl get namespace kube-system -o jsonpath='{{.metadata.uid}}' shows \
             the UID of a cluster"
        );
    }
    Ok(uid.to_owned())
}

/// Not said to whoever wants to keep what is there.
fn perhaps_gone(why: anyhow::Error) -> anyhow::Error {
    anyhow!(
        "{why:#}\nIf the cluster does not exist any more, its UID is enough for purge: --cluster-uid \
             UID"
    )
}

pub(super) async fn ask_cluster(which: &ClusterSelector) -> Result<ClusterFacts> {
    if let Some(uid) = &which.cluster_uid {
        let (uid, balanced) = (parse_uid(uid)?, Vec::new());
        let released = BTreeMap::new();
        let (services, used) = (None, None);
        return Ok(ClusterFacts { uid, services, balanced, released, used, leader: None, unsure: None });
    }
    let credentials = credentials(which.kubeconfig.as_deref(), which.context.as_deref());
    let why = |why: String| anyhow!("the API server of the cluster cannot be reached: {why}");
    let namespace = Some(which.system_namespace.as_str().into());
    let cluster = Cluster::connect(ClusterAccess { credentials, namespace, ..ClusterAccess::default() });
    let cluster = cluster.await.map_err(|it| why(it.to_string()))?;
    let uid = cluster.identity().await.map_err(|it| why(it.to_string()))?;
    let sight = cluster.inspect(None).await.map_err(|it| why(it.0.line()))?;
    let service = |change: &Change| match change {
        Change::Put(Fact::Service(it)) => {
            let meta = &it.meta;
            Some((meta.uid.to_string(), meta.namespace.to_string(), meta.name.to_string()))
        }
        _ => None,
    };
    let balanced = sight.changes.iter().filter_map(|change| match change {
        Change::Put(Fact::Service(it)) if it.kind == ServiceKind::LoadBalancer && !it.leaving => {
            Some(Present {
                uid: it.meta.uid.to_string(),
                namespace: it.meta.namespace.to_string(),
                name: it.meta.name.to_string(),
            })
        }
        _ => None,
    });
    let balanced = balanced.collect();
    let used = sight.changes.iter().filter_map(|change| match change {
        Change::Put(Fact::Service(it)) if it.kind == ServiceKind::LoadBalancer => Some(node_ports(it)),
        _ => None,
    });
    let used = used.flatten().collect();
    let unsure = sight.unseen_leases.as_ref().map(Problem::line);
    let leader =
        sight.leader.filter(|(_, pulse)| *pulse == HostLiveness::Alive).map(|(who, _)| who.to_string());
    Ok(ClusterFacts {
        uid: uid.to_string(),
        services: Some(sight.changes.iter().filter_map(service).collect()),
        balanced,
        released: sight.released,
        used: Some(used),
        leader,
        unsure,
    })
}
