//! The lines that one worker has written and not sent to the writer thread yet.

use std::{
    mem,
    sync::{Arc, atomic::Ordering::Relaxed, mpsc::TrySendError},
};

use super::{AccessLogSink, LogBatch, LogEntry, LogTimestamp};

/// Sent at this size, or after this time in milliseconds.
const BATCH: usize = 16 << 10;
const FLUSH_AFTER: u64 = 50;
/// While the writer takes nothing, more than this is not kept.
const MAX_BUFFERED: usize = 256 << 10;

#[derive(Default)]
pub(crate) struct LogBuffer {
    /// Whose log this is for.
    sink: Option<Arc<AccessLogSink>>,
    text: Vec<u8>,
    lines: u64,
    since: u64,
    stamp: LogTimestamp,
}

impl LogBuffer {
    pub(crate) fn add(&mut self, sink: &Arc<AccessLogSink>, line: &dyn LogEntry, now: u64) {
        if self.sink.as_ref().is_some_and(|it| !Arc::ptr_eq(it, sink)) {
            self.flush();
        }
        if self.text.len() >= MAX_BUFFERED {
            sink.lost.fetch_add(1, Relaxed);
            return;
        }
        if self.lines == 0 {
            self.since = now;
            self.sink = Some(sink.clone());
        }
        line.write(sink.settings.form, &mut self.stamp, &mut self.text);
        self.lines = self.lines.saturating_add(1);
        if self.text.len() >= BATCH {
            self.try_flush();
        }
    }

    pub(crate) fn tick(&mut self, now: u64) {
        if self.lines > 0 && now >= self.since.saturating_add(FLUSH_AFTER) {
            self.since = now;
            self.try_flush();
        }
    }

    pub(crate) fn next_timeout(&self, now: u64) -> Option<u64> {
        (self.lines > 0).then(|| self.since.saturating_add(FLUSH_AFTER).saturating_sub(now))
    }

    /// Keeps what the writer does not take yet.
    fn try_flush(&mut self) {
        let Some(sink) = self.sink.take() else { return };
        let batch = LogBatch { text: mem::take(&mut self.text), lines: mem::take(&mut self.lines) };
        match sink.batches.try_send(batch) {
            Ok(()) => {}
            Err(TrySendError::Full(batch)) => {
                (self.text, self.lines) = (batch.text, batch.lines);
                self.sink = Some(sink);
            }
            Err(TrySendError::Disconnected(batch)) => {
                sink.lost.fetch_add(batch.lines, Relaxed);
            }
        }
    }

    /// Sends what is here, or drops it.
    pub(super) fn flush(&mut self) {
        self.try_flush();
        if let Some(sink) = self.sink.take() {
            sink.lost.fetch_add(mem::take(&mut self.lines), Relaxed);
            self.text.clear();
        }
    }
}

impl Drop for LogBuffer {
    fn drop(&mut self) {
        self.flush();
    }
}
