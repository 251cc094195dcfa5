//! Rules: what a request must be, what is done to it, and where it goes. Layer 4 uses one rule without matches.

use std::{collections::BTreeMap, fmt, sync::Arc, time::Duration};

use ipnet::IpNet;
use serde::{Deserialize, Serialize};

use super::{
    auth::{BasicAuth, ForwardAuth},
    pool::PoolId,
    rate::RateLimit,
    tls::{ClientAuth, RuleTls},
};
use crate::name::{Name, Owner};

/// A listener asks its rules in the precedence that `snapshot` compiles. A front door's rules have many owners.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rule {
    pub owner: Owner,
    /// Any of these; empty means every host.
    pub hosts: Vec<HostPattern>,
    /// Any of these; empty means everything.
    pub matches: Vec<Match>,
    /// From where it may be asked; empty means from everywhere. Others get 403.
    pub sources: Vec<IpNet>,
    /// From where it may not be asked, whatever `sources` says.
    pub denied: Vec<IpNet>,
    /// How often each client may ask: all of these hold. Who asks more often gets 429.
    pub rates: Vec<RateLimit>,
    /// Which users may ask: each of these has to know its name and password. Who is none of them gets 401.
    pub auth: Vec<Arc<BasicAuth>>,
    /// Who has to agree to a request: all of these.
    pub asks: Vec<Arc<ForwardAuth>>,
    /// What it asks of the client's connection beyond what the listener does.
    pub tls: Option<Arc<RuleTls>>,
    pub filters: Vec<Filter>,
    pub action: Action,
    /// Until the whole of an answer was sent on.
    pub timeout: Option<Duration>,
    /// Until the whole of one attempt's answer has come.
    pub attempt_timeout: Option<Duration>,
    /// More attempts after the first, if that was in vain; `None`: as many as usual.
    pub retries: Option<u8>,
}

impl Rule {
    /// It does not serve every request, or none at all.
    pub fn is_guarded(&self) -> bool {
        self.is_restricted() || self.refuses()
    }

    /// It serves some clients, or some of their requests: by where they come from, how often, or who they are.
    pub fn is_restricted(&self) -> bool {
        !self.sources.is_empty()
            || !self.denied.is_empty()
            || !self.rates.is_empty()
            || !self.auth.is_empty()
            || !self.asks.is_empty()
            || self.clients().is_some()
    }

    /// A request that this rule serves may as well be served by the other one: both ask for the same.
    pub fn is_guarded_as(&self, other: &Rule) -> bool {
        self.sources == other.sources
            && self.denied == other.denied
            && self.rates == other.rates
            && self.auth == other.auth
            && self.asks == other.asks
            && self.clients() == other.clients()
            && self.refuses() == other.refuses()
    }

    /// Whose certificates clients have to show.
    fn clients(&self) -> Option<&ClientAuth> {
        self.tls.as_ref()?.clients.as_ref().filter(|it| it.required)
    }

    fn refuses(&self) -> bool {
        matches!(self.action, Action::Respond { code, .. } if code >= 400)
    }

    /// Layer 4: everything to one pool.
    pub fn forward_all(owner: Owner, pool: PoolId) -> Rule {
        Rule {
            owner,
            hosts: Vec::new(),
            matches: Vec::new(),
            sources: Vec::new(),
            denied: Vec::new(),
            rates: Vec::new(),
            auth: Vec::new(),
            asks: Vec::new(),
            tls: None,
            filters: Vec::new(),
            action: Action::Forward(vec![(pool, 1)]),
            timeout: None,
            attempt_timeout: None,
            retries: None,
        }
    }
}

/// Where it leads is a pool in a plan, and a Service in a route.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Action<To = PoolId> {
    /// Pools by weight; all weights 0 means nobody.
    Forward(Vec<(To, u32)>),
    Redirect(Redirect),
    /// Without a body: the page for that code, or the usual words.
    Respond {
        code: u16,
        body: Name,
    },
}

/// `shop.example` or `*.example`, lower case.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum HostPattern {
    Exact(Name),
    /// Any one or more labels before this suffix, which is kept without its `*.`.
    Under(Name),
}

impl fmt::Display for HostPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            HostPattern::Exact(name) => name.fmt(f),
            HostPattern::Under(name) => write!(f, "*.{name}"),
        }
    }
}

/// All of its parts.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Match {
    pub path: Option<PathMatch>,
    pub method: Option<Name>,
    pub headers: Vec<(Name, TextMatch)>,
    pub query: Vec<(Name, TextMatch)>,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum PathMatch {
    Exact(Name),
    /// By whole segments: `/foo` is `/foo` and `/foo/…`, never `/foobar`.
    Prefix(Name),
    Regex(Name),
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum TextMatch {
    Exact(Name),
    Regex(Name),
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Filter<To = PoolId> {
    RequestHeaders(HeaderChange),
    ResponseHeaders(HeaderChange),
    /// Replaces the matched prefix.
    RewritePrefix(Name),
    RewritePath(Name),
    RewriteHost(Name),
    /// So many of a thousand requests are sent there too; nobody waits for the answers.
    Mirror {
        to: To,
        per_mille: u16,
    },
    Cors(Cors),
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct HeaderChange {
    pub set: Vec<(Name, Name)>,
    pub add: Vec<(Name, Name)>,
    pub remove: Vec<Name>,
}

/// What pages of other origins may ask for (the Fetch standard, "CORS protocol"). `*` stands for all.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cors {
    pub origins: Vec<Origin>,
    pub credentials: bool,
    pub methods: Vec<Name>,
    pub headers: Vec<Name>,
    pub expose: Vec<Name>,
    pub max_age: Duration,
}

/// `*`, `https://*`, `https://shop.example:8443` or `https://*.example`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Origin {
    Any,
    /// A port that is not told is the scheme's own; no host is any.
    Like {
        scheme: Name,
        host: Option<HostPattern>,
        port: Option<u16>,
    },
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Origin::Like { scheme, host, port } = self else { return f.write_str("*") };
        write!(f, "{scheme}://")?;
        match host {
            Some(host) => host.fmt(f)?,
            None => f.write_str("*")?,
        }
        port.map_or(Ok(()), |port| write!(f, ":{port}"))
    }
}

/// What a listener does with HTTP whatever its rules say.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HttpOptions {
    /// Proxies before us, whose word on the client (`X-Forwarded-…`, `Forwarded`, `X-Request-Id`) is believed.
    pub trusted: Vec<IpNet>,
    /// Instead of our own words for a status, where no rule has a body of its own.
    pub pages: BTreeMap<u16, Name>,
    /// Every request has an `X-Request-Id`.
    pub request_id: bool,
    pub trace: TracePolicy,
    /// Say `Forwarded` (RFC 7239) beside `X-Forwarded-…`.
    pub forwarded: bool,
    /// What we call ourselves in `Via`, if there.
    pub via: Option<Name>,
    pub limits: HttpLimits,
}

impl Default for HttpOptions {
    fn default() -> HttpOptions {
        HttpOptions {
            trusted: Vec::new(),
            pages: BTreeMap::new(),
            request_id: true,
            trace: TracePolicy::Keep,
            forwarded: false,
            via: None,
            limits: HttpLimits::default(),
        }
    }
}

/// How much one request may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HttpLimits {
    /// Bytes; `u64::MAX` is no limit.
    pub body: u64,
    /// Bytes of its head, of the target in it, and how many fields.
    pub head: u32,
    pub target: u32,
    pub fields: u16,
}

impl Default for HttpLimits {
    fn default() -> HttpLimits {
        HttpLimits { body: u64::MAX, head: 16 << 10, target: 8 << 10, fields: 128 }
    }
}

/// What becomes of `traceparent` (W3C Trace Context). One that is no proper one never goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TracePolicy {
    /// Who has none gets none: to say that a trace is recorded or is not decides for everybody behind us.
    Keep,
    /// Who has none gets one that is to be recorded.
    Make,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Redirect {
    pub scheme: Option<Name>,
    pub host: Option<Name>,
    pub port: Option<u16>,
    /// Exact: the whole path. Prefix: what the rule's prefix becomes.
    pub path: Option<PathMatch>,
    pub code: u16,
}
