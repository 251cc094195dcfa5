//! What a rule asks of a client before anything else of it is done: where it comes from, how often it has asked, and that its path is
//! no other spelling of one that is protected.

// What is read here is somebody else's.
#![cfg_attr(not(test), warn(clippy::indexing_slicing, clippy::arithmetic_side_effects, clippy::expect_used))]

use seaway_model::load_balancer::ClientKey;
use seaway_snapshot::RouteMatch;
use seaway_wire::http::{KnownHeader, Request};

use super::{rules::RequestView, serve::DownstreamClient, trusted_client::TrustedClientAddress};
use crate::{client_rates::RateLimitKey, running::ListenerConfig};

/// Why a rule denies a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RuleDenial {
    /// The address of the client is not allowed, or not known.
    Source,
    /// The client is over its rate limit; the seconds after which it may send a request again.
    Rate(u64),
    /// Members may take its path for one that another rule protects.
    Spelling,
}

/// Rules without ranges and limits cost two looks at what is not there.
pub(super) fn admit(
    client: &DownstreamClient,
    config: &ListenerConfig,
    found: RouteMatch,
    asks: TrustedClientAddress,
    seen: &RequestView<'_>,
) -> Result<(), RuleDenial> {
    let (rule, RequestView { head, request }) = (found.rule, *seen);
    if let Some(sources) = config.sources_of(rule)
        && (asks.is_hidden || !sources.admits(asks.ip.to_canonical()))
    {
        return Err(RuleDenial::Source);
    }
    for limit in config.rule(rule).map_or(&[][..], |rule| &rule.rates) {
        let value = match &limit.rate.key {
            ClientKey::Address => None,
            ClientKey::Header(name) => header(name.as_bytes(), head, request),
            ClientKey::Cookie(name) => cookie(name.as_bytes(), head, request),
        };
        let asking = value.map_or(RateLimitKey::Address(asks.ip.to_canonical()), RateLimitKey::Value);
        let rates = &client.context.shared.client_rates;
        rates.admit(limit, asking, client.context.now()).map_err(RuleDenial::Rate)?;
    }
    let followed = config.rule(rule).map(|rule| (found, rule));
    match followed.is_some_and(|it| config.routes.may_bypass_rule(seen, it, |number| config.rule(number))) {
        true => Err(RuleDenial::Spelling),
        false => Ok(()),
    }
}

/// Its value, if it is there once: of several, nobody knows which one a member would read.
pub(super) fn header<'h>(name: &[u8], head: &'h [u8], request: &Request) -> Option<&'h [u8]> {
    let fields = request.fields.iter();
    let named = fields.filter(|field| field.name.of(head).eq_ignore_ascii_case(name));
    only(named.map(|field| field.value.of(head).trim_ascii()))
}

/// The same of a cookie, whose name is told apart by case.
fn cookie<'h>(name: &[u8], head: &'h [u8], request: &Request) -> Option<&'h [u8]> {
    let fields = request.fields.iter().filter(|field| field.known == KnownHeader::Cookie);
    let pairs = fields.flat_map(|field| field.value.of(head).split(|byte| *byte == b';'));
    only(pairs.filter_map(|pair| pair.trim_ascii().strip_prefix(name)?.strip_prefix(b"=")))
}

fn only<'h>(mut values: impl Iterator<Item = &'h [u8]>) -> Option<&'h [u8]> {
    let value = values.next().filter(|value| !value.is_empty())?;
    values.next().is_none().then_some(value)
}

#[cfg(test)]
mod tests {
    use seaway_wire::http::{Limits, ReadProgress};

    use super::*;

    #[test]
    fn a_client_is_known_by_a_header_or_cookie_that_is_there_once() {
        for (fields, by_header, by_cookie) in [
            ("", None, None),
            ("X-Key: a\r\n", Some("a"), None),
            ("x-KEY:  a b \r\n", Some("a b"), None),
            ("X-Key:\r\n", None, None),
            ("X-Key: a\r\nX-Key: b\r\n", None, None),
            ("X-Key-2: a\r\n", None, None),
            ("Cookie: x-key=1; a=b\r\n", None, Some("1")),
            ("Cookie: a=b;x-key=1\r\n", None, Some("1")),
            ("Cookie: a=b\r\nCookie: x-key=1\r\n", None, Some("1")),
            ("Cookie: x-key=1; x-key=2\r\n", None, None),
            ("Cookie: x-key=1\r\nCookie: x-key=1\r\n", None, None),
            ("Cookie: X-Key=1; x-key2=1; x-key\r\n", None, None),
            ("Cookie: x-key=\r\n", None, None),
            ("Cookie: x-key==;\r\n", None, Some("=")),
        ] {
            let head = format!("GET / HTTP/1.1\r\nHost: a\r\n{fields}\r\n");
            let mut request = Request::default();
            assert_eq!(request.read(head.as_bytes(), &Limits::default()), ReadProgress::Whole, "{fields:?}");
            let (head, name) = (head.as_bytes(), &b"x-key"[..]);
            assert_eq!(header(name, head, &request), by_header.map(str::as_bytes), "{fields:?}");
            assert_eq!(cookie(name, head, &request), by_cookie.map(str::as_bytes), "{fields:?}");
        }
    }
}
