//! Notices that the files of credentials changed, by looking: a Secret's volume is swapped by a link, which no watch
//! on a file sees.

use std::{fs, os::unix::fs::MetadataExt, path::PathBuf};

use super::{Reading, Source};
use crate::error::{Class, Error};

pub(crate) struct Watched {
    source: Source,
    files: Vec<PathBuf>,
    seen: Vec<Option<Seen>>,
    from: String,
}

/// Enough to tell one content from the next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Seen {
    device: u64,
    inode: u64,
    size: u64,
    modified: (i64, i64),
}

impl Watched {
    pub(crate) async fn start(source: Source) -> Result<(Watched, Reading), Error> {
        let mut watched = Watched { source, files: Vec::new(), seen: Vec::new(), from: String::new() };
        let reading = watched.read().await?;
        for warning in &reading.warnings {
            tracing::warn!("{warning}");
        }
        Ok((watched, reading))
    }

    /// What the source says now, if it says something new.
    pub(crate) async fn changed(&mut self) -> Option<Result<Reading, Error>> {
        let new = match &mut self.source {
            Source::Given(_) => false,
            Source::Told(told) => told.has_changed().unwrap_or(false),
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

    async fn read(&mut self) -> Result<Reading, Error> {
        if let Source::Told(told) = &mut self.source {
            told.mark_unchanged();
        }
        let (source, known) = (self.source.clone(), self.files.clone());
        // What changes while it is read is seen the next time: the looks come first.
        let (before, reading, after) = tokio::task::spawn_blocking(move || {
            let before = look(&known);
            let reading = source.read();
            let after = reading.as_ref().map(|reading| look(&reading.files)).unwrap_or_default();
            (before, reading, after)
        })
        .await
        .map_err(|_| Error::new(Class::Credentials, "the credentials could not be read"))?;
        match &reading {
            Ok(reading) if reading.files == self.files => self.seen = before,
            Ok(reading) => {
                self.files.clone_from(&reading.files);
                self.seen = after;
                self.from.clone_from(&reading.from);
            }
            // A file half written is read again when it changes once more.
            Err(_) => self.seen = before,
        }
        reading
    }
}

fn look(files: &[PathBuf]) -> Vec<Option<Seen>> {
    let seen = |path: &PathBuf| {
        let there = fs::metadata(path).ok()?;
        Some(Seen {
            device: there.dev(),
            inode: there.ino(),
            size: there.size(),
            modified: (there.mtime(), there.mtime_nsec()),
        })
    };
    files.iter().map(seen).collect()
}
