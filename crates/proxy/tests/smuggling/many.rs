//! Clients of HTTP/2: what has no meaning in HTTP/1.1, or another one, is not translated.

use crate::{
    Verdict::{self, *},
    Way,
    frames::{self, *},
    ways,
};

type Fields = &'static [(&'static [u8], &'static [u8])];

/// What is sent, told by how it differs from a plain request for `http://a/x`.
enum Sent {
    /// GET with these fields.
    With(Fields),
    /// GET with this one in the place of what is called the same.
    Instead(&'static [u8], &'static [u8]),
    Without(&'static [u8]),
    /// Exactly this.
    Only(Fields),
    /// POST with these fields, and frames of data.
    Body(Fields, &'static [&'static [u8]]),
    /// The same, with trailers.
    Trailed(Fields, &'static [&'static [u8]], Fields),
}

use Sent::*;

const PLAIN: Fields =
    &[(b":method", b"GET"), (b":scheme", b"http"), (b":authority", b"a"), (b":path", b"/x")];
const GET: &str = "GET a/x";

/// Whatever way it is refused in is fine: with a status, by the stream's end or the connection's.
const REFUSED: Verdict = Refused(0);
const BROKEN: Verdict = Broken(0);

#[rustfmt::skip]
const CASES: &[(Sent, Verdict)] = &[
    (With(&[]), Passed(&[GET])),
    (With(&[(b"te", b"trailers"), (b"cookie", b"a=b"), (b"cookie", b"c=d")]), Passed(&[GET])),
    (With(&[(b"x", b"\xe2\x82\xac \" \\ \t:")]), Passed(&[GET])),
    (With(&[(b"x", b"")]), Passed(&[GET])),
    (With(&[(b"host", b"a")]), Passed(&[GET])),
    (Instead(b":scheme", b"https"), Passed(&[GET])),
    (Instead(b":path", b"/y?z=%0d%0a"), Passed(&["GET a/y?z=%0d%0a"])),
    (Instead(b":path", b"//b/c"), Passed(&["GET a//b/c"])),
    (Instead(b":authority", b"b:81"), Passed(&["GET b:81/x"])),
    // Lines within a line.
    (With(&[(b"x", b"y\r\nz: w")]), REFUSED),
    (With(&[(b"x", b"y\nz: w")]), REFUSED),
    (With(&[(b"x", b"y\rz: w")]), REFUSED),
    (With(&[(b"x", b"y\0z")]), REFUSED),
    (With(&[(b"x", b"y\r\n\r\nGET /smuggled HTTP/1.1\r\nHost: a\r\n\r\n")]), REFUSED),
    (With(&[(b"x\r\ny", b"z")]), REFUSED),
    (With(&[(b"x: y\r\nz", b"w")]), REFUSED),
    (With(&[(b"x y", b"z")]), REFUSED),
    (With(&[(b"x:", b"z")]), REFUSED),
    (With(&[(b"X", b"y")]), REFUSED),
    (With(&[(b"", b"y")]), REFUSED),
    (With(&[(b"x\0", b"y")]), REFUSED),
    (With(&[(b"x\xff", b"y")]), REFUSED),
    (With(&[(b"x", b" y")]), REFUSED),
    (With(&[(b"x", b"y\t")]), REFUSED),
    (With(&[(b"x", b"\x7f")]), REFUSED),
    // For one hop.
    (With(&[(b"connection", b"close")]), REFUSED),
    (With(&[(b"connection", b"x")]), REFUSED),
    (With(&[(b"transfer-encoding", b"chunked")]), REFUSED),
    (With(&[(b"transfer-encoding", b"identity")]), REFUSED),
    (With(&[(b"transfer-encoding ", b"chunked")]), REFUSED),
    (With(&[(b"Transfer-Encoding", b"chunked")]), REFUSED),
    (With(&[(b"upgrade", b"h2c")]), REFUSED),
    (With(&[(b"keep-alive", b"1")]), REFUSED),
    (With(&[(b"proxy-connection", b"close")]), REFUSED),
    (With(&[(b"te", b"gzip")]), REFUSED),
    (With(&[(b"te", b"trailers, gzip")]), REFUSED),
    (With(&[(b"transfer_encoding", b"chunked"), (b"content_length", b"5")]), Passed(&[GET])),
    (With(&[(b"http2-settings", b"AAMAAABk")]), Passed(&[GET])),
    (With(&[(b"expect", b"x")]), REFUSED),
    // Fields that are none.
    (With(&[(b":path", b"/y")]), REFUSED),
    (With(&[(b":method", b"POST")]), REFUSED),
    (With(&[(b":authority", b"b")]), REFUSED),
    (With(&[(b":scheme", b"https")]), REFUSED),
    (With(&[(b":status", b"200")]), REFUSED),
    (With(&[(b":x", b"y")]), REFUSED),
    (With(&[(b":protocol", b"websocket")]), REFUSED),
    (Only(&[(b":method", b"GET"), (b":scheme", b"http"), (b"x", b"y"), (b":path", b"/x"), (b":authority", b"a")]), REFUSED),
    (Only(&[(b":method", b"GET"), (b":method", b"GET"), (b":scheme", b"http"), (b":path", b"/x"), (b":authority", b"a")]), REFUSED),
    (Only(&[(b":method", b"GET"), (b":scheme", b"http"), (b":path", b"/x"), (b":path", b"/x"), (b":authority", b"a")]), REFUSED),
    (Without(b":method"), REFUSED),
    (Without(b":scheme"), REFUSED),
    (Without(b":path"), REFUSED),
    (Without(b":authority"), REFUSED),
    // Methods.
    (Instead(b":method", b""), REFUSED),
    (Instead(b":method", b"G T"), REFUSED),
    (Instead(b":method", b"GET / HTTP/1.1\r\nHost: b\r\n\r\nGET"), REFUSED),
    (Instead(b":method", b"GET\r\n"), REFUSED),
    (Instead(b":method", b"GET\0"), REFUSED),
    // Targets.
    (Instead(b":path", b""), REFUSED),
    (Instead(b":path", b"x"), REFUSED),
    (Instead(b":path", b"*"), REFUSED),
    (Instead(b":path", b"?x"), REFUSED),
    (Instead(b":path", b"http://b/x"), REFUSED),
    (Instead(b":path", b"b:80"), REFUSED),
    (Instead(b":path", b"/x y"), REFUSED),
    (Instead(b":path", b"/x HTTP/1.1\r\nHost: b\r\nx: "), REFUSED),
    (Instead(b":path", b"/x\r\nb: c"), REFUSED),
    (Instead(b":path", b"/x\tHTTP/1.1"), REFUSED),
    (Instead(b":path", b"/x\0"), REFUSED),
    (Instead(b":path", b"/x\\y"), REFUSED),
    (Instead(b":path", b"/\xc3\xa9"), REFUSED),
    (Instead(b":path", b"/../x"), REFUSED),
    (Instead(b":path", b"/%2e%2e/x"), REFUSED),
    (Instead(b":path", b"/y/..;/x"), REFUSED),
    // Hosts.
    (With(&[(b"host", b"b")]), REFUSED),
    (With(&[(b"host", b"a"), (b"host", b"b")]), REFUSED),
    (With(&[(b"host", b"")]), REFUSED),
    (Instead(b":authority", b""), REFUSED),
    (Instead(b":authority", b"b c"), REFUSED),
    (Instead(b":authority", b"b/c"), REFUSED),
    (Instead(b":authority", b"b@c"), REFUSED),
    (Instead(b":authority", b"b\r\nx: y"), REFUSED),
    (Instead(b":authority", b"b:c"), REFUSED),
    (Instead(b":authority", b"b,c"), REFUSED),
    (Instead(b":authority", b"b?c"), REFUSED),
    (Only(&[(b":method", b"GET"), (b":scheme", b"http"), (b":path", b"/x"), (b"host", b"b")]), Passed(&["GET b/x"])),
    (Only(&[(b":method", b"GET"), (b":scheme", b"http"), (b":path", b"/x"), (b"host", b"b"), (b"host", b"c")]), REFUSED),
    (Only(&[(b":method", b"GET"), (b":scheme", b"http"), (b":path", b"/x"), (b"host", b"b\r\nx: y")]), REFUSED),
    // Schemes.
    (Instead(b":scheme", b""), REFUSED),
    (Instead(b":scheme", b"ftp"), REFUSED),
    (Instead(b":scheme", b"http://b/?"), REFUSED),
    (Instead(b":scheme", b"http\r\nx: y"), REFUSED),
    (Instead(b":scheme", b"http "), REFUSED),
    // Lengths.
    (Body(&[(b"content-length", b"5")], &[b"hello"]), Passed(&["POST a/x hello"])),
    (Body(&[(b"content-length", b"5")], &[b"he", b"", b"llo", b""]), Passed(&["POST a/x hello"])),
    (Body(&[(b"content-length", b"0")], &[b""]), Passed(&["POST a/x"])),
    (Body(&[], &[b"hello"]), Passed(&["POST a/x hello"])),
    (Body(&[], &[b"0\r\n\r\n", b"GET /smuggled HTTP/1.1\r\nHost: a\r\n\r\n"]), Passed(&["POST a/x 0\r\n\r\nGET /smuggled HTTP/1.1\r\nHost: a\r\n\r\n"])),
    (Body(&[(b"content-length", b"5")], &[b"hell"]), BROKEN),
    (Body(&[(b"content-length", b"5")], &[b""]), BROKEN),
    (Body(&[(b"content-length", b"5")], &[b"helloGET /smuggled HTTP/1.1\r\nHost: a\r\n\r\n"]), BROKEN),
    (Body(&[(b"content-length", b"5"), (b"content-length", b"5")], &[b"hello"]), REFUSED),
    (Body(&[(b"content-length", b"5"), (b"content-length", b"4")], &[b"hello"]), REFUSED),
    (Body(&[(b"content-length", b"5, 5")], &[b"hello"]), REFUSED),
    (Body(&[(b"content-length", b"+5")], &[b"hello"]), REFUSED),
    (Body(&[(b"content-length", b"-5")], &[b"hello"]), REFUSED),
    (Body(&[(b"content-length", b"0x5")], &[b"hello"]), REFUSED),
    (Body(&[(b"content-length", b" 5")], &[b"hello"]), REFUSED),
    (Body(&[(b"content-length", b"5 ")], &[b"hello"]), REFUSED),
    (Body(&[(b"content-length", b"")], &[b"hello"]), REFUSED),
    (Body(&[(b"content-length", b"five")], &[b"hello"]), REFUSED),
    (Body(&[(b"content-length", b"18446744073709551621")], &[b"hello"]), REFUSED),
    (With(&[(b"content-length", b"5")]), REFUSED),
    (Body(&[(b"transfer-encoding", b"chunked")], &[b"0\r\n\r\nGET /smuggled HTTP/1.1\r\nHost: a\r\n\r\n"]), REFUSED),
    (Body(&[(b"content-length", b"5"), (b"transfer-encoding", b"chunked")], &[b"0\r\n\r\n"]), REFUSED),
    // Trailers.
    (Trailed(&[], &[b"hello"], &[(b"t", b"u")]), Passed(&["POST a/x hello +t: u"])),
    (Trailed(&[], &[], &[(b"t", b"u")]), Passed(&["POST a/x +t: u"])),
    (Trailed(&[], &[b"hello"], &[(b"content-length", b"9"), (b"host", b"b"), (b"x-forwarded-for", b"b"), (b"content_length", b"9"), (b"t", b"u")]), Passed(&["POST a/x hello +t: u"])),
    (Trailed(&[], &[b"hello"], &[(b":path", b"/y")]), BROKEN),
    (Trailed(&[], &[b"hello"], &[(b"transfer-encoding", b"chunked")]), BROKEN),
    (Trailed(&[], &[b"hello"], &[(b"connection", b"close")]), BROKEN),
    (Trailed(&[], &[b"hello"], &[(b"t", b"u\r\nv: w")]), BROKEN),
    (Trailed(&[], &[b"hello"], &[(b"t\r\n", b"u")]), BROKEN),
    (Trailed(&[], &[b"hello"], &[(b"T", b"u")]), BROKEN),
    (Trailed(&[(b"content-length", b"5")], &[b"hell"], &[(b"t", b"u")]), BROKEN),
];

impl Sent {
    fn bytes(&self) -> Vec<u8> {
        let post = |more: Fields| -> Vec<(&[u8], &[u8])> {
            let method: (&[u8], &[u8]) = (b":method", b"POST");
            [method].into_iter().chain(PLAIN[1..].iter().copied()).chain(more.iter().copied()).collect()
        };
        let (fields, data, trailers): (Vec<_>, &[&[u8]], Fields) = match self {
            With(more) => (PLAIN.iter().chain(*more).copied().collect(), &[], &[]),
            Instead(name, value) => {
                let other =
                    |it: &(&'static [u8], &'static [u8])| (it.0, if it.0 == *name { *value } else { it.1 });
                (PLAIN.iter().map(other).collect(), &[], &[])
            }
            Without(name) => (PLAIN.iter().filter(|it| it.0 != *name).copied().collect(), &[], &[]),
            Only(fields) => (fields.to_vec(), &[], &[]),
            Body(more, data) => (post(more), data, &[]),
            Trailed(more, data, trailers) => (post(more), data, trailers),
        };
        let last = data.is_empty() && trailers.is_empty();
        let mut bytes = frame(HEADERS, END_HEADERS | u8::from(last), 1, &block(&fields));
        for (at, piece) in data.iter().enumerate() {
            let last = at + 1 == data.len() && trailers.is_empty();
            bytes.extend(frame(DATA, u8::from(last), 1, piece));
        }
        if !trailers.is_empty() {
            bytes.extend(frame(HEADERS, END_HEADERS | END_STREAM, 1, &block(trailers)));
        }
        bytes
    }

    fn name(&self) -> String {
        String::from_utf8_lossy(&self.bytes()).replace('\0', "·")
    }
}

#[test]
fn streams() {
    for way in ways(b"h2") {
        let (name, mut expected, mut may_be_cut) = (way.name.clone(), Vec::new(), 0);
        let mut reached = Vec::new();
        for (sent, verdict) in CASES {
            let case = format!("{name}: {}", sent.name());
            match verdict {
                Passed(heard) => {
                    assert_eq!(ask(&way, sent, true), [true, true], "{case}");
                    expected.extend(heard.iter().map(|it| (*it).to_owned()));
                    expected.push("GET a/next".to_owned());
                }
                _ => {
                    if ask(&way, sent, false) == [true] {
                        reached.push(case);
                    }
                    may_be_cut += usize::from(matches!(verdict, Broken(_)));
                }
            }
        }
        assert!(reached.is_empty(), "{reached:#?}");
        let (heard, cut) = way.heard();
        for (heard, expected) in heard.iter().zip(&expected) {
            assert_eq!(heard, expected, "{name}");
        }
        assert_eq!(heard.len(), expected.len(), "{name}: {:?}", &heard[expected.len().min(heard.len())..]);
        assert!(cut <= may_be_cut, "{name}: {cut} were cut short");
    }
}

#[test]
fn a_body_longer_than_its_length_goes_no_further_than_that() {
    let told: [(&[u8], &[u8], &str); 2] = [(b"5", b"hello", "POST a/x hello"), (b"0", b"", "POST a/x")];
    for ((length, body, heard), way) in
        told.into_iter().flat_map(|it| ways(b"h2").into_iter().map(move |way| (it, way)))
    {
        let name = way.name.clone();
        let mut line = way.dial();
        let fields =
            [(&b":method"[..], &b"POST"[..]), PLAIN[1], PLAIN[2], PLAIN[3], (b"content-length", length)];
        line.say(&hello(), true);
        line.say(&frame(HEADERS, END_HEADERS, 1, &block(&fields)), true);
        line.say(&frame(DATA, 0, 1, body), true);
        // All that was told of may have come to the member by now.
        line.say(&frame(DATA, END_STREAM, 1, b"GET /smuggled HTTP/1.1\r\nHost: a\r\n\r\n"), true);
        while frames::next(&mut line).is_some_and(|it| it.kind != GOAWAY && it.kind != RST_STREAM) {}
        drop(line);
        let (all, _) = way.heard();
        assert!(all.is_empty() || all == [heard], "{name}: {all:?}");
    }
}

/// Whether it was answered with 200, and then whether the next one was.
fn ask(way: &Way, sent: &Sent, and_next: bool) -> Vec<bool> {
    let mut line = way.dial();
    line.say(&[hello(), sent.bytes()].concat(), true);
    let mut answers = vec![is_served(&mut line, 1)];
    if and_next {
        let next = PLAIN.iter().map(|it| if it.0 == b":path" { (it.0, &b"/next"[..]) } else { *it });
        line.say(&frame(HEADERS, END_HEADERS | END_STREAM, 3, &block(&next.collect::<Vec<_>>())), true);
        answers.push(is_served(&mut line, 3));
    }
    answers
}

fn is_served(line: &mut crate::Line, stream: u32) -> bool {
    loop {
        match frames::next(line) {
            Some(it) if it.kind == HEADERS && it.stream == stream => return it.is_ok(),
            Some(it) if it.kind == RST_STREAM && it.stream == stream => return false,
            Some(it) if it.kind == GOAWAY => return false,
            Some(_) => {}
            None => return false,
        }
    }
}
