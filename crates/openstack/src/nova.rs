//! Nova, the compute service: servers, and what they are plugged into.

use std::{collections::BTreeMap, net::IpAddr};

use serde::{Deserialize, Serialize};

use crate::{
    Service,
    neutron::{FixedIp, Network, Port, SecurityGroup},
    resource::{
        Creatable, Id, IdentifyingFields, Resource, ResourceNames, ResourceState, SecretText, UnknownFields,
        noun, or_default, resource, words,
    },
};

words! {
    /// How a server is; Nova has many more words.
    ServerStatus {
        Active = "ACTIVE",
        Build = "BUILD",
        Deleted = "DELETED",
        Error = "ERROR",
        ShelvedOffloaded = "SHELVED_OFFLOADED",
        Shutoff = "SHUTOFF",
        SoftDeleted = "SOFT_DELETED",
    }
}

resource! {
    /// A machine.
    Server / NewServer
    needed {
        name: String,
    }
    fixed {
        metadata: BTreeMap<String, String>,
        /// `ssh-rsa …` by its name.
        key_name: Option<String>,
        user_data: Option<SecretText>,
        config_drive: Option<String>,
    }
    given {
        flavor_id: String as "flavorRef",
        image_id: String as "imageRef",
        networks: Vec<Attachment>,
        security_groups: Vec<GroupName>,
        availability_zone: String,
    }
    told {
        status: ServerStatus,
        /// Under way: `spawning`, `deleting`.
        task: Option<String> as "OS-EXT-STS:task_state",
        /// By network.
        addresses: BTreeMap<String, Vec<Address>>,
        zone: Option<String> as "OS-EXT-AZ:availability_zone",
        host_id: Option<String> as "hostId",
        tenant_id: Option<String>,
        fault: Option<Fault>,
        flavor: Option<ServerFlavor>,
        access_ipv4: String as "accessIPv4",
        access_ipv6: String as "accessIPv6",
        created: Option<String>,
        updated: Option<String>,
    }
}

/// What a new server is plugged into: a network, or a port that is there.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Attachment {
    #[serde(rename = "uuid")]
    Network(Id<Network>),
    Port(Id<Port>),
}

/// Nova knows security groups by name too; an id is one.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct GroupName {
    pub name: String,
}

impl From<&Id<SecurityGroup>> for GroupName {
    fn from(id: &Id<SecurityGroup>) -> GroupName {
        GroupName { name: id.to_string() }
    }
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Address {
    pub addr: IpAddr,
    /// `fixed` or `floating`.
    #[serde(rename = "OS-EXT-IPS:type", default, deserialize_with = "or_default")]
    pub kind: String,
    #[serde(flatten)]
    pub rest: UnknownFields,
}

/// Of which flavor a server is: its name from microversion 2.47 on, its id before.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
pub struct ServerFlavor {
    #[serde(default, deserialize_with = "or_default")]
    pub id: Option<Id<Flavor>>,
    #[serde(default, deserialize_with = "or_default")]
    pub original_name: String,
}

/// Why a server is in error.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
pub struct Fault {
    #[serde(default, deserialize_with = "or_default")]
    pub code: u16,
    #[serde(default, deserialize_with = "or_default")]
    pub message: String,
}

resource! {
    /// A size of servers.
    Flavor
    told {
        name: String,
    }
}

resource! {
    /// A port of a server, whose id is the port's.
    Interface / NewInterface
    given {
        net_id: Id<Network>,
        port_id: Id<Port>,
        fixed_ips: Vec<FixedIp>,
    }
    told {
        net_id: Option<Id<Network>>,
        mac_addr: Option<String>,
        port_state: String,
        fixed_ips: Vec<FixedIp>,
    }
}

impl Resource for Server {
    type Parent = ();
    const SERVICE: Service = Service::Compute;
    const PATH: &'static str = "/servers";
    const LIST: &'static str = "/servers/detail";
    const NAMES: ResourceNames = noun!("server", "servers");

    fn standing(&self) -> ResourceState {
        match &self.status {
            ServerStatus::Active => ResourceState::Ready,
            ServerStatus::Deleted | ServerStatus::SoftDeleted => ResourceState::Gone,
            ServerStatus::Error => {
                let fault = self.fault.clone().unwrap_or_default();
                ResourceState::Failed(if fault.message.is_empty() {
                    self.status.to_string()
                } else {
                    fault.message
                })
            }
            other => ResourceState::Pending(other.to_string()),
        }
    }
}

impl Creatable for Server {
    type New = NewServer;
    // Nova answers with an id and a password; the rest is read.
    const ECHOES: bool = false;
    const KNOWN_BY: IdentifyingFields = IdentifyingFields::Marks(&["name"]);

    /// Nova takes names for regular expressions.
    fn filter_value(_field: &str, text: &str) -> Option<String> {
        let escaped = |c: char| if c.is_alphanumeric() { c.to_string() } else { format!("\\{c}") };
        Some(format!("^{}$", text.chars().map(escaped).collect::<String>()))
    }
}

impl Resource for Flavor {
    type Parent = ();
    const SERVICE: Service = Service::Compute;
    const PATH: &'static str = "/flavors";
    const NAMES: ResourceNames = noun!("flavor", "flavors");
}

impl Resource for Interface {
    type Parent = Id<Server>;
    const SERVICE: Service = Service::Compute;
    const PATH: &'static str = "/servers/{}/os-interface";
    const NAMES: ResourceNames =
        noun!("server interface", "server interfaces" as "interfaceAttachment", "interfaceAttachments");
    const ID: &'static str = "port_id";
}

impl Creatable for Interface {
    type New = NewInterface;
    const KNOWN_BY: IdentifyingFields = IdentifyingFields::Nature(&["port_id"]);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_sought_as_it_is() {
        let sought = |name| <Server as Creatable>::filter_value("name", name);
        assert_eq!(sought("web").as_deref(), Some("^web$"));
        assert_eq!(sought("web-1.a+b").as_deref(), Some(r"^web\-1\.a\+b$"));
    }
}
