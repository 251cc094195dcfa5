//! Which copies are to be written, and which nothing names: computed from what is named and what is there.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use k8s_openapi::{ByteString, api::core::v1::Secret, apimachinery::pkg::apis::meta::v1::ObjectMeta};
use seaway_model::{Name, ObjectRef, load_balancer::Certificate};
use secrecy::ExposeSecret;

use super::{OWNER, SOURCE, TYPE, name_of_copy, source_of};
use crate::connect::MANAGER;

const MANAGED_BY: &str = "app.kubernetes.io/managed-by";

/// Copies by their names.
pub(super) type CopiesByName = BTreeMap<String, Secret>;
/// What is named, with what it holds. Nothing: that is not known, or not any more; a copy of it stays as it is.
pub(super) type DesiredCopies = BTreeMap<ObjectRef, Option<Arc<Certificate>>>;

#[derive(Default)]
pub(super) struct CopyPlan {
    pub(super) create: Vec<Secret>,
    /// With the version that each replaces.
    pub(super) replace: Vec<Secret>,
    /// Ours, and nothing names them.
    pub(super) unnamed: Vec<String>,
    /// A Secret that is not ours has the name of the copy.
    pub(super) foreign: Vec<ObjectRef>,
    /// No name is long enough.
    pub(super) too_long: Vec<ObjectRef>,
    /// The namespace has as many bytes as it may have.
    pub(super) beyond: Vec<OverLimit>,
}

/// How many bytes of certificates each namespace may have copied.
#[derive(Clone, Copy)]
pub(super) struct CopyLimit<'a> {
    pub(super) most: Option<u64>,
    /// What the configuration itself names: it is always copied, and counts for nobody.
    pub(super) configured: &'a BTreeSet<ObjectRef>,
}

/// What is not copied.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct OverLimit {
    pub(super) object: ObjectRef,
    /// Of its namespace, with this one.
    pub(super) bytes: u64,
    /// An older content of it stays copied.
    pub(super) is_there: bool,
}

/// `owner`: the UID by which copies of ours are known.
///
/// What is copied stays, whatever the limit is, and comes before what is new; so does what replaces it and is no larger.
pub(super) fn plan(
    owner: &str,
    wanted: &DesiredCopies,
    there: &CopiesByName,
    limit: CopyLimit<'_>,
) -> CopyPlan {
    let mut plan = CopyPlan::default();
    let mut room = CopyQuota::of(owner, wanted, there, limit);
    let mut new_ones = Vec::new();
    for (object, certificate) in wanted {
        let Some(name) = name_of_copy(object) else {
            plan.too_long.push(object.clone());
            continue;
        };
        let Some(certificate) = certificate else { continue };
        let data = data(certificate);
        match there.get(&name) {
            None => new_ones.push((object, name, data)),
            Some(it) if !is_ours(owner, it) => plan.foreign.push(object.clone()),
            Some(it) if it.data.as_ref().is_some_and(|it| *it == data) => {}
            Some(it) => match room.take(object, it.data.as_ref().map_or(0, bytes), bytes(&data)) {
                Ok(()) => plan.replace.push(Secret { data: Some(data), ..it.clone() }),
                Err(bytes) => plan.beyond.push(OverLimit { object: object.clone(), bytes, is_there: true }),
            },
        }
    }
    for (object, name, data) in new_ones {
        match room.take(object, 0, bytes(&data)) {
            Ok(()) => plan.create.push(new(owner, object, name, data)),
            Err(bytes) => plan.beyond.push(OverLimit { object: object.clone(), bytes, is_there: false }),
        }
    }
    let of = |it: &Secret| source(it).filter(|_| is_ours(owner, it));
    let unnamed = there.iter().filter(|(_, it)| of(it).is_some_and(|source| !wanted.contains_key(&source)));
    plan.unnamed = unnamed.map(|(name, _)| name.clone()).collect();
    plan
}

/// What each namespace has copied.
struct CopyQuota<'a> {
    used: BTreeMap<&'a Name, u64>,
    limit: CopyLimit<'a>,
}

impl<'a> CopyQuota<'a> {
    fn of(
        owner: &str,
        wanted: &'a DesiredCopies,
        there: &CopiesByName,
        limit: CopyLimit<'a>,
    ) -> CopyQuota<'a> {
        let mut used: BTreeMap<&Name, u64> = BTreeMap::new();
        for object in wanted.keys().filter(|it| !limit.configured.contains(it)) {
            let copy = name_of_copy(object).and_then(|name| there.get(&name)).filter(|it| is_ours(owner, it));
            let sum = used.entry(&object.namespace).or_default();
            *sum = sum.saturating_add(copy.and_then(|it| it.data.as_ref()).map_or(0, bytes));
        }
        CopyQuota { used, limit }
    }

    /// Or how many bytes there would be.
    fn take(&mut self, object: &'a ObjectRef, before: u64, now: u64) -> Result<(), u64> {
        if self.limit.configured.contains(object) {
            return Ok(());
        }
        let sum = self.used.entry(&object.namespace).or_default();
        let with = sum.saturating_sub(before).saturating_add(now);
        if now > before && self.limit.most.is_some_and(|most| with > most) {
            return Err(with);
        }
        *sum = with;
        Ok(())
    }
}

/// By type, label and owner, and called as a copy of what it says is.
fn is_ours(owner: &str, secret: &Secret) -> bool {
    let label = |key: &str| secret.metadata.labels.as_ref().and_then(|it| it.get(key)).map(String::as_str);
    secret.type_.as_deref() == Some(TYPE)
        && label(MANAGED_BY) == Some(MANAGER)
        && label(OWNER) == Some(owner)
        && source(secret).is_some()
}

fn source(secret: &Secret) -> Option<ObjectRef> {
    let annotation = secret.metadata.annotations.as_ref()?.get(SOURCE)?;
    source_of(annotation, secret.metadata.name.as_deref()?)
}

fn new(owner: &str, object: &ObjectRef, name: String, data: BTreeMap<String, ByteString>) -> Secret {
    let labels = [(MANAGED_BY, MANAGER), (OWNER, owner)].map(|(key, it)| (key.to_owned(), it.to_owned()));
    let source = format!("{}/{}", object.namespace, object.name);
    let metadata = ObjectMeta {
        name: Some(name),
        labels: Some(labels.into()),
        annotations: Some([(SOURCE.to_owned(), source)].into()),
        ..ObjectMeta::default()
    };
    Secret { metadata, type_: Some(TYPE.to_owned()), data: Some(data), ..Secret::default() }
}

/// What a certificate consists of, or users with hashes of their passwords, and nothing else that its Secret may hold.
fn data(certificate: &Certificate) -> BTreeMap<String, ByteString> {
    let mut data = BTreeMap::new();
    let mut put = |key: &str, bytes: &[u8]| {
        if !bytes.is_empty() {
            data.insert(key.to_owned(), ByteString(bytes.to_vec()));
        }
    };
    put("tls.crt", certificate.chain.as_bytes());
    put("tls.key", certificate.key.expose_secret().as_bytes());
    put("ca.crt", certificate.authorities.as_bytes());
    put("auth", certificate.users.expose_secret().as_bytes());
    put("tls.ocsp-staple", certificate.staple.as_deref().unwrap_or_default());
    data
}

fn bytes(data: &BTreeMap<String, ByteString>) -> u64 {
    data.values().map(|it| it.0.len() as u64).sum()
}

#[cfg(test)]
mod tests {
    use seaway_model::Kind;

    use super::*;

    fn plan(owner: &str, wanted: &DesiredCopies, there: &CopiesByName) -> CopyPlan {
        super::plan(owner, wanted, there, CopyLimit { most: None, configured: &BTreeSet::new() })
    }

    const US: &str = "uid-of-seaway-system";

    fn object(name: &str) -> ObjectRef {
        ObjectRef::new(Kind::Secret, "shop", name)
    }

    fn certificate(chain: &str) -> Option<Arc<Certificate>> {
        let key = if chain.is_empty() { "" } else { "key" };
        let (key, authorities) = (key.to_owned().into(), "ca".into());
        Some(Arc::new(Certificate {
            chain: chain.into(),
            key,
            authorities,
            staple: None,
            users: String::new().into(),
        }))
    }

    fn wanted(all: &[(&str, Option<Arc<Certificate>>)]) -> DesiredCopies {
        all.iter().map(|(name, it)| (object(name), it.clone())).collect()
    }

    fn name(secret: &Secret) -> String {
        secret.metadata.name.clone().expect("has a name")
    }

    fn there(secrets: Vec<Secret>) -> CopiesByName {
        secrets.into_iter().map(|it| (name(&it), it)).collect()
    }

    fn keys(secret: &Secret) -> Vec<&str> {
        secret.data.iter().flatten().map(|(key, _)| key.as_str()).collect()
    }

    fn is_nothing(plan: &CopyPlan) -> bool {
        plan.create.is_empty()
            && plan.replace.is_empty()
            && plan.unnamed.is_empty()
            && plan.foreign.is_empty()
            && plan.too_long.is_empty()
            && plan.beyond.is_empty()
    }

    #[test]
    fn what_is_named_is_copied_once_with_what_certificates_consist_of() {
        let named = wanted(&[("tls", certificate("chain")), ("ca", certificate(""))]);
        let plan_of = plan(US, &named, &CopiesByName::new());
        assert_eq!(plan_of.create.iter().map(name).collect::<Vec<_>>(), ["shop.ca", "shop.tls"]);
        assert_eq!(keys(&plan_of.create[0]), ["ca.crt"]);
        assert_eq!(keys(&plan_of.create[1]), ["ca.crt", "tls.crt", "tls.key"]);
        assert!(plan_of.replace.is_empty() && plan_of.unnamed.is_empty());
        assert!(
            is_nothing(&plan(US, &named, &there(plan_of.create))),
            "once it is there, nothing is to be done"
        );
    }

    #[test]
    fn users_are_copied_too_and_emptied_where_they_are_emptied() {
        let users = |text: &str| {
            let certificate = certificate("").map(|it| Certificate::clone(&it)).expect("one");
            let users = text.to_owned().into();
            Some(Arc::new(Certificate { authorities: "".into(), users, ..certificate }))
        };
        let made = plan(US, &wanted(&[("users", users("alice:x"))]), &CopiesByName::new()).create;
        assert_eq!(keys(&made[0]), ["auth"]);
        let emptied = plan(US, &wanted(&[("users", users(""))]), &there(made));
        assert_eq!(keys(&emptied.replace[0]), [""; 0], "hosts let nobody in");
    }

    #[test]
    fn a_renewed_certificate_replaces_its_copy_by_its_version() {
        let mut copies = plan(US, &wanted(&[("tls", certificate("old"))]), &CopiesByName::new()).create;
        copies[0].metadata.resource_version = Some("7".to_owned());
        let plan = plan(US, &wanted(&[("tls", certificate("new"))]), &there(copies));
        let replaced = &plan.replace[0];
        assert_eq!(replaced.metadata.resource_version.as_deref(), Some("7"));
        assert_eq!(replaced.data.as_ref().expect("data")["tls.crt"].0, b"new");
        assert!(plan.create.is_empty() && plan.unnamed.is_empty());
    }

    #[test]
    fn a_copy_stays_while_it_is_named_though_its_source_cannot_be_seen() {
        let copies = plan(US, &wanted(&[("tls", certificate("chain"))]), &CopiesByName::new()).create;
        let vanished = wanted(&[("tls", None)]);
        assert!(is_nothing(&plan(US, &vanished, &there(copies.clone()))));
        assert!(is_nothing(&plan(US, &vanished, &CopiesByName::new())), "and none is made of nothing");
        assert_eq!(plan(US, &DesiredCopies::new(), &there(copies)).unnamed, ["shop.tls"]);
    }

    #[test]
    fn a_secret_that_is_not_ours_is_neither_replaced_nor_deleted() {
        let ours = plan(US, &wanted(&[("tls", certificate("other"))]), &CopiesByName::new()).create.remove(0);
        let with = |change: &dyn Fn(&mut Secret)| {
            let mut secret = ours.clone();
            change(&mut secret);
            secret
        };
        let named = wanted(&[("tls", certificate("chain"))]);
        for foreign in [
            with(&|it| it.type_ = Some("Opaque".to_owned())),
            with(&|it| it.metadata.labels = None),
            with(&|it| it.metadata.annotations = None),
            with(&|it| {
                it.metadata.labels.get_or_insert_default().insert(OWNER.to_owned(), "another".to_owned());
            }),
            with(&|it| {
                let labels = it.metadata.labels.get_or_insert_default();
                labels.insert(MANAGED_BY.to_owned(), "Helm".to_owned());
            }),
            with(&|it| {
                let annotations = it.metadata.annotations.get_or_insert_default();
                annotations.insert(SOURCE.to_owned(), "shop/other".to_owned());
            }),
        ] {
            let there = there(vec![foreign]);
            let plan_of = plan(US, &named, &there);
            assert_eq!(plan_of.foreign, [object("tls")]);
            assert!(plan_of.create.is_empty() && plan_of.replace.is_empty() && plan_of.unnamed.is_empty());
            assert!(is_nothing(&plan(US, &DesiredCopies::new(), &there)), "it is not deleted either");
        }
    }

    #[test]
    fn a_name_that_is_too_long_is_told() {
        let long = "x".repeat(250);
        let plan = plan(US, &wanted(&[(&long, certificate("chain"))]), &CopiesByName::new());
        assert_eq!(plan.too_long, [object(&long)]);
        assert!(plan.create.is_empty());
    }

    /// Ten bytes: three of the key, two of `ca.crt`, and five.
    fn ten(chain: &str) -> Option<Arc<Certificate>> {
        certificate(&format!("{chain:5}"))
    }

    #[test]
    fn a_namespace_has_no_more_copied_than_it_may_and_what_is_copied_stays() {
        let of = |namespace: &str, name: &str| ObjectRef::new(Kind::Secret, namespace, name);
        let none = BTreeSet::new();
        let with =
            |wanted: &DesiredCopies, there: &CopiesByName, most: u64, configured: &BTreeSet<ObjectRef>| {
                super::plan(US, wanted, there, CopyLimit { most: Some(most), configured })
            };
        let created = |plan: &CopyPlan| plan.create.iter().map(name).collect::<Vec<_>>();
        let beyond = |plan: &CopyPlan| {
            let all = plan.beyond.iter();
            all.map(|it| (it.object.to_string(), it.bytes, it.is_there)).collect::<Vec<_>>()
        };
        let mut named: DesiredCopies = [("shop", "b"), ("shop", "c"), ("shop", "d"), ("tea", "a")]
            .map(|(at, it)| (of(at, it), ten(it)))
            .into();
        let first = with(&named, &CopiesByName::new(), 20, &none);
        assert_eq!(created(&first), ["shop.b", "shop.c", "tea.a"]);
        assert_eq!(beyond(&first), [("Secret shop/d".to_owned(), 30, false)]);
        let copies = there(first.create);
        // One that comes before them by its name takes nothing from those that are there; nor does a lower limit.
        named.insert(of("shop", "a"), ten("a"));
        for (most, bytes) in [(20, 30), (5, 30), (0, 30)] {
            let later = with(&named, &copies, most, &none);
            let expected = [("Secret shop/a", bytes, false), ("Secret shop/d", bytes, false)];
            assert_eq!(
                beyond(&later),
                expected.map(|(it, bytes, is_there)| (it.to_owned(), bytes, is_there))
            );
            assert!(later.create.is_empty() && later.replace.is_empty() && later.unnamed.is_empty());
        }
        // A renewed one replaces its copy also where nothing fits any more, unless it has grown.
        named.insert(of("shop", "b"), ten("b-new"));
        named.insert(of("shop", "c"), certificate("larger"));
        let renewed = with(&named, &copies, 5, &none);
        assert_eq!(renewed.replace.iter().map(name).collect::<Vec<_>>(), ["shop.b"]);
        assert!(beyond(&renewed).contains(&("Secret shop/c".to_owned(), 21, true)), "{:?}", beyond(&renewed));
        // What the configuration names is copied, and counts for nobody; what nobody names makes room.
        named.remove(&of("shop", "c"));
        let configured = with(&named, &copies, 20, &[of("shop", "d")].into());
        assert_eq!(
            (created(&configured), configured.unnamed),
            (vec!["shop.a".into(), "shop.d".into()], vec!["shop.c".into()])
        );
    }
}
