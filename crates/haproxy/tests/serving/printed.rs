//! The files as they are read, what changes in them, and what HAProxy cannot serve.

use std::{collections::BTreeSet, path::Path, sync::Arc};

use seaway_haproxy::{
    ConfigInput, Document, Exclusions, Version, document, document::SlotState, files, is_ours,
};
use seaway_model::{
    L4, Listener, LoadBalancer, Name, Owner, Pool, Problem,
    load_balancer::{
        BackendTls, BasicAuth, Certificate, CheckKind, ClientAuth, ClientKey, Filter, HealthCheck,
        HttpOptions, Match, MemberState, PathMatch, Protocol, RateLimit, RequestRate, Rule, RuleTls,
        TextMatch, TlsByName, TlsProfile, Trust,
    },
};
use secrecy::ExposeSecret as _;

use crate::scene::{
    All, Members, all, at, certificate, exact, http, load_balancer, made, owner, pool, prefix, printed,
    secret, to,
};

const FOLDER: &str = "/run/seaway/haproxy";

/// All files but those with keys.
fn read(document: &Document) -> String {
    let files = files(document);
    let mut text = files.configuration;
    for (path, (_, body)) in &files.others {
        text.push_str(&format!("\n#### {path}\n"));
        text.push_str(if path.contains("/certificates/") { "…\n" } else { body.expose_secret() });
    }
    text
}

#[test]
fn files_read_as_they_are_written_down() {
    let pems = [made(&["first.example"]), made(&["second.example"])];
    let ip = "192.0.2.10".parse().expect("an address");
    let mut every = all(ip, [80, 443, 3306], Members::written(), &pems);
    every.extend(crate::scene::options("2001:db8::10".parse().expect("an address")));
    let (document, problems) = printed(&every, FOLDER, None);
    assert_eq!(problems, []);
    let text = read(&document);
    seaway_testkit::golden::same(Path::new(env!("CARGO_MANIFEST_DIR")).join("golden/everything.txt"), &text);
    assert!(is_ours(&text));
    let keys = pems.iter().flat_map(|(_, key)| key.lines()).filter(|it| !it.starts_with('-'));
    keys.for_each(|key| assert!(!text.contains(key)));
    assert_eq!(format!("{:?}", document.certificates.values().next()), "Some(Pem(…))");
}

fn one(rule: Rule, change: impl FnOnce(&mut Pool, &mut Listener)) -> All {
    let mut pool = pool("web", &["10.0.0.1:80".parse().expect("an address")]);
    let mut listener = http("web", 80, vec![rule, to("web")]);
    change(&mut pool, &mut listener);
    let it = load_balancer("127.0.0.1".parse().expect("an address"), vec![listener], vec![pool]);
    [(owner("web"), Arc::new(it))].into()
}

fn guarded() -> Rule {
    at(Rule { sources: vec!["192.0.2.0/24".parse().expect("a range")], ..to("web") }, &[], prefix("/guarded"))
}

/// Which backend requests for this host and path are for, by the maps alone.
fn mapped<'d>(document: &'d Document, key: &str) -> Option<&'d str> {
    let mut entries = document.maps.values().flat_map(|it| &it.entries);
    entries.find(|(it, _)| it.as_str() == key).map(|(_, value)| value.as_str())
}

type Case = (&'static str, &'static str, All);

/// What restricts and cannot be done: a part of its Problem, its field, what is asked for.
fn closed() -> Vec<Case> {
    let rule = |change: fn(&mut Rule)| {
        let mut rule = guarded();
        rule.sources.clear();
        change(&mut rule);
        one(rule, |_, _| {})
    };
    let with = |filter: Filter| {
        one(at(Rule { filters: vec![filter], ..to("web") }, &[], prefix("/guarded")), |_, _| {})
    };
    vec![
        (
            "limits of requests",
            "metadata.annotations[seaway.dev/requests-per-second-per-client]",
            rule(|it| {
                let rate = RequestRate { per_second: 1, burst: 1, key: ClientKey::Address };
                it.rates = vec![RateLimit { of: secret("limit"), rate }];
            }),
        ),
        (
            "passwords",
            "metadata.annotations[seaway.dev/basic-auth]",
            rule(|it| {
                let auth = BasicAuth { of: secret("users"), realm: "r".into(), users: None, forwards: false };
                it.auth = vec![Arc::new(auth)];
            }),
        ),
        (
            "TLS profile",
            "metadata.annotations[seaway.dev/tls-profile]",
            rule(|it| {
                it.tls = Some(Arc::new(RuleTls { profile: Some(TlsProfile::Modern), ..RuleTls::default() }));
            }),
        ),
        (
            "behind trusted proxies",
            "metadata.annotations[seaway.dev/source-ranges]",
            one(guarded(), |_, listener| {
                let trusted = vec!["10.0.0.0/8".parse().expect("a range")];
                listener.http = HttpOptions { trusted, ..HttpOptions::default() };
            }),
        ),
        ("a filter that HAProxy lacks", "spec.rules", with(Filter::RewriteHost("a b".into()))),
        ("a filter that HAProxy lacks", "spec.rules", with(Filter::RewritePath("/a'b".into()))),
    ]
}

#[test]
fn what_restricts_and_cannot_be_done_is_answered_by_503_and_the_rest_is_served() {
    for (part, field, all) in closed() {
        let (document, problems) = printed(&all, FOLDER, None);
        let [(of, problem)] = problems.as_slice() else { panic!("{part}: {problems:?}") };
        assert!(problem.message.contains(part), "{part}: {problem}");
        assert_eq!((of, &*problem.field), (&owner("web"), field), "{problem}");
        assert_eq!(mapped(&document, "*/guarded/"), Some("unavailable"), "{part}: {:?}", document.maps);
        assert_eq!(mapped(&document, "*/"), Some("default.web.web"), "{part}");
        assert!(read(&document).contains("backend unavailable\n    mode http\n"));
    }
}

#[test]
fn a_guarded_rule_that_cannot_be_told_from_others_closes_all_that_it_could_be_about() {
    let regex = |guarded: bool| {
        let path = Some(PathMatch::Regex("/secret.*".into()));
        let sources = guarded.then(|| "192.0.2.0/24".parse().expect("a range"));
        let rule =
            at(Rule { sources: sources.into_iter().collect(), ..to("web") }, &[exact("shop.example")], path);
        let all = one(rule, |_, listener| {
            listener.rules.push(Arc::new(at(to("web"), &[exact("shop.example")], None)))
        });
        printed(&all, FOLDER, None)
    };
    let (document, problems) = regex(true);
    assert_eq!(problems.len(), 1);
    assert_eq!(mapped(&document, "shop.example/"), Some("unavailable"));
    assert_eq!(mapped(&document, "*/"), Some("default.web.web"));
    let (document, problems) = regex(false);
    assert_eq!(problems.len(), 1);
    assert_eq!(mapped(&document, "shop.example/"), Some("default.web.web"));
    // A path that is no key of a map, with its host at the latest.
    let long = format!("/{}", "a".repeat(1990));
    let rule = Rule { hosts: vec![exact("shop.example")], ..at(guarded(), &[], prefix(&long)) };
    let (document, problems) = printed(&one(rule, |_, _| {}), FOLDER, None);
    assert_eq!((problems.len(), mapped(&document, "shop.example/")), (1, Some("unavailable")));
    // By a header: all that its path is about.
    let header = Match {
        headers: vec![("X-A".into(), TextMatch::Regex(".*".into()))],
        path: prefix("/guarded"),
        ..Match::default()
    };
    let (document, _) = printed(&one(Rule { matches: vec![header], ..guarded() }, |_, _| {}), FOLDER, None);
    assert_eq!(mapped(&document, "*/guarded/"), Some("unavailable"));
}

fn believing(authorities: &str) -> Option<Arc<BackendTls>> {
    let trust = Trust::CaBundle(authorities.into());
    Some(Arc::new(BackendTls { name: None, usual: "web.default".into(), trust }))
}

#[test]
fn authorities_that_cannot_be_read_spoil_only_what_believes_them() {
    let pem = made(&["first.example"]);
    let all = one(to("web"), |pool, _| pool.tls = believing(&pem.0));
    let global = crate::scene::global(FOLDER);
    let printed = |unusable: &Exclusions| {
        let version = Version::V2_6;
        document(ConfigInput { load_balancers: &all, version, global: &global, unusable, before: None })
    };
    let (document, problems) = printed(&Exclusions::default());
    assert_eq!((document.authorities.len(), problems), (1, Vec::new()));
    let authorities = BTreeSet::from([pem.0.as_str().into()]);
    let (document, problems) = printed(&Exclusions { authorities, ..Exclusions::default() });
    let [(_, problem)] = problems.as_slice() else { panic!("{problems:?}") };
    assert_eq!(
        (document.authorities.len(), &*problem.field),
        (0, "metadata.annotations[seaway.dev/backend-tls]")
    );
    assert!(document.backends.values().all(|it| it.slots.iter().all(|slot| slot.member.is_none())));
}

#[test]
fn what_is_left_out_or_closed_is_said_at_its_field() {
    let cases: Vec<Case> = vec![
        (
            "does not serve UDP",
            "spec.ports",
            one(to("web"), |pool, listener| (pool.l4, listener.l4) = (L4::Udp, L4::Udp)),
        ),
        (
            "gRPC",
            "metadata.annotations[seaway.dev/health-check]",
            one(to("web"), |pool, _| {
                let kind = CheckKind::Grpc { service: "".into() };
                pool.health = Some(HealthCheck { kind, ..HealthCheck::default() });
            }),
        ),
        (
            "members see the host's address and not the client's",
            "metadata.annotations[seaway.dev/transparent]",
            one(to("web"), |pool, _| pool.transparent = true),
        ),
        (
            "members see the host's address and not the client's",
            "metadata.annotations[seaway.dev/transparent]",
            one(to("web"), |pool, listener| {
                pool.transparent = true;
                listener.protocol = Protocol::Opaque;
            }),
        ),
        (
            "members cannot be verified",
            "metadata.annotations[seaway.dev/backend-tls]",
            one(to("web"), |pool, _| pool.tls = believing("")),
        ),
        (
            "members cannot be verified",
            "metadata.annotations[seaway.dev/backend-tls]",
            one(to("web"), |pool, listener| {
                pool.tls = believing("");
                listener.protocol = Protocol::Opaque;
            }),
        ),
        (
            "it has no usable certificate",
            "metadata.annotations[seaway.dev/tls]",
            one(to("web"), |_, listener| {
                listener.tls =
                    Some(Arc::new(TlsByName { default: vec![secret("gone")], ..TlsByName::default() }));
            }),
        ),
    ];
    for (part, field, all) in cases {
        let (document, problems) = printed(&all, FOLDER, None);
        let [(_, problem)] = problems.as_slice() else { panic!("{part}: {problems:?}") };
        assert!(problem.message.contains(part) && *problem.field == *field, "{part}: {problem}");
        let served = document.backends.get(&seaway_haproxy::words::Label::of("default.web.web"));
        let members = served.map_or(0, |it| it.slots.iter().filter(|slot| slot.member.is_some()).count());
        assert_eq!(members, usize::from(part == "gRPC"), "{part}: {served:?}");
    }
}

#[test]
fn clients_are_verified_and_that_members_do_not_learn_who_they_are_is_said() {
    let pem = made(&["first.example"]);
    let clients = ClientAuth { authorities: secret("clients"), required: true };
    let mut all = one(to("web"), |_, listener| {
        let tls =
            TlsByName { default: vec![secret("shown")], clients: Some(clients), ..TlsByName::default() };
        listener.tls = Some(Arc::new(tls));
    });
    for it in all.values_mut() {
        let authorities = Arc::new(Certificate { authorities: pem.0.as_str().into(), ..none() });
        Arc::make_mut(it).certificates =
            Arc::new([(secret("shown"), certificate(&pem)), (secret("clients"), authorities)].into());
    }
    let (document, problems) = printed(&all, FOLDER, None);
    let [(_, problem)] = problems.as_slice() else { panic!("{problems:?}") };
    assert!(problem.message.contains("Client-Cert"), "{problem}");
    assert_eq!(&*problem.field, "metadata.annotations[seaway.dev/client-authorities]");
    let text = read(&document);
    assert!(text.contains("/authorities/default.clients.pem verify required"), "{text}");
    assert!(text.contains("http-request del-header Client-Cert\n"), "a client may not say who it is: {text}");
}

fn none() -> Certificate {
    let nothing = || Name::default();
    let (key, users) = (String::new().into(), String::new().into());
    Certificate { chain: nothing(), key, authorities: nothing(), staple: None, users }
}

#[test]
fn one_certificate_that_cannot_be_used_spoils_only_itself() {
    let pems = [made(&["first.example"]), made(&["second.example"])];
    let ip = "192.0.2.10".parse().expect("an address");
    let all = all(ip, [80, 443, 3306], Members::written(), &pems);
    let unusable = Exclusions { certificates: BTreeSet::from([secret("first")]), ..Exclusions::default() };
    let global = crate::scene::global(FOLDER);
    let wanted = ConfigInput {
        load_balancers: &all,
        version: Version::V2_6,
        global: &global,
        unusable: &unusable,
        before: None,
    };
    let (document, problems) = document(wanted);
    assert_eq!(problems.len(), 1, "{problems:?}");
    let text = read(&document);
    assert!(
        text.contains("/certificates/default.second.pem [ssl-min-ver TLSv1.2] second.example\n"),
        "{text}"
    );
    // Without a default, who asks for no name that is there is refused.
    assert!(text.contains(" strict-sni ") && !text.contains("default.first.pem"), "{text}");
}

#[test]
fn a_changed_service_changes_its_own_lines_and_members_keep_their_slots() {
    let at = |last: u8| std::net::SocketAddr::from(([10, 0, 0, last], 80));
    let scene = |members: &[std::net::SocketAddr], state: MemberState| {
        let mut web = pool("web", members);
        web.members.iter_mut().for_each(|it| it.state = state);
        let rules = vec![to("web"), self::at(to("other"), &[exact("other.example")], None)];
        let it = load_balancer(
            "127.0.0.1".parse().expect("an address"),
            vec![http("web", 80, rules)],
            vec![web, pool("other", &[at(9)])],
        );
        All::from([(owner("web"), Arc::new(it))])
    };
    let (first, _) = printed(&scene(&[at(1), at(2), at(3)], MemberState::Ready), FOLDER, None);
    let (second, _) = printed(&scene(&[at(2), at(3), at(4)], MemberState::Ready), FOLDER, Some(&first));
    let (one, other) = (read(&first), read(&second));
    let changed: Vec<&str> =
        one.lines().zip(other.lines()).filter(|(a, b)| a != b).map(|(_, b)| b.trim()).collect();
    assert_eq!(changed, ["server s1 127.0.0.1:9 disabled", "server s4 10.0.0.4:80 weight 1"]);
    assert_eq!(one.lines().count(), other.lines().count());
    let (third, _) = printed(&scene(&[at(2)], MemberState::Draining), FOLDER, Some(&second));
    let slot = &third.backends[&seaway_haproxy::words::Label::of("default.web.web")].slots[1];
    assert_eq!(slot.member.as_ref().map(|it| it.state), Some(SlotState::Drain));
    assert!(read(&third).contains("server s2 10.0.0.2:80 weight 0\n"));
}

#[test]
fn a_new_pool_takes_a_spare_backend_and_spares_are_made_again_with_the_next_reload() {
    let scene = |names: &[&str]| {
        let pools = names.iter().map(|it| pool(it, &[])).collect();
        let rules = names.iter().map(|it| at(to(it), &[exact(&format!("{it}.example"))], None)).collect();
        let it = load_balancer("127.0.0.1".parse().expect("an address"), vec![http("web", 80, rules)], pools);
        All::from([(owner("web"), Arc::new(it))])
    };
    let spares = |it: &Document| it.backends.values().filter(|it| it.is_spare()).count();
    let (first, _) = printed(&scene(&["a"]), FOLDER, None);
    assert_eq!(spares(&first), 8);
    let (second, _) = printed(&scene(&["a", "b"]), FOLDER, Some(&first));
    assert_eq!((mapped(&second, "b.example/"), spares(&second)), (Some("spare-1"), 7));
    // HAProxy has all of it already.
    assert!(
        second.backends.keys().all(|it| first.backends.contains_key(it))
            && second.frontends == first.frontends
    );
    let ten: Vec<String> = (0..10).map(|it| format!("c{it}")).collect();
    let ten: Vec<&str> = ["a", "b"].into_iter().chain(ten.iter().map(String::as_str)).collect();
    let (third, _) = printed(&scene(&ten), FOLDER, Some(&second));
    assert_eq!((mapped(&third, "b.example/"), spares(&third)), (Some("spare-1"), 8));
    let newer = |version| {
        let (global, unusable) = (crate::scene::global(FOLDER), Exclusions::default());
        let load_balancers = &scene(&["a"]);
        document(ConfigInput { load_balancers, version, global: &global, unusable: &unusable, before: None })
            .0
    };
    assert_eq!((spares(&newer(Version::V3_2)), spares(&newer(Version::V3_4))), (8, 0));
    assert_eq!(Version::of(2, 4), None);
    assert_eq!(
        [(2, 6), (2, 8), (3, 1), (3, 2), (4, 0)].map(|(a, b)| Version::of(a, b).map(Version::as_str)),
        [Some("2.6"), Some("2.6"), Some("3.0"), Some("3.2"), Some("3.4")]
    );
}

#[test]
fn two_that_want_one_socket_are_told_apart() {
    let it = |name: &str| {
        let listener = Listener { owner: owner(name), ..http(name, 80, vec![to(name)]) };
        let it: LoadBalancer =
            load_balancer("127.0.0.1".parse().expect("an address"), vec![listener], vec![pool(name, &[])]);
        (owner(name), Arc::new(it))
    };
    let all: All = [it("one"), it("two")].into();
    let (document, problems): (Document, Vec<(Owner, Problem)>) = printed(&all, FOLDER, None);
    assert_eq!(document.frontends.len(), 1);
    assert_eq!(problems.iter().map(|(of, _)| of).collect::<Vec<_>>(), [&owner("two")]);
}
