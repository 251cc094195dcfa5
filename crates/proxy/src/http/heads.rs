//! What is changed in heads on their way (RFC 9110, section 7.6).

use std::{io::Write, net::SocketAddr};

use base64::{Engine, engine::general_purpose::STANDARD};
use seaway_model::load_balancer::HeaderChange;
use seaway_wire::http::{BodyFraming, Field, KnownHeader, Response, Version};

use super::local_reply::reason;

/// The client, in the words that members are told.
pub(super) struct ForwardedClient {
    pub(super) peer: Vec<u8>,
    pub(super) port: Vec<u8>,
    scheme: &'static str,
    /// The certificate that the client has shown, as RFC 9440 writes it.
    pub(super) certificate: Option<Vec<u8>>,
    /// What the client says of those before it is believed.
    pub(super) believed: bool,
}

impl ForwardedClient {
    pub(super) fn new(peer: SocketAddr, port: u16, tls: bool) -> ForwardedClient {
        let ip = peer.ip().to_canonical();
        ForwardedClient {
            peer: ip.to_string().into_bytes(),
            port: port.to_string().into_bytes(),
            scheme: if tls { "https" } else { "http" },
            certificate: None,
            believed: false,
        }
    }

    pub(super) fn with_certificate(mut self, der: &[u8]) -> ForwardedClient {
        self.certificate = Some(format!(":{}:", STANDARD.encode(der)).into_bytes());
        self
    }

    pub(super) fn scheme(&self) -> &'static str {
        self.scheme
    }
}

/// What a rule does to fields. Those that frame or are for one hop are nobody's to change.
pub(super) trait HeaderModifier {
    fn changes(&self) -> impl Iterator<Item = &HeaderChange>;

    /// This field does not go on as it is.
    fn replaces(&self, head: &[u8], field: &Field) -> bool {
        self.is_changed(head, field)
    }

    fn is_changed(&self, head: &[u8], field: &Field) -> bool {
        self.changes_name(field.name.of(head))
    }

    fn changes_name(&self, name: &[u8]) -> bool {
        self.changes().any(|change| {
            let mut gone = change.remove.iter().chain(change.set.iter().map(|(name, _)| name));
            gone.any(|it| it.as_bytes().eq_ignore_ascii_case(name))
        })
    }

    /// The body goes on compressed.
    fn is_coded(&self) -> bool {
        false
    }

    fn put_new(&self, out: &mut Vec<u8>) {
        self.put_changes(out);
    }

    fn put_changes(&self, out: &mut Vec<u8>) {
        for (name, value) in self.changes().flat_map(|change| change.set.iter().chain(&change.add)) {
            for part in [name.as_bytes(), b": ", value.as_bytes(), b"\r\n"] {
                out.extend_from_slice(part);
            }
        }
    }
}

/// How an answer's body goes on to the client.
pub(super) struct BodyForwarding {
    pub(super) chunked: bool,
    /// The client's connection may go on after it.
    pub(super) persists: bool,
}

/// The head that the client gets.
pub(super) fn answer(
    out: &mut Vec<u8>,
    head: &[u8],
    response: &Response,
    version: Version,
    persists: bool,
    changes: &impl HeaderModifier,
) -> BodyForwarding {
    // A Vec takes all that is written to it.
    let _ = write!(out, "HTTP/1.1 {} ", response.status);
    match response.reason.of(head) {
        [] => out.extend_from_slice(reason(response.status).as_bytes()),
        words => out.extend_from_slice(words),
    }
    out.extend_from_slice(b"\r\n");
    // How long it is is not known, or nothing is to be said of it.
    let is_unsized = response.status < 200 || response.status == 204 || changes.is_coded();
    for field in &response.fields {
        let frames = field.known == KnownHeader::ContentLength;
        if field.hop || (is_unsized && frames) || (!frames && changes.replaces(head, field)) {
            continue;
        }
        for part in [field.name.of(head), b": ", field.value.of(head), b"\r\n"] {
            out.extend_from_slice(part);
        }
    }
    changes.put_new(out);
    // An end that only the end of the connection tells would cost the client its connection.
    let endless =
        changes.is_coded() || matches!(response.body, BodyFraming::Chunked | BodyFraming::UntilClose);
    let chunked = endless && version == Version::Http11;
    let tunnel = response.body == BodyFraming::Tunnel;
    let persists = persists && !tunnel && (!endless || chunked);
    if chunked {
        out.extend_from_slice(b"Transfer-Encoding: chunked\r\n");
    }
    if response.status == 101 {
        out.extend_from_slice(b"Connection: upgrade\r\n");
        let upgrade = response.fields.iter().filter(|field| field.known == KnownHeader::Upgrade);
        for field in upgrade {
            for part in [b"Upgrade: ", field.value.of(head), b"\r\n"] {
                out.extend_from_slice(part);
            }
        }
    } else if !persists && !tunnel && response.status >= 200 {
        out.extend_from_slice(b"Connection: close\r\n");
    } else if version == Version::Http10 && response.status >= 200 {
        out.extend_from_slice(b"Connection: keep-alive\r\n");
    }
    out.extend_from_slice(b"\r\n");
    BodyForwarding { chunked, persists }
}
