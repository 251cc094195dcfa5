//! Who we are, and where that is written.

use std::path::PathBuf;

use secrecy::SecretString;

/// Where credentials are read from, now and whenever they changed.
#[derive(Clone, Debug)]
pub enum Source {
    /// `clouds.yaml` and the environment, found as OpenStack's own client finds them.
    Client { cloud: Option<String> },
    /// The file of the OpenStack cloud controller manager.
    CloudConf(PathBuf),
    /// As they are.
    Given(Credentials),
}

#[derive(Clone, Debug)]
pub struct Credentials {
    pub auth_url: String,
    pub region: Option<String>,
    pub password: SecretString,
}
