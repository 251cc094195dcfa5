//! What OpenStack calls its objects by: the id of one kind is not the id of another.

use std::{cmp::Ordering, fmt, hash, marker::PhantomData, str::FromStr, sync::Arc};

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

use super::{FieldError, Fields, Resource, UnknownFields};

/// The id of a `T`. Mostly a UUID, but not always: providers have names, quotas a project of any directory.
pub struct Id<T> {
    text: Arc<str>,
    of: PhantomData<fn() -> T>,
}

/// What cannot be an id: it would address something else than one object.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error("{0:?} is not a valid id")]
pub struct InvalidId(String);

const LONGEST: usize = 255;

impl<T> Id<T> {
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// As one step of a path, whatever characters it has.
    pub fn encoded(&self) -> String {
        encoded(&self.text)
    }

    /// The same object under another of its kinds: an interface's id is that of its port.
    pub fn of<U>(&self) -> Id<U> {
        Id { text: self.text.clone(), of: PhantomData }
    }
}

/// Text as one step of a path, or as one value of a query.
pub(crate) fn encoded(text: &str) -> String {
    /// All but the unreserved characters (RFC 3986, 2.3).
    const RESERVED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'_').remove(b'.').remove(b'~');
    utf8_percent_encode(text, RESERVED).to_string()
}

impl<T> FromStr for Id<T> {
    type Err = InvalidId;

    /// Empty, it would ask for the whole list; with dots alone, for the folder above.
    fn from_str(text: &str) -> Result<Id<T>, InvalidId> {
        let strange = text.is_empty()
            || text.len() > LONGEST
            || text.bytes().all(|it| it == b'.')
            || text.chars().any(|it| it.is_control() || it.is_whitespace() || it == '/');
        if strange {
            return Err(InvalidId(text.chars().take(80).collect()));
        }
        Ok(Id { text: text.into(), of: PhantomData })
    }
}

impl<T> Clone for Id<T> {
    fn clone(&self) -> Id<T> {
        self.of()
    }
}

impl<T> PartialEq for Id<T> {
    fn eq(&self, other: &Id<T>) -> bool {
        self.text == other.text
    }
}

impl<T> Eq for Id<T> {}

impl<T> PartialOrd for Id<T> {
    fn partial_cmp(&self, other: &Id<T>) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl<T> Ord for Id<T> {
    fn cmp(&self, other: &Id<T>) -> Ordering {
        self.text.cmp(&other.text)
    }
}

impl<T> hash::Hash for Id<T> {
    fn hash<H: hash::Hasher>(&self, state: &mut H) {
        self.text.hash(state);
    }
}

impl<T> fmt::Display for Id<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl<T> fmt::Debug for Id<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl<T> Serialize for Id<T> {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(&self.text)
    }
}

impl<'de, T> Deserialize<'de> for Id<T> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Id<T>, D::Error> {
        String::deserialize(from)?.parse().map_err(de::Error::custom)
    }
}

/// How Octavia mentions one object in another: `{"id": …}`.
#[derive(Serialize, Deserialize)]
#[serde(bound = "")]
pub struct Ref<T> {
    pub id: Id<T>,
    /// What else is said of it.
    #[serde(flatten)]
    pub rest: UnknownFields,
}

impl<R: Resource> Ref<R> {
    /// All of it, where more was told than its id: in the answer to a whole load balancer.
    pub fn read_expanded(&self) -> Result<R, FieldError> {
        let mut object = self.rest.clone();
        object.insert(R::ID.to_owned(), self.id.as_str().into());
        Fields::of(object.into()).and_then(R::read)
    }
}

impl<T> Clone for Ref<T> {
    fn clone(&self) -> Ref<T> {
        Ref { id: self.id.clone(), rest: self.rest.clone() }
    }
}

impl<T> PartialEq for Ref<T> {
    fn eq(&self, other: &Ref<T>) -> bool {
        self.id == other.id && self.rest == other.rest
    }
}

impl<T> fmt::Debug for Ref<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.id.fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Pool;

    #[test]
    fn what_would_address_something_else_is_no_id() {
        for text in ["", ".", "..", "a/b", "a b", "a\n", &"x".repeat(256)] {
            assert!(text.parse::<Id<Pool>>().is_err(), "{text:?}");
        }
    }

    #[test]
    fn any_other_text_is_one_step_of_a_path() {
        let id: Id<Pool> = "a?b=ä%".parse().expect("an id");
        assert_eq!(id.encoded(), "a%3Fb%3D%C3%A4%25");
    }
}
