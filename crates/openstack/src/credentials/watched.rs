//! Notices that the files of credentials changed, by looking: a Secret's volume is swapped by a link, which no watch
//! on a file sees.

use std::{fs, os::unix::fs::MetadataExt, path::PathBuf};

use super::{LoadedCredentials, Source};
use crate::error::{Class, Error};

pub(crate) struct CredentialWatch {
    source: Source,
    files: Vec<PathBuf>,
    seen: Vec<Option<FileStamp>>,
    from: String,
}

/// Enough to tell one content from the next, and one `chmod`: what may not be read now may be later.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct FileStamp {
    device: u64,
    inode: u64,
    size: u64,
    modified: (i64, i64),
    changed: (i64, i64),
}

impl CredentialWatch {
    pub(crate) async fn start(source: Source) -> Result<(CredentialWatch, LoadedCredentials), Error> {
        let mut watched =
            CredentialWatch { source, files: Vec::new(), seen: Vec::new(), from: String::new() };
        let reading = watched.read().await?;
        Ok((watched, reading))
    }

    /// What the source says now, if it says something new.
    pub(crate) async fn changed(&mut self) -> Option<Result<LoadedCredentials, Error>> {
        let new = match &mut self.source {
            Source::Given(_) => false,
            // Also of one whose sender has gone: its last word counts.
            Source::Told(told) => told.borrow_and_update().has_changed(),
            Source::Client { .. } | Source::CloudConf { .. } => {
                let files = self.files.clone();
                let now = tokio::task::spawn_blocking(move || look(&files)).await.unwrap_or_default();
                now != self.seen
            }
        };
        if !new {
            return None;
        }
        Some(self.read().await)
    }

    pub(crate) fn name(&self) -> &str {
        &self.from
    }

    async fn read(&mut self) -> Result<LoadedCredentials, Error> {
        if let Source::Told(told) = &mut self.source {
            told.mark_unchanged();
        }
        let (source, known) = (self.source.clone(), self.files.clone());
        let (files, seen, reading) = tokio::task::spawn_blocking(move || settled(&source, known))
            .await
            .map_err(|_| Error::new(Class::Credentials, "the credentials could not be read"))?;
        (self.files, self.seen) = (files, seen);
        if let Ok(reading) = &reading {
            self.from.clone_from(&reading.from);
            for warning in &reading.warnings {
                tracing::warn!("{warning}");
            }
        }
        reading
    }
}

/// How often what is read may name other files than those that were looked at before.
const ROUNDS: usize = 3;

/// What is said, and how the files looked before it was read: what changes meanwhile is seen the next time. A file half
/// written is read again when it changes once more.
fn settled(
    source: &Source,
    mut files: Vec<PathBuf>,
) -> (Vec<PathBuf>, Vec<Option<FileStamp>>, Result<LoadedCredentials, Error>) {
    let mut round = 0_usize;
    loop {
        let seen = look(&files);
        let reading = source.read();
        round = ROUNDS.min(round.saturating_add(1));
        match &reading {
            Ok(reading) if round < ROUNDS && !reading.watched().eq(&files) => {
                files = reading.watched().cloned().collect();
            }
            _ => return (files, seen, reading),
        }
    }
}

fn look(files: &[PathBuf]) -> Vec<Option<FileStamp>> {
    let seen = |path: &PathBuf| {
        let there = fs::metadata(path).ok()?;
        Some(FileStamp {
            device: there.dev(),
            inode: there.ino(),
            size: there.size(),
            modified: (there.mtime(), there.mtime_nsec()),
            changed: (there.ctime(), there.ctime_nsec()),
        })
    };
    files.iter().map(seen).collect()
}
