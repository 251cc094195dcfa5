//! What a client gets past rules, limits and closed ports by, and what one route could spoil for all.

use std::{
    io::{Read as _, Write as _},
    net::{SocketAddr, TcpStream},
    sync::Arc,
    time::{Duration, Instant},
};

use seaway_model::{
    Listener,
    load_balancer::{Action, Compression, Filter, Match, PathMatch, Protocol, Rule},
};

use crate::{
    PORTS, address,
    haproxy::{self, Running},
    peers::{ask, member},
    scene::{All, at, exact, http, load_balancer, many, owner, pool, prefix, printed, ranges, to},
};

/// As long as each of them may be, and the largest numbers.
fn longest() -> All {
    let all = ranges(1000, "127.0.0.0/8");
    let text = |it: usize| seaway_model::Name::from(format!("/{it}{}", "a".repeat(990)));
    let prefixes = (0..64).map(|it| Match {
        path: Some(seaway_model::load_balancer::PathMatch::Prefix(text(it))),
        ..Match::default()
    });
    let mut conditions = many("/many", 16);
    conditions.headers.iter_mut().chain(&mut conditions.query).for_each(|(_, value)| {
        *value = seaway_model::load_balancer::TextMatch::Exact("a".repeat(4000).into());
    });
    let rules = vec![
        to("web"),
        at(Rule { sources: all.clone(), denied: all.clone(), ..to("web") }, &[], prefix("/ranges")),
        Rule { matches: vec![conditions], ..to("web") },
        Rule { matches: prefixes.collect(), filters: vec![Filter::RewritePrefix("/x".into())], ..to("web") },
    ];
    let mut listener = Listener {
        sources: all.clone(),
        denied: all.clone(),
        proxy_from: all.clone(),
        ..http("web", 80, rules)
    };
    listener.http.trusted = all.clone();
    let mut web = pool("web", &["10.0.0.1:80".parse().expect("an address")]);
    web.http.body = Some(u64::MAX >> 1);
    let types = (0..200).map(|it| format!("text/x{it}").into()).collect();
    web.http.compression = Some(Arc::new(Compression { types, private: true }));
    let it = load_balancer("127.0.0.1".parse().expect("an address"), vec![listener], vec![web]);
    [(owner("web"), Arc::new(it))].into()
}

#[test]
fn haproxy_takes_the_longest_lists() {
    let Some(program) = haproxy::program() else { return };
    let folder = haproxy::folder();
    let (document, _) = printed(&longest(), folder.path().to_str().expect("a path"), None);
    let file = haproxy::write(&document, folder.path());
    assert_eq!(haproxy::complaints(program, &file), "");
}

#[test]
fn a_closed_port_of_tcp_leads_to_no_member() {
    let Some(program) = haproxy::program() else { return };
    let ip = address(74);
    let mut web = pool("web", &[member("web", ip)]);
    web.transparent = true;
    let closed = Listener { protocol: Protocol::Opaque, ..http("web", PORTS[0], vec![to("web")]) };
    let it = load_balancer(ip, vec![closed], vec![web]);
    let folder = haproxy::folder();
    let all: All = [(owner("web"), Arc::new(it))].into();
    let (document, _) = printed(&all, folder.path().to_str().expect("a path"), None);
    let at = SocketAddr::new(ip, PORTS[0]);
    let _haproxy = Running::start(program, &haproxy::write(&document, folder.path()), at);
    assert_eq!(ask(at, "GET / HTTP/1.1\r\nHost: a\r\n\r\n").from(), "");
}

/// A frame of HTTP/2, of the first request.
fn frame(kind: u8, flags: u8, stream: u8, body: &[u8]) -> Vec<u8> {
    let [.., high, middle, low] = (body.len() as u32).to_be_bytes();
    [&[high, middle, low, kind, flags, 0, 0, 0, stream], body].concat()
}

/// The status of a request by HTTP/2, after its head and all of its body.
fn asked(at: SocketAddr, fields: &[(&str, &str)], body: Option<&[u8]>) -> String {
    let mut stream = TcpStream::connect(at).expect("connected");
    stream.set_read_timeout(Some(Duration::from_secs(20))).expect("a setting");
    let mut head = Vec::new();
    for (name, value) in [(":scheme", "http"), (":path", "/"), (":authority", "a")].iter().chain(fields) {
        head.extend([0, name.len() as u8]);
        head.extend(name.as_bytes());
        head.push(value.len() as u8);
        head.extend(value.as_bytes());
    }
    let mut sent = [b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec(), frame(4, 0, 0, &[])].concat();
    sent.extend(frame(1, if body.is_none() { 5 } else { 4 }, 1, &head));
    sent.extend(body.map(|body| frame(0, 1, 1, body)).unwrap_or_default());
    stream.write_all(&sent).expect("sent");
    loop {
        let mut head = [0; 9];
        stream.read_exact(&mut head).expect("a frame");
        let mut body = vec![0; u32::from_be_bytes([0, head[0], head[1], head[2]]) as usize];
        stream.read_exact(&mut body).expect("a frame");
        match (head[3], body.as_slice()) {
            (1, [0x88, ..]) => return "200".to_owned(),
            // A literal with the name of the table's eighth, `:status`.
            (1, [0x48, 3, status @ ..]) => return String::from_utf8_lossy(&status[..3]).into_owned(),
            (1 | 3 | 7, other) => return format!("{} {other:?}", head[3]),
            _ => {}
        }
    }
}

#[test]
fn no_body_without_a_length_gets_past_the_limit_whatever_the_method_and_none_is_waited_for() {
    let Some(program) = haproxy::program() else { return };
    let ip = address(75);
    let mut web = pool("web", &[member("web", ip)]);
    web.http.body = Some(1000);
    let it = load_balancer(ip, vec![http("web", PORTS[0], vec![to("web")])], vec![web]);
    let folder = haproxy::folder();
    let all: All = [(owner("web"), Arc::new(it))].into();
    let (document, _) = printed(&all, folder.path().to_str().expect("a path"), None);
    let at = SocketAddr::new(ip, PORTS[0]);
    let _haproxy = Running::start(program, &haproxy::write(&document, folder.path()), at);
    // Of a body that is beyond the limit as it comes, HAProxy says so: 413.
    let (short, long) = ([b'x'; 500], [b'x'; 3000]);
    let begun = Instant::now();
    for (fields, body, status) in [
        (&[(":method", "GET")][..], None, "200"),
        (&[(":method", "DELETE")], None, "200"),
        (
            &[(":method", "CONNECT"), (":protocol", "websocket"), ("sec-websocket-version", "13")],
            Some(&[][..]),
            "200",
        ),
        (&[(":method", "DELETE")], Some(&short), "411"),
        (&[(":method", "GET")], Some(&short), "411"),
        (&[(":method", "POST")], Some(&short), "411"),
        (&[(":method", "DELETE"), ("content-length", "3000")], Some(&long), "413"),
        (&[(":method", "DELETE"), ("content-length", "0")], None, "200"),
    ] {
        assert_eq!(asked(at, fields, body), status, "{fields:?}");
    }
    for (head, status) in [
        ("GET / HTTP/1.1\r\nHost: a\r\n", "200"),
        ("DELETE / HTTP/1.1\r\nHost: a\r\n", "200"),
        ("DELETE / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n", "411"),
        ("DELETE / HTTP/1.1\r\nHost: a\r\nContent-Length: 3000\r\n", "413"),
    ] {
        assert_eq!(ask(at, &format!("{head}\r\n")).status, status, "{head}");
    }
    assert!(begun.elapsed() < Duration::from_secs(5), "a body was waited for where none comes");
}

/// A frontend whose rules are these, on a HAProxy that runs.
fn running(program: &str, network: u8, rules: Vec<Rule>) -> (Running, SocketAddr, tempfile::TempDir) {
    let ip = address(network);
    let it = load_balancer(ip, vec![http("web", PORTS[0], rules)], vec![pool("web", &[member("web", ip)])]);
    let folder = haproxy::folder();
    let all: All = [(owner("web"), Arc::new(it))].into();
    let (document, _) = printed(&all, folder.path().to_str().expect("a path"), None);
    let at = SocketAddr::new(ip, PORTS[0]);
    (Running::start(program, &haproxy::write(&document, folder.path()), at), at, folder)
}

fn status(at: SocketAddr, path: &str) -> String {
    ask(at, &format!("GET {path} HTTP/1.1\r\nHost: a\r\n\r\n")).status
}

#[test]
fn no_other_spelling_of_a_guarded_path_reaches_the_open_rule() {
    let Some(program) = haproxy::program() else { return };
    let inside = || Rule { sources: vec!["192.0.2.0/24".parse().expect("a range")], ..to("web") };
    let rules = vec![
        to("web"),
        at(inside(), &[], prefix("/admin")),
        at(inside(), &[], prefix("/caf%c3%a9")),
        at(inside(), &[], prefix("/a@b")),
        at(inside(), &[], prefix("/%6f//pen")),
    ];
    let (_haproxy, at, _folder) = running(program, 76, rules);
    for path in [
        "//admin",
        "/%61dmin",
        "/%61Dmin",
        "/admi%6E",
        "/admin;x",
        "/admin%2fx",
        "/admin%2Fx",
        "/;x%2fy/admin",
        "/;%00/admin",
        "/x;/../admin",
        "/%2fadmin",
        "/admin%5cx",
        "/admin\\x",
        "/admin%00",
        "/admin%3bx",
        "/%u0061dmin",
        "/admin%",
        "/admin%2",
        "/%c0%afadmin",
        "/caf%c3%a9",
        "/caf%C3%a9",
        "/a%40b",
        "http://a//admin",
        "/x//",
        "/%6f/pen",
        "/a{b",
        "/%0aadmin",
    ] {
        assert_eq!(status(at, path), "400", "{path}");
    }
    for path in ["/admin", "/admin/x", "/caf%C3%A9", "/a@b", "/o/pen"] {
        assert_eq!(status(at, path), "403", "{path}");
    }
    for path in ["/", "/x%20y", "/x?a=//admin;%61", "/%E2%82%AC", "/a-b_c.d~e", "/x%25y", "/x%3Ay"] {
        assert_eq!(status(at, path), "200", "{path}");
    }
}

#[test]
fn where_no_path_is_guarded_each_spelling_is_served() {
    let Some(program) = haproxy::program() else { return };
    let nothing = || Rule { action: Action::Respond { code: 404, body: "".into() }, ..to("web") };
    let (_haproxy, at, _folder) = running(program, 77, vec![at(nothing(), &[exact("b")], None), to("web")]);
    for path in ["//admin", "/%61dmin", "/admin;x", "/admin%2fx"] {
        assert_eq!(status(at, path), "200", "{path}");
    }
}

/// What a route's author misspelt answers 500, whatever HAProxy can say of its match.
#[test]
fn a_closed_rule_that_cannot_be_said_closes_its_host() {
    let Some(program) = haproxy::program() else { return };
    let broken = || Rule { action: Action::Respond { code: 500, body: "".into() }, ..to("web") };
    let rules = vec![
        at(to("web"), &[exact("a")], None),
        at(broken(), &[exact("a")], Some(PathMatch::Regex("/admin(/.*)?".into()))),
    ];
    let (_haproxy, at, _folder) = running(program, 78, rules);
    assert_eq!(status(at, "/admin/x"), "503");
}
