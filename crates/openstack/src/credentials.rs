//! Who we are, and where that is written.
//!
//! ```text
//!     clouds.yaml, secure.yaml ─┐
//!     OS_… of the environment ──┼─► Options: key, value, place ─► Credentials ─► identity
//!     cloud.conf [Global] ──────┘
//! ```
//! Each source only gathers; what a key means, and what is missing, is decided in one place, and every complaint names
//! the file, the line and the key.

pub mod cloud_conf;
mod clouds;
mod duration;
mod environment;
pub(crate) mod fuzz;
pub mod ini;
mod options;
mod permissions;
mod source;
mod watched;

use std::{collections::BTreeMap, fmt, path::PathBuf, time::Duration};

use secrecy::SecretString;

use crate::call::Service;

pub use cloud_conf::CloudConf;
pub use environment::Environment;
pub use source::{LoadedCredentials, Source};
pub(crate) use watched::CredentialWatch;

/// All that signing in and finding services needs.
#[derive(Clone, Debug)]
pub struct Credentials {
    pub auth_url: Located<String>,
    pub proof: AuthMethod,
    pub scope: Scope,
    /// Asked of Keystone if it is not said, here or by the URL.
    pub version: Option<IdentityVersion>,
    /// The first that the catalog has, if it is not said.
    pub region: Option<Located<String>>,
    pub interface: Interface,
    /// Instead of what the catalog says.
    pub overrides: BTreeMap<Service, Located<String>>,
    pub tls: Tls,
    /// How long one request may take, if the credentials say so.
    pub timeout: Option<Duration>,
}

/// What shows Keystone that we are who we say.
#[derive(Clone, Debug)]
pub enum AuthMethod {
    Password {
        user: User,
        password: SecretString,
    },
    Token(SecretString),
    /// It has its project within it: no scope may be asked for.
    ApplicationCredential {
        which: ApplicationCredential,
        secret: SecretString,
    },
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum User {
    Id(String),
    Name { name: String, domain: Domain },
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ApplicationCredential {
    Id(String),
    /// Names are unique for one user alone.
    Name {
        name: String,
        user: User,
    },
}

/// What a token is to be good for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Scope {
    /// What Keystone makes of the user's default project.
    #[default]
    Unsaid,
    Project(Project),
    Domain(Domain),
    System,
    /// What somebody else entrusted to us.
    Trust(String),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Project {
    Id(String),
    Name { name: String, domain: Domain },
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Domain {
    Id(String),
    Name(String),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IdentityVersion {
    V2,
    V3,
}

/// Which of a service's addresses is for us.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Interface {
    #[default]
    Public,
    Internal,
    Admin,
}

/// Whom we trust, and how we show ourselves below HTTP.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tls {
    /// Instead of the system's authorities.
    pub ca: Option<Located<PathBuf>>,
    /// Certificate and key, which may be one file.
    pub client: Option<(Located<PathBuf>, Located<PathBuf>)>,
    /// Believe anybody: whoever is on the way reads the password. Where it is said.
    pub insecure: Option<SourceLocation>,
}

/// Where something is written: `/etc/openstack/clouds.yaml:7`, `OS_AUTH_URL`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct SourceLocation(pub String);

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Located<T> {
    pub value: T,
    pub place: SourceLocation,
}

impl Credentials {
    /// A user of the domain `Default`, in a project of it.
    pub fn password(auth_url: &str, user: &str, password: &str, project: &str) -> Credentials {
        let user = User::Name { name: user.to_owned(), domain: Domain::default() };
        Credentials::new(
            auth_url,
            AuthMethod::Password { user, password: password.into() },
            Scope::Project(Project::Name { name: project.to_owned(), domain: Domain::default() }),
        )
    }

    /// Everything else as it is when nobody says anything.
    pub fn new(auth_url: &str, proof: AuthMethod, scope: Scope) -> Credentials {
        Credentials {
            auth_url: Located { value: auth_url.to_owned(), place: SourceLocation("as given".to_owned()) },
            proof,
            scope,
            version: None,
            region: None,
            interface: Interface::Public,
            overrides: BTreeMap::new(),
            tls: Tls::default(),
            timeout: None,
        }
    }

    #[must_use]
    pub fn with_region(mut self, region: &str) -> Credentials {
        self.region =
            Some(Located { value: region.to_owned(), place: SourceLocation("as given".to_owned()) });
        self
    }
}

impl AuthMethod {
    /// What a human calls it.
    pub fn kind(&self) -> &'static str {
        match self {
            AuthMethod::Password { .. } => "password",
            AuthMethod::Token(_) => "token",
            AuthMethod::ApplicationCredential { .. } => "application credential",
        }
    }
}

/// The domain that every Keystone has from its beginning.
impl Default for Domain {
    fn default() -> Domain {
        Domain::Id("default".to_owned())
    }
}

impl Interface {
    /// With the endings of Keystone v2.0 and of older clients: `publicURL`, `internalURL`.
    pub fn parse(text: &str) -> Option<Interface> {
        let text = text.trim().to_ascii_lowercase();
        match text.strip_suffix("url").unwrap_or(&text) {
            "public" => Some(Interface::Public),
            "internal" => Some(Interface::Internal),
            "admin" => Some(Interface::Admin),
            _ => None,
        }
    }

    pub fn as_str(self) -> &'static str {
        match self {
            Interface::Public => "public",
            Interface::Internal => "internal",
            Interface::Admin => "admin",
        }
    }
}

impl fmt::Display for Interface {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl fmt::Display for SourceLocation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Display for User {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            User::Id(id) => write!(f, "user {id}"),
            User::Name { name, domain } => write!(f, "user {name:?} of {domain}"),
        }
    }
}

impl fmt::Display for Project {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Project::Id(id) => write!(f, "project {id}"),
            Project::Name { name, domain } => write!(f, "project {name:?} of {domain}"),
        }
    }
}

impl fmt::Display for Domain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Domain::Id(id) => write!(f, "domain {id}"),
            Domain::Name(name) => write!(f, "domain {name:?}"),
        }
    }
}
