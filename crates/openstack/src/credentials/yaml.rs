//! `clouds.yaml` as a tree that knows its lines. Every scalar is text: `password: 0123` is a password, not a number.

use std::{collections::HashMap, path::Path};

use saphyr_parser::{Event, Parser, ScalarStyle};

use super::Place;
use crate::error::{Class, Error};

/// Far more than any `clouds.yaml` has, aliases expanded.
pub(super) const NODES: usize = 100_000;
pub(super) const DEPTH: usize = 32;

#[derive(Clone, Debug)]
pub(super) struct Node {
    pub(super) line: usize,
    pub(super) value: Value,
    /// How many nodes it is, itself included.
    weight: usize,
}

#[derive(Clone, Debug)]
pub(super) enum Value {
    Null,
    Text(String),
    List(Vec<Node>),
    Map(Vec<Entry>),
}

#[derive(Clone, Debug)]
pub(super) struct Entry {
    pub(super) key: String,
    pub(super) line: usize,
    pub(super) node: Node,
}

/// The first document; nothing of an empty file.
pub(super) fn parse(text: &str, file: &Path) -> Result<Node, Error> {
    let place = |line: usize| Place(format!("{}:{line}", file.display()));
    let mut builder = Builder::default();
    for event in Parser::new_from_str(text) {
        let (event, span) = event.map_err(|fault| wrong(&place(fault.marker().line()), fault.info()))?;
        if matches!(event, Event::DocumentEnd) {
            break;
        }
        let line = span.start.line();
        builder.event(event, line).map_err(|what| wrong(&place(line), what))?;
    }
    Ok(builder.root.unwrap_or(Node { line: 1, value: Value::Null, weight: 1 }))
}

fn wrong(place: &Place, what: &str) -> Error {
    Error::new(Class::Credentials, format!("{place}: {what}")).with_fix("the file has to be YAML")
}

impl Node {
    /// The value of a key; `endpoint-type` and `endpoint_type` are one.
    pub(super) fn child(&self, key: &str) -> Option<&Node> {
        self.entries().iter().find(|entry| normal(&entry.key) == key).map(|entry| &entry.node)
    }

    pub(super) fn entries(&self) -> &[Entry] {
        match &self.value {
            Value::Map(entries) => entries,
            _ => &[],
        }
    }
}

pub(super) fn normal(key: &str) -> String {
    key.trim().to_ascii_lowercase().replace('-', "_")
}

/// Puts the parser's events together, without recursion: a stack of what is still open.
#[derive(Default)]
struct Builder {
    root: Option<Node>,
    open: Vec<Open>,
    anchors: HashMap<usize, Node>,
    nodes: usize,
}

struct Open {
    line: usize,
    anchor: usize,
    weight: usize,
    content: Content,
}

enum Content {
    List(Vec<Node>),
    Map { entries: Vec<Entry>, merged: Vec<Node>, key: Option<(String, usize)> },
}

impl Builder {
    fn event(&mut self, event: Event<'_>, line: usize) -> Result<(), &'static str> {
        match event {
            Event::Scalar(text, style, anchor, _) => {
                let null =
                    style == ScalarStyle::Plain && matches!(&*text, "" | "~" | "null" | "Null" | "NULL");
                let value = if null { Value::Null } else { Value::Text(text.into_owned()) };
                self.complete(Node { line, value, weight: 1 }, anchor)
            }
            Event::Alias(anchor) => {
                let mut node = self.anchors.get(&anchor).cloned().ok_or("an alias of nothing")?;
                node.line = line;
                self.complete(node, 0)
            }
            Event::SequenceStart(anchor, _) => self.open(line, anchor, Content::List(Vec::new())),
            Event::MappingStart(anchor, _) => {
                self.open(line, anchor, Content::Map { entries: Vec::new(), merged: Vec::new(), key: None })
            }
            Event::SequenceEnd | Event::MappingEnd => {
                let Some(Open { line, anchor, weight, content }) = self.open.pop() else { return Ok(()) };
                let value = match content {
                    Content::List(items) => Value::List(items),
                    Content::Map { entries, merged, .. } => Value::Map(with_merged(entries, merged)),
                };
                self.complete(Node { line, value, weight: weight.saturating_add(1) }, anchor)
            }
            _ => Ok(()),
        }
    }

    fn open(&mut self, line: usize, anchor: usize, content: Content) -> Result<(), &'static str> {
        if self.open.len() >= DEPTH {
            return Err("nested too deeply");
        }
        self.open.push(Open { line, anchor, weight: 0, content });
        Ok(())
    }

    fn complete(&mut self, node: Node, anchor: usize) -> Result<(), &'static str> {
        // Aliases of aliases grow without end on a few lines.
        self.nodes = self.nodes.saturating_add(node.weight);
        if self.nodes > NODES {
            return Err("too many values");
        }
        if anchor != 0 {
            self.nodes = self.nodes.saturating_add(node.weight);
            self.anchors.insert(anchor, node.clone());
        }
        let Some(open) = self.open.last_mut() else {
            self.root = Some(node);
            return Ok(());
        };
        open.weight = open.weight.saturating_add(node.weight);
        match &mut open.content {
            Content::List(items) => items.push(node),
            Content::Map { entries, merged, key } => match (key.take(), node.value) {
                (None, Value::Text(text)) => *key = Some((text, node.line)),
                (None, _) => return Err("a key has to be plain text"),
                (Some((name, _)), Value::List(nodes)) if name == "<<" => merged.extend(nodes),
                (Some((name, _)), value) if name == "<<" => merged.push(Node { value, ..node }),
                (Some((name, _)), _) if entries.iter().any(|entry| entry.key == name) => {
                    return Err("a key is there twice");
                }
                (Some((name, line)), value) => {
                    entries.push(Entry { key: name, line, node: Node { value, ..node } });
                }
            },
        }
        Ok(())
    }
}

/// `<<: *defaults`: keys that the map has not got itself; of several maps the first that has it.
fn with_merged(mut entries: Vec<Entry>, merged: Vec<Node>) -> Vec<Entry> {
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

    fn tree(text: &str) -> Result<Node, String> {
        parse(text, Path::new("clouds.yaml")).map_err(|error| error.to_string())
    }

    #[test]
    fn scalars_are_text_and_know_their_line() {
        let tree = tree("a: 0123\nb:\n  c-d: yes\n  e: ~\n  f: ''\n").expect("parses");
        let b = tree.child("b").expect("b");
        assert!(matches!(&tree.child("a").expect("a").value, Value::Text(text) if text == "0123"));
        let c = b.child("c_d").expect("dashes count as underscores");
        assert!(matches!(&c.value, Value::Text(text) if text == "yes") && c.line == 3);
        assert!(matches!(b.child("e").expect("e").value, Value::Null));
        assert!(matches!(&b.child("f").expect("f").value, Value::Text(text) if text.is_empty()));
    }

    #[test]
    fn anchors_and_merges_are_understood() {
        let tree = tree("x: &x {a: 1, b: 2}\ny:\n  <<: *x\n  b: 3\n").expect("parses");
        let y = tree.child("y").expect("y");
        let text = |key: &str| match &y.child(key).expect("is there").value {
            Value::Text(text) => text.clone(),
            _ => String::new(),
        };
        assert_eq!((text("a"), text("b")), ("1".to_owned(), "3".to_owned()));
    }

    #[test]
    fn what_is_no_yaml_is_told_by_line() {
        let error = tree("a: 1\nb: [\n").unwrap_err();
        assert!(error.starts_with("clouds.yaml:3: "), "{error}");
        assert!(tree("a: 1\na: 2\n").unwrap_err().contains("clouds.yaml:2: a key is there twice"));
        let bomb: String = (0..40)
            .map(|n| {
                format!(
                    "a{n}: &a{n} [{}]\n",
                    if n == 0 { "x".into() } else { format!("*a{0}, *a{0}", n - 1) }
                )
            })
            .collect();
        assert!(tree(&bomb).unwrap_err().contains("too many values"));
    }
}
