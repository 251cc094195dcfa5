//! What those may do who write Services and routes. A folder has one owner, who may do everything; a cluster has tenants,
//! who can harm neither each other nor the machines.

use std::{collections::BTreeMap, ops::RangeInclusive, sync::Arc, time::Duration};

use ipnet::IpNet;

use crate::{fact::Gateway, load_balancer::HostPattern, name::Name};

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tenants {
    pub members: MemberRules,
    /// Networks whose PROXY protocol may say which address members see of a client (`seaway.dev/transparent`). `None`: all.
    pub sources: Option<Vec<IpNet>>,
    pub limits: TenantLimits,
    pub reserved_ports: ReservedPorts,
    pub join: SharedLoadBalancerScope,
}

/// Ports that the machines of a cluster need themselves, by whatever protocol.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ReservedPorts {
    more: Arc<[RangeInclusive<u16>]>,
}

impl ReservedPorts {
    /// Of sshd, etcd, the API server, the kubelet with kube-proxy, scheduler and controller manager, of the status page, and of the
    /// BGP and the memberlist by which CNIs and others find and announce Nodes, and of the heartbeats of hosts that announce addresses.
    pub const ALWAYS: [RangeInclusive<u16>; 8] = [
        22..=22,
        179..=179,
        2379..=2380,
        6443..=6443,
        7946..=7946,
        10_248..=10_259,
        1936..=1936,
        1939..=1939,
    ];

    /// And those that the operator names.
    pub fn with_additional(more: Vec<RangeInclusive<u16>>) -> ReservedPorts {
        ReservedPorts { more: more.into() }
    }

    pub fn contains(&self, port: u16) -> bool {
        ReservedPorts::ALWAYS.iter().chain(&*self.more).any(|it| it.contains(&port))
    }
}

/// Which load balancers of a cloud that are not its own a Service may begin to share. One that it shares already stays shared.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SharedLoadBalancerScope {
    /// Those that Services of its own namespace have to themselves.
    #[default]
    Namespace,
    /// All that it can name: also those of other namespaces and of other clusters, and those that somebody made by hand.
    Any,
}

/// How much one namespace, or one Service of it, may take of what all share. `None`: as much as it asks for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TenantLimits {
    /// Matches of a namespace's rules at the front door, each counted for each of its host names.
    pub rules: Option<u32>,
    /// Regular expressions in them.
    pub expressions: Option<u32>,
    /// Ports that a namespace's Services listen at, each counted for each family of addresses.
    pub listeners: Option<u32>,
    /// Endpoints of a namespace's Services, each counted for each of their ports.
    pub members: Option<u32>,
    /// Of a namespace's certificates, keys and authorities that are copied for hosts.
    pub certificate_bytes: Option<u64>,
    /// The same of those that each process holds, where nothing is copied: copies have the limit above.
    pub held_certificate_bytes: Option<u64>,
    /// The shortest time between two health checks of one member; zero: any.
    pub check_interval: Duration,
    /// Health checks of one port of a Service in a second, from each host.
    pub checks_per_second: Option<u32>,
    /// What a Service may set for one of its ports, and has if it sets nothing.
    pub connections: Option<u32>,
    pub new_per_second: Option<u32>,
    /// New connections of all in a second, for each worker of a host, from which on namespaces share them.
    pub new_per_worker: Option<u32>,
}

impl TenantLimits {
    pub const CLUSTER: TenantLimits = TenantLimits {
        rules: Some(5_000),
        expressions: Some(64),
        listeners: Some(10_000),
        members: Some(100_000),
        certificate_bytes: Some(4 << 20),
        held_certificate_bytes: None,
        check_interval: Duration::from_millis(500),
        checks_per_second: Some(1_000),
        connections: None,
        new_per_second: None,
        new_per_worker: Some(20_000),
    };
}

/// Which members may be named.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemberRules {
    /// Addresses of machines: loopback, link-local, those of hosts and Nodes, and those that we publish.
    pub machines: bool,
    /// DNS names: Services of type ExternalName, EndpointSlices of addressType FQDN.
    pub names: bool,
}

impl Default for MemberRules {
    fn default() -> MemberRules {
        MemberRules { machines: true, names: true }
    }
}

/// Which routes are at the front door.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum FrontDoorRoutes {
    #[default]
    All,
    /// Those that name this Gateway as a parent.
    Of(Gateway),
    Never,
}

/// Who may use which host name of the front door.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HostOwners {
    /// Namespaces by host name; those of a wildcard own the names below it as well.
    pub names: BTreeMap<HostPattern, Vec<Name>>,
    pub others: UnlistedHosts,
}

/// Host names of which nothing is said.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum UnlistedHosts {
    /// They belong to nobody: everybody may add to them.
    #[default]
    Shared,
    /// They belong to the namespace that claimed them first.
    First,
    Refused,
}

impl HostOwners {
    /// Whether host names have owners at all.
    pub fn are_enforced(&self) -> bool {
        self.others != UnlistedHosts::Shared || !self.names.is_empty()
    }
}
