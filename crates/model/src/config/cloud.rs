//! What load balancers in a cloud are like where their Service says nothing: the sections of `cloud.conf` beside
//! `[Global]`, resolved.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    time::Duration,
};

use ipnet::IpNet;

use crate::{
    load_balancer::{Balance, CloudHealthMonitor, CloudTags, CloudTimeouts, HealthCheck, StuckPolicy},
    name::Name,
};

#[derive(Clone, Debug, PartialEq)]
pub struct CloudDefaults {
    /// Otherwise Services are created, and stay pending.
    pub enabled: bool,
    /// Nobody here was told of a cloud: nothing is made, and nothing that was made is forgotten.
    pub absent: bool,
    /// Why its configuration is refused, with the file and the line. It is `absent` then.
    pub refused: Option<Name>,
    /// Services without a class are its.
    pub classless: bool,
    pub provider: Name,
    /// `None`: what the provider usually does.
    pub balance: Option<Balance>,
    pub place: CloudNetworks,
    /// Pools are probed, like this.
    pub monitor: bool,
    pub check: HealthCheck,
    /// What that is, where something else is said than a connection.
    pub probe: CloudHealthMonitor,
    /// Ports of members are opened to load balancers.
    pub groups: bool,
    /// No floating IP, whatever a Service says.
    pub internal: bool,
    /// Nodes that are members: a label, and what it is if that matters.
    pub nodes: Vec<(Name, Option<Name>)>,
    pub flavor: Option<Name>,
    pub zone: Option<Name>,
    /// A host name is told instead of an address behind PROXY protocol, with this suffix.
    pub hostname: Option<Name>,
    pub tls_container: Option<Name>,
    /// References are looked up in Barbican before they are used.
    pub barbican: bool,
    pub most_shared: usize,
    /// The provider takes one object at a time.
    pub serial: bool,
    pub cascade: bool,
    /// One in ERROR that does not come back is deleted, and made again where it was.
    pub rebuild: bool,
    /// On all that is made, beside what a Service asks for.
    pub tags: CloudTags,
    pub pending: StuckPolicy,
    pub timeouts: CloudTimeouts,
    /// As many may be at one listener.
    pub connections: Option<u32>,
    /// `[LoadBalancerClass "gold"]`.
    pub classes: BTreeMap<Name, CloudNetworks>,
    pub networking: CloudNetworking,
    /// The router whose routes lead to pods, by id.
    pub router: Option<Name>,
}

/// Where load balancers, members and floating IPs are. By id.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CloudNetworks {
    pub network: Option<Name>,
    pub subnet: Option<Name>,
    pub member_subnet: Option<Name>,
    pub floating_network: Option<Name>,
    pub floating_subnet: Option<FloatingSubnet>,
    /// No floating IP, unless a Service says otherwise.
    pub internal: Option<bool>,
    pub vip_groups: Option<BTreeSet<Name>>,
    pub vip_qos: Option<Name>,
}

/// Which subnet floating IPs come from: an id beats names and tags; of those, both count where both are said.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FloatingSubnet {
    Id(Name),
    /// A pattern of the shell, `~` and a regular expression, `!` and either for all others.
    Named(Name),
    /// Any of these; `&`: all of them; `!`: none.
    Tagged(Name),
    NamedAndTagged {
        name: Name,
        tags: Name,
    },
}

impl FloatingSubnet {
    /// With names beside what was said of tags before.
    #[must_use]
    pub fn named(before: Option<FloatingSubnet>, name: Name) -> FloatingSubnet {
        match before {
            Some(FloatingSubnet::Tagged(tags)) => FloatingSubnet::NamedAndTagged { name, tags },
            _ => FloatingSubnet::Named(name),
        }
    }
}

impl fmt::Display for FloatingSubnet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            FloatingSubnet::Id(id) => write!(f, "floating-subnet-id {id}"),
            FloatingSubnet::Named(name) => write!(f, "floating-subnet {name}"),
            FloatingSubnet::Tagged(tags) => write!(f, "floating-subnet-tags {tags}"),
            FloatingSubnet::NamedAndTagged { name, tags } => {
                write!(f, "floating-subnet {name} and floating-subnet-tags {tags}")
            }
        }
    }
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CloudNetworking {
    pub no_ipv6: bool,
    pub public: Vec<Name>,
    pub internal: Vec<Name>,
    /// Addresses of Nodes in these come first, in their order.
    pub order: Vec<IpNet>,
}

impl Default for CloudDefaults {
    fn default() -> CloudDefaults {
        CloudDefaults {
            enabled: true,
            absent: false,
            refused: None,
            classless: false,
            provider: "amphora".into(),
            balance: None,
            place: CloudNetworks::default(),
            monitor: false,
            check: HealthCheck {
                interval: Duration::from_secs(5),
                timeout: Duration::from_secs(3),
                rise: 1,
                fall: 3,
                ..HealthCheck::default()
            },
            probe: CloudHealthMonitor::default(),
            groups: false,
            internal: false,
            nodes: Vec::new(),
            flavor: None,
            zone: None,
            hostname: None,
            tls_container: None,
            barbican: true,
            most_shared: 2,
            serial: false,
            cascade: true,
            rebuild: false,
            tags: CloudTags::default(),
            pending: StuckPolicy::default(),
            timeouts: CloudTimeouts::default(),
            connections: None,
            classes: BTreeMap::new(),
            networking: CloudNetworking::default(),
            router: None,
        }
    }
}
