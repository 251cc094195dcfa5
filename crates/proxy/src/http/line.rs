//! A stream as HTTP/2 reads and writes it. Nobody needs to be woken: an event leads to the task that has the stream.

use std::{
    cell::Cell,
    io,
    pin::Pin,
    rc::Rc,
    task::{Context, Poll, ready},
};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::{hall::Hall, scratch::Scratch, stream::Stream};

/// The stream below, with what has come before it was known to be HTTP/2.
pub(super) struct Line {
    stream: Stream,
    begun: Option<Box<Scratch>>,
    /// Frames that wait until all that are ready are there, to go in one call; from `sent` on.
    out: Vec<u8>,
    sent: usize,
    hall: Rc<Hall>,
    pulse: Rc<Pulse>,
}

/// How a connection fares, for who drives it.
pub(super) struct Pulse {
    /// Reads that are left in this turn.
    left: Cell<u32>,
    /// Since when the peer takes nothing of what is to be written.
    blocked: Cell<u64>,
}

/// Frames that need no answer from a member (PING, SETTINGS and the like) could otherwise keep a worker for as long as
/// somebody sends them.
const READS: u32 = 8;
const NEVER: u64 = u64::MAX;

impl Pulse {
    pub(super) fn begin_turn(&self) {
        self.left.set(READS);
    }

    /// When a peer that takes nothing has had so much time.
    pub(super) fn gives_up(&self, patience: u64) -> u64 {
        self.blocked.get().saturating_add(patience)
    }

    fn note<T>(&self, now: u64, poll: Poll<T>) -> Poll<T> {
        match &poll {
            Poll::Ready(_) => self.blocked.set(NEVER),
            Poll::Pending => self.blocked.set(self.blocked.get().min(now)),
        }
        poll
    }
}

/// Waits at most; what is larger goes as it is.
const JOIN: usize = 32 << 10;
const FIRST: usize = 2 << 10;

impl Line {
    /// Its deadline is about the whole connection, not about each read.
    pub(super) fn new(stream: Stream, begun: Option<Box<Scratch>>, hall: Rc<Hall>) -> Line {
        stream.be_patient();
        let pulse = Rc::new(Pulse { left: Cell::new(READS), blocked: Cell::new(NEVER) });
        Line { stream, begun, out: Vec::new(), sent: 0, hall, pulse }
    }

    pub(super) fn pulse(&self) -> Rc<Pulse> {
        self.pulse.clone()
    }

    /// Writes what waits; nothing is held while nothing does.
    fn poll_out(&mut self) -> Poll<io::Result<()>> {
        while self.sent < self.out.len() {
            let written = self.stream.poll_write(&self.out[self.sent..]);
            self.sent += ready!(self.pulse.note(self.hall.now(), written))?;
        }
        (self.out, self.sent) = (Vec::new(), 0);
        Poll::Ready(Ok(()))
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
                self.hall.put_back(begun);
            }
            return Poll::Ready(Ok(()));
        }
        let Some(left) = self.pulse.left.get().checked_sub(1) else {
            self.hall.go_on_next_turn();
            return Poll::Pending;
        };
        self.pulse.left.set(left);
        let read = ready!(self.stream.poll_read(into.initialize_unfilled()))?;
        into.advance(read);
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Line {
    fn poll_write(mut self: Pin<&mut Self>, _: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        if self.out.len() + bytes.len() > JOIN {
            ready!(self.poll_out())?;
            if bytes.len() > JOIN {
                return self.pulse.note(self.hall.now(), self.stream.poll_write(bytes));
            }
        }
        if self.out.is_empty() {
            self.out.reserve(bytes.len().max(FIRST));
        }
        self.out.extend_from_slice(bytes);
        Poll::Ready(Ok(bytes.len()))
    }

    fn poll_flush(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(self.poll_out())?;
        self.pulse.note(self.hall.now(), self.stream.poll_flush())
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(self.poll_out())?;
        self.stream.finish();
        Poll::Ready(Ok(()))
    }
}
