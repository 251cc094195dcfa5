//! Who may connect, and who may say which address a client has.

use seaway_model::{Config, Desired, Problem, Reason, config::Tenants};
use seaway_testkit::facts::{endpoint, host, owner, put, put_slice, shop, slice};

use crate::cluster::scene::{on_host, on_host_of, unit};

/// Networks that may connect to its first listener; none: everybody. Nothing, if no listener is opened.
fn may_connect(spec: &[&str], annotations: &[(&str, &str)]) -> (Option<Vec<String>>, Vec<Problem>) {
    let mut service = shop();
    service.source_ranges = spec.iter().map(|it| it.parse().expect("a network")).collect();
    service.meta.annotations = annotations.iter().map(|(k, v)| ((*k).into(), (*v).into())).collect();
    let world = on_host(vec![host(&["192.0.2.5"], &[]), put(&service)]);
    let Desired::LoadBalancer(it) = world.desire(&unit(&owner(&service))) else { panic!("it is ours") };
    let listener = it.listeners.values().next();
    let problems = world.status(&owner(&service)).expect("it is ours").problems;
    (listener.map(|it| it.sources.iter().map(ToString::to_string).collect()), problems)
}

#[test]
fn an_annotation_opens_nothing_that_the_service_closes_and_a_typo_opens_nothing_at_all() {
    const OURS: &str = "seaway.dev/source-ranges";
    const THEIRS: &str = "service.beta.kubernetes.io/load-balancer-source-ranges";
    // A list that would close a listener opens none.
    let nobody = &["closed"][..];
    type Case<'c> = (&'c [&'c str], &'c [(&'c str, &'c str)], &'c [&'c str], &'c str);
    let cases: [Case<'_>; 10] = [
        (&[], &[], &[], ""),
        (&["10.0.0.0/8"], &[], &["10.0.0.0/8"], ""),
        (&[], &[(OURS, "192.0.2.0/24")], &["192.0.2.0/24"], ""),
        (&[], &[(THEIRS, "192.0.2.0/24")], &["192.0.2.0/24"], ""),
        (&[], &[(THEIRS, " ")], &[], ""),
        (&["10.0.0.0/8"], &[(THEIRS, "0.0.0.0/0")], &["10.0.0.0/8"], "this annotation is ignored"),
        (&["10.0.0.0/8"], &[(OURS, "0.0.0.0/0")], &["10.0.0.0/8"], "this annotation is ignored"),
        (&["10.0.0.0/8"], &[(OURS, "10.0.0/8")], &["10.0.0.0/8"], "this annotation is ignored"),
        (&[], &[(OURS, "10.0.0/8")], nobody, "no client may connect until this is corrected"),
        (&[], &[(OURS, "")], nobody, "no network is named; no client may connect"),
    ];
    for (spec, annotations, expected, told) in cases {
        let (sources, problems) = may_connect(spec, annotations);
        let expected = expected.iter().map(ToString::to_string).collect();
        let expected = Some(expected).filter(|it: &Vec<String>| *it != nobody);
        assert_eq!(sources, expected, "{spec:?} {annotations:?}");
        let is_told = problems.iter().any(|it| it.message.contains(told));
        assert!(told.is_empty() || is_told, "{spec:?} {annotations:?}: {problems:?}");
    }
    // One good network beside a bad one is no better.
    assert_eq!(may_connect(&[], &[(OURS, "192.0.2.0/24, 10.0.0.0./8")]).0, None);
}

#[test]
fn denied_networks_are_kept_beside_allowed_ones_and_a_typo_opens_nothing() {
    const DENIED: &str = "seaway.dev/denied-source-ranges";
    for (spec, say, sources, denied) in [
        (&[][..], "10.1.0.0/16, 192.0.2.7", &[][..], &["10.1.0.0/16", "192.0.2.7/32"][..]),
        (&["10.0.0.0/8"], "10.1.0.0/16", &["10.0.0.0/8"], &["10.1.0.0/16"]),
    ] {
        let mut service = shop();
        service.source_ranges = spec.iter().map(|it| it.parse().expect("a network")).collect();
        service.meta.annotations = [(DENIED.into(), say.into())].into();
        let world = on_host(vec![host(&["192.0.2.5"], &[]), put(&service)]);
        let Desired::LoadBalancer(it) = world.desire(&unit(&owner(&service))) else { panic!("it is ours") };
        let listener = it.listeners.values().next().expect("it is open");
        let text = |nets: &[ipnet::IpNet]| nets.iter().map(ToString::to_string).collect::<Vec<_>>();
        assert_eq!((text(&listener.sources), text(&listener.denied)), (text_of(sources), text_of(denied)));
    }
    for (spec, say) in [(&[][..], "10.0.0/8"), (&["10.0.0.0/8"], "10.0.0/8"), (&[], "")] {
        let (listener, problems) = may_connect(spec, &[(DENIED, say)]);
        assert_eq!(listener, None, "{spec:?} {say}");
        assert!(problems.iter().any(|it| it.field.contains(DENIED)), "{problems:?}");
    }
}

fn text_of(nets: &[&str]) -> Vec<String> {
    nets.iter().map(ToString::to_string).collect()
}

#[test]
fn a_service_whose_source_ranges_are_not_all_understood_is_followed_and_closed() {
    let mut closed = shop();
    closed.unclear_sources = true;
    closed.source_ranges = vec!["0.0.0.0/0".parse().expect("a network")];
    let its = slice("shop", ("", 80), vec![endpoint("10.0.0.7")]);
    let world = on_host(vec![host(&["192.0.2.5"], &[]), put(&closed), put_slice(&its)]);
    let Desired::LoadBalancer(it) = world.desire(&unit(&owner(&closed))) else { panic!("it is ours") };
    assert!(it.listeners.is_empty(), "{:?}", it.listeners);
    let members: Vec<String> =
        it.pools.values().flat_map(|pool| &pool.members).map(|it| it.at.to_string()).collect();
    assert!(!members.is_empty(), "its members are known once it is corrected");
}

#[test]
fn only_networks_that_the_operator_trusts_say_which_address_members_see() {
    let transparent = ("seaway.dev/transparent", "true");
    let from = |nets| ("seaway.dev/proxy-protocol-from", nets);
    for (trusted, say, expected) in [
        (None, vec![transparent, from("0.0.0.0/0")], true),
        (Some(vec![]), vec![transparent], true),
        (Some(vec![]), vec![transparent, from("0.0.0.0/0")], false),
        (Some(vec![]), vec![transparent, from("10.0.0.1/32")], false),
        (Some(vec!["10.0.0.0/8"]), vec![transparent, from("10.1.0.0/16")], true),
        (Some(vec!["10.0.0.0/8"]), vec![transparent, from("10.1.0.0/16,192.0.2.0/24")], false),
        (Some(vec!["10.0.0.0/8"]), vec![transparent, from("0.0.0.0/0")], false),
        (Some(vec!["10.0.0.0/8"]), vec![transparent, from("::/0")], false),
    ] {
        let nets = |all: &Vec<&str>| all.iter().map(|it| it.parse().expect("a network")).collect();
        let tenants = Tenants { sources: trusted.as_ref().map(nets), ..Tenants::default() };
        let mut service = shop();
        service.local_only = true;
        service.meta.annotations = say.iter().map(|(k, v)| ((*k).into(), (*v).into())).collect();
        let behind = put_slice(&slice("shop", ("", 80), vec![endpoint("10.0.0.1")]));
        let world = on_host_of(Config { tenants, ..Config::default() }, vec![put(&service), behind]);
        let Desired::LoadBalancer(it) = world.desire(&unit(&owner(&service))) else { panic!("it is ours") };
        let seen = it.pools.values().all(|pool| pool.transparent);
        assert_eq!(seen, expected, "{trusted:?} {say:?}");
        assert!(!it.listeners.is_empty(), "it is served all the same");
        let problems = world.status(&owner(&service)).expect("it is ours").problems;
        let told =
            problems.iter().any(|it| it.reason == Reason::NotAllowed && it.field.contains("proxy-protocol"));
        assert_eq!(told, !expected, "{trusted:?} {say:?}: {problems:?}");
    }
}
