//! Performs one step, and notes what came of it.

use std::{collections::BTreeMap, net::SocketAddr};

use seaway_model::ListenerId;
use seaway_openstack::{
    Class, Cloud, Error,
    neutron::{FloatingIp, FloatingIpChange, Network, NewFloatingIp, Subnet},
    octavia::{
        HealthMonitor, Listener, LoadBalancer, Member, NewHealthMonitor, NewListener, NewMember, NewPool,
        Operating, Pool, Provisioning,
    },
    resource::{Edit, Id, Query, Wrong},
};

use super::{
    steps::{Balancer, Branch, Observed, PoolBranch, Seat, Step, detached, listens, terms_of},
    subnets::chosen,
    wanted::{WantedFloating, spot},
};

pub(super) async fn write(cloud: &Cloud, step: &Step, observed: &mut Observed) -> Result<(), Error> {
    match step {
        Step::Create(new) => {
            let it = cloud.all::<LoadBalancer>().create(new).await?;
            let branches = branches(&it).map_err(|wrong| {
                Error::new(Class::Strange, format!("what was made is not understood: {wrong}"))
                    .doing(step.to_string())
            })?;
            observed.balancer = Some(Balancer { it, branches });
            return Ok(());
        }
        Step::AddFloating(wish) => {
            observed.floating = Some(add_floating(cloud, wish, observed).await?);
            return Ok(());
        }
        Step::Detach(id) => {
            cloud.all::<FloatingIp>().change(id, &detached()).await?;
            observed.floating = None;
            return Ok(());
        }
        Step::RemoveFloating(id) => {
            cloud.all::<FloatingIp>().delete(id).await?;
            observed.floating = None;
            return Ok(());
        }
        Step::Delete(id) => {
            cloud.all::<LoadBalancer>().delete_cascade(id).await?;
            if let Some(balancer) = &mut observed.balancer {
                balancer.it.provisioning_status = Provisioning::PendingDelete;
            }
            return Ok(());
        }
        _ => {}
    }
    let balancer = observed.balancer.as_mut().ok_or_else(|| gone(step))?;
    below(cloud, step, balancer).await?;
    balancer.it.provisioning_status = Provisioning::PendingUpdate;
    Ok(())
}

async fn below(cloud: &Cloud, step: &Step, balancer: &mut Balancer) -> Result<(), Error> {
    let id = balancer.it.id.clone();
    match step {
        Step::Change(change) => balancer.it = cloud.all::<LoadBalancer>().change(&id, change).await?,
        Step::RemoveListener(at) => {
            cloud.all::<Listener>().delete(&branch(balancer, *at, step)?.listener.id).await?;
            balancer.branches.remove(at);
        }
        Step::RemovePool(at) => {
            let branch = branch(balancer, *at, step)?;
            if let Some(pool) = &branch.pool {
                cloud.all::<Pool>().delete(&pool.pool.id).await?;
            }
            branch.pool = None;
        }
        Step::AddListener(at, new) => {
            let new = NewListener { loadbalancer_id: Edit::To(id), ..(**new).clone() };
            let listener = cloud.all::<Listener>().create(&new).await?;
            balancer.branches.insert(*at, Branch { listener, pool: None });
        }
        Step::ChangeListener(at, change) => {
            let branch = branch(balancer, *at, step)?;
            branch.listener = cloud.all::<Listener>().change(&branch.listener.id, change).await?;
        }
        Step::AddPool(at, new) => {
            let branch = branch(balancer, *at, step)?;
            let new = NewPool { listener_id: Edit::To(branch.listener.id.clone()), ..(**new).clone() };
            let pool = cloud.all::<Pool>().create(&new).await?;
            branch.pool = Some(PoolBranch { pool, monitor: None, members: BTreeMap::new() });
        }
        Step::ChangePool(at, change) => {
            let pool = pool(balancer, *at, step)?;
            pool.pool = cloud.all::<Pool>().change(&pool.pool.id, change).await?;
        }
        Step::SetMembers(at, members) => {
            let pool = pool(balancer, *at, step)?;
            cloud.within::<Member>(&pool.pool.id).replace(members).await?;
            pool.members = members.iter().map(seat).collect();
        }
        Step::AddMonitor(at, new) => {
            let pool = pool(balancer, *at, step)?;
            let new = NewHealthMonitor { pool_id: Edit::To(pool.pool.id.clone()), ..(**new).clone() };
            pool.monitor = Some(cloud.all::<HealthMonitor>().create(&new).await?);
        }
        Step::ChangeMonitor(at, change) => {
            let pool = pool(balancer, *at, step)?;
            if let Some(monitor) = &mut pool.monitor {
                *monitor = cloud.all::<HealthMonitor>().change(&monitor.id, change).await?;
            }
        }
        Step::RemoveMonitor(at) => {
            let pool = pool(balancer, *at, step)?;
            if let Some(monitor) = pool.monitor.take() {
                cloud.all::<HealthMonitor>().delete(&monitor.id).await?;
            }
        }
        Step::Create(_)
        | Step::AddFloating(_)
        | Step::Detach(_)
        | Step::RemoveFloating(_)
        | Step::Delete(_) => {}
    }
    Ok(())
}

fn branch<'b>(balancer: &'b mut Balancer, at: ListenerId, step: &Step) -> Result<&'b mut Branch, Error> {
    balancer.branches.get_mut(&at).ok_or_else(|| gone(step))
}

fn pool<'b>(balancer: &'b mut Balancer, at: ListenerId, step: &Step) -> Result<&'b mut PoolBranch, Error> {
    branch(balancer, at, step)?.pool.as_mut().ok_or_else(|| gone(step))
}

fn gone(step: &Step) -> Error {
    Error::new(Class::Stale, "what it belongs to is not there any more").doing(step.to_string())
}

fn seat(new: &NewMember) -> (SocketAddr, Seat) {
    (spot(new), Seat { operating: Operating::NoMonitor, terms: Some(terms_of(new)) })
}

/// The answer to a whole load balancer tells all below it.
fn branches(it: &LoadBalancer) -> Result<BTreeMap<ListenerId, Branch>, Wrong> {
    let mut pools = BTreeMap::new();
    for pool in &it.pools {
        let pool = pool.whole()?;
        let monitor = pool.monitor()?;
        let mut members = BTreeMap::new();
        for member in &pool.members {
            let member = member.whole()?;
            let at = SocketAddr::new(member.address, member.protocol_port);
            let terms = Some((member.weight.unwrap_or(1), member.monitor_port));
            members.insert(at, Seat { operating: member.operating_status, terms });
        }
        pools.insert(pool.id.clone(), PoolBranch { pool, monitor, members });
    }
    let mut branches = BTreeMap::new();
    for listener in &it.listeners {
        let listener = listener.whole()?;
        let pool = listener.default_pool_id.as_ref().and_then(|id| pools.get(id)).cloned();
        branches.insert(listens(&listener), Branch { listener, pool });
    }
    Ok(branches)
}

/// Takes the one that was asked for, or makes one.
async fn add_floating(
    cloud: &Cloud,
    wish: &WantedFloating,
    observed: &Observed,
) -> Result<FloatingIp, Error> {
    let port = observed.balancer.as_ref().and_then(|it| it.it.vip_port_id.clone());
    let port = port.ok_or_else(|| {
        Error::new(Class::Stale, "the load balancer has no VIP yet").doing("lead a floating IP to the VIP")
    })?;
    if let Some(requested) = wish.requested {
        let query = Query::all().with("floating_ip_address", requested);
        if let Some(there) = cloud.all::<FloatingIp>().list::<FloatingIp>(query).await?.into_iter().next() {
            if there.port_id.as_ref().is_some_and(|it| *it != port) {
                let text = format!("floating IP {requested} leads somewhere else");
                return Err(Error::new(Class::AddressTaken, text)
                    .with_fix("Detach it there, or ask for another address."));
            }
            let change = FloatingIpChange { port_id: Edit::To(Some(port)), ..FloatingIpChange::default() };
            return cloud.all::<FloatingIp>().change(&there.id, &change).await;
        }
    }
    let network = match &wish.network {
        Some(network) => network.clone(),
        None => outside(cloud).await?,
    };
    let new = NewFloatingIp {
        port_id: Edit::To(Some(port)),
        description: Edit::To(wish.description.clone()),
        floating_ip_address: wish.requested.map_or(Edit::Leave, |it| Edit::To(Some(it))),
        ..NewFloatingIp::new(network.clone())
    };
    let Some(choice) = &wish.subnet else { return cloud.all::<FloatingIp>().create(&new).await };
    let query = Query::all().with("network_id", &network);
    let subnets = cloud.all::<Subnet>().list::<Subnet>(query).await?;
    let chosen = chosen(choice, &subnets).map_err(|why| Error::new(Class::Invalid, why))?;
    let mut last = Error::new(Class::Invalid, format!("no subnet of {network} is meant by {choice:?}"));
    // One that is full does not spoil the others.
    for subnet in chosen {
        let new = NewFloatingIp { subnet_id: Edit::To(subnet.id.clone()), ..new.clone() };
        match cloud.all::<FloatingIp>().create(&new).await {
            Err(error) if error.class() == &Class::NoAddressLeft => last = error,
            done => return done,
        }
    }
    Err(last)
}

/// The first network outside that has addresses of IPv4.
async fn outside(cloud: &Cloud) -> Result<Id<Network>, Error> {
    let query = Query::all().with("router:external", true);
    for network in cloud.all::<Network>().list::<Network>(query).await? {
        let query = Query::all().with("network_id", &network.id).with("ip_version", 4);
        if !cloud.all::<Subnet>().list::<Subnet>(query).await?.is_empty() {
            return Ok(network.id);
        }
    }
    Err(Error::new(Class::Invalid, "there is no network outside that has addresses of IPv4")
        .with_fix("Name one: floating-network-id of [LoadBalancer], or the annotation of that name."))
}
