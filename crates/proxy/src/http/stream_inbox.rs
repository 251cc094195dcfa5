//! What has come for one stream of HTTP/2, until its task takes it.

use std::{collections::VecDeque, rc::Rc};

use seaway_wire::http2::ErrorCode;

use super::{
    h2_connection::{CROWD, PIECE},
    task_state::TaskState,
};
use crate::memory::Reservation;

/// What has come for one stream.
#[derive(Default)]
pub(super) struct StreamInbox {
    pub(super) task_state: Option<Rc<TaskState>>,
    pub(super) bytes: Vec<u8>,
    taken: usize,
    /// Nothing comes after these.
    pub(super) ended: bool,
    /// Lines.
    pub(super) trailers: Vec<u8>,
    pub(super) heads: VecDeque<ResponseHead>,
    pub(super) reset: Option<ErrorCode>,
    /// Of the client that it is for.
    pub(super) held: Option<Reservation>,
}

/// Pieces of a body while little may be held: what is under way between two buffers counts twice.
const SMALL_PIECE: usize = 2 << 10;
/// Grows by no more than this at a time, so that little of what is held is empty.
const GROWTH: usize = 16 << 10;

/// Of an answer, interim or not; its lines but for the last.
pub(super) struct ResponseHead {
    pub(super) status: u16,
    pub(super) lines: Vec<u8>,
    pub(super) ends: bool,
}

impl StreamInbox {
    pub(super) fn is_read(&self) -> bool {
        self.taken == self.bytes.len()
    }

    pub(super) fn unread(&self) -> usize {
        self.bytes.len().saturating_sub(self.taken)
    }

    /// Adds what came of the body.
    pub(super) fn put(&mut self, bytes: &[u8]) {
        let (length, room) = (self.bytes.len(), self.bytes.capacity());
        if room.saturating_sub(length) < bytes.len() {
            self.bytes.reserve_exact(bytes.len().max(length.min(GROWTH)));
        }
        self.bytes.extend_from_slice(bytes);
        self.report_held();
    }

    /// Reports how many bytes this inbox holds, after that has changed.
    pub(super) fn report_held(&self) {
        let Some(held) = &self.held else { return };
        let heads: usize = self.heads.iter().map(|head| head.lines.capacity()).sum();
        held.set(self.bytes.capacity().saturating_add(self.trailers.capacity()).saturating_add(heads));
    }

    /// Nothing of it is to be read: its client holds too much already, until its task has run, too.
    pub(super) fn refuse(&mut self) {
        self.reset = Some(ErrorCode::TOO_MUCH);
        self.heads.clear();
        (self.taken, self.bytes, self.trailers) = (0, Vec::new(), Vec::new());
        self.report_held();
    }

    /// The client's connection holds more than it may, and not because of what windows bound.
    pub(super) fn holds_too_much(&self) -> bool {
        self.held.as_ref().is_some_and(|held| held.of().is_over())
    }

    /// Takes a piece of the body, and tells how long it was.
    pub(super) fn take(&mut self, mut take: impl FnMut(&[u8])) -> usize {
        let is_tight = self.held.as_ref().is_some_and(|held| held.of().is_tight());
        let count = self.unread().min(if is_tight { SMALL_PIECE } else { PIECE });
        let end = self.taken.saturating_add(count);
        take(self.bytes.get(self.taken..end).unwrap_or_default());
        self.taken = end;
        if self.is_read() {
            // Nobody holds room for what may never come.
            (self.taken, self.bytes) = (0, Vec::new());
        } else if self.taken >= CROWD {
            self.bytes.drain(..self.taken);
            self.taken = 0;
        }
        self.report_held();
        count
    }

    /// The body is over, and all of it was taken.
    pub(super) fn is_through(&self) -> bool {
        self.ended && self.is_read()
    }

    /// For the stream whose task that is.
    pub(super) fn to(task_state: Rc<TaskState>, held: Reservation) -> StreamInbox {
        StreamInbox { task_state: Some(task_state), held: Some(held), ..StreamInbox::default() }
    }
}
