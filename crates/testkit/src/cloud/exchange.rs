//! A request and its reply as plain values, and a refusal before its service has put it in its own words.

use std::fmt;

use serde_json::{Value, json};

#[derive(Clone, Debug, Default)]
pub(super) struct Request {
    pub(super) method: String,
    pub(super) path: String,
    pub(super) query: Vec<(String, String)>,
    /// Names in lower case.
    pub(super) headers: Vec<(String, String)>,
    pub(super) body: Vec<u8>,
    /// What stands in the places that the route leaves open.
    pub(super) at: Vec<String>,
    /// Whose token came with it; nobody's, where none is needed.
    pub(super) caller: Caller,
}

/// Who asks, as the token says.
#[derive(Clone, Debug, Default)]
pub(super) struct Caller {
    pub(super) user: String,
    pub(super) project: String,
    pub(super) roles: Vec<String>,
    pub(super) token: String,
}

impl Caller {
    pub(super) fn has(&self, role: &str) -> bool {
        self.roles.iter().any(|it| it == role)
    }

    pub(super) fn is_admin(&self) -> bool {
        self.has("admin")
    }
}

impl Request {
    pub(super) fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(it, _)| it == name).map(|(_, value)| value.as_str())
    }

    /// The first one, if it is given several times.
    pub(super) fn param(&self, name: &str) -> Option<&str> {
        self.query.iter().find(|(it, _)| it == name).map(|(_, value)| value.as_str())
    }

    /// What is no JSON is `None`, as is nothing.
    pub(super) fn json(&self) -> Option<Value> {
        serde_json::from_slice(&self.body).ok()
    }
}

#[derive(Clone, Debug)]
pub(super) struct Reply {
    pub(super) status: u16,
    pub(super) headers: Vec<(String, String)>,
    pub(super) body: Body,
}

#[derive(Clone, Debug)]
pub(super) enum Body {
    Nothing,
    Json(Value),
    /// With its content type.
    Raw(Vec<u8>, &'static str),
}

impl Reply {
    pub(super) fn json(status: u16, body: Value) -> Reply {
        Reply { status, headers: Vec::new(), body: Body::Json(body) }
    }

    pub(super) fn empty(status: u16) -> Reply {
        Reply { status, headers: Vec::new(), body: Body::Nothing }
    }

    pub(super) fn raw(status: u16, body: impl Into<Vec<u8>>, content: &'static str) -> Reply {
        Reply { status, headers: Vec::new(), body: Body::Raw(body.into(), content) }
    }

    #[must_use]
    pub(super) fn with(mut self, header: &str, value: impl Into<String>) -> Reply {
        self.headers.push((header.to_owned(), value.into()));
        self
    }

    /// `{"listener": {…}}`
    pub(super) fn one(status: u16, name: &str, body: impl Into<Value>) -> Reply {
        Reply::json(status, json!({ name: body.into() }))
    }
}

/// What a service will not do. Each service has its own format for it.
#[derive(Clone, Debug)]
pub(super) struct Refusal {
    pub(super) status: u16,
    /// Neutron's `type`, Keystone's and Barbican's `title`; unused elsewhere.
    pub(super) kind: &'static str,
    pub(super) message: String,
}

impl Refusal {
    pub(super) fn new(status: u16, message: impl fmt::Display) -> Refusal {
        Refusal { status, kind: "", message: message.to_string() }
    }

    pub(super) fn of(status: u16, kind: &'static str, message: impl fmt::Display) -> Refusal {
        Refusal { status, kind, message: message.to_string() }
    }
}

pub(super) type Answer = Result<Reply, Refusal>;
