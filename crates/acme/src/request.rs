//! The request for a certificate (PKCS #10, RFC 2986): one host name, and the key that it is to be for.

use crate::{AcmeError, Key, der};

/// `extensionRequest` of PKCS #9.
const EXTENSIONS: &[u8] = &[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 0x01, 0x09, 0x0e];
const ALTERNATIVE_NAMES: &[u8] = &[0x55, 0x1d, 0x11];
const ECDSA_WITH_SHA256: &[u8] = &[0x2a, 0x86, 0x48, 0xce, 0x3d, 0x04, 0x03, 0x02];
/// The attributes of a request.
const ATTRIBUTES: u8 = 0xa0;

/// In DER.
pub fn request(host: &str, key: &Key) -> Result<Vec<u8>, AcmeError> {
    let sequence = |parts: &[&[u8]]| der::value(der::SEQUENCE, parts);
    let object = |id: &[u8]| der::value(der::OBJECT, &[id]);
    let names = sequence(&[&der::value(der::DNS_NAME, &[host.as_bytes()])]);
    let extension = sequence(&[&object(ALTERNATIVE_NAMES), &der::value(der::OCTETS, &[&names])]);
    let wanted = der::value(der::SET, &[&sequence(&[&extension])]);
    let attributes = der::value(ATTRIBUTES, &[&sequence(&[&object(EXTENSIONS), &wanted])]);
    // Without a subject: names are in the extension (RFC 9525).
    let info =
        sequence(&[&der::value(der::INTEGER, &[&[0]]), &sequence(&[]), &key.public_info(), &attributes]);
    let signature = key.sign_certificate(&info)?;
    Ok(sequence(&[&info, &sequence(&[&object(ECDSA_WITH_SHA256)]), &der::bits(&signature)]))
}

#[cfg(test)]
pub(crate) mod tests {
    use aws_lc_rs::signature::{ECDSA_P256_SHA256_ASN1, UnparsedPublicKey};

    use super::*;

    /// The content of a value, and what follows it.
    pub(crate) fn inside(bytes: &[u8]) -> (&[u8], &[u8]) {
        let (length, head) = match bytes[1] {
            short @ 0..0x80 => (usize::from(short), 2),
            long => {
                let count = usize::from(long & 0x7f);
                (bytes[2..2 + count].iter().fold(0, |all, it| all << 8 | usize::from(*it)), 2 + count)
            }
        };
        (&bytes[head..head + length], &bytes[head + length..])
    }

    #[test]
    fn it_is_signed_by_its_key_and_names_the_host_alone() {
        let key = Key::generate().expect("a key");
        for host in ["shop.example".to_owned(), format!("{}.example", "long".repeat(40))] {
            let made = request(&host, &key).expect("a request");
            let (parts, rest) = inside(&made);
            assert!(rest.is_empty());
            let (_, after) = inside(parts);
            let info = &parts[..parts.len() - after.len()];
            let (_, signature) = inside(after);
            let (signature, rest) = inside(signature);
            assert!(rest.is_empty());
            let point = &key.public_info()[26..];
            let public = UnparsedPublicKey::new(&ECDSA_P256_SHA256_ASN1, point);
            public.verify(info, &signature[1..]).expect("it is signed by its key");
            let named = info.windows(host.len()).filter(|it| *it == host.as_bytes()).count();
            assert_eq!(named, 1);
        }
    }
}
