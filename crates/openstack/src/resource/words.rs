//! Words that a service may add to at any time: what is not known is kept as it was written.

/// An enum of the words that are known, and `Other` for the rest. A field that is absent has the word `""`.
macro_rules! words {
    ($(#[$doc:meta])* $name:ident { $($(#[$word_doc:meta])* $word:ident = $text:literal,)* }) => {
        $(#[$doc])*
        #[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum $name {
            $($(#[$word_doc])* $word,)*
            /// A word that this version does not know.
            Other(Box<str>),
        }

        impl $name {
            pub const KNOWN: &'static [&'static str] = &[$($text),*];

            pub fn as_str(&self) -> &str {
                match self {
                    $($name::$word => $text,)*
                    $name::Other(text) => text,
                }
            }
        }

        impl From<&str> for $name {
            fn from(text: &str) -> $name {
                match text {
                    $($text => $name::$word,)*
                    _ => $name::Other(text.into()),
                }
            }
        }

        impl Default for $name {
            fn default() -> $name {
                $name::from("")
            }
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.pad(self.as_str())
            }
        }

        impl serde::Serialize for $name {
            fn serialize<S: serde::Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
                to.serialize_str(self.as_str())
            }
        }

        impl<'de> serde::Deserialize<'de> for $name {
            fn deserialize<D: serde::Deserializer<'de>>(from: D) -> Result<$name, D::Error> {
                <std::borrow::Cow<'de, str> as serde::Deserialize>::deserialize(from).map(|it| $name::from(&*it))
            }
        }
    };
}

pub(crate) use words;

#[cfg(test)]
mod tests {
    use crate::octavia::Operating;

    #[test]
    fn a_word_that_is_not_known_is_kept_as_it_was_written() {
        for text in ["ONLINE", "NO_MONITOR", "mauve", ""] {
            let json = serde_json::json!(text);
            let word: Operating = serde_json::from_value(json.clone()).expect("any word is one");
            assert_eq!(serde_json::to_value(&word).expect("a text"), json);
            assert_eq!(matches!(word, Operating::Other(_)), !Operating::KNOWN.contains(&text));
        }
    }
}
