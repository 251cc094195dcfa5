//! Texts that cannot change what a line of the configuration means: each kind has its alphabet, and only what is of
//! it can be made.

use std::fmt;

use seaway_model::Name;
use sha2::{Digest as _, Sha256};

macro_rules! words {
    ($($(#[$about:meta])* $name:ident: $may:expr;)+) => {$(
        $(#[$about])*
        #[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(Name);

        impl $name {
            /// `None` for a text that is not of the alphabet.
            pub fn new(text: &str) -> Option<$name> {
                let may: fn(&str) -> bool = $may;
                may(text).then(|| $name(text.into()))
            }

            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.pad(&self.0)
            }
        }
    )+};
}

words! {
    /// The name of a proxy, server, file, cookie or header: letters, digits, `-`, `_`, `.` and `:`, at most 200.
    Label: |text| {
        let may = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.:".contains(&byte);
        (1..=200).contains(&text.len()) && text.bytes().all(may) && !text.starts_with(['.', '-', ':'])
    };
    /// A value in single quotes, in which HAProxy gives no character a meaning but the quote itself.
    #[derive(Default)]
    Text: |text| {
        let may = |byte: u8| (b' '..=b'~').contains(&byte) && !b"'\\".contains(&byte);
        text.len() <= 4000 && text.bytes().all(may)
    };
    /// The key of a map: a host name, a path, or both. As it is, it is a word of a map's line and of a runtime command, too.
    Key: |text| {
        let may = |byte: u8| (b'!'..=b'~').contains(&byte) && !b"#;'\"\\<>`{|}^".contains(&byte);
        (1..=2000).contains(&text.len()) && text.bytes().all(may)
    };
    /// A path as the base of a regular expression and of a rewrite.
    PlainPath: |text| {
        let may = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.~/:@=+,".contains(&byte);
        text.starts_with('/') && text.len() <= 1000 && text.bytes().all(may)
    };
    /// An absolute path of a folder on this machine, without a slash at its end.
    Folder: |text| {
        let may = |byte: u8| byte.is_ascii_alphanumeric() || b"-_./".contains(&byte);
        text.starts_with('/') && !text.ends_with('/') && text.len() <= 80 && text.bytes().all(may)
    };
}

impl Label {
    /// A label from whatever text: other characters become `_`, and a text that had some, or is too long, begins with
    /// `X` and ends in a digest of all of it. So no two texts have one label, not even those that are made to.
    pub fn of(text: &str) -> Label {
        match Label::new(text) {
            Some(label) if text.len() <= 150 && !text.starts_with('X') => label,
            _ => {
                let may = |letter: char| letter.is_ascii_alphanumeric() || "-_.:".contains(letter);
                let plain: String = text.chars().take(100).map(|it| if may(it) { it } else { '_' }).collect();
                Label(format!("X{plain}-{}", digest(text)).into())
            }
        }
    }

    /// The label with something behind it that is of the alphabet.
    pub(crate) fn and(&self, end: impl fmt::Display) -> Label {
        Label(format!("{}{end}", self.0).into())
    }
}

impl Key {
    /// A host name, or one that begins with `*.` or a dot.
    pub fn host(text: &str) -> Option<Key> {
        let may = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
        let plain = text.strip_prefix('*').unwrap_or(text);
        (plain.bytes().all(may) && plain.len() <= 255).then(|| Key::new(text)).flatten()
    }
}

/// 128 bits in hexadecimal digits.
pub(crate) fn digest(text: &str) -> String {
    let whole = Sha256::digest(text.as_bytes());
    whole.iter().take(16).map(|byte| format!("{byte:02x}")).collect()
}
