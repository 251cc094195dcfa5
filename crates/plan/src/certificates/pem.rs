//! PEM (RFC 7468), as far as certificates need it.

use crate::base64::bytes_of;

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
        // White space is skipped, as others skip it.
        Some(bytes_of(&body.replace([' ', '\t'], "")))
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
