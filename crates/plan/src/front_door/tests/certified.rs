//! Certificates of clients, versions of TLS and limits that Services ask for at the front door.

use seaway_model::{
    Change, Config, Kind, ObjectRef, Owner, Time,
    fact::Service,
    load_balancer::{Action, ClientAuth, HostPattern, HostTls, Limits, Rule, TlsByName, TlsProfile},
};
use seaway_testkit::facts;

use super::{
    protected::authorities,
    routes::{backend, route_to},
    scene::*,
};
use crate::{World, certificates::tests::tls_secret};

const CLIENTS: (&str, &str) = ("seaway.dev/client-authorities", "ca");
const OPTIONAL: (&str, &str) = ("seaway.dev/client-certificates", "optional");
const MODERN: (&str, &str) = ("seaway.dev/tls-profile", "modern");

fn at(host: &str) -> (&str, &str) {
    ("seaway.dev/host", host)
}

fn object(name: &str) -> ObjectRef {
    ObjectRef::new(Kind::Secret, "default", name)
}

fn with_certificates(config: Config, services: &[Service]) -> World {
    let secrets = [tls_secret("own", &["a.example"])].map(|it| told(&it));
    let vouching = ["ca", "other"].map(|it| told(&authorities(it)));
    let services = services.iter().flat_map(|it| [put(it), backed(it)]);
    world(config, services.chain(secrets).chain(vouching))
}

fn tls(world: &World) -> TlsByName {
    let listeners = &load_balancer(world).expect("open").listeners;
    let secure = listeners.values().find_map(|it| it.tls.clone()).expect("TLS ends here");
    TlsByName::clone(&secure)
}

/// `"a.example ca required"`, a line for each host name that is spoken with otherwise.
fn hosts(world: &World) -> Vec<String> {
    let said = |(host, tls): (&HostPattern, &HostTls)| {
        let clients = tls.clients.as_ref().map_or_else(String::new, |it| {
            format!(" {} {}", it.authorities.name, if it.required { "required" } else { "optional" })
        });
        let modern = if tls.profile == TlsProfile::Modern { " modern" } else { "" };
        format!("{host}{clients}{modern}")
    };
    tls(world).hosts.iter().map(said).collect()
}

/// Rules of an object, in the open and by TLS.
fn rules(world: &World, of: &Owner) -> [Vec<Rule>; 2] {
    let listeners = &load_balancer(world).expect("open").listeners;
    [false, true].map(|secure| {
        let listener = listeners.values().find(|it| it.tls.is_some() == secure).expect("both are open");
        listener.rules.iter().filter(|it| it.owner == *of).map(|it| Rule::clone(it)).collect()
    })
}

fn is_redirect(rule: &Rule) -> bool {
    matches!(&rule.action, Action::Redirect(to) if to.scheme.as_deref() == Some("https"))
}

#[test]
fn a_host_name_has_its_own_client_authorities_and_versions() {
    for (say, expected) in [
        (&[at("a.example")][..], &[][..]),
        (&[at("a.example"), ("seaway.dev/hsts", "9h")], &[]),
        (&[at("a.example"), CLIENTS], &["a.example ca required"]),
        (&[at("a.example"), CLIENTS, OPTIONAL], &["a.example ca optional"]),
        (&[at("*.a.example,b.example"), CLIENTS], &["b.example ca required", "*.a.example ca required"]),
        (&[at("a.example/api"), CLIENTS], &["a.example ca required"]),
        (&[at("a.example"), MODERN], &["a.example modern"]),
        (&[at("a.example"), MODERN, CLIENTS], &["a.example ca required modern"]),
    ] {
        let shop = saying(service("shop", &[80]), say);
        let world = with_certificates(Config::default(), std::slice::from_ref(&shop));
        assert_eq!(hosts(&world), expected, "{say:?}");
        assert_eq!(problems(&world), [""; 0], "{say:?}");
        let [open, secure] = rules(&world, &facts::owner(&shop));
        let (is_certified, is_optional) = (say.contains(&CLIENTS), say.contains(&OPTIONAL));
        assert_eq!(open.iter().all(is_redirect), is_certified && !is_optional, "{say:?}: {open:?}");
        let required = |it: &Rule| it.tls.as_ref().is_some_and(|tls| tls.requires_certificates());
        assert_eq!(secure.iter().all(required), is_certified && !is_optional, "{say:?}: {secure:?}");
        assert_eq!(
            secure.iter().any(|it| it.hosts.is_empty()),
            !is_certified && *say[0].1 == *"a.example",
            "{say:?}"
        );
        let held = &load_balancer(&world).expect("open").certificates;
        assert_eq!(held.contains_key(&object("ca")), is_certified, "{say:?}");
    }
}

#[test]
fn a_handshake_asks_for_no_more_than_each_of_the_rules_of_its_host_name_needs() {
    let other = ("seaway.dev/client-authorities", "other");
    for (first, second, expected) in [
        (&[at("a.example"), CLIENTS][..], &[at("a.example/open")][..], &["a.example ca optional"][..]),
        (&[at("a.example/open")], &[at("a.example"), CLIENTS], &["a.example ca optional"]),
        (&[at("a.example"), CLIENTS], &[at("a.example/more"), CLIENTS], &["a.example ca required"]),
        (&[at("a.example"), CLIENTS], &[at("a.example/more"), CLIENTS, OPTIONAL], &["a.example ca optional"]),
        (&[at("a.example"), MODERN], &[at("a.example/open")], &["a.example"]),
        (
            &[at("*.example"), CLIENTS],
            &[at("a.example")],
            &["a.example ca optional", "*.example ca required"],
        ),
        (
            &[at("*.example"), CLIENTS],
            &[at("a.example"), other],
            &["a.example other required", "*.example ca required"],
        ),
        (&[at("*.example"), MODERN], &[at("a.example")], &["a.example", "*.example modern"]),
        (
            &[at("*.example"), CLIENTS],
            &[at("*.b.example")],
            &["*.b.example ca optional", "*.example ca required"],
        ),
    ] {
        let first = born(saying(service("first", &[80]), first), 1);
        let second = born(saying(service("second", &[80]), second), 2);
        let world = with_certificates(Config::default(), &[first, second]);
        let mut expected: Vec<&str> = expected.to_vec();
        let mut found = hosts(&world);
        expected.sort_unstable();
        found.sort_unstable();
        assert_eq!(found, expected);
        assert_eq!(problems(&world), [""; 0]);
    }
}

#[test]
fn whoever_comes_later_with_other_authorities_is_closed_at_that_host_name() {
    let first = born(saying(service("first", &[80]), &[at("a.example"), CLIENTS]), 1);
    let say = [at("a.example/api,b.example"), ("seaway.dev/client-authorities", "other")];
    let second = born(saying(service("second", &[80]), &say), 2);
    let mut orders = [vec![first.clone(), second.clone()], vec![second.clone(), first.clone()]];
    for order in &mut orders {
        let mut world = with_certificates(Config::default(), order);
        assert_eq!(hosts(&world), ["a.example ca required", "b.example other required"]);
        let [_, secure] = rules(&world, &facts::owner(&second));
        // A rule that asks for a certificate would answer 421 before that.
        let closed = |it: &Rule| it.tls.is_none() && matches!(it.action, Action::Respond { code: 503, .. });
        let at = |host: &str| HostPattern::Exact(host.into());
        for rule in &secure {
            assert_eq!(closed(rule), rule.hosts.contains(&at("a.example")), "{secure:?}");
        }
        assert!(secure.iter().any(closed));
        let [_, its] = rules(&world, &facts::owner(&first));
        assert!(!its.iter().any(closed));
        let told = problems(&world);
        assert!(told.len() == 1 && told[0].contains("default/second") && told[0].contains("503"), "{told:?}");
        let told = world.apply(gone(&first));
        assert_eq!(problems(&world), [""; 0]);
        assert!(!told.is_empty());
        assert_eq!(hosts(&world), ["a.example other required", "b.example other required"]);
        assert!(!rules(&world, &facts::owner(&second))[1].iter().any(closed));
    }
}

#[test]
fn without_authorities_a_host_name_is_closed_until_they_are_there() {
    let shop = saying(service("shop", &[80]), &[at("a.example"), CLIENTS]);
    let pair = told(&tls_secret("own", &["a.example"]));
    let mut world = world(Config::default(), [put(&shop), backed(&shop), pair]);
    // Nobody can be verified, and another connection would change nothing.
    assert_eq!(hosts(&world), ["a.example"]);
    let is_closed = |world: &World| {
        let [open, secure] = rules(world, &facts::owner(&shop));
        let closed = |it: &Rule| it.tls.is_none() && matches!(it.action, Action::Respond { code: 503, .. });
        open.iter().all(is_redirect) && !secure.is_empty() && secure.iter().all(closed)
    };
    let requires = |world: &World| {
        let [open, secure] = rules(world, &facts::owner(&shop));
        open.iter().all(is_redirect)
            && secure.iter().all(|it| it.tls.as_ref().is_some_and(|tls| tls.requires_certificates()))
    };
    assert!(is_closed(&world));
    let told_first = problems(&world);
    assert!(told_first[0].contains("no ca.crt") && told_first[0].contains("default/ca"), "{told_first:?}");
    assert!(told_first[0].contains("503"), "{told_first:?}");
    let dirt = world.apply(told(&authorities("ca")));
    assert!(dirt.iter().any(|it| matches!(it, seaway_model::WorkItem::Unit(unit) if *unit == door())));
    assert_eq!((hosts(&world), problems(&world)), (vec!["a.example ca required".to_owned()], vec![]));
    assert!(requires(&world));
    // What was there stays in use.
    world.apply(took(&authorities("ca")));
    assert_eq!(hosts(&world), ["a.example ca required"]);
    assert!(problems(&world)[0].contains("stays in use"), "{:?}", problems(&world));
}

#[test]
fn clients_are_not_asked_for_certificates_where_that_cannot_be() {
    let mut operator = Config::default();
    operator.front_door.tls.terms.clients = Some(ClientAuth { authorities: object("other"), required: true });
    let required = ("seaway.dev/client-certificates", "required");
    for (config, say, told_of) in [
        (Config::default(), vec![CLIENTS], "by host name"),
        (Config::default(), vec![CLIENTS, ("seaway.dev/path", "/shop")], "by host name"),
        (Config::default(), vec![at("a.example"), required], "no authorities"),
        (operator, vec![at("a.example"), CLIENTS], "frontDoor.tls.clients"),
        (
            Config::default(),
            vec![at("a.example"), CLIENTS, ("seaway.dev/tls-passthrough", "true")],
            "passes TLS",
        ),
    ] {
        let shop = saying(service("shop", &[80]), &say);
        let world = with_certificates(config, &[shop]);
        assert_eq!(served(&world), [""; 0], "{say:?}");
        assert!(problems(&world).iter().any(|it| it.contains(told_of)), "{say:?}: {:?}", problems(&world));
    }
    // Beside a host name, a path of all names is left out.
    let shop = saying(service("shop", &[80]), &[at("a.example"), CLIENTS, ("seaway.dev/path", "/shop")]);
    let world = with_certificates(Config::default(), &[shop]);
    assert_eq!(served(&world), ["a.example/ -> default/shop:80"]);
    assert!(problems(&world)[0].contains("seaway.dev/path"), "{:?}", problems(&world));
    // It cannot be had over http.
    let shop =
        saying(service("shop", &[80]), &[at("a.example"), CLIENTS, ("seaway.dev/https-redirect", "false")]);
    let world = with_certificates(Config::default(), &[shop]);
    assert!(problems(&world)[0].contains("in spite of this annotation"), "{:?}", problems(&world));
    assert_eq!(hosts(&world), ["a.example ca required"]);
}

#[test]
fn a_route_asks_for_the_certificates_that_its_service_asks_for() {
    let shop = saying(service("shop", &[80]), &[("seaway.dev/front-door", "false"), CLIENTS]);
    let other = [("seaway.dev/front-door", "false"), ("seaway.dev/client-authorities", "other")];
    let other = saying(service("other", &[80]), &other);
    let mut named = route_to("shop", 80);
    named.hosts = vec![HostPattern::Exact("a.example".into())];
    let everywhere = route_to("shop", 80);
    let mut both = named.clone();
    if let Action::Forward(backends) = &mut both.rules[0].action {
        let mut second = backends[0].clone();
        second.0.service = "other".into();
        backends.push(second);
    }
    for (route, expected, leads) in [
        (&named, &["a.example ca required"][..], 1),
        (&everywhere, &[], 0),
        (&both, &["a.example ca required"], 2),
    ] {
        let mut world = with_certificates(Config::default(), &[shop.clone(), other.clone()]);
        world.apply(put_route(route));
        assert_eq!(hosts(&world), expected);
        let owner = Owner::Object { object: route.object(), uid: route.meta.uid.clone() };
        let [open, secure] = rules(&world, &owner);
        let forwards = |it: &Rule| matches!(&it.action, Action::Forward(to) if to.len() == leads);
        assert_eq!(secure.iter().any(forwards), leads > 0, "{secure:?}");
        assert!(!open.iter().any(|it| matches!(it.action, Action::Forward(_))), "{open:?}");
        assert_eq!(problems(&world).is_empty(), leads == 1, "{:?}", problems(&world));
        if leads == 2 {
            let pools = &load_balancer(&world).expect("open").pools;
            assert!(
                !pools.keys().any(|it| it.0.contains("other")),
                "its share is answered with an error: {pools:?}"
            );
        }
    }
}

#[test]
fn limits_are_those_of_the_pools_of_a_service() {
    let say = [("seaway.dev/max-connections", "5"), ("seaway.dev/max-new-connections-per-second", "7")];
    let limits = Limits { connections: Some(5), new_per_second: Some(7) };
    let through = [at("a.example"), ("seaway.dev/tls-passthrough", "true")];
    for (say, expected) in
        [(say.to_vec(), limits), (vec![], Limits::default()), ([&say[..], &through].concat(), limits)]
    {
        let mut config = Config::default();
        config.defaults.limits.connections = Some(1000);
        let shop = saying(service("shop", &[80]), &say);
        let changes: Vec<Change> = vec![put(&shop), backed(&shop)];
        let world = world(config, changes);
        let pools = &load_balancer(&world).expect("open").pools;
        assert!(!pools.is_empty() && pools.values().all(|it| it.limits == expected), "{say:?}: {pools:?}");
        assert_eq!(problems(&world), [""; 0]);
    }
}

/// Those who show none are served there anyway.
#[test]
fn an_optional_certificate_closes_nothing_where_nobody_can_be_verified() {
    let shop = saying(service("shop", &[80]), &[at("a.example"), CLIENTS, OPTIONAL]);
    let pair = told(&tls_secret("own", &["a.example"]));
    let world = world(Config::default(), [put(&shop), backed(&shop), pair]);
    let [open, secure] = rules(&world, &facts::owner(&shop));
    let forwards = |it: &Rule| matches!(it.action, Action::Forward(_));
    assert!(open.iter().chain(&secure).all(forwards), "{open:?} {secure:?}");
    assert!(problems(&world)[0].contains("no ca.crt"), "{:?}", problems(&world));
}

/// Clients are verified where TLS ends, and a certificate that comes or goes is put in its place among thousands.
#[test]
fn authorities_come_with_the_first_certificate_and_go_with_the_last() {
    let mut of_all = Config::default();
    of_all.front_door.tls.terms.clients = Some(ClientAuth { authorities: object("ca"), required: false });
    let by_host = |name: &str, host: &str, authorities: &str| {
        saying(service(name, &[80]), &[at(host), ("seaway.dev/client-authorities", authorities)])
    };
    let three = vec![
        by_host("one", "a.example", "ca"),
        by_host("two", "b.example", "other"),
        by_host("three", "c.example", "third"),
    ];
    for (config, services, expected) in [
        (of_all, vec![service("shop", &[80])], &["ca", "own"][..]),
        (Config::default(), three, &["ca", "other", "own", "third"]),
    ] {
        let vouching = ["ca", "other", "third"].map(|it| told(&authorities(it)));
        let services = services.iter().flat_map(|it| [put(it), backed(it)]);
        let mut world = world(config, services.chain(vouching));
        let held = |world: &World| -> Vec<String> {
            let held = load_balancer(world).expect("open").certificates.clone();
            held.keys().map(|it| it.name.to_string()).collect()
        };
        assert_eq!(held(&world), [""; 0]);
        let own = tls_secret("own", &["a.example"]);
        world.apply(told(&own));
        assert_eq!(held(&world), expected);
        world.apply(took(&own));
        assert_eq!(held(&world), [""; 0]);
    }
}

#[test]
fn a_route_whose_clients_are_asked_by_another_is_told_so_at_its_first_backend_that_asks() {
    let first = born(
        saying(service("first", &[80]), &[at("a.example"), ("seaway.dev/client-authorities", "other")]),
        1,
    );
    let hidden = ("seaway.dev/front-door", "false");
    let open = saying(service("open", &[80]), &[hidden]);
    let [one, two] = ["one", "two"].map(|it| saying(service(it, &[80]), &[hidden, CLIENTS]));
    let mut route = route_to("open", 80);
    route.hosts = vec![HostPattern::Exact("a.example".into())];
    route.meta.created = Some(Time(2));
    let backend_at = |(number, name): (usize, &str)| {
        let field = format!("spec.rules[0].backendRefs[{number}]").into();
        (seaway_model::fact::BackendRef { field, ..backend(name, 80) }, 1)
    };
    route.rules[0].action =
        Action::Forward(["open", "one", "two"].into_iter().enumerate().map(backend_at).collect());
    let mut world = with_certificates(Config::default(), &[first, open, one, two]);
    assert_eq!(problems(&world), [""; 0]);
    world.apply(put_route(&route));
    // That its path is the other's, too, is told beside it.
    let told: Vec<String> = problems(&world).into_iter().filter(|it| it.contains("authorities")).collect();
    assert!(told.len() == 1 && told[0].contains("spec.rules[0].backendRefs[1]: at a.example"), "{told:?}");
}
