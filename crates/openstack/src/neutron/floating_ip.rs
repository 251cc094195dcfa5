//! Floating IPs: addresses of an external network that lead to a port.

use std::{collections::BTreeSet, net::IpAddr};

use super::{Network, Port, Router, Status, Subnet, Tagged};
use crate::{
    Service,
    resource::{Creatable, Id, IdentifyingFields, Resource, ResourceNames, noun, resource, view},
};

resource! {
    /// An address that the outside reaches.
    FloatingIp / NewFloatingIp / FloatingIpChange
    needed {
        floating_network_id: Id<Network>,
    }
    fixed {
        /// One of the network's; by default only operators may choose.
        floating_ip_address: Option<IpAddr>,
        project_id: Option<String>,
    }
    free {
        /// `To(None)` detaches it.
        port_id: Option<Id<Port>>,
        /// Of the port's addresses.
        fixed_ip_address: Option<IpAddr>,
        description: String,
    }
    given {
        subnet_id: Id<Subnet>,
    }
    told {
        status: Status,
        router_id: Option<Id<Router>>,
        tags: BTreeSet<String>,
        revision_number: Option<u64>,
        created_at: Option<String>,
        updated_at: Option<String>,
    }
}

view! {
    /// Which port a floating IP leads to.
    Attached of FloatingIp {
        floating_ip_address: Option<IpAddr>,
        port_id: Option<Id<Port>>,
    }
}

impl Resource for FloatingIp {
    type Parent = ();
    const SERVICE: Service = Service::Network;
    const PATH: &'static str = "/floatingips";
    const NAMES: ResourceNames = noun!("floating IP", "floating IPs" as "floatingip", "floatingips");
}

impl Creatable for FloatingIp {
    type New = NewFloatingIp;
    const KNOWN_BY: IdentifyingFields = IdentifyingFields::Marks(&[
        "description",
        "floating_network_id",
        "port_id",
        "floating_ip_address",
        "project_id",
    ]);
}

impl Tagged for FloatingIp {}
