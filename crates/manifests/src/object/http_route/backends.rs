//! Where a rule leads: ports of Services, by weight.

use seaway_model::{
    Name,
    fact::{BackendRef, UnsupportedField},
};

use super::{refuse, schema};
use crate::{decode::Field, object::formats};

const MOST_WEIGHT: i64 = 1_000_000;

pub(super) fn read(
    list: &Field<'_>,
    namespace: &Name,
    unsupported: &mut Vec<UnsupportedField>,
) -> Vec<(BackendRef, u32)> {
    schema::at_most_items(list, 16);
    let mut backends = Vec::new();
    for item in list.items() {
        let weight = item.child("weight").integer_within(0, MOST_WEIGHT).unwrap_or(1);
        let filters = item.child("filters");
        if filters.items().len() > 0 {
            refuse(&filters, "a filter for one backend", unsupported);
        }
        backends.extend(one(&item, namespace, unsupported).map(|backend| (backend, weight)));
    }
    backends
}

/// A port of a Service. Other kinds are valid, and not supported.
pub(super) fn one(
    field: &Field<'_>,
    namespace: &Name,
    unsupported: &mut Vec<UnsupportedField>,
) -> Option<BackendRef> {
    let name = schema::text(&field.child("name"), 253);
    let (group, kind) = (field.child("group"), field.child("kind"));
    let written = (group.name().unwrap_or_default(), kind.name().unwrap_or("Service"));
    let port = field.child("port").port();
    let there = field.child("namespace");
    let elsewhere = there.name();
    if let Some(namespace) = elsewhere {
        super::super::meta::check_rule(&there, namespace, formats::dns1123_label);
    }
    if written != ("", "Service") {
        let at = if kind.is_set() { &kind } else { &group };
        refuse(at, "a backend that is not a Service", unsupported);
        return None;
    }
    schema::require(field, field.child("port").is_set(), "Must have port for Service reference");
    Some(BackendRef {
        namespace: elsewhere.map_or_else(|| namespace.clone(), Name::from),
        service: name?.into(),
        port: port?,
        field: field.path().into(),
    })
}
