//! Names and passwords, as an operator sets them up: a file of htpasswd in a Secret.

use crate::{
    backends::Web,
    front_door::{ask, with_door},
    harness::until,
    manifests::Service,
};

const DOOR: u16 = 8080;

/// `htpasswd -nbBC 10 alice sesame`, and `bob:` with `openssl passwd -6 -salt saltstring sesame`.
const ALICE: &str = "alice:$2y$10$abcdefghijklmnopqrstuuYoA/Ig5dOcHJ1Uzls.zCgSC7r9v4W76";
const BOB: &str = "bob:$6$saltstring$zw6YcBRuwlGueZoWIkK6CRJbQmJbhVf1zPxCfDBsJpbBlxfJ610F8Vp0i93QFh0AmoYe0z/GrJISxBfRQSsGe1";

fn secret(lines: &[&str]) -> String {
    let lines: Vec<String> = lines.iter().map(|it| format!("    {it}\n")).collect();
    format!(
        "apiVersion: v1\nkind: Secret\nmetadata: {{name: users}}\nstringData:\n  auth: |\n{}",
        lines.concat()
    )
}

/// As `alice:sesame`.
const AS_ALICE: &str = "Authorization: Basic YWxpY2U6c2VzYW1l\r\n";
/// As `bob:sesame`.
const AS_BOB: &str = "Authorization: Basic Ym9iOnNlc2FtZQ==\r\n";
/// As `alice:open`.
const WRONG: &str = "Authorization: Basic YWxpY2U6b3Blbg==\r\n";

#[test]
fn users_of_a_secret_are_let_in_wherever_requests_lead_to_the_service_and_nobody_else_is() {
    let (shop, own, open) = (Web::start("shop"), Web::start("own"), Web::start("open"));
    let asking = |service: Service| service.with("basic-auth", "users").with("basic-auth-realm", "Staff");
    let seaway = with_door("")
        .write("users.yaml", &secret(&[ALICE, BOB]))
        .write("shop.yaml", &asking(Service::web("shop")).to(shop.at).text())
        .write("open.yaml", &Service::web("open").to(open.at).text())
        .write("own.yaml", &asking(Service::tcp("own", 8081).with("protocol", "http")).to(own.at).text())
        .write(
            "route.yaml",
            "apiVersion: gateway.networking.k8s.io/v1\nkind: HTTPRoute\nmetadata: {name: route}\n\
             spec: {rules: [{matches: [{path: {value: /by-route}}], backendRefs: [{name: shop, port: 80}]}]}\n",
        )
        .start();
    let places = [(DOOR, "any.example/shop"), (DOOR, "any.example/by-route"), (8081, "any.example/")];
    let status = |(port, url): (u16, &str), said: &str| ask(seaway.at(port), "GET", url, said).status;
    for place in places {
        let refused = ask(seaway.at(place.0), "GET", place.1, "");
        assert_eq!(refused.status, 401, "{place:?}");
        assert_eq!(refused.header("www-authenticate"), Some("Basic realm=\"Staff\", charset=\"UTF-8\""));
        assert_eq!([status(place, WRONG), status(place, AS_ALICE), status(place, AS_BOB)], [401, 200, 200]);
    }
    assert!(!shop.last_request().to_lowercase().contains("authorization"), "members do not get the password");
    assert_eq!(status((DOOR, "any.example/open"), ""), 200);
    assert_eq!(seaway.problems(), [], "all is well");
    // A user who is removed is let in no more, at once; the others still are.
    seaway.folder.write("users.yaml", &secret(&[BOB, "carol:$apr1$salt$md5md5md5md5md5md5md5m."]));
    for place in places {
        until("alice is gone", || status(place, AS_ALICE) == 401);
        assert_eq!(status(place, AS_BOB), 200, "{place:?}");
    }
    until("the line is told", || {
        seaway
            .problems()
            .iter()
            .any(|(_, message, _)| message.starts_with("line 2 ") && !message.contains("md5"))
    });
    // Without the Secret nobody is served, rather than everybody.
    seaway.folder.remove("users.yaml");
    for place in places {
        until("nobody is served", || status(place, AS_BOB) == 503);
        assert_eq!(status(place, ""), 503, "{place:?}");
    }
    assert!(seaway.has_problem("NoSuchSecret"));
}

#[test]
fn where_bytes_are_passed_on_nothing_is_opened_for_a_service_with_users() {
    let (tcp, open) = (Web::start("tcp"), Web::start("open"));
    let seaway = with_door("")
        .write("users.yaml", &secret(&[ALICE]))
        .write("tcp.yaml", &Service::tcp("tcp", 8081).with("basic-auth", "users").to(tcp.at).text())
        .write("open.yaml", &Service::tcp("open", 8082).to(open.at).text())
        .start();
    until("it is told", || seaway.has_problem("Unsupported"));
    assert_eq!(ask(seaway.at(8082), "GET", "any.example/", "").status, 200);
    assert!(std::net::TcpStream::connect(seaway.at(8081)).is_err(), "nothing listens");
}
