//! What a real cloud has answered (`tests/bodies`), and what it might answer: every parser understands the one, and
//! is an error, never a panic, for the other.

use std::{collections::BTreeSet, fs, path::PathBuf};

use seaway_testkit::mutate::{self, Xorshift};
use serde_json::{Value, json};

use crate::{
    Class, Error, Reply, Service, barbican, neutron, nova, octavia, quota,
    resource::{Resource, View, decode_object, one_page},
};

type Parser = fn(Value) -> Result<(), Error>;

const BODIES: [(&str, Parser); 51] = [
    ("octavia-loadbalancer", one::<octavia::LoadBalancer>),
    ("octavia-loadbalancer_whole", one::<octavia::LoadBalancer>),
    ("octavia-loadbalancers", many::<octavia::LoadBalancer>),
    ("octavia-loadbalancers_fields", many::<octavia::LoadBalancer>),
    ("octavia-listener", one::<octavia::Listener>),
    ("octavia-listeners", many::<octavia::Listener>),
    ("octavia-pool", one::<octavia::Pool>),
    ("octavia-pools", many::<octavia::Pool>),
    ("octavia-member", one::<octavia::Member>),
    ("octavia-members", many::<octavia::Member>),
    ("octavia-healthmonitor", one::<octavia::HealthMonitor>),
    ("octavia-healthmonitors", many::<octavia::HealthMonitor>),
    ("octavia-l7policy", one::<octavia::L7Policy>),
    ("octavia-l7policies", many::<octavia::L7Policy>),
    ("octavia-rule", one::<octavia::L7Rule>),
    ("octavia-rules", many::<octavia::L7Rule>),
    ("octavia-status", |body| octavia::read_tree(reply(body)).map(drop)),
    ("octavia-stats", |body| octavia::read_statistics(reply(body)).map(drop)),
    ("octavia-providers", many::<octavia::Provider>),
    ("octavia-flavor_capabilities", |body| octavia::read_capabilities(reply(body)).map(drop)),
    ("octavia-flavor", one::<octavia::Flavor>),
    ("octavia-flavors", many::<octavia::Flavor>),
    ("octavia-flavorprofiles", many::<octavia::FlavorProfile>),
    ("octavia-availability_zones", many::<octavia::AvailabilityZone>),
    ("octavia-quota", |body| quota::limits(Service::LoadBalancer, body).map(drop)),
    ("neutron-network", one::<neutron::Network>),
    ("neutron-networks", many::<neutron::Network>),
    ("neutron-subnet", one::<neutron::Subnet>),
    ("neutron-subnets", many::<neutron::Subnet>),
    ("neutron-port", one::<neutron::Port>),
    ("neutron-ports", many::<neutron::Port>),
    ("neutron-router", one::<neutron::Router>),
    ("neutron-routers", many::<neutron::Router>),
    ("neutron-add_extraroutes", one::<neutron::Router>),
    ("neutron-floatingip", one::<neutron::FloatingIp>),
    ("neutron-floatingips", many::<neutron::FloatingIp>),
    ("neutron-security_group", one::<neutron::SecurityGroup>),
    ("neutron-security_groups", many::<neutron::SecurityGroup>),
    ("neutron-security_group_rule", one::<neutron::SecurityGroupRule>),
    ("neutron-security_group_rules", many::<neutron::SecurityGroupRule>),
    ("neutron-extensions", many::<neutron::Extension>),
    ("neutron-quota", |body| quota::limits(Service::Network, body).map(drop)),
    ("neutron-quota_details", |body| quota::usage(Service::Network, body).map(drop)),
    ("nova-server", one::<nova::Server>),
    ("nova-servers", many::<nova::Server>),
    ("nova-interfaceAttachment", one::<nova::Interface>),
    ("nova-interfaceAttachments", many::<nova::Interface>),
    ("barbican-secret", one::<barbican::Secret>),
    ("barbican-secrets", many::<barbican::Secret>),
    ("barbican-container", one::<barbican::Container>),
    ("barbican-containers", many::<barbican::Container>),
];

fn one<V: View>(body: Value) -> Result<(), Error> {
    decode_object::<V>(reply(body)).map(drop)
}

fn many<V: View>(body: Value) -> Result<(), Error> {
    let page = one_page::<V>(body)?;
    page.broken.first().map_or(Ok(()), |broken| Err(broken.as_error::<V::Resource>()))
}

fn reply(body: Value) -> Reply {
    Reply { status: 200, body, request_id: None }
}

fn folder() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/bodies")
}

fn body(name: &str) -> Value {
    let text = fs::read_to_string(folder().join(format!("{name}.json"))).expect("it was recorded");
    serde_json::from_str(&text).expect("it is JSON")
}

#[test]
fn what_a_real_cloud_answers_is_understood() {
    for (name, parser) in BODIES {
        if let Err(error) = parser(body(name)) {
            panic!("{name}: {error}");
        }
    }
    let parsed: BTreeSet<String> = BODIES.iter().map(|(name, _)| format!("{name}.json")).collect();
    let recorded = fs::read_dir(folder()).expect("the folder").map(|it| it.expect("an entry").file_name());
    for name in recorded.map(|it| it.to_string_lossy().into_owned()) {
        assert!(parsed.contains(&name), "{name} is read by no parser");
    }
}

#[test]
fn a_field_that_nobody_knows_is_kept_and_what_is_null_is_nothing() {
    let mut told = body("octavia-listener");
    told["listener"]["zero_rtt"] = json!({"max": 1});
    told["listener"]["protocol"] = json!("QUIC");
    for field in ["tags", "insert_headers", "sni_container_refs", "l7policies", "name"] {
        told["listener"][field] = Value::Null;
    }
    let listener: octavia::Listener = decode_object(reply(told)).expect("a listener of a later version");
    assert_eq!(listener.rest.get("zero_rtt"), Some(&json!({"max": 1})));
    assert_eq!(listener.protocol, octavia::Protocol::Other("QUIC".into()));
    assert!(listener.tags.is_empty() && listener.insert_headers.is_empty() && listener.name.is_empty());
    let again = serde_json::to_value(octavia::NewListener::like(&listener)).expect("a body");
    assert_eq!(again["protocol"], "QUIC");
}

#[test]
fn an_object_that_is_not_understood_spoils_nothing_but_itself() {
    let mut told = body("octavia-members");
    let id = told["members"][0]["id"].clone();
    told["members"][0]["protocol_port"] = json!("eighty");
    let page = one_page::<octavia::Member>(told).expect("a page");
    assert_eq!(page.items.len(), 1);
    let error = page.broken[0].as_error::<octavia::Member>();
    assert_eq!(error.class(), &Class::Strange);
    let line = error.to_string();
    for part in ["list members", "Octavia", id.as_str().expect("an id"), "protocol_port", "eighty"] {
        assert!(line.contains(part), "{part:?} is missing: {line}");
    }
}

/// Whatever stands in a place of a body, each parser ends, and its error is one that callers know.
#[test]
fn no_value_in_any_place_makes_a_parser_panic() {
    let awkward = [
        Value::Null,
        json!(true),
        json!(0),
        json!(-1),
        json!(u64::MAX),
        json!(1.5),
        json!(""),
        json!("x"),
        json!("../.."),
        json!([]),
        json!([null]),
        json!({}),
        json!([[[]]]),
    ];
    for (name, parser) in BODIES {
        let whole = body(name);
        for place in places(&whole) {
            for value in &awkward {
                let mut told = whole.clone();
                *told.pointer_mut(&place).expect("a place") = value.clone();
                held(name, parser, told);
            }
        }
    }
}

#[test]
fn no_damaged_body_makes_a_parser_panic() {
    mutate::hold(
        &folder(),
        1_500,
        |run| allocation_counter::measure(run).bytes_max,
        |bytes| {
            if let Ok(told) = serde_json::from_slice::<Value>(bytes) {
                for (name, parser) in BODIES {
                    held(name, parser, told.clone());
                }
            }
        },
    );
}

/// Parts of one body within another: the right shape at the wrong place.
#[test]
fn parts_of_other_bodies_make_no_parser_panic() {
    let bodies: Vec<Value> = BODIES.iter().map(|(name, _)| body(name)).collect();
    let mut dice = Xorshift::new(0x0c7a);
    for _ in 0..8_000 {
        let at = dice.below(BODIES.len());
        let (name, parser) = BODIES[at];
        let mut told = bodies[at].clone();
        let donor = &bodies[dice.below(bodies.len())];
        let from = places(donor);
        let to = places(&told);
        let part = donor.pointer(&from[dice.below(from.len())]).expect("a place").clone();
        *told.pointer_mut(&to[dice.below(to.len())]).expect("a place") = part;
        held(name, parser, told);
    }
}

fn held(name: &str, parser: Parser, told: Value) {
    if let Err(error) = parser(told) {
        assert_eq!(error.class(), &Class::Strange, "{name}: {error}");
    }
}

/// Pointers to all values of a body, itself among them.
fn places(value: &Value) -> Vec<String> {
    let mut all = vec![String::new()];
    let mut below = |key: &str, inner: &Value| {
        let key = key.replace('~', "~0").replace('/', "~1");
        all.extend(places(inner).into_iter().map(|it| format!("/{key}{it}")));
    };
    match value {
        Value::Object(map) => map.iter().for_each(|(key, inner)| below(key, inner)),
        Value::Array(list) => {
            list.iter().enumerate().for_each(|(at, inner)| below(&at.to_string(), inner));
        }
        _ => {}
    }
    all
}

#[test]
fn what_was_read_is_told_again_by_its_like() {
    for name in ["octavia-member", "octavia-pool", "octavia-healthmonitor"] {
        let told = body(name);
        let (key, again) = match name {
            "octavia-member" => again::<octavia::Member>(&told, |it| json!(octavia::NewMember::like(it))),
            "octavia-pool" => again::<octavia::Pool>(&told, |it| json!(octavia::NewPool::like(it))),
            _ => again::<octavia::HealthMonitor>(&told, |it| json!(octavia::NewHealthMonitor::like(it))),
        };
        for (field, value) in again.as_object().expect("a body") {
            assert_eq!(&without_nulls(value), &without_nulls(&told[key][field]), "{name}: {field}");
        }
    }
}

/// Without what is null.
fn without_nulls(value: &Value) -> Value {
    match value {
        Value::Object(map) => {
            map.iter().filter(|(_, it)| !it.is_null()).map(|(key, it)| (key.clone(), it.clone())).collect()
        }
        other => other.clone(),
    }
}

fn again<R: Resource>(told: &Value, like: fn(&R) -> Value) -> (&'static str, Value) {
    let it: R = decode_object(reply(told.clone())).expect("it was recorded");
    (R::NAMES.key.expect("Octavia wraps everything"), like(&it))
}
