//! Certificates that the front door orders itself, from a certificate authority that speaks ACME (RFC 8555).

use std::{collections::BTreeMap, net::SocketAddr, path::PathBuf};

use serde::{Deserialize, Serialize};

use crate::name::{Kind, Name, ObjectRef};

/// Where certificates are ordered, and for whom.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Acme {
    /// The URL of the authority's directory.
    pub directory: Name,
    /// Whom the authority writes to.
    pub email: Option<Name>,
    /// CA certificates (PEM) that the directory's own certificate is checked with, if not those of this machine.
    pub authorities: Option<PathBuf>,
}

/// The certificate that a host name is to have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CertificateOrder {
    pub host: Name,
    pub acme: Acme,
    /// Where the front door answers in the open, and so what the authority asks for.
    pub answers_at: Vec<SocketAddr>,
}

/// What the authority asks the front door for, to see that the host name leads here (HTTP-01).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Challenge {
    pub host: Name,
    /// Bodies by token; none: it asks for nothing any more.
    pub answers: BTreeMap<Name, Name>,
}

/// What the certificate of a host name is called.
pub fn ordered_certificate(host: &Name) -> ObjectRef {
    ObjectRef::new(Kind::Certificate, "", host.clone())
}
