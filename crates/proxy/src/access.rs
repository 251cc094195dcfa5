//! The access log: one line for each request and each TCP connection, or for one of so many.
//!
//! ```text
//!   worker: Line ──► Pages (its own) ──try_send──► writer thread ──► file or standard output
//!                                     └─ full: dropped and counted
//! ```
//! Nobody who moves data ever waits for a disk.

#![cfg_attr(not(test), warn(clippy::indexing_slicing, clippy::arithmetic_side_effects, clippy::expect_used))]

mod connection;
mod line;
mod pages;
mod writer;

use std::{
    path::PathBuf,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
};

use arc_swap::ArcSwapOption;

use self::writer::Writer;
pub(crate) use self::{
    connection::{ConnectionLine, Ending, RefusedClient},
    line::{Line, Stamp},
    pages::Pages,
};

/// What is written of requests and connections, and where.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AccessLog {
    pub form: AccessForm,
    pub to: AccessTo,
    /// One request, or connection, of so many.
    pub one_of: u32,
    /// Connections are written down, too, where they carry no requests.
    pub connections: bool,
    /// And UDP flows.
    pub flows: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AccessForm {
    /// As the first web servers wrote it (NCSA).
    Common,
    /// With the two fields that Apache adds to it.
    Combined,
    /// An object a line.
    Json,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AccessTo {
    StandardOutput,
    File(PathBuf),
}

#[derive(Debug, thiserror::Error)]
#[error("the access log cannot be written")]
pub struct AccessLogError(#[from] std::io::Error);

/// Where workers find out whether requests are written down, and leave what they wrote.
#[derive(Default)]
pub(crate) struct Access {
    journal: ArcSwapOption<Journal>,
    writer: Mutex<Option<Writer>>,
    /// Lines that came to nothing.
    lost: Arc<AtomicU64>,
}

pub(crate) struct Journal {
    pub(crate) settings: AccessLog,
    pages: std::sync::mpsc::SyncSender<Page>,
    lost: Arc<AtomicU64>,
}

/// Whole lines.
pub(crate) struct Page {
    text: Vec<u8>,
    lines: u64,
}

/// One line of any kind.
pub(crate) trait Written {
    fn write(&self, form: AccessForm, stamp: &mut Stamp, out: &mut Vec<u8>);
}

impl AccessLog {
    /// Whether this one is written down, if not all are.
    pub(crate) fn takes(&self, draw: impl FnOnce() -> u64) -> bool {
        self.one_of <= 1 || draw().is_multiple_of(self.one_of.into())
    }
}

impl Access {
    /// From now on requests are written there. What is told again is begun again: a file that was moved away is
    /// followed by a new one.
    pub(crate) fn write(&self, settings: Option<AccessLog>) -> Result<(), AccessLogError> {
        let mut writer = self.writer.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(settings) = settings else {
            self.journal.store(None);
            *writer = None;
            return Ok(());
        };
        // Opened before the old one is let go: one that cannot be opened changes nothing.
        let (begun, pages) = Writer::begin(&settings.to, self.lost.clone())?;
        self.journal.store(Some(Arc::new(Journal { settings, pages, lost: self.lost.clone() })));
        *writer = Some(begun);
        Ok(())
    }

    /// `None`: nobody wants to know.
    pub(crate) fn journal(&self) -> Option<Arc<Journal>> {
        // Mostly there is none, which costs one look.
        self.journal.load().as_ref().cloned()
    }

    /// The same for a connection; `draw` gives any number, for when not all are written down.
    pub(crate) fn journal_of_connections(&self, draw: impl FnOnce() -> u64) -> Option<Arc<Journal>> {
        self.journal().filter(|it| it.settings.connections && it.settings.takes(draw))
    }

    pub(crate) fn journal_of_flows(&self, draw: impl FnOnce() -> u64) -> Option<Arc<Journal>> {
        self.journal().filter(|it| it.settings.flows && it.settings.takes(draw))
    }

    pub(crate) fn lost(&self) -> u64 {
        self.lost.load(Relaxed)
    }
}

#[cfg(test)]
mod tests;
