//! Whether a response is compressed for its client (RFC 9110, sections 8.4 and 12.5.3), and what that changes in its head.

// What is read here is somebody else's.
#![cfg_attr(not(test), warn(clippy::indexing_slicing, clippy::arithmetic_side_effects, clippy::expect_used))]

use seaway_model::load_balancer::{Compression, Rule};
use seaway_wire::http::{BodyFraming, Field, KnownHeader, Request, Response, Version};

use super::credentials;

/// What is compressed unless the Service says which types: text, and what nginx and Caddy name beside it.
const USUAL_TYPES: [&str; 20] = [
    "text/html",
    "text/plain",
    "text/css",
    "text/xml",
    "text/csv",
    "text/markdown",
    "text/javascript",
    "application/javascript",
    "application/x-javascript",
    "application/json",
    "application/ld+json",
    "application/manifest+json",
    "application/problem+json",
    "application/vnd.api+json",
    "application/xml",
    "application/xhtml+xml",
    "application/rss+xml",
    "application/atom+xml",
    "application/wasm",
    "image/svg+xml",
];

/// A shorter body is not worth it, where its length is known.
const LEAST: u64 = 1 << 10;

/// What a request says of it, and its Service.
#[derive(Clone, Copy)]
pub(super) struct CompressionNegotiation<'r> {
    by: &'r Compression,
    /// The client takes it, and nothing in the request forbids it.
    pub(super) is_taken: bool,
}

/// What becomes of one response.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum ContentCoding {
    #[default]
    AsItIs,
    /// The same, but another client may get it compressed.
    Varies,
    Gzip,
}

/// The changes to its head.
#[derive(Clone, Copy, Default)]
pub(super) struct CompressedHead<'h> {
    pub(super) coding: ContentCoding,
    etag: Option<&'h [u8]>,
    /// A response that is stored may have been coded, and have a weak tag.
    is_weak: bool,
    /// The member says already what it varies by.
    says_vary: bool,
}

impl<'r> CompressionNegotiation<'r> {
    /// `is_known`: the client has shown who it is, in a way that no field of the request tells.
    pub(super) fn of(
        by: &'r Compression,
        rule: &Rule,
        is_known: bool,
        head: &[u8],
        request: &Request,
    ) -> CompressionNegotiation<'r> {
        let is_guarded = is_known || !rule.auth.is_empty() || !rule.asks.is_empty();
        let names = || request.fields.iter().map(|field| (field.known, field.name.of(head)));
        let is_private = is_guarded
            || names()
                .any(|(known, name)| known == KnownHeader::Cookie || credentials::is_authorization(name));
        let is_plain = request.version == Version::Http11 && request.body != BodyFraming::Tunnel;
        // The client asks for a part, another protocol, or for what the member sends (RFC 9111, section 5.2.1.6).
        let forbids = request.fields.iter().any(|field| {
            let (name, value) = (field.name.of(head), field.value.of(head));
            field.known == KnownHeader::Upgrade
                || name.eq_ignore_ascii_case(b"range")
                || name.eq_ignore_ascii_case(b"cache-control") && is_final(value)
        });
        let is_taken =
            is_plain && !forbids && (by.private || !is_private) && takes_gzip(head, &request.fields);
        CompressionNegotiation { by, is_taken }
    }

    pub(super) fn coding<'h>(self, head: &'h [u8], response: &Response) -> CompressedHead<'h> {
        let mut coded = CompressedHead::default();
        if response.status == 304 {
            // It stands for the answer that is stored, which may have said so (RFC 9110, section 15.4.5).
            (coded.coding, coded.is_weak) = (ContentCoding::Varies, self.is_taken);
        }
        let (mut fits, mut is_private, mut may_change) = (false, false, true);
        for field in &response.fields {
            let (name, value) = (field.name.of(head), field.value.of(head));
            let is = |other: &[u8]| name.eq_ignore_ascii_case(other);
            if field.known == KnownHeader::SetCookie {
                is_private = true;
            } else if is(b"content-type") {
                fits = self.is_compressible(value);
            } else if is(b"vary") {
                coded.says_vary |=
                    items(value).any(|it| it == b"*" || it.eq_ignore_ascii_case(b"accept-encoding"));
            } else if is(b"etag") {
                coded.etag = Some(value);
            } else if is(b"cache-control") {
                may_change &= !is_final(value);
            } else if UNTOUCHED.iter().any(|it| is(it)) || field.known == KnownHeader::Trailer {
                may_change = false;
            }
        }
        let has_status = matches!(response.status, 200 | 203 | 403 | 404 | 410);
        let is_long = !matches!(response.body, BodyFraming::Length(length) if length < LEAST);
        if !(has_status && is_long && fits && may_change) {
            return coded;
        }
        let has_body =
            matches!(response.body, BodyFraming::Length(_) | BodyFraming::Chunked | BodyFraming::UntilClose);
        let is_coded = self.is_taken && has_body && (self.by.private || !is_private);
        coded.coding = if is_coded { ContentCoding::Gzip } else { ContentCoding::Varies };
        coded
    }

    fn is_compressible(self, content_type: &[u8]) -> bool {
        let essence = content_type.split(|byte| *byte == b';').next().unwrap_or_default().trim_ascii();
        let fits = |allowed: &str| match allowed.strip_suffix('*') {
            Some(start) => {
                essence.get(..start.len()).is_some_and(|it| it.eq_ignore_ascii_case(start.as_bytes()))
            }
            None => essence.eq_ignore_ascii_case(allowed.as_bytes()),
        };
        match self.by.types.is_empty() {
            true => USUAL_TYPES.iter().any(|it| fits(it)),
            false => self.by.types.iter().any(|it| fits(it)),
        }
    }
}

/// Coded already, a part of another whole, or signed as it is.
const UNTOUCHED: [&[u8]; 8] = [
    b"content-encoding",
    b"content-range",
    b"content-md5",
    b"digest",
    b"content-digest",
    b"repr-digest",
    b"signature",
    b"grpc-status",
];

impl CompressedHead<'_> {
    pub(super) fn is_coded(&self) -> bool {
        self.coding == ContentCoding::Gzip
    }

    /// Ranges of what is coded as it goes are not to be had, and it is not byte for byte what its tag stands for.
    pub(super) fn replaces(&self, name: &[u8]) -> bool {
        let weakens = self.is_coded() || self.is_weak;
        weakens && name.eq_ignore_ascii_case(b"etag")
            || self.is_coded() && name.eq_ignore_ascii_case(b"accept-ranges")
    }

    /// `has_own_tag`: the rule sets another one.
    pub(super) fn put_new(&self, out: &mut Vec<u8>, has_own_tag: impl FnOnce() -> bool) {
        if self.coding == ContentCoding::AsItIs {
            return;
        }
        if !self.says_vary {
            out.extend_from_slice(b"Vary: Accept-Encoding\r\n");
        }
        if !self.is_coded() && !self.is_weak {
            return;
        }
        if self.is_coded() {
            out.extend_from_slice(b"Content-Encoding: gzip\r\n");
        }
        if let Some(etag) = self.etag.filter(|_| !has_own_tag()) {
            let weak: &[u8] = if etag.starts_with(b"W/") { b"" } else { b"W/" };
            for part in [b"ETag: ", weak, etag, b"\r\n"] {
                out.extend_from_slice(part);
            }
        }
    }
}

/// What `Cache-Control` says of changes on the way.
fn is_final(value: &[u8]) -> bool {
    items(value).any(|it| it.eq_ignore_ascii_case(b"no-transform"))
}

/// The parts of a list.
fn items(value: &[u8]) -> impl Iterator<Item = &[u8]> {
    value.split(|byte| *byte == b',').map(<[u8]>::trim_ascii).filter(|it| !it.is_empty())
}

/// Whether gzip is acceptable, and not less welcome than the body as it is.
fn takes_gzip(head: &[u8], fields: &[Field]) -> bool {
    let (mut gzip, mut any, mut plain) = (None, None, None);
    let lists = fields.iter().filter(|it| it.name.of(head).eq_ignore_ascii_case(b"accept-encoding"));
    for item in lists.flat_map(|field| items(field.value.of(head))) {
        let mut parts = item.split(|byte| *byte == b';').map(<[u8]>::trim_ascii);
        let name = parts.next().unwrap_or_default();
        let weight = parts.next().map_or(1000, weight);
        let place = match name {
            b"*" => &mut any,
            _ if name.eq_ignore_ascii_case(b"gzip") || name.eq_ignore_ascii_case(b"x-gzip") => &mut gzip,
            _ if name.eq_ignore_ascii_case(b"identity") => &mut plain,
            _ => continue,
        };
        // Said twice, the first counts.
        *place = place.or(Some(weight));
    }
    let gzip = gzip.or(any).unwrap_or(0);
    gzip > 0 && plain.is_none_or(|plain| plain <= gzip)
}

/// In thousandths (RFC 9110, section 12.4.2); what is none asks for nothing.
fn weight(parameter: &[u8]) -> u32 {
    let digits = match parameter {
        [b'q' | b'Q', b'=', digits @ ..] => digits,
        _ => return 0,
    };
    let (whole, thousandths) = match digits {
        [whole] => (whole, &[][..]),
        [whole, b'.', rest @ ..] if rest.len() <= 3 => (whole, rest),
        _ => return 0,
    };
    if !thousandths.iter().all(u8::is_ascii_digit) {
        return 0;
    }
    let scale = [100, 10, 1];
    let parts =
        thousandths.iter().zip(scale).map(|(digit, scale)| u32::from(digit & 15).saturating_mul(scale));
    match whole {
        b'0' => parts.sum(),
        b'1' if thousandths.iter().all(|it| *it == b'0') => 1000,
        _ => 0,
    }
}

#[cfg(test)]
mod tests;
