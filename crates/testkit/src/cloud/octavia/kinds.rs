//! The attributes of each kind, as `octavia/api/v2/types` has them.

use super::{
    forms::Form::{
        Address, Alpn, Bool, Choice, Cidrs, Code, Int, Many, Matching, One, Text, Texts, Url, UrlPath, Uuid,
        Uuids, Version, Words,
    },
    schema::{Attribute, Kind, fixed, free, link, nested, told},
};

const NO_LIMIT: i64 = i64::MAX;
/// 24 days, in milliseconds.
const LONGEST: i64 = 24 * 24 * 60 * 60 * 1000;

const TAGS: Attribute = free("tags", Texts);
const PROJECT: Attribute = fixed("project_id", Text(36)).never_nested();
/// The old name of the same.
const TENANT: Attribute = fixed("tenant_id", Text(36)).never_nested().silent();

pub(super) static BALANCER: Kind = Kind {
    one: "loadbalancer",
    many: "loadbalancers",
    title: "Load Balancer",
    argument: "load_balancer",
    below: &[&LISTENER, &POOL],
    attributes: &[
        free("name", Text(255)),
        free("description", Text(255)),
        free("admin_state_up", Bool).flag(true),
        fixed("vip_address", Address),
        fixed("vip_port_id", Uuid),
        fixed("vip_subnet_id", Uuid),
        fixed("vip_network_id", Uuid),
        free("vip_qos_policy_id", Uuid),
        free("vip_sg_ids", Uuids),
        fixed("additional_vips", Many(&ADDITIONAL_VIP)).empty(),
        PROJECT,
        TENANT,
        nested("listeners", Many(&LISTENER)).empty(),
        nested("pools", Many(&POOL)).empty(),
        fixed("provider", Text(64)),
        TAGS,
        fixed("flavor_id", Uuid),
        fixed("availability_zone", Text(255)),
        told("vip_vnic_type"),
        told("provisioning_status"),
        told("operating_status"),
    ],
};

static ADDITIONAL_VIP: Kind = Kind {
    one: "additional_vip",
    many: "additional_vips",
    title: "Additional Vip",
    argument: "additional_vips",
    below: &[],
    attributes: &[fixed("subnet_id", Uuid).required(), fixed("ip_address", Address), fixed("port_id", Uuid)],
};

pub(super) static LISTENER: Kind = Kind {
    one: "listener",
    many: "listeners",
    title: "Listener",
    argument: "listener_",
    below: &[&POLICY],
    attributes: &[
        free("name", Text(255)),
        free("description", Text(255)),
        free("admin_state_up", Bool).flag(true),
        fixed("protocol", Choice(&["TCP", "HTTPS", "HTTP", "TERMINATED_HTTPS", "UDP", "SCTP", "PROMETHEUS"]))
            .required(),
        fixed("protocol_port", Int(1, 65535)).required(),
        free("connection_limit", Int(-1, NO_LIMIT)).int(-1),
        free("default_tls_container_ref", Text(255)),
        free("sni_container_refs", Texts),
        PROJECT,
        TENANT,
        free("default_pool_id", Uuid),
        nested("default_pool", One(&POOL)),
        nested("l7policies", Many(&POLICY)).empty(),
        free("insert_headers", Words),
        link("loadbalancer_id", Uuid).required(),
        free("timeout_client_data", Int(0, LONGEST)),
        free("timeout_member_connect", Int(0, LONGEST)),
        free("timeout_member_data", Int(0, LONGEST)),
        free("timeout_tcp_inspect", Int(0, LONGEST)),
        TAGS,
        free("client_ca_tls_container_ref", Text(255)),
        free("client_authentication", Choice(&["NONE", "OPTIONAL", "MANDATORY"])).word("NONE"),
        free("client_crl_container_ref", Text(255)),
        free("allowed_cidrs", Cidrs),
        free("tls_ciphers", Text(2048)),
        free("tls_versions", Texts),
        free("alpn_protocols", Alpn),
        free("hsts_max_age", Int(0, NO_LIMIT)),
        free("hsts_include_subdomains", Bool).flag(false),
        free("hsts_preload", Bool).flag(false),
        told("provisioning_status"),
        told("operating_status"),
    ],
};

pub(super) static POOL: Kind = Kind {
    one: "pool",
    many: "pools",
    title: "Pool",
    argument: "pool_",
    below: &[&MEMBER, &MONITOR],
    attributes: &[
        free("name", Text(255)),
        free("description", Text(255)),
        free("admin_state_up", Bool).flag(true),
        link("listener_id", Uuid),
        link("loadbalancer_id", Uuid),
        fixed("protocol", Choice(&["TCP", "HTTP", "HTTPS", "PROXY", "PROXYV2", "UDP", "SCTP"])).required(),
        free("lb_algorithm", Choice(&["LEAST_CONNECTIONS", "ROUND_ROBIN", "SOURCE_IP", "SOURCE_IP_PORT"]))
            .required(),
        free("session_persistence", One(&PERSISTENCE)),
        PROJECT,
        TENANT,
        nested("healthmonitor", One(&MONITOR)),
        nested("members", Many(&MEMBER)),
        TAGS,
        free("tls_container_ref", Text(255)),
        free("ca_tls_container_ref", Text(255)),
        free("crl_container_ref", Text(255)),
        free("tls_enabled", Bool).flag(false),
        free("tls_ciphers", Text(2048)),
        free("tls_versions", Texts),
        free("alpn_protocols", Alpn),
        told("provisioning_status"),
        told("operating_status"),
    ],
};

static PERSISTENCE: Kind = Kind {
    one: "session_persistence",
    many: "session_persistences",
    title: "Session Persistence",
    argument: "session_persistence",
    below: &[],
    attributes: &[
        free("type", Choice(&["SOURCE_IP", "HTTP_COOKIE", "APP_COOKIE"])),
        free("cookie_name", Text(255)).null(),
        free("persistence_timeout", Int(i64::MIN, NO_LIMIT)).null(),
        free("persistence_granularity", Address).null(),
    ],
};

pub(super) static MEMBER: Kind = Kind {
    one: "member",
    many: "members",
    title: "Member",
    argument: "member_",
    below: &[],
    attributes: &[
        free("name", Text(255)),
        free("admin_state_up", Bool).flag(true),
        fixed("address", Address).required(),
        fixed("protocol_port", Int(1, 65535)).required(),
        free("weight", Int(0, 256)).int(1),
        free("backup", Bool).flag(false),
        fixed("subnet_id", Uuid),
        PROJECT,
        TENANT,
        free("monitor_port", Int(1, 65535)).null(),
        free("monitor_address", Address).null(),
        TAGS,
        nested("request_sriov", Bool).flag(false),
        told("vnic_type"),
        told("provisioning_status"),
        told("operating_status"),
    ],
};

pub(super) static MONITOR: Kind = Kind {
    one: "healthmonitor",
    many: "healthmonitors",
    title: "Health Monitor",
    argument: "health_monitor_",
    below: &[],
    attributes: &[
        free("name", Text(255)),
        fixed("type", Choice(&["HTTP", "HTTPS", "PING", "TCP", "TLS-HELLO", "UDP-CONNECT", "SCTP"]))
            .required(),
        free("delay", Int(0, NO_LIMIT)).required(),
        free("timeout", Int(0, NO_LIMIT)).required(),
        free("max_retries_down", Int(1, 10)).int(3),
        free("max_retries", Int(1, 10)).required(),
        free(
            "http_method",
            Choice(&["GET", "HEAD", "POST", "PUT", "DELETE", "TRACE", "OPTIONS", "CONNECT", "PATCH"]),
        ),
        free("url_path", UrlPath),
        free("expected_codes", Matching(is_codes, r"^(\d{3}(\s*,\s*\d{3})*)$|^(\d{3}-\d{3})$")),
        free("admin_state_up", Bool).flag(true),
        PROJECT,
        TENANT,
        link("pool_id", Uuid).required(),
        TAGS,
        free("http_version", Version),
        free("domain_name", Text(255)),
        told("provisioning_status"),
        told("operating_status"),
    ],
};

pub(super) static POLICY: Kind = Kind {
    one: "l7policy",
    many: "l7policies",
    title: "L7 Policy",
    argument: "l7policy_",
    below: &[&RULE],
    attributes: &[
        free("name", Text(255)),
        free("description", Text(255)),
        free("admin_state_up", Bool).flag(true),
        PROJECT,
        TENANT,
        free("action", Choice(&["REJECT", "REDIRECT_TO_URL", "REDIRECT_TO_POOL", "REDIRECT_PREFIX"]))
            .required(),
        free("redirect_pool_id", Uuid).never_nested(),
        nested("redirect_pool", One(&POOL)).only_nested(),
        free("redirect_url", Url),
        free("redirect_prefix", Url),
        free("position", Int(1, LAST)).int(LAST),
        fixed("listener_id", Uuid).required().never_nested(),
        nested("rules", Many(&RULE)),
        TAGS,
        free("redirect_http_code", Code(&[301, 302, 303, 307, 308])),
        told("provisioning_status"),
        told("operating_status"),
    ],
};

/// The position of a policy that is to come last.
pub(super) const LAST: i64 = 2_147_483_647;

pub(super) static RULE: Kind = Kind {
    one: "rule",
    many: "rules",
    title: "L7 Rule",
    argument: "rule_",
    below: &[],
    attributes: &[
        free(
            "type",
            Choice(&[
                "HOST_NAME",
                "PATH",
                "FILE_TYPE",
                "HEADER",
                "COOKIE",
                "SSL_CONN_HAS_CERT",
                "SSL_VERIFY_RESULT",
                "SSL_DN_FIELD",
            ]),
        )
        .required(),
        free("compare_type", Choice(&["REGEX", "STARTS_WITH", "ENDS_WITH", "CONTAINS", "EQUAL_TO"]))
            .required(),
        free("key", Text(255)),
        free("value", Text(255)).required(),
        free("invert", Bool).flag(false),
        free("admin_state_up", Bool).flag(true),
        PROJECT,
        TENANT,
        TAGS,
        told("provisioning_status"),
        told("operating_status"),
    ],
};

/// `200`, `200,202`, `200-204`
fn is_codes(text: &str) -> bool {
    let is_code = |code: &str| code.len() == 3 && code.bytes().all(|b| b.is_ascii_digit());
    match text.split_once('-') {
        Some((from, to)) => is_code(from) && is_code(to),
        None => text.split(',').all(|code| is_code(code.trim())),
    }
}
