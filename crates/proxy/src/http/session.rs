//! TLS on a stream: rustls between what is on the wire and what is meant.

use std::{
    future::poll_fn,
    io::{self, IoSlice, Read, Write},
    task::{Poll, ready},
};

use rustls::{Connection, IoState};

use super::{handshakes, stream::Stream};

pub(super) struct Session {
    connection: Box<Connection>,
    /// Decrypted and not taken yet.
    plaintext: usize,
    /// The peer has said that nothing more comes.
    finished: bool,
}

/// Reads from the wire in one turn that bring nothing.
const ROUNDS: usize = 16;
/// Taken at a time, so that little waits behind a slow peer: one record.
const RECORD: usize = 16 << 10;

impl Session {
    /// Bytes that one to a member holds while its client takes nothing: its keys and buffers, and a record.
    pub(super) const HELD: usize = 16 << 10;

    pub(super) fn new(connection: impl Into<Connection>) -> Session {
        Session { connection: Box::new(connection.into()), plaintext: 0, finished: false }
    }

    pub(super) fn holds_plaintext(&self) -> bool {
        self.plaintext > 0
    }

    pub(super) fn connection(&self) -> &Connection {
        &self.connection
    }

    /// Takes what has come in another way.
    pub(super) async fn receive(mut self, stream: &Stream, mut bytes: &[u8]) -> io::Result<Session> {
        while !bytes.is_empty() {
            self.connection.read_tls(&mut bytes)?;
            let (connection, outcome) = handshakes::process(stream.context(), self.connection).await?;
            outcome.map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))?;
            self.connection = connection;
        }
        Ok(self)
    }

    /// Until both sides know each other.
    pub(super) async fn shake_hands(mut self, stream: &Stream) -> io::Result<Session> {
        while self.connection.is_handshaking() {
            poll_fn(|_| self.poll_flush(stream)).await?;
            if self.connection.is_handshaking() {
                if self.finished {
                    return Err(io::ErrorKind::UnexpectedEof.into());
                }
                poll_fn(|_| self.poll_wire(stream)).await?;
                let (connection, outcome) = handshakes::process(stream.context(), self.connection).await?;
                self.connection = connection;
                self.take(stream, outcome)?;
            }
        }
        poll_fn(|_| self.poll_flush(stream)).await?;
        Ok(self)
    }

    pub(super) fn poll_read(&mut self, stream: &Stream, into: &mut [u8]) -> Poll<io::Result<usize>> {
        // Records may be empty: nobody keeps a worker with those.
        for _ in 0..ROUNDS {
            match self.connection.reader().read(into) {
                Ok(read) => {
                    self.plaintext = self.plaintext.saturating_sub(read);
                    return Poll::Ready(Ok(read));
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                // An end without a farewell: what is framed is cut short, and who reads to the end is not told so.
                Err(error) => return Poll::Ready(Err(error)),
            }
            self.plaintext = 0;
            if self.finished {
                return Poll::Ready(Ok(0));
            }
            ready!(self.poll_more(stream))?;
        }
        stream.continue_next_turn();
        Poll::Pending
    }

    /// Reads from the wire once.
    fn poll_more(&mut self, stream: &Stream) -> Poll<io::Result<()>> {
        ready!(self.poll_wire(stream))?;
        let outcome = self.connection.process_new_packets();
        Poll::Ready(self.take(stream, outcome))
    }

    fn poll_wire(&mut self, stream: &Stream) -> Poll<io::Result<()>> {
        let mut wire = Wire { stream, pending: false };
        match self.connection.read_tls(&mut wire) {
            Ok(0) => self.finished = true,
            Ok(_) => {}
            Err(_) if wire.pending => return Poll::Pending,
            Err(error) => return Poll::Ready(Err(error)),
        }
        Poll::Ready(Ok(()))
    }

    /// What came of the bytes that were read.
    fn take(&mut self, stream: &Stream, outcome: Result<IoState, rustls::Error>) -> io::Result<()> {
        match outcome {
            Ok(state) => {
                self.plaintext = state.plaintext_bytes_to_read();
                self.finished |= state.peer_has_closed();
                // Answers to a change of keys and the like.
                if self.connection.wants_write()
                    && let Poll::Ready(Err(error)) = self.poll_flush(stream)
                {
                    return Err(error);
                }
                Ok(())
            }
            Err(error) => {
                // The peer is told why.
                let _ = self.poll_flush(stream);
                Err(io::Error::new(io::ErrorKind::InvalidData, error))
            }
        }
    }

    pub(super) fn poll_write(&mut self, stream: &Stream, bytes: &[u8]) -> Poll<io::Result<usize>> {
        // What was taken before goes first, or it would pile up.
        ready!(self.poll_flush(stream))?;
        let taken = self.connection.writer().write(bytes.get(..RECORD).unwrap_or(bytes))?;
        if let Poll::Ready(Err(error)) = self.poll_flush(stream) {
            return Poll::Ready(Err(error));
        }
        Poll::Ready(Ok(taken))
    }

    pub(super) fn poll_flush(&mut self, stream: &Stream) -> Poll<io::Result<()>> {
        while self.connection.wants_write() {
            let mut wire = Wire { stream, pending: false };
            match self.connection.write_tls(&mut wire) {
                Ok(_) => {}
                Err(_) if wire.pending => return Poll::Pending,
                Err(error) => return Poll::Ready(Err(error)),
            }
        }
        Poll::Ready(Ok(()))
    }

    pub(super) fn finish(&mut self, stream: &Stream) {
        self.connection.send_close_notify();
        let _ = self.poll_flush(stream);
    }
}

/// The stream below, as rustls wants it.
struct Wire<'s> {
    stream: &'s Stream,
    pending: bool,
}

impl Wire<'_> {
    fn now<T>(&mut self, poll: Poll<io::Result<T>>) -> io::Result<T> {
        match poll {
            Poll::Ready(result) => result,
            Poll::Pending => {
                self.pending = true;
                Err(io::ErrorKind::WouldBlock.into())
            }
        }
    }
}

impl Read for Wire<'_> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let poll = self.stream.poll_receive(into);
        self.now(poll)
    }
}

impl Write for Wire<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let poll = self.stream.poll_send(bytes);
        self.now(poll)
    }

    /// All records of a flight in one call.
    fn write_vectored(&mut self, pieces: &[IoSlice<'_>]) -> io::Result<usize> {
        let poll = self.stream.poll_send_all(pieces);
        self.now(poll)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
