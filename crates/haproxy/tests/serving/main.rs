//! What is printed, before a real HAProxy: it takes each file without a word, and serves as our own data plane does.

mod guards;
mod haproxy;
mod injection;
mod peers;
mod printed;
mod routes;
mod scene;

use std::{
    collections::BTreeMap,
    net::{IpAddr, Ipv4Addr, SocketAddr},
    time::{Duration, Instant},
};

use haproxy::Running;
use peers::{ask, member, native};
use scene::{All, Members, all, made, options, printed};
use seaway_testkit::traffic::{Clients, Kind, Target, trusting};

pub(crate) const PORTS: [u16; 3] = [20_181, 20_182, 20_183];

#[test]
fn haproxy_takes_each_file_without_a_warning() {
    let Some(program) = haproxy::program() else { return };
    let ip = "127.0.0.1".parse().expect("an address");
    let pems = [made(&["first.example"]), made(&["second.example"])];
    for it in [all(ip, [80, 443, 3306], Members::written(), &pems), options(ip), All::default()] {
        let folder = haproxy::folder();
        let path = folder.path().to_str().expect("a path");
        let (document, problems) = printed(&it, path, None);
        assert_eq!(problems, []);
        let file = haproxy::write(&document, folder.path());
        let said = haproxy::complaints(program, &file);
        let text = std::fs::read_to_string(file).expect("read");
        assert_eq!(said, "", "{text}");
    }
}

/// An address of this process's own, in the network of loopback.
pub(crate) fn address(network: u8) -> IpAddr {
    Ipv4Addr::new(127, network, (std::process::id() >> 8) as u8, std::process::id() as u8).into()
}

const MANY: &str = "GET /many?q0=0&q1=1&q2=2&q3=3&q4=4&q5=5&q6=6&q7=7&q8=8";

/// One request a line: host, method and path, and more fields.
const REQUESTS: &[(&str, &str, &str)] = &[
    ("shop.example", "GET /", ""),
    ("SHOP.example:80", "GET /x?a=1", ""),
    ("shop.example.", "GET /cart", ""),
    ("shop.example", "GET /cart/", ""),
    ("shop.example", "GET /cartoon", ""),
    ("shop.example", "GET /cart/api", ""),
    ("shop.example", "GET /cart/api/", ""),
    ("api.shop.example", "GET /v1", ""),
    ("api.shop.example", "GET /v1/x", ""),
    // No rule of its own host: its wildcard's, then any host's.
    ("api.shop.example", "GET /v2", ""),
    ("a.b.shop.example", "GET /anywhere", ""),
    ("x.deep.shop.example", "GET /deep/er", ""),
    ("x.deep.shop.example", "GET /shallow", ""),
    ("deep.shop.example", "GET /deep", ""),
    ("other.example", "GET /anywhere/x", ""),
    ("other.example", "GET /", ""),
    ("[::1]:80", "GET /anywhere", ""),
    ("shop.example", "GET /api", ""),
    ("shop.example", "POST /api?to=beta+c", "X-Canary: a b\r\nContent-Length: 0\r\n"),
    ("shop.example", "POST /api?to=beta%20c&x", "X-Canary: a b\r\nContent-Length: 0\r\n"),
    ("shop.example", "POST /api?to=beta", "X-Canary: a b\r\nContent-Length: 0\r\n"),
    ("shop.example", "POST /api?to=beta+c", "X-Canary: a\r\nContent-Length: 0\r\n"),
    ("shop.example", "GET /api?to=beta+c", "X-Canary: a b\r\n"),
    ("shop.example", "GET /old+way", ""),
    ("shop.example", "GET /old+way/x?q=%41", ""),
    ("shop.example", "GET /oldway", ""),
    ("shop.example", "GET /strip", ""),
    ("shop.example", "GET /strip/", ""),
    ("shop.example", "GET /strip/x/y?z", ""),
    ("shop.example", "GET /path/x?q", ""),
    ("shop.example", "GET /headers", "X-Removed: by the client\r\nX-Added: zero\r\n"),
    ("shop.example", "GET /inside", ""),
    ("shop.example", "GET /inside/x", ""),
    ("shop.example", "GET /denied", ""),
    ("shop.example", "GET /nobody", ""),
    ("shop.example", "GET /many-inside", ""),
    ("shop.example", "GET /many-denied", ""),
    (
        "shop.example",
        MANY,
        "X-0: 0\r\nX-1: 1\r\nX-2: 2\r\nX-3: 3\r\nX-4: 4\r\nX-5: 5\r\nX-6: 6\r\nX-7: 7\r\nX-8: 8\r\n",
    ),
    (
        "shop.example",
        MANY,
        "X-0: 0\r\nX-1: 1\r\nX-2: 2\r\nX-3: 3\r\nX-4: 4\r\nX-5: 5\r\nX-6: 6\r\nX-7: 7\r\nX-8: 9\r\n",
    ),
    (
        "shop.example",
        MANY,
        "X-0: 1\r\nX-1: 1\r\nX-2: 2\r\nX-3: 3\r\nX-4: 4\r\nX-5: 5\r\nX-6: 6\r\nX-7: 7\r\nX-8: 8\r\n",
    ),
    // Past the rules of `/inside`, were they resolved by the member.
    ("shop.example", "GET /x/../inside", ""),
    ("shop.example", "GET /x/%2e%2E/inside", ""),
    ("shop.example", "GET /x/.%2e/inside", ""),
    ("shop.example", "GET /x/..%2Finside", ""),
    ("shop.example", "GET /x%2f..%2finside", ""),
    ("shop.example", "GET /x%5c..%5Cinside", ""),
    ("shop.example", "GET /x/..;a/inside", ""),
    ("shop.example", "GET /x\\..\\inside", ""),
    ("shop.example", "GET /./inside", ""),
    ("shop.example", "GET /x/..", ""),
    ("shop.example", "GET /x/.?a", ""),
    ("shop.example", "GET http://shop.example/x/../inside", ""),
    // No segments of dots.
    ("shop.example", "GET /.well-known/a..b/...c/d./..e/...", ""),
    ("shop.example", "GET /x?a=/../b", ""),
    // HTTP/2 in a tunnel gets past all rules.
    (
        "shop.example",
        "GET /",
        "Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABk\r\n",
    ),
    ("shop.example", "GET /", "Connection: Upgrade\r\nUpgrade: x/1, H2C\r\n"),
    ("shop.example:20181", "GET /tls/x?y", ""),
    ("shop.example:20181", "GET /moved", ""),
    ("shop.example:20181", "GET /moved/x?y", ""),
    ("shop.example:20181", "GET /same-host/x", ""),
    ("shop.example", "GET /same-host/x", ""),
    ("shop.example", "GET /gone", ""),
    ("shop.example", "GET /down", ""),
    (
        "shop.example",
        "GET /",
        "X-Forwarded-For: 192.0.2.1\r\nX-Forwarded-Proto: https\r\nX-Forwarded-Host: evil\r\n",
    ),
];

#[test]
fn the_same_requests_get_the_same_answers_as_from_our_own_data_plane() {
    let Some(program) = haproxy::program() else { return };
    let (theirs, ours) = (address(71), address(72));
    let members = Members {
        shop: member("shop", theirs),
        cart: member("cart", theirs),
        api: member("api", theirs),
        beta: member("beta", theirs),
    };
    let pems = [made(&["first.example"]), made(&["second.example"])];
    let folder = haproxy::folder();
    let path = folder.path().to_str().expect("a path");
    let (document, problems) = printed(&all(theirs, PORTS, members, &pems), path, None);
    assert_eq!(problems, []);
    let [plain, secure, tcp] = PORTS;
    let _haproxy = Running::start(program, &haproxy::write(&document, folder.path()), (theirs, plain).into());
    let _native = native(&all(ours, PORTS, members, &pems));

    for (host, line, more) in REQUESTS {
        let request = format!("{line} HTTP/1.1\r\nHost: {host}\r\n{more}\r\n");
        let here = |ip: IpAddr| {
            let mut answer = ask((ip, plain).into(), &request);
            // Where members are reached from is not the same.
            // HAProxy redirects without words.
            if answer.status.starts_with('3') {
                answer.body.clear();
                answer.fields.retain(|(name, _)| name != "content-type");
            }
            answer.body = answer.body.replace(&theirs.to_string(), "HERE").replace(&ours.to_string(), "HERE");
            answer
        };
        assert_eq!(here(theirs), here(ours), "HAProxy, and ours: {host} {line} {more}");
    }
    // Of a host with a slash, no other host's rule is asked.
    let slash = ask((theirs, plain).into(), "GET /x HTTP/1.1\r\nHost: shop.example/cart\r\n\r\n");
    assert_eq!(slash.status, "400");

    let clients = Clients::here();
    let roots: Vec<_> = pems.iter().map(|(chain, _)| der(chain)).collect();
    for (name, from) in [("first.example", "shop"), ("second.example", "cart")] {
        for ip in [theirs, ours] {
            let kind = Kind::Tls(trusting(&roots));
            let answer =
                clients.ask(&Target::new("by TLS", kind, (ip, secure).into()).host(name)).expect("answered");
            assert_eq!(answer.from.lines().next(), Some(from), "{name} at {ip}");
            assert!(answer.head.contains("strict-transport-security: max-age=3600"), "{}", answer.head);
        }
    }
    shares(theirs, ours, tcp);
}

/// Three for one of TCP connections go to the heavier member, and none to the one that stands by.
fn shares(theirs: IpAddr, ours: IpAddr, tcp: u16) {
    for ip in [theirs, ours] {
        let mut counts: BTreeMap<String, usize> = BTreeMap::new();
        for _ in 0..40 {
            let answer = ask(SocketAddr::new(ip, tcp), "GET / HTTP/1.1\r\nHost: a\r\n\r\n");
            *counts.entry(answer.from().to_owned()).or_default() += 1;
        }
        assert_eq!(counts, [("cart".to_owned(), 10), ("shop".to_owned(), 30)].into(), "at {ip}");
    }
}

/// The bytes of a certificate in PEM.
fn der(pem: &str) -> rustls::pki_types::CertificateDer<'static> {
    use rustls::pki_types::pem::PemObject as _;
    rustls::pki_types::CertificateDer::from_pem_slice(pem.as_bytes()).expect("a certificate")
}

#[test]
fn a_backup_member_serves_once_no_other_does() {
    let Some(program) = haproxy::program() else { return };
    let ip = address(73);
    let standing_by = member("api", ip);
    // Nobody listens there.
    let gone = |last: u16| SocketAddr::new(ip, last);
    let members = Members { shop: gone(1), cart: gone(2), api: standing_by, beta: gone(3) };
    let pems = [made(&["first.example"]), made(&["second.example"])];
    let folder = haproxy::folder();
    let mut all = all(ip, PORTS, members, &pems);
    for it in all.values_mut() {
        let it = std::sync::Arc::make_mut(it);
        for pool in it.pools.values_mut() {
            let health = seaway_model::load_balancer::HealthCheck {
                interval: Duration::from_millis(100),
                fall: 1,
                ..Default::default()
            };
            std::sync::Arc::make_mut(pool).health = Some(health);
        }
    }
    let (document, _) = printed(&all, folder.path().to_str().expect("a path"), None);
    let _haproxy = Running::start(program, &haproxy::write(&document, folder.path()), (ip, PORTS[0]).into());
    let begun = Instant::now();
    while ask(SocketAddr::new(ip, PORTS[2]), "GET / HTTP/1.1\r\nHost: a\r\n\r\n").from() != "api" {
        assert!(begun.elapsed() < Duration::from_secs(30), "the member that stands by does not serve");
    }
}
