//! Certificates in the World: who is to hear of one that came, changed, grew old or went.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use seaway_model::{
    Kind, ObjectRef, Owner, Problem, Time, Unit, WorkItem,
    config::{FrontDoor, OpenPolicy, TlsSecrets},
    fact::Secret,
    load_balancer::{Certificate, HostPattern},
};

use super::World;
use crate::{
    annotations::ServiceOptions,
    basic_auth,
    certificates::{CertificateChange, CertificateCounts},
    front_door,
    index::ServiceKey,
};

/// What an object was at the front door.
struct Before {
    shown: bool,
    names: Vec<HostPattern>,
}

impl World {
    pub(super) fn put_secret(&mut self, secret: &Secret) {
        if !self.config.pools.cluster {
            self.announcing.put_secret(secret);
        }
        let before = self.shown_before(&secret.object);
        let named = self.is_named(&secret.object);
        let changed = self.certificates.put(secret, named);
        self.certificate_changed(&secret.object, changed, &before);
        self.note_lack_at_door();
    }

    pub(super) fn remove_secret(&mut self, object: &ObjectRef) {
        self.announcing.remove_secret(object);
        let before = self.shown_before(object);
        let changed = self.certificates.remove(object, self.is_named(object));
        self.certificate_changed(object, changed, &before);
        self.note_lack_at_door();
    }

    /// By a Service, a route or the configuration.
    fn is_named(&self, object: &ObjectRef) -> bool {
        self.certified.contains_key(object)
            || self.door.guests.names_certificate(object)
            || self.configured().any(|it| it == object)
    }

    /// What is in use only because it was named, and is not any more.
    pub(super) fn give_up_vanished(&mut self) {
        let unnamed: Vec<ObjectRef> =
            self.certificates.vanished().filter(|it| !self.is_named(it)).cloned().collect();
        for object in unnamed {
            self.remove_secret(&object);
        }
        let absent = self.certificates.absent();
        if absent.iter().any(|it| !self.is_named(it)) {
            let named = absent.iter().filter(|it| self.is_named(it)).cloned().collect();
            self.certificates.keep_absent(named);
        }
    }

    /// Whether Secrets were asked for. Until then nobody is told that one is missing. Whoever says once that he did not asks
    /// for each that becomes named, and says which of them are not there.
    pub(super) fn note_asked(&mut self, asked: bool) {
        self.secrets_by_name |= !asked;
        let by_name = self.ask_by_name();
        if !self.certificates.note_asked(asked) && !by_name {
            return;
        }
        let named: Vec<ObjectRef> = self.named().cloned().collect();
        for object in named {
            let before = self.shown_before(&object);
            self.certificate_changed(&object, CertificateChange { content: true, names: false }, &before);
        }
        self.note_lack_at_door();
        self.dirt.insert(WorkItem::Unit(Unit::Status(front_door::owner())));
    }

    /// Where all Secrets are wanted, none is asked for by its name. Whether that is another than before.
    pub(super) fn ask_by_name(&mut self) -> bool {
        let by_name = self.secrets_by_name && !self.wants_all_secrets();
        self.certificates.ask_by_name(by_name)
    }

    fn wants_all_secrets(&self) -> bool {
        let door = &self.config.front_door;
        let mut all = std::iter::once(door).chain(door.entrances.values());
        door.opens != OpenPolicy::Never && all.any(|it| it.tls.secrets == TlsSecrets::All)
    }

    /// Time has passed: for all that has an end.
    pub(super) fn age_all(&mut self, now: Time) {
        self.age_deletions(now);
        self.age_adoptions(now);
        self.age_own_writes();
        self.age_addresses(now);
        self.age(now);
    }

    /// Some certificates may have come near their end.
    fn age(&mut self, now: Time) {
        for object in self.certificates.set_time(now) {
            let before = self.shown_before(&object);
            self.certificate_changed(&object, CertificateChange { content: true, names: false }, &before);
        }
    }

    pub fn certificates(&self) -> CertificateCounts {
        self.certificates.counts()
    }

    /// Secrets that somebody names, but for those that their namespaces have no room for; nothing, where all are wanted, or nobody
    /// knows yet.
    pub fn secrets(&self) -> Option<BTreeSet<ObjectRef>> {
        if !self.settled || self.wants_all_secrets() {
            return None;
        }
        let left_out = |it: &&ObjectRef| self.certificates.leaves_out(it);
        Some(self.named_secrets().filter(|it| !left_out(it)).cloned().collect())
    }

    fn named_secrets(&self) -> impl Iterator<Item = &ObjectRef> {
        self.named().filter(|it| it.kind == Kind::Secret)
    }

    pub(super) fn limit_certificates(&mut self) {
        let most = self.config.tenants.limits.held_certificate_bytes;
        self.certificates.set_limit(most, self.configured_secrets());
    }

    /// The same with what each holds; nothing of one that was not seen yet, or was not there when this began.
    pub fn named_certificates(&self) -> Option<BTreeMap<ObjectRef, Option<Arc<Certificate>>>> {
        let held = |it: ObjectRef| {
            let held = self.certificates.held(&it).cloned();
            (it, held)
        };
        self.secrets()?;
        Some(self.named_secrets().cloned().map(held).collect())
    }

    /// Those that the configuration names.
    pub fn configured_secrets(&self) -> BTreeSet<ObjectRef> {
        self.configured().filter(|it| it.kind == Kind::Secret).cloned().collect()
    }

    /// What was told of copies of Secrets that an owner names, and hosts do not have.
    pub(super) fn told_of_copies(&self, owner: &Owner) -> Vec<Problem> {
        let ObjectRef { namespace, name, .. } = owner.object();
        let (Some(named), Some(told)) = (
            self.secrets_of.get(&ServiceKey::new(namespace, name)),
            self.reported.get(&ObjectRef::certificate_copies_config()),
        ) else {
            return Vec::new();
        };
        told.iter().filter(|it| named.contains(&it.object)).cloned().collect()
    }

    /// Whatever may name a Secret was told, and nothing is wrong with who tells it.
    pub fn sees_all_that_names(&self, source: &ObjectRef) -> bool {
        self.settled && self.synced.contains(&Kind::HTTPRoute) && !self.reported.contains_key(source)
    }

    pub fn knows_namespace(&self, name: &str) -> bool {
        self.index.has_namespace(name)
    }

    /// Secrets and files that an object or the configuration names.
    fn named(&self) -> impl Iterator<Item = &ObjectRef> {
        self.certified.keys().chain(self.door.guests.certificates_named()).chain(self.configured())
    }

    fn configured(&self) -> impl Iterator<Item = &ObjectRef> {
        let door = &self.config.front_door;
        let all = std::iter::once(door).chain(door.entrances.values());
        all.flat_map(|it| {
            let authorities = it.tls.terms.clients.iter().map(|it| &it.authorities);
            it.tls.certificates.iter().chain(authorities)
        })
    }

    fn is_shown(&self, object: &ObjectRef) -> bool {
        self.settled && self.door.guests.shows(object, self.given())
    }

    fn shown_before(&self, object: &ObjectRef) -> Before {
        Before { shown: self.is_shown(object), names: self.certificates.names_of(object).to_vec() }
    }

    fn certificate_changed(&mut self, object: &ObjectRef, changed: CertificateChange, before: &Before) {
        if !self.settled || changed == CertificateChange::default() {
            return;
        }
        let users = self.certified.get(object).cloned().unwrap_or_default();
        for key in users {
            self.refresh_service(&key);
        }
        for route in self.door.guests.routes_certified_by(object) {
            self.refresh_route(&route);
        }
        let door = &self.config.front_door;
        let mut all = std::iter::once(door).chain(door.entrances.values());
        let is_of_all =
            |it: &FrontDoor| it.tls.terms.clients.as_ref().is_some_and(|it| it.authorities == *object);
        if all.any(is_of_all) || self.door.guests.asks_by(object) {
            return self.refresh_door();
        }
        if !before.shown && !self.is_shown(object) {
            return;
        }
        if changed.names {
            return self.rename_at_door(object, &before.names);
        }
        self.door.guests.renew(object, self.certificates.held(object));
        let units: Vec<Unit> = self.all_door_units().cloned().collect();
        for unit in &units {
            // What was told of it may hold no more: then the whole is concluded again.
            let well = self.outcomes.get(unit).is_some_and(|it| it.problems.is_empty());
            self.dirt.insert(match well {
                true => WorkItem::Certificate(unit.clone(), object.clone()),
                false => WorkItem::Unit(unit.clone()),
            });
        }
        self.mark_door_statuses();
    }

    /// One certificate of a Unit, for a renewal of it alone.
    pub fn certificate(&self, unit: &Unit, object: &ObjectRef) -> Option<Arc<Certificate>> {
        let shown = match self.door.units.contains(unit) {
            true => self.door.guests.certificates(self.given()).contains_key(object),
            false => self.entrance_at(unit).is_some_and(|it| it.certificates.contains_key(object)),
        };
        shown.then(|| self.certificates.held(object).cloned())?
    }

    /// Which Secrets a Service names, so that it hears of them.
    pub(super) fn note_secrets(&mut self, key: &ServiceKey) {
        let mut named = BTreeSet::new();
        if let Some(service) = self.index.service(key) {
            let mut wishes = ServiceOptions::of(&self.config.defaults);
            wishes.read(&key.object(), &service.meta.annotations);
            named.extend(wishes.tls.objects(&key.namespace));
            named.extend(basic_auth::secret(service, &wishes));
            let authorities = [wishes.tls.authorities, wishes.tls.members.authorities].into_iter().flatten();
            named.extend(authorities.map(|it| ObjectRef::new(Kind::Secret, key.namespace.clone(), it)));
        }
        let before = self.secrets_of.remove(key).unwrap_or_default();
        for object in before.difference(&named) {
            if let Some(users) = self.certified.get_mut(object) {
                users.remove(key);
                if users.is_empty() {
                    self.certified.remove(object);
                }
            }
        }
        for object in named.difference(&before) {
            self.certified.entry(object.clone()).or_default().insert(key.clone());
        }
        let is_same = before == named;
        if !named.is_empty() {
            self.secrets_of.insert(key.clone(), named);
        }
        if !is_same {
            self.give_up_vanished();
        }
    }
}
