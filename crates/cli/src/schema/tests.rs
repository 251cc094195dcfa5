use std::{fs, path::Path};

use seaway_manifests::tree::{self, Node};
use serde_json::{Value, json};

use super::*;
use crate::settings;

/// What a schema of ours says of a value: where it does not fit. It knows the words that our schemas use, and no others.
fn misfits(root: &Value, schema: &Value, value: &Value, at: &str, found: &mut Vec<String>) {
    let Value::Object(words) = schema else {
        assert!(schema.is_boolean(), "{schema}");
        if *schema == Value::Bool(false) {
            found.push(format!("{at}: is not known"));
        }
        return;
    };
    let fits = |schema: &Value| {
        let mut inner = Vec::new();
        misfits(root, schema, value, at, &mut inner);
        inner.is_empty()
    };
    for (word, said) in words {
        let all = || said.as_array().expect("a list").iter();
        let good = match word.as_str() {
            "$schema" | "title" | "description" | "properties" | "then" => true,
            "$ref" => fits(root),
            "type" if said.is_array() => all().any(|it| is_of(value, it)),
            "type" => is_of(value, said),
            "enum" => all().any(|it| it == value),
            "const" => said == value,
            "anyOf" => all().any(fits),
            "not" => !fits(said),
            "minimum" => value.as_i64().is_none_or(|it| it >= said.as_i64().expect("a number")),
            "maximum" => value.as_i64().is_none_or(|it| it <= said.as_i64().expect("a number")),
            "pattern" => value.as_str().is_none_or(|it| it.starts_with("seaway.dev/")),
            "required" => {
                value.as_object().is_none_or(|it| all().all(|key| it.contains_key(key.as_str().unwrap())))
            }
            "allOf" => {
                all().for_each(|it| misfits(root, it, value, at, found));
                true
            }
            "if" => {
                if fits(said) {
                    misfits(root, &words["then"], value, at, found);
                }
                true
            }
            "items" => {
                for (index, item) in value.as_array().into_iter().flatten().enumerate() {
                    misfits(root, said, item, &format!("{at}[{index}]"), found);
                }
                true
            }
            "propertyNames" => {
                for key in value.as_object().into_iter().flatten().map(|it| it.0) {
                    misfits(root, said, &json!(key), &format!("{at}.{key}"), found);
                }
                true
            }
            "additionalProperties" => {
                let known = words.get("properties").and_then(Value::as_object);
                for (key, one) in value.as_object().into_iter().flatten() {
                    if !known.is_some_and(|it| it.contains_key(key)) {
                        misfits(root, said, one, &format!("{at}.{key}"), found);
                    }
                }
                true
            }
            other => panic!("the validator does not know {other:?}"),
        };
        if !good {
            found.push(format!("{at}: {word} {said} and not {value}"));
        }
    }
    for (key, schema) in words.get("properties").and_then(Value::as_object).into_iter().flatten() {
        if let Some(one) = value.get(key) {
            misfits(root, schema, one, &format!("{at}.{key}"), found);
        }
    }
}

fn is_of(value: &Value, name: &Value) -> bool {
    match name.as_str().expect("a word") {
        "object" => value.is_object(),
        "array" => value.is_array(),
        "string" => value.is_string(),
        "boolean" => value.is_boolean(),
        "integer" => value.is_i64(),
        "number" => value.is_number(),
        "null" => value.is_null(),
        other => panic!("{other} is no type"),
    }
}

fn json_of(node: &Node) -> Value {
    serde_json::to_value(node).expect("is JSON")
}

fn misfits_of(schema: &Value, text: &str) -> Vec<String> {
    let mut found = Vec::new();
    for root in tree::parse(text).expect("parses") {
        misfits(schema, schema, &json_of(&root), "", &mut found);
    }
    found
}

fn below(folder: &Path, ending: &str) -> Vec<(String, String)> {
    let mut texts = Vec::new();
    for entry in fs::read_dir(folder).expect("a folder") {
        let path = entry.expect("an entry").path();
        if path.is_dir() {
            texts.extend(below(&path, ending));
        } else if path.extension().is_some_and(|it| it == ending) {
            texts.push((path.display().to_string(), fs::read_to_string(&path).expect("a text")));
        }
    }
    texts
}

fn repository() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."))
}

/// Each piece of YAML on a page.
fn pieces() -> Vec<(String, String)> {
    let pages = below(&repository().join("docs"), "md");
    let of_page = |(page, text): (String, String)| {
        let pieces: Vec<_> = text
            .split("```yaml\n")
            .skip(1)
            .filter_map(|it| Some((page.clone(), it.split_once("\n```")?.0.to_owned())))
            .collect();
        pieces
    };
    pages.into_iter().flat_map(of_page).collect()
}

#[test]
fn the_examples_and_the_manifests_of_the_pages_fit() {
    let schema = manifests::schema();
    let of_pages = pieces().into_iter().filter(|(_, text)| text.contains("apiVersion:"));
    let all: Vec<_> = below(&repository().join("examples"), "yaml").into_iter().chain(of_pages).collect();
    assert!(all.len() > 10, "{}", all.len());
    for (place, text) in all.iter().filter(|(_, text)| tree::parse(text).is_ok()) {
        if !place.contains("examples") || text.contains("apiVersion:") {
            assert_eq!(misfits_of(&schema, text), [""; 0], "{place}:\n{text}");
        }
    }
}

#[test]
fn the_example_of_seaway_yaml_and_all_keys_that_ever_were_fit() {
    let schema = config::schema();
    let golden = include_str!("../../golden/seaway.yaml");
    let of_pages = pieces().into_iter().map(|it| it.1);
    let of_pages =
        of_pages.filter(|it| !it.contains("apiVersion:") && settings::parse(it, Path::new("")).is_ok());
    let all = [settings::EXAMPLE.to_owned(), config::in_force(), golden.to_owned()];
    for text in all.into_iter().chain(of_pages) {
        assert_eq!(misfits_of(&schema, &text), [""; 0], "{text}");
    }
}

#[test]
fn what_check_refuses_does_not_fit() {
    let schema = manifests::schema();
    let service = "apiVersion: v1\nkind: Service\nmetadata: {name: web, annotations: {A}}\nspec: {ports: [{port: 80}]}\n";
    let with = |from: &str, to: &str| misfits_of(&schema, &service.replace("{A}", "{}").replace(from, to));
    assert_eq!(with("", ""), [""; 0]);
    for (from, to, place) in [
        ("ports:", "prots:", ".spec.prots: is not known"),
        ("port: 80", "port: 80, targetport: 9", ".spec.ports[0].targetport: is not known"),
        ("port: 80", "port: 70000", ".spec.ports[0].port: maximum"),
        ("port: 80", "port: '80'", ".spec.ports[0].port: type"),
        ("spec: {", "spec: {type: LoadBalanser, ", ".spec.type: enum"),
        (
            "annotations: {}",
            "annotations: {seaway.dev/balanse: first}",
            ".metadata.annotations.seaway.dev/balanse",
        ),
        (
            "annotations: {}",
            "annotations: {seaway.dev/max-connections: 5}",
            ".metadata.annotations.seaway.dev/max-connections: type",
        ),
        ("kind: Service\n", "", ": required"),
    ] {
        let found = with(from, to);
        assert!(found.iter().any(|it| it.starts_with(place)), "{to}: {found:?}");
    }
    let others =
        "annotations: {seaway.dev/balance: first, prometheus.io/scrape: 'true', metallb.io/address-pool: a}";
    assert_eq!(with("annotations: {}", others), [""; 0]);
    assert_eq!(misfits_of(&schema, "apiVersion: apps/v1\nkind: Deployment\nspec: {any: thing}\n"), [""; 0]);

    let schema = config::schema();
    for (text, place) in [
        ("log: {levle: info}", ".log.levle: is not known"),
        ("log: {format: xml}", ".log.format: enum"),
        ("frontDoor: {port: 0}", ".frontDoor.port: minimum"),
        ("frontDoor: {certificates: [{crt: a}]}", ".frontDoor.certificates[0].crt: is not known"),
        ("dataPlane: {pin: 1}", ".dataPlane.pin: type"),
        ("defualts: {}", ".defualts: is not known"),
    ] {
        let found = misfits_of(&schema, text);
        assert!(found.iter().any(|it| it.starts_with(place)), "{text}: {found:?}");
    }
    let said = &schema["properties"]["drain"]["description"];
    assert_eq!(*said, "How long a clean stop waits for connections to end.");
    let said = &schema["properties"]["dataPlane"]["properties"]["pin"]["description"];
    assert_eq!(*said, "worker i only on CPU i");
}
