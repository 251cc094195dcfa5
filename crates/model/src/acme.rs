//! Certificates that the front door orders itself, from a certificate authority that speaks ACME (RFC 8555).

use std::{collections::BTreeMap, net::SocketAddr, path::PathBuf, sync::Arc};

use serde::{Deserialize, Serialize};

use crate::{
    load_balancer::Certificate,
    name::{Kind, Name, ObjectRef},
};

/// What a wildcard begins with.
pub const WILDCARD: &str = "*.";

/// Where certificates are ordered, and for whom.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Acme {
    /// The URL of the authority's directory.
    pub directory: Name,
    /// Whom the authority writes to.
    pub email: Option<Name>,
    /// CA certificates (PEM) that the directory's own certificate is checked with, if not those of this machine.
    pub authorities: Option<PathBuf>,
    pub binding: Option<AccountBinding>,
    /// For all names, wildcards aside; nothing: HTTP-01.
    pub challenge: Option<ChallengeType>,
    pub dns: Option<DnsUpdates>,
}

/// An account that was made elsewhere, and that ours is to belong to (RFC 8555, section 7.3.4).
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct AccountBinding {
    pub key_id: Name,
    /// In base64url.
    pub hmac_file: PathBuf,
}

/// How the authority sees that a host name is ours.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ChallengeType {
    /// It asks port 80 for a path (RFC 8555, section 8.3).
    Http01,
    /// It shakes hands at port 443 (RFC 8737).
    TlsAlpn01,
    /// It asks DNS for a record (section 8.4). Only this proves a wildcard.
    Dns01,
}

impl ChallengeType {
    /// As the protocol calls it.
    pub fn as_str(self) -> &'static str {
        match self {
            ChallengeType::Http01 => "http-01",
            ChallengeType::TlsAlpn01 => "tls-alpn-01",
            ChallengeType::Dns01 => "dns-01",
        }
    }
}

/// A name server that takes dynamic updates (RFC 2136), signed by TSIG.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct DnsUpdates {
    pub server: SocketAddr,
    pub key: DnsKey,
    /// Nothing is changed outside of these; none: in all that the server is asked about.
    pub zones: Vec<Name>,
    /// The authority looks only once these answer, too.
    pub secondaries: Vec<SocketAddr>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct DnsKey {
    pub name: Name,
    pub algorithm: DnsKeyAlgorithm,
    pub secret_file: PathBuf,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum DnsKeyAlgorithm {
    HmacSha256,
    HmacSha512,
}

impl DnsUpdates {
    /// The zone of that name by the configuration, which says `None` where the server is to be asked.
    pub fn zone_of(&self, name: &str) -> Option<&Name> {
        let is_within = |zone: &&Name| {
            name == zone.as_str() || name.strip_suffix(zone.as_str()).is_some_and(|it| it.ends_with('.'))
        };
        self.zones.iter().filter(is_within).max_by_key(|it| it.len())
    }

    pub fn may_update_name(&self, name: &str) -> bool {
        self.zones.is_empty() || self.zone_of(name).is_some()
    }
}

/// A record that was added, or was about to be, and that is to be removed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DnsRecord {
    pub server: SocketAddr,
    pub key: DnsKey,
    pub zone: Name,
    pub name: Name,
    pub value: Name,
}

/// Where the authority looks for the record of a host name (RFC 8555, section 8.4).
pub fn record_name(host: &str) -> Name {
    format!("_acme-challenge.{}", host.strip_prefix(WILDCARD).unwrap_or(host)).into()
}

/// The certificate that a host name is to have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CertificateOrder {
    /// A wildcard begins with `*.`.
    pub host: Name,
    pub acme: Acme,
    /// `None`: it cannot be proven any more. Nothing is ordered, and what is stored is shown on.
    pub challenge: Option<ChallengeType>,
    /// Where the front door answers what the authority asks for: in the open, or by TLS.
    pub answers_at: Vec<SocketAddr>,
}

/// What the authority asks the front door for, to see that the host name leads here.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Challenge {
    pub host: Name,
    /// Of HTTP-01: bodies by token; none: it asks for nothing any more.
    pub answers: BTreeMap<Name, Name>,
    /// Of TLS-ALPN-01. It is written nowhere.
    #[serde(skip)]
    pub validation: Option<Arc<Certificate>>,
}

/// What the certificate of a host name is called.
pub fn ordered_certificate(host: &Name) -> ObjectRef {
    ObjectRef::new(Kind::Certificate, "", host.clone())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_is_in_the_longest_zone_that_is_named_and_in_no_other() {
        let key = DnsKey {
            name: "seaway".into(),
            algorithm: DnsKeyAlgorithm::HmacSha256,
            secret_file: PathBuf::from("tsig.key"),
        };
        let zones = vec!["shop.example".into(), "eu.shop.example".into()];
        let server = SocketAddr::from(([192, 0, 2, 53], 53));
        let updates = DnsUpdates { server, key, zones, secondaries: Vec::new() };
        for (host, zone) in [
            ("shop.example", Some("shop.example")),
            ("*.shop.example", Some("shop.example")),
            ("a.eu.shop.example", Some("eu.shop.example")),
            ("bishop.example", None),
            ("example", None),
        ] {
            let name = record_name(host);
            assert_eq!(updates.zone_of(&name).map(Name::as_str), zone, "{name}");
            assert_eq!(updates.may_update_name(&name), zone.is_some(), "{name}");
        }
        assert!(DnsUpdates { zones: Vec::new(), ..updates }.may_update_name("_acme-challenge.any.example"));
    }
}
