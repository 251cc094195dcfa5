//! How often each client may ask.

use std::fmt;

use crate::name::{Name, ObjectRef};

/// Rules with the limit of one object count together, on all listeners of a process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RateLimit {
    /// Who says so.
    pub of: ObjectRef,
    pub rate: RequestRate,
}

/// `burst` requests at once, and `per_second` in the long run; neither is 0.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RequestRate {
    pub per_second: u32,
    pub burst: u32,
    pub key: ClientKey,
}

/// By what clients are told apart. Who has no such header or cookie is known by its address.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum ClientKey {
    /// Of IPv6 by /64, which is what one client has.
    Address,
    Header(Name),
    Cookie(Name),
}

impl fmt::Display for ClientKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ClientKey::Address => f.write_str("address"),
            ClientKey::Header(name) => write!(f, "header:{name}"),
            ClientKey::Cookie(name) => write!(f, "cookie:{name}"),
        }
    }
}
