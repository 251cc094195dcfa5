//! Reads one load balancer with all below it.

use std::{collections::BTreeMap, net::SocketAddr};

use seaway_model::LbKey;
use seaway_openstack::{
    Cloud, Error,
    neutron::FloatingIp,
    octavia::{HealthMonitor, Listener, LoadBalancer, Pool, Tree, TreePool},
    resource::{Id, Query},
};

use super::{
    names::Cluster,
    steps::{Balancer, Branch, Observed, PoolBranch, Seat, listens},
};

pub(super) async fn read(cloud: &Cloud, cluster: &Cluster, key: &LbKey) -> Result<Observed, Error> {
    let (ours, this) = (cluster.tag(), cluster.tag_of(key));
    let query = Query::all().tagged([ours.as_str(), this.as_str()]);
    let mut found = cloud.all::<LoadBalancer>().list::<LoadBalancer>(query).await?;
    // A second one is left of a request whose answer was lost, and repeated: the older is kept.
    found.sort_by(|a, b| (&a.created_at, &a.id).cmp(&(&b.created_at, &b.id)));
    let Some(it) = found.into_iter().next() else { return Ok(Observed::default()) };
    let floating = match &it.vip_port_id {
        Some(port) => {
            let query = Query::all().with("port_id", port);
            cloud.all::<FloatingIp>().list::<FloatingIp>(query).await?.into_iter().next()
        }
        None => None,
    };
    let branches = branches(cloud, &it.id).await?;
    Ok(Observed { balancer: Some(Balancer { it, branches }), floating, ..Observed::default() })
}

async fn branches(
    cloud: &Cloud,
    id: &Id<LoadBalancer>,
) -> Result<BTreeMap<seaway_model::ListenerId, Branch>, Error> {
    let below = || Query::all().with("loadbalancer_id", id);
    let listeners = cloud.all::<Listener>().list::<Listener>(below()).await?;
    let pools = cloud.all::<Pool>().list::<Pool>(below()).await?;
    let tree = cloud.all::<LoadBalancer>().tree(id).await?;
    let seats = seats(&tree);
    let mut known: BTreeMap<Id<Pool>, PoolBranch> = BTreeMap::new();
    for pool in pools {
        let monitor = match &pool.healthmonitor_id {
            Some(id) => cloud.all::<HealthMonitor>().find::<HealthMonitor>(id).await?,
            None => None,
        };
        let members = seats.get(&pool.id).cloned().unwrap_or_default();
        known.insert(pool.id.clone(), PoolBranch { pool, monitor, members });
    }
    let branch = |listener: Listener| {
        let pool = listener.default_pool_id.as_ref().and_then(|id| known.get(id)).cloned();
        (listens(&listener), Branch { listener, pool })
    };
    Ok(listeners.into_iter().map(branch).collect())
}

fn seats(tree: &Tree) -> BTreeMap<Id<Pool>, BTreeMap<SocketAddr, Seat>> {
    let below = tree.listeners.iter().flat_map(|it| &it.pools);
    let of = |pool: &TreePool| {
        let seat = |it: &seaway_openstack::octavia::TreeMember| {
            let at = SocketAddr::new(it.address?, it.protocol_port?);
            let operating = it.operating_status.clone();
            Some((at, Seat { operating, terms: None }))
        };
        (pool.id.clone(), pool.members.iter().filter_map(seat).collect())
    };
    below.chain(&tree.pools).map(of).collect()
}
