//! What a proxy is, whoever's language it was written in: entrances, routes, backends, certificates.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
    path::PathBuf,
};

use super::report::DirectiveLocation;

/// What a configuration says, in Seaway's terms.
#[derive(Debug, Default)]
pub(super) struct Proxy {
    pub(super) door: FrontDoor,
    /// By order: of two with the same matches, the first counts.
    pub(super) routes: Vec<Route>,
    pub(super) backends: Vec<Backend>,
    /// Those that are written although no route leads there.
    pub(super) kept: BTreeSet<usize>,
    pub(super) listeners: Vec<OwnListener>,
    /// Objects that are taken over as they are, by the name of their file.
    pub(super) objects: Vec<(String, String)>,
    /// Where nothing is said: `connect: 5s` below `defaults.timeouts`.
    pub(super) timeouts: BTreeMap<&'static str, String>,
}

/// The listeners that all routes share.
#[derive(Debug, Default)]
pub(super) struct FrontDoor {
    pub(super) http: Option<u16>,
    pub(super) https: Option<u16>,
    /// Empty: all addresses of the machine.
    pub(super) addresses: Vec<IpAddr>,
    pub(super) certificates: Vec<Certificate>,
    /// All plaintext requests are redirected.
    pub(super) redirect: bool,
    pub(super) hsts: Option<String>,
    pub(super) modern: bool,
    /// Clients must show a certificate of these authorities.
    pub(super) clients: Option<(PathBuf, bool)>,
    pub(super) trusted: Vec<String>,
    /// `NAMESPACE/NAME`, of a cluster.
    pub(super) parent: Option<String>,
}

pub(super) const WITH_PLAINTEXT: &str = "the front door serves HTTP without TLS at this port: it passes no TLS on there, and no listener is created";

impl FrontDoor {
    /// It has a port for plaintext, whether or not something is served there.
    pub(super) fn has_plaintext_at(&self, port: u16) -> bool {
        self.http.unwrap_or(80) == port
    }
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Certificate {
    pub(super) cert: PathBuf,
    pub(super) key: Option<PathBuf>,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Host {
    Exact(String),
    /// All names below, without `*.`.
    Under(String),
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum PathRule {
    Exact(String),
    /// By whole segments.
    Prefix(String),
    /// Of the whole path.
    Regex(String),
    /// Letter by letter: `/shopping` begins with `/shop`. Like those that follow, it is written as an expression.
    Begins(String),
    /// As `Prefix`, by whole segments.
    Below(String),
    Ends(String),
    Contains(String),
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Value {
    Exact(String),
    Regex(String),
}

/// What a request must be.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Condition {
    /// Empty: any.
    pub(super) hosts: Vec<Host>,
    pub(super) path: PathRule,
    pub(super) method: Option<String>,
    /// Names in lower case.
    pub(super) headers: BTreeMap<String, Value>,
    pub(super) query: BTreeMap<String, Value>,
}

impl Default for Condition {
    fn default() -> Condition {
        Condition {
            hosts: Vec::new(),
            path: PathRule::Prefix("/".to_owned()),
            method: None,
            headers: BTreeMap::new(),
            query: BTreeMap::new(),
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Rewrite {
    /// What takes the place of the matched prefix.
    Prefix(String),
    Full(String),
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Redirect {
    pub(super) scheme: Option<&'static str>,
    pub(super) host: Option<String>,
    pub(super) port: Option<u16>,
    pub(super) path: Option<Rewrite>,
    pub(super) code: u16,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Target {
    /// Places in `Proxy::backends`, with weights.
    Backends(Vec<(usize, u32)>),
    Redirect(Redirect),
    /// No backend: only for a route that is closed.
    Nothing,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct HeaderChanges {
    pub(super) set: Vec<(String, String)>,
    pub(super) add: Vec<(String, String)>,
    pub(super) remove: Vec<String>,
}

impl HeaderChanges {
    pub(super) fn is_empty(&self) -> bool {
        self.set.is_empty() && self.add.is_empty() && self.remove.is_empty()
    }
}

#[derive(Clone, Debug)]
pub(super) struct Route {
    pub(super) place: DirectiveLocation,
    pub(super) condition: Condition,
    pub(super) target: Target,
    pub(super) rewrite: Option<Rewrite>,
    pub(super) rewrite_host: Option<String>,
    pub(super) request: HeaderChanges,
    pub(super) response: HeaderChanges,
    /// Networks that may ask; empty: all.
    pub(super) sources: Vec<String>,
    /// Whether plaintext requests are redirected to https; `None`: as the front door says.
    pub(super) https: Option<bool>,
    /// Requests get 403, for this reason.
    pub(super) closed: Option<String>,
    /// Its proxy compared decoded paths: another spelling of the path is protected, too.
    pub(super) decodes: bool,
    /// Its prefix ends at the end of a segment: `/pub` is not `/public`.
    pub(super) by_segments: bool,
    /// Made by the importer, of two routes or for completeness: where another has the same matches, it may go.
    pub(super) made: bool,
    /// In a cluster; `None`: default.
    pub(super) namespace: Option<String>,
    /// The Secret with its certificate.
    pub(super) tls: Option<String>,
}

impl Route {
    pub(super) fn new(place: DirectiveLocation, condition: Condition, target: Target) -> Route {
        Route {
            place,
            condition,
            target,
            rewrite: None,
            rewrite_host: None,
            request: HeaderChanges::default(),
            response: HeaderChanges::default(),
            sources: Vec::new(),
            https: None,
            closed: None,
            decodes: false,
            by_segments: false,
            made: false,
            namespace: None,
            tls: None,
        }
    }

    /// Requests get 403, for the first reason that there is.
    pub(super) fn close(&mut self, why: &str) {
        self.closed.get_or_insert_with(|| why.to_owned());
    }

    pub(super) fn is_protected(&self) -> bool {
        self.closed.is_some() || !self.sources.is_empty()
    }
}

/// A Service of the output.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Backend {
    pub(super) name: String,
    /// `None`: default.
    pub(super) namespace: Option<String>,
    /// `127.0.0.1:3000 weight=2 backup`
    pub(super) members: Vec<String>,
    /// Of its one port, where it is not 80.
    pub(super) port: Option<u16>,
    pub(super) app_protocol: Option<&'static str>,
    /// `sessionAffinity: ClientIP`
    pub(super) by_client: bool,
    /// Names below `seaway.dev/`, and values.
    pub(super) annotations: BTreeMap<&'static str, String>,
    /// It is an object of the input, or of the cluster: only routes name it.
    pub(super) is_there: bool,
}

/// A listener with one backend, that reads no HTTP or routes none.
#[derive(Clone, Debug)]
pub(super) struct OwnListener {
    pub(super) backend: usize,
    pub(super) port: u16,
    pub(super) udp: bool,
    /// One address of the machine alone.
    pub(super) address: Option<IpAddr>,
    pub(super) annotations: BTreeMap<&'static str, String>,
    pub(super) sources: Vec<String>,
    /// Hosts of TLS that is passed through at the front door.
    pub(super) passthrough: Vec<Host>,
}

impl Proxy {
    /// The place of a backend like this one, which is added if there is none; another one of its name gets a number.
    pub(super) fn backend(&mut self, wanted: Backend) -> usize {
        let is_same = |it: &Backend| Backend { name: wanted.name.clone(), ..it.clone() } == wanted;
        if let Some(at) = self.backends.iter().position(|it| is_base(&it.name, &wanted.name) && is_same(it)) {
            return at;
        }
        let mut backend = wanted;
        let base = backend.name.clone();
        let mut number = 2_usize;
        while self.backends.iter().any(|it| it.name == backend.name && it.namespace == backend.namespace) {
            backend.name = format!("{base}-{number}");
            number = number.saturating_add(1);
        }
        self.backends.push(backend);
        self.backends.len().saturating_sub(1)
    }
}

fn is_base(name: &str, base: &str) -> bool {
    let rest = name.strip_prefix(base).map(|it| it.strip_prefix('-').unwrap_or(it));
    rest.is_some_and(|it| it.bytes().all(|byte| byte.is_ascii_digit()))
}

/// A name that a Service may have: at most 50 letters, digits and hyphens, so that a number may follow.
pub(super) fn service_name(text: &str) -> String {
    let lower = text.to_ascii_lowercase();
    let plain: String = lower.chars().map(|it| if it.is_ascii_alphanumeric() { it } else { '-' }).collect();
    let plain = plain.trim_matches('-');
    let named = if plain.starts_with(|it: char| it.is_ascii_alphabetic()) {
        plain.to_owned()
    } else {
        format!("backend-{plain}")
    };
    let cut: String = named.chars().take(50).collect();
    cut.trim_end_matches('-').to_owned()
}

/// Whether Seaway connects there: an address, or a name with a dot, which DNS resolves.
pub(super) fn is_backend(host: &str) -> bool {
    let bare = host.strip_prefix('[').and_then(|it| it.strip_suffix(']')).unwrap_or(host);
    match bare.parse::<IpAddr>() {
        Ok(address) => !address.is_unspecified() && !address.is_multicast(),
        Err(_) => {
            host.contains('.')
                && matches!(self::host(host), Some(Host::Exact(_)))
                && !host.ends_with(|it: char| it.is_ascii_digit())
        }
    }
}

/// Why a backend is none, and what to write in its place.
pub(super) fn no_backend(written: &str) -> &'static str {
    let host = written.rsplit_once(':').map_or(written, |it| it.0);
    let is_label = |it: u8| it.is_ascii_alphanumeric() || it == b'-' || it == b'_';
    let is_short = host.bytes().all(is_label) && host.bytes().any(|it| it.is_ascii_alphabetic());
    match is_short && host != "unix" {
        true => {
            "only the DNS of Docker Compose, or of a cluster, has names without a dot: publish the port of the container and write 127.0.0.1:PORT, or write a name with a dot"
        }
        false => {
            "a backend must be ADDRESS:PORT or NAME:PORT, with a DNS name that has a dot; UNIX sockets are not supported"
        }
    }
}

/// `shop.example`, `*.shop.example`, `.shop.example`.
pub(super) fn host(text: &str) -> Option<Host> {
    let lower = text.trim_end_matches('.').to_ascii_lowercase();
    let below = lower.strip_prefix("*.");
    let written = below.unwrap_or(&lower);
    let is_label = |it: &str| {
        (1..=63).contains(&it.len())
            && it.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
            && !it.starts_with('-')
            && !it.ends_with('-')
    };
    if written.len() > 253 || !written.split('.').all(is_label) {
        return None;
    }
    Some(if below.is_some() { Host::Under(written.to_owned()) } else { Host::Exact(written.to_owned()) })
}

impl Host {
    pub(super) fn written(&self) -> String {
        match self {
            Host::Exact(name) => name.clone(),
            Host::Under(name) => format!("*.{name}"),
        }
    }

    /// Whether requests for a name come here that cannot be written as a host: `a_b.example` to `*.example`.
    pub(super) fn covers(&self, name: &str) -> bool {
        let name = name.trim_start_matches('*').trim_end_matches('.').to_ascii_lowercase();
        match self {
            Host::Exact(_) => false,
            Host::Under(below) => name.strip_suffix(below.as_str()).is_some_and(|it| it.ends_with('.')),
        }
    }

    /// The hosts that both mean.
    pub(super) fn meet(&self, other: &Host) -> Option<Host> {
        let is_under = |name: &str, below: &str| {
            name.strip_suffix(below).is_some_and(|it| it.len() > 1 && it.ends_with('.'))
        };
        match (self, other) {
            (one, two) if one == two => Some(one.clone()),
            (Host::Exact(name), Host::Under(below)) | (Host::Under(below), Host::Exact(name)) => {
                is_under(name, below).then(|| Host::Exact(name.clone()))
            }
            (Host::Under(one), Host::Under(two)) if is_under(one, two) => Some(self.clone()),
            (Host::Under(one), Host::Under(two)) if is_under(two, one) => Some(other.clone()),
            _ => None,
        }
    }
}
