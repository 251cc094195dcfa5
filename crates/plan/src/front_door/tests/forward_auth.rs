//! Another Service that has to agree: asked by all that leads to a Service, or nothing is served.

use std::sync::Arc;

use seaway_model::{
    Config, Desired, Problem, WorkItem,
    fact::{Service, ServiceKind},
    load_balancer::{Action, ForwardAuth, Rule},
};
use seaway_testkit::facts;

use super::{
    routes::{backend, route_to},
    scene::*,
};
use crate::{World, certificates::tests::tls_secret};

const ASKED: &str = "seaway.dev/forward-auth";
const HEADERS: &str = "seaway.dev/forward-auth-headers";

/// `default/auth:80 /check X-User`, for each.
fn asked(rules: &[Arc<Rule>]) -> Vec<String> {
    let text = |it: &Arc<ForwardAuth>| format!("{} {} {}", it.pool, it.path, it.headers.join(","));
    rules.iter().map(|rule| rule.asks.iter().map(text).collect::<Vec<_>>().join(" and ")).collect()
}

fn problems_of(world: &World) -> Vec<Problem> {
    world.problems().into_iter().collect()
}

fn hidden(name: &str, say: &[(&str, &str)]) -> Service {
    saying(service(name, &[80]), &[say, &[("seaway.dev/front-door", "false")]].concat())
}

#[test]
fn all_that_leads_to_a_service_asks_another_whose_members_are_known() {
    for (say, expected) in [
        (&[(ASKED, "auth:80")][..], "default/auth:80 / "),
        (
            &[(ASKED, "auth:80/check?a=b"), (HEADERS, "X-User, X-Groups")],
            "default/auth:80 /check?a=b X-User,X-Groups",
        ),
        (&[(ASKED, "auth:80"), ("seaway.dev/host", "a.example,b.example/api")], "default/auth:80 / "),
    ] {
        let (web, auth) = (saying(service("web", &[80]), say), hidden("auth", &[]));
        let world = world(Config::default(), [put(&web), backed(&web), put(&auth), backed(&auth)]);
        let asked = asked(&listener(&world).rules);
        assert!(!asked.is_empty() && asked.iter().all(|it| it == expected), "{say:?}: {asked:?}");
        let pools = &load_balancer(&world).expect("open").pools;
        let its = pools.iter().find(|(id, _)| *id.0 == *"default/auth:80").expect("a pool");
        assert!(!its.1.members.is_empty());
        assert_eq!(problems(&world), [""; 0], "{say:?}");
    }
}

#[test]
fn one_that_is_not_there_is_told_until_it_comes_and_nobody_is_served_meanwhile() {
    let web = saying(service("web", &[80]), &[(ASKED, "auth:80")]);
    let route = route_to("web", 80);
    for (web, more) in [(web.clone(), None), (hidden("web", &[(ASKED, "auth:80")]), Some(put_route(&route)))]
    {
        let mut world = world(Config::default(), [put(&web), backed(&web)].into_iter().chain(more));
        let is_told = |world: &World, what: &str| {
            problems_of(world).iter().any(|it| it.message.contains(what) && it.field.contains(ASKED))
        };
        assert!(is_told(&world, "there is no Service default/auth"), "{:?}", problems_of(&world));
        assert!(asked(&listener(&world).rules).iter().all(|it| it == "default/auth:80 / "));
        let mut auth = hidden("auth", &[]);
        auth.ports[0].port = 81;
        world.apply(put(&auth));
        assert!(is_told(&world, "has no TCP port 80"), "{:?}", problems_of(&world));
        let auth = hidden("auth", &[]);
        world.apply(put(&auth));
        world.apply(backed(&auth));
        assert!(!problems_of(&world).iter().any(|it| it.field.contains(ASKED)), "{:?}", problems_of(&world));
        let pools = load_balancer(&world).expect("open").pools.clone();
        assert!(pools.iter().any(|(id, it)| *id.0 == *"default/auth:80" && !it.members.is_empty()));
        world.apply(gone(&auth));
        assert!(is_told(&world, "there is no Service default/auth"), "{:?}", problems_of(&world));
        assert!(asked(&listener(&world).rules).iter().all(|it| it == "default/auth:80 / "));
    }
}

#[test]
fn a_route_asks_for_all_services_that_it_leads_to() {
    let (one, other) = (hidden("one", &[(ASKED, "auth:80")]), hidden("other", &[(ASKED, "auth:80/x")]));
    let (open, auth) = (hidden("open", &[]), hidden("auth", &[]));
    for (to, expected) in [
        (&["open"][..], ""),
        (&["open", "one"], "default/auth:80 / "),
        (&["one", "other"], "default/auth:80 /  and default/auth:80 /x "),
    ] {
        let mut route = route_to("open", 80);
        route.rules[0].action = Action::Forward(to.iter().map(|it| (backend(it, 80), 1)).collect());
        let all = [&one, &other, &open, &auth].into_iter().flat_map(|it| [put(it), backed(it)]);
        let world = world(Config::default(), all.chain([put_route(&route)]));
        assert_eq!(asked(&listener(&world).rules), [expected], "{to:?}");
    }
}

#[test]
fn where_nobody_can_be_asked_nothing_is_opened() {
    let tls = ("seaway.dev/tls-passthrough", "true");
    for (kind, say) in [
        (ServiceKind::LoadBalancer, &[(ASKED, "auth:80")][..]),
        (ServiceKind::LoadBalancer, &[(ASKED, "auth:80"), ("seaway.dev/protocol", "tcp")]),
        (ServiceKind::LoadBalancer, &[(ASKED, "auth"), ("seaway.dev/protocol", "http")]),
        (
            ServiceKind::LoadBalancer,
            &[("seaway.dev/forwardauth", "auth:80"), ("seaway.dev/protocol", "http")],
        ),
        (ServiceKind::LoadBalancer, &[(ASKED, "auth:80"), ("seaway.dev/protocol", "http"), (HEADERS, "a b")]),
        (ServiceKind::ClusterIp, &[(ASKED, "auth:80"), ("seaway.dev/host", "a.example"), tls]),
        (ServiceKind::ClusterIp, &[("seaway.dev/forwardauth", "auth:80")]),
        (ServiceKind::ClusterIp, &[(ASKED, "http://192.0.2.1/")]),
        (ServiceKind::ClusterIp, &[(ASKED, "auth")]),
        (ServiceKind::ClusterIp, &[(ASKED, "auth:0")]),
        (ServiceKind::ClusterIp, &[(ASKED, "other/auth:80")]),
        (ServiceKind::ClusterIp, &[(ASKED, "auth.other:80")]),
        (ServiceKind::ClusterIp, &[(ASKED, "127.0.0.1:80")]),
        (ServiceKind::ClusterIp, &[(ASKED, "auth:80/a b")]),
        (ServiceKind::ClusterIp, &[(ASKED, "auth:80"), (HEADERS, "Content-Length")]),
        (ServiceKind::ClusterIp, &[(ASKED, "auth:80"), (HEADERS, "a b")]),
    ] {
        let mut web = saying(service("web", &[80]), say);
        web.kind = kind.clone();
        let auth = hidden("auth", &[]);
        let world = world(Config::default(), [put(&web), backed(&web), put(&auth), backed(&auth)]);
        match kind {
            ServiceKind::LoadBalancer => match world.desire(&unit(&facts::owner(&web))) {
                Desired::LoadBalancer(it) => assert!(it.listeners.is_empty(), "{say:?}"),
                other => panic!("it is ours: {other:?}"),
            },
            _ => assert_eq!(served(&world), [""; 0], "{say:?}"),
        }
        assert!(
            problems_of(&world).iter().any(|it| it.field.contains("seaway.dev/")),
            "{say:?}: {:?}",
            problems_of(&world)
        );
    }
    let mut route = route_to("web", 80);
    route.meta.annotations.insert(ASKED.into(), "auth:80".into());
    let web = hidden("web", &[]);
    let world = world(Config::default(), [put(&web), backed(&web), put_route(&route)]);
    assert!(matches!(listener(&world).rules[0].action, Action::Respond { code: 500, .. }));
    assert!(problems_of(&world).iter().any(|it| it.field.contains(ASKED)), "{:?}", problems_of(&world));
}

/// At its own address as at the front door: the same rule, and a pool of those who are asked beside its own.
#[test]
fn listeners_of_its_own_ask_another_and_hear_of_its_members() {
    for more in [("seaway.dev/protocol", "http"), ("seaway.dev/tls", "own")] {
        let mut web = saying(service("web", &[80]), &[(ASKED, "auth:80/check"), (HEADERS, "X-User"), more]);
        web.kind = ServiceKind::LoadBalancer;
        let auth = hidden("auth", &[]);
        let changes = [facts::pool(("192.0.2.10", "192.0.2.19")), told(&tls_secret("own", &["a.example"]))];
        let mut world = world(Config::default(), changes.into_iter().chain([put(&web), backed(&web)]));
        let open = |world: &World| match world.desire(&unit(&facts::owner(&web))) {
            Desired::LoadBalancer(it) => it,
            other => panic!("it is ours: {other:?}"),
        };
        let asks = |world: &World| -> Vec<String> {
            open(world).listeners.values().flat_map(|it| asked(&it.rules)).collect()
        };
        let members = |world: &World| {
            let pools = &open(world).pools;
            pools.iter().find(|(id, _)| *id.0 == *"default/auth:80").map(|(_, it)| it.members.len())
        };
        let is_told = |world: &World, what: &str| {
            problems_of(world).iter().any(|it| it.message.contains(what) && it.field.contains(ASKED))
        };
        // Nobody is served before it is there: its pool has no member.
        assert_eq!((asks(&world), members(&world)), (vec!["default/auth:80 /check X-User".to_owned()], None));
        assert!(is_told(&world, "there is no Service default/auth"), "{:?}", problems_of(&world));
        world.apply(put(&auth));
        assert_eq!(members(&world), Some(0));
        let dirt = world.apply(backed(&auth));
        assert_eq!(members(&world), Some(1));
        let its = |it: &WorkItem| matches!(it, WorkItem::Pool(_, id) if *id.0 == *"default/auth:80");
        assert!(dirt.iter().any(its), "{dirt:?}");
        assert!(!is_told(&world, ""), "{:?}", problems_of(&world));
        world.apply(gone(&auth));
        assert_eq!((asks(&world).len(), members(&world)), (1, None));
        assert!(is_told(&world, "there is no Service default/auth"));
        // Asked no more, it is none of its pools.
        world.apply(put(&auth));
        let mut open_to_all = saying(service("web", &[80]), &[more]);
        open_to_all.kind = ServiceKind::LoadBalancer;
        world.apply(put(&open_to_all));
        assert_eq!((asks(&world), members(&world)), (vec![String::new()], None));
    }
}
