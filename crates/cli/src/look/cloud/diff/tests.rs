use std::{collections::BTreeMap, net::SocketAddr};

use seaway_drivers::octavia::{
    Observed, Step,
    groups::rules::Rule,
    steps::{Branch, ObservedLoadBalancer, ObservedMember},
    wanted::WantedFloating,
};
use seaway_model::L4;
use seaway_openstack::{
    octavia::{
        Algorithm, ListenerChange, LoadBalancerChange, NewMember, Operating, PoolChange, PoolProtocol,
        Protocol,
    },
    resource::{Fields, View},
};

use super::*;

const ID: &str = "0a4f3f5e-0000-4000-8000-000000000001";
const OTHER: &str = "0a4f3f5e-0000-4000-8000-000000000002";
const PORT_80: ListenerId = ListenerId { l4: L4::Tcp, port: 80 };

fn read<V: View>(told: Value) -> V {
    V::read(Fields::of(told).unwrap()).unwrap()
}

fn seat(operating: Operating, terms: Option<(u16, Option<u16>)>) -> ObservedMember {
    ObservedMember { operating, terms }
}

/// One listener with a pool of three members, of which a status tree told two.
fn there() -> Observed {
    let listener = json!({
        "id": ID, "protocol": "TCP", "protocol_port": 80, "connection_limit": -1, "default_pool_id": ID,
        "allowed_cidrs": ["0.0.0.0/0"],
    });
    let pool = json!({"id": ID, "protocol": "TCP", "lb_algorithm": "ROUND_ROBIN"});
    let at = |last: u8| SocketAddr::from(([10, 0, 0, last], 30_080));
    let members = BTreeMap::from([
        (at(1), seat(Operating::Online, None)),
        (at(2), seat(Operating::Draining, None)),
        (at(3), seat(Operating::Online, Some((1, None)))),
    ]);
    let pool = PoolBranch { pool: read(pool), monitor: None, members };
    let branches = BTreeMap::from([(PORT_80, Branch { listener: read(listener), pool: Some(pool) })]);
    let balancer = read(json!({"id": ID, "name": "shop", "tags": ["mine"], "vip_port_id": OTHER}));
    Observed {
        balancer: Some(ObservedLoadBalancer::new(balancer, (branches, BTreeMap::new()), BTreeMap::new())),
        ..Observed::default()
    }
}

fn told(step: &Step) -> (&'static str, String, Action, Vec<String>) {
    let diff = step.describe(&there(), &[]);
    assert_eq!(diff.text, step.to_string());
    let line = |it: &FieldChange| format!("{}: {} -> {}", it.field, it.from, it.to);
    (diff.kind, diff.object, diff.action, diff.changes.iter().map(line).collect())
}

#[test]
fn a_change_says_of_each_field_what_it_was() {
    let change = ListenerChange {
        connection_limit: Edit::To(Some(100)),
        allowed_cidrs: Edit::To(Some(vec!["192.0.2.0/24".to_owned()])),
        ..ListenerChange::default()
    };
    let (kind, object, action, changes) = told(&Step::ChangeListener(PORT_80, Box::new(change)));
    assert_eq!((kind, object.as_str(), action), (LISTENER, "80/TCP", Change));
    assert_eq!(
        changes,
        [r#"allowed_cidrs: ["0.0.0.0/0"] -> ["192.0.2.0/24"]"#, "connection_limit: -1 -> 100"]
    );
    let change = PoolChange { lb_algorithm: Edit::To(Algorithm::LeastConnections), ..PoolChange::default() };
    let (.., changes) = told(&Step::ChangePool(PORT_80, Box::new(change)));
    assert_eq!(changes, [r#"lb_algorithm: "ROUND_ROBIN" -> "LEAST_CONNECTIONS""#]);
    let change = LoadBalancerChange {
        tags: Edit::To(["mine", "ours"].map(str::to_owned).into()),
        ..LoadBalancerChange::default()
    };
    let (kind, object, _, changes) = told(&Step::Change(Box::new(change)));
    assert_eq!((kind, object.as_str()), (BALANCER, ID));
    assert_eq!(changes, [r#"tags: ["mine"] -> ["mine","ours"]"#]);
}

#[test]
fn members_that_are_written_all_at_once_are_told_one_by_one_and_those_that_stay_are_not() {
    let member = |last: u8, weight: Edit<Option<u16>>| NewMember {
        weight,
        ..NewMember::new(std::net::IpAddr::from([10, 0, 0, last]), 30_080u16)
    };
    let wanted = vec![
        member(1, Edit::Leave),
        member(2, Edit::Leave),
        member(3, Edit::To(Some(0))),
        member(4, Edit::Leave),
    ];
    let (kind, _, action, changes) = told(&Step::SetMembers(PORT_80, wanted));
    assert_eq!((kind, action), (MEMBER, Change));
    let terms = |weight: &str, port: &str| format!(r#"{{"monitor_port":{port},"weight":{weight}}}"#);
    let unknown = terms(r#""unknown""#, r#""unknown""#);
    assert_eq!(
        changes,
        [
            format!("members[10.0.0.2:30080]: {unknown} -> {}", terms("1", "null")),
            format!("members[10.0.0.3:30080]: {} -> {}", terms("1", "null"), terms("0", "null")),
            format!("members[10.0.0.4:30080]: null -> {}", terms("1", "null")),
        ]
    );
    let (.., changes) =
        told(&Step::SetMembers(PORT_80, vec![member(1, Edit::Leave), member(2, Edit::To(Some(0)))]));
    assert_eq!(changes, [format!("members[10.0.0.3:30080]: {} -> null", terms("1", "null"))]);
    // Those of a new pool are all new.
    let spare = Step::AddSpare(PORT_80, Box::new(NewPool::new(PoolProtocol::Proxy, Algorithm::RoundRobin)));
    let diff = Step::SetMembers(PORT_80, vec![member(1, Edit::Leave)]).describe(&there(), &[spare]);
    assert!(diff.changes.len() == 1 && diff.changes[0].from.is_null(), "{diff:?}");
}

#[test]
fn what_is_new_is_told_with_all_that_is_below_it() {
    let new = NewListener {
        name: "web".into(),
        default_pool: NewPool::new(PoolProtocol::Tcp, Algorithm::RoundRobin).into(),
        ..NewListener::new(Protocol::Tcp, 443u16)
    };
    let new = NewLoadBalancer { name: "shop".into(), listeners: vec![new].into(), ..NewLoadBalancer::new() };
    let (kind, object, action, changes) = told(&Step::Create(Box::new(new)));
    assert_eq!((kind, object.as_str(), action), (BALANCER, "shop", Create));
    assert_eq!(
        changes,
        [
            r#"listeners[0].default_pool.lb_algorithm: null -> "ROUND_ROBIN""#,
            r#"listeners[0].default_pool.protocol: null -> "TCP""#,
            r#"listeners[0].name: null -> "web""#,
            r#"listeners[0].protocol: null -> "TCP""#,
            "listeners[0].protocol_port: null -> 443",
            r#"name: null -> "shop""#,
        ]
    );
}

#[test]
fn floating_ips_tags_and_what_goes_are_told() {
    let floating = WantedFloating {
        description: "of shop".to_owned(),
        formerly: Vec::new(),
        network: None,
        subnet: None,
        requested: Some(std::net::IpAddr::from([203, 0, 113, 9])),
        tags: Default::default(),
        moves: false,
        keep: false,
    };
    let (kind, object, action, changes) = told(&Step::AddFloating(floating));
    assert_eq!((kind, object.as_str(), action), (FLOATING, "203.0.113.9", Associate));
    assert_eq!(
        changes,
        [r#"description: null -> "of shop""#, r#"floating_ip_address: null -> "203.0.113.9""#]
    );
    let (.., changes) = told(&Step::Join(["ours".to_owned()].into()));
    assert_eq!(changes, [r#"tags: ["mine"] -> ["mine","ours"]"#]);
    let (.., changes) = told(&Step::SwitchListenerPool(PORT_80));
    assert_eq!(changes, [format!(r#"default_pool_id: "{ID}" -> "the new pool""#)]);
    let (kind, object, action, changes) = told(&Step::Delete(ID.parse().unwrap()));
    assert_eq!((kind, object.as_str(), action, changes.len()), (BALANCER, ID, Delete, 0));
}

#[test]
fn security_groups_are_told_by_their_rules_and_by_the_ports_that_get_them() {
    let port: Port = read(json!({"id": ID, "network_id": ID, "security_groups": [OTHER]}));
    let group: SecurityGroup = read(json!({"id": ID, "name": "ours"}));
    let there = groups::Observed {
        group: Some(group),
        ports: BTreeMap::from([(port.id.clone(), port)]),
        ..groups::Observed::default()
    };
    let rule = Rule { l4: L4::Tcp, port: 30_080, from: "10.0.0.0/24".parse().unwrap() };
    let diff = groups::Step::Open(rule, "ours".to_owned()).describe(&there, &[]);
    assert_eq!((diff.kind, diff.object.as_str(), diff.action), (RULE, "30080/TCP from 10.0.0.0/24", Create));
    let diff = groups::Step::Attach(ID.parse().unwrap(), "node".into()).describe(&there, &[]);
    assert_eq!((diff.kind, diff.action), (PORT, Change));
    assert_eq!(diff.changes, [FieldChange::new("security_groups", json!([OTHER]), json!([OTHER, ID]))]);
    let diff = groups::Step::Release(ID.parse().unwrap(), vec![OTHER.parse().unwrap()]).describe(&there, &[]);
    assert_eq!(diff.changes, [FieldChange::new("security_groups", json!([OTHER]), json!([]))]);
}
