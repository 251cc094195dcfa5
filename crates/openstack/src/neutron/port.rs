//! Ports: where something is plugged into a network.

use std::{collections::BTreeSet, net::IpAddr};

use serde::{Deserialize, Serialize};

use super::{Network, SecurityGroup, Status, Subnet, Tagged};
use crate::{
    Service,
    resource::{
        Creatable, Id, IdentifyingFields, Resource, ResourceNames, UnknownFields, noun, or_default, resource,
        view,
    },
};

resource! {
    /// A plug of a network, with its addresses.
    Port / NewPort / PortChange
    needed {
        network_id: Id<Network>,
    }
    fixed {
        mac_address: Option<String>,
        project_id: Option<String>,
    }
    free {
        name: String,
        description: String,
        admin_state_up: bool,
        /// A change replaces all of them.
        fixed_ips: Vec<FixedIp>,
        security_groups: Vec<Id<SecurityGroup>>,
        /// Addresses beside its own that it may use. A change replaces all of them.
        allowed_address_pairs: Vec<AddressPair>,
        port_security_enabled: Option<bool>,
        device_id: String,
        /// `compute:nova`, `network:router_interface`, `Octavia`.
        device_owner: String,
        /// Operators alone see it.
        host: Option<String> as "binding:host_id",
    }
    told {
        status: Status,
        tags: BTreeSet<String>,
        revision_number: Option<u64>,
        created_at: Option<String>,
        updated_at: Option<String>,
    }
}

view! {
    /// What says which addresses a server has.
    AttachedPort of Port {
        device_id: String,
        status: Status,
        network_id: Option<Id<Network>>,
        fixed_ips: Vec<FixedIp>,
        trunk_details: Option<TrunkDetails>,
    }
}

view! {
    /// What says where packets go that leave a router, and which of them the port lets through.
    RoutedPort of Port {
        device_id: String,
        device_owner: String,
        network_id: Option<Id<Network>>,
        mac_address: Option<String>,
        fixed_ips: Vec<FixedIp>,
        allowed_address_pairs: Vec<AddressPair>,
        port_security_enabled: Option<bool>,
        revision_number: Option<u64>,
    }
}

/// Of the parent port of a trunk.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
pub struct TrunkDetails {
    #[serde(default, deserialize_with = "or_default")]
    pub sub_ports: Vec<SubPort>,
}

#[derive(Clone, Debug, PartialEq, Deserialize)]
pub struct SubPort {
    pub port_id: Id<Port>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct FixedIp {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub subnet_id: Option<Id<Subnet>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ip_address: Option<IpAddr>,
    #[serde(flatten)]
    pub rest: UnknownFields,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct AddressPair {
    /// An address or a network.
    pub ip_address: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mac_address: Option<String>,
    #[serde(flatten)]
    pub rest: UnknownFields,
}

impl FixedIp {
    pub fn on(subnet: Id<Subnet>) -> FixedIp {
        FixedIp { subnet_id: Some(subnet), ..FixedIp::default() }
    }
}

impl AddressPair {
    pub fn of(address: impl ToString) -> AddressPair {
        AddressPair { ip_address: address.to_string(), mac_address: None, rest: UnknownFields::new() }
    }
}

impl Resource for Port {
    type Parent = ();
    const SERVICE: Service = Service::Network;
    const PATH: &'static str = "/ports";
    const NAMES: ResourceNames = noun!("port", "ports");
}

impl Creatable for Port {
    type New = NewPort;
    const KNOWN_BY: IdentifyingFields =
        IdentifyingFields::Marks(&["name", "description", "network_id", "device_id"]);
}

impl Tagged for Port {}
