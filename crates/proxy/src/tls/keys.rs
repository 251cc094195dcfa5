//! A certificate and its key, looked into.

use std::sync::Arc;

use rustls::{
    SignatureScheme,
    crypto::aws_lc_rs::sign::any_supported_type,
    pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject},
    sign::CertifiedKey,
};
use seaway_model::load_balancer::Certificate;

/// Of one object.
#[derive(Debug)]
pub(crate) struct Keys {
    /// What they were read from.
    pub(crate) source: Arc<Certificate>,
    chain: Vec<CertificateDer<'static>>,
    /// Authorities have none.
    certified: Option<Arc<CertifiedKey>>,
}

/// Whose fault it is, is clear: the object's.
#[derive(Debug, thiserror::Error)]
pub enum KeyError {
    #[error("the certificate is no PEM: {0}")]
    Chain(rustls::pki_types::pem::Error),
    #[error("there is no certificate in it")]
    Empty,
    #[error("the key is no PEM: {0}")]
    Key(rustls::pki_types::pem::Error),
    #[error("the key is of no kind that TLS knows: {0}")]
    Kind(rustls::Error),
    #[error("the key is not that of the certificate")]
    Mismatch,
}

impl Keys {
    pub(crate) fn read(certificate: &Arc<Certificate>) -> Result<Keys, KeyError> {
        let source = certificate.clone();
        use secrecy::ExposeSecret;
        let chain = CertificateDer::pem_slice_iter(certificate.chain.as_bytes());
        let chain: Vec<_> = chain.collect::<Result<_, _>>().map_err(KeyError::Chain)?;
        if chain.is_empty() {
            return Err(KeyError::Empty);
        }
        let key = certificate.key.expose_secret();
        if key.trim().is_empty() {
            return Ok(Keys { source, chain, certified: None });
        }
        let key = PrivateKeyDer::from_pem_slice(key.as_bytes()).map_err(KeyError::Key)?;
        let key = any_supported_type(&key).map_err(KeyError::Kind)?;
        let mut certified = CertifiedKey::new(chain.clone(), key);
        match certified.keys_match() {
            // Some keys do not tell; a handshake would.
            Ok(()) | Err(rustls::Error::InconsistentKeys(rustls::InconsistentKeys::Unknown)) => {}
            Err(_) => return Err(KeyError::Mismatch),
        }
        certified.ocsp = certificate.staple.as_ref().map(|staple| staple.to_vec());
        Ok(Keys { source, chain, certified: Some(Arc::new(certified)) })
    }

    pub(super) fn chain(&self) -> &[CertificateDer<'static>] {
        &self.chain
    }

    /// If the client can verify its signatures.
    pub(super) fn fitting(&self, offered: &[SignatureScheme]) -> Option<Arc<CertifiedKey>> {
        self.certified.as_ref().filter(|it| it.key.choose_scheme(offered).is_some()).cloned()
    }
}
