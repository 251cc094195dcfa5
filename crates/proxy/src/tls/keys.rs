//! A certificate and its key, looked into.

use std::sync::Arc;

use rustls::{
    RootCertStore, SignatureScheme,
    crypto::aws_lc_rs::sign::any_supported_type,
    pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject},
    sign::CertifiedKey,
};
use seaway_model::load_balancer::Certificate;
use secrecy::ExposeSecret;

/// Of one object.
#[derive(Debug)]
pub(crate) struct LoadedCertificate {
    /// What they were read from.
    pub(crate) source: Arc<Certificate>,
    /// Who only vouches for others has none.
    certified: Option<Arc<CertifiedKey>>,
}

/// Whose fault it is, is clear: the object's.
#[derive(Debug, thiserror::Error)]
pub enum KeyError {
    #[error("the certificate is not valid PEM: {0}")]
    Chain(rustls::pki_types::pem::Error),
    #[error("there is no certificate in it")]
    Empty,
    #[error("the key is not valid PEM: {0}")]
    Key(rustls::pki_types::pem::Error),
    #[error("the key is of a type that TLS does not support: {0}")]
    Kind(rustls::Error),
    #[error("the key does not belong to the certificate")]
    Mismatch,
    #[error(
        "the chain is in the wrong order: the key belongs to certificate {0} of it, and the server's own certificate comes first"
    )]
    Order(usize),
    #[error(
        "the key is encrypted, which Seaway does not support: decrypt it with openssl pkey -in KEY -out NEW"
    )]
    Encrypted,
    #[error(
        "the certificate cannot be used, as with X.509 version 1, which openssl writes without -extfile: {0}"
    )]
    Certificate(rustls::Error),
}

impl LoadedCertificate {
    pub(crate) fn read(certificate: &Arc<Certificate>) -> Result<LoadedCertificate, KeyError> {
        let source = certificate.clone();
        if certificate.chain.is_empty() && !certificate.authorities.is_empty() {
            certificates(&certificate.authorities)?;
            return Ok(LoadedCertificate { source, certified: None });
        }
        let chain = certificates(&certificate.chain)?;
        let pem = certificate.key.expose_secret();
        if pem.contains("Proc-Type: 4,ENCRYPTED") || pem.contains("BEGIN ENCRYPTED PRIVATE KEY") {
            return Err(KeyError::Encrypted);
        }
        let key = PrivateKeyDer::from_pem_slice(pem.as_bytes());
        let key = any_supported_type(&key.map_err(KeyError::Key)?).map_err(KeyError::Kind)?;
        let mut certified = CertifiedKey::new(chain, key);
        match certified.keys_match() {
            // Some keys do not tell; a handshake would.
            Ok(()) | Err(rustls::Error::InconsistentKeys(rustls::InconsistentKeys::Unknown)) => {}
            Err(rustls::Error::InconsistentKeys(_)) => return Err(mismatch(&certified)),
            Err(error) => return Err(KeyError::Certificate(error)),
        }
        certified.ocsp = certificate.staple.as_ref().map(|staple| staple.to_vec());
        Ok(LoadedCertificate { source, certified: Some(Arc::new(certified)) })
    }

    /// Those who vouch for others.
    pub(super) fn authorities(&self) -> Vec<CertificateDer<'static>> {
        // They were read once without a fault.
        certificates(&self.source.authorities).unwrap_or_default()
    }

    /// If the client can verify its signatures.
    pub(super) fn fitting(&self, offered: &[SignatureScheme]) -> Option<Arc<CertifiedKey>> {
        self.certified.as_ref().filter(|it| it.key.choose_scheme(offered).is_some()).cloned()
    }
}

/// Whether the key belongs to another certificate of the chain.
fn mismatch(certified: &CertifiedKey) -> KeyError {
    let is_own = |it: &CertificateDer<'static>| {
        CertifiedKey::new(vec![it.clone()], certified.key.clone()).keys_match().is_ok()
    };
    match certified.cert.iter().position(is_own) {
        Some(index) => KeyError::Order(index.saturating_add(1)),
        None => KeyError::Mismatch,
    }
}

fn certificates(pem: &str) -> Result<Vec<CertificateDer<'static>>, KeyError> {
    let all = CertificateDer::pem_slice_iter(pem.as_bytes()).collect::<Result<Vec<_>, _>>();
    all.map_err(KeyError::Chain).and_then(|all| if all.is_empty() { Err(KeyError::Empty) } else { Ok(all) })
}

/// Whether each certificate of authorities in this PEM can be read, for those who only look.
pub fn look_at_authorities(pem: &str) -> Result<(), KeyError> {
    let mut roots = RootCertStore::empty();
    certificates(pem)?.into_iter().try_for_each(|it| roots.add(it)).map_err(KeyError::Certificate)
}

/// Whether a certificate can be used, for those who only look.
pub fn look_at(certificate: &Arc<Certificate>) -> Result<(), KeyError> {
    LoadedCertificate::read(certificate).map(drop)
}
