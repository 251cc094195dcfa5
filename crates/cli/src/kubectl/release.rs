//! `kubectl seaway release`: Services that no setting gives to a cloud any more, or that are given away, are held no longer.

use std::process::ExitCode;

use anyhow::{Result, anyhow, bail};
use seaway_cluster::{Cluster, ServiceInspection};
use seaway_drivers::octavia::belongings::{Belonging, CloudObject, belongings};
use seaway_model::{Change, Fact, fact::FinalizerOwner, fact::Service};
use seaway_openstack::Cloud;
use seaway_plan::{RELEASED, ServiceKey};

use super::{BIND, at_length, class, connect, differs, explain};
use crate::{args::kubectl::Release, openstack, output};

/// What the cloud has of this cluster.
pub(super) struct CloudInventory {
    pub(super) cloud: Cloud,
    pub(super) uid: String,
    pub(super) all: Vec<Belonging>,
}

pub(super) async fn run(arguments: &Release) -> Result<ExitCode> {
    let cluster = connect(&arguments.reach).await?;
    let key = match arguments.all {
        true => None,
        false => {
            let default = || cluster.default_namespace();
            Some(explain::key(&arguments.what, arguments.namespace.as_deref(), default)?)
        }
    };
    let sight = cluster.inspect(None).await.map_err(|it| anyhow!("{}", at_length(&it.0, BIND)))?;
    let services = sight.changes.iter().filter_map(|change| match change {
        Change::Put(Fact::Service(it)) => Some(it),
        _ => None,
    });
    let is_meant = |it: &Service| match &key {
        Some(key) => (&it.meta.namespace, &it.meta.name) == (&key.namespace, &key.name),
        None => is_released(&sight.services, it),
    };
    if key.is_none() {
        for service in class::services_by_class(&sight) {
            let (namespace, name) = (&service.meta.namespace, &service.meta.name);
            output::error(&format!(
                "{namespace}/{name}: a Service with a class is released only if it is named: kubectl \
                 seaway release {namespace}/{name}"
            ));
        }
    }
    let services: Vec<_> = services.filter(|it| is_meant(it)).collect();
    if let Some(key) = &key {
        check(key, services.first().map(|it| &***it), &sight.services)?;
    }
    let there = match services.is_empty() {
        true => None,
        false => in_cloud(arguments, &cluster).await?,
    };
    if let [service] = &services[..]
        && class::is_ours_by_class(service)
    {
        return of_class(arguments, &cluster, service, there.as_ref()).await;
    }
    let there = there.map(|it| it.all);
    let mut failed = 0;
    for service in &services {
        let name = format!("{}/{}", service.meta.namespace, service.meta.name);
        if !arguments.yes {
            output::line(&format!("{name}: Seaway would remove the finalizer"));
            let lines = differs::differences(service, there.as_deref());
            lines.iter().for_each(|it| output::line(&format!("    {it}")));
            continue;
        }
        let id = there.as_deref().and_then(|it| differs::id_to_write(service, it));
        match cluster.release_service(&service.meta, id).await {
            Ok(()) => output::line(&format!("{name}: released")),
            Err(why) => {
                failed += 1;
                output::error(&format!("{name}: not released: {why}"));
            }
        }
    }
    notes(&services, there.as_deref());
    match (services.len(), arguments.yes) {
        (0, _) => output::error("No Service has the Problem Released: there is nothing to do."),
        (_, false) => output::error("Nothing was written. To write it, add --yes."),
        _ => {}
    }
    Ok(if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// What the cloud has of this cluster, if its credentials were given.
async fn in_cloud(arguments: &Release, cluster: &Cluster) -> Result<Option<CloudInventory>> {
    if arguments.which.cloud.is_none() && arguments.which.cloud_conf.is_none() {
        return Ok(None);
    }
    let uid = cluster.identity().await.map_err(|why| anyhow!("the cluster's UID is not known: {why}"))?;
    let cloud = openstack::connect(&arguments.which).await?;
    let all = belongings(&cloud, &uid, &*openstack::progress_printer()).await?;
    Ok(Some(CloudInventory { cloud, uid: uid.to_string(), all }))
}

/// What is to be known of it is said first, also where it is written.
async fn of_class(
    arguments: &Release,
    cluster: &Cluster,
    service: &Service,
    there: Option<&CloudInventory>,
) -> Result<ExitCode> {
    let name = format!("{}/{}", service.meta.namespace, service.meta.name);
    output::line(&format!("{name}:"));
    let all = there.map(|it| &*it.all);
    let lines = class::release_warnings(service).into_iter().chain(differs::differences(service, all));
    lines.for_each(|it| output::line(&format!("    {it}")));
    let Some(there) = there else {
        bail!(
            "{name}: not released: Seaway's tags must be removed from its load balancer first: give \
             credentials for the cloud with --cloud-config FILE or --cloud NAME"
        );
    };
    let not_released = |why| anyhow!("{name}: not released: {why:#}");
    class::plan_release(service, there).map_err(not_released)?;
    if !arguments.yes {
        bail!("Nothing was written. To write it, add --yes.");
    }
    class::release(cluster, service, there).await.map_err(not_released)?;
    output::line(&format!("{name}: released"));
    Ok(ExitCode::SUCCESS)
}

/// What is about all of them.
fn notes(services: &[&std::sync::Arc<Service>], there: Option<&[Belonging]>) {
    if services.is_empty() {
        return;
    }
    let Some(there) = there else {
        output::error(
            "The cloud was not asked. With --cloud-config FILE or --cloud NAME, this command writes or \
             corrects loadbalancer.openstack.org/load-balancer-id, and shows what the other controller \
             would do differently.",
        );
        return;
    };
    for it in
        there.iter().filter(|it| matches!(it.thing, CloudObject::SecurityGroup(_)) && it.service.is_none())
    {
        output::error(&format!(
            "Security group {} stays at the ports of Nodes. Once the other controller serves the Services, \
             remove it: seaway openstack release-group",
            it.name
        ));
    }
}

fn is_released(sights: &[ServiceInspection], service: &Service) -> bool {
    let of =
        |it: &&ServiceInspection| (&it.namespace, &it.name) == (&service.meta.namespace, &service.meta.name);
    let told = sights.iter().find(of).is_some_and(|it| it.problems.iter().any(|it| it.contains(RELEASED)));
    told && service.held == FinalizerOwner::ByUs
}

/// Whoever is served by the cloud would be held again at once.
fn check(key: &ServiceKey, service: Option<&Service>, sights: &[ServiceInspection]) -> Result<()> {
    let Some(service) = service else { bail!("Service {}/{} does not exist", key.namespace, key.name) };
    if class::is_ours_by_class(service) {
        return Ok(());
    }
    if service.held != FinalizerOwner::ByUs {
        bail!(
            "Service {}/{} has no finalizer of Seaway, so there is nothing to release",
            key.namespace,
            key.name
        );
    }
    if !is_released(sights, service) {
        bail!(
            "Service {}/{} is served by the cloud, so Seaway would add its finalizer again at once: the \
             Service can be released once neither its class nor defaultDriver chooses the cloud, and the \
             controller reports that (Problem Released)",
            key.namespace,
            key.name
        );
    }
    Ok(())
}
