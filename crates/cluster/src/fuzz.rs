//! What must hold for whatever an API server sends, and whoever writes objects there (`fuzz/README.md`).

#![allow(clippy::arithmetic_side_effects, clippy::expect_used, reason = "what is wrong ends the fuzz target")]

use std::collections::BTreeSet;

use seaway_manifests::{
    decode::{Field, ValidationErrors},
    object::{read_accepted, read_as},
};
use seaway_model::{
    Fact, Kind, ObjectRef, Problem, Reason,
    fact::{HostReport, HostStatus, UnservedAddress},
};
use serde_json::{Value, json};

use crate::{
    address,
    decode::{self, DecodeOutcome},
    host,
    kinds::WATCHED,
    raw_object::RawObject,
    status::PREFIX,
    watch::host_leases,
};

fn decode_object(bytes: &[u8]) -> Option<RawObject> {
    // An API server names every object.
    serde_json::from_slice(bytes).ok().filter(|it: &RawObject| !it.name().is_empty())
}

fn told_again(written: &Value) -> RawObject {
    decode_object(written.to_string().as_bytes()).expect("what we write is an object")
}

/// What is followed of an object. Where something is refused or left out, somebody is told what, and of which object.
fn followed(kind: Kind, object: &RawObject) -> Option<Fact> {
    let explained = |problems: &[Problem]| {
        let of = ObjectRef::new(kind, object.namespace(), object.name());
        assert!(!problems.is_empty(), "{of} is not followed, and nobody is told why");
        assert!(problems.iter().all(|it| it.object == of && !it.message.is_empty()), "{problems:?}");
    };
    match decode::read(kind, object) {
        DecodeOutcome::Fact(fact) => Some(fact),
        DecodeOutcome::Partial(fact, left_out) => {
            explained(&left_out);
            Some(fact)
        }
        DecodeOutcome::Invalid(_, problems) => {
            explained(&problems);
            None
        }
        DecodeOutcome::Ignored => None,
    }
}

/// Any object is a fact, or refused with reasons. What a strict reader understands is followed whole, and what a Service
/// says of its status is only what is there.
pub fn object(bytes: &[u8]) {
    let Some(object) = decode_object(bytes) else { return };
    for watched in &WATCHED {
        followed(watched.kind, &object);
        if let Some(Ok(strict)) = read_as(watched.kind, &object.tree) {
            let accepted = read_accepted(watched.kind, &object.tree).expect("the kind is known");
            let accepted = accepted.expect("what a manifest may say, an API server may, too");
            assert!(accepted.left_out.is_empty());
            assert!(accepted.object == strict || has_newer_rule(&accepted.object.facts));
        }
    }
    let published = decode::published(&object);
    assert!(published.conditions.iter().all(|it| it.kind.starts_with(PREFIX)), "a condition of others");
    assert!(!published.shared || published.ours && published.other.is_some(), "shared with nobody");
}

/// A field of a rule that nobody knows is a mistake in a manifest, and a newer definition's in a cluster.
fn has_newer_rule(facts: &[Fact]) -> bool {
    let unsupported = facts.iter().filter_map(|it| match it {
        Fact::HttpRoute(route) => Some(route.rules.iter().flat_map(|rule| &rule.unsupported)),
        _ => None,
    });
    unsupported.flatten().any(|it| it.what.contains("unknown field"))
}

/// An Address is refused with reasons, or is as we write it: by its name, with its owners, and of its version.
pub fn address(bytes: &[u8]) {
    let Some(object) = decode_object(bytes) else { return };
    let Some(Fact::Address(read)) = followed(Kind::Address, &object) else { return };
    assert_eq!(object.name(), address::name(read.ip), "one address has one name");
    let version = (read.version > 0).then(|| read.version.to_string());
    let again = told_again(&address::write(&read, version.as_deref()));
    assert_eq!(again.name(), object.name());
    let Some(Fact::Address(back)) = followed(Kind::Address, &again) else { panic!("{read:?} is refused") };
    // Of equal addresses versions may differ.
    assert_eq!((&back, back.version), (&read, read.version));
}

/// What a host says is refused with reasons, or reads back as a host writes it. Its addresses count as told to others only if
/// they were.
pub fn host(bytes: &[u8]) {
    let Some(object) = decode_object(bytes) else { return };
    let Some(Fact::Host(report)) = followed(Kind::LoadBalancerHost, &object) else { return };
    let faults = ValidationErrors::default();
    let seen =
        host::read_inspection(&Field::root(&object.tree, &faults), &report).expect("who reports is seen");
    let missing: BTreeSet<_> = seen.not_served.iter().map(|it| it.0).collect();
    assert_eq!(missing, report.not_served, "people see what the plan sees");
    let says = says(&report, seen.unlisted);
    for changed in [false, true] {
        let spec = match &report.declared {
            Some(addresses) => json!({ "drain": report.drain, "addresses": addresses }),
            None => json!({ "drain": report.drain }),
        };
        let again = told_again(&json!({
            "metadata": { "name": report.host },
            "spec": spec,
            "status": host::status(&seen.running, &says, changed),
        }));
        let Some(Fact::Host(back)) = followed(Kind::LoadBalancerHost, &again) else { panic!("{says:?}") };
        assert_eq!(back, report);
        let seen_again =
            host::read_inspection(&Field::root(&again.tree, &faults), &back).expect("who reports is seen");
        assert_eq!((seen_again.running, seen_again.unlisted), (seen.running.clone(), seen.unlisted));
        assert_eq!(host::announced_addresses(&again.tree), (!changed).then(|| report.addresses.clone()));
    }
}

fn says(report: &HostReport, unlisted: u64) -> HostStatus {
    let not_served = |address| UnservedAddress { address, reason: Reason::PortInUse, message: "why".into() };
    HostStatus {
        applied: report.applied,
        addresses: report.addresses.clone(),
        held: report.holds.iter().copied().collect(),
        not_served: report.not_served.iter().copied().map(not_served).collect(),
        unlisted: usize::try_from(unlisted).unwrap_or(usize::MAX),
        layer2: report.layer2.clone(),
        bgp: report.bgp.clone(),
    }
}

/// Of any list of Leases: a host lives, is silent or is gone by what its own Lease says, and by how long that was the same.
pub fn lease(bytes: &[u8]) {
    if let Ok(leases) = serde_json::from_slice::<Vec<_>>(bytes) {
        host_leases::fuzz_leases(&leases);
    }
}
