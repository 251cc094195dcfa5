//! A text that only requests to the cloud contain. Logs and `Debug` output do not show it.

use std::fmt;

use secrecy::{ExposeSecret, SecretString};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// What a secret holds, or what a server is told at its start.
#[derive(Clone)]
pub struct SecretText(SecretString);

impl SecretText {
    pub fn expose(&self) -> &str {
        self.0.expose_secret()
    }
}

impl From<SecretString> for SecretText {
    fn from(text: SecretString) -> SecretText {
        SecretText(text)
    }
}

impl fmt::Debug for SecretText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("[secret]")
    }
}

impl PartialEq for SecretText {
    fn eq(&self, other: &SecretText) -> bool {
        self.expose() == other.expose()
    }
}

impl Serialize for SecretText {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(self.expose())
    }
}

impl<'de> Deserialize<'de> for SecretText {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<SecretText, D::Error> {
        String::deserialize(from).map(|text| SecretText(text.into()))
    }
}
