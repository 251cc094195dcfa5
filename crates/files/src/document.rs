//! A file's documents: found by their `---` lines before anything is parsed, so that a typo in one spoils no other,
//! and each read once as long as its text stays the same.

use std::{
    collections::{BTreeMap, HashMap, HashSet},
    hash::{BuildHasher, BuildHasherDefault, Hasher, RandomState},
    sync::Arc,
};

use seaway_manifests::{
    decode::ValidationError,
    merge_conflict,
    object::{self, ClosedPlaces, InvalidObject, Object, UnusedRoute},
    other_language,
    tree::{self, Node, Position, SyntaxError},
};
use seaway_model::ObjectRef;

/// One document's text within its file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct DocumentText<'t> {
    /// Lines of the file before it.
    pub(crate) line: u32,
    pub(crate) text: &'t str,
}

/// A document that was read; all places are within it.
#[derive(Debug, Default)]
pub(crate) struct Document {
    pub(crate) found: Vec<Arc<LocatedObject>>,
    pub(crate) broken: Vec<InvalidObject>,
    /// What is said and read by nobody: of an object, or of a kind that is not served.
    pub(crate) ignored: Vec<(Option<ObjectRef>, ValidationError)>,
    /// Where something stands that does not say what it is.
    pub(crate) unnamed: Vec<Position>,
    /// Routes that were to protect, and cannot be used.
    pub(crate) unused_routes: Vec<UnusedRoute>,
    /// Of those, the ones of kinds that are not read: the HTTPRoutes that they may have been, and what is wrong now.
    pub(crate) replaced_routes: Vec<(ObjectRef, ValidationError)>,
    /// What something in it was meant to protect that is not read, and where that begins.
    pub(crate) closed: Option<UnreadPlaces>,
}

#[derive(Clone, Debug)]
pub(crate) struct UnreadPlaces {
    pub(crate) line: u32,
    pub(crate) places: ClosedPlaces,
}

/// An object, and where it stands in a document.
#[derive(Debug)]
pub(crate) struct LocatedObject {
    pub(crate) object: Object,
    /// Of its document's text; `None` if that text is no longer in the file.
    pub(crate) document: Option<TextHash>,
    pub(crate) at: Position,
    root: usize,
    item: Option<usize>,
}

/// Tells texts apart within one process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct TextHash(u64);

impl TextHash {
    pub(crate) fn of(text: &str, state: &RandomState) -> TextHash {
        TextHash(state.hash_one(text))
    }
}

/// A hasher for keys that are hashes already.
#[derive(Default)]
pub(crate) struct IdentityHasher(u64);

impl Hasher for IdentityHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|byte| self.0 = self.0.rotate_left(8) ^ u64::from(*byte));
    }

    fn write_u64(&mut self, hash: u64) {
        self.0 = hash;
    }
}

pub(crate) type MapByTextHash<V> = HashMap<TextHash, V, BuildHasherDefault<IdentityHasher>>;
pub(crate) type Hashes = HashSet<TextHash, BuildHasherDefault<IdentityHasher>>;

/// The documents of a file. A line that begins with `---` begins one: within a block scalar too, as YAML has it.
pub(crate) fn split(text: &str) -> Vec<DocumentText<'_>> {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let mut pieces = Vec::new();
    let (mut start, mut first_line) = (0, 0);
    // Only comments and directives so far: they belong to the `---` that follows.
    let mut preamble = true;
    let mut offset = 0;
    for (line, content) in (0_u32..).zip(text.split_inclusive('\n')) {
        let begins = is_marker(content, "---");
        let ends = is_marker(content, "...");
        if ends || (begins && !preamble) {
            pieces.push(DocumentText { line: first_line, text: text.get(start..offset).unwrap_or_default() });
            start = if ends { content.len().saturating_add(offset) } else { offset };
            first_line = line.saturating_add(u32::from(ends));
            preamble = ends;
        }
        if preamble && !ends {
            preamble = !begins && (content.starts_with(['#', '%']) || content.trim().is_empty());
        }
        offset = content.len().saturating_add(offset);
    }
    pieces.push(DocumentText { line: first_line, text: text.get(start..).unwrap_or_default() });
    pieces.retain(|piece| !piece.text.trim().is_empty());
    pieces
}

fn is_marker(line: &str, marker: &str) -> bool {
    line.strip_prefix(marker).is_some_and(|rest| rest.is_empty() || rest.starts_with([' ', '\t', '\r', '\n']))
}

impl Document {
    pub(crate) fn read(text: &str, hash: Option<TextHash>) -> Document {
        let broken = |at, message| {
            let fault = ValidationError { field: String::new(), at, message };
            let broken = vec![InvalidObject { reference: None, errors: vec![fault] }];
            let unused_routes = object::unused_route_in_text(text, at).into_iter().collect();
            let mut document = Document { broken, unused_routes, ..Document::default() };
            document.close_places(text);
            document
        };
        let roots = match tree::parse(text) {
            Ok(roots) => roots,
            Err(SyntaxError { at, message }) => {
                let (at, message) = merge_conflict(text).unwrap_or((at, message));
                return broken(at, other_language(text).unwrap_or(message));
            }
        };
        if let [Node { at, value: tree::Value::Text(_) }] = roots.as_slice()
            && let Some(message) = other_language(text)
        {
            return broken(*at, message);
        }
        let mut document = Document::default();
        for (root, node) in roots.iter().enumerate() {
            let unserved = object::objects(node).into_iter().filter_map(object::unserved_kind);
            document.ignored.extend(unserved.map(|fault| (None, fault)));
            if object::is_unnamed(node) {
                document.unnamed.push(node.at);
            }
            // Where people look for the mistake in an object that is not used; nothing, if it is used.
            let mut places: BTreeMap<Position, Option<Position>> = BTreeMap::new();
            for object::ParsedObject { item, at, result, ignored } in object::read(node) {
                let mistakes = result.as_ref().err().map(|it| it.errors.iter().map(|it| it.at).min());
                places.insert(at, mistakes.map(|it| it.unwrap_or(at)));
                match result {
                    Ok(object) => {
                        let of = |fault| (Some(object.reference.clone()), fault);
                        document.ignored.extend(ignored.into_iter().map(of));
                        document.found.push(Arc::new(LocatedObject {
                            object,
                            document: hash,
                            at,
                            root,
                            item,
                        }))
                    }
                    Err(broken) => document.broken.push(broken),
                }
            }
            for it in object::objects(node) {
                let is_read = places.contains_key(&it.at);
                let Some(place) = places.get(&it.at).copied().unwrap_or(Some(it.at)) else { continue };
                let Some(unused) = object::unused_route(it, place) else { continue };
                document.unused_routes.push(unused);
                document.replaced_routes.extend(object::replaced_route(it).filter(|_| !is_read));
            }
        }
        document.found.shrink_to_fit();
        document.close_places(text);
        document
    }

    /// Reads from the words of the text what it was meant to protect, if anything in it is not read.
    fn close_places(&mut self, text: &str) {
        let of_errors = self.broken.iter().flat_map(|it| &it.errors).map(|it| it.at);
        let of_kinds = self.ignored.iter().filter(|(of, _)| of.is_none()).map(|(_, it)| it.at);
        let of_routes = self.unused_routes.iter().map(|it| it.at);
        let all = of_errors.chain(of_kinds).chain(of_routes).chain(self.unnamed.iter().copied());
        let line = all.map(|it| it.line).min();
        let places = line.and_then(|line| Some(UnreadPlaces { line, places: object::closed_places(text)? }));
        self.closed = places;
    }
}

impl LocatedObject {
    pub(crate) fn reference(&self) -> &ObjectRef {
        &self.object.reference
    }

    /// The same, when its text is no longer there to be looked up.
    pub(crate) fn without_text(self: &Arc<LocatedObject>) -> Arc<LocatedObject> {
        match self.document {
            None => self.clone(),
            Some(_) => {
                let (object, at) = (self.object.clone(), self.at);
                Arc::new(LocatedObject { object, document: None, at, root: 0, item: None })
            }
        }
    }

    /// Where a field of this object stands, within its document's text.
    pub(crate) fn place_of(&self, text: &str, field: &str) -> Option<Position> {
        let roots = tree::parse(text).ok()?;
        let root: &Node = roots.get(self.root)?;
        let node = match (self.item, root.child("items").map(|items| &items.value)) {
            (Some(item), Some(tree::Value::List(items))) => items.get(item)?,
            _ => root,
        };
        // What a Secret says in plain text is its data all the same.
        let plain = field.strip_prefix("data[").and_then(|it| it.strip_suffix(']')).and_then(|key| {
            let strings = &node.entry("stringData")?.value;
            Some(strings.entry(key)?.at)
        });
        Some(plain.unwrap_or_else(|| node.position_of(field)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(text: &str) -> Vec<(u32, &str)> {
        split(text).into_iter().map(|piece| (piece.line, piece.text)).collect()
    }

    #[test]
    fn documents_are_split_by_their_markers() {
        assert_eq!(lines("a: 1\n---\nb: 2\n"), [(0, "a: 1\n"), (1, "---\nb: 2\n")]);
        assert_eq!(lines("---\na: 1\n--- # two\nb: 2"), [(0, "---\na: 1\n"), (2, "--- # two\nb: 2")]);
        assert_eq!(lines("# c\n%YAML 1.2\n---\na: 1\n"), [(0, "# c\n%YAML 1.2\n---\na: 1\n")]);
        assert_eq!(lines("a: 1\n...\n# c\n---\nb: 2\n"), [(0, "a: 1\n"), (2, "# c\n---\nb: 2\n")]);
        assert_eq!(lines("a: ---\nb: x\n ---\n----\n"), [(0, "a: ---\nb: x\n ---\n----\n")]);
        assert_eq!(lines("---\n---\n---\n"), [(0, "---\n"), (1, "---\n"), (2, "---\n")]);
        assert_eq!(lines("\u{feff}a: 1\r\n---\r\nb: 2"), [(0, "a: 1\r\n"), (1, "---\r\nb: 2")]);
        assert_eq!(lines(" \n\n"), []);
    }

    #[test]
    fn a_broken_document_spoils_no_other() {
        let good = "apiVersion: v1\nkind: Namespace\nmetadata: {name: a}\n";
        let text = format!("{good}---\na: [\n---\n{good}");
        let read: Vec<Document> = split(&text).iter().map(|piece| Document::read(piece.text, None)).collect();
        assert_eq!(
            read.iter().map(|it| (it.found.len(), it.broken.len())).collect::<Vec<_>>(),
            [(1, 0), (0, 1), (1, 0)]
        );
    }
}
