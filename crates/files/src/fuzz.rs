//! Targets for fuzzing: plain functions over bytes that panic when an invariant does not hold.

#![allow(clippy::arithmetic_side_effects, clippy::expect_used, reason = "what is wrong ends the fuzz target")]

use seaway_manifests::{
    decode::{Field, ValidationErrors},
    object,
    tree::{self, Node, Position, Value},
};

use crate::{
    document::{self, Document},
    last_good,
    state::fuzz_reading,
    state_cache,
};

/// Any text is a tree or an error whose place is within it; every node's place is, too.
pub fn tree(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    let lines = u32::try_from(text.split(['\n', '\r']).count()).unwrap_or(u32::MAX);
    let within =
        |at: Position| assert!((1..=lines + 1).contains(&at.line) && at.column >= 1, "{at} of {lines} lines");
    match tree::parse(text) {
        Err(error) => within(error.at),
        Ok(roots) => {
            let mut waiting: Vec<&Node> = roots.iter().collect();
            while let Some(node) = waiting.pop() {
                within(node.at);
                match &node.value {
                    Value::List(items) => waiting.extend(items),
                    Value::Map(entries) => waiting.extend(entries.iter().map(|entry| &entry.value)),
                    _ => {}
                }
            }
        }
    }
}

/// Any file is documents whose texts make up the file, and each of them is read or refused with a place.
pub fn manifest(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    let mut line = 0;
    for piece in document::split(text) {
        assert!(text.contains(piece.text) && piece.line >= line, "documents follow one another");
        line = piece.line;
        let document = Document::read(piece.text, None);
        for found in &document.found {
            assert!(!found.reference().name.is_empty(), "an object has a name");
            let at = found.place_of(piece.text, "metadata.name").expect("what was read is found again");
            assert!(at.line >= 1);
        }
        for broken in &document.broken {
            assert!(!broken.errors.is_empty(), "what is refused is told why");
        }
        let Ok(roots) = tree::parse(piece.text) else { continue };
        for root in &roots {
            assert_eq!(object::read(root).len(), object::read(root).len());
            let faults = ValidationErrors::default();
            let field = Field::root(root, &faults);
            field.object().finish();
        }
    }
}

/// Any bytes are a ledger, if a broken one; what is read of it reads back equal.
pub fn ledger(bytes: &[u8]) {
    fuzz_reading(bytes);
}

/// Any bytes are what a cluster said last, or refused: never a part of it, and never another host's.
pub fn snapshot(bytes: &[u8]) {
    state_cache::fuzz_reading(bytes);
}

/// Any bytes are the last good state of a file, or nothing.
pub fn last_good(bytes: &[u8]) {
    last_good::fuzz_recall(bytes);
}
