//! Fields, and those among them that mean something on the way.

use super::head::ByteRange;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Field {
    pub name: ByteRange,
    /// Without white space around it.
    pub value: ByteRange,
    pub known: KnownHeader,
    /// For the next station alone: not passed on (RFC 9110, section 7.6.1).
    pub hop: bool,
}

impl Field {
    /// By a name without an underscore: it cannot look like that of a known field.
    pub(super) fn plain(name: &[u8], at: ByteRange, value: ByteRange) -> Field {
        let known = KnownHeader::of(name);
        Field { name: at, value, known, hop: known.is_hop() }
    }

    pub(super) fn new(name: &[u8], at: ByteRange, value: ByteRange) -> Field {
        let known = KnownHeader::of(name);
        Field {
            name: at,
            value,
            known,
            hop: known.is_hop() || (known == KnownHeader::Other && looks_known(name)),
        }
    }
}

/// Whether such a field may come after a body: nothing may that frames, leads, or says whose it is (RFC 9110, section
/// 6.5.1).
pub fn may_trail(name: &[u8]) -> bool {
    KnownHeader::of(name) == KnownHeader::Other && !looks_known(name)
}

/// `Content_Length` is another field than `Content-Length`, but not to those who hand fields on as variables (CGI and
/// its heirs): they would hear from the client what only we may say.
fn looks_known(name: &[u8]) -> bool {
    const LONGEST: usize = 32;
    let mut plain = [0; LONGEST];
    let Some(plain) = plain.get_mut(..name.len()) else { return false };
    if !name.contains(&b'_') {
        return false;
    }
    for (to, from) in plain.iter_mut().zip(name) {
        *to = if *from == b'_' { b'-' } else { *from };
    }
    KnownHeader::of(plain) != KnownHeader::Other
}

macro_rules! known {
    ($($variant:ident = $name:literal),* $(,)?) => {
        /// Fields that a proxy heeds.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum KnownHeader {
            Other,
            $($variant),*
        }

        impl KnownHeader {
            /// By its name, in any case.
            pub fn of(name: &[u8]) -> KnownHeader {
                // Names of other lengths are ruled out at once.
                $(if name.len() == $name.len() && name.eq_ignore_ascii_case($name) {
                    return KnownHeader::$variant;
                })*
                KnownHeader::Other
            }

            pub fn name(self) -> Option<&'static [u8]> {
                match self {
                    KnownHeader::Other => None,
                    $(KnownHeader::$variant => Some($name)),*
                }
            }
        }
    };
}

known! {
    Host = b"host",
    Connection = b"connection",
    ContentLength = b"content-length",
    TransferEncoding = b"transfer-encoding",
    Cookie = b"cookie",
    SetCookie = b"set-cookie",
    Upgrade = b"upgrade",
    Expect = b"expect",
    Te = b"te",
    Trailer = b"trailer",
    KeepAlive = b"keep-alive",
    ProxyConnection = b"proxy-connection",
    Http2Settings = b"http2-settings",
    Via = b"via",
    Forwarded = b"forwarded",
    ForwardedFor = b"x-forwarded-for",
    ForwardedProto = b"x-forwarded-proto",
    ForwardedHost = b"x-forwarded-host",
    ForwardedPort = b"x-forwarded-port",
    RequestId = b"x-request-id",
    TraceParent = b"traceparent",
    ClientCert = b"client-cert",
    ClientCertChain = b"client-cert-chain",
}

impl KnownHeader {
    fn is_hop(self) -> bool {
        use KnownHeader::*;
        matches!(
            self,
            Connection | KeepAlive | ProxyConnection | Te | TransferEncoding | Upgrade | Http2Settings
        )
    }
}
