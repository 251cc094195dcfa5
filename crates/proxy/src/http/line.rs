//! A stream as HTTP/2 reads and writes it. Nobody needs to be woken: an event leads to the task that has the stream.

use std::{
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
    hall: Rc<Hall>,
}

impl Line {
    /// Its deadline is about the whole connection, not about each read.
    pub(super) fn new(stream: Stream, begun: Option<Box<Scratch>>, hall: Rc<Hall>) -> Line {
        stream.be_patient();
        Line { stream, begun, hall }
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
        let read = ready!(self.stream.poll_read(into.initialize_unfilled()))?;
        into.advance(read);
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Line {
    fn poll_write(self: Pin<&mut Self>, _: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.stream.poll_write(bytes)
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.stream.poll_flush()
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.stream.finish();
        Poll::Ready(Ok(()))
    }
}
