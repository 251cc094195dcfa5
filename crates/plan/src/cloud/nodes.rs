//! Nodes as members of load balancers in clouds: which of them, and what they let in.

use std::collections::BTreeMap;

use ipnet::IpNet;
use seaway_model::{
    Member, Name,
    config::MemberSource,
    fact::{FamilyPolicy, Node},
    group::{CloudNode, NodeAccess, SourceNetwork},
    load_balancer::{Balance, Bind, CloudOptions, Family, MemberState},
    outcome::PublishedAs,
};

use crate::{
    annotations::BALANCE,
    demand::Demand,
    index::{Index, is_excluded},
    members::Members,
};

impl Demand {
    /// Whether a Node is one of its members.
    pub(crate) fn selects(&self, node: &Node) -> bool {
        self.selects_by(|label| node.meta.labels.get(label))
    }

    fn selects_by<'l>(&self, label: impl Fn(&Name) -> Option<&'l Name>) -> bool {
        self.labels()
            .iter()
            .all(|(name, value)| label(name).is_some_and(|it| value.as_ref().is_none_or(|value| it == value)))
    }

    /// Whether a Node would be, if it still had the labels that it was seen to lose: then it is the Node that changed.
    fn selected(&self, node: &Node, lost: &BTreeMap<Name, Name>) -> bool {
        let of = |label: &Name| node.meta.labels.get(label);
        let with_lost = |label: &Name| lost.get(label).or_else(|| of(label));
        self.selects_by(with_lost)
    }

    /// Which addresses of its Nodes come first.
    pub(crate) fn address_order(&self) -> &[IpNet] {
        self.cloud.as_ref().map(|(_, usual)| &usual.networking.order[..]).unwrap_or_default()
    }

    /// Whether that is by their labels.
    pub(crate) fn selects_nodes_by_label(&self) -> bool {
        !self.labels().is_empty()
    }

    fn labels(&self) -> &[(Name, Option<Name>)] {
        let Some((_, usual)) = &self.cloud else { return &[] };
        self.wishes.cloud.nodes.as_ref().unwrap_or(&usual.nodes)
    }

    /// Whether only the configuration of the cloud leaves this Node out, neither the Service nor a change of the Node.
    pub(crate) fn passes_over(&self, node: &Node, index: &Index) -> bool {
        let wishes = &self.wishes.cloud;
        let is_by_file = wishes.nodes.is_none() && !wishes.apply;
        is_by_file && !self.selects(node) && !self.selected(node, index.lost_labels(&node.meta.name))
    }

    /// Leaves out who is not meant. What is left out by the configuration of the cloud alone, neither by the Service nor by a
    /// change of the Node, is handed back.
    pub(crate) fn select(&self, index: &Index, found: &mut Members) -> Vec<Member> {
        let mut others = std::mem::take(&mut found.elsewhere_addressed);
        if !found.by_nodes || self.cloud.is_none() {
            return Vec::new();
        }
        let node = |it: &Member| it.node.as_ref().and_then(|name| index.node(name));
        let is_meant = |it: &Member| it.node.is_none() || node(it).is_some_and(|it| self.selects(it));
        let (meant, left_out): (Vec<Member>, Vec<Member>) =
            std::mem::take(&mut found.list).into_iter().partition(is_meant);
        found.list = meant;
        if found.list.iter().all(|it| it.state == MemberState::Draining) {
            // Nobody would be left to serve: all stay until there is another.
            found.list.iter_mut().for_each(|it| it.state = MemberState::Ready);
        }
        if self.wishes.cloud.apply {
            return Vec::new();
        }
        others.extend(left_out);
        others.retain(|it| is_meant(it) || node(it).is_some_and(|it| self.passes_over(it, index)));
        others
    }

    /// Families that it may have addresses of, the first one first.
    pub(crate) fn cloud_families(&self) -> Vec<Family> {
        let (first, second) = self.wanted_families();
        [Some(first), second.filter(|_| self.withheld_family().is_none())].into_iter().flatten().collect()
    }

    /// The second family of the Service, which the configuration takes away.
    pub(crate) fn withheld_family(&self) -> Option<Family> {
        let no_v6 = self.cloud.as_ref().is_some_and(|(_, usual)| usual.networking.no_ipv6);
        self.wanted_families().1.filter(|it| no_v6 && *it == Family::V6)
    }

    fn wanted_families(&self) -> (Family, Option<Family>) {
        let wanted = self.service.families;
        let first = wanted.first.unwrap_or(Family::V4);
        (first, wanted.second.filter(|it| *it != first && wanted.policy != FamilyPolicy::Single))
    }

    /// The other of its two families, where it may have load balancers of its own: a port has the addresses that it has, and
    /// whether one that it names is its own, its driver knows.
    pub fn second_family(&self) -> Option<Family> {
        let wishes = &self.wishes.cloud;
        let second = self.cloud_families().get(1).copied();
        second.filter(|_| self.cloud.is_some() && wishes.port.is_none())
    }

    /// What a cloud has to give before all is well.
    pub(crate) fn cloud_binds(&self) -> Vec<Bind> {
        let needed = if self.service.families.policy == FamilyPolicy::Require { 2 } else { 1 };
        self.cloud_families().into_iter().take(needed).map(Bind::Cloud).collect()
    }

    /// Where nobody says where it is: beside Nodes that are its members, those first that say which machine they are.
    pub(crate) fn beside<'n>(
        &self,
        mut outside: CloudOptions,
        nodes: impl Iterator<Item = &'n Node>,
    ) -> CloudOptions {
        const ENOUGH: usize = 3;
        if outside.network.is_none() && outside.subnet.is_none() && outside.port.is_none() {
            let its = nodes.filter(|it| !is_excluded(it) && self.selects(it));
            let mut its: Vec<CloudNode> = its.map(cloud_node).collect();
            its.sort_by_key(|it| it.provider_id.is_none());
            its.truncate(ENOUGH);
            outside.beside = its;
        }
        outside
    }

    /// How its members share the load: as the Service says, else as the cloud's configuration says for all.
    pub(crate) fn balance(&self) -> Balance {
        let usual = self.cloud.as_ref().and_then(|(_, usual)| usual.balance);
        usual.filter(|_| !self.wishes.written.contains_key(BALANCE)).unwrap_or(self.wishes.balance)
    }

    /// How its addresses are told to whoever wants to reach it.
    pub(crate) fn shown(&self) -> PublishedAs {
        let Some((_, usual)) = &self.cloud else { return PublishedAs::Proxy };
        // Behind PROXY protocol nobody may take a short cut: who is in the cluster would not write its header.
        let proxied = self.ports.iter().find_map(|it| self.proxy(&it.port));
        match (&self.wishes.cloud.hostname, proxied, &usual.hostname) {
            (Some(name), ..) => PublishedAs::Name(name.clone()),
            (None, Some(_), Some(suffix)) => PublishedAs::Suffixed(suffix.clone()),
            (None, Some(_), None) => PublishedAs::Proxy,
            (None, None, _) => PublishedAs::Vip,
        }
    }

    /// Whether Nodes are to let its load balancer in: where they are the members, and nobody else minds that.
    pub fn is_opened(&self) -> bool {
        let (Some((_, usual)), MemberSource::EveryNode) = (&self.cloud, self.members_from()) else {
            return false;
        };
        usual.groups && self.ports.iter().any(|it| it.port.node_port.is_some())
    }

    /// What it reaches of Nodes, and where from.
    pub(crate) fn openings(&self) -> Option<NodeAccess> {
        let outside = self.outside().filter(|it| it.opened)?;
        let mut ports: Vec<_> =
            self.ports.iter().filter_map(|it| Some((it.port.protocol, it.port.node_port?))).collect();
        ports.sort();
        let at_vip = outside.member_subnet.is_none();
        let from = match (outside.member_subnet.or(outside.subnet), outside.port, outside.network) {
            (Some(subnet), _, _) => SourceNetwork::Subnet(subnet),
            (None, Some(port), _) => SourceNetwork::Port(port),
            (None, None, Some(network)) => SourceNetwork::Network(network),
            (None, None, None) => SourceNetwork::Nodes,
        };
        let health = self.local_check().and_then(|it| it.port);
        Some(NodeAccess {
            ports,
            health,
            probed: self.health_check().is_some(),
            families: outside.families,
            sources: self.sources(),
            provider: outside.provider,
            from,
            at_vip,
            frozen: self.is_frozen(),
        })
    }
}

pub(crate) fn cloud_node(node: &Node) -> CloudNode {
    CloudNode {
        name: node.meta.name.clone(),
        addresses: node.addresses.clone(),
        provider_id: node.provider_id.clone(),
    }
}
