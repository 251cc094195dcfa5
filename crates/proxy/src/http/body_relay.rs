//! Passes on a request's or response's body, whatever framing each side has: a length, chunks, or the end of the stream.

use std::{
    io,
    task::{Poll, ready},
};

use seaway_wire::http::{BodyFraming, ChunkPiece, ChunkedDecoder, Limits, may_trail};

use super::{
    body_pipe::{self, BodyPipe},
    gzip::Gzip,
    scratch::Buffer,
    transport::HttpTransport,
    worker_context::WorkerContext,
};

/// One direction: what comes, how it goes on, and what waits to be written.
#[derive(Default)]
pub(super) struct BodyRelay {
    coming: RemainingBody,
    chunks: ChunkedDecoder,
    /// Goes on in chunks.
    chunked: bool,
    /// To be written before anything else, from `sent` on.
    pub(super) out: Vec<u8>,
    sent: usize,
    /// Bytes of the body so far, and how many there may be.
    pub(super) moved: u64,
    most: u64,
    /// Lines after the body, for who does not get them in chunks.
    trailers: Vec<u8>,
    /// None of them goes on.
    without_trailers: bool,
    /// Whom it goes to knows that it is whole.
    closed: bool,
    /// What is left of it goes this way.
    body_pipe: Option<BodyPipe>,
    /// Something has come that whom it goes to does not take; it stays where it is.
    waits: bool,
    /// It goes on compressed.
    gzip: Option<Box<Gzip>>,
    /// Nothing has come since the turn before.
    pauses: bool,
}

#[derive(Clone, Copy, Default, PartialEq, Eq)]
enum RemainingBody {
    #[default]
    Over,
    Length(u64),
    Chunked,
    UntilEnd,
}

/// Why a body does not go on.
#[derive(Debug)]
pub(super) enum BodyError {
    /// Whom it comes from.
    Source(io::Error),
    /// Whom it goes to.
    Sink,
}

/// More than this is not joined to be written at once.
const JOIN: usize = 16 << 10;
/// Reads and writes of one body in one turn, so that the others get theirs.
const ROUNDS: usize = 32;
/// The same for bytes that are only moved.
const POURED: usize = 1 << 20;
/// Both, where others have much to do, too: whoever comes next waits for this piece.
const ROUNDS_BESIDE_OTHERS: usize = 8;
const POURED_BESIDE_OTHERS: usize = 128 << 10;
/// Of a body that is compressed, so much at once: 0.2 ms. And that many fewer of them in one turn.
const COMPRESSED: usize = 8 << 10;
const FEWER_COMPRESSED: usize = 4;

impl BodyRelay {
    /// What is in `out` stays, and goes first.
    pub(super) fn begin(&mut self, body: BodyFraming, chunked: bool) {
        self.coming = match body {
            BodyFraming::None => RemainingBody::Over,
            BodyFraming::Length(length) => RemainingBody::Length(length),
            BodyFraming::Chunked => RemainingBody::Chunked,
            BodyFraming::UntilClose | BodyFraming::Tunnel => RemainingBody::UntilEnd,
        };
        self.chunked = chunked;
        self.chunks.begin();
        self.sent = 0;
        self.moved = 0;
        self.most = u64::MAX;
        self.trailers.clear();
        self.without_trailers = false;
        self.closed = false;
        self.body_pipe = None;
        self.waits = false;
        (self.gzip, self.pauses) = (None, false);
    }

    /// A body that has begun goes on compressed.
    pub(super) fn compress(&mut self, gzip: Option<Gzip>) {
        self.gzip = gzip.map(Box::new);
    }

    /// Bytes of the body as they were sent on.
    pub(super) fn delivered(&self) -> u64 {
        self.gzip.as_ref().map_or(self.moved, |gzip| gzip.written)
    }

    /// Lines after a body that has begun are left out.
    pub(super) fn drop_trailers(&mut self) {
        self.without_trailers = true;
    }

    /// More than this is not taken of a body that has begun.
    pub(super) fn limit(&mut self, most: u64) {
        self.most = most;
    }

    pub(super) fn clear(&mut self) {
        self.coming = RemainingBody::Over;
        self.out.clear();
        self.sent = 0;
        self.body_pipe = None;
        self.gzip = None;
    }

    /// All of it has come.
    pub(super) fn is_over(&self) -> bool {
        self.coming == RemainingBody::Over
    }

    /// All of it has come and was written.
    pub(super) fn is_through(&self) -> bool {
        self.is_over() && self.sent == self.out.len() && self.closed
    }

    /// Lines after the body, as far as they have come.
    pub(super) fn trailers(&self) -> &[u8] {
        &self.trailers
    }

    /// All of it is in what was joined, which goes by another way.
    pub(super) fn was_joined(&mut self) {
        self.closed = self.is_over();
    }

    /// What was joined and has not gone that way goes first. Nothing else waits to be written yet.
    pub(super) fn put_back(&mut self, rest: &[u8]) {
        if !rest.is_empty() {
            self.out.extend_from_slice(rest);
            self.closed = false;
        }
    }

    /// Joins what has come already to what is to be written.
    pub(super) fn join(&mut self, from: &mut Buffer) -> io::Result<()> {
        let all = from.filled().len();
        while !from.is_empty() && !self.is_over() && self.out.len() < JOIN {
            let before = from.filled().len();
            self.take(from)?;
            let left = from.filled().len();
            if left == before || (self.gzip.is_some() && all.saturating_sub(left) >= COMPRESSED) {
                break;
            }
        }
        Ok(())
    }

    /// Moves one piece from the buffer into `out`.
    fn take(&mut self, from: &mut Buffer) -> io::Result<()> {
        self.take_piece(from)?;
        if self.moved > self.most { Err(io::ErrorKind::FileTooLarge.into()) } else { Ok(()) }
    }

    fn take_piece(&mut self, from: &mut Buffer) -> io::Result<()> {
        let most = if self.gzip.is_some() { COMPRESSED } else { usize::MAX };
        match self.coming {
            RemainingBody::Over => {}
            RemainingBody::Length(left) => {
                let count = usize::try_from(left).unwrap_or(usize::MAX).min(from.filled().len()).min(most);
                self.put_body(from.part(0, count)?)?;
                from.consume(count);
                self.passed(count)?;
            }
            RemainingBody::UntilEnd => {
                let count = from.filled().len().min(most);
                self.put_body(from.part(0, count)?)?;
                from.consume(count);
                self.passed(count)?;
            }
            RemainingBody::Chunked => match next_chunk(&mut self.chunks, from.filled(), most) {
                ChunkPiece::More { skip } => from.consume(skip),
                ChunkPiece::Data { skip, length } => {
                    let end = skip.saturating_add(length);
                    self.put_body(from.part(skip, end)?)?;
                    from.consume(end);
                    self.moved = self.moved.saturating_add(length as u64);
                }
                ChunkPiece::End { length } => {
                    for trailer in &self.chunks.trailers {
                        let (name, value) = (trailer.name.of(from.filled()), trailer.value.of(from.filled()));
                        if self.without_trailers || !may_trail(name) {
                            continue;
                        }
                        for part in [name, b": ", value, b"\r\n"] {
                            self.trailers.extend_from_slice(part);
                        }
                    }
                    from.consume(length);
                    self.finish()?;
                }
                ChunkPiece::Refused(refusal) => {
                    return Err(io::Error::new(io::ErrorKind::InvalidData, refusal.why));
                }
            },
        }
        Ok(())
    }

    fn put_body(&mut self, bytes: &[u8]) -> io::Result<()> {
        let BodyRelay { out, gzip, chunked, .. } = self;
        match gzip {
            None => put(out, bytes, *chunked),
            Some(gzip) => gzip.put(bytes, |coded| put(out, coded, *chunked))?,
        }
        Ok(())
    }

    /// Puts what a compressor holds back, so that the other side can read all that has come. `false`: it holds nothing back.
    fn flush(&mut self) -> io::Result<bool> {
        let BodyRelay { out, gzip, chunked, .. } = self;
        let Some(gzip) = gzip.as_mut().filter(|it| it.is_behind()) else { return Ok(false) };
        gzip.flush(|coded| put(out, coded, *chunked))?;
        Ok(true)
    }

    fn passed(&mut self, count: usize) -> io::Result<()> {
        self.moved = self.moved.saturating_add(count as u64);
        if let RemainingBody::Length(left) = &mut self.coming {
            *left = left.saturating_sub(count as u64);
            if *left == 0 {
                self.finish()?;
            }
        }
        Ok(())
    }

    fn finish(&mut self) -> io::Result<()> {
        let BodyRelay { out, gzip, chunked, .. } = self;
        if let Some(gzip) = gzip {
            gzip.finish(|coded| put(out, coded, *chunked))?;
        }
        if self.chunked {
            for part in [b"0\r\n", &self.trailers[..], b"\r\n"] {
                self.out.extend_from_slice(part);
            }
        }
        self.coming = RemainingBody::Over;
        self.body_pipe = None;
        Ok(())
    }

    /// So many bytes go on just as they come.
    fn as_they_are(&self) -> Option<usize> {
        match self.coming {
            _ if self.gzip.is_some() => None,
            RemainingBody::Length(left) if !self.chunked => Some(usize::try_from(left).unwrap_or(usize::MAX)),
            RemainingBody::UntilEnd if !self.chunked => Some(usize::MAX),
            _ => None,
        }
    }

    /// Whether what is left, which is so much, needs not be looked at.
    fn pours(&mut self, context: &WorkerContext, left: u64, buffer: &Buffer) -> bool {
        let worth = left >= body_pipe::WORTH && self.moved.saturating_add(left) <= self.most;
        let is_changed = self.chunked || self.gzip.is_some();
        if self.body_pipe.is_none() && worth && !is_changed && buffer.is_empty() {
            self.body_pipe = BodyPipe::begin(&context.pipes);
        }
        self.body_pipe.is_some()
    }

    /// Writes what waits.
    pub(super) fn poll_write(&mut self, to: &HttpTransport) -> Poll<Result<(), BodyError>> {
        let last = self.is_over() && self.trailers.is_empty();
        while self.sent < self.out.len() {
            let waiting = self.out.get(self.sent..).ok_or(BodyError::Sink)?;
            let written = ready!(to.poll_write(waiting, last)).map_err(|_| BodyError::Sink)?;
            // Who says to have taken more than that has not taken it.
            self.sent = self
                .sent
                .checked_add(written)
                .filter(|sent| *sent <= self.out.len())
                .ok_or(BodyError::Sink)?;
        }
        self.out.clear();
        self.sent = 0;
        to.poll_flush().map_err(|_| BodyError::Sink)
    }

    /// Something has come that is not taken.
    pub(super) fn is_stuck(&self, buffer: &Buffer) -> bool {
        self.waits || self.sent < self.out.len() || (!self.is_over() && !buffer.is_empty())
    }

    pub(super) fn weight(&self) -> usize {
        self.out.capacity().saturating_add(self.trailers.capacity())
    }

    pub(super) fn trim(&mut self) {
        if self.sent == self.out.len() {
            self.out.clear();
        } else {
            self.out.drain(..self.sent);
        }
        self.sent = 0;
        self.out.shrink_to_fit();
    }

    /// Goes on until all is through, or until the running task is late.
    pub(super) fn poll(
        &mut self,
        context: &WorkerContext,
        from: &HttpTransport,
        buffer: &mut Buffer,
        to: &HttpTransport,
    ) -> Poll<Result<(), BodyError>> {
        if context.is_evicted() {
            return Poll::Ready(Err(BodyError::Sink));
        }
        let before = (self.moved, self.sent);
        match self.go_on(context, from, buffer, to) {
            // A connection says so itself; a stream of HTTP/2 does not know the time.
            Poll::Pending if context.is_late() && before == (self.moved, self.sent) => {
                Poll::Ready(Err(if self.is_stuck(buffer) {
                    BodyError::Sink
                } else {
                    BodyError::Source(io::ErrorKind::TimedOut.into())
                }))
            }
            other => other,
        }
    }

    fn go_on(
        &mut self,
        context: &WorkerContext,
        from: &HttpTransport,
        buffer: &mut Buffer,
        to: &HttpTransport,
    ) -> Poll<Result<(), BodyError>> {
        let mut poured = 0_usize;
        let (rounds, most) = match context.is_contended() {
            true => (ROUNDS_BESIDE_OTHERS, POURED_BESIDE_OTHERS),
            false => (ROUNDS, POURED),
        };
        let rounds = if self.gzip.is_some() { rounds / FEWER_COMPRESSED } else { rounds };
        for _ in 0..rounds {
            ready!(self.poll_write(to))?;
            if let (RemainingBody::Length(left), Some(from), Some(to)) =
                (self.coming, from.plain(), to.plain())
                && self.pours(context, left, buffer)
                && let Some(body_pipe) = &mut self.body_pipe
            {
                let count = ready!(body_pipe.poll(from, to, left.min(most.saturating_sub(poured) as u64)))?;
                self.passed(count).map_err(BodyError::Source)?;
                poured = poured.saturating_add(count);
                if poured < most {
                    continue;
                }
                break;
            }
            if self.is_over() {
                if !self.closed {
                    self.closed = true;
                    to.close_body(&self.trailers);
                }
                return Poll::Ready(Ok(()));
            }
            if !buffer.is_empty() {
                if let Some(most) = self.as_they_are() {
                    let count = most.min(buffer.filled().len());
                    if self.moved.saturating_add(count as u64) > self.most {
                        return Poll::Ready(Err(BodyError::Source(io::ErrorKind::FileTooLarge.into())));
                    }
                    let last = self.coming == RemainingBody::Length(count as u64);
                    let piece = buffer.part(0, count).map_err(BodyError::Source)?;
                    let written = ready!(to.poll_write(piece, last)).map_err(|_| BodyError::Sink)?;
                    buffer.consume(written);
                    self.passed(written).map_err(BodyError::Source)?;
                    continue;
                }
                let before = buffer.filled().len();
                self.join(buffer).map_err(BodyError::Source)?;
                // The compressor may have taken it, and nothing come out.
                let is_taken = self.gzip.is_some() && buffer.filled().len() < before;
                if !self.out.is_empty() || self.is_over() || is_taken {
                    continue;
                }
                if buffer.is_full() {
                    let error = io::Error::new(io::ErrorKind::InvalidData, "framing that is too long");
                    return Poll::Ready(Err(BodyError::Source(error)));
                }
            }
            // What cannot go on stays in the window of whom it comes from.
            self.waits = from.has_unread() && to.poll_takes().is_pending();
            if self.waits {
                return Poll::Pending;
            }
            let filled = match from.poll_fill(buffer) {
                Poll::Ready(filled) => filled.map_err(BodyError::Source)?,
                Poll::Pending if self.gzip.as_ref().is_some_and(|it| it.is_behind()) => {
                    // A flush costs bytes: only where nothing comes for a whole turn.
                    if std::mem::replace(&mut self.pauses, true) {
                        self.flush().map_err(BodyError::Source)?;
                        continue;
                    }
                    break;
                }
                Poll::Pending => return Poll::Pending,
            };
            self.pauses = false;
            if filled == 0 {
                if self.coming != RemainingBody::UntilEnd {
                    return Poll::Ready(Err(BodyError::Source(io::ErrorKind::UnexpectedEof.into())));
                }
                self.trailers = from.trailers();
                if self.without_trailers {
                    self.trailers.clear();
                }
                self.finish().map_err(BodyError::Source)?;
            } else if self.coming == RemainingBody::UntilEnd && from.has_ended() {
                // The last piece is known as such: it needs no end of its own.
                self.coming = RemainingBody::Length(buffer.filled().len() as u64);
            }
        }
        context.continue_next_turn();
        Poll::Pending
    }
}

/// Of no more than `most` bytes, but for framing that is longer.
fn next_chunk(chunks: &mut ChunkedDecoder, bytes: &[u8], most: usize) -> ChunkPiece {
    let limits = Limits::default();
    let seen = bytes.get(..most).unwrap_or(bytes);
    match chunks.next(seen, &limits) {
        ChunkPiece::More { skip: 0 } if seen.len() < bytes.len() => chunks.next(bytes, &limits),
        piece => piece,
    }
}

/// As it is, or as one chunk.
fn put(out: &mut Vec<u8>, bytes: &[u8], chunked: bool) {
    if bytes.is_empty() {
        return;
    }
    if chunked {
        put_hex(out, bytes.len());
        out.extend_from_slice(b"\r\n");
    }
    out.extend_from_slice(bytes);
    if chunked {
        out.extend_from_slice(b"\r\n");
    }
}

#[allow(
    clippy::indexing_slicing,
    clippy::arithmetic_side_effects,
    reason = "four bits, of which a number has at most sixteen times"
)]
fn put_hex(out: &mut Vec<u8>, number: usize) {
    let digits = (usize::BITS - number.leading_zeros()).div_ceil(4).max(1);
    for at in (0..digits).rev() {
        out.push(b"0123456789abcdef"[number >> (4 * at) & 15]);
    }
}

#[cfg(test)]
mod tests;
