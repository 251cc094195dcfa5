use std::collections::{BTreeMap, BTreeSet};

use rcgen::{CertificateParams, DistinguishedName, DnType, KeyPair, SanType};
use secrecy::ExposeSecret as _;

use super::*;

const DAY: u64 = 24 * 3600 * 1000;

/// A chain and its key, in force from the first of January 2026 to that of 2027.
pub(crate) fn pair(names: &[&str]) -> (String, String) {
    let mut asked =
        CertificateParams::new(names.iter().map(|it| (*it).to_owned()).collect::<Vec<_>>()).expect("names");
    asked.not_before = rcgen::date_time_ymd(2026, 1, 1);
    asked.not_after = rcgen::date_time_ymd(2027, 1, 1);
    signed(asked)
}

fn signed(asked: CertificateParams) -> (String, String) {
    let key = KeyPair::generate().expect("a key");
    (asked.self_signed(&key).expect("signed").pem(), key.serialize_pem())
}

pub(crate) fn secret(name: &str, values: &[(&str, &str)]) -> Secret {
    Secret {
        object: ObjectRef::new(Kind::Secret, "default", name),
        created: None,
        kind: TLS_SECRET.into(),
        values: values.iter().map(|(key, value)| ((*key).into(), (*value).to_owned().into())).collect(),
        staple: None,
        withheld: false,
    }
}

pub(crate) fn tls_secret(name: &str, names: &[&str]) -> Secret {
    let (chain, key) = pair(names);
    secret(name, &[("tls.crt", &chain), ("tls.key", &key)])
}

fn day(text: &str) -> Time {
    let parts: Vec<u64> = text.split('-').filter_map(|it| it.parse().ok()).collect();
    calendar::moment([parts[0], parts[1], parts[2]], [0, 0, 0]).expect("a day")
}

fn told(certificates: &Certificates) -> Vec<String> {
    certificates.problems().map(|it| it.to_string()).collect()
}

#[test]
fn names_and_dates_are_those_of_the_certificate() {
    let seen = |pem: &str| x509::read(&pem::certificates(pem).next().flatten().expect("PEM"));
    let (chain, _) = pair(&["Shop.Example", "*.shop.example", "192.0.2.1", "shop.example"]);
    let found = seen(&chain).expect("a certificate");
    let names: Vec<String> = found.names.iter().map(ToString::to_string).collect();
    assert_eq!(names, ["shop.example", "*.shop.example"], "each once, in lower case, and no address");
    assert_eq!((found.from, found.until), (day("2026-01-01"), day("2027-01-01")));
    let mut old = CertificateParams::default();
    old.distinguished_name = DistinguishedName::new();
    old.distinguished_name.push(DnType::OrganizationName, "shop.test");
    old.distinguished_name.push(DnType::CommonName, "old.example");
    let found = seen(&signed(old.clone()).0).expect("a certificate");
    assert_eq!(found.names, [HostPattern::Exact("old.example".into())], "its subject, for want of better");
    old.subject_alt_names = vec![SanType::IpAddress("192.0.2.1".parse().expect("an address"))];
    assert_eq!(seen(&signed(old).0).expect("a certificate").names, []);
    let bytes = pem::certificates(&chain).next().flatten().expect("PEM");
    for length in 0..bytes.len() {
        assert_eq!(x509::read(&bytes[..length]), None, "cut at {length}");
    }
}

#[test]
fn what_cannot_be_read_is_told_and_takes_nothing_away() {
    let mut certificates = Certificates::default();
    let (chain, key) = pair(&["a.example"]);
    let good = secret("a", &[("tls.crt", &chain), ("tls.key", &key)]);
    assert_eq!(certificates.put(&good, false), CertificateChange { content: true, names: true });
    assert_eq!(certificates.put(&good, false), CertificateChange::default(), "nothing is new");
    let held = certificates.held(&good.object).cloned().expect("held");
    let torn = chain.replace("MII", "MI!");
    for (values, expected) in [
        (
            vec![("tls.crt", "nonsense"), ("tls.key", key.as_str())],
            "data[tls.crt]: there is no PEM certificate",
        ),
        (vec![("tls.crt", torn.as_str()), ("tls.key", &key)], "data[tls.crt]: the PEM is damaged"),
        (vec![("tls.crt", chain.as_str()), ("tls.key", "nonsense")], "data[tls.key]: there is no PEM key"),
    ] {
        let changed = certificates.put(&secret("a", &values), false);
        assert_eq!(changed, CertificateChange { content: true, names: false }, "{expected}");
        assert_eq!(told(&certificates), [format!("Secret default/a: {expected}")]);
        assert!(Arc::ptr_eq(certificates.held(&good.object).expect("held"), &held));
    }
    certificates.put(&good, false);
    assert_eq!(told(&certificates), [""; 0]);
    certificates.remove(&good.object, false);
    assert!(certificates.held(&good.object).is_none());
}

#[test]
fn a_certificate_that_ends_is_told_thirty_days_before() {
    let mut certificates = Certificates::default();
    let secret = tls_secret("a", &["a.example"]);
    certificates.put(&secret, false);
    let end = day("2027-01-01").0;
    for (now, expected, changes) in [
        (end - 31 * DAY, None, false),
        (end - 30 * DAY, Some("the certificate expires on 2027-01-01"), true),
        (end - 1, Some("the certificate expires on 2027-01-01"), false),
        (end, Some("the certificate expired on 2027-01-01"), true),
        (day("2025-12-31").0, Some("the certificate is not valid before 2026-01-01"), true),
        // One that was just made begins by the clock of who made it.
        (day("2026-01-01").0 - 60_000, None, true),
        (day("2025-12-31").0, Some("the certificate is not valid before 2026-01-01"), true),
        (end - 31 * DAY, None, true),
    ] {
        assert_eq!(!certificates.set_time(Time(now)).is_empty(), changes, "{now}");
        let expected: Vec<String> =
            expected.iter().map(|it| format!("Secret default/a: data[tls.crt]: {it}")).collect();
        assert_eq!(told(&certificates), expected);
    }
    assert_eq!(certificates.counts().first, Some(Time(end)));
}

#[test]
fn names_lead_to_certificates_and_the_first_is_for_all_others() {
    let mut certificates = Certificates::default();
    let objects: Vec<ObjectRef> = [
        ("one", &["one.example", "www.one.example"][..]),
        ("two", &["*.two.example"]),
        ("other-key", &["one.example"]),
    ]
    .map(|(name, names)| {
        let secret = tls_secret(name, names);
        certificates.put(&secret, false);
        secret.object
    })
    .into();
    let tls = certificates.by_name(&objects.iter().collect::<Vec<_>>());
    let names = |all: &[ObjectRef]| all.iter().map(|it| it.name.to_string()).collect::<Vec<_>>();
    let by_name: BTreeMap<String, Vec<String>> =
        tls.by_name.iter().map(|(name, all)| (name.to_string(), names(all))).collect();
    let all = [
        ("one.example", vec!["one", "other-key"]),
        ("www.one.example", vec!["one"]),
        ("*.two.example", vec!["two"]),
    ];
    let all = all.map(|(name, all)| (name.to_owned(), all.iter().map(|it| (*it).to_owned()).collect()));
    assert_eq!(by_name, BTreeMap::from(all));
    assert_eq!(names(&tls.default), ["one", "other-key"]);
}

#[test]
fn a_wildcard_covers_one_label() {
    let host = |text: &str| crate::http::host(text).expect("a host");
    for (name, asked, expected) in [
        ("a.example", "a.example", true),
        ("a.example", "b.example", false),
        ("*.example", "a.example", true),
        ("*.example", "a.b.example", false),
        ("*.example", "example", false),
        ("*.example", "*.example", true),
        ("a.example", "*.example", false),
    ] {
        assert_eq!(covers(&host(name), &host(asked)), expected, "{name} {asked}");
    }
}

/// As a certificate authority asks for it when it is to say something of a certificate.
#[test]
fn a_certificate_is_known_by_its_authoritys_key_and_its_number() {
    let (chain, _) = {
        let mut asked = CertificateParams::new(vec!["shop.example".to_owned()]).expect("names");
        asked.serial_number = Some(vec![0x00, 0x87, 0x65, 0x43, 0x21].into());
        asked.key_identifier_method = rcgen::KeyIdMethod::PreSpecified(vec![7; 20]);
        asked.use_authority_key_identifier_extension = true;
        signed(asked)
    };
    assert_eq!(identity(&chain), Some((vec![7; 20], vec![0x00, 0x87, 0x65, 0x43, 0x21])));
    // One that says nothing of its authority cannot be asked for.
    let (chain, _) = pair(&["shop.example"]);
    assert_eq!(identity(&chain), None);
    assert_eq!(identity(""), None);
    let bytes = pem::certificates(&chain).next().flatten().expect("PEM");
    for length in 0..bytes.len() {
        assert_eq!(x509::identity(&bytes[..length]), None, "cut at {length}");
    }
}

#[test]
fn what_was_found_absent_is_so_until_nothing_is_asked_for() {
    let mut certificates = Certificates::default();
    certificates.note_asked(true);
    certificates.keep_absent([ObjectRef::new(Kind::Secret, "default", "a")].into());
    assert!(!certificates.note_asked(true), "it is as before");
    assert_eq!(certificates.absent().len(), 1);
    assert!(certificates.note_asked(false), "it is another");
    assert!(certificates.absent().is_empty());
}

#[test]
fn what_is_named_no_more_makes_room_for_others() {
    let mut certificates = Certificates::default();
    let (one, other) = (tls_secret("one", &["a.example"]), tls_secret("other", &["b.example"]));
    let bytes = |it: &Secret| it.values.values().map(|it| it.expose_secret().len() as u64).sum::<u64>();
    certificates.set_limit(Some(bytes(&one).max(bytes(&other))), BTreeSet::new());
    certificates.put(&one, true);
    certificates.put(&other, true);
    assert!(certificates.held(&one.object).is_some() && certificates.held(&other.object).is_none());
    certificates.put(&Secret::withheld(one.object.clone()), false);
    certificates.put(&other, true);
    assert!(certificates.held(&one.object).is_none() && certificates.held(&other.object).is_some());
}

#[test]
fn the_previous_certificate_stays_in_use_only_where_there_was_one_and_a_file_is_told_as_a_file() {
    let fixes = |object: &ObjectRef, before: Option<&Secret>| {
        let mut certificates = Certificates::default();
        let of = |secret: &Secret| Secret { object: object.clone(), ..secret.clone() };
        if let Some(before) = before {
            certificates.put(&of(before), true);
        }
        certificates.put(&of(&secret("shop", &[("tls.crt", "none"), ("tls.key", "none")])), true);
        let fixes: Vec<String> =
            certificates.problems_of(object).iter().map(|it| it.fix.to_string()).collect();
        fixes.join(" ")
    };
    let of_secret = ObjectRef::new(Kind::Secret, "default", "shop");
    let of_file = ObjectRef::new(Kind::File, "", "shop.pem");
    let good = tls_secret("shop", &["shop.example"]);
    for object in [&of_secret, &of_file] {
        assert!(!fixes(object, None).contains("stays in use"), "{}", fixes(object, None));
        assert!(fixes(object, Some(&good)).contains("The previous certificate stays in use."));
    }
    assert!(fixes(&of_secret, None).contains("into tls.crt"));
    assert!(fixes(&of_file, None).contains("that cert names in seaway.yaml"));
}
