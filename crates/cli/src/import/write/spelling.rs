//! Other spellings of a path. nginx compares paths decoded and with slashes merged, and Seaway as they are sent: what was
//! protected at `/admin` has to be protected at `//admin` and `/%61dmin`, too, because a backend may read them as the same.

/// The rest of a path, whatever bytes it has.
pub(in crate::import) const REST: &str = "(?s-u:.)*";
const SLASHES: &str = "(?:/|%2[fF])+";
/// What a match of an HTTPRoute may have.
const LONGEST: usize = 1024;

/// Of a path with more letters than an expression has room for.
pub(in crate::import) const LONG: &str =
    "the path is so long that its percent-encoded and other equivalent forms are not restricted";

/// What of paths one is meant for.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum PathScope {
    Exactly,
    /// What begins with its text.
    Beginning,
    /// Itself, and what is below it: a prefix by whole segments.
    Below,
}

/// An expression for every spelling of a path. `None`: it would be too long.
pub(super) fn expression(path: &str, reach: PathScope) -> Option<String> {
    let mut text = String::new();
    let mut after_slash = false;
    let path = if reach == PathScope::Below { path.trim_end_matches('/') } else { path };
    for byte in decoded(path) {
        match byte {
            b'/' if after_slash => {}
            b'/' => text.push_str(SLASHES),
            _ => text.push_str(&spelled(byte)),
        }
        after_slash = byte == b'/';
    }
    match reach {
        PathScope::Exactly => {}
        PathScope::Beginning => text.push_str(REST),
        PathScope::Below => text.push_str(&format!("(?:{SLASHES}{REST})?")),
    }
    (text.len() <= LONGEST).then_some(text)
}

/// An expression for every spelling of what begins with a path, in upper and lower case. A dot is for any byte. `None`: it would be
/// too long.
pub(in crate::import) fn any_case(path: &str) -> Option<String> {
    let mut text = String::new();
    let mut after_slash = false;
    for byte in decoded(path) {
        match byte {
            b'/' if after_slash => {}
            b'/' => text.push_str(SLASHES),
            b'.' => text.push_str("(?:%[0-9a-fA-F]{2}|(?s-u:.))"),
            _ if byte.is_ascii_alphabetic() => {
                let (lower, upper) = (byte.to_ascii_lowercase(), byte.to_ascii_uppercase());
                let (first, second) = (char::from(lower), char::from(upper));
                let escapes = format!("%[{}{}]{}", digit(lower >> 4), digit(upper >> 4), digit(byte & 15));
                text.push_str(&format!("(?:[{first}{second}]|{escapes})"));
            }
            _ => text.push_str(&spelled(byte)),
        }
        after_slash = byte == b'/';
    }
    text.push_str(REST);
    (text.len() <= LONGEST).then_some(text)
}

/// A byte as itself, and as its escape.
fn spelled(byte: u8) -> String {
    let escape = format!("%{}{}", digit(byte >> 4), digit(byte & 15));
    match byte {
        b'%' => escape,
        0x21..=0x7e => format!("(?:{}|{escape})", escaped(&char::from(byte).to_string())),
        _ => escape,
    }
}

/// Of an escape, in upper and lower case.
fn digit(it: u8) -> String {
    match it {
        0..=9 => char::from(b'0' + it).to_string(),
        _ => {
            let letter = char::from(b'a' + (it - 10));
            format!("[{letter}{}]", letter.to_ascii_uppercase())
        }
    }
}

fn decoded(path: &str) -> Vec<u8> {
    percent_encoding::percent_decode_str(path).collect()
}

/// A text as an expression for itself.
pub(in crate::import) fn escaped(text: &str) -> String {
    let mut escaped = String::new();
    for it in text.chars() {
        if "\\.+*?()|[]{}^$#&-~".contains(it) {
            escaped.push('\\');
        }
        escaped.push(it);
    }
    escaped
}
