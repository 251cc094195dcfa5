//! Frontends as lines.

use std::{collections::BTreeMap, fmt::Write as _};

use super::{ConfigWriter, milliseconds, quoted, ranges, tls_terms};
use crate::{
    document::{
        Alternative, Condition, Document, FileKind, Frontend, HttpFrontendOptions, Respelled, RouteChoice,
        Routing,
    },
    words::Label,
};

pub(super) fn frontend(name: &Label, frontend: &Frontend, document: &Document, page: &mut ConfigWriter) {
    page.section(frontend.about.as_str(), format_args!("frontend {name}"));
    let folder = &document.global.folder;
    let is_http = matches!(frontend.routing, Routing::Http(_));
    page.line(if is_http { "mode http" } else { "mode tcp" });
    for at in &frontend.binds {
        let mut line = format!("bind {at}");
        if at.is_ipv6() {
            line.push_str(" v6only");
        }
        // HAProxy would not start without the address.
        if frontend.floating.contains(&at.ip()) {
            line.push_str(" transparent");
        }
        if let Some(tls) = &frontend.tls {
            let list = FileKind::CrtLists.path(folder, &tls.crt_list);
            let _ = write!(line, " ssl crt-list {list} {}", tls_terms(&tls.terms, folder));
            if tls.strict {
                line.push_str(" strict-sni");
            }
            if tls.http2 {
                line.push_str(" alpn h2,http/1.1");
            }
        }
        page.line(line);
    }
    if let Some(connections) = frontend.connections {
        page.line(format_args!("maxconn {connections}"));
    }
    if let Some(rate) = frontend.new_per_second {
        page.line(format_args!("rate-limit sessions {rate}"));
    }
    let timeouts = &frontend.timeouts;
    page.line(format_args!("timeout client {}", milliseconds(timeouts.idle)));
    page.line(format_args!("timeout client-fin {}", milliseconds(timeouts.half_closed)));
    if is_http {
        page.line(format_args!("timeout http-request {}", milliseconds(timeouts.request)));
        page.line(format_args!("timeout http-keep-alive {}", milliseconds(timeouts.keep_alive)));
    }
    if !frontend.proxy_from.is_empty() {
        ranges("proxies", &frontend.proxy_from, page);
        page.line("tcp-request connection expect-proxy layer4 if proxies");
    }
    // After a header of the PROXY protocol the client's own address is known, so it is asked then.
    let when = if frontend.proxy_from.is_empty() { "connection" } else { "session" };
    if !frontend.denied.is_empty() {
        ranges("denied", &frontend.denied, page);
        page.line(format_args!("tcp-request {when} reject if denied"));
    }
    if !frontend.sources.is_empty() {
        ranges("sources", &frontend.sources, page);
        page.line(format_args!("tcp-request {when} reject unless sources"));
    }
    let map = |find: &str, name: &Label| format!("{find}({})", FileKind::Maps.path(folder, name));
    match &frontend.routing {
        Routing::Everything(backend) => page.line(format_args!("default_backend {backend}")),
        Routing::ByTlsName { exact, suffix } => {
            page.line(format_args!("tcp-request inspect-delay {}", milliseconds(timeouts.request)));
            page.line("tcp-request content accept if { req.ssl_hello_type 1 }");
            page.line("tcp-request content reject");
            for find in [map("map_str", exact), map("map_end", suffix)] {
                page.line(format_args!(
                    "use_backend %[req.ssl_sni,lower,{find}] if {{ req.ssl_sni,lower,{find} -m found }}"
                ));
            }
        }
        Routing::Http(routing) => http(routing, frontend.tls.is_some(), document, page),
    }
}

/// `.` and `..` as a segment of a path, as the native data plane knows them: encoded, with parameters, or ended by a
/// backslash.
const DOTS: &str = r"(^|/|\\|%2f|%5c)([.]|%2e){1,2}(;|/|\\|%2f|%5c|$)";

/// What members may take for another path, where that one is guarded: an empty segment, parameters, a backslash, characters that
/// need an escape, and escapes of what needs none, of control characters and slashes, or of nothing.
const RESPELLED: &str = "//|;|\\\\|[^!-~]|[#\"<>^`{|}]|%([01]|2[def]|3[0-9b]|4[1-9a-f]|5[0-9acf]|6[1-9a-f]|7[0-9aef]|c[01]|\
     [^0-9a-f]|.[^0-9a-f]|.?$)";

fn respelled(Respelled { escaped, uppercase }: &Respelled, page: &mut ConfigWriter) {
    let escaped: String = escaped.iter().map(|byte| format!("|%{byte:02x}")).collect();
    page.line(format_args!(
        "http-request deny deny_status 400 if {{ path -m reg -i '{RESPELLED}{escaped}' }}"
    ));
    if *uppercase {
        page.line("http-request deny deny_status 400 if { path -m reg '%(.?)[a-f]' }");
    }
}

fn http(routing: &HttpFrontendOptions, is_tls: bool, document: &Document, page: &mut ConfigWriter) {
    let folder = &document.global.folder;
    let scheme = if is_tls { "https" } else { "http" };
    let path = |name: &Label| FileKind::Maps.path(folder, name);
    // Here and not in defaults: of a backend's error, its own page comes first, and it has what defaults say.
    let usual = [400, 403, 408, 413, 500, 502, 503, 504].map(|status| (status, None));
    let own = routing.pages.iter().map(|(status, body)| (*status, Some(body)));
    let pages: BTreeMap<u16, Option<&Label>> = usual.into_iter().chain(own).collect();
    for (status, body) in pages {
        let body = body.map_or_else(|| words(status), |body| returned(document, body));
        page.line(format_args!("http-error status {status} {body}"));
    }
    // A host with a slash would be read as a host and a path in the maps.
    page.line("http-request deny deny_status 400 if { req.hdr(host) -m sub / }");
    // The maps take a path as it comes, and members resolve it: `/public/../inside` would get past the rules of `/inside`.
    page.line(format_args!("http-request deny deny_status 400 if {{ path -m reg -i '{DOTS}' }}"));
    if let Some(it) = &routing.respelled {
        respelled(it, page);
    }
    // HTTP/2 in a tunnel: requests in it would follow nobody's rules.
    page.line("http-request del-header Upgrade if { req.hdr(upgrade) -m sub -i h2c }");
    page.line("http-request del-header HTTP2-Settings");
    client(routing, scheme, page);
    let [exact, prefix, suffix] = [&routing.exact, &routing.prefix, &routing.suffix].map(path);
    page.line("http-request set-var(txn.host) req.hdr(host),field(1,:),lower,rtrim(.)");
    page.line("http-request set-var(txn.path) path");
    let look = |host: &str, unless: &str, page: &mut ConfigWriter| {
        let not_yet = format!("if {unless}!{{ var(txn.to) -m found }}");
        page.line(format_args!(
            "http-request set-var(txn.to) {host},concat(,txn.path),map_str({exact}) {not_yet}"
        ));
        page.line(format_args!(
            "http-request set-var(txn.to) {host},concat(,txn.path,/),map_beg({prefix}) {not_yet}"
        ));
    };
    look("var(txn.host)", "", page);
    page.line(format_args!(
        "http-request set-var(txn.wildcard) var(txn.host),map_end({suffix}) if !{{ var(txn.to) -m found }}"
    ));
    look("var(txn.wildcard)", "{ var(txn.wildcard) -m found } ", page);
    look("str(*)", "", page);
    for choice in &routing.choices {
        choices(choice, page);
    }
    let body = routing.pages.iter().find(|(status, _)| *status == 404);
    let body = body.map_or_else(|| words(404), |(_, body)| returned(document, body));
    page.line(format_args!("http-request return status 404 {body} if !{{ var(txn.to) -m found }}"));
    page.line("use_backend %[var(txn.to)]");
}

/// What members are told of the client, which nobody else may say.
fn client(routing: &HttpFrontendOptions, scheme: &str, page: &mut ConfigWriter) {
    let unless = match routing.trusted.as_slice() {
        [] => String::new(),
        trusted => {
            ranges("trusted", trusted, page);
            " unless trusted".to_owned()
        }
    };
    page.line(format_args!("http-request set-var(txn.scheme) str({scheme})"));
    if !unless.is_empty() {
        let https = "{ req.hdr(x-forwarded-proto) -m str -i https }";
        page.line(format_args!("http-request set-var(txn.scheme) str(https) if trusted {https}"));
    }
    for name in ["X-Forwarded-For", "Forwarded"] {
        page.line(format_args!("http-request del-header {name}{unless}"));
    }
    for name in ["Client-Cert", "Client-Cert-Chain"] {
        page.line(format_args!("http-request del-header {name}"));
    }
    page.line("option forwardfor");
    for (name, value) in [
        ("X-Forwarded-Proto", scheme),
        ("X-Forwarded-Host", "%[req.hdr(host)]"),
        ("X-Forwarded-Port", "%[dst_port]"),
    ] {
        page.line(format_args!("http-request set-header {name} {value}{unless}"));
        if !unless.is_empty() {
            page.line(format_args!(
                "http-request set-header {name} {value} if trusted !{{ req.hdr({name}) -m found }}"
            ));
        }
    }
    if routing.forwarded {
        page.line("option forwarded");
    }
    if routing.request_id {
        page.line(format_args!("http-request set-header X-Request-Id %[uuid()]{unless}"));
        if !unless.is_empty() {
            page.line("http-request set-header X-Request-Id %[uuid()] if trusted !{ req.hdr(X-Request-Id) -m found }");
        }
    }
    if let Some(via) = &routing.via {
        page.line(format_args!(
            "http-request add-header Via {}",
            format_args!("'%[req.ver] {}'", via.as_str().replace('%', "%%"))
        ));
    }
    if let Some(seconds) = routing.hsts {
        page.line(format_args!("http-after-response set-header Strict-Transport-Security max-age={seconds}"));
    }
}

/// So many conditions stand in a line: HAProxy takes 64 words, and one has up to 7.
const CONDITIONS: usize = 6;

fn choices(choice: &RouteChoice, page: &mut ConfigWriter) {
    let undecided = format!("{{ var(txn.to) -m str {} }}", choice.name);
    for Alternative { conditions: all, backend } in &choice.alternatives {
        let fits = if all.len() > CONDITIONS {
            page.line("http-request set-var(txn.fits) int(1)");
            for some in all.chunks(CONDITIONS) {
                page.line(format_args!("http-request unset-var(txn.fits) unless{}", conditions(some)));
            }
            " { var(txn.fits) -m found }".to_owned()
        } else {
            conditions(all)
        };
        page.line(format_args!("http-request set-var(txn.to) str({backend}) if {undecided}{fits}"));
    }
    page.line(format_args!("http-request unset-var(txn.to) if {undecided}"));
}

fn conditions(all: &[Condition]) -> String {
    let mut words = String::new();
    for condition in all {
        let _ = match condition {
            Condition::Method(method) => write!(words, " {{ method -m str -- {method} }}"),
            Condition::Header(name, value) => {
                write!(words, " {{ req.fhdr({name},1) -m str -- {} }}", quoted(value))
            }
            Condition::Query(name, value) => {
                write!(words, " {{ url_param({name}),url_dec(1) -m str -- {} }}", quoted(value))
            }
            Condition::Share(share, of) => write!(words, " {{ rand({of}) lt {share} }}"),
        };
    }
    words
}

/// A body of ours, as a file with its type.
pub(super) fn returned(document: &Document, page: &Label) -> String {
    let body = document.pages.get(page).map(|it| it.trim_start().starts_with('<'));
    let kind = if body == Some(true) { "text/html" } else { "text/plain" };
    format!(
        "content-type '{kind}; charset=utf-8' file {}",
        FileKind::Pages.path(&document.global.folder, page)
    )
}

/// The usual words, as the native data plane says them.
pub(super) fn words(status: u16) -> String {
    let words = match status {
        400 => " Bad Request",
        403 => " Forbidden",
        404 => " Not Found",
        408 => " Request Timeout",
        410 => " Gone",
        411 => " Length Required",
        413 => " Content Too Large",
        500 => " Internal Server Error",
        502 => " Bad Gateway",
        503 => " Service Unavailable",
        504 => " Gateway Timeout",
        _ => "",
    };
    format!("content-type 'text/plain; charset=utf-8' string '{status}{words}'")
}
