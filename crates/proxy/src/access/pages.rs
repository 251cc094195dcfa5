//! What one worker has written and not handed over yet.

use std::{
    mem,
    sync::{Arc, atomic::Ordering::Relaxed, mpsc::TrySendError},
};

use super::{Journal, Page, Stamp, Written};

/// Handed over at this size, or after this time in milliseconds.
const PAGE: usize = 16 << 10;
const SOON: u64 = 50;
/// While the writer takes nothing, more than this is not kept.
const MOST: usize = 256 << 10;

#[derive(Default)]
pub(crate) struct Pages {
    /// Whose log this is for.
    journal: Option<Arc<Journal>>,
    text: Vec<u8>,
    lines: u64,
    since: u64,
    stamp: Stamp,
}

impl Pages {
    pub(crate) fn add(&mut self, journal: &Arc<Journal>, line: &dyn Written, now: u64) {
        if self.journal.as_ref().is_some_and(|it| !Arc::ptr_eq(it, journal)) {
            self.hand_over();
        }
        if self.text.len() >= MOST {
            journal.lost.fetch_add(1, Relaxed);
            return;
        }
        if self.lines == 0 {
            self.since = now;
            self.journal = Some(journal.clone());
        }
        line.write(journal.settings.form, &mut self.stamp, &mut self.text);
        self.lines = self.lines.saturating_add(1);
        if self.text.len() >= PAGE {
            self.try_hand_over();
        }
    }

    pub(crate) fn tick(&mut self, now: u64) {
        if self.lines > 0 && now >= self.since.saturating_add(SOON) {
            self.since = now;
            self.try_hand_over();
        }
    }

    pub(crate) fn next_timeout(&self, now: u64) -> Option<u64> {
        (self.lines > 0).then(|| self.since.saturating_add(SOON).saturating_sub(now))
    }

    /// Keeps what the writer does not take yet.
    fn try_hand_over(&mut self) {
        let Some(journal) = self.journal.take() else { return };
        let page = Page { text: mem::take(&mut self.text), lines: mem::take(&mut self.lines) };
        match journal.pages.try_send(page) {
            Ok(()) => {}
            Err(TrySendError::Full(page)) => {
                (self.text, self.lines) = (page.text, page.lines);
                self.journal = Some(journal);
            }
            Err(TrySendError::Disconnected(page)) => {
                journal.lost.fetch_add(page.lines, Relaxed);
            }
        }
    }

    /// The last chance of what is here.
    pub(super) fn hand_over(&mut self) {
        self.try_hand_over();
        if let Some(journal) = self.journal.take() {
            journal.lost.fetch_add(mem::take(&mut self.lines), Relaxed);
            self.text.clear();
        }
    }
}

impl Drop for Pages {
    fn drop(&mut self) {
        self.hand_over();
    }
}
