//! Networks and their subnets.

use std::{collections::BTreeSet, net::IpAddr};

use serde::{Deserialize, Serialize};

use super::{Status, Tagged};
use crate::{
    Service,
    resource::{Creatable, Id, IdentifyingFields, Resource, ResourceNames, UnknownFields, noun, resource},
};

resource! {
    /// A layer 2 of its own.
    Network / NewNetwork / NetworkChange
    fixed {
        project_id: Option<String>,
    }
    free {
        name: String,
        description: String,
        admin_state_up: bool,
        shared: Option<bool>,
        /// Floating IPs come from such.
        external: Option<bool> as "router:external",
        port_security_enabled: Option<bool>,
        mtu: Option<u32>,
    }
    told {
        status: Status,
        subnets: Vec<Id<Subnet>>,
        tags: BTreeSet<String>,
        availability_zones: Vec<String>,
        revision_number: Option<u64>,
        created_at: Option<String>,
        updated_at: Option<String>,
    }
}

resource! {
    /// Addresses of one family on a network.
    Subnet / NewSubnet / SubnetChange
    needed {
        network_id: Id<Network>,
        /// 4 or 6.
        ip_version: u8,
    }
    fixed {
        cidr: Option<String>,
        subnetpool_id: Option<String>,
        ipv6_ra_mode: Option<String>,
        ipv6_address_mode: Option<String>,
        project_id: Option<String>,
    }
    free {
        name: String,
        description: String,
        /// `To(None)` at creation: without a gateway.
        gateway_ip: Option<IpAddr>,
        enable_dhcp: bool,
        dns_nameservers: Vec<String>,
        allocation_pools: Vec<AllocationPool>,
        host_routes: Vec<HostRoute>,
    }
    told {
        tags: BTreeSet<String>,
        revision_number: Option<u64>,
        created_at: Option<String>,
        updated_at: Option<String>,
    }
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct AllocationPool {
    pub start: IpAddr,
    pub end: IpAddr,
    #[serde(flatten)]
    pub rest: UnknownFields,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct HostRoute {
    pub destination: String,
    pub nexthop: IpAddr,
    #[serde(flatten)]
    pub rest: UnknownFields,
}

impl Resource for Network {
    type Parent = ();
    const SERVICE: Service = Service::Network;
    const PATH: &'static str = "/networks";
    const NAMES: ResourceNames = noun!("network", "networks");
}

impl Creatable for Network {
    type New = NewNetwork;
    const KNOWN_BY: IdentifyingFields = IdentifyingFields::Marks(&["name", "description", "project_id"]);
}

impl Tagged for Network {}

impl Resource for Subnet {
    type Parent = ();
    const SERVICE: Service = Service::Network;
    const PATH: &'static str = "/subnets";
    const NAMES: ResourceNames = noun!("subnet", "subnets");
}

impl Creatable for Subnet {
    type New = NewSubnet;
    const KNOWN_BY: IdentifyingFields =
        IdentifyingFields::Marks(&["name", "description", "network_id", "cidr"]);
}

impl Tagged for Subnet {}
