//! What this process may do: no more than it needs, whoever starts it.
//!
//! Every set of Linux capabilities is cut down before there is a second thread, and nothing that is executed from then on
//! gets more. Even for root, files are then as their owners let others have them.

use std::{fmt, io};

use rustix::thread::{
    CapabilitySet, CapabilitySets, capabilities, capability_is_in_bounding_set, clear_ambient_capability_set,
    remove_capability_from_bounding_set, set_capabilities, set_no_new_privs,
};

/// Who serves: ports below 1024; addresses on `lo`, the ARP settings, clients' addresses; where it has been given that, ARP and NDP
/// packets for addresses that are announced.
pub(crate) const SERVING_CAPABILITIES: CapabilitySet =
    CapabilitySet::NET_BIND_SERVICE.union(CapabilitySet::NET_ADMIN).union(CapabilitySet::NET_RAW);
/// Who asks an API server alone.
pub(crate) const NO_CAPABILITIES: CapabilitySet = CapabilitySet::empty();

/// What is left, and what was given up, for the log.
pub(crate) struct ProcessCapabilities {
    kept: CapabilitySet,
    dropped: CapabilitySet,
}

/// Gives up everything else, for good. To be called while there is one thread: those that exist keep theirs.
pub(crate) fn keep_only(kept: CapabilitySet) -> io::Result<ProcessCapabilities> {
    let mut dropped = CapabilitySet::empty();
    let before = capabilities(None)?;
    for one in CapabilitySet::all().difference(kept).iter() {
        // Who may not take it out of the set has no way to it either, below.
        if capability_is_in_bounding_set(one).unwrap_or(false)
            && remove_capability_from_bounding_set(one).is_ok()
        {
            dropped |= one;
        }
    }
    clear_ambient_capability_set()?;
    let left = before.permitted & kept;
    let sets = CapabilitySets {
        permitted: left,
        effective: before.effective & kept,
        inheritable: CapabilitySet::empty(),
    };
    match set_capabilities(None, sets) {
        // A filter of system calls may refuse it; who has nothing to give up needs none.
        Err(_) if kept.contains(before.permitted) => {}
        other => other?,
    }
    set_no_new_privs(true)?;
    Ok(ProcessCapabilities { kept: left, dropped: dropped | before.permitted.difference(kept) })
}

impl fmt::Display for ProcessCapabilities {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<&str> = self.kept.iter_names().map(|(name, _)| name).collect();
        let names = if names.is_empty() { "none".to_owned() } else { names.join(", ") };
        write!(f, "capabilities: {names}")?;
        match self.dropped.iter().count() {
            0 => Ok(()),
            count => write!(f, "; {count} others were dropped"),
        }
    }
}
