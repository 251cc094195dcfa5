//! Where credentials are read from, now and whenever they changed.

use std::{
    fmt,
    path::{Path, PathBuf},
};

use tokio::sync::watch;

use super::{
    CloudConf, Credentials, clouds, environment::Environment, options::resolve::ResolvedOptions, permissions,
};
use crate::error::Error;

#[derive(Clone)]
#[expect(clippy::large_enum_variant, reason = "there is one for each cloud")]
pub enum Source {
    /// `clouds.yaml` and the environment, found as OpenStack's own client finds them.
    Client { cloud: Option<String>, around: Environment },
    /// The file of the OpenStack cloud controller manager.
    CloudConf { file: PathBuf, around: Environment },
    /// As they are, for good.
    Given(Credentials),
    /// As somebody else reads them, from a Secret say.
    Told(watch::Receiver<Credentials>),
}

/// What was read.
#[derive(Clone, Debug)]
pub struct LoadedCredentials {
    pub credentials: Credentials,
    /// What is odd, though it works: to be told once, a line each.
    pub warnings: Vec<String>,
    /// All that went into it: when one of them changes, it is time to read again.
    pub files: Vec<PathBuf>,
    /// Those that would count instead, or as well, if they were there.
    pub missing: Vec<PathBuf>,
    /// `cloud "demo" of /etc/openstack/clouds.yaml`
    pub from: String,
}

/// Where things were found, and where they were looked for before.
#[derive(Clone, Debug, Default)]
pub(super) struct SourceFiles {
    pub(super) used: Vec<PathBuf>,
    pub(super) missing: Vec<PathBuf>,
}

impl Source {
    /// With what is around this process; without a name, the cloud is chosen as `openstack` does it.
    pub fn client(cloud: Option<&str>) -> Source {
        Source::Client { cloud: cloud.map(str::to_owned), around: Environment::of_process() }
    }

    pub fn cloud_conf(file: impl AsRef<Path>) -> Source {
        Source::CloudConf { file: file.as_ref().to_owned(), around: Environment::of_process() }
    }

    /// Reads files, so not on a thread that others wait for.
    pub fn read(&self) -> Result<LoadedCredentials, Error> {
        let given = |credentials: &Credentials| LoadedCredentials {
            credentials: credentials.clone(),
            warnings: loud(credentials).into_iter().collect(),
            files: Vec::new(),
            missing: Vec::new(),
            from: "the credentials".to_owned(),
        };
        let outcome = match self {
            Source::Client { cloud, around } => clouds::read(cloud.as_deref(), around),
            Source::CloudConf { file, around } => {
                CloudConf::read(file).and_then(|conf| conf.credentials(around))
            }
            Source::Given(credentials) => Ok(given(credentials)),
            Source::Told(told) => Ok(given(&told.borrow())),
        };
        outcome.map_err(|error| error.with_operation("read the credentials"))
    }
}

impl LoadedCredentials {
    pub(super) fn new(
        resolved: ResolvedOptions,
        files: SourceFiles,
        mut warnings: Vec<String>,
        from: &str,
    ) -> Result<LoadedCredentials, Error> {
        let ResolvedOptions { credentials, unused } = resolved;
        let tls = &credentials.tls;
        if let Some((_, key)) = &tls.client {
            warnings.extend(permissions::check_permissions(&key.value, true)?);
        }
        let pair = tls.client.iter().flat_map(|(certificate, key)| [certificate, key]);
        let of_tls = tls.ca.iter().chain(pair).map(|file| file.value.clone());
        let SourceFiles { used, missing } = files;
        let files = used.into_iter().chain(of_tls).collect();
        let warnings = warnings.into_iter().chain(unused).chain(loud(&credentials)).collect();
        Ok(LoadedCredentials { warnings, files, missing, from: from.to_owned(), credentials })
    }

    /// When one of these changes, comes or goes, it is time to read again.
    pub(super) fn watched(&self) -> impl Iterator<Item = &PathBuf> {
        self.files.iter().chain(&self.missing)
    }
}

/// What nobody should do without being told each time.
fn loud(credentials: &Credentials) -> Option<String> {
    credentials.tls.insecure.as_ref().map(|place| {
        format!(
            "{place}: INSECURE: certificates are not checked, so any machine between here and the cloud can read the \
             password; \
             name the cloud's CA file instead (cacert, ca-file)"
        )
    })
}

/// Without what is in them.
impl fmt::Debug for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Source::Client { cloud, .. } => write!(f, "Client({cloud:?})"),
            Source::CloudConf { file, .. } => write!(f, "CloudConf({})", file.display()),
            Source::Given(_) => f.write_str("Given"),
            Source::Told(_) => f.write_str("Told"),
        }
    }
}
