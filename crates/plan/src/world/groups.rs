//! What Nodes let in: one Unit for all owners of a cloud and a class.

use std::{collections::BTreeSet, sync::Arc};

use seaway_model::{
    L4, NodeSecurityGroup, Unit, WorkItem,
    fact::{Node, Service, ServiceKind},
    group::NodeAccess,
};

use super::{World, asked::node_ports};
use crate::{
    annotations::gives_away,
    cloud::cloud_node,
    demand::whose,
    index::{ServiceKey, is_excluded},
};

impl World {
    /// Nothing, where nobody wants it any more.
    pub(super) fn group(&self, unit: &Unit) -> Option<Arc<NodeSecurityGroup>> {
        let owners = self.unit_owners.get(unit)?;
        let openings = owners.iter().filter_map(|owner| {
            let openings = self.owners.get(owner)?.planned.openings.clone()?;
            // What is open for one that is not adopted stays, and nothing is opened for it.
            let openings = match self.awaits_adoption(owner) {
                Some(_) => Arc::new(NodeAccess { frozen: true, ..NodeAccess::clone(&openings) }),
                None => openings,
            };
            Some((owner.clone(), openings))
        });
        let ours = owners.iter().filter(|it| self.awaits_adoption(it).is_none());
        let demands: Vec<_> = ours.filter_map(|it| self.owners.get(it)?.demand.as_ref()).collect();
        let is_member = |node: &Node| !is_excluded(node) && demands.iter().any(|it| it.selects(node));
        let nodes = self.index.nodes().filter(|it| is_member(it)).map(|it| cloud_node(it));
        let kept: BTreeSet<_> = self.index.services().flat_map(|(_, it)| self.kept_ports(it)).collect();
        let others = self.index.nodes().filter(|it| !is_member(it));
        let others = others.filter(|node| {
            // Any Node may be a member of those.
            let is_passed_over = || demands.iter().any(|it| it.passes_over(node, &self.index));
            !kept.is_empty() || !is_excluded(node) && is_passed_over()
        });
        let passed_over = others.flat_map(|it| it.addresses.iter().copied()).collect();
        Some(Arc::new(NodeSecurityGroup {
            openings: openings.collect(),
            nodes: nodes.collect(),
            passed_over,
            kept,
        }))
    }

    /// Node ports of a Service that is not ours, or not any more: its load balancer may be one that Seaway released a moment ago, and
    /// until another controller has opened these ports with groups of its own, only ours lets requests through. What is released
    /// has no mark of ours left, so nothing tells such a Service from others.
    fn kept_ports(&self, service: &Service) -> Vec<(L4, u16)> {
        // Who gives a Service with a class to the other controller changes its type for a moment.
        let is_there = service.kind == ServiceKind::LoadBalancer || gives_away(&service.meta.annotations);
        let owner = whose(service);
        // One that another driver serves now may still have what it had in the cloud, which is left as it is; whether it has
        // is known once that cloud was listed.
        let may_have = !self.is_surveyed() || self.released.contains_key(&owner);
        let is_left = !self.owners.contains_key(&owner) || may_have && !self.is_in_cloud(&owner);
        match is_there && !service.leaving && is_left {
            true => node_ports(service).collect(),
            false => Vec::new(),
        }
    }

    /// A Service is about to change, or to go (`None`): what was kept open for it may be closed then.
    pub(super) fn note_kept_ports(&mut self, key: &ServiceKey, now: Option<&Service>) {
        // Without a cloud there is no group, and nothing tells that one was listed.
        let Some(before) = self.index.service(key).filter(|_| !self.config.clouds.is_empty()) else { return };
        let is_as_before = |now: &Service| {
            now.kind == before.kind
                && now.leaving == before.leaving
                && now.class == before.class
                && now.meta.annotations == before.meta.annotations
                && node_ports(now).eq(node_ports(before))
        };
        if !now.is_some_and(is_as_before) && !self.kept_ports(before).is_empty() {
            self.nodes_changed();
        }
    }

    /// One of their owners wants something else.
    pub(super) fn groups_changed(&mut self, units: &[Unit]) {
        let groups = units.iter().filter(|it| matches!(it, Unit::SecurityGroup { .. }));
        self.dirt.extend(groups.cloned().map(WorkItem::Unit));
    }

    /// Nodes are chosen by their labels, where somebody does that.
    pub(super) fn select_anew(&mut self) {
        let selects =
            |it: &super::OwnerState| it.demand.as_ref().is_some_and(|it| it.selects_nodes_by_label());
        if self.settled && self.roles.host.is_none() && self.owners.values().any(selects) {
            self.refresh_clouds();
            self.nodes_changed();
        }
    }

    pub(super) fn nodes_changed(&mut self) {
        let groups = self.unit_owners.keys().filter(|it| matches!(it, Unit::SecurityGroup { .. }));
        self.dirt.extend(groups.cloned().map(WorkItem::Unit));
    }
}
