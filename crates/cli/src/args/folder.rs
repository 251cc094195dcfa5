//! Of commands that read a folder of manifests, or write the first one.

use std::{
    net::IpAddr,
    path::{Path, PathBuf},
};

use clap::{Args, ValueEnum};

use seaway_model::{Kind, ObjectRef, Problem, Reason};

use crate::settings::{
    self, Settings, SettingsError,
    checked::{CheckedSettings, read_checked},
    doubts::is_missing,
    listen_only,
};

/// Which folder is read.
#[derive(Debug, Args)]
pub(crate) struct Manifests {
    /// The folder of manifests (YAML or JSON, with subfolders) [default: `manifests:` of the configuration]
    #[arg(value_name = "DIR")]
    dir: Option<PathBuf>,
    /// The same as DIR
    #[arg(long, value_name = "DIR", conflicts_with = "dir")]
    manifests: Option<PathBuf>,
}

impl Manifests {
    pub(crate) fn dir(&self) -> Option<&Path> {
        self.dir.as_deref().or(self.manifests.as_deref())
    }
}

#[derive(Debug, Args)]
pub(crate) struct CommonArgs {
    /// The configuration file [default: none; `seaway config --example` prints one]
    #[arg(long, short, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
    /// The folder for assigned addresses, the last good manifests and status.json [default: /var/lib/seaway for root,
    /// else $XDG_STATE_HOME/seaway]
    #[arg(long, value_name = "DIR")]
    pub(crate) state_dir: Option<PathBuf>,
    /// Serve on this address of the machine only, such as 127.0.0.1 to try it out; may be repeated. What has addresses of
    /// its own in the configuration is served at those of them that are named here, too [default: `host.addresses` of the
    /// configuration, else all but loopback and link-local]
    #[arg(long = "address", value_name = "IP")]
    addresses: Vec<IpAddr>,
}

impl CommonArgs {
    /// Of the configuration, and of what flags say instead.
    pub(crate) fn settings(&self) -> Result<Settings, SettingsError> {
        let mut settings = settings::load(self.config.as_deref())?;
        self.apply(&mut settings);
        settings.doubts.extend(listen_only::doubts(&settings).iter().map(ToString::to_string));
        Ok(settings)
    }

    /// The same as far as it can be read, with all that is wrong.
    pub(crate) fn settings_checked(&self) -> CheckedSettings {
        let mut checked = self.config.as_deref().map(read_checked).unwrap_or_default();
        self.apply(&mut checked.settings);
        let missing = self.addresses.iter().filter(|ip| is_missing(**ip));
        checked.problems.extend(missing.map(|ip| {
            let message =
                format!("no interface of this machine has {ip}, so clients do not reach Services there");
            Problem::new(ObjectRef::new(Kind::Config, "", "--address"), Reason::AddressMissing, message)
                .fix(format!("Put {ip} on an interface (ip address add), or correct --address."))
        }));
        checked.problems.extend(listen_only::doubts(&checked.settings).into_iter().map(|it| {
            let begins = it.field.split(".addresses").next().unwrap_or_default();
            let name = begins.replace("frontDoor.entrances[", "frontDoor.");
            let object = ObjectRef::new(Kind::Config, "", name.trim_end_matches(']'));
            Problem::new(object, it.reason, it.message).at(it.field.as_str()).fix(it.fix)
        }));
        checked
    }

    fn apply(&self, settings: &mut Settings) {
        listen_only::limit(settings, &self.addresses);
    }
}

#[derive(Debug, Args)]
pub(crate) struct Init {
    /// The folder to write to; its name is that of the Service
    #[arg(value_name = "DIR", default_value = "web")]
    pub(crate) dir: PathBuf,
    /// The port that clients connect to
    #[arg(long, value_name = "PORT", value_parser = super::port)]
    pub(crate) port: Option<u16>,
    /// The backends, as in the annotation seaway.dev/backends: ADDRESS:PORT, separated by commas
    #[arg(long, value_name = "LIST")]
    pub(crate) backends: Option<String>,
    /// Route HTTP by this host name, or host and path: shop.example/api
    #[arg(long, value_name = "HOST", conflicts_with = "tcp")]
    pub(crate) host: Option<String>,
    /// Forward TCP unchanged
    #[arg(long)]
    pub(crate) tcp: bool,
}

/// What a schema is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum SchemaKind {
    /// The manifests in a folder
    Manifests,
    /// seaway.yaml
    Config,
}
