//! What an object says, trimmed to a fact; and what of a Service our own writing is compared with.

use seaway_manifests::{
    FINALIZER, OWN_FINALIZER,
    decode::{Field, ValidationError, ValidationErrors},
    object::{SOURCE_RANGES, read_accepted},
    tree::{Node, Value},
};
use seaway_model::{
    Fact, Kind, Name, ObjectRef, Problem, Reason, announced::ConditionStatus,
    fact::unsupported_announcement_problem,
};

use crate::{
    address,
    connect::MANAGER,
    host, metallb, name_owner,
    object_cache::{Condition, Ingress, Port, PublishedService, ServiceFinalizers, Version},
    raw_object::RawObject,
    status::{ADDRESS, BALANCER, PREFIX},
};

/// How an object was decoded.
#[derive(Debug)]
pub(crate) enum DecodeOutcome {
    Fact(Fact),
    /// The parts that are understood; the others are left out.
    Partial(Fact, Vec<Problem>),
    /// It is not for us.
    Ignored,
    /// No part of it is used.
    Invalid(ObjectRef, Vec<Problem>),
}

pub(crate) fn read(kind: Kind, told: &RawObject) -> DecodeOutcome {
    let tree = &told.tree;
    let object = || ObjectRef::new(kind, told.namespace(), told.name());
    match kind {
        // A slice that belongs to no Service is somebody else's.
        Kind::EndpointSlice if label(tree, "kubernetes.io/service-name").is_none() => DecodeOutcome::Ignored,
        _ if metallb::is_announcement(kind) => {
            DecodeOutcome::Invalid(object(), vec![unsupported_announcement_problem(object())])
        }
        Kind::Address => judged(object(), tree, |root| address::read(root).map(Fact::Address)),
        Kind::LoadBalancerHost => judged(object(), tree, |root| host::read(root).map(Fact::Host)),
        Kind::NameOwner => judged(object(), tree, |root| name_owner::read(root).map(Fact::NameOwner)),
        _ => match read_accepted(kind, tree) {
            Some(Ok(read)) => match read.object.facts.into_iter().next() {
                None => DecodeOutcome::Ignored,
                Some(fact) if read.left_out.is_empty() => DecodeOutcome::Fact(fact),
                Some(fact) => DecodeOutcome::Partial(fact, left_out(&object(), read.left_out)),
            },
            Some(Err(broken)) => {
                let object = object();
                DecodeOutcome::Invalid(object.clone(), problems(&object, broken.errors))
            }
            None => DecodeOutcome::Ignored,
        },
    }
}

fn judged(object: ObjectRef, tree: &Node, read: impl Fn(&Field<'_>) -> Option<Fact>) -> DecodeOutcome {
    let faults = ValidationErrors::default();
    let fact = read(&Field::root(tree, &faults));
    match fact.filter(|_| faults.is_empty()) {
        Some(fact) => DecodeOutcome::Fact(fact),
        None => DecodeOutcome::Invalid(object.clone(), problems(&object, faults.into_sorted())),
    }
}

fn problems(object: &ObjectRef, faults: Vec<ValidationError>) -> Vec<Problem> {
    let told = |ValidationError { field, message, .. }| {
        Problem::new(object.clone(), Reason::Invalid, message)
            .at(field)
            .fix("The last good state of the object stays in use until this is corrected.")
    };
    faults.into_iter().map(told).collect()
}

fn left_out(object: &ObjectRef, faults: Vec<ValidationError>) -> Vec<Problem> {
    let told = |ValidationError { field, message, .. }| {
        let (what, fix) = if field.starts_with(SOURCE_RANGES) {
            (
                "no client may connect until this is corrected, and in a cloud nothing is created or changed",
                "Write networks as 192.0.2.0/24 or 2001:db8::/32. The rest of the object is followed.",
            )
        } else {
            (
                "Seaway does not know this field and ignores it",
                "The API server accepted it: upgrade Seaway. The rest of the object is followed.",
            )
        };
        let message = format!("{what}: {message}");
        Problem::new(object.clone(), Reason::Invalid, message).at(field).fix(fix)
    };
    faults.into_iter().map(told).collect()
}

/// What a Service says of itself, and who else says so.
pub(crate) fn published(told: &RawObject) -> PublishedService {
    let status = told.tree.child("status");
    let ingress = status.and_then(|it| it.child("loadBalancer")?.child("ingress"));
    let ingress = list(ingress).filter_map(|it| {
        let at = name(it, "ip").or_else(|| name(it, "hostname"))?;
        Some(Ingress { at, mode: name(it, "ipMode"), ports: ports(it) })
    });
    let conditions = list(status.and_then(|it| it.child("conditions"))).filter_map(|it| {
        let kind = name(it, "type").filter(|kind| kind.starts_with(PREFIX))?;
        Some(Condition {
            kind,
            status: ConditionStatus::of(text(it, "status").unwrap_or_default()),
            reason: name(it, "reason").unwrap_or_default(),
            message: name(it, "message").unwrap_or_default(),
            since: name(it, "lastTransitionTime").unwrap_or_default(),
        })
    });
    let (mut ours, mut shared, mut other) = (false, false, None);
    for entry in list(told.tree.child("metadata").and_then(|it| it.child("managedFields"))) {
        let Some(manager) = name(entry, "manager") else { continue };
        let status = entry.child("fieldsV1").and_then(|it| it.child("f:status"));
        match (status, &*manager == MANAGER) {
            (Some(status), true) => (ours, shared) = (true, shared || writes_addresses(status)),
            (Some(status), false) if writes_addresses(status) => other = Some(manager),
            _ => {}
        }
    }
    let annotations = told.tree.child("metadata").and_then(|it| it.child("annotations"));
    PublishedService {
        address: annotations.and_then(|it| name(it, ADDRESS)),
        balancer: annotations.and_then(|it| name(it, BALANCER)),
        uid: told.uid().into(),
        version: Version(told.version().into()),
        ingress: ingress.collect(),
        conditions: conditions.collect(),
        ours,
        held: held_by(told),
        shared: shared && other.is_some(),
        other,
    }
}

fn held_by(told: &RawObject) -> ServiceFinalizers {
    let metadata = told.tree.child("metadata");
    let holds = |finalizer| {
        list(metadata.and_then(|it| it.child("finalizers")))
            .any(|it| matches!(&it.value, Value::Text(text) if text == finalizer))
    };
    let written = format!("v:\"{FINALIZER}\"");
    let is_by_us = |entry: &Node| {
        let finalizers = entry
            .child("fieldsV1")
            .and_then(|it| it.child("f:metadata"))
            .and_then(|it| it.child("f:finalizers"));
        text(entry, "manager") == Some(MANAGER) && finalizers.is_some_and(|it| it.child(&written).is_some())
    };
    ServiceFinalizers {
        own: holds(OWN_FINALIZER),
        common: holds(FINALIZER),
        common_is_ours: list(metadata.and_then(|it| it.child("managedFields"))).any(is_by_us),
        class: told.tree.child("spec").is_some_and(|it| text(it, "loadBalancerClass").is_some()),
        leaving: metadata.is_some_and(|it| it.child("deletionTimestamp").is_some()),
    }
}

fn ports(ingress: &Node) -> Vec<Port> {
    let read = |it: &Node| match it.child("port")?.value {
        Value::Int(port) => Some(Port { port, protocol: name(it, "protocol")?, error: name(it, "error") }),
        _ => None,
    };
    list(ingress.child("ports")).filter_map(read).collect()
}

/// Whoever takes its addresses back leaves an empty `f:loadBalancer` behind.
fn writes_addresses(status: &Node) -> bool {
    status.child("f:loadBalancer").is_some_and(|it| it.child("f:ingress").is_some())
}

fn label<'n>(tree: &'n Node, key: &str) -> Option<&'n str> {
    text(tree.child("metadata")?.child("labels")?, key).filter(|it| !it.is_empty())
}

fn name(node: &Node, key: &str) -> Option<Name> {
    text(node, key).map(Name::from)
}

fn text<'n>(node: &'n Node, key: &str) -> Option<&'n str> {
    match &node.child(key)?.value {
        Value::Text(text) => Some(text),
        _ => None,
    }
}

fn list(node: Option<&Node>) -> impl Iterator<Item = &Node> {
    let items: &[Node] = match node.map(|it| &it.value) {
        Some(Value::List(items)) => items,
        _ => &[],
    };
    items.iter()
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    pub(crate) fn told(json: &str) -> RawObject {
        serde_json::from_str(json).expect("is an object")
    }

    #[test]
    fn an_object_that_cannot_be_read_is_told_by_field() {
        let told = told(r#"{"metadata": {"name": "a"}, "spec": {"addresses": ["here"]}}"#);
        let DecodeOutcome::Invalid(object, problems) = read(Kind::AddressPool, &told) else {
            panic!("is refused")
        };
        assert_eq!(object, ObjectRef::new(Kind::AddressPool, "", "a"));
        assert_eq!(&*problems[0].field, "spec.addresses[0]");
        assert!(problems[0].place.is_none(), "there is no file");
    }

    #[test]
    fn a_service_that_the_api_server_accepted_is_followed_whatever_we_make_of_it() {
        let told = told(
            r#"{"metadata": {"name": "a", "namespace": "x"}, "spec": {"type": "LoadBalancer", "ports": [
                {"name": "new", "port": 443, "protocol": "QUIC"}, {"name": "web", "port": 8080}]}}"#,
        );
        let DecodeOutcome::Partial(Fact::Service(service), problems) = read(Kind::Service, &told) else {
            panic!("it is followed")
        };
        assert_eq!(service.ports.iter().map(|it| it.port).collect::<Vec<_>>(), [8080]);
        assert_eq!((problems.len(), &*problems[0].field), (1, "spec.ports[0].protocol"));
        assert!(problems[0].fix.contains("upgrade Seaway"), "{:?}", problems[0]);
    }

    #[test]
    fn a_slice_of_no_service_is_nobodys_mistake() {
        let orphan = told(r#"{"metadata": {"name": "a", "namespace": "x"}, "addressType": "IPv4"}"#);
        assert!(matches!(read(Kind::EndpointSlice, &orphan), DecodeOutcome::Ignored));
    }

    #[test]
    fn a_status_tells_who_wrote_it() {
        let told = told(
            r#"{"metadata": {"name": "a", "namespace": "x", "uid": "u", "resourceVersion": "7", "managedFields": [
                {"manager": "kubectl", "operation": "Update", "fieldsV1": {"f:spec": {}}},
                {"manager": "metallb", "operation": "Update", "subresource": "status",
                 "fieldsV1": {"f:status": {"f:loadBalancer": {"f:ingress": {}}}}}]},
                "status": {"loadBalancer": {"ingress": [{"ip": "192.0.2.1", "ipMode": "VIP"}]},
                "conditions": [{"type": "other.io/x", "status": "True"}]}}"#,
        );
        let read = published(&told);
        assert_eq!((read.ours, read.other.as_deref()), (false, Some("metallb")));
        assert_eq!(
            read.ingress,
            [Ingress { at: "192.0.2.1".into(), mode: Some("VIP".into()), ..Ingress::default() }]
        );
        assert!(read.conditions.is_empty());
    }
}
