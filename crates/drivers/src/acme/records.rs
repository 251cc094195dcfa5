//! Records in DNS that prove host names, by dynamic updates (RFC 2136).
//!
//! ```text
//!   publish: written down ─► added        shown: the server, and those that copy from it, answer with it
//!   sweep:   what is written down and no order needs ─► removed ─► forgotten
//! ```
//!
//! Removing is nobody's step: what an order leaves behind, however it ended, and in whichever process, is swept alike.

use std::{
    collections::HashMap,
    fs::File,
    io::Read,
    net::SocketAddr,
    os::unix::fs::MetadataExt,
    path::Path,
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

use seaway_acme::dns::{self, DnsError, DnsServer, TsigAlgorithm, TsigKey};
use seaway_files::state::DnsRecordStore;
use seaway_model::{
    Name,
    acme::{DnsKey, DnsKeyAlgorithm, DnsRecord, DnsUpdates},
};
use secrecy::{ExposeSecret, SecretString};
use tokio::sync::Notify;
use tracing::{info, warn};

/// More than this is no secret.
const LARGEST_SECRET: u64 = 64 << 10;
/// A record that could not be removed is tried again so much later, then after twice that.
const FIRST_WAIT: Duration = Duration::from_secs(60);
const LONGEST_WAIT: Duration = Duration::from_secs(3600);
/// A server that did not let it be removed for so long will not.
const GIVEN_UP_AFTER: Duration = Duration::from_secs(7 * 24 * 3600);

pub(super) struct Records {
    store: DnsRecordStore,
    changed: Notify,
    /// A record is added or removed, and never both.
    changing: NameLocks,
    /// Those that could not be removed: how often, and when they are tried again.
    failed: Mutex<HashMap<(Name, Name), (u32, Instant)>>,
}

/// One for each name at a server: a server that does not answer keeps no other name waiting.
#[derive(Default)]
struct NameLocks(Mutex<HashMap<(SocketAddr, Name), Arc<NameLock>>>);

type NameLock = tokio::sync::Mutex<()>;

impl NameLocks {
    async fn lock(&self, server: SocketAddr, name: &Name) -> tokio::sync::OwnedMutexGuard<()> {
        let lock = {
            let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            // Whoever holds one, or waits for it, has it, too.
            all.retain(|_, it| Arc::strong_count(it) > 1);
            all.entry((server, name.clone())).or_default().clone()
        };
        lock.lock_owned().await
    }
}

impl Records {
    pub(super) fn new(store: DnsRecordStore) -> Records {
        Records { store, changed: Notify::new(), changing: NameLocks::default(), failed: Mutex::default() }
    }

    /// Whether updates could be signed.
    pub(super) fn check(&self, updates: &DnsUpdates) -> Result<(), DnsError> {
        key(&updates.key).map(drop)
    }

    /// It is written down first: what is added is removed, whatever happens to this process.
    pub(super) async fn publish(
        &self,
        updates: &DnsUpdates,
        name: &Name,
        value: &Name,
    ) -> Result<(), DnsError> {
        let server = DnsServer::new(updates.server, key(&updates.key)?);
        let zone = match updates.zone_of(name) {
            Some(zone) => zone.clone(),
            None => server.zone_of(name).await?.into(),
        };
        let (key, name, value) = (updates.key.clone(), name.clone(), value.clone());
        let record = DnsRecord { server: updates.server, key, zone, name, value };
        let unwritable = |error: std::io::Error| {
            DnsError::Key(format!(
                "the state folder cannot be written, so that nothing is added to DNS: {error}"
            ))
        };
        let _changing = self.changing.lock(record.server, &record.name).await;
        self.store.keep(&record).map_err(unwritable)?;
        let added = server.add(&record.zone, &record.name, &record.value).await;
        match &added {
            Ok(()) => info!(name = %record.name, server = %record.server, "a record was added to DNS"),
            // Signed by the server: it is not there.
            Err(DnsError::Refused { is_transient: false, .. }) => self.forget(&record),
            Err(_) => {}
        }
        added
    }

    /// Whether all who are asked answer with it; or who does not, and why.
    pub(super) async fn verify_published(
        &self,
        updates: &DnsUpdates,
        name: &str,
        value: &str,
    ) -> Result<(), String> {
        let missing = |at| format!("the name server {at} does not answer with the record of {name} yet");
        let of_key = key(&updates.key).map_err(|error| error.to_string())?;
        let server = DnsServer::new(updates.server, of_key);
        if !server.shows(name, value).await.map_err(|error| error.to_string())? {
            return Err(missing(updates.server));
        }
        for at in &updates.secondaries {
            if !dns::shows(*at, name, value).await.map_err(|error| error.to_string())? {
                return Err(missing(*at));
            }
        }
        Ok(())
    }

    /// Orders have changed: some record may be of no use any more.
    pub(super) fn note_change(&self) {
        self.changed.notify_one();
    }

    /// As long as it is awaited, what no order needs is removed.
    pub(super) async fn keep_swept(&self, is_needed: impl Fn(&DnsRecord) -> bool) {
        loop {
            match self.sweep(&is_needed).await {
                Some(next) => {
                    tokio::select! {
                        () = self.changed.notified() => {}
                        () = tokio::time::sleep(next) => {}
                    }
                }
                None => self.changed.notified().await,
            }
        }
    }

    /// Until when the next one waits that could not be removed.
    pub(super) async fn sweep(&self, is_needed: &impl Fn(&DnsRecord) -> bool) -> Option<Duration> {
        let mut next: Option<Duration> = None;
        for stored in self.store.all() {
            let record = stored.record;
            if is_needed(&record) {
                continue;
            }
            let id = (record.name.clone(), record.value.clone());
            let failed = self.failed.lock().unwrap_or_else(PoisonError::into_inner).get(&id).copied();
            let waits = failed.map(|(_, until)| until.saturating_duration_since(Instant::now()));
            if let Some(waits) = waits.filter(|it| !it.is_zero()) {
                next = Some(next.map_or(waits, |it| it.min(waits)));
                continue;
            }
            let _changing = self.changing.lock(record.server, &record.name).await;
            // An order may have come to need it since.
            if is_needed(&record) {
                continue;
            }
            let Err(error) = remove(&record).await else {
                info!(name = %record.name, server = %record.server, "a record was removed from DNS");
                self.forget(&record);
                continue;
            };
            let (name, server) = (&record.name, &record.server);
            if stored.age > GIVEN_UP_AFTER {
                warn!(%name, %server, value = %record.value, %error, "a record stays in DNS: remove it by hand");
                self.forget(&record);
                continue;
            }
            let count = failed.map_or(0, |(count, _)| count);
            if count == 0 {
                warn!(%name, %server, %error, "a record cannot be removed from DNS; Seaway tries again");
            }
            let wait = FIRST_WAIT.saturating_mul(1 << count.min(6)).min(LONGEST_WAIT);
            let until = Instant::now().checked_add(wait).unwrap_or_else(Instant::now);
            let failures = (count.saturating_add(1), until);
            self.failed.lock().unwrap_or_else(PoisonError::into_inner).insert(id, failures);
            next = Some(next.map_or(wait, |it| it.min(wait)));
        }
        next
    }

    fn forget(&self, record: &DnsRecord) {
        let id = (record.name.clone(), record.value.clone());
        self.failed.lock().unwrap_or_else(PoisonError::into_inner).remove(&id);
        if let Err(error) = self.store.forget(record) {
            warn!(name = %record.name, %error, "the list of DNS records that Seaway added cannot be updated");
        }
    }
}

async fn remove(record: &DnsRecord) -> Result<(), DnsError> {
    let server = DnsServer::new(record.server, key(&record.key)?);
    server.remove(&record.zone, &record.name, &record.value).await
}

/// It is read each time, so that one that was renewed or mended is used at once.
fn key(key: &DnsKey) -> Result<TsigKey, DnsError> {
    tsig_key("frontDoor.acme.dns.key.secretFile", key, read_secret(&key.secret_file))
}

/// `field`: where the file of this secret is named.
pub(crate) fn tsig_key(
    field: &str,
    key: &DnsKey,
    secret: Result<SecretString, String>,
) -> Result<TsigKey, DnsError> {
    let secret = secret.map_err(|why| DnsError::Key(format!("{field}: {why}")))?;
    let algorithm = match key.algorithm {
        DnsKeyAlgorithm::HmacSha256 => TsigAlgorithm::Sha256,
        DnsKeyAlgorithm::HmacSha512 => TsigAlgorithm::Sha512,
    };
    TsigKey::new(&key.name, algorithm, secret.expose_secret())
}

/// A file that its owner alone may read.
pub fn read_secret(path: &Path) -> Result<SecretString, String> {
    read_closed(path, 0o077)
}

/// The same, where its group may read it as well: in a pod that is not root's, a mounted Secret is read so.
pub fn read_mounted_secret(path: &Path) -> Result<SecretString, String> {
    read_closed(path, 0o037)
}

fn read_closed(path: &Path, forbidden: u32) -> Result<SecretString, String> {
    let shown = path.display();
    let unreadable = |error: std::io::Error| format!("{shown}: {error}");
    let file = File::open(path).map_err(unreadable)?;
    let mode = file.metadata().map_err(unreadable)?.mode() & 0o777;
    if mode & forbidden != 0 {
        return Err(format!(
            "{shown} can be read or changed by other users (mode {mode:04o}). Type: chmod 600 {shown}"
        ));
    }
    let mut text = String::new();
    file.take(LARGEST_SECRET).read_to_string(&mut text).map_err(unreadable)?;
    Ok(SecretString::from(text))
}

#[cfg(test)]
mod tests {
    use std::{fs, os::unix::fs::PermissionsExt};

    use super::*;

    #[test]
    fn a_secret_that_others_may_read_is_refused_with_what_to_type() {
        let folder = tempfile_in_target();
        let path = folder.join("tsig.key");
        fs::write(&path, "c2VjcmV0").expect("written");
        for (mode, fine) in [(0o600, true), (0o400, true), (0o640, false), (0o604, false), (0o620, false)] {
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).expect("set");
            let read = read_secret(&path).map(|it| it.expose_secret().to_owned());
            match fine {
                true => assert_eq!(read.as_deref(), Ok("c2VjcmV0"), "{mode:o}"),
                false => {
                    let why = read.expect_err("it is refused");
                    assert!(why.ends_with(&format!("Type: chmod 600 {}", path.display())), "{why}");
                    assert!(!why.contains("c2VjcmV0"));
                }
            }
        }
        fs::remove_dir_all(&folder).expect("removed");
        assert!(read_secret(&path).expect_err("it is gone").contains("No such file"));
    }

    #[tokio::test]
    async fn a_name_is_changed_by_one_at_a_time_and_waits_for_no_other() {
        let locks = NameLocks::default();
        let (here, there) =
            (SocketAddr::from(([192, 0, 2, 53], 53)), SocketAddr::from(([192, 0, 2, 54], 53)));
        let (one, other) = (Name::from("one.example"), Name::from("other.example"));
        let held = locks.lock(here, &one).await;
        drop(locks.lock(here, &other).await);
        drop(locks.lock(there, &one).await);
        let mut again = std::pin::pin!(locks.lock(here, &one));
        let is_pending = std::future::poll_fn(|context| {
            std::task::Poll::Ready(std::future::Future::poll(again.as_mut(), context).is_pending())
        });
        assert!(is_pending.await, "it is held");
        drop(held);
        drop(again.await);
        drop(locks.lock(there, &other).await);
        assert_eq!(locks.0.lock().expect("whole").len(), 1, "nothing is kept of those that are done");
    }

    fn tempfile_in_target() -> std::path::PathBuf {
        let folder = std::env::temp_dir().join(format!("seaway-secret-{}", std::process::id()));
        fs::create_dir_all(&folder).expect("a folder");
        folder
    }
}
