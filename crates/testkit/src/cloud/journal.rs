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

    /// A list that asks for statuses and little else: what waits for a change repeats it.
    pub fn is_poll(&self) -> bool {
        let is_list = self.method == "GET" && self.path.ends_with("/lbaas/loadbalancers");
        let asks = |field: &str| self.query.contains(&format!("fields={field}"));
        is_list && asks("provisioning_status") && !asks("vip")
    }

    /// Gives something that is there another name.
    pub fn renames(&self) -> bool {
        let named = |body: &Value| {
            body.as_object().into_iter().flat_map(|it| it.values()).any(|it| it.get("name").is_some())
        };
        self.method == "PUT" && self.body.as_ref().is_some_and(named)
    }

    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(it, _)| it == name).map(|(_, value)| value.as_str())
    }
}
