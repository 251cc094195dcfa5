//! A text that is shown to the cloud and to nobody else.

use std::fmt;

use secrecy::{ExposeSecret, SecretString};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// What a secret holds, or what a server is told at its start.
#[derive(Clone)]
pub struct Hidden(SecretString);

impl Hidden {
    pub fn expose(&self) -> &str {
        self.0.expose_secret()
    }
}

impl From<SecretString> for Hidden {
    fn from(text: SecretString) -> Hidden {
        Hidden(text)
    }
}

impl fmt::Debug for Hidden {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("[secret]")
    }
}

impl PartialEq for Hidden {
    fn eq(&self, other: &Hidden) -> bool {
        self.expose() == other.expose()
    }
}

impl Serialize for Hidden {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(self.expose())
    }
}

impl<'de> Deserialize<'de> for Hidden {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Hidden, D::Error> {
        String::deserialize(from).map(|text| Hidden(text.into()))
    }
}
