//! What people write who know other load balancers, and our name for the same: too far from it to be a slip of the pen.

use super::{
    AUTHORITIES, BALANCE, BASIC_AUTH, CHECK, CHECK_INTERVAL, CLIENT_RATE, CONNECTIONS, DENIED, ENTRANCE,
    HOST, PATH, REDIRECT, SOURCE_RANGES, TLS, WEIGHT, http::BODY_SIZE, table,
};

/// One of ours, and what to write.
#[derive(Clone, Copy, Debug)]
pub struct EquivalentAnnotation {
    pub ours: &'static str,
    pub fix: &'static str,
}

/// Names without their prefix, ours, and what to write where the name alone does not say it.
const OTHER_NAMES: &[(&[&str], &str, &str)] = &[
    (
        &["weight", "weights"],
        WEIGHT,
        "A weight is of one backend, not of the Service: seaway.dev/backends: \"10.0.0.1:8080 weight=3, 10.0.0.2:8080\", or \
         seaway.dev/weight on an EndpointSlice.",
    ),
    (&["servers", "server", "upstream", "upstreams", "targets", "target", "endpoints"], table::BACKENDS, ""),
    (&["algorithm", "lb-algorithm", "lb-method", "method", "load-balancing"], BALANCE, ""),
    (
        &["ssl", "cert", "certs", "certificate", "certificates", "secret", "tls-secret", "ssl-certificate"],
        TLS,
        "The value is the name of a Secret with a certificate: seaway.dev/tls: shop-tls.",
    ),
    (&["redirect", "ssl-redirect", "force-ssl-redirect", "https", "force-https"], REDIRECT, ""),
    (
        &[
            "whitelist",
            "allowlist",
            "allow",
            "allow-from",
            "allowed-ips",
            "whitelist-source-range",
            "only-from",
            "from",
            "networks",
        ],
        SOURCE_RANGES,
        "",
    ),
    (
        &[
            "mtls",
            "mutual-tls",
            "client-ca",
            "ssl-client-ca",
            "verify-client",
            "client-cert",
            "client-certs",
            "client-auth",
        ],
        AUTHORITIES,
        "The value is the name of a Secret with ca.crt: seaway.dev/client-authorities: staff-ca.",
    ),
    (&["blacklist", "denylist", "deny", "deny-from", "denylist-source-range"], DENIED, ""),
    (
        &["auth", "users", "password", "htpasswd", "auth-secret"],
        BASIC_AUTH,
        "The value is the name of a Secret with users: seaway.dev/basic-auth: users.",
    ),
    (
        &[
            "rate-limit",
            "ratelimit",
            "limit-rps",
            "rps",
            "throttle",
            "limit",
            "limits",
            "max-requests",
            "rate",
        ],
        CLIENT_RATE,
        "",
    ),
    (
        &["internal-only", "private", "intranet", "visibility"],
        ENTRANCE,
        "The value is the name of an entrance that only the internal network reaches: seaway.dev/entrance: internal \
         (docs/http.md).",
    ),
    (&["interval", "check-interval"], CHECK_INTERVAL, ""),
    (&["maxconn", "max-conn", "limit-connections"], CONNECTIONS, ""),
    (&["domain", "domains", "server-name", "hostnames", "virtual-host", "vhost"], HOST, ""),
    (&["location", "locations", "prefix", "url", "route"], PATH, ""),
    (
        &["sticky", "sticky-session", "sticky-sessions", "session-affinity", "affinity", "cookie"],
        "seaway.dev/sticky-cookie",
        "By a cookie: seaway.dev/sticky-cookie: \"true\" (HTTP). By the client's address: spec.sessionAffinity: ClientIP.",
    ),
    (
        &[
            "timeout",
            "timeouts",
            "read-timeout",
            "send-timeout",
            "proxy-read-timeout",
            "timeout-read",
            "timeout-send",
            "timeout-server",
            "timeout-client",
            "timeout-response",
            "response-timeout",
        ],
        "seaway.dev/timeout-answer",
        "There are seaway.dev/timeout-connect, seaway.dev/timeout-answer (HTTP) and seaway.dev/timeout-idle (TCP).",
    ),
    (
        &["body-size", "client-max-body-size", "proxy-body-size", "max-body", "max-size", "body-limit"],
        BODY_SIZE,
        "",
    ),
    (&["rewrite", "rewrite-target", "strip", "strip-path"], "seaway.dev/strip-prefix", ""),
    (
        &["health", "healthz", "health-path", "health-checks"],
        CHECK,
        "To check by HTTP, write the path: seaway.dev/health-check-path: /healthz.",
    ),
    (
        &[
            "health-check-uri",
            "health-check-url",
            "health-uri",
            "healthcheck-path",
            "check-path",
            "check-uri",
        ],
        "seaway.dev/health-check-path",
        "",
    ),
    (&["ip", "vip", "load-balancer-ip", "loadbalancerip", "listen"], table::ADDRESS, ""),
    (&["pool"], "seaway.dev/address-pool", ""),
    (&["class", "load-balancer-class"], "", "The class is a field of the Service: spec.loadBalancerClass."),
    (&["ports", "target-port", "listen-port"], "", "Ports are a field of the Service: spec.ports."),
    (
        &["websocket", "websockets"],
        "",
        "Seaway forwards WebSockets without a setting: remove this annotation.",
    ),
];

/// Of a name without its prefix, whatever its case and hyphens.
pub fn other_name(name: &str) -> Option<EquivalentAnnotation> {
    let plain = |it: &str| it.to_ascii_lowercase().replace(['-', '_', '.'], "");
    let name = plain(name);
    let (_, ours, fix) = OTHER_NAMES.iter().find(|(others, ..)| others.iter().any(|it| plain(it) == name))?;
    Some(EquivalentAnnotation { ours, fix })
}

#[cfg(test)]
mod tests {
    use super::{
        super::{WEIGHT, rows},
        *,
    };

    #[test]
    fn each_other_name_leads_to_one_of_ours_and_is_none_itself() {
        let is_ours = |it: &str| it == WEIGHT || rows().any(|row| row.name() == it);
        for (others, ours, fix) in OTHER_NAMES {
            assert!(is_ours(ours) || ours.is_empty() && !fix.is_empty(), "{ours}");
            for other in *others {
                let name = format!("seaway.dev/{other}");
                assert!(name == WEIGHT || !is_ours(&name), "{other} is ours");
                assert_eq!(other_name(&other.to_uppercase()).map(|it| it.ours), Some(*ours));
            }
        }
        assert!(other_name("weigh").is_none());
    }
}
