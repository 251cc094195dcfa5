//! Frontends: where clients come in, and how a backend is chosen for them.

use std::{
    collections::BTreeSet,
    net::{IpAddr, SocketAddr},
    time::Duration,
};

use ipnet::IpNet;

use crate::words::{Label, Text};

/// What is different in one needs a reload, but for what its maps and crt-list hold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Frontend {
    /// Whose it is, for the reader.
    pub about: Text,
    pub binds: Vec<SocketAddr>,
    /// Of them, addresses that this machine has only while Seaway puts them there: the sockets are open before and after.
    pub floating: BTreeSet<IpAddr>,
    pub tls: Option<BindTls>,
    /// Who may connect; empty means everybody.
    pub sources: Vec<IpNet>,
    pub denied: Vec<IpNet>,
    /// Who begins with a header of the PROXY protocol.
    pub proxy_from: Vec<IpNet>,
    pub connections: Option<u32>,
    pub new_per_second: Option<u32>,
    pub timeouts: ClientTimeouts,
    pub routing: Routing,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BindTls {
    /// Of [`super::Document::crt_lists`].
    pub crt_list: Label,
    /// A client that asks for no name that is served is refused.
    pub strict: bool,
    pub terms: TlsOptions,
    pub http2: bool,
}

/// How TLS is spoken: with all clients of a bind, or with those that ask for one name.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct TlsOptions {
    /// TLS 1.3 alone.
    pub modern: bool,
    /// A file of [`super::Document::authorities`], and whether a client without a certificate is refused.
    pub clients: Option<(Label, bool)>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClientTimeouts {
    pub request: Duration,
    pub keep_alive: Duration,
    pub idle: Duration,
    pub half_closed: Duration,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Routing {
    /// TCP, to one backend.
    Everything(Label),
    /// TLS that is passed on, by the name that the client asks for: exact names, and names that end so.
    ByTlsName {
        exact: Label,
        suffix: Label,
    },
    Http(HttpFrontendOptions),
}

/// Maps of host and path to a backend (exact paths, prefixes, wildcard hosts), and what else this frontend does with requests.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HttpFrontendOptions {
    /// Host and path.
    pub exact: Label,
    /// Host and prefix, each with a slash at its end.
    pub prefix: Label,
    /// `.example`.
    pub suffix: Label,
    /// A path is guarded: paths that members may take for it are refused.
    pub respelled: Option<Respelled>,
    /// Where the maps' value is no backend, but a choice by what else the request is.
    pub choices: Vec<RouteChoice>,
    /// Whose `X-Forwarded-…` goes on.
    pub trusted: Vec<IpNet>,
    pub request_id: bool,
    pub via: Option<Text>,
    pub forwarded: bool,
    /// `Strict-Transport-Security`, in seconds.
    pub hsts: Option<u32>,
    /// Of [`super::Document::pages`], by status.
    pub pages: Vec<(u16, Label)>,
}

/// What guarded paths have beside letters, digits and `-._~`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Respelled {
    /// Signs that stand there themselves: escapes of them are refused.
    pub escaped: BTreeSet<u8>,
    /// There are escapes: those in small letters are refused.
    pub uppercase: bool,
}

/// The first of its alternatives whose conditions hold; if none does, there is no route.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RouteChoice {
    pub name: Label,
    pub alternatives: Vec<Alternative>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Alternative {
    /// All of them.
    pub conditions: Vec<Condition>,
    pub backend: Label,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Condition {
    Method(Label),
    /// The first field of that name has this value.
    Header(Label, Text),
    Query(Label, Text),
    /// By chance: so many of so many requests.
    Share(u32, u32),
}
