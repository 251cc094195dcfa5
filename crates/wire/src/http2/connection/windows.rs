//! How much may be said, and how much the peer may say.

#![allow(
    clippy::arithmetic_side_effects,
    reason = "windows are numbers of 64 bits with sign, and each is checked against 2^31 before the next frame; what is added \
              is the length of a frame or a number of 31 bits; pieces and streams are counted up to limits"
)]

use super::{
    super::{
        frame::{self, LARGEST, flag, kind, put_window_update},
        stream_table::StreamKey,
    },
    Connection,
};

impl<S> Connection<S> {
    /// Says as much as the windows allow, and tells how much that was; `ends`: all of these are the last.
    pub fn send_data(&mut self, key: StreamKey, bytes: &[u8], ends: bool) -> usize {
        let window = self.sendable(key);
        let Some(stream) = self.streams.of_mut(key).filter(|it| !it.is_closed && !it.is_said) else {
            return 0;
        };
        let count = bytes.len().min(window);
        let ends = ends && count == bytes.len();
        if count == 0 && !(ends && bytes.is_empty()) {
            return 0;
        }
        stream.window -= count as i64;
        self.window -= count as i64;
        stream.is_said = ends;
        let mut rest = bytes.get(..count).unwrap_or_default();
        loop {
            let (piece, after) = rest.split_at(rest.len().min(LARGEST));
            let last = ends && after.is_empty();
            frame::put(&mut self.out, kind::DATA, if last { flag::END_STREAM } else { 0 }, key.id, piece);
            rest = after;
            if rest.is_empty() {
                break;
            }
        }
        self.close_if_over(key);
        count
    }

    /// Bytes of a body that the windows allow on this stream now.
    pub fn sendable(&self, key: StreamKey) -> usize {
        let Some(stream) = self.streams.of(key) else { return 0 };
        let window = (self.theirs.first_window + stream.window).min(self.window);
        usize::try_from(window).unwrap_or(0)
    }

    /// So many bytes of what came are out of the way.
    pub fn release(&mut self, key: StreamKey, count: usize) {
        if let Some(stream) = self.streams.of_mut(key) {
            stream.unread -= count as i64;
            self.widen_stream(key);
        }
        if !self.ours.is_shared {
            self.release_connection(count);
        }
    }

    /// The peer may have so many bytes on this stream under way or unread. A window that is already open stays open.
    pub fn set_stream_window(&mut self, key: StreamKey, target: u32) {
        if let Some(stream) = self.streams.of_mut(key) {
            stream.target = i64::from(target);
            self.widen_stream(key);
        }
    }

    /// Tells the peer of room, where that is worth a frame.
    fn widen_stream(&mut self, key: StreamKey) {
        let open = |it: &&mut super::Stream<S>| !it.is_closed && !it.has_come;
        let Some(stream) = self.streams.of_mut(key).filter(open) else { return };
        let lacks = stream.target - stream.room - stream.unread;
        if lacks > 0 && lacks >= stream.target / 2 {
            stream.room += lacks;
            put_window_update(&mut self.out, key.id, lacks as u32);
        }
    }

    pub(super) fn release_connection(&mut self, count: usize) {
        self.taken += count as u32;
        if self.taken >= self.ours.connection_window / 2 {
            let by = std::mem::take(&mut self.taken);
            self.room += i64::from(by);
            put_window_update(&mut self.out, 0, by);
        }
    }
}
