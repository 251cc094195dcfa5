//! What a host name is proven with by TLS-ALPN-01 (RFC 8737): a certificate that vouches for itself, and says the answer.

use crate::{AcmeError, Key, der};

const COMMON_NAME: &[u8] = &[0x55, 0x04, 0x03];
const ALTERNATIVE_NAMES: &[u8] = &[0x55, 0x1d, 0x11];
/// `id-pe-acmeIdentifier`.
const ACME_IDENTIFIER: &[u8] = &[0x2b, 0x06, 0x01, 0x05, 0x05, 0x07, 0x01, 0x1f];
const ECDSA_WITH_SHA256: &[u8] = &[0x2a, 0x86, 0x48, 0xce, 0x3d, 0x04, 0x03, 0x02];
/// Those who look at it do not look at its dates; the second is the end of time (RFC 5280, section 4.1.2.5).
const FROM: &[u8] = b"200101000000Z";
const UNTIL: &[u8] = b"99991231235959Z";

/// For that name, with the hash of what answers the challenge: chain and key, in PEM.
pub fn validation_certificate(host: &str, answer: &[u8; 32]) -> Result<(String, String), AcmeError> {
    let key = Key::generate()?;
    let sequence = |parts: &[&[u8]]| der::value(der::SEQUENCE, parts);
    let object = |id: &[u8]| der::value(der::OBJECT, &[id]);
    let algorithm = sequence(&[&object(ECDSA_WITH_SHA256)]);
    let common = sequence(&[&object(COMMON_NAME), &der::value(der::UTF8, &[b"ACME challenge"])]);
    let name = sequence(&[&der::value(der::SET, &[&common])]);
    let dates = sequence(&[&der::value(der::UTC_TIME, &[FROM]), &der::value(der::TIME, &[UNTIL])]);
    let names = sequence(&[&der::value(der::DNS_NAME, &[host.as_bytes()])]);
    let names = sequence(&[&object(ALTERNATIVE_NAMES), &der::value(der::OCTETS, &[&names])]);
    let critical = der::value(der::BOOLEAN, &[&[0xff]]);
    let answer = der::value(der::OCTETS, &[&der::value(der::OCTETS, &[answer])]);
    let answer = sequence(&[&object(ACME_IDENTIFIER), &critical, &answer]);
    let extensions = der::value(der::EXTENSIONS, &[&sequence(&[&names, &answer])]);
    let version = der::value(der::VERSION, &[&der::value(der::INTEGER, &[&[2]])]);
    let number = der::value(der::INTEGER, &[&[1]]);
    let info =
        sequence(&[&version, &number, &algorithm, &name, &dates, &name, &key.public_info(), &extensions]);
    let signature = key.sign_certificate(&info)?;
    let certificate = sequence(&[&info, &algorithm, &der::bits(&signature)]);
    Ok((der::pem("CERTIFICATE", &certificate), key.to_pem()))
}

#[cfg(test)]
mod tests {
    use aws_lc_rs::signature::{ECDSA_P256_SHA256_ASN1, UnparsedPublicKey};

    use super::*;
    use crate::request::tests::inside;

    #[test]
    fn it_is_signed_by_its_own_key_and_has_the_answer_once_and_critical() {
        let (answer, host) = ([7; 32], "shop.example");
        let (chain, key) = validation_certificate(host, &answer).expect("a certificate");
        let key = Key::from_pem(&key).expect("a key");
        let der = der::from_pem("CERTIFICATE", &chain).expect("PEM");
        let (parts, rest) = inside(&der);
        assert!(rest.is_empty());
        let (_, after) = inside(parts);
        let info = &parts[..parts.len() - after.len()];
        let (_, signature) = inside(after);
        let (signature, _) = inside(signature);
        let point = &key.public_info()[26..];
        let public = UnparsedPublicKey::new(&ECDSA_P256_SHA256_ASN1, point);
        public.verify(info, &signature[1..]).expect("it is signed by its key");
        let times = |what: &[u8]| info.windows(what.len()).filter(|it| *it == what).count();
        // The extension of RFC 8737, section 3, to its last byte.
        let head = [0x06, 8, 0x2b, 6, 1, 5, 5, 7, 1, 0x1f, 1, 1, 0xff, 4, 34, 4, 32];
        assert_eq!(times(&[&head[..], &answer].concat()), 1);
        assert_eq!(times(host.as_bytes()), 1);
    }
}
