use std::{path::PathBuf, sync::Arc};

use proptest::prelude::*;
use seaway_model::{
    Kind, Name, ObjectRef, Owner,
    acme::{DnsKey, DnsKeyAlgorithm},
    dns::{DnsProvider, DnsZone},
};

use super::*;

fn wanted(host: Option<&str>, service: &str, addresses: &[&str]) -> DnsName {
    let key = DnsKey {
        name: "seaway".into(),
        algorithm: DnsKeyAlgorithm::HmacSha256,
        secret_file: PathBuf::from("key"),
    };
    let by = DnsProvider::Updates { server: ([192, 0, 2, 53], 53).into(), key };
    let zone = DnsZone { name: "shop.example".into(), by, ttl: 60, namespaces: Vec::new() };
    let object = ObjectRef::new(Kind::Service, "default", service);
    DnsName {
        name: "www.shop.example".into(),
        zone: Arc::new(zone),
        installation: "prod".into(),
        host: host.map(Name::from),
        owner: Owner::Object { object, uid: "u".into() },
        ttl: 60,
        addresses: ips(addresses),
        keeps: ips(&["192.0.2.1", "192.0.2.2", "192.0.2.9", "2001:db8::1"]),
        withdraws: false,
        rivals: BTreeSet::new(),
    }
}

fn ips(all: &[&str]) -> BTreeSet<IpAddr> {
    all.iter().map(|it| it.parse().expect("an address")).collect()
}

fn marked(it: &DnsName, addresses: &[&str]) -> String {
    Marker::of(it, ips(addresses)).to_string()
}

fn seen(texts: &[String], addresses: &[&str]) -> Observed {
    Observed { texts: texts.to_vec(), addresses: ips(addresses), others: None }
}

fn check(it: &DnsName, is_wanted: bool, observed: &Observed, expected: &[&str]) {
    let found = steps(it, is_wanted, observed);
    let shown: Vec<String> = found.iter().map(|it| it.to_string()).collect();
    let expected: Vec<String> =
        expected.iter().map(|it| format!("update www.shop.example in DNS: {it}")).collect();
    assert_eq!(shown, expected, "{observed:?}");
}

#[test]
fn a_name_is_written_with_its_marker_and_follows_what_answers() {
    let it = wanted(None, "shop", &["192.0.2.1", "2001:db8::1"]);
    check(&it, true, &Observed::default(), &["add 192.0.2.1 2001:db8::1 add the marker"]);
    let there = seen(&[marked(&it, &["192.0.2.1", "2001:db8::1"])], &["192.0.2.1", "2001:db8::1"]);
    check(&it, true, &there, &[]);
    let less = wanted(None, "shop", &["192.0.2.1"]);
    check(&less, true, &there, &["remove 2001:db8::1 replace the marker"]);
    check(&it, false, &there, &["remove 192.0.2.1 2001:db8::1 remove the marker"]);
    let none = wanted(None, "shop", &[]);
    check(&none, true, &there, &[]);
    check(&none, true, &Observed::default(), &[]);
    // What another may have by now does not stay.
    let one = DnsName { keeps: ips(&["192.0.2.1"]), ..none.clone() };
    check(&one, true, &there, &["remove 2001:db8::1 replace the marker"]);
    let lost = DnsName { keeps: ips(&[]), ..none };
    check(&lost, true, &there, &["remove 192.0.2.1 2001:db8::1 remove the marker"]);
    let later = DnsName { ttl: 30, ..it };
    check(&later, true, &there, &["add 192.0.2.1 2001:db8::1 replace the marker"]);
}

#[test]
fn what_somebody_removed_comes_back_and_what_somebody_added_stays() {
    let it = wanted(None, "shop", &["192.0.2.1", "192.0.2.2"]);
    let mark = [marked(&it, &["192.0.2.1", "192.0.2.2"])];
    check(&it, true, &seen(&mark, &["192.0.2.1"]), &["add 192.0.2.2"]);
    let beside = seen(&mark, &["192.0.2.1", "203.0.113.9"]);
    check(&it, true, &beside, &[]);
    assert_eq!(obstacle(&it, &beside), Some(NameConflict::Beside(ips(&["203.0.113.9"]))));
    let drained = wanted(None, "shop", &["192.0.2.2"]);
    check(&drained, true, &beside, &["remove 192.0.2.1 replace the marker"]);
    check(&it, false, &beside, &["remove 192.0.2.1 remove the marker"]);
}

#[test]
fn what_another_wrote_is_left_alone() {
    let it = wanted(None, "shop", &["192.0.2.1"]);
    let used = Observed { others: Some("A 203.0.113.9".into()), ..Observed::default() };
    check(&it, true, &used, &[]);
    assert_eq!(obstacle(&it, &used), Some(NameConflict::Others("A 203.0.113.9".into())));
    let mut elsewhere = wanted(None, "shop", &[]);
    elsewhere.installation = "test".into();
    for marker in [marked(&elsewhere, &["192.0.2.1"]), "anything".into()] {
        let theirs = seen(&[marker], &["192.0.2.1"]);
        check(&it, true, &theirs, &[]);
        check(&it, false, &theirs, &[]);
        assert!(matches!(obstacle(&it, &theirs), Some(NameConflict::Marker(_))));
    }
    // Of the same process, for another Service before.
    let former = seen(&[marked(&wanted(None, "old", &[]), &["192.0.2.9"])], &["192.0.2.9"]);
    check(&it, true, &former, &["add 192.0.2.1 remove 192.0.2.9 replace the marker"]);
}

#[test]
fn hosts_of_one_folder_have_their_own_addresses_in_one_name() {
    let (a, b) = (wanted(Some("a"), "shop", &["192.0.2.1"]), wanted(Some("b"), "shop", &["192.0.2.2"]));
    let of_a = marked(&a, &["192.0.2.1"]);
    let there = seen(std::slice::from_ref(&of_a), &["192.0.2.1"]);
    check(&b, true, &there, &["add 192.0.2.2 add the marker"]);
    let both = seen(&[of_a.clone(), marked(&b, &["192.0.2.2"])], &["192.0.2.1", "192.0.2.2"]);
    check(&a, true, &both, &[]);
    check(&b, true, &both, &[]);
    let leaves = |host: &str| DnsName { withdraws: true, ..wanted(Some(host), "shop", &[]) };
    check(&leaves("b"), true, &both, &["remove 192.0.2.2 remove the marker"]);
    // The last one stays, and so does one that is only not served now.
    check(&leaves("a"), true, &seen(std::slice::from_ref(&of_a), &["192.0.2.1"]), &[]);
    check(&wanted(Some("b"), "shop", &[]), true, &both, &[]);
    check(&leaves("a"), true, &seen(std::slice::from_ref(&of_a), &[]), &["remove the marker"]);
    // An address that both serve stays as long as one of them does.
    let shared = seen(&[marked(&a, &["192.0.2.9"]), marked(&b, &["192.0.2.9"])], &["192.0.2.9"]);
    check(&leaves("a"), true, &shared, &["remove the marker"]);
    let other = wanted(Some("b"), "blog", &["192.0.2.2"]);
    check(&other, true, &there, &[]);
    assert!(matches!(obstacle(&other, &there), Some(NameConflict::Marker(_))));
}

#[test]
fn one_that_has_a_name_keeps_it_from_others_that_ask_for_it() {
    let (shop, evil) = (wanted(None, "shop", &["192.0.2.1"]), wanted(None, "evil", &["192.0.2.2"]));
    let there = seen(&[marked(&shop, &["192.0.2.1"])], &["192.0.2.1"]);
    let asks_too = DnsName { rivals: ["default/shop".into()].into(), ..evil.clone() };
    check(&asks_too, true, &there, &[]);
    assert_eq!(holder(&asks_too, &there).as_deref(), Some("default/shop"));
    assert_eq!(holder(&DnsName { rivals: ["default/evil".into()].into(), ..shop }, &there), None);
    // It gave it up.
    assert_eq!(holder(&evil, &there), None);
    check(&evil, true, &there, &["add 192.0.2.2 remove 192.0.2.1 replace the marker"]);
}

#[test]
fn a_changed_prerequisite_is_the_whole_of_what_was_seen() {
    let (a, b) = (wanted(Some("a"), "shop", &["192.0.2.1"]), wanted(Some("b"), "shop", &["192.0.2.2"]));
    let there = seen(&[marked(&a, &["192.0.2.1"])], &["192.0.2.1"]);
    let found = steps(&b, true, &there);
    assert_eq!(found[0].presupposes, Precondition::Markers(there.texts.clone()));
    assert_eq!(steps(&b, true, &Observed::default())[0].presupposes, Precondition::Unused);
}

fn address() -> impl Strategy<Value = &'static str> {
    prop::sample::select(vec!["192.0.2.1", "192.0.2.2", "192.0.2.3", "2001:db8::1"])
}

fn addresses() -> impl Strategy<Value = Vec<&'static str>> {
    prop::collection::vec(address(), 0..4)
}

fn one() -> impl Strategy<Value = (DnsName, bool)> {
    let host = prop::sample::select(vec![None, Some("a"), Some("b")]);
    let service = prop::sample::select(vec!["shop", "blog"]);
    (host, service, addresses(), any::<(bool, bool)>()).prop_map(
        |(host, service, addresses, (keeps, wanted_now))| {
            let it = wanted(host, service, &addresses);
            (DnsName { withdraws: !keeps && addresses.is_empty(), ..it }, wanted_now)
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(seaway_testkit::properties::cases(2_000)) })]

    /// Whatever several hosts, Services and people do: once is enough, and what is not one's own is never removed.
    #[test]
    fn steps_end_and_remove_nothing_of_others(
        turns in prop::collection::vec((one(), prop::option::weighted(0.2, address())), 1..12)
    ) {
        let mut zone = Observed::default();
        for ((it, is_wanted), by_hand) in turns {
            if let Some(ip) = by_hand.filter(|_| !zone.texts.is_empty()) {
                let ip: IpAddr = ip.parse().expect("an address");
                if !zone.addresses.remove(&ip) {
                    zone.addresses.insert(ip);
                }
            }
            let own: BTreeSet<IpAddr> = (zone.texts.iter().filter_map(|it| Marker::read(it)))
                .filter(|marker| marker.is_mine(&it))
                .flat_map(|it| it.addresses)
                .collect();
            let found = steps(&it, is_wanted, &zone);
            prop_assert!(found.len() < 2);
            let before = zone.clone();
            for step in &found {
                prop_assert!(step.removes.is_subset(&own));
                for text in &step.removes_markers {
                    prop_assert!(Marker::read(text).is_some_and(|marker| marker.is_mine(&it)));
                }
                zone = after(step, &zone);
            }
            if zone.others.is_some() {
                // Nobody's any more; a person has to look.
                zone = Observed::default();
                continue;
            }
            prop_assert_eq!(steps(&it, is_wanted, &zone), Vec::new());
            let of_peers = before.texts.iter().filter_map(|it| Marker::read(it)).filter(|marker| !marker.is_mine(&it));
            for ip in of_peers.flat_map(|it| it.addresses).filter(|ip| before.addresses.contains(ip)) {
                prop_assert!(zone.addresses.contains(&ip));
            }
            if is_wanted && obstacle(&it, &zone).is_none() {
                prop_assert!(it.addresses.is_subset(&zone.addresses));
            }
        }
    }
}
