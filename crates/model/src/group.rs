//! What Nodes let in, so that load balancers of a cloud reach their members.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
    sync::Arc,
};

use ipnet::IpNet;

use crate::{
    load_balancer::{Family, L4},
    name::{Name, Owner},
};

/// One for all owners of a cloud and a class: at each Node once, however many load balancers there are.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct NodeSecurityGroup {
    pub openings: BTreeMap<Owner, Arc<NodeAccess>>,
    /// In the order of their names.
    pub nodes: Vec<CloudNode>,
    /// Of Nodes that only the configuration of the cloud leaves out: who has the group keeps it.
    pub passed_over: Vec<IpAddr>,
    /// Node ports of load balancer Services that Seaway does not serve, or not any more: what is open for these ports stays open.
    pub kept: BTreeSet<(L4, u16)>,
}

/// What of Nodes one owner's load balancer reaches, and where it comes from.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NodeAccess {
    /// Node ports, in their order.
    pub ports: Vec<(L4, u16)>,
    /// Where members are asked how they are, if that is elsewhere.
    pub health: Option<u16>,
    /// Members are asked how they are at all.
    pub probed: bool,
    pub families: Vec<Family>,
    /// Who may come, where a provider leaves clients their addresses; empty means everybody.
    pub sources: Vec<IpNet>,
    pub provider: Option<Name>,
    pub from: SourceNetwork,
    /// It comes from where its VIP is: `from` tells where that is made, and one that is there may be elsewhere.
    pub at_vip: bool,
    /// What is open for these ports stays as it is: no rule is added and none is removed.
    pub frozen: bool,
}

/// The network from which a load balancer reaches its members, by its id.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum SourceNetwork {
    /// None is configured: the subnet of the Nodes.
    #[default]
    Nodes,
    Subnet(Name),
    Port(Name),
    Network(Name),
}

/// A Node, as a cloud knows it.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct CloudNode {
    pub name: Name,
    pub addresses: Vec<IpAddr>,
    pub provider_id: Option<Name>,
}
