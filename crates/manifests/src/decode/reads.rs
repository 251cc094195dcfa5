//! What a reader asks of a tree: which fields it takes, and as what it reads each. A schema that is made of this is never another
//! than the reader.

use std::collections::{BTreeMap, BTreeSet};

use super::{Field, Step};

/// As what a field is read.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum FieldType {
    Map,
    List,
    Text,
    Bool,
    /// Both ends belong to it; none is any.
    Integer(Option<(i64, i64)>),
    /// One of these.
    Words(Vec<String>),
    Duration,
    Size,
    /// The reader looks at it by itself: `off` instead of a map, one text instead of a list.
    Other,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum PathPart {
    Field(String),
    /// Each of a list.
    Item,
    /// Each of a map whose keys users choose.
    Key,
}

/// Each field with all that it is read as; nothing, if it is only taken.
pub type FieldReads = BTreeMap<Vec<PathPart>, BTreeSet<FieldType>>;

impl Field<'_> {
    pub(super) fn note(&self, expected: FieldType) {
        if let Some(reads) = &self.faults.reads {
            reads.borrow_mut().entry(self.parts()).or_default().insert(expected);
        }
    }

    pub(super) fn note_taken(&self) {
        if let Some(reads) = &self.faults.reads {
            reads.borrow_mut().entry(self.parts()).or_default();
        }
    }

    fn parts(&self) -> Vec<PathPart> {
        let mut parts = self.parent.map(Field::parts).unwrap_or_default();
        match self.step {
            Step::Root => {}
            Step::Child(name) => parts.push(PathPart::Field(name.to_owned())),
            Step::Index(_) => parts.push(PathPart::Item),
            Step::Key(_) => parts.push(PathPart::Key),
        }
        parts
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{decode::ValidationErrors, tree::parse};

    #[test]
    fn what_a_reader_asks_is_noted_whether_it_is_there_or_not() {
        let roots = parse("list: [{}]\n").expect("parses");
        let faults = ValidationErrors::recording();
        let root = Field::root(&roots[0], &faults);
        let file = root.object();
        file.take("port").port();
        file.take("word").one_of(&[("a", 1), ("b", 2)]);
        file.take("untouched");
        for item in file.take("list").items() {
            item.object().take("name").text();
        }
        let field = |name: &str| PathPart::Field(name.to_owned());
        let reads = faults.into_reads();
        let of = |path: &[PathPart]| reads.get(path).map(|it| it.iter().cloned().collect::<Vec<_>>());
        assert_eq!(of(&[]), Some(vec![FieldType::Map]));
        assert_eq!(of(&[field("port")]), Some(vec![FieldType::Integer(Some((1, 65535)))]));
        assert_eq!(of(&[field("word")]), Some(vec![FieldType::Words(vec!["a".into(), "b".into()])]));
        assert_eq!(of(&[field("untouched")]), Some(Vec::new()));
        assert_eq!(of(&[field("list")]), Some(vec![FieldType::List]));
        assert_eq!(of(&[field("list"), PathPart::Item, field("name")]), Some(vec![FieldType::Text]));
        assert_eq!(reads.len(), 7, "{reads:?}");
    }
}
