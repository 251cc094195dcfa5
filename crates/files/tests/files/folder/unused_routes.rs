//! What a route was to protect that cannot be used is not open by its own name.

use std::{fs, path::Path};

use seaway_model::{Kind, ObjectRef, fact::FactRef};

use super::scene::{Scene, World, service};

fn route(name: &str, spec: &str) -> String {
    format!(
        "apiVersion: gateway.networking.k8s.io/v1\nkind: HTTPRoute\nmetadata:\n  name: {name}\n  annotations:\n    \
         seaway.dev/source-ranges: 10.0.0.0/8\nspec:\n  {spec}\n"
    )
}

fn to(service: &str) -> String {
    format!("hostnames: [admin.example]\n  rules: [{{backendRefs: [{{name: {service}, port: 80}}]}}]")
}

/// Where that stands which was to protect it.
fn unused_route(world: &World, name: &str) -> Option<String> {
    let place = world.service(name)?.unused_route.as_ref()?;
    Some(place.rsplit('/').next().unwrap_or_default().to_owned())
}

#[test]
fn a_service_that_a_broken_route_was_to_protect_is_not_open_by_its_name_from_the_first_start() {
    let good = route("staff", &to("admin"));
    for (case, text, place) in [
        ("an unknown field", good.replace("hostnames: [admin.example]", "hostname: admin.example"), 8),
        ("another version", good.replace("/v1\n", "/v1beta1\n"), 1),
        ("another group", good.replace("gateway.networking.k8s.io", "networking.k8s.io"), 1),
        ("another kind", good.replace("HTTPRoute", "HttpRoute"), 1),
        ("a tab", good.replace("  rules", "\trules"), 9),
        ("a misspelt backend", good.replace("name: admin,", "name: admn,"), 1),
        ("another namespace", good.replace("name: staff", "name: staff\n  namespace: stff"), 1),
        (
            "a reference to another namespace",
            good.replace("name: admin,", "name: admin, namespace: default,")
                .replace("name: staff", "name: staff\n  namespace: web"),
            1,
        ),
    ] {
        let files =
            [("a.yaml", text.as_str()), ("b.yaml", &service("admin", 80)), ("c.yaml", &service("shop", 80))];
        let mut scene = Scene::with(&files);
        assert_eq!(unused_route(&scene.world, "admin"), Some(format!("a.yaml:{place}")), "{case}");
        assert_eq!(unused_route(&scene.world, "shop"), None, "{case}");
        scene.write("a.yaml", &good);
        scene.until("it is corrected", |world| unused_route(world, "admin").is_none());
        // Once a last good state protects it, that one goes on; a route that is whole and leads elsewhere does not.
        scene.write("a.yaml", &text);
        let is_whole = case.contains("backend") || case.contains("namespace");
        scene.until(case, |world| match is_whole {
            true => unused_route(world, "admin").is_some(),
            false => !world.problems.is_empty(),
        });
        assert_eq!(unused_route(&scene.world, "admin").is_some(), is_whole, "{case}");
    }
}

#[test]
fn a_route_that_protects_keeps_its_last_good_state_where_it_is_of_a_kind_that_is_not_served() {
    let good = route("staff", &to("admin"));
    let there = |world: &World| {
        let staff = ObjectRef::new(Kind::HTTPRoute, "default", "staff");
        world.facts.contains_key(&FactRef::Object(staff))
    };
    let open = good.replace("seaway.dev/source-ranges: 10.0.0.0/8", "team: a");
    for (before, after) in [
        ("kind: HTTPRoute", "kind: Ingress"),
        ("kind: HTTPRoute", "kind: GRPCRoute"),
        ("kind: HTTPRoute", "kind: IngressRoute"),
        ("gateway.networking.k8s.io/v1", "gateway.networking.x-k8s.io/v1alpha1"),
        ("gateway.networking.k8s.io/v1", "traefik.io/v1alpha1"),
    ] {
        let mut scene = Scene::with(&[("a.yaml", &good), ("b.yaml", &service("admin", 80))]);
        scene.write("a.yaml", &good.replace(before, after));
        scene.settle();
        assert!(there(&scene.world), "{after}");
        assert_eq!(unused_route(&scene.world, "admin"), None, "{after}");
        let said: Vec<_> = scene.world.problems.values().flatten().collect();
        let names = |it: &&&seaway_model::Problem| {
            it.object.kind == Kind::HTTPRoute
                && it.fix.contains("The last good state of the object stays in use")
        };
        assert_eq!(said.iter().filter(names).count(), 1, "{after}: {said:?}");
        let mut scene = scene.restart();
        assert!(there(&scene.world), "{after}");
        scene.write("a.yaml", &good.replace(before, after).replace("name: staff", "name: other"));
        scene.until("it is gone with its name", |world| !there(world));
        // What protected nothing is no more.
        let mut scene = Scene::with(&[("a.yaml", &open), ("b.yaml", &service("admin", 80))]);
        scene.write("a.yaml", &open.replace(before, after));
        scene.until("it is gone", |world| !there(world));
    }
}

#[test]
fn what_protects_nothing_or_is_no_slip_of_the_pen_closes_no_service() {
    let good = route("staff", &to("admin"));
    let open = good.replace("seaway.dev/source-ranges: 10.0.0.0/8", "team: a");
    for (case, text) in [
        (
            "a broken route that protects nothing",
            open.replace("hostnames: [admin.example]", "hostname: admin.example"),
        ),
        ("a route to the next version, which is not there", route("staff", &to("admin-2"))),
        ("a route to something else, which is not there", route("staff", &to("warehouse"))),
        ("a broken object of another kind", service("a", 0).replace("name: a", "name: admin-1")),
    ] {
        let files = [
            ("a.yaml", text.as_str()),
            ("b.yaml", &service("admin", 80)),
            ("c.yaml", &service("admin-1", 80)),
        ];
        let scene = Scene::with(&files);
        for name in ["admin", "admin-1"] {
            assert_eq!(unused_route(&scene.world, name), None, "{case}");
        }
    }
}

/// Nothing is open after an edit that would not be after a restart with the same files, and the other way round.
fn is_closed_in_both(scene: &mut Scene, name: &str, edited: &[(&str, &str)], expected: bool) {
    for (file, text) in edited {
        scene.write(file, text);
    }
    scene.until("it is closed, or not", |world| unused_route(world, name).is_some() == expected);
    let files: Vec<(String, String)> = std::fs::read_dir(&scene.dir)
        .expect("a folder")
        .map(|it| it.expect("a file"))
        .map(|it| {
            let text = std::fs::read_to_string(it.path()).expect("a text");
            (it.file_name().into_string().expect("a name"), text)
        })
        .collect();
    let files: Vec<(&str, &str)> = files.iter().map(|(name, text)| (name.as_str(), text.as_str())).collect();
    assert_eq!(unused_route(&Scene::with(&files).world, name).is_some(), expected);
}

#[test]
fn what_is_kept_of_another_route_in_the_file_opens_nothing() {
    let public = route("public", "rules: [{backendRefs: [{name: shop, port: 80}]}]")
        .replace("  annotations:\n    seaway.dev/source-ranges: 10.0.0.0/8\n", "");
    let staff = route("staff", &to("admin")).replace("  rules", "\trules");
    let both = format!("{public}---\n{staff}");
    let files =
        [("a.yaml", both.as_str()), ("b.yaml", &service("admin", 80)), ("c.yaml", &service("shop", 80))];
    let mut scene = Scene::with(&files);
    assert!(unused_route(&scene.world, "admin").is_some());
    is_closed_in_both(&mut scene, "admin", &[("a.yaml", &staff)], true);
    // Protection that comes with a mistake closes at once, though the route was there, and open.
    let open = route("staff", &to("admin")).replace("seaway.dev/source-ranges: 10.0.0.0/8", "team: a");
    let mut scene = Scene::with(&[("a.yaml", &open), ("b.yaml", &service("admin", 80))]);
    assert_eq!(unused_route(&scene.world, "admin"), None);
    let typo = route("staff", &to("admin")).replace("hostnames: [admin.example]", "hostname: admin.example");
    is_closed_in_both(&mut scene, "admin", &[("a.yaml", &typo)], true);
}

#[test]
fn a_neighbour_stays_open_when_a_protected_service_goes() {
    let cases = [
        ("cart", "default", "warehouse", "default"),
        ("web-1", "default", "web-2", "default"),
        ("admin", "default", "admin-b", "default"),
    ];
    for (gone, of, stays, its) in cases {
        let in_namespace = |name: &str, namespace: &str| {
            service(name, 80).replace("metadata:\n", &format!("metadata:\n  namespace: {namespace}\n"))
        };
        let mut scene = Scene::with(&[
            ("a.yaml", &route("staff", &to(gone))),
            ("b.yaml", &in_namespace(gone, of)),
            ("c.yaml", &in_namespace(stays, its)),
        ]);
        scene.remove("b.yaml");
        scene.until("it is gone", |world| world.service(gone).is_none());
        assert_eq!(unused_route(&scene.world, stays), None, "{gone} {stays}");
    }
    // Nor does what routes of its own lead to.
    let own = route("cards", &to("card")).replace("seaway.dev/source-ranges: 10.0.0.0/8", "team: a");
    let files = [("a.yaml", route("staff", &to("cart"))), ("b.yaml", own), ("c.yaml", service("card", 80))];
    let files: Vec<(&str, &str)> = files.iter().map(|(name, text)| (*name, text.as_str())).collect();
    assert_eq!(unused_route(&Scene::with(&files).world, "card"), None);
}

#[test]
fn a_file_that_is_no_utf_8_names_the_services_of_its_routes() {
    let mut bytes = route("staff", &to("admin")).into_bytes();
    bytes.extend(b"# B\xfcro\n");
    let root = tempfile::tempdir().expect("a folder");
    let dir = root.path().join("manifests");
    std::fs::create_dir(&dir).expect("is made");
    std::fs::write(dir.join("a.yaml"), bytes).expect("is written");
    std::fs::write(dir.join("b.yaml"), service("admin", 80)).expect("is written");
    let scene = Scene::of(root, dir);
    assert_eq!(unused_route(&scene.world, "admin").as_deref(), Some("a.yaml"));
}

#[test]
fn an_ingress_that_protects_closes_the_service_that_it_leads_to() {
    let ingress = "apiVersion: networking.k8s.io/v1\nkind: Ingress\nmetadata:\n  name: a\n  annotations:\n    \
                   nginx.ingress.kubernetes.io/auth-type: basic\nspec: {defaultBackend: {service: {name: admin, port: {number: 80}}}}\n";
    let mut scene = Scene::with(&[("a.yaml", ingress), ("b.yaml", &service("admin", 80))]);
    assert_eq!(unused_route(&scene.world, "admin").as_deref(), Some("a.yaml:1"));
    // Words in it that are no Services of it are nobody's.
    for name in ["auth", "basic"] {
        scene.write("c.yaml", &service(name, 80));
        scene.until("it is there", |world| world.service(name).is_some());
        assert_eq!(unused_route(&scene.world, name), None);
    }
    scene.remove("a.yaml");
    scene.until("it is gone", |world| unused_route(world, "admin").is_none());
}

#[test]
fn of_two_descriptions_of_one_service_the_one_that_protects_is_served() {
    let open = service("a", 80).replace("spec:\n", "spec:\n  type: LoadBalancer\n");
    let closed = open.replace("spec:\n", "spec:\n  loadBalancerSourceRanges: [10.0.0.0/8]\n");
    for files in [[("a.yaml", &open), ("z.yaml", &closed)], [("a.yaml", &closed), ("z.yaml", &open)]] {
        let scene = Scene::with(&files.map(|(name, text)| (name, text.as_str())));
        assert_eq!(scene.world.service("a").expect("it is served").source_ranges.len(), 1);
        assert_eq!(scene.world.problems.values().flatten().count(), 1);
    }
    // Also where the one that protects has a mistake now, or had it from the beginning.
    let mut scene = Scene::with(&[("a.yaml", &closed), ("z.yaml", &open)]);
    let typo = closed.replace("SourceRanges", "SourceRange").replace("port: 80", "port: 81");
    for text in [closed.replace("  ports", "\tports"), typo.clone()] {
        let before = scene.world.problems.clone();
        scene.write("a.yaml", &text);
        scene.until("the mistake is told", |world| world.problems != before);
        assert_eq!(scene.world.service("a").expect("it is served").source_ranges.len(), 1, "{text}");
    }
    let scene = Scene::with(&[("a.yaml", &typo), ("z.yaml", &open)]);
    assert!(scene.world.service("a").expect("it is there").unclear_sources);
    // Of two that protect, the one that says more.
    let tls = open.replace("metadata:\n", "metadata:\n  annotations: {seaway.dev/tls: a}\n");
    let both = tls.replace("spec:\n", "spec:\n  loadBalancerSourceRanges: [10.0.0.0/8]\n");
    let scene = Scene::with(&[("a.yaml", &tls), ("z.yaml", &both)]);
    assert_eq!(scene.world.service("a").expect("it is served").source_ranges.len(), 1);
    let mut scene = Scene::with(&[("a.yaml", &open)]);
    scene.write("z.yaml", &closed);
    scene.until("it is protected", |world| world.service("a").is_some_and(|it| it.source_ranges.len() == 1));
}

/// More than a slip of the pen away from the name that is there.
#[test]
fn a_protected_route_to_a_service_that_is_not_there_keeps_the_one_closed_that_it_led_to() {
    let file = |before: &str, to_service: &str| {
        format!("{}{before}---\n{}", service("other", 80), route("staff", &to(to_service)))
    };
    let services = [("b.yaml", service("admin", 80)), ("c.yaml", service("shop", 80))];
    let mut files = vec![("a.yaml", file("", "admin"))];
    files.extend(services);
    let files: Vec<(&str, &str)> = files.iter().map(|(name, text)| (*name, text.as_str())).collect();
    let mut scene = Scene::with(&files);
    let is_at = |world: &World, line: u32| unused_route(world, "admin") == Some(format!("a.yaml:{line}"));
    assert_eq!(unused_route(&scene.world, "admin"), None);
    for (before, name, line) in [
        ("", "back-office", 9),
        // Once more, and lower in the file.
        ("", "warehouse", 9),
        ("    name: a\n  - port: 81\n    name: b\n", "warehouse", 12),
    ] {
        scene.write("a.yaml", &file(before, name));
        scene.until(name, |world| is_at(world, line));
        scene = scene.restart();
        assert!(is_at(&scene.world, line), "{name}: {:?}", unused_route(&scene.world, "admin"));
        assert_eq!(unused_route(&scene.world, "shop"), None, "{name}");
    }
    scene.write("d.yaml", &service("warehouse", 80));
    scene.until("the route leads to a Service", |world| unused_route(world, "admin").is_none());
    scene.write("a.yaml", &file("", "back-office"));
    scene.until("the last one is closed", |world| unused_route(world, "warehouse").is_some());
    assert_eq!(unused_route(&scene.world, "admin"), None, "it led there before that");
    scene.remove("a.yaml");
    scene.until("nothing is closed", |world| unused_route(world, "warehouse").is_none());
}

#[test]
fn a_broken_route_is_known_after_a_restart_whatever_became_of_its_file() {
    let broken =
        route("staff", &to("admin")).replace("hostnames: [admin.example]", "hostname: admin.example");
    let mut scene = Scene::with(&[("a.yaml", &broken), ("b.yaml", &service("admin", 80))]);
    assert_eq!(unused_route(&scene.world, "admin").as_deref(), Some("a.yaml:8"));
    scene.write("a.yaml", "");
    scene.until("it is empty", |world| {
        world.problems.values().flatten().any(|it| it.message.contains("is empty"))
    });
    assert!(unused_route(&scene.world, "admin").is_some());
    for _ in 0..2 {
        scene = scene.restart();
        assert_eq!(unused_route(&scene.world, "admin").as_deref(), Some("a.yaml"));
    }
    scene.remove("a.yaml");
    scene.until("it is gone", |world| unused_route(world, "admin").is_none());
    assert_eq!(unused_route(&scene.restart().world, "admin"), None);
}

#[test]
fn a_route_in_a_list_that_cannot_be_read_stays_in_use() {
    let good = route("staff", &to("admin"));
    let of_others = good
        .replace("HTTPRoute", "IngressRoute")
        .replace("gateway.networking.k8s.io/v1", "traefik.io/v1alpha1");
    let mut scene = Scene::with(&[("a.yaml", &good), ("b.yaml", &service("admin", 80))]);
    let is_there = |world: &World| {
        world.facts.contains_key(&FactRef::Object(ObjectRef::new(Kind::HTTPRoute, "default", "staff")))
    };
    for key in ["item", "Items", "objects"] {
        let list = format!("apiVersion: v1\nkind: List\n{key}:\n- {}", good.trim_end().replace('\n', "\n  "));
        scene.write("a.yaml", &list);
        scene.until(key, |world| world.problems.values().flatten().any(|it| *it.field == *key));
        assert!(is_there(&scene.world), "{key}");
        // The first time, there is no last good state.
        let first = Scene::with(&[("a.yaml", &list), ("b.yaml", &service("admin", 80))]);
        assert!(unused_route(&first.world, "admin").is_some(), "{key}");
    }
    // Another program's route is named. What it was before stays in use; the first time, it names its Services.
    let is_named = |world: &World| {
        world.problems.values().flatten().any(|it| it.message.starts_with("IngressRoute staff is not"))
    };
    scene.write("a.yaml", &of_others);
    scene.until("it is named", is_named);
    assert!(is_there(&scene.world));
    let first = Scene::with(&[("a.yaml", &of_others), ("b.yaml", &service("admin", 80))]);
    assert!(is_named(&first.world) && unused_route(&first.world, "admin").is_some());
}

/// A route that protects, and leads to no Service since its last edit; before, it led to `admin`.
fn led_elsewhere() -> Scene {
    let mut scene =
        Scene::with(&[("a.yaml", &route("staff", &to("admin"))), ("b.yaml", &service("admin", 80))]);
    assert_eq!(unused_route(&scene.world, "admin"), None);
    scene.write("a.yaml", &route("staff", &to("back-office")));
    scene.until("what it led to is closed", |world| unused_route(world, "admin").is_some());
    scene
}

#[test]
fn what_a_route_led_to_stays_closed_where_its_file_cannot_be_read_at_a_start() {
    let text = route("staff", &to("back-office"));
    let mut scene =
        led_elsewhere().restart_after(|dir| fs::write(dir.join("a.yaml"), "").expect("is written"));
    let is_empty =
        |world: &World| world.problems.values().flatten().any(|it| it.message.contains("is empty"));
    assert!(is_empty(&scene.world));
    assert!(unused_route(&scene.world, "admin").is_some(), "while it is empty");
    scene = scene.restart();
    assert!(unused_route(&scene.world, "admin").is_some(), "after one more restart");
    scene.write("a.yaml", &text);
    scene.until("it is written", |world| !is_empty(world));
    assert_eq!(unused_route(&scene.world, "admin").as_deref(), Some("a.yaml:1"));
    assert_eq!(unused_route(&scene.restart().world, "admin").as_deref(), Some("a.yaml:1"));
}

#[test]
fn what_a_route_led_to_stays_closed_whatever_its_file_is_called() {
    let rename =
        |dir: &Path, from: &str, to: &str| fs::rename(dir.join(from), dir.join(to)).expect("is renamed");
    let closed = |world: &World| unused_route(world, "admin");
    let mut scene = led_elsewhere();
    rename(&scene.dir, "a.yaml", "c.yaml");
    scene.until("it is read again", |world| closed(world).as_deref() == Some("c.yaml:1"));
    scene = scene.restart();
    assert_eq!(closed(&scene.world).as_deref(), Some("c.yaml:1"));
    scene = scene.restart_after(|dir| rename(dir, "c.yaml", "d.yaml"));
    assert_eq!(closed(&scene.world).as_deref(), Some("d.yaml:1"), "while nothing watched it");
    assert_eq!(closed(&scene.restart().world).as_deref(), Some("d.yaml:1"));
    // With another text at once.
    let first = [("a.yaml", route("staff", &to("admin"))), ("b.yaml", service("admin", 80))];
    let first: Vec<(&str, &str)> = first.iter().map(|(name, text)| (*name, text.as_str())).collect();
    let mut scene = Scene::with(&first).restart_after(|dir| {
        rename(dir, "a.yaml", "c.yaml");
        fs::write(dir.join("c.yaml"), route("staff", &to("back-office"))).expect("is written");
    });
    assert_eq!(closed(&scene.world).as_deref(), Some("c.yaml:1"), "renamed and edited");
    // A route that is gone closes nothing.
    scene.remove("c.yaml");
    scene.until("it is gone", |world| closed(world).is_none());
    assert_eq!(closed(&scene.restart().world), None);
}
