//! What Nodes let in: one Unit for all owners of a cloud and a class.

use std::sync::Arc;

use seaway_model::{Dirt, Group, Unit, fact::Node, group::Openings};

use super::World;
use crate::{cloud::cloud_node, index::is_excluded};

impl World {
    /// Nothing, where nobody wants it any more.
    pub(super) fn group(&self, unit: &Unit) -> Option<Arc<Group>> {
        let owners = self.unit_owners.get(unit)?;
        let openings = owners.iter().filter_map(|owner| {
            let openings = self.owners.get(owner)?.planned.openings.clone()?;
            // What is open for one that is not adopted stays, and nothing is opened for it.
            let openings = match self.awaits_adoption(owner) {
                Some(_) => Arc::new(Openings { frozen: true, ..Openings::clone(&openings) }),
                None => openings,
            };
            Some((owner.clone(), openings))
        });
        let ours = owners.iter().filter(|it| self.awaits_adoption(it).is_none());
        let demands: Vec<_> = ours.filter_map(|it| self.owners.get(it)?.demand.as_ref()).collect();
        let is_member = |node: &Node| !is_excluded(node) && demands.iter().any(|it| it.selects(node));
        let nodes = self.index.nodes().filter(|it| is_member(it)).map(|it| cloud_node(it));
        let others = self.index.nodes().filter(|it| !is_excluded(it) && !is_member(it));
        let others = others.filter(|node| demands.iter().any(|it| it.passes_over(node, &self.index)));
        let passed_over = others.flat_map(|it| it.addresses.iter().copied()).collect();
        Some(Arc::new(Group { openings: openings.collect(), nodes: nodes.collect(), passed_over }))
    }

    /// One of their owners wants something else.
    pub(super) fn groups_changed(&mut self, units: &[Unit]) {
        let groups = units.iter().filter(|it| matches!(it, Unit::SecurityGroup { .. }));
        self.dirt.extend(groups.cloned().map(Dirt::Unit));
    }

    /// Nodes are chosen by their labels, where somebody does that.
    pub(super) fn select_anew(&mut self) {
        let selects = |it: &super::OwnerState| it.demand.as_ref().is_some_and(|it| it.is_choosy());
        if self.settled && self.roles.host.is_none() && self.owners.values().any(selects) {
            self.refresh_clouds();
            self.nodes_changed();
        }
    }

    pub(super) fn nodes_changed(&mut self) {
        let groups = self.unit_owners.keys().filter(|it| matches!(it, Unit::SecurityGroup { .. }));
        self.dirt.extend(groups.cloned().map(Dirt::Unit));
    }
}
