//! What members are told of the client and of the way that its request came.

use seaway_model::{
    Listener,
    load_balancer::{Filter, HeaderChange, TracePolicy},
};

use crate::{peer, scene::*, stage::*};

const TRACED: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

/// What a member hears of a request with these fields.
fn heard(fields: &str, tune: impl Fn(&mut Listener)) -> Message {
    let member = Member::saying("x");
    let (_stage, at) = front_with(&[member.at()], tune);
    assert_eq!(Client::new(at).ask(format!("GET / HTTP/1.1\r\nHost: a\r\n{fields}\r\n")).status(), 200);
    member.heard().remove(0)
}

fn trusting(listener: &mut Listener) {
    listener.http.trusted = vec!["127.0.0.0/8".parse().unwrap()];
}

fn all<'m>(message: &'m Message, name: &str) -> Vec<&'m str> {
    let fields = message.head.lines().filter_map(|line| line.split_once(": "));
    fields.filter(|(it, _)| it.eq_ignore_ascii_case(name)).map(|(_, value)| value).collect()
}

#[test]
fn proxies_before_us_are_believed_only_if_they_are_trusted() {
    let fields = "X-Forwarded-For: 9.9.9.9\r\nX-Forwarded-For: 8.8.8.8, 7.7.7.7\r\nX-Forwarded-Proto: https\r\n\
                  X-Forwarded-Host: b\r\nX-Forwarded-Port: 444\r\nForwarded: for=9.9.9.9\r\nX-Request-Id: theirs\r\n";
    let believed = heard(fields, trusting);
    for (name, value) in [
        ("x-forwarded-for", "9.9.9.9, 8.8.8.8, 7.7.7.7, 127.0.0.1"),
        ("x-forwarded-proto", "https"),
        ("x-forwarded-host", "b"),
        ("x-forwarded-port", "444"),
        ("forwarded", "for=9.9.9.9"),
        ("x-request-id", "theirs"),
    ] {
        assert_eq!(all(&believed, name), [value], "{name}");
    }
    let stranger = heard(fields, |listener| listener.http.trusted = vec!["10.0.0.0/8".parse().unwrap()]);
    for (name, value) in
        [("x-forwarded-for", "127.0.0.1"), ("x-forwarded-proto", "http"), ("x-forwarded-host", "a")]
    {
        assert_eq!(all(&stranger, name), [value], "{name}");
    }
    assert_eq!(all(&stranger, "forwarded"), [""; 0]);
    assert_ne!(all(&stranger, "x-forwarded-port"), ["444"]);
    assert_ne!(all(&stranger, "x-request-id"), ["theirs"]);
}

#[test]
fn what_a_gateway_would_take_for_ours_is_not_passed_on() {
    let fields =
        "X_Forwarded_For: 9.9.9.9\r\nx-forwarded_proto: https\r\nClient_Cert: :AA==:\r\nX_Mine: kept\r\n";
    let heard = heard(fields, |_| {});
    for (name, expected) in [
        ("x_forwarded_for", None),
        ("x-forwarded_proto", None),
        ("client_cert", None),
        ("x_mine", Some("kept")),
    ] {
        assert_eq!(heard.field(name), expected, "{name}");
    }
}

#[test]
fn every_request_has_a_name_of_its_own() {
    let member = Member::saying("x");
    let (_stage, at) = front(&[member.at()]);
    let mut client = Client::new(at);
    for _ in 0..3 {
        client.get("/");
    }
    peer::Peer::new(at).get("/");
    let heard = member.heard();
    let mut names: Vec<&str> = heard.iter().map(|it| it.field("x-request-id").unwrap()).collect();
    assert!(names.iter().all(|it| it.len() == 36), "{names:?}");
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), 4);
    let off = self::heard("X-Request-Id: theirs\r\n", |listener| listener.http.request_id = false);
    assert_eq!(all(&off, "x-request-id"), ["theirs"], "off, it is a field like any other");
    let long = self::heard(&format!("X-Request-Id: {}\r\n", "x".repeat(129)), trusting);
    assert_eq!(all(&long, "x-request-id")[0].len(), 36, "too long to be a name");
}

#[test]
fn a_trace_goes_on_and_what_is_none_does_not() {
    let bad = "00-00000000000000000000000000000000-b7ad6b7169203331-01";
    for (fields, trace, parents, states) in [
        (format!("traceparent: {TRACED}\r\ntracestate: a=b\r\n"), TracePolicy::Keep, vec![TRACED], 1),
        (format!("traceparent: {TRACED}\r\ntracestate: a=b\r\n"), TracePolicy::Make, vec![TRACED], 1),
        (String::new(), TracePolicy::Keep, vec![], 0),
        (String::new(), TracePolicy::Make, vec!["new"], 0),
        (format!("traceparent: {bad}\r\ntracestate: a=b\r\n"), TracePolicy::Keep, vec![], 0),
        (format!("traceparent: {bad}\r\ntracestate: a=b\r\n"), TracePolicy::Make, vec!["new"], 0),
        (format!("traceparent: {TRACED}\r\ntraceparent: {TRACED}\r\n"), TracePolicy::Keep, vec![], 0),
    ] {
        let heard = heard(&fields, |listener| listener.http.trace = trace);
        let told = all(&heard, "traceparent");
        if parents == ["new"] {
            assert!(told[0].len() == 55 && told[0].ends_with("-01"), "{fields} {trace:?}: {told:?}");
            assert!(told.len() == 1 && told[0] != bad);
        } else {
            assert_eq!(told, parents, "{fields} {trace:?}");
        }
        assert_eq!(all(&heard, "tracestate").len(), states, "{fields} {trace:?}");
    }
}

#[test]
fn forwarded_and_via_are_said_where_they_are_wanted() {
    let quiet = heard("Via: 1.1 before\r\n", |_| {});
    assert_eq!((quiet.field("forwarded"), all(&quiet, "via")), (None, vec!["1.1 before"]));
    let told = |listener: &mut Listener| {
        listener.http.forwarded = true;
        listener.http.via = Some("edge".into());
    };
    let stranger = heard("Forwarded: for=9.9.9.9\r\n", told);
    assert_eq!(all(&stranger, "forwarded"), ["for=127.0.0.1;host=\"a\";proto=http"]);
    let believed =
        heard("Forwarded: for=9.9.9.9\r\nForwarded: for=8.8.8.8\r\nVia: 2 before\r\n", |listener| {
            told(listener);
            trusting(listener);
        });
    assert_eq!(
        all(&believed, "forwarded"),
        ["for=9.9.9.9, for=8.8.8.8, for=127.0.0.1;host=\"a\";proto=http"]
    );
    assert_eq!(all(&believed, "via"), ["2 before", "1.1 edge"]);
    let member = Member::new(|_, _| {
        Some("HTTP/1.1 200 OK\r\nVia: 1.0 inner\r\nContent-Length: 1\r\n\r\nx".to_owned())
    });
    let (_stage, at) = front_with(&[member.at()], told);
    assert_eq!(all(&Client::new(at).get("/"), "via"), ["1.0 inner", "1.1 edge"]);
    peer::Peer::new(at).get("/");
    assert_eq!(member.heard()[1].field("via"), Some("2 edge"));
}

#[test]
fn a_client_of_ipv6_is_quoted() {
    let member = Member::saying("x");
    let stage = Stage::new();
    stage.put(pool(&[member.at()]));
    let (at, _) = stage.open("::1".parse().unwrap(), |listener| {
        listener.protocol = seaway_model::load_balancer::Protocol::Http;
        listener.http.forwarded = true;
    });
    Client::new(at).get("/");
    let heard = &member.heard()[0];
    assert_eq!(heard.field("forwarded"), Some("for=\"[::1]\";host=\"a\";proto=http"));
    assert_eq!(heard.field("x-forwarded-for"), Some("::1"));
}

#[test]
fn what_a_rule_says_is_said_instead_of_ours() {
    let pairs =
        |all: &[(&str, &str)]| all.iter().map(|(name, value)| ((*name).into(), (*value).into())).collect();
    let heard = heard("X-Forwarded-Proto: http\r\n", |listener| {
        let mut rule = everything();
        rule.filters = vec![Filter::RequestHeaders(HeaderChange {
            set: pairs(&[("X-Forwarded-Proto", "https"), ("X-Request-Id", "fixed")]),
            add: Vec::new(),
            remove: vec!["X-Forwarded-For".into()],
        })];
        listener.rules = vec![rule.into()];
    });
    assert_eq!(all(&heard, "x-forwarded-proto"), ["https"]);
    assert_eq!(all(&heard, "x-request-id"), ["fixed"]);
    assert_eq!(all(&heard, "x-forwarded-for"), [""; 0]);
}
