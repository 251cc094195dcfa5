//! The thread that writes.

use std::{
    fs::{File, OpenOptions},
    io::{self, Write},
    os::unix::fs::OpenOptionsExt,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
        mpsc::{Receiver, SyncSender, sync_channel},
    },
    thread,
    time::Duration,
};

use super::{AccessLogTarget, LogBatch};

/// Batches that wait for it, of all workers: some megabytes at most.
const WAITING: usize = 64;
/// How long the last batches of a log that is over are waited for.
const FAREWELL: Duration = Duration::from_secs(1);

/// Ends when everybody who could send it something is gone. Dropped, it waits for that, but not for ever: the disk may.
pub(super) struct Writer {
    done: Receiver<()>,
}

impl Writer {
    pub(super) fn begin(
        to: &AccessLogTarget,
        lost: Arc<AtomicU64>,
    ) -> io::Result<(Writer, SyncSender<LogBatch>)> {
        let out: Box<dyn Write + Send> = match to {
            AccessLogTarget::StandardOutput => Box::new(io::stdout()),
            AccessLogTarget::File(path) => Box::new(open(path)?),
        };
        Writer::begin_with(out, lost)
    }

    fn begin_with(
        mut out: Box<dyn Write + Send>,
        lost: Arc<AtomicU64>,
    ) -> io::Result<(Writer, SyncSender<LogBatch>)> {
        let (batches, coming) = sync_channel::<LogBatch>(WAITING);
        let (tell, done) = sync_channel(1);
        thread::Builder::new().name("access-log".into()).spawn(move || {
            // Each failure costs its batch: this comes to an end.
            while catch_unwind(AssertUnwindSafe(|| write_on(&mut *out, &coming, &lost))).is_err() {
                tracing::error!("access log: the writer failed; at most 16 KiB of lines are lost");
            }
            // Nobody may be waiting any more.
            let _ = tell.send(());
        })?;
        Ok((Writer { done }, batches))
    }
}

/// Until nobody can send anything any more. It may wait for whoever takes the log: batches that do not fit meanwhile are lost.
fn write_on(out: &mut dyn Write, coming: &Receiver<LogBatch>, lost: &AtomicU64) {
    let mut well = true;
    for batch in coming {
        let unwritten = UnwrittenLinesGuard(lost, batch.lines);
        match out.write_all(&batch.text).and_then(|()| out.flush()) {
            Ok(()) => {
                std::mem::forget(unwritten);
                well = true;
            }
            Err(error) => {
                drop(unwritten);
                if std::mem::take(&mut well) {
                    tracing::error!(%error, "access log: cannot be written; lines are lost");
                }
            }
        }
    }
}

/// Lines that count as lost once this is dropped.
struct UnwrittenLinesGuard<'l>(&'l AtomicU64, u64);

impl Drop for UnwrittenLinesGuard<'_> {
    fn drop(&mut self) {
        self.0.fetch_add(self.1, Relaxed);
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        let _ = self.done.recv_timeout(FAREWELL);
    }
}

/// Who asked for what is nobody's business but the owner's and his group's.
fn open(path: &std::path::Path) -> io::Result<File> {
    OpenOptions::new().append(true).create(true).mode(0o640).open(path)
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::{Sender, channel};

    use super::*;

    /// Tells what is written, and panics at a certain word.
    struct Fails(Sender<Vec<u8>>);

    impl Write for Fails {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            assert_ne!(bytes, b"bad", "a test has the access log fail");
            self.0.send(bytes.to_vec()).map_err(io::Error::other)?;
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn a_writer_that_dies_goes_on_with_the_next_page_and_counts_what_is_lost() {
        let (tell, written) = channel();
        let lost = Arc::new(AtomicU64::new(0));
        let (writer, batches) = Writer::begin_with(Box::new(Fails(tell)), lost.clone()).expect("a thread");
        for (text, lines) in [("one", 1), ("bad", 7), ("two", 1), ("bad", 3), ("three", 1)] {
            batches.send(LogBatch { text: text.into(), lines }).expect("it takes batches");
        }
        drop(batches);
        let all: Vec<_> = written.iter().collect();
        assert_eq!(all, [b"one".to_vec(), b"two".to_vec(), b"three".to_vec()]);
        assert_eq!(lost.load(Relaxed), 10);
        drop(writer);
    }

    #[test]
    fn a_writer_that_hangs_keeps_no_more_than_its_pages() {
        struct Hangs(Receiver<()>);
        impl Write for Hangs {
            fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
                _ = self.0.recv();
                Ok(bytes.len())
            }
            fn flush(&mut self) -> io::Result<()> {
                Ok(())
            }
        }
        let (release, wait) = channel();
        let (_writer, batches) =
            Writer::begin_with(Box::new(Hangs(wait)), Arc::new(AtomicU64::new(0))).expect("a thread");
        let batch = || LogBatch { text: b"line".to_vec(), lines: 1 };
        let taken = (0..10 * WAITING).filter(|_| batches.try_send(batch()).is_ok()).count();
        assert!((WAITING..=WAITING + 1).contains(&taken), "{taken}");
        drop((batches, release));
    }
}
