//! What a text that cannot be read was meant to protect: closed where nothing that is understood is, and owned by nothing.

use seaway_model::{
    Change, Config, Kind, ObjectRef,
    config::FrontDoor,
    fact::{FactRef, HttpRoute, RouteRule},
    load_balancer::{Action, HostPattern, Match, PathMatch},
};

use super::{
    orders::{ordering, wanted},
    scene::*,
};

fn unread(host: &str, path: &str) -> HttpRoute {
    let matches = vec![Match { path: Some(PathMatch::Prefix(path.into())), ..Match::default() }];
    let rule = RouteRule {
        matches,
        filters: Vec::new(),
        action: Action::Respond { code: 503, body: "".into() },
        timeout: None,
        attempt_timeout: None,
        retries: None,
        unsupported: Vec::new(),
    };
    let hosts = vec![HostPattern::Exact(host.into())];
    HttpRoute { hosts, guessed: true, ..route("default/a.yaml:3", vec![rule]) }
}

fn at(name: &str, host: &str) -> Change {
    put(&saying(service(name, &[80]), &[("seaway.dev/host", host)]))
}

#[test]
fn it_closes_a_place_below_a_broader_service_and_its_name_path_until_it_is_read() {
    let text = put_route(&unread("shop.example", "/admin"));
    let shop = at("shop", "shop.example");
    for both in [[text.clone(), shop.clone()], [shop, text]] {
        let mut world = world(Config::default(), both);
        assert_eq!(
            entrances(&world),
            ["shop.example/admin -> answer 503", "shop.example/ -> default/shop:80"]
        );
        let said = problems(&world);
        assert!(said.iter().all(|it| it.starts_with("Service default/shop")), "{said:?}");
        assert!(
            said.iter().any(|it| it.contains("default/a.yaml:3 restricts access to shop.example/admin")),
            "{said:?}"
        );
        let object = ObjectRef::new(Kind::HTTPRoute, "default", "a.yaml:3");
        world.apply(Change::Gone(FactRef::Object(object)));
        assert_eq!(entrances(&world).len(), 5, "{:?}", entrances(&world));
        assert!(entrances(&world).iter().all(|it| !it.contains("503")), "{:?}", entrances(&world));
        assert!(problems(&world).iter().all(|it| !it.contains("restricts")), "{:?}", problems(&world));
    }
}

#[test]
fn it_takes_nothing_from_what_is_understood_owns_no_name_and_opens_no_listener() {
    let text = || put_route(&unread("shop.example", "/admin"));
    let world_of = |changes: Vec<Change>| world(Config::default(), changes);
    let right = world_of(vec![at("right", "shop.example/admin"), text()]);
    assert_eq!(entrances(&right), ["shop.example/admin -> default/right:80"]);
    assert!(load_balancer(&world_of(vec![text()])).is_none());
    // A front door that serves routes of one Gateway alone, and the entrances of a tenant.
    let gateway = seaway_model::fact::Gateway { namespace: "infra".into(), name: "public".into() };
    let routes = seaway_model::config::FrontDoorRoutes::Of(gateway);
    let of_gateway = with(FrontDoor { routes, ..FrontDoor::default() });
    let closed = world(of_gateway, [text(), at("shop", "shop.example")]);
    assert!(
        entrances(&closed).iter().any(|it| it == "shop.example/admin -> answer 503"),
        "{:?}",
        entrances(&closed)
    );
    let ordered = world(ordering(), [put_route(&unread("other.example", "/")), at("shop", "shop.example")]);
    assert!(wanted(&ordered, "other.example").is_none());
}
