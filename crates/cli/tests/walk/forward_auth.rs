//! Another Service that has to agree, as an operator sets it up.

use std::{
    io::{BufRead, BufReader, Write},
    net::{SocketAddr, TcpListener, TcpStream},
    thread,
};

use crate::{
    backends::Web,
    front_door::{ask, with_door},
    harness::{Setup, until},
    manifests::Service,
};

const DOOR: u16 = 8080;
const OWN: u16 = 8081;

/// Agrees to who has the cookie, and sends others to log in. It ends with the test.
fn gate() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let at = listener.local_addr().expect("is bound");
    let answer = |mut stream: TcpStream| -> Option<()> {
        let lines = BufReader::new(stream.try_clone().ok()?).lines();
        let head: Vec<String> = lines.map_while(Result::ok).take_while(|it| !it.is_empty()).collect();
        let is_known = head.iter().any(|it| it.eq_ignore_ascii_case("cookie: session=right"));
        let asked = head.iter().find(|it| it.to_lowercase().starts_with("x-forwarded-uri: "))?.clone();
        let answer = match is_known && head[0].starts_with("GET /check ") {
            true => format!("HTTP/1.1 204 No Content\r\nX-User: alice\r\nX-Asked: {}\r\n\r\n", &asked[17..]),
            false => "HTTP/1.1 302 Found\r\nLocation: https://login.example/\r\nContent-Length: 0\r\n\r\n"
                .to_owned(),
        };
        stream.write_all(answer.as_bytes()).ok()
    };
    thread::spawn(move || {
        for stream in listener.incoming().map_while(Result::ok) {
            // Who leaves early gets no answer.
            let _ = answer(stream);
        }
    });
    at
}

#[test]
fn requests_are_served_if_another_service_agrees_and_nobody_is_served_without_it() {
    let web = Web::start("web");
    let asking = Service::web("web")
        .with("forward-auth", "gate:80/check")
        .with("forward-auth-headers", "X-User, X-Asked");
    let gate = Service::web("gate").with("front-door", "false").to(gate()).text();
    let seaway = with_door("")
        .write("web.yaml", &asking.to(web.at).text())
        .write("gate.yaml", &gate)
        .write(
            "route.yaml",
            "apiVersion: gateway.networking.k8s.io/v1\nkind: HTTPRoute\nmetadata: {name: route}\n\
             spec: {rules: [{matches: [{path: {value: /by-route}}], backendRefs: [{name: web, port: 80}]}]}\n",
        )
        .start();
    let get = |path: &str, more: &str| ask(seaway.at(DOOR), "GET", &format!("any.example{path}"), more);
    for path in ["/web/x?y=z", "/by-route"] {
        let refused = get(path, "X-User: root\r\n");
        assert_eq!((refused.status, refused.header("location")), (302, Some("https://login.example/")));
        assert_eq!(get(path, "Cookie: session=right\r\nX-User: root\r\n").status, 200, "{path}");
        let asked = web.last_request().to_lowercase();
        assert!(asked.contains("x-user: alice") && asked.contains(&format!("x-asked: {path}")), "{asked}");
        assert!(!asked.contains("root"), "{asked}");
    }
    assert_eq!(seaway.problems(), [], "all is well");
    seaway.folder.remove("gate.yaml");
    for path in ["/web", "/by-route"] {
        until("nobody is served", || get(path, "Cookie: session=right\r\n").status == 503);
    }
    assert!(seaway.has_problem("NoSuchService"));
    seaway.folder.write("gate.yaml", &gate);
    until("all is well again", || get("/web", "Cookie: session=right\r\n").status == 200);
    assert_eq!(seaway.problems(), []);
}

/// At its own address as well, by the same rules.
#[test]
fn a_service_with_an_address_of_its_own_asks_another_too() {
    let web = Web::start("web");
    let asking = Service::tcp("web", OWN)
        .with("protocol", "http")
        .with("forward-auth", "gate:80/check")
        .with("forward-auth-headers", "X-User");
    let gate = Service::web("gate").with("front-door", "false").to(gate()).text();
    let seaway = Setup::new().write("web.yaml", &asking.to(web.at).text()).write("gate.yaml", &gate).start();
    let get = |more: &str| ask(seaway.at(OWN), "GET", "any.example/x", more);
    let refused = get("X-User: root\r\n");
    assert_eq!((refused.status, refused.header("location")), (302, Some("https://login.example/")));
    assert_eq!(get("Cookie: session=right\r\nX-User: root\r\n").status, 200);
    let asked = web.last_request().to_lowercase();
    assert!(asked.contains("x-user: alice") && !asked.contains("root"), "{asked}");
    assert_eq!(seaway.problems(), [], "all is well");
    seaway.folder.remove("gate.yaml");
    until("nobody is served", || get("Cookie: session=right\r\n").status == 503);
    assert!(seaway.has_problem("NoSuchService"));
    seaway.folder.write("gate.yaml", &gate);
    until("all is well again", || get("Cookie: session=right\r\n").status == 200);
    // What cannot be understood opens nothing.
    let wrong = Service::tcp("web", OWN).with("protocol", "http").with("forward-auth", "http://192.0.2.1/");
    seaway.folder.write("web.yaml", &wrong.to(web.at).text());
    until("it is closed", || TcpStream::connect(seaway.at(OWN)).is_err());
}
