//! What is known of Secrets that were never read: nothing yet, or that they are not there.

use std::collections::BTreeSet;

use seaway_model::{
    Kind, ObjectRef,
    config::{FrontDoorTls, TlsSecrets},
};

use super::Certificates;
use crate::spelling::nearest;

impl Certificates {
    /// How many bytes each namespace may have held; what is held stays. `configured` counts for nobody.
    pub(crate) fn set_limit(&mut self, most: Option<u64>, configured: BTreeSet<ObjectRef>) {
        self.room.set(most, configured);
    }

    /// It is there, whatever is in it.
    pub(crate) fn is_there(&self, object: &ObjectRef) -> bool {
        self.known.contains_key(object)
    }

    /// Another Secret of its namespace that has users, and nearly its name.
    pub(crate) fn nearest_users(&self, object: &ObjectRef) -> Option<&str> {
        let is_one = |it: &&ObjectRef| it.namespace == object.namespace && *it != object;
        let has_users = |it: &&ObjectRef| self.users(it).is_some_and(|it| !it.users.0.is_empty());
        let names: Vec<&str> =
            self.known.keys().filter(is_one).filter(has_users).map(|it| it.name.as_str()).collect();
        nearest(&object.name, &names)
    }

    /// Its namespace has as many bytes as it may have: it is asked for again when there is room. One that no watch brings is
    /// asked for every minute all the same, and is not held.
    pub(crate) fn leaves_out(&self, object: &ObjectRef) -> bool {
        self.room.leaves_out(object)
    }

    pub(super) fn not_known_yet(&self, object: &ObjectRef) -> bool {
        let is_unanswered = self.not_asked || self.asked_by_name && !self.absent.contains(object);
        is_unanswered && object.kind == Kind::Secret && !self.known.contains_key(object)
    }

    /// Whether TLS cannot end at the front door: no certificate is there, and all that may bring one were read.
    pub(crate) fn lacks_any_at_front_door<'a>(
        &self,
        settings: &'a FrontDoorTls,
        named: impl Iterator<Item = &'a ObjectRef> + Clone,
    ) -> bool {
        let may_come = self.not_asked && settings.secrets == TlsSecrets::All;
        !may_come
            && !self.any_at_front_door(settings, named.clone())
            && !settings.certificates.iter().chain(named).any(|it| self.not_known_yet(it))
    }

    /// Whether it is another than before.
    pub(crate) fn note_asked(&mut self, asked: bool) -> bool {
        if !asked {
            self.absent.clear();
        }
        std::mem::replace(&mut self.not_asked, !asked) == asked
    }

    /// Whether it is another than before.
    pub(crate) fn ask_by_name(&mut self, by_name: bool) -> bool {
        std::mem::replace(&mut self.asked_by_name, by_name) != by_name
    }

    /// Whoever names one of the others again waits until it was asked for again.
    pub(crate) fn keep_absent(&mut self, absent: BTreeSet<ObjectRef>) {
        self.absent = absent;
    }

    /// Named, asked for, and not there.
    pub(crate) fn absent(&self) -> &BTreeSet<ObjectRef> {
        &self.absent
    }
}
