//! JSON schemas for editors, made of what the readers themselves ask for: none of it is written twice.

pub(crate) mod config;
pub(crate) mod manifests;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};

use seaway_manifests::decode::{FieldReads, FieldType, PathPart};
use serde_json::{Map, Value, json};

/// What yaml-language-server reads.
const DRAFT: &str = "http://json-schema.org/draft-07/schema#";

/// A field with all that is below it.
#[derive(Debug, Default)]
struct SchemaNode {
    expected: BTreeSet<FieldType>,
    fields: BTreeMap<String, SchemaNode>,
    item: Option<Box<SchemaNode>>,
    /// Of a map whose keys users choose.
    key: Option<Box<SchemaNode>>,
    description: Option<String>,
}

impl SchemaNode {
    fn of(reads: FieldReads) -> SchemaNode {
        let mut root = SchemaNode::default();
        for (path, expected) in reads {
            root.at(&path).expected.extend(expected);
        }
        root
    }

    fn at(&mut self, path: &[PathPart]) -> &mut SchemaNode {
        let Some((first, rest)) = path.split_first() else { return self };
        let below = match first {
            PathPart::Field(name) => self.fields.entry(name.clone()).or_default(),
            PathPart::Item => self.item.get_or_insert_default(),
            PathPart::Key => self.key.get_or_insert_default(),
        };
        below.at(rest)
    }

    fn schema(&self) -> Value {
        let mut any: Vec<Value> = self.expected.iter().map(|it| self.one(it)).collect();
        if any.is_empty() && !self.fields.is_empty() {
            any.push(self.one(&FieldType::Map));
        }
        let mut schema = match any.as_mut_slice() {
            [] => Map::new(),
            [Value::Object(one)] => {
                // A key without a value is as good as none.
                if let Some(Value::String(of)) = one.get("type").cloned() {
                    one.insert("type".to_owned(), json!([of, "null"]));
                }
                if let Some(Value::Array(words)) = one.get_mut("enum") {
                    words.push(Value::Null);
                }
                std::mem::take(one)
            }
            _ => {
                any.push(json!({ "type": "null" }));
                Map::from_iter([("anyOf".to_owned(), any.into())])
            }
        };
        if let Some(text) = &self.description {
            schema.insert("description".to_owned(), text.as_str().into());
        }
        schema.into()
    }

    fn one(&self, expected: &FieldType) -> Value {
        match expected {
            FieldType::Map if self.fields.is_empty() && self.key.is_none() => json!({ "type": "object" }),
            FieldType::Map => {
                let fields = self.fields.iter().map(|(name, it)| (name.clone(), it.schema()));
                let others = self.key.as_ref().map_or(Value::Bool(false), |it| it.schema());
                json!({
                    "type": "object",
                    "properties": fields.collect::<Map<_, _>>(),
                    "additionalProperties": others,
                })
            }
            FieldType::List => {
                let item = self.item.as_ref().map_or_else(|| json!({}), |it| it.schema());
                json!({ "type": "array", "items": item })
            }
            FieldType::Text => json!({ "type": "string" }),
            FieldType::Bool => json!({ "type": "boolean" }),
            FieldType::Integer(None) => json!({ "type": "integer" }),
            FieldType::Integer(Some((least, most))) => {
                json!({ "type": "integer", "minimum": least, "maximum": most })
            }
            FieldType::Words(words) => json!({ "type": "string", "enum": words }),
            FieldType::Duration | FieldType::Size => json!({ "type": ["string", "integer", "null"] }),
            FieldType::Other => json!({ "type": ["string", "boolean", "number", "null"] }),
        }
    }
}
