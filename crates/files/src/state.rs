//! The state folder: ours alone, and of one process at a time.
//!
//! ```text
//!     lock            flock, with the holder's pid in it
//!     ledger.jsonl    addresses with their owners: never lost          ledger.rs
//!     status.json     what each Service got: for people, and for `check`               status.rs
//!     acme/           certificates that were ordered, and accounts      certificates.rs
//!     acme-dns/       records that were added to DNS for a while        dns_records.rs
//!     weights.json    what an operator says of members, until it is taken back          weights.rs
//!     control.sock    where the same user changes a running process
//!     last-good/      manifests as they were last good                 ../last_good.rs
//! ```

mod certificates;
mod dns_records;
mod ledger;
mod status;
mod weights;

use std::{
    fs::{File, OpenOptions},
    io::{self, Read, Seek, Write},
    os::unix::fs::OpenOptionsExt,
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use nix::{
    errno::Errno,
    fcntl::{Flock, FlockArg},
};

pub(crate) use self::ledger::fuzz_reading;
pub use self::{
    certificates::{CertificateStore, FailedOrders, StoredPem},
    dns_records::{DnsRecordStore, StoredRecord},
    ledger::{LedgerError, LedgerFile, stored_addresses},
    status::{ServerInfo, StatusFile, absolute, stored_server, stored_serving},
    weights::WeightsFile,
};
use crate::disk;

#[derive(Debug, thiserror::Error)]
pub enum StateError {
    #[error("the state folder {} is in use by {}", path.display(), holder(*pid))]
    Locked { path: PathBuf, pid: Option<u32> },
    #[error("cannot use the state folder {}", path.display())]
    Unusable {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
}

fn holder(pid: Option<u32>) -> String {
    pid.map_or("another process".to_owned(), |pid| format!("process {pid}"))
}

/// The state folder, locked until this is dropped.
#[derive(Debug)]
pub struct StateDir {
    path: PathBuf,
    _lock: Flock<File>,
}

impl StateDir {
    /// Makes the folder if it is not there (0700), and locks it.
    pub fn open(path: &Path) -> Result<StateDir, StateError> {
        let fail = |source| StateError::Unusable { path: path.to_owned(), source };
        disk::private_folder(path).map_err(fail)?;
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true).truncate(false).mode(0o600);
        let file = options.open(path.join("lock")).map_err(fail)?;
        match Flock::lock(file, FlockArg::LockExclusiveNonblock) {
            Ok(mut lock) => {
                // Only for the message of whoever comes next: a full disk does not keep us from running.
                if let Err(error) = sign(&mut lock) {
                    tracing::debug!(%error, "the lock does not have the id of this process");
                }
                Ok(StateDir { path: path.to_owned(), _lock: lock })
            }
            Err((mut file, Errno::EWOULDBLOCK)) => {
                let mut pid = String::new();
                let read = file.read_to_string(&mut pid);
                let pid = read.ok().and_then(|_| pid.trim().parse().ok());
                Err(StateError::Locked { path: path.to_owned(), pid })
            }
            Err((_, error)) => Err(fail(error.into())),
        }
    }

    /// As [`StateDir::open`], but waits for a process that is handing over to let go. Blocks.
    pub fn open_when_free(path: &Path, patience: Duration) -> Result<StateDir, StateError> {
        let began = Instant::now();
        loop {
            match StateDir::open(path) {
                Err(StateError::Locked { .. }) if began.elapsed() < patience => {
                    std::thread::sleep(Duration::from_millis(10));
                }
                other => return other,
            }
        }
    }

    pub fn path(&self) -> &Path {
        &self.path
    }
}

fn sign(lock: &mut File) -> io::Result<()> {
    lock.set_len(0)?;
    lock.rewind()?;
    writeln!(lock, "{}", std::process::id())
}

#[cfg(test)]
mod tests {
    use std::{fs, os::unix::fs::PermissionsExt};

    use super::*;

    #[test]
    fn a_second_process_is_told_who_has_the_folder() {
        let root = tempfile::tempdir().expect("a folder");
        let path = root.path().join("deep/state");
        let state = StateDir::open(&path).expect("is free");
        assert_eq!(fs::metadata(&path).expect("is there").permissions().mode() & 0o777, 0o700);
        let error = StateDir::open(&path).expect_err("is taken");
        let told = format!("the state folder {} is in use by process {}", path.display(), std::process::id());
        assert_eq!(error.to_string(), told);
        let waiting = std::thread::spawn({
            let path = path.clone();
            move || {
                StateDir::open_when_free(&path, Duration::from_secs(20)).map(|state| state.path().to_owned())
            }
        });
        drop(state);
        assert_eq!(waiting.join().expect("ends").expect("is free at last"), path);
    }
}
