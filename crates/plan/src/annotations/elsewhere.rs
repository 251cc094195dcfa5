//! By which annotations and labels other programs keep clients out. They have no effect here, and what has one of them was not meant for
//! all clients.

use super::{
    BODY_SIZE, CLIENT_RATE, DENIED, OURS, SOURCE_RANGES,
    meant::{by_words, kebab, not_the_opposite},
    protecting::lets_clients_in,
    rows,
};

/// In the prefixes of annotations for load balancers, proxies and Ingress controllers.
const PROXIES: [&str; 11] = [
    "ingress",
    "nginx",
    "haproxy",
    "traefik",
    "kubernetes.io",
    "konghq.com",
    "apisix",
    "projectcontour.io",
    "loadbalancer",
    "metallb",
    "caddy",
];
/// Of these, labels are settings, too: labels of other domains that contain `kubernetes.io` are not about clients.
const LABELLED: [&str; 7] = ["ingress", "nginx", "haproxy", "traefik", "konghq.com", "apisix", "caddy"];
/// What Docker Compose has as labels: these stand before the first dot.
const IN_COMPOSE: [&str; 2] = ["traefik", "caddy"];
/// Limits of the size of a request, of other programs.
const SIZES: [&str; 2] = ["proxy-body-size", "client-max-body-size"];
/// Limits of other programs.
const LIMITS: [&str; 6] =
    ["limit-rps", "limit-rpm", "limit-connections", "rate-limit", "ratelimit", "rate-limit-requests"];

/// By which annotation of another program, or of none, clients are kept out: `nginx.ingress.kubernetes.io/whitelist-source-range`,
/// `loadBalancerSourceRanges`. Our name for it; empty, where there is none.
pub fn protection_elsewhere(key: &str) -> Option<&'static str> {
    if key.starts_with(OURS) || rows().any(|row| row.names.contains(&key)) {
        return None;
    }
    let name = kebab(key.rsplit_once('/').map_or(key, |(_, name)| name));
    let words: Vec<&str> = name.split('-').collect();
    let has = |all: &[&str]| words.windows(all.len()).any(|it| it == all);
    // Middlewares may ask for a password, or limit.
    if has(&["middlewares"]) {
        return Some("");
    }
    if has(&["security", "groups"]) {
        return Some(SOURCE_RANGES);
    }
    if LIMITS.contains(&name.as_str()) {
        return Some(CLIENT_RATE);
    }
    let domain = domain(key);
    let is_of_proxy = PROXIES.iter().any(|it| domain.contains(it));
    if is_of_proxy && SIZES.contains(&name.as_str()) {
        return Some(BODY_SIZE);
    }
    if is_of_proxy && (has(&["plugins"]) || has(&["plugin", "config"])) {
        return Some("");
    }
    // Programs of other kinds have `auth` in their names, too.
    let is_meant = |it: &&str| lets_clients_in(it) && (is_of_proxy || [SOURCE_RANGES, DENIED].contains(it));
    by_words(&name).map(|it| not_the_opposite(it, &name)).filter(is_meant)
}

/// The same of a label, which is one of many programs: it is a setting only of those that have settings in labels.
pub fn protection_of_label(key: &str) -> Option<&'static str> {
    let is_setting = LABELLED.iter().any(|it| domain(key).contains(it));
    protection_elsewhere(key).filter(|_| is_setting)
}

/// `nginx.org` of `nginx.org/whitelist`, `traefik` of `traefik.http.routers.x.middlewares`.
fn domain(key: &str) -> &str {
    match key.rsplit_once('/') {
        Some((domain, _)) => domain,
        None => key.split(['.', '_']).next().filter(|it| IN_COMPOSE.contains(it)).unwrap_or_default(),
    }
}

#[cfg(test)]
mod tests {
    use super::{
        super::{AUTHORITIES, BASIC_AUTH, FORWARD_AUTH},
        *,
    };

    #[test]
    fn what_keeps_clients_out_in_the_words_of_others_is_understood() {
        for (key, ours) in [
            ("loadBalancerSourceRanges", Some(SOURCE_RANGES)),
            ("service.beta.kubernetes.io/load-balancer-source-range", Some(SOURCE_RANGES)),
            ("service.kubernetes.io/load-balancer-source-ranges", Some(SOURCE_RANGES)),
            ("service.beta.kubernetes.io/aws-load-balancer-security-groups", Some(SOURCE_RANGES)),
            ("metallb.io/source-ranges", Some(SOURCE_RANGES)),
            ("serviceloadbalancer/lb.source-ranges", Some(SOURCE_RANGES)),
            ("haproxy.org/allow-list", Some(SOURCE_RANGES)),
            ("haproxy.org/whitelist", Some(SOURCE_RANGES)),
            ("haproxy.org/deny-list", Some(DENIED)),
            ("haproxy-ingress.github.io/allowlist-source-range", Some(SOURCE_RANGES)),
            ("ingress.kubernetes.io/whitelist-source-range", Some(SOURCE_RANGES)),
            ("nginx.ingress.kubernetes.io/denylist-source-range", Some(DENIED)),
            ("nginx.ingress.kubernetes.io/auth-type", Some(BASIC_AUTH)),
            ("nginx.ingress.kubernetes.io/auth-url", Some(FORWARD_AUTH)),
            ("nginx.ingress.kubernetes.io/auth-tls-secret", Some(AUTHORITIES)),
            ("nginx.ingress.kubernetes.io/limit-rps", Some(CLIENT_RATE)),
            ("traefik.ingress.kubernetes.io/router.middlewares", Some("")),
            ("nginx.ingress.kubernetes.io/ssl-redirect", None),
            ("nginx.ingress.kubernetes.io/enable-cors", None),
            ("service.beta.kubernetes.io/aws-load-balancer-type", None),
            ("prometheus.io/scrape", None),
            ("external-dns.alpha.kubernetes.io/access", None),
            ("kubectl.kubernetes.io/last-applied-configuration", None),
            ("cert-manager.io/cluster-issuer", None),
            ("service.beta.kubernetes.io/azure-allowed-ip-ranges", Some(SOURCE_RANGES)),
            ("projectcontour.io/ip-allow-policy", Some(SOURCE_RANGES)),
            ("konghq.com/plugins", Some("")),
            ("k8s.apisix.apache.org/plugin-config-name", Some("")),
            ("caddy.basic_auth", Some(BASIC_AUTH)),
            ("caddy.forward_auth", Some(FORWARD_AUTH)),
            ("caddy_1.basicauth", Some(BASIC_AUTH)),
            ("traefik.http.routers.shop.middlewares", Some("")),
            ("traefik.http.middlewares.office.ipallowlist.sourcerange", Some("")),
            ("traefik.http.routers.shop.rule", None),
            ("nginx.ingress.kubernetes.io/proxy-body-size", Some(BODY_SIZE)),
            ("nginx.org/client-max-body-size", Some(BODY_SIZE)),
            ("nginx.ingress.kubernetes.io/proxy-buffer-size", None),
            ("checksum/auth-config", None),
            ("checksum/htpasswd", None),
            ("vault.hashicorp.com/agent-inject-secret-auth", None),
            ("reloader.stakater.com/auth", None),
            ("vault.hashicorp.com/auth-path", None),
            ("team", None),
            ("seaway.dev/source-ranges", None),
        ] {
            assert_eq!(protection_elsewhere(key), ours, "{key}");
        }
    }

    #[test]
    fn a_label_is_a_setting_of_the_programs_that_have_settings_in_labels() {
        for (key, ours) in [
            ("nginx.ingress.kubernetes.io/whitelist-source-range", Some(SOURCE_RANGES)),
            ("haproxy.org/allow-list", Some(SOURCE_RANGES)),
            ("traefik.http.routers.shop.middlewares", Some("")),
            ("caddy.basic_auth", Some(BASIC_AUTH)),
            ("caddy", None),
            ("traefik.enable", None),
            ("app.kubernetes.io/component", None),
            ("policy.example/allow-from", None),
            ("firewall", None),
            ("trusted", None),
            ("auth", None),
        ] {
            assert_eq!(protection_of_label(key), ours, "{key}");
        }
    }
}
