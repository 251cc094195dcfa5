//! Something that the user must know: what, where, and what to do about it.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::{
    name::{Kind, Name, ObjectRef},
    reason::Reason,
};

/// Where it stands (object and field), a stable reason, a sentence, and the mend.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Problem {
    pub object: ObjectRef,
    /// A path as kubectl prints it: `spec.ports[0].port`. Empty for the object as a whole.
    #[serde(default, skip_serializing_if = "str::is_empty")]
    pub field: Name,
    pub reason: Reason,
    pub message: String,
    /// What to do; may be several lines (a manifest to write, a command to run).
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub fix: String,
    /// File, line and column, where a source knows them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub place: Option<SourceLocation>,
    /// What else the message is about. Programs decide by it and never by the words, which may change.
    #[serde(skip)]
    pub about: Option<ProblemDetail>,
}

/// What the message of a Problem names besides the object that has the Problem.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ProblemDetail {
    /// The field of another object that is to be corrected.
    Field(ObjectRef, Name),
    /// Another object that does not exist, or lacks what is needed. Without a name: there is none of its kind.
    Missing(ObjectRef),
    /// The object that a name was probably meant for.
    Meant(ObjectRef),
    /// The annotation that a name was probably meant for.
    MeantAnnotation(Name),
}

/// Where in a file.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct SourceLocation {
    pub file: Name,
    /// From 1; 0 where only the file is known.
    pub line: u32,
    pub column: u32,
}

impl Problem {
    pub fn new(object: ObjectRef, reason: Reason, message: impl Into<String>) -> Problem {
        Problem {
            object,
            field: Name::default(),
            reason,
            message: message.into(),
            fix: String::new(),
            place: None,
            about: None,
        }
    }

    /// What is wrong and what to do about it, in one line.
    pub fn line(&self) -> String {
        let mut line = self.to_string();
        if !self.fix.is_empty() {
            // A message is a clause, a fix is sentences.
            line.push_str(if line.ends_with(['.', ':', '?']) { " " } else { ". " });
            line.push_str(&self.fix);
        }
        line.replace('\n', " ")
    }

    #[must_use]
    pub fn at(mut self, field: impl Into<Name>) -> Problem {
        self.field = field.into();
        self
    }

    #[must_use]
    pub fn fix(mut self, fix: impl Into<String>) -> Problem {
        self.fix = fix.into();
        self
    }

    #[must_use]
    pub fn about(mut self, about: ProblemDetail) -> Problem {
        self.about = Some(about);
        self
    }

    #[must_use]
    pub fn in_file(mut self, file: impl Into<Name>, line: u32, column: u32) -> Problem {
        self.place = Some(SourceLocation { file: file.into(), line, column });
        self
    }
}

/// `shop.yaml:12:9`, or `shop.yaml`
impl fmt::Display for SourceLocation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.line {
            0 => f.write_str(&self.file),
            line => write!(f, "{}:{line}:{}", self.file, self.column),
        }
    }
}

/// `shop.yaml:12:9: Service default/shop: spec.ports[0].port: … (fix)`
impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(place) = &self.place {
            write!(f, "{place}: ")?;
        }
        // A key of the configuration is its own object.
        let below = self.field.strip_prefix(self.object.name.as_str());
        let is_key = self.object.kind == Kind::Config
            && below.is_some_and(|it| it.is_empty() || it.starts_with(['.', '[']));
        match is_key {
            true => write!(f, "{} {}: ", self.object.kind, self.field)?,
            false => write!(f, "{}: ", self.object)?,
        }
        if !self.field.is_empty() && !is_key {
            write!(f, "{}: ", self.field)?;
        }
        f.write_str(&self.message)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_of_the_configuration_is_named_once() {
        for (name, field, text) in [
            ("tcpServices[0]", "tcpServices[0]", "Config tcpServices[0]: wrong"),
            ("frontDoor", "frontDoor.tls.clients", "Config frontDoor.tls.clients: wrong"),
            ("frontDoor", "", "Config frontDoor: wrong"),
            ("manifests", "", "Config manifests: wrong"),
            ("frontDoor.two", "spec.ports", "Config frontDoor.two: spec.ports: wrong"),
            ("tcpServices[1]", "tcpServices[10]", "Config tcpServices[1]: tcpServices[10]: wrong"),
        ] {
            let object = ObjectRef::new(Kind::Config, "", name);
            assert_eq!(Problem::new(object, Reason::Invalid, "wrong").at(field).to_string(), text);
        }
    }
}
