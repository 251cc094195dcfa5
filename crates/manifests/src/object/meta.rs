//! An object's metadata: its name, its labels, and the annotations that somebody here honours.

use seaway_model::{
    Kind, Name, Time,
    fact::{Labels, Meta},
};
use sha2::{Digest, Sha256};

use super::formats;
use crate::decode::Field;

/// Prefixes of annotations that `plan` has a meaning for; all others are dropped at the edge.
pub const ANNOTATION_PREFIXES: &[&str] = &[
    "seaway.dev/",
    "serviceloadbalancer/lb.",
    "metallb.io/",
    "metallb.universe.tf/",
    "kube-vip.io/",
    "lbipam.cilium.io/",
    "io.cilium/",
    "loadbalancer.openstack.org/",
    "service.beta.kubernetes.io/",
    "service.kubernetes.io/",
    "haproxy.org/",
    "external-dns.alpha.kubernetes.io/",
];

/// All annotations of an object together, as the API server bounds them.
const ANNOTATIONS_BYTES: usize = 256 << 10;

pub(super) struct NameRules {
    pub(super) kind: Kind,
    pub(super) namespaced: bool,
    pub(super) rule: fn(&str) -> Vec<String>,
}

pub(super) fn read(root: &Field<'_>, naming: &NameRules) -> Option<Meta> {
    let metadata = root.child("metadata");
    let name_field = metadata.child("name");
    let name = name_field.name();
    match name {
        Some(name) => check_rule(&name_field, name, naming.rule),
        None if name_field.is_missing() => name_field.required("name or generateName is required"),
        None => {}
    }
    let namespace_field = metadata.child("namespace");
    let namespace = match (naming.namespaced, namespace_field.name()) {
        (true, namespace) => {
            let namespace = namespace.unwrap_or("default");
            check_rule(&namespace_field, namespace, formats::dns1123_label);
            namespace
        }
        (false, Some(_)) => {
            namespace_field.forbidden("not allowed on this type");
            ""
        }
        (false, None) => "",
    };
    let labels = labels(&metadata.child("labels"));
    let annotations = annotations(&metadata.child("annotations"));
    let created = created(&metadata.child("creationTimestamp"));
    let name = name?;
    let written = metadata.child("uid").name().map(Name::from);
    Some(Meta {
        namespace: namespace.into(),
        name: name.into(),
        uid: written.unwrap_or_else(|| uid(naming.kind, namespace, name)),
        created,
        labels,
        annotations,
    })
}

/// A uid that stays the same as long as kind, namespace and name do, on every machine.
pub fn uid(kind: Kind, namespace: &str, name: &str) -> Name {
    let mut hash = Sha256::new();
    for part in ["seaway", kind.as_str(), namespace, name] {
        hash.update(part.as_bytes());
        hash.update([0]);
    }
    let hash: [u8; 32] = hash.finalize().into();
    // RFC 9562: version 8, made by a rule of one's own.
    uuid(*hash.first_chunk().unwrap_or(&[0; 16]), 8).into()
}

/// Sixteen bytes as a UUID writes them, with its version and variant put in.
pub fn uuid(bytes: [u8; 16], version: u8) -> String {
    let [a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p] = bytes;
    let (g, i) = ((g & 0x0f) | (version << 4), (i & 0x3f) | 0x80);
    format!(
        "{:08x}-{:04x}-{:04x}-{:04x}-{:012x}",
        u32::from_be_bytes([a, b, c, d]),
        u16::from_be_bytes([e, f]),
        u16::from_be_bytes([g, h]),
        u16::from_be_bytes([i, j]),
        u64::from_be_bytes([0, 0, k, l, m, n, o, p])
    )
}

/// Reports each thing that a rule finds wrong with a value.
pub(super) fn check_rule(field: &Field<'_>, value: &str, rule: impl Fn(&str) -> Vec<String>) {
    for why in rule(value) {
        field.invalid(value, &why);
    }
}

/// Labels, or a selector made of them.
pub(super) fn labels(field: &Field<'_>) -> Labels {
    let mut labels = Labels::new();
    for (key, value) in field.entries() {
        check_rule(&value, key, formats::qualified_name);
        // An empty value may be written as none at all.
        let text = value.text().unwrap_or_default();
        check_rule(&value, text, formats::label_value);
        labels.insert(key.into(), text.into());
    }
    labels
}

fn annotations(field: &Field<'_>) -> Labels {
    let mut annotations = Labels::new();
    let mut bytes = 0;
    for (key, value) in field.entries() {
        check_rule(&value, key, |key| formats::qualified_name(&key.to_lowercase()));
        let text = value.text().unwrap_or_default();
        bytes = key.len().saturating_add(text.len()).saturating_add(bytes);
        if ANNOTATION_PREFIXES.iter().any(|prefix| key.starts_with(prefix)) {
            annotations.insert(key.into(), text.into());
        }
    }
    if bytes > ANNOTATIONS_BYTES {
        field.too_long(ANNOTATIONS_BYTES);
    }
    annotations
}

fn created(field: &Field<'_>) -> Option<Time> {
    let text = field.name()?;
    match text.parse::<jiff::Timestamp>() {
        Ok(moment) => u64::try_from(moment.as_millisecond()).ok().map(Time),
        Err(_) => {
            field.invalid(text, "must be a time as RFC 3339 writes it (e.g. 2026-01-31T12:00:00Z)");
            None
        }
    }
}

#[cfg(test)]
mod tests {
    use seaway_model::Fact;

    use super::*;
    use crate::object::tests::{facts, faults};

    fn meta(text: &str) -> Meta {
        match facts(text).remove(0) {
            Fact::Service(service) => service.meta.clone(),
            other => panic!("{other:?}"),
        }
    }

    const SERVICE: &str =
        "apiVersion: v1\nkind: Service\nspec: {ports: [{port: 80}]}\nmetadata:\n  name: a\n";

    #[test]
    fn what_an_api_server_fills_in_is_filled_in() {
        let plain = meta(SERVICE);
        assert_eq!((plain.namespace.as_str(), plain.created), ("default", None));
        assert_eq!(plain.uid, uid(Kind::Service, "default", "a"));
        assert_eq!(plain.uid.len(), 36);
        assert_ne!(plain.uid, uid(Kind::Service, "default", "b"));
        let full = meta(&format!(
            "{SERVICE}  uid: abc\n  namespace: x\n  creationTimestamp: 1970-01-01T00:00:01Z\n"
        ));
        assert_eq!(
            (full.uid.as_str(), full.namespace.as_str(), full.created),
            ("abc", "x", Some(Time(1000)))
        );
        assert_eq!(meta(&format!("{SERVICE}  creationTimestamp: null\n")).created, None);
    }

    #[test]
    fn annotations_are_trimmed_to_those_that_somebody_honours() {
        let meta = meta(&format!("{SERVICE}  annotations: {{metallb.io/address-pool: p, other.io/x: z}}\n"));
        assert_eq!(meta.annotations.len(), 1);
    }

    #[test]
    fn bad_names_and_labels_are_told_where_they_stand() {
        let told = faults(&format!(
            "{SERVICE}  namespace: A\n  labels:\n    -x: z\n    ok: a b\n    n: 5\n  annotations:\n    t: true\n"
        ));
        let starts = [
            "6 metadata.namespace: Invalid value: \"A\": a lowercase RFC 1123 label must",
            "8 metadata.labels[-x]: Invalid value: \"-x\": name part must consist",
            "9 metadata.labels[ok]: Invalid value: \"a b\": a valid label must",
            "10 metadata.labels[n]: Invalid value: 5: must be a string, in quotes",
            "12 metadata.annotations[t]: Invalid value: true: must be a string, in quotes",
        ];
        assert_eq!(told.len(), starts.len(), "{told:#?}");
        for (told, start) in told.iter().zip(starts) {
            assert!(told.starts_with(start), "{told}");
        }
        assert_eq!(
            faults("apiVersion: v1\nkind: Service\nspec: {ports: [{port: 80}]}\n"),
            ["1 metadata.name: Required value: name or generateName is required"]
        );
    }
}
