//! What a cluster said last, kept so that a host that starts while nobody says anything can go on serving.
//!
//! ```text
//!     /run/seaway/HOST.snapshot   0600, because Secrets are in it
//!       {"seaway": 1, "host": …, "server": …, "written": …}
//!       {"Service": …}            a fact a line
//!       {"facts": 4711}           the end, so that a part is no whole
//! ```
//! It is replaced whole, when something changed, and not often: [`StateCacheWriter`] does it beside everything else.

mod writer;

use std::{
    fs::{DirBuilder, File},
    io::{self, BufRead, BufReader, Write},
    os::unix::fs::{DirBuilderExt, MetadataExt},
    path::{Path, PathBuf},
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use seaway_model::{Fact, Name, Time};
use serde::{Deserialize, Serialize};

pub use self::writer::StateCacheWriter;
use crate::{
    disk::{self, Durability},
    last_good,
};

/// Of how facts are written down: another one is not read.
const FORM: u32 = 1;

/// Whose facts, and for whom: nobody else's are read.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Origin {
    pub host: Name,
    /// The API server, by its URL.
    pub server: Name,
    /// A digest of the authorities that its certificate may be of. In pods of two clusters its URL is often the same. Empty where it is
    /// not known: snapshots of before do not have it.
    #[serde(default, skip_serializing_if = "str::is_empty")]
    pub authority: Name,
}

impl Origin {
    fn is_of(&self, other: &Origin) -> bool {
        let are_known = !self.authority.is_empty() && !other.authority.is_empty();
        let is_authority = !are_known || self.authority == other.authority;
        is_authority && (&self.host, &self.server) == (&other.host, &other.server)
    }
}

/// A file of facts, there or not yet.
#[derive(Clone, Debug)]
pub struct StateCache {
    path: PathBuf,
    origin: Origin,
}

/// What was read.
#[derive(Debug)]
pub struct CachedState {
    pub facts: Vec<Fact>,
    /// Whether the host was to drain.
    pub drains: bool,
    pub written: Time,
}

/// Why a file that is there is not read.
#[derive(Debug, thiserror::Error)]
pub enum CacheError {
    #[error("the file cannot be read")]
    Unreadable(#[source] io::Error),
    #[error(
        "the owner of the file is neither root nor the user of this process, or its mode lets others write \
         to it"
    )]
    Exposed,
    #[error(
        "the file was written by another version of seaway (format {0}; this version reads format {FORM})"
    )]
    OtherForm(u32),
    #[error(
        "the file is a snapshot of host {} with the API server {}, or of another cluster with the same URL and another certificate authority",
        .0.host, .0.server
    )]
    Foreign(Origin),
    #[error("line {line} is not in the form that Seaway writes")]
    Broken {
        line: usize,
        #[source]
        source: serde_json::Error,
    },
    #[error("the end of the file is missing")]
    Torn,
}

#[derive(Serialize, Deserialize)]
struct Header {
    seaway: u32,
    #[serde(flatten)]
    origin: Origin,
    written: Time,
    /// Of those that drain alone.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    drains: bool,
}

#[derive(Deserialize)]
struct FormatVersion {
    seaway: u32,
}

#[derive(Serialize, Deserialize)]
struct Trailer {
    facts: usize,
}

impl StateCache {
    pub fn at(path: PathBuf, origin: Origin) -> StateCache {
        StateCache { path, origin }
    }

    /// Below /run, which no disk remembers; none where there is no such folder for us.
    pub fn default_path(host: &str) -> Option<PathBuf> {
        Some(last_good::runtime_folder()?.join("seaway").join(format!("{host}.snapshot")))
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// `None`: there is none.
    pub fn read(&self) -> Result<Option<CachedState>, CacheError> {
        let file = match File::open(&self.path) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(CacheError::Unreadable(error)),
        };
        let about = file.metadata().map_err(CacheError::Unreadable)?;
        let trusted = [0, nix::unistd::geteuid().as_raw()].contains(&about.uid());
        if !trusted || about.mode() & 0o022 != 0 {
            return Err(CacheError::Exposed);
        }
        self.read_from(BufReader::with_capacity(64 << 10, file)).map(Some)
    }

    fn read_from(&self, from: impl BufRead) -> Result<CachedState, CacheError> {
        let mut lines = (1..).zip(from.lines());
        let mut next = || match lines.next() {
            Some((line, Ok(text))) => Ok((line, text)),
            Some((_, Err(error))) => Err(CacheError::Unreadable(error)),
            None => Err(CacheError::Torn),
        };
        let broken = |line| move |source| CacheError::Broken { line, source };
        let (line, first) = next()?;
        let FormatVersion { seaway } = serde_json::from_str(&first).map_err(broken(line))?;
        if seaway != FORM {
            return Err(CacheError::OtherForm(seaway));
        }
        let head: Header = serde_json::from_str(&first).map_err(broken(line))?;
        if !head.origin.is_of(&self.origin) {
            return Err(CacheError::Foreign(head.origin));
        }
        let mut facts = Vec::new();
        loop {
            let (line, text) = next()?;
            match serde_json::from_str(&text) {
                Ok(fact) => facts.push(fact),
                Err(error) => match serde_json::from_str::<Trailer>(&text) {
                    Ok(end) if end.facts == facts.len() => break,
                    Ok(_) => return Err(CacheError::Torn),
                    Err(_) => return Err(CacheError::Broken { line, source: error }),
                },
            }
        }
        Ok(CachedState { facts, drains: head.drains, written: head.written })
    }

    /// Replaces the file.
    fn write<'f>(&self, drains: bool, facts: impl ExactSizeIterator<Item = &'f Fact>) -> io::Result<()> {
        if let Some(folder) = self.path.parent() {
            DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
        }
        disk::replace(&self.path, Durability::No, |writer| self.write_to(writer, now(), drains, facts))
    }

    fn write_to<'f>(
        &self,
        writer: &mut dyn Write,
        written: Time,
        drains: bool,
        facts: impl ExactSizeIterator<Item = &'f Fact>,
    ) -> io::Result<()> {
        let end = Trailer { facts: facts.len() };
        line(writer, &Header { seaway: FORM, origin: self.origin.clone(), written, drains })?;
        for fact in facts {
            line(writer, fact)?;
        }
        line(writer, &end)
    }
}

fn line(writer: &mut dyn Write, value: &impl Serialize) -> io::Result<()> {
    serde_json::to_writer(&mut *writer, value)?;
    writer.write_all(b"\n")
}

fn now() -> Time {
    Time(SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO).as_millis() as u64)
}

/// For the fuzz target: what is read reads back equal once it is written, a part of it is refused or says the same, and what
/// is refused is in a line that there is.
#[allow(clippy::expect_used, reason = "what is wrong ends the fuzz target")]
pub(crate) fn fuzz_reading(bytes: &[u8]) {
    let server = "https://10.0.0.1";
    let origin = |host: &str| Origin { host: host.into(), server: server.into(), authority: "".into() };
    let snapshot = StateCache::at(PathBuf::new(), origin("a"));
    let recalled = match snapshot.read_from(bytes) {
        Ok(recalled) => recalled,
        Err(CacheError::Broken { line, .. }) => {
            let lines = bytes.split(|byte| *byte == b'\n').count();
            return assert!((1..=lines).contains(&line), "line {line} of {lines}");
        }
        Err(_) => return,
    };
    let others = StateCache::at(PathBuf::new(), origin("b")).read_from(bytes);
    assert!(matches!(others, Err(CacheError::Foreign(_))), "another host reads what it is not to serve");
    let mut again = Vec::new();
    let CachedState { facts, drains, written } = &recalled;
    snapshot.write_to(&mut again, *written, *drains, facts.iter()).expect("there is room");
    let count = |line: &[u8]| Some(serde_json::from_slice::<Trailer>(line).ok()?.facts);
    let told = bytes.split(|byte| *byte == b'\n').find_map(count);
    assert_eq!(told, Some(facts.len()), "as many as its end says");
    let same = |back: &CachedState| (&back.facts, back.drains, back.written) == (facts, *drains, *written);
    assert!(snapshot.read_from(&*again).as_ref().is_ok_and(same), "what is written reads back equal");
    let ends = bytes.iter().enumerate().filter(|(_, byte)| **byte == b'\n').map(|(at, _)| at);
    for part in ends.filter_map(|at| bytes.get(..at)) {
        assert!(snapshot.read_from(part).as_ref().map_or(true, same), "a part of it is another whole");
    }
}

#[cfg(test)]
mod tests;
