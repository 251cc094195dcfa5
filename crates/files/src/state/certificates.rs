//! Certificates that the front door ordered, their keys, and the accounts by which they were ordered. What was got once is never
//! removed: it is shown until a newer one is there.
//!
//! ```text
//!     acme/HASH/            of a directory's URL
//!         directory         that URL, for people
//!         account.key       of the account there
//!         HOST.pem          chain and key, in one file, so that they always belong together; a wildcard's HOST is `wildcard+REST`
//!         HOST.failed       how often an order failed in a row, and when the next may begin (Unix time)
//! ```

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use seaway_model::acme::WILDCARD;
use sha2::{Digest, Sha256};

use super::StateDir;
use crate::disk::{self, Durability};

/// More than this is no certificate.
const LARGEST: u64 = 1 << 20;

#[derive(Clone, Debug)]
pub struct CertificateStore {
    path: PathBuf,
}

/// A chain with its key, as it is stored.
#[derive(Clone, PartialEq, Eq)]
pub struct StoredPem {
    pub pem: String,
    /// By the directory that is asked now, and not by another one.
    pub is_current: bool,
}

/// Orders that failed in a row.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FailedOrders {
    pub count: u32,
    /// No order begins before: in seconds since 1970.
    pub wait_until: u64,
}

impl CertificateStore {
    pub fn new(state: &StateDir) -> CertificateStore {
        CertificateStore::at(state.path())
    }

    /// In the state folder at that path.
    pub fn at(state: &Path) -> CertificateStore {
        CertificateStore { path: state.join("acme") }
    }

    fn folder(&self, directory: &str) -> PathBuf {
        let hash = Sha256::digest(directory);
        let name: String = hash.iter().take(8).map(|it| format!("{it:02x}")).collect();
        self.path.join(name)
    }

    /// All that there are for the name: by this directory, and by others, whose certificates stay in use until there is one by this.
    /// What cannot be read of others counts as absent.
    pub fn certificates(&self, directory: &str, host: &str) -> io::Result<Vec<StoredPem>> {
        let name = file_name(host, "pem")?;
        let own = self.folder(directory);
        let folders = match fs::read_dir(&self.path) {
            Ok(all) => all.filter_map(Result::ok).map(|it| it.path()),
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => return Err(error),
        };
        let others = folders.filter(|it| *it != own).filter_map(|it| read(&it.join(&name)).ok().flatten());
        let mut found: Vec<StoredPem> = others.map(|pem| StoredPem { pem, is_current: false }).collect();
        match read(&own.join(&name)) {
            Ok(pem) => found.extend(pem.map(|pem| StoredPem { pem, is_current: true })),
            Err(error) if found.is_empty() => return Err(error),
            Err(_) => {}
        }
        Ok(found)
    }

    pub fn keep_certificate(&self, directory: &str, host: &str, pem: &str) -> io::Result<()> {
        self.write(directory, &file_name(host, "pem")?, pem)
    }

    pub fn account_key(&self, directory: &str) -> io::Result<Option<String>> {
        read(&self.folder(directory).join("account.key"))
    }

    pub fn keep_account_key(&self, directory: &str, pem: &str) -> io::Result<()> {
        self.write(directory, "directory", &format!("{directory}\n"))?;
        self.write(directory, "account.key", pem)
    }

    /// What cannot be read counts as none: it keeps no order from beginning.
    pub fn failed(&self, directory: &str, host: &str) -> FailedOrders {
        let name = file_name(host, "failed");
        let text =
            name.and_then(|it| read(&self.folder(directory).join(it))).ok().flatten().unwrap_or_default();
        let mut numbers = text.split_whitespace();
        let count = numbers.next().and_then(|it| it.parse().ok());
        let wait_until = numbers.next().and_then(|it| it.parse().ok());
        match (count, wait_until) {
            (Some(count), Some(wait_until)) => FailedOrders { count, wait_until },
            _ => FailedOrders::default(),
        }
    }

    pub fn keep_failed(&self, directory: &str, host: &str, failed: FailedOrders) -> io::Result<()> {
        let name = file_name(host, "failed")?;
        if failed == FailedOrders::default() {
            return match fs::remove_file(self.folder(directory).join(name)) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
                _ => Ok(()),
            };
        }
        self.write(directory, &name, &format!("{} {}\n", failed.count, failed.wait_until))
    }

    fn write(&self, directory: &str, name: &str, text: &str) -> io::Result<()> {
        let folder = self.folder(directory);
        disk::private_folder(&self.path)?;
        disk::private_folder(&folder)?;
        disk::replace(&folder.join(name), Durability::Yes, |it| it.write_all(text.as_bytes()))
    }
}

/// A host name is a file's name here, and nothing that leads elsewhere.
fn file_name(host: &str, end: &str) -> io::Result<String> {
    // A `*` in a file's name is a trap for who removes it, and a `+` is in no host name.
    let (is_below, host) = host.strip_prefix(WILDCARD).map_or(("", host), |rest| ("wildcard+", rest));
    let is_part = |it: u8| it.is_ascii_lowercase() || it.is_ascii_digit() || matches!(it, b'-' | b'_' | b'.');
    let is_name =
        !host.is_empty() && host.len() <= 253 && !host.starts_with('.') && host.bytes().all(is_part);
    match is_name {
        // Not as an ending: a host `shop.pem` is another than `shop`.
        true => Ok(format!("{is_below}{host}.{end}")),
        false => Err(io::Error::new(io::ErrorKind::InvalidInput, format!("{host:?} is not a host name"))),
    }
}

fn read(path: &Path) -> io::Result<Option<String>> {
    match fs::metadata(path) {
        Ok(it) if it.len() > LARGEST => Err(io::ErrorKind::FileTooLarge.into()),
        Ok(_) => fs::read_to_string(path).map(Some),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    const CA: &str = "https://ca.example/dir";

    /// Each with whether it is of this directory.
    fn found(store: &CertificateStore, host: &str) -> Vec<(String, bool)> {
        let mut found: Vec<(String, bool)> = store
            .certificates(CA, host)
            .expect("is read")
            .into_iter()
            .map(|it| (it.pem, it.is_current))
            .collect();
        found.sort();
        found
    }

    fn store() -> (tempfile::TempDir, CertificateStore) {
        let root = tempfile::tempdir().expect("a folder");
        let store = CertificateStore::at(root.path());
        (root, store)
    }

    #[test]
    fn what_is_kept_is_private_and_found_again() {
        let (root, store) = store();
        assert!(found(&store, "shop.example").is_empty());
        assert!(store.account_key(CA).expect("is read").is_none());
        store.keep_account_key(CA, "key").expect("is written");
        store.keep_certificate(CA, "shop.example", "pem").expect("is written");
        assert_eq!(store.account_key(CA).expect("is read").as_deref(), Some("key"));
        assert_eq!(found(&store, "shop.example"), [("pem".to_owned(), true)]);
        let mut seen = 0;
        let folder = store.folder(CA);
        for path in [root.path().join("acme"), folder.clone()] {
            assert_eq!(fs::metadata(&path).expect("is there").permissions().mode() & 0o777, 0o700);
        }
        for file in fs::read_dir(folder).expect("is there").filter_map(Result::ok) {
            assert_eq!(file.metadata().expect("is there").permissions().mode() & 0o777, 0o600, "{file:?}");
            seen += 1;
        }
        assert_eq!(seen, 3);
    }

    #[test]
    fn another_directorys_certificate_goes_on_until_there_is_one_by_this() {
        let (_root, store) = store();
        store.keep_certificate("https://staging.example/dir", "shop.example", "old").expect("is written");
        assert_eq!(found(&store, "shop.example"), [("old".to_owned(), false)]);
        store.keep_certificate(CA, "shop.example", "new").expect("is written");
        let both = [("new".to_owned(), true), ("old".to_owned(), false)];
        assert_eq!(found(&store, "shop.example"), both);
        // One that cannot be read takes no other away.
        let own = store.folder(CA).join("shop.example.pem");
        fs::remove_file(&own).expect("is removed");
        fs::create_dir(&own).expect("is in the way");
        assert_eq!(found(&store, "shop.example"), [("old".to_owned(), false)]);
    }

    #[test]
    fn failures_are_remembered_until_one_works() {
        let (_root, store) = store();
        let failed = FailedOrders { count: 3, wait_until: 1_800_000_000 };
        store.keep_failed(CA, "shop.example", failed).expect("is written");
        assert_eq!(store.failed(CA, "shop.example"), failed);
        assert_eq!(store.failed(CA, "other.example"), FailedOrders::default());
        for _ in 0..2 {
            store.keep_failed(CA, "shop.example", FailedOrders::default()).expect("is removed");
            assert_eq!(store.failed(CA, "shop.example"), FailedOrders::default());
        }
    }

    #[test]
    fn a_wildcard_and_its_name_have_files_of_their_own() {
        let (_root, store) = store();
        for host in ["shop.example", "*.shop.example"] {
            store.keep_certificate(CA, host, host).expect("is written");
        }
        for host in ["shop.example", "*.shop.example"] {
            assert_eq!(found(&store, host), [(host.to_owned(), true)]);
        }
        assert!(store.folder(CA).join("wildcard+shop.example.pem").exists());
    }

    #[test]
    fn a_name_leads_nowhere_else() {
        let (_root, store) = store();
        for host in ["*.", "*../a", "a.*.b", "+.a", "../shop", "a/b", "", "..", ".a", "Shop.example", "a\0b"]
        {
            store.keep_certificate(CA, host, "pem").expect_err(host);
            store.certificates(CA, host).err().unwrap_or_else(|| panic!("{host:?} is a name"));
        }
    }
}
