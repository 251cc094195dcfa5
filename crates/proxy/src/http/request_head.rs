//! The head that a member gets: the client's, with what is for one hop taken out and what we know of the client put in.

use std::ops::DerefMut;

use seaway_model::load_balancer::{HttpOptions, TracePolicy};
use seaway_wire::http::{BodyFraming, Field, KnownHeader, Request, Version};

use super::{
    heads::{ForwardedClient, HeaderModifier},
    loop_marker::{self, LoopMarker},
    request_id::{self, RequestIds},
};

/// Where the path begins to be another: so many bytes of it are replaced by these.
#[derive(Clone, Copy, Default)]
pub(super) struct UrlRewrite<'a> {
    pub(super) replaced: usize,
    pub(super) by: &'a [u8],
    /// Instead of the host that the client named.
    pub(super) host: Option<&'a [u8]>,
}

/// What is told besides what the client says itself.
pub(super) struct AddedHeaders<'a> {
    pub(super) told: &'a ForwardedClient,
    /// The client's certificate, where those vouch for it whom the rule believes.
    pub(super) certificate: Option<&'a [u8]>,
    pub(super) options: &'a HttpOptions,
    /// The name of this request; empty where nobody wants one.
    pub(super) id: &'a [u8],
    /// The version of HTTP that the client speaks.
    pub(super) version: &'static str,
    /// That it has come through here.
    pub(super) loop_marker: &'a LoopMarker,
    /// The member gets `Connection: close`: if it obeys, it takes nothing behind the body for a request.
    pub(super) closes: bool,
}

/// The version that `Via` names.
pub(super) fn version_of(request: &Request, h2: bool) -> &'static str {
    match (h2, request.version) {
        (true, _) => "2",
        (false, Version::Http10) => "1.0",
        (false, Version::Http11) => "1.1",
    }
}

pub(super) fn put(out: &mut Vec<u8>, parts: &[&[u8]]) {
    parts.iter().for_each(|part| out.extend_from_slice(part));
}

impl AddedHeaders<'_> {
    pub(super) fn question(
        &self,
        out: &mut Vec<u8>,
        head: &[u8],
        request: &Request,
        rewritten: UrlRewrite<'_>,
        changes: &impl HeaderModifier,
        mut request_ids: impl DerefMut<Target = RequestIds>,
    ) {
        put(out, &[request.method_name.of(head), b" "]);
        target(out, head, request, rewritten);
        let host = rewritten.host.unwrap_or(request.authority.of(head));
        put(out, &[b" HTTP/1.1\r\nHost: ", host, b"\r\n"]);
        let traced = request_id::is_traced(head, request);
        let mut trailers = false;
        for field in &request.fields {
            let value = field.value.of(head);
            match field.known {
                KnownHeader::Te => {
                    trailers |= value.to_ascii_lowercase().windows(8).any(|it| it == b"trailers");
                    continue;
                }
                // Without a body there is nothing to expect (RFC 9110, section 10.1.1).
                KnownHeader::Expect if request.body == BodyFraming::None => continue,
                KnownHeader::TraceParent if !traced => continue,
                _ if self.is_set_by_proxy(field) => continue,
                KnownHeader::Other if loop_marker::is_loop_marker(field.name.of(head)) && !field.hop => {}
                // Nobody changes how long a body is.
                KnownHeader::ContentLength => {}
                KnownHeader::Other if !traced && request_id::is_trace_state(field.name.of(head)) => continue,
                _ if field.hop || changes.replaces(head, field) => continue,
                _ => {}
            }
            put(out, &[field.name.of(head), b": ", value, b"\r\n"]);
        }
        self.forwarded(out, head, request, changes);
        if !self.id.is_empty() && !changes.changes_name(b"x-request-id") {
            put(out, &[b"X-Request-Id: ", self.id, b"\r\n"]);
        }
        if self.options.trace == TracePolicy::Make && !traced {
            out.extend_from_slice(b"traceparent: ");
            request_ids.put_trace(out);
            out.extend_from_slice(b"\r\n");
        }
        if let Some(name) = &self.options.via {
            put(out, &[b"Via: ", self.version.as_bytes(), b" ", name.as_bytes(), b"\r\n"]);
        }
        put(out, &[b"CDN-Loop: ", self.loop_marker.bytes(), b"\r\n"]);
        if let Some(certificate) = self.certificate {
            put(out, &[b"Client-Cert: ", certificate, b"\r\n"]);
        }
        changes.put_new(out);
        if request.body == BodyFraming::Chunked {
            put(out, &[b"Transfer-Encoding: chunked\r\n"]);
        }
        if request.upgrade {
            let protocol = request.field(KnownHeader::Upgrade).unwrap_or_default();
            put(out, &[b"Connection: upgrade\r\nUpgrade: ", protocol.of(head), b"\r\n"]);
        } else {
            match (trailers, self.closes) {
                (false, false) => {}
                (true, false) => put(out, &[b"Connection: te\r\nTE: trailers\r\n"]),
                (false, true) => put(out, &[b"Connection: close\r\n"]),
                (true, true) => put(out, &[b"Connection: te, close\r\nTE: trailers\r\n"]),
            }
        }
        put(out, &[b"\r\n"]);
    }

    /// What the client says of this itself does not go on as it stands: it is told anew, or not believed.
    pub(super) fn is_set_by_proxy(&self, field: &Field) -> bool {
        match field.known {
            // Nobody says of himself that he has shown a certificate.
            KnownHeader::Host | KnownHeader::ClientCert | KnownHeader::ClientCertChain => true,
            KnownHeader::ForwardedFor => true,
            KnownHeader::RequestId => self.options.request_id,
            KnownHeader::Forwarded => !self.told.believed || self.options.forwarded,
            KnownHeader::ForwardedProto | KnownHeader::ForwardedHost | KnownHeader::ForwardedPort => {
                !self.told.believed
            }
            _ => false,
        }
    }

    /// Who the client is: what trusted proxies say of it, and ourselves behind them.
    pub(super) fn forwarded(
        &self,
        out: &mut Vec<u8>,
        head: &[u8],
        request: &Request,
        changes: &impl HeaderModifier,
    ) {
        let ForwardedClient { peer, port, believed, .. } = self.told;
        if !changes.changes_name(b"x-forwarded-for") {
            put(out, &[b"X-Forwarded-For: "]);
            self.put_before(out, head, request, KnownHeader::ForwardedFor);
            put(out, &[peer, b"\r\n"]);
        }
        let scheme = self.told.scheme();
        let host = request.authority.of(head);
        for (known, name, value) in [
            (KnownHeader::ForwardedProto, "X-Forwarded-Proto", scheme.as_bytes()),
            (KnownHeader::ForwardedHost, "X-Forwarded-Host", host),
            (KnownHeader::ForwardedPort, "X-Forwarded-Port", port),
        ] {
            let said = *believed && request.field(known).is_some();
            if !said && !changes.changes_name(name.as_bytes()) {
                put(out, &[name.as_bytes(), b": ", value, b"\r\n"]);
            }
        }
        if self.options.forwarded && !changes.changes_name(b"forwarded") {
            put(out, &[b"Forwarded: "]);
            self.put_before(out, head, request, KnownHeader::Forwarded);
            // What has a colon is quoted (RFC 7239, section 6).
            let for_ = if peer.contains(&b':') { [&b"\"["[..], b"]\""] } else { [&b""[..], b""] };
            put(out, &[b"for=", for_[0], peer, for_[1]]);
            if !host.is_empty() {
                put(out, &[b";host=\"", host, b"\""]);
            }
            put(out, &[b";proto=", scheme.as_bytes(), b"\r\n"]);
        }
    }

    /// All that trusted proxies say in fields of that name, in their order.
    fn put_before(&self, out: &mut Vec<u8>, head: &[u8], request: &Request, known: KnownHeader) {
        let fields = request.fields.iter().filter(|field| self.told.believed && field.known == known);
        for value in fields.map(|field| field.value.of(head)).filter(|value| !value.is_empty()) {
            put(out, &[value, b", "]);
        }
    }
}

pub(super) fn target(out: &mut Vec<u8>, head: &[u8], request: &Request, rewritten: UrlRewrite<'_>) {
    let whole = request.path_and_query().of(head);
    if whole.is_empty() && request.body == BodyFraming::Tunnel {
        return out.extend_from_slice(request.authority.of(head));
    }
    let rest = whole.get(rewritten.replaced..).unwrap_or_default();
    out.extend_from_slice(rewritten.by);
    // The path is never empty, and never gets two slashes where it is joined.
    let ends = rewritten.by.ends_with(b"/");
    match rest {
        [b'/', after @ ..] if ends => out.extend_from_slice(after),
        [b'/' | b'*', ..] => out.extend_from_slice(rest),
        _ => {
            if rewritten.by.is_empty() {
                out.push(b'/');
            }
            out.extend_from_slice(rest);
        }
    }
}
