//! What would keep a load balancer from being made, looked at before the one that serves is deleted for it.

use seaway_engine::Failure;
use seaway_model::{Desired, Unit};
use seaway_openstack::{
    Class, Cloud, Error,
    neutron::{Network, Port, Subnet},
    octavia::{AvailabilityZone, Flavor, LoadBalancer, NewLoadBalancer, Provider, Provisioning},
    resource::{Edit, Id, Query, Resource},
};

use super::{
    Joined, Octavia, first_owner, is_paused, place::cidr, repair::RepairAction, service_backoffs::Requester,
    shared::marks, steps::Observed,
};

impl Octavia {
    /// Refuses one that quotas have no room for, and leaves one that serves where it is, if another could not be made.
    pub(super) async fn look_ahead(
        &self,
        joined: &Joined,
        unit: &Unit,
        desired: &Desired,
        observed: &mut Observed,
    ) -> Result<(), Failure> {
        let Unit::LoadBalancer(_, key) = unit else { return Ok(()) };
        let Some(wanted) = self.wanted(unit, desired, observed) else { return Ok(()) };
        let Some(balancer) = &observed.balancer else {
            return match first_owner(key, desired) {
                Some(owner) if !is_paused(desired) && !observed.needless => {
                    self.check_quota(joined, unit, &owner, &wanted, observed).await
                }
                _ => Ok(()),
            };
        };
        let serves = balancer.it.provisioning_status == Provisioning::Active;
        if !serves || !matches!(observed.repair, Some(RepairAction::Remake { .. })) {
            return Ok(());
        }
        let is_alone = marks(&joined.cluster, key).is_none_or(|it| it.others(&balancer.it).next().is_none());
        let stays = match is_alone {
            true => obstacle(&joined.cloud, &wanted.balancer, &balancer.it).await,
            false => Ok(Some("other Services use this load balancer".to_owned())),
        };
        observed.stays = stays.map_err(|error| self.failed(&Requester::of(unit), &error))?;
        if observed.stays.is_some() {
            observed.repair = None;
        }
        Ok(())
    }
}

/// Why another could not be made.
async fn obstacle(cloud: &Cloud, new: &NewLoadBalancer, is: &LoadBalancer) -> Result<Option<String>, Error> {
    async fn lacks<R: Resource<Parent = ()>>(
        cloud: &Cloud,
        what: &str,
        id: Option<Id<R>>,
    ) -> Result<Option<String>, Error> {
        let Some(id) = id else { return Ok(None) };
        match cloud.all::<R>().find::<R>(&id).await {
            Ok(found) => Ok(found.is_none().then(|| format!("the cloud has no {what} {id}"))),
            // Not everybody may look.
            Err(error) if matches!(error.class(), Class::Forbidden | Class::Unsupported) => Ok(None),
            Err(error) => Err(error),
        }
    }
    fn named<R>(text: &Edit<Option<String>>) -> Option<Id<R>> {
        given(text)?.parse().ok()
    }
    let found = [
        lacks_provider(cloud, given(&new.provider).filter(|it| Some(*it) != is.provider.as_ref())).await?,
        lacks::<Flavor>(cloud, "flavor", given(&new.flavor_id).cloned()).await?,
        lacks::<AvailabilityZone>(cloud, "availability zone", named(&new.availability_zone)).await?,
        lacks::<Port>(cloud, "port", given(&new.vip_port_id).cloned()).await?,
        lacks::<Network>(cloud, "network", given(&new.vip_network_id).cloned()).await?,
        lacks::<Subnet>(cloud, "subnet", given(&new.vip_subnet_id).cloned()).await?,
    ];
    if let Some(lack) = found.into_iter().flatten().next() {
        return Ok(Some(lack));
    }
    let subnet = given(&new.vip_subnet_id).or(is.vip_subnet_id.as_ref());
    let (Some(ip), Some(subnet)) = (given(&new.vip_address), subnet) else { return Ok(None) };
    let subnet: Subnet = cloud.all::<Subnet>().read(subnet).await?;
    if cidr(&subnet).is_some_and(|it| !it.contains(ip)) {
        return Ok(Some(format!("{ip} is not in subnet {}", subnet.id)));
    }
    let query =
        Query::all().with("network_id", &subnet.network_id).with("fixed_ips", format!("ip_address={ip}"));
    let ports = cloud.all::<Port>().list::<Port>(query).await?;
    let taken = ports.iter().find(|it| Some(&it.id) != is.vip_port_id.as_ref());
    Ok(taken.map(|it| format!("port {} has {ip}", it.id)))
}

/// They are listed, and never told one by one.
async fn lacks_provider(cloud: &Cloud, name: Option<&String>) -> Result<Option<String>, Error> {
    let Some(name) = name else { return Ok(None) };
    let all = cloud.all::<Provider>().list::<Provider>(Query::all()).await?;
    let is_there = all.iter().any(|it| it.id.as_str() == name);
    Ok((!is_there).then(|| format!("the cloud has no provider {name}")))
}

fn given<T>(edit: &Edit<Option<T>>) -> Option<&T> {
    match edit {
        Edit::To(it) => it.as_ref(),
        Edit::Leave => None,
    }
}
