//! The ledger's journal: which address is whose.
//!
//! One line for each change, appended; the file is made short again at a start, and when most of it is history. An
//! address is on the disk (`fdatasync`) before anybody is told of it; of a removal a crash may lose the last moment,
//! and the address then is released once more. Changes that come together share one write and one sync.
//!
//! A last line that a crash tore is dropped: nobody was told of it. Any other line that cannot be read makes the
//! whole file be kept aside, and what could be read goes on.

use std::{
    collections::BTreeMap,
    fs::{self, File, OpenOptions},
    io::{self, Write},
    net::IpAddr,
    os::unix::fs::{MetadataExt, OpenOptionsExt},
    path::{Path, PathBuf},
    sync::Arc,
    thread::JoinHandle,
    time::SystemTime,
};

use seaway_model::{Address, Kind, ObjectRef, Problem, Reason};
use serde::{Deserialize, Serialize};
use tokio::sync::{mpsc, oneshot};

use super::{StateDir, StateError};
use crate::disk::{self, Durability};

const FILE: &str = "ledger.jsonl";
/// Changes that one write may take together.
const BATCH: usize = 4096;
/// Changes that wait for the disk; who has one more waits, too.
const WAITING: usize = 1024;
/// Lines of history that are worth no rewriting.
const HISTORY: usize = 1000;

#[derive(Clone, Debug, thiserror::Error)]
#[error("cannot write the ledger {}", path.display())]
pub struct LedgerError {
    path: PathBuf,
    #[source]
    source: Arc<io::Error>,
}

/// The journal, open for changes until this is dropped.
pub struct LedgerFile {
    jobs: Option<mpsc::Sender<WriteJob>>,
    writer: Option<JoinHandle<()>>,
    path: PathBuf,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
enum JournalEntry {
    Put(Address),
    Gone(IpAddr),
}

struct WriteJob {
    line: JournalEntry,
    done: oneshot::Sender<Result<(), LedgerError>>,
}

impl LedgerFile {
    /// What it holds, and what was wrong with it.
    pub fn open(state: &StateDir) -> Result<(LedgerFile, Vec<Address>, Vec<Problem>), StateError> {
        let path = state.path().join(FILE);
        let fail = |source| StateError::Unusable { path: path.clone(), source };
        let (journal, problems) = Journal::open(&path).map_err(fail)?;
        let addresses = journal.held.values().cloned().collect();
        let (jobs, incoming) = mpsc::channel(WAITING);
        let writer = std::thread::Builder::new()
            .name("ledger".to_owned())
            .spawn(move || journal.write_on(incoming))
            .map_err(fail)?;
        Ok((LedgerFile { jobs: Some(jobs), writer: Some(writer), path }, addresses, problems))
    }

    /// Resolves once the address is on the disk.
    pub async fn put(&self, address: Address) -> Result<(), LedgerError> {
        self.write(JournalEntry::Put(address)).await
    }

    pub async fn remove(&self, ip: IpAddr) -> Result<(), LedgerError> {
        self.write(JournalEntry::Gone(ip)).await
    }

    async fn write(&self, line: JournalEntry) -> Result<(), LedgerError> {
        let stopped = || LedgerError {
            path: self.path.clone(),
            source: Arc::new(io::Error::new(
                io::ErrorKind::BrokenPipe,
                "the thread that writes the ledger \
                                                                        has stopped",
            )),
        };
        let (done, outcome) = oneshot::channel();
        let jobs = self.jobs.as_ref().ok_or_else(stopped)?;
        jobs.send(WriteJob { line, done }).await.map_err(|_| stopped())?;
        outcome.await.unwrap_or_else(|_| Err(stopped()))
    }
}

impl Drop for LedgerFile {
    fn drop(&mut self) {
        self.jobs = None;
        if let Some(writer) = self.writer.take() {
            let _ = writer.join();
        }
    }
}

/// What the ledger of a state folder holds, for those who only look: nothing is locked, made or mended.
pub fn stored_addresses(state: &Path) -> Vec<Address> {
    let bytes = fs::read(state.join(FILE)).unwrap_or_default();
    ParsedJournal::of(&bytes).held.into_values().collect()
}

struct Journal {
    path: PathBuf,
    file: File,
    /// Up to where the file is whole lines.
    length: u64,
    /// Beyond that it is not, because a write failed and could not be taken back.
    torn: bool,
    lines: usize,
    held: BTreeMap<IpAddr, Address>,
}

impl Journal {
    fn open(path: &Path) -> io::Result<(Journal, Vec<Problem>)> {
        let bytes = match fs::read(path) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == io::ErrorKind::NotFound => Vec::new(),
            Err(error) => return Err(error),
        };
        let read = ParsedJournal::of(&bytes);
        let mut problems = Vec::new();
        if let Some(line) = read.corrupt {
            let aside = keep_aside(path)?;
            let object = ObjectRef::new(Kind::Config, "", FILE);
            let message = format!(
                "line {line} of the ledger cannot be read; a copy of the file is kept as {}, and the {} \
                 addresses that could be read stay in use",
                aside.display(),
                read.held.len()
            );
            problems.push(
                Problem::new(object, Reason::Unreadable, message)
                    .fix("If a Service lost its address, compare the two files. Then remove this copy.")
                    .in_file(aside.to_string_lossy().into_owned(), line, 1),
            );
        }
        let file = append_to(path)?;
        if read.corrupt.is_none() {
            file.set_len(read.whole)?;
        }
        let whole = read.whole;
        let mut journal = Journal {
            path: path.to_owned(),
            file,
            length: whole,
            torn: false,
            lines: read.lines,
            held: read.held,
        };
        if journal.lines != journal.held.len() || read.corrupt.is_some() {
            match journal.compact() {
                Ok(()) => {}
                // The salvage has to be written; history may as well stay.
                Err(error) if read.corrupt.is_some() => return Err(error),
                Err(error) => tracing::warn!(%error, "the ledger cannot be compacted"),
            }
        }
        Ok((journal, problems))
    }

    fn write_on(mut self, mut incoming: mpsc::Receiver<WriteJob>) {
        while let Some(first) = incoming.blocking_recv() {
            let mut batch = vec![first];
            batch.extend(std::iter::from_fn(|| incoming.try_recv().ok()).take(BATCH));
            let outcome = self.append(batch.iter().map(|job| &job.line));
            let outcome =
                outcome.map_err(|source| LedgerError { path: self.path.clone(), source: Arc::new(source) });
            for WriteJob { line, done } in batch {
                if outcome.is_ok() {
                    apply(&mut self.held, line);
                    self.lines = self.lines.saturating_add(1);
                }
                // Whoever asked may have gone.
                let _ = done.send(outcome.clone());
            }
            if self.lines > self.held.len().saturating_mul(4).saturating_add(HISTORY)
                && let Err(error) = self.compact()
            {
                tracing::warn!(%error, "the ledger cannot be compacted");
            }
        }
    }

    fn append<'l>(&mut self, lines: impl Iterator<Item = &'l JournalEntry>) -> io::Result<()> {
        if self.is_gone() {
            self.compact()?;
        } else if self.torn {
            self.take_back()?;
        }
        let mut bytes = Vec::new();
        let mut lasting = false;
        for line in lines {
            serde_json::to_writer(&mut bytes, line)?;
            bytes.push(b'\n');
            lasting |= matches!(line, JournalEntry::Put(_));
        }
        let written = self.file.write_all(&bytes);
        let written = written.and_then(|()| if lasting { self.file.sync_data() } else { Ok(()) });
        match &written {
            Ok(()) => self.length = self.length.saturating_add(bytes.len() as u64),
            Err(_) => {
                if let Err(error) = self.take_back() {
                    tracing::warn!(%error, "the remains of a failed write cannot be removed from the ledger yet");
                }
            }
        }
        written
    }

    /// Somebody removed the file, or its folder: what is appended would be on no path at all.
    fn is_gone(&self) -> bool {
        self.file.metadata().is_ok_and(|it| it.nlink() == 0)
    }

    /// Half a line in the middle would look like a broken file.
    fn take_back(&mut self) -> io::Result<()> {
        self.torn = true;
        self.file.set_len(self.length)?;
        self.torn = false;
        Ok(())
    }

    fn compact(&mut self) -> io::Result<()> {
        let held = self.held.values();
        disk::replace(&self.path, Durability::Yes, |writer| {
            for address in held {
                serde_json::to_writer(&mut *writer, &JournalEntry::Put(address.clone()))?;
                writer.write_all(b"\n")?;
            }
            Ok(())
        })?;
        self.file = append_to(&self.path)?;
        self.length = self.file.metadata()?.len();
        self.lines = self.held.len();
        self.torn = false;
        Ok(())
    }
}

fn append_to(path: &Path) -> io::Result<File> {
    OpenOptions::new().append(true).create(true).mode(0o600).open(path)
}

fn keep_aside(path: &Path) -> io::Result<PathBuf> {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).map_or(0, |since| since.as_nanos());
    let aside = path.with_file_name(format!("{FILE}.corrupt-{now}"));
    // A copy first: should the disk be full, the original is still where it was.
    fs::copy(path, &aside)?;
    File::open(&aside)?.sync_all()?;
    Ok(aside)
}

fn apply(held: &mut BTreeMap<IpAddr, Address>, line: JournalEntry) {
    match line {
        JournalEntry::Put(address) => {
            held.insert(address.ip, address);
        }
        JournalEntry::Gone(ip) => {
            held.remove(&ip);
        }
    }
}

/// What a journal's bytes say.
#[derive(Default)]
struct ParsedJournal {
    held: BTreeMap<IpAddr, Address>,
    lines: usize,
    whole: u64,
    /// The first line that cannot be read, if it is not merely the torn last one.
    corrupt: Option<u32>,
}

impl ParsedJournal {
    fn of(bytes: &[u8]) -> ParsedJournal {
        let mut read = ParsedJournal::default();
        for (number, line) in (1_u32..).zip(bytes.split_inclusive(|byte| *byte == b'\n')) {
            match serde_json::from_slice(line) {
                Ok(line_read) if line.ends_with(b"\n") => {
                    apply(&mut read.held, line_read);
                    read.lines = read.lines.saturating_add(1);
                }
                _ if !line.ends_with(b"\n") => {
                    tracing::warn!(
                        line = number,
                        "the last line of the ledger is incomplete, as after a crash, and is dropped"
                    );
                    break;
                }
                _ => read.corrupt = read.corrupt.or(Some(number)),
            }
            read.whole = read.whole.saturating_add(line.len() as u64);
        }
        read
    }
}

#[allow(clippy::expect_used, reason = "what is wrong ends the fuzz target")]
/// For the fuzz target: reading never fails, and what was read reads back equal.
pub(crate) fn fuzz_reading(bytes: &[u8]) {
    let read = ParsedJournal::of(bytes);
    let mut again = Vec::new();
    for address in read.held.values() {
        serde_json::to_writer(&mut again, &JournalEntry::Put(address.clone())).expect("an address is JSON");
        again.push(b'\n');
    }
    let back = ParsedJournal::of(&again);
    assert_eq!((back.held, back.corrupt), (read.held, None));
}

#[cfg(test)]
mod tests {
    use seaway_model::{Name, Owner, address::AddressState};

    use super::*;

    /// What an earlier version gave out stays given out.
    #[test]
    fn the_form_of_the_ledger_is_the_golden_one() {
        seaway_testkit::golden::round_trips(include_str!("../../golden/ledger.jsonl"), |line| {
            serde_json::from_str::<JournalEntry>(line).and_then(|it| serde_json::to_string(&it))
        });
    }

    fn address(last: u8) -> Address {
        let object = ObjectRef::new(Kind::Service, "default", format!("s{last}"));
        Address {
            ip: IpAddr::from([192, 0, 2, last]),
            pool: "p".into(),
            sharing: None,
            owners: vec![Owner::Object { object, uid: Name::from("u") }],
            plan_version: 1,
            ends: None,
            conflicts: Vec::new(),
            state: AddressState::Held,
            version: 0,
        }
    }

    async fn reopened(dir: &Path) -> (Vec<Address>, Vec<Problem>) {
        let state = StateDir::open(dir).expect("a state folder");
        let (_, addresses, problems) = LedgerFile::open(&state).expect("a ledger");
        (addresses, problems)
    }

    #[tokio::test]
    async fn addresses_outlive_the_process_and_removed_ones_do_not() {
        let dir = tempfile::tempdir().expect("a folder");
        {
            let state = StateDir::open(dir.path()).expect("a state folder");
            let (ledger, addresses, _) = LedgerFile::open(&state).expect("a ledger");
            assert!(addresses.is_empty());
            for last in 1..=3 {
                ledger.put(address(last)).await.expect("is written");
            }
            ledger.remove(address(2).ip).await.expect("is written");
        }
        let (addresses, problems) = reopened(dir.path()).await;
        assert_eq!((addresses, problems), (vec![address(1), address(3)], vec![]));
        let text = fs::read_to_string(dir.path().join(FILE)).expect("is there");
        assert_eq!(text.lines().count(), 2, "history is dropped at a start");
    }

    #[tokio::test]
    async fn a_torn_last_line_is_dropped_and_the_next_one_is_whole() {
        let dir = tempfile::tempdir().expect("a folder");
        let line = serde_json::to_string(&JournalEntry::Put(address(1))).expect("is JSON");
        fs::write(dir.path().join(FILE), format!("{line}\n{}", &line[..20])).expect("is written");
        {
            let state = StateDir::open(dir.path()).expect("a state folder");
            let (ledger, addresses, problems) = LedgerFile::open(&state).expect("a ledger");
            assert_eq!((addresses, problems), (vec![address(1)], vec![]));
            ledger.put(address(2)).await.expect("is written");
        }
        assert_eq!(reopened(dir.path()).await.0, [address(1), address(2)]);
    }

    #[tokio::test]
    async fn a_corrupt_ledger_is_kept_aside_and_what_can_be_read_goes_on() {
        let dir = tempfile::tempdir().expect("a folder");
        let line = |last| serde_json::to_string(&JournalEntry::Put(address(last))).expect("is JSON");
        let text = format!("{}\nrubbish\n{}\n", line(1), line(2));
        fs::write(dir.path().join(FILE), &text).expect("is written");
        let (addresses, problems) = reopened(dir.path()).await;
        assert_eq!(addresses, [address(1), address(2)]);
        assert_eq!(problems.len(), 1);
        assert_eq!(problems[0].place.as_ref().map(|place| place.line), Some(2));
        let aside = fs::read_dir(dir.path()).expect("is there").filter_map(Result::ok);
        let aside = aside.map(|entry| entry.path()).find(|path| path.to_string_lossy().contains("corrupt"));
        assert_eq!(fs::read_to_string(aside.expect("is kept")).expect("is read"), text);
        assert_eq!(reopened(dir.path()).await, (vec![address(1), address(2)], vec![]));
    }

    #[test]
    fn a_full_disk_leaves_no_half_line_behind() {
        let dir = tempfile::tempdir().expect("a folder");
        let path = dir.path().join(FILE);
        let (mut journal, _) = Journal::open(&path).expect("a journal");
        journal.append([JournalEntry::Put(address(1))].iter()).expect("is written");
        let half = "{\"put\":{\"ip\"";
        // What a full disk does: a part of it is written, and it cannot be taken back at once.
        let whole = std::mem::replace(
            &mut journal.file,
            OpenOptions::new().append(true).open("/dev/full").expect("opens"),
        );
        let error = journal.append([JournalEntry::Put(address(2))].iter()).expect_err("is full");
        assert_eq!(error.kind(), io::ErrorKind::StorageFull);
        assert!(journal.torn);
        journal.file = whole;
        journal.file.write_all(half.as_bytes()).expect("is written");
        journal.append([JournalEntry::Put(address(3))].iter()).expect("there is room again");
        drop(journal);
        let read = ParsedJournal::of(&fs::read(&path).expect("is read"));
        assert_eq!(read.held.into_values().collect::<Vec<_>>(), [address(1), address(3)]);
        assert_eq!(read.corrupt, None);
    }

    #[tokio::test]
    async fn history_does_not_grow_for_ever() {
        let dir = tempfile::tempdir().expect("a folder");
        let state = StateDir::open(dir.path()).expect("a state folder");
        let (ledger, ..) = LedgerFile::open(&state).expect("a ledger");
        let many = (0..3 * HISTORY).map(|_| ledger.remove(address(9).ip));
        futures_join(many).await;
        ledger.put(address(1)).await.expect("is written");
        let lines = fs::read_to_string(dir.path().join(FILE)).expect("is there").lines().count();
        assert!(lines <= HISTORY + BATCH.min(2 * HISTORY), "{lines}");
    }

    async fn futures_join(all: impl Iterator<Item = impl Future<Output = Result<(), LedgerError>>>) {
        for one in all {
            one.await.expect("is written");
        }
    }
}
