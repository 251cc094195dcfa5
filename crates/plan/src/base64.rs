//! Bytes as Kubernetes and PEM write them.

/// Standard base64 with its padding; line breaks within are skipped, as Go's decoder does.
pub fn bytes_of(text: &str) -> Option<Vec<u8>> {
    let text: Vec<u8> = text.bytes().filter(|byte| !matches!(byte, b'\n' | b'\r')).collect();
    let padding = text.iter().rev().take_while(|byte| **byte == b'=').count();
    let digits = text.get(..text.len().saturating_sub(padding)).unwrap_or_default();
    if !text.len().is_multiple_of(4) || padding > 2 {
        return None;
    }
    let mut bytes = Vec::with_capacity(text.len());
    for chunk in digits.chunks(4) {
        let mut group = 0_u32;
        for byte in chunk {
            let sextet = match byte {
                b'A'..=b'Z' => byte.saturating_sub(b'A'),
                b'a'..=b'z' => byte.saturating_sub(b'a').saturating_add(26),
                b'0'..=b'9' => byte.saturating_sub(b'0').saturating_add(52),
                b'+' => 62,
                b'/' => 63,
                _ => return None,
            };
            group = group << 6 | u32::from(sextet);
        }
        // A group cut short by padding holds as many whole bytes as its digits fill.
        let missing = 4_usize.saturating_sub(chunk.len());
        let [_, whole @ ..] = (group << missing.saturating_mul(6)).to_be_bytes();
        bytes.extend(whole.iter().take(chunk.len().saturating_sub(1)));
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::bytes_of;

    #[test]
    fn base64_is_read_as_go_reads_it() {
        for (text, bytes) in
            [("", ""), ("YQ==", "a"), ("YWI=", "ab"), ("YWJj", "abc"), ("YWJj\nZA==\n", "abcd")]
        {
            assert_eq!(bytes_of(text).as_deref(), Some(bytes.as_bytes()), "{text:?}");
        }
        for text in ["YQ", "YQ=", "Y===", "YQ==YQ==", "Y!==", "YQ=a", "===="] {
            assert_eq!(bytes_of(text), None, "{text:?}");
        }
    }
}
