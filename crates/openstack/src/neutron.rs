//! Neutron, the network service.
//!
//! ```text
//!     Network ── Subnet ── Router ── external Network
//!        │                   │            │
//!       Port ── SecurityGroup            FloatingIp ──► Port
//! ```
//! Everything has a revision: a change that names the one it was computed from (`change_if`) is refused when somebody
//! was faster. LBaaS v1 and v2, which are in here, come with their driver.

mod floating_ip;
mod network;
mod port;
mod router;
mod security_group;
mod tags;

use crate::{
    Service,
    resource::{Resource, ResourceNames, noun, resource, words},
};

pub use floating_ip::{Attached, FloatingIp, FloatingIpChange, NewFloatingIp};
pub use network::{
    AllocationPool, HostRoute, Network, NetworkChange, NewNetwork, NewSubnet, Subnet, SubnetChange,
};
pub use port::{
    AddressPair, AttachedPort, FixedIp, NewPort, Port, PortChange, RoutedPort, SubPort, TrunkDetails,
};
pub use router::{Gateway, NewRouter, Route, Router, RouterChange};
pub use security_group::{
    Direction, EtherType, NewSecurityGroup, NewSecurityGroupRule, SecurityGroup, SecurityGroupChange,
    SecurityGroupRule,
};
pub use tags::Tagged;

words! {
    /// How networks, ports, routers and floating IPs are.
    Status {
        Active = "ACTIVE",
        Build = "BUILD",
        Down = "DOWN",
        Error = "ERROR",
        NotApplicable = "N/A",
    }
}

resource! {
    /// What this Neutron can do beyond the core. Its id is its alias.
    Extension
    told {
        name: String,
        description: String,
    }
}

impl Resource for Extension {
    type Parent = ();
    const SERVICE: Service = Service::Network;
    const PATH: &'static str = "/extensions";
    const NAMES: ResourceNames = noun!("extension", "extensions");
    const ID: &'static str = "alias";
}
