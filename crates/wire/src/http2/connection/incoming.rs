//! Reads the peer's frames.

#![allow(
    clippy::arithmetic_side_effects,
    reason = "windows are numbers of 64 bits with sign, and each is checked against 2^31 before the next frame; what is added \
              is the length of a frame or a number of 31 bits; pieces and streams are counted up to limits"
)]

use super::{
    super::{
        frame::{
            ErrorCode, Frame, FrameStart, LARGEST, LARGEST_NUMBER, PREFACE, flag, kind, number, put,
            put_goaway, setting,
        },
        head::Kind,
        stream_table::StreamKey,
    },
    Connection, ConnectionError, FAREWELL, FrameEvent, GoawayState, RequestInfo,
};

/// A head that comes in pieces.
#[derive(Debug)]
pub(super) struct PendingHead {
    stream: u32,
    what: HeadKind,
    ends: bool,
    block: Vec<u8>,
    pieces: u32,
}

/// What a head is, by the stream that it is on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum HeadKind {
    Request,
    Response(StreamKey),
    Trailers(StreamKey),
    /// Its stream is over; the tables must hear it.
    Nothing,
}

const MOST_STREAMS: [u8; 2] = setting::MOST_STREAMS.to_be_bytes();
/// Of one head.
const MOST_PIECES: u32 = 32;
/// What a head may be longer than what is in it, as it is written.
const SLACK: usize = 4 << 10;

type FrameResult<'i> = Result<FrameEvent<'i>, ConnectionError>;

const fn broken<T>(reason: ErrorCode, why: &'static str) -> Result<T, ConnectionError> {
    Err(ConnectionError { reason, why })
}

const fn wrong<T>(why: &'static str) -> Result<T, ConnectionError> {
    broken(ErrorCode::PROTOCOL, why)
}

impl<S: Default> Connection<S> {
    /// Reads the first frame, and tells of how many bytes it was. After an error nothing is to be read any more.
    pub fn read<'i>(&mut self, input: &'i [u8]) -> Result<(usize, FrameEvent<'i>), ConnectionError> {
        self.head.let_go();
        if self.preface > 0 {
            let begun = PREFACE.len().saturating_sub(self.preface);
            let rest = PREFACE.get(begun..).unwrap_or_default();
            let count = rest.len().min(input.len());
            if input.iter().zip(rest).any(|(is, wanted)| is != wanted) {
                return self.fail(ConnectionError { reason: ErrorCode::PROTOCOL, why: "no preface" });
            }
            self.preface -= count;
            return Ok((count, if count == 0 { FrameEvent::More } else { FrameEvent::Nothing }));
        }
        let frame = match Frame::first(input) {
            FrameStart::More => return Ok((0, FrameEvent::More)),
            FrameStart::TooLarge => {
                return self.fail(ConnectionError {
                    reason: ErrorCode::FRAME_SIZE,
                    why: "a frame that is too large",
                });
            }
            FrameStart::Frame(frame) => frame,
        };
        let length = input.len().min(super::HEAD + frame.payload.len());
        match self.handle_frame(frame) {
            Ok(heard) => Ok((length, heard)),
            Err(broken) => self.fail(broken),
        }
    }

    fn fail<T>(&mut self, broken: ConnectionError) -> Result<T, ConnectionError> {
        self.abort(broken.reason);
        Err(broken)
    }

    fn handle_frame<'i>(&mut self, frame: Frame<'i>) -> FrameResult<'i> {
        if !self.theirs.came && frame.kind != kind::SETTINGS {
            return wrong("a frame before SETTINGS");
        }
        if let Some(coming) = &self.coming
            && (frame.kind != kind::CONTINUATION || frame.stream != coming.stream)
        {
            return wrong("a frame between HEADERS and CONTINUATION");
        }
        match frame.kind {
            kind::DATA => self.hear_data(frame),
            kind::HEADERS => self.hear_head(frame),
            kind::CONTINUATION => self.hear_more_of_head(frame),
            kind::PRIORITY => self.hear_priority(frame),
            kind::RST_STREAM => self.hear_reset(frame),
            kind::SETTINGS => self.hear_settings(frame),
            kind::PUSH_PROMISE => wrong("PUSH_PROMISE from a client"),
            kind::PING => self.hear_ping(frame),
            kind::GOAWAY => self.hear_goaway(frame),
            kind::WINDOW_UPDATE => self.hear_window_update(frame),
            _ => Ok(FrameEvent::Nothing),
        }
    }

    /// A stream that nobody has opened yet.
    fn is_idle(&self, id: u32) -> bool {
        id > self.last || id.is_multiple_of(2)
    }

    /// We have ended it, or asked on it and forgotten it: what still comes is on its way since before.
    fn was_ended(&self, id: u32) -> bool {
        !self.is_server
            || self.ended.contains(&id)
            || matches!(self.parting, GoawayState::After(last) if id > last)
    }

    /// The stream breaks the rules, the connection goes on.
    fn break_stream<'i>(&mut self, key: StreamKey, reason: ErrorCode) -> FrameResult<'i> {
        self.reset(key, reason);
        Ok(FrameEvent::Reset { key, reason })
    }

    fn hear_data<'i>(&mut self, frame: Frame<'i>) -> FrameResult<'i> {
        let id = frame.stream;
        if id == 0 {
            return wrong("DATA on stream 0");
        }
        let Some(bytes) = frame.without_padding() else {
            return wrong("DATA with more padding than its length");
        };
        let whole = frame.payload.len();
        self.room -= whole as i64;
        if self.room < 0 {
            return broken(ErrorCode::FLOW_CONTROL, "more data than the flow-control window allows");
        }
        let ends = frame.has(flag::END_STREAM);
        let key = self.streams.find(id).filter(|key| !self.is_closed(*key));
        let Some(key) = key else {
            if self.is_idle(id) {
                return wrong("DATA on a stream that is not open");
            }
            if !self.was_ended(id) {
                return broken(ErrorCode::STREAM_CLOSED, "DATA on a stream that has ended");
            }
            self.release_connection(whole);
            return Ok(FrameEvent::Nothing);
        };
        let is_server = self.is_server;
        let Some(stream) = self.streams.of_mut(key) else { return Ok(FrameEvent::Nothing) };
        if stream.has_come {
            return broken(ErrorCode::STREAM_CLOSED, "DATA after the end of the stream");
        }
        stream.room -= whole as i64;
        stream.unread += whole as i64;
        stream.moved += bytes.len() as u64;
        let too_much = stream.room < 0;
        let told =
            stream.length.is_none_or(|length| stream.moved <= length && (!ends || stream.moved == length));
        let is_early = !is_server && !stream.has_head;
        stream.has_come = ends;
        if too_much || !told || is_early {
            self.release_connection(whole);
            let reason = if too_much { ErrorCode::FLOW_CONTROL } else { ErrorCode::PROTOCOL };
            return self.break_stream(key, reason);
        }
        if self.ours.is_shared {
            self.release_connection(whole);
        }
        // Nobody takes the filling.
        let filling = whole - bytes.len();
        if filling > 0 {
            self.release(key, filling);
        }
        self.close_if_over(key);
        Ok(FrameEvent::Data { key, bytes, ends })
    }

    fn hear_head<'i>(&mut self, frame: Frame<'i>) -> FrameResult<'i> {
        let id = frame.stream;
        if id == 0 || (self.is_server && id.is_multiple_of(2)) {
            return wrong("HEADERS on a stream that clients may not open");
        }
        let Some(mut block) = frame.without_padding() else {
            return wrong("HEADERS with more padding than its length");
        };
        if frame.has(flag::PRIORITY) {
            let Some((priority, rest)) = block.split_at_checked(5) else {
                return broken(ErrorCode::FRAME_SIZE, "HEADERS too short for a priority");
            };
            if number(priority) & LARGEST_NUMBER == id {
                return wrong("a stream that depends on itself");
            }
            block = rest;
        }
        let ends = frame.has(flag::END_STREAM);
        let what = match self.streams.find(id).filter(|key| !self.is_closed(*key)) {
            Some(key) => {
                let Some(stream) = self.streams.of(key) else { return Ok(FrameEvent::Nothing) };
                if stream.has_come {
                    return broken(ErrorCode::STREAM_CLOSED, "HEADERS after the end of the stream");
                }
                if self.is_server || stream.has_head {
                    HeadKind::Trailers(key)
                } else {
                    HeadKind::Response(key)
                }
            }
            None if self.is_server && id > self.last => {
                let is_late = matches!(self.parting, GoawayState::After(last) if id > last);
                self.last = id;
                if is_late { HeadKind::Nothing } else { HeadKind::Request }
            }
            None if self.is_idle(id) => return wrong("HEADERS on a stream that is not open"),
            None if self.was_ended(id) => HeadKind::Nothing,
            None => return broken(ErrorCode::STREAM_CLOSED, "HEADERS on a stream that has ended"),
        };
        if frame.has(flag::END_HEADERS) {
            return self.take_head(id, what, ends, block);
        }
        self.coming =
            Some(Box::new(PendingHead { stream: id, what, ends, block: block.to_vec(), pieces: 1 }));
        Ok(FrameEvent::Nothing)
    }

    fn hear_more_of_head<'i>(&mut self, frame: Frame<'i>) -> FrameResult<'i> {
        let Some(mut coming) = self.coming.take() else { return wrong("CONTINUATION without HEADERS") };
        coming.block.extend_from_slice(frame.payload);
        coming.pieces += 1;
        if coming.pieces > MOST_PIECES || coming.block.len() > self.ours.head + SLACK.max(LARGEST) {
            return broken(ErrorCode::TOO_MUCH, "too many or too long CONTINUATION frames");
        }
        if frame.has(flag::END_HEADERS) {
            return self.take_head(coming.stream, coming.what, coming.ends, &coming.block);
        }
        self.coming = Some(coming);
        Ok(FrameEvent::Nothing)
    }

    /// All of a head has come.
    fn take_head<'i>(&mut self, id: u32, what: HeadKind, ends: bool, block: &[u8]) -> FrameResult<'i> {
        let kind = match what {
            HeadKind::Request => Kind::Request,
            HeadKind::Response(_) => Kind::Response,
            HeadKind::Trailers(_) | HeadKind::Nothing => Kind::Trailers,
        };
        let head = &mut self.head;
        head.begin(kind, self.ours.head);
        if self.decoder.decode(block, |name, value| head.take(name, value)).is_err() {
            return broken(ErrorCode::COMPRESSION, "header fields that cannot be decoded");
        }
        head.end();
        match what {
            HeadKind::Nothing => Ok(FrameEvent::Nothing),
            HeadKind::Request => self.take_request(id, ends),
            HeadKind::Response(key) => self.take_response(key, ends),
            HeadKind::Trailers(key) => self.take_trailers(key, ends),
        }
    }

    fn take_request<'i>(&mut self, id: u32, ends: bool) -> FrameResult<'i> {
        let facts = self.head.facts;
        let is_full = self.open >= self.ours.streams;
        let said = facts.length.is_some_and(|length| ends && length > 0);
        let mut stream = self.stream(S::default());
        stream.has_head = true;
        stream.has_come = ends;
        stream.length = facts.length;
        let key = self.streams.insert(id, stream);
        self.open += 1;
        if is_full || facts.wrong || said {
            self.reset(key, if is_full { ErrorCode::REFUSED } else { ErrorCode::PROTOCOL });
            self.streams.remove(key);
            return Ok(FrameEvent::Refused);
        }
        let asked = RequestInfo {
            is_too_large: facts.is_too_large(),
            is_sized: facts.length.is_some(),
            connects: facts.connects,
            switches: facts.switches,
        };
        Ok(FrameEvent::Request { key, ends, asked })
    }

    fn take_response<'i>(&mut self, key: StreamKey, ends: bool) -> FrameResult<'i> {
        let facts = self.head.facts;
        let is_interim = facts.status < 200;
        if facts.wrong || facts.is_too_large() || (is_interim && ends) {
            return self.break_stream(key, ErrorCode::PROTOCOL);
        }
        if let Some(stream) = self.streams.of_mut(key) {
            stream.has_head = !is_interim;
            stream.has_come = ends;
            // Without a body it may tell how long one would have been (RFC 9113, section 8.1.1).
            let is_bodiless = stream.is_bodiless || matches!(facts.status, 204 | 304);
            stream.length = if is_bodiless { Some(0) } else { facts.length.filter(|_| !ends) };
        }
        self.close_if_over(key);
        Ok(FrameEvent::Response { key, status: facts.status, ends })
    }

    fn take_trailers<'i>(&mut self, key: StreamKey, ends: bool) -> FrameResult<'i> {
        let facts = self.head.facts;
        let Some(stream) = self.streams.of_mut(key) else { return Ok(FrameEvent::Nothing) };
        stream.has_come = ends;
        let is_whole = stream.length.is_none_or(|length| stream.moved == length);
        if facts.wrong || facts.is_too_large() || !ends || !is_whole {
            return self.break_stream(key, ErrorCode::PROTOCOL);
        }
        self.close_if_over(key);
        Ok(FrameEvent::Trailers { key })
    }

    fn hear_priority<'i>(&mut self, frame: Frame<'i>) -> FrameResult<'i> {
        if frame.stream == 0 {
            return wrong("PRIORITY on stream 0");
        }
        let is_whole = frame.payload.len() == 5;
        if is_whole && number(frame.payload) & LARGEST_NUMBER != frame.stream {
            return Ok(FrameEvent::Nothing);
        }
        let reason = if is_whole { ErrorCode::PROTOCOL } else { ErrorCode::FRAME_SIZE };
        match self.streams.find(frame.stream) {
            Some(key) => self.break_stream(key, reason),
            None => broken(reason, "PRIORITY of a wrong length"),
        }
    }

    fn hear_reset<'i>(&mut self, frame: Frame<'i>) -> FrameResult<'i> {
        if frame.payload.len() != 4 {
            return broken(ErrorCode::FRAME_SIZE, "RST_STREAM of a wrong length");
        }
        if frame.stream == 0 || self.is_idle(frame.stream) {
            return wrong("RST_STREAM on a stream that is not open");
        }
        let reason = ErrorCode(number(frame.payload));
        let Some(key) = self.streams.find(frame.stream).filter(|key| !self.is_closed(*key)) else {
            return Ok(FrameEvent::Nothing);
        };
        self.close(key);
        Ok(FrameEvent::Reset { key, reason })
    }

    fn hear_settings<'i>(&mut self, frame: Frame<'i>) -> FrameResult<'i> {
        if frame.stream != 0 {
            return wrong("SETTINGS on a stream other than 0");
        }
        if frame.has(flag::ACK) {
            return match frame.payload {
                [] => Ok(FrameEvent::Nothing),
                _ => broken(ErrorCode::FRAME_SIZE, "SETTINGS of a wrong length"),
            };
        }
        let (settings, []) = frame.payload.as_chunks::<6>() else {
            return broken(ErrorCode::FRAME_SIZE, "SETTINGS of a wrong length");
        };
        for [high, low, value @ ..] in settings {
            self.hear_setting(u16::from_be_bytes([*high, *low]), u32::from_be_bytes(*value))?;
        }
        if !std::mem::replace(&mut self.theirs.came, true)
            && !settings.iter().any(|it| it[..2] == MOST_STREAMS)
        {
            self.theirs.streams = u32::MAX;
        }
        put(&mut self.out, kind::SETTINGS, flag::ACK, 0, &[]);
        Ok(FrameEvent::WindowUpdate { key: None })
    }

    fn hear_setting(&mut self, which: u16, value: u32) -> Result<(), ConnectionError> {
        match which {
            setting::ENABLE_PUSH if value > 1 || (value == 1 && !self.is_server) => {
                wrong("a setting with an invalid value")
            }
            setting::MOST_STREAMS => {
                self.theirs.streams = value;
                Ok(())
            }
            setting::FIRST_WINDOW => {
                if value > LARGEST_NUMBER {
                    return broken(ErrorCode::FLOW_CONTROL, "a flow-control window that is too large");
                }
                self.theirs.first_window = i64::from(value);
                if !self.fits(self.theirs.most_beyond) {
                    // All streams are looked at only where one may be at fault: a setting has six bytes.
                    let open = self.streams.iter_mut().filter(|(_, stream)| !stream.is_closed);
                    self.theirs.most_beyond = open.map(|(_, stream)| stream.window).max().unwrap_or(0);
                }
                if self.fits(self.theirs.most_beyond) {
                    Ok(())
                } else {
                    broken(ErrorCode::FLOW_CONTROL, "a flow-control window that is too large")
                }
            }
            // We never send more than everybody takes.
            setting::LARGEST_FRAME if !(LARGEST..1 << 24).contains(&(value as usize)) => {
                wrong("a setting with an invalid value")
            }
            setting::CONNECT_PROTOCOL if value > 1 => wrong("a setting with an invalid value"),
            setting::CONNECT_PROTOCOL => {
                self.theirs.takes_protocols = value == 1;
                Ok(())
            }
            _ => Ok(()),
        }
    }

    /// So much beyond the window that all begin with is no more than a window can be.
    fn fits(&self, beyond: i64) -> bool {
        self.theirs.first_window + beyond <= i64::from(LARGEST_NUMBER)
    }

    fn hear_ping<'i>(&mut self, frame: Frame<'i>) -> FrameResult<'i> {
        if frame.stream != 0 {
            return wrong("PING on a stream other than 0");
        }
        if frame.payload.len() != 8 {
            return broken(ErrorCode::FRAME_SIZE, "PING of a wrong length");
        }
        if !frame.has(flag::ACK) {
            put(&mut self.out, kind::PING, flag::ACK, 0, frame.payload);
        } else if self.parting == GoawayState::Announced && frame.payload == FAREWELL {
            // Whatever the peer has opened before it heard of it has come.
            self.parting = GoawayState::After(self.last);
            put_goaway(&mut self.out, self.last, ErrorCode::NONE);
        }
        Ok(FrameEvent::Nothing)
    }

    fn hear_goaway<'i>(&mut self, frame: Frame<'i>) -> FrameResult<'i> {
        if frame.stream != 0 {
            return wrong("GOAWAY on a stream other than 0");
        }
        if frame.payload.len() < 8 {
            return broken(ErrorCode::FRAME_SIZE, "GOAWAY of a wrong length");
        }
        if self.is_server {
            // A client that leaves still wants its answers.
            return Ok(FrameEvent::Nothing);
        }
        let last = number(frame.payload) & LARGEST_NUMBER;
        self.parting = GoawayState::After(last);
        Ok(FrameEvent::Leaves { last })
    }

    fn hear_window_update<'i>(&mut self, frame: Frame<'i>) -> FrameResult<'i> {
        if frame.payload.len() != 4 {
            return broken(ErrorCode::FRAME_SIZE, "WINDOW_UPDATE of a wrong length");
        }
        let by = i64::from(number(frame.payload) & LARGEST_NUMBER);
        if frame.stream == 0 {
            self.window += by;
            return match by {
                0 => wrong("WINDOW_UPDATE with an increment of 0"),
                _ if self.window > i64::from(LARGEST_NUMBER) => {
                    broken(ErrorCode::FLOW_CONTROL, "a flow-control window that is too large")
                }
                _ => Ok(FrameEvent::WindowUpdate { key: None }),
            };
        }
        if self.is_idle(frame.stream) {
            return wrong("WINDOW_UPDATE on a stream that is not open");
        }
        let Some(key) = self.streams.find(frame.stream).filter(|key| !self.is_closed(*key)) else {
            return Ok(FrameEvent::Nothing);
        };
        let Some(stream) = self.streams.of_mut(key) else { return Ok(FrameEvent::Nothing) };
        stream.window += by;
        let window = stream.window;
        if by == 0 || !self.fits(window) {
            let reason = if by == 0 { ErrorCode::PROTOCOL } else { ErrorCode::FLOW_CONTROL };
            return self.break_stream(key, reason);
        }
        self.theirs.most_beyond = self.theirs.most_beyond.max(window);
        Ok(FrameEvent::WindowUpdate { key: Some(key) })
    }
}
