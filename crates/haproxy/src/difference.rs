//! What has to be told to a running HAProxy so that it serves another document, and why that is not enough, where it is not.
//!
//! ```text
//!     Running, Document ─► Difference ─ commands ─► Running::apply
//!                               └────── reloads, by reason
//! ```

mod certificates;
mod maps;
mod servers;

pub use servers::leaving_of;

use std::{collections::BTreeMap, fmt};

use crate::{
    document::{Backend, Document, Frontend, Slot},
    running::RunningConfig,
    runtime::commands::Command,
    words::Label,
};

/// Nothing is left out silently: what no command does is a reason to reload.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Difference {
    /// In this order: what is new is there before what refers to it, and what goes is referred to by nothing.
    pub commands: Vec<Command>,
    /// How many parts of the document ask for one.
    pub reloads: BTreeMap<ReloadReason, usize>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ReloadReason {
    /// HAProxy is another version.
    Version,
    Global,
    Frontend,
    /// No spare backend was left.
    NewBackend,
    BackendSettings,
    /// No slot was left, and the version cannot add a server with what the backend asks.
    Slots,
    /// A server becomes a backup one, or another name is expected of its certificate.
    ServerOptions,
    Map,
    CrtList,
    DefaultCertificate,
    CertificateOrder,
    /// More than a command can carry.
    CertificateSize,
    Authorities,
    Pages,
    /// HAProxy refused a command.
    Refused,
    /// HAProxy may have something else than what it was told: nothing is known of how the reload before ended.
    Drift,
}

impl ReloadReason {
    pub fn as_str(self) -> &'static str {
        match self {
            ReloadReason::Version => "version",
            ReloadReason::Global => "global",
            ReloadReason::Frontend => "frontend",
            ReloadReason::NewBackend => "new-backend",
            ReloadReason::BackendSettings => "backend-settings",
            ReloadReason::Slots => "slots",
            ReloadReason::ServerOptions => "server-options",
            ReloadReason::Map => "map",
            ReloadReason::CrtList => "crt-list",
            ReloadReason::DefaultCertificate => "default-certificate",
            ReloadReason::CertificateOrder => "certificate-order",
            ReloadReason::CertificateSize => "certificate-size",
            ReloadReason::Authorities => "authorities",
            ReloadReason::Pages => "pages",
            ReloadReason::Refused => "refused",
            ReloadReason::Drift => "drift",
        }
    }
}

impl fmt::Display for ReloadReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

impl Difference {
    pub fn between(running: &RunningConfig, wanted: &Document) -> Difference {
        let mut work = DiffBuilder { running, wanted, reloads: BTreeMap::new() };
        work.whole();
        let servers = work.servers();
        let (fresh, added, removed) = work.certificates();
        let maps = work.maps();
        let reloads = work.reloads;
        // A reload brings the rest. What keeps members and keys in use that are no longer wanted does not wait for it.
        let commands = match reloads.is_empty() {
            true => [fresh, added, servers.joining, maps, servers.leaving, removed].concat(),
            false => {
                let is_renewal = |it: &Command| matches!(it, Command::SetCertificate { is_new: false, .. });
                let renewed = fresh.into_iter().filter(is_renewal).collect();
                [renewed, servers.joining, servers.leaving].concat()
            }
        };
        Difference { commands, reloads }
    }

    /// Of members alone: these backends have them in these slots now, and all else is as wanted.
    pub fn of_members(
        running: &RunningConfig,
        wanted: &Document,
        changed: &BTreeMap<Label, Vec<Slot>>,
    ) -> Difference {
        let mut work = DiffBuilder { running, wanted, reloads: BTreeMap::new() };
        let mut servers = servers::ServerChanges::default();
        for (name, slots) in changed {
            work.servers_of(name, slots, &mut servers);
        }
        Difference { commands: [servers.joining, servers.leaving].concat(), reloads: work.reloads }
    }

    pub fn is_empty(&self) -> bool {
        self.commands.is_empty() && self.reloads.is_empty()
    }
}

/// A [`Difference`] that is being made.
struct DiffBuilder<'a> {
    running: &'a RunningConfig,
    wanted: &'a Document,
    reloads: BTreeMap<ReloadReason, usize>,
}

impl DiffBuilder<'_> {
    fn reload(&mut self, reason: ReloadReason) {
        *self.reloads.entry(reason).or_default() += 1;
    }

    /// What no command changes.
    fn whole(&mut self) {
        let (loaded, wanted) = (self.running.document.clone(), self.wanted);
        if self.running.may_be_another {
            self.reload(ReloadReason::Drift);
        }
        if loaded.version != wanted.version {
            self.reload(ReloadReason::Version);
        }
        if loaded.global != wanted.global {
            self.reload(ReloadReason::Global);
        }
        if loaded.authorities != wanted.authorities {
            self.reload(ReloadReason::Authorities);
        }
        if loaded.pages != wanted.pages {
            self.reload(ReloadReason::Pages);
        }
        for (name, frontend) in &wanted.frontends {
            if !loaded.frontends.get(name).is_some_and(|it| are_alike(it, frontend)) {
                self.reload(ReloadReason::Frontend);
            }
        }
        for name in loaded.frontends.keys() {
            // Its sockets have to be closed.
            if !wanted.frontends.contains_key(name) {
                self.reload(ReloadReason::Frontend);
            }
        }
        for (name, backend) in &wanted.backends {
            match loaded.backends.get(name) {
                // A backend that serves nothing yet may as well be there later.
                None if backend.is_spare() => {}
                None => self.reload(ReloadReason::NewBackend),
                Some(it) if it.settings != backend.settings => self.reload(ReloadReason::BackendSettings),
                Some(_) => {}
            }
        }
    }

    /// The backend as it was read, where it is still set up so.
    fn backend(&self, name: &Label) -> Option<&Backend> {
        let wanted = self.wanted.backends.get(name)?;
        self.running.document.backends.get(name).filter(|it| it.settings == wanted.settings)
    }
}

/// But for what is for the reader.
fn are_alike(one: &Frontend, other: &Frontend) -> bool {
    one == other || Frontend { about: one.about.clone(), ..other.clone() } == *one
}

#[cfg(test)]
mod tests;
