//! PEM (RFC 7468), as far as certificates need it.

const BEGIN: &str = "-----BEGIN CERTIFICATE-----";
const END: &str = "-----END CERTIFICATE-----";

/// In their order; `None`: one that is broken.
pub(crate) fn certificates(text: &str) -> impl Iterator<Item = Option<Vec<u8>>> + '_ {
    let mut rest = text;
    std::iter::from_fn(move || {
        let (_, begun) = rest.split_once(BEGIN)?;
        let Some((body, after)) = begun.split_once(END) else {
            rest = "";
            return Some(None);
        };
        rest = after;
        Some(base64(body))
    })
}

/// Without whatever else stands there, which may be a key.
pub(crate) fn only_certificates(text: &str) -> String {
    let mut chain = String::with_capacity(text.len());
    let mut rest = text;
    while let Some((_, begun)) = rest.split_once(BEGIN) {
        let Some((body, after)) = begun.split_once(END) else { break };
        chain.extend([BEGIN, body, END, "\n"]);
        rest = after;
    }
    chain
}

/// White space is skipped, as others skip it.
fn base64(text: &str) -> Option<Vec<u8>> {
    let mut bytes = Vec::with_capacity(text.len() / 4 * 3);
    let (mut group, mut digits, mut padding) = (0_u32, 0, 0);
    for byte in text.bytes().filter(|byte| !byte.is_ascii_whitespace()) {
        let sextet = match byte {
            b'=' => {
                padding += 1;
                continue;
            }
            _ if padding > 0 => return None,
            b'A'..=b'Z' => byte - b'A',
            b'a'..=b'z' => byte - b'a' + 26,
            b'0'..=b'9' => byte - b'0' + 52,
            b'+' => 62,
            b'/' => 63,
            _ => return None,
        };
        group = group << 6 | u32::from(sextet);
        digits += 1;
        if digits == 4 {
            bytes.extend_from_slice(&group.to_be_bytes()[1..]);
            (group, digits) = (0, 0);
        }
    }
    let group = group << (6 * (4 - digits));
    match (digits, padding) {
        (0, 0) => {}
        (2, 2) => bytes.push(group.to_be_bytes()[1]),
        (3, 1) => bytes.extend_from_slice(&group.to_be_bytes()[1..3]),
        _ => return None,
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn certificates_are_found_whatever_stands_around_them() {
        let text = format!(
            "Bag Attributes\n{BEGIN}\nYWJj\n{END}\n-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n\
             {BEGIN}\r\nYW\r\nI=\r\n{END}"
        );
        let all: Vec<_> = certificates(&text).collect();
        assert_eq!(all, [Some(b"abc".to_vec()), Some(b"ab".to_vec())]);
        let only = only_certificates(&text);
        assert_eq!(certificates(&only).collect::<Vec<_>>(), all);
        assert!(!only.contains("PRIVATE"), "{only}");
    }

    #[test]
    fn what_is_broken_is_so() {
        for body in ["YWJj", "Y!==", "YQ=", "YQ==YQ==", "Y", "YWJ"] {
            let end = if body == "YWJj" { "" } else { END };
            let all: Vec<_> =
                certificates(&format!("{BEGIN}\n{body}\n{end}")).map(|it| it.is_some()).collect();
            assert_eq!(all, [false], "{body}");
        }
        assert_eq!(certificates("nothing").count(), 0);
    }
}
