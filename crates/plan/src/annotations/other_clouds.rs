//! By which annotations the load balancers of clouds are reached from an internal network alone. Seaway's own hosts have no such load
//! balancers: what has one of these annotations is not meant for all clients.

/// What a value has to say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum InternalIf {
    /// Anything but no.
    Set,
    /// That it is internal.
    Named,
}

use InternalIf::{Named, Set};

/// OpenStack's is one of our own names: see `cloud`.
const INTERNAL: &[(&str, InternalIf)] = &[
    ("service.beta.kubernetes.io/aws-load-balancer-internal", Set),
    ("service.beta.kubernetes.io/aws-load-balancer-scheme", Named),
    ("alb.ingress.kubernetes.io/scheme", Named),
    ("cloud.google.com/load-balancer-type", Named),
    ("networking.gke.io/load-balancer-type", Named),
    ("service.beta.kubernetes.io/azure-load-balancer-internal", Set),
    ("appgw.ingress.kubernetes.io/use-private-ip", Set),
    ("service.beta.kubernetes.io/oci-load-balancer-internal", Set),
    ("oci-network-load-balancer.oraclecloud.com/internal", Set),
    ("service.beta.kubernetes.io/alibaba-cloud-loadbalancer-address-type", Named),
    ("service.kubernetes.io/ibm-load-balancer-cloud-provider-ip-type", Named),
    ("service.kubernetes.io/qcloud-loadbalancer-internal-subnetid", Set),
    ("service.beta.kubernetes.io/scw-loadbalancer-private", Set),
    ("service.beta.kubernetes.io/do-loadbalancer-network", Named),
    ("load-balancer.hetzner.cloud/disable-public-network", Set),
];

/// Whether an annotation of a cloud asks for a load balancer that only an internal network reaches.
pub fn is_internal_elsewhere(key: &str, value: &str) -> bool {
    let value = value.trim().to_ascii_lowercase();
    let is_asked = |when: InternalIf| match when {
        Set => !["", "false", "off", "no", "none", "0"].contains(&value.as_str()),
        Named => ["internal", "private", "intranet"].contains(&value.as_str()),
    };
    INTERNAL.iter().any(|(name, when)| *name == key && is_asked(*when))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_internal_load_balancer_is_told_from_an_external_one() {
        for (key, _) in INTERNAL {
            assert!(is_internal_elsewhere(key, "internal"), "{key}");
            for no in ["", "false"] {
                assert!(!is_internal_elsewhere(key, no), "{key}: {no}");
            }
        }
        for (key, value, expected) in [
            ("service.beta.kubernetes.io/aws-load-balancer-internal", "0.0.0.0/0", true),
            ("service.beta.kubernetes.io/aws-load-balancer-internal", "\"true\"", true),
            ("service.beta.kubernetes.io/aws-load-balancer-scheme", "internet-facing", false),
            ("service.beta.kubernetes.io/aws-load-balancer-type", "external", false),
            ("cloud.google.com/load-balancer-type", "Internal", true),
            ("cloud.google.com/load-balancer-type", "External", false),
            ("networking.gke.io/load-balancer-type", "External", false),
            ("service.kubernetes.io/ibm-load-balancer-cloud-provider-ip-type", "private", true),
            ("service.kubernetes.io/ibm-load-balancer-cloud-provider-ip-type", "public", false),
            // By which addresses it reaches its servers.
            ("load-balancer.hetzner.cloud/use-private-ip", "true", false),
            ("example.com/internal", "true", false),
        ] {
            assert_eq!(is_internal_elsewhere(key, value), expected, "{key}: {value}");
        }
    }
}
