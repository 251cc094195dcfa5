//! Of the manifests in a folder: the fields that are known of each kind, what is read of each, and the table of annotations.

use seaway_manifests::object;
use seaway_plan::annotations::{OptionScope, WEIGHT, place_names, places, rows};
use serde_json::{Map, Value, json};

use super::{DRAFT, SchemaNode};

pub(crate) fn schema() -> Value {
    let mut rules: Vec<Value> = object::kinds()
        .map(|(kind, version, reads)| {
            let mut schema = SchemaNode::of(reads).schema();
            if let Some(annotations) = schema.pointer_mut("/properties/metadata/properties/annotations") {
                *annotations = annotations_of(kind);
            }
            let is_it = json!({
                "required": ["apiVersion", "kind"],
                "properties": { "apiVersion": { "const": version }, "kind": { "const": kind } },
            });
            json!({ "if": is_it, "then": schema })
        })
        .collect();
    let is_list = json!({ "required": ["kind"], "properties": { "kind": { "const": "List" } } });
    let items = json!({ "properties": { "items": { "type": "array", "items": { "$ref": "#" } } } });
    rules.push(json!({ "if": is_list, "then": items }));
    json!({
        "$schema": DRAFT,
        "title": "Manifests of a folder that Seaway serves",
        "type": ["object", "null"],
        "required": ["apiVersion", "kind"],
        "properties": { "apiVersion": { "type": "string" }, "kind": { "type": "string" } },
        "allOf": rules,
    })
}

/// All are text. Of names below `seaway.dev/`, these are all.
fn annotations_of(kind: &str) -> Value {
    let text = |help: String| json!({ "type": "string", "description": help });
    let mut known = Map::new();
    match kind {
        "EndpointSlice" => {
            let help =
                "weight of each endpoint of this slice, 0 to 1000000; 0 gets no new clients".to_owned();
            known.insert(WEIGHT.to_owned(), text(help));
        }
        "Service" | "HTTPRoute" => {
            let is_of_route = |name: &str| places(name).contains(&OptionScope::Route);
            for row in rows().filter(|row| kind == "Service" || is_of_route(row.name())) {
                let help = format!("{} (works at: {})", row.help, place_names(row.name()));
                let others = row.names.iter().filter(|name| **name != row.name());
                let others = others.map(|name| (*name, text(format!("the same as {}", row.name()))));
                known.extend(others.map(|(name, it)| (name.to_owned(), it)));
                known.insert(row.name().to_owned(), text(help));
            }
        }
        // Nobody looks at those of others.
        _ => return json!({ "type": ["object", "null"], "additionalProperties": { "type": "string" } }),
    }
    let names: Vec<&String> = known.keys().collect();
    let is_ours = json!({ "not": { "pattern": "^seaway\\.dev/" } });
    json!({
        "type": ["object", "null"],
        "propertyNames": { "anyOf": [{ "enum": names }, is_ours] },
        "properties": known,
        "additionalProperties": { "type": "string" },
    })
}
