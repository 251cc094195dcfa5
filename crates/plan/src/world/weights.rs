//! What an operator says of members while this process runs: who has to be looked at when that changes.

use std::{collections::BTreeSet, sync::Arc};

use seaway_model::{
    MemberWeights, WeightTarget,
    fact::{EndpointAddress, ServiceKind},
};

use super::World;
use crate::index::ServiceKey;

impl World {
    pub(super) fn weigh(&mut self, weights: Arc<MemberWeights>) {
        let before = std::mem::replace(&mut self.index.weights, weights.clone());
        let changed = before.0.iter().filter(|it| !weights.0.contains(it));
        let changed = changed.chain(weights.0.iter().filter(|it| !before.0.contains(it)));
        let concerned: BTreeSet<ServiceKey> = changed.flat_map(|it| self.concerned(&it.of)).collect();
        for key in concerned {
            self.refresh_service(&key);
        }
    }

    /// The weights that an operator set at run time (`seaway weight`), as planning uses them.
    pub fn operator_weights(&self) -> Arc<MemberWeights> {
        self.index.weights.clone()
    }

    fn concerned(&self, of: &WeightTarget) -> Vec<ServiceKey> {
        match (&of.service, of.member) {
            (Some((namespace, name)), _) => vec![ServiceKey::new(namespace.clone(), name.clone())],
            (None, Some(at)) => {
                let may_have = |key: &ServiceKey| {
                    let mut all = self.index.endpoints(key).flat_map(|slice| &slice.endpoints);
                    // What a name stands for is looked up elsewhere: it may be this address.
                    all.any(|it| match &it.at {
                        EndpointAddress::Ip(ip) => *ip == at.ip(),
                        EndpointAddress::Name(_) => true,
                    })
                };
                let services = self.index.services();
                let is_elsewhere = |kind: &ServiceKind| matches!(kind, ServiceKind::ExternalName(_));
                let concerned = services.filter(|(key, it)| is_elsewhere(&it.kind) || may_have(key));
                concerned.map(|(key, _)| key.clone()).collect()
            }
            (None, None) => self.index.services().map(|(key, _)| key.clone()).collect(),
        }
    }
}
