//! Other spellings of a path. nginx compares paths decoded and with slashes merged, and Seaway as they are sent: what was
//! protected at `/admin` has to be protected at `//admin` and `/%61dmin`, too, because a backend may read them as the same.

/// The rest of a path, whatever bytes it has.
pub(in crate::import) const REST: &str = "(?s-u:.)*";
const SLASHES: &str = "(?:/|%2[fF])+";
/// What a match of an HTTPRoute may have.
const LONGEST: usize = 1024;

/// An expression for every spelling of an exact path, or of what begins with a path. `None`: it would be too long.
pub(super) fn expression(path: &str, exactly: bool) -> Option<String> {
    let mut text = String::new();
    let mut after_slash = false;
    for byte in decoded(path) {
        match byte {
            b'/' if after_slash => {}
            b'/' => text.push_str(SLASHES),
            _ => text.push_str(&spelled(byte)),
        }
        after_slash = byte == b'/';
    }
    if !exactly {
        text.push_str(REST);
    }
    (text.len() <= LONGEST).then_some(text)
}

/// A byte as itself, and as its escape.
fn spelled(byte: u8) -> String {
    let digit = |it: u8| match it {
        0..=9 => char::from(b'0' + it).to_string(),
        _ => {
            let letter = char::from(b'a' + (it - 10));
            format!("[{letter}{}]", letter.to_ascii_uppercase())
        }
    };
    let escape = format!("%{}{}", digit(byte >> 4), digit(byte & 15));
    match byte {
        b'%' => escape,
        0x21..=0x7e => format!("(?:{}|{escape})", escaped(&char::from(byte).to_string())),
        _ => escape,
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
