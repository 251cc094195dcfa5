//! Which objects of a kind one watch is about. A host hears of its own LoadBalancerHost whatever changes in it, and of other
//! hosts only their addresses: what else they say changes with every Address, and 500 hosts that hear of 500 others would be
//! told 250,000 times of each.
//!
//! Their addresses come by slices, which the leader keeps (host_slices.rs). Where none keeps them, the hosts' own objects are watched:
//!
//! ```text
//!     another host has other addresses ─► it writes addressesChanged: true ─► ADDED      its addresses are told
//!                                         … and takes it back a second later ─► DELETED  nothing new
//! ```
//! A deletion is not heard in this way: `kubectl seaway host forget` takes a host's addresses away before it deletes. What else
//! hosts say that are gone stays known until their Node is deleted, or until all is listed again, after an hour at most: no
//! member may be at their addresses meanwhile.

use std::time::{Duration, Instant};

use kube::api::{ListParams, WatchParams};
use seaway_model::{Kind, Name};
use tokio::sync::watch;

use super::{host_slices::HostSlices, known_objects::ObjectKey, reflector::Reflector};
use crate::copies;

/// What a host writes for a moment.
const CHANGED: &str = "status.addressesChanged=true";
/// All is listed again after this: deletions are noticed then.
const WHOLE: Duration = Duration::from_secs(3_600);

#[derive(Debug, Default)]
pub(crate) enum WatchScope {
    /// All of a kind.
    #[default]
    All,
    /// The object of this host.
    Own {
        name: Name,
        /// The epoch of the store as of which it was told.
        told: watch::Sender<Option<u64>>,
    },
    /// Those of all hosts but this one.
    Others {
        own: Name,
        /// Where the leader gathers what is to be known of them.
        slices: HostSlices,
        /// The API server can select them by a field of their status.
        narrow: bool,
        listed: Option<Instant>,
        own_told: watch::Receiver<Option<u64>>,
    },
}

impl WatchScope {
    /// The two by which a host hears of LoadBalancerHosts.
    pub(super) fn of_host(own: &Name) -> [WatchScope; 2] {
        let (told, own_told) = watch::channel(None);
        let others = WatchScope::Others {
            own: own.clone(),
            slices: HostSlices::default(),
            narrow: true,
            listed: None,
            own_told,
        };
        [WatchScope::Own { name: own.clone(), told }, others]
    }

    /// Returns once all of the kind was told that two watches tell. A host that hears of all others first, and is to drain,
    /// would serve until it hears of itself.
    pub(super) async fn until_complete(&mut self, epoch: u64) {
        match self {
            WatchScope::All => {}
            WatchScope::Own { told, .. } => drop(told.send_replace(Some(epoch))),
            // An error: the other watch has ended, and so does this one.
            WatchScope::Others { own_told, .. } => drop(own_told.wait_for(|it| *it >= Some(epoch)).await),
        }
    }

    pub(super) fn has(&self, key: &ObjectKey) -> bool {
        match self {
            WatchScope::All => true,
            WatchScope::Own { name, .. } => key.name == *name,
            WatchScope::Others { own, .. } => key.name != *own,
        }
    }

    /// Its watch hears only of what matches, and of what matches no more as if it were deleted.
    pub(super) fn is_narrow(&self) -> bool {
        matches!(self, WatchScope::Others { narrow: true, slices, .. } if !slices.are_used())
    }

    /// The API server does not know the field by which it was asked to select: true if it is asked for all from now on.
    pub(super) fn widen(&mut self) -> bool {
        match self {
            WatchScope::Others { narrow, slices, .. } if !slices.are_used() => std::mem::take(narrow),
            _ => false,
        }
    }

    /// Another watch tells of the kind as a whole: that it is told, and what is wrong with it.
    pub(super) fn reports_whole_kind(&self) -> bool {
        !matches!(self, WatchScope::Own { .. })
    }

    pub(super) fn note_list(&mut self) {
        if let WatchScope::Others { listed, slices, .. } = self {
            *listed = Some(Instant::now());
            slices.begin();
        }
    }

    /// Deletions may have been missed for too long; or slices are there by now, or a slice no more.
    pub(super) fn is_due(&self) -> bool {
        match self {
            WatchScope::Others { slices, .. } if slices.are_used() => slices.needs_relist(),
            WatchScope::Others { narrow: true, listed: Some(listed), .. } => listed.elapsed() > WHOLE,
            _ => false,
        }
    }
}

/// By which field a host watches its own LoadBalancerHost.
pub fn selector_of_host(host: &Name) -> String {
    of_name(host)
}

fn of_name(name: &Name) -> String {
    format!("metadata.name={name}")
}

impl Reflector {
    /// What is listed.
    pub(super) fn list_params(&self) -> ListParams {
        let fields = match &self.scope {
            WatchScope::Own { name, .. } => Some(of_name(name)),
            WatchScope::All
                if self.watched.kind == Kind::Secret && self.cluster.copies_namespace().is_some() =>
            {
                Some(copies::COPY_SELECTOR.to_owned())
            }
            WatchScope::All | WatchScope::Others { .. } => self.watched.fields.map(str::to_owned),
        };
        ListParams { field_selector: fields, ..ListParams::default() }
    }

    /// What is watched from then on.
    pub(super) fn watch_params(&self) -> WatchParams {
        let fields = match self.scope.is_narrow() {
            true => Some(CHANGED.to_owned()),
            false => self.list_params().field_selector,
        };
        WatchParams { field_selector: fields, ..WatchParams::default() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_hears_of_its_own_object_by_one_watch_and_of_all_others_by_the_other() {
        let key = |name: &str| ObjectKey { namespace: Name::default(), name: name.into() };
        let [own, others] = WatchScope::of_host(&"a".into());
        for (name, is_own) in [("a", true), ("b", false)] {
            assert_eq!((own.has(&key(name)), others.has(&key(name))), (is_own, !is_own), "{name}");
            assert!(WatchScope::All.has(&key(name)));
        }
        assert!(others.reports_whole_kind() && !own.reports_whole_kind());
    }

    #[tokio::test]
    async fn the_kind_is_told_once_this_host_has_heard_of_itself_as_well() {
        let [mut own, mut others] = WatchScope::of_host(&"a".into());
        for epoch in [0, 1] {
            {
                let mut whole = std::pin::pin!(others.until_complete(epoch));
                assert!(futures::poll!(&mut whole).is_pending(), "{epoch}");
                own.until_complete(epoch).await;
                whole.await;
            }
            others.until_complete(epoch).await;
        }
    }

    #[test]
    fn where_the_field_is_not_known_all_is_watched() {
        let [_own, mut others] = WatchScope::of_host(&"a".into());
        assert!(others.uses_slices() && !others.is_narrow() && !others.widen());
        if let WatchScope::Others { slices, .. } = &mut others {
            *slices = HostSlices::unused();
        }
        assert!(!others.uses_slices() && others.is_narrow() && others.widen());
        assert!(!others.is_narrow() && !others.widen(), "that is no news then");
        assert!(!WatchScope::All.widen());
    }
}
