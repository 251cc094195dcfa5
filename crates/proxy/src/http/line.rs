//! A stream as HTTP/2 reads and writes it. Nobody needs to be woken: an event leads to the task that has the stream.

use std::{
    cell::{Cell, RefCell},
    io,
    pin::Pin,
    rc::Rc,
    task::{Context, Poll, ready},
};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::{hall::Hall, scratch::Scratch, stream::Stream};

/// The stream below, with what has come before it was known to be HTTP/2.
pub(super) struct Line {
    begun: Option<Box<Scratch>>,
    pulse: Rc<Pulse>,
}

/// How a connection fares, for who drives it.
pub(super) struct Pulse {
    stream: Stream,
    hall: Rc<Hall>,
    /// Frames that wait until all that are ready are there, to go in one call.
    out: RefCell<Out>,
    failed: Cell<bool>,
    /// Reads that are left in this turn.
    left: Cell<u32>,
    /// Since when the peer takes nothing of what is to be written.
    blocked: Cell<u64>,
}

#[derive(Default)]
struct Out {
    bytes: Vec<u8>,
    sent: usize,
}

/// Frames that need no answer from a member (PING, SETTINGS and the like) could otherwise keep a worker for as long as
/// somebody sends them.
const READS: u32 = 8;
const NEVER: u64 = u64::MAX;
/// Waits at most; what is larger goes as it is.
const JOIN: usize = 32 << 10;

impl Pulse {
    pub(super) fn begin_turn(&self) {
        self.left.set(READS);
    }

    /// Everything that is ready has been said: it goes now. (h2 would flush after each piece of a body.)
    pub(super) fn end_turn(&self) {
        if let Poll::Ready(Err(_)) = self.poll_out() {
            // Whoever reads next is told.
            self.failed.set(true);
            self.hall.go_on_next_turn();
        }
    }

    /// When a peer that takes nothing has had so much time.
    pub(super) fn gives_up(&self, patience: u64) -> u64 {
        self.blocked.get().saturating_add(patience)
    }

    /// Writes what waits; nothing is held while nothing does.
    fn poll_out(&self) -> Poll<io::Result<()>> {
        let out = &mut *self.out.borrow_mut();
        while out.sent < out.bytes.len() {
            out.sent += ready!(self.note(self.stream.poll_write(&out.bytes[out.sent..])))?;
        }
        self.hall.put_sheet_back(std::mem::take(out).bytes);
        self.note(self.stream.poll_flush())
    }

    fn poll_write(&self, bytes: &[u8]) -> Poll<io::Result<usize>> {
        if self.out.borrow().bytes.len() + bytes.len() > JOIN {
            ready!(self.poll_out())?;
            if bytes.len() > JOIN {
                return self.note(self.stream.poll_write(bytes));
            }
        }
        let waiting = &mut self.out.borrow_mut().bytes;
        if waiting.capacity() == 0 {
            *waiting = self.hall.sheet();
        }
        waiting.extend_from_slice(bytes);
        Poll::Ready(Ok(bytes.len()))
    }

    fn note<T>(&self, poll: Poll<T>) -> Poll<T> {
        match &poll {
            Poll::Ready(_) => self.blocked.set(NEVER),
            Poll::Pending => self.blocked.set(self.blocked.get().min(self.hall.now())),
        }
        poll
    }
}

impl Line {
    /// Its deadline is about the whole connection, not about each read.
    pub(super) fn new(stream: Stream, begun: Option<Box<Scratch>>, hall: Rc<Hall>) -> Line {
        stream.be_patient();
        let (out, failed) = (RefCell::default(), Cell::new(false));
        let (left, blocked) = (Cell::new(READS), Cell::new(NEVER));
        Line { begun, pulse: Rc::new(Pulse { stream, hall, out, failed, left, blocked }) }
    }

    pub(super) fn pulse(&self) -> Rc<Pulse> {
        self.pulse.clone()
    }
}

impl AsyncRead for Line {
    fn poll_read(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if let Some(begun) = &mut self.begun {
            let count = begun.asked.filled().len().min(into.remaining());
            into.put_slice(&begun.asked.filled()[..count]);
            begun.asked.consume(count);
            if begun.asked.is_empty()
                && let Some(begun) = self.begun.take()
            {
                self.pulse.hall.put_back(begun);
            }
            return Poll::Ready(Ok(()));
        }
        let pulse = &self.pulse;
        if pulse.failed.get() {
            return Poll::Ready(Err(io::ErrorKind::BrokenPipe.into()));
        }
        let Some(left) = pulse.left.get().checked_sub(1) else {
            pulse.hall.go_on_next_turn();
            return Poll::Pending;
        };
        pulse.left.set(left);
        let read = ready!(pulse.stream.poll_read(into.initialize_unfilled()))?;
        into.advance(read);
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Line {
    fn poll_write(self: Pin<&mut Self>, _: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.pulse.poll_write(bytes)
    }

    /// Waits for [`Pulse::end_turn`].
    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(self.pulse.poll_out())?;
        self.pulse.stream.finish();
        Poll::Ready(Ok(()))
    }
}
