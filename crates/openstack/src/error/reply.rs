//! Each service's own way of saying no, read into the one error.
//!
//! ```text
//!     Keystone   {"error": {"code", "title", "message"}}
//!     Neutron    {"NeutronError": {"type", "message", "detail"}}, or a text instead of the object
//!     Octavia    {"faultcode", "faultstring", "debuginfo"}
//!     Nova       {"badRequest": {"code", "message"}}, the key named by the fault
//!     Barbican   {"code", "title", "description"}
//!     others     {"errors": [{"title", "detail"}]}, {"message": …}, {"error": "…"}
//! ```

use std::time::Duration;

use serde_json::Value;

use super::{Class, Error};
use crate::{call::Call, quota};

/// A reply of status 400 and above.
#[derive(Clone, Copy, Debug)]
pub struct ErrorReply<'a> {
    pub status: u16,
    /// `Null` if it was no JSON.
    pub body: &'a Value,
    pub request_id: Option<&'a str>,
    pub retry_after: Option<Duration>,
    /// The title of what came instead of JSON, if that was a web page.
    pub page: Option<&'a str>,
}

/// The longest text of a service that is repeated to a human.
const LONGEST: usize = 500;

/// What a service said, whichever way it says things.
#[derive(Debug, Default, PartialEq)]
struct ServiceError {
    /// Neutron's names of its exceptions: `OverQuota`.
    kind: String,
    text: String,
}

pub(super) fn read(call: &Call, refusal: &ErrorReply<'_>) -> Error {
    let said = ServiceError::of(refusal.body);
    let class = classify(refusal.status, &said);
    let (service, status) = (call.service.project(), refusal.status);
    let message = match refusal.page {
        Some("") => format!("a web page came instead of an answer of {service} ({status})"),
        Some(title) => format!("a web page ({title:?}) came instead of an answer of {service} ({status})"),
        None if said.text.is_empty() => format!("{service} answered {status}"),
        None => format!("{} ({service} {status})", said.text),
    };
    let error = Error::new(class, message)
        .during(call)
        .with_status(refusal.status)
        .said_by_service(is_of_a_service(refusal.body))
        .with_request_id(refusal.request_id)
        .with_retry_after(refusal.retry_after);
    match advice(error.class(), service, refusal.page.is_some()) {
        Some(fix) => error.with_fix(fix),
        None => error,
    }
}

fn advice(class: &Class, service: &str, page: bool) -> Option<String> {
    match class {
        Class::Broken | Class::Busy if page => Some(format!(
            "the proxy in front of {service} gets no reply from it: ask its operators whether it runs"
        )),
        Class::Broken => {
            Some(format!("{service} failed internally: its operators find the cause in the log of {service}"))
        }
        Class::Busy => Some(format!(
            "{service} is overloaded or limits the rate of requests: if this continues, ask its operators"
        )),
        Class::Unauthorized => Some(format!(
            "a new token was refused, too: the operators must check `keystone_authtoken` of {service}, \
             and whether auth_url is the Keystone that it uses"
        )),
        Class::Unsupported => Some(format!(
            "this version of {service}, or its provider, does not support the request: `seaway openstack check` lists \
                 what can be done"
        )),
        Class::Quota { what } => {
            // It tells of ports, too, of which its providers found too few.
            Some(format!("ask for more {what} (`{}`), or remove some", quota::command(what)))
        }
        Class::Forbidden => {
            Some("the user lacks a role for this request; `openstack role assignment list --names` shows the roles".into())
        }
        _ => None,
    }
}

/// Whether a service wrote it, in its own form; gateways have others, and `{"message": …}` is anybody's.
pub(crate) fn is_of_a_service(body: &Value) -> bool {
    let own = ["NeutronError", "faultstring", "errors"].iter().any(|key| body.get(key).is_some());
    let barbican = ["code", "title", "description"].iter().all(|key| body.get(key).is_some());
    let nested = |map: &serde_json::Map<String, Value>| {
        map.values().any(|it| it.get("code").is_some() && it.get("message").is_some())
    };
    own || barbican || body.as_object().is_some_and(nested)
}

impl ServiceError {
    fn of(body: &Value) -> ServiceError {
        let Value::Object(map) = body else { return ServiceError::default() };
        let text = |value: &Value, keys: &[&str]| {
            keys.iter().find_map(|key| value.get(key)?.as_str()).unwrap_or_default().to_owned()
        };
        let said = if let Some(neutron) = map.get("NeutronError") {
            match neutron {
                Value::String(all) => ServiceError { text: all.clone(), ..ServiceError::default() },
                _ => ServiceError {
                    kind: text(neutron, &["type"]),
                    text: text(neutron, &["message", "detail"]),
                },
            }
        } else if map.contains_key("faultstring") {
            ServiceError { kind: String::new(), text: text(body, &["faultstring"]) }
        } else if let Some(first) = map.get("errors").and_then(|errors| errors.get(0)) {
            ServiceError { kind: text(first, &["code"]), text: text(first, &["detail", "title"]) }
        } else if let Some(plain) =
            ["message", "description", "error", "title"].iter().find_map(|key| map.get(*key)?.as_str())
        {
            ServiceError { text: plain.to_owned(), ..ServiceError::default() }
        } else {
            // Nova's and Keystone's: one key, and below it a message.
            let inner = map.values().find(|value| value.get("message").is_some());
            ServiceError {
                text: inner.map(|it| text(it, &["message"])).unwrap_or_default(),
                ..ServiceError::default()
            }
        };
        ServiceError { text: one_line(&said.text), ..said }
    }

    fn says(&self, words: &str) -> bool {
        self.text.to_ascii_lowercase().contains(words)
    }
}

/// By status, then by what distinguishes replies of one status; services agree on the words more than on anything.
fn classify(status: u16, said: &ServiceError) -> Class {
    if let Some((_, _, class)) = TOLD.iter().find(|(statuses, told, _)| {
        statuses.contains(&status)
            && match told {
                Pattern::Kind(kind) => said.kind.contains(kind),
                Pattern::Words(words) => said.says(words),
            }
    }) {
        return match class {
            Class::Quota { .. } => Class::Quota { what: over(&said.text) },
            class => class.clone(),
        };
    }
    match status {
        401 => Class::Unauthorized,
        403 => Class::Forbidden,
        404 | 410 => Class::NotFound,
        405 | 406 | 501 => Class::Unsupported,
        408 => Class::Timeout,
        409 => Class::Conflict,
        412 => Class::Stale,
        413 | 429 | 503 => Class::Busy,
        400..=499 => Class::Invalid,
        _ => Class::Broken,
    }
}

enum Pattern {
    /// Part of the name of Neutron's exception.
    Kind(&'static str),
    /// Lower case.
    Words(&'static str),
}

/// The first line that fits counts. 500 is among the statuses of conflicts, because exceptions that Neutron's fault
/// map does not know come as that; and Octavia passes on what Neutron said.
static TOLD: [(&[u16], Pattern, Class); 25] = [
    (&[403, 409, 413], Pattern::Kind("OverQuota"), Class::Quota { what: String::new() }),
    (&[403, 409, 413, 500], Pattern::Words("quota exceeded"), Class::Quota { what: String::new() }),
    (&[403, 409, 413], Pattern::Words("quota has been met"), Class::Quota { what: String::new() }),
    (&[403, 409, 413], Pattern::Words("quota reached"), Class::Quota { what: String::new() }),
    (&[409, 500], Pattern::Words("no more ip addresses"), Class::NoAddressLeft),
    (&[400, 409], Pattern::Words("unable to find any ip address on external"), Class::NoAddressLeft),
    (&[409, 500], Pattern::Kind("IpAddressInUse"), Class::AddressTaken),
    (&[409, 500], Pattern::Kind("IpAddressAlreadyAllocated"), Class::AddressTaken),
    (&[409, 500], Pattern::Kind("FloatingIPPortAlreadyAssociated"), Class::AddressTaken),
    (&[409, 500], Pattern::Words("already allocated in subnet"), Class::AddressTaken),
    (&[409, 500], Pattern::Words("ip address is already in use"), Class::AddressTaken),
    (&[409, 500], Pattern::Words("already has a floating ip"), Class::AddressTaken),
    (&[409, 500], Pattern::Kind("StateInvalid"), Class::Immutable),
    (&[409], Pattern::Words("is immutable and cannot be updated"), Class::Immutable),
    (&[409], Pattern::Words("invalid state"), Class::Immutable),
    (&[409, 500], Pattern::Kind("Exists"), Class::Duplicate),
    (&[409], Pattern::Words("already using"), Class::Duplicate),
    (&[409], Pattern::Words("already exists"), Class::Duplicate),
    (&[409], Pattern::Words("already has a"), Class::Duplicate),
    (&[409], Pattern::Words("already an entity"), Class::Duplicate),
    (&[409, 500], Pattern::Kind("InUse"), Class::InUse),
    (&[409], Pattern::Words("in use"), Class::InUse),
    (&[409], Pattern::Words("one or more ports still in use"), Class::InUse),
    (&[400], Pattern::Words("has children"), Class::InUse),
    (&[412], Pattern::Kind("RevisionNumberConstraintFailed"), Class::Stale),
];

/// What there is too little of: `Quota has been met for resources: Load Balancer`, `Quota exceeded for resources:
/// ['port', 'floatingip'].`, `Quota exceeded for instances: Requested 1, but already used 10 of 10 instances`.
fn over(text: &str) -> String {
    let lower = text.to_ascii_lowercase();
    let named = ["resources:", "exceeded for "]
        .iter()
        .find_map(|before| text.get(lower.find(before)?..)?.get(before.len()..))
        .unwrap_or_default();
    let named = named.split([':', '.']).next().unwrap_or_default();
    let words: String = named.chars().filter(|c| !matches!(c, '[' | ']' | '\'' | '"')).collect();
    let words = words.trim().to_lowercase();
    if words.is_empty() { "quota".to_owned() } else { words }
}

/// Services quote tracebacks and policies over several lines.
fn one_line(text: &str) -> String {
    let mut line = text.split_whitespace().collect::<Vec<_>>().join(" ");
    if let Some((end, _)) = line.char_indices().nth(LONGEST) {
        line.truncate(end);
        line.push('…');
    }
    line.truncate(line.trim_end_matches('.').len());
    line
}

#[cfg(test)]
mod tests;
