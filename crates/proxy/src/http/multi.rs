//! One stream of HTTP/2 as the end of an exchange.

use std::{
    cell::RefCell,
    io,
    task::{Context, Poll, ready},
};

use bytes::Bytes;
use h2::{Reason, RecvStream, SendStream, server::SendResponse};
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use seaway_wire::http::{Body, Known, Response, may_trail};

use super::{
    answer::Answer,
    heads::{Changes, Onward},
    scratch::Buffer,
    switch::is_of_handshake,
};

pub(super) struct Multi(RefCell<Both>);

struct Both {
    /// Of a member, once its answer has begun.
    from: Option<RecvStream>,
    /// Until the head of the answer is sent.
    respond: Option<SendResponse<Bytes>>,
    to: Option<SendStream<Bytes>>,
    trailers: Option<HeaderMap>,
    /// Nothing of the body has been sent.
    fresh: bool,
    /// An answer to `CONNECT` with a protocol: a tunnel (RFC 8441).
    pub(super) switches: bool,
}

/// Sent at a time, and asked of the peer's window.
const PIECE: usize = 16 << 10;

impl Multi {
    pub(super) fn new(from: RecvStream, respond: SendResponse<Bytes>, switches: bool) -> Multi {
        let (from, respond) = (Some(from), Some(respond));
        Multi(RefCell::new(Both { from, respond, to: None, trailers: None, fresh: true, switches }))
    }

    /// To a member, who is asked by this.
    pub(super) fn asking(to: SendStream<Bytes>) -> Multi {
        let to = Some(to);
        Multi(RefCell::new(Both {
            from: None,
            respond: None,
            to,
            trailers: None,
            fresh: true,
            switches: false,
        }))
    }

    /// The member answers by this.
    pub(super) fn answered_by(&self, from: RecvStream) {
        self.0.borrow_mut().from = Some(from);
    }

    pub(super) fn poll_fill(&self, cx: &mut Context<'_>, buffer: &mut Buffer) -> Poll<io::Result<usize>> {
        let both = &mut *self.0.borrow_mut();
        let Some(from) = &mut both.from else { return Poll::Pending };
        loop {
            match ready!(from.poll_data(cx)) {
                Some(Ok(bytes)) if bytes.is_empty() => {}
                Some(Ok(bytes)) => {
                    buffer.put(&bytes);
                    // The window opens again as bytes are taken; they are passed on before more are asked for.
                    from.flow_control().release_capacity(bytes.len()).map_err(other)?;
                    return Poll::Ready(Ok(bytes.len()));
                }
                Some(Err(error)) => return Poll::Ready(Err(other(error))),
                None => {
                    both.trailers = ready!(from.poll_trailers(cx)).map_err(other)?;
                    return Poll::Ready(Ok(0));
                }
            }
        }
    }

    /// Nothing comes after what was taken, no trailers either.
    pub(super) fn has_ended(&self) -> bool {
        self.0.borrow().from.as_ref().is_some_and(RecvStream::is_end_stream)
    }

    /// As lines.
    pub(super) fn trailers(&self) -> Vec<u8> {
        let mut lines = Vec::new();
        if let Some(trailers) = self.0.borrow_mut().trailers.take() {
            lines_of(trailers.iter().filter(|(name, _)| may_trail(name.as_str().as_bytes())), &mut lines);
        }
        lines
    }

    pub(super) fn poll_write(
        &self,
        cx: &mut Context<'_>,
        bytes: &[u8],
        last: bool,
    ) -> Poll<io::Result<usize>> {
        let both = &mut *self.0.borrow_mut();
        let Some(to) = &mut both.to else { return Poll::Ready(Err(io::ErrorKind::NotConnected.into())) };
        let wanted = bytes.len().min(PIECE);
        // The first piece goes with the head, or waits with it: a stream has no window before its head is on its way.
        let mut room = if std::mem::take(&mut both.fresh) { wanted } else { 0 };
        if room == 0 {
            to.reserve_capacity(wanted);
            room = to.capacity();
        }
        while room == 0 {
            room = match ready!(to.poll_capacity(cx)) {
                Some(room) => room.map_err(other)?,
                None => return Poll::Ready(Err(io::ErrorKind::BrokenPipe.into())),
            };
        }
        let count = wanted.min(room);
        let ends = last && count == bytes.len();
        to.send_data(Bytes::copy_from_slice(&bytes[..count]), ends).map_err(other)?;
        if ends {
            // An end of its own would be one more frame.
            both.to = None;
        }
        Poll::Ready(Ok(count))
    }

    pub(super) fn close_body(&self, trailers: &[u8]) -> io::Result<()> {
        let both = &mut *self.0.borrow_mut();
        let Some(mut to) = both.to.take() else { return Ok(()) };
        let fields = fields_of(trailers);
        if fields.is_empty() {
            to.send_data(Bytes::new(), true).map_err(other)
        } else {
            to.send_trailers(fields).map_err(other)
        }
    }

    /// Nobody has answered it.
    pub(super) fn is_unanswered(&self) -> bool {
        self.0.borrow().respond.is_some()
    }

    /// The peer has given the stream up, or is gone.
    pub(super) fn is_gone(&self, cx: &mut Context<'_>) -> bool {
        let both = &mut *self.0.borrow_mut();
        let reset = match (&mut both.respond, &mut both.to) {
            (Some(respond), _) => respond.poll_reset(cx),
            (None, Some(to)) => to.poll_reset(cx),
            (None, None) => Poll::Pending,
        };
        reset.is_ready()
    }

    pub(super) fn reset(&self) {
        let both = &mut *self.0.borrow_mut();
        match (&mut both.respond, &mut both.to) {
            (Some(respond), _) => respond.send_reset(Reason::INTERNAL_ERROR),
            (None, Some(to)) => to.send_reset(Reason::INTERNAL_ERROR),
            (None, None) => {}
        }
    }

    /// Sends an answer before the answer. Who has gone is not told.
    pub(super) fn inform(&self, head: &[u8], response: &Response) {
        let Some(respond) = &mut self.0.borrow_mut().respond else { return };
        let mut interim = http::Response::new(());
        let Ok(status) = StatusCode::from_u16(response.status) else { return };
        *interim.status_mut() = status;
        for field in response.fields.iter().filter(|field| !field.hop && field.known != Known::ContentLength)
        {
            put(interim.headers_mut(), field.name.of(head), field.value.of(head));
        }
        let _ = respond.send_informational(interim);
    }

    /// Sends the head of a member's answer.
    pub(super) fn answer(
        &self,
        head: &[u8],
        response: &Response,
        changes: &impl Changes,
    ) -> io::Result<Onward> {
        let mut fields = HeaderMap::with_capacity(response.fields.len());
        let shared = Bytes::copy_from_slice(head);
        let switches = self.0.borrow().switches && response.status == 101;
        let mut lines = Vec::new();
        changes.put_new(&mut lines);
        for field in &response.fields {
            let frames = field.known == Known::ContentLength;
            let shakes = switches && is_of_handshake(field.name.of(head));
            if field.hop || shakes || (!frames && changes.replaces(head, field)) {
                continue;
            }
            put_part(&mut fields, field.name.of(&shared), &shared, field.value.of(&shared));
        }
        for (name, value) in &fields_of(&lines) {
            fields.append(name, value.clone());
        }
        let status = if switches { 200 } else { response.status };
        let ends = response.body == Body::None;
        self.send_head(status, fields, ends)?;
        Ok(Onward { chunked: false, persists: true })
    }

    fn send_head(&self, status: u16, fields: HeaderMap, ends: bool) -> io::Result<()> {
        let both = &mut *self.0.borrow_mut();
        let Some(mut respond) = both.respond.take() else { return Ok(()) };
        let mut head = http::Response::new(());
        *head.status_mut() = StatusCode::from_u16(status).map_err(io::Error::other)?;
        *head.headers_mut() = fields;
        let to = respond.send_response(head, ends).map_err(other)?;
        both.to = (!ends).then_some(to);
        Ok(())
    }

    /// An answer of our own. Who has gone is not told.
    pub(super) fn say(&self, answer: &Answer<'_>) {
        let (fields, body) = answer.parts();
        let ends = answer.head_only || body.is_empty();
        if self.send_head(answer.status, fields_of(fields.as_bytes()), ends).is_err() || ends {
            return;
        }
        if let Some(mut to) = self.0.borrow_mut().to.take() {
            let _ = to.send_data(Bytes::copy_from_slice(body.as_bytes()), true);
        }
    }
}

/// Lines of fields.
pub(super) fn lines_of<'f>(
    fields: impl IntoIterator<Item = (&'f HeaderName, &'f HeaderValue)>,
    out: &mut Vec<u8>,
) {
    for (name, value) in fields {
        for part in [name.as_str().as_bytes(), b": ", value.as_bytes(), b"\r\n"] {
            out.extend_from_slice(part);
        }
    }
}

/// Lines to fields; what HTTP/2 does not take is left out.
pub(super) fn fields_of(lines: &[u8]) -> HeaderMap {
    let mut fields = HeaderMap::new();
    for line in lines.split(|byte| *byte == b'\n') {
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        if let Some(colon) = line.iter().position(|byte| *byte == b':') {
            put(&mut fields, &line[..colon], line[colon + 1..].trim_ascii());
        }
    }
    fields
}

pub(super) fn put(fields: &mut HeaderMap, name: &[u8], value: &[u8]) {
    if let (Ok(name), Ok(value)) = (HeaderName::from_bytes(name), HeaderValue::from_bytes(value)) {
        fields.append(name, value);
    }
}

/// The value is a part of what is shared, and is not copied.
pub(super) fn put_part(fields: &mut HeaderMap, name: &[u8], shared: &Bytes, value: &[u8]) {
    let value = HeaderValue::from_maybe_shared(shared.slice_ref(value));
    if let (Ok(name), Ok(value)) = (HeaderName::from_bytes(name), value) {
        fields.append(name, value);
    }
}

pub(super) fn other(error: h2::Error) -> io::Error {
    match error.is_io() {
        true => error.into_io().unwrap_or_else(|| io::ErrorKind::ConnectionReset.into()),
        false => io::Error::other(error),
    }
}
