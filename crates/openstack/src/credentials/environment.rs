//! Environment variables and folders that credentials are read from. They are a value, so that tests pass their own.

use std::{collections::BTreeMap, env, path::PathBuf};

use secrecy::{ExposeSecret, SecretString};

/// The environment, and the folders that relative things are looked for in.
#[derive(Clone, Debug, Default)]
pub struct Environment {
    /// `OS_…` alone, and what tells where configuration is. Any of them may be a password.
    variables: BTreeMap<String, SecretString>,
    pub current_folder: PathBuf,
    pub home: Option<PathBuf>,
    /// `/etc`, but for tests.
    pub etc: PathBuf,
}

impl Environment {
    /// Those of this process.
    pub fn of_process() -> Environment {
        let ours = |name: &str| name.starts_with("OS_") || name == "XDG_CONFIG_HOME";
        let variables = env::vars_os().filter_map(|(name, value)| {
            let (name, value) = (name.into_string().ok()?, value.into_string().ok()?);
            ours(&name).then(|| (name, SecretString::from(value)))
        });
        Environment {
            variables: variables.collect(),
            current_folder: env::current_dir().unwrap_or_default(),
            home: env::home_dir().filter(|home| !home.as_os_str().is_empty()),
            etc: PathBuf::from("/etc"),
        }
    }

    /// Nothing but these folders.
    pub fn in_folder(folder: impl Into<PathBuf>) -> Environment {
        let folder = folder.into();
        Environment {
            variables: BTreeMap::new(),
            home: Some(folder.join("home")),
            etc: folder.join("etc"),
            current_folder: folder,
        }
    }

    #[must_use]
    pub fn with(mut self, name: &str, value: &str) -> Environment {
        self.variables.insert(name.to_owned(), value.into());
        self
    }

    /// An empty variable counts as none, as it does for `openstack`.
    pub(super) fn variable(&self, name: &str) -> Option<&str> {
        self.variables.get(name).map(|value| value.expose_secret()).filter(|value| !value.is_empty())
    }

    /// With `~` as the home folder, and relative to where we are.
    pub(super) fn expand_path(&self, path: &str) -> PathBuf {
        match (path.strip_prefix("~/"), &self.home) {
            (Some(rest), Some(home)) => home.join(rest),
            _ => self.current_folder.join(path),
        }
    }

    /// `OS_…`, those that are set to something.
    pub(super) fn openstack_variables(&self) -> impl Iterator<Item = (&str, &SecretString)> {
        self.variables
            .iter()
            .filter(|(name, value)| name.starts_with("OS_") && !value.expose_secret().is_empty())
            .map(|(name, value)| (name.as_str(), value))
    }
}
