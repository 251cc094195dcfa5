//! Bytes as Kubernetes and PEM write them.

use base64::{
    Engine, alphabet,
    engine::{GeneralPurpose, GeneralPurposeConfig},
};

/// Bits that padding leaves over may be anything.
const AS_GO: GeneralPurpose = GeneralPurpose::new(
    &alphabet::STANDARD,
    GeneralPurposeConfig::new().with_decode_allow_trailing_bits(true),
);

/// Standard base64 with its padding; line breaks within are skipped, as Go's decoder does.
pub fn bytes_of(text: &str) -> Option<Vec<u8>> {
    let text: Vec<u8> = text.bytes().filter(|byte| !matches!(byte, b'\n' | b'\r')).collect();
    AS_GO.decode(text).ok()
}

#[cfg(test)]
mod tests {
    use super::bytes_of;

    #[test]
    fn base64_is_read_as_go_reads_it() {
        for (text, bytes) in [
            ("", ""),
            ("YQ==", "a"),
            ("YWI=", "ab"),
            ("YWJj", "abc"),
            ("YWJj\nZA==\n", "abcd"),
            ("YR==", "a"),
        ] {
            assert_eq!(bytes_of(text).as_deref(), Some(bytes.as_bytes()), "{text:?}");
        }
        for text in ["YQ", "YQ=", "Y===", "YQ==YQ==", "Y!==", "YQ=a", "===="] {
            assert_eq!(bytes_of(text), None, "{text:?}");
        }
    }
}
