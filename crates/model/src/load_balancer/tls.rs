//! TLS with clients.

use std::{collections::BTreeMap, fmt, sync::Arc};

use secrecy::{ExposeSecret, SecretString};

use super::{HostPattern, PoolId};
use crate::name::{Kind, Name, ObjectRef};

/// Certificates by the host name that a client asks for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TlsByName {
    /// For clients that ask for a name that nobody has, or for none. Several differ in their kind of key.
    pub default: Vec<ObjectRef>,
    /// What stays as it was is shared.
    pub by_name: BTreeMap<HostPattern, Arc<[ObjectRef]>>,
    /// Names for which TLS does not end here: the bytes go on, untouched, to one of these pools by weight.
    pub through: BTreeMap<HostPattern, Vec<(PoolId, u32)>>,
    /// Names that a certificate authority may check here (RFC 8737): what is shown to it for them, and to nobody else.
    pub validations: BTreeMap<Name, Arc<Certificate>>,
    pub clients: Option<ClientAuth>,
    /// Of single host names, where that is not what is said here for all.
    pub hosts: BTreeMap<HostPattern, HostTls>,
    pub profile: TlsProfile,
    /// `Strict-Transport-Security`, in seconds.
    pub hsts: Option<u32>,
}

impl TlsByName {
    /// Somebody shakes hands here.
    pub fn terminates_tls(&self) -> bool {
        !self.default.is_empty() || self.by_name.values().any(|it| !it.is_empty())
    }

    /// All whose certificates are needed, each once.
    pub fn objects(&self) -> Vec<&ObjectRef> {
        let of_hosts = self.hosts.values().filter_map(|host| host.clients.as_ref());
        let clients = self.clients.iter().chain(of_hosts).map(|clients| &clients.authorities);
        let named = self.by_name.values().flat_map(|it| it.iter());
        let mut objects: Vec<_> = self.default.iter().chain(named).chain(clients).collect();
        objects.sort_unstable();
        objects.dedup();
        objects
    }
}

/// How TLS is spoken with clients that ask for one host name.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct HostTls {
    pub clients: Option<ClientAuth>,
    pub profile: TlsProfile,
}

/// What a rule asks of the connection that a request comes by, where that is not what its listener says. The name in the
/// handshake decides how TLS is spoken, and a request on the same connection may name another host.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RuleTls {
    pub clients: Option<ClientAuth>,
    pub profile: Option<TlsProfile>,
    /// `Strict-Transport-Security`, in seconds; 0 is none.
    pub hsts: Option<u32>,
}

impl RuleTls {
    /// No request is served without a certificate.
    pub fn requires_certificates(&self) -> bool {
        self.clients.as_ref().is_some_and(|clients| clients.required)
    }
}

/// Clients show a certificate of one of these authorities.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ClientAuth {
    /// Who holds them.
    pub authorities: ObjectRef,
    /// Who shows none is refused.
    pub required: bool,
}

/// TLS with members.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct BackendTls {
    /// What is asked for, and what their certificates have to be for, whatever they were resolved from.
    pub name: Option<Name>,
    /// The same for members that have no name of their own.
    pub usual: Name,
    pub trust: Trust,
}

/// How the certificate of a member is verified.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Trust {
    /// By the CA certificates of the machine that serves.
    SystemRoots,
    /// By these CA certificates, as PEM; if there are none, no member is trusted.
    CaBundle(Name),
    /// Not at all: TLS then protects from eavesdropping, not from a man in the middle.
    InsecureSkipVerify,
}

/// As Mozilla names them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum TlsProfile {
    /// TLS 1.3 alone.
    Modern,
    /// TLS 1.2 as well, with forward secrecy.
    #[default]
    Intermediate,
}

/// A certificate with its key as an object holds them: PEM, not looked into yet.
#[derive(Clone)]
pub struct Certificate {
    /// The certificate itself first, then those that vouch for it. Empty where only authorities are held.
    pub chain: Name,
    /// Empty without a certificate of its own.
    pub key: SecretString,
    /// Those that vouch for others (`ca.crt`); may be empty.
    pub authorities: Name,
    /// An OCSP answer, in DER.
    pub staple: Option<Box<[u8]>>,
    /// Users with hashes of their passwords (htpasswd), where no certificate is held; may be empty.
    pub users: SecretString,
}

impl Certificate {
    /// In the place of a key: authorities of clients that stand in the file of a certificate.
    pub const OWN_FILE: &str = "the certificate's own file";

    /// What to do about one that cannot be used: of a Secret by its keys, of files by what stands in them. `is_kept`: one that was
    /// read before is served.
    pub fn fix(object: &ObjectRef, key: &str, is_kept: bool) -> String {
        let (what, kept) = match (object.kind, key) {
            (Kind::File, Self::OWN_FILE) => {
                return "Write the CA that signs the certificates of clients into a file of its own, and name that file in \
                        tls.clients.authorities."
                    .to_owned();
            }
            (Kind::File, "ca.crt") => (
                "Write the authorities' certificates into the file, as PEM.",
                "The previous certificates stay in use.",
            ),
            (Kind::File, _) => (
                "Write the PEM certificate, and then those between it and its authority, into the file that cert names in \
                 seaway.yaml; its PEM key belongs into the file that key names, or, without one, into the same.",
                "The previous certificate stays in use.",
            ),
            (_, "ca.crt") => (
                "Put the PEM certificates of the authorities into ca.crt.",
                "The previous certificates stay in use.",
            ),
            _ => (
                "Put a PEM certificate chain into tls.crt and its PEM key into tls.key.",
                "The previous certificate stays in use.",
            ),
        };
        if is_kept { format!("{what} {kept}") } else { what.to_owned() }
    }
}

impl PartialEq for Certificate {
    fn eq(&self, other: &Certificate) -> bool {
        self.chain == other.chain
            && self.authorities == other.authorities
            && self.staple == other.staple
            && self.key.expose_secret() == other.key.expose_secret()
            && self.users.expose_secret() == other.users.expose_secret()
    }
}

impl Eq for Certificate {}

impl fmt::Debug for Certificate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Certificate({} bytes)", self.chain.len())
    }
}
