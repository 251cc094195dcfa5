//! The client's address and scheme, as trusted proxies before us say them (`X-Forwarded-For`, `Forwarded`).

// What is read here is somebody else's.
#![cfg_attr(not(test), warn(clippy::indexing_slicing, clippy::arithmetic_side_effects, clippy::expect_used))]

use std::net::{IpAddr, SocketAddr};

use ipnet::IpNet;
use seaway_wire::http::{KnownHeader, Request};

use super::heads::ForwardedClient;

/// Who asks, as far as proxies of ours say it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct TrustedClientAddress {
    /// The last address that is known of it.
    pub(super) ip: IpAddr,
    /// One of our proxies wrote something else than an address (`unknown`): `ip` is that proxy's, and the client may be anybody.
    pub(super) is_hidden: bool,
}

/// The last one of `X-Forwarded-For` that is no proxy of ours: whatever stands before it, anybody may have written. A proxy
/// that names nobody asks for itself, as its own health checks do.
pub(super) fn client(
    peer: IpAddr,
    head: &[u8],
    request: &Request,
    trusted: &[IpNet],
) -> TrustedClientAddress {
    let mut client = TrustedClientAddress { ip: peer, is_hidden: false };
    let fields = request.fields.iter().rev().filter(|field| field.known == KnownHeader::ForwardedFor);
    for told in fields.flat_map(|field| field.value.of(head).rsplit(|byte| *byte == b',')) {
        if !trusted.iter().any(|range| range.contains(&client.ip)) {
            break;
        }
        let Some(before) = address(told.trim_ascii()) else {
            client.is_hidden = true;
            break;
        };
        client.ip = before;
    }
    client
}

/// Whether the client itself asked over TLS.
pub(super) fn asks_securely(told: &ForwardedClient, head: &[u8], request: &Request) -> bool {
    let before = request.field(KnownHeader::ForwardedProto).filter(|_| told.believed);
    before.map_or(told.scheme() == "https", |it| it.of(head).eq_ignore_ascii_case(b"https"))
}

/// With a port or without.
fn address(text: &[u8]) -> Option<IpAddr> {
    let text = std::str::from_utf8(text).ok()?;
    let bare = text.strip_prefix('[').and_then(|it| it.strip_suffix(']')).unwrap_or(text);
    let ip = bare.parse().or_else(|_| text.parse().map(|at: SocketAddr| at.ip()));
    ip.ok().map(|ip: IpAddr| ip.to_canonical())
}

#[cfg(test)]
mod tests {
    use seaway_wire::http::{Limits, ReadProgress};

    use super::*;

    #[test]
    fn the_client_is_the_last_that_is_no_proxy_of_ours() {
        let trusted: Vec<IpNet> = vec!["10.0.0.0/8".parse().unwrap(), "::1/128".parse().unwrap()];
        for (peer, told, expected) in [
            ("192.0.2.9", "X-Forwarded-For: 198.51.100.1\r\n", "192.0.2.9"),
            ("10.0.0.1", "", "10.0.0.1"),
            ("10.0.0.1", "X-Forwarded-For: 198.51.100.1\r\n", "198.51.100.1"),
            ("10.0.0.1", "X-Forwarded-For: 203.0.113.7, 198.51.100.1\r\n", "198.51.100.1"),
            ("10.0.0.1", "X-Forwarded-For: 198.51.100.1, 10.0.0.2\r\n", "198.51.100.1"),
            ("10.0.0.1", "X-Forwarded-For: 198.51.100.1\r\nX-Forwarded-For: 10.0.0.2\r\n", "198.51.100.1"),
            ("10.0.0.1", "X-Forwarded-For: 10.0.0.3, 10.0.0.2\r\n", "10.0.0.3"),
            ("10.0.0.1", "X-Forwarded-For: unknown, 10.0.0.2\r\n", "10.0.0.2"),
            ("10.0.0.1", "X-Forwarded-For: unknown\r\n", "10.0.0.1"),
            ("::1", "X-Forwarded-For: [2001:db8::7]:443\r\n", "2001:db8::7"),
            ("::1", "X-Forwarded-For: [2001:db8::7]\r\n", "2001:db8::7"),
            ("::1", "X-Forwarded-For: 198.51.100.1:99\r\n", "198.51.100.1"),
            ("::1", "X-Forwarded-For: ::ffff:198.51.100.1\r\n", "198.51.100.1"),
        ] {
            let head = format!("GET / HTTP/1.1\r\nHost: a\r\n{told}\r\n");
            let mut request = Request::default();
            assert_eq!(request.read(head.as_bytes(), &Limits::default()), ReadProgress::Whole);
            let found = client(peer.parse().unwrap(), head.as_bytes(), &request, &trusted);
            let is_hidden = told.contains("unknown");
            let expected = TrustedClientAddress { ip: expected.parse().unwrap(), is_hidden };
            assert_eq!(found, expected, "{peer} {told}");
        }
    }
}
