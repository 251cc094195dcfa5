//! Who may connect.

use seaway_model::{Desired, Problem};
use seaway_testkit::facts::{host, owner, put, shop};

use crate::cluster::scene::{on_host, unit};

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
        (&[], &[(OURS, "")], nobody, "it names no network; no client may connect"),
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
