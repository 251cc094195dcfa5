//! Typed access to a tree, with faults that say what field API validation would say, and where.
//!
//! ```text
//!     let faults = Faults::default();
//!     let root = Field::root(&node, &faults);
//!     let (spec, …) = (root.child("spec"), …);         // a manifest: unknown fields are told by `object`
//!     let port = spec.child("port").port();            // None, and a Fault with path and place, if it is none
//!
//!     let file = root.object();                        // a configuration: every key is taken or refused
//!     let listen = file.take("listen").text();
//!     file.finish();                                   // `listn`: unknown field (did you mean `listen`?)
//! ```
//! An accessor gives `None` for a field that is absent or null, and after reporting for one that is wrong; a caller
//! that must have it asks [`Field::required`].

mod fields;
mod reads;

use std::{cell::RefCell, collections::HashSet, fmt};

pub use self::{
    fields::{IntOrString, lenient_ip},
    reads::{FieldReads, FieldType, PathPart},
};
pub use seaway_plan::spelling::nearest;

use crate::tree::{Node, Position, Value};

/// More faults of one object than this teach nobody anything.
const MOST_FAULTS: usize = 100;

/// One thing wrong with a field.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ValidationError {
    /// `spec.ports[0].port`
    pub field: String,
    pub at: Position,
    /// `Invalid value: 70000: must be between 1 and 65535, inclusive`
    pub message: String,
}

impl fmt::Display for ValidationError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.field.is_empty() {
            f.write_str(&self.message)
        } else {
            write!(f, "{}: {}", self.field, self.message)
        }
    }
}

/// Collects what is wrong while a tree is decoded to its end: all of it is told at once.
#[derive(Debug, Default)]
pub struct ValidationErrors {
    told: RefCell<Vec<ValidationError>>,
    /// Apart, for an API server of a later version may allow more.
    beyond_limits: RefCell<Vec<ValidationError>>,
    /// What is asked, if somebody wants to know that.
    reads: Option<RefCell<FieldReads>>,
}

impl ValidationErrors {
    /// Takes down which fields are asked for as well.
    pub fn recording() -> ValidationErrors {
        ValidationErrors { reads: Some(RefCell::default()), ..ValidationErrors::default() }
    }

    pub fn into_reads(self) -> FieldReads {
        self.reads.map(RefCell::into_inner).unwrap_or_default()
    }

    pub fn push(&self, fault: ValidationError) {
        self.told.borrow_mut().push(fault);
    }

    pub fn is_empty(&self) -> bool {
        self.told.borrow().is_empty() && self.beyond_limits.borrow().is_empty()
    }

    /// In the order of the text.
    pub fn into_sorted(mut self) -> Vec<ValidationError> {
        let beyond = self.beyond_limits.take();
        self.told.get_mut().extend(beyond);
        self.into_sorted_within_limits()
    }

    /// The same, without those that say that there is more of something than this version accepts.
    pub(crate) fn into_sorted_within_limits(self) -> Vec<ValidationError> {
        let mut faults = self.told.into_inner();
        faults.sort_by_key(|fault| fault.at);
        // A field that is looked at twice is wrong once.
        let mut told = HashSet::new();
        faults.retain(|fault| told.insert((fault.field.clone(), fault.message.clone())));
        faults.truncate(MOST_FAULTS);
        faults
    }
}

/// A field of a tree, there or not, that knows its path.
#[derive(Clone, Copy)]
pub struct Field<'a> {
    node: Option<&'a Node>,
    at: Position,
    parent: Option<&'a Field<'a>>,
    step: Step<'a>,
    faults: &'a ValidationErrors,
    /// Of a Secret: values are not repeated in messages.
    quiet: bool,
}

#[derive(Clone, Copy)]
enum Step<'a> {
    Root,
    Child(&'a str),
    Index(usize),
    Key(&'a str),
}

impl<'a> Field<'a> {
    pub fn root(node: &'a Node, faults: &'a ValidationErrors) -> Field<'a> {
        Field { node: Some(node), at: node.at, parent: None, step: Step::Root, faults, quiet: false }
    }

    /// Keeps values of this field, and of all below it, out of messages.
    #[must_use]
    pub fn redacted(mut self) -> Field<'a> {
        self.quiet = true;
        self
    }

    /// The same field, whose faults are collected in `faults`.
    pub(crate) fn with_errors<'b>(&'b self, faults: &'b ValidationErrors) -> Field<'b> {
        Field { faults, ..*self }
    }

    /// Adds faults that were collected elsewhere.
    pub(crate) fn add_errors(&self, faults: ValidationErrors) {
        self.faults.told.borrow_mut().extend(faults.told.into_inner());
        self.faults.beyond_limits.borrow_mut().extend(faults.beyond_limits.into_inner());
    }

    pub fn child(&'a self, name: &'a str) -> Field<'a> {
        self.below(Step::Child(name), name)
    }

    /// As [`Field::child`] for keys that users choose: the path says `[key]`.
    pub fn key(&'a self, key: &'a str) -> Field<'a> {
        self.below(Step::Key(key), key)
    }

    fn below(&'a self, step: Step<'a>, key: &str) -> Field<'a> {
        let entry = self.node.and_then(|node| node.entry(key));
        // What is missing is shown where it should be.
        let at = entry.map_or(self.at, |entry| entry.at);
        Field { node: entry.map(|entry| &entry.value), at, parent: Some(self), step, ..*self }
    }

    pub fn at(&self) -> Position {
        self.at
    }

    /// The field's tree, unless it is absent or null.
    pub fn node(&self) -> Option<&'a Node> {
        self.note(FieldType::Other);
        self.present()
    }

    pub(crate) fn present(&self) -> Option<&'a Node> {
        self.node.filter(|node| node.value != Value::Null)
    }

    pub fn is_set(&self) -> bool {
        self.present().is_some()
    }

    pub fn is_list(&self) -> bool {
        self.present().is_some_and(|node| matches!(node.value, Value::List(_)))
    }

    /// Whether there is something, and no map.
    pub fn is_not_a_map(&self) -> bool {
        self.present().is_some_and(|node| !matches!(node.value, Value::Map(_)))
    }

    /// Absent, null or empty text: what an API server calls required. (A list is not missing, only wrong.)
    pub fn is_missing(&self) -> bool {
        self.present().is_none_or(|node| node.value == Value::Text(String::new()))
    }

    /// `spec.ports[0].port`
    pub fn path(&self) -> String {
        let mut path = self.parent.map(Field::path).unwrap_or_default();
        match self.step {
            Step::Root => {}
            Step::Child(name) if path.is_empty() => path.push_str(name),
            Step::Child(name) => path.extend([".", name]),
            Step::Index(index) => path.push_str(&format!("[{index}]")),
            Step::Key(key) => path.extend(["[", key, "]"]),
        }
        path
    }

    /// The items of a list; none of anything else.
    pub fn items(&'a self) -> impl ExactSizeIterator<Item = Field<'a>> {
        self.note(FieldType::List);
        let items: &'a [Node] = match self.present().map(|node| (node, &node.value)) {
            Some((_, Value::List(items))) => items,
            Some((node, _)) => {
                self.wrong_type(node, "a list");
                &[]
            }
            None => &[],
        };
        items.iter().enumerate().map(|(index, node)| Field {
            node: Some(node),
            at: node.at,
            parent: Some(self),
            step: Step::Index(index),
            ..*self
        })
    }

    /// The keys of a map with their values; none of anything else.
    pub fn entries(&'a self) -> impl ExactSizeIterator<Item = (&'a str, Field<'a>)> {
        self.note(FieldType::Map);
        let entries = match self.present().map(|node| (node, &node.value)) {
            Some((_, Value::Map(entries))) => entries.as_slice(),
            Some((node, _)) => {
                self.wrong_type(node, "a map");
                &[]
            }
            None => &[],
        };
        entries.iter().map(|entry| {
            let step = Step::Key(&entry.key);
            (
                entry.key.as_str(),
                Field { node: Some(&entry.value), at: entry.at, parent: Some(self), step, ..*self },
            )
        })
    }

    /// For maps all of whose keys are known.
    pub fn object(&'a self) -> FieldMap<'a> {
        let _reports_what_is_no_map = self.entries();
        FieldMap { field: self, taken: RefCell::default() }
    }
}

/// Faults, in the words of the API server's field errors: each of these adds one, as `field.Required` and the others of
/// Kubernetes' `field` package make one.
impl Field<'_> {
    pub fn error(&self, message: impl Into<String>) {
        self.faults.push(ValidationError { field: self.path(), at: self.at, message: message.into() });
    }

    pub fn invalid(&self, value: impl DisplayValue, why: &str) {
        match self.quiet {
            true => self.error(format!("Invalid value: {why}")),
            false => self.error(format!("Invalid value: {}: {why}", value.shown())),
        }
    }

    pub fn required(&self, why: &str) {
        self.error(detailed("Required value", why));
    }

    pub fn forbidden(&self, why: &str) {
        self.error(detailed("Forbidden", why));
    }

    pub fn unsupported(&self, value: &str, supported: &[&str]) {
        let supported: Vec<String> = supported.iter().map(|name| format!("{name:?}")).collect();
        self.error(format!("Unsupported value: {value:?}: supported values: {}", supported.join(", ")));
    }

    /// As [`Field::unsupported`], with the value that was probably meant.
    pub fn unsupported_with_suggestion(&self, value: &str, supported: &[&str]) {
        let quoted: Vec<String> = supported.iter().map(|name| format!("{name:?}")).collect();
        let near = nearest(value, supported).map(|near| format!(" (did you mean {near:?}?)"));
        let supported = quoted.join(", ");
        self.error(format!(
            "Unsupported value: {value:?}: supported values: {supported}{}",
            near.unwrap_or_default()
        ));
    }

    pub fn duplicate(&self, value: impl DisplayValue) {
        self.error(format!("Duplicate value: {}", value.shown()));
    }

    pub fn too_many(&self, there: usize, allowed: usize) {
        self.beyond_limit(format!("Too many: {there}: must have at most {allowed} items"));
    }

    pub fn too_long(&self, allowed: usize) {
        self.beyond_limit(format!("Too long: may not be more than {allowed} bytes"));
    }

    fn beyond_limit(&self, message: String) {
        let fault = ValidationError { field: self.path(), at: self.at, message };
        self.faults.beyond_limits.borrow_mut().push(fault);
    }

    fn wrong_type(&self, node: &Node, wanted: &str) {
        let hint = match &node.value {
            Value::Bool(_) | Value::Int(_) | Value::Float(_) if wanted == "a string" => ", in quotes",
            _ => "",
        };
        match self.quiet {
            true => self.error(format!("Invalid value: must be {wanted}{hint}")),
            false => self.error(format!("Invalid value: {}: must be {wanted}{hint}", node.shown())),
        }
    }
}

fn detailed(what: &str, why: &str) -> String {
    if why.is_empty() { what.to_owned() } else { format!("{what}: {why}") }
}

/// How a value looks within a fault: text in quotes, numbers bare.
pub trait DisplayValue {
    fn shown(&self) -> String;
}

impl DisplayValue for &str {
    fn shown(&self) -> String {
        const LONGEST: usize = 200;
        match self.char_indices().nth(LONGEST) {
            Some((end, _)) => format!("{:?}…", self.get(..end).unwrap_or_default()),
            None => format!("{self:?}"),
        }
    }
}

impl DisplayValue for i64 {
    fn shown(&self) -> String {
        self.to_string()
    }
}

impl DisplayValue for &Node {
    fn shown(&self) -> String {
        match &self.value {
            Value::Null => "null".to_owned(),
            Value::Bool(value) => value.to_string(),
            Value::Int(value) => value.to_string(),
            Value::Float(value) => value.to_string(),
            Value::Text(value) => value.as_str().shown(),
            Value::List(_) => "\"array\"".to_owned(),
            Value::Map(_) => "\"object\"".to_owned(),
        }
    }
}

/// A map whose keys are taken by name; what nobody took is unknown.
pub struct FieldMap<'a> {
    field: &'a Field<'a>,
    taken: RefCell<Vec<&'a str>>,
}

impl<'a> FieldMap<'a> {
    pub fn take(&self, name: &'a str) -> Field<'a> {
        self.taken.borrow_mut().push(name);
        let field = self.field.child(name);
        field.note_taken();
        field
    }

    /// Reports the keys that nobody took, with the nearest of those that somebody did.
    pub fn finish(self) {
        let taken = self.taken.into_inner();
        let Some(Node { value: Value::Map(entries), .. }) = self.field.present() else { return };
        for entry in entries.iter().filter(|entry| !taken.contains(&entry.key.as_str())) {
            let message = match nearest(&entry.key, &taken) {
                Some(name) => format!("unknown field (did you mean {name:?}?)"),
                None => {
                    let mut known: Vec<String> = taken.iter().map(|name| format!("{name:?}")).collect();
                    known.sort();
                    known.dedup();
                    format!("unknown field (known ones: {})", known.join(", "))
                }
            };
            self.field.below(Step::Child(&entry.key), &entry.key).error(message);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tree::parse;

    /// What `read` makes of a text, and the faults it meets.
    pub(super) fn faults_of(text: &str, read: impl Fn(&Field<'_>)) -> Vec<String> {
        let roots = parse(text).expect("parses");
        let faults = ValidationErrors::default();
        read(&Field::root(&roots[0], &faults));
        faults.into_sorted().iter().map(|fault| format!("{}: {fault}", fault.at)).collect()
    }

    #[test]
    fn an_unknown_key_is_told_with_its_place_and_the_nearest_name() {
        let told = faults_of("listen: x\nserver:\n  tiemout: 5s\n  zzz: 1\n", |root| {
            let file = root.object();
            file.take("listen");
            let server = file.take("server");
            let inner = server.object();
            inner.take("timeout");
            inner.take("address");
            inner.take("address");
            inner.finish();
            file.finish();
        });
        assert_eq!(
            told,
            [
                "3:3: server.tiemout: unknown field (did you mean \"timeout\"?)",
                "4:3: server.zzz: unknown field (known ones: \"address\", \"timeout\")",
            ]
        );
    }

    #[test]
    fn a_wrong_type_is_told_in_the_words_of_the_api_server() {
        let told = faults_of("a: 5\nb: yes\nc: [1]\nd: {x: 1}\n", |root| {
            root.child("a").text();
            root.child("b").text();
            root.child("c").integer();
            let d = root.child("d");
            d.items().for_each(drop);
            root.child("e").text();
        });
        assert_eq!(
            told,
            [
                "1:1: a: Invalid value: 5: must be a string, in quotes",
                "2:1: b: Invalid value: true: must be a string, in quotes",
                "3:1: c: Invalid value: \"array\": must be an integer",
                "4:1: d: Invalid value: \"object\": must be a list",
            ]
        );
    }

    #[test]
    fn values_of_a_quiet_field_are_not_repeated() {
        let told = faults_of("password: 1234\n", |root| {
            let secret = root.redacted();
            secret.child("password").text();
        });
        assert_eq!(told, ["1:1: password: Invalid value: must be a string, in quotes"]);
    }

    #[test]
    fn the_nearest_name_is_near() {
        let names = ["timeouts", "tcpServices", "udpServices"];
        assert_eq!(nearest("tcpservice", &names), Some("tcpServices"));
        assert_eq!(nearest("timeuots", &names), Some("timeouts"));
        assert_eq!(nearest("pools", &names), None);
    }
}
