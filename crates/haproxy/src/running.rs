//! What HAProxy has now: the file that it read last, and what it was told since.

use std::{collections::BTreeMap, net::SocketAddr, sync::Arc};

use crate::{
    document::{CrtEntry, Document, FileKind, Pem, Slot, SlotState},
    runtime::{
        commands::{Command, ServerName, ServerState},
        observed::ObservedServers,
    },
    words::{Key, Label},
};

/// Each command that HAProxy did is taken down here, so that what is left to do is known where one of them fails.
#[derive(Clone, Debug, PartialEq)]
pub struct RunningConfig {
    /// As it was read: what no command changes.
    pub document: Arc<Document>,
    /// Whether HAProxy may have read another one since: nothing is known of how a reload ended.
    pub may_be_another: bool,
    /// Of which HAProxy has all that needs no reload, if it is known: what is the same in another needs no second look.
    pub brought: Option<Arc<Document>>,
    /// By backend and name.
    pub servers: BTreeMap<Label, BTreeMap<Label, RunningServer>>,
    /// By their paths, as all that follows.
    pub maps: BTreeMap<String, Vec<(Key, Key)>>,
    pub crt_lists: BTreeMap<String, Vec<CrtEntry>>,
    pub certificates: BTreeMap<String, Pem>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunningServer {
    /// `None`: a free slot that never had one.
    pub at: Option<SocketAddr>,
    pub weight: Option<u16>,
    pub state: ServerState,
    /// What it was made with, which no command changes.
    pub backup: bool,
    pub tls_name: Option<Label>,
}

impl RunningServer {
    /// As the file has it.
    pub fn of(slot: &Slot) -> RunningServer {
        let free = RunningServer {
            at: None,
            weight: None,
            state: ServerState::Maintenance,
            backup: false,
            tls_name: None,
        };
        slot.member.as_ref().map_or(free, |it| RunningServer {
            at: Some(it.at),
            // One that drains has no weight: it stays with clients that have its cookie.
            weight: Some(if it.state == SlotState::Drain { 0 } else { it.weight }),
            state: ServerState::Ready,
            backup: it.backup,
            tls_name: it.tls_name.clone(),
        })
    }
}

impl RunningConfig {
    /// After a start or a reload.
    pub fn loaded(document: Arc<Document>) -> RunningConfig {
        let folder = &document.global.folder;
        let lists = document.crt_lists.iter();
        RunningConfig {
            may_be_another: false,
            brought: Some(document.clone()),
            servers: (document.backends.iter())
                .map(|(name, it)| {
                    (
                        name.clone(),
                        it.slots.iter().map(|it| (it.name.clone(), RunningServer::of(it))).collect(),
                    )
                })
                .collect(),
            maps: (document.maps.iter())
                .map(|(name, it)| (FileKind::Maps.path(folder, name), it.entries.clone()))
                .collect(),
            crt_lists: lists
                .map(|(name, it)| (FileKind::CrtLists.path(folder, name), it.entries.clone()))
                .collect(),
            certificates: (document.certificates.iter())
                .map(|(name, it)| (FileKind::Certificates.path(folder, name), it.clone()))
                .collect(),
            document,
        }
    }

    /// What HAProxy itself says of its servers, which counts.
    pub fn record_servers(&mut self, seen: &ObservedServers) {
        self.brought = None;
        let known = |backend: &Label, name: &Label| {
            seen.get(&(backend.as_str().to_owned(), name.as_str().to_owned()))
        };
        for (backend, servers) in &mut self.servers {
            servers.retain(|name, _| known(backend, name).is_some());
        }
        let all =
            self.servers.iter_mut().flat_map(|(backend, it)| it.iter_mut().map(move |it| (backend, it)));
        for (backend, (name, now)) in all {
            let Some(it) = known(backend, name) else { continue };
            now.at = it.at;
            now.weight = Some(it.weight);
            now.state = match (it.is_maintained, it.is_drained) {
                (true, _) => ServerState::Maintenance,
                (false, true) => ServerState::Drain,
                (false, false) => ServerState::Ready,
            };
        }
    }

    /// The same of a map; what is no key of ours is left to be removed as one, or the map is replaced.
    pub fn record_map(&mut self, path: &str, seen: &[(String, String)]) {
        self.brought = None;
        let keys = seen.iter().filter_map(|(key, value)| Key::new(key).zip(Key::new(value)));
        *self.map(path) = keys.collect();
    }

    /// What a command that was done changed.
    pub fn apply(&mut self, command: &Command) {
        self.brought = None;
        let mut server = |at: &ServerName, change: &dyn Fn(&mut RunningServer)| {
            let backend = self.servers.get_mut(&at.backend);
            backend.and_then(|it| it.get_mut(&at.name)).into_iter().for_each(change);
        };
        match command {
            Command::SetAddress(at, address) => server(at, &|it| it.at = Some(*address)),
            Command::SetWeight(at, weight) => server(at, &|it| it.weight = Some(*weight)),
            Command::SetState(at, state) => server(at, &|it| it.state = *state),
            Command::ForgetChecks(_) => {}
            Command::AddServer(at, new) => {
                let now = RunningServer {
                    at: Some(new.at),
                    weight: Some(new.weight),
                    state: ServerState::Maintenance,
                    backup: new.backup,
                    tls_name: None,
                };
                self.servers.entry(at.backend.clone()).or_default().insert(at.name.clone(), now);
            }
            Command::AddKey { map, key, value } => self.map(map).push((key.clone(), value.clone())),
            Command::SetKey { map, key, value } => {
                self.map(map).iter_mut().filter(|it| it.0 == *key).for_each(|it| it.1 = value.clone());
            }
            Command::RemoveKey { map, key } => self.map(map).retain(|it| it.0 != *key),
            Command::ReplaceMap { map, entries } => *self.map(map) = entries.clone(),
            Command::SetCertificate { file, pem, .. } => {
                drop(self.certificates.insert(file.clone(), pem.clone()))
            }
            Command::RemoveCertificate { file } => drop(self.certificates.remove(file)),
            Command::AddToList { list, entry } => self.list(list).push(entry.entry.clone()),
            Command::RemoveFromList { list, entry } => {
                let list = self.list(list);
                if let Some(place) = list.iter().position(|it| *it == entry.entry) {
                    list.remove(place);
                }
            }
        }
    }

    fn map(&mut self, path: &str) -> &mut Vec<(Key, Key)> {
        self.maps.entry(path.to_owned()).or_default()
    }

    fn list(&mut self, path: &str) -> &mut Vec<CrtEntry> {
        self.crt_lists.entry(path.to_owned()).or_default()
    }
}

/// Addresses of members by backend and server.
pub(crate) fn slots_by_name(document: &Document) -> BTreeMap<(&str, &str), Option<SocketAddr>> {
    let backends = document.backends.iter();
    let slots = backends.flat_map(|(backend, it)| {
        it.slots
            .iter()
            .map(move |slot| ((backend.as_str(), slot.name.as_str()), slot.member.as_ref().map(|it| it.at)))
    });
    slots.collect()
}
