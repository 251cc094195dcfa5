//! Clients of HTTP/1.1.

use crate::{
    Verdict,
    Verdict::*,
    Way,
    lines::{BODIES, CONNECTS, FIELDS, LINES, METHODS},
    ways,
};

/// Nobody must ever hear of this.
const SMUGGLED: &str = "GET /smuggled HTTP/1.1\r\nHost: a\r\n\r\n";
/// Comes next on the same connection, and ends it.
const NEXT: &str = "GET /next HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n";
const NEXT_HEARD: &str = "GET a/next";

#[test]
fn request_lines() {
    let cases = LINES.iter().map(|(line, verdict)| {
        let mut bytes = line.to_vec();
        bytes.extend_from_slice(b"\r\nHost: a\r\n\r\n");
        (bytes, *verdict)
    });
    judge(ways(b"http/1.1"), &cases.collect::<Vec<_>>());
}

#[test]
fn fields() {
    let cases = FIELDS.iter().map(|(fields, verdict)| {
        let mut bytes = b"POST /x HTTP/1.1\r\nHost: a\r\n".to_vec();
        bytes.extend_from_slice(fields);
        (bytes, *verdict)
    });
    judge(ways(b"http/1.1"), &cases.collect::<Vec<_>>());
}

#[test]
fn bodies() {
    let cases = BODIES.iter().map(|(body, verdict)| {
        let mut bytes = b"POST /x HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n".to_vec();
        bytes.extend_from_slice(body);
        (bytes, *verdict)
    });
    judge(ways(b"http/1.1"), &cases.collect::<Vec<_>>());
}

#[test]
fn bytes_behind_a_connect_wait_until_it_is_a_tunnel() {
    let cases = CONNECTS.iter().map(|(bytes, verdict)| (bytes.to_vec(), *verdict));
    judge(ways(b"http/1.1"), &cases.collect::<Vec<_>>());
}

#[test]
fn bodies_that_few_expect() {
    let cases = METHODS.iter().map(|(bytes, verdict)| (bytes.to_vec(), *verdict));
    judge(ways(b"http/1.1"), &cases.collect::<Vec<_>>());
}

/// Every case in every way, at once and byte by byte.
fn judge(ways: Vec<Way>, cases: &[(Vec<u8>, Verdict)]) {
    for way in ways {
        let (name, mut expected, mut may_be_cut) = (way.name.clone(), Vec::new(), 0);
        for at_once in [true, false] {
            for (bytes, verdict) in cases {
                let statuses = ask(&way, bytes, *verdict, at_once);
                let case = format!("{name}, at once: {at_once}: {}", String::from_utf8_lossy(bytes));
                match verdict {
                    Refused(status) | Broken(status) => assert_eq!(statuses, [*status], "{case}"),
                    Cut => assert!(!statuses.contains(&200), "{statuses:?}: {case}"),
                    Passed(heard) | Last(heard) => {
                        let goes_on = matches!(verdict, Passed(_));
                        assert_eq!(
                            statuses.len(),
                            heard.len() + usize::from(goes_on),
                            "{statuses:?}: {case}"
                        );
                        expected.extend(heard.iter().map(|it| (*it).to_owned()));
                        expected.extend(goes_on.then(|| NEXT_HEARD.to_owned()));
                    }
                }
                may_be_cut += usize::from(matches!(verdict, Broken(_) | Cut));
            }
        }
        let (heard, cut) = way.heard();
        for (at, (heard, expected)) in heard.iter().zip(&expected).enumerate() {
            assert_eq!(heard, expected, "{name}: {at}");
        }
        assert_eq!(heard.len(), expected.len(), "{name}: {:?}", &heard[expected.len().min(heard.len())..]);
        assert!(cut <= may_be_cut, "{name}: {cut} were cut short");
    }
}

/// The statuses of all answers.
fn ask(way: &Way, bytes: &[u8], verdict: Verdict, at_once: bool) -> Vec<u16> {
    let mut line = way.dial();
    let next = match verdict {
        Passed(_) => NEXT,
        Cut => "",
        Refused(_) | Broken(_) | Last(_) => SMUGGLED,
    };
    line.say(&[bytes, next.as_bytes()].concat(), at_once);
    if let Cut = verdict {
        line.finish();
    }
    let rest =
        String::from_utf8_lossy(&line.rest(&format!("{}: {}", way.name, String::from_utf8_lossy(bytes))))
            .into_owned();
    let answers = rest.split("HTTP/1.1 ").skip(1);
    answers.map(|answer| answer.get(..3).and_then(|it| it.parse().ok()).unwrap_or(0)).collect()
}
