//! Keys and values as some source wrote them, made into credentials: what a key means is said here, and only here.

pub(super) mod resolve;

use std::{collections::BTreeMap, fmt};

use secrecy::{ExposeSecret, SecretString};

use super::{Located, SourceLocation};
use crate::error::{Class, Error};

/// By the names that OpenStack's own client has for them: `project_name`, `region_name`.
#[derive(Clone, Default)]
pub(super) struct Options(BTreeMap<String, OptionValue>);

#[derive(Clone)]
struct OptionValue {
    /// Any of them may be a password, so all of them are treated as one.
    value: SecretString,
    place: SourceLocation,
    /// Whether anybody wonders if nobody wants it.
    quiet: bool,
}

impl Options {
    /// The last one counts.
    pub(super) fn put(&mut self, key: &str, value: &str, place: SourceLocation) {
        self.0.insert(normalized_key(key), OptionValue { value: value.into(), place, quiet: false });
    }

    /// Of the environment, where much is that is not for us.
    pub(super) fn put_quietly(&mut self, key: &str, value: &str, place: SourceLocation) {
        self.0.insert(normalized_key(key), OptionValue { value: value.into(), place, quiet: true });
    }

    /// Those of the other count more.
    pub(super) fn merge(&mut self, other: Options) {
        self.0.extend(other.0);
    }

    /// Whether one of these is there, and a secret: whoever reads the file may use it.
    pub(super) fn has_secret_of(&self, file: &str) -> bool {
        const SECRETS: [&str; 6] = [
            "password",
            "token",
            "auth_token",
            "application_credential_secret",
            "trustee_password",
            "passcode",
        ];
        SECRETS.iter().any(|key| {
            self.0
                .get(*key)
                .is_some_and(|said| said.place.0.strip_prefix(file).is_some_and(|rest| rest.starts_with(':')))
        })
    }

    /// The first of these names that is there, taken out; all of them count as known.
    fn take(&mut self, keys: &[&str]) -> Option<Located<SecretString>> {
        let taken: Vec<OptionValue> = keys.iter().filter_map(|key| self.0.remove(*key)).collect();
        let first = taken.into_iter().find(|said| !said.value.expose_secret().is_empty())?;
        Some(Located { value: first.value, place: first.place })
    }

    fn text(&mut self, keys: &[&str]) -> Option<Located<String>> {
        self.take(keys)
            .map(|said| Located { value: said.value.expose_secret().trim().to_owned(), place: said.place })
    }

    fn truth(&mut self, keys: &[&str]) -> Result<Option<Located<bool>>, Error> {
        let Some(said) = self.text(keys) else { return Ok(None) };
        let value = match said.value.to_ascii_lowercase().as_str() {
            "true" | "yes" | "on" | "1" | "y" | "t" => true,
            "false" | "no" | "off" | "0" | "n" | "f" => false,
            other => {
                let why = format!("{other:?} is neither true nor false");
                return Err(option_error(&said.place, keys.first().copied().unwrap_or_default(), &why));
            }
        };
        Ok(Some(Located { value, place: said.place }))
    }

    /// What nobody has taken.
    fn unused(&self) -> impl Iterator<Item = String> {
        self.0
            .iter()
            .filter(|(_, said)| !said.quiet)
            .map(|(key, said)| format!("{}: {key} is not used here", said.place))
    }
}

/// As a key is known, however it is written.
pub(super) fn normalized_key(key: &str) -> String {
    key.trim().to_ascii_lowercase().replace('-', "_")
}

/// Without values: there is a password among them.
impl fmt::Debug for Options {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self.0.iter().map(|(key, said)| (key, &said.place.0))).finish()
    }
}

pub(super) fn option_error(place: &SourceLocation, key: &str, why: &str) -> Error {
    Error::new(Class::Credentials, format!("{place}: {key}: {why}"))
}
