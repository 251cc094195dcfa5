//! Why something was not done, as far as the authority or the network says.

use std::time::Duration;

use crate::dns::DnsError;

#[derive(Debug, thiserror::Error)]
pub enum AcmeError {
    /// The other side was not reached, or its answer did not come whole.
    #[error("{url} cannot be reached: {why}")]
    Unreachable { url: String, why: String },
    /// The authority refuses (RFC 8555, section 6.7).
    #[error("{}", describe(.kind, .detail, .status))]
    Refused { status: u16, kind: String, detail: String, retry_after: Option<Duration> },
    #[error("unexpected answer of the ACME server at {url}: {why}")]
    Unexpected { url: String, why: String },
    #[error("{0}")]
    Key(String),
    /// The authority has nothing to do with it.
    #[error("{0}")]
    Dns(DnsError),
}

impl AcmeError {
    pub fn is(&self, kind: &str) -> bool {
        matches!(self, AcmeError::Refused { kind: it, .. } if it == kind)
    }

    /// It may go well soon, with nothing changed here.
    pub fn is_transient(&self) -> bool {
        match self {
            AcmeError::Unreachable { .. } => true,
            AcmeError::Dns(error) => error.is_transient(),
            AcmeError::Refused { status, .. } => *status >= 500 || self.is_rate_limit(),
            _ => false,
        }
    }

    pub fn is_rate_limit(&self) -> bool {
        matches!(self, AcmeError::Refused { status: 429, .. })
            || self.is("urn:ietf:params:acme:error:rateLimited")
    }

    /// When the authority wants to be asked again.
    pub fn retry_after(&self) -> Option<Duration> {
        match self {
            AcmeError::Refused { retry_after, .. } => *retry_after,
            _ => None,
        }
    }
}

fn describe(kind: &str, detail: &str, status: &u16) -> String {
    match (kind, detail) {
        ("", "") => format!("the certificate authority answered {status}"),
        ("", detail) => format!("the certificate authority answered {status}: {detail}"),
        (kind, "") => format!("the certificate authority answered: {kind}"),
        (kind, detail) => format!("the certificate authority answered: {detail} ({kind})"),
    }
}
