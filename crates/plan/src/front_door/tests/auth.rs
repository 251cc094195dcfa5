//! Names and passwords that Services ask for: wherever requests lead to them, or nothing is served.

use std::sync::Arc;

use seaway_model::{
    Config, Desired, LoadBalancer, Problem,
    fact::{Secret, Service, ServiceKind},
    load_balancer::{Action, Filter, Rule},
};
use seaway_testkit::facts;

use super::{
    routes::{backend, route_to},
    scene::*,
};
use crate::{World, certificates::tests::secret};

const USERS: &str = "seaway.dev/basic-auth";
const FORWARD: &str = "seaway.dev/basic-auth-forward";
const REALM: &str = "seaway.dev/basic-auth-realm";
const HASH: &str = "$2y$05$abcdefghijklmnopqrstuuMFdJu9yVgmagVAIC24fOZkaFqd3s9JC";

fn users(text: &str) -> Secret {
    Secret { kind: "Opaque".into(), ..secret("users", &[("auth", text)]) }
}

fn two() -> Secret {
    users(&format!("alice:{HASH}\nbob:{HASH}\n"))
}

/// What rules ask for: `default/web "realm" 2`, or `none` where no users are known.
fn asked(rules: &[Arc<Rule>]) -> Vec<String> {
    let one = |rule: &Arc<Rule>| {
        let all = rule.auth.iter().map(|it| {
            let users = it.users.as_ref().map_or("none".to_owned(), |it| it.0.len().to_string());
            let forwards = if it.forwards { " forwards" } else { "" };
            format!("{}/{} {:?} {users}{forwards}", it.of.namespace, it.of.name, it.realm)
        });
        all.collect::<Vec<_>>().join(" and ")
    };
    rules.iter().map(one).collect()
}

fn own(world: &World, service: &Service) -> Arc<LoadBalancer> {
    match world.desire(&unit(&facts::owner(service))) {
        Desired::LoadBalancer(it) => it,
        other => panic!("it is ours: {other:?}"),
    }
}

fn told(world: &World) -> Vec<Problem> {
    world.problems().into_iter().collect()
}

#[test]
fn all_that_leads_to_a_service_asks_for_its_users() {
    const USUAL: &str = "default/web \"Authentication required\" 2";
    for (say, expected) in [
        (&[(USERS, "users")][..], USUAL),
        (&[(USERS, "users"), ("seaway.dev/host", "a.example,b.example/api")], USUAL),
        (&[(USERS, "users"), ("seaway.dev/path", "/a,/b")], USUAL),
        (
            &[(USERS, "users"), (REALM, "Shop staff"), (FORWARD, "true")],
            "default/web \"Shop staff\" 2 forwards",
        ),
    ] {
        let web = saying(service("web", &[80, 81]), say);
        let world = world(Config::default(), [put(&web), backed(&web), super::scene::told(&two())]);
        let asked = asked(&listener(&world).rules);
        assert!(!asked.is_empty() && asked.iter().all(|it| it == expected), "{say:?}: {asked:?}");
        assert_eq!(problems(&world), [""; 0], "{say:?}");
    }
    let mut web = saying(service("web", &[80]), &[(USERS, "users"), ("seaway.dev/protocol", "http")]);
    web.kind = ServiceKind::LoadBalancer;
    let world = world(Config::default(), [put(&web), backed(&web), super::scene::told(&two())]);
    let listeners = &own(&world, &web).listeners;
    assert_eq!(listeners.len(), 1);
    assert!(listeners.values().all(|it| asked(&it.rules) == [USUAL]), "{listeners:?}");
}

#[test]
fn a_route_asks_for_the_users_of_all_services_that_it_leads_to_mirrors_included() {
    let hidden = |name: &str, say: &[(&str, &str)]| {
        saying(service(name, &[80]), &[say, &[("seaway.dev/front-door", "false")]].concat())
    };
    let (one, other) = (hidden("one", &[(USERS, "users")]), hidden("other", &[(USERS, "none")]));
    let open = hidden("open", &[]);
    let mut split = route_to("open", 80);
    split.rules[0].action = Action::Forward(vec![(backend("open", 80), 9), (backend("one", 80), 1)]);
    let mut mirrored = route_to("open", 80);
    mirrored.rules[0].filters = vec![Filter::Mirror { to: backend("one", 80), per_mille: 1000 }];
    let mut both = route_to("one", 80);
    both.rules[0].action = Action::Forward(vec![(backend("one", 80), 1), (backend("other", 80), 1)]);
    const ONE: &str = "default/one \"Authentication required\" 2";
    for (route, expected) in [
        (route_to("open", 80), ""),
        (split, ONE),
        (mirrored, ONE),
        (
            both,
            "default/one \"Authentication required\" 2 and default/other \"Authentication required\" none",
        ),
    ] {
        let services = [&one, &other, &open].into_iter().flat_map(|it| [put(it), backed(it)]);
        let mut world =
            world(Config::default(), services.chain([put_route(&route), super::scene::told(&two())]));
        assert_eq!(asked(&listener(&world).rules), [expected]);
        // Users that change and go are followed.
        world.apply(super::scene::told(&users(&format!("alice:{HASH}"))));
        assert_eq!(asked(&listener(&world).rules), [expected.replace('2', "1")]);
        world.apply(took(&two()));
        assert_eq!(asked(&listener(&world).rules), [expected.replace('2', "none")]);
        let is_told = told(&world).iter().any(|it| it.message.contains("Secret default/users"));
        assert_eq!(is_told, !expected.is_empty());
    }
}

#[test]
fn without_users_that_can_be_verified_nobody_is_served_and_it_is_told() {
    for (secret, message) in [
        (None, "there is no Secret default/users with a key auth: all requests get 503"),
        (Some(users("")), "Secret default/users has no user in its key auth"),
        (Some(users("alice:plain")), "Secret default/users has no user in its key auth"),
        (
            Some(Secret { kind: "Opaque".into(), ..secret("users", &[("other", "x")]) }),
            "there is no Secret default/users with a key auth",
        ),
    ] {
        let web = saying(service("web", &[80]), &[(USERS, "users")]);
        let secret = secret.iter().map(super::scene::told);
        let world = world(Config::default(), [put(&web), backed(&web)].into_iter().chain(secret));
        let asked = asked(&listener(&world).rules);
        assert!(!asked.is_empty() && asked.iter().all(|it| it.ends_with("none")), "{asked:?}");
        let problems = told(&world);
        assert!(
            problems.iter().any(|it| it.message.contains(message) && it.field.contains(USERS)),
            "{problems:?}"
        );
        assert!(problems.iter().all(|it| !it.to_string().contains("plain")), "{problems:?}");
    }
}

#[test]
fn lines_of_no_use_are_told_by_their_numbers() {
    let text = format!("alice:{HASH}\nbob:$apr1$x$MD5MD5\ncarol:$2y$14${}\n", &HASH[7..]);
    let web = saying(service("web", &[80]), &[(USERS, "users")]);
    let world = world(Config::default(), [put(&web), backed(&web), super::scene::told(&users(&text))]);
    assert!(asked(&listener(&world).rules).iter().all(|it| it.ends_with(" 1")));
    let problems = told(&world);
    for (line, word) in [("line 2 ", "bcrypt"), ("line 3 ", "too long")] {
        let one = problems.iter().find(|it| it.message.starts_with(line)).expect("it is told");
        assert!(one.message.contains(word) && *one.field == *"data[auth]" && !one.fix.is_empty(), "{one}");
    }
    let all = format!("{problems:?}");
    assert!(!all.contains("MD5MD5") && !all.contains("bob") && !all.contains("carol"), "{all}");
}

#[test]
fn where_no_password_can_be_asked_for_nothing_is_opened() {
    let tls = ("seaway.dev/tls-passthrough", "true");
    for (kind, say, open, message) in [
        (ServiceKind::LoadBalancer, &[][..], 0, "no listener is opened at port 80/TCP"),
        (
            ServiceKind::LoadBalancer,
            &[("seaway.dev/protocol", "tcp")],
            0,
            "no listener is opened at port 80/TCP",
        ),
        (ServiceKind::LoadBalancer, &[("seaway.dev/protocol", "http")], 1, ""),
        (
            ServiceKind::ClusterIp,
            &[("seaway.dev/host", "a.example"), tls],
            0,
            "cannot require a password, query an authentication Service, or count requests where it passes TLS",
        ),
        // A name that is nearly this one was meant to protect.
        (ServiceKind::ClusterIp, &[("seaway.dev/basicauth", "users")], 0, "no listener is opened"),
    ] {
        let misspelt = say.iter().any(|it| it.0 == "seaway.dev/basicauth");
        let all = if misspelt { say.to_vec() } else { [say, &[(USERS, "users")]].concat() };
        let mut web = saying(service("web", &[80]), &all);
        web.kind = kind.clone();
        let world = world(Config::default(), [put(&web), backed(&web), super::scene::told(&two())]);
        let count = match kind {
            ServiceKind::LoadBalancer => own(&world, &web).listeners.len(),
            _ => served(&world).len(),
        };
        assert_eq!(count, open, "{say:?}");
        let is_told = |it: &Problem| it.message.contains(message) && it.field.contains("seaway.dev/");
        assert!(message.is_empty() || told(&world).iter().any(is_told), "{say:?}: {:?}", told(&world));
    }
    // On a route it closes its rules.
    let mut route = route_to("web", 80);
    route.meta.annotations.insert(USERS.into(), "users".into());
    let web = saying(service("web", &[80]), &[("seaway.dev/front-door", "false")]);
    let world =
        world(Config::default(), [put(&web), backed(&web), put_route(&route), super::scene::told(&two())]);
    assert!(matches!(listener(&world).rules[0].action, Action::Respond { code: 500, .. }));
    assert!(told(&world).iter().any(|it| it.field.contains(USERS)), "{:?}", told(&world));
}

#[test]
fn whoever_is_sent_to_https_is_asked_there_alone() {
    let say = [
        (USERS, "users"),
        ("seaway.dev/host", "a.example"),
        ("seaway.dev/tls", "own"),
        ("seaway.dev/https-redirect", "true"),
    ];
    let pair = super::scene::told(&crate::certificates::tests::tls_secret("own", &["a.example"]));
    for kind in [ServiceKind::ClusterIp, ServiceKind::LoadBalancer] {
        let mut web = saying(service("web", &[80, 443]), &say);
        web.kind = kind.clone();
        let world =
            world(Config::default(), [put(&web), backed(&web), pair.clone(), super::scene::told(&two())]);
        let open = match kind {
            ServiceKind::LoadBalancer => own(&world, &web),
            _ => load_balancer(&world).expect("open"),
        };
        let rules: Vec<_> = open.listeners.values().flat_map(|it| it.rules.clone()).collect();
        let (redirects, others): (Vec<_>, Vec<_>) =
            rules.into_iter().partition(|it| matches!(it.action, Action::Redirect(_)));
        assert!(!redirects.is_empty() && redirects.iter().all(|it| it.auth.is_empty()), "{redirects:?}");
        assert!(!others.is_empty() && others.iter().all(|it| it.auth.len() == 1), "{others:?}");
    }
}
