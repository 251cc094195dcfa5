//! The attributes of each kind, with the extensions that the real rig has.

use super::{
    forms::Form::{Any, Bool, Choice, Cidr, FixedIps, Int, Ip, List, Mac, Pairs, Routes, Text, Uuid},
    schema::{Kind, changed, created, told},
};

pub(in crate::cloud) static NETWORK: Kind = Kind {
    one: "network",
    many: "networks",
    missing: ("NetworkNotFound", "Network {} could not be found."),
    fields: &[
        changed("name", Text).word(""),
        changed("description", Text).word(""),
        changed("admin_state_up", Bool).flag(true),
        changed("shared", Bool).flag(false).guarded(),
        changed("router:external", Bool).flag(false).guarded(),
        changed("is_default", Bool).flag(false).guarded(),
        changed("port_security_enabled", Bool).flag(true),
        changed("mtu", Int).int(1442),
        changed("qos_policy_id", Uuid),
        created("availability_zone_hints", List).empty(),
        created("vlan_transparent", Bool).flag(false),
        created("qinq", Bool).flag(false),
        told("availability_zones").empty(),
        told("ipv4_address_scope"),
        told("ipv6_address_scope"),
        told("l2_adjacency").flag(true),
        told("status").word("ACTIVE"),
    ],
};

pub(in crate::cloud) static SUBNET: Kind = Kind {
    one: "subnet",
    many: "subnets",
    missing: ("SubnetNotFound", "Subnet {} could not be found."),
    fields: &[
        changed("name", Text).word(""),
        changed("description", Text).word(""),
        created("network_id", Uuid).required(),
        created("ip_version", Int).required(),
        created("cidr", Any),
        changed("gateway_ip", Ip),
        changed("allocation_pools", Any).empty(),
        changed("dns_nameservers", List).empty(),
        changed("host_routes", Any).empty(),
        changed("enable_dhcp", Bool).flag(true),
        created("ipv6_address_mode", Any),
        created("ipv6_ra_mode", Any),
        created("subnetpool_id", Uuid),
        created("service_types", List).empty(),
        told("router:external").flag(false),
    ],
};

pub(in crate::cloud) static PORT: Kind = Kind {
    one: "port",
    many: "ports",
    missing: ("PortNotFound", "Port {} could not be found."),
    fields: &[
        changed("name", Text).word(""),
        changed("description", Text).word(""),
        created("network_id", Uuid).required(),
        changed("admin_state_up", Bool).flag(true),
        created("mac_address", Mac),
        changed("fixed_ips", FixedIps),
        changed("device_id", Text).word(""),
        changed("device_owner", Text).word(""),
        changed("security_groups", List),
        changed("allowed_address_pairs", Pairs).empty(),
        changed("port_security_enabled", Bool).flag(true),
        changed("binding:vnic_type", Text).word("normal"),
        changed("binding:host_id", Text).silent(),
        changed("extra_dhcp_opts", Any).empty(),
        changed("qos_policy_id", Uuid),
        told("qos_network_policy_id"),
        told("ip_allocation").word("immediate"),
        told("status").word("DOWN"),
    ],
};

pub(in crate::cloud) static ROUTER: Kind = Kind {
    one: "router",
    many: "routers",
    missing: ("RouterNotFound", "Router {} could not be found"),
    fields: &[
        changed("name", Text).word(""),
        changed("description", Text).word(""),
        changed("admin_state_up", Bool).flag(true),
        changed("external_gateway_info", Any),
        changed("routes", Routes).empty(),
        changed("enable_snat", Bool).flag(true),
        changed("enable_default_route_bfd", Bool).flag(false),
        changed("enable_default_route_ecmp", Bool).flag(false),
        created("availability_zone_hints", List).empty(),
        created("flavor_id", Uuid),
        told("availability_zones").empty(),
        told("external_gateways").empty(),
        told("status").word("ACTIVE"),
    ],
};

pub(in crate::cloud) static FLOATING: Kind = Kind {
    one: "floatingip",
    many: "floatingips",
    missing: ("FloatingIPNotFound", "Floating IP {} could not be found"),
    fields: &[
        changed("description", Text).word(""),
        created("floating_network_id", Uuid).required(),
        created("floating_ip_address", Ip).guarded(),
        created("subnet_id", Uuid).silent(),
        changed("port_id", Uuid),
        changed("fixed_ip_address", Ip),
        changed("qos_policy_id", Uuid),
        created("dns_name", Text).word(""),
        created("dns_domain", Text).word(""),
        told("router_id"),
        told("port_forwardings").empty(),
        told("status").word("DOWN"),
    ],
};

pub(in crate::cloud) static GROUP: Kind = Kind {
    one: "security_group",
    many: "security_groups",
    missing: ("SecurityGroupNotFound", "Security group {} does not exist"),
    fields: &[
        changed("name", Text).word(""),
        changed("description", Text).word(""),
        changed("stateful", Bool).flag(true),
        told("shared").flag(false),
    ],
};

pub(in crate::cloud) static RULE: Kind = Kind {
    one: "security_group_rule",
    many: "security_group_rules",
    missing: ("SecurityGroupRuleNotFound", "Security group rule {} does not exist"),
    fields: &[
        created("security_group_id", Uuid).required(),
        created("direction", Choice(&["ingress", "egress"])).required(),
        created("ethertype", Choice(&["IPv4", "IPv6"])).word("IPv4"),
        created("protocol", Any),
        created("port_range_min", Int),
        created("port_range_max", Int),
        created("remote_ip_prefix", Cidr),
        created("remote_group_id", Uuid),
        created("remote_address_group_id", Uuid),
        created("description", Text).word(""),
        told("normalized_cidr"),
        told("belongs_to_default_sg").flag(false),
    ],
};
