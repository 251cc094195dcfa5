//! Quota of certificates of each namespace, in bytes: a host keeps the content of all that are named.
//!
//! What is kept stays, and comes before what is new; so does what takes its place and is no larger. What does not fit is left
//! out, and is asked for again when the quota allows it.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use seaway_model::{
    Kind, Name, ObjectRef, Problem, Reason,
    fact::{Secret, TLS_SECRET},
};
use secrecy::{ExposeSecret, SecretString};

use super::read::USERS;

#[derive(Debug, Default)]
pub(super) struct CertificateQuota {
    most: Option<u64>,
    /// What the configuration names: it counts for nobody.
    configured: BTreeSet<ObjectRef>,
    held: HashMap<ObjectRef, u64>,
    by_namespace: HashMap<Name, u64>,
    /// What is left out, with its bytes.
    left_out: BTreeMap<ObjectRef, RejectedObject>,
}

#[derive(Clone, Copy, Debug)]
struct RejectedObject {
    bytes: u64,
    /// A watch says that it is there, with what it holds or without.
    is_watched: bool,
}

impl CertificateQuota {
    pub(super) fn set(&mut self, most: Option<u64>, configured: BTreeSet<ObjectRef>) {
        (self.most, self.configured) = (most, configured);
        self.by_namespace.clear();
        let held = std::mem::take(&mut self.held);
        held.iter().for_each(|(object, bytes)| self.count(object, *bytes));
        self.held = held;
    }

    fn counts(&self, object: &ObjectRef) -> bool {
        object.kind == Kind::Secret && !self.configured.contains(object)
    }

    fn count(&mut self, object: &ObjectRef, bytes: u64) {
        if self.counts(object) {
            let all = self.by_namespace.entry(object.namespace.clone()).or_default();
            *all = all.saturating_add(bytes);
        }
    }

    /// `false`: it does not fit, and what is held of it stays.
    pub(super) fn take(&mut self, secret: &Secret) -> bool {
        let (object, bytes) = (&secret.object, bytes(secret));
        if !self.fits(object, bytes) {
            let is_watched = *secret.kind == *TLS_SECRET;
            self.left_out.insert(object.clone(), RejectedObject { bytes, is_watched });
            return false;
        }
        self.give_back(object);
        self.held.insert(object.clone(), bytes);
        self.count(object, bytes);
        true
    }

    /// Nothing of it is held any more.
    pub(super) fn give_back(&mut self, object: &ObjectRef) {
        self.left_out.remove(object);
        let Some(bytes) = self.held.remove(object).filter(|_| self.counts(object)) else { return };
        if let Some(all) = self.by_namespace.get_mut(&object.namespace) {
            *all = all.saturating_sub(bytes);
            if *all == 0 {
                self.by_namespace.remove(&object.namespace);
            }
        }
    }

    fn fits(&self, object: &ObjectRef, bytes: u64) -> bool {
        let Some(most) = self.most.filter(|_| self.counts(object)) else { return true };
        let before = self.held.get(object).copied().unwrap_or_default();
        bytes <= before || self.others(object).saturating_add(bytes) <= most
    }

    /// What its namespace has beside it.
    fn others(&self, object: &ObjectRef) -> u64 {
        let all = self.by_namespace.get(&object.namespace).copied().unwrap_or_default();
        all.saturating_sub(self.held.get(object).copied().unwrap_or_default())
    }

    /// It was left out, there is still no room for it, and to be told without what it holds is enough.
    pub(super) fn leaves_out(&self, object: &ObjectRef) -> bool {
        self.left_out.get(object).is_some_and(|it| it.is_watched && !self.fits(object, it.bytes))
    }

    pub(super) fn problem(&self, object: &ObjectRef) -> Problem {
        let bytes = self.left_out.get(object).map_or(0, |it| it.bytes);
        let (all, most) = (self.others(object).saturating_add(bytes), self.most.unwrap_or_default());
        let (what, until) = match self.held.contains_key(object) {
            true => (
                "the new content of this Secret is not used",
                "Until then the previous content stays in use.",
            ),
            false => ("this Secret is not used", "Until then no listener is opened with this certificate."),
        };
        let message = format!(
            "certificates of namespace {} have {all} bytes with this one, and may have {most}: {what}",
            object.namespace
        );
        Problem::new(object.clone(), Reason::LimitReached, message).fix(format!(
            "Name fewer or smaller Secrets in this namespace, or have tenants.limits.certificateBytes raised in the \
             configuration. {until}"
        ))
    }
}

/// Of the keys that are looked at.
fn bytes(secret: &Secret) -> u64 {
    let values = ["tls.crt", "tls.key", "ca.crt", USERS].into_iter().filter_map(|key| secret.values.get(key));
    values.map(|it: &SecretString| it.expose_secret().len() as u64).fold(0, u64::saturating_add)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of_bytes(name: &str, count: usize) -> Secret {
        crate::certificates::tests::secret(name, &[("tls.crt", &"x".repeat(count))])
    }

    #[test]
    fn what_is_given_back_makes_room_for_as_much_and_no_more() {
        let mut room = CertificateQuota::default();
        room.set(Some(100), BTreeSet::new());
        let (a, b, c) = (of_bytes("a", 60), of_bytes("b", 40), of_bytes("c", 61));
        assert!(room.take(&a) && room.take(&b), "100 bytes are allowed");
        assert!(!room.take(&c));
        room.give_back(&a.object);
        assert!(!room.take(&c), "b is still held");
        assert!(room.leaves_out(&c.object));
        room.give_back(&b.object);
        assert!(!room.leaves_out(&c.object) && room.take(&c), "nothing else is held");
    }
}
