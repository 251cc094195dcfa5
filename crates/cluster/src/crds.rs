//! Our objects as the API server has to know them, and what it has to allow us.

/// CustomResourceDefinitions of AddressPool, Address and LoadBalancerHost.
pub fn definitions() -> &'static str {
    include_str!("../../../deploy/kubernetes/crds.yaml")
}

/// ClusterRoles: `seaway-reader` for all, `seaway-controller` and `seaway-node` beside it, `seaway-certificates` where
/// Secrets are used.
pub fn roles() -> &'static str {
    include_str!("../../../deploy/kubernetes/roles.yaml")
}
