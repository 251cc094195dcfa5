//! Of `seaway.yaml`: what is read where every key of the example is in force, described by the comments of the example.

use seaway_manifests::{
    decode::PathPart,
    tree::{self, Node, Value as Tree},
};
use serde_json::Value;

use super::{DRAFT, SchemaNode};
use crate::settings::{self, EXAMPLE};

pub(crate) fn schema() -> Value {
    let text = in_force();
    let mut known = SchemaNode::of(settings::fields_read(&text));
    if let Ok([root]) = tree::parse(&text).as_deref() {
        let lines: Vec<&str> = EXAMPLE.lines().collect();
        describe(&mut known, root, &mut Vec::new(), &lines);
    }
    let mut schema = known.schema();
    if let Some(root) = schema.as_object_mut() {
        root.insert("$schema".to_owned(), DRAFT.into());
        root.insert("title".to_owned(), "seaway.yaml".into());
    }
    schema
}

/// The example without the marks that make comments of its keys. Prose has one blank after the mark.
pub(crate) fn in_force() -> String {
    let is_key = |it: &&str| !it.starts_with(' ') || it.starts_with("  ");
    let lines = EXAMPLE.lines().map(|line| line.strip_prefix('#').filter(is_key).unwrap_or(line));
    lines.collect::<Vec<_>>().join("\n")
}

fn describe(known: &mut SchemaNode, node: &Node, path: &mut Vec<PathPart>, lines: &[&str]) {
    match &node.value {
        Tree::Map(entries) => {
            for entry in entries {
                path.push(PathPart::Field(entry.key.clone()));
                // Of a map whose keys users choose, the example's own key is nobody's field.
                if is_known(known, path) {
                    let said = said_at(entry.at.line as usize, path.len() == 1, lines);
                    let field = known.at(path);
                    field.description = field.description.take().or(said);
                    describe(known, &entry.value, path, lines);
                }
                path.pop();
            }
        }
        Tree::List(items) => {
            path.push(PathPart::Item);
            items.iter().for_each(|item| describe(known, item, path, lines));
            path.pop();
        }
        _ => {}
    }
}

fn is_known(known: &SchemaNode, path: &[PathPart]) -> bool {
    let below = |known: &'_ SchemaNode, part: &PathPart| match part {
        PathPart::Field(name) => known.fields.contains_key(name),
        PathPart::Item => known.item.is_some(),
        PathPart::Key => known.key.is_some(),
    };
    let mut at = known;
    for part in path {
        if !below(at, part) {
            return false;
        }
        let next = match part {
            PathPart::Field(name) => at.fields.get(name),
            PathPart::Item => at.item.as_deref(),
            PathPart::Key => at.key.as_deref(),
        };
        match next {
            Some(next) => at = next,
            None => return false,
        }
    }
    true
}

/// What stands behind a key; of one at the top, or else, what stands above it.
fn said_at(line: usize, is_at_the_top: bool, lines: &[&str]) -> Option<String> {
    let index = line.checked_sub(1)?;
    let behind = lines.get(index)?.trim_start_matches('#').split_once(" # ").map(|(_, said)| said.trim());
    if let Some(said) = behind {
        return Some(said.to_owned());
    }
    let above = lines.get(..index)?.iter().rev().map_while(|it| it.strip_prefix("# "));
    let mut above: Vec<&str> = above.collect();
    above.reverse();
    (is_at_the_top && !above.is_empty()).then(|| above.join(" "))
}
