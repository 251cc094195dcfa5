//! Keys (ECDSA on P-256), of accounts and of certificates.

use aws_lc_rs::{
    digest,
    rand::SystemRandom,
    signature::{ECDSA_P256_SHA256_ASN1_SIGNING, ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, KeyPair},
};
use base64::{Engine, prelude::BASE64_URL_SAFE_NO_PAD};
use serde_json::{Value, json};

use crate::{AcmeError, der};

/// It has no debug text but its name: it is a secret.
pub struct Key {
    /// PKCS #8.
    der: Vec<u8>,
    for_requests: EcdsaKeyPair,
    for_certificates: EcdsaKeyPair,
}

impl Key {
    pub fn generate() -> Result<Key, AcmeError> {
        let pair = EcdsaKeyPair::generate(&ECDSA_P256_SHA256_ASN1_SIGNING).map_err(|_| no_key("make"))?;
        let der = pair.to_pkcs8v1().map_err(|_| no_key("write"))?;
        Key::of(der.as_ref().to_vec())
    }

    pub fn from_pem(pem: &str) -> Result<Key, AcmeError> {
        let der = der::from_pem("PRIVATE KEY", pem).ok_or_else(|| no_key("read"))?;
        Key::of(der)
    }

    fn of(der: Vec<u8>) -> Result<Key, AcmeError> {
        let pair = |how| EcdsaKeyPair::from_pkcs8(how, &der).map_err(|_| no_key("read"));
        let (for_requests, for_certificates) =
            (pair(&ECDSA_P256_SHA256_FIXED_SIGNING)?, pair(&ECDSA_P256_SHA256_ASN1_SIGNING)?);
        Ok(Key { der, for_requests, for_certificates })
    }

    pub fn to_pem(&self) -> String {
        der::pem("PRIVATE KEY", &self.der)
    }

    /// The uncompressed point: 4, x, y.
    fn point(&self) -> &[u8] {
        self.for_requests.public_key().as_ref()
    }

    pub(crate) fn public_info(&self) -> Vec<u8> {
        const EC: &[u8] = &[0x2a, 0x86, 0x48, 0xce, 0x3d, 0x02, 0x01];
        const P256: &[u8] = &[0x2a, 0x86, 0x48, 0xce, 0x3d, 0x03, 0x01, 0x07];
        let kind = [der::value(der::OBJECT, &[EC]), der::value(der::OBJECT, &[P256])].concat();
        der::value(der::SEQUENCE, &[&der::value(der::SEQUENCE, &[&kind]), &der::bits(self.point())])
    }

    pub(crate) fn jwk(&self) -> Value {
        let half = |at: usize| {
            let bytes = self.point().get(at..at.saturating_add(32)).unwrap_or_default();
            BASE64_URL_SAFE_NO_PAD.encode(bytes)
        };
        json!({"crv": "P-256", "kty": "EC", "x": half(1), "y": half(33)})
    }

    /// What a challenge is answered with (RFC 8555, section 8.1).
    pub fn authorization(&self, token: &str) -> String {
        // serde_json writes keys in their order, as the thumbprint wants them (RFC 7638).
        let thumbprint = digest::digest(&digest::SHA256, self.jwk().to_string().as_bytes());
        format!("{token}.{}", BASE64_URL_SAFE_NO_PAD.encode(thumbprint))
    }

    pub(crate) fn sign_request(&self, message: &[u8]) -> Result<Vec<u8>, AcmeError> {
        let signed = self.for_requests.sign(&SystemRandom::new(), message).map_err(|_| no_key("use"))?;
        Ok(signed.as_ref().to_vec())
    }

    pub(crate) fn sign_certificate(&self, message: &[u8]) -> Result<Vec<u8>, AcmeError> {
        let signed = self.for_certificates.sign(&SystemRandom::new(), message).map_err(|_| no_key("use"))?;
        Ok(signed.as_ref().to_vec())
    }
}

fn no_key(what: &str) -> AcmeError {
    AcmeError::Key(format!("cannot {what} the ACME key (ECDSA P-256, PKCS #8)"))
}

impl std::fmt::Debug for Key {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Key")
    }
}

#[cfg(test)]
mod tests {
    use aws_lc_rs::signature::{ECDSA_P256_SHA256_FIXED, UnparsedPublicKey};

    use super::*;

    #[test]
    fn a_key_is_the_same_after_it_was_written_and_read() {
        let key = Key::generate().expect("a key");
        let pem = key.to_pem();
        let again = Key::from_pem(&pem).expect("it is read");
        assert_eq!((again.to_pem(), again.jwk()), (pem.clone(), key.jwk()));
        assert!(pem.lines().all(|line| line.len() <= 64), "{pem}");
        let signature = again.sign_request(b"message").expect("it signs");
        let public = UnparsedPublicKey::new(&ECDSA_P256_SHA256_FIXED, key.point());
        public.verify(b"message", &signature).expect("it is the same key");
        for wrong in ["", "-----BEGIN PRIVATE KEY-----\n!\n-----END PRIVATE KEY-----\n"] {
            Key::from_pem(wrong).expect_err(wrong);
        }
    }

    #[test]
    fn a_thumbprint_is_of_the_members_in_their_order() {
        let key = Key::generate().expect("a key");
        let text = key.jwk().to_string();
        let place = |name: &str| text.find(&format!("\"{name}\":")).expect("it is there");
        assert!(
            place("crv") < place("kty") && place("kty") < place("x") && place("x") < place("y"),
            "{text}"
        );
        assert!(!text.contains(' '), "{text}");
        assert!(key.authorization("abc").starts_with("abc."));
    }
}
