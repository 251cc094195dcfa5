//! What is asked of a cloud, and what comes back.

use std::fmt;

use serde_json::Value;

pub use reqwest::Method;

/// A service of a cloud, found in its catalog by type.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Service {
    Identity,
    Network,
    LoadBalancer,
    Compute,
    KeyManager,
}

/// One request, before anybody has decided where it goes.
#[derive(Clone)]
pub struct Call {
    pub service: Service,
    pub method: Method,
    /// Below the version's root: `/lbaas/loadbalancers`.
    pub path: String,
    /// A name may come several times: `fixed_ips=…&fixed_ips=…`.
    pub query: Vec<(String, String)>,
    pub body: Option<Value>,
    /// What a human calls it, `list load balancers`: the label of metrics and spans, and the subject of errors.
    pub operation: &'static str,
    pub microversion: Option<Microversion>,
    /// Neutron's `If-Match`: 412 when the object has moved on from this revision.
    pub revision: Option<u64>,
    pub accept: Accept,
    /// A PUT that is none: done twice, it does something twice.
    pub once: bool,
}

/// What the reply's body has to be.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Accept {
    #[default]
    Json,
    /// The payload of a secret; it comes as a `Value::String`.
    Text,
}

/// A status below 400, and what came with it.
#[derive(Clone, Default, PartialEq)]
pub struct Reply {
    pub status: u16,
    /// `Null` where there was no body.
    pub body: Value,
    pub request_id: Option<String>,
}

/// `2.96` of Nova and its like: which of its dialects a service shall speak for one call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Microversion {
    pub major: u32,
    pub minor: u32,
}

impl Call {
    pub fn new(service: Service, method: Method, operation: &'static str, path: impl Into<String>) -> Call {
        Call {
            service,
            method,
            path: path.into(),
            query: Vec::new(),
            body: None,
            operation,
            microversion: None,
            revision: None,
            accept: Accept::Json,
            once: false,
        }
    }

    pub fn get(service: Service, operation: &'static str, path: impl Into<String>) -> Call {
        Call::new(service, Method::GET, operation, path)
    }

    pub fn post(service: Service, operation: &'static str, path: impl Into<String>, body: Value) -> Call {
        Call::new(service, Method::POST, operation, path).body(body)
    }

    pub fn put(service: Service, operation: &'static str, path: impl Into<String>, body: Value) -> Call {
        Call::new(service, Method::PUT, operation, path).body(body)
    }

    pub fn delete(service: Service, operation: &'static str, path: impl Into<String>) -> Call {
        Call::new(service, Method::DELETE, operation, path)
    }

    #[must_use]
    pub fn query(mut self, name: impl Into<String>, value: impl Into<String>) -> Call {
        self.query.push((name.into(), value.into()));
        self
    }

    #[must_use]
    pub fn body(mut self, body: Value) -> Call {
        self.body = Some(body);
        self
    }

    #[must_use]
    pub fn microversion(mut self, major: u32, minor: u32) -> Call {
        self.microversion = Some(Microversion { major, minor });
        self
    }

    #[must_use]
    pub fn if_revision(mut self, revision: u64) -> Call {
        self.revision = Some(revision);
        self
    }

    #[must_use]
    pub fn accept(mut self, accept: Accept) -> Call {
        self.accept = accept;
        self
    }

    #[must_use]
    pub fn at_most_once(mut self) -> Call {
        self.once = true;
        self
    }

    /// Whether it changes anything; a dry run refuses it then.
    pub fn is_write(&self) -> bool {
        !(self.method == Method::GET || self.method == Method::HEAD)
    }

    /// Whether doing it twice comes to the same as once.
    pub fn is_repeatable(&self) -> bool {
        // What was changed has another revision: the second time says that somebody else was first.
        let moves_on = self.revision.is_some() && self.method != Method::DELETE;
        !(self.once || moves_on || self.method == Method::POST || self.method == Method::PATCH)
    }
}

/// Bodies have passwords, payloads of secrets, what servers are told at their start: no debug text shows one.
impl fmt::Debug for Call {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Call")
            .field("service", &self.service)
            .field("method", &self.method)
            .field("path", &self.path)
            .field("query", &self.query)
            .field("operation", &self.operation)
            .finish_non_exhaustive()
    }
}

/// As of a call.
impl fmt::Debug for Reply {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reply")
            .field("status", &self.status)
            .field("request_id", &self.request_id)
            .finish_non_exhaustive()
    }
}

impl Service {
    pub const ALL: [Service; 5] =
        [Service::Identity, Service::Network, Service::LoadBalancer, Service::Compute, Service::KeyManager];

    /// The type that a catalog should name it by.
    pub fn as_str(self) -> &'static str {
        match self {
            Service::Identity => "identity",
            Service::Network => "network",
            Service::LoadBalancer => "load-balancer",
            Service::Compute => "compute",
            Service::KeyManager => "key-manager",
        }
    }

    /// The project that makes it: what an operator calls it.
    pub fn project(self) -> &'static str {
        match self {
            Service::Identity => "Keystone",
            Service::Network => "Neutron",
            Service::LoadBalancer => "Octavia",
            Service::Compute => "Nova",
            Service::KeyManager => "Barbican",
        }
    }
}

impl fmt::Display for Service {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl Microversion {
    /// Of `2.96` or `v2.96`.
    pub fn parse(text: &str) -> Option<Microversion> {
        let (major, minor) = text.strip_prefix('v').unwrap_or(text).split_once('.')?;
        Some(Microversion { major: major.parse().ok()?, minor: minor.parse().ok()? })
    }
}

impl fmt::Display for Microversion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.major, self.minor)
    }
}

/// What a dry run prints: `POST load-balancer /lbaas/loadbalancers`.
impl fmt::Display for Call {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} {}", self.method, self.service, self.path)
    }
}
