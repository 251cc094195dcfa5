//! A reply's object, taken apart field by field: what is missing or null is nothing, what is unknown is kept, what
//! cannot be understood is told by its name.

use std::fmt;

use serde::{Deserialize, Deserializer, de::DeserializeOwned};
use serde_json::{Map, Value};

use super::{Id, InvalidId, Resource};

/// Fields that this version does not know, as they were told.
pub type UnknownFields = Map<String, Value>;

/// Why an object of a reply was not understood.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FieldError {
    pub field: String,
    pub why: String,
}

impl fmt::Display for FieldError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.field.is_empty() {
            return f.write_str(&self.why);
        }
        write!(f, "{}: {}", self.field, self.why)
    }
}

/// What is left of an object.
#[derive(Debug)]
pub struct Fields(Map<String, Value>);

impl Fields {
    pub fn of(object: Value) -> Result<Fields, FieldError> {
        match object {
            Value::Object(map) => Ok(Fields(map)),
            other => Err(FieldError {
                field: String::new(),
                why: format!("{} where an object should be", brief(&other)),
            }),
        }
    }

    /// A field that may be missing or null, which is its default. So is `""` for what is no text: some services write
    /// it where they mean null.
    pub fn take<T: DeserializeOwned + Default>(&mut self, field: &str) -> Result<T, FieldError> {
        match self.0.remove(field) {
            None | Some(Value::Null) => Ok(T::default()),
            Some(Value::String(text)) if text.is_empty() => {
                Ok(serde_json::from_value(Value::String(text)).unwrap_or_default())
            }
            Some(value) => understood(field, value),
        }
    }

    /// A field that every such object has.
    pub fn need<T: DeserializeOwned>(&mut self, field: &str) -> Result<T, FieldError> {
        match self.0.remove(field) {
            None => Err(FieldError { field: field.to_owned(), why: "is missing".to_owned() }),
            Some(value) => understood(field, value),
        }
    }

    /// What it is called by. Barbican gives whole addresses, which end with it.
    pub(crate) fn id<R: Resource>(&mut self) -> Result<Id<R>, FieldError> {
        let text: String = match self.0.get(R::ID) {
            // The whole address is worth keeping beside its end.
            Some(Value::String(address)) if address.contains('/') => address.clone(),
            _ => self.need(R::ID)?,
        };
        let id = text.rsplit('/').next().unwrap_or_default();
        id.parse().map_err(|error: InvalidId| FieldError { field: R::ID.to_owned(), why: error.to_string() })
    }

    pub fn rest(self) -> UnknownFields {
        self.0
    }
}

fn understood<T: DeserializeOwned>(field: &str, value: Value) -> Result<T, FieldError> {
    serde_json::from_value(value)
        .map_err(|error| FieldError { field: field.to_owned(), why: error.to_string() })
}

/// For the fields of what is nested: null is nothing there too.
pub(crate) fn or_default<'de, D, T>(from: D) -> Result<T, D::Error>
where
    D: Deserializer<'de>,
    T: Deserialize<'de> + Default,
{
    Option::<T>::deserialize(from).map(Option::unwrap_or_default)
}

/// A value short enough for a line.
pub(crate) fn brief(value: &Value) -> String {
    let text = value.to_string();
    match text.char_indices().nth(60) {
        Some((at, _)) => format!("{}…", text.get(..at).unwrap_or_default()),
        None => text,
    }
}

#[cfg(test)]
mod tests {
    use std::net::IpAddr;

    use serde_json::json;

    use super::*;

    fn fields(object: Value) -> Fields {
        Fields::of(object).expect("an object")
    }

    #[test]
    fn what_is_missing_null_or_an_empty_text_is_nothing() {
        let mut it = fields(json!({"null": null, "empty": ""}));
        assert_eq!(it.take::<Vec<u8>>("null"), Ok(vec![]));
        assert_eq!(it.take::<Option<IpAddr>>("empty"), Ok(None));
        assert_eq!(it.take::<u16>("missing"), Ok(0));
    }

    #[test]
    fn what_is_not_understood_is_told_by_its_name_and_what_is_unknown_stays() {
        let mut it = fields(json!({"port": 70000, "new": {"a": 1}}));
        let wrong = it.take::<u16>("port").expect_err("too large");
        assert_eq!(wrong.field, "port");
        assert_eq!(it.need::<u16>("id").expect_err("none").to_string(), "id: is missing");
        assert_eq!(Value::Object(it.rest()), json!({"new": {"a": 1}}));
        assert!(Fields::of(json!([1])).is_err());
    }
}
