//! The words of API validation: what is wrong with a name, in exactly the API server's sentences.

const LABEL_FORM: &str = "[a-z0-9]([-a-z0-9]*[a-z0-9])?";
const SUBDOMAIN_FORM: &str = r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*";
const QUALIFIED_FORM: &str = "([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]";

/// An RFC 1123 label: a namespace, a port's name, and since Kubernetes 1.36 a Service's.
pub(crate) fn dns1123_label(text: &str) -> Vec<String> {
    let mut wrong = too_long(text, 63);
    if is_label(text) {
    } else if is_subdomain(text) {
        wrong.push("must not contain dots".to_owned());
    } else {
        wrong.push(format!(
            "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start \
             and end with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is \
             '{LABEL_FORM}')"
        ));
    }
    wrong
}

/// An RFC 1123 subdomain: the name of most objects.
pub(crate) fn dns1123_subdomain(text: &str) -> Vec<String> {
    let mut wrong = too_long(text, 253);
    if !is_subdomain(text) {
        wrong.push(format!(
            "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must \
             start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is \
             '{SUBDOMAIN_FORM}')"
        ));
    }
    wrong
}

/// At least two labels, with or without the last dot: an endpoint of `addressType: FQDN`.
pub(crate) fn domain_name(text: &str) -> Vec<String> {
    let text = text.strip_suffix('.').unwrap_or(text);
    let wrong = dns1123_subdomain(text);
    if !wrong.is_empty() {
        return wrong;
    }
    if !text.contains('.') {
        return vec!["should be a domain with at least two segments separated by dots".to_owned()];
    }
    text.split('.').flat_map(dns1123_label).collect()
}

/// A qualified name: the key of a label, an application protocol, a load balancer class.
pub(crate) fn qualified_name(text: &str) -> Vec<String> {
    let form = format!(
        "must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric \
         character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '{QUALIFIED_FORM}')"
    );
    let mut parts = text.split('/');
    let (prefix, name) = match (parts.next(), parts.next(), parts.next()) {
        (Some(name), None, None) => (None, name),
        (Some(prefix), Some(name), None) => (Some(prefix), name),
        _ => {
            return vec![format!(
                "a qualified name {form} with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')"
            )];
        }
    };
    let mut wrong = Vec::new();
    match prefix {
        Some("") => wrong.push("prefix part must be non-empty".to_owned()),
        Some(prefix) => {
            wrong.extend(dns1123_subdomain(prefix).into_iter().map(|why| format!("prefix part {why}")))
        }
        None => {}
    }
    if name.is_empty() {
        wrong.push("name part must be non-empty".to_owned());
    }
    wrong.extend(too_long(name, 63).into_iter().map(|why| format!("name part {why}")));
    if !is_qualified(name) {
        wrong.push(format!("name part {form}"));
    }
    wrong
}

pub(crate) fn label_value(text: &str) -> Vec<String> {
    let mut wrong = too_long(text, 63);
    if !text.is_empty() && !is_qualified(text) {
        wrong.push(format!(
            "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must \
             start and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used \
             for validation is '({QUALIFIED_FORM})?')"
        ));
    }
    wrong
}

/// The name of a container's port, where a Service's `targetPort` is text.
pub(crate) fn port_name(text: &str) -> Vec<String> {
    let mut wrong = too_long(text, 15);
    let mut must = |holds: bool, why: &str| {
        if !holds {
            wrong.push(why.to_owned());
        }
    };
    must(
        !text.is_empty() && text.bytes().all(is_label_byte),
        "must contain only alpha-numeric characters (a-z, 0-9), and hyphens (-)",
    );
    must(text.bytes().any(|b| b.is_ascii_lowercase()), "must contain at least one letter (a-z)");
    must(!text.contains("--"), "must not contain consecutive hyphens");
    must(!text.starts_with('-') && !text.ends_with('-'), "must not begin or end with a hyphen");
    wrong
}

/// The name of a network interface, as the Linux kernel takes it.
pub(crate) fn interface(text: &str) -> Vec<String> {
    let is_name = !text.is_empty() && text.len() <= 15 && text != "." && text != "..";
    let is_part = |it: char| !it.is_whitespace() && !it.is_control() && it != '/' && it != ':';
    match is_name && text.chars().all(is_part) {
        true => Vec::new(),
        false => vec![
            "must be the name of a network interface: at most 15 characters, no '/', ':' and blanks".into(),
        ],
    }
}

/// A key of a Secret.
pub(crate) fn config_key(text: &str) -> Vec<String> {
    let mut wrong = too_long(text, 253);
    if text.is_empty() || !text.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'.' | b'_'))
    {
        wrong.push(
            "a valid config key must consist of alphanumeric characters, '-', '_' or '.' (e.g. 'key.name',  or \
             'KEY_NAME',  or 'key-name', regex used for validation is '[-._a-zA-Z0-9]+')"
                .to_owned(),
        );
    }
    match text {
        "." | ".." => wrong.push(format!("must not be '{text}'")),
        _ if text.starts_with("..") => wrong.push("must not start with '..'".to_owned()),
        _ => {}
    }
    wrong
}

fn too_long(text: &str, most: usize) -> Vec<String> {
    if text.len() > most { vec![format!("must be no more than {most} bytes")] } else { Vec::new() }
}

fn is_label(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(is_label_byte) && !text.starts_with('-') && !text.ends_with('-')
}

fn is_label_byte(b: u8) -> bool {
    b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-'
}

fn is_subdomain(text: &str) -> bool {
    text.split('.').all(is_label)
}

fn is_qualified(text: &str) -> bool {
    let ends = |b: Option<&u8>| b.is_some_and(u8::is_ascii_alphanumeric);
    ends(text.as_bytes().first())
        && ends(text.as_bytes().last())
        && text.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_judged_as_the_api_server_does() {
        type Validator = fn(&str) -> Vec<String>;
        let table: &[(Validator, &[&str], &[&str])] = &[
            (dns1123_label, &["a", "1a", "123-abc", "my-name"], &["", "-a", "a-", "A", "a.b", "a_b", "Ä"]),
            (dns1123_subdomain, &["a", "a.b", "1.2"], &["", ".", "a..b", "a.", "A.b"]),
            (domain_name, &["a.b", "a.b."], &["a", "a.b..", ""]),
            (qualified_name, &["a", "A_b.c", "x.io/Y"], &["", "/a", "a/", "a/b/c", "-a", "X.io/a"]),
            (label_value, &["", "a", "A.b-1_c"], &["-a", "a b", "a/b"]),
            (port_name, &["http", "a-1"], &["", "80", "a--b", "-a", "sixteen-letters-", "HTTP"]),
            (config_key, &["tls.crt", "A_b-1", ".x"], &["", "a/b", "..", "..a"]),
        ];
        for (judge, good, bad) in table {
            for text in *good {
                assert_eq!(judge(text), Vec::<String>::new(), "{text}");
            }
            for text in *bad {
                assert_ne!(judge(text), Vec::<String>::new(), "{text}");
            }
        }
        assert_eq!(dns1123_label(&"a".repeat(64)), ["must be no more than 63 bytes"]);
    }

    #[test]
    fn the_sentences_are_those_people_search_for() {
        assert_eq!(
            dns1123_label("A"),
            [
                "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?')"
            ]
        );
        assert_eq!(
            label_value("a b"),
            [
                "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for validation is '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')"
            ]
        );
    }
}
