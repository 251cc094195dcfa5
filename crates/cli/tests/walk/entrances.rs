//! Two entrances of one front door: what is at one is not at the other.

use crate::{
    backends::Web,
    front_door::ask,
    harness::{Setup, run, stdout, until},
    manifests::Service,
    tls::{OPEN, Pair, TLS, get, is_served},
};

const INSIDE: u16 = 8081;
const INSIDE_TLS: u16 = 8444;

#[test]
fn an_entrance_serves_those_who_name_it_and_nobody_else_does() {
    let (shop, admin) = (Web::start("shop"), Web::start("admin"));
    let folder = tempfile::tempdir().expect("a folder");
    let (outside, inside) =
        (Pair::new(&["shop.example", "admin.example"]), Pair::new(&["admin.example", "shop.example"]));
    let file = folder.path().join("inside.pem");
    std::fs::write(&file, format!("{}{}", inside.chain(), inside.key)).expect("written");
    let ip = "IP";
    let entrances = format!(
        "    secrets: named\n  entrances:\n  - name: internal\n    addresses: [\"{ip}\"]\n    port: {INSIDE}\n    unmatched: \
         {{code: 418}}\n    certificates: [{{cert: {}}}]\n    tls: {{port: {INSIDE_TLS}, redirect: true}}\n",
        file.display()
    );
    let setup = Setup::new();
    let entrances = entrances.replace(ip, &setup.ip.to_string());
    let own = setup.ip;
    let setup = setup.config(&format!(
        "frontDoor:\n  addresses: [\"{own}\"]\n  port: {OPEN}\n  tls:\n    port: {TLS}\n{entrances}"
    ));
    let at_entrance = |value: &str| {
        Service::web("admin").with("host", "admin.example").with("entrance", value).to(admin.at).text()
    };
    let seaway = setup
        .write("tls.yaml", &outside.secret("outside"))
        .write(
            "shop.yaml",
            &Service::web("shop").with("host", "shop.example").with("tls", "outside").to(shop.at).text(),
        )
        .write("admin.yaml", &at_entrance("internal"))
        .start();
    let (main, main_tls) = (seaway.at(OPEN), seaway.at(TLS));
    let (internal, internal_tls) = (seaway.at(INSIDE), seaway.at(INSIDE_TLS));
    until("the shop is served", || is_served(main_tls, "shop.example", &outside));
    until("the other one is served inside", || is_served(internal_tls, "admin.example", &inside));
    assert_eq!(ask(main, "GET", "shop.example/", "").status, 200);
    assert_eq!(ask(main, "GET", "admin.example/", "").status, 404);
    assert_eq!(ask(main, "GET", "any.example/admin", "").status, 404, "nor at the path of its name");
    // By TLS, too, whatever the handshake named.
    assert!(get(main_tls, "admin.example", "/", &outside).is_ok_and(|it| it.starts_with("HTTP/1.1 404")));
    assert!(get(internal_tls, "shop.example", "/", &inside).is_ok_and(|it| it.starts_with("HTTP/1.1 418")));
    assert!(
        get(main_tls, "admin.example", "/", &inside).is_err(),
        "the certificate of inside is shown inside"
    );
    // Its own redirect, to its own port.
    let sent = ask(internal, "GET", "admin.example/x", "");
    assert!(
        sent.status == 308 && sent.head.contains(&format!("https://admin.example:{INSIDE_TLS}/x")),
        "{}",
        sent.head
    );
    let text = stdout(&run(&[
        "plan",
        &seaway.folder.manifests().display().to_string(),
        "--config",
        &seaway.folder.0.path().join("seaway.yaml").display().to_string(),
    ]));
    assert!(text.contains("admin.example/ at entrance internal"), "{text}");
    // It moves, and an entrance that there is not is none.
    seaway.folder.write("admin.yaml", &at_entrance("main"));
    until("it is served outside", || ask(main, "GET", "admin.example/", "").status == 200);
    until("it is not inside", || {
        get(internal_tls, "admin.example", "/", &inside).is_err()
            || ask(internal, "GET", "admin.example/", "").status != 308
    });
    seaway.folder.write("admin.yaml", &at_entrance("nowhere"));
    until("it is told", || seaway.has_problem("Unsupported"));
    until("it is nowhere", || ask(main, "GET", "admin.example/", "").status == 404);
}

#[test]
fn a_route_is_at_the_entrance_that_it_and_its_service_name() {
    let web = Web::start("web");
    let setup = Setup::new();
    let ip = setup.ip;
    let service = |entrance: &str| Service::web("web").with("entrance", entrance).to(web.at).text();
    let route = |host: &str| {
        format!(
            "apiVersion: gateway.networking.k8s.io/v1\nkind: HTTPRoute\nmetadata:\n  name: web\n  annotations: {{seaway.dev/entrance: \
             internal}}\nspec:\n  hostnames: [{host}]\n  rules:\n  - backendRefs: [{{name: web, port: 80}}]\n"
        )
    };
    let seaway = setup
        .config(&format!(
            "frontDoor:\n  addresses: [\"{ip}\"]\n  port: {OPEN}\n  entrances:\n  - name: internal\n    addresses: \
             [\"{ip}\"]\n    port: {INSIDE}\n    tls: {{port: {INSIDE_TLS}}}\n"
        ))
        .write("web.yaml", &service("internal"))
        .write("route.yaml", &route("admin.example"))
        .start();
    let (main, internal) = (seaway.at(OPEN), seaway.at(INSIDE));
    let answer = ask(internal, "GET", "admin.example/x", "");
    assert_eq!((answer.status, answer.body.as_str()), (200, "web"), "{:?}", seaway.problems());
    // Nothing may listen at the main entrance, where nothing is.
    let is_outside = |host: &str| ask(main, "GET", &format!("{host}/x"), "").status == 200;
    assert!(!is_outside("admin.example"));
    seaway.folder.write("route.yaml", &route("office.example"));
    until("the route is followed", || ask(internal, "GET", "office.example/x", "").status == 200);
    assert_eq!(ask(internal, "GET", "admin.example/x", "").status, 404);
    assert!(!is_outside("office.example"));
    // At an entrance that its Service does not name, it serves nothing.
    seaway.folder.write("web.yaml", &service("main"));
    until("the Service is not inside", || ask(internal, "GET", "office.example/x", "").status == 500);
    assert!(!is_outside("office.example"));
}
