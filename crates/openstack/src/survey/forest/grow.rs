//! Lists, put together to trees. Pure.

use std::collections::BTreeMap;

use super::{ListenerBranch, LoadBalancerBranch, MemberLeaf, MonitorLeaf, PolicyBranch, PoolBranch};
use crate::{
    neutron::Attached,
    octavia::{HealthMonitor, L7Policy, Listener, LoadBalancer, Pool, StatusTree, TreePool},
    resource::Id,
};

/// What was listed, to be found by those above it.
pub(super) struct ListedParts {
    pub(super) listeners: BTreeMap<Id<Listener>, Listener>,
    pub(super) pools: BTreeMap<Id<Pool>, Pool>,
    pub(super) monitors: BTreeMap<Id<HealthMonitor>, HealthMonitor>,
    /// By position.
    pub(super) policies: Vec<L7Policy>,
    pub(super) attached: Vec<Attached>,
    /// Nothing where they were not asked for.
    pub(super) members: Option<BTreeMap<Id<Pool>, Vec<MemberLeaf>>>,
}

impl ListedParts {
    pub(super) fn keep_members(&mut self, tree: StatusTree) {
        let Some(kept) = &mut self.members else { return };
        let of_listeners = tree.listeners.into_iter().flat_map(|it| it.pools);
        for TreePool { id, members, .. } in of_listeners.chain(tree.pools) {
            let mut leaves: Vec<MemberLeaf> = members
                .into_iter()
                .map(|it| MemberLeaf {
                    id: it.id,
                    name: it.name,
                    address: it.address,
                    port: it.protocol_port,
                    provisioning: it.provisioning_status,
                    operating: it.operating_status,
                })
                .collect();
            leaves.sort_by_key(|it| (it.address, it.port));
            kept.insert(id, leaves);
        }
    }

    pub(super) fn build_tree(&self, it: LoadBalancer) -> LoadBalancerBranch {
        let mut listeners: Vec<ListenerBranch> = it
            .listeners
            .iter()
            .filter_map(|it| self.listeners.get(&it.id))
            .map(|it| self.listener(it))
            .collect();
        listeners.sort_by(|a, b| (a.port, &a.protocol).cmp(&(b.port, &b.protocol)));
        let led_to = |id: &Id<Pool>| {
            let of = |branch: &Option<PoolBranch>| branch.as_ref().is_some_and(|it| &it.id == id);
            listeners.iter().any(|it| of(&it.pool) || it.policies.iter().any(|it| of(&it.pool)))
        };
        let others =
            it.pools.iter().filter(|it| !led_to(&it.id)).filter_map(|it| self.pool(&it.id)).collect();
        let floating = self.attached.iter().filter(|at| at.port_id.is_some() && at.port_id == it.vip_port_id);
        LoadBalancerBranch {
            floating_ips: floating.filter_map(|it| it.floating_ip_address).collect(),
            additional_vips: it.additional_vips.iter().filter_map(|it| it.ip_address).collect(),
            id: it.id,
            name: it.name,
            description: it.description,
            tags: it.tags.into_iter().collect(),
            provider: it.provider,
            vip: it.vip_address,
            enabled: it.admin_state_up,
            provisioning: it.provisioning_status,
            operating: it.operating_status,
            listeners,
            pools: others,
        }
    }

    fn listener(&self, it: &Listener) -> ListenerBranch {
        let ours = self.policies.iter().filter(|policy| policy.listener_id.as_ref() == Some(&it.id));
        ListenerBranch {
            id: it.id.clone(),
            name: it.name.clone(),
            protocol: it.protocol.clone(),
            port: it.protocol_port,
            allowed_cidrs: it.allowed_cidrs.clone().unwrap_or_default(),
            enabled: it.admin_state_up,
            provisioning: it.provisioning_status.clone(),
            operating: it.operating_status.clone(),
            pool: it.default_pool_id.as_ref().and_then(|id| self.pool(id)),
            policies: ours.map(|it| self.policy(it)).collect(),
        }
    }

    fn policy(&self, it: &L7Policy) -> PolicyBranch {
        PolicyBranch {
            id: it.id.clone(),
            name: it.name.clone(),
            position: it.position,
            action: it.action.to_string(),
            to: it.redirect_url.clone().or_else(|| it.redirect_prefix.clone()),
            provisioning: it.provisioning_status.clone(),
            pool: it.redirect_pool_id.as_ref().and_then(|id| self.pool(id)),
        }
    }

    fn pool(&self, id: &Id<Pool>) -> Option<PoolBranch> {
        let it = self.pools.get(id)?;
        let members = self.members.as_ref().map(|members| members.get(id).cloned().unwrap_or_default());
        Some(PoolBranch {
            id: it.id.clone(),
            name: it.name.clone(),
            protocol: it.protocol.clone(),
            algorithm: it.lb_algorithm.to_string(),
            provisioning: it.provisioning_status.clone(),
            operating: it.operating_status.clone(),
            monitor: it.healthmonitor_id.as_ref().and_then(|id| self.monitors.get(id)).map(monitor),
            member_count: it.members.len(),
            members,
        })
    }
}

fn monitor(it: &HealthMonitor) -> MonitorLeaf {
    MonitorLeaf {
        id: it.id.clone(),
        kind: it.r#type.to_string(),
        delay: it.delay,
        timeout: it.timeout,
        max_retries: it.max_retries,
        url_path: it.url_path.clone(),
        provisioning: it.provisioning_status.clone(),
    }
}
