//! Nodes are opened to a load balancer that is there as its own provider needs it, whatever another one is asked for by now:
//! one leaves clients their addresses, another does not, and rules of the wrong kind shut everybody out or let everybody in.

use std::{collections::BTreeMap, sync::Arc};

use seaway_model::{Desired, Group, LbKey, Name, Owner, Unit, unit::Place};
use seaway_openstack::{Error, octavia::LoadBalancer, resource::Query};

use crate::octavia::{Joined, OCTAVIA, Octavia, shared::marks};

impl Octavia {
    /// By those who made them. What the driver knows costs nothing; of all others there is one list, once for each owner
    /// that nobody has looked for.
    pub(super) async fn made_by(
        &self,
        joined: &Joined,
        cloud: &Name,
        desired: &Desired,
        before: &BTreeMap<Owner, Name>,
    ) -> Result<BTreeMap<Owner, Name>, Error> {
        let Desired::Group(group) = desired else { return Ok(BTreeMap::new()) };
        let mut made = BTreeMap::new();
        let mut open = Vec::new();
        for (owner, openings) in &group.openings {
            let asked = openings.provider.clone().unwrap_or_else(|| self.provider.clone());
            match (self.maker(cloud, owner), before.get(owner)) {
                (Some(Some(provider)), _) => drop(made.insert(owner.clone(), provider)),
                // Where there is none, it will be the one that is asked for.
                (Some(None), _) => drop(made.insert(owner.clone(), asked)),
                (None, Some(provider)) => drop(made.insert(owner.clone(), provider.clone())),
                (None, None) => open.push((owner, asked)),
            }
        }
        if open.is_empty() {
            return Ok(made);
        }
        let query = Query::all().with("tags", joined.cluster.tag());
        let all = joined.cloud.all::<LoadBalancer>().list::<LoadBalancer>(query).await?;
        for (owner, asked) in open {
            let marks = marks(&joined.cluster, &LbKey::Of(owner.clone()));
            let is_its = |it: &&LoadBalancer| {
                marks.as_ref().is_some_and(|marks| marks.is_first(&it.tags) || marks.is_guest(&it.tags))
            };
            let its = all.iter().find(is_its).and_then(|it| it.provider.as_deref());
            made.insert(owner.clone(), its.map_or(asked, Name::from));
        }
        Ok(made)
    }

    /// Who made the load balancer of this Service; nothing where nobody has looked.
    fn maker(&self, cloud: &Name, owner: &Owner) -> Option<Option<Name>> {
        let place = Place::Cloud { name: cloud.clone(), driver: OCTAVIA.into() };
        let known = self.known();
        let its = &known.get(&Unit::LoadBalancer(place, LbKey::Of(owner.clone())))?.observed.balancer;
        Some(its.as_ref().and_then(|it| it.it.provider.as_deref()).map(Name::from))
    }
}

/// As if each asked for the provider that it has.
pub(super) fn by_those_who_made(group: &Group, made: &BTreeMap<Owner, Name>) -> Group {
    let mut group = group.clone();
    for (owner, openings) in &mut group.openings {
        let its = made.get(owner);
        if its.is_some() && its != openings.provider.as_ref() {
            Arc::make_mut(openings).provider = its.cloned();
        }
    }
    group
}
