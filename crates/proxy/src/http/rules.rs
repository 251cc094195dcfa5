//! What a rule says, done to a request and to its answer.

use seaway_model::load_balancer::{Filter, HeaderChange, PathMatch, Redirect, Rule};
use seaway_snapshot::{RequestParts, RouteMatch};
use seaway_wire::http::{Field, KnownHeader, Request};

use super::{
    compression::CompressedHead,
    cors, credentials, forward_auth,
    heads::{ForwardedClient, HeaderModifier},
    request_head::{UrlRewrite, put},
    serve::DownstreamClient,
    sticky::StickySession,
    trusted_client,
};

/// A request as rules look at it.
#[derive(Clone, Copy)]
pub(super) struct RequestView<'a> {
    pub(super) head: &'a [u8],
    pub(super) request: &'a Request,
}

impl RequestParts for RequestView<'_> {
    fn host(&self) -> &[u8] {
        self.request.authority.of(self.head)
    }

    fn path(&self) -> &[u8] {
        self.request.path().of(self.head)
    }

    fn method(&self) -> &[u8] {
        self.request.method_name.of(self.head)
    }

    fn query(&self) -> &[u8] {
        self.request.query().of(self.head)
    }

    fn header(&self, name: &[u8]) -> Option<&[u8]> {
        let mut fields = self.request.fields.iter();
        let field = fields.find(|field| field.name.of(self.head).eq_ignore_ascii_case(name))?;
        Some(field.value.of(self.head))
    }
}

/// What is done to a request's fields.
pub(super) struct RequestChanges<'r> {
    pub(super) rule: &'r Rule,
    pub(super) sticky: Option<&'r StickySession>,
    /// Lines that those say who have agreed to it.
    pub(super) granted: &'r [u8],
    /// Its rule asks who the client is.
    pub(super) is_guarded: bool,
}

/// What is done to an answer's fields.
pub(super) struct ResponseChanges<'r> {
    pub(super) rule: &'r Rule,
    /// More lines: that this host is to be asked over TLS, what other origins may do.
    pub(super) lines: &'r str,
    pub(super) sticky: Option<&'r StickySession>,
    /// Lines by which the client keeps its member.
    pub(super) cookies: &'r str,
    /// What we call ourselves, if there, and the version of HTTP that the member speaks.
    pub(super) via: Option<(&'r str, &'static str)>,
    pub(super) coded: CompressedHead<'r>,
}

/// Lines that every answer to this request gets. Mostly none, which costs nothing.
pub(super) fn lines(rule: &Rule, asked: &impl RequestParts, client: &DownstreamClient) -> String {
    let mut lines = String::new();
    let of_all = client.downstream.listener_tls.as_ref();
    let of_rule = rule.tls.as_ref().and_then(|it| it.hsts).filter(|_| of_all.is_some());
    if let Some(seconds) = of_rule {
        if seconds > 0 {
            lines.push_str(&format!("Strict-Transport-Security: max-age={seconds}\r\n"));
        }
    } else if let Some(hsts) = of_all.and_then(|listener_tls| listener_tls.hsts.as_deref()) {
        for part in ["Strict-Transport-Security: ", hsts, "\r\n"] {
            lines.push_str(part);
        }
    }
    if let Some((cors, origin)) = cors::of(rule, asked) {
        cors::for_answer(cors, &origin, &mut lines);
    }
    lines
}

pub(super) struct NoResponseChanges;

impl ResponseChanges<'_> {
    /// The rule removes this field, sets it, or adds one.
    pub(super) fn sets(&self, name: &[u8]) -> bool {
        let mut added = self.changes().flat_map(|change| &change.add);
        self.changes_name(name) || added.any(|(it, _)| it.as_bytes().eq_ignore_ascii_case(name))
    }
}

impl RequestChanges<'_> {
    fn sticky(&self) -> Option<&StickySession> {
        self.sticky.filter(|it| it.changes_cookies())
    }

    /// Passwords, and what only those may say who have agreed to the request.
    fn is_of_guards(&self, name: &[u8]) -> bool {
        credentials::is_authorization(name) && credentials::are_removed(self.rule)
            || forward_auth::is_granted(&self.rule.asks, name)
    }
}

impl HeaderModifier for RequestChanges<'_> {
    fn replaces(&self, head: &[u8], field: &Field) -> bool {
        (field.known == KnownHeader::Cookie && self.sticky().is_some())
            || (self.is_guarded && self.is_of_guards(field.name.of(head)))
            || self.is_changed(head, field)
    }

    fn put_new(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(self.granted);
        if let Some(sticky) = self.sticky().filter(|_| !self.changes_name(b"cookie")) {
            sticky.put_cookies(out);
        }
        self.put_changes(out);
    }

    fn changes(&self) -> impl Iterator<Item = &HeaderChange> {
        self.rule.filters.iter().filter_map(|filter| match filter {
            Filter::RequestHeaders(change) => Some(change),
            _ => None,
        })
    }
}

impl HeaderModifier for ResponseChanges<'_> {
    fn put_new(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(self.lines.as_bytes());
        out.extend_from_slice(self.cookies.as_bytes());
        if let Some((name, version)) = self.via {
            put(out, &[b"Via: ", version.as_bytes(), b" ", name.as_bytes(), b"\r\n"]);
        }
        self.coded.put_new(out, || self.changes_name(b"etag"));
        self.put_changes(out);
    }

    /// What a member says of other origins is not added to what the rule says.
    fn replaces(&self, head: &[u8], field: &Field) -> bool {
        const CORS: &[u8] = b"access-control-";
        let name = field.name.of(head);
        let is_cors = name.get(..CORS.len()).is_some_and(|start| start.eq_ignore_ascii_case(CORS));
        (is_cors && self.lines.contains("Access-Control-"))
            || self.sticky.is_some_and(|sticky| sticky.replaces(head, field))
            || self.coded.replaces(name)
            || self.is_changed(head, field)
    }

    fn is_coded(&self) -> bool {
        self.coded.is_coded()
    }

    fn changes(&self) -> impl Iterator<Item = &HeaderChange> {
        self.rule.filters.iter().filter_map(|filter| match filter {
            Filter::ResponseHeaders(change) => Some(change),
            _ => None,
        })
    }
}

impl HeaderModifier for NoResponseChanges {
    fn changes(&self) -> impl Iterator<Item = &HeaderChange> {
        std::iter::empty()
    }
}

/// What a rule changes in the target.
pub(super) fn rewritten<'r>(rule: &'r Rule, found: RouteMatch, asked: &impl RequestParts) -> UrlRewrite<'r> {
    let mut rewritten = UrlRewrite::default();
    for filter in &rule.filters {
        match filter {
            Filter::RewritePrefix(by) => {
                // Where the target has no path, the `/` that it stands for was found.
                let replaced = found.prefix.min(asked.path().len());
                (rewritten.replaced, rewritten.by) = (replaced, by.as_bytes());
            }
            Filter::RewritePath(by) => {
                (rewritten.replaced, rewritten.by) = (asked.path().len(), by.as_bytes());
            }
            Filter::RewriteHost(host) => rewritten.host = Some(host.as_bytes()),
            _ => {}
        }
    }
    rewritten
}

/// Where a redirect sends the client: what it does not name stays as it was asked for.
pub(super) fn redirected(
    redirect: &Redirect,
    asked: &RequestView<'_>,
    found: RouteMatch,
    told: &ForwardedClient,
) -> String {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let asked_by = match trusted_client::asks_securely(told, asked.head, asked.request) {
        true => "https",
        false => "http",
    };
    let scheme = redirect.scheme.as_deref().unwrap_or(asked_by);
    let (host, asked_port) = split_port(asked.host());
    let host = redirect.host.as_deref().map_or_else(|| text(host), str::to_owned);
    let usual = if scheme == "https" { 443 } else { 80 };
    // A redirect to another scheme means that scheme's own port.
    let port = redirect.port.unwrap_or(match &redirect.scheme {
        Some(_) => usual,
        None => asked_port.unwrap_or(usual),
    });
    let path = match &redirect.path {
        None => text(asked.path()),
        Some(PathMatch::Exact(path) | PathMatch::Regex(path)) => path.to_string(),
        Some(PathMatch::Prefix(prefix)) => {
            let rest = text(asked.path().get(found.prefix..).unwrap_or_default());
            match (prefix.trim_end_matches('/'), rest.trim_start_matches('/')) {
                (prefix, "") if !prefix.is_empty() => prefix.to_owned(),
                (prefix, rest) => format!("{prefix}/{rest}"),
            }
        }
    };
    let path = if path.is_empty() { "/".to_owned() } else { path };
    let port = if port == usual { String::new() } else { format!(":{port}") };
    let query = match asked.query() {
        [] => String::new(),
        query => format!("?{}", text(query)),
    };
    format!("{scheme}://{host}{port}{path}{query}")
}

fn split_port(authority: &[u8]) -> (&[u8], Option<u16>) {
    let colon = authority.iter().rposition(|byte| *byte == b':').filter(|_| !authority.ends_with(b"]"));
    match colon {
        Some(at) => {
            let (host, port) = authority.split_at_checked(at).unwrap_or((authority, &[]));
            let port = port.get(1..).and_then(|it| std::str::from_utf8(it).ok());
            (host, port.and_then(|port| port.parse().ok()))
        }
        None => (authority, None),
    }
}
