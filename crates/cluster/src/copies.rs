//! Copies of certificates: hosts read these, and no other Secret of the cluster.
//!
//! ```text
//!     Secret shop/tls ─► controllers ─► CopyWriter: Secret seaway-certificates/shop.tls ─► hosts: Secret shop/tls
//! ```
//! The leader copies what is named, one Secret each, into one namespace, and deletes a copy when nothing names it. A host
//! turns a copy back into what it is a copy of, so nothing but its watch knows of copies. Of a Secret only what
//! certificates consist of is copied. The type is our own: no other program takes a copy for a certificate of its own.

mod plan;
mod writer;

use seaway_manifests::tree::{Node, Value};
use seaway_model::{Kind, Name, ObjectRef, fact::TLS_SECRET};

pub use self::writer::{CopyTimings, CopyWriter, NamedCertificates};
use crate::raw_object::RawObject;

/// The `type` of copies.
const TYPE: &str = "seaway.dev/certificate-copy";
/// What hosts ask for.
pub(crate) const COPY_SELECTOR: &str = "type=seaway.dev/certificate-copy";
/// An annotation: the namespace and the name of what it is a copy of.
const SOURCE: &str = "seaway.dev/copy-of";
/// A label: the UID of the namespace of the Seaway that made it.
const OWNER: &str = "seaway.dev/copied-by";
/// Names of objects are not longer.
const LONGEST_NAME: usize = 253;

/// The name of the copy. A namespace has no dot in its name, so no two Secrets have one name of a copy. Nothing, where
/// that would be too long.
pub(crate) fn name_of_copy(object: &ObjectRef) -> Option<String> {
    let name = format!("{}.{}", object.namespace, object.name);
    (name.len() <= LONGEST_NAME).then_some(name)
}

/// What an annotation says, if the copy is called as a copy of that is.
fn source_of(annotation: &str, name: &str) -> Option<ObjectRef> {
    let (namespace, source) = annotation.split_once('/')?;
    let object = ObjectRef::new(Kind::Secret, namespace, source);
    (name_of_copy(&object).as_deref() == Some(name)).then_some(object)
}

/// A copy, as what it is a copy of; nothing, if it does not say of what.
pub(crate) fn original_of_copy(copy: RawObject) -> Option<RawObject> {
    if copy.tree.child("type").is_none_or(|it| it.value != Value::Text(TYPE.to_owned())) {
        return None;
    }
    let annotations = copy.tree.child("metadata")?.child("annotations")?;
    let Value::Text(annotation) = &annotations.child(SOURCE)?.value else { return None };
    let source = source_of(annotation, copy.name())?;
    let is_pair = copy.tree.child("data").is_some_and(|it| it.child("tls.crt").is_some());
    Some(copy.renamed(&source.namespace, &source.name, if is_pair { TLS_SECRET } else { "Opaque" }))
}

impl RawObject {
    fn renamed(mut self, namespace: &Name, name: &Name, kind: &str) -> RawObject {
        if let Some(metadata) = child_mut(&mut self.tree, "metadata") {
            set(metadata, "namespace", namespace);
            set(metadata, "name", name);
        }
        set(&mut self.tree, "type", kind);
        self.set_name(namespace, name);
        self
    }
}

fn child_mut<'n>(node: &'n mut Node, key: &str) -> Option<&'n mut Node> {
    match &mut node.value {
        Value::Map(entries) => entries.iter_mut().find(|it| it.key == key).map(|it| &mut it.value),
        _ => None,
    }
}

fn set(node: &mut Node, key: &str, text: &str) {
    if let Some(child) = child_mut(node, key) {
        child.value = Value::Text(text.to_owned());
    }
}

#[cfg(test)]
mod tests {
    use seaway_model::Fact;

    use super::*;
    use crate::decode::{self, DecodeOutcome, tests::told};

    fn secret(namespace: &str, name: &str) -> ObjectRef {
        ObjectRef::new(Kind::Secret, namespace, name)
    }

    fn copy(name: &str, source: &str, data: &str) -> RawObject {
        told(&format!(
            r#"{{"type": "{TYPE}", "metadata": {{"namespace": "copies", "name": "{name}", "resourceVersion": "7",
                "annotations": {{"{SOURCE}": "{source}"}}}}, "data": {{{data}}}}}"#
        ))
    }

    #[test]
    fn copies_of_two_secrets_never_have_one_name() {
        let names = [("a", "b.c"), ("a", "b-c"), ("a-b", "c"), ("a.b", "c")];
        let name = |(namespace, name): (&str, &str)| name_of_copy(&secret(namespace, name));
        assert_eq!(name(names[0]).as_deref(), Some("a.b.c"));
        assert_eq!(name(names[1]).as_deref(), Some("a.b-c"));
        assert_eq!(name(names[2]).as_deref(), Some("a-b.c"));
        // No API server has a namespace with a dot: a copy that claims to be of one is of none.
        assert_eq!(source_of("a/b.c", "a.b.c"), Some(secret("a", "b.c")));
        assert_eq!(name_of_copy(&secret("shop", &"x".repeat(249))), None);
        assert!(name_of_copy(&secret("shop", &"x".repeat(248))).is_some());
    }

    #[test]
    fn a_copy_is_read_as_what_it_is_a_copy_of() {
        let pair = r#""tls.crt": "Y2VydA==", "tls.key": "a2V5", "ca.crt": "Y2E=""#;
        for (data, kind) in [(pair, TLS_SECRET), (r#""ca.crt": "Y2E=""#, "Opaque")] {
            let original = original_of_copy(copy("shop.tls", "shop/tls", data)).expect("it is a copy");
            assert_eq!((original.namespace(), original.name(), original.version()), ("shop", "tls", "7"));
            let DecodeOutcome::Fact(Fact::Secret(read)) = decode::read(Kind::Secret, &original) else {
                panic!("is a Secret")
            };
            assert_eq!((&read.object, read.kind.as_str()), (&secret("shop", "tls"), kind));
            assert_eq!(read.values.len(), data.matches(':').count());
        }
    }

    #[test]
    fn what_does_not_say_of_what_it_is_a_copy_is_none() {
        for (name, source) in
            [("shop.tls", "shop/other"), ("shop.tls", "shop.tls"), ("shop.tls", ""), ("else", "shop/tls")]
        {
            assert!(original_of_copy(copy(name, source, "")).is_none(), "{name} {source}");
        }
        let other = r#"{"type": "Opaque", "metadata": {"name": "a.b", "annotations": {"seaway.dev/copy-of": "a/b"}}}"#;
        assert!(original_of_copy(told(other)).is_none(), "it is of another type");
    }
}
