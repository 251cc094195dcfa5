//! Text to tree: YAML as kubectl reads it, and JSON, with the place of every key and value.
//!
//! Scalars mean what `sigs.k8s.io/yaml` makes of them: YAML 1.2's core types, and 1.1's `yes`, `off` and `0755`,
//! because a manifest that works with kubectl has to work here. Everything is bounded: depth, nodes, and what
//! aliases may expand to, so that no text of a few lines becomes a tree of gigabytes.
//!
//! Who has no types, as the credentials of a cloud, reads every scalar as text ([`parse_untyped`]).

#![cfg_attr(not(test), warn(clippy::indexing_slicing, clippy::arithmetic_side_effects, clippy::expect_used))]

mod deserialized;
mod json;
mod scalar;
mod slips;

use std::{collections::HashMap, fmt};

use saphyr_parser::{Event, Marker, Parser, ScalarStyle, ScanError};

/// How deep lists and maps may nest; Kubernetes objects stay below 20.
const DEPTH: usize = 64;
/// How many nodes one document may have.
const NODES: usize = 2_000_000;
/// Nodes and bytes that aliases and anchors may add to one document.
const EXPANSION: (usize, &str) = (1 << 20, "1 MiB");
/// The same where scalars stay text: nobody writes a thousandth of that to name a few clouds.
const UNTYPED_EXPANSION: (usize, &str) = (1 << 17, "128 KiB");

/// A position within a text: line and column, both from 1.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Position {
    pub line: u32,
    pub column: u32,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Node {
    pub at: Position,
    pub value: Value,
}

#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    Null,
    Bool(bool),
    Int(i64),
    Float(f64),
    Text(String),
    List(Vec<Node>),
    Map(Vec<Entry>),
}

#[derive(Clone, Debug, PartialEq)]
pub struct Entry {
    pub key: String,
    pub at: Position,
    pub value: Node,
}

/// Why a text is no tree, and where.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {}, column {}: {message}", at.line, at.column)]
pub struct SyntaxError {
    pub at: Position,
    pub message: String,
}

/// Reads one document, or JSON values one after the other. A text of blanks and comments has none.
pub fn parse(text: &str) -> Result<Vec<Node>, SyntaxError> {
    if !text.trim_start().starts_with('{') {
        return Ok(Builder::default().build(text)?.roots);
    }
    // As kubectl does it: what looks like JSON is read as JSON, which may be indented by tabs; what then is none may
    // still be a YAML flow mapping.
    json::parse(text).or_else(|json| match Builder::default().build(text) {
        Ok(builder) => Ok(builder.roots),
        Err(yaml) => Err(if yaml.at > json.at { yaml } else { json }),
    })
}

/// Reads the first document of YAML. A scalar is null or the text that is written: `password: 0123` is a password, not
/// a number.
pub fn parse_untyped(text: &str) -> Result<Option<Node>, SyntaxError> {
    let builder = Builder { untyped: true, ..Builder::default() };
    Ok(builder.build(text)?.roots.pop())
}

impl Node {
    /// The value of a key, if this is a map that has it.
    pub fn child(&self, key: &str) -> Option<&Node> {
        self.entry(key).map(|entry| &entry.value)
    }

    pub fn entry(&self, key: &str) -> Option<&Entry> {
        self.entries().iter().find(|entry| entry.key == key)
    }

    /// None if this is no map.
    pub fn entries(&self) -> &[Entry] {
        match &self.value {
            Value::Map(entries) => entries,
            _ => &[],
        }
    }

    /// Where the field of this path (`spec.ports[0].port`) stands, or as much of the path as there is.
    pub fn position_of(&self, path: &str) -> Position {
        let (mut node, mut at, mut rest) = (self, self.at, path);
        while !rest.is_empty() {
            let found = match rest.strip_prefix('[') {
                Some(inner) => {
                    let Some((key, after)) = inner.split_once(']') else { break };
                    rest = after.strip_prefix('.').unwrap_or(after);
                    match &node.value {
                        Value::List(items) => {
                            key.parse().ok().and_then(|i: usize| items.get(i)).map(|it| (it.at, it))
                        }
                        _ => node.entry(key).map(|entry| (entry.at, &entry.value)),
                    }
                }
                None => {
                    let end = rest.find(['.', '[']).unwrap_or(rest.len());
                    let (key, after) = rest.split_at(end);
                    // A key may have dots of its own: `metadata.annotations.metallb.io/address-pool`.
                    match node.entry(rest) {
                        Some(entry) => {
                            rest = "";
                            Some((entry.at, &entry.value))
                        }
                        None => {
                            rest = after.strip_prefix('.').unwrap_or(after);
                            node.entry(key).map(|entry| (entry.at, &entry.value))
                        }
                    }
                }
            };
            let Some((place, child)) = found else { break };
            (at, node) = (place, child);
        }
        at
    }
}

impl fmt::Display for Position {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.line, self.column)
    }
}

impl Position {
    fn error(self, message: impl Into<String>) -> SyntaxError {
        SyntaxError { at: self, message: message.into() }
    }
}

impl From<&Marker> for Position {
    fn from(mark: &Marker) -> Position {
        let narrow = |n: usize| u32::try_from(n).unwrap_or(u32::MAX);
        Position { line: narrow(mark.line()).max(1), column: narrow(mark.col()).saturating_add(1) }
    }
}

impl From<ScanError> for SyntaxError {
    fn from(error: ScanError) -> SyntaxError {
        Position::from(error.marker()).error(error.info())
    }
}

/// Puts the parser's events together, without recursion: a stack of what is still open.
#[derive(Default)]
struct Builder {
    roots: Vec<Node>,
    open: Vec<Open>,
    anchors: HashMap<usize, (Node, usize)>,
    nodes: usize,
    expanded: usize,
    /// Scalars stay text, and what follows the first document is not read.
    untyped: bool,
}

struct Open {
    at: Position,
    anchor: usize,
    content: Content,
}

enum Content {
    List(Vec<Node>),
    Map { entries: Vec<Entry>, merged: Vec<Node>, key: Option<Key> },
}

struct Key {
    text: String,
    at: Position,
    merge: bool,
}

impl Builder {
    fn build(mut self, text: &str) -> Result<Builder, SyntaxError> {
        for event in Parser::new_from_str(text) {
            let (event, span) = event
                .map_err(|error| slips::place(error.into(), text, self.open.iter().rev().map(|it| it.at)))?;
            if self.untyped && matches!(event, Event::DocumentEnd) {
                break;
            }
            self.event(event, Position::from(&span.start))?;
        }
        Ok(self)
    }

    fn event(&mut self, event: Event<'_>, at: Position) -> Result<(), SyntaxError> {
        match event {
            Event::Scalar(text, style, anchor, tag) => {
                let plain = style == ScalarStyle::Plain;
                if self.awaits_key() {
                    let key = Key { merge: plain && text == "<<", text: text.into_owned(), at };
                    return self.key(key, anchor);
                }
                let value = if self.untyped {
                    scalar::untyped(text, plain)
                } else {
                    let tag = tag.as_ref().filter(|tag| tag.is_yaml_core_schema());
                    let tag = tag.map(|tag| tag.suffix.as_str());
                    scalar::resolve(text, plain, tag).map_err(|message| at.error(message))?
                };
                self.complete(Node { at, value }, anchor)
            }
            Event::SequenceStart(anchor, _) => self.open(at, anchor, Content::List(Vec::new())),
            Event::MappingStart(anchor, _) => {
                self.open(at, anchor, Content::Map { entries: Vec::new(), merged: Vec::new(), key: None })
            }
            Event::SequenceEnd | Event::MappingEnd => {
                let Some(Open { at, anchor, content }) = self.open.pop() else { return Ok(()) };
                let value = match content {
                    Content::List(items) => Value::List(items),
                    Content::Map { entries, merged, .. } => Value::Map(merge(distinct(entries)?, merged)),
                };
                self.complete(Node { at, value }, anchor)
            }
            Event::Alias(anchor) => {
                let Some((node, weight)) = self.anchors.get(&anchor) else {
                    return Err(at.error("this alias refers to a value that contains the alias itself"));
                };
                let (mut node, weight) = (node.clone(), *weight);
                self.expand(weight, at)?;
                node.at = at;
                match node.value {
                    Value::Text(text) if self.awaits_key() => self.key(Key { text, at, merge: false }, 0),
                    _ => self.complete(node, 0),
                }
            }
            _ => Ok(()),
        }
    }

    fn awaits_key(&self) -> bool {
        matches!(self.open.last(), Some(Open { content: Content::Map { key: None, .. }, .. }))
    }

    fn key(&mut self, key: Key, anchor: usize) -> Result<(), SyntaxError> {
        if anchor != 0 {
            let weight = key.text.len().saturating_add(1);
            self.expand(weight, key.at)?;
            self.anchors.insert(anchor, (Node { at: key.at, value: Value::Text(key.text.clone()) }, weight));
        }
        if let Some(Open { content: Content::Map { key: awaited, .. }, .. }) = self.open.last_mut() {
            *awaited = Some(key);
        }
        Ok(())
    }

    fn open(&mut self, at: Position, anchor: usize, content: Content) -> Result<(), SyntaxError> {
        if self.awaits_key() {
            return Err(at.error("a key has to be plain text, not a list or a map"));
        }
        if self.open.len() >= DEPTH {
            return Err(at.error(format!("nested deeper than {DEPTH} levels")));
        }
        self.open.push(Open { at, anchor, content });
        Ok(())
    }

    fn complete(&mut self, node: Node, anchor: usize) -> Result<(), SyntaxError> {
        self.nodes = self.nodes.saturating_add(1);
        if self.nodes > NODES {
            return Err(node.at.error(format!("more than {NODES} values in one document")));
        }
        if anchor != 0 {
            let weight = weigh(&node);
            self.expand(weight, node.at)?;
            self.anchors.insert(anchor, (node.clone(), weight));
        }
        match self.open.last_mut() {
            None => self.roots.push(node),
            Some(Open { content: Content::List(items), .. }) => items.push(node),
            Some(Open { content: Content::Map { entries, merged, key }, .. }) => match key.take() {
                Some(Key { merge: true, at, .. }) => match node.value {
                    Value::Map(_) => merged.push(node),
                    Value::List(items) if items.iter().all(|it| matches!(it.value, Value::Map(_))) => {
                        merged.extend(items);
                    }
                    _ => return Err(at.error("map merge requires map or sequence of maps as the value")),
                },
                Some(Key { text, at, .. }) => entries.push(Entry { key: text, at, value: node }),
                None => return Err(node.at.error("a key has to be plain text, not a list or a map")),
            },
        }
        Ok(())
    }

    fn expand(&mut self, weight: usize, at: Position) -> Result<(), SyntaxError> {
        self.expanded = self.expanded.saturating_add(weight);
        let (most, told) = if self.untyped { UNTYPED_EXPANSION } else { EXPANSION };
        if self.expanded > most {
            return Err(at.error(format!("anchors and aliases expand to more than {told}")));
        }
        Ok(())
    }
}

fn weigh(node: &Node) -> usize {
    let within = match &node.value {
        Value::Text(text) => text.len(),
        Value::List(items) => items.iter().map(weigh).fold(0, usize::saturating_add),
        Value::Map(entries) => entries.iter().fold(0, |all, entry| {
            usize::saturating_add(all, entry.key.len()).saturating_add(weigh(&entry.value))
        }),
        _ => 0,
    };
    within.saturating_add(1)
}

/// Refuses a map that has a key twice: half of what was written would be lost in silence.
fn distinct(entries: Vec<Entry>) -> Result<Vec<Entry>, SyntaxError> {
    let mut order: Vec<&Entry> = entries.iter().collect();
    order.sort_by(|a, b| (&a.key, a.at).cmp(&(&b.key, b.at)));
    let mut pairs = order.iter().zip(order.iter().skip(1));
    match pairs.find(|(one, next)| one.key == next.key) {
        Some((one, next)) => {
            Err(next.at.error(format!("key {:?} already set in map, at line {}", next.key, one.at.line)))
        }
        None => Ok(entries),
    }
}

/// `<<: *defaults`: keys that the map has not got itself; of several maps the first that has it.
fn merge(mut entries: Vec<Entry>, merged: Vec<Node>) -> Vec<Entry> {
    for node in merged {
        let Value::Map(more) = node.value else { continue };
        for entry in more {
            if entries.iter().all(|own| own.key != entry.key) {
                entries.push(entry);
            }
        }
    }
    entries
}

#[cfg(test)]
mod tests {
    use super::*;

    fn one(text: &str) -> Node {
        let mut roots = parse(text).expect("parses");
        assert_eq!(roots.len(), 1, "{text}");
        roots.remove(0)
    }

    fn error(text: &str) -> String {
        parse(text).expect_err("does not parse").to_string()
    }

    fn scalar(text: &str) -> Value {
        one(&format!("v: {text}")).child("v").expect("has v").value.clone()
    }

    #[test]
    fn scalars_mean_what_kubectl_makes_of_them() {
        for yes in ["true", "True", "yes", "Yes", "on", "ON", "y"] {
            assert_eq!(scalar(yes), Value::Bool(true), "{yes}");
        }
        for no in ["false", "FALSE", "no", "off", "n"] {
            assert_eq!(scalar(no), Value::Bool(false), "{no}");
        }
        for null in ["", "~", "null", "NULL"] {
            assert_eq!(scalar(null), Value::Null, "{null}");
        }
        for (text, number) in [
            ("80", 80),
            ("-1", -1),
            ("+5", 5),
            ("0120", 80),
            ("0o120", 80),
            ("0x50", 80),
            ("0b11", 3),
            ("8_080", 8080),
        ] {
            assert_eq!(scalar(text), Value::Int(number), "{text}");
        }
        assert_eq!(scalar("1.5"), Value::Float(1.5));
        assert_eq!(scalar("09"), Value::Float(9.0));
        assert_eq!(scalar("99999999999999999999"), Value::Float(1e20));
        for text in ["abc", "1.2.3.4", "2026-01-01", "10:30", "0x", "1e3x", "nope", "-"] {
            if text != "-" {
                assert_eq!(scalar(text), Value::Text(text.into()), "{text}");
            }
        }
        for quoted in ["\"80\"", "'80'", "!!str 80"] {
            assert_eq!(scalar(quoted), Value::Text("80".into()), "{quoted}");
        }
    }

    #[test]
    fn without_types_all_but_null_is_text() {
        let tree = parse_untyped("a: 0123\nb:\n  c: yes\n  e: ~\n  f: ''\n  g: '~'\n---\n{")
            .expect("the first is well");
        let tree = tree.expect("a document");
        let text = |text: &str| Some(Value::Text(text.to_owned()));
        let read = |key: &str| tree.child("b").and_then(|b| b.child(key)).map(|it| it.value.clone());
        assert_eq!(tree.child("a").map(|it| it.value.clone()), text("0123"));
        assert_eq!(read("c"), text("yes"));
        assert_eq!(read("e"), Some(Value::Null));
        assert_eq!((read("f"), read("g")), (text(""), text("~")));
        assert_eq!(parse_untyped("# nothing\n"), Ok(None));
    }

    #[test]
    fn every_key_and_value_knows_its_place() {
        let tree = one("a: 1\nb:\n  - c: x\n    d: y\n  - z\n");
        assert_eq!(tree.entry("b").expect("b").at, Position { line: 2, column: 1 });
        assert_eq!(tree.position_of("b[0].d"), Position { line: 4, column: 5 });
        assert_eq!(tree.position_of("b[1]"), Position { line: 5, column: 5 });
        assert_eq!(tree.position_of("b[7].x"), Position { line: 2, column: 1 }, "as far as there is");
        let tree = one("m:\n  k.io/x: v\n  p: q\n");
        assert_eq!(tree.position_of("m[k.io/x]").line, 2);
        assert_eq!(tree.position_of("m.k.io/x").line, 2);
    }

    #[test]
    fn a_broken_text_is_told_by_line_and_column() {
        assert!(error("a: 1\nb: [\n").starts_with("line 3"), "{}", error("a: 1\nb: [\n"));
        assert!(error("a:\n\tb: 1\n").starts_with("line 2"), "{}", error("a:\n\tb: 1\n"));
        assert!(error("a: 1\n  b: 2\n").starts_with("line 2"), "{}", error("a: 1\n  b: 2\n"));
        assert!(error("a: 1\r\nb: 2\r\nc: [\r\n").starts_with("line 4"), "a break of two characters is one");
        assert_eq!(error("a: 1\nb: 2\na: 3\n"), "line 3, column 1: key \"a\" already set in map, at line 1");
        assert!(error("? [a]\n: b\n").contains("a key has to be plain text"));
    }

    #[test]
    fn json_may_be_indented_by_tabs_and_follow_one_another() {
        let roots = parse(
            "{\n\t\"a\": \"\\u00e9\\ud83d\\ude00\\/\",\n\t\"b\": [1, -2.5e1, true, null]\n}\n{\"c\":{}}",
        )
        .expect("parses");
        assert_eq!(roots.len(), 2);
        assert_eq!(roots[0].child("a").expect("a").value, Value::Text("é😀/".into()));
        assert_eq!(roots[0].position_of("b[1]"), Position { line: 3, column: 11 });
        assert_eq!(one("{a: b, c: [d]}").child("a").expect("a").value, Value::Text("b".into()));
        assert_eq!(
            error("{\n  \"a\": 1,\n  \"a\": 2\n}"),
            "line 3, column 3: key \"a\" already set in map, at line 2"
        );
    }

    #[test]
    fn anchors_and_merges_work_and_are_bounded() {
        let tree = one("base: &b {x: 1, y: 2}\nuse:\n  <<: *b\n  y: 3\nagain: *b\n");
        assert_eq!(tree.child("use").and_then(|it| it.child("x")).map(|it| &it.value), Some(&Value::Int(1)));
        assert_eq!(tree.child("use").and_then(|it| it.child("y")).map(|it| &it.value), Some(&Value::Int(3)));
        assert_eq!(
            tree.child("again").and_then(|it| it.child("y")).map(|it| &it.value),
            Some(&Value::Int(2))
        );

        let mut laughs = "a0: &a0 [lol, lol, lol, lol, lol, lol, lol, lol, lol]\n".to_owned();
        for level in 1..12 {
            let aliases = vec![format!("*a{}", level - 1); 9].join(", ");
            laughs += &format!("a{level}: &a{level} [{aliases}]\n");
        }
        assert!(error(&laughs).contains("expand to more than 1 MiB"));
        let untyped = parse_untyped(&laughs).expect_err("is endless").message;
        assert_eq!(untyped, "anchors and aliases expand to more than 128 KiB");
        assert!(error(&"[".repeat(100)).contains("nested deeper"));
        assert!(error(&"- ".repeat(10_000)).contains("nested deeper"));
        assert!(parse(&"[".repeat(100_000)).is_err());
        assert!(parse(&"{\"a\":".repeat(10_000)).is_err());
        assert!(parse("a: &x [*x]").is_err());
    }

    #[test]
    fn nothing_but_comments_is_no_document() {
        assert_eq!(parse("# nothing\n\n"), Ok(vec![]));
        assert_eq!(parse(""), Ok(vec![]));
    }
}
