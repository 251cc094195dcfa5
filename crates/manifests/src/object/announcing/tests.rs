use std::time::Duration;

use seaway_model::{
    bgp::{PeerAddress, PeerDistance, PeerFamilies, RemoteAs},
    fact::{BgpPeer, CommunityValue},
};

use super::*;
use crate::object::{
    read_accepted,
    tests::{facts, faults, read_text},
};

const OURS: &str = "apiVersion: seaway.dev/v1alpha1\n";

fn says(text: &str) -> AnnouncementSpec {
    match facts(text).remove(0) {
        Fact::Announcing(it) => Arc::unwrap_or_clone(it).says,
        other => panic!("{other:?}"),
    }
}

fn of(kind: &str, spec: &str) -> String {
    format!("{OURS}kind: {kind}\nmetadata: {{name: a}}\nspec: {spec}\n")
}

fn of_metallb(kind: &str, spec: &str) -> String {
    let version = if kind == "BGPPeer" { "v1beta2" } else { "v1beta1" };
    format!(
        "apiVersion: metallb.io/{version}\nkind: {kind}\nmetadata: {{name: a, namespace: metallb-system}}\nspec: {spec}\n"
    )
}

fn peer(spec: &str) -> BgpPeer {
    match says(&of("BGPPeer", spec)) {
        AnnouncementSpec::BgpPeer(peer) => peer,
        other => panic!("{other:?}"),
    }
}

#[test]
fn ours_and_those_of_metallb_say_the_same_in_their_words() {
    let ours = "{addressPools: [p], addressPoolSelectors: [{matchLabels: {a: b}}], serviceSelectors: [{matchLabels: {c: d}}], \
                hostSelectors: [{matchLabels: {e: f}}], interfaces: [eth0, bond0.100]}";
    let theirs = ours.replace("addressPool", "ipAddressPool").replace("hostSelectors", "nodeSelectors");
    let read = says(&of("L2Advertisement", ours));
    let AnnouncementSpec::L2Advertisement(it) = &read else { panic!("{read:?}") };
    assert_eq!((it.scope.pools.len(), it.scope.pool_selectors.len(), it.interfaces.len()), (1, 1, 2));
    assert_eq!((it.scope.service_selectors.len(), it.scope.host_selectors.len()), (1, 1));
    assert_eq!(read, says(&of_metallb("L2Advertisement", &theirs)));

    let ours = "{addressPools: [p], hostSelectors: [{matchLabels: {e: f}}], peers: [tor], aggregationLength: 28, \
                aggregationLengthV6: 64, localPref: 200, communities: ['64512:100', 'large:64512:1:2', no-export]}";
    let theirs = ours.replace("addressPools", "ipAddressPools").replace("hostSelectors", "nodeSelectors");
    let read = says(&of("BGPAdvertisement", ours));
    let AnnouncementSpec::BgpAdvertisement(it) = &read else { panic!("{read:?}") };
    assert_eq!(
        (it.aggregation_v4, it.aggregation_v6, it.local_pref, it.med),
        (Some(28), Some(64), Some(200), None)
    );
    assert_eq!(
        it.communities,
        [
            CommunityRef::Value(CommunityValue::Standard(64_512 << 16 | 100)),
            CommunityRef::Value(CommunityValue::Large([64_512, 1, 2])),
            CommunityRef::Name("no-export".into()),
        ]
    );
    assert_eq!(read, says(&of_metallb("BGPAdvertisement", &theirs)));
    let objects: Vec<_> = [of("Community", "{}"), of_metallb("Community", "{}")]
        .iter()
        .map(|text| read_text(text).remove(0).result.expect("is read").reference)
        .collect();
    assert_ne!(objects[0].kind, objects[1].kind, "objects of one name are two");
}

#[test]
fn a_peer_is_read_with_its_defaults() {
    let it = peer("{myASN: 64512, peerASN: 64513, peerAddress: 192.0.2.1}");
    let to = PeerAddress::Ip { address: "192.0.2.1".parse().expect("ip"), port: 179, source: None };
    assert_eq!((it.to, it.remote_as, it.hops), (to, RemoteAs::Number(64_513), PeerDistance::Direct));
    assert_eq!(
        (it.hold, it.keepalive, it.connect_retry),
        (Duration::from_secs(90), None, Duration::from_secs(10))
    );
    assert_eq!((it.graceful_restart, it.families), (None, PeerFamilies { v4: true, v6: true }));
    let it = peer(
        "{myASN: 64512, dynamicASN: external, interface: eth1, families: [ipv6], enableGracefulRestart: true}",
    );
    assert_eq!((it.to, it.remote_as), (PeerAddress::Interface("eth1".into()), RemoteAs::External));
    assert_eq!((it.families.v4, it.graceful_restart), (false, Some(Duration::from_secs(120))));
    for (more, hops) in [
        ("peerASN: 64513, ebgpMultiHop: true", PeerDistance::Multihop(255)),
        ("peerASN: 64513, gtsmHops: 1", PeerDistance::Security(1)),
        ("peerASN: 64512", PeerDistance::Multihop(255)),
        ("dynamicASN: internal", PeerDistance::Multihop(255)),
    ] {
        assert_eq!(peer(&format!("{{myASN: 64512, peerAddress: 192.0.2.1, {more}}}")).hops, hops, "{more}");
    }
    let it = peer(
        "{myASN: 1, peerASN: 2, peerAddress: 192.0.2.1, passwordSecret: {name: tor}, holdTime: 9s, keepaliveTime: 3s}",
    );
    assert_eq!(it.password, Some(ObjectRef::new(Kind::Secret, "", "tor")));
    assert_eq!((it.hold, it.keepalive), (Duration::from_secs(9), Some(Duration::from_secs(3))));
    // As MetalLB's API server tells it.
    let theirs = says(&of_metallb(
        "BGPPeer",
        "{myASN: 64512, peerASN: 64513, peerAddress: 192.0.2.1, passwordSecret: {}, peerPort: 179, holdTime: 1m30s, disableMP: false}",
    ));
    let AnnouncementSpec::BgpPeer(it) = theirs else { panic!("a peer") };
    assert_eq!((it.password, it.families), (None, PeerFamilies { v4: true, v6: false }));
}

#[test]
fn each_fault_is_told_with_its_place() {
    let at = "myASN: 64512, peerAddress: 192.0.2.1";
    for (kind, spec, wanted) in [
        (
            "BGPPeer",
            "{peerASN: 1, peerAddress: 192.0.2.1}".to_owned(),
            "spec.myASN: Required value: the AS number of the hosts",
        ),
        (
            "BGPPeer",
            format!("{{{at}}}"),
            "spec.peerASN: Required value: the peer's AS number, or `dynamicASN`",
        ),
        (
            "BGPPeer",
            format!("{{{at}, peerASN: 4294967296}}"),
            "spec.peerASN: Invalid value: 4294967296: must be between 1 and 4294967295, inclusive",
        ),
        (
            "BGPPeer",
            format!("{{{at}, peerASN: 1, dynamicASN: external}}"),
            "spec.dynamicASN: Forbidden: may not be set together with `peerASN`",
        ),
        (
            "BGPPeer",
            format!("{{{at}, dynamicASN: any}}"),
            "spec.dynamicASN: Unsupported value: \"any\": supported values: \"internal\", \"external\"",
        ),
        (
            "BGPPeer",
            "{myASN: 1, peerASN: 2}".to_owned(),
            "spec.peerAddress: Required value: the peer's address, or `interface`",
        ),
        (
            "BGPPeer",
            format!("{{{at}, peerASN: 1, interface: eth0}}"),
            "spec.interface: Forbidden: may not be set together with `peerAddress`",
        ),
        (
            "BGPPeer",
            "{myASN: 1, peerASN: 2, peerAddress: 'fe80::1'}".to_owned(),
            "spec.peerAddress: Invalid value: \"fe80::1\": is a link-local address: set `interface` instead",
        ),
        (
            "BGPPeer",
            "{myASN: 1, peerASN: 2, interface: a/b}".to_owned(),
            "spec.interface: Invalid value: \"a/b\": must be the name of a network interface: at most 15 characters, no '/', ':' and blanks",
        ),
        (
            "BGPPeer",
            format!("{{{at}, peerASN: 1, sourceAddress: '2001:db8::1'}}"),
            "spec.sourceAddress: Invalid value: \"2001:db8::1\": must be of the same family as `peerAddress`",
        ),
        (
            "BGPPeer",
            format!("{{{at}, peerASN: 1, holdTime: 2s}}"),
            "spec.holdTime: Invalid value: \"2s\": must be whole seconds, from 3 to 65535",
        ),
        (
            "BGPPeer",
            format!("{{{at}, peerASN: 1, holdTime: 9s, keepaliveTime: 9s}}"),
            "spec.keepaliveTime: Invalid value: \"9s\": must be less than `holdTime`",
        ),
        (
            "BGPPeer",
            format!("{{{at}, peerASN: 1, ebgpMultiHop: true, gtsmHops: 2}}"),
            "spec.gtsmHops: Forbidden: may not be set together with `ebgpMultiHop`: it says how far away the peer may be",
        ),
        (
            "BGPPeer",
            format!("{{{at}, peerASN: 64512, ebgpMultiHop: true}}"),
            "spec.ebgpMultiHop: Forbidden: may not be set for iBGP: an iBGP peer may be any number of hops away without it",
        ),
        (
            "BGPPeer",
            format!("{{{at}, peerASN: 1, passwordSecret: {{}}}}"),
            "spec.passwordSecret.name: Required value: the name of a Secret with the key `password`",
        ),
        (
            "BGPPeer",
            format!("{{{at}, peerASN: 1, families: [ipv4, ipv4]}}"),
            "spec.families[1]: Duplicate value: \"ipv4\"",
        ),
        (
            "BGPPeer",
            format!("{{{at}, peerASN: 1, nextHops: {{ipv6: 192.0.2.1}}}}"),
            "spec.nextHops.ipv6: Invalid value: \"192.0.2.1\": must be an IPv6 address",
        ),
        (
            "BGPPeer",
            format!("{{{at}, peerASN: 1, vrf: red}}"),
            "spec.vrf: unknown field: the whole object is ignored until it is removed",
        ),
        (
            "BGPAdvertisement",
            "{communities: ['1:2:3']}".to_owned(),
            "spec.communities[0]: Invalid value: \"1:2:3\": must be a community (e.g. 64512:100 or large:64512:1:2) or the name of one",
        ),
        (
            "BGPAdvertisement",
            "{communities: ['65536:1']}".to_owned(),
            "spec.communities[0]: Invalid value: \"65536:1\": must be a community (e.g. 64512:100 or large:64512:1:2) or the name of one",
        ),
        (
            "BGPAdvertisement",
            "{aggregationLength: 24, serviceSelectors: [{}]}".to_owned(),
            "spec.aggregationLength: Forbidden: may not be set with `serviceSelectors`: an aggregate is for all addresses within it",
        ),
        (
            "BGPAdvertisement",
            "{aggregationLength: 33}".to_owned(),
            "spec.aggregationLength: Invalid value: 33: must be between 1 and 32, inclusive",
        ),
        ("BGPAdvertisement", "{peers: [a, a]}".to_owned(), "spec.peers[1]: Duplicate value: \"a\""),
        (
            "BGPAdvertisement",
            "{communites: [a]}".to_owned(),
            "spec.communites: unknown field: the whole object is ignored until it is removed (did you mean \"communities\"?)",
        ),
        (
            "L2Advertisement",
            "{ipAddressPools: [a]}".to_owned(),
            "spec.ipAddressPools: unknown field: the whole object is ignored until it is removed (did you mean \"addressPools\"?)",
        ),
        (
            "L2Advertisement",
            "{hostSelectors: [{matchExpressions: [{key: a, operator: Of}]}]}".to_owned(),
            "spec.hostSelectors[0].matchExpressions[0].operator: Invalid value: \"Of\": not a valid selector operator",
        ),
        (
            "BFDProfile",
            "{receiveInterval: 9}".to_owned(),
            "spec.receiveInterval: Invalid value: 9: must be between 10 and 60000, inclusive",
        ),
        (
            "BFDProfile",
            "{echoMode: true}".to_owned(),
            "spec.echoMode: Forbidden: Seaway has no echo mode; intervals of 50 ms and a multiplier of 3 notice a failure in 150 ms without it",
        ),
        (
            "Community",
            "{communities: [{name: a, value: b}]}".to_owned(),
            "spec.communities[0].value: Invalid value: \"b\": must be a community (e.g. 64512:100 or large:64512:1:2)",
        ),
        (
            "Community",
            "{communities: [{name: a, value: '1:2'}, {name: a, value: '1:3'}]}".to_owned(),
            "spec.communities[1].name: Duplicate value: \"a\"",
        ),
        (
            "Community",
            "{communities: [{name: '1a', value: '1:2'}]}".to_owned(),
            "spec.communities[0].name: Invalid value: \"1a\": must be letters, digits, '-', '_' and '.', and begin with a letter",
        ),
    ] {
        assert_eq!(faults(&of(kind, &spec)), [format!("4 {wanted}")], "{kind} {spec}");
    }
    let theirs = format!("{{{at}, peerASN: 1, vrf: red, localASN: 7, password: hunter2}}");
    let told = faults(&of_metallb("BGPPeer", &theirs)).join("\n");
    for part in ["spec.vrf: Forbidden", "spec.localASN: Forbidden", "spec.password: Forbidden"] {
        assert!(told.contains(part), "{part}: {told}");
    }
    assert!(!told.contains("hunter2"), "{told}");
}

/// By an API server: there, an object stays as it was unless it can be followed.
#[test]
fn an_advertisement_of_which_a_part_is_not_understood_is_there_and_announces_nothing() {
    let accepted = |kind, spec: &str| {
        let json = format!(r#"{{"metadata": {{"name": "a"}}, "spec": {spec}}}"#);
        let node = serde_json::from_str(&json).expect("is JSON");
        read_accepted(kind, &node).expect("is known")
    };
    let unclear = |kind, spec: &str| {
        let read = accepted(kind, spec).expect("is there");
        assert!(!read.left_out.is_empty(), "{spec}");
        let Some(Fact::Announcing(it)) = read.object.facts.first() else { panic!("{read:?}") };
        match &it.says {
            AnnouncementSpec::L2Advertisement(it) => it.scope.clone(),
            AnnouncementSpec::BgpAdvertisement(it) => it.scope.clone(),
            other => panic!("{other:?}"),
        }
    };
    for (kind, spec) in [
        (Kind::BGPAdvertisement, r#"{"addressPools": ["p"], "communities": ["1:2:3"]}"#),
        (Kind::BGPAdvertisement, r#"{"addressPools": ["p"], "later": true}"#),
        (
            Kind::L2Advertisement,
            r#"{"addressPools": ["p"], "hostSelectors": [{"matchExpressions": [{"key": "a", "operator": "Of"}]}]}"#,
        ),
    ] {
        let scope = unclear(kind, spec);
        assert!(scope.unclear && *scope.pools == [Name::from("p")], "{spec}: {scope:?}");
    }
    for (kind, spec) in [
        (Kind::BGPAdvertisement, r#"{"addressPools": "p"}"#),
        (
            Kind::BGPAdvertisement,
            r#"{"addressPoolSelectors": [{"matchExpressions": [{"key": "a", "operator": "Of"}]}]}"#,
        ),
        (Kind::BGPPeer, r#"{"myASN": 1, "peerASN": 2, "peerAddress": "192.0.2.1", "later": 1}"#),
        (Kind::Community, r#"{"communities": [{"name": "a", "value": "b"}]}"#),
    ] {
        assert!(accepted(kind, spec).is_err(), "{kind} {spec}");
    }
    let well = accepted(Kind::BGPAdvertisement, r#"{"addressPools": ["p"]}"#).expect("is whole");
    assert!(well.left_out.is_empty());
}

/// In the shapes of the samples that MetalLB has in `configsamples`.
#[test]
fn what_people_write_for_metallb_is_read_without_a_fault_unless_it_cannot_be() {
    let head = |kind: &str, version: &str| {
        format!(
            "apiVersion: metallb.io/{version}\nkind: {kind}\nmetadata: {{name: a, namespace: metallb-system}}\n"
        )
    };
    for (kind, version, spec) in [
        ("BGPAdvertisement", "v1beta1", ""),
        ("L2Advertisement", "v1beta1", ""),
        (
            "BGPAdvertisement",
            "v1beta1",
            "spec:\n  communities:\n  - NO_ADVERTISE\n  - 65535:65282\n  ipAddressPools:\n  - pool\n  localPref: 150\n",
        ),
        (
            "BGPAdvertisement",
            "v1beta1",
            "spec:\n  ipAddressPoolSelectors:\n  - matchExpressions:\n    - {key: a, operator: In, values: [b]}\n  peers: [tor]\n",
        ),
        (
            "L2Advertisement",
            "v1beta1",
            "spec:\n  nodeSelectors:\n  - matchLabels:\n      kubernetes.io/hostname: one\n",
        ),
        ("Community", "v1beta1", "spec:\n  communities:\n  - name: NO_ADVERTISE\n    value: 65535:65282\n"),
        (
            "BFDProfile",
            "v1beta1",
            "spec:\n  receiveInterval: 380\n  transmitInterval: 270\n  echoInterval: 50\n",
        ),
        (
            "BGPPeer",
            "v1beta2",
            "spec:\n  myASN: 64512\n  peerASN: 64512\n  peerAddress: fc00::5\n  connectTime: 120s\n",
        ),
        (
            "BGPPeer",
            "v1beta2",
            "spec:\n  holdTime: 9m0s\n  keepaliveTime: 0s\n  myASN: 64512\n  passwordSecret:\n    name: tor\n  peerASN: 64512\n  \
             peerAddress: 192.0.2.3\n  peerPort: 179\n",
        ),
    ] {
        let text = head(kind, version) + spec;
        let reading = read_text(&text).remove(0);
        assert!(reading.result.is_ok() && reading.ignored.is_empty(), "{text}: {reading:?}");
    }
    let vrf = head("BGPPeer", "v1beta2") + "spec: {myASN: 1, peerASN: 1, peerAddress: 192.0.2.3, vrf: red}\n";
    assert_eq!(
        faults(&vrf),
        ["4 spec.vrf: Forbidden: Seaway connects from the host's main network only, from no VRF"]
    );
}
