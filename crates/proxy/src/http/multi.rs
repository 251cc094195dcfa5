//! One stream of HTTP/2 as the end of an exchange.

use std::{
    cell::Cell,
    io,
    rc::Rc,
    task::{Poll, ready},
};

use seaway_wire::{
    http::{Body, Known, Response, may_trail},
    http2::{Block, Key, Reason},
};

use super::{
    answer::Answer,
    hall::Own,
    heads::{Changes, Onward},
    mail::Head,
    many::Many,
    scratch::Buffer,
    switch::is_of_handshake,
};

pub(super) struct Multi {
    many: Rc<Many>,
    key: Key,
    /// Whose task has it.
    own: Rc<Own>,
    /// Of a client: what it waits for is not said yet.
    is_unanswered: Cell<bool>,
    /// An answer to `CONNECT` with a protocol: a tunnel (RFC 8441).
    switches: bool,
}

impl Multi {
    /// Of a client, who waits for an answer.
    pub(super) fn asked(many: Rc<Many>, key: Key, own: Rc<Own>, switches: bool) -> Multi {
        Multi { many, key, own, is_unanswered: Cell::new(true), switches }
    }

    /// To a member, who is asked by this.
    pub(super) fn asking(many: Rc<Many>, key: Key, own: Rc<Own>) -> Multi {
        Multi { many, key, own, is_unanswered: Cell::new(false), switches: false }
    }

    pub(super) fn poll_fill(&self, buffer: &mut Buffer) -> Poll<io::Result<usize>> {
        self.many.poll_take(self.key, |bytes| buffer.put(bytes))
    }

    /// The next head of a member's answer, interim or not. The error tells why there is none.
    pub(super) fn poll_head(&self) -> Poll<Result<Head, Reason>> {
        let mut connection = self.many.taken();
        let Some(mail) = connection.with_mut(self.key) else { return Poll::Ready(Err(Reason::CANCEL)) };
        match (mail.heads.pop_front(), mail.reset) {
            (Some(head), _) => Poll::Ready(Ok(head)),
            (None, Some(reason)) => Poll::Ready(Err(reason)),
            (None, None) if self.many.is_over() => Poll::Ready(Err(Reason::CANCEL)),
            (None, None) => Poll::Pending,
        }
    }

    /// Nothing comes after what was taken, no trailers either.
    pub(super) fn has_ended(&self) -> bool {
        self.many.seen().with(self.key).is_some_and(|mail| mail.is_through() && mail.trailers.is_empty())
    }

    /// As lines.
    pub(super) fn trailers(&self) -> Vec<u8> {
        let mut connection = self.many.taken();
        let trailers = connection.with_mut(self.key).map(|mail| std::mem::take(&mut mail.trailers));
        let mut all = trailers.unwrap_or_default();
        if fields_of(&all).any(|(name, _)| !may_trail(name)) {
            let may = fields_of(&all).filter(|(name, _)| may_trail(name));
            all = may.flat_map(|(name, value)| [name, b": ", value, b"\r\n"].concat()).collect();
        }
        all
    }

    pub(super) fn poll_write(&self, bytes: &[u8], last: bool) -> Poll<io::Result<usize>> {
        self.many.poll_say(&self.own, self.key, bytes, last)
    }

    /// What was said is with the peer, but for little.
    pub(super) fn poll_flush(&self) -> Poll<io::Result<()>> {
        if self.is_gone() {
            return Poll::Ready(Err(io::ErrorKind::BrokenPipe.into()));
        }
        match self.many.poll_room(&self.many.seen(), &self.own) {
            Poll::Pending if self.many.hall.is_late() => Poll::Ready(Err(io::ErrorKind::TimedOut.into())),
            poll => poll.map(Ok),
        }
    }

    pub(super) fn close_body(&self, trailers: &[u8]) {
        let mut connection = self.many.connection();
        match trailers {
            [] => drop(connection.say_data(self.key, &[], true)),
            lines => connection.say(self.key, true, |block| put_lines(block, lines)),
        }
        self.many.wake();
    }

    /// Nobody has answered it.
    pub(super) fn is_unanswered(&self) -> bool {
        self.is_unanswered.get()
    }

    /// The peer has given the stream up, or is gone.
    pub(super) fn is_gone(&self) -> bool {
        self.many.is_over() || self.many.seen().with(self.key).is_none_or(|mail| mail.reset.is_some())
    }

    pub(super) fn reset(&self) {
        self.many.connection().reset(self.key, Reason::INTERNAL);
        self.many.wake();
    }

    /// Sends an answer before the answer. Who has gone is not told.
    pub(super) fn inform(&self, head: &[u8], response: &Response) {
        self.many.connection().say(self.key, false, |block| {
            block.status(response.status);
            for field in &response.fields {
                if !field.hop && field.known != Known::ContentLength {
                    block.field(field.name.of(head), field.value.of(head));
                }
            }
        });
        self.many.wake();
    }

    /// Sends the head of a member's answer.
    pub(super) fn answer(&self, head: &[u8], response: &Response, changes: &impl Changes) -> Onward {
        let switches = self.switches && response.status == 101;
        let mut lines = Vec::new();
        changes.put_new(&mut lines);
        let status = if switches { 200 } else { response.status };
        self.say_head(response.body == Body::None, |block| {
            block.status(status);
            for field in &response.fields {
                let name = field.name.of(head);
                let frames = field.known == Known::ContentLength;
                let shakes = switches && is_of_handshake(name);
                if !field.hop && !shakes && (frames || !changes.replaces(head, field)) {
                    block.field(name, field.value.of(head));
                }
            }
            put_lines(block, &lines);
        });
        Onward { chunked: false, persists: true }
    }

    fn say_head(&self, ends: bool, put: impl FnOnce(&mut Block<'_>)) {
        self.is_unanswered.set(false);
        self.many.connection().say(self.key, ends, put);
        self.many.wake();
    }

    /// An answer of our own, whose end waits for the window of who has gone far with the others.
    pub(super) fn poll_say(&self, answer: &Answer<'_>, said: &mut usize) -> Poll<()> {
        let (fields, body) = answer.parts();
        let ends = answer.head_only || body.is_empty();
        if self.is_unanswered() {
            self.say_head(ends, |block| {
                block.status(answer.status);
                put_lines(block, fields.as_bytes());
            });
        }
        while !ends && *said < body.len() {
            match ready!(self.poll_write(&body.as_bytes()[*said..], true)) {
                Ok(count) => *said += count,
                Err(_) => break,
            }
        }
        Poll::Ready(())
    }
}

impl Drop for Multi {
    fn drop(&mut self) {
        self.many.let_go(self.key);
    }
}

/// Names and values of lines.
pub(super) fn fields_of(lines: &[u8]) -> impl Iterator<Item = (&[u8], &[u8])> {
    lines.split(|byte| *byte == b'\n').filter_map(|line| {
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        let (name, value) = line.split_at(line.iter().position(|byte| *byte == b':')?);
        Some((name, value[1..].trim_ascii()))
    })
}

pub(super) fn put_lines(block: &mut Block<'_>, lines: &[u8]) {
    fields_of(lines).for_each(|(name, value)| block.field(name, value));
}
