//! Nodes are opened to a load balancer that is there as its own provider needs it, and from where it is, whatever is asked for by
//! now: one provider leaves clients their addresses, another does not, and rules of the wrong kind shut everybody out or let
//! everybody in. A Service that shares another's, of whatever namespace, is reached from where that one is.

use std::{collections::BTreeMap, sync::Arc};

use seaway_model::{
    Desired, LbKey, Name, NodeSecurityGroup, Owner, Unit,
    group::{NodeAccess, SourceNetwork},
    load_balancer::Family,
    unit::Place,
};
use seaway_openstack::{
    Error,
    neutron::Subnet,
    octavia::LoadBalancer,
    resource::{Id, Query},
};

use crate::octavia::{
    Joined, OCTAVIA, Octavia,
    shared::{guests_of, marks},
    steps::{self as balancers, Step},
};

/// What is there of a Service, as far as Nodes are opened to it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Made {
    pub provider: Name,
    /// Where its VIP is; nothing where there is none yet.
    vip: Option<SourceNetwork>,
    /// Where its other VIPs are, and that of its second load balancer.
    others: Vec<SourceNetwork>,
}

const FAMILIES: [Family; 2] = [Family::V4, Family::V6];

impl Made {
    fn of(it: Option<&LoadBalancer>, asked: Name) -> Made {
        let Some(it) = it else { return Made { provider: asked, ..Made::default() } };
        Made {
            provider: it.provider.as_deref().map_or(asked, Name::from),
            vip: it.vip_subnet_id.as_ref().map(from),
            others: it.additional_vips.iter().filter_map(|it| it.subnet_id.as_ref()).map(from).collect(),
        }
    }

    fn add_second(&mut self, it: &LoadBalancer) {
        self.others.extend(it.vip_subnet_id.as_ref().map(from));
    }

    /// From where it reaches Nodes, beside from where it would if it were made now.
    pub(super) fn beside(&self, openings: &NodeAccess) -> impl Iterator<Item = &SourceNetwork> {
        let vip = self.vip.as_ref().filter(|_| openings.at_vip);
        vip.into_iter().chain(&self.others).filter(|it| **it != openings.from)
    }
}

fn from(subnet: &Id<Subnet>) -> SourceNetwork {
    SourceNetwork::Subnet(subnet.as_str().into())
}

impl Octavia {
    /// What there is of those that Nodes are opened to. What the driver knows costs nothing; of all others there is one list,
    /// once for each owner that nobody has looked for.
    pub(super) async fn made(
        &self,
        joined: &Joined,
        cloud: &Name,
        desired: &Desired,
        before: &BTreeMap<Owner, Made>,
    ) -> Result<BTreeMap<Owner, Made>, Error> {
        let Desired::SecurityGroup(group) = desired else { return Ok(BTreeMap::new()) };
        let mut made = BTreeMap::new();
        let mut open = Vec::new();
        for (owner, openings) in &group.openings {
            let asked = openings.provider.clone().unwrap_or_else(|| self.provider.clone());
            match (self.known_of(cloud, owner, &asked), before.get(owner)) {
                (Some(known), _) => drop(made.insert(owner.clone(), known)),
                (None, Some(before)) => drop(made.insert(owner.clone(), before.clone())),
                (None, None) => open.push((owner, asked)),
            }
        }
        if open.is_empty() {
            return Ok(made);
        }
        // Those of others that Services of ours are on, too.
        let tags = [joined.cluster.tag(), guests_of(&joined.cluster)];
        let query = Query::all().tagged_any(tags.iter().map(String::as_str));
        let all = joined.cloud.all::<LoadBalancer>().list::<LoadBalancer>(query).await?;
        for (owner, asked) in open {
            let find = |key: LbKey| {
                let marks = marks(&joined.cluster, &key)?;
                all.iter().find(|it| marks.is_first(&it.tags) || marks.is_guest(&it.tags))
            };
            let mut its = Made::of(find(LbKey::Of(owner.clone())), asked);
            let seconds = FAMILIES.into_iter().filter_map(|it| find(LbKey::Second(owner.clone(), it)));
            seconds.for_each(|it| its.add_second(it));
            made.insert(owner.clone(), its);
        }
        Ok(made)
    }

    /// Nothing where nobody has looked. Where there is none, it will be the one that is asked for.
    fn known_of(&self, cloud: &Name, owner: &Owner, asked: &Name) -> Option<Made> {
        let place = || Place::Cloud { name: cloud.clone(), driver: OCTAVIA.into() };
        let known = self.known();
        let first = &known.get(&Unit::LoadBalancer(place(), LbKey::Of(owner.clone())))?.observed.balancer;
        let mut made = Made::of(first.as_ref().map(|it| &it.it), asked.clone());
        for family in FAMILIES {
            let second = known.get(&Unit::LoadBalancer(place(), LbKey::Second(owner.clone(), family)));
            if let Some(it) = second.and_then(|it| it.observed.balancer.as_ref()) {
                made.add_second(&it.it);
            }
        }
        Some(made)
    }
}

impl Octavia {
    /// Nodes are to let in what comes from where nobody asked for it: one that is another's, or has more addresses than one.
    pub(in crate::octavia) fn tell_groups(&self, unit: &Unit, step: &Step, observed: &balancers::Observed) {
        let Unit::LoadBalancer(Place::Cloud { name, .. }, key) = unit else { return };
        let balancer = observed.balancer.as_ref().map(|it| &it.it);
        let is_news = match step {
            Step::Join(_) => true,
            Step::Create(_) => {
                let has_others = balancer.is_some_and(|it| !it.additional_vips.is_empty());
                has_others || matches!(key, LbKey::Second(..))
            }
            _ => false,
        };
        if is_news {
            let groups = self.groups();
            let here =
                groups.keys().filter(|it| matches!(it, Unit::SecurityGroup { cloud, .. } if cloud == name));
            here.cloned().for_each(|it| self.refusals.free(it));
        }
    }
}

/// As if each asked for the provider that it has.
pub(super) fn by_those_who_made(
    group: &NodeSecurityGroup,
    made: &BTreeMap<Owner, Made>,
) -> NodeSecurityGroup {
    let mut group = group.clone();
    for (owner, openings) in &mut group.openings {
        let Some(its) = made.get(owner).map(|it| &it.provider) else { continue };
        if openings.provider.as_ref() != Some(its) {
            Arc::make_mut(openings).provider = Some(its.clone());
        }
    }
    group
}
