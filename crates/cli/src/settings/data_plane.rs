//! `dataPlane`: what moves the data on this host.

use std::path::PathBuf;

use seaway_drivers::haproxy::HaproxyHost;
use seaway_files::runtime_folder;
use seaway_haproxy::{Global, Options, words::Folder};
use seaway_manifests::decode::Field;
use seaway_model::Name;

/// Which program serves load balancers on this host.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) enum DataPlane {
    /// Seaway's own.
    #[default]
    Native,
    Haproxy(HaproxySettings),
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct HaproxySettings {
    pub(crate) program: PathBuf,
    /// Its files and sockets, keys included.
    pub(crate) folder: Folder,
}

impl DataPlane {
    /// What serves in place of Seaway's own data plane. To be called in the runtime.
    pub(crate) fn start_haproxy(&self, host: &Name) -> Option<HaproxyHost> {
        match self {
            DataPlane::Native => None,
            DataPlane::Haproxy(it) => Some(HaproxyHost::new(host.clone(), it.options(), it.global())),
        }
    }
}

impl HaproxySettings {
    pub(crate) fn options(&self) -> Options {
        let config = PathBuf::from(format!("{}/haproxy.cfg", self.folder));
        Options { program: self.program.clone(), ..Options::new(config) }
    }

    pub(crate) fn global(&self) -> Global {
        Global { folder: self.folder.clone(), ..Global::default() }
    }
}

/// Takes the keys of the section that say which program it is.
pub(super) fn read(driver: &Field<'_>, haproxy: &Field<'_>) -> DataPlane {
    let section = haproxy.object();
    let program = section.take("program").name().map_or_else(|| "/usr/sbin/haproxy".into(), PathBuf::from);
    let named = section.take("folder");
    let folder = named.name().map_or_else(
        || runtime_folder().map(|it| it.join("seaway/haproxy").display().to_string()).unwrap_or_default(),
        |it| it.to_string(),
    );
    section.finish();
    let is_haproxy = driver.one_of(&[("native", false), ("haproxy", true)]).unwrap_or(false);
    if !is_haproxy {
        if haproxy.is_set() {
            haproxy.error("has no effect without `driver: haproxy` beside it");
        }
        return DataPlane::Native;
    }
    match Folder::new(&folder) {
        Some(folder) => DataPlane::Haproxy(HaproxySettings { program, folder }),
        None if folder.is_empty() => {
            haproxy.error("needs `folder`: this user has no folder below /run (XDG_RUNTIME_DIR)");
            DataPlane::Native
        }
        None => {
            named.invalid(
                &*folder,
                "must be the absolute path of a folder, of letters, digits, `-`, `_`, `.` and `/`, of at most 80 characters",
            );
            DataPlane::Native
        }
    }
}
