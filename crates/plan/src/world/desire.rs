//! What should be at a Unit.

use std::{collections::BTreeMap, sync::Arc};

use seaway_model::{Address, Desired, LoadBalancer, Owner, Place, Unit, unit::LbKey};

use super::World;

impl World {
    /// What should be at a Unit.
    pub fn desire(&self, unit: &Unit) -> Desired {
        if let Some(left) = self.unadopted(unit) {
            return left;
        }
        match unit {
            Unit::LoadBalancer(..) if self.door.units.contains(unit) => {
                Desired::LoadBalancer(self.here(self.door_load_balancer()))
            }
            Unit::LoadBalancer(..) if self.is_door_unit(unit) => match self.entrance_at(unit) {
                Some(wanted) => Desired::LoadBalancer(self.here(wanted)),
                None => Desired::Absent,
            },
            Unit::LoadBalancer(_, LbKey::Of(owner) | LbKey::Second(owner, _)) => match self.owners.get(owner)
            {
                Some(state) if state.units.contains(unit) => Desired::LoadBalancer(
                    self.in_cloud(owner, self.here(state.planned.load_balancer.clone())),
                ),
                _ if self.is_released(unit) || self.is_orphan(unit) => Desired::Released,
                _ => self.removed(unit),
            },
            Unit::LoadBalancer(..) if self.is_orphan(unit) => Desired::Released,
            Unit::LoadBalancer(..) => Desired::Absent,
            Unit::SecurityGroup { .. } => match self.group(unit) {
                Some(group) => Desired::SecurityGroup(group),
                None if self.is_released(unit) || self.is_orphan(unit) => Desired::Released,
                None => Desired::Absent,
            },
            Unit::HostAddresses(_) => Desired::HostAddresses(self.present()),
            // With the version that this was planned with: what was written since is not overwritten unread.
            Unit::Address(ip) if self.lost_time.is_to_be_written_again(*ip) => Desired::Absent,
            Unit::Address(ip) => self.ledger.address(*ip).map_or(Desired::Absent, |it| {
                let version = self.addresses.get(ip).map_or(0, |it| it.version);
                Desired::Address(Arc::new(Address { version, ..it }))
            }),
            Unit::Name(name) if self.unit_owners.contains_key(unit) => Desired::Name(name.clone()),
            Unit::Name(_) => Desired::Absent,
            Unit::CertificateOrder(host) => self.order(host),
            Unit::DnsName(name) => self.desired_dns_name(name),
            Unit::Finalizer(owner) => self.hold(owner),
            Unit::Status(owner) => {
                self.status(owner).map_or(Desired::Absent, |it| Desired::Status(Arc::new(it)))
            }
        }
    }

    /// All that is served at a place, by whom it is for: what one process for all of them is given.
    pub fn load_balancers(&self, place: &Place) -> BTreeMap<Owner, Arc<LoadBalancer>> {
        let units = self.owners.values().flat_map(|state| &state.units).chain(self.all_door_units());
        let here = units.filter_map(|unit| match unit {
            Unit::LoadBalancer(at, LbKey::Of(owner)) if at == place => Some((owner, self.desire(unit))),
            _ => None,
        });
        here.filter_map(|(owner, desired)| match desired {
            Desired::LoadBalancer(it) => Some((owner.clone(), it)),
            _ => None,
        })
        .collect()
    }
}
