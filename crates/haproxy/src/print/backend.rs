//! Backends as lines.

use std::fmt::Write as _;

use super::{ConfigWriter, WORDS, formatted, frontend, milliseconds, quoted, ranges};
use crate::{
    document::{
        Backend, Balance, Check, ConnectionReuse, Document, FileKind, HttpRule, ImmediateResponse,
        MessageDirection, Scheme, ServerTls, Settings, Slot, SlotState, Stickiness,
    },
    words::{Label, PlainPath},
};

pub(super) fn backend(name: &Label, backend: &Backend, document: &Document, page: &mut ConfigWriter) {
    page.section(backend.about.as_str(), format_args!("backend {name}"));
    let settings = &backend.settings;
    page.line(if settings.is_http { "mode http" } else { "mode tcp" });
    if let Some(limit) = settings.body {
        page.line(format_args!("http-request deny deny_status 413 if {{ req.body_size gt {limit} }}"));
        // Nobody knows how long such a body will be. HTTP/2 need not say that one comes; then its first byte is waited for,
        // at most so long (408). What becomes a tunnel has none.
        let refuse = format!("http-request return status 411 {}", frontend::words(411));
        page.line(format_args!("{refuse} if {{ req.hdr(transfer-encoding) -m found }}"));
        let unsaid = "!{ req.hdr(content-length) -m found }";
        page.line(format_args!(
            "http-request wait-for-body time 5s at-least 1 if {unsaid} !{{ req.hdr(upgrade) -m found }}"
        ));
        page.line(format_args!("{refuse} if {unsaid} {{ req.body_len gt 0 }}"));
    }
    settings.rules.iter().enumerate().for_each(|(number, it)| rule(number, it, page));
    if let Some(it) = &settings.answer {
        return answer(it, document, page);
    }
    balance(settings, page);
    timeouts(settings, page);
    stick(settings, page);
    if let Some(check) = &settings.check {
        page.line(format_args!("timeout check {}", milliseconds(check.timeout)));
        http_check(check, page);
    }
    if let Some(types) = &settings.compression {
        const TEXTS: &str = "text/html text/plain text/css text/javascript text/xml application/json application/javascript application/xml image/svg+xml";
        let types: Vec<&str> = types.iter().map(|it| it.as_str()).collect();
        page.line("compression algo gzip");
        if types.is_empty() {
            page.line(format_args!("compression type {TEXTS}"));
        }
        for some in types.chunks(WORDS) {
            page.line(format_args!("compression type {}", some.join(" ")));
        }
    }
    if backend.slots.is_empty() {
        return;
    }
    page.line(format_args!("default-server {}", server_words(settings, document)));
    for slot in &backend.slots {
        page.line(server(slot, settings));
    }
}

fn balance(settings: &Settings, page: &mut ConfigWriter) {
    page.line(match settings.balance {
        Balance::RoundRobin => "balance roundrobin",
        Balance::LeastConnections => "balance leastconn",
        Balance::RandomTwo => "balance random(2)",
        Balance::Source => "balance source",
        Balance::First => "balance first",
    });
    if settings.balance == Balance::Source {
        page.line("hash-type consistent");
    }
    // All backup servers serve, not the first alone.
    page.line("option allbackups");
    if let Some(retries) = settings.retries {
        page.line(format_args!("retries {retries}"));
    }
    if settings.is_http {
        page.line(match settings.reuse {
            ConnectionReuse::Safe => "http-reuse safe",
            ConnectionReuse::Always => "http-reuse always",
            ConnectionReuse::Never => "http-reuse never",
        });
    }
}

fn timeouts(settings: &Settings, page: &mut ConfigWriter) {
    let timeouts = &settings.timeouts;
    page.line(format_args!("timeout connect {}", milliseconds(timeouts.connect)));
    page.line(format_args!("timeout server {}", milliseconds(timeouts.answer)));
    page.line(format_args!("timeout server-fin {}", milliseconds(timeouts.half_closed)));
    if settings.is_http {
        page.line(format_args!("timeout tunnel {}", milliseconds(timeouts.idle)));
    }
    if let Some(queue) = timeouts.queue {
        page.line(format_args!("timeout queue {}", milliseconds(queue)));
    }
}

fn stick(settings: &Settings, page: &mut ConfigWriter) {
    match &settings.stick {
        None => {}
        Some(Stickiness::ClientIp(time)) => {
            page.line(format_args!("stick-table type ipv6 size 100k expire {}", milliseconds(*time)));
            page.line("stick on src");
        }
        Some(Stickiness::Cookie { name, insert: true }) => {
            page.line(format_args!("cookie {name} insert indirect nocache httponly"));
        }
        Some(Stickiness::Cookie { name, insert: false }) => {
            page.line(format_args!("cookie {name} prefix nocache"))
        }
    }
}

fn http_check(check: &Check, page: &mut ConfigWriter) {
    let Some(http) = &check.http else { return };
    page.line("option httpchk");
    let host = http.host.as_ref().map_or_else(|| "localhost".to_owned(), formatted);
    let path = formatted(&http.path);
    page.line(format_args!(
        "http-check send meth GET uri-lf {path} ver HTTP/1.1 hdr Host {host} hdr User-Agent seaway hdr Connection close"
    ));
    let (low, high) = http.status;
    page.line(format_args!("http-check expect status {low}-{high}"));
    if let Some(expect) = &http.expect {
        page.line(format_args!("http-check expect string {}", quoted(expect)));
    }
}

/// What holds of each server.
fn server_words(settings: &Settings, document: &Document) -> String {
    let server = &settings.server;
    let mut words = String::new();
    if let Some(check) = &settings.check {
        let (inter, rise, fall) = (milliseconds(check.interval), check.rise.max(1), check.fall.max(1));
        let _ = write!(words, "check inter {inter} rise {rise} fall {fall}");
        if let Some(port) = check.port {
            let _ = write!(words, " port {port}");
        }
        if let Some(errors) = check.observe {
            let _ = write!(words, " observe layer4 error-limit {} on-error mark-down", errors.max(1));
        }
    } else {
        words.push_str("no-check");
    }
    if server.http2 {
        words.push_str(" proto h2");
    }
    match &server.tls {
        None => {}
        Some(ServerTls::Unverified) => words.push_str(" ssl verify none"),
        Some(ServerTls::SystemRoots) => words.push_str(" ssl verify required ca-file @system-ca"),
        Some(ServerTls::Authorities(name)) => {
            let path = FileKind::Authorities.path(&document.global.folder, name);
            let _ = write!(words, " ssl verify required ca-file {path}");
        }
    }
    if server.tls.is_some() && settings.is_http {
        words.push_str(if server.http2 { " alpn h2" } else { " alpn http/1.1" });
    }
    match server.proxy {
        None => {}
        Some(1) => words.push_str(" send-proxy"),
        Some(_) => words.push_str(" send-proxy-v2"),
    }
    if let Some(connections) = server.connections {
        let _ = write!(words, " maxconn {connections}");
    }
    if let Some(time) = server.slow_start {
        let _ = write!(words, " slowstart {}", milliseconds(time));
    }
    words
}

fn server(slot: &Slot, settings: &Settings) -> String {
    let name = &slot.name;
    let cookie = match &settings.stick {
        Some(Stickiness::Cookie { .. }) => format!(" cookie {name}"),
        _ => String::new(),
    };
    let Some(member) = &slot.member else {
        // Nobody listens at port 9, and nobody is sent there.
        return format!("server {name} 127.0.0.1:9 disabled{cookie}");
    };
    let weight = match member.state {
        SlotState::Ready => member.weight,
        SlotState::Drain => 0,
    };
    let mut line = format!("server {name} {} weight {weight}{cookie}", member.at);
    if member.backup {
        line.push_str(" backup");
    }
    if let Some(tls) = &member.tls_name {
        let _ = write!(line, " sni str({tls}) verifyhost {tls} check-sni {tls}");
    }
    line
}

fn rule(number: usize, rule: &HttpRule, page: &mut ConfigWriter) {
    let way = |way: &MessageDirection| match way {
        MessageDirection::Request => "http-request",
        MessageDirection::Response => "http-response",
    };
    match rule {
        HttpRule::AllowFrom(list) => {
            ranges(format_args!("ranges-{number}"), list, page);
            page.line(format_args!("http-request deny deny_status 403 unless ranges-{number}"));
        }
        HttpRule::DenyFrom(list) => {
            ranges(format_args!("ranges-{number}"), list, page);
            page.line(format_args!("http-request deny deny_status 403 if ranges-{number}"));
        }
        HttpRule::SetHeader(of, name, value) => {
            page.line(format_args!("{} set-header {name} {}", way(of), formatted(value)));
        }
        HttpRule::AddHeader(of, name, value) => {
            page.line(format_args!("{} add-header {name} {}", way(of), formatted(value)));
        }
        HttpRule::RemoveHeader(of, name) => page.line(format_args!("{} del-header {name}", way(of))),
        HttpRule::ReplacePrefix(prefix, by) => replace_prefix(prefix, by, page),
        HttpRule::SetPath(path) => page.line(format_args!("http-request set-path '{path}'")),
        HttpRule::SetHost(host) => page.line(format_args!("http-request set-header Host {host}")),
    }
}

/// One of the prefixes is known to be there: `/foo` and `/foo/x`, never `/foobar`.
fn replace_prefix(prefixes: &[PlainPath], by: &PlainPath, page: &mut ConfigWriter) {
    let patterns: Vec<String> = prefixes.iter().map(pattern).collect();
    let patterns = patterns.join("|");
    let by = by.as_str().trim_end_matches('/');
    // Without anything before it, a path still begins with a slash.
    if by.is_empty() {
        page.line(format_args!("http-request replace-path '^({patterns})(/(.*))?$' '/\\3'"));
    } else {
        page.line(format_args!("http-request replace-path '^({patterns})(/.*)?$' '{by}\\2'"));
    }
}

fn pattern(prefix: &PlainPath) -> String {
    let mut pattern = String::new();
    for letter in prefix.as_str().trim_end_matches('/').chars() {
        if !letter.is_ascii_alphanumeric() && letter != '/' {
            pattern.push('\\');
        }
        pattern.push(letter);
    }
    pattern
}

fn answer(answer: &ImmediateResponse, document: &Document, page: &mut ConfigWriter) {
    match answer {
        ImmediateResponse::Return { code, page: Some(body) } => {
            page.line(format_args!(
                "http-request return status {code} {}",
                frontend::returned(document, body)
            ));
        }
        // Without a server it is what HAProxy answers itself, by the frontend's page.
        ImmediateResponse::Return { code: 503, page: None } => {}
        ImmediateResponse::Return { code, page: None } => {
            page.line(format_args!("http-request return status {code} {}", frontend::words(*code)));
        }
        ImmediateResponse::Redirect { scheme, host, port, code } => {
            redirect((*scheme, host.as_ref(), *port), *code, page)
        }
    }
}

fn redirect(
    (scheme, host, port): (Option<Scheme>, Option<&Label>, Option<u16>),
    code: u16,
    page: &mut ConfigWriter,
) {
    let usual = match scheme {
        Some(Scheme::Http) => Some(80),
        Some(Scheme::Https) => Some(443),
        None => None,
    };
    let scheme = match scheme {
        Some(Scheme::Http) => "http",
        Some(Scheme::Https) => "https",
        None => "%[var(txn.scheme)]",
    };
    let asked = "%[req.hdr(host),field(1,:)]";
    let host = host.map_or(asked, |it| it.as_str());
    let mut to = |port: &str, condition: &str| {
        page.line(format_args!(
            "http-request redirect location '{scheme}://{host}{port}%[pathq]' code {code}{condition}"
        ));
    };
    match port {
        Some(port) if Some(port) != usual => to(&format!(":{port}"), ""),
        None if usual.is_none() => {
            to(":%[req.hdr(host),field(2,:)]", " if { req.hdr(host) -m sub : }");
            to("", "");
        }
        _ => to("", ""),
    }
}
