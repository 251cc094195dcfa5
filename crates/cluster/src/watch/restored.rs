//! A store that was restored from a backup: versions count from lower, and a watch that went on from its own would hear
//! nothing until they are as high again.
//!
//! ```text
//!     a watch was cut ─► one small list: is its version, or that of what was changed last, lower than what was heard?
//!     a whole list    ─► is any object of it older than it was heard, or there again though it was deleted?
//!                              │ yes, once for all kinds
//!                              ▼
//!          Change::SetBack ─► every kind is listed again and told as Synced, as after a start
//! ```
//! No store makes an object older, and no answer that asks for the newest is older than what was heard before: a restored
//! backup alone does. (One restored with greater versions, `--bump-revision`, is known by its objects; where none of them is
//! older or there again, versions only grew, and nothing has to be learned again.) Nor does one take a deletion back: what was
//! written last before the newest that was heard, and is not known, was deleted since. Services tell by that alone, where one
//! was deleted after the backup: its Address may be listed later, when another has been given.

use kube::api::ListParams;
use seaway_model::{Change, Kind};
use tracing::warn;

use super::{
    known_objects::ObjectKey,
    readiness::ApiReadiness,
    reflector::{ReceiverDropped, Reflector, key},
    scope::WatchScope,
};
use crate::{api_error::ApiError, raw_object::RawObject};

/// Names are unique in a namespace alone.
const OF_ONE_NAME: u32 = 500;

/// Lower than what was heard, as far as both are numbers.
pub(super) fn is_lower(version: &str, heard: Option<u64>) -> bool {
    heard.zip(version.parse().ok()).is_some_and(|(heard, now): (u64, u64)| now < heard)
}

impl ApiReadiness {
    pub(super) fn epoch(&self) -> u64 {
        *self.epoch.borrow()
    }

    /// Returns when the epoch is another than this one.
    pub(super) async fn until_other_epoch(&self, epoch: u64) {
        let _ = self.epoch.subscribe().wait_for(|it| *it != epoch).await;
    }
}

impl Reflector {
    /// Asked before a watch that was cut goes on where it was.
    pub(super) async fn is_store_older(&self) -> Result<bool, ApiError> {
        let mut params = ListParams { limit: Some(OF_ONE_NAME), ..self.list_params() };
        if let Some(newest) = self.known.last_changed() {
            let name = format!("metadata.name={}", self.name_of(newest));
            let fields = params.field_selector.map_or(name.clone(), |it| format!("{it},{name}"));
            params.field_selector = Some(fields);
        }
        let page = self.cluster.within_deadline(self.cluster.api(self.watched).list(&params)).await?;
        let version = page.metadata.resource_version.unwrap_or_default();
        let mut items = page.items.into_iter().filter_map(|it| self.original_of(it));
        let older = items.any(|it| self.known.was_newer(&key(&it), it.version()));
        Ok(older || is_lower(&version, self.last_version))
    }

    /// Whether an object of a list shows that the store was restored.
    pub(super) fn is_from_backup(&self, told: &RawObject) -> bool {
        let (key, version) = (key(told), told.version());
        self.known.was_newer(&key, version)
            || self.sees_all_objects() && self.known.was_recreated(&key, version, self.last_version)
    }

    /// Of other kinds only some objects are watched, now these and now those.
    pub(super) fn sees_all_objects(&self) -> bool {
        matches!(self.watched.kind, Kind::Service | Kind::Address)
    }

    /// A whole list lacks it. Of a Service that says less than its deletion: a store may have been set back. So it does of a host,
    /// right after it was.
    pub(super) async fn note_unlisted(
        &mut self,
        key: &ObjectKey,
        version: &str,
    ) -> Result<(), ReceiverDropped> {
        let may_live = match self.watched.kind {
            Kind::Service => true,
            Kind::LoadBalancerHost => self.may_hosts_be_younger_than_the_backup(),
            _ => false,
        };
        self.forget(key, version, if may_live { Change::Missing } else { Change::Gone }).await
    }

    /// Its object is not there: whether that is to be told.
    pub(super) fn forget_host(&self, host: &str) -> bool {
        match self.may_hosts_be_younger_than_the_backup() {
            true => self.hosts.mark_missing(host),
            false => self.hosts.remove(host),
        }
    }

    /// Who hears of all hosts lists them for the first time since the store was set back: one that is missing may live.
    fn may_hosts_be_younger_than_the_backup(&self) -> bool {
        self.epoch > 0 && !self.synced && matches!(self.scope, WatchScope::All)
    }

    /// Reports that the store was restored, unless the watch of another kind did.
    pub(super) async fn note_restored(&mut self) -> Result<(), ReceiverDropped> {
        let readiness = self.readiness.clone();
        let _turn = readiness.telling.lock().await;
        if readiness.epoch() == self.epoch {
            warn!(
                kind = %self.watched.kind,
                "etcd was restored to an older state: everything is listed again, as after a start"
            );
            self.send(Change::SourceRestored).await?;
            readiness.epoch.send_modify(|it| *it = it.wrapping_add(1));
        }
        Ok(())
    }

    /// Whether all is to be listed again: the store was restored, or deletions may have been missed.
    pub(super) fn is_list_due(&self) -> bool {
        self.readiness.epoch() != self.epoch || self.scope.is_due()
    }

    /// A list begins: what was heard before the store was restored is nothing to compare it with.
    pub(super) fn enter_epoch(&mut self) {
        let epoch = self.readiness.epoch();
        if std::mem::replace(&mut self.epoch, epoch) != epoch {
            self.synced = false;
            self.last_version = None;
            if self.watched.kind == Kind::LoadBalancerHost {
                self.hosts.addresses.set_complete(false);
            }
            self.known.forget_versions();
            self.cluster.cache().forget_versions(self.watched.kind);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::watch::known_objects::KnownObjects;

    #[test]
    fn a_store_is_older_when_its_version_is_lower_and_whatever_cannot_be_compared_is_not() {
        for (now, heard, older) in [
            ("80", Some(500), true),
            ("500", Some(500), false),
            ("501", Some(500), false),
            ("80", None, false),
            ("", Some(500), false),
            ("opaque", Some(500), false),
        ] {
            assert_eq!(is_lower(now, heard), older, "{now} {heard:?}");
        }
    }

    #[test]
    fn an_object_that_is_older_than_it_was_heard_tells_it_though_versions_are_higher_now() {
        let key = |name: &str| ObjectKey { namespace: "default".into(), name: name.into() };
        let mut known = KnownObjects::default();
        known.note_version(&key("a"), "70");
        known.note_version(&key("b"), "90");
        assert_eq!(known.last_changed(), Some(&key("b")));
        assert!(known.was_newer(&key("b"), "80") && !known.was_newer(&key("b"), "90"));
        assert!(!known.was_newer(&key("new"), "3"), "nobody heard of it");
        known.remove(&key("b"));
        assert_eq!(known.last_changed(), Some(&key("a")));
        for (name, version, heard, again) in [
            ("b", "90", Some(100), true),
            // It was made anew.
            ("b", "101", Some(100), false),
            ("a", "70", Some(100), false),
            // Nothing is known of before.
            ("b", "90", None, false),
            ("b", "opaque", Some(100), false),
        ] {
            assert_eq!(known.was_recreated(&key(name), version, heard), again, "{name} {version} {heard:?}");
        }
        known.forget_versions();
        assert!(!known.was_newer(&key("a"), "3"));
    }

    #[tokio::test]
    async fn all_kinds_hear_of_it() {
        let readiness = ApiReadiness::default();
        let before = readiness.epoch();
        readiness.epoch.send_modify(|it| *it = it.wrapping_add(1));
        readiness.until_other_epoch(before).await;
        assert_ne!(readiness.epoch(), before);
    }
}
