//! What kinds of failure there are, and what follows from each.

use std::time::Duration;

/// What went wrong, as far as a caller acts on it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Class {
    /// 404: it is not there, or not ours to see.
    NotFound,
    /// 409: its load balancer is being changed (`PENDING_…`): wait and repeat.
    Immutable,
    /// 409, or 400 of Octavia: something still needs it.
    InUse,
    /// 409: there is such a thing already.
    Duplicate,
    /// 409: the address belongs to somebody.
    AddressTaken,
    /// 409: the subnet or network has no address left.
    NoAddressLeft,
    /// 412: it changed since it was read.
    Stale,
    /// Any other 409.
    Conflict,
    /// 403, 409 or 413, of this resource: `load balancers`.
    Quota {
        what: String,
    },
    /// 401, even with a new token.
    Unauthorized,
    /// 403: policy says no.
    Forbidden,
    /// 400 and its like: the request cannot be right.
    Invalid,
    /// 501, 405 or 406: this provider, version or deployment cannot do it.
    Unsupported,
    /// 429 or 503: too many requests, or a pause.
    Busy,
    /// 500, 502, 504.
    Broken,
    /// No connection: refused, no route, a name that does not resolve.
    Unreachable,
    Timeout,
    Tls,
    /// What answered does not speak OpenStack: a proxy's page, another program.
    NotOpenStack,
    /// The reply ended before its end.
    CutShort,
    /// The reply is larger than we are willing to keep.
    TooLarge,
    /// The reply is JSON, but not what the API promises.
    Strange,
    /// What was made or changed went to ERROR; the message is its own.
    Failed,
    /// Several things match what was looked for.
    Ambiguous,
    /// A write whose outcome nobody knows: look for what it made before doing it again.
    Lost,
    /// A write that was not sent, or not again: another process leads.
    Fenced,
    /// A write that a dry run did not do.
    DryRun,
    /// The credentials: unreadable, incomplete, or refused by Keystone.
    Credentials,
    /// The catalog has no such service.
    NoService,
    /// The catalog has no such region.
    NoRegion,
}

/// Who can mend it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Responsibility {
    /// Whoever wrote the credentials, the configuration, or the wish that led to the request.
    User,
    /// The cloud's operators.
    Cloud,
    /// What lies between us and the cloud.
    Network,
    /// It passes: something is under way over there, or somebody else was first.
    Nobody,
}

/// When trying again makes sense.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Retry {
    /// With backoff.
    Later,
    /// The cloud said when.
    After(Duration),
    /// Read again first: what the request was computed from is no longer so.
    AfterLooking,
    /// Once something has changed: a setting, a quota, what stands in the way.
    WhenChanged,
}

impl Class {
    pub fn fault(&self) -> Responsibility {
        match self {
            Class::Quota { .. }
            | Class::Unauthorized
            | Class::Forbidden
            | Class::Invalid
            | Class::Unsupported
            | Class::AddressTaken
            | Class::NoAddressLeft
            | Class::DryRun
            | Class::Credentials
            | Class::Ambiguous
            | Class::NoService
            | Class::NoRegion => Responsibility::User,
            Class::Busy | Class::Broken | Class::TooLarge | Class::Strange | Class::Failed => {
                Responsibility::Cloud
            }
            Class::Unreachable
            | Class::Timeout
            | Class::Tls
            | Class::NotOpenStack
            | Class::CutShort
            | Class::Lost => Responsibility::Network,
            Class::NotFound
            | Class::Immutable
            | Class::InUse
            | Class::Duplicate
            | Class::Stale
            | Class::Fenced
            | Class::Conflict => Responsibility::Nobody,
        }
    }

    pub fn retry(&self) -> Retry {
        match self {
            Class::Immutable
            | Class::Busy
            | Class::Broken
            | Class::Unreachable
            | Class::Timeout
            | Class::NotOpenStack
            | Class::Strange
            | Class::CutShort => Retry::Later,
            Class::NotFound
            | Class::InUse
            | Class::Duplicate
            | Class::Stale
            | Class::Conflict
            | Class::Fenced
            | Class::Lost => Retry::AfterLooking,
            Class::AddressTaken
            | Class::NoAddressLeft
            | Class::Quota { .. }
            | Class::Unauthorized
            | Class::Forbidden
            | Class::Invalid
            | Class::Unsupported
            | Class::Tls
            | Class::TooLarge
            | Class::Failed
            | Class::Ambiguous
            | Class::DryRun
            | Class::Credentials
            | Class::NoService
            | Class::NoRegion => Retry::WhenChanged,
        }
    }

    /// A label of metrics: there are no more of them than classes.
    pub fn label(&self) -> &'static str {
        match self {
            Class::NotFound => "not-found",
            Class::Immutable => "immutable",
            Class::InUse => "in-use",
            Class::Duplicate => "duplicate",
            Class::AddressTaken => "address-taken",
            Class::NoAddressLeft => "no-address-left",
            Class::Stale => "stale",
            Class::Conflict => "conflict",
            Class::Quota { .. } => "quota",
            Class::Unauthorized => "unauthorized",
            Class::Forbidden => "forbidden",
            Class::Invalid => "invalid",
            Class::Unsupported => "unsupported",
            Class::Busy => "busy",
            Class::Broken => "broken",
            Class::Unreachable => "unreachable",
            Class::Timeout => "timeout",
            Class::Tls => "tls",
            Class::NotOpenStack => "not-openstack",
            Class::CutShort => "cut-short",
            Class::TooLarge => "too-large",
            Class::Strange => "strange",
            Class::Failed => "failed",
            Class::Ambiguous => "ambiguous",
            Class::Lost => "lost",
            Class::Fenced => "fenced",
            Class::DryRun => "dry-run",
            Class::Credentials => "credentials",
            Class::NoService => "no-service",
            Class::NoRegion => "no-region",
        }
    }
}
