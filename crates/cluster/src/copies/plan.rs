//! Which copies are to be written, and which nothing names: computed from what is named and what is there.

use std::{collections::BTreeMap, sync::Arc};

use k8s_openapi::{ByteString, api::core::v1::Secret, apimachinery::pkg::apis::meta::v1::ObjectMeta};
use seaway_model::{ObjectRef, load_balancer::Certificate};
use secrecy::ExposeSecret;

use super::{OWNER, SOURCE, TYPE, name_of_copy, source_of};
use crate::connect::MANAGER;

const MANAGED_BY: &str = "app.kubernetes.io/managed-by";

/// Copies by their names.
pub(super) type There = BTreeMap<String, Secret>;
/// What is named, with what it holds. Nothing: that is not known, or not any more; a copy of it stays as it is.
pub(super) type Wanted = BTreeMap<ObjectRef, Option<Arc<Certificate>>>;

#[derive(Default)]
pub(super) struct Plan {
    pub(super) create: Vec<Secret>,
    /// With the version that each replaces.
    pub(super) replace: Vec<Secret>,
    /// Ours, and nothing names them.
    pub(super) unnamed: Vec<String>,
    /// A Secret that is not ours has the name of the copy.
    pub(super) foreign: Vec<ObjectRef>,
    /// No name is long enough.
    pub(super) too_long: Vec<ObjectRef>,
}

/// `owner`: the UID by which copies of ours are known.
pub(super) fn plan(owner: &str, wanted: &Wanted, there: &There) -> Plan {
    let mut plan = Plan::default();
    for (object, certificate) in wanted {
        let Some(name) = name_of_copy(object) else {
            plan.too_long.push(object.clone());
            continue;
        };
        let Some(certificate) = certificate else { continue };
        let data = data(certificate);
        match there.get(&name) {
            None => plan.create.push(new(owner, object, name, data)),
            Some(it) if !is_ours(owner, it) => plan.foreign.push(object.clone()),
            Some(it) if it.data.as_ref().is_some_and(|it| *it == data) => {}
            Some(it) => plan.replace.push(Secret { data: Some(data), ..it.clone() }),
        }
    }
    let of = |it: &Secret| source(it).filter(|_| is_ours(owner, it));
    let unnamed = there.iter().filter(|(_, it)| of(it).is_some_and(|source| !wanted.contains_key(&source)));
    plan.unnamed = unnamed.map(|(name, _)| name.clone()).collect();
    plan
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

/// What a certificate consists of, and nothing else that its Secret may hold.
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
    put("tls.ocsp-staple", certificate.staple.as_deref().unwrap_or_default());
    data
}

#[cfg(test)]
mod tests {
    use seaway_model::Kind;

    use super::*;

    const US: &str = "uid-of-seaway-system";

    fn object(name: &str) -> ObjectRef {
        ObjectRef::new(Kind::Secret, "shop", name)
    }

    fn certificate(chain: &str) -> Option<Arc<Certificate>> {
        let key = if chain.is_empty() { "" } else { "key" };
        let (key, authorities) = (key.to_owned().into(), "ca".into());
        Some(Arc::new(Certificate { chain: chain.into(), key, authorities, staple: None }))
    }

    fn wanted(all: &[(&str, Option<Arc<Certificate>>)]) -> Wanted {
        all.iter().map(|(name, it)| (object(name), it.clone())).collect()
    }

    fn name(secret: &Secret) -> String {
        secret.metadata.name.clone().expect("has a name")
    }

    fn there(secrets: Vec<Secret>) -> There {
        secrets.into_iter().map(|it| (name(&it), it)).collect()
    }

    fn keys(secret: &Secret) -> Vec<&str> {
        secret.data.iter().flatten().map(|(key, _)| key.as_str()).collect()
    }

    fn is_nothing(plan: &Plan) -> bool {
        plan.create.is_empty()
            && plan.replace.is_empty()
            && plan.unnamed.is_empty()
            && plan.foreign.is_empty()
            && plan.too_long.is_empty()
    }

    #[test]
    fn what_is_named_is_copied_once_with_what_certificates_consist_of() {
        let named = wanted(&[("tls", certificate("chain")), ("ca", certificate(""))]);
        let plan_of = plan(US, &named, &There::new());
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
    fn a_renewed_certificate_replaces_its_copy_by_its_version() {
        let mut copies = plan(US, &wanted(&[("tls", certificate("old"))]), &There::new()).create;
        copies[0].metadata.resource_version = Some("7".to_owned());
        let plan = plan(US, &wanted(&[("tls", certificate("new"))]), &there(copies));
        let replaced = &plan.replace[0];
        assert_eq!(replaced.metadata.resource_version.as_deref(), Some("7"));
        assert_eq!(replaced.data.as_ref().expect("data")["tls.crt"].0, b"new");
        assert!(plan.create.is_empty() && plan.unnamed.is_empty());
    }

    #[test]
    fn a_copy_stays_while_it_is_named_though_its_source_cannot_be_seen() {
        let copies = plan(US, &wanted(&[("tls", certificate("chain"))]), &There::new()).create;
        let vanished = wanted(&[("tls", None)]);
        assert!(is_nothing(&plan(US, &vanished, &there(copies.clone()))));
        assert!(is_nothing(&plan(US, &vanished, &There::new())), "and none is made of nothing");
        assert_eq!(plan(US, &Wanted::new(), &there(copies)).unnamed, ["shop.tls"]);
    }

    #[test]
    fn a_secret_that_is_not_ours_is_neither_replaced_nor_deleted() {
        let ours = plan(US, &wanted(&[("tls", certificate("other"))]), &There::new()).create.remove(0);
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
            assert!(is_nothing(&plan(US, &Wanted::new(), &there)), "it is not deleted either");
        }
    }

    #[test]
    fn a_name_that_is_too_long_is_told() {
        let long = "x".repeat(250);
        let plan = plan(US, &wanted(&[(&long, certificate("chain"))]), &There::new());
        assert_eq!(plan.too_long, [object(&long)]);
        assert!(plan.create.is_empty());
    }
}
