use std::sync::Arc;

use seaway_model::{
    Kind, ObjectRef, Owner, PoolId,
    load_balancer::{BasicAuth, Rule},
};
use seaway_wire::http::{Limits, ReadProgress};

use super::*;

const BROWSER: &str = "Accept-Encoding: gzip, deflate, br, zstd\r\n";
const PAGE: &str = "Content-Type: text/html; charset=utf-8\r\nContent-Length: 2000\r\n";

fn rule() -> Rule {
    Rule::forward_all(Owner::Config("test".into()), PoolId("members".into()))
}

/// What becomes of a response, and the lines that it gets.
fn coded(by: &Compression, rule: &Rule, asked: &str, answered: &str) -> (ContentCoding, String) {
    let head = format!("{asked}\r\n");
    let mut request = Request::default();
    assert_eq!(request.read(head.as_bytes(), &Limits::default()), ReadProgress::Whole, "{asked}");
    let wanted = CompressionNegotiation::of(by, rule, false, head.as_bytes(), &request);
    let head = format!("{answered}\r\n");
    let mut response = Response::default();
    assert_eq!(
        response.read(head.as_bytes(), request.method, &Limits::default()),
        ReadProgress::Whole,
        "{answered}"
    );
    let coded = wanted.coding(head.as_bytes(), &response);
    let mut lines = Vec::new();
    coded.put_new(&mut lines, || false);
    (coded.coding, String::from_utf8(lines).expect("text"))
}

fn get(fields: &str) -> String {
    format!("GET / HTTP/1.1\r\nHost: a\r\n{fields}")
}

fn ok(fields: &str) -> String {
    format!("HTTP/1.1 200 OK\r\n{fields}")
}

#[test]
fn what_a_client_accepts_is_what_it_gets() {
    for (accepts, expected) in [
        ("gzip", true),
        ("GZip", true),
        ("x-gzip", true),
        ("*", true),
        ("br, zstd, gzip", true),
        ("gzip;q=0.001", true),
        ("gzip ; Q=1.000", true),
        ("gzip;q=1, identity;q=0.5", true),
        ("gzip;q=0.5, identity;q=0.5", true),
        ("*;q=0, gzip", true),
        ("", false),
        ("identity", false),
        ("br", false),
        ("gzip;q=0", false),
        ("gzip;q=0.000", false),
        ("gzip;q=0, *", false),
        ("*;q=0", false),
        ("gzip;q=0.5, identity", false),
        ("gzip;q=0.5, identity;q=0.6", false),
        ("gzip;q=", false),
        ("gzip;q=1.5", false),
        ("gzip;q=2", false),
        ("gzip;q=-1", false),
        ("gzip;q=0.0001", false),
        ("gzip;level=9", false),
        ("gzipped", false),
        ("g zip", false),
        (",,;,", false),
    ] {
        let (coding, _) = coded(
            &Compression::default(),
            &rule(),
            &get(&format!("Accept-Encoding: {accepts}\r\n")),
            &ok(PAGE),
        );
        assert_eq!(coding, if expected { ContentCoding::Gzip } else { ContentCoding::Varies }, "{accepts}");
    }
    let twice = get("Accept-Encoding: br\r\nAccept-Encoding: gzip\r\n");
    assert_eq!(coded(&Compression::default(), &rule(), &twice, &ok(PAGE)).0, ContentCoding::Gzip);
    assert_eq!(coded(&Compression::default(), &rule(), &get(""), &ok(PAGE)).0, ContentCoding::Varies);
}

#[test]
fn what_cannot_or_must_not_be_compressed_stays_as_it_is() {
    use ContentCoding::{AsItIs, Gzip, Varies};
    let (page, browser) = (ok(PAGE), get(BROWSER));
    let more = |fields: &str| ok(&format!("{PAGE}{fields}"));
    let of = |kind: &str| ok(&format!("Content-Type: {kind}\r\nContent-Length: 2000\r\n"));
    let table = [
        (browser.clone(), page.clone(), Gzip),
        (browser.clone(), ok("Content-Type: text/html\r\nTransfer-Encoding: chunked\r\n"), Gzip),
        (browser.clone(), ok("Content-Type: text/html\r\n"), Gzip),
        (browser.clone(), ok("Content-Type: text/html\r\nContent-Length: 1024\r\n"), Gzip),
        (browser.clone(), ok("Content-Type: text/html\r\nContent-Length: 1023\r\n"), AsItIs),
        (browser.clone(), ok("Content-Type: text/html\r\nContent-Length: 0\r\n"), Varies),
        // By their kind.
        (browser.clone(), of("Application/JSON;charset=utf-8"), Gzip),
        (browser.clone(), of("image/svg+xml"), Gzip),
        (browser.clone(), of("image/png"), AsItIs),
        (browser.clone(), of("video/mp4"), AsItIs),
        (browser.clone(), of("application/octet-stream"), AsItIs),
        (browser.clone(), of("application/grpc"), AsItIs),
        (browser.clone(), of("text/event-stream"), AsItIs),
        (browser.clone(), of("text/htmlx"), AsItIs),
        (browser.clone(), ok("Content-Length: 2000\r\n"), AsItIs),
        // By their status.
        (browser.clone(), page.replace("200 OK", "404 No"), Gzip),
        (browser.clone(), page.replace("200 OK", "403 No"), Gzip),
        (browser.clone(), page.replace("200 OK", "206 Part"), AsItIs),
        (browser.clone(), page.replace("200 OK", "500 Oh"), AsItIs),
        (browser.clone(), "HTTP/1.1 204 No\r\nContent-Type: text/html\r\n".to_owned(), AsItIs),
        (browser.clone(), "HTTP/1.1 304 Not\r\nETag: \"a\"\r\n".to_owned(), Varies),
        // By what the member says of them.
        (browser.clone(), more("Content-Encoding: br\r\n"), AsItIs),
        (browser.clone(), more("content-encoding: identity\r\n"), AsItIs),
        (browser.clone(), more("Cache-Control: public, No-Transform\r\n"), AsItIs),
        (browser.clone(), more("Cache-Control: public\r\n"), Gzip),
        (browser.clone(), more("Content-Range: bytes 0-1999/9000\r\n"), AsItIs),
        (browser.clone(), more("Content-Digest: sha-256=:a:\r\n"), AsItIs),
        (browser.clone(), more("Trailer: X-Sum\r\n"), AsItIs),
        (browser.clone(), more("Set-Cookie: a=b\r\n"), Varies),
        // By the request.
        (browser.replace("GET", "HEAD"), page.clone(), Varies),
        (browser.replace("GET", "POST"), page.clone(), Gzip),
        (browser.replace("HTTP/1.1", "HTTP/1.0"), page.clone(), Varies),
        (get(&format!("{BROWSER}Range: bytes=0-\r\n")), page.clone(), Varies),
        (get(&format!("{BROWSER}Connection: upgrade\r\nUpgrade: websocket\r\n")), page.clone(), Varies),
        (get(&format!("{BROWSER}Cache-Control: no-transform\r\n")), page.clone(), Varies),
        (get(&format!("{BROWSER}Cookie: a=b\r\n")), page.clone(), Varies),
        (get(&format!("{BROWSER}Authorization: Bearer a\r\n")), page.clone(), Varies),
    ];
    for (asked, answered, expected) in table {
        assert_eq!(
            coded(&Compression::default(), &rule(), &asked, &answered).0,
            expected,
            "{asked}{answered}"
        );
    }
}

/// Whoever has shown who it is has secrets in its pages, however it was shown.
#[test]
fn private_responses_are_compressed_only_if_the_service_says_so() {
    let private = Compression { private: true, ..Compression::default() };
    let of = ObjectRef::new(Kind::Service, "default", "shop");
    let auth = BasicAuth { of, realm: "r".into(), users: None, forwards: false };
    let guarded = Rule { auth: vec![Arc::new(auth)], ..rule() };
    let page_with_cookie = ok(&format!("{PAGE}Set-Cookie: a=b\r\n"));
    for (rule, fields, answered) in [
        (rule(), "Cookie: a=b\r\n", ok(PAGE)),
        (rule(), "Authorization: Basic a\r\n", ok(PAGE)),
        (rule(), "", page_with_cookie),
        (guarded, "", ok(PAGE)),
    ] {
        let asked = get(&format!("{BROWSER}{fields}"));
        assert_eq!(
            coded(&Compression::default(), &rule, &asked, &answered).0,
            ContentCoding::Varies,
            "{fields}"
        );
        assert_eq!(coded(&private, &rule, &asked, &answered).0, ContentCoding::Gzip, "{fields}");
    }
    let (head, mut request) = (get(BROWSER) + "\r\n", Request::default());
    assert_eq!(request.read(head.as_bytes(), &Limits::default()), ReadProgress::Whole);
    let known = |by| CompressionNegotiation::of(by, &rule(), true, head.as_bytes(), &request).is_taken;
    assert_eq!((known(&Compression::default()), known(&private)), (false, true), "by a certificate");
}

#[test]
fn the_types_of_a_service_are_instead_of_the_usual_ones() {
    let types = ["text/*".into(), "application/x-own".into()].to_vec();
    let own = Compression { types, private: false };
    for (kind, expected) in [
        ("text/event-stream", ContentCoding::Gzip),
        ("Text/Plain", ContentCoding::Gzip),
        ("application/x-own", ContentCoding::Gzip),
        ("application/json", ContentCoding::AsItIs),
        ("textile/a", ContentCoding::AsItIs),
    ] {
        let answered = ok(&format!("Content-Type: {kind}\r\n"));
        assert_eq!(coded(&own, &rule(), &get(BROWSER), &answered).0, expected, "{kind}");
    }
}

#[test]
fn the_head_says_what_was_done() {
    let usual = Compression::default();
    for (asked, fields, expected) in [
        (BROWSER, "", "Vary: Accept-Encoding\r\nContent-Encoding: gzip\r\n"),
        (BROWSER, "ETag: \"a\"\r\n", "Vary: Accept-Encoding\r\nContent-Encoding: gzip\r\nETag: W/\"a\"\r\n"),
        (
            BROWSER,
            "ETag: W/\"a\"\r\n",
            "Vary: Accept-Encoding\r\nContent-Encoding: gzip\r\nETag: W/\"a\"\r\n",
        ),
        (BROWSER, "Vary: Origin, accept-encoding\r\n", "Content-Encoding: gzip\r\n"),
        (BROWSER, "Vary: *\r\n", "Content-Encoding: gzip\r\n"),
        (BROWSER, "Vary: Origin\r\n", "Vary: Accept-Encoding\r\nContent-Encoding: gzip\r\n"),
        ("", "ETag: \"a\"\r\n", "Vary: Accept-Encoding\r\n"),
        (BROWSER, "Content-Encoding: br\r\n", ""),
    ] {
        let answered = ok(&format!("{PAGE}{fields}"));
        assert_eq!(coded(&usual, &rule(), &get(asked), &answered).1, expected, "{fields}");
    }
    // It stands for a response whose tag was weak for this client.
    let stored = "HTTP/1.1 304 Not\r\nETag: \"a\"\r\n";
    for (asked, expected) in
        [(BROWSER, "Vary: Accept-Encoding\r\nETag: W/\"a\"\r\n"), ("", "Vary: Accept-Encoding\r\n")]
    {
        assert_eq!(coded(&usual, &rule(), &get(asked), stored).1, expected);
    }
    let is_replaced =
        |coding, name: &[u8]| CompressedHead { coding, ..CompressedHead::default() }.replaces(name);
    assert!(is_replaced(ContentCoding::Gzip, b"ETag") && is_replaced(ContentCoding::Gzip, b"accept-ranges"));
    assert!(!is_replaced(ContentCoding::Varies, b"etag") && !is_replaced(ContentCoding::Gzip, b"vary"));
}
