//! What a Secret holds.

use std::sync::Arc;

use seaway_model::{
    Kind, Name, Time,
    fact::{Secret, TLS_SECRET},
    load_balancer::{Certificate, HostPattern},
};
use secrecy::{ExposeSecret, SecretString};

use super::{
    passwords::{self, ReadUsers},
    pem,
    x509::{self, CertificateRole, ParsedCertificate},
};

/// An intermediate CA of the chain would be trusted as if the configuration named it.
const OF_ITS_CHAIN: &str = "tls.clients.authorities names the file of a certificate, which holds a CA certificate that is not self-signed: \
                            each client with a certificate of that CA would be let in. No client certificate is accepted, so none \
                            of these clients is served over TLS";

/// The key of a Secret with the users of `seaway.dev/basic-auth`, as ingress-nginx calls it.
pub(crate) const USERS: &str = "auth";

/// What one object holds.
#[derive(Debug, PartialEq)]
pub(crate) struct ObjectContent {
    pub(crate) certificate: Arc<Certificate>,
    pub(crate) users: Arc<ReadUsers>,
    /// Nothing, if it only vouches for others.
    pub(super) seen: Option<ParsedCertificate>,
    /// One of its authorities may sign certificates of others.
    pub(super) has_ca: bool,
}

impl ObjectContent {
    pub(super) fn without_users(&self) -> ObjectContent {
        let Certificate { chain, key, authorities, staple, .. } = &*self.certificate;
        let certificate = Certificate {
            chain: chain.clone(),
            key: key.clone(),
            authorities: authorities.clone(),
            staple: staple.clone(),
            users: Default::default(),
        };
        ObjectContent {
            certificate: Arc::new(certificate),
            users: Arc::default(),
            seen: self.seen.clone(),
            has_ca: self.has_ca,
        }
    }

    pub(super) fn is_certificate(&self) -> bool {
        !self.certificate.chain.is_empty() || !self.certificate.authorities.is_empty()
    }
}

/// A key that cannot be read, and why.
pub(super) type UnreadableKey = (&'static str, String);

/// Beside a certificate, authorities may stand that cannot be read: then those of `before` stay, and it is said.
pub(super) fn read(
    secret: &Secret,
    before: Option<&ObjectContent>,
) -> Result<(ObjectContent, Option<UnreadableKey>), UnreadableKey> {
    let text = |key: &str| secret.values.get(key).map(SecretString::expose_secret).unwrap_or_default();
    let (chain, authorities) = (text("tls.crt"), text("ca.crt"));
    let mut seen = None;
    if !chain.is_empty() || *secret.kind == *TLS_SECRET {
        let first = first_of(chain, "tls.crt")?;
        seen = Some(
            x509::read(&first)
                .ok_or(("tls.crt", "the first PEM block cannot be read as a certificate".to_owned()))?,
        );
        if !text("tls.key").contains("PRIVATE KEY-----") {
            return Err(("tls.key", "there is no PEM key".to_owned()));
        }
    }
    // A file has both parts where the configuration names it for both.
    let is_own_file = seen.is_some() && secret.object.kind == Kind::File;
    let (authorities, unread) = match authorities.is_empty() {
        true => (Name::default(), None),
        false if is_own_file && holds_intermediate(authorities) => {
            (Name::default(), Some((Certificate::OWN_FILE, OF_ITS_CHAIN.to_owned())))
        }
        false => match first_of(authorities, "ca.crt").and_then(|_| any_certificate(authorities)) {
            Ok(()) => (authorities.into(), None),
            Err(unread) if seen.is_none() => return Err(unread),
            Err(unread) => {
                (before.map(|it| it.certificate.authorities.clone()).unwrap_or_default(), Some(unread))
            }
        },
    };
    let key = secret.values.get("tls.key").filter(|_| seen.is_some()).cloned();
    let certificate = Certificate {
        chain: if seen.is_some() { pem::only_certificates(chain).into() } else { Name::default() },
        key: key.unwrap_or_else(|| String::new().into()),
        authorities,
        staple: secret.staple.clone(),
        // A copy for hosts gets nothing that it does not need.
        users: secret.values.get(USERS).filter(|_| seen.is_none()).cloned().unwrap_or_default(),
    };
    let text = certificate.users.expose_secret();
    let users = match before.filter(|it| it.certificate.users.expose_secret() == text) {
        Some(before) => before.users.clone(),
        None => Arc::new(passwords::read(text)),
    };
    let has_ca = parsed(&certificate.authorities).any(|signs| signs == Some(true));
    Ok((ObjectContent { certificate: Arc::new(certificate), users, seen, has_ca }, unread))
}

/// What a certificate says of itself, for whoever renews it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CertificateDates {
    pub names: Vec<HostPattern>,
    pub from: Time,
    pub until: Time,
}

/// Of the first in that PEM; nothing, if it cannot be read.
pub fn dates(pem: &str) -> Option<CertificateDates> {
    let ParsedCertificate { names, from, until } = x509::read(&first_of(pem, "tls.crt").ok()?)?;
    Some(CertificateDates { names, from, until })
}

/// By what its authority knows the first in that PEM (RFC 9773, section 4.1): the identifier of the authority's key, and its number.
pub fn identity(pem: &str) -> Option<(Vec<u8>, Vec<u8>)> {
    x509::identity(&first_of(pem, "tls.crt").ok()?)
}

/// Of each certificate, whether it may sign others; `None`: it cannot be read, and is passed over by who verifies.
fn parsed(text: &str) -> impl Iterator<Item = Option<bool>> + '_ {
    pem::certificates(text).map(|it| x509::signs(&it?))
}

fn holds_intermediate(text: &str) -> bool {
    let mut roles = pem::certificates(text).filter_map(|it| x509::role(&it?));
    roles.any(|it| it == CertificateRole::Intermediate)
}

fn any_certificate(text: &str) -> Result<(), UnreadableKey> {
    let is_one = parsed(text).any(|it| it.is_some());
    let why = || ("ca.crt", "no PEM block can be read as a certificate".to_owned());
    if is_one { Ok(()) } else { Err(why()) }
}

fn first_of(text: &str, key: &'static str) -> Result<Vec<u8>, UnreadableKey> {
    let first = pem::certificates(text).next();
    let first = first.ok_or_else(|| {
        let instead = match text {
            _ if text.contains("PRIVATE KEY-----") => ": it is a private key. Is it swapped with tls.key?",
            _ if text.contains("CERTIFICATE REQUEST-----") => {
                ": it is a request for a certificate (CSR), which an authority has to sign"
            }
            _ => "",
        };
        (key, format!("there is no PEM certificate{instead}"))
    })?;
    first.ok_or_else(|| (key, "the PEM is damaged".to_owned()))
}
