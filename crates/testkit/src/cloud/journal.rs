//! Every request that came, in order.

use std::time::SystemTime;

use serde_json::Value;

use super::exchange::Request;
use crate::faults::fits;

/// A request, and how it was answered.
#[derive(Clone, Debug)]
pub struct Recorded {
    pub method: String,
    pub path: String,
    /// As it came, without the question mark.
    pub query: String,
    /// Names in lower case.
    pub headers: Vec<(String, String)>,
    pub body: Option<Value>,
    /// Nothing, if no reply was sent (yet).
    pub status: Option<u16>,
    /// By the fake's clock.
    pub at: SystemTime,
}

impl Recorded {
    pub(super) fn of(request: &Request, query: &str, at: SystemTime) -> Recorded {
        Recorded {
            method: request.method.clone(),
            path: request.path.clone(),
            query: query.to_owned(),
            headers: request.headers.clone(),
            body: request.json(),
            status: None,
            at,
        }
    }

    /// Whether it fits a pattern like `"GET */lbaas/*"`.
    pub fn fits(&self, pattern: &str) -> bool {
        pattern
            .split_once(' ')
            .is_some_and(|(method, path)| fits(method, &self.method) && fits(path, &self.path))
    }

    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(it, _)| it == name).map(|(_, value)| value.as_str())
    }
}
