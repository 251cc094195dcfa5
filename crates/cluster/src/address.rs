//! Address objects: what they are called, and how an Address is read and written.
//!
//! ```yaml
//! apiVersion: seaway.dev/v1alpha1
//! kind: Address
//! metadata:
//!   name: 192-0-2-7
//!   annotations:
//!     seaway.dev/withdrawn-at: '2026-11-21T00:10:00Z'   # only while its pool excludes it
//!     seaway.dev/port-conflicts: '{"5d0c…":["80/TCP"]}'  # ports that an owner lacks, as another owner has them
//! spec:
//!   address: 192.0.2.7
//!   pool: public
//!   sharing: web                  # absent, if it is not shared
//!   planVersion: 1
//!   state: Held                   # or Releasing
//!   owners:
//!   - {kind: Service, namespace: default, name: shop, uid: 5d0c…}
//!   - {config: 'tcpServices[0]'}
//! ```

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
    sync::Arc,
};

use jiff::Timestamp;
use seaway_manifests::decode::Field;
use seaway_model::{Address, AddressState, Kind, L4, ListenerId, ObjectRef, Owner, Time};
use serde_json::{Map, Value, json};

use crate::kinds::{API_GROUP, API_VERSION};

/// When the address is withdrawn, as its pool excludes it: the next leader goes on with that time. An annotation, for older
/// definitions keep it, too.
const ENDS: &str = "seaway.dev/withdrawn-at";
/// Ports that owners lack, by their uids (or what the configuration calls them). An annotation for the same reason.
const CONFLICTS: &str = "seaway.dev/port-conflicts";
/// Whose addresses are written down.
const OWNERS: [(&str, Kind); 2] = [("HTTPRoute", Kind::HTTPRoute), ("Service", Kind::Service)];
const STATES: [(&str, AddressState); 2] =
    [("Held", AddressState::Held), ("Releasing", AddressState::Releasing)];

/// The expanded address, written with dashes: one address has one name.
pub(crate) fn name(ip: IpAddr) -> String {
    match ip {
        IpAddr::V4(ip) => ip.octets().map(|it| it.to_string()).join("-"),
        IpAddr::V6(ip) => ip.segments().map(|it| format!("{it:04x}")).join("-"),
    }
}

#[allow(clippy::indexing_slicing, reason = "an object that was made here: a key that it lacks is added")]
pub(crate) fn write(address: &Address, version: Option<&str>) -> Value {
    let mut metadata = json!({ "name": name(address.ip) });
    if let Some(version) = version {
        metadata["resourceVersion"] = version.into();
    }
    let ends = address.ends.and_then(time_text).map(|it| (ENDS.to_owned(), it.into()));
    let conflicts = (!address.conflicts.is_empty())
        .then(|| (CONFLICTS.to_owned(), conflicts(&address.conflicts).to_string().into()));
    let annotations: Map<String, Value> = ends.into_iter().chain(conflicts).collect();
    if !annotations.is_empty() {
        metadata["annotations"] = annotations.into();
    }
    let mut spec = json!({
        "address": address.ip,
        "pool": address.pool,
        "planVersion": address.plan_version,
        "state": state(address.state),
        "owners": address.owners.iter().map(owner).collect::<Vec<_>>(),
    });
    if let Some(sharing) = &address.sharing {
        spec["sharing"] = json!(sharing);
    }
    json!({
        "apiVersion": format!("{API_GROUP}/{API_VERSION}"),
        "kind": "Address",
        "metadata": metadata,
        "spec": spec,
    })
}

fn conflicts(conflicts: &[(Owner, ListenerId)]) -> Value {
    let mut by_owner: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    for (owner, port) in conflicts {
        by_owner.entry(key(owner)).or_default().push(port.to_string());
    }
    json!(by_owner)
}

/// What cannot be read is none: whoever leads writes it anew.
fn read_conflicts(text: &str, owners: &[Owner]) -> Vec<(Owner, ListenerId)> {
    let by_owner: BTreeMap<String, Vec<String>> = serde_json::from_str(text).unwrap_or_default();
    let of = |owner: &Owner| {
        let ports = by_owner.get(key(owner)).into_iter().flatten();
        let ports: BTreeSet<ListenerId> = ports.filter_map(|it| read_port(it)).collect();
        ports.into_iter().map(|it| (owner.clone(), it)).collect::<Vec<_>>()
    };
    owners.iter().flat_map(of).collect()
}

/// `80/TCP`.
fn read_port(text: &str) -> Option<ListenerId> {
    let (port, l4) = text.split_once('/')?;
    let l4 = [L4::Tcp, L4::Udp, L4::Sctp].into_iter().find(|it| it.as_str() == l4)?;
    Some(ListenerId { l4, port: port.parse().ok()? })
}

fn key(owner: &Owner) -> &str {
    match owner {
        Owner::Object { uid, .. } => uid,
        Owner::Config(key) => key,
    }
}

pub(crate) fn time_text(time: Time) -> Option<String> {
    Timestamp::from_millisecond(i64::try_from(time.0).ok()?).ok().map(|it| it.to_string())
}

pub(crate) fn read_time(text: &str) -> Option<Time> {
    let time: Timestamp = text.parse().ok()?;
    u64::try_from(time.as_millisecond()).ok().map(Time)
}

fn state(state: AddressState) -> &'static str {
    STATES.iter().find(|(_, it)| *it == state).map_or("Held", |(word, _)| word)
}

fn owner(owner: &Owner) -> Value {
    match owner {
        Owner::Object { object, uid } => json!({
            "kind": object.kind.as_str(),
            "namespace": object.namespace,
            "name": object.name,
            "uid": uid,
        }),
        Owner::Config(key) => json!({ "config": key }),
    }
}

pub(crate) fn read(root: &Field<'_>) -> Option<Arc<Address>> {
    let spec = root.child("spec");
    let ip = spec.child("address").ip();
    let (metadata, pool) = (root.child("metadata"), spec.child("pool"));
    let named = metadata.child("name");
    if let (Some(ip), Some(written)) = (ip, named.name())
        && written != name(ip)
    {
        named.invalid(written, &format!("must be {:?}, which is the address with dashes", name(ip)));
    }
    let owners = spec.child("owners");
    let owners: Vec<Owner> = owners.items().filter_map(|item| read_owner(&item)).collect();
    let annotations = metadata.child("annotations");
    let state = spec.child("state").one_of(&STATES).unwrap_or(AddressState::Held);
    let plan_version = spec.child("planVersion").integer_within(1, i64::from(u32::MAX)).unwrap_or(1);
    for field in [&spec.child("address"), &pool] {
        if field.is_missing() {
            field.required("");
        }
    }
    Some(Arc::new(Address {
        ip: ip?,
        pool: pool.name()?.into(),
        sharing: spec.child("sharing").name().map(Into::into),
        conflicts: annotations
            .child(CONFLICTS)
            .name()
            .map(|it| read_conflicts(it, &owners))
            .unwrap_or_default(),
        owners,
        plan_version,
        state,
        ends: annotations.child(ENDS).name().and_then(read_time),
        version: metadata.child("resourceVersion").name().and_then(|it| it.parse().ok()).unwrap_or_default(),
    }))
}

fn read_owner(item: &Field<'_>) -> Option<Owner> {
    if let Some(key) = item.child("config").name() {
        return Some(Owner::Config(key.into()));
    }
    let word = |key| {
        let field = item.child(key);
        if field.is_missing() {
            field.required("");
        }
        field.name().map(str::to_owned)
    };
    let kind_field = item.child("kind");
    if kind_field.is_missing() {
        kind_field.required("");
    }
    let kind = kind_field.one_of(&OWNERS);
    let (namespace, name, uid) = (word("namespace"), word("name"), word("uid"));
    Some(Owner::Object { object: ObjectRef::new(kind?, namespace?, name?), uid: uid?.into() })
}

#[cfg(test)]
pub(crate) mod tests {
    use seaway_manifests::{decode::ValidationErrors, tree::Node};

    use super::*;

    pub(crate) fn address(ip: &str) -> Address {
        Address {
            ip: ip.parse().expect("an address"),
            pool: "public".into(),
            sharing: Some("web".into()),
            owners: vec![
                Owner::Object { object: ObjectRef::new(Kind::Service, "default", "shop"), uid: "u1".into() },
                Owner::Config("tcpServices[0]".into()),
            ],
            plan_version: 1,
            ends: Some(Time(1_795_219_200_123)),
            conflicts: vec![(Owner::Config("tcpServices[0]".into()), ListenerId { l4: L4::Tcp, port: 80 })],
            state: AddressState::Releasing,
            version: 0,
        }
    }

    fn read_back(json: &Value) -> Result<Arc<Address>, Vec<String>> {
        let node: Node = serde_json::from_value(json.clone()).expect("is a tree");
        let faults = ValidationErrors::default();
        let read = read(&Field::root(&node, &faults));
        let faults: Vec<String> = faults.into_sorted().iter().map(ToString::to_string).collect();
        read.filter(|_| faults.is_empty()).ok_or(faults)
    }

    #[test]
    fn an_address_is_named_by_itself_and_reads_back_as_it_was_written() {
        for (ip, wanted) in
            [("192.0.2.7", "192-0-2-7"), ("2001:db8::7", "2001-0db8-0000-0000-0000-0000-0000-0007")]
        {
            let address = address(ip);
            let written = write(&address, None);
            assert_eq!(written["metadata"]["name"], wanted);
            let ends = &written["metadata"]["annotations"]["seaway.dev/withdrawn-at"];
            assert_eq!(ends, "2026-11-21T00:00:00.123Z");
            let conflicts = &written["metadata"]["annotations"]["seaway.dev/port-conflicts"];
            assert_eq!(conflicts, r#"{"tcpServices[0]":["80/TCP"]}"#);
            assert_eq!(read_back(&written), Ok(Arc::new(address)));
        }
        let plain = Address {
            sharing: None,
            owners: Vec::new(),
            state: AddressState::Held,
            ends: None,
            conflicts: Vec::new(),
            ..address("::1")
        };
        let read = read_back(&write(&plain, Some("7"))).expect("is an address");
        assert_eq!((&*read, read.version), (&plain, 7));
    }

    #[test]
    fn what_is_no_address_of_ours_is_told_by_field() {
        let mut written = write(&address("192.0.2.7"), None);
        written["metadata"]["name"] = "192-0-2-8".into();
        written["spec"]["owners"][0]["kind"] = "Pod".into();
        written["spec"]["state"] = "Lost".into();
        let told = read_back(&written).expect_err("is refused");
        let fields: Vec<&str> = told.iter().filter_map(|it| it.split(": ").next()).collect();
        assert_eq!(fields, ["metadata.name", "spec.owners[0].kind", "spec.state"]);
        assert_eq!(
            read_back(&json!({"metadata": {"name": "x"}, "spec": {}})).expect_err("is refused").len(),
            2
        );
    }
}
