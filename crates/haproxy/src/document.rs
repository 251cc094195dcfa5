//! The configuration as values: what is printed, what a running HAProxy is compared with, and what it is told.
//!
//! ```text
//!     Frontend ─ binds, crt-list
//!        └─ maps: host and path ─► Backend ─ rules, slots ─► members
//! ```

mod backend;
mod frontend;

use std::{collections::BTreeMap, fmt, time::Duration};

use seaway_model::{ListenerId, Name, Owner, PoolId};
use secrecy::{ExposeSecret as _, SecretString};

pub use self::{backend::*, frontend::*};
use crate::{
    version::Version,
    words::{Folder, Key, Label},
};

/// The configuration of HAProxy as data: everything by its name in HAProxy, or by its file's.
#[derive(Clone, Debug, PartialEq)]
pub struct Document {
    pub version: Version,
    pub global: Global,
    pub frontends: BTreeMap<Label, Frontend>,
    /// Those that serve nothing yet are here, too ([`Backend::is_spare`]).
    pub backends: BTreeMap<Label, Backend>,
    pub maps: BTreeMap<Label, Map>,
    pub crt_lists: BTreeMap<Label, CrtList>,
    pub certificates: BTreeMap<Label, Pem>,
    /// Certificates of authorities, as PEM: nothing of them is secret.
    pub authorities: BTreeMap<Label, Name>,
    /// Bodies of responses of our own.
    pub pages: BTreeMap<Label, Name>,
    /// For what HAProxy counts. Nothing of it is printed.
    pub origins: Origins,
}

/// Whose listeners and pools frontends and backends are.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Origins {
    pub frontends: BTreeMap<Label, (Owner, ListenerId)>,
    /// By the pool, of which several may be: routes have rules of their own.
    pub backends: BTreeMap<(Owner, PoolId), Vec<Label>>,
}

/// HAProxy's `global` section. A change here needs a reload.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Global {
    /// Below it lie all files but for the configuration: [`FileKind::path`].
    pub folder: Folder,
    /// `None`: as many as there are processors.
    pub threads: Option<u16>,
    /// `None`: as many as the limit of open files allows.
    pub connections: Option<u32>,
    /// After a reload, an old worker is ended then.
    pub hard_stop: Duration,
}

impl Default for Global {
    fn default() -> Global {
        Global {
            folder: Folder::new("/run/seaway/haproxy").expect("of the alphabet"),
            threads: None,
            connections: None,
            hard_stop: Duration::from_secs(3600),
        }
    }
}

/// A file of [`Global::state`] in which nothing is known: without one, HAProxy warns.
pub const NO_STATE: &str = "1\n";

/// Which folder a file lies in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum FileKind {
    Maps,
    CrtLists,
    Certificates,
    Authorities,
    Pages,
}

impl FileKind {
    pub const ALL: [FileKind; 5] =
        [FileKind::Maps, FileKind::CrtLists, FileKind::Certificates, FileKind::Authorities, FileKind::Pages];

    /// Below [`Global::folder`].
    pub fn name(self) -> &'static str {
        match self {
            FileKind::Maps => "maps",
            FileKind::CrtLists => "crt-lists",
            FileKind::Certificates => "certificates",
            FileKind::Authorities => "authorities",
            FileKind::Pages => "pages",
        }
    }

    pub fn path(self, folder: &Folder, name: &Label) -> String {
        format!("{folder}/{}/{name}", self.name())
    }
}

impl Global {
    /// The socket of the runtime API.
    pub fn socket(&self) -> String {
        format!("{}/worker.sock", self.folder)
    }

    /// What was known of servers before a reload.
    pub fn state(&self) -> String {
        format!("{}/servers.state", self.folder)
    }
}

/// How HAProxy finds a key in a map.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum MapMatch {
    /// `map_str`: the key itself.
    Exact,
    /// `map_beg`: the longest key that the text begins with; in a tree, so that the order of lines means nothing.
    Prefix,
    /// `map_end`: the first key that the text ends with; so the longest stand first, and the file is replaced as a whole.
    Suffix,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Map {
    pub find: MapMatch,
    /// In this order; no key twice.
    pub entries: Vec<(Key, Key)>,
}

/// A line of a crt-list for each certificate.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CrtList {
    pub entries: Vec<CrtEntry>,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct CrtEntry {
    /// Of [`Document::certificates`].
    pub certificate: Label,
    pub tls: TlsOptions,
    /// `shop.example`, `*.example`; none: what the certificate itself names, and for a first entry, the rest.
    pub names: Vec<Key>,
}

/// A certificate chain with its key, as PEM. Never printed but into its own file.
#[derive(Clone)]
pub struct Pem(SecretString);

impl Pem {
    pub fn new(chain: &str, key: &str) -> Pem {
        Pem(format!("{}\n{}\n", chain.trim_end(), key.trim_end()).into())
    }

    pub fn expose(&self) -> &str {
        self.0.expose_secret()
    }
}

impl PartialEq for Pem {
    fn eq(&self, other: &Pem) -> bool {
        self.expose() == other.expose()
    }
}

impl Eq for Pem {}

impl fmt::Debug for Pem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Pem(…)")
    }
}
