//! The few parts of DER (X.690) that a request for a certificate is made of.

use base64::{Engine, prelude::BASE64_STANDARD};

pub(crate) const INTEGER: u8 = 0x02;
pub(crate) const BITS: u8 = 0x03;
pub(crate) const OCTETS: u8 = 0x04;
pub(crate) const OBJECT: u8 = 0x06;
pub(crate) const SEQUENCE: u8 = 0x30;
pub(crate) const SET: u8 = 0x31;
pub(crate) const BOOLEAN: u8 = 0x01;
pub(crate) const UTF8: u8 = 0x0c;
pub(crate) const UTC_TIME: u8 = 0x17;
pub(crate) const TIME: u8 = 0x18;
/// In a list of names.
pub(crate) const DNS_NAME: u8 = 0x82;
/// Of a certificate.
pub(crate) const VERSION: u8 = 0xa0;
pub(crate) const EXTENSIONS: u8 = 0xa3;

/// A value of that type, made of these parts.
pub(crate) fn value(tag: u8, parts: &[&[u8]]) -> Vec<u8> {
    let content = parts.concat();
    let mut out = vec![tag];
    match u8::try_from(content.len()) {
        Ok(short @ 0..0x80) => out.push(short),
        _ => {
            let length = content.len().to_be_bytes();
            let bytes: Vec<u8> = length.into_iter().skip_while(|it| *it == 0).collect();
            out.push(0x80 | u8::try_from(bytes.len()).unwrap_or(0));
            out.extend(bytes);
        }
    }
    out.extend(content);
    out
}

/// Whole bytes as bits.
pub(crate) fn bits(bytes: &[u8]) -> Vec<u8> {
    value(BITS, &[&[0], bytes])
}

pub(crate) fn pem(what: &str, der: &[u8]) -> String {
    let text = BASE64_STANDARD.encode(der);
    let mut pem = format!("-----BEGIN {what}-----\n");
    for line in text.as_bytes().chunks(64) {
        pem.extend(line.iter().map(|it| char::from(*it)));
        pem.push('\n');
    }
    pem.push_str(&format!("-----END {what}-----\n"));
    pem
}

/// The first such block.
pub(crate) fn from_pem(what: &str, pem: &str) -> Option<Vec<u8>> {
    let (begin, end) = (format!("-----BEGIN {what}-----"), format!("-----END {what}-----"));
    let lines = pem.lines().map(str::trim);
    let text: String = lines.skip_while(|it| *it != begin).skip(1).take_while(|it| *it != end).collect();
    BASE64_STANDARD.decode(text).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_are_short_or_counted() {
        assert_eq!(value(OCTETS, &[&[7], &[8]]), [4, 2, 7, 8]);
        for (length, head) in [(127, vec![4, 127]), (128, vec![4, 0x81, 128]), (300, vec![4, 0x82, 1, 44])] {
            let made = value(OCTETS, &[&vec![0; length]]);
            assert_eq!(made[..head.len()], head);
            assert_eq!(made.len(), head.len() + length);
        }
        assert_eq!(bits(&[1]), [3, 2, 0, 1]);
    }
}
