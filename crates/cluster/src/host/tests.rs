use seaway_model::{
    Name, Time,
    bgp::{BgpReport, BgpSessionState, PeerReport},
    fact::UnservedAddress,
    layer2::{Layer2Progress, Layer2State},
    reason::{ALL, Reason},
};

use super::*;

/// All that a status may have.
pub(crate) fn full() -> Value {
    status(&running(), &says(), true)
}

fn running() -> ProgramInfo {
    let page = StatusPage { namespace: "seaway-system".into(), pod: "seaway-x".into(), port: 1936 };
    ProgramInfo { version: "0.1".into(), page: Some(page) }
}

fn ip(text: &str) -> IpAddr {
    text.parse().expect("an address")
}

fn says() -> HostStatus {
    HostStatus {
        applied: 4711,
        addresses: vec![ip("10.0.0.1"), ip("fd00::1")],
        held: vec![ip("192.0.2.1")],
        not_served: vec![UnservedAddress {
            address: ip("192.0.2.2"),
            reason: Reason::PortInUse,
            message: "x".into(),
        }],
        unlisted: 3,
        layer2: [(ip("192.0.2.3"), layer2_state("eth0", "02:00:00:00:00:02"))].into(),
        bgp: bgp_report(1, 2, "the peer closed the connection"),
    }
}

fn bgp_report(peers: usize, routes: usize, detail: &str) -> BgpReport {
    let names: Vec<Name> = (0..peers).map(|at| format!("top-of-rack-switch-{at}").into()).collect();
    let peer = PeerReport {
        what: BgpSessionState::Failed,
        since: Time(1_795_219_200_123),
        sent: 1,
        resets: 2,
        remote_as: Some(4_200_000_000),
        bfd_up: Some(false),
        detail: detail.into(),
    };
    let prefix = |at| format!("{}/128", v6(at)).parse().expect("a network");
    BgpReport {
        peers: names.iter().map(|it| (it.clone(), peer.clone())).collect(),
        routes: (0..routes).map(|at| (prefix(at), names.iter().cloned().collect())).collect(),
    }
}

fn layer2_state(interface: &str, detail: &str) -> Layer2State {
    let (interface, detail) = (interface.into(), detail.into());
    Layer2State { what: Layer2Progress::Contested, interface, since: Time(1_795_219_200_123), detail }
}

/// What etcd takes, with some room for metadata and for who manages which field.
const ETCD: usize = 1_500_000 - 50_000;

fn v6(at: usize) -> IpAddr {
    IpAddr::from((0xfd00_1111_2222_3333_4444_5555_0000_0000 + at as u128).to_be_bytes())
}

/// The longest that a host of so many exceptions says; the plan names no more.
fn says_much(addresses: usize, message: &str) -> HostStatus {
    let listed = addresses.min(HostStatus::MAX_LISTED);
    let reason = Reason::PortInUse;
    let not_served =
        (0..listed).map(|at| UnservedAddress { address: v6(at), reason, message: message.into() });
    HostStatus {
        held: (0..listed).map(|at| v6(at + listed)).collect(),
        not_served: not_served.collect(),
        unlisted: 2 * (addresses - listed),
        layer2: (0..addresses.min(HostStatus::MAX_LAYER2))
            .map(|at| (v6(at), layer2_state("enp129s0f0np0.40", &"x".repeat(200))))
            .collect(),
        bgp: bgp_report(32, addresses.min(BgpReport::MAX_ROUTES), &"x".repeat(200)),
        ..says()
    }
}

#[test]
fn a_report_of_any_number_of_exceptions_is_below_what_etcd_takes() {
    let names = ALL.iter().flat_map(|(.., all)| *all).map(|it| it.name.len());
    let longer = names.max().expect("there are some") - Reason::PortInUse.as_str().len();
    for addresses in [0, 499, 501, 8_000, 10_000, 60_000] {
        for message in ["", "nginx listens there: stop it", &"\u{1}".repeat(1_000)] {
            let says = says_much(addresses, message);
            let written = status(&running(), &says, true);
            let length = written.to_string().len() + says.not_served.len() * longer;
            assert!(length < ETCD, "{addresses} with {} bytes: {length}", message.len());
            let object = json!({ "metadata": { "name": "a" }, "status": written });
            let node: Node = serde_json::from_value(object).expect("is a tree");
            let faults = ValidationErrors::default();
            let root = Field::root(&node, &faults);
            let report = read(&root).expect("is a host");
            let seen = read_inspection(&root, &report).expect("is seen");
            assert_eq!(report.applied, says.applied);
            assert!(report.holds.iter().eq(&says.held), "{addresses}");
            assert!(report.not_served.iter().eq(says.not_served.iter().map(|it| &it.address)));
            assert_eq!(seen.unlisted, says.unlisted as u64);
            assert!(seen.not_served.iter().all(|it| !it.1.is_empty()), "each has its reason");
            let with_message = seen.not_served.iter().take_while(|it| it.2.as_str() == message).count();
            let wanted = if message.len() < 100 { MESSAGES.min(addresses) } else { 30.min(addresses) };
            assert!(with_message >= wanted, "{addresses}: {with_message}");
            assert!(message.is_empty() || with_message <= MESSAGES);
        }
    }
}

#[test]
fn where_definitions_are_older_all_that_they_know_is_written() {
    let mut status = full();
    let unknown = ".status.addressesChanged: field not declared in schema";
    assert!(remove_unknown(&mut status, unknown) && status.get(CHANGED).is_none());
    assert!(!remove_unknown(&mut status, unknown), "it is not tried for ever");
    assert!(remove_unknown(&mut status, ".status.unlisted: field not declared in schema"));
    assert!(status.get(UNLISTED).is_none() && status.get("notServed").is_some());
    let before = status.clone();
    assert!(!remove_unknown(&mut status, ".status.notServed: Invalid value") && status == before);
}

#[test]
fn a_host_that_starts_again_tells_others_of_its_addresses_only_if_they_were_not_told() {
    let heard = |object: Value| announced_addresses(&serde_json::from_value(object).expect("is a tree"));
    let object = |changed| json!({ "status": status(&running(), &says(), changed) });
    assert_eq!(heard(object(false)), Some(says().addresses));
    assert_eq!(heard(object(true)), None, "the process before ended in the middle of it");
    assert_eq!(heard(json!({ "spec": {} })), None);
    assert_eq!(heard(json!({ "status": { "addresses": ["10.0.0.1", "x"] } })), None);
}

#[test]
fn of_what_a_host_reports_others_believe_what_people_wrote_down() {
    for (spec, own) in [
        (json!({}), vec![ip("10.0.0.1"), ip("fd00::1")]),
        (json!({ "addresses": ["fd00::1", "192.0.2.9"] }), vec![ip("fd00::1")]),
        (json!({ "addresses": [] }), vec![]),
    ] {
        let object = json!({ "metadata": { "name": "a" }, "spec": spec, "status": status(&running(), &says(), false) });
        let node: Node = serde_json::from_value(object).expect("is a tree");
        let report = read(&Field::root(&node, &ValidationErrors::default())).expect("is a host");
        assert_eq!(report.own_addresses(), own);
        assert_eq!((report.addresses.len(), report.declared.is_some()), (2, spec != json!({})));
    }
}

#[test]
fn what_a_host_says_reads_back() {
    let says = says();
    let object = json!({ "metadata": { "name": "a" }, "spec": { "drain": true }, "status": status(&running(), &says, false) });
    let node: Node = serde_json::from_value(object).expect("is a tree");
    let faults = ValidationErrors::default();
    let report = read(&Field::root(&node, &faults)).expect("is a host");
    assert!(faults.is_empty());
    assert_eq!(
        *report,
        HostReport {
            host: "a".into(),
            addresses: says.addresses,
            holds: says.held.into_iter().collect(),
            applied: 4711,
            not_served: [ip("192.0.2.2")].into(),
            drain: true,
            declared: None,
            epoch: 0,
            layer2: says.layer2,
            networks: Vec::new(),
            bgp: says.bgp,
        }
    );
}
