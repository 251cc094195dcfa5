//! What a Service has in a cloud, given to another controller: nothing there says any more that it is this cluster's.
//!
//! ```text
//!     load balancer, listeners   tags seaway.dev/cluster=, seaway.dev/key=   ─► taken off, those of others stay
//!     floating IP                description … [seaway.dev/cluster= …]       ─► the words before that, which the other controller knows
//! ```
//! Names are the other controller's from the beginning. Nothing is deleted. The tags of the load balancer go last: until then it is
//! found by them, so a run that was interrupted can be repeated.

use std::collections::BTreeSet;

use seaway_openstack::{
    Cloud, Error,
    neutron::{FloatingIp, FloatingIpChange},
    octavia::{Listener, ListenerChange, LoadBalancer, LoadBalancerChange},
    resource::{Edit, Id, Query},
};

use super::{
    belongings::{Belonging, CloudObject, PATIENCE},
    names::{CLUSTER, Cluster, KEY},
};

/// A load balancer that one Service alone is on, with what leads there.
#[derive(Clone, Debug, PartialEq)]
pub struct GiveAway {
    balancer: Id<LoadBalancer>,
    floating: Vec<Id<FloatingIp>>,
}

impl GiveAway {
    /// Of the Service with this UID; nothing, where the cloud has nothing of it. An error says why it cannot be given away.
    pub fn of(all: &[Belonging], uid: &str) -> Result<Option<GiveAway>, String> {
        let its = || all.iter().filter(|it| it.service.as_deref() == Some(uid));
        let shared = its().find_map(|it| match &it.thing {
            CloudObject::Part(id, _) => Some(id),
            _ => None,
        });
        if let Some(id) = shared {
            return Err(format!(
                "load balancer {id} serves other Services, too: give the Service a load balancer of its own first"
            ));
        }
        if its().any(|it| matches!(it.thing, CloudObject::Container(_) | CloudObject::Secret(_))) {
            return Err(
                "the certificate of the Service comes from a Secret, and Seaway deletes the copy in \
                 Barbican once Seaway does not use it any more: first store the certificate in Barbican \
                 yourself, name it in loadbalancer.openstack.org/default-tls-container-ref and remove \
                 seaway.dev/tls"
                    .to_owned(),
            );
        }
        let balancers: BTreeSet<&Id<LoadBalancer>> = its()
            .filter_map(|it| match &it.thing {
                CloudObject::LoadBalancer(id) => Some(id),
                _ => None,
            })
            .collect();
        if balancers.len() > 1 {
            return Err(
                "the Service has two load balancers, one for each address family, and the other controller \
                 can manage only one: set one family in spec.ipFamilies first, and wait until the second \
                 load balancer is gone"
                    .to_owned(),
            );
        }
        let Some(balancer) = balancers.first().copied() else { return Ok(None) };
        let leads = its().filter(|it| it.on.as_ref() == Some(balancer));
        let floating = leads.filter_map(|it| match &it.thing {
            CloudObject::FloatingIp(id) => Some(id.clone()),
            _ => None,
        });
        Ok(Some(GiveAway { balancer: balancer.clone(), floating: floating.collect() }))
    }
}

/// Writes it. `uid`: of the cluster.
pub async fn give_away(cloud: &Cloud, uid: &str, it: &GiveAway) -> Result<(), Error> {
    let cluster = Cluster { uid: uid.into(), name: "".into() };
    for id in &it.floating {
        let all = cloud.all::<FloatingIp>();
        let there = all.read::<FloatingIp>(id).await?;
        let Some(mark) = cluster.whose(&there.description) else { continue };
        let words = there.description.trim_end_matches(mark).trim_end().to_owned();
        all.change(id, &FloatingIpChange { description: words.into(), ..FloatingIpChange::default() })
            .await?;
    }
    let balancers = cloud.all::<LoadBalancer>();
    let below = Query::all().with("loadbalancer_id", &it.balancer);
    for listener in cloud.all::<Listener>().list::<Listener>(below).await? {
        if let Some(tags) = without_ours(&listener.tags) {
            // It takes one change at a time.
            balancers.until_ready(&it.balancer, PATIENCE).await?;
            let change = ListenerChange { tags: Edit::To(tags), ..ListenerChange::default() };
            cloud.all::<Listener>().change(&listener.id, &change).await?;
        }
    }
    let there = balancers.until_ready(&it.balancer, PATIENCE).await?;
    if let Some(tags) = without_ours(&there.tags) {
        let change = LoadBalancerChange { tags: Edit::To(tags), ..LoadBalancerChange::default() };
        balancers.change(&it.balancer, &change).await?;
        balancers.until_ready(&it.balancer, PATIENCE).await?;
    }
    Ok(())
}

/// Nothing, where none of them is ours.
fn without_ours(tags: &BTreeSet<String>) -> Option<BTreeSet<String>> {
    let is_ours = |it: &String| it.starts_with(CLUSTER) || it.starts_with(KEY);
    tags.iter().any(is_ours).then(|| tags.iter().filter(|it| !is_ours(it)).cloned().collect())
}
