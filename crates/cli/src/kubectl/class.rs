//! Services with a class, given away: their class cannot be changed, so more than a finalizer is written.
//!
//! ```text
//!     annotation seaway.dev/released ─► a controller that leads says that it leaves it alone ─► tags are taken off in the cloud
//!         ─► the finalizer is taken away, and load-balancer-id written
//! ```
//! In this order: what has no finalizer has no tags either, so nothing of ours deletes it, whatever becomes of the Service. A run
//! that was interrupted can be repeated; until its finalizer is gone, what the cloud has for it goes with the Service.

use std::time::{Duration, Instant};

use anyhow::{Result, anyhow, bail};
use seaway_cluster::{Cluster, HostLiveness, Inspection, ServiceInspection};
use seaway_drivers::octavia::{
    belongings::belongings,
    give_away::{GiveAway, give_away},
};
use seaway_model::{
    Change, Fact,
    fact::{FinalizerOwner, Service},
};
use seaway_plan::{GIVEN_AWAY, annotations::GIVE_AWAY};
use tokio::time::sleep;

use super::{BIND, at_length, differs, release::CloudInventory};
use crate::{member::cloud::CLASS, openstack};

/// A controller that leads hears of it by its watch.
const PATIENCE: Duration = Duration::from_secs(60);
const LOOK: Duration = Duration::from_secs(1);

/// Whether it is one of ours by its class.
pub(super) fn is_ours_by_class(service: &Service) -> bool {
    service.class.as_ref().is_some_and(|it| it.as_str() == CLASS)
}

/// What giving it away means, and how another controller comes by its load balancer.
pub(super) fn release_warnings(service: &Service) -> Vec<String> {
    let (namespace, name) = (&service.meta.namespace, &service.meta.name);
    // A new one would answer only once the other controller has told the health monitor.
    let check = service.health_check_node_port.filter(|_| service.local_only);
    let check = check.map(|it| format!(", \"healthCheckNodePort\": {it}")).unwrap_or_default();
    let patch = |kind: &str, more: &str| {
        format!(
            "    kubectl -n {namespace} patch service {name} -p '{{\"spec\": {{\"type\": \"{kind}\"{more}}}}}'"
        )
    };
    vec![
        format!(
            "spec.loadBalancerClass {CLASS} cannot be changed while the Service is of type LoadBalancer, \
             and the cloud provider's controller serves no Service with a class"
        ),
        format!(
            "{GIVE_AWAY}=true is written, Seaway's tags are removed from its load balancer, listeners and floating IP, \
                 and its finalizer seaway.dev/load-balancer-cleanup is removed"
        ),
        "neither this command nor a deletion of the Service deletes anything in the cloud: its load balancer, floating \
             IP and listeners stay as they are"
            .to_owned(),
        "from then on Seaway does not update the load balancer: changes of ports and Nodes have no effect \
         until another controller applies them".to_owned(),
        "for the other controller to take over the load balancer, change the Service to another type, \
         which removes its class, and then back to LoadBalancer:".to_owned(),
        patch("NodePort", ""),
        patch("LoadBalancer", &check),
        format!("for Seaway to serve the Service again: kubectl -n {namespace} annotate service {name} {GIVE_AWAY}-"),
    ]
}

/// Gives it away.
pub(super) async fn release(cluster: &Cluster, service: &Service, there: &CloudInventory) -> Result<()> {
    cluster.annotate(&service.meta, GIVE_AWAY, "true").await.map_err(|why| anyhow!("{why}"))?;
    if service.held != FinalizerOwner::No {
        until_left_alone(cluster, service).await?;
    }
    // A controller may have written until then.
    let all = belongings(&there.cloud, &there.uid, &*openstack::progress_printer()).await?;
    let there = CloudInventory { cloud: there.cloud.clone(), uid: there.uid.clone(), all };
    let id = differs::id_to_write(service, &there.all);
    if let Some(parts) = plan_release(service, &there)? {
        give_away(&there.cloud, &there.uid, &parts).await?;
    }
    cluster.release_service(&service.meta, id).await.map_err(|why| anyhow!("{why}"))
}

/// What is given away; an error says why nothing is.
pub(super) fn plan_release(service: &Service, there: &CloudInventory) -> Result<Option<GiveAway>> {
    GiveAway::of(&there.all, &service.meta.uid).map_err(|why| anyhow!("{why}"))
}

/// Who leads would write its tags again before it hears that they are to go.
async fn until_left_alone(cluster: &Cluster, service: &Service) -> Result<()> {
    let since = Instant::now();
    loop {
        let now = cluster.inspect(Some(&service.meta.namespace)).await;
        let now = now.map_err(|it| anyhow!("{}", at_length(&it.0, BIND)))?;
        let leader = now.leader.filter(|(_, it)| *it == HostLiveness::Alive);
        let Some((leader, _)) = leader.filter(|_| !is_left_alone(&now.services, service)) else {
            return Ok(());
        };
        if since.elapsed() > PATIENCE {
            bail!(
                "the leader {leader} has not reported yet that it no longer changes this Service (Problem Released). \
                     Only the annotation {GIVE_AWAY} is written. Run this again, or stop that \
                 controller first"
            );
        }
        sleep(LOOK).await;
    }
}

fn is_left_alone(sights: &[ServiceInspection], service: &Service) -> bool {
    let of =
        |it: &&ServiceInspection| (&it.namespace, &it.name) == (&service.meta.namespace, &service.meta.name);
    sights.iter().find(of).is_some_and(|it| it.problems.iter().any(|it| it.contains(GIVEN_AWAY)))
}

/// Each that is ours by its class, as it is now.
pub(super) fn services_by_class(sight: &Inspection) -> impl Iterator<Item = &Service> {
    let services = sight.changes.iter().filter_map(|change| match change {
        Change::Put(Fact::Service(it)) => Some(&**it),
        _ => None,
    });
    services.filter(|it| is_ours_by_class(it) && it.held == FinalizerOwner::ByUs)
}

#[cfg(test)]
mod tests {
    use seaway_testkit::facts::shop;

    use super::*;

    #[test]
    fn a_service_of_a_class_is_told_what_becomes_of_it_and_how_another_takes_it_over() {
        let of = |class: Option<&str>| Service { class: class.map(Into::into), ..shop() };
        assert!(
            is_ours_by_class(&of(Some(CLASS)))
                && !is_ours_by_class(&of(None))
                && !is_ours_by_class(&of(Some("somebody.else/lb")))
        );
        let told = release_warnings(&of(Some(CLASS))).join("\n");
        for words in [
            "spec.loadBalancerClass seaway.dev/octavia cannot be changed",
            "serves no Service with a class",
            "seaway.dev/released=true is written",
            "finalizer seaway.dev/load-balancer-cleanup is removed",
            "nor a deletion of the Service deletes anything in the cloud",
            r#"kubectl -n default patch service shop -p '{"spec": {"type": "NodePort"}}'"#,
            r#"kubectl -n default patch service shop -p '{"spec": {"type": "LoadBalancer"}}'"#,
            "kubectl -n default annotate service shop seaway.dev/released-",
        ] {
            assert!(told.contains(words), "{words}: {told}");
        }
        let local = Service { local_only: true, health_check_node_port: Some(32_100), ..of(Some(CLASS)) };
        let told = release_warnings(&local).join("\n");
        assert!(told.contains(r#"{"type": "LoadBalancer", "healthCheckNodePort": 32100}"#), "{told}");
    }

    #[test]
    fn a_controller_leaves_it_alone_once_its_problem_says_so() {
        let of = |problem: &str| ServiceInspection {
            namespace: "default".into(),
            name: "shop".into(),
            problems: vec![problem.to_owned()],
            ..ServiceInspection::default()
        };
        assert!(is_left_alone(&[of(&format!("Released: {GIVEN_AWAY}: it is left as it is"))], &shop()));
        assert!(!is_left_alone(&[of("NoMembers: nobody")], &shop()));
        assert!(!is_left_alone(&[], &shop()));
    }
}
