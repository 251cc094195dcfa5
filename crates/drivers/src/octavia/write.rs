//! Performs one step, and notes what came of it.

use std::{collections::BTreeMap, net::SocketAddr};

use seaway_model::ListenerId;
use seaway_openstack::{
    Class, Cloud, Error,
    octavia::{
        HealthMonitor, Listener, ListenerChange, LoadBalancer, Member, NewHealthMonitor, NewListener,
        NewMember, NewPool, Operating, Pool, Provisioning,
    },
    resource::{Collection, Edit, FieldError, Query},
};

use super::{
    affinity,
    belongings::close,
    floating,
    pool_replacement::{UnusedPools, by_port},
    read::weighed,
    seats::terms_of,
    shared,
    steps::{Branch, Observed, ObservedLoadBalancer, ObservedMember, PoolBranch, Step},
    tls::{self, StoredCertificates},
    wanted::spot,
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
                Error::new(
                    Class::Strange,
                    format!("the cloud created the object, but Seaway cannot read the reply: {wrong}"),
                )
                .with_operation(step.to_string())
            })?;
            observed.balancer = Some(ObservedLoadBalancer::new(it, by_port(branches), UnusedPools::new()));
            (observed.place, observed.repair) = (None, None);
            return Ok(());
        }
        Step::AddFloating(_)
        | Step::Allocate(_)
        | Step::Move(..)
        | Step::AssociateFloating(_)
        | Step::Describe(..)
        | Step::TagFloating(_)
        | Step::Detach(_)
        | Step::RemoveFloating(_) => return floating::write(cloud, step, observed).await,
        Step::Keep(name, certificate) => {
            return tls::keep_in(cloud, name, certificate, &mut observed.kept).await;
        }
        Step::Forget(name) => return tls::forget(cloud, name, &mut observed.kept).await,
        Step::RemoveDuplicateLoadBalancer(id) => {
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

async fn below(
    cloud: &Cloud,
    step: &Step,
    balancer: &mut ObservedLoadBalancer,
    kept: &StoredCertificates,
) -> Result<(), Error> {
    let id = balancer.it.id.clone();
    match step {
        Step::Change(change) => balancer.it = cloud.all::<LoadBalancer>().change(&id, change).await?,
        Step::RemoveListener(at) => {
            cloud.all::<Listener>().delete(&branch(balancer, *at, step)?.listener.id).await?;
            let pool = balancer.branches.remove(at).and_then(|it| it.pool);
            balancer.unused_pools.extend(pool.map(|it| (it.pool.id, it.pool.name)));
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
        Step::SwitchListenerPool(at) => {
            let spare = balancer.spare.get(at).cloned().ok_or_else(|| gone(step))?;
            let branch = branch(balancer, *at, step)?;
            let change = ListenerChange {
                default_pool_id: Edit::To(Some(spare.pool.id.clone())),
                ..ListenerChange::default()
            };
            branch.listener = cloud.all::<Listener>().change(&branch.listener.id, &change).await?;
            let old = branch.pool.replace(spare);
            balancer.unused_pools.extend(old.map(|it| (it.pool.id, it.pool.name)));
            balancer.spare.remove(at);
        }
        Step::RemoveUnusedPool(pool) => {
            cloud.all::<Pool>().delete(pool).await?;
            balancer.unused_pools.remove(pool);
            balancer.spare.retain(|_, it| it.pool.id != *pool);
            affinity::forget(balancer);
        }
        Step::RemoveDuplicateListener(listener) => {
            cloud.all::<Listener>().delete(listener).await?;
            balancer.duplicate_listeners.remove(listener);
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
            // Of one that is written again nobody has told yet how it is.
            let is_again = change.admin_state_up == Edit::To(true);
            // An operator took it out of service.
            let is_disabled = is_again && !there.admin_state_up;
            let it = if is_disabled { there } else { members.change(&there.id, change).await? };
            let terms = Some((it.weight.unwrap_or(1), it.monitor_port));
            let operating = if is_again { Operating::NoMonitor } else { it.operating_status };
            pool.members.insert(*spot, ObservedMember { operating, terms });
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
        | Step::Allocate(_)
        | Step::Move(..)
        | Step::Join(_)
        | Step::Leave(..)
        | Step::AssociateFloating(_)
        | Step::Describe(..)
        | Step::TagFloating(_)
        | Step::Detach(_)
        | Step::RemoveFloating(_)
        | Step::Delete(_)
        | Step::RemoveDuplicateLoadBalancer(_)
        | Step::RemoveGroup(_)
        | Step::Keep(..)
        | Step::Forget(_)
        | Step::Abandon(_)
        | Step::Failover(_) => {}
    }
    Ok(())
}

/// The member that is there.
async fn seated(members: &Collection<Member>, at: SocketAddr) -> Result<Option<Member>, Error> {
    let query = Query::all().with("address", at.ip()).with("protocol_port", at.port());
    Ok(members.list::<Member>(query).await?.into_iter().next())
}

fn branch<'b>(
    balancer: &'b mut ObservedLoadBalancer,
    at: ListenerId,
    step: &Step,
) -> Result<&'b mut Branch, Error> {
    balancer.branches.get_mut(&at).ok_or_else(|| gone(step))
}

fn pool<'b>(
    balancer: &'b mut ObservedLoadBalancer,
    at: ListenerId,
    step: &Step,
) -> Result<&'b mut PoolBranch, Error> {
    // What is made below a pool that is to take another's place, is made first.
    if balancer.spare.contains_key(&at) {
        return balancer.spare.get_mut(&at).ok_or_else(|| gone(step));
    }
    branch(balancer, at, step)?.pool.as_mut().ok_or_else(|| gone(step))
}

fn gone(step: &Step) -> Error {
    Error::new(Class::Stale, "the parent of this object in the cloud does not exist any more")
        .with_operation(step.to_string())
}

fn seat(new: &NewMember) -> (SocketAddr, ObservedMember) {
    (spot(new), ObservedMember { operating: Operating::NoMonitor, terms: Some(terms_of(new)) })
}

/// The answer to a whole load balancer tells all below it.
fn branches(it: &LoadBalancer) -> Result<Vec<Branch>, FieldError> {
    let mut pools = BTreeMap::new();
    for pool in &it.pools {
        let pool = pool.read_expanded()?;
        let monitor = pool.monitor()?;
        let mut members = BTreeMap::new();
        for member in &pool.members {
            let (at, seat) = weighed(&member.read_expanded()?);
            members.insert(at, seat);
        }
        pools.insert(pool.id.clone(), PoolBranch { pool, monitor, members });
    }
    let mut branches = Vec::new();
    for listener in &it.listeners {
        let listener = listener.read_expanded()?;
        let pool = listener.default_pool_id.as_ref().and_then(|id| pools.get(id)).cloned();
        branches.push(Branch { listener, pool });
    }
    Ok(branches)
}
