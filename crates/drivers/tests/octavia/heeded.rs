//! Each `seaway.dev/…` annotation on a load balancer of Octavia: it changes what is asked of the cloud, or it is a Problem.
//! None is passed over in silence.

use seaway_plan::annotations::rows;

use crate::options::{OptionEffects, meant};

/// An annotation, a value of it that is not the default, and what it presupposes.
type Sample = (&'static str, &'static str, &'static [(&'static str, &'static str)]);

const ID: &str = "00000000-0000-4000-8000-000000000001";
const SECRET: &str = "http://barbican/v1/secrets/00000000-0000-4000-8000-000000000003";
const TLS: (&str, &str) = ("seaway.dev/tls-container", SECRET);
/// TLS ends at 443 alone, and 80 is in plaintext.
const TLS_BESIDE: (&str, &str) =
    ("seaway.dev/tls-container", "443:http://barbican/v1/secrets/00000000-0000-4000-8000-000000000003");
const HTTP: (&str, &str) = ("seaway.dev/protocol", "http");
const PROBED: (&str, &str) = ("seaway.dev/health-check", "tcp");
const PROBED_BY_HTTP: (&str, &str) = ("seaway.dev/health-check", "http");
const PROBED_BY_CLOUD: (&str, &str) = ("seaway.dev/cloud-monitor", "true");

#[rustfmt::skip]
const SAMPLES: &[Sample] = &[
    ("seaway.dev/backends", "10.0.0.1:80", &[]),
    ("seaway.dev/members", "pods", &[]),
    ("seaway.dev/balance", "source-hash", &[]),
    ("seaway.dev/balance", "SOURCE_IP_PORT", &[]),
    ("seaway.dev/address", "192.0.2.12", &[]),
    ("seaway.dev/address-pool", "second", &[]),
    ("seaway.dev/basic-auth", "users", &[]),
    ("seaway.dev/basic-auth-realm", "Staff", &[]),
    ("seaway.dev/basic-auth-forward", "true", &[]),
    ("seaway.dev/forward-auth", "auth:80/check", &[]),
    ("seaway.dev/forward-auth-headers", "X-User", &[]),
    ("seaway.dev/share", "key", &[]),
    ("seaway.dev/share-across-namespaces", "*", &[("seaway.dev/share", "key")]),
    ("seaway.dev/source-ranges", "10.0.0.0/8", &[]),
    ("seaway.dev/denied-source-ranges", "10.0.0.0/8", &[]),
    ("seaway.dev/denied-source-ranges", "10.0.0.0/8", &[("seaway.dev/front-door", "true")]),
    ("seaway.dev/requests-per-second-per-client", "7", &[]),
    ("seaway.dev/requests-per-second-per-client", "7", &[HTTP]),
    ("seaway.dev/requests-per-second-per-client", "7", &[HTTP, ("seaway.dev/front-door", "true")]),
    ("seaway.dev/requests-burst-per-client", "9", &[("seaway.dev/requests-per-second-per-client", "7")]),
    ("seaway.dev/rate-limit-key", "cookie:a", &[HTTP, ("seaway.dev/requests-per-second-per-client", "7")]),
    ("seaway.dev/health-check", "http", &[]),
    ("seaway.dev/health-check-path", "/healthz", &[]),
    ("seaway.dev/health-check-host", "a.example", &[]),
    ("seaway.dev/health-check-status", "200", &[]),
    ("seaway.dev/health-check-service", "a", &[]),
    ("seaway.dev/health-check-send", "ping", &[]),
    ("seaway.dev/health-check-send", "ping", &[("seaway.dev/health-check", "udp")]),
    ("seaway.dev/health-check-expect", "ok", &[PROBED_BY_HTTP]),
    ("seaway.dev/health-check-port", "9000", &[]),
    ("seaway.dev/health-check-interval", "17s", &[PROBED]),
    ("seaway.dev/health-check-interval", "300ms", &[PROBED, ("seaway.dev/health-check-timeout", "300ms")]),
    ("seaway.dev/health-check-timeout", "2s", &[PROBED]),
    ("seaway.dev/health-check-timeout", "300ms", &[PROBED]),
    ("seaway.dev/health-check-rise", "7", &[PROBED]),
    ("seaway.dev/health-check-rise", "70", &[PROBED, ("seaway.dev/health-check-fall", "10")]),
    ("seaway.dev/health-check-fall", "8", &[PROBED]),
    ("seaway.dev/health-check-fall", "80", &[PROBED, ("seaway.dev/health-check-rise", "10")]),
    ("seaway.dev/passive-ejection", "9", &[]),
    ("seaway.dev/passive-ejection-errors", "9", &[]),
    ("seaway.dev/passive-ejection-errors", "9", &[HTTP]),
    ("seaway.dev/passive-ejection-share", "33", &[]),
    ("seaway.dev/slow-start", "41s", &[]),
    ("seaway.dev/panic-threshold", "43", &[]),
    ("seaway.dev/max-connections-per-member", "5", &[]),
    ("seaway.dev/queue-timeout", "7s", &[("seaway.dev/max-connections-per-member", "5")]),
    ("seaway.dev/proxy-protocol", "v2", &[]),
    ("seaway.dev/transparent", "true", &[]),
    ("seaway.dev/proxy-protocol-from", "10.0.0.0/8", &[]),
    ("seaway.dev/max-connections", "5", &[]),
    ("seaway.dev/max-new-connections-per-second", "5", &[]),
    ("seaway.dev/timeout-connect", "7s", &[]),
    ("seaway.dev/timeout-idle", "7m", &[]),
    ("seaway.dev/timeout-half-closed", "7s", &[]),
    ("seaway.dev/timeout-udp", "7s", &[]),
    ("seaway.dev/drain", "7m", &[]),
    ("seaway.dev/protocol", "http", &[]),
    ("seaway.dev/sticky-cookie", "true", &[HTTP]),
    ("seaway.dev/sticky-cookie", "true", &[]),
    ("seaway.dev/sticky-cookie", "sticky", &[HTTP, ("seaway.dev/sticky-cookie-mode", "insert")]),
    ("seaway.dev/sticky-cookie-mode", "rewrite", &[HTTP, ("seaway.dev/sticky-cookie", "true")]),
    ("seaway.dev/sticky-cookie-mode", "rewrite", &[("seaway.dev/sticky-cookie", "true")]),
    ("seaway.dev/max-body-size", "7Mi", &[HTTP]),
    ("seaway.dev/max-body-size", "7Mi", &[]),
    ("seaway.dev/timeout-answer", "7m", &[HTTP]),
    ("seaway.dev/timeout-answer", "7m", &[]),
    ("seaway.dev/reuse-connections", "never", &[HTTP]),
    ("seaway.dev/reuse-connections", "never", &[]),
    ("seaway.dev/entrance", "internal", &[]),
    ("seaway.dev/compress", "gzip", &[HTTP]),
    ("seaway.dev/compress", "gzip", &[]),
    ("seaway.dev/compress-types", "text/html", &[HTTP, ("seaway.dev/compress", "gzip")]),
    ("seaway.dev/compress-types", "text/html", &[("seaway.dev/compress", "gzip")]),
    ("seaway.dev/compress-private", "true", &[HTTP, ("seaway.dev/compress", "gzip")]),
    ("seaway.dev/compress-private", "true", &[("seaway.dev/compress", "gzip")]),
    ("seaway.dev/timeout-keep-alive", "7m", &[HTTP]),
    ("seaway.dev/timeout-keep-alive", "7m", &[]),
    ("seaway.dev/strip-prefix", "true", &[]),
    ("seaway.dev/tls-passthrough", "true", &[]),
    ("seaway.dev/tls", "own", &[]),
    ("seaway.dev/tls-ports", "80", &[]),
    ("seaway.dev/tls-ports", "443", &[TLS]),
    ("seaway.dev/https-redirect", "true", &[]),
    ("seaway.dev/https-redirect", "true", &[TLS_BESIDE]),
    ("seaway.dev/https-redirect", "true", &[TLS_BESIDE, HTTP]),
    ("seaway.dev/hsts", "9h", &[]),
    ("seaway.dev/hsts", "9h", &[TLS]),
    ("seaway.dev/tls-profile", "modern", &[]),
    ("seaway.dev/tls-profile", "modern", &[TLS]),
    ("seaway.dev/client-authorities", "ca", &[]),
    ("seaway.dev/client-authorities", "ca", &[TLS]),
    ("seaway.dev/client-certificates", "required", &[]),
    ("seaway.dev/client-certificates", "required", &[TLS]),
    ("seaway.dev/client-certificates", "optional", &[TLS, ("seaway.dev/client-ca-container", SECRET)]),
    ("seaway.dev/backend-tls", "true", &[]),
    ("seaway.dev/backend-tls", "true", &[HTTP]),
    ("seaway.dev/backend-tls-name", "in.example", &[]),
    ("seaway.dev/backend-tls-name", "in.example", &[HTTP, ("seaway.dev/backend-tls", "true")]),
    ("seaway.dev/backend-tls-authorities", "ca", &[HTTP, ("seaway.dev/backend-tls", "true")]),
    ("seaway.dev/backend-tls-verify", "off", &[]),
    ("seaway.dev/backend-tls-verify", "off", &[HTTP, ("seaway.dev/backend-tls", "true")]),
    // Of clouds alone.
    ("seaway.dev/internal", "true", &[]),
    ("seaway.dev/cloud-class", "gold", &[]),
    ("seaway.dev/network", ID, &[]),
    ("seaway.dev/subnet", ID, &[]),
    ("seaway.dev/member-subnet", ID, &[]),
    ("seaway.dev/port", ID, &[]),
    ("seaway.dev/floating-network", ID, &[]),
    ("seaway.dev/floating-subnet-tags", "a,b", &[]),
    ("seaway.dev/floating-subnet-name", "public-*", &[]),
    ("seaway.dev/floating-subnet", ID, &[]),
    ("seaway.dev/x-forwarded-for", "true", &[]),
    ("seaway.dev/x-forwarded-proto", "true", &[]),
    ("seaway.dev/x-forwarded-port", "80:true", &[]),
    ("seaway.dev/keep-floating-ip", "true", &[]),
    ("seaway.dev/tls-container", SECRET, &[]),
    ("seaway.dev/tls-sni-containers", SECRET, &[]),
    ("seaway.dev/tls-sni-containers", SECRET, &[TLS]),
    ("seaway.dev/client-ca-container", SECRET, &[]),
    ("seaway.dev/client-ca-container", SECRET, &[TLS]),
    ("seaway.dev/client-crl-container", SECRET, &[]),
    ("seaway.dev/client-crl-container", SECRET, &[TLS]),
    ("seaway.dev/client-crl-container", SECRET, &[TLS, ("seaway.dev/client-ca-container", SECRET)]),
    ("seaway.dev/backend-tls-ca-container", SECRET, &[]),
    ("seaway.dev/backend-tls-ca-container", SECRET, &[HTTP, ("seaway.dev/backend-tls", "true")]),
    ("seaway.dev/backend-tls-crl-container", SECRET, &[]),
    ("seaway.dev/backend-tls-crl-container", SECRET, &[HTTP, ("seaway.dev/backend-tls", "true")]),
    ("seaway.dev/backend-tls-container", SECRET, &[]),
    ("seaway.dev/backend-tls-container", SECRET, &[HTTP, ("seaway.dev/backend-tls", "true")]),
    ("seaway.dev/metrics-port", "9000", &[]),
    ("seaway.dev/provider", "other", &[]),
    ("seaway.dev/flavor", ID, &[]),
    ("seaway.dev/availability-zone", "z", &[]),
    ("seaway.dev/cloud-timeout-client", "7000", &[]),
    ("seaway.dev/cloud-timeout-connect", "7000", &[]),
    ("seaway.dev/cloud-timeout-member", "7000", &[]),
    ("seaway.dev/cloud-timeout-inspect", "7000", &[]),
    ("seaway.dev/cloud-monitor", "true", &[]),
    ("seaway.dev/cloud-monitor-delay", "7", &[PROBED_BY_CLOUD]),
    ("seaway.dev/cloud-monitor-timeout", "2", &[PROBED_BY_CLOUD]),
    ("seaway.dev/cloud-monitor-rise", "7", &[PROBED_BY_CLOUD]),
    ("seaway.dev/cloud-monitor-fall", "7", &[PROBED_BY_CLOUD]),
    ("seaway.dev/cloud-monitor-type", "HTTPS", &[]),
    ("seaway.dev/cloud-monitor-path", "/healthz", &[]),
    ("seaway.dev/cloud-monitor-codes", "204", &[]),
    ("seaway.dev/node-selector", "role=worker", &[]),
    ("seaway.dev/hostname", "shop.example", &[]),
    ("seaway.dev/load-balancer-group", "web", &[]),
    ("seaway.dev/load-balancer-tags", "a", &[]),
    ("seaway.dev/listener-tags", "a", &[]),
    ("seaway.dev/pool-tags", "a", &[]),
    ("seaway.dev/floating-ip-tags", "a", &[]),
    ("seaway.dev/vip-security-groups", ID, &[]),
    ("seaway.dev/vip-qos-policy", ID, &[]),
];

/// What is done by what there is already, or about it: the options of the load balancer have it, and tests of their own see
/// what follows.
const OF_WHAT_IS_THERE: &[(&str, &str)] = &[
    ("seaway.dev/load-balancer-id", ID),
    ("seaway.dev/load-balancer-name", "shared"),
    ("seaway.dev/rebuild-on-error", "true"),
    ("seaway.dev/rebuild-on-change", "true"),
    ("seaway.dev/apply-configuration", "true"),
    ("seaway.dev/pause", "true"),
    ("seaway.dev/follow-session-affinity", "true"),
    ("seaway.dev/second-family", "true"),
    ("seaway.dev/pending-limit", "5m"),
    ("seaway.dev/rebuild-on-pending", "true"),
];

/// What does nothing to the load balancer of a Service that a cloud serves: the front door is another place, and whether a
/// Service is adopted, or released, is asked before it is planned.
const ELSEWHERE: [&str; 7] = [
    "seaway.dev/dns-names",
    "seaway.dev/dns-ttl",
    "seaway.dev/front-door",
    "seaway.dev/host",
    "seaway.dev/path",
    "seaway.dev/adopt",
    "seaway.dev/released",
];

#[test]
fn each_annotation_changes_what_is_asked_of_a_cloud_or_is_a_problem() {
    let conf = "[LoadBalancer]\nmanage-security-groups=true\n[LoadBalancerClass \"gold\"]\nsubnet-id=s\n";
    let is_told = |before: &OptionEffects, after: &OptionEffects| after.told != before.told;
    let mut silent = Vec::new();
    for row in rows() {
        let name = row.names[0];
        let samples: Vec<&Sample> = SAMPLES.iter().filter(|it| it.0 == name).collect();
        let of_what_is_there = OF_WHAT_IS_THERE.iter().find(|it| it.0 == name);
        let listed = usize::from(!samples.is_empty())
            + usize::from(of_what_is_there.is_some())
            + usize::from(ELSEWHERE.contains(&name));
        assert_eq!(listed, 1, "{name} needs a sample here, once");
        for (_, value, first) in samples {
            let both: Vec<_> = first.iter().copied().chain([(name, *value)]).collect();
            let (before, after) = (meant(conf, first), meant(conf, &both));
            if before.asked == after.asked && !is_told(&before, &after) {
                silent.push(format!("{name}: {value}, with {first:?}"));
            }
        }
        if let Some((_, value)) = of_what_is_there {
            let (before, after) = (meant(conf, &[]), meant(conf, &[(name, value)]));
            if before.options == after.options {
                silent.push(format!("{name}: {value}"));
            }
        }
    }
    assert_eq!(silent, [""; 0], "{silent:#?}");
}
