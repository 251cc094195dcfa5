//! What a service keeps: rows of plain data, with the indexes that make thousands of them quick to find.

use std::collections::{BTreeSet, HashMap};

use serde_json::{Map, Value};

/// Attributes as the API names them.
pub(super) type Fields = Map<String, Value>;

/// One object. What can be derived (ids of children, say) is not in it.
#[derive(Clone, Debug, Default)]
pub(super) struct Row {
    pub(super) id: String,
    pub(super) project: String,
    /// The object that it lives and dies with, if there is one.
    pub(super) parent: Option<String>,
    /// What no other row may have too.
    pub(super) key: Option<String>,
    pub(super) created: String,
    pub(super) fields: Fields,
}

impl Row {
    /// The text of an attribute; empty for null and for what is no text.
    pub(super) fn text(&self, name: &str) -> &str {
        text(&self.fields, name)
    }

    pub(super) fn set(&mut self, name: &str, value: impl Into<Value>) {
        self.fields.insert(name.to_owned(), value.into());
    }

    pub(super) fn is(&self, name: &str) -> bool {
        self.fields.get(name) == Some(&Value::Bool(true))
    }

    fn place(&self) -> ListOrder {
        (self.created.clone(), self.id.clone())
    }
}

pub(super) fn text<'f>(fields: &'f Fields, name: &str) -> &'f str {
    fields.get(name).and_then(Value::as_str).unwrap_or_default()
}

/// Creation time and id: the order in which the services list.
type ListOrder = (String, String);

/// All objects of one kind.
#[derive(Clone, Debug, Default)]
pub(super) struct Table {
    rows: HashMap<String, Row>,
    order: BTreeSet<ListOrder>,
    by_project: HashMap<String, BTreeSet<ListOrder>>,
    by_parent: HashMap<String, BTreeSet<ListOrder>>,
    by_key: HashMap<String, String>,
}

impl Table {
    pub(super) fn put(&mut self, row: Row) {
        self.remove(&row.id);
        let place = row.place();
        self.order.insert(place.clone());
        self.by_project.entry(row.project.clone()).or_default().insert(place.clone());
        if let Some(parent) = &row.parent {
            self.by_parent.entry(parent.clone()).or_default().insert(place);
        }
        if let Some(key) = &row.key {
            self.by_key.insert(key.clone(), row.id.clone());
        }
        self.rows.insert(row.id.clone(), row);
    }

    pub(super) fn row(&self, id: &str) -> Option<&Row> {
        self.rows.get(id)
    }

    /// Of what it gives, only `fields` may be changed: the rest is indexed.
    pub(super) fn row_mut(&mut self, id: &str) -> Option<&mut Row> {
        self.rows.get_mut(id)
    }

    pub(super) fn remove(&mut self, id: &str) -> Option<Row> {
        let row = self.rows.remove(id)?;
        let place = row.place();
        self.order.remove(&place);
        leave(&mut self.by_project, &row.project, &place);
        if let Some(parent) = &row.parent {
            leave(&mut self.by_parent, parent, &place);
        }
        if let Some(key) = &row.key {
            self.by_key.remove(key);
        }
        Some(row)
    }

    pub(super) fn with_key(&self, key: &str) -> Option<&Row> {
        self.by_key.get(key).and_then(|id| self.rows.get(id))
    }

    /// All, in the order in which they are listed.
    pub(super) fn iter(&self) -> impl Iterator<Item = &Row> {
        self.order.iter().filter_map(|(_, id)| self.rows.get(id))
    }

    pub(super) fn of_project(&self, project: &str) -> impl Iterator<Item = &Row> {
        self.found(&self.by_project, project)
    }

    pub(super) fn count_of_project(&self, project: &str) -> usize {
        self.by_project.get(project).map_or(0, BTreeSet::len)
    }

    pub(super) fn children(&self, parent: &str) -> impl Iterator<Item = &Row> {
        self.found(&self.by_parent, parent)
    }

    pub(super) fn child_ids(&self, parent: &str) -> Vec<String> {
        self.children(parent).map(|row| row.id.clone()).collect()
    }

    fn found<'t>(
        &'t self,
        index: &'t HashMap<String, BTreeSet<ListOrder>>,
        key: &str,
    ) -> impl Iterator<Item = &'t Row> {
        index.get(key).into_iter().flatten().filter_map(|(_, id)| self.rows.get(id))
    }
}

fn leave(index: &mut HashMap<String, BTreeSet<ListOrder>>, key: &str, place: &ListOrder) {
    if let Some(places) = index.get_mut(key) {
        places.remove(place);
        if places.is_empty() {
            index.remove(key);
        }
    }
}
