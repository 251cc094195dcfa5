//! What protects a Service at the front door and cannot be followed: its places answer with an error, and no broader Service answers
//! there in its place.

use seaway_model::{
    Config, L4, Name,
    config::{FrontDoor, FrontDoorServices, TlsSecrets},
    fact::Service,
    load_balancer::{Action, Match, PathMatch, Rule},
};

use super::{
    protected::authorities,
    routes::{route_to, under},
    scene::*,
};
use crate::{World, certificates::tests::tls_secret, front_door, misplaced_protection};

const PATH: (&str, &str) = ("seaway.dev/path", "/admin");

fn admin(say: &[(&str, &str)]) -> Service {
    saying(saying(service("admin", &[80]), &[PATH]), say)
}

/// `/` and, beside it, what is to be protected.
fn beside_root(config: Config, admin: &Service) -> World {
    let root = saying(service("root", &[80]), &[("seaway.dev/path", "/")]);
    world(config, [put(&root), backed(&root), put(admin), backed(admin), told(&authorities("ca"))])
}

fn rules_at(world: &World, entrance: Option<&str>, of: &str) -> Vec<Rule> {
    let owner = front_door::owner_of(entrance.map(Name::from).as_ref());
    let seaway_model::Desired::LoadBalancer(it) = world.desire(&unit(&owner)) else { return Vec::new() };
    let rules = it.listeners.values().flat_map(|it| &it.rules);
    rules.filter(|rule| *rule.owner.object().name == *of).map(|rule| Rule::clone(rule)).collect()
}

fn answers(rule: &Rule) -> Option<u16> {
    match rule.action {
        Action::Respond { code, .. } => Some(code),
        _ => None,
    }
}

fn paths(rule: &Rule) -> Vec<PathMatch> {
    rule.matches.iter().filter_map(|it: &Match| it.path.clone()).collect()
}

#[test]
fn a_service_whose_protection_is_not_understood_answers_503_at_its_places() {
    let served = beside_root(Config::default(), &admin(&[]));
    assert!(rules_at(&served, None, "admin").iter().all(|it| answers(it).is_none()));
    for say in [
        ("seaway.dev/basic-auth", "Users_"),
        ("seaway.dev/basic_auth", "users"),
        ("seaway.dev/source-ranges", "10.0.0.0/33"),
        ("seaway.dev/source-range", "10.0.0.0/8"),
        ("seaway.dev/denied-source-ranges", "10.0.0/8"),
        ("seaway.dev/client-certificates", "required"),
        ("seaway.dev/client-authorities", "ca"),
    ] {
        let world = beside_root(Config::default(), &admin(&[say]));
        let rules = rules_at(&world, None, "admin");
        let prefix: Vec<PathMatch> = rules.iter().flat_map(paths).collect();
        assert_eq!(prefix, [PathMatch::Prefix("/admin".into())], "{say:?}");
        assert!(rules.iter().all(|it| answers(it) == Some(503)), "{say:?}: {rules:?}");
        let it = load_balancer(&world).expect("the front door is open");
        assert!(it.pools.keys().all(|id| !id.0.contains("admin")), "{say:?}: no member is checked for it");
        assert!(!problems(&world).is_empty(), "{say:?}");
    }
}

#[test]
fn hosts_that_cannot_be_passed_through_with_protection_answer_503() {
    let hosts = [("seaway.dev/host", "a.example"), ("seaway.dev/tls-passthrough", "true")];
    let shop = saying(saying(service("shop", &[443]), &hosts), &[("seaway.dev/source-ranges", "10.0.0.0/8")]);
    let rules = rules_at(&beside_root(Config::default(), &shop), None, "shop");
    let hosts: Vec<String> = rules.iter().flat_map(|it| &it.hosts).map(ToString::to_string).collect();
    assert_eq!(hosts, ["a.example"]);
    assert!(rules.iter().all(|it| answers(it) == Some(503)), "{rules:?}");
    // For its sake alone, no port is opened.
    assert!(load_balancer(&world(Config::default(), [put(&shop), backed(&shop)])).is_none());
}

/// `shop.example/admin`, where 503 is answered.
fn closed_places(world: &World) -> Vec<String> {
    let closed = entrances(world).into_iter();
    closed.filter_map(|it| it.strip_suffix(" -> answer 503").map(str::to_owned)).collect()
}

type Say<'a> = &'a [(&'a str, &'a str)];

const RANGES: (&str, &str) = ("seaway.dev/source-ranges", "10.0.0.0/8");
const UNKNOWN: &str = "a broader host name or path may serve requests that are meant for it";

#[test]
fn a_protected_service_whose_place_is_not_understood_answers_503_where_it_was_probably_meant() {
    let host = ("seaway.dev/host", "shop.example/admin");
    let cases: [(Say<'_>, &[&str], bool); 20] = [
        (&[("seaway.dev/host", "http://shop.example/admin")], &["shop.example/admin"], false),
        (&[("seaway.dev/host", "shop.example /admin")], &["shop.example/admin"], false),
        (&[("seaway.dev/host", "shop.example/admin/*")], &["shop.example/admin"], false),
        (&[("seaway.dev/host", "shop.example/admin.*")], &["shop.example/admin"], false),
        (&[("seaway.dev/host", "https://admin.example")], &["admin.example/"], false),
        (&[("serviceloadbalancer/lb.host", "shop.example:80/admin")], &["shop.example/admin"], false),
        (&[("seaway.dev/hosts", "shop.example/admin")], &["shop.example/admin"], false),
        (&[("seaway.dev/hst", "shop.example/admin")], &["shop.example/admin"], false),
        (&[("seaway.dev/path", "admin")], &["/admin"], false),
        (&[("seaway.dev/path", "shop.example/admin")], &["shop.example/admin"], false),
        (&[("seaway.dev/path", "/admin/*")], &["/admin"], false),
        (&[host, ("seaway.dev/path", "ad min")], &["shop.example/admin"], true),
        (&[host, ("seaway.dev/front-door", "maybe")], &["shop.example/admin"], false),
        (
            &[("seaway.dev/host", "a.example/admin,http://b.example/admin,c d")],
            &["a.example/admin", "b.example/admin"],
            true,
        ),
        (&[("seaway.dev/host", "shop_/admin")], &[], true),
        (&[("seaway.dev/host", "")], &[], true),
        (&[("seaway.dev/path", "/*")], &[], true),
        (&[("seaway.dev/front-door", "maybe")], &[], true),
        // It is kept out.
        (&[("seaway.dev/host", "http://shop.example/admin"), ("seaway.dev/front-door", "false")], &[], false),
        (&[host], &[], false),
    ];
    for (say, expected, is_unknown) in cases {
        for annotated in [false, true] {
            let mut config = Config::default();
            if annotated {
                config.front_door.services = FrontDoorServices::Annotated;
            }
            let shop = saying(service("shop", &[80]), &[("seaway.dev/host", "shop.example")]);
            let admin = saying(saying(service("admin", &[80]), say), &[RANGES]);
            let world = world(config, [put(&shop), backed(&shop), put(&admin), backed(&admin)]);
            assert_eq!(closed_places(&world), expected, "{say:?}: {:?}", entrances(&world));
            let said = problems(&world).join("\n");
            assert_eq!(said.contains(UNKNOWN), is_unknown, "{say:?}: {said}");
            let answers = format!("and answers 503 at {}", expected.join(", ").trim_end_matches('/'));
            assert_eq!(said.contains(&answers), !expected.is_empty(), "{say:?}: {said}");
        }
        // Nothing is kept for a Service that lets everybody in.
        let open = saying(service("admin", &[80]), say);
        let world = world(Config::default(), [put(&open), backed(&open)]);
        assert_eq!(closed_places(&world), [""; 0], "{say:?}");
        assert!(!problems(&world).join("\n").contains(UNKNOWN), "{say:?}");
    }
}

/// Who reads files keeps the last good state of such a Service.
#[test]
fn what_restricts_access_and_is_misplaced_is_named_before_anything_is_planned() {
    let internal = ("seaway.dev/internal", "true");
    let cases: [(Say<'_>, usize); 6] = [
        (&[RANGES], 1),
        (&[internal], 1),
        (&[("seaway.dev/internal", "false")], 0),
        (&[internal, ("seaway.dev/entrance", "inside")], 0),
        (&[internal, RANGES], 1),
        (&[], 0),
    ];
    for (say, expected) in cases {
        let place = ("seaway.dev/host", "http://shop.example/admin");
        let admin = saying(saying(service("admin", &[80]), say), &[place]);
        assert_eq!(misplaced_protection(&admin).len(), expected, "{say:?}");
    }
}

#[test]
fn a_protected_service_without_a_port_for_its_place_answers_503_there() {
    let host = ("seaway.dev/host", "shop.example/admin");
    let through = ("seaway.dev/tls-passthrough", "true");
    let udp = |mut service: Service| {
        service.ports[0].protocol = L4::Udp;
        service
    };
    let tcp = |service: Service| speaking(service, 0, "tcp");
    let as_it_is = |service: Service| service;
    type Change = fn(Service) -> Service;
    let cases: [(Change, Say<'_>, &[&str]); 7] = [
        (udp, &[host], &["shop.example/admin"]),
        (tcp, &[host], &["shop.example/admin"]),
        (tcp, &[PATH], &["/admin"]),
        (as_it_is, &[host, through], &["shop.example/admin"]),
        (as_it_is, &[PATH, through], &["/admin"]),
        (tcp, &[], &[]),
        (as_it_is, &[host], &[]),
    ];
    for (change, say, expected) in cases {
        let shop = saying(service("shop", &[80]), &[("seaway.dev/host", "shop.example")]);
        let open = saying(change(service("admin", &[80])), say);
        let admin = saying(open.clone(), &[RANGES]);
        let of = |it: &Service| world(Config::default(), [put(&shop), backed(&shop), put(it), backed(it)]);
        assert_eq!(closed_places(&of(&admin)), expected, "{say:?}: {:?}", entrances(&of(&admin)));
        assert_eq!(closed_places(&of(&open)), [""; 0], "{say:?}");
        if !expected.is_empty() {
            assert!(!problems(&of(&admin)).is_empty(), "{say:?}");
        }
    }
}

#[test]
fn what_is_protected_at_an_entrance_that_is_not_there_is_closed_at_all_where_it_is_not() {
    let mut config = Config::default();
    config.front_door.tls.secrets = TlsSecrets::Named;
    let own = FrontDoor { port: 8080, ..config.front_door.clone() };
    config.front_door.entrances.insert("internal".into(), own);
    let users = ("seaway.dev/source-ranges", "10.0.0.0/8");
    for (entrance, guard, main, internal) in [
        ("interal", Some(users), vec![Some(503)], vec![Some(503)]),
        ("main,interal", Some(users), vec![None], vec![Some(503)]),
        ("interal", None, vec![], vec![]),
        ("internal", Some(users), vec![], vec![None]),
    ] {
        let say: Vec<(&str, &str)> = [("seaway.dev/entrance", entrance)].into_iter().chain(guard).collect();
        let mut root = saying(service("root", &[80]), &[("seaway.dev/path", "/")]);
        root = saying(root, &[("seaway.dev/entrance", "main,internal")]);
        let admin = admin(&say);
        let world = world(config.clone(), [put(&root), backed(&root), put(&admin), backed(&admin)]);
        let at = |name| rules_at(&world, name, "admin").iter().map(answers).collect::<Vec<_>>();
        assert_eq!((at(None), at(Some("internal"))), (main, internal), "{entrance} {guard:?}");
    }
}

#[test]
fn a_protected_rule_with_a_broken_expression_closes_all_that_it_may_mean() {
    let hidden = |say: &[(&str, &str)]| {
        saying(service("admin", &[80]), &[&[("seaway.dev/front-door", "false")], say].concat())
    };
    let users = ("seaway.dev/source-ranges", "10.0.0.0/8");
    for (pattern, say, expected) in [
        ("/admin/[a-", vec![users], "/admin/(?s-u:.)*"),
        ("/admin?[", vec![users], "/admi(?s-u:.)*"),
        ("(/a|/b[", vec![users], "(?s-u:.)*"),
        // At all hosts it would close what belongs to others.
        ("(/a|/c[", vec![users], "(/a|/c["),
        // Nothing is protected: its requests go where they go without it.
        ("/admin/[a-", vec![], "/admin/[a-"),
        ("/admin/.*", vec![users], "/admin/.*"),
    ] {
        let admin = hidden(&say);
        let mut route = route_to("admin", 80);
        if !pattern.contains("/c[") {
            route.hosts = vec![seaway_model::load_balancer::HostPattern::Exact("a.example".into())];
        }
        route.rules[0].matches[0] = Match { path: Some(PathMatch::Regex(pattern.into())), ..under("/") };
        let world = world(Config::default(), [put(&admin), backed(&admin), put_route(&route)]);
        let rules = rules_at(&world, None, "shop");
        let found: Vec<PathMatch> = rules.iter().flat_map(paths).collect();
        assert_eq!(found, [PathMatch::Regex(expected.into())], "{pattern}");
        let is_broken = pattern.contains("[");
        assert_eq!(rules.iter().all(|it| answers(it) == Some(500)), is_broken, "{pattern}: {rules:?}");
    }
}

#[test]
fn no_password_is_asked_for_in_plaintext_where_https_is_asked_for_and_not_there_yet() {
    let users = |say: &[(&str, &str)]| {
        let host = ("seaway.dev/host", "a.example");
        saying(service("shop", &[80]), &[&[host, ("seaway.dev/basic-auth", "users")], say].concat())
    };
    let redirect = ("seaway.dev/https-redirect", "true");
    for (say, certified, expected) in [
        (vec![redirect], false, vec![Some(503)]),
        (vec![], false, vec![None]),
        (vec![redirect], true, vec![None]),
    ] {
        let shop = users(&say);
        let mut config = Config::default();
        config.front_door.tls.secrets = TlsSecrets::All;
        let pair = certified.then(|| told(&tls_secret("own", &["a.example"])));
        let world = world(config, [put(&shop), backed(&shop)].into_iter().chain(pair));
        let open = listener(&world);
        let of_host = open.rules.iter().filter(|it| !it.hosts.is_empty());
        let found: Vec<Option<u16>> = of_host.map(|it| answers(it)).collect();
        assert_eq!(found, expected, "{say:?} {certified}");
    }
}
