//! The thread that writes.

use std::{
    fs::{File, OpenOptions},
    io::{self, Write},
    os::unix::fs::OpenOptionsExt,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
        mpsc::{Receiver, SyncSender, sync_channel},
    },
    thread,
    time::Duration,
};

use super::{AccessTo, Page};

/// Pages that wait for it, of all workers: some megabytes at most.
const WAITING: usize = 64;
/// How long the last pages of a log that is over are waited for.
const FAREWELL: Duration = Duration::from_secs(1);

/// Ends when everybody who could send it something is gone. Dropped, it waits for that, but not for ever: the disk may.
pub(super) struct Writer {
    done: Receiver<()>,
}

impl Writer {
    pub(super) fn begin(to: &AccessTo, lost: Arc<AtomicU64>) -> io::Result<(Writer, SyncSender<Page>)> {
        let mut out: Box<dyn Write + Send> = match to {
            AccessTo::StandardOutput => Box::new(io::stdout()),
            AccessTo::File(path) => Box::new(open(path)?),
        };
        let (pages, coming) = sync_channel::<Page>(WAITING);
        let (tell, done) = sync_channel(1);
        thread::Builder::new().name("access-log".into()).spawn(move || {
            let mut well = true;
            for page in coming {
                match out.write_all(&page.text).and_then(|()| out.flush()) {
                    Ok(()) => well = true,
                    Err(error) => {
                        lost.fetch_add(page.lines, Relaxed);
                        if std::mem::take(&mut well) {
                            tracing::error!(%error, "the access log cannot be written; its lines are lost");
                        }
                    }
                }
            }
            // Nobody may be waiting any more.
            let _ = tell.send(());
        })?;
        Ok((Writer { done }, pages))
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
