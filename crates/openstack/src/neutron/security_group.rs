//! Security groups and their rules.

use std::collections::BTreeSet;

use super::Tagged;
use crate::{
    Service,
    resource::{
        Creatable, FieldError, Fields, Id, IdentifyingFields, Resource, ResourceNames, View, noun, resource,
        words,
    },
};

words! {
    Direction {
        Ingress = "ingress",
        Egress = "egress",
    }
}

words! {
    EtherType {
        V4 = "IPv4",
        V6 = "IPv6",
    }
}

resource! {
    /// Which packets may come to a port and leave it.
    SecurityGroup / NewSecurityGroup / SecurityGroupChange
    fixed {
        project_id: Option<String>,
    }
    free {
        name: String,
        description: String,
        stateful: Option<bool>,
    }
    told {
        /// Those that Neutron gives every new group too: all may leave.
        security_group_rules: Rules,
        tags: BTreeSet<String>,
        revision_number: Option<u64>,
        created_at: Option<String>,
        updated_at: Option<String>,
    }
}

resource! {
    /// One thing that is allowed. Neutron has no changing of rules.
    SecurityGroupRule / NewSecurityGroupRule
    needed {
        security_group_id: Id<SecurityGroup>,
        direction: Direction,
        /// Neutron would take IPv4.
        ethertype: EtherType,
    }
    fixed {
        /// A name or a number; none: all.
        protocol: Option<String>,
        port_range_min: Option<u16>,
        port_range_max: Option<u16>,
        remote_ip_prefix: Option<String>,
        remote_group_id: Option<Id<SecurityGroup>>,
        description: Option<String>,
        project_id: Option<String>,
    }
    told {
        revision_number: Option<u64>,
    }
}

/// The rules of a group, which tells them itself.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Rules(pub Vec<SecurityGroupRule>);

impl<'de> serde::Deserialize<'de> for Rules {
    fn deserialize<D: serde::Deserializer<'de>>(from: D) -> Result<Rules, D::Error> {
        let objects = Vec::<serde_json::Value>::deserialize(from)?;
        let rules: Result<_, FieldError> =
            objects.into_iter().map(|it| Fields::of(it).and_then(SecurityGroupRule::read)).collect();
        rules.map(Rules).map_err(serde::de::Error::custom)
    }
}

impl Resource for SecurityGroup {
    type Parent = ();
    const SERVICE: Service = Service::Network;
    const PATH: &'static str = "/security-groups";
    const NAMES: ResourceNames =
        noun!("security group", "security groups" as "security_group", "security_groups");
}

impl Creatable for SecurityGroup {
    type New = NewSecurityGroup;
    const KNOWN_BY: IdentifyingFields = IdentifyingFields::Marks(&["name", "description", "project_id"]);
}

impl Tagged for SecurityGroup {}

impl Resource for SecurityGroupRule {
    type Parent = ();
    const SERVICE: Service = Service::Network;
    const PATH: &'static str = "/security-group-rules";
    const NAMES: ResourceNames =
        noun!("security group rule", "security group rules" as "security_group_rule", "security_group_rules");
}

impl Creatable for SecurityGroupRule {
    type New = NewSecurityGroupRule;
    const KNOWN_BY: IdentifyingFields = IdentifyingFields::Nature(&[
        "security_group_id",
        "direction",
        "ethertype",
        "protocol",
        "port_range_min",
        "port_range_max",
        "remote_ip_prefix",
        "remote_group_id",
    ]);
}
