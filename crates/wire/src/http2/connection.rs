//! One connection: its streams, their windows, and what is said on them.

mod incoming;
mod windows;

use std::collections::VecDeque;

use super::{
    fields::{Decoder, FieldBlock},
    frame::{
        self, ErrorCode, HEAD, LARGEST, LARGEST_NUMBER, PREFACE, flag, kind, put_goaway, put_head, put_reset,
        put_settings, put_window_update, setting,
    },
    head::Head,
    stream_table::{StreamKey, StreamTable},
};

/// What we allow the peer.
#[derive(Clone, Copy, Debug)]
pub struct LocalSettings {
    /// Bytes of a head, each field with 32 more (RFC 9113, section 6.5.2).
    pub head: usize,
    /// Streams at a time.
    pub streams: u32,
    pub stream_window: u32,
    pub connection_window: u32,
    /// Streams are of people who do not know each other: what nobody takes fills its stream's window, and not that of
    /// all.
    pub is_shared: bool,
}

/// `S`: what the caller keeps for each stream.
#[derive(Debug)]
pub struct Connection<S> {
    /// Frames to be written.
    pub out: Vec<u8>,
    is_server: bool,
    ours: LocalSettings,
    theirs: PeerSettings,
    decoder: Decoder,
    head: Head,
    /// A head of which not all has come.
    coming: Option<Box<incoming::PendingHead>>,
    streams: StreamTable<Stream<S>>,
    /// Streams on which something may still come or go.
    open: u32,
    /// What we may still send, and what the peer may.
    window: i64,
    room: i64,
    taken: u32,
    /// The last stream that the peer has opened, or that we have.
    last: u32,
    /// Those that we have ended lately: the peer may not have heard of it.
    ended: VecDeque<u32>,
    parting: GoawayState,
    /// Bytes of the preface that are still to come.
    preface: usize,
    has_said_fields: bool,
}

/// What the peer allows us.
#[derive(Clone, Copy, Debug)]
struct PeerSettings {
    first_window: i64,
    /// No stream has been let say more beyond that.
    most_beyond: i64,
    streams: u32,
    takes_protocols: bool,
    /// Anything at all has been said.
    came: bool,
}

/// How far the connection is on its way to its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum GoawayState {
    Not,
    /// The peer was told that it is to open no more streams, and asked whether it has heard that.
    Announced,
    /// Streams after this one are not looked at.
    After(u32),
}

#[derive(Debug)]
struct Stream<S> {
    with: S,
    /// What may be said, beyond the window that all begin with.
    window: i64,
    /// What the peer may still say, what it has said and nobody has taken, and how much both together are to be.
    room: i64,
    unread: i64,
    target: i64,
    /// Its answer has no body, whatever is told of one.
    is_bodiless: bool,
    /// Of the body that comes, as it was told.
    length: Option<u64>,
    moved: u64,
    /// What has come: a head that is not interim, the end.
    has_head: bool,
    has_come: bool,
    /// Our end is said.
    is_said: bool,
    /// Nothing comes or goes any more, and the caller may still have what came.
    is_closed: bool,
}

/// What a frame says to the caller.
#[derive(Debug, PartialEq, Eq)]
pub enum FrameEvent<'i> {
    /// Not all of it has come.
    More,
    /// Nothing that the caller needs to know.
    Nothing,
    /// A request on a stream of its own; [`Connection::lines`] has its head, but for the last line.
    Request {
        key: StreamKey,
        ends: bool,
        asked: RequestInfo,
    },
    /// A stream that was refused at once; the peer was told.
    Refused,
    /// A head of a response, which [`Connection::lines`] has; after an interim one comes another.
    Response {
        key: StreamKey,
        status: u16,
        ends: bool,
    },
    Data {
        key: StreamKey,
        bytes: &'i [u8],
        ends: bool,
    },
    /// Fields after the body, which [`Connection::lines`] has, and the end.
    Trailers {
        key: StreamKey,
    },
    /// The stream is over before its time.
    Reset {
        key: StreamKey,
        reason: ErrorCode,
    },
    /// More may be sent: on this stream, or on all.
    WindowUpdate {
        key: Option<StreamKey>,
    },
    /// The peer wants no more streams, and has not looked at those after this one ([`Connection::drop_streams_after`]).
    Leaves {
        last: u32,
    },
}

/// What is known of a request besides its lines.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RequestInfo {
    /// It is larger than allowed: its lines are not all of it.
    pub is_too_large: bool,
    /// It tells how long its body is.
    pub is_sized: bool,
    pub connects: bool,
    /// To another protocol (RFC 8441).
    pub switches: bool,
}

/// The connection cannot go on. The peer was told why, in `out`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConnectionError {
    pub reason: ErrorCode,
    pub why: &'static str,
}

const FIRST_WINDOW: u32 = 65_535;
/// Until the peer has told how many it takes: fewer is not recommended to anybody (RFC 9113, section 6.5.2), and more
/// would be refused with bodies on their way, which cannot be asked again.
const FIRST_STREAMS: u32 = 100;
/// Of our ends that are remembered.
const MOST_ENDED: usize = 512;
/// What the ping says that asks whether the peer has heard that we leave.
const FAREWELL: [u8; 8] = *b"farewell";

impl<S> Connection<S> {
    /// `greeted`: the peer's preface was read before.
    pub fn server(ours: LocalSettings, greeted: bool) -> Connection<S> {
        let mut connection = Connection::new(ours, true);
        connection.preface = if greeted { 0 } else { PREFACE.len() };
        put_settings(
            &mut connection.out,
            &[
                (setting::MOST_STREAMS, ours.streams),
                (setting::FIRST_WINDOW, ours.stream_window),
                (setting::LARGEST_HEAD, ours.head as u32),
                (setting::CONNECT_PROTOCOL, 1),
            ],
        );
        connection.widen();
        connection
    }

    pub fn client(ours: LocalSettings) -> Connection<S> {
        let mut connection = Connection::new(ours, false);
        connection.out.extend_from_slice(PREFACE);
        put_settings(
            &mut connection.out,
            &[
                (setting::ENABLE_PUSH, 0),
                (setting::FIRST_WINDOW, ours.stream_window),
                (setting::LARGEST_HEAD, ours.head as u32),
            ],
        );
        connection.widen();
        connection
    }

    fn new(ours: LocalSettings, is_server: bool) -> Connection<S> {
        Connection {
            out: Vec::new(),
            is_server,
            ours,
            theirs: PeerSettings {
                first_window: i64::from(FIRST_WINDOW),
                most_beyond: 0,
                streams: FIRST_STREAMS,
                takes_protocols: false,
                came: false,
            },
            decoder: Decoder::default(),
            head: Head::default(),
            coming: None,
            streams: StreamTable::default(),
            open: 0,
            window: i64::from(FIRST_WINDOW),
            room: i64::from(ours.connection_window),
            taken: 0,
            last: 0,
            ended: VecDeque::new(),
            parting: GoawayState::Not,
            preface: 0,
            has_said_fields: false,
        }
    }

    fn widen(&mut self) {
        if let Some(more) = self.ours.connection_window.checked_sub(FIRST_WINDOW).filter(|more| *more > 0) {
            put_window_update(&mut self.out, 0, more);
        }
    }

    /// Of the head that was heard last, until the next frame is read.
    pub fn lines(&self) -> &[u8] {
        &self.head.lines
    }

    pub fn with(&self, key: StreamKey) -> Option<&S> {
        self.streams.of(key).map(|stream| &stream.with)
    }

    pub fn with_mut(&mut self, key: StreamKey) -> Option<&mut S> {
        self.streams.of_mut(key).map(|stream| &mut stream.with)
    }

    pub fn each(&mut self) -> impl Iterator<Item = &mut S> {
        self.streams.iter_mut().map(|(_, stream)| &mut stream.with)
    }

    /// Of streams on which more may be said.
    pub fn sendable_streams(&self) -> impl Iterator<Item = &S> {
        let open = self.streams.iter().filter(|stream| !stream.is_closed && !stream.is_said);
        open.map(|stream| &stream.with)
    }

    /// Streams on which something may still come or go.
    pub fn open(&self) -> u32 {
        self.open
    }

    /// Streams that somebody holds, whether or not they are over.
    pub fn held_streams(&self) -> usize {
        self.streams.len()
    }

    pub fn is_server(&self) -> bool {
        self.is_server
    }

    /// Nothing more is to be expected of the stream, in neither direction.
    pub fn is_closed(&self, key: StreamKey) -> bool {
        self.streams.of(key).is_none_or(|stream| stream.is_closed)
    }

    /// The peer has said what it takes and what not.
    pub fn has_heard(&self) -> bool {
        self.theirs.came
    }

    /// `CONNECT` with a protocol (RFC 8441).
    pub fn takes_protocols(&self) -> bool {
        self.theirs.takes_protocols
    }

    /// The peer takes another stream now.
    pub fn takes_more(&self) -> bool {
        self.open < self.theirs.streams
    }

    /// Streams that the peer takes at a time.
    pub fn most_streams(&self) -> u32 {
        self.theirs.streams
    }

    /// Bytes of bodies that the peer takes now, on all streams together.
    pub fn window(&self) -> i64 {
        self.window
    }

    /// No stream can be opened any more, whatever ends.
    pub fn is_used_up(&self) -> bool {
        self.parting != GoawayState::Not || self.last >= LARGEST_NUMBER - 2
    }

    /// Opens a stream with a request.
    pub fn ask(&mut self, ends: bool, with: S, put: impl FnOnce(&mut FieldBlock<'_>)) -> Option<StreamKey> {
        if self.is_server || self.is_used_up() || !self.takes_more() {
            return None;
        }
        self.last = if self.last == 0 { 1 } else { self.last.saturating_add(2) };
        let key = self.streams.insert(self.last, self.stream(with));
        self.open = self.open.saturating_add(1);
        self.send_headers(key, ends, put);
        Some(key)
    }

    fn stream(&self, with: S) -> Stream<S> {
        Stream {
            with,
            window: 0,
            room: i64::from(self.ours.stream_window),
            unread: 0,
            target: i64::from(self.ours.stream_window),
            is_bodiless: false,
            length: None,
            moved: 0,
            has_head: false,
            has_come: false,
            is_said: false,
            is_closed: false,
        }
    }

    /// Says a head, or fields after a body. On a stream that is over nobody hears it.
    pub fn send_headers(&mut self, key: StreamKey, ends: bool, put: impl FnOnce(&mut FieldBlock<'_>)) {
        let Some(stream) = self.streams.of_mut(key).filter(|it| !it.is_closed && !it.is_said) else { return };
        stream.is_said = ends;
        let start = self.out.len();
        put_head(&mut self.out, 0, kind::HEADERS, 0, key.id);
        let mut block = FieldBlock::new(&mut self.out, !std::mem::replace(&mut self.has_said_fields, true));
        put(&mut block);
        stream.is_bodiless |= block.asks_head;
        let end_stream = if ends { flag::END_STREAM } else { 0 };
        let begins = start.saturating_add(HEAD);
        let length = self.out.len().saturating_sub(begins);
        if length <= LARGEST {
            let [_, size @ ..] = (length as u32).to_be_bytes();
            if let Some([a, b, c, _, flags, ..]) = self.out.get_mut(start..) {
                [*a, *b, *c] = size;
                *flags = flag::END_HEADERS | end_stream;
            }
        } else {
            let block = self.out.split_off(begins);
            self.out.truncate(start);
            let pieces = block.chunks(LARGEST);
            let last = pieces.len().saturating_sub(1);
            for (at, piece) in pieces.enumerate() {
                let (kind, first) =
                    if at == 0 { (kind::HEADERS, end_stream) } else { (kind::CONTINUATION, 0) };
                let flags = first | if at == last { flag::END_HEADERS } else { 0 };
                frame::put(&mut self.out, kind, flags, key.id, piece);
            }
        }
        self.close_if_over(key);
    }

    /// Ends a stream before its time, if it is not over.
    pub fn reset(&mut self, key: StreamKey, reason: ErrorCode) {
        if self.is_closed(key) {
            return;
        }
        put_reset(&mut self.out, key.id, reason);
        if self.ended.len() == MOST_ENDED {
            self.ended.pop_front();
        }
        self.ended.push_back(key.id);
        self.close(key);
    }

    /// The caller needs the stream no more. What is not over is ended; `unread`: bytes that came and nobody took.
    pub fn let_go(&mut self, key: StreamKey, unread: usize) -> Option<S> {
        let stream = self.streams.of(key)?;
        let reason = if self.is_server && stream.is_said { ErrorCode::NONE } else { ErrorCode::CANCEL };
        self.reset(key, reason);
        if !self.ours.is_shared {
            self.release_connection(unread);
        }
        self.streams.remove(key).map(|stream| stream.with)
    }

    fn close_if_over(&mut self, key: StreamKey) {
        if self.streams.of(key).is_some_and(|stream| stream.is_said && stream.has_come) {
            self.close(key);
        }
    }

    fn close(&mut self, key: StreamKey) {
        if let Some(stream) = self.streams.of_mut(key).filter(|stream| !stream.is_closed) {
            stream.is_closed = true;
            self.open = self.open.saturating_sub(1);
        }
    }

    /// The peer is to open no more streams. Those that are on their way are served, until it has heard that.
    pub fn leave(&mut self) {
        if self.parting == GoawayState::Not {
            self.parting = GoawayState::Announced;
            put_goaway(&mut self.out, LARGEST_NUMBER, ErrorCode::NONE);
            frame::put(&mut self.out, kind::PING, 0, 0, &FAREWELL);
        }
    }

    /// The peer has heard that we leave, and knows which streams are not looked at.
    pub fn has_sent_goaway(&self) -> bool {
        matches!(self.parting, GoawayState::After(_))
    }

    /// Ends the connection at once.
    pub fn abort(&mut self, reason: ErrorCode) {
        let last = if self.is_server { self.last } else { 0 };
        put_goaway(&mut self.out, last, reason);
    }

    /// Those after the last one that the peer has looked at are over. Nobody has touched what they asked.
    pub fn drop_streams_after(&mut self, last: u32) -> Vec<StreamKey> {
        let late = self.streams.iter_mut().filter(|(key, stream)| key.id > last && !stream.is_closed);
        let late: Vec<StreamKey> = late.map(|(key, _)| key).collect();
        late.iter().for_each(|key| self.close(*key));
        late
    }
}

#[cfg(test)]
mod tests;
