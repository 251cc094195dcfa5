//! The words of HTTP: what a port speaks, what can be a host, a path, a token.

use seaway_model::{
    L4, Name,
    fact::ServicePort,
    load_balancer::{BackendProtocol, HostPattern},
};

/// What is spoken at a Service's port, as far as its `appProtocol` tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PortProtocol {
    Http(BackendProtocol),
    /// Nobody says.
    Unknown,
    Else,
}

/// With and without the prefix that Kubernetes gives names of its own (KEP-3726).
pub(crate) fn protocol_of(port: &ServicePort) -> PortProtocol {
    if port.protocol != L4::Tcp {
        return PortProtocol::Else;
    }
    let Some(written) = &port.app_protocol else { return PortProtocol::Unknown };
    match written.strip_prefix("kubernetes.io/").unwrap_or(written) {
        "http" | "https" | "ws" | "wss" => PortProtocol::Http(BackendProtocol::Http1),
        "h2c" | "h2" | "grpc" | "grpcs" => PortProtocol::Http(BackendProtocol::Http2),
        _ => PortProtocol::Else,
    }
}

/// Whether members speak TLS at this port, as far as its `appProtocol` tells.
pub(crate) fn speaks_tls(port: &ServicePort) -> bool {
    let written = port.app_protocol.as_deref().unwrap_or_default();
    matches!(written.strip_prefix("kubernetes.io/").unwrap_or(written), "https" | "wss" | "h2" | "grpcs")
}

impl PortProtocol {
    /// How a member is spoken to where HTTP comes in.
    pub(crate) fn to_members(self) -> BackendProtocol {
        match self {
            PortProtocol::Http(protocol) => protocol,
            PortProtocol::Unknown | PortProtocol::Else => BackendProtocol::Http1,
        }
    }
}

/// `shop.example`, or `*.shop.example` for all names below it.
pub fn host(text: &str) -> Result<HostPattern, String> {
    let lower = text.trim_end_matches('.').to_ascii_lowercase();
    let (below, name) = match lower.strip_prefix("*.") {
        Some(name) => (true, name),
        None => (false, &*lower),
    };
    let label = |it: &str| {
        let plain = it.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-');
        (1..=63).contains(&it.len()) && plain && !it.starts_with('-') && !it.ends_with('-')
    };
    if name.len() > 253 || !name.split('.').all(label) {
        if let Some(ascii) = ascii_host(text) {
            return Err(format!("{text:?} is no host name as clients send it; write {ascii}"));
        }
        let hint = match text {
            "*" => ". For requests of every host, remove this and set seaway.dev/path: /",
            _ if text.contains(':') => ", without scheme and port",
            _ => "",
        };
        return Err(format!(
            "{text:?} is not a host name; write one like shop.example or *.shop.example{hint}"
        ));
    }
    Ok(if below { HostPattern::Under(name.into()) } else { HostPattern::Exact(name.into()) })
}

/// An internationalized name as DNS and clients have it, in punycode (RFC 5891): `xn--mnchen-3ya.example` for `münchen.example`.
pub fn ascii_host(text: &str) -> Option<String> {
    if text.is_ascii() {
        return None;
    }
    let (below, name) = text.strip_prefix("*.").map_or(("", text), |name| ("*.", name));
    let ascii = format!("{below}{}", idna::domain_to_ascii(name).ok()?);
    host(&ascii).is_ok().then_some(ascii)
}

/// `shop.example`, or `shop.example/api` for what begins with that path there.
pub(crate) fn host_and_path(text: &str) -> Result<(HostPattern, Option<Name>), String> {
    if let Some(end) = text.find("://") {
        let (scheme, rest) = text.split_at(end);
        let rest = rest.trim_start_matches("://");
        return Err(format!("{text:?} is not a host name; write {rest:?}, without {scheme}://"));
    }
    let Some(slash) = text.find('/') else { return Ok((host(text)?, None)) };
    let (name, beginning) = text.split_at(slash);
    Ok((host(name)?, Some(path(beginning)?)))
}

/// The beginning of a path, without a slash at its end; `/` is the beginning of all.
pub(crate) fn path(text: &str) -> Result<Name, String> {
    let wrong = !text.starts_with('/')
        || text.contains("//")
        || text.split('/').any(|segment| matches!(segment, "." | ".."))
        || !text.bytes().all(|byte| byte.is_ascii_graphic() && !matches!(byte, b'?' | b'#' | b'"' | b'\\'));
    if wrong {
        return Err(format!("{text:?} is not a path; write one like /shop"));
    }
    if text.ends_with(ENDS) {
        return Err(format!("{text:?} is not a path; write {:?}", text.trim_end_matches(ENDS)));
    }
    if is_like_pattern(text) {
        return Err(format!(
            "{text:?} is a pattern, and paths are beginnings: /api also matches /api/users. For a regular expression, write \
             an HTTPRoute"
        ));
    }
    Ok(match text.trim_end_matches('/') {
        "" => "/".into(),
        path => path.into(),
    })
}

/// What ends a line or a group in the configuration of other proxies, and stands at the end of no path that somebody means.
const ENDS: [char; 3] = [';', ')', ','];

/// Other proxies read patterns in paths; such a path would match no request, in silence.
pub(crate) fn is_like_pattern(path: &str) -> bool {
    path.contains(['*', '|', '^', '[', '{']) || path.contains("/:") || path.ends_with('$')
}

/// The path that a pattern of all below it means: `/admin` for `/admin/*`, `/admin.*` and `/admin$`.
pub(crate) fn meant_path(text: &str) -> Option<Name> {
    let text = text.trim_end_matches(ENDS);
    let text = text.strip_suffix('$').unwrap_or(text);
    let text = text.strip_suffix('*').map_or(text, |it| it.strip_suffix('.').unwrap_or(it));
    // `/admin);/` ends as `/admin` does: what is left once a slash is cut off would be no path.
    let cut = text.trim_end_matches(|it| it == '/' || ENDS.contains(&it));
    if cut.is_empty() { (text == "/").then(|| text.into()) } else { path(cut).ok() }
}

/// The place that a text probably means which is none: `http://shop.example/admin`, `shop.example /admin`, `shop.example:80/admin/*`.
/// Nothing, if that is not known.
pub fn meant_place(text: &str) -> Option<(Option<HostPattern>, Option<Name>)> {
    let text = text.split_once("://").map_or(text, |(_, rest)| rest);
    let parts: Vec<&str> = text.split('/').map(str::trim).collect();
    let text = parts.join("/");
    let (name, beginning) = text.find('/').map_or((text.as_str(), ""), |at| text.split_at(at));
    let name = match name.rsplit_once(':') {
        Some((name, port)) if port.parse::<u16>().is_ok() => name,
        _ => name,
    };
    let path = if beginning.is_empty() { None } else { Some(meant_path(beginning)?) };
    let host = if name.is_empty() { None } else { Some(host(name).ok()?) };
    (host.is_some() || path.is_some()).then_some((host, path))
}

/// A name in the grammar of HTTP (RFC 9110, section 5.6.2).
pub fn is_token(text: &str) -> bool {
    !text.is_empty()
        && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte))
}

#[cfg(test)]
mod tests {
    use seaway_model::fact::TargetPort;

    use super::*;

    #[test]
    fn a_name_of_other_letters_is_refused_with_its_form_in_ascii() {
        for (text, ascii) in [
            ("münchen.example", Some("xn--mnchen-3ya.example")),
            ("mu\u{308}nchen.example", Some("xn--mnchen-3ya.example")),
            ("*.Bücher.example", Some("*.xn--bcher-kva.example")),
            ("bücher.example:80", None),
            ("shop .example", None),
        ] {
            let why = host(text).expect_err(text);
            assert!(ascii.is_none_or(|it| why.ends_with(&format!("write {it}"))), "{why}");
            assert_eq!(ascii_host(text).as_deref(), ascii, "{text}");
        }
    }

    #[test]
    fn what_a_port_speaks_is_told_by_its_application_protocol() {
        let (http1, http2) =
            (PortProtocol::Http(BackendProtocol::Http1), PortProtocol::Http(BackendProtocol::Http2));
        let table = [
            (L4::Tcp, None, PortProtocol::Unknown),
            (L4::Tcp, Some("http"), http1),
            (L4::Tcp, Some("kubernetes.io/http"), http1),
            (L4::Tcp, Some("ws"), http1),
            (L4::Tcp, Some("kubernetes.io/ws"), http1),
            (L4::Tcp, Some("wss"), http1),
            (L4::Tcp, Some("kubernetes.io/wss"), http1),
            (L4::Tcp, Some("h2c"), http2),
            (L4::Tcp, Some("kubernetes.io/h2c"), http2),
            (L4::Tcp, Some("grpc"), http2),
            (L4::Tcp, Some("kubernetes.io/grpc"), http2),
            (L4::Tcp, Some("https"), http1),
            (L4::Tcp, Some("h2"), http2),
            (L4::Tcp, Some("grpcs"), http2),
            (L4::Tcp, Some("mysql"), PortProtocol::Else),
            (L4::Tcp, Some("example.com/http"), PortProtocol::Else),
            (L4::Udp, None, PortProtocol::Else),
            (L4::Udp, Some("http"), PortProtocol::Else),
        ];
        for (protocol, app_protocol, expected) in table {
            let port = ServicePort {
                name: Name::default(),
                protocol,
                port: 80,
                target: TargetPort::Number(80),
                node_port: None,
                app_protocol: app_protocol.map(Name::from),
            };
            assert_eq!(protocol_of(&port), expected, "{protocol} {app_protocol:?}");
        }
    }

    #[test]
    fn a_place_that_is_none_means_one_or_is_not_known() {
        for (text, meant) in [
            ("http://shop.example/admin", "shop.example/admin"),
            ("https://Shop.Example/", "shop.example/"),
            ("https://*.example", "*.example"),
            ("shop.example /admin", "shop.example/admin"),
            ("shop.example/ admin", "shop.example/admin"),
            ("shop.example/admin/*", "shop.example/admin"),
            ("shop.example/admin*", "shop.example/admin"),
            ("shop.example/admin.*", "shop.example/admin"),
            ("shop.example/admin$", "shop.example/admin"),
            ("shop.example/admin;", "shop.example/admin"),
            ("/admin)", "/admin"),
            ("/admin);/", "/admin"),
            ("/;/", ""),
            ("/users/:id", ""),
            ("shop.example/*", "shop.example/"),
            ("shop.example:8080/admin", "shop.example/admin"),
            ("/admin/*", "/admin"),
            ("shop example/admin", ""),
            ("shop_/admin", ""),
            ("shop.example/ad[a-z]", ""),
            ("shop.example/(admin|staff)", ""),
            ("~^shop", ""),
            ("*", ""),
            ("http://", ""),
            ("", ""),
        ] {
            let found = meant_place(text).map(|(host, path)| {
                let host = host.map(|it| it.to_string()).unwrap_or_default();
                format!("{host}{}", path.unwrap_or_default())
            });
            assert_eq!(found.unwrap_or_default(), meant, "{text}");
        }
    }

    #[test]
    fn hosts_and_paths_are_kept_in_one_form() {
        assert_eq!(host("Shop.Example."), Ok(HostPattern::Exact("shop.example".into())));
        assert_eq!(host("*.Example"), Ok(HostPattern::Under("example".into())));
        for text in ["", ".", "*", "*.", "a..b", "-a", "a b", "a:80", "[::1]", "*.*.a", "a.*"] {
            assert!(host(text).is_err(), "{text}");
        }
        // 253 bytes are the longest name of all.
        let (label, last) = ("a".repeat(63), "a".repeat(61));
        let longest = format!("{label}.{label}.{label}.{last}");
        assert_eq!(
            (longest.len(), host(&longest).is_ok(), host(&format!("{longest}a")).is_ok()),
            (253, true, false)
        );
        let shop = || HostPattern::Exact("shop.example".into());
        assert_eq!(host_and_path("Shop.example"), Ok((shop(), None)));
        assert_eq!(host_and_path("shop.example/"), Ok((shop(), Some("/".into()))));
        assert_eq!(host_and_path("shop.example/a/b/"), Ok((shop(), Some("/a/b".into()))));
        assert_eq!(path("/"), Ok("/".into()));
        assert_eq!(path("/a/"), Ok("/a".into()));
        for text in ["", "a", "//", "/a//", "/./a", "/a/..", "/a?b", "/a#b", "/a b", "/ä"] {
            assert!(path(text).is_err(), "{text}");
        }
    }
}
