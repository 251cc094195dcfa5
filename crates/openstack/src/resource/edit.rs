//! One field of a body that is sent: left alone, or set.

use serde::{Serialize, Serializer};

/// A field to be set to something, or left: at creation to the cloud's default, in a change to what it is.
///
/// What can be null is an `Option`: `To(None)` detaches a floating IP, which `Leave` would not.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Edit<T> {
    #[default]
    Leave,
    To(T),
}

use Edit::{Leave, To};

impl<T> Edit<T> {
    pub fn is_left(&self) -> bool {
        matches!(self, Leave)
    }

    pub fn as_ref(&self) -> Edit<&T> {
        match self {
            Leave => Leave,
            To(it) => To(it),
        }
    }
}

impl<T: PartialEq + Clone> Edit<T> {
    /// What remains to be said where `now` is so already.
    #[must_use]
    pub fn unless_equal(&self, now: &T) -> Edit<T> {
        match self {
            To(it) if it != now => To(it.clone()),
            _ => Leave,
        }
    }
}

impl<T> From<T> for Edit<T> {
    fn from(it: T) -> Edit<T> {
        To(it)
    }
}

impl From<&str> for Edit<String> {
    fn from(text: &str) -> Edit<String> {
        To(text.to_owned())
    }
}

impl<T: Serialize> Serialize for Edit<T> {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        match self {
            // Bodies skip what is left; elsewhere nothing is the nearest.
            Leave => to.serialize_none(),
            To(it) => it.serialize(to),
        }
    }
}
