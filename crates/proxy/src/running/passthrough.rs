//! TLS passthrough: to which pools the bytes of a client go as they come, by the host name of its hello.

use std::{collections::HashMap, sync::Arc};

use seaway_model::{
    PoolId,
    load_balancer::{HostPattern, TlsByName},
};

use super::{RunningPool, listener::WeightedPools};

#[derive(Default)]
pub(crate) struct Passthrough {
    exact: HashMap<Box<str>, WeightedPools>,
    /// By what follows `*.`.
    under: HashMap<Box<str>, WeightedPools>,
}

impl Passthrough {
    pub(super) fn new(
        tls: &TlsByName,
        mut pool: impl FnMut(&PoolId) -> Arc<RunningPool>,
    ) -> Option<Passthrough> {
        if tls.through.is_empty() {
            return None;
        }
        let mut passthrough = Passthrough::default();
        for (pattern, pools) in &tls.through {
            let choice = WeightedPools::new(pools.iter().map(|(id, weight)| (pool(id), *weight)).collect());
            match pattern {
                HostPattern::Exact(name) => passthrough.exact.insert(name.as_str().into(), choice),
                HostPattern::Under(name) => passthrough.under.insert(name.as_str().into(), choice),
            };
        }
        Some(passthrough)
    }

    /// For a name in lower case: exact, or by the longest end, unless TLS ends here for the very name.
    pub(crate) fn choice(&self, name: &str, tls: &TlsByName) -> Option<&WeightedPools> {
        if let Some(choice) = self.exact.get(name) {
            return Some(choice);
        }
        if self.under.is_empty() || tls.by_name.contains_key(&HostPattern::Exact(name.into())) {
            return None;
        }
        let mut rest = name;
        while let Some((_, end)) = rest.split_once('.') {
            if let Some(choice) = self.under.get(end) {
                return Some(choice);
            }
            rest = end;
        }
        None
    }
}
