//! One stream of HTTP/2 as the end of an exchange.

use std::{
    cell::Cell,
    io,
    rc::Rc,
    task::{Poll, ready},
};

use seaway_wire::{
    http::{BodyFraming, KnownHeader, Response, may_trail},
    http2::{ErrorCode, FieldBlock, StreamKey},
};

use super::{
    h2_connection::{FIRST_WINDOW, H2Connection},
    h2_upstream::StreamReservation,
    heads::{BodyForwarding, HeaderModifier},
    local_reply::LocalReply,
    scratch::Buffer,
    stream_inbox::ResponseHead,
    switch::is_of_handshake,
    task_state::TaskState,
};
use crate::memory::ConnectionMemory;

pub(super) struct H2Stream {
    h2: Rc<H2Connection>,
    key: StreamKey,
    /// Whose task has it.
    task_state: Rc<TaskState>,
    /// Of a client: what it waits for is not said yet.
    is_unanswered: Cell<bool>,
    /// An answer to `CONNECT` with a protocol: a tunnel (RFC 8441).
    switches: bool,
    /// To a member: what it may send.
    window: Option<Window>,
}

/// How much of an answer may come from a member before its client takes it.
struct Window {
    /// Of the client.
    memory: Rc<ConnectionMemory>,
    /// Beyond what every stream has from the start.
    lent: Cell<u32>,
    /// What was taken since it last grew.
    taken: Cell<usize>,
    /// Among the streams of the member; it is free when this one is over.
    reservation: StreamReservation,
}

impl Window {
    /// What may be under way at once.
    fn size(&self) -> u32 {
        FIRST_WINDOW.saturating_add(self.lent.get())
    }
}

/// For an answer that is not small; and for one that is taken as fast as it comes.
const ANSWER_WINDOW: u32 = 64 << 10;
const USUAL_WINDOW: u32 = 16 << 10;
const MOST_WINDOW: u32 = 256 << 10;

impl H2Stream {
    /// Of a client, who waits for an answer.
    pub(super) fn of_client(
        h2: Rc<H2Connection>,
        key: StreamKey,
        task_state: Rc<TaskState>,
        switches: bool,
    ) -> H2Stream {
        H2Stream { h2, key, task_state, is_unanswered: Cell::new(true), switches, window: None }
    }

    /// To a member, who is asked by this.
    pub(super) fn asking(
        h2: Rc<H2Connection>,
        key: StreamKey,
        task_state: Rc<TaskState>,
        memory: Rc<ConnectionMemory>,
        reservation: StreamReservation,
    ) -> H2Stream {
        let window = Some(Window { memory, lent: Cell::new(0), taken: Cell::new(0), reservation });
        let h2_stream =
            H2Stream { h2, key, task_state, is_unanswered: Cell::new(false), switches: false, window };
        if let Some(window) = h2_stream.window.as_ref().filter(|_| h2_stream.h2.expects_long_answers()) {
            // Together with the request: later it would cost the answer a way there and back.
            h2_stream.lend(window, USUAL_WINDOW - FIRST_WINDOW);
        }
        h2_stream
    }

    pub(super) fn poll_fill(&self, buffer: &mut Buffer) -> Poll<io::Result<usize>> {
        let taken = ready!(self.h2.poll_take(self.key, |bytes| buffer.put(bytes)))?;
        if let Some(window) = &self.window {
            let (all, now) = (window.taken.get().saturating_add(taken), window.size());
            window.taken.set(all);
            if all >= now as usize {
                // It is taken as it comes: more may be under way.
                window.taken.set(0);
                self.lend(window, now.min(MOST_WINDOW.saturating_sub(now)));
            }
        }
        Poll::Ready(Ok(taken))
    }

    /// An answer with a body begins, of that length if it is told.
    pub(super) fn open_window(&self, length: Option<u64>) {
        let Some(window) = &self.window else { return };
        let wanted = length.map_or(ANSWER_WINDOW, |it| u32::try_from(it).unwrap_or(u32::MAX));
        let wanted = wanted.min(ANSWER_WINDOW);
        let is_all_here = self.h2.state().with(self.key).is_none_or(|inbox| inbox.ended);
        self.h2.note_answer(wanted > FIRST_WINDOW && (!is_all_here || window.lent.get() > 0));
        if wanted > window.size() && !is_all_here {
            self.lend(window, wanted.saturating_sub(window.size()));
        }
    }

    fn lend(&self, window: &Window, more: u32) {
        let lent = window.memory.lend_window(more);
        if lent > 0 {
            window.lent.set(window.lent.get().saturating_add(lent));
            let mut connection = self.h2.connection();
            connection.set_stream_window(self.key, window.size());
            drop(connection);
            self.h2.wake();
        }
    }

    /// Of a member: tells whether something waits on it that is not taken, and whether something was.
    pub(super) fn note(&self, waits: bool, moved: bool) {
        if let Some(window) = &self.window {
            window.reservation.note(waits, moved, self.h2.context.now());
        }
    }

    /// Of a member: it has to make room for others, since what waits on it is not taken.
    pub(super) fn is_reclaimed(&self) -> bool {
        self.window.as_ref().is_some_and(|window| window.reservation.is_reclaimed())
    }

    pub(super) fn poll_takes(&self) -> Poll<()> {
        self.h2.poll_takes(&self.task_state, self.key)
    }

    /// Who takes nothing of what is said has others wait, and gets no more heads either.
    pub(super) fn poll_takes_head(&self) -> Poll<()> {
        if self.is_gone() {
            return Poll::Ready(());
        }
        self.h2.poll_room(&self.h2.state(), &self.task_state)
    }

    pub(super) fn has_unread(&self) -> bool {
        self.h2.state().with(self.key).is_some_and(|inbox| !inbox.is_read())
    }

    /// The next head of a member's answer, interim or not. The error tells why there is none.
    pub(super) fn poll_head(&self) -> Poll<Result<ResponseHead, ErrorCode>> {
        let mut connection = self.h2.state_mut();
        let Some(inbox) = connection.with_mut(self.key) else { return Poll::Ready(Err(ErrorCode::CANCEL)) };
        let head = inbox.heads.pop_front();
        inbox.report_held();
        match (head, inbox.reset) {
            (Some(head), _) => Poll::Ready(Ok(head)),
            (None, Some(reason)) => Poll::Ready(Err(reason)),
            (None, None) if self.h2.is_over() => Poll::Ready(Err(ErrorCode::CANCEL)),
            (None, None) => Poll::Pending,
        }
    }

    /// Nothing comes after what was taken, no trailers either.
    pub(super) fn has_ended(&self) -> bool {
        self.h2.state().with(self.key).is_some_and(|inbox| inbox.is_through() && inbox.trailers.is_empty())
    }

    /// As lines.
    pub(super) fn trailers(&self) -> Vec<u8> {
        let mut connection = self.h2.state_mut();
        let trailers = connection.with_mut(self.key).map(|inbox| std::mem::take(&mut inbox.trailers));
        let mut all = trailers.unwrap_or_default();
        if fields_of(&all).any(|(name, _)| !may_trail(name)) {
            let may = fields_of(&all).filter(|(name, _)| may_trail(name));
            all = may.flat_map(|(name, value)| [name, b": ", value, b"\r\n"].concat()).collect();
        }
        all
    }

    pub(super) fn poll_write(&self, bytes: &[u8], last: bool) -> Poll<io::Result<usize>> {
        self.h2.poll_say(&self.task_state, self.key, bytes, last)
    }

    /// What was said is with the peer, but for little.
    pub(super) fn poll_flush(&self) -> Poll<io::Result<()>> {
        if self.is_gone() {
            return Poll::Ready(Err(io::ErrorKind::BrokenPipe.into()));
        }
        match self.h2.poll_room(&self.h2.state(), &self.task_state) {
            Poll::Pending if self.h2.context.is_late() => Poll::Ready(Err(io::ErrorKind::TimedOut.into())),
            poll => poll.map(Ok),
        }
    }

    pub(super) fn close_body(&self, trailers: &[u8]) {
        let mut connection = self.h2.connection();
        match trailers {
            [] => drop(connection.send_data(self.key, &[], true)),
            lines => connection.send_headers(self.key, true, |block| put_lines(block, lines)),
        }
        self.h2.wake();
    }

    /// Nobody has answered it.
    pub(super) fn is_unanswered(&self) -> bool {
        self.is_unanswered.get()
    }

    /// The peer has given the stream up, or is gone.
    pub(super) fn is_gone(&self) -> bool {
        self.h2.is_over() || self.h2.state().with(self.key).is_none_or(|inbox| inbox.reset.is_some())
    }

    pub(super) fn reset(&self) {
        self.h2.connection().reset(self.key, ErrorCode::INTERNAL);
        self.h2.wake();
    }

    /// Sends an answer before the answer. Who has gone is not told.
    pub(super) fn inform(&self, head: &[u8], response: &Response) {
        self.h2.connection().send_headers(self.key, false, |block| {
            block.status(response.status);
            for field in &response.fields {
                if !field.hop && field.known != KnownHeader::ContentLength {
                    block.field(field.name.of(head), field.value.of(head));
                }
            }
        });
        self.h2.wake();
    }

    /// Sends the head of a member's answer.
    pub(super) fn answer(
        &self,
        head: &[u8],
        response: &Response,
        changes: &impl HeaderModifier,
    ) -> BodyForwarding {
        let switches = self.switches && response.status == 101;
        let mut lines = Vec::new();
        changes.put_new(&mut lines);
        let status = if switches { 200 } else { response.status };
        self.say_head(response.body == BodyFraming::None, |block| {
            block.status(status);
            for field in &response.fields {
                let name = field.name.of(head);
                let frames = field.known == KnownHeader::ContentLength;
                let shakes = switches && is_of_handshake(name);
                let goes_on = if frames { !changes.is_coded() } else { !changes.replaces(head, field) };
                if !field.hop && !shakes && goes_on {
                    block.field(name, field.value.of(head));
                }
            }
            put_lines(block, &lines);
        });
        BodyForwarding { chunked: false, persists: true }
    }

    fn say_head(&self, ends: bool, put: impl FnOnce(&mut FieldBlock<'_>)) {
        self.is_unanswered.set(false);
        self.h2.connection().send_headers(self.key, ends, put);
        self.h2.wake();
    }

    /// An answer of our own, whose end waits for the window of who has gone far with the others.
    pub(super) fn poll_say(&self, answer: &LocalReply<'_>, said: &mut usize) -> Poll<()> {
        let (fields, body) = answer.parts();
        let ends = answer.head_only || body.is_empty();
        if self.is_unanswered() {
            ready!(self.poll_takes_head());
            self.say_head(ends, |block| {
                block.status(answer.status);
                put_lines(block, fields.as_bytes());
            });
        }
        while !ends && *said < body.len() {
            match ready!(self.poll_write(body.as_bytes().get(*said..).unwrap_or_default(), true)) {
                Ok(count) => *said = said.saturating_add(count),
                Err(_) => break,
            }
        }
        Poll::Ready(())
    }
}

impl Drop for H2Stream {
    fn drop(&mut self) {
        if let Some(window) = &self.window {
            window.memory.return_window(window.lent.get());
        }
        self.h2.let_go(self.key);
    }
}

/// Names and values of lines.
pub(super) fn fields_of(lines: &[u8]) -> impl Iterator<Item = (&[u8], &[u8])> {
    lines.split(|byte| *byte == b'\n').filter_map(|line| {
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        let (name, value) = line.split_at(line.iter().position(|byte| *byte == b':')?);
        Some((name, value.get(1..)?.trim_ascii()))
    })
}

pub(super) fn put_lines(block: &mut FieldBlock<'_>, lines: &[u8]) {
    fields_of(lines).for_each(|(name, value)| block.field(name, value));
}
