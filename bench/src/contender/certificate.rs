//! The one certificate that every contender shows: a P-256 key, signed by itself.

use anyhow::Result;
use rcgen::{CertificateParams, KeyPair, PKCS_ECDSA_P256_SHA256};

#[derive(Clone)]
pub struct Certificate {
    pub chain: String,
    pub key: String,
}

impl Certificate {
    pub fn of(name: &str) -> Result<Self> {
        let key = KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256)?;
        let chain = CertificateParams::new(vec![name.to_owned()])?.self_signed(&key)?.pem();
        Ok(Self { chain, key: key.serialize_pem() })
    }

    /// Both, as HAProxy and nginx read them from one file.
    pub fn pem(&self) -> String {
        [&self.chain[..], &self.key].concat()
    }
}
