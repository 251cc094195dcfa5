//! Keystone: signing in, and what a sign-in is good for.
//!
//! ```text
//!     Credentials ─► sign_in ─► v3 or v2 ─► Session: who we are, token, catalog
//!                       ▲                      │
//!     401, expiry ─► keeper (one task: one sign-in for all who wait; looks at the files of the credentials)
//! ```

pub mod catalog;
pub(crate) mod fuzz;
mod keeper;
mod refused;
mod sign_in;
mod v2;
mod v3;

use std::{
    fmt,
    sync::Arc,
    time::{Duration, Instant, SystemTime},
};

use jiff::Timestamp;
use secrecy::SecretString;

use crate::{credentials::Credentials, http::Transport};

pub use catalog::{Catalog, Endpoint, Entry};
pub(crate) use keeper::SessionKeeper;
pub(crate) use sign_in::SignInContext;

/// What a sign-in came to.
#[derive(Clone)]
pub struct Session {
    pub user: NamedRef,
    /// None for a token that is good for a domain, for the whole system, or for nothing yet.
    pub project: Option<NamedRef>,
    pub roles: Vec<String>,
    /// By Keystone's clock.
    pub expires: Option<SystemTime>,
    /// How we signed in: `password`, `token`, `application credential`, `trust`.
    pub kind: &'static str,
    /// The version of the API that did it: `v3`, `v2.0`.
    pub version: &'static str,
    pub catalog: Catalog,
    /// Where it was done, with the version.
    pub auth_url: String,
    pub(crate) token: SecretString,
    /// By our clock, so that a wrong one does no harm: when it was made, and how long it lives.
    pub(crate) made: Instant,
    pub(crate) life: Option<Duration>,
    /// Counts sign-ins: who was refused with an older one need not ask for another.
    pub(crate) number: u64,
    pub(crate) credentials: Arc<Credentials>,
    pub(crate) transport: Transport,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NamedRef {
    pub id: String,
    pub name: String,
    /// The domain it belongs to, by name; Keystone v2.0 knows none.
    pub domain: Option<String>,
}

impl Session {
    pub(crate) fn is_expired(&self, now: Instant) -> bool {
        self.life.is_some_and(|life| now.saturating_duration_since(self.made) >= life)
    }

    /// Whether it is time for another, before the last moment: a tenth of its life, and at most five minutes, ahead.
    pub(crate) fn is_due_for_renewal(&self, now: Instant) -> bool {
        self.life.is_some_and(|life| {
            let ahead = life.checked_div(10).unwrap_or_default().min(Duration::from_secs(300));
            now.saturating_duration_since(self.made) >= life.saturating_sub(ahead)
        })
    }

    /// The region that endpoints are taken from, if the credentials say so.
    pub fn region(&self) -> Option<&str> {
        self.credentials.region.as_ref().map(|region| region.value.as_str())
    }
}

/// Without the token, and without what would show it.
impl fmt::Debug for Session {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Session")
            .field("user", &self.user)
            .field("project", &self.project)
            .field("roles", &self.roles)
            .field("expires", &self.expires)
            .field("number", &self.number)
            .finish_non_exhaustive()
    }
}

/// What Keystone grants, before it becomes a session.
struct IssuedToken {
    token: SecretString,
    user: NamedRef,
    project: Option<NamedRef>,
    roles: Vec<String>,
    expires: Option<Timestamp>,
    issued: Option<Timestamp>,
    catalog: Catalog,
}

impl IssuedToken {
    /// By Keystone's clock alone, which may be far from ours. An old one does not say when it issued the token; then ours
    /// has to do, unless it thinks that the token was born dead.
    fn life(&self, wall: SystemTime) -> Option<Duration> {
        let expires = self.expires?;
        match self.issued {
            Some(issued) => Some(Duration::try_from(expires.duration_since(issued)).unwrap_or_default()),
            None => SystemTime::from(expires).duration_since(wall).ok().filter(|life| !life.is_zero()),
        }
    }
}

/// `2026-11-21T08:01:59.000000Z`, and without the `Z`, as some versions write it.
fn moment(text: &str) -> Option<Timestamp> {
    text.parse().or_else(|_| format!("{text}Z").parse()).ok()
}
