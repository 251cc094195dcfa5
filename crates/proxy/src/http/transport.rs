//! One end of an exchange: a connection of its own, or one stream among many on a connection of HTTP/2.

use std::{io, task::Poll};

use super::{h2_stream::H2Stream, scratch::Buffer, stream::Stream};

/// Where one side of an exchange is read and written: a connection of HTTP/1.1, or a stream of HTTP/2.
pub(super) enum HttpTransport {
    Wire(Stream),
    H2Stream(H2Stream),
}

impl HttpTransport {
    /// `Ok(0)`: the body is over, or the peer has finished.
    pub(super) fn poll_fill(&self, buffer: &mut Buffer) -> Poll<io::Result<usize>> {
        match self {
            HttpTransport::Wire(stream) => buffer.poll_fill(stream),
            HttpTransport::H2Stream(h2_stream) => h2_stream.poll_fill(buffer),
        }
    }

    /// `last`: the body ends with these.
    pub(super) fn poll_write(&self, bytes: &[u8], last: bool) -> Poll<io::Result<usize>> {
        match self {
            HttpTransport::Wire(stream) => stream.poll_write(bytes),
            HttpTransport::H2Stream(h2_stream) => h2_stream.poll_write(bytes, last),
        }
    }

    pub(super) fn poll_flush(&self) -> Poll<io::Result<()>> {
        match self {
            HttpTransport::Wire(stream) => stream.poll_flush(),
            HttpTransport::H2Stream(h2_stream) => h2_stream.poll_flush(),
        }
    }

    /// Waits until bytes can be written, as far as that is known beforehand.
    pub(super) fn poll_takes(&self) -> Poll<()> {
        match self {
            HttpTransport::Wire(stream) => stream.poll_takes(),
            HttpTransport::H2Stream(h2_stream) => h2_stream.poll_takes(),
        }
    }

    /// Waits until a head may be written.
    pub(super) fn poll_takes_head(&self) -> Poll<()> {
        match self {
            HttpTransport::Wire(_) => Poll::Ready(()),
            HttpTransport::H2Stream(h2_stream) => h2_stream.poll_takes_head(),
        }
    }

    /// Something has come that waits in our memory.
    pub(super) fn has_unread(&self) -> bool {
        matches!(self, HttpTransport::H2Stream(h2_stream) if h2_stream.has_unread())
    }

    /// Where bytes can be moved without looking at them.
    pub(super) fn plain(&self) -> Option<&Stream> {
        match self {
            HttpTransport::Wire(stream) => Some(stream).filter(|stream| stream.is_plain()),
            HttpTransport::H2Stream(_) => None,
        }
    }

    /// The framing itself says that nothing comes after what was taken.
    pub(super) fn has_ended(&self) -> bool {
        matches!(self, HttpTransport::H2Stream(h2_stream) if h2_stream.has_ended())
    }

    /// Fields that came after the body, as lines, where the framing itself does not carry them.
    pub(super) fn trailers(&self) -> Vec<u8> {
        match self {
            HttpTransport::Wire(_) => Vec::new(),
            HttpTransport::H2Stream(h2_stream) => h2_stream.trailers(),
        }
    }

    /// The body is whole; these lines come after it.
    pub(super) fn close_body(&self, trailers: &[u8]) {
        if let HttpTransport::H2Stream(h2_stream) = self {
            h2_stream.close_body(trailers);
        }
    }

    /// Of a member: tells whether something waits that is not taken, and whether something was.
    pub(super) fn note(&self, waits: bool, moved: bool) {
        if let HttpTransport::H2Stream(h2_stream) = self {
            h2_stream.note(waits, moved);
        }
    }

    /// Of a member: it has to make room for others.
    pub(super) fn is_reclaimed(&self) -> bool {
        matches!(self, HttpTransport::H2Stream(h2_stream) if h2_stream.is_reclaimed())
    }

    /// Nobody is there any more.
    pub(super) fn is_gone(&self) -> bool {
        match self {
            HttpTransport::Wire(stream) => stream.has_failed(),
            HttpTransport::H2Stream(h2_stream) => h2_stream.is_gone(),
        }
    }

    /// Nothing more comes from us.
    pub(super) fn finish(&self) {
        match self {
            HttpTransport::Wire(stream) => stream.finish(),
            HttpTransport::H2Stream(h2_stream) => h2_stream.close_body(&[]),
        }
    }

    /// The peer is to see a failure.
    pub(super) fn reset(&self) {
        match self {
            HttpTransport::Wire(stream) => stream.reset(),
            HttpTransport::H2Stream(h2_stream) => h2_stream.reset(),
        }
    }
}
