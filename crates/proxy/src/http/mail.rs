//! What has come for one stream of HTTP/2, until its task takes it.

use std::{collections::VecDeque, rc::Rc};

use seaway_wire::http2::Reason;

use super::{
    hall::Own,
    many::{CROWD, PIECE},
};

/// What has come for one stream.
#[derive(Default)]
pub(super) struct Mail {
    pub(super) own: Option<Rc<Own>>,
    pub(super) bytes: Vec<u8>,
    taken: usize,
    /// Nothing comes after these.
    pub(super) ended: bool,
    /// Lines.
    pub(super) trailers: Vec<u8>,
    pub(super) heads: VecDeque<Head>,
    pub(super) reset: Option<Reason>,
}

/// Of an answer, interim or not; its lines but for the last.
pub(super) struct Head {
    pub(super) status: u16,
    pub(super) lines: Vec<u8>,
    pub(super) ends: bool,
}

impl Mail {
    pub(super) fn is_read(&self) -> bool {
        self.taken == self.bytes.len()
    }

    pub(super) fn unread(&self) -> usize {
        self.bytes.len() - self.taken
    }

    /// Takes a piece of the body, and tells how long it was.
    pub(super) fn take(&mut self, mut take: impl FnMut(&[u8])) -> usize {
        let count = self.unread().min(PIECE);
        take(&self.bytes[self.taken..self.taken + count]);
        self.taken += count;
        if self.is_read() {
            // Nobody holds room for what may never come.
            (self.taken, self.bytes) = (0, Vec::new());
        } else if self.taken >= CROWD {
            self.bytes.drain(..self.taken);
            self.taken = 0;
        }
        count
    }

    /// The body is over, and all of it was taken.
    pub(super) fn is_through(&self) -> bool {
        self.ended && self.is_read()
    }

    /// For a stream of ours, whose task that is.
    pub(super) fn to(own: Rc<Own>) -> Mail {
        Mail { own: Some(own), ..Mail::default() }
    }
}
