//! Hosts and paths: keys one by one where few differ, the whole map at once otherwise.

use std::collections::BTreeMap;

use super::{DiffBuilder, ReloadReason};
use crate::{
    document::{FileKind, Map, MapMatch},
    runtime::commands::Command,
    words::Key,
};

/// More than this are sent as a new version of the map.
const MOST_KEYS: usize = 64;

impl DiffBuilder<'_> {
    pub(super) fn maps(&mut self) -> Vec<Command> {
        let mut commands = Vec::new();
        let loaded = self.running.document.clone();
        for (name, map) in &self.wanted.maps {
            let path = FileKind::Maps.path(&loaded.global.folder, name);
            let is_known = loaded.maps.get(name).is_some_and(|it| it.find == map.find);
            match self.running.maps.get(&path).filter(|_| is_known) {
                None => self.reload(ReloadReason::Map),
                Some(now) if *now != map.entries => commands.extend(changes(&path, now, map)),
                Some(_) => {}
            }
        }
        commands
    }
}

fn changes(path: &str, now: &[(Key, Key)], map: &Map) -> Vec<Command> {
    let whole = || vec![Command::ReplaceMap { map: path.to_owned(), entries: map.entries.clone() }];
    // There the order counts, and a key that is added stands last.
    if map.find == MapMatch::Suffix {
        return whole();
    }
    let before: BTreeMap<&Key, &Key> = now.iter().map(|(key, value)| (key, value)).collect();
    let after: BTreeMap<&Key, &Key> = map.entries.iter().map(|(key, value)| (key, value)).collect();
    let map = || path.to_owned();
    let mut commands = Vec::new();
    for (key, value) in &after {
        let (key, value) = ((*key).clone(), (*value).clone());
        match before.get(&key) {
            None => commands.push(Command::AddKey { map: map(), key, value }),
            Some(it) if **it != value => commands.push(Command::SetKey { map: map(), key, value }),
            Some(_) => {}
        }
    }
    for key in before.keys().filter(|it| !after.contains_key(*it)) {
        commands.push(Command::RemoveKey { map: map(), key: (*key).clone() });
    }
    if commands.len() > MOST_KEYS { whole() } else { commands }
}
