//! Trees out of a deserializer, which have no places: what an API server sends is no text to point at. And into a serializer.

use std::fmt;

use serde::{
    Serialize, Serializer,
    de::{Deserialize, Deserializer, Error, MapAccess, SeqAccess, Visitor},
};

use super::{Entry, Node, Position, Value};

/// As every number of JSON that no integer of an object fits is held.
const LARGEST: u64 = i64::MAX as u64;

impl<'de> Deserialize<'de> for Node {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Node, D::Error> {
        deserializer.deserialize_any(Reader).map(nowhere)
    }
}

impl Serialize for Node {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match &self.value {
            Value::Null => serializer.serialize_unit(),
            Value::Bool(it) => serializer.serialize_bool(*it),
            Value::Int(it) => serializer.serialize_i64(*it),
            Value::Float(it) => serializer.serialize_f64(*it),
            Value::Text(it) => serializer.serialize_str(it),
            Value::List(items) => serializer.collect_seq(items),
            Value::Map(entries) => serializer.collect_map(entries.iter().map(|it| (&it.key, &it.value))),
        }
    }
}

fn nowhere(value: Value) -> Node {
    Node { at: Position::default(), value }
}

struct Reader;

impl<'de> Visitor<'de> for Reader {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("any JSON")
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_none<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(Value::Bool(value))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(Value::Int(value))
    }

    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(if value <= LARGEST { Value::Int(value as i64) } else { Value::Float(value as f64) })
    }

    fn visit_f64<E>(self, value: f64) -> Result<Value, E> {
        Ok(Value::Float(value))
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Value, E> {
        Ok(Value::Text(text.to_owned()))
    }

    fn visit_string<E>(self, text: String) -> Result<Value, E> {
        Ok(Value::Text(text))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Value, A::Error> {
        let mut list = Vec::new();
        while let Some(item) = items.next_element()? {
            list.push(item);
        }
        Ok(Value::List(list))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Value, A::Error> {
        let mut map = Vec::new();
        while let Some((key, value)) = entries.next_entry()? {
            map.push(Entry { key, at: Position::default(), value });
        }
        Ok(Value::Map(map))
    }
}
