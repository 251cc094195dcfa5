//! What must hold for whatever stands in files of credentials (`fuzz/README.md`).

#![allow(
    clippy::arithmetic_side_effects,
    clippy::expect_used,
    clippy::indexing_slicing,
    reason = "what is wrong ends the fuzz target"
)]

use std::path::Path;

use seaway_tree::{Entry, Node, Value};

use super::{clouds::parse, duration};

/// What aliases may add to a document, in values at the most.
const EXPANDED: usize = 1 << 17;
/// What is nested less can be written down without aliases.
const PLAIN_DEPTH: usize = 60;
/// More values take too long to write down.
const PLAIN_VALUES: usize = 3_000;

/// Any text is a tree whose places are within it, or is refused with such a place. Aliases do not make it endless, and what was
/// read, written down plainly, reads back equal.
pub fn clouds(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    let lines = text.split(['\n', '\r']).count();
    let root = match parse(text, Path::new("clouds.yaml")) {
        Ok(root) => root,
        Err(error) => {
            let told = error.to_string();
            let line = told.strip_prefix("clouds.yaml:").and_then(|it| it.split(':').next()?.parse().ok());
            return assert!(line.is_some_and(|line: usize| line <= lines + 1), "{told}, of {lines} lines");
        }
    };
    let mut plain = String::new();
    let (mut nodes, mut deepest, mut waiting) = (0, 0, vec![(&root, 0)]);
    while let Some((node, depth)) = waiting.pop() {
        nodes += 1;
        deepest = deepest.max(depth);
        assert!((1..=lines + 1).contains(&(node.at.line as usize)), "line {} of {lines}", node.at.line);
        match &node.value {
            Value::List(items) => waiting.extend(items.iter().map(|item| (item, depth + 1))),
            Value::Map(entries) => waiting.extend(entries.iter().map(|entry| (&entry.value, depth + 1))),
            Value::Null | Value::Text(_) => {}
            Value::Bool(_) | Value::Int(_) | Value::Float(_) => panic!("{node:?} is not text"),
        }
    }
    assert!(nodes <= text.len() + EXPANDED, "{nodes} values of {} bytes", text.len());
    // Aliases may nest what is written out deeper than a text may.
    if deepest >= PLAIN_DEPTH || nodes > PLAIN_VALUES {
        return;
    }
    if let Ok(json) = serde_json::from_str(text) {
        assert!(is_as(&root, &json), "as JSON it is something else");
    }
    write(&root, &mut plain);
    let again = parse(&plain, Path::new("clouds.yaml")).expect("what was written plainly can be read");
    assert!(is_like(&again, &root), "{plain}");
}

/// On one line.
fn write(node: &Node, out: &mut String) {
    match &node.value {
        Value::Null => out.push('~'),
        Value::Text(text) => quote(text, out),
        Value::Bool(_) | Value::Int(_) | Value::Float(_) => unreachable!("they are texts"),
        Value::List(items) => {
            out.push('[');
            for item in items {
                write(item, out);
                out.push_str(", ");
            }
            out.push(']');
        }
        Value::Map(entries) => {
            out.push('{');
            for entry in entries {
                quote(&entry.key, out);
                out.push_str(": ");
                write(&entry.value, out);
                out.push_str(", ");
            }
            out.push('}');
        }
    }
}

fn quote(text: &str, out: &mut String) {
    out.push('"');
    for c in text.chars() {
        match c {
            '"' | '\\' => out.extend(['\\', c]),
            ' '..='~' => out.push(c),
            _ => out.push_str(&format!("\\U{:08x}", u32::from(c))),
        }
    }
    out.push('"');
}

/// JSON is YAML. A number is the text that it is written as.
fn is_as(node: &Node, json: &serde_json::Value) -> bool {
    use serde_json::Value as Json;
    match (&node.value, json) {
        (Value::Null, Json::Null) | (Value::Text(_), Json::Bool(_) | Json::Number(_)) => true,
        (Value::Text(text), Json::String(string)) => text == string,
        (Value::List(items), Json::Array(all)) => {
            items.len() == all.len() && items.iter().zip(all).all(|(item, json)| is_as(item, json))
        }
        (Value::Map(entries), Json::Object(all)) => {
            let same = |it: &Entry| all.get(&it.key).is_some_and(|json| is_as(&it.value, json));
            entries.len() == all.len() && entries.iter().all(same)
        }
        _ => false,
    }
}

fn is_like(one: &Node, other: &Node) -> bool {
    match (&one.value, &other.value) {
        (Value::Null, Value::Null) => true,
        (Value::Text(one), Value::Text(other)) => one == other,
        (Value::List(one), Value::List(other)) => {
            one.len() == other.len() && one.iter().zip(other).all(|(one, other)| is_like(one, other))
        }
        (Value::Map(one), Value::Map(other)) => {
            let same =
                |(one, other): (&Entry, &Entry)| one.key == other.key && is_like(&one.value, &other.value);
            one.len() == other.len() && one.iter().zip(other).all(same)
        }
        _ => false,
    }
}

/// A time is as long as whole numbers say, counted one by one; what they do not understand is none.
pub fn duration(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    let read = duration::read(text);
    // Seconds may be written as any number is, and so as no Go program writes them.
    let plain = |c: char| c.is_ascii_digit() || ".hmsunµμ".contains(c);
    if !text.chars().all(plain) || text.chars().filter(char::is_ascii_digit).count() > 15 {
        return;
    }
    match (read, nanoseconds(text)) {
        (None, None) => {}
        (Some(read), Some(expected)) => {
            let apart = read.as_nanos().abs_diff(expected);
            assert!(apart <= 10 + expected / 1_000_000_000_000, "{text:?} is {expected} ns, not {read:?}");
        }
        // More years than a Duration has.
        (None, Some(expected)) if expected > u128::from(u64::MAX) * 1_000_000_000 => {}
        (read, expected) => panic!("{text:?} is {read:?}, and by whole numbers {expected:?}"),
    }
}

fn nanoseconds(text: &str) -> Option<u128> {
    let of = |number: &str, unit: u128| -> Option<u128> {
        let (whole, part) = number.split_once('.').unwrap_or((number, ""));
        let digits = format!("{whole}{part}");
        let value = digits.parse::<u128>().ok()? * unit;
        Some(value / 10_u128.pow(u32::try_from(part.len()).ok()?))
    };
    if text.chars().all(|c| c.is_ascii_digit() || c == '.') {
        return of(text, 1_000_000_000);
    }
    let (mut rest, mut all) = (text, 0);
    while !rest.is_empty() {
        let (number, after) = rest.split_at(rest.find(|c: char| !c.is_ascii_digit() && c != '.')?);
        let units = ["ns", "us", "µs", "μs", "ms", "s", "m", "h"];
        let next = after.find(|c: char| c.is_ascii_digit() || c == '.').unwrap_or(after.len());
        all += match units.iter().position(|it| *it == &after[..next])? {
            0 => of(number, 1),
            1..=3 => of(number, 1_000),
            4 => of(number, 1_000_000),
            5 => of(number, 1_000_000_000),
            6 => of(number, 60_000_000_000),
            _ => of(number, 3_600_000_000_000),
        }?;
        rest = &after[next..];
    }
    (!text.is_empty()).then_some(all)
}
