//! How addresses of pools are given out, and when one ends.

use std::time::Duration;

/// The default is that of a folder: its author is alone there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AddressPoolRules {
    /// Others share the cluster: nothing is given out that no pool allows, and an address stays while its pool cannot be
    /// seen. In a folder hosts' own addresses serve without a pool, and what no pool allows ends at once.
    pub cluster: bool,
    /// In a cluster, an address that its pool excludes is withdrawn after this.
    pub grace: Duration,
    /// So many addresses of pools one namespace may have. Those that it has already stay.
    pub per_namespace: Option<u32>,
}

impl AddressPoolRules {
    pub const GRACE: Duration = Duration::from_secs(600);

    pub const PER_NAMESPACE: u32 = 256;

    pub const CLUSTER: AddressPoolRules = AddressPoolRules {
        cluster: true,
        grace: AddressPoolRules::GRACE,
        per_namespace: Some(AddressPoolRules::PER_NAMESPACE),
    };
}

impl Default for AddressPoolRules {
    fn default() -> AddressPoolRules {
        AddressPoolRules { cluster: false, grace: AddressPoolRules::GRACE, per_namespace: None }
    }
}
