//! What must hold for what rules do to any request, and for what any answer of gRPC says.

#![allow(clippy::indexing_slicing, clippy::expect_used, reason = "what is wrong ends the fuzz target")]

use std::sync::Arc;

use seaway_model::{
    Owner,
    load_balancer::{
        Compression, Cors, Filter, HeaderChange, HostPattern, Match, Origin, PathMatch, PoolId, Redirect,
        Rule,
    },
};
use seaway_snapshot::{RequestParts, RouteMatch, Routes};
use seaway_wire::http::{Limits, Method, ReadProgress, Request, Response};

use super::super::{
    compression::CompressionNegotiation,
    cors as origins,
    grpc::GrpcStatusSource,
    heads::{ForwardedClient, HeaderModifier},
    request_head,
    rules::{RequestChanges, RequestView, redirected, rewritten},
};

fn lines(bytes: &[u8]) -> impl Iterator<Item = &[u8]> {
    bytes.split(|byte| *byte == b'\n')
}

fn rule(filters: Vec<Filter>) -> Rule {
    Rule { filters, ..Rule::forward_all(Owner::Config("fuzz".into()), PoolId("members".into())) }
}

/// How a call ended is told by the first `grpc-status`: before the messages, or else after them. Lines of the input are
/// fields of the answer; behind an empty one stand its trailers.
pub fn grpc(bytes: &[u8]) {
    let end = bytes.windows(2).position(|two| two == b"\n\n").unwrap_or(bytes.len());
    let (fields, trailers) = bytes.split_at(end);
    let mut head = b"HTTP/1.1 302 Found\r\n".to_vec();
    for line in lines(fields).filter(|line| !line.is_empty()) {
        head.extend_from_slice(&[line, b"\r\n"].concat());
    }
    head.extend_from_slice(b"\r\n");
    let mut response = Response::default();
    if response.read(&head, Method::Post, &Limits::default()) != ReadProgress::Whole {
        return;
    }
    let named = |text: &[u8], name: &str| {
        let mut values = lines(text).filter_map(|line| {
            let (before, value) = line.split_at(line.iter().position(|byte| *byte == b':')?);
            before.eq_ignore_ascii_case(name.as_bytes()).then(|| value[1..].trim_ascii().to_vec())
        });
        values.next()
    };
    let is_call = named(fields, "content-type").is_some_and(|it| it.starts_with(b"application/grpc"));
    let code = named(fields, "grpc-status").or_else(|| named(trailers, "grpc-status").filter(|_| is_call));
    let outcome = GrpcStatusSource::of(&head, &response);
    assert_eq!(outcome.status(302, trailers), code.map_or(302, |it| status_of(&it)));
}

/// By the number that it is: 0 OK, 1 CANCELLED, …, 16 UNAUTHENTICATED.
fn status_of(code: &[u8]) -> u16 {
    const STATUSES: [u16; 17] =
        [200, 499, 500, 400, 504, 404, 409, 403, 429, 400, 409, 400, 501, 500, 503, 500, 401];
    (0_usize..)
        .zip(STATUSES)
        .find(|(it, _)| it.to_string().as_bytes() == code)
        .map_or(500, |(_, status)| status)
}

/// An origin gets the lines of its own, of one that is allowed, or none. Lines of the input: the origin, and the method and the
/// fields that it would like to use.
pub fn cors(bytes: &[u8]) {
    let mut head = b"OPTIONS / HTTP/1.1\r\nHost: a\r\n".to_vec();
    for (name, line) in
        ["Origin", "Access-Control-Request-Method", "Access-Control-Request-Headers"].iter().zip(lines(bytes))
    {
        head.extend_from_slice(&[name.as_bytes(), b": ", line, b"\r\n"].concat());
    }
    head.extend_from_slice(b"\r\n");
    let mut request = Request::default();
    if request.read(&head, &Limits::default()) != ReadProgress::Whole {
        return;
    }
    let seen = RequestView { head: &head, request: &request };
    for (any, credentials) in [(false, false), (false, true), (true, false), (true, true)] {
        let rule = rule(vec![Filter::Cors(terms(any, credentials))]);
        let Some((terms, origin)) = origins::of(&rule, &seen) else {
            return assert!(seen.header(b"origin").is_none_or(|it| std::str::from_utf8(it).is_err()));
        };
        let (mut answer, mut preflight) = (String::new(), String::new());
        origins::for_answer(terms, &origin, &mut answer);
        origins::for_preflight(terms, &origin, &seen, &mut preflight);
        for text in [answer, preflight] {
            if !any && !is_allowed(&origin) {
                assert_eq!(text, "", "{origin:?} is a stranger");
                continue;
            }
            let all: Vec<&str> = text.split_terminator("\r\n").collect();
            assert!(text.ends_with("\r\n") && !all.iter().any(|line| line.contains(['\r', '\n'])));
            assert!(all.iter().all(|line| line.starts_with("Access-Control-") || *line == "Vary: Origin"));
            let of =
                |name: &str| -> Vec<&str> { all.iter().filter_map(|line| line.strip_prefix(name)).collect() };
            let wanted = if any && !credentials { "*" } else { &origin };
            assert_eq!(of("Access-Control-Allow-Origin: "), [wanted]);
            assert_eq!(
                of("Vary: Origin").len(),
                usize::from(!any || credentials),
                "a cache keeps it for others"
            );
            assert_eq!(of("Access-Control-Allow-Credentials: true").len(), usize::from(credentials));
        }
    }
}

fn terms(any: bool, credentials: bool) -> Cors {
    let like = |scheme: &str, host, port| Origin::Like { scheme: scheme.into(), host, port };
    let some = vec![
        like("https", Some(HostPattern::Exact("a.example".into())), None),
        like("https", Some(HostPattern::Under("shop.example".into())), Some(8443)),
        like("http", None, None),
    ];
    Cors {
        origins: if any { vec![Origin::Any] } else { some },
        credentials,
        methods: vec![if any { "*" } else { "PUT" }.into()],
        headers: vec![if any { "*" } else { "X-A" }.into()],
        expose: vec!["X-B".into()],
        max_age: std::time::Duration::from_secs(5),
    }
}

/// `https://a.example`, `https://*.shop.example:8443` and `http://*`, by their texts.
fn is_allowed(origin: &str) -> bool {
    let origin = origin.to_ascii_lowercase();
    let Some((scheme, rest)) = origin.split_once("://") else { return false };
    let name = rest.trim_end_matches(|c: char| c.is_ascii_digit());
    let (host, port) = match name.strip_suffix(':').filter(|_| name.len() < rest.len()) {
        Some(host) => (host, rest[name.len()..].trim_start_matches('0')),
        None => (rest, if scheme == "https" { "443" } else { "80" }),
    };
    match scheme {
        "https" => {
            host == "a.example" && port == "443"
                || host.ends_with(".shop.example") && host.len() > ".shop.example".len() && port == "8443"
        }
        "http" => !host.is_empty() && port == "80",
        _ => false,
    }
}

/// A redirect leads to the host that it names, or to the one that was asked; what is rewritten is one target with the
/// query that was asked; and of a request's fields those are changed that the rule names. Lines of the input: the target, the
/// host, and further fields.
pub fn rules(bytes: &[u8]) {
    let mut parts = lines(bytes);
    let (target, host) = (parts.next().unwrap_or_default(), parts.next().unwrap_or_default());
    let mut head = [b"GET ", target, b" HTTP/1.1\r\nHost: ", host, b"\r\n"].concat();
    for line in parts.filter(|line| !line.is_empty()) {
        head.extend_from_slice(&[line, b"\r\n"].concat());
    }
    head.extend_from_slice(b"\r\n");
    let mut request = Request::default();
    if request.read(&head, &Limits::default()) != ReadProgress::Whole {
        return;
    }
    let seen = RequestView { head: &head, request: &request };
    let prefix = |text: &str| Match { path: Some(PathMatch::Prefix(text.into())), ..Match::default() };
    let matching = Rule { matches: vec![prefix("/a"), prefix("/")], ..rule(Vec::new()) };
    let found = Routes::compile(&[Arc::new(matching)]).find(&seen).expect("everything is below /");
    leads(&seen, found);
    for by in ["/", "/b", "/b/"] {
        rewrites(&seen, found, by);
    }
    changes(&seen);
    compresses(&seen);
}

fn leads(seen: &RequestView<'_>, found: RouteMatch) {
    let told = ForwardedClient::new(([192, 0, 2, 1], 9).into(), 80, false);
    let path = |text: &str| Some(PathMatch::Prefix(text.into()));
    let redirects = [
        Redirect::default(),
        Redirect { scheme: Some("https".into()), host: Some("new.example".into()), ..Redirect::default() },
        Redirect { port: Some(8443), path: path("/n"), ..Redirect::default() },
        Redirect { host: Some("new.example".into()), path: path("/"), ..Redirect::default() },
        Redirect { path: Some(PathMatch::Exact("/x".into())), ..Redirect::default() },
    ];
    for redirect in redirects {
        let location = redirected(&redirect, seen, found, &told);
        assert!(location.bytes().all(|byte| byte > b' ' && byte != 0x7f), "{location:?} is no one target");
        let scheme = redirect.scheme.as_deref().unwrap_or("http");
        let rest = location.strip_prefix(&format!("{scheme}://")).expect("it has its scheme");
        let (authority, after) = rest.split_at(rest.find('/').expect("a path follows"));
        match &redirect.host {
            Some(host) => {
                let with_port = format!("{host}:{}", port_of(seen).parse::<u16>().unwrap_or(80));
                assert!(*authority == **host || *authority == with_port, "{authority} instead of {host}");
            }
            None => {
                let asked = String::from_utf8_lossy(seen.host()).into_owned();
                let name = asked.strip_suffix(&format!(":{}", port_of(seen))).unwrap_or(&asked);
                assert!(authority.starts_with(name.trim_end_matches(':')), "{authority} instead of {asked}");
            }
        }
        let query = String::from_utf8_lossy(seen.query());
        let (_, kept) = after.split_once('?').unwrap_or_default();
        assert_eq!(kept, query, "the query goes along");
    }
}

/// As it was written, with zeros.
fn port_of(seen: &RequestView<'_>) -> String {
    let host = String::from_utf8_lossy(seen.host()).into_owned();
    host.rsplit_once(':').map(|(_, port)| port.to_owned()).unwrap_or_default()
}

fn rewrites(seen: &RequestView<'_>, found: RouteMatch, by: &str) {
    let path = String::from_utf8_lossy(seen.path()).into_owned();
    let joined = format!("{}{}", by.trim_end_matches('/'), path.get(found.prefix..).unwrap_or_default());
    for (filter, expected) in [
        (Filter::RewritePrefix(by.into()), if joined.is_empty() { "/".to_owned() } else { joined }),
        (Filter::RewritePath(by.into()), by.to_owned()),
        (
            Filter::RewriteHost("other.example".into()),
            if path.is_empty() { "/".to_owned() } else { path.clone() },
        ),
    ] {
        let rule = rule(vec![filter]);
        let mut out = Vec::new();
        request_head::target(&mut out, seen.head, seen.request, rewritten(&rule, found, seen));
        assert!(
            out.iter().all(|byte| *byte > b' ' && *byte != 0x7f),
            "{} is no one target",
            out.escape_ascii()
        );
        let (path, query) = out.split_at(out.iter().position(|byte| *byte == b'?').unwrap_or(out.len()));
        assert_eq!(query.get(1..).unwrap_or_default(), seen.query());
        let same = String::from_utf8_lossy(path) == expected || by == "/b/" && path.starts_with(b"/b/");
        assert!(same, "{} instead of {expected}, by {by}", path.escape_ascii());
    }
}

/// Only for who names gzip, or all codings, and has shown nothing of who it is.
fn compresses(seen: &RequestView<'_>) {
    let (by, rule) = (Compression::default(), rule(Vec::new()));
    let is_taken = CompressionNegotiation::of(&by, &rule, false, seen.head, seen.request).is_taken;
    let fields =
        || seen.request.fields.iter().map(|it| (it.name.of(seen.head).to_ascii_lowercase(), it.value));
    let names =
        |text: &[u8]| text.contains(&b'*') || text.to_ascii_lowercase().windows(4).any(|it| it == b"gzip");
    let may = fields().any(|(name, value)| name == b"accept-encoding" && names(value.of(seen.head)));
    let shows = fields().any(|(name, _)| matches!(&name[..], b"cookie" | b"authorization" | b"range"));
    assert!(!is_taken || may && !shows);
}

fn changes(seen: &RequestView<'_>) {
    let pair = |name: &str, value: &str| (name.into(), value.into());
    let change = HeaderChange {
        set: vec![pair("X-Set", "1")],
        add: vec![pair("X-Add", "2")],
        remove: vec!["x-gone".into()],
    };
    let rule = rule(vec![Filter::RequestHeaders(change)]);
    let asking = RequestChanges { rule: &rule, sticky: None, granted: &[], is_guarded: true };
    for field in &seen.request.fields {
        let name = field.name.of(seen.head).to_ascii_lowercase();
        let named = matches!(&name[..], b"x-set" | b"x-gone");
        assert_eq!(asking.replaces(seen.head, field), named, "{}", name.escape_ascii());
    }
    let mut out = Vec::new();
    asking.put_new(&mut out);
    assert_eq!(out, b"X-Set: 1\r\nX-Add: 2\r\n");
}
