//! Performs what is to be done with floating IPs.

use seaway_openstack::{
    Class, Cloud, Error,
    neutron::{FloatingIp, FloatingIpChange, Network, NewFloatingIp, Port, Subnet},
    resource::{Edit, Id, Query},
};

use super::{detached, external::external};
use crate::octavia::{
    steps::{Observed, Step},
    subnets::chosen,
    tags,
    wanted::WantedFloating,
};

/// Does one step with floating IPs.
pub(in crate::octavia) async fn write(
    cloud: &Cloud,
    step: &Step,
    observed: &mut Observed,
) -> Result<(), Error> {
    let all = cloud.all::<FloatingIp>();
    match step {
        Step::AddFloating(wish) => match obtain(cloud, wish, Some(vip(observed)?), observed).await {
            Ok(it) => observed.floating = Some(it),
            Err(error) => {
                fall_back(cloud, observed).await;
                return Err(error);
            }
        },
        Step::Allocate(wish) => observed.stray = Some(obtain(cloud, wish, None, observed).await?),
        Step::Move(from, written) => replace(cloud, from, written.as_deref(), step, observed).await?,
        Step::AssociateFloating(id) => {
            let port = vip(observed)?;
            if is_led_elsewhere(cloud, id, Some(&port)).await? {
                return Err(led_elsewhere(id, step));
            }
            observed.floating = Some(all.change(id, &led_to(port)).await?);
            observed.stray = None;
        }
        Step::Describe(id, description) => {
            let change =
                FloatingIpChange { description: description.clone().into(), ..FloatingIpChange::default() };
            observed.floating = Some(all.change(id, &change).await?);
        }
        Step::TagFloating(wish) => {
            if let Some(known) = observed.floating.as_ref().map(|it| it.id.clone())
                && let Some(now) = all.find::<FloatingIp>(&known).await?
            {
                let tags = tags::floating(wish, &now);
                let is_due = tags::is_ours(wish, &now) && tags != now.tags;
                if is_due {
                    all.replace_tags(&now.id, &tags).await?;
                }
                let tags = if is_due { tags } else { now.tags.clone() };
                observed.floating = Some(FloatingIp { tags, ..now });
            }
        }
        Step::Detach(id) => {
            let vip = observed.balancer.as_ref().and_then(|it| it.it.vip_port_id.clone());
            if !is_led_elsewhere(cloud, id, vip.as_ref()).await? {
                all.change(id, &detached()).await?;
            }
            observed.floating = None;
        }
        Step::RemoveFloating(id) => {
            remove(cloud, id, observed).await?;
            for it in [&mut observed.floating, &mut observed.stray] {
                it.take_if(|it| it.id == *id);
            }
            observed.leftover.take_if(|it| it == id);
        }
        _ => {}
    }
    Ok(())
}

/// What somebody led to another port since is used there, and stays. Whether it was touched at all, its revision tells
/// without a look.
async fn remove(cloud: &Cloud, id: &Id<FloatingIp>, observed: &Observed) -> Result<(), Error> {
    let all = cloud.all::<FloatingIp>();
    let known = observed.floating.iter().chain(&observed.stray).find(|it| it.id == *id);
    if let Some(revision) = known.and_then(|it| it.revision_number) {
        match all.delete_if(revision, id).await {
            Err(error) if *error.class() == Class::Stale => {}
            done => return done,
        }
    }
    let vip = observed.balancer.as_ref().and_then(|it| it.it.vip_port_id.as_ref());
    let Some(now) = all.find::<FloatingIp>(id).await? else { return Ok(()) };
    match (&now.port_id, now.revision_number) {
        (Some(port), _) if Some(port) != vip => Ok(()),
        (_, Some(revision)) => all.delete_if(revision, id).await,
        (_, None) => all.delete(id).await,
    }
}

/// A port has one only. If the new one cannot be associated, the old one is again.
async fn replace(
    cloud: &Cloud,
    from: &Id<FloatingIp>,
    written: Option<&str>,
    step: &Step,
    observed: &mut Observed,
) -> Result<(), Error> {
    let all = cloud.all::<FloatingIp>();
    let port = vip(observed)?;
    let stale = || Error::new(Class::Stale, "no floating IP was created").with_operation(step.to_string());
    let new = observed.stray.as_ref().map(|it| it.id.clone()).ok_or_else(stale)?;
    if is_led_elsewhere(cloud, &new, Some(&port)).await? {
        return Err(led_elsewhere(&new, step));
    }
    if !is_led_elsewhere(cloud, from, Some(&port)).await? {
        let description = written.map_or(Edit::Leave, |it| it.to_owned().into());
        all.change(from, &FloatingIpChange { description, ..detached() }).await?;
    }
    match all.change(&new, &led_to(port.clone())).await {
        Ok(it) => (observed.floating, observed.stray) = (Some(it), None),
        Err(error) => {
            // If that fails as well, the next look finds it by its description.
            let before = observed.floating.as_ref().filter(|it| it.id == *from && written.is_some());
            let description = before.map_or(Edit::Leave, |it| it.description.clone().into());
            _ = all.change(from, &FloatingIpChange { description, ..led_to(port) }).await;
            return Err(error);
        }
    }
    Ok(())
}

/// What led there before is better than nothing.
async fn fall_back(cloud: &Cloud, observed: &mut Observed) {
    let (Some(stray), Ok(port)) = (observed.stray.clone(), vip(observed)) else { return };
    if is_led_elsewhere(cloud, &stray.id, Some(&port)).await.unwrap_or(true) {
        return;
    }
    if let Ok(it) = cloud.all::<FloatingIp>().change(&stray.id, &led_to(port)).await {
        (observed.floating, observed.stray) = (Some(it), None);
    }
}

fn led_elsewhere(id: &Id<FloatingIp>, step: &Step) -> Error {
    let why = format!("floating IP {id} was associated with another port meanwhile, and stays there");
    Error::new(Class::Stale, why).with_operation(step.to_string())
}

/// Takes the one that was asked for, or makes one. Without a port it is allocated and leads nowhere.
async fn obtain(
    cloud: &Cloud,
    wish: &WantedFloating,
    port: Option<Id<Port>>,
    observed: &Observed,
) -> Result<FloatingIp, Error> {
    if let Some(requested) = wish.requested {
        let query = Query::all().with("floating_ip_address", requested);
        if let Some(there) = cloud.all::<FloatingIp>().list::<FloatingIp>(query).await?.into_iter().next() {
            if there.port_id.is_some() && there.port_id != port {
                let text = format!("floating IP {requested} is associated with another port");
                return Err(Error::new(Class::AddressTaken, text)
                    .with_fix("Detach the floating IP from that port, or request another address."));
            }
            let Some(port) = port else { return Ok(there) };
            return cloud.all::<FloatingIp>().change(&there.id, &led_to(port)).await;
        }
    }
    let network = match &wish.network {
        Some(network) => network.clone(),
        None => external(cloud, observed).await?,
    };
    let new = NewFloatingIp {
        port_id: port.map_or(Edit::Leave, |it| Edit::To(Some(it))),
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
    let mut last = Error::new(Class::Invalid, format!("no subnet of {network} fits {choice}"));
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
        .with_operation("create floating IP")
        .with_fix("name a network that a router connects with the subnet of the VIP: floating-network-id")
        .with_source(error)
}

fn vip(observed: &Observed) -> Result<Id<Port>, Error> {
    let port = observed.balancer.as_ref().and_then(|it| it.it.vip_port_id.clone());
    port.ok_or_else(|| {
        Error::new(Class::Stale, "the load balancer has no VIP yet")
            .with_operation("associate a floating IP with the VIP")
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
