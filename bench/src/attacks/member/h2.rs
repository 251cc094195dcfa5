//! A server of HTTP/2 without TLS that obeys its peer's windows.

use std::collections::BTreeMap;

use super::{BIG, BODY, Next, PIECE};
use crate::message::frames::{self, Frame};

/// At a time, of each connection.
const STREAMS: u32 = 128;
const LARGEST_FRAME: i64 = 16 << 10;

#[derive(Default)]
pub(super) struct H2 {
    begun: bool,
    input: Vec<u8>,
    /// Of new streams, and of the connection.
    first: i64,
    window: i64,
    streams: BTreeMap<u32, Stream>,
    /// A header list that is not whole.
    head: Vec<u8>,
}

struct Stream {
    window: i64,
    /// Of the answer; `None`: the handler answers nothing.
    left: Option<u64>,
    reads: bool,
}

/// A path as it is, and as Huffman codes say it (RFC 7541, appendix B).
const BIG_PATH: [&[u8]; 2] = [b"/big", b"\x83\x62\x33\x4d"];
const HOLD_PATH: [&[u8]; 2] = [b"/hold", b"\x84\x62\x73\xd1\x27"];

impl H2 {
    /// `None`: this is not HTTP/2.
    pub(super) fn take(&mut self, bytes: &[u8], out: &mut Vec<u8>) -> Option<Next> {
        let mut input = std::mem::take(&mut self.input);
        input.extend_from_slice(bytes);
        let mut rest = &input[..];
        if !self.begun {
            let Some(after) = rest.strip_prefix(frames::PREFACE) else {
                let is_beginning = frames::PREFACE.starts_with(rest);
                self.input = input;
                return is_beginning.then_some(Next::Reads);
            };
            rest = after;
            self.begun = true;
            (self.first, self.window) = (frames::FIRST_WINDOW, frames::FIRST_WINDOW);
            let streams = [&[0, 3][..], &STREAMS.to_be_bytes()].concat();
            frames::put(out, frames::SETTINGS, 0, 0, &[&streams]);
        }
        while let Some((frame, after)) = Frame::first(rest) {
            self.frame(&frame, out);
            rest = after;
        }
        let done = input.len() - rest.len();
        input.drain(..done);
        self.input = input;
        Some(Next::Reads)
    }

    fn frame(&mut self, frame: &Frame<'_>, out: &mut Vec<u8>) {
        match frame.kind {
            frames::SETTINGS if !frame.has(frames::ACK) => {
                if let Some(first) = frame.first_window() {
                    self.streams.values_mut().for_each(|it| it.window += first - self.first);
                    self.first = first;
                }
                frames::put(out, frames::SETTINGS, frames::ACK, 0, &[]);
            }
            frames::PING if !frame.has(frames::ACK) => {
                frames::put(out, frames::PING, frames::ACK, 0, &[frame.payload]);
            }
            frames::WINDOW_UPDATE if frame.stream == 0 => self.window += frame.increment(),
            frames::WINDOW_UPDATE => {
                if let Some(stream) = self.streams.get_mut(&frame.stream) {
                    stream.window += frame.increment();
                }
            }
            frames::RST_STREAM => drop(self.streams.remove(&frame.stream)),
            frames::HEADERS | frames::CONTINUATION => {
                self.head.extend_from_slice(frame.payload);
                if frame.kind == frames::HEADERS {
                    let stream = Stream { window: self.first, left: None, reads: true };
                    // Trailers belong to a stream that is there.
                    self.streams.entry(frame.stream).or_insert(stream);
                }
                if frame.has(frames::END_HEADERS) {
                    let head = std::mem::take(&mut self.head);
                    self.asked(frame.stream, &head, out);
                }
            }
            // A handler that does not read leaves the windows shut: its own, and that of the connection.
            frames::DATA if self.streams.get(&frame.stream).is_some_and(|it| it.reads) => {
                let length = (frame.payload.len() as u32).to_be_bytes();
                for stream in [0, frame.stream].into_iter().filter(|_| !frame.payload.is_empty()) {
                    frames::put(out, frames::WINDOW_UPDATE, 0, stream, &[&length]);
                }
            }
            _ => {}
        }
    }

    fn asked(&mut self, id: u32, head: &[u8], out: &mut Vec<u8>) {
        let Some(stream) = self.streams.get_mut(&id).filter(|it| it.left.is_none() && it.reads) else {
            return;
        };
        let has = |path: [&[u8]; 2]| path.iter().any(|it| head.windows(it.len()).any(|part| part == *it));
        stream.reads = !has(HOLD_PATH);
        if stream.reads {
            stream.left = Some(if has(BIG_PATH) { BIG } else { BODY as u64 });
            frames::put(out, frames::HEADERS, frames::END_HEADERS, id, &[b"\x88"]);
        }
    }

    pub(super) fn more(&mut self, out: &mut Vec<u8>) {
        const BYTES: [u8; LARGEST_FRAME as usize] = [b'x'; LARGEST_FRAME as usize];
        let mut over = Vec::new();
        for (id, stream) in &mut self.streams {
            let Some(left) = &mut stream.left else { continue };
            while *left > 0 && out.len() < PIECE {
                let length = (*left as i64).min(stream.window).min(self.window).min(LARGEST_FRAME);
                if length <= 0 {
                    break;
                }
                (stream.window, self.window) = (stream.window - length, self.window - length);
                *left -= length as u64;
                let flags = if *left == 0 { frames::END_STREAM } else { 0 };
                frames::put(out, frames::DATA, flags, *id, &[&BYTES[..length as usize]]);
            }
            if *left == 0 {
                over.push(*id);
            }
        }
        for id in over {
            self.streams.remove(&id);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_waits_for_its_window() {
        let (mut server, mut out) = (H2::default(), Vec::new());
        let mut asked = frames::PREFACE.to_vec();
        frames::put(&mut asked, frames::SETTINGS, 0, 0, &[&[0, 4, 0, 0, 0, 10]]);
        frames::put(&mut asked, frames::HEADERS, 5, 1, &[b"\x82\x04\x04/big"]);
        server.take(&asked, &mut out).unwrap();
        out.clear();
        server.more(&mut out);
        assert_eq!(out.len(), 9 + 10);
        let mut wider = Vec::new();
        frames::put(&mut wider, frames::WINDOW_UPDATE, 0, 1, &[&5_u32.to_be_bytes()]);
        server.take(&wider, &mut out).unwrap();
        out.clear();
        server.more(&mut out);
        assert_eq!(out.len(), 9 + 5);
    }
}
