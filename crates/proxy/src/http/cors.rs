//! What pages of other origins may ask for (the Fetch standard, "CORS protocol").

// What is read here is somebody else's.
#![cfg_attr(not(test), warn(clippy::indexing_slicing, clippy::arithmetic_side_effects, clippy::expect_used))]

use seaway_model::load_balancer::{Cors, Filter, HostPattern, Origin, Rule};
use seaway_snapshot::RequestParts;

/// The rule's word on a request of another origin, and that origin.
pub(super) fn of<'r>(rule: &'r Rule, asked: &impl RequestParts) -> Option<(&'r Cors, String)> {
    let cors = rule.filters.iter().find_map(|filter| match filter {
        Filter::Cors(cors) => Some(cors),
        _ => None,
    })?;
    let origin = std::str::from_utf8(asked.header(b"origin")?).ok()?;
    Some((cors, origin.to_owned()))
}

/// A browser asks whether it may ask.
pub(super) fn is_preflight(asked: &impl RequestParts) -> bool {
    asked.method() == b"OPTIONS" && asked.header(b"access-control-request-method").is_some()
}

/// Lines for the answer itself.
pub(super) fn for_answer(cors: &Cors, origin: &str, out: &mut String) {
    if !allow(cors, origin, out) {
        return;
    }
    if !cors.expose.is_empty() {
        line(out, "Access-Control-Expose-Headers", &cors.expose.join(", "));
    }
}

/// Lines for the answer to a preflight. One that is not allowed gets none, from which the browser knows.
pub(super) fn for_preflight(cors: &Cors, origin: &str, asked: &impl RequestParts, out: &mut String) {
    if !allow(cors, origin, out) {
        return;
    }
    for (name, allowed, wanted) in [
        ("Access-Control-Allow-Methods", &cors.methods, &b"access-control-request-method"[..]),
        ("Access-Control-Allow-Headers", &cors.headers, b"access-control-request-headers"),
    ] {
        // All that is wanted, by name: `*` itself does not count where credentials do.
        let all = allowed.iter().any(|it| &**it == "*");
        let wanted = asked.header(wanted).and_then(|wanted| std::str::from_utf8(wanted).ok());
        match (all, wanted) {
            (true, Some(wanted)) => line(out, name, wanted),
            (true, None) => {}
            (false, _) if allowed.is_empty() => {}
            (false, _) => line(out, name, &allowed.join(", ")),
        }
    }
    line(out, "Access-Control-Max-Age", &cors.max_age.as_secs().to_string());
}

fn allow(cors: &Cors, origin: &str, out: &mut String) -> bool {
    if !cors.origins.iter().any(|it| fits(it, origin)) {
        return false;
    }
    if cors.origins.contains(&Origin::Any) && !cors.credentials {
        line(out, "Access-Control-Allow-Origin", "*");
    } else {
        line(out, "Access-Control-Allow-Origin", origin);
        line(out, "Vary", "Origin");
    }
    if cors.credentials {
        line(out, "Access-Control-Allow-Credentials", "true");
    }
    true
}

fn line(out: &mut String, name: &str, value: &str) {
    for part in [name, ": ", value, "\r\n"] {
        out.push_str(part);
    }
}

fn fits(allowed: &Origin, origin: &str) -> bool {
    let Origin::Like { scheme, host, port } = allowed else { return true };
    let Some((asked_scheme, rest)) = origin.split_once("://") else { return false };
    let (asked_host, asked_port) = match rest.rsplit_once(':') {
        Some((host, port)) if !port.is_empty() && port.bytes().all(|byte| byte.is_ascii_digit()) => {
            // One that no port has is no other port's.
            let Ok(port) = port.parse() else { return false };
            (host, Some(port))
        }
        _ => (rest, None),
    };
    let usual = |scheme: &str| if scheme.eq_ignore_ascii_case("https") { 443 } else { 80 };
    let host_fits = match host {
        None => !asked_host.is_empty(),
        Some(HostPattern::Exact(name)) => asked_host.eq_ignore_ascii_case(name),
        Some(HostPattern::Under(suffix)) => {
            let asked = asked_host.to_ascii_lowercase();
            asked.strip_suffix(&**suffix).is_some_and(|rest| rest.len() > 1 && rest.ends_with('.'))
        }
    };
    scheme.eq_ignore_ascii_case(asked_scheme)
        && host_fits
        && port.unwrap_or(usual(scheme)) == asked_port.unwrap_or(usual(asked_scheme))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn origins_are_compared_by_scheme_host_and_port() {
        let like = |scheme: &str, host: Option<HostPattern>, port| Origin::Like {
            scheme: scheme.into(),
            host,
            port,
        };
        let exact = |name: &str| Some(HostPattern::Exact(name.into()));
        let under = |name: &str| Some(HostPattern::Under(name.into()));
        for (allowed, origin, expected) in [
            (Origin::Any, "null", true),
            (like("https", exact("a.example"), None), "https://a.example", true),
            (like("https", exact("a.example"), None), "https://A.example:443", true),
            (like("https", exact("a.example"), None), "http://a.example", false),
            (like("https", exact("a.example"), None), "https://a.example:8443", false),
            (like("https", exact("a.example"), None), "https://a.example:65979", false),
            (like("http", exact("a.example"), Some(8080)), "http://a.example:8080", true),
            (like("https", under("example"), None), "https://a.b.example", true),
            (like("https", under("example"), None), "https://example", false),
            (like("https", under("example"), None), "https://badexample", false),
            (like("https", under("example"), None), "https://.example", false),
            (like("https", None, None), "https://any", true),
            (like("https", None, None), "https://", false),
            (like("https", None, None), "null", false),
        ] {
            assert_eq!(fits(&allowed, origin), expected, "{allowed} {origin}");
        }
    }
}
