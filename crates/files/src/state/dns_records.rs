//! Records in DNS that this process adds for a while: each is written down before it is added, and forgotten once it is removed, so
//! that whoever starts next removes what is left of a process that was killed.
//!
//! ```text
//!     acme-dns/HASH.json    one record, with what it takes to remove it; no secret
//! ```

use std::{
    fs, io,
    path::{Path, PathBuf},
    time::{Duration, SystemTime},
};

use seaway_model::acme::DnsRecord;
use sha2::{Digest, Sha256};
use tracing::warn;

use super::StateDir;
use crate::disk::{self, Durability};

/// More than this is no record.
const LARGEST: u64 = 64 << 10;

#[derive(Clone, Debug)]
pub struct DnsRecordStore {
    path: PathBuf,
}

/// A record that is written down.
#[derive(Clone, Debug, PartialEq)]
pub struct StoredRecord {
    pub record: DnsRecord,
    /// Since it was written.
    pub age: Duration,
}

impl DnsRecordStore {
    pub fn new(state: &StateDir) -> DnsRecordStore {
        DnsRecordStore::at(state.path())
    }

    /// In the state folder at that path.
    pub fn at(state: &Path) -> DnsRecordStore {
        DnsRecordStore { path: state.join("acme-dns") }
    }

    pub fn keep(&self, record: &DnsRecord) -> io::Result<()> {
        disk::private_folder(&self.path)?;
        let text = serde_json::to_string(record)?;
        disk::replace(&self.file(record), Durability::Yes, |it| it.write_all(text.as_bytes()))
    }

    pub fn forget(&self, record: &DnsRecord) -> io::Result<()> {
        match fs::remove_file(self.file(record)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        }
    }

    pub fn all(&self) -> Vec<StoredRecord> {
        let files = fs::read_dir(&self.path).into_iter().flatten().filter_map(Result::ok);
        let paths = files.map(|it| it.path()).filter(|it| it.extension().is_some_and(|it| it == "json"));
        paths.filter_map(|path| read(&path)).collect()
    }

    fn file(&self, record: &DnsRecord) -> PathBuf {
        let hash = Sha256::digest(format!("{} {} {}", record.server, record.name, record.value));
        let name: String = hash.iter().take(8).map(|it| format!("{it:02x}")).collect();
        self.path.join(name).with_extension("json")
    }
}

fn read(path: &Path) -> Option<StoredRecord> {
    let told =
        |why: String| warn!(path = %path.display(), why, "a record that was added to DNS cannot be read");
    let known = fs::metadata(path).ok()?;
    if known.len() > LARGEST {
        told(format!("the file has {} bytes, more than the {LARGEST} that are read", known.len()));
        return None;
    }
    let written = known.modified().ok()?;
    let text = fs::read_to_string(path).inspect_err(|error| told(error.to_string())).ok()?;
    let record = serde_json::from_str(&text).inspect_err(|error| told(error.to_string())).ok()?;
    Some(StoredRecord { record, age: SystemTime::now().duration_since(written).unwrap_or_default() })
}

#[cfg(test)]
mod tests {
    use std::{net::SocketAddr, os::unix::fs::PermissionsExt};

    use seaway_model::acme::{DnsKey, DnsKeyAlgorithm};

    use super::*;

    fn record(value: &str) -> DnsRecord {
        let key = DnsKey {
            name: "seaway".into(),
            algorithm: DnsKeyAlgorithm::HmacSha512,
            secret_file: PathBuf::from("/etc/seaway/a key"),
        };
        DnsRecord {
            server: SocketAddr::from(([192, 0, 2, 53], 53)),
            key,
            zone: "shop.example".into(),
            name: "_acme-challenge.shop.example".into(),
            value: value.into(),
        }
    }

    #[test]
    fn records_are_found_again_until_they_are_forgotten_and_two_of_a_name_are_two() {
        let root = tempfile::tempdir().expect("a folder");
        let store = DnsRecordStore::at(root.path());
        assert_eq!(store.all(), []);
        let values = || {
            let mut all: Vec<String> = store.all().iter().map(|it| it.record.value.to_string()).collect();
            all.sort();
            all
        };
        for value in ["a", "b", "b"] {
            store.keep(&record(value)).expect("is written");
        }
        assert_eq!(values(), ["a", "b"]);
        assert!(store.all().iter().all(|it| it.record == record(&it.record.value)));
        let folder = root.path().join("acme-dns");
        assert_eq!(fs::metadata(&folder).expect("is there").permissions().mode() & 0o777, 0o700);
        // What cannot be read spoils nothing else.
        fs::write(folder.join("broken.json"), "{").expect("is written");
        for _ in 0..2 {
            store.forget(&record("a")).expect("is removed");
            assert_eq!(values(), ["b"]);
        }
    }
}
