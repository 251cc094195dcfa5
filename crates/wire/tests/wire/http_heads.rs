//! Heads of HTTP/1.1: what is understood, and what is refused with which status.

use seaway_wire::http::{
    BodyFraming, HeadError, KnownHeader, Limits, Method, ReadProgress, Request, Response, Version, may_trail,
};

fn read(bytes: &[u8]) -> Result<Request, HeadError> {
    let mut request = Request::default();
    match request.read(bytes, &Limits::default()) {
        ReadProgress::Whole => Ok(request),
        ReadProgress::Refused(refusal) => Err(refusal),
        ReadProgress::More => panic!("not whole: {}", String::from_utf8_lossy(bytes)),
    }
}

/// A request with these lines after `Host: a`.
fn with(method: &str, fields: &str) -> Vec<u8> {
    format!("{method} /x HTTP/1.1\r\nHost: a\r\n{fields}\r\n").into_bytes()
}

fn answer(bytes: &[u8], method: Method) -> Result<Response, HeadError> {
    let mut response = Response::default();
    match response.read(bytes, method, &Limits::default()) {
        ReadProgress::Whole => Ok(response),
        ReadProgress::Refused(refusal) => Err(refusal),
        ReadProgress::More => panic!("not whole: {}", String::from_utf8_lossy(bytes)),
    }
}

#[test]
fn a_plain_request_is_understood() {
    let bytes = b"POST /a/b?c=d HTTP/1.1\r\nHost: shop.example:8080\r\nX-Odd-Case:  v w \r\nContent-Length: 5\r\n\r\nhello";
    let request = read(bytes).unwrap();
    assert_eq!((request.method, request.version), (Method::Post, Version::Http11));
    assert_eq!((request.body, request.length), (BodyFraming::Length(5), bytes.len() - 5));
    assert_eq!(request.path().of(bytes), b"/a/b");
    assert_eq!(request.query().of(bytes), b"c=d");
    assert_eq!(request.path_and_query().of(bytes), b"/a/b?c=d");
    assert_eq!(request.authority.of(bytes), b"shop.example:8080");
    assert!(request.persists && !request.upgrade);
    let odd = request.fields[1];
    assert_eq!((odd.name.of(bytes), odd.value.of(bytes)), (&b"X-Odd-Case"[..], &b"v w"[..]));
}

#[test]
fn targets_have_four_forms() {
    for (line, authority, path, query) in [
        ("GET / HTTP/1.1", "a", "/", ""),
        ("GET /?q HTTP/1.1", "a", "/", "q"),
        ("GET /a? HTTP/1.1", "a", "/a", ""),
        ("GET http://b.example/c?d HTTP/1.1", "b.example", "/c", "d"),
        ("GET HTTPS://b.example:81 HTTP/1.1", "b.example:81", "", ""),
        ("GET http://[2001:db8::1]:80?d HTTP/1.1", "[2001:db8::1]:80", "", "d"),
        ("OPTIONS * HTTP/1.1", "a", "*", ""),
        ("CONNECT b.example:443 HTTP/1.1", "b.example:443", "", ""),
        ("GET /a.b/...c/%2e%2e%2e/.well-known HTTP/1.1", "a", "/a.b/...c/%2e%2e%2e/.well-known", ""),
    ] {
        let bytes = format!("{line}\r\nHost: a\r\n\r\n").into_bytes();
        let request = read(&bytes).unwrap_or_else(|refusal| panic!("{line}: {refusal:?}"));
        let text = |it: seaway_wire::http::ByteRange| String::from_utf8_lossy(it.of(&bytes)).into_owned();
        assert_eq!(
            (text(request.authority), text(request.path()), text(request.query())),
            (authority.to_owned(), path.to_owned(), query.to_owned()),
            "{line}"
        );
    }
}

#[test]
fn request_lines_that_two_might_read_in_two_ways_are_refused() {
    for (line, status) in [
        ("GET /", 400),
        ("GET  / HTTP/1.1", 400),
        ("GET /  HTTP/1.1", 400),
        ("GET / HTTP/1.1 ", 400),
        ("GET\t/ HTTP/1.1", 400),
        (" GET / HTTP/1.1", 400),
        ("G@T / HTTP/1.1", 400),
        ("GET /a b HTTP/1.1", 400),
        ("GET /a#b HTTP/1.1", 400),
        ("GET /a\\b HTTP/1.1", 400),
        ("GET /\u{e9} HTTP/1.1", 400),
        ("GET /\0 HTTP/1.1", 400),
        ("GET a HTTP/1.1", 400),
        ("GET * HTTP/1.1", 400),
        ("GET ftp://a/ HTTP/1.1", 400),
        ("GET http:///a HTTP/1.1", 400),
        ("GET http://u@a/ HTTP/1.1", 400),
        ("GET http://a:b/ HTTP/1.1", 400),
        ("GET http://[::1/ HTTP/1.1", 400),
        ("CONNECT a HTTP/1.1", 400),
        ("CONNECT /a HTTP/1.1", 400),
        ("GET /../a HTTP/1.1", 400),
        ("GET /a/.. HTTP/1.1", 400),
        ("GET /a/./b HTTP/1.1", 400),
        ("GET /a/%2E%2e/b HTTP/1.1", 400),
        ("GET /a%2f..%2Fb HTTP/1.1", 400),
        ("GET /a%5c../b HTTP/1.1", 400),
        ("GET /a/..;x/b HTTP/1.1", 400),
        ("GET / HTTP/1.1x", 400),
        ("GET / http/1.1", 400),
        ("GET / HTTP/2.0", 505),
        ("GET / HTTP/0.9", 505),
    ] {
        let refusal = read(format!("{line}\r\nHost: a\r\n\r\n").as_bytes()).expect_err(line);
        assert_eq!(refusal.status, status, "{line}: {}", refusal.why);
    }
}

#[test]
fn what_is_another_protocol_is_known_as_that() {
    for line in ["INVALID CONNECTION PREFACE", "PRI * HTTP/2.0", "EHLO example test"] {
        let refusal = read(format!("{line}\r\n\r\n").as_bytes()).expect_err(line);
        assert_eq!(refusal, HeadError::ANOTHER_PROTOCOL, "{line}");
    }
    for line in ["GET / http/1.1", "GET /", "GET a HTTP/1.1", "GET / HTTP/2.0", "CONNECT a:1 x"] {
        let refusal = read(format!("{line}\r\n\r\n").as_bytes()).expect_err(line);
        assert_ne!(refusal, HeadError::ANOTHER_PROTOCOL, "{line}");
    }
}

#[test]
fn fields_that_two_might_read_in_two_ways_are_refused() {
    for (fields, status) in [
        ("A: b\n", 400),
        ("A: b\r\r\n", 400),
        ("A : b\r\n", 400),
        ("A\t: b\r\n", 400),
        (": b\r\n", 400),
        ("A\r\n", 400),
        ("A b: c\r\n", 400),
        ("A: b\r\n c\r\n", 400),
        ("A: b\r\n\tc\r\n", 400),
        ("A: b\0c\r\n", 400),
        ("A: b\rc\r\n", 400),
        ("A: \x7f\r\n", 400),
        ("Host: a\r\n", 400),
        ("Host: b\r\n", 400),
        ("Content-Length: 1\r\nContent-Length: 1\r\n", 400),
        ("Content-Length: 1, 1\r\n", 400),
        ("Content-Length: +1\r\n", 400),
        ("Content-Length: -1\r\n", 400),
        ("Content-Length: 0x1\r\n", 400),
        ("Content-Length: 1 2\r\n", 400),
        ("Content-Length:\r\n", 400),
        ("Content-Length: 18446744073709551616\r\n", 400),
        ("Content-Length: 1\r\nTransfer-Encoding: chunked\r\n", 400),
        ("Transfer-Encoding: chunked\r\nContent-Length: 0\r\n", 400),
        ("Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n", 400),
        ("Transfer-Encoding: identity\r\n", 400),
        ("Transfer-Encoding: chunked, identity\r\n", 400),
        ("Transfer-Encoding: xchunked\r\n", 400),
        ("Transfer-Encoding: \"chunked\"\r\n", 400),
        ("Transfer-Encoding: chunked;a\r\n", 400),
        ("Transfer-Encoding: \x0bchunked\r\n", 400),
        ("Transfer-Encoding:\r\n", 400),
        ("Transfer-Encoding: gzip, chunked\r\n", 501),
        ("Transfer-Encoding\r\n : chunked\r\n", 400),
        ("Expect: 200-maybe\r\n", 417),
    ] {
        let refusal = read(&with("POST", fields)).expect_err(fields);
        assert_eq!(refusal.status, status, "{fields:?}: {}", refusal.why);
    }
    assert!(read(b"GET / HTTP/1.1\r\n\r\n").is_err(), "no Host");
    for host in ["a b", "a/b", "u@a", "a:b", "a:123456", "[::1", "a,b"] {
        assert!(read(format!("GET / HTTP/1.1\r\nHost: {host}\r\n\r\n").as_bytes()).is_err(), "{host}");
    }
    let old = b"POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n";
    assert_eq!(read(old).unwrap_err().status, 400);
    assert_eq!(read(b"\r\n\r\nGET / HTTP/1.1\r\nHost: a\r\n\r\n").unwrap_err().status, 400);
    assert_eq!(read(b"GET / HTTP/1.1\nHost: a\n\n").unwrap_err().status, 400);
}

#[test]
fn a_body_is_framed_by_one_thing() {
    for (method, fields, body) in [
        ("GET", "", BodyFraming::None),
        ("POST", "", BodyFraming::None),
        ("POST", "Content-Length: 0\r\n", BodyFraming::None),
        ("GET", "Content-Length: 007\r\n", BodyFraming::Length(7)),
        ("POST", "Transfer-Encoding: Chunked\r\n", BodyFraming::Chunked),
        ("POST", "TRANSFER-ENCODING:chunked \r\n", BodyFraming::Chunked),
    ] {
        assert_eq!(read(&with(method, fields)).unwrap().body, body, "{method} {fields:?}");
    }
    assert_eq!(read(b"CONNECT a:1 HTTP/1.1\r\nHost: a\r\n\r\n").unwrap().body, BodyFraming::Tunnel);
    assert!(read(b"CONNECT a:1 HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\n\r\n").is_err());
}

#[test]
fn what_is_for_one_hop_is_marked() {
    let bytes = with(
        "GET",
        "Connection: close, X-Mine, Host, Content-Length, Cookie\r\nX-Mine: 1\r\nx-yours: 2\r\nKeep-Alive: 1\r\nTE: trailers\r\nCookie: a=b\r\nContent-Length: 1\r\n",
    );
    let request = read(&bytes).unwrap();
    let going_on: Vec<&[u8]> =
        request.fields.iter().filter(|it| !it.hop).map(|it| it.name.of(&bytes)).collect();
    let expected: [&[u8]; 4] = [b"Host", b"x-yours", b"Cookie", b"Content-Length"];
    assert_eq!(going_on, expected, "what frames, routes or identifies cannot be named away");
    assert!(!request.persists);
    assert_eq!(request.field(KnownHeader::Cookie).unwrap().of(&bytes), b"a=b");
}

#[test]
fn a_name_that_some_read_as_another_goes_no_further() {
    let bytes = with(
        "POST",
        "Content_Length: 5\r\nTRANSFER_ENCODING: chunked\r\nX_Forwarded-For: b\r\nClient_Cert: c\r\nx_mine: d\r\n",
    );
    let request = read(&bytes).unwrap();
    let going_on: Vec<&[u8]> =
        request.fields.iter().filter(|it| !it.hop).map(|it| it.name.of(&bytes)).collect();
    assert_eq!(going_on, [&b"Host"[..], b"x_mine"]);
    assert_eq!(request.body, BodyFraming::None);
    for (name, may) in [
        ("Grpc-Status", true),
        ("x_mine", true),
        ("Content-Length", false),
        ("host", false),
        ("TE", false),
        ("x_forwarded_for", false),
    ] {
        assert_eq!(may_trail(name.as_bytes()), may, "{name}");
    }
}

#[test]
fn connections_persist_as_their_version_says() {
    for (head, persists) in [
        ("GET / HTTP/1.1\r\nHost: a\r\n", true),
        ("GET / HTTP/1.1\r\nHost: a\r\nConnection: Close\r\n", false),
        ("GET / HTTP/1.1\r\nHost: a\r\nConnection: keep-alive, close\r\n", false),
        ("GET / HTTP/1.0\r\n", false),
        ("GET / HTTP/1.0\r\nConnection: Keep-Alive\r\n", true),
    ] {
        assert_eq!(read(format!("{head}\r\n").as_bytes()).unwrap().persists, persists, "{head}");
    }
    let upgrade = read(&with("GET", "Connection: Upgrade\r\nUpgrade: websocket\r\n")).unwrap();
    assert!(upgrade.upgrade);
    for no in [
        "Upgrade: websocket\r\n",
        "Connection: upgrade\r\nUpgrade: h2c\r\n",
        "Connection: upgrade\r\nUpgrade: websocket, H2C\r\n",
        "Connection: upgrade\r\nUpgrade: h2c\r\nUpgrade: websocket\r\n",
        "Connection: upgrade\r\nUpgrade: websocket\r\nContent-Length: 1\r\n",
    ] {
        assert!(!read(&with("GET", no)).unwrap().upgrade, "{no:?}");
    }
    assert!(read(&with("POST", "Content-Length: 1\r\nExpect: 100-Continue\r\n")).unwrap().expects_continue);
    assert!(!read(&with("POST", "Expect: 100-continue\r\n")).unwrap().expects_continue, "there is no body");
}

#[test]
fn limits_bind_before_and_after_the_end() {
    let limits = Limits { head: 100, target: 20, fields: 2 };
    let status = |bytes: &[u8]| match Request::default().read(bytes, &limits) {
        ReadProgress::Refused(refusal) => refusal.status,
        ReadProgress::Whole => 200,
        ReadProgress::More => 0,
    };
    assert_eq!(status(b"GET / HTTP/1.1\r\nHost: a\r\nA: b\r\n\r\n"), 200);
    assert_eq!(status(b"GET / HTTP/1.1\r\nHost: a\r\nA: b\r\nC: d\r\n\r\n"), 431);
    assert_eq!(status(&[b"GET /", &[b'a'; 30][..], b" HTTP/1.1\r\nHost: a\r\n\r\n"].concat()), 414);
    assert_eq!(status(&[b"GET /", &[b'a'; 90][..]].concat()), 0);
    assert_eq!(status(&[b"GET /", &[b'a'; 100][..]].concat()), 414);
    assert_eq!(status(&[b"GET / HTTP/1.1\r\nHost: ", &[b'a'; 100][..]].concat()), 431);
    assert_eq!(status(&[b"GET / HTTP/1.1\r\nHost: ", &[b'a'; 100][..], b"\r\n\r\n"].concat()), 431);
}

#[test]
fn a_head_that_comes_in_pieces_is_the_same() {
    let bytes = b"\r\nPOST /a HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\nrest";
    let whole = read(bytes).unwrap();
    let mut request = Request::default();
    for turn in 0..2 {
        request.begin();
        for cut in 0..whole.length {
            assert_eq!(
                request.read(&bytes[..cut], &Limits::default()),
                ReadProgress::More,
                "{cut}, turn {turn}"
            );
        }
        assert_eq!(request.read(bytes, &Limits::default()), ReadProgress::Whole);
        assert_eq!((request.length, request.body), (whole.length, BodyFraming::Chunked));
    }
}

#[test]
fn an_answer_is_framed_by_what_was_asked() {
    use Method::{Connect, Get, Head};
    for (head, method, status, body, persists) in [
        ("HTTP/1.1 200 OK\r\nContent-Length: 3\r\n", Get, 200, BodyFraming::Length(3), true),
        ("HTTP/1.1 200 OK\r\nContent-Length: 3\r\n", Head, 200, BodyFraming::None, true),
        ("HTTP/1.1 200\r\nTransfer-Encoding: chunked\r\n", Get, 200, BodyFraming::Chunked, true),
        ("HTTP/1.1 200 \r\n", Get, 200, BodyFraming::UntilClose, false),
        ("HTTP/1.1 204 No Content\r\n", Get, 204, BodyFraming::None, true),
        ("HTTP/1.1 304 Not Modified\r\nContent-Length: 9\r\n", Get, 304, BodyFraming::None, true),
        ("HTTP/1.1 100 Continue\r\n", Get, 100, BodyFraming::None, true),
        (
            "HTTP/1.1 101 Go\r\nConnection: upgrade\r\nUpgrade: websocket\r\n",
            Get,
            101,
            BodyFraming::Tunnel,
            false,
        ),
        ("HTTP/1.1 200 OK\r\n", Connect, 200, BodyFraming::Tunnel, false),
        ("HTTP/1.1 407 No\r\nContent-Length: 0\r\n", Connect, 407, BodyFraming::None, true),
        ("HTTP/1.0 200 OK\r\nContent-Length: 3\r\n", Get, 200, BodyFraming::Length(3), false),
        (
            "HTTP/1.1 200 OK\r\nContent-Length: 3\r\nConnection: close\r\n",
            Get,
            200,
            BodyFraming::Length(3),
            false,
        ),
    ] {
        let response =
            answer(format!("{head}\r\n").as_bytes(), method).unwrap_or_else(|it| panic!("{head}: {it:?}"));
        assert_eq!((response.status, response.body, response.persists), (status, body, persists), "{head}");
    }
    let bytes = b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n";
    assert_eq!(answer(bytes, Get).unwrap().reason.of(bytes), b"Not Found");
}

#[test]
fn answers_that_two_might_read_in_two_ways_are_refused() {
    for head in [
        "HTTP/1.1 200 OK\n\n",
        "HTTP/1.1 20 OK\r\n\r\n",
        "HTTP/1.1 2000 OK\r\n\r\n",
        "HTTP/1.1 099 OK\r\n\r\n",
        "HTTP/1.1  200 OK\r\n\r\n",
        "HTTP/2 200 OK\r\n\r\n",
        "ICY 200 OK\r\n\r\n",
        "HTTP/1.1 200 a\0b\r\n\r\n",
        "HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n",
        "HTTP/1.1 200 OK\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip\r\n\r\n",
        "HTTP/1.0 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n",
        "HTTP/1.1 101 Go\r\n\r\n",
        "HTTP/1.1 200 OK\r\nA: b\r\n c\r\n\r\n",
    ] {
        assert!(answer(head.as_bytes(), Method::Get).is_err(), "{head:?}");
    }
}
