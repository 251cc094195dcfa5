//! A member that speaks gRPC: HTTP/2 without TLS, a message for a message, and trailers.

use std::collections::{HashMap, VecDeque};

use super::Seen;
use super::server::{Saying, Talk};
use crate::message::frames::{self, Frame};
use crate::message::{ANSWER_HEAD, PATTERN, REQUEST_HEAD, Request, grpc, intact};

#[derive(Default)]
pub struct Grpc {
    begun: bool,
    input: Vec<u8>,
    coming: HashMap<u32, Vec<u8>>,
    /// What may not be said before the peer opens its window.
    waiting: VecDeque<(u32, Request)>,
    window: i64,
    taken: u32,
}

/// Without a table: nginx allows none. Its status is 200, its type `application/grpc`.
const HEAD: &[u8] = b"\x88\x0f\x10\x10application/grpc";
const TRAILER: &[u8] = b"\x00\x0bgrpc-status\x010";

impl Talk for Grpc {
    fn take(&mut self, bytes: &[u8], say: &mut Saying, seen: &mut Seen) -> bool {
        let mut input = std::mem::take(&mut self.input);
        input.extend_from_slice(bytes);
        let mut rest = &input[..];
        if !self.begun {
            let Some(after) = rest.strip_prefix(frames::PREFACE) else {
                let is_beginning = frames::PREFACE.starts_with(rest);
                self.input = input;
                return is_beginning;
            };
            rest = after;
            self.begun = true;
            self.window = frames::FIRST_WINDOW;
            frames::begin(&mut say.bytes, false);
        }
        while let Some((frame, after)) = Frame::first(rest) {
            if !self.frame(&frame, say, seen) {
                return false;
            }
            rest = after;
        }
        let done = input.len() - rest.len();
        input.drain(..done);
        self.input = input;
        self.answer(say, seen);
        true
    }

    fn is_between_requests(&self) -> bool {
        self.coming.is_empty() && self.waiting.is_empty()
    }
}

impl Grpc {
    fn frame(&mut self, frame: &Frame<'_>, say: &mut Saying, seen: &mut Seen) -> bool {
        match frame.kind {
            _ if frame.is_strange() => return false,
            frames::HEADERS => drop(self.coming.insert(frame.stream, Vec::new())),
            frames::DATA => {
                let Some(body) = self.coming.get_mut(&frame.stream) else { return false };
                body.extend_from_slice(frame.payload);
                self.taken += frame.payload.len() as u32;
                if self.taken > frames::MOST_TAKEN {
                    frames::widen(&mut say.bytes, std::mem::take(&mut self.taken));
                }
            }
            frames::SETTINGS if !frame.has(frames::ACK) => {
                frames::put(&mut say.bytes, frames::SETTINGS, frames::ACK, 0, &[]);
            }
            frames::PING if !frame.has(frames::ACK) => {
                frames::put(&mut say.bytes, frames::PING, frames::ACK, 0, &[frame.payload]);
            }
            frames::WINDOW_UPDATE if frame.stream == 0 => self.window += frame.increment(),
            frames::RST_STREAM => {
                self.coming.remove(&frame.stream);
                self.waiting.retain(|(stream, _)| *stream != frame.stream);
            }
            _ => {}
        }
        !frame.ends_stream() || self.asked(frame.stream, seen)
    }

    fn asked(&mut self, stream: u32, seen: &mut Seen) -> bool {
        let Some(body) = self.coming.remove(&stream) else { return false };
        let message = grpc::message(&body).unwrap_or_default();
        let Some(request) = Request::parse(message) else { return false };
        seen.requests += 1;
        seen.bytes_in += message.len() as u64;
        self.waiting.push_back((stream, request));
        request.len == message.len() && intact(&message[REQUEST_HEAD..], REQUEST_HEAD)
    }

    fn answer(&mut self, say: &mut Saying, seen: &mut Seen) {
        while let Some((stream, request)) = self.waiting.front().copied() {
            let length = request.answer_len;
            if self.window < (grpc::PREFIX + length) as i64 {
                return;
            }
            self.waiting.pop_front();
            self.window -= (grpc::PREFIX + length) as i64;
            seen.bytes_out += length as u64;
            let body: [&[u8]; 3] =
                [&grpc::prefix(length), &request.answer_head(), &PATTERN[ANSWER_HEAD..length]];
            let out = &mut say.bytes;
            frames::put(out, frames::HEADERS, frames::END_HEADERS, stream, &[HEAD]);
            frames::put(out, frames::DATA, 0, stream, &body);
            let last = frames::END_HEADERS | frames::END_STREAM;
            frames::put(out, frames::HEADERS, last, stream, &[TRAILER]);
        }
    }
}
