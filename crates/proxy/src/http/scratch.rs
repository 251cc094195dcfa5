//! What one request needs while it is under way, and the next one after it.

use std::{
    io,
    task::{Poll, ready},
};

use seaway_wire::http::{Field, Request, Response};

use super::{access_record::AccessRecord, body_relay::BodyRelay, stream::Stream};

#[derive(Default)]
pub(super) struct Scratch {
    /// From the client.
    pub(super) asked: Buffer,
    pub(super) request: Request,
    /// What this request is called; empty where nobody wants to know.
    pub(super) id: Vec<u8>,
    pub(super) record: AccessRecord,
    /// The head for the member, and what of the body came with it: kept as long as another member may be asked.
    pub(super) question: Vec<u8>,
    /// The same, as it is read once more to be said in HTTP/2.
    pub(super) repeated: Request,
    pub(super) upward: BodyRelay,
    /// From the member.
    pub(super) answered: Buffer,
    pub(super) response: Response,
    pub(super) downward: BodyRelay,
}

/// Framing that has no end after this is none.
pub(super) const BUFFER: usize = 16 << 10;
/// As large as a head may become, wherever that is allowed.
const MOST: usize = 64 << 10;
const FIRST: usize = 4 << 10;

impl Scratch {
    /// For the next request on any connection.
    pub(super) fn reset(&mut self) {
        self.asked.clear();
        self.answered.clear();
        self.question.clear();
        self.upward.clear();
        self.downward.clear();
    }

    /// Bytes that it holds, used or not.
    pub(super) fn weight(&self) -> usize {
        let texts = self.id.capacity().saturating_add(self.question.capacity());
        let heads = [&self.request.fields, &self.repeated.fields, &self.response.fields].map(Vec::capacity);
        let heads = heads.into_iter().sum::<usize>().saturating_mul(size_of::<Field>());
        [size_of::<Scratch>(), texts, heads, self.weight_of_bodies()].iter().sum()
    }

    /// Of that, what is on its way between client and member.
    pub(super) fn weight_of_bodies(&self) -> usize {
        let buffers = [self.asked.weight(), self.answered.weight()];
        buffers.into_iter().chain([self.upward.weight(), self.downward.weight()]).sum()
    }

    /// Lets go of the heads: the answer is on its way.
    pub(super) fn forget_heads(&mut self) {
        self.question = Vec::new();
        self.request.fields = Vec::new();
        self.repeated.fields = Vec::new();
        self.response.fields = Vec::new();
        self.trim();
    }

    /// Lets go of room in which nothing is.
    pub(super) fn trim(&mut self) {
        self.asked.trim();
        self.answered.trim();
        self.upward.trim();
        self.downward.trim();
    }
}

/// A fault of ours, which ends the connection: bytes would be lost, and nobody would know.
pub(super) fn lost() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, "bytes that were counted are not there")
}

/// Bytes that have come and are not dealt with yet.
#[derive(Default)]
pub(super) struct Buffer {
    bytes: Vec<u8>,
    start: usize,
    end: usize,
    /// More was taken than there was: what is left is nobody's, and whoever reads on is told so.
    is_broken: bool,
}

impl Buffer {
    pub(super) fn weight(&self) -> usize {
        self.bytes.capacity()
    }

    /// Lets go of room in which nothing is.
    pub(super) fn trim(&mut self) {
        let filled = self.filled().len();
        if self.bytes.len() > filled {
            *self =
                Buffer { bytes: self.filled().to_vec(), start: 0, end: filled, is_broken: self.is_broken };
        }
    }

    pub(super) fn clear(&mut self) {
        (self.start, self.end, self.is_broken) = (0, 0, false);
    }

    pub(super) fn filled(&self) -> &[u8] {
        self.bytes.get(self.start..self.end).unwrap_or_default()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.start == self.end
    }

    pub(super) fn consume(&mut self, count: usize) {
        match self.start.checked_add(count).filter(|start| *start <= self.end) {
            Some(start) => self.start = start,
            None => {
                debug_assert!(false, "{count} bytes of {} are taken", self.filled().len());
                (self.start, self.is_broken) = (self.end, true);
            }
        }
        if self.start == self.end {
            (self.start, self.end) = (0, 0);
        }
    }

    /// What is there from one place to the other.
    pub(super) fn part(&self, from: usize, to: usize) -> io::Result<&[u8]> {
        self.filled().get(from..to).ok_or_else(lost)
    }

    pub(super) fn is_full(&self) -> bool {
        self.filled().len() >= BUFFER
    }

    /// Takes what came in another way.
    pub(super) fn put(&mut self, bytes: &[u8]) {
        if self.start == self.end {
            (self.start, self.end) = (0, 0);
        }
        let end = self.end.saturating_add(bytes.len());
        if self.bytes.len() < end {
            self.bytes.resize(end, 0);
        }
        match self.bytes.get_mut(self.end..end) {
            Some(room) => {
                room.copy_from_slice(bytes);
                self.end = end;
            }
            None => self.is_broken = true,
        }
    }

    /// Reads once, what nobody will look at.
    pub(super) fn poll_let_go(&mut self, from: &Stream) -> Poll<io::Result<usize>> {
        self.clear();
        if self.bytes.is_empty() {
            self.bytes.resize(FIRST, 0);
        }
        from.poll_receive(&mut self.bytes)
    }

    /// Reads once. What is there moves to the front if it has no room behind it.
    pub(super) fn poll_fill(&mut self, from: &Stream) -> Poll<io::Result<usize>> {
        if self.is_broken {
            return Poll::Ready(Err(lost()));
        }
        if self.end == self.bytes.len() {
            if self.start > 0 {
                self.bytes.copy_within(self.start..self.end, 0);
                (self.start, self.end) = (0, self.filled().len());
            }
            if self.end == self.bytes.len() {
                self.bytes.resize(self.bytes.len().saturating_mul(2).clamp(FIRST, MOST + FIRST), 0);
            }
        }
        let read = ready!(from.poll_read(self.bytes.get_mut(self.end..).unwrap_or_default()))?;
        self.end = self.end.saturating_add(read);
        Poll::Ready(Ok(read))
    }
}
