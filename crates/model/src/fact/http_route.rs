//! HTTPRoute of Gateway API: the part of it that is read.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::Meta;
use crate::{
    load_balancer::{Action, Filter, HostPattern, Match},
    name::{Kind, Name, ObjectRef},
};

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HttpRoute {
    pub meta: Meta,
    /// Gateways that it names as parents.
    #[serde(default)]
    pub parents: Vec<Gateway>,
    /// Any of these; empty means every host.
    pub hosts: Vec<HostPattern>,
    pub rules: Vec<RouteRule>,
    /// No object is that: its rules close what was probably meant to be protected, in a text that cannot be read. They take no place from
    /// what is understood.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub guessed: bool,
}

/// A Gateway, by its name.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Gateway {
    pub namespace: Name,
    pub name: Name,
}

impl HttpRoute {
    pub fn object(&self) -> ObjectRef {
        ObjectRef::new(Kind::HTTPRoute, self.meta.namespace.clone(), self.meta.name.clone())
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RouteRule {
    /// Any of these, for the API server fills in `/` where there is none; empty if none of them can be read.
    pub matches: Vec<Match>,
    pub filters: Vec<Filter<BackendRef>>,
    pub action: Action<BackendRef>,
    pub timeout: Option<Duration>,
    pub attempt_timeout: Option<Duration>,
    pub retries: Option<u8>,
    /// Valid, and not understood here: who does not know all of a rule must not follow it.
    pub unsupported: Vec<UnsupportedField>,
}

/// A port of a Service, as a route names it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BackendRef {
    pub namespace: Name,
    pub service: Name,
    pub port: u16,
    /// Where it stands: `spec.rules[0].backendRefs[1]`.
    pub field: Name,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct UnsupportedField {
    pub field: Name,
    /// What it would be: "a filter of type ExtensionRef".
    pub what: Name,
}
