//! Headers of requests and answers, and settings of a location that are annotations of a Service.

use super::{
    super::{proxy::HeaderChanges, report::Report},
    context::{Context, Scopes},
    parse::Directive,
};

/// What a location does with headers.
#[derive(Debug, Default)]
pub(super) struct Headers {
    pub(super) request: HeaderChanges,
    pub(super) response: HeaderChanges,
    pub(super) host: SentHost,
    /// A header that the client may send passes as if nginx had set it.
    pub(super) closed: Option<String>,
    /// Seconds of HSTS.
    pub(super) hsts: Option<String>,
}

/// The `Host` that a backend gets.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) enum SentHost {
    /// nginx sends the name in `proxy_pass`.
    #[default]
    Backend,
    /// What the client sent.
    Client,
    Fixed(String),
}

/// An HTTPRoute has as many of each.
const MOST: usize = 16;

pub(super) fn headers(scopes: &Scopes<'_>, report: &mut Report) -> Headers {
    let mut headers = Headers::default();
    for it in scopes.all(&["proxy_set_header", "grpc_set_header"]) {
        request(it, scopes, &mut headers, report);
    }
    for it in scopes.all(&["add_header"]) {
        response(it, &mut headers, report);
    }
    for it in scopes.all(&["proxy_hide_header"]) {
        match is_name(it.arg(0)) && headers.response.remove.len() < MOST {
            true => headers.response.remove.push(it.arg(0).to_owned()),
            false => report.left_out(&it.place, "an HTTPRoute removes at most 16 headers, by their names"),
        }
    }
    headers
}

/// Whether the ports of a server have TLS: `[true]`, `[false]`, or both.
fn ports(scopes: &Scopes<'_>) -> Vec<bool> {
    let all_ssl = scopes.argument("ssl") == "on";
    let listens = scopes.everywhere().filter(|it| it.name == "listen");
    let mut found: Vec<bool> = listens.map(|it| all_ssl || it.args.iter().any(|it| it == "ssl")).collect();
    found.sort_unstable();
    found.dedup();
    found
}

fn request(it: &Directive, scopes: &Scopes<'_>, headers: &mut Headers, report: &mut Report) {
    let (name, value) = (it.arg(0), it.arg(1));
    let lower = name.to_ascii_lowercase();
    let before = (headers.request.set.len(), headers.request.remove.len());
    changed(it, scopes, (&lower, value), headers, report);
    let is_changed = before != (headers.request.set.len(), headers.request.remove.len());
    if is_changed
        && name.contains('-')
        && !["accept-encoding", "content-length", "transfer-encoding", "keep-alive"].contains(&&*lower)
        && scopes.argument("underscores_in_headers") != "on"
    {
        let why = format!(
            "a client may send it as {}, which Seaway forwards and nginx drops: members that read both names as one (CGI, WSGI, PHP) have to refuse it",
            name.replace('-', "_")
        );
        report.differs(&it.place, &why);
    }
}

fn changed(
    it: &Directive,
    scopes: &Scopes<'_>,
    (lower, value): (&str, &str),
    headers: &mut Headers,
    report: &mut Report,
) {
    let name = it.arg(0);
    match (lower, value) {
        ("host", "$host" | "$http_host" | "$host:$server_port" | "$http_host:$server_port") => {
            headers.host = SentHost::Client
        }
        ("host", "$proxy_host") => headers.host = SentHost::Backend,
        ("host", fixed) if super::super::proxy::host(fixed).is_some() && !fixed.starts_with('*') => {
            headers.host = SentHost::Fixed(fixed.to_owned());
        }
        ("host", _) => {
            report.left_out(&it.place, "members get the Host that the client sent, or a fixed one")
        }
        ("x-forwarded-for", "$proxy_add_x_forwarded_for" | "$remote_addr") => {}
        ("x-forwarded-proto", "$scheme") => {}
        ("x-forwarded-proto", "https") | ("x-forwarded-port", "443") if ports(scopes) == [true] => {}
        ("x-forwarded-proto", "http") | ("x-forwarded-port", "80") if ports(scopes) == [false] => {}
        ("x-forwarded-host", "$host" | "$http_host" | "$host:$server_port") => {}
        ("x-forwarded-port", "$server_port") => {}
        ("x-request-id", "$request_id") => {}
        // WebSockets: asked for by the client, and passed on.
        ("upgrade", "$http_upgrade") => {}
        ("connection", value)
            if value.is_empty()
                || value.eq_ignore_ascii_case("upgrade")
                || value.eq_ignore_ascii_case("close")
                || value.starts_with("$connection")
                || value.starts_with("$http_connection") => {}
        ("accept-encoding", "") => headers.request.remove.push("Accept-Encoding".to_owned()),
        // Seaway sets these itself, and lets no client do it.
        ("x-forwarded-for" | "x-forwarded-proto" | "x-forwarded-host" | "x-forwarded-port", value)
            if value.contains('$') =>
        {
            report.differs(&it.place, "Seaway sets this header to a value of its own; that of a proxy before it counts if it is in frontDoor.trusted (docs/http.md)");
        }
        (_, value)
            if value.starts_with("$http_")
                && value.trim_start_matches("$http_").replace('_', "-") == lower => {}
        ("connection" | "upgrade" | "te" | "transfer-encoding" | "content-length" | "keep-alive", value)
            if value.contains('$') =>
        {
            report.left_out(&it.place, "Seaway has no variables");
        }
        (_, value) if value.contains('$') && is_name(name) && headers.request.remove.len() < MOST => {
            let of_client = lower.contains("-ip") || lower.starts_with("remote-");
            let why = match of_client {
                true => {
                    "members read the client's address in X-Forwarded-For; what a client sends in this header is removed"
                }
                false => {
                    "Seaway has no variables (docs/http.md has the headers that it sets); what a client sends in this header is removed"
                }
            };
            report.left_out(&it.place, why);
            headers.request.remove.push(name.to_owned());
        }
        (_, value) if value.contains('$') => {
            let why = "the client's value of this header cannot be removed: an HTTPRoute removes at most 16 headers";
            report.closed(&it.place, why);
            headers.closed.get_or_insert_with(|| why.to_owned());
        }
        _ if !is_name(name) || headers.request.set.len() >= MOST || headers.request.remove.len() >= MOST => {
            let why =
                "an HTTPRoute sets and removes at most 16 headers, and a client may send this one itself";
            report.closed(&it.place, why);
            headers.closed.get_or_insert_with(|| why.to_owned());
        }
        (_, "") => headers.request.remove.push(name.to_owned()),
        (_, value) => put(&mut headers.request.set, name, value),
    }
}

fn response(it: &Directive, headers: &mut Headers, report: &mut Report) {
    let (name, value) = (it.arg(0), it.arg(1));
    if name.eq_ignore_ascii_case("Strict-Transport-Security") {
        let seconds =
            value.split(';').find_map(|it| it.trim().strip_prefix("max-age=")).map(|it| it.trim_matches('"'));
        match seconds.and_then(|it| it.parse::<u64>().ok()) {
            Some(seconds) => {
                headers.hsts = Some(format!("{seconds}s"));
                if value.to_ascii_lowercase().contains("includesubdomains") {
                    report.differs(&it.place, "Seaway's HSTS has no includeSubDomains or preload");
                }
            }
            None => report.left_out(&it.place, "the value has no max-age"),
        }
        return;
    }
    if name.eq_ignore_ascii_case("Alt-Svc") {
        report.no_effect(&it.place, "Seaway does not speak HTTP/3");
    } else if value.contains('$') {
        report.left_out(&it.place, "Seaway has no variables");
    } else if !is_name(name) || value.is_empty() || headers.response.set.len() >= MOST {
        report.left_out(&it.place, "an HTTPRoute adds at most 16 headers, each with a value");
    } else {
        put(&mut headers.response.set, name, value);
        report.differs(
            &it.place,
            "the header replaces one of this name that the backend sends, and is \
                                   added to each answer, as with always",
        );
    }
}

fn put(list: &mut Vec<(String, String)>, name: &str, value: &str) {
    let value = value.split_whitespace().collect::<Vec<_>>().join(" ");
    list.retain(|(known, _)| !known.eq_ignore_ascii_case(name));
    list.push((name.to_owned(), value));
}

fn is_name(name: &str) -> bool {
    seaway_plan::is_token(name)
}

/// Annotations of the Service that a location leads to.
pub(super) fn terms(scopes: &Scopes<'_>, context: &mut Context) -> Vec<(&'static str, String)> {
    let report = &mut context.report;
    let mut terms = Vec::new();
    if let Some(it) = scopes.one("client_max_body_size") {
        match size(it.arg(0)) {
            Some(size) => terms.push(("max-body-size", size)),
            None => report.left_out(&it.place, "this is not a size"),
        }
    }
    let mut time = |names: &[&str], annotation| {
        let all = scopes.all(names);
        let longest = all.iter().filter_map(|it| Some((duration(it.arg(0))?, it))).max_by_key(|it| it.0);
        for it in all.iter().filter(|it| duration(it.arg(0)).is_none()) {
            report.left_out(&it.place, &format!("{:?} is not a duration", it.arg(0)));
        }
        if let Some((millis, _)) = longest.filter(|it| it.0 > 0) {
            terms.push((annotation, written(millis)));
        }
    };
    time(&["proxy_connect_timeout", "grpc_connect_timeout"], "timeout-connect");
    time(
        &["proxy_read_timeout", "proxy_send_timeout", "grpc_read_timeout", "grpc_send_timeout"],
        "timeout-answer",
    );
    terms
}

/// `10m` is `10Mi`.
fn size(text: &str) -> Option<String> {
    let digits = text.trim_end_matches(['k', 'K', 'm', 'M', 'g', 'G']);
    digits.parse::<u64>().ok()?;
    let unit = match text.get(digits.len()..)? {
        "" => "",
        "k" | "K" => "Ki",
        "m" | "M" => "Mi",
        "g" | "G" => "Gi",
        _ => return None,
    };
    Some(if digits == "0" { "0".to_owned() } else { format!("{digits}{unit}") })
}

/// `60`, `60s`, `1m 30s`, `500ms`, in milliseconds.
pub(super) fn duration(text: &str) -> Option<u64> {
    let mut rest = text.trim();
    let mut all = 0_u64;
    if rest.is_empty() {
        return None;
    }
    while !rest.is_empty() {
        let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
        let (number, after) = rest.split_at(digits);
        let number: u64 = number.parse().ok()?;
        let units =
            [("ms", 1), ("s", 1_000), ("m", 60_000), ("h", 3_600_000), ("d", 86_400_000), ("w", 604_800_000)];
        let (length, factor) =
            units.iter().find(|it| after.starts_with(it.0)).map_or((0, 1_000), |it| (it.0.len(), it.1));
        all = all.saturating_add(number.saturating_mul(factor));
        if length == 0 && !after.is_empty() {
            return None;
        }
        rest = after.get(length..).unwrap_or_default().trim_start();
    }
    Some(all)
}

pub(super) fn written(millis: u64) -> String {
    match millis {
        it if it % 1_000 != 0 => format!("{it}ms"),
        it if it % 3_600_000 == 0 => format!("{}h", it / 3_600_000),
        it if it % 60_000 == 0 => format!("{}m", it / 60_000),
        it => format!("{}s", it / 1_000),
    }
}
