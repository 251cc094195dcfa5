//! Reads one load balancer with all below it.

use std::{
    collections::BTreeMap,
    net::{IpAddr, SocketAddr},
    time::Duration,
};

use seaway_model::{LbKey, ListenerId, Problem};
use seaway_openstack::{
    Cloud, Error,
    neutron::FloatingIp,
    octavia::{HealthMonitor, Listener, LoadBalancer, Member, Pool, Provisioning, StatusTree, TreePool},
    resource::{Id, Query},
};

use super::{
    admission::MembershipEvidence,
    find::{LoadBalancerSearch, OwnershipEvidence, SearchResult, find},
    names::Cluster,
    pool_replacement::{Branches, DuplicateListeners, UnusedPools, by_port, unused_pools},
    shared::{Marks, divide},
    steps::{Branch, Observed, ObservedLoadBalancer, ObservedMember, PoolBranch},
};

pub(super) enum Read {
    Seen(Box<Observed>),
    /// Only its user can say what it is.
    Refused(Problem),
}

pub(super) async fn read(
    cloud: &Cloud,
    cluster: &Cluster,
    key: &LbKey,
    marks: &Marks,
    sought: Option<&LoadBalancerSearch<'_>>,
) -> Result<Read, Error> {
    let (it, doubles, why) = match find(cloud, cluster, marks, sought).await? {
        SearchResult::There { it, doubles, why } => (*it, doubles, why),
        SearchResult::Nothing => {
            let stray = stray(cloud, cluster, key).await?;
            return Ok(Read::Seen(Box::new(Observed { stray, ..Observed::default() })));
        }
        SearchResult::Refused(problem) => return Ok(Read::Refused(problem)),
    };
    let floating = match &it.vip_port_id {
        Some(port) => {
            let query = Query::all().with("port_id", port);
            cloud.all::<FloatingIp>().list::<FloatingIp>(query).await?.into_iter().next()
        }
        None => None,
    };
    let addresses: Vec<IpAddr> =
        floating.iter().filter_map(|it| it.floating_ip_address).chain(it.vip_address).collect();
    let is_enough =
        floating.as_ref().is_some_and(|floating| !sought.is_some_and(|it| it.wants_another(floating)));
    let stray = if is_enough || why.is_guest() { None } else { stray(cloud, cluster, key).await? };
    let ((branches, duplicate_listeners), unused_pools) = match it.provisioning_status {
        // What is below may be gone by the time that it is asked for.
        Provisioning::PendingDelete => Default::default(),
        _ => branches(cloud, &it).await?,
    };
    if why == OwnershipEvidence::Annotation
        && let Some(sought) = sought
        && let Some(doubt) = sought.doubts(&it, &branches)
    {
        return Ok(refused(sought, doubt));
    }
    let had = sought.is_some_and(|sought| sought.had(&addresses));
    let (branches, shared) = divide(marks, &it, branches, why.is_guest(), had);
    if why == OwnershipEvidence::Invitation
        && let Some(sought) = sought.filter(|it| it.is_former())
    {
        if !had {
            return Ok(refused(sought, sought.unclear(&it)));
        }
    } else if why == OwnershipEvidence::Invitation
        && let Some(problem) = sought.and_then(|sought| {
            let barred = sought.barred(
                cluster,
                marks,
                &it,
                MembershipEvidence { listeners: !branches.is_empty(), address: had },
            );
            barred.or_else(|| sought.unwelcome(&it, &addresses, &shared, marks))
        })
    {
        return Ok(Read::Refused(problem));
    }
    let balancer = Some(ObservedLoadBalancer::new(it, (branches, duplicate_listeners), unused_pools));
    let observed = Observed { balancer, floating, stray, doubles, shared, ..Observed::default() };
    Ok(Read::Seen(Box::new(observed)))
}

/// What is not certain is another's, unless somebody can be asked.
fn refused(sought: &LoadBalancerSearch<'_>, problem: Problem) -> Read {
    match sought.asks() {
        true => Read::Refused(problem),
        false => Read::Seen(Box::default()),
    }
}

/// A floating IP that was made for this, and whose load balancer was taken from behind.
async fn stray(cloud: &Cloud, cluster: &Cluster, key: &LbKey) -> Result<Option<FloatingIp>, Error> {
    let query = match key.owner() {
        Some(owner) => Query::all().with("description", cluster.floating(owner, key, false)),
        None => Query::all(),
    };
    let found = cloud.all::<FloatingIp>().list::<FloatingIp>(query).await?;
    Ok(found.into_iter().find(|it| it.port_id.is_none() && cluster.made(&it.description, key)))
}

async fn branches(
    cloud: &Cloud,
    it: &LoadBalancer,
) -> Result<((Branches, DuplicateListeners), UnusedPools), Error> {
    let id = &it.id;
    let below = || Query::all().with("loadbalancer_id", id);
    let listeners = cloud.all::<Listener>().list::<Listener>(below()).await?;
    let pools = cloud.all::<Pool>().list::<Pool>(below()).await?;
    let unused_pools = unused_pools(it, pools.iter());
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
        Branch { listener, pool }
    };
    let mut branches: Vec<_> = listeners.into_iter().map(branch).collect();
    if it.provisioning_status == Provisioning::Active && branches.iter().any(is_pending) {
        cloud.clock().sleep(AT_WORK).await;
        let now = cloud.all::<LoadBalancer>().find::<LoadBalancer>(id).await?;
        if now.is_some_and(|now| {
            now.provisioning_status == it.provisioning_status && now.updated_at == it.updated_at
        }) {
            branches.iter_mut().for_each(give_up);
        }
    }
    Ok((by_port(branches), unused_pools))
}

/// Who works on what is below a load balancer, one after the other, writes it down there now and then: to the second, and
/// it is ACTIVE meanwhile.
const AT_WORK: Duration = Duration::from_secs(3);

/// Below what is ACTIVE nobody works on anything, unless somebody just began to.
pub(super) fn is_pending(branch: &Branch) -> bool {
    statuses(branch).any(Provisioning::is_pending)
}

/// Some providers leave pools so for ever; they take no change, as what is in ERROR.
fn give_up(branch: &mut Branch) {
    let stuck = |it: &mut Provisioning| {
        if it.is_pending() {
            *it = Provisioning::Error;
        }
    };
    stuck(&mut branch.listener.provisioning_status);
    if let Some(pool) = &mut branch.pool {
        stuck(&mut pool.pool.provisioning_status);
        pool.monitor.iter_mut().for_each(|it| stuck(&mut it.provisioning_status));
    }
}

fn statuses(branch: &Branch) -> impl Iterator<Item = &Provisioning> {
    let pool = branch.pool.iter();
    let below = pool.flat_map(|it| {
        let monitor = it.monitor.iter().map(|it| &it.provisioning_status);
        [&it.pool.provisioning_status].into_iter().chain(monitor)
    });
    [&branch.listener.provisioning_status].into_iter().chain(below)
}

/// Fills in what lists do not tell: members. What is known of those that stay, stays known.
pub(super) async fn seat(cloud: &Cloud, observed: &mut Observed) -> Result<(), Error> {
    let Some(balancer) = &mut observed.balancer else { return Ok(()) };
    let mut seats = seats(&cloud.all::<LoadBalancer>().tree(&balancer.it.id).await?);
    for pool in balancer.branches.values_mut().filter_map(|it| it.pool.as_mut()) {
        let before = std::mem::replace(&mut pool.members, seats.remove(&pool.pool.id).unwrap_or_default());
        for (at, seat) in &mut pool.members {
            seat.terms = before.get(at).and_then(|it| it.terms);
        }
    }
    Ok(())
}

/// Members of these pools as their own lists tell them: their weights, and the ports that are probed.
pub(super) async fn weigh(
    cloud: &Cloud,
    observed: &mut Observed,
    is_meant: impl Fn(&ListenerId, &Pool) -> bool,
) -> Result<(), Error> {
    let branches = observed.balancer.iter_mut().flat_map(|it| &mut it.branches);
    let pools = branches.filter_map(|(id, it)| Some((id, it.pool.as_mut()?)));
    for (_, pool) in pools.filter(|(id, it)| is_meant(id, &it.pool)) {
        let members: Vec<Member> = cloud.within::<Member>(&pool.pool.id).list(Query::all()).await?;
        pool.members = members.iter().map(weighed).collect();
    }
    Ok(())
}

/// A member as its own list tells it.
pub(super) fn weighed(member: &Member) -> (SocketAddr, ObservedMember) {
    let at = SocketAddr::new(member.address, member.protocol_port);
    let terms = Some((member.weight.unwrap_or(1), member.monitor_port));
    (at, ObservedMember { operating: member.operating_status.clone(), terms })
}

fn seats(tree: &StatusTree) -> BTreeMap<Id<Pool>, BTreeMap<SocketAddr, ObservedMember>> {
    let below = tree.listeners.iter().flat_map(|it| &it.pools);
    let of = |pool: &TreePool| {
        let seat = |it: &seaway_openstack::octavia::TreeMember| {
            let at = SocketAddr::new(it.address?, it.protocol_port?);
            let operating = it.operating_status.clone();
            Some((at, ObservedMember { operating, terms: None }))
        };
        (pool.id.clone(), pool.members.iter().filter_map(seat).collect())
    };
    below.chain(&tree.pools).map(of).collect()
}
