//! Other spellings of a guarded path. Maps take a path as it comes, and many members decode escapes, merge slashes and drop
//! parameters first: so where a path is guarded, each path that could be another one to a member is refused.

use std::collections::BTreeSet;

use seaway_model::{
    Listener,
    load_balancer::{PathMatch, Rule},
};

use crate::document::Respelled;

/// It does not serve every request: it restricts who is served, or refuses all.
pub(super) fn is_guarded(rule: &Rule) -> bool {
    rule.is_guarded() || rule.tls.as_ref().is_some_and(|tls| tls.clients.is_some() || tls.profile.is_some())
}

/// `None`: whatever a path is taken for, the same rules guard it.
pub(super) fn respelled(listener: &Listener) -> Option<Respelled> {
    let guarded = listener.rules.iter().filter(|rule| is_guarded(rule));
    let paths = guarded.flat_map(|rule| &rule.matches).filter_map(|it| it.path.as_ref());
    let mut respelled = None;
    for path in paths.map(canonical) {
        let text = match &path {
            PathMatch::Prefix(text) if text.trim_end_matches('/').is_empty() => continue,
            PathMatch::Prefix(text) | PathMatch::Exact(text) => text.as_bytes(),
            // It closes its hosts.
            PathMatch::Regex(_) => b"",
        };
        let Respelled { escaped, uppercase } =
            respelled.get_or_insert(Respelled { escaped: BTreeSet::new(), uppercase: false });
        *uppercase |= text.contains(&b'%');
        escaped.extend(text.iter().filter(|byte| SIGNS.contains(byte)));
    }
    respelled
}

/// What stands in a path with and without an escape, beside letters, digits and `-._~`. (`;` and `'` are in no map.)
const SIGNS: &[u8] = b"!$&()*+,=:@";

/// A guarded path in the one spelling that is not refused: no escape where none is needed, others in capital letters, and no
/// empty segments.
pub(super) fn canonical(path: &PathMatch) -> PathMatch {
    match path {
        PathMatch::Exact(text) => PathMatch::Exact(spelled(text).into()),
        PathMatch::Prefix(text) => PathMatch::Prefix(spelled(text).into()),
        PathMatch::Regex(_) => path.clone(),
    }
}

fn spelled(path: &str) -> String {
    let mut parts = path.split('%');
    let mut spelled = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let byte = part
            .get(..2)
            .filter(|it| !it.starts_with('+'))
            .and_then(|digits| u8::from_str_radix(digits, 16).ok());
        let (Some(byte), Some(rest)) = (byte, part.get(2..)) else {
            spelled.push('%');
            spelled.push_str(part);
            continue;
        };
        match byte.is_ascii_alphanumeric() || b"-._~'".contains(&byte) || SIGNS.contains(&byte) {
            true => spelled.push(char::from(byte)),
            false => spelled.push_str(&format!("%{byte:02X}")),
        }
        spelled.push_str(rest);
    }
    while let Some(at) = spelled.find("//") {
        spelled.remove(at);
    }
    spelled
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_guarded_path_has_one_spelling() {
        for (written, is) in [
            ("/admin", "/admin"),
            ("/%61dmin", "/admin"),
            ("/caf%c3%a9", "/caf%C3%A9"),
            ("//a///b//", "/a/b/"),
            ("/a%40b%2f", "/a@b%2F"),
            ("/100%", "/100%"),
            ("/%é", "/%é"),
            ("/%+1", "/%+1"),
        ] {
            assert_eq!(spelled(written), is, "{written}");
        }
    }
}
