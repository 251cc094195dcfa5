//! How long a body is (RFC 9112, section 6), and what a connection may be used for after it.

use super::{
    bytes,
    field::{Field, KnownHeader},
    head::{HeadError, Version},
};

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum BodyFraming {
    #[default]
    None,
    Length(u64),
    Chunked,
    /// Of an answer: all that comes until the connection ends.
    UntilClose,
    /// No HTTP any more, in either direction.
    Tunnel,
}

/// What the fields of a head say of the message.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct FramingHeaders {
    pub(super) length: Option<u64>,
    pub(super) chunked: bool,
    pub(super) close: bool,
    pub(super) keep_alive: bool,
    /// `Connection: upgrade` with an `Upgrade`.
    pub(super) upgrade: bool,
}

impl FramingHeaders {
    /// Reads all fields that frame, and marks those that `Connection` names as for one hop.
    #[allow(clippy::indexing_slicing, reason = "`at` runs over the fields, and others are marked meanwhile")]
    pub(super) fn of(
        head: &[u8],
        fields: &mut [Field],
        version: Version,
    ) -> Result<FramingHeaders, HeadError> {
        let mut says = FramingHeaders::default();
        let mut codings = 0_usize;
        let (mut upgrades, mut hides, mut wants_upgrade) = (false, false, false);
        for at in 0..fields.len() {
            let value = fields[at].value.of(head);
            match fields[at].known {
                KnownHeader::ContentLength => {
                    // Two that agree are one too many: somebody before us may have used another.
                    if says.length.is_some() {
                        return Err(HeadError::bad("more than one Content-Length"));
                    }
                    says.length =
                        Some(bytes::number(value).ok_or(HeadError::bad("an invalid Content-Length"))?);
                }
                KnownHeader::TransferEncoding => {
                    codings = codings.saturating_add(1);
                    says.chunked = value.eq_ignore_ascii_case(b"chunked");
                    if !says.chunked {
                        // Known codings in front of it are merely not done here.
                        let mut all = bytes::list(value);
                        let last = all.by_ref().last().unwrap_or_default();
                        let proper =
                            last.eq_ignore_ascii_case(b"chunked") && bytes::list(value).all(bytes::is_token);
                        return Err(if proper {
                            HeadError::new(501, "a transfer coding other than chunked")
                        } else {
                            HeadError::bad("a Transfer-Encoding that does not end with chunked")
                        });
                    }
                }
                KnownHeader::Upgrade => {
                    upgrades |= !value.is_empty();
                    // HTTP/2 in a tunnel: requests in it would follow nobody's rules (it is also obsolete: RFC 9113, 3.1).
                    hides |= bytes::list(value).any(|it| it.eq_ignore_ascii_case(b"h2c"));
                }
                KnownHeader::Connection => {
                    for token in bytes::list(value) {
                        if token.eq_ignore_ascii_case(b"close") {
                            says.close = true;
                        } else if token.eq_ignore_ascii_case(b"keep-alive") {
                            says.keep_alive = true;
                        } else if token.eq_ignore_ascii_case(b"upgrade") {
                            wants_upgrade = true;
                        } else {
                            name_hop(head, fields, token);
                        }
                    }
                }
                _ => {}
            }
        }
        if codings > 1 {
            return Err(HeadError::bad("more than one Transfer-Encoding"));
        }
        if says.chunked && says.length.is_some() {
            return Err(HeadError::bad("Content-Length with Transfer-Encoding"));
        }
        if says.chunked && version == Version::Http10 {
            return Err(HeadError::bad("Transfer-Encoding in HTTP/1.0"));
        }
        says.upgrade = upgrades && !hides && wants_upgrade && version == Version::Http11;
        Ok(says)
    }

    pub(super) fn persists(self, version: Version) -> bool {
        !self.close && (version == Version::Http11 || self.keep_alive)
    }
}

/// A field that is named in `Connection` goes no further. What frames, routes or identifies stays: a client does not
/// get rid of it by naming it.
fn name_hop(head: &[u8], fields: &mut [Field], token: &[u8]) {
    for field in fields {
        if field.known == KnownHeader::Other && field.name.of(head).eq_ignore_ascii_case(token) {
            field.hop = true;
        }
    }
}
