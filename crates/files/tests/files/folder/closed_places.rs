//! What was to be protected by something that cannot be read is closed from the first start, and named.

use seaway_model::{Fact, load_balancer::PathMatch};

use super::scene::{Scene, World, service};

const ADMIN: &str = "apiVersion: v1\nkind: Service\nmetadata:\n  name: shop-admin\n  annotations:\n    \
    seaway.dev/host: shop.example/admin\n    seaway.dev/source-ranges: 10.9.0.9/32\nspec:\n  ports:\n  - port: 80\n";
const ROUTE: &str = "apiVersion: gateway.networking.k8s.io/v1\nkind: HTTPRoute\nmetadata:\n  name: staff\n  annotations:\n    \
    seaway.dev/source-ranges: 10.9.0.9/32\nspec:\n  hostnames: [shop.example]\n  rules:\n  - matches: [{path: {value: /admin}}]\n    \
    backendRefs: [{name: admin, port: 80}]\n";

/// Places that answer 503 by guess.
fn closed(world: &World) -> Vec<String> {
    let routes = world.facts.values().filter_map(|fact| match fact {
        Fact::HttpRoute(it) if it.guessed => Some(it.clone()),
        _ => None,
    });
    let places = routes.flat_map(|it| {
        let matches = it.rules.iter().flat_map(|rule| &rule.matches);
        let paths: Vec<String> = matches
            .map(|it| match &it.path {
                Some(PathMatch::Prefix(path)) => path.to_string(),
                other => panic!("{other:?}"),
            })
            .collect();
        it.hosts
            .iter()
            .flat_map(|host| paths.iter().map(move |path| format!("{host}{path}")))
            .collect::<Vec<_>>()
    });
    places.collect()
}

#[test]
fn what_cannot_be_read_at_a_first_start_closes_the_place_that_it_was_to_protect() {
    for (case, good, text) in [
        ("a tab", ADMIN, ADMIN.replace("  name: shop", "\tname: shop")),
        ("cut off", ADMIN, format!("{}spec: [", ADMIN.split("spec").next().unwrap_or_default())),
        ("a key twice", ADMIN, ADMIN.replace("  name: shop-admin", "  name: a\n  name: shop-admin")),
        (
            "an unquoted rate",
            ADMIN,
            ADMIN.replace("10.9.0.9/32", "10.9.0.9/32\n    seaway.dev/requests-per-second-per-client: 5"),
        ),
        ("another case", ADMIN, ADMIN.replace("kind: Service", "kind: service")),
        ("no kind", ADMIN, ADMIN.replace("kind: Service\n", "")),
        ("another version", ADMIN, ADMIN.replace("apiVersion: v1", "apiVersion: v2")),
        ("a port that there is not", ADMIN, ADMIN.replace("port: 80", "port: 70000")),
        ("a template", ADMIN, ADMIN.replace("name: shop-admin", "name: {{ .Release.Name }}-admin")),
        ("a hard space", ADMIN, ADMIN.replace("  name: shop", "\u{a0} name: shop")),
        ("merge markers", ADMIN, format!("<<<<<<< HEAD\n{ADMIN}=======\n>>>>>>> b\n")),
        ("a list for a text", ADMIN, ADMIN.replace("10.9.0.9/32", "[10.9.0.9/32]")),
        ("two without a line between", ADMIN, format!("{}{ADMIN}", service("a", 80))),
        (
            "an Ingress",
            ROUTE,
            ROUTE.replace(
                "gateway.networking.k8s.io/v1\nkind: HTTPRoute",
                "networking.k8s.io/v1\nkind: Ingress",
            ),
        ),
        ("another group", ROUTE, ROUTE.replace("gateway.networking.k8s.io", "gateway.networking.x-k8s.io")),
        ("a text for a list", ROUTE, ROUTE.replace("[shop.example]", "shop.example")),
        ("a route with a tab", ROUTE, ROUTE.replace("  rules", "\trules")),
    ] {
        let mut scene = Scene::with(&[("a.yaml", &text), ("b.yaml", &service("shop", 80))]);
        assert!(
            closed(&scene.world).contains(&"shop.example/admin".to_owned()),
            "{case}: {:?}",
            scene.world.told(&scene.dir)
        );
        let said = scene.world.told(&scene.dir);
        let names = |it: &String| it.contains("the front door answers 503 at shop.example/admin");
        assert_eq!(said.iter().filter(|it| names(it)).count(), 1, "{case}: {said:?}");
        scene.write("a.yaml", good);
        scene.until("it is corrected", |world| closed(world).is_empty());
        // Its last good state protects the place from now on.
        scene.write("a.yaml", &text);
        scene.until("it is broken again", |world| !world.problems.is_empty());
        assert_eq!(closed(&scene.world), [""; 0], "{case}");
        let mut scene = scene.restart();
        assert_eq!(closed(&scene.world), [""; 0], "{case}, after a restart");
        scene.remove("a.yaml");
        scene.until("it is removed", |world| world.problems.is_empty());
    }
}

#[test]
fn letters_that_are_no_text_close_the_place_and_a_file_that_cannot_be_opened_is_named() {
    let root = tempfile::tempdir().expect("a folder");
    let dir = root.path().join("manifests");
    std::fs::create_dir(&dir).expect("is made");
    let mut latin = ADMIN.replace("shop-admin", "shop-admin # k").into_bytes();
    let at = latin.iter().position(|it| *it == b'#').expect("a comment");
    latin[at + 1] = 0xe9;
    std::fs::write(dir.join("a.yaml"), latin).expect("is written");
    std::fs::write(dir.join("empty.yaml"), "").expect("is written");
    std::os::unix::fs::symlink("nowhere", dir.join("link.yaml")).expect("is linked");
    let scene = Scene::of(root, dir);
    assert_eq!(closed(&scene.world), ["shop.example/admin"]);
    let said = scene.world.told(&scene.dir);
    let all: Vec<_> = scene.world.problems.values().flatten().collect();
    for file in ["empty.yaml", "link.yaml"] {
        let names = |it: &&&seaway_model::Problem| {
            it.object.name.contains(file)
                && it.message.contains("a broader host name or path may serve requests")
                && it.fix.contains("run seaway check first")
        };
        assert_eq!(all.iter().filter(names).count(), 1, "{file}: {said:?}");
    }
}

#[test]
fn a_document_that_does_not_say_what_it_is_closes_its_place_and_check_says_so() {
    let text = ADMIN.lines().skip(2).map(|it| format!("{it}\n")).collect::<String>();
    let list = format!("- {}", ADMIN.replace('\n', "\n  "));
    for text in [text, list] {
        let scene = Scene::with(&[("a.yaml", &text)]);
        assert_eq!(closed(&scene.world), ["shop.example/admin"], "{text}");
        let (folder, _, mut problems) = seaway_files::read_folder(&scene.dir).expect("a folder");
        problems.extend(folder.unread_problems());
        let said: Vec<String> = problems.iter().map(ToString::to_string).collect();
        assert!(said.iter().any(|it| it.contains("answers 503 at shop.example/admin")), "{said:?}");
    }
}

#[test]
fn a_text_without_a_place_says_that_its_requests_may_be_served_by_others() {
    let text = ADMIN.replace("shop.example/admin", "{{ .Values.host }}").replace("  name", "\tname");
    let scene = Scene::with(&[("a.yaml", &text)]);
    assert_eq!(closed(&scene.world), [""; 0]);
    let said = scene.world.told(&scene.dir);
    assert!(said.iter().any(|it| it.contains("a broader host name or path may serve requests")), "{said:?}");
    // What protects nothing opens nothing.
    let scene = Scene::with(&[("a.yaml", &text.replace("seaway.dev/source-ranges: 10.9.0.9/32", "team: a"))]);
    let said = scene.world.told(&scene.dir);
    assert!(!said.is_empty() && !said.iter().any(|it| it.contains("broader")), "{said:?}");
}
