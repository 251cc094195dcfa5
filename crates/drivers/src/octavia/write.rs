//! Performs one step, and notes what came of it.

use std::{collections::BTreeMap, net::SocketAddr};

use seaway_model::ListenerId;
use seaway_openstack::{
    Class, Cloud, Error,
    neutron::{FloatingIp, FloatingIpChange, Network, NewFloatingIp, Port, Subnet},
    octavia::{
        HealthMonitor, Listener, ListenerChange, LoadBalancer, Member, NewHealthMonitor, NewListener,
        NewMember, NewPool, Operating, Pool, Provisioning,
    },
    resource::{Collection, Edit, Id, Query, Wrong},
};

use super::{
    affinity,
    belongings::close,
    floating::detached,
    read::weighed,
    seats::terms_of,
    shared,
    spare::Loose,
    steps::{Balancer, Branch, Observed, PoolBranch, Seat, Step, listens},
    subnets::chosen,
    tls::{self, Kept},
    wanted::{WantedFloating, spot},
};

pub(super) async fn write(cloud: &Cloud, step: &Step, observed: &mut Observed) -> Result<(), Error> {
    match step {
        Step::Create(new) => {
            let mut new = new.clone();
            if let Edit::To(listeners) = &mut new.listeners {
                listeners.iter_mut().for_each(|it| tls::address_new(it, &observed.kept));
            }
            let it = cloud.all::<LoadBalancer>().create(&new).await?;
            let branches = branches(&it).map_err(|wrong| {
                Error::new(Class::Strange, format!("what was made is not understood: {wrong}"))
                    .doing(step.to_string())
            })?;
            observed.balancer = Some(Balancer::new(it, branches, Loose::new()));
            (observed.place, observed.mend) = (None, None);
            return Ok(());
        }
        Step::AddFloating(wish) => {
            observed.floating = Some(add_floating(cloud, wish, observed).await?);
            return Ok(());
        }
        Step::Lead(id) => {
            let port = vip(observed)?;
            if is_led_elsewhere(cloud, id, Some(&port)).await? {
                let why = format!("floating IP {id} was led elsewhere meanwhile, and stays there");
                return Err(Error::new(Class::Stale, why).doing(step.to_string()));
            }
            let change = led_to(port);
            observed.floating = Some(cloud.all::<FloatingIp>().change(id, &change).await?);
            observed.stray = None;
            return Ok(());
        }
        Step::Describe(id, description) => {
            let change =
                FloatingIpChange { description: description.clone().into(), ..FloatingIpChange::default() };
            observed.floating = Some(cloud.all::<FloatingIp>().change(id, &change).await?);
            return Ok(());
        }
        Step::Detach(id) => {
            let vip = observed.balancer.as_ref().and_then(|it| it.it.vip_port_id.clone());
            if !is_led_elsewhere(cloud, id, vip.as_ref()).await? {
                cloud.all::<FloatingIp>().change(id, &detached()).await?;
            }
            observed.floating = None;
            return Ok(());
        }
        Step::RemoveFloating(id) => {
            cloud.all::<FloatingIp>().delete(id).await?;
            for it in [&mut observed.floating, &mut observed.stray] {
                it.take_if(|it| it.id == *id);
            }
            return Ok(());
        }
        Step::Keep(name, certificate) => {
            return tls::keep_in(cloud, name, certificate, &mut observed.kept).await;
        }
        Step::Forget(name) => return tls::forget(cloud, name, &mut observed.kept).await,
        Step::RemoveDouble(id) => {
            cloud.all::<LoadBalancer>().delete_cascade(id).await?;
            observed.doubles.retain(|it| it != id);
            return Ok(());
        }
        Step::RemoveGroup(id) => {
            Box::pin(close(cloud, id)).await?;
            observed.their_groups.iter_mut().for_each(|it| it.retain(|it| it != id));
            return Ok(());
        }
        Step::Join(_) | Step::Leave(..) => {
            let balancer = observed.balancer.as_mut().ok_or_else(|| gone(step))?;
            balancer.it = shared::write(cloud, step, &balancer.it).await?;
            if matches!(step, Step::Leave(..)) {
                (observed.balancer, observed.floating) = (None, None);
                observed.shared.left = true;
            }
            return Ok(());
        }
        Step::Delete(id) => {
            cloud.all::<LoadBalancer>().delete_cascade(id).await?;
            if let Some(balancer) = &mut observed.balancer {
                balancer.it.provisioning_status = Provisioning::PendingDelete;
            }
            return Ok(());
        }
        Step::Failover(id) => cloud.all::<LoadBalancer>().failover(id).await?,
        _ => {}
    }
    let balancer = observed.balancer.as_mut().ok_or_else(|| gone(step))?;
    below(cloud, step, balancer, &observed.kept).await?;
    balancer.it.provisioning_status = Provisioning::PendingUpdate;
    Ok(())
}

async fn below(cloud: &Cloud, step: &Step, balancer: &mut Balancer, kept: &Kept) -> Result<(), Error> {
    let id = balancer.it.id.clone();
    match step {
        Step::Change(change) => balancer.it = cloud.all::<LoadBalancer>().change(&id, change).await?,
        Step::RemoveListener(at) => {
            cloud.all::<Listener>().delete(&branch(balancer, *at, step)?.listener.id).await?;
            let pool = balancer.branches.remove(at).and_then(|it| it.pool);
            balancer.loose.extend(pool.map(|it| (it.pool.id, it.pool.name)));
        }
        Step::RemovePool(at) => {
            let branch = branch(balancer, *at, step)?;
            if let Some(pool) = &branch.pool {
                cloud.all::<Pool>().delete(&pool.pool.id).await?;
            }
            branch.pool = None;
            affinity::forget(balancer);
        }
        Step::AddListener(at, new) => {
            let mut new = NewListener { loadbalancer_id: Edit::To(id), ..(**new).clone() };
            tls::address_new(&mut new, kept);
            let pool = balancer.spare.get(at).cloned();
            if let Some(pool) = &pool {
                new.default_pool_id = Edit::To(Some(pool.pool.id.clone()));
            }
            let listener = cloud.all::<Listener>().create(&new).await?;
            balancer.branches.insert(*at, Branch { listener, pool });
            balancer.spare.remove(at);
        }
        Step::ChangeListener(at, change) => {
            let branch = branch(balancer, *at, step)?;
            let mut change = change.clone();
            tls::address_change(&mut change, kept);
            branch.listener = cloud.all::<Listener>().change(&branch.listener.id, &change).await?;
        }
        Step::AddPool(at, new) => {
            let branch = branch(balancer, *at, step)?;
            let new = NewPool { listener_id: Edit::To(branch.listener.id.clone()), ..(**new).clone() };
            let pool = cloud.all::<Pool>().create(&new).await?;
            branch.pool = Some(PoolBranch { pool, monitor: None, members: BTreeMap::new() });
        }
        Step::AddSpare(at, new) => {
            let new = NewPool { loadbalancer_id: Edit::To(id), ..(**new).clone() };
            let pool = cloud.all::<Pool>().create(&new).await?;
            balancer.spare.insert(*at, PoolBranch { pool, monitor: None, members: BTreeMap::new() });
        }
        Step::Turn(at) => {
            let spare = balancer.spare.get(at).cloned().ok_or_else(|| gone(step))?;
            let branch = branch(balancer, *at, step)?;
            let change = ListenerChange {
                default_pool_id: Edit::To(Some(spare.pool.id.clone())),
                ..ListenerChange::default()
            };
            branch.listener = cloud.all::<Listener>().change(&branch.listener.id, &change).await?;
            let old = branch.pool.replace(spare);
            balancer.loose.extend(old.map(|it| (it.pool.id, it.pool.name)));
            balancer.spare.remove(at);
        }
        Step::RemoveLoose(pool) => {
            cloud.all::<Pool>().delete(pool).await?;
            balancer.loose.remove(pool);
            balancer.spare.retain(|_, it| it.pool.id != *pool);
            affinity::forget(balancer);
        }
        Step::ChangePool(at, change) => {
            let pool = pool(balancer, *at, step)?;
            pool.pool = cloud.all::<Pool>().change(&pool.pool.id, change).await?;
            if change.session_persistence != Edit::Leave {
                balancer.forgotten.remove(at);
            }
        }
        Step::SetMembers(at, members) => {
            let pool = pool(balancer, *at, step)?;
            cloud.within::<Member>(&pool.pool.id).replace(members).await?;
            pool.members = members.iter().map(seat).collect();
        }
        Step::AddMember(at, new) => {
            let pool = pool(balancer, *at, step)?;
            cloud.within::<Member>(&pool.pool.id).create(new).await?;
            pool.members.extend([seat(new)]);
        }
        Step::ChangeMember(at, spot, change) => {
            let pool = pool(balancer, *at, step)?;
            let members = cloud.within::<Member>(&pool.pool.id);
            let there = seated(&members, *spot).await?.ok_or_else(|| gone(step))?;
            let it = members.change(&there.id, change).await?;
            let terms = Some((it.weight.unwrap_or(1), it.monitor_port));
            pool.members.insert(*spot, Seat { operating: it.operating_status, terms });
        }
        Step::RemoveMember(at, spot) => {
            let pool = pool(balancer, *at, step)?;
            let members = cloud.within::<Member>(&pool.pool.id);
            if let Some(there) = seated(&members, *spot).await? {
                members.delete(&there.id).await?;
            }
            pool.members.remove(spot);
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
        | Step::Join(_)
        | Step::Leave(..)
        | Step::Lead(_)
        | Step::Describe(..)
        | Step::Detach(_)
        | Step::RemoveFloating(_)
        | Step::Delete(_)
        | Step::RemoveDouble(_)
        | Step::RemoveGroup(_)
        | Step::Keep(..)
        | Step::Forget(_)
        | Step::Failover(_) => {}
    }
    Ok(())
}

/// The member that is there.
async fn seated(members: &Collection<Member>, at: SocketAddr) -> Result<Option<Member>, Error> {
    let query = Query::all().with("address", at.ip()).with("protocol_port", at.port());
    Ok(members.list::<Member>(query).await?.into_iter().next())
}

fn branch<'b>(balancer: &'b mut Balancer, at: ListenerId, step: &Step) -> Result<&'b mut Branch, Error> {
    balancer.branches.get_mut(&at).ok_or_else(|| gone(step))
}

fn pool<'b>(balancer: &'b mut Balancer, at: ListenerId, step: &Step) -> Result<&'b mut PoolBranch, Error> {
    // What is made below a pool that is to take another's place, is made first.
    if balancer.spare.contains_key(&at) {
        return balancer.spare.get_mut(&at).ok_or_else(|| gone(step));
    }
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
            let (at, seat) = weighed(&member.whole()?);
            members.insert(at, seat);
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
    let port = vip(observed)?;
    if let Some(requested) = wish.requested {
        let query = Query::all().with("floating_ip_address", requested);
        if let Some(there) = cloud.all::<FloatingIp>().list::<FloatingIp>(query).await?.into_iter().next() {
            if there.port_id.as_ref().is_some_and(|it| *it != port) {
                let text = format!("floating IP {requested} leads somewhere else");
                return Err(Error::new(Class::AddressTaken, text)
                    .with_fix("Detach it there, or ask for another address."));
            }
            return cloud.all::<FloatingIp>().change(&there.id, &led_to(port)).await;
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
    let Some(choice) = &wish.subnet else {
        return cloud.all::<FloatingIp>().create(&new).await.map_err(|error| unreachable(error, &network));
    };
    let query = Query::all().with("network_id", &network);
    let subnets = cloud.all::<Subnet>().list::<Subnet>(query).await?;
    let chosen = chosen(choice, &subnets).map_err(|why| Error::new(Class::Invalid, why))?;
    let mut last = Error::new(Class::Invalid, format!("no subnet of {network} is meant by {choice:?}"));
    // One that is full does not spoil the others.
    for subnet in chosen {
        let new = NewFloatingIp { subnet_id: Edit::To(subnet.id.clone()), ..new.clone() };
        match cloud.all::<FloatingIp>().create(&new).await {
            Err(error) if error.class() == &Class::NoAddressLeft => last = error,
            done => return done.map_err(|error| unreachable(error, &network)),
        }
    }
    Err(last)
}

/// A network that is not there, or that no router leads to, does not come by waiting.
fn unreachable(error: Error, network: &Id<Network>) -> Error {
    if !error.is_not_found() || !error.message().contains(network.as_str()) {
        return error;
    }
    Error::new(Class::Invalid, error.message())
        .doing("create floating IP")
        .with_fix("name a network that a router leads to from the subnet of the VIP: floating-network-id")
        .with_source(error)
}

fn vip(observed: &Observed) -> Result<Id<Port>, Error> {
    let port = observed.balancer.as_ref().and_then(|it| it.it.vip_port_id.clone());
    port.ok_or_else(|| {
        Error::new(Class::Stale, "the load balancer has no VIP yet").doing("lead a floating IP to the VIP")
    })
}

/// It may have been minutes ago that it was read: what somebody led to another port since is theirs.
async fn is_led_elsewhere(cloud: &Cloud, id: &Id<FloatingIp>, vip: Option<&Id<Port>>) -> Result<bool, Error> {
    let there = cloud.all::<FloatingIp>().find::<FloatingIp>(id).await?;
    Ok(there.and_then(|it| it.port_id).is_some_and(|port| Some(&port) != vip))
}

fn led_to(port: Id<Port>) -> FloatingIpChange {
    FloatingIpChange { port_id: Edit::To(Some(port)), ..FloatingIpChange::default() }
}

/// The first network outside that has addresses of IPv4; one that is alone is no matter of choice.
async fn outside(cloud: &Cloud) -> Result<Id<Network>, Error> {
    let query = Query::all().with("router:external", true);
    let mut all = cloud.all::<Network>().list::<Network>(query).await?;
    if all.len() == 1 {
        return Ok(all.remove(0).id);
    }
    for network in all {
        let query = Query::all().with("network_id", &network.id).with("ip_version", 4);
        if !cloud.all::<Subnet>().list::<Subnet>(query).await?.is_empty() {
            return Ok(network.id);
        }
    }
    Err(Error::new(Class::Invalid, "there is no network outside that has addresses of IPv4")
        .with_fix("Name one: floating-network-id of [LoadBalancer], or the annotation of that name."))
}
