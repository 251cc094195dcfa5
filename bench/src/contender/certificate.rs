//! Certificates that contenders show: P-256 keys, signed by themselves.

use anyhow::Result;
use rcgen::{CertificateParams, KeyPair, PKCS_ECDSA_P256_SHA256};

#[derive(Clone)]
pub struct Certificate {
    pub chain: String,
    pub key: String,
    /// As it is shown.
    pub der: Vec<u8>,
}

impl Certificate {
    pub fn of(name: &str) -> Result<Self> {
        let key = KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256)?;
        let made = CertificateParams::new(vec![name.to_owned()])?.self_signed(&key)?;
        Ok(Self { chain: made.pem(), key: key.serialize_pem(), der: made.der().to_vec() })
    }

    /// Both, as HAProxy and nginx read them from one file.
    pub fn pem(&self) -> String {
        [&self.chain[..], &self.key].concat()
    }
}
