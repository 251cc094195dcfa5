//! Names whose bytes are passed on as they come: who is led where.

use std::{collections::HashMap, sync::Arc};

use seaway_model::{
    PoolId,
    load_balancer::{HostPattern, TlsByName},
};

use super::{RunningPool, listener::Choice};

#[derive(Default)]
pub(crate) struct Through {
    exact: HashMap<Box<str>, Choice>,
    /// By what follows `*.`.
    under: HashMap<Box<str>, Choice>,
}

impl Through {
    pub(super) fn new(tls: &TlsByName, mut pool: impl FnMut(&PoolId) -> Arc<RunningPool>) -> Option<Through> {
        if tls.through.is_empty() {
            return None;
        }
        let mut through = Through::default();
        for (pattern, pools) in &tls.through {
            let choice = Choice::new(pools.iter().map(|(id, weight)| (pool(id), *weight)).collect());
            match pattern {
                HostPattern::Exact(name) => through.exact.insert(name.as_str().into(), choice),
                HostPattern::Under(name) => through.under.insert(name.as_str().into(), choice),
            };
        }
        Some(through)
    }

    /// For a name in lower case: exact, or by the longest end, unless TLS ends here for the very name.
    pub(crate) fn choice(&self, name: &str, tls: &TlsByName) -> Option<&Choice> {
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
