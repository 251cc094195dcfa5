use seaway_model::{Config, Kind};

use super::*;

fn read(pairs: &[(&str, &str)]) -> (ServiceOptions, Vec<Problem>) {
    let mut wishes = ServiceOptions::of(&Config::default().defaults);
    let annotations = pairs.iter().map(|(k, v)| (Name::from(*k), Name::from(*v))).collect();
    let problems = wishes.read(&ObjectRef::new(Kind::Service, "default", "shop"), &annotations);
    (wishes, problems)
}

#[test]
fn names_of_the_replaced_systems_mean_the_same_as_ours() {
    let ours = read(&[("seaway.dev/balance", "least-connections"), ("seaway.dev/address", "192.0.2.7")]);
    let theirs = read(&[
        ("serviceloadbalancer/lb.algorithm", "leastconn"),
        ("metallb.io/loadBalancerIPs", "192.0.2.7"),
    ]);
    assert_eq!(ours.0.balance, theirs.0.balance);
    assert_eq!(ours.0.requested, theirs.0.requested);
    assert!(ours.1.is_empty() && theirs.1.is_empty());
}

#[test]
fn a_value_that_is_not_understood_leaves_its_default_and_says_so() {
    let (wishes, problems) = read(&[("seaway.dev/balance", "fastest"), ("seaway.dev/timeout-idle", "3m")]);
    assert_eq!(wishes.balance, Balance::RoundRobin);
    assert_eq!(wishes.timeouts.idle, Duration::from_secs(180));
    assert_eq!(problems.len(), 1);
    assert_eq!(problems[0].field.as_str(), "metadata.annotations[seaway.dev/balance]");
    assert!(problems[0].fix.contains("source-hash"), "{}", problems[0].fix);
}

#[test]
fn a_profile_of_tls_that_is_not_understood_is_the_stricter() {
    for (said, profile, told) in [
        ("moderm", Some(TlsProfile::Modern), true),
        ("", Some(TlsProfile::Modern), true),
        ("intermediate", Some(TlsProfile::Intermediate), false),
    ] {
        let (wishes, problems) = read(&[(TLS_PROFILE, said)]);
        assert_eq!(
            (wishes.tls.profile, wishes.cloud.unclear, problems.len()),
            (profile, told, usize::from(told)),
            "{said}"
        );
    }
}

#[test]
fn a_misspelt_name_of_ours_is_told_with_the_nearest() {
    let (_, problems) = read(&[("seaway.dev/balanse", "source-hash")]);
    assert_eq!(problems[0].fix, "Did you mean seaway.dev/balance?");
}

#[test]
fn a_misspelt_name_that_would_protect_closes_unless_the_right_one_is_there_too() {
    for (name, value, closes) in [
        ("seaway.dev/source-range", "10.0.0.0/8", true),
        ("seaway.dev/Source-Ranges", "10.0.0.0/8", true),
        ("seaway.dev/sourceranges", "10.0.0.0/8", true),
        ("seaway.dev/client-authority", "ca", true),
        ("seaway.dev/client-certificate", "required", true),
        ("seaway.dev/tsl", "own", true),
        ("seaway.dev/proxy-protocol-form", "10.0.0.0/8", true),
        ("seaway.dev/balanse", "first", false),
        ("seaway.dev/tls-port", "443", false),
        ("seaway.dev/team", "web", false),
        ("seaway.dev/lb", "1", false),
        ("seaway.dev/pool", "public", false),
        ("example.dev/source-range", "10.0.0.0/8", false),
        ("seway.dev/source-ranges", "10.0.0.0/8", true),
        ("seway.dev/source-rangs", "10.0.0.0/8", true),
        ("seaway.dev.source-ranges", "10.0.0.0/8", true),
        ("seaway.dev-sourceranges", "10.0.0.0/8", true),
        ("seaway.dev.team", "web", false),
        ("seaway.dev/basic-auth-secret", "users", true),
        ("seaway.dev/basic-auth-relm", "Shop", true),
        ("seaway.de/balance", "first", false),
        ("subway.dev/source-ranges", "10.0.0.0/8", false),
    ] {
        let (wishes, problems) = read(&[(name, value)]);
        let said = problems.iter().any(|it| it.message.contains("no listener is opened"));
        assert_eq!((wishes.closed, said), (closes, closes), "{name}: {problems:?}");
        assert!(!wishes.cloud.unclear, "{name}");
        assert!(!closes || problems[0].fix.starts_with("Did you mean seaway.dev/"), "{name}: {problems:?}");
    }
    for (name, fix) in [
        ("seaway.dev/allowed-source-ranges", "Did you mean seaway.dev/source-ranges?"),
        ("seaway.dev/blocked-source-ranges", "Did you mean seaway.dev/denied-source-ranges?"),
        ("seaway.dev/basic-auth-secret", "Did you mean seaway.dev/basic-auth?"),
        ("seaway.dev.source-ranges", "Did you mean seaway.dev/source-ranges?"),
    ] {
        assert_eq!(read(&[(name, "10.0.0.0/8")]).1[0].fix, fix, "{name}");
    }
    let both = [("seaway.dev/source-range", "10.0.0.0/8"), ("seaway.dev/source-ranges", "10.0.0.0/8")];
    assert!(!read(&both).0.closed);
}

#[test]
fn an_unknown_name_of_the_other_controller_is_told_with_the_nearest() {
    let (_, problems) = read(&[("loadbalancer.openstack.org/floating-netwrok-id", "x")]);
    assert_eq!(problems.len(), 1, "{problems:?}");
    assert_eq!(problems[0].fix, "Did you mean loadbalancer.openstack.org/floating-network-id?");
    let (_, problems) = read(&[("loadbalancer.openstack.org/load-balancer-address", "192.0.2.1")]);
    assert!(problems.is_empty(), "it is written for people: {problems:?}");
}

#[test]
fn two_names_of_one_option_that_disagree_are_told() {
    let (wishes, problems) =
        read(&[("seaway.dev/balance", "source-hash"), ("serviceloadbalancer/lb.algorithm", "leastconn")]);
    assert_eq!(wishes.balance, Balance::SourceHash);
    assert_eq!(problems.len(), 1);
}

#[test]
fn an_http_check_is_asked_for_by_its_path() {
    let (wishes, problems) = read(&[
        ("seaway.dev/health-check-path", "/healthz"),
        ("seaway.dev/health-check-status", "200-299"),
        ("seaway.dev/health-check-expect", "ok"),
    ]);
    assert!(problems.is_empty(), "{problems:?}");
    let (kind, path, expect) =
        (wishes.health.expect("on by default").kind, "/healthz".into(), Some("ok".into()));
    assert_eq!(kind, CheckKind::Http { path, host: None, status: (200, 299), expect });
    let (wishes, problems) = read(&[("seaway.dev/health-check-service", "shop.v1")]);
    assert!(problems.is_empty(), "{problems:?}");
    let kind = wishes.health.expect("on by default").kind;
    assert_eq!(kind, CheckKind::Grpc { service: "shop.v1".into() });
}

#[test]
fn the_words_of_the_old_bank_for_http_are_understood() {
    let (wishes, problems) = read(&[
        ("serviceloadbalancer/lb.host", "Shop.example., *.shop.example"),
        ("serviceloadbalancer/lb.aclMatch", "/cart/, /basket"),
        ("serviceloadbalancer/lb.cookie-sticky-session", "true"),
    ]);
    assert!(problems.is_empty(), "{problems:?}");
    let hosts: Vec<String> = wishes.http.hosts.iter().map(ToString::to_string).collect();
    assert_eq!(hosts, ["shop.example", "*.shop.example"]);
    let paths: Vec<&str> = wishes.http.paths.iter().map(Name::as_str).collect();
    assert_eq!(paths, ["/cart", "/basket"]);
    assert_eq!(wishes.http.cookie, Some(("SERVERID".into(), CookieMode::Insert)));
    assert_eq!(wishes.field_of(HOST).as_str(), "metadata.annotations[serviceloadbalancer/lb.host]");
}

#[test]
fn what_no_host_and_no_path_can_be_is_told() {
    for (name, value) in [
        ("seaway.dev/host", "shop example"),
        ("seaway.dev/host", "shop.*"),
        ("seaway.dev/host", "*"),
        ("seaway.dev/host", "/cart"),
        ("seaway.dev/host", "shop.example//cart"),
        ("seaway.dev/host", "https://shop.example/cart"),
        ("seaway.dev/host", "shop.example/cart?x"),
        ("seaway.dev/host", ""),
        ("seaway.dev/path", "cart"),
        ("seaway.dev/path", "/cart?x"),
        ("seaway.dev/path", "/a//b"),
        ("seaway.dev/path", "/a/../b"),
        ("seaway.dev/protocol", "https"),
        ("seaway.dev/front-door", "perhaps"),
        ("seaway.dev/sticky-cookie", "a b"),
    ] {
        let (wishes, problems) = read(&[(name, value)]);
        assert_eq!(problems.len(), 1, "{name}: {value}");
        // Where it is to be is not known: nowhere, then.
        let place_unclear = [HOST, PATH, FRONT_DOOR].contains(&name);
        let expected = HttpOptions { place_unclear, ..HttpOptions::default() };
        assert_eq!(wishes.http, expected, "{name}: {value}");
    }
}

#[test]
fn every_row_has_a_name_of_ours_and_a_help() {
    for row in rows() {
        assert!(row.name().starts_with("seaway.dev/"), "{:?}", row.names);
        assert!(!row.help.is_empty());
    }
}

#[test]
fn who_says_how_a_password_is_asked_for_means_to_ask() {
    for (name, value) in [("seaway.dev/basic-auth-realm", "Staff"), ("seaway.dev/basic-auth-forward", "true")]
    {
        let (wishes, problems) = read(&[("seaway.dev/basic-auth-secret", "users"), (name, value)]);
        assert!(wishes.closed, "{name}: {problems:?}");
    }
}

#[test]
fn a_percentage_is_a_hundred_at_most() {
    for (text, percent) in [("0", Some(0)), ("100%", Some(100)), ("100", Some(100)), ("101", None)] {
        let (wishes, problems) = read(&[("seaway.dev/panic-threshold", text)]);
        let told = percent.is_none() as usize;
        let default = Config::default().defaults.panic_threshold;
        assert_eq!((wishes.panic_threshold, problems.len()), (percent.unwrap_or(default), told), "{text}");
    }
}

#[test]
fn passwords_that_are_written_into_an_annotation_are_not_shown() {
    for name in
        ["seaway.dev/basic-auth", "seaway.dev/basic-auth-users", "nginx.ingress.kubernetes.io/auth-secret"]
    {
        let (_, problems) = read(&[(name, "bob:$6$salt$hash")]);
        let shown = format!("{problems:?}");
        assert!(!shown.contains("$6$") && !shown.contains("bob"), "{shown}");
    }
    assert!(!read(&[("seaway.dev/basic-auth", "bob:$6$salt$hash")]).1.is_empty());
}
