//! The access log: one line for each request and each TCP connection, or for one of so many.
//!
//! ```text
//!   worker: Line ──► LogBuffer (its own) ──try_send──► writer thread ──► file or standard output
//!                                     └─ full: dropped and counted
//! ```
//! A worker never waits for a disk.

#![cfg_attr(not(test), warn(clippy::indexing_slicing, clippy::arithmetic_side_effects, clippy::expect_used))]

mod buffer;
mod connection;
mod line;
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
    buffer::LogBuffer,
    connection::{ConnectionEnd, ConnectionLogLine, RefusedClient},
    line::{LogTimestamp, RequestLogLine},
};

/// What is written of requests and connections, and where.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AccessLog {
    pub form: AccessLogFormat,
    pub to: AccessLogTarget,
    /// One request, or connection, of so many.
    pub one_of: u32,
    /// Connections are logged, too, where they carry no requests.
    pub connections: bool,
    /// And UDP flows.
    pub flows: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AccessLogFormat {
    /// As the first web servers wrote it (NCSA).
    Common,
    /// With the two fields that Apache adds to it.
    Combined,
    /// An object a line.
    Json,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AccessLogTarget {
    StandardOutput,
    File(PathBuf),
}

#[derive(Debug, thiserror::Error)]
#[error("the access log cannot be written")]
pub struct AccessLogError(#[from] std::io::Error);

/// Workers ask it whether requests are logged, and where to send what they wrote.
#[derive(Default)]
pub(crate) struct AccessLogger {
    sink: ArcSwapOption<AccessLogSink>,
    writer: Mutex<Option<Writer>>,
    /// Lines that were dropped.
    lost: Arc<AtomicU64>,
}

/// What to log, and the way to the writer thread.
pub(crate) struct AccessLogSink {
    pub(crate) settings: AccessLog,
    batches: std::sync::mpsc::SyncSender<LogBatch>,
    lost: Arc<AtomicU64>,
}

/// Whole lines, sent to the writer thread together.
pub(crate) struct LogBatch {
    text: Vec<u8>,
    lines: u64,
}

/// One line of the log, of any kind.
pub(crate) trait LogEntry {
    fn write(&self, form: AccessLogFormat, stamp: &mut LogTimestamp, out: &mut Vec<u8>);
}

impl AccessLog {
    /// Whether this one is logged, if not all are.
    pub(crate) fn takes(&self, draw: impl FnOnce() -> u64) -> bool {
        self.one_of <= 1 || draw().is_multiple_of(self.one_of.into())
    }
}

impl AccessLogger {
    /// Logs requests there from now on. The same settings open the file again: one that was moved away is
    /// followed by a new one.
    pub(crate) fn write(&self, settings: Option<AccessLog>) -> Result<(), AccessLogError> {
        let mut writer = self.writer.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(settings) = settings else {
            self.sink.store(None);
            *writer = None;
            return Ok(());
        };
        // Opened before the old one is let go: one that cannot be opened changes nothing.
        let (begun, batches) = Writer::begin(&settings.to, self.lost.clone())?;
        self.sink.store(Some(Arc::new(AccessLogSink { settings, batches, lost: self.lost.clone() })));
        *writer = Some(begun);
        Ok(())
    }

    /// `None`: requests are not logged.
    pub(crate) fn sink(&self) -> Option<Arc<AccessLogSink>> {
        // Mostly there is none, which costs one look.
        self.sink.load().as_ref().cloned()
    }

    /// The same for a connection; `draw` gives any number, for when only one of so many is logged.
    pub(crate) fn sink_of_connections(&self, draw: impl FnOnce() -> u64) -> Option<Arc<AccessLogSink>> {
        self.sink().filter(|it| it.settings.connections && it.settings.takes(draw))
    }

    pub(crate) fn sink_of_flows(&self, draw: impl FnOnce() -> u64) -> Option<Arc<AccessLogSink>> {
        self.sink().filter(|it| it.settings.flows && it.settings.takes(draw))
    }

    pub(crate) fn lost(&self) -> u64 {
        self.lost.load(Relaxed)
    }
}

#[cfg(test)]
mod tests;
