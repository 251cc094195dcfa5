//! A host watches copies of certificates instead of Secrets, and tells them as what they are copies of.
//!
//! What is named and has no copy (yet) is asked for itself: a host of before copies may read Secrets, and serves on while
//! its cluster is being upgraded. Where that is refused, as it should be, it is not asked for again before the next list.

use seaway_model::{Kind, ObjectRef};
use tracing::warn;

use super::{
    known_objects::ObjectKey,
    reflector::{ReceiverDropped, Reflector, key},
};
use crate::{api_error::ApiError, copies, raw_object::RawObject};

impl Reflector {
    fn reads_copies(&self) -> bool {
        self.watched.kind == Kind::Secret && self.cluster.copies_namespace().is_some()
    }

    /// What the API server has, as what it stands for; nothing, if that is not said.
    pub(super) fn original_of(&self, told: RawObject) -> Option<RawObject> {
        if self.reads_copies() { copies::original_of_copy(told) } else { Some(told) }
    }

    /// The watch delivers it from now on, even if it was fetched before.
    pub(super) fn forget_fetched(&mut self, key: &ObjectKey) {
        if self.reads_copies()
            && let Some(secrets) = &mut self.secrets
        {
            secrets.forget_fetched(key);
        }
    }

    /// What the API server calls it.
    pub(super) fn name_of(&self, key: &ObjectKey) -> String {
        let object = || ObjectRef::new(Kind::Secret, key.namespace.clone(), key.name.clone());
        let copy = self.reads_copies().then(|| copies::name_of_copy(&object())).flatten();
        copy.unwrap_or_else(|| key.name.to_string())
    }

    /// A copy may have come before anything named it. Whether the Secret itself is not to be asked for.
    pub(super) async fn fetch_copy(&mut self, object: &ObjectRef) -> Result<bool, ReceiverDropped> {
        let Some(namespace) = self.cluster.copies_namespace().cloned() else { return Ok(false) };
        let Some(name) = copies::name_of_copy(object) else { return Ok(false) };
        let api = self.cluster.namespaced_api(self.watched, &namespace);
        let copy = match self.cluster.within_deadline(api.get(&name)).await {
            Ok(told) => self.original_of(told),
            Err(ApiError::NotFound) => None,
            // It is tried again with the next look.
            Err(answer) => {
                warn!(
                    %object,
                    why = answer.message_with_fix(),
                    "copy of a certificate cannot be read from the API server; retrying"
                );
                self.misses(object);
                return Ok(true);
            }
        };
        if let Some(told) = copy {
            self.forget_fetched(&key(&told));
            self.put(&told).await?;
            return Ok(true);
        }
        self.misses(object);
        Ok(self.secrets.as_ref().is_some_and(|it| it.refused))
    }

    fn misses(&mut self, object: &ObjectRef) {
        if let Some(secrets) = &mut self.secrets {
            secrets.note_missing(object);
        }
    }
}
